//! `handover token`: make a token, and the entry that says whose it is.

use std::io::Write;

use handover_desk::identity::tokens::{Tokens, hash_text};

use crate::Failure;

/// What `handover token` can be told.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Whose token it is
    #[arg(long)]
    agent: String,
    /// The agent's namespace
    #[arg(long, default_value = "default")]
    tenant: String,
    /// What it may do beyond its own sessions: observer, admin
    #[arg(long = "role", value_name = "ROLE", value_parser = ["observer", "admin"])]
    roles: Vec<String>,
    /// How many sessions it may start in a minute; 0 is any number [default: the server's]
    #[arg(long, value_name = "COUNT")]
    starts_per_minute: Option<u64>,
    /// How many messages it may send in a minute; 0 is any number [default: the server's]
    #[arg(long, value_name = "COUNT")]
    messages_per_minute: Option<u64>,
    /// How many streams it may have open [default: the server's]
    #[arg(long, value_name = "COUNT")]
    streams: Option<u64>,
    /// How many unfinished sessions it may have started [default: the server's]
    #[arg(long, value_name = "COUNT")]
    sessions_open: Option<u64>,
    /// How many bytes one payload of it may have, at most the server's bound [default: the server's]
    #[arg(long, value_name = "BYTES")]
    payload_bytes: Option<u64>,
}

const HELP: &str = "\
The token goes to standard error and is shown this once; the entry, which holds only its hash, goes to standard output.
Add the entry to a file and name it with identity.tokens (HANDOVER_IDENTITY_TOKENS); the agent sends the token as
`authorization: Bearer <token>`.

Examples:
  handover token --agent planner >> tokens.toml
  handover token --agent auditor --tenant acme --role observer >> tokens.toml
  handover token --agent intern --starts-per-minute 30 --sessions-open 50 >> tokens.toml
  HANDOVER_IDENTITY_TOKENS=tokens.toml handover serve";

/// Random bytes of a token: more than anybody can guess.
const TOKEN_BYTES: usize = 32;

/// Run the command to its end.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut random = [0; TOKEN_BYTES];
    getrandom::fill(&mut random)
        .map_err(|error| Failure::Fault(format!("getting random bytes from the system: {error}")))?;
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let token = format!("hand_{digits}");
    let entry = entry(args, &token);
    // What the server would refuse is refused here, before anybody has the token.
    Tokens::parse(&entry).map_err(|malformed| Failure::Usage(malformed.to_string()))?;
    let printing = |error| Failure::fault("printing", &error);
    writeln!(std::io::stderr(), "the token of {}, shown this once: {token}", args.agent).map_err(printing)?;
    std::io::stdout().write_all(entry.as_bytes()).map_err(printing)
}

fn entry(args: &Args, token: &str) -> String {
    // A text in quotes means the same in TOML as in JSON.
    let text = |value: &str| serde_json::Value::from(value).to_string();
    let mut entry = format!(
        "[[token]]\nsha256 = \"{}\"\nagent = {}\ntenant = {}\n",
        hash_text(token),
        text(&args.agent),
        text(&args.tenant)
    );
    if !args.roles.is_empty() {
        let roles: Vec<String> = args.roles.iter().map(|role| text(role)).collect();
        entry += &format!("roles = [{}]\n", roles.join(", "));
    }
    let limits = [
        ("starts_per_minute", args.starts_per_minute),
        ("messages_per_minute", args.messages_per_minute),
        ("streams", args.streams),
        ("sessions_open", args.sessions_open),
        ("payload_bytes", args.payload_bytes),
    ];
    let set: Vec<String> =
        limits.iter().filter_map(|(name, limit)| Some(format!("{name} = {}", (*limit)?))).collect();
    if !set.is_empty() {
        entry += &format!("limits = {{ {} }}\n", set.join(", "));
    }
    entry + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_can_be_read_and_finds_its_token() {
        let args = Args {
            agent: "agent://\"odd\"".to_owned(),
            tenant: "acme".to_owned(),
            roles: vec!["observer".to_owned(), "admin".to_owned()],
            starts_per_minute: Some(0),
            messages_per_minute: Some(600),
            streams: Some(3),
            sessions_open: Some(4),
            payload_bytes: None,
        };
        let tokens = Tokens::parse(&(entry(&args, "one") + &entry(&args, "two"))).unwrap();
        let found = tokens.find("one").unwrap();
        assert_eq!((found.agent.as_str(), &*found.tenant), ("agent://\"odd\"", "acme"));
        assert!(found.observer && found.admin);
        let limits = found.allowance;
        assert_eq!((limits.starts_per_minute, limits.messages_per_minute), (Some(0), Some(600)));
        assert_eq!((limits.streams, limits.sessions_open, limits.payload_bytes), (Some(3), Some(4), None));
        assert!(tokens.find("two").is_some() && tokens.find("three").is_none());
    }
}
