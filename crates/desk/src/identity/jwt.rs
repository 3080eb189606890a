//! JSON Web Tokens: who somebody else, the issuer, says that an agent is.
//!
//! In reading order:
//! - [`settings`]: which tokens are accepted
//! - [`keys`]: the issuer's keys, and which of them a token is checked with
//! - [`seen`]: the tokens that were checked before
//!
//! Checking is a matter of memory: whoever runs the desk reads the keys in the background, so that no request waits for the
//! issuer.

pub mod keys;
pub mod seen;
pub mod settings;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use handover_kernel::{AgentId, Timestamp};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::{Algorithm, Validation};
use serde_json::{Map, Value};
use tokio::sync::{Notify, watch};

use self::keys::{KeySet, NoKey};
use self::seen::Seen;
use self::settings::Settings;
use super::tokens::hash;
use super::{Allowance, Credential, DEFAULT_TENANT, EXPIRED, Principal, agent_id};

/// How long a token may be.
pub const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// The part of a token that says how it is signed.
pub type Header = Map<String, Value>;

/// Checks tokens. Shared by all requests.
pub struct Verifier {
    settings: Settings,
    /// How tokens of each accepted algorithm are checked.
    validations: Vec<(Algorithm, Validation)>,
    /// The keys, once there are any.
    keys: RwLock<Option<Arc<KeySet>>>,
    changed: watch::Sender<()>,
    seen: Mutex<Seen>,
    /// Asks for the keys to be read before their time.
    wanted: Notify,
}

// Neither keys nor what was seen is anything that a log should show.
impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tokens of {}", self.settings.issuer)
    }
}

/// The header of a text that has the shape of a token: three parts in base64url, of which the first is a JSON object.
pub fn header(token: &str) -> Option<Header> {
    let is_base64url = |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    let mut parts = token.split('.');
    let (Some(header), Some(claims), Some(signature), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    if header.len() > TOKEN_BYTES_MAX || !is_base64url(claims) || !is_base64url(signature) {
        return None;
    }
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()
}

impl Verifier {
    /// Checks tokens by these rules. It has no keys yet.
    pub fn new(settings: Settings) -> Verifier {
        let validations = settings
            .algorithms
            .iter()
            .map(|algorithm| (*algorithm, validation(&settings, *algorithm)))
            .collect();
        Verifier {
            settings,
            validations,
            keys: RwLock::default(),
            changed: watch::Sender::new(()),
            seen: Mutex::default(),
            wanted: Notify::new(),
        }
    }

    /// Who issues its tokens.
    pub(super) fn issuer(&self) -> &str {
        &self.settings.issuer
    }

    /// Whose token this is at this time, or else why it is refused.
    pub fn verify(&self, token: &str, header: &Header, now: Timestamp) -> Result<Principal, &'static str> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err("it is longer than any token");
        }
        let keys = self.keys().ok_or("the keys of its issuer are not known yet")?;
        let name = hash(token);
        let before = self.seen.lock().unwrap_or_else(PoisonError::into_inner).find(&keys, &name);
        let principal = match before {
            Some(principal) => principal,
            None => {
                let principal = self.check(&keys, token, header, now)?;
                let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.add(&keys, name, principal.clone());
                principal
            }
        };
        if principal.has_expired(now) { Err(EXPIRED) } else { Ok(principal) }
    }

    /// Check a token that was not seen before.
    fn check(
        &self,
        keys: &KeySet,
        token: &str,
        header: &Header,
        now: Timestamp,
    ) -> Result<Principal, &'static str> {
        // RFC 7515 §4.1.11: what is critical and not understood makes a token invalid. We understand no extension.
        if header.contains_key("crit") {
            return Err("it needs an extension that is not known");
        }
        let named = header.get("alg").and_then(Value::as_str).unwrap_or_default();
        let accepted = self.validations.iter().find(|(algorithm, _)| settings::name(*algorithm) == named);
        let (algorithm, validation) = accepted.ok_or("its algorithm is not accepted")?;
        let id = match header.get("kid") {
            None => None,
            Some(Value::String(id)) => Some(id.as_str()),
            Some(_) => return Err("the name of its key is not text"),
        };
        let key = keys.choose(*algorithm, id).map_err(|none| {
            if none == NoKey::Unknown {
                self.want_keys();
            }
            none.why()
        })?;
        let decoded = jsonwebtoken::decode::<Map<String, Value>>(token, &key.key, validation);
        let claims = decoded.map_err(|error| why(&error))?.claims;
        self.principal(&claims, Credential::Key(key.fingerprint), now)
    }

    /// Who the claims of a genuine token say that it is.
    fn principal(
        &self,
        claims: &Map<String, Value>,
        credential: Credential,
        now: Timestamp,
    ) -> Result<Principal, &'static str> {
        let seconds = |claim: &str| match claims.get(claim) {
            None => Ok(None),
            Some(value) => value.as_f64().map(Some).ok_or("one of its times is not a number"),
        };
        // Times are far below 2^53, where the conversions would begin to round; beyond they saturate.
        if seconds("iat")?.is_some_and(|at| at > (now.0 / 1000 + self.settings.skew_seconds) as f64) {
            return Err("it was issued in the future");
        }
        let expires = seconds("exp")?.ok_or("it does not say when it expires")? as u64;
        let agent = claims.get("sub").and_then(Value::as_str).ok_or("it does not say whose it is")?;
        agent_id(agent)?;
        let tenant = match claims.get(&self.settings.tenant_claim) {
            None => DEFAULT_TENANT,
            Some(Value::String(tenant)) if agent_id(tenant).is_ok() => tenant,
            Some(_) => return Err("its tenant cannot be the name of one"),
        };
        let has = |role| roles(claims.get("roles")).any(|found| found == role);
        Ok(Principal {
            agent: AgentId::from(agent),
            tenant: tenant.into(),
            observer: has("observer"),
            admin: has("admin"),
            proven: true,
            expires_at: Some(Timestamp(
                expires.saturating_add(self.settings.skew_seconds).saturating_mul(1000),
            )),
            allowance: Allowance::default(),
            credential,
        })
    }

    /// The keys, if they have been read.
    fn keys(&self) -> Option<Arc<KeySet>> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Check tokens with these keys from now on. What was checked with others is forgotten, and what rests on a key that
    /// is not among them ends. Says which keys came and which went.
    pub fn set_keys(&self, keys: KeySet) -> keys::Difference {
        let new = Arc::new(keys);
        let old = self.keys.write().unwrap_or_else(PoisonError::into_inner).replace(Arc::clone(&new));
        self.changed.send_replace(());
        old.map_or_else(keys::Difference::default, |old| old.difference(&new))
    }

    /// Whether a key is among those that tokens are checked with.
    pub(super) fn has_key(&self, fingerprint: &[u8; 32]) -> bool {
        self.keys().is_some_and(|keys| keys.has(fingerprint))
    }

    /// Tells of every change of the keys from now on.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Whether its keys are what these bytes say.
    pub fn has_keys_from(&self, bytes: &[u8]) -> bool {
        self.keys().is_some_and(|keys| keys.is_from(bytes))
    }

    /// How often its keys are to be read again.
    pub fn refresh(&self) -> Duration {
        self.settings.refresh
    }

    /// Have the keys read again soon.
    pub fn want_keys(&self) {
        self.wanted.notify_one();
    }

    /// Returns when the keys should be read before their time: a token named one that is not known, or somebody asked.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Whether tokens can be checked, or else why not.
    pub fn ready(&self) -> Result<(), String> {
        match self.keys() {
            Some(_) => Ok(()),
            None => Err("the keys of identity.jwt_keys could not be read yet".to_owned()),
        }
    }
}

/// What the claims of a token of this algorithm must say.
fn validation(settings: &Settings, algorithm: Algorithm) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.set_issuer(&[&settings.issuer]);
    validation.set_audience(&settings.audience);
    validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
    validation.validate_nbf = true;
    validation.leeway = settings.skew_seconds;
    validation
}

/// The roles of a token: a list of text, or one text with spaces in between.
fn roles(claim: Option<&Value>) -> impl Iterator<Item = &str> {
    let (list, text) = match claim {
        Some(Value::Array(list)) => (list.as_slice(), ""),
        Some(Value::String(text)) => (&[][..], text.as_str()),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => (&[][..], ""),
    };
    list.iter().filter_map(Value::as_str).chain(text.split(' '))
}

/// Why a token was refused, without saying anything that it holds.
#[allow(clippy::wildcard_enum_match_arm, reason = "the library may find more that is wrong with a token")]
fn why(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::InvalidSignature => "its signature is not that of its key",
        ErrorKind::ExpiredSignature => EXPIRED,
        ErrorKind::ImmatureSignature => "the token is not valid yet",
        ErrorKind::InvalidIssuer => "its issuer is another",
        ErrorKind::InvalidAudience => "its audience is another",
        ErrorKind::InvalidClaimFormat(_) => "one of its times is not a number",
        ErrorKind::MissingRequiredClaim(claim) => match claim.as_str() {
            "exp" => "it does not say when it expires",
            "iss" => "it does not say who issued it",
            "aud" => "it does not say for whom it is",
            _ => "it does not say whose it is",
        },
        _ => "it is not a well-formed token",
    }
}
