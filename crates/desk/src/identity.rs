//! Whose request it is. Every request is some agent's; every face asks here.
//!
//! - [`tokens`]: a file of static tokens, hashed
//! - [`jwt`]: tokens that somebody else issues, signed
//! - [`signed`]: requests that an agent signs with a key of its own
//! - [`bound`]: the keys that agents sign with, as they are stored
//! - [`signins`]: secrets that browsers keep in the place of a token

pub mod bound;
pub mod jwt;
pub mod signed;
pub mod signins;
pub mod tokens;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use handover_kernel::{AgentId, Timestamp};

use self::bound::{BOUND_MS, Bound, By};
use self::jwt::Verifier;
use self::signed::NodeId;
use self::tokens::Tokens;
use crate::visible::unseen_in_id;
use handover_engine::clock::machine;

/// The tenant of everybody in development mode, and of those whose credential names none.
pub const DEFAULT_TENANT: &str = "default";

/// Why a token whose time is up is refused.
const EXPIRED: &str = "the token has expired";

/// The same of a key that was bound with a token of an issuer.
const KEY_EXPIRED: &str = "its key was bound too long ago: bind it again";

/// How long an agent's id may be.
pub const AGENT_ID_BYTES_MAX: usize = 256;

/// An authenticated agent and what its credential is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Who it is.
    pub agent: AgentId,
    /// Its namespace.
    pub tenant: Box<str>,
    /// Whether it may see every session of its tenant.
    pub observer: bool,
    /// Whether it may change what belongs to everybody, such as policies.
    pub admin: bool,
    /// Whether the credential proves anything: never in development mode.
    pub proven: bool,
    /// When its credential ends, if it does. What goes on for longer, such as a stream, ends then as well.
    pub expires_at: Option<Timestamp>,
    /// What it may use, where that is not what everybody may.
    pub allowance: Allowance,
    /// What proved it, so that it can be told later whether that still counts.
    pub credential: Credential,
}

/// What an agent proved with who it is. Never a secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    /// Nothing was asked for, as in development.
    None,
    /// The static token with this hash.
    Token([u8; 32]),
    /// A token that was signed with the key of this fingerprint.
    Key([u8; 32]),
    /// A request that was signed with the agent's own key of this id, and what bound that key to it.
    Signed(NodeId, By),
}

// Hashes of tokens are nothing that a log should show.
impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Credential::None => "no credential",
            Credential::Token(_) => "a static token",
            Credential::Key(_) => "a signed token",
            Credential::Signed(..) => "a signed request",
        })
    }
}

/// The limits that a credential sets instead of the server's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Session starts a minute; 0 is any number.
    pub starts_per_minute: Option<u64>,
    /// Messages a minute; 0 is any number.
    pub messages_per_minute: Option<u64>,
    /// Requests of any kind a minute; 0 is any number.
    pub requests_per_minute: Option<u64>,
    /// Streams that may be open.
    pub streams: Option<u64>,
    /// Sessions that may be open.
    pub sessions_open: Option<u64>,
    /// Bytes of a payload, never more than the server's own bound.
    pub payload_bytes: Option<u64>,
    /// Bytes that may be in memory on its behalf.
    pub memory_bytes: Option<u64>,
    /// Bytes that may be stored of the sessions that it started; 0 is any number.
    pub stored_bytes: Option<u64>,
    /// How many seconds its calls wait.
    pub wait_seconds: Option<u64>,
    /// Which tools it is shown.
    pub profile: Option<Profile>,
}

/// Which tools a caller is shown. It may call the others all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// All of them.
    #[default]
    All,
    /// Those to hand out work with.
    Requester,
    /// Those to do work with.
    Worker,
    /// Those to talk about tasks with.
    Conversation,
}

impl Profile {
    /// What their names are.
    pub const NAMES: &str = "all, requester, worker or conversation";

    /// The profile of this name.
    pub fn of(name: &str) -> Option<Profile> {
        match name {
            "all" => Some(Profile::All),
            "requester" => Some(Profile::Requester),
            "worker" => Some(Profile::Worker),
            "conversation" => Some(Profile::Conversation),
            _ => None,
        }
    }
}

impl Principal {
    /// Whether its credential has ended.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// Whether it is the same agent with the same rights, whatever it may use and however long.
    fn is_same_but_for_limits(&self, other: &Principal) -> bool {
        let Principal { agent, tenant, observer, admin, proven, expires_at: _, allowance: _, credential } =
            self;
        // A key has none of the roles of the token that bound it.
        let is_key = matches!(other.credential, Credential::Signed(..));
        let same_rights = (credential, observer, admin, proven)
            == (&other.credential, &other.observer, &other.admin, &other.proven);
        (agent, tenant) == (&other.agent, &other.tenant) && (is_key || same_rights)
    }
}

/// How requests are authenticated.
#[derive(Clone, Debug)]
pub enum Identity {
    /// The bearer token is the agent's id. For one machine only.
    Development,
    /// The same, and who has no token is this agent.
    Anonymous(AgentId),
    /// The bearer token is one of these.
    Tokens(Arc<Tokens>),
    /// The bearer token is one that an issuer signed, or one of these.
    Jwt(Arc<Verifier>, Arc<Tokens>),
}

/// Why a request is not authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unauthenticated {
    /// There is no credential.
    Missing,
    /// There is one that is not accepted.
    Refused {
        /// Why.
        why: &'static str,
    },
    /// There is a signed request that is not accepted.
    Unsigned {
        /// Why.
        why: &'static str,
    },
}

impl std::fmt::Display for Unauthenticated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unauthenticated::Missing => f.write_str("expected a bearer token, found none"),
            Unauthenticated::Refused { why } => write!(f, "the bearer token was refused: {why}"),
            Unauthenticated::Unsigned { why } => write!(f, "the signed request was refused: {why}"),
        }
    }
}

impl std::error::Error for Unauthenticated {}

impl Unauthenticated {
    /// Whether nothing is wrong but that the credential's time is up, which whoever holds it can foresee.
    pub fn is_expiry(&self) -> bool {
        match self {
            Unauthenticated::Missing => false,
            Unauthenticated::Refused { why } | Unauthenticated::Unsigned { why } => {
                matches!(*why, EXPIRED | KEY_EXPIRED)
            }
        }
    }
}

/// Whether a text can be the id of an agent, or else why not.
pub(crate) fn agent_id(text: &str) -> Result<(), &'static str> {
    if text.is_empty() {
        Err("an agent id is not empty")
    } else if text.len() > AGENT_ID_BYTES_MAX {
        Err("an agent id has at most 256 bytes")
    } else if unseen_in_id(text).is_some() {
        Err(
            "an agent id has visible characters only: no spaces, control, format or other characters that show nothing",
        )
    } else {
        Ok(())
    }
}

/// The bytes that so many hexadecimal digits are, and no others.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (place, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[place * 2..place * 2 + 2], 16).ok()?;
    }
    Some(bytes)
}

impl Identity {
    /// Whether a token proves nothing.
    pub fn is_development(&self) -> bool {
        match self {
            Identity::Development | Identity::Anonymous(_) => true,
            Identity::Tokens(_) | Identity::Jwt(..) => false,
        }
    }

    /// The static tokens, where there are any.
    pub fn tokens(&self) -> Option<&Tokens> {
        match self {
            Identity::Tokens(tokens) | Identity::Jwt(_, tokens) => Some(tokens),
            Identity::Development | Identity::Anonymous(_) => None,
        }
    }

    /// Whose token this is.
    pub fn authenticate(&self, token: Option<&str>) -> Result<Principal, Unauthenticated> {
        let token = token.map(str::trim).filter(|token| !token.is_empty());
        let anonymous = match self {
            Identity::Anonymous(agent) => Some(agent.as_str()),
            Identity::Development | Identity::Tokens(_) | Identity::Jwt(..) => None,
        };
        let token = token.or(anonymous).ok_or(Unauthenticated::Missing)?;
        let find =
            |tokens: &Tokens| tokens.find(token, machine()).map_err(|why| Unauthenticated::Refused { why });
        match self {
            Identity::Tokens(tokens) => find(tokens),
            Identity::Jwt(verifier, tokens) => match jwt::header(token) {
                None => find(tokens),
                Some(header) => {
                    verifier.verify(token, &header, machine()).map_err(|why| Unauthenticated::Refused { why })
                }
            },
            Identity::Development | Identity::Anonymous(_) => {
                agent_id(token).map_err(|why| Unauthenticated::Refused { why })?;
                Ok(Principal {
                    agent: AgentId::from(token),
                    tenant: DEFAULT_TENANT.into(),
                    observer: false,
                    admin: true,
                    proven: false,
                    allowance: Allowance::default(),
                    expires_at: None,
                    credential: Credential::None,
                })
            }
        }
    }

    /// What is stored when an agent binds this key to itself. Only what came with a bearer token binds one: then it is known
    /// until when the key counts.
    pub(crate) fn bind(&self, principal: &Principal, key: &[u8; 32], now: Timestamp) -> Option<Bound> {
        let (token, issuer) = match (principal.credential, self) {
            (Credential::Token(hash), _) => (hash.to_vec(), ""),
            (Credential::Key(_), Identity::Jwt(verifier, _)) => (Vec::new(), verifier.issuer()),
            (Credential::None, Identity::Development | Identity::Anonymous(_)) => (Vec::new(), ""),
            (Credential::None | Credential::Key(_) | Credential::Signed(..), _) => return None,
        };
        Some(Bound {
            public_key: key.to_vec(),
            tenant: principal.tenant.to_string(),
            agent: principal.agent.to_string(),
            bound_at: now.0,
            token,
            issuer: issuer.to_owned(),
        })
    }

    /// Whom a key stands for now, or else why it does not count: it is worth no more than what bound it, and has no roles.
    pub(crate) fn of_key(&self, node: NodeId, key: &Bound) -> Result<Principal, Unauthenticated> {
        let elsewhere = "what bound its key does not count here: bind it again";
        let by = key.by().filter(|by| match (by, self) {
            (By::Nothing, Identity::Development | Identity::Anonymous(_)) => true,
            (By::Token(_), Identity::Tokens(_) | Identity::Jwt(..)) => true,
            (By::Issuer, Identity::Jwt(verifier, _)) => verifier.issuer() == key.issuer,
            (By::Nothing | By::Token(_) | By::Issuer, _) => false,
        });
        let by = by.ok_or(Unauthenticated::Unsigned { why: elsewhere })?;
        let mut principal = Principal {
            agent: AgentId::from(key.agent.as_str()),
            tenant: key.tenant.as_str().into(),
            observer: false,
            admin: false,
            proven: !self.is_development(),
            expires_at: (by == By::Issuer).then(|| Timestamp(key.bound_at.saturating_add(BOUND_MS))),
            allowance: Allowance::default(),
            credential: Credential::Signed(node, by),
        };
        self.renew(&mut principal)?;
        Ok(principal)
    }

    /// Bring what a principal may use up to date, if its credential still counts; otherwise say why it does not.
    pub fn renew(&self, principal: &mut Principal) -> Result<(), Unauthenticated> {
        let now = machine();
        let renewed = match (principal.credential, self) {
            (Credential::Token(hash), Identity::Tokens(tokens) | Identity::Jwt(_, tokens)) => {
                tokens.renew(principal, &hash, now)
            }
            (Credential::Key(key), Identity::Jwt(verifier, _)) if !verifier.has_key(&key) => {
                Err("its key is no longer listed")
            }
            (Credential::Key(_), Identity::Jwt(..)) if principal.has_expired(now) => Err(EXPIRED),
            (Credential::Signed(_, By::Token(hash)), Identity::Tokens(tokens) | Identity::Jwt(_, tokens)) => {
                let ended =
                    |why| if why == EXPIRED { why } else { "the token that bound its key was revoked" };
                tokens.renew(principal, &hash, now).map_err(ended)
            }
            (Credential::Signed(_, By::Issuer), _) if principal.has_expired(now) => Err(KEY_EXPIRED),
            // Whose credential is of another kind was not let in here.
            (Credential::None | Credential::Token(_) | Credential::Key(_) | Credential::Signed(..), _) => {
                Ok(())
            }
        };
        renewed.map_err(|why| match principal.credential {
            Credential::Signed(..) => Unauthenticated::Unsigned { why },
            Credential::None | Credential::Token(_) | Credential::Key(_) => Unauthenticated::Refused { why },
        })
    }

    /// Returns when the credential of this principal does not count any more, because its time is up, it was revoked, or its
    /// key was withdrawn; never, if that cannot be.
    pub async fn ended(&self, principal: Arc<Principal>) -> Unauthenticated {
        let mut changes = match (principal.credential, self) {
            (
                Credential::Token(_) | Credential::Signed(_, By::Token(_)),
                Identity::Tokens(tokens) | Identity::Jwt(_, tokens),
            ) => tokens.changes(),
            (Credential::Key(_) | Credential::Signed(_, By::Issuer), Identity::Jwt(verifier, _)) => {
                verifier.changes()
            }
            (Credential::None | Credential::Token(_) | Credential::Key(_) | Credential::Signed(..), _) => {
                return std::future::pending().await;
            }
        };
        loop {
            let expires_at = match self.end_of(&principal) {
                Ok(expires_at) => expires_at,
                Err(ended) => return ended,
            };
            // The clock that sleeps may stand still, or be set, while that of the credential goes on.
            let left = expires_at.map(|at| Duration::from_millis(at.since(machine())));
            let at_most = |left: Duration| tokio::time::sleep(left.min(Duration::from_secs(60)));
            // Many wait here, most of them for nothing but a change: this is what each of them takes in memory.
            let expires = left.map(|left| Box::pin(at_most(left)));
            tokio::select! {
                // It lives as long as the identity does, which is borrowed here.
                _ = changes.changed() => {}
                () = or_never(expires) => {}
            }
        }
    }

    /// When the credential of a principal ends as things are now, if it does; or why it has.
    fn end_of(&self, principal: &Principal) -> Result<Option<Timestamp>, Unauthenticated> {
        let mut renewed = principal.clone();
        self.renew(&mut renewed).map(|()| renewed.expires_at)
    }
}

/// What it returns; never, if there is none.
pub(crate) async fn or_never<F: Future>(future: Option<Pin<Box<F>>>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_development_the_token_is_the_agent_and_proves_nothing() {
        let found = Identity::Development.authenticate(Some(" planner ")).unwrap();
        assert_eq!((found.agent.as_str(), &*found.tenant), ("planner", DEFAULT_TENANT));
        assert!(!found.proven && !found.observer && found.admin);
        Identity::Development.authenticate(Some(&"a".repeat(AGENT_ID_BYTES_MAX))).unwrap();
    }

    #[test]
    fn no_token_and_a_blank_one_are_missing() {
        for missing in [None, Some(""), Some("  ")] {
            assert_eq!(Identity::Development.authenticate(missing), Err(Unauthenticated::Missing));
        }
    }

    #[test]
    fn who_has_no_token_may_be_somebody_in_development() {
        let identity = Identity::Anonymous(AgentId::from("visitor"));
        assert_eq!(identity.authenticate(None).unwrap().agent.as_str(), "visitor");
        assert_eq!(identity.authenticate(Some("planner")).unwrap().agent.as_str(), "planner");
    }

    #[test]
    fn a_token_that_is_no_agent_id_is_refused() {
        for wrong in [
            "a\nb",
            "a\u{0}b",
            "a b",
            "a\u{200b}",
            "a\u{202e}b",
            "\u{e0061}",
            &"a".repeat(AGENT_ID_BYTES_MAX + 1),
        ] {
            let refused = Identity::Development.authenticate(Some(wrong));
            assert!(matches!(refused, Err(Unauthenticated::Refused { .. })), "{wrong:?}");
        }
    }

    #[test]
    fn a_token_that_nobody_has_is_refused_without_being_shown() {
        let identity = Identity::Tokens(Arc::new(Tokens::default()));
        let refused = identity.authenticate(Some("a-secret")).unwrap_err();
        assert!(matches!(refused, Unauthenticated::Refused { .. }));
        assert!(!refused.to_string().contains("a-secret"));
    }

    #[test]
    fn a_key_that_an_issuers_token_bound_counts_for_thirty_days_while_that_issuer_does() {
        let identity = |issuer: &str| {
            let settings = jwt::settings::Settings {
                issuer: issuer.to_owned(),
                audience: vec!["us".to_owned()],
                algorithms: Vec::new(),
                skew_seconds: 60,
                tenant_claim: "tenant".to_owned(),
                refresh: Duration::from_secs(60),
            };
            Identity::Jwt(Arc::new(Verifier::new(settings)), Arc::default())
        };
        let (key, issuer) = ([7; 32], identity("https://one.example"));
        let principal = Principal {
            admin: true,
            tenant: "acme".into(),
            credential: Credential::Key([1; 32]),
            ..Identity::Development.authenticate(Some("planner")).unwrap()
        };
        let bound = |days: u64| {
            let at = Timestamp(machine().0 - days * 24 * 3600 * 1000);
            issuer.bind(&principal, &key, at).unwrap()
        };
        let node = NodeId::of(&key);
        let found = issuer.of_key(node, &bound(29)).unwrap();
        assert_eq!((found.agent.as_str(), &*found.tenant), ("planner", "acme"));
        assert!(found.proven && !found.admin && found.expires_at.is_some());
        let late = issuer.of_key(node, &bound(30)).unwrap_err();
        assert_eq!(late, Unauthenticated::Unsigned { why: KEY_EXPIRED });
        assert!(late.is_expiry());
        for other in
            [identity("https://other.example"), Identity::Tokens(Arc::default()), Identity::Development]
        {
            assert!(other.of_key(node, &bound(0)).unwrap_err().to_string().contains("does not count here"));
        }
        assert!(issuer.bind(&found, &key, machine()).is_none(), "what a key signed binds no other");
    }
}
