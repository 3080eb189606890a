//! Static tokens: a file that says whose each token is. It holds the tokens' hashes, so that reading it gives no access.
//!
//! ```toml
//! [[token]]
//! sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
//! agent = "planner"
//! tenant = "acme"              # left out: "default"
//! roles = ["observer"]         # observer: sees every session of its tenant; admin: registers policies
//! limits = { starts_per_minute = 60, messages_per_minute = 6000, streams = 8, sessions_open = 100, payload_bytes = 65536 }
//! ```
//!
//! Each limit that is left out is the server's own; a rate of 0 is none.

use std::collections::BTreeMap;
use std::fmt;

use handover_kernel::AgentId;
use sha2::{Digest, Sha256};
use toml::{Table, Value};

use super::{Allowance, DEFAULT_TENANT, Principal, agent_id};

/// The highest number that a limit can be set to.
const LIMIT_MAX: u64 = 1_000_000_000;

/// Whose each token is, by its hash.
#[derive(Clone, Default)]
pub struct Tokens {
    by_hash: BTreeMap<[u8; 32], Principal>,
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

// A list of hashes is nothing that a log should show.
impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.by_hash.len())
    }
}

/// The hash under which a token is kept: SHA-256 of its bytes. Tokens are long and random, so that a slow hash would
/// protect nothing and cost every request.
pub fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// A hash as the file has it.
pub fn hash_text(token: &str) -> String {
    hash(token).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Tokens {
    /// The tokens that a file lists.
    pub fn parse(text: &str) -> Result<Tokens, Malformed> {
        let file: Table = text.parse().map_err(|error: toml::de::Error| {
            // The message of the parser quotes the line: say only where it is.
            let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
            Malformed(format!("expected TOML, found an error in line {line}"))
        })?;
        let mut tokens = Tokens::default();
        for (key, value) in &file {
            let entries = match (key.as_str(), value) {
                ("token", Value::Array(entries)) => entries,
                _ => return Err(Malformed(format!("expected only [[token]] entries, found {key}"))),
            };
            for (index, entry) in entries.iter().enumerate() {
                let place = index + 1;
                let (hash, principal) =
                    parse_entry(entry).map_err(|what| Malformed(format!("token {place}: {what}")))?;
                if tokens.by_hash.insert(hash, principal).is_some() {
                    return Err(Malformed(format!(
                        "token {place}: expected a hash of its own, found one again"
                    )));
                }
            }
        }
        Ok(tokens)
    }

    /// Whose token this is. Looked up by its hash: what can be learnt from the time that takes is a hash of a guess.
    pub fn find(&self, token: &str) -> Option<Principal> {
        self.by_hash.get(&hash(token)).cloned()
    }
}

fn parse_entry(entry: &Value) -> Result<([u8; 32], Principal), String> {
    let Value::Table(entry) = entry else {
        return Err("expected a table".to_owned());
    };
    let known = ["sha256", "agent", "tenant", "roles", "limits"];
    if let Some(unknown) = entry.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(format!("expected only {}, found {unknown}", known.join(", ")));
    }
    let text = |key: &str| match entry.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(other) => Err(format!("expected {key} to be text, found {}", other.type_str())),
    };
    let hash = text("sha256")?.and_then(parse_hash);
    let hash = hash.ok_or("expected sha256 as 64 hexadecimal digits (handover token makes an entry)")?;
    let agent = text("agent")?.ok_or("expected an agent, found none")?;
    agent_id(agent).map_err(|why| format!("expected the id of an agent: {why}"))?;
    let tenant = text("tenant")?.unwrap_or(DEFAULT_TENANT);
    if tenant.is_empty() {
        return Err("expected a tenant, found an empty one".to_owned());
    }
    let mut principal = Principal {
        agent: AgentId::from(agent),
        tenant: tenant.into(),
        observer: false,
        admin: false,
        proven: true,
        allowance: allowance(entry.get("limits"))?,
        expires_at: None,
    };
    for role in roles(entry.get("roles"))? {
        match role {
            "observer" => principal.observer = true,
            "admin" => principal.admin = true,
            other => return Err(format!("expected the roles observer or admin, found {other:?}")),
        }
    }
    Ok((hash, principal))
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
            "streams" => (&mut allowance.streams, 1),
            "sessions_open" => (&mut allowance.sessions_open, 1),
            "payload_bytes" => (&mut allowance.payload_bytes, 1),
            other => {
                let known = "starts_per_minute, messages_per_minute, streams, sessions_open, payload_bytes";
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

fn parse_hash(text: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (place, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[place * 2..place * 2 + 2], 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(token: &str, rest: &str) -> String {
        format!("[[token]]\nsha256 = \"{}\"\n{rest}\n", hash_text(token))
    }

    #[test]
    fn a_token_is_its_agents_and_no_other_is() {
        let file = entry("t-one", "agent = \"planner\"\ntenant = \"acme\"\nroles = [\"observer\"]")
            + &entry("t-two", "agent = \"worker\"");
        let tokens = Tokens::parse(&file).unwrap();
        let planner = tokens.find("t-one").unwrap();
        assert_eq!((planner.agent.as_str(), &*planner.tenant), ("planner", "acme"));
        assert!(planner.observer && !planner.admin && planner.proven);
        let worker = tokens.find("t-two").unwrap();
        assert_eq!((worker.agent.as_str(), &*worker.tenant), ("worker", DEFAULT_TENANT));
        for wrong in ["", "t-three", "planner", &hash_text("t-one")] {
            assert_eq!(tokens.find(wrong), None);
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
                "expected only sha256, agent, tenant, roles, limits",
            ),
            (entry("x", "agent = \"a\"\nlimits = 3"), "expected limits to be a table, found integer"),
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
                "agent = \"b\"\n[token.limits]\nmessages_per_minute = 1\nstreams = 2\npayload_bytes = 3",
            )
            + &entry("t-three", "agent = \"c\"");
        let tokens = Tokens::parse(&file).unwrap();
        let allowance = |token| tokens.find(token).unwrap().allowance;
        let none = Allowance::default();
        assert_eq!(
            allowance("t-one"),
            Allowance { starts_per_minute: Some(0), sessions_open: Some(7), ..none }
        );
        let (messages_per_minute, streams, payload_bytes) = (Some(1), Some(2), Some(3));
        assert_eq!(allowance("t-two"), Allowance { messages_per_minute, streams, payload_bytes, ..none });
        assert_eq!(allowance("t-three"), none);
    }

    #[test]
    fn the_debug_form_shows_no_hash() {
        let tokens = Tokens::parse(&entry("x", "agent = \"a\"")).unwrap();
        assert_eq!(format!("{tokens:?}"), "1 tokens");
    }
}
