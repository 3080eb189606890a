//! `handover token`: make a token and the entry that says whose it is, and `handover token revoke`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use handover_desk::calendar::rfc3339;
use handover_desk::clock::machine;
use handover_desk::identity::tokens::revoke::{Which, revoke};
use handover_desk::identity::tokens::{Tokens, hash_text};
use handover_kernel::Timestamp;

use crate::Failure;

/// What `handover token` can be told.
#[derive(clap::Args)]
#[command(after_help = HELP, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Whose token it is
    #[arg(long, required = true)]
    agent: Option<String>,
    /// The agent's namespace
    #[arg(long, default_value = "default")]
    tenant: String,
    /// A role, which gives access beyond its own sessions: observer, admin
    #[arg(long = "role", value_name = "ROLE", value_parser = ["observer", "admin"])]
    roles: Vec<String>,
    /// After how long it ends, such as 12h, 30d or 52w [default: never]
    #[arg(long, value_name = "TIME", value_parser = duration_ms)]
    expires: Option<u64>,
    /// Append the entry to this file, which is made if it is not there [default: print it]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// How many sessions it may start in a minute; 0 is any number [default: the server's]
    #[arg(long, value_name = "COUNT")]
    starts_per_minute: Option<u64>,
    /// How many messages it may send in a minute; 0 is any number [default: the server's]
    #[arg(long, value_name = "COUNT")]
    messages_per_minute: Option<u64>,
    /// How many requests of any kind it may make in a minute; 0 is any number [default: the server's]
    #[arg(long, value_name = "COUNT")]
    requests_per_minute: Option<u64>,
    /// How many streams it may have open [default: the server's]
    #[arg(long, value_name = "COUNT")]
    streams: Option<u64>,
    /// How many unfinished sessions it may have started [default: the server's]
    #[arg(long, value_name = "COUNT")]
    sessions_open: Option<u64>,
    /// How many bytes one payload of it may have, at most the server's bound [default: the server's]
    #[arg(long, value_name = "BYTES")]
    payload_bytes: Option<u64>,
    /// How many bytes may be in memory on its behalf [default: the server's]
    #[arg(long, value_name = "BYTES")]
    memory_bytes: Option<u64>,
    /// How many bytes may be stored of the sessions that it starts; 0 is any number [default: the server's]
    #[arg(long, value_name = "BYTES")]
    stored_bytes: Option<u64>,
    /// How many seconds its calls wait before they are answered with a task's id [default: the server's]
    #[arg(long, value_name = "SECONDS")]
    wait_seconds: Option<u64>,
    /// Which tools it is shown: all, requester, worker, conversation [default: all]
    #[arg(long, value_name = "PROFILE", value_parser = ["all", "requester", "worker", "conversation"])]
    profile: Option<String>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Revoke tokens in their file: a server that runs notices within seconds, and ends their streams.
    Revoke(RevokeArgs),
}

/// What `handover token revoke` can be told.
#[derive(clap::Args)]
struct RevokeArgs {
    /// The file of tokens
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// Revoke all tokens of this agent
    #[arg(long, required_unless_present = "sha256", conflicts_with = "sha256")]
    agent: Option<String>,
    /// The agent's namespace
    #[arg(long, default_value = "default", requires = "agent")]
    tenant: String,
    /// Revoke the token whose entry has this sha256; its first digits are enough
    #[arg(long, value_name = "DIGITS")]
    sha256: Option<String>,
}

const HELP: &str = "\
The token goes to standard error and is shown this once; the entry, which holds only its hash, goes to the file, or to
standard output. Name the file with identity.tokens (HANDOVER_IDENTITY_TOKENS); the agent sends the token as
`authorization: Bearer <token>`. A server that runs reads the file again when it changes, and on SIGHUP.

Examples:
  handover token --agent planner --file tokens.toml
  handover token --agent auditor --tenant acme --role observer --expires 30d --file tokens.toml
  handover token --agent intern --starts-per-minute 30 --sessions-open 50 >> tokens.toml
  handover token revoke --agent intern --file tokens.toml
  HANDOVER_IDENTITY_TOKENS=tokens.toml handover serve";

/// Random bytes of a token: more than anybody can guess.
const TOKEN_BYTES: usize = 32;

/// Run the command to its end.
pub fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Some(Command::Revoke(args)) => revoke_in_file(args),
        None => make(args),
    }
}

fn make(args: &Args) -> Result<(), Failure> {
    let mut random = [0; TOKEN_BYTES];
    getrandom::fill(&mut random)
        .map_err(|error| Failure::Fault(format!("getting random bytes from the system: {error}")))?;
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let token = format!("hand_{digits}");
    let entry = entry(args, &token, machine());
    // What the server would refuse is refused here, before anybody has the token.
    Tokens::parse(&entry).map_err(|malformed| Failure::Usage(malformed.to_string()))?;
    if let Some(file) = &args.file {
        append(file, &entry)?;
    }
    let printing = |error| Failure::fault("printing", &error);
    let agent = args.agent.as_deref().unwrap_or_default();
    writeln!(std::io::stderr(), "the token of {agent}, shown this once: {token}").map_err(printing)?;
    if args.file.is_none() {
        std::io::stdout().write_all(entry.as_bytes()).map_err(printing)?;
    }
    Ok(())
}

fn entry(args: &Args, token: &str, now: Timestamp) -> String {
    // A text in quotes means the same in TOML as in JSON.
    let text = |value: &str| serde_json::Value::from(value).to_string();
    let mut entry = format!(
        "[[token]]\nsha256 = \"{}\"\nagent = {}\ntenant = {}\n",
        hash_text(token),
        text(args.agent.as_deref().unwrap_or_default()),
        text(&args.tenant)
    );
    if !args.roles.is_empty() {
        let roles: Vec<String> = args.roles.iter().map(|role| text(role)).collect();
        entry += &format!("roles = [{}]\n", roles.join(", "));
    }
    if let Some(profile) = &args.profile {
        entry += &format!("profile = {}\n", text(profile));
    }
    if let Some(after_ms) = args.expires {
        entry += &format!("expires_at = \"{}\"\n", rfc3339(now.plus(after_ms)));
    }
    let limits = [
        ("starts_per_minute", args.starts_per_minute),
        ("messages_per_minute", args.messages_per_minute),
        ("requests_per_minute", args.requests_per_minute),
        ("streams", args.streams),
        ("sessions_open", args.sessions_open),
        ("payload_bytes", args.payload_bytes),
        ("memory_bytes", args.memory_bytes),
        ("stored_bytes", args.stored_bytes),
        ("wait_seconds", args.wait_seconds),
    ];
    let set: Vec<String> =
        limits.iter().filter_map(|(name, limit)| Some(format!("{name} = {}", (*limit)?))).collect();
    if !set.is_empty() {
        entry += &format!("limits = {{ {} }}\n", set.join(", "));
    }
    entry + "\n"
}

/// A time such as `30d` in milliseconds; at most a hundred years.
fn duration_ms(text: &str) -> Result<u64, String> {
    let expected = || "expected a number and a unit, such as 45m, 12h, 30d or 52w".to_owned();
    let (number, unit) = text.split_at(text.len() - text.chars().next_back().map_or(0, char::len_utf8));
    let minutes = match unit {
        "m" => 1,
        "h" => 60,
        "d" => 24 * 60,
        "w" => 7 * 24 * 60,
        _ => return Err(expected()),
    };
    let number: u64 = number.parse().map_err(|_| expected())?;
    let minutes = number.checked_mul(minutes).filter(|minutes| (1..=100 * 366 * 24 * 60).contains(minutes));
    minutes.map(|minutes| minutes * 60_000).ok_or_else(|| "expected a time from 1m to 100 years".to_owned())
}

/// Append to a file. If it was not there before, only its owner can read it, and the group that it is for.
fn append(path: &Path, entry: &str) -> Result<(), Failure> {
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, fchown};
    let failed = |error| Failure::fault(format!("writing {}", path.display()), &error);
    let is_new = !path.exists();
    let mut options = fs::OpenOptions::new();
    options.create(true).append(true).mode(0o600);
    let mut file = options.open(path).map_err(failed)?;
    if is_new && let Some(group) = group_of(path) {
        fchown(&file, None, Some(group)).map_err(failed)?;
        file.set_permissions(fs::Permissions::from_mode(0o640)).map_err(failed)?;
    }
    file.write_all(entry.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)
}

/// The group that reads a file which root makes: that of its directory, if root has let the group in there. The service of the
/// Debian package is such a group in /etc/handover.
fn group_of(path: &Path) -> Option<u32> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = fs::metadata(parent).ok()?;
    let (is_roots, lets_in) = (directory.uid() == 0, directory.permissions().mode() & 0o010 != 0);
    let is_root = rustix::process::geteuid().is_root();
    (is_root && is_roots && lets_in && directory.gid() != 0).then(|| directory.gid())
}

fn revoke_in_file(args: &RevokeArgs) -> Result<(), Failure> {
    let shown = args.file.display();
    let which = match (&args.agent, &args.sha256) {
        (Some(agent), _) => Which::Of { agent: agent.clone(), tenant: args.tenant.clone() },
        (None, digits) => Which::Hash(digits.clone().unwrap_or_default()),
    };
    let reading = |error| Failure::fault(format!("reading {shown}"), &error);
    // A link stays one: what it leads to is written.
    let path = fs::canonicalize(&args.file).map_err(reading)?;
    let text = fs::read_to_string(&path).map_err(reading)?;
    let (new, count) =
        revoke(&text, &which).map_err(|malformed| Failure::Usage(format!("{shown}: {malformed}")))?;
    if count > 0 {
        replace(&path, &new).map_err(|error| Failure::fault(format!("writing {shown}"), &error))?;
    }
    let said = match count {
        0 => "they were revoked before".to_owned(),
        1 => "1 token was revoked".to_owned(),
        count => format!("{count} tokens were revoked"),
    };
    writeln!(std::io::stdout(), "{said}").map_err(|error| Failure::fault("printing", &error))
}

/// Put a new file in the place of another, with its owner and mode, so that nobody ever reads half of one.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown};
    let old = fs::metadata(path)?;
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let mut file = fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(&beside)?;
    let mut write = || {
        file.write_all(text.as_bytes())?;
        let new = file.metadata()?;
        if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
            chown(&beside, Some(old.uid()), Some(old.gid()))?;
        }
        file.set_permissions(old.permissions())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    write().inspect_err(|_| {
        // What is left of it would be in the way of the next one.
        _ = fs::remove_file(&beside);
    })
}

#[cfg(test)]
mod tests {
    use handover_desk::identity::Profile;

    use super::*;

    #[test]
    fn an_entry_can_be_read_and_finds_its_token() {
        let args = Args {
            command: None,
            agent: Some("agent://\"odd\"".to_owned()),
            tenant: "acme".to_owned(),
            roles: vec!["observer".to_owned(), "admin".to_owned()],
            expires: Some(1000),
            file: None,
            starts_per_minute: Some(0),
            messages_per_minute: Some(600),
            requests_per_minute: Some(900),
            streams: Some(3),
            sessions_open: Some(4),
            payload_bytes: None,
            memory_bytes: Some(5),
            stored_bytes: Some(0),
            wait_seconds: Some(30),
            profile: Some("worker".to_owned()),
        };
        let at = Timestamp(5_000);
        let tokens = Tokens::parse(&(entry(&args, "one", at) + &entry(&args, "two", at))).unwrap();
        let found = tokens.find("one", at).unwrap();
        assert_eq!((found.agent.as_str(), &*found.tenant), ("agent://\"odd\"", "acme"));
        assert!(found.observer && found.admin);
        assert_eq!(found.expires_at, Some(Timestamp(6_000)));
        let limits = found.allowance;
        assert_eq!((limits.starts_per_minute, limits.messages_per_minute), (Some(0), Some(600)));
        assert_eq!(limits.requests_per_minute, Some(900));
        assert_eq!((limits.streams, limits.sessions_open, limits.payload_bytes), (Some(3), Some(4), None));
        assert_eq!((limits.memory_bytes, limits.stored_bytes), (Some(5), Some(0)));
        assert_eq!((limits.wait_seconds, limits.profile), (Some(30), Some(Profile::Worker)));
        assert!(tokens.find("two", at).is_ok() && tokens.find("three", at).is_err());
    }

    #[test]
    fn a_time_is_a_number_and_a_unit() {
        let minute = 60_000;
        for (text, minutes) in [("1m", 1), ("12h", 720), ("30d", 43_200), ("52w", 524_160)] {
            assert_eq!(duration_ms(text), Ok(minutes * minute), "{text}");
        }
        for wrong in ["", "d", "30", "-1d", "30 d", "0m", "99999w", "18446744073709551615w", "3ä", "1.5h"] {
            assert!(duration_ms(wrong).is_err(), "{wrong}");
        }
    }
}
