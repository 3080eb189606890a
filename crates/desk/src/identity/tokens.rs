//! Static tokens: a file that says whose each token is. It holds the tokens' hashes, so that reading it gives no access.
//!
//! ```toml
//! [[token]]
//! sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
//! agent = "planner"
//! tenant = "acme"              # left out: "default"
//! roles = ["observer"]         # observer: sees every session of its tenant; admin: registers policies
//! expires_at = "2027-01-31T00:00:00Z"   # left out: never
//! revoked = true               # left out: false. Taking the entry out does the same
//! limits = { starts_per_minute = 60, messages_per_minute = 6000, requests_per_minute = 18000, streams = 8 }
//! # also: sessions_open = 100, payload_bytes = 65536, wait_seconds = 30
//! profile = "requester"        # which tools it is shown. Left out: all
//! ```
//!
//! Each limit that is left out is the server's own; a rate of 0 is none.
//!
//! - [`revoke`]: revoking tokens in the file's text

pub mod revoke;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use handover_kernel::{AgentId, Timestamp};
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use toml::{Table, Value};

use super::{Allowance, Credential, DEFAULT_TENANT, EXPIRED, Principal, Profile, agent_id, hex};
use crate::calendar::parse_rfc3339;
use crate::id::digits;

/// The highest number that a limit can be set to.
const LIMIT_MAX: u64 = 1_000_000_000;

/// Why a token that is not, or no longer, in the file is refused.
const UNKNOWN: &str = "unknown token";

type Entries = BTreeMap<[u8; 32], Entry>;

/// Whose each token is, by its hash. What the file says may change while the server runs.
pub struct Tokens {
    entries: RwLock<Arc<Entries>>,
    changed: watch::Sender<()>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    principal: Principal,
    revoked: bool,
}

/// What another reading of the file did to one token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What.
    pub how: How,
    /// Whose token it is, or was.
    pub principal: Principal,
}

/// What can be done to a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It counts from now on.
    Added,
    /// It counts no longer: its entry is gone, or says so.
    Revoked,
    /// It is another agent's, or has other roles, limits or another end.
    Changed,
}

/// Why a file of tokens is not one. Never shows a value that could be a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Malformed {}

impl Default for Tokens {
    fn default() -> Self {
        Tokens::of(Entries::new())
    }
}

// A list of hashes is nothing that a log should show.
impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.len())
    }
}

/// The hash under which a token is kept: SHA-256 of its bytes. Tokens are long and random, so that a slow hash would
/// protect nothing and cost every request.
pub fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// A hash as the file has it.
pub fn hash_text(token: &str) -> String {
    digits(&hash(token))
}

impl Tokens {
    /// The tokens that a file lists.
    pub fn parse(text: &str) -> Result<Tokens, Malformed> {
        parse(text).map(Tokens::of)
    }

    fn of(entries: Entries) -> Tokens {
        Tokens { entries: RwLock::new(Arc::new(entries)), changed: watch::Sender::new(()) }
    }

    /// Take what the file says now in the place of what it said before, and say what is different. If it cannot be
    /// understood, everything stays as it was.
    pub fn replace(&self, text: &str) -> Result<Vec<Change>, Malformed> {
        let new = Arc::new(parse(text)?);
        let old = std::mem::replace(
            &mut *self.entries.write().unwrap_or_else(PoisonError::into_inner),
            Arc::clone(&new),
        );
        if old != new {
            self.changed.send_replace(());
        }
        Ok(changes(&old, &new))
    }

    /// Whose token this is at this time, or else why it is refused. Looked up by its hash: what can be learnt from the
    /// time that takes is a hash of a guess.
    pub fn find(&self, token: &str, now: Timestamp) -> Result<Principal, &'static str> {
        let hash = hash(token);
        self.look(&hash, now, Principal::clone)
    }

    /// What a principal that such a token once proved is worth now: its limits and its end may be others. Why it counts no
    /// longer, if the token has ended, or is somebody else's, or has other roles.
    pub(super) fn renew(
        &self,
        principal: &mut Principal,
        hash: &[u8; 32],
        now: Timestamp,
    ) -> Result<(), &'static str> {
        let (allowance, expires_at, same) = self.look(hash, now, |current| {
            (current.allowance, current.expires_at, current.is_same_but_for_limits(principal))
        })?;
        if !same {
            return Err("the token's entry has changed");
        }
        (principal.allowance, principal.expires_at) = (allowance, expires_at);
        Ok(())
    }

    fn look<R>(
        &self,
        hash: &[u8; 32],
        now: Timestamp,
        take: impl FnOnce(&Principal) -> R,
    ) -> Result<R, &'static str> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        match entries.get(hash) {
            None => Err(UNKNOWN),
            Some(entry) if entry.revoked => Err("the token was revoked"),
            Some(entry) if entry.principal.has_expired(now) => Err(EXPIRED),
            Some(entry) => Ok(take(&entry.principal)),
        }
    }

    /// Tells of every change from now on.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// A hash of who is let in and with which rights, the same as long as that is.
    pub fn digest(&self) -> [u8; 32] {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let mut digest = Sha256::new();
        for (hash, Entry { principal, revoked }) in &**entries {
            let Principal { agent, tenant, observer, admin, expires_at, .. } = principal;
            digest.update(hash);
            for name in [agent.as_str(), tenant] {
                digest.update((name.len() as u64).to_be_bytes());
                digest.update(name);
            }
            digest.update([u8::from(*observer), u8::from(*admin), u8::from(*revoked)]);
            digest.update(expires_at.map_or(u64::MAX, |at| at.0).to_be_bytes());
        }
        digest.finalize().into()
    }

    /// Whether the file has a token of this agent.
    pub fn has_agent(&self, tenant: &str, agent: &AgentId) -> bool {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.values().any(|entry| entry.principal.agent == *agent && &*entry.principal.tenant == tenant)
    }

    /// How many entries the file has.
    pub fn len(&self) -> usize {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether the file has no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What is different for each token that counted before or counts now.
fn changes(old: &Entries, new: &Entries) -> Vec<Change> {
    let counts = |entries: &Entries, hash| {
        entries.get(hash).filter(|entry: &&Entry| !entry.revoked).map(|entry| entry.principal.clone())
    };
    let gone = old.keys().filter(|hash| !new.contains_key(*hash));
    let all = gone.chain(new.keys());
    all.filter_map(|hash| match (counts(old, hash), counts(new, hash)) {
        (None, Some(principal)) => Some(Change { how: How::Added, principal }),
        (Some(principal), None) => Some(Change { how: How::Revoked, principal }),
        (Some(before), Some(principal)) if before != principal => {
            Some(Change { how: How::Changed, principal })
        }
        (Some(_), Some(_)) | (None, None) => None,
    })
    .collect()
}

fn parse(text: &str) -> Result<Entries, Malformed> {
    let mut entries = Entries::new();
    for (index, (hash, entry)) in parse_list(text)?.into_iter().enumerate() {
        if entries.insert(hash, entry).is_some() {
            let place = index + 1;
            return Err(Malformed(format!("token {place}: expected a hash of its own, found one again")));
        }
    }
    Ok(entries)
}

/// The entries in their order.
fn parse_list(text: &str) -> Result<Vec<([u8; 32], Entry)>, Malformed> {
    let file: Table = text.parse().map_err(|error: toml::de::Error| {
        // The message of the parser quotes the line: say only where it is.
        let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        Malformed(format!("expected TOML, found an error in line {line}"))
    })?;
    let mut found = Vec::new();
    for (key, value) in &file {
        let entries = match (key.as_str(), value) {
            ("token", Value::Array(entries)) => entries,
            _ => return Err(Malformed(format!("expected only [[token]] entries, found {key}"))),
        };
        for (index, entry) in entries.iter().enumerate() {
            let place = index + 1;
            found.push(parse_entry(entry).map_err(|what| Malformed(format!("token {place}: {what}")))?);
        }
    }
    Ok(found)
}

fn parse_entry(entry: &Value) -> Result<([u8; 32], Entry), String> {
    let Value::Table(entry) = entry else {
        return Err("expected a table".to_owned());
    };
    let known = ["sha256", "agent", "tenant", "roles", "expires_at", "revoked", "limits", "profile"];
    if let Some(unknown) = entry.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(format!("expected only {}, found {unknown}", known.join(", ")));
    }
    let text = |key: &str| match entry.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(other) => Err(format!("expected {key} to be text, found {}", other.type_str())),
    };
    let hash = text("sha256")?.and_then(hex);
    let hash = hash.ok_or("expected sha256 as 64 hexadecimal digits (handover token makes an entry)")?;
    let agent = text("agent")?.ok_or("expected an agent, found none")?;
    agent_id(agent).map_err(|why| format!("expected the id of an agent: {why}"))?;
    let tenant = text("tenant")?.unwrap_or(DEFAULT_TENANT);
    if tenant.is_empty() {
        return Err("expected a tenant, found an empty one".to_owned());
    }
    let revoked = match entry.get("revoked") {
        None => false,
        Some(Value::Boolean(revoked)) => *revoked,
        Some(other) => {
            return Err(format!("expected revoked to be true or false, found {}", other.type_str()));
        }
    };
    let mut principal = Principal {
        agent: AgentId::from(agent),
        tenant: tenant.into(),
        observer: false,
        admin: false,
        proven: true,
        allowance: allowance(entry.get("limits"))?,
        expires_at: entry.get("expires_at").map(expires_at).transpose()?,
        credential: Credential::Token(hash),
    };
    if let Some(name) = text("profile")? {
        let wrong = || format!("expected the profile {}, found {name:?}", Profile::NAMES);
        principal.allowance.profile = Some(Profile::of(name).ok_or_else(wrong)?);
    }
    for role in roles(entry.get("roles"))? {
        match role {
            "observer" => principal.observer = true,
            "admin" => principal.admin = true,
            other => return Err(format!("expected the roles observer or admin, found {other:?}")),
        }
    }
    Ok((hash, Entry { principal, revoked }))
}

fn expires_at(found: &Value) -> Result<Timestamp, String> {
    // TOML has moments of its own; written as text they mean the same.
    let text = match found {
        Value::String(text) => text.clone(),
        Value::Datetime(at) => at.to_string(),
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Array(_) | Value::Table(_) => {
            return Err(format!("expected expires_at to be a time, found {}", found.type_str()));
        }
    };
    let expected = "expected expires_at as in 2027-01-31T00:00:00Z (RFC 3339, with its offset)";
    parse_rfc3339(&text).ok_or_else(|| format!("{expected}, found {text:?}"))
}

fn allowance(found: Option<&Value>) -> Result<Allowance, String> {
    let limits = match found {
        None => return Ok(Allowance::default()),
        Some(Value::Table(limits)) => limits,
        Some(other) => return Err(format!("expected limits to be a table, found {}", other.type_str())),
    };
    let mut allowance = Allowance::default();
    for (key, value) in limits {
        let (place, least) = match key.as_str() {
            "starts_per_minute" => (&mut allowance.starts_per_minute, 0),
            "messages_per_minute" => (&mut allowance.messages_per_minute, 0),
            "requests_per_minute" => (&mut allowance.requests_per_minute, 0),
            "streams" => (&mut allowance.streams, 1),
            "sessions_open" => (&mut allowance.sessions_open, 1),
            "payload_bytes" => (&mut allowance.payload_bytes, 1),
            "memory_bytes" => (&mut allowance.memory_bytes, 1),
            "stored_bytes" => (&mut allowance.stored_bytes, 0),
            "wait_seconds" => (&mut allowance.wait_seconds, 1),
            other => {
                let known = "starts_per_minute, messages_per_minute, requests_per_minute, streams, sessions_open, \
                             payload_bytes, memory_bytes, stored_bytes, wait_seconds";
                return Err(format!("expected only the limits {known}, found {other}"));
            }
        };
        let number = value.as_integer().and_then(|number| u64::try_from(number).ok());
        let number = number.filter(|number| (least..=LIMIT_MAX).contains(number));
        let wrong = || format!("expected the limit {key} from {least} to {LIMIT_MAX}, found {value}");
        *place = Some(number.ok_or_else(wrong)?);
    }
    Ok(allowance)
}

fn roles(found: Option<&Value>) -> Result<Vec<&str>, String> {
    let wrong = || "expected roles to be a list of text".to_owned();
    match found {
        None => Ok(Vec::new()),
        Some(Value::Array(roles)) => roles.iter().map(|role| role.as_str().ok_or_else(wrong)).collect(),
        Some(_) => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_785_231_000_000);

    fn entry(token: &str, rest: &str) -> String {
        format!("[[token]]\nsha256 = \"{}\"\n{rest}\n", hash_text(token))
    }

    #[test]
    fn a_token_is_its_agents_and_no_other_is() {
        let file = entry("t-one", "agent = \"planner\"\ntenant = \"acme\"\nroles = [\"observer\"]")
            + &entry("t-two", "agent = \"worker\"");
        let tokens = Tokens::parse(&file).unwrap();
        let planner = tokens.find("t-one", NOW).unwrap();
        assert_eq!((planner.agent.as_str(), &*planner.tenant), ("planner", "acme"));
        assert!(planner.observer && !planner.admin && planner.proven);
        let worker = tokens.find("t-two", NOW).unwrap();
        assert_eq!((worker.agent.as_str(), &*worker.tenant), ("worker", DEFAULT_TENANT));
        for wrong in ["", "t-three", "planner", &hash_text("t-one")] {
            assert_eq!(tokens.find(wrong, NOW), Err(UNKNOWN));
        }
    }

    #[test]
    fn a_wrong_file_says_what_was_expected_and_never_shows_the_value() {
        let good = hash_text("secret");
        let cases = [
            ("token = 1".to_owned(), "expected only [[token]] entries"),
            ("[[token]]\nagent = \"a\"".to_owned(), "token 1: expected sha256"),
            ("[[token]]\nsha256 = \"secret\"\nagent = \"a\"".to_owned(), "token 1: expected sha256"),
            (format!("[[token]]\nsha256 = \"{good}\""), "token 1: expected an agent"),
            (entry("x", "agent = \"\""), "token 1: expected the id of an agent"),
            (entry("x", "agent = \"a\"\nroles = [\"king\"]"), "expected the roles observer or admin"),
            (entry("x", "agent = \"a\"\nroles = \"admin\""), "expected roles to be a list"),
            (
                entry("x", "agent = \"a\"\ntoken = \"secret\""),
                "expected only sha256, agent, tenant, roles, expires_at, revoked, limits, profile",
            ),
            (entry("x", "agent = \"a\"\nlimits = 3"), "expected limits to be a table, found integer"),
            (
                entry("x", "agent = \"a\"\nprofile = \"boss\""),
                "expected the profile all, requester, worker or conversation, found \"boss\"",
            ),
            (
                entry("x", "agent = \"a\"\nlimits = { stream = 3 }"),
                "expected only the limits starts_per_minute,",
            ),
            (
                entry("x", "agent = \"a\"\nlimits = { streams = 0 }"),
                "expected the limit streams from 1 to 1000000000, found 0",
            ),
            (entry("x", "agent = \"a\"\nlimits = { streams = \"1\" }"), "expected the limit streams from 1"),
            (
                entry("x", "agent = \"a\"") + &entry("x", "agent = \"b\""),
                "token 2: expected a hash of its own",
            ),
            ("[[token]]\nsecret = secret".to_owned(), "expected TOML, found an error in line 2"),
        ];
        for (file, expected) in cases {
            let error = Tokens::parse(&file).unwrap_err().to_string();
            assert!(error.contains(expected), "{file}: {error}");
            assert!(!error.contains("secret\"") && !error.contains(&good), "{error}");
        }
    }

    #[test]
    fn a_token_has_the_limits_of_its_entry_and_no_others() {
        let file = entry("t-one", "agent = \"a\"\nlimits = { starts_per_minute = 0, sessions_open = 7 }")
            + &entry(
                "t-two",
                "agent = \"b\"\n[token.limits]\nmessages_per_minute = 1\nrequests_per_minute = 4\nstreams = 2\npayload_bytes = 3",
            )
            + &entry("t-three", "agent = \"c\"");
        let tokens = Tokens::parse(&file).unwrap();
        let allowance = |token| tokens.find(token, NOW).unwrap().allowance;
        let none = Allowance::default();
        assert_eq!(
            allowance("t-one"),
            Allowance { starts_per_minute: Some(0), sessions_open: Some(7), ..none }
        );
        let (messages_per_minute, requests_per_minute) = (Some(1), Some(4));
        let (streams, payload_bytes) = (Some(2), Some(3));
        assert_eq!(
            allowance("t-two"),
            Allowance { messages_per_minute, requests_per_minute, streams, payload_bytes, ..none }
        );
        assert_eq!(allowance("t-three"), none);
    }

    #[test]
    fn a_token_ends_at_its_time_or_when_it_is_revoked_and_says_which() {
        let file = entry("text", "agent = \"a\"\nexpires_at = \"2026-07-28T11:30:00+02:00\"")
            + &entry("toml", "agent = \"a\"\nexpires_at = 2026-07-28T09:30:00Z")
            + &entry("revoked", "agent = \"a\"\nrevoked = true")
            + &entry("good", "agent = \"a\"\nrevoked = false");
        let tokens = Tokens::parse(&file).unwrap();
        for token in ["text", "toml"] {
            assert_eq!(tokens.find(token, Timestamp(NOW.0 - 1)).unwrap().expires_at, Some(NOW));
            assert_eq!(tokens.find(token, NOW), Err(EXPIRED));
        }
        assert_eq!(tokens.find("revoked", NOW), Err("the token was revoked"));
        tokens.find("good", NOW).unwrap();
        for (wrong, expected) in [
            ("expires_at = 5", "expected expires_at to be a time, found integer"),
            ("expires_at = \"2026-07-28\"", "expected expires_at as in 2027-01-31T00:00:00Z"),
            ("expires_at = 2026-07-28", "expected expires_at as in 2027-01-31T00:00:00Z"),
            ("revoked = \"yes\"", "expected revoked to be true or false, found string"),
        ] {
            let error = Tokens::parse(&entry("x", &format!("agent = \"a\"\n{wrong}"))).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn another_file_takes_the_place_of_the_old_one_as_a_whole_or_not_at_all() {
        let (a, b) = (entry("t-a", "agent = \"a\""), entry("t-b", "agent = \"b\""));
        let tokens = Tokens::parse(&(a.clone() + &b)).unwrap();
        let mut told = tokens.changes();
        let changes = |text: &str| -> Vec<(How, String)> {
            let changes = tokens.replace(text).unwrap();
            changes.into_iter().map(|change| (change.how, change.principal.agent.to_string())).collect()
        };
        let limited = entry("t-b", "agent = \"b\"\nlimits = { streams = 1 }");
        let mut new = changes(&(limited.clone() + &entry("t-c", "agent = \"c\"")));
        new.sort_by(|one, other| one.1.cmp(&other.1));
        let named = |how, agent: &str| (how, agent.to_owned());
        assert_eq!(new, [named(How::Revoked, "a"), named(How::Changed, "b"), named(How::Added, "c")]);
        assert!(told.has_changed().unwrap());
        told.mark_unchanged();
        tokens.replace("[[token]]\nagent = \"a\"").unwrap_err();
        assert_eq!((tokens.len(), told.has_changed().unwrap()), (2, false));
        assert_eq!(changes(&limited), [named(How::Revoked, "c")]);
        assert_eq!(changes(&(limited.clone() + "revoked = true")), [named(How::Revoked, "b")]);
        assert_eq!(changes(&a), [named(How::Added, "a")], "what counted no longer does not end again");
    }

    #[test]
    fn who_was_let_in_keeps_its_rights_or_ends_and_has_the_limits_of_now() {
        let tokens = Tokens::parse(&entry("t", "agent = \"a\"\nroles = [\"observer\"]")).unwrap();
        let found = tokens.find("t", NOW).unwrap();
        let renewed = |rest: &str| {
            tokens.replace(&entry("t", rest)).unwrap();
            let mut principal = found.clone();
            tokens.renew(&mut principal, &hash("t"), NOW).map(|()| principal)
        };
        let rights = "agent = \"a\"\nroles = [\"observer\"]";
        let limited =
            renewed(&format!("{rights}\nlimits = {{ streams = 3 }}\nexpires_at = 2030-01-01T00:00:00Z"));
        assert_eq!(limited.as_ref().unwrap().allowance.streams, Some(3));
        assert!(limited.unwrap().expires_at.is_some());
        for other in
            ["agent = \"a\"", "agent = \"b\"\nroles = [\"observer\"]", &format!("{rights}\ntenant = \"x\"")]
        {
            assert_eq!(renewed(other), Err("the token's entry has changed"), "{other}");
        }
        assert_eq!(renewed(&format!("{rights}\nrevoked = true")), Err("the token was revoked"));
        assert_eq!(renewed(&format!("{rights}\nexpires_at = 2020-01-01T00:00:00Z")), Err(EXPIRED));
        tokens.replace("").unwrap();
        assert_eq!(tokens.renew(&mut found.clone(), &hash("t"), NOW), Err(UNKNOWN));
    }

    #[test]
    fn the_debug_form_shows_no_hash() {
        let tokens = Tokens::parse(&entry("x", "agent = \"a\"")).unwrap();
        assert_eq!(format!("{tokens:?}"), "1 tokens");
    }
}
