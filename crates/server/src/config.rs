//! What the server is told: one table of keys, and one order of the places their values come from.
//!
//! A flag wins over the environment, the environment over the file, the file over the default. A key is one line in the
//! table below: its flag, its variable, its place in the file and its line in the printed configuration follow from it.
//! A value that is wrong is refused wherever it stands, even if a stronger place overrides it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use jsonwebtoken::Algorithm;
use toml::{Table, Value};

pub use self::kind::Url;
use self::kind::{
    Kind, access_list, address, admin, approval_rules, audit_file, auto_or, directory, endpoint_or_nothing,
    file_or_nothing, hosts, networks, number, one_of, secret_url, some_of, switch, text, text_or_nothing,
    texts,
};
use self::network::Network;
use handover_desk::identity::jwt::settings::ALGORITHMS;

mod kind;
pub mod network;

/// Makes [`Config`] and its parts from the table of keys, and the function that fills them.
macro_rules! keys {
    (
        { $( #[doc = $help:literal] $key:ident: $type:ty = $default:literal, $kind:expr; )* }
        $( #[doc = $about:literal] $part:ident: $Part:ident {
            $( #[doc = $part_help:literal] $part_key:ident: $part_type:ty = $part_default:literal, $part_kind:expr; )*
        } )*
    ) => {
        /// The configuration in effect.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Config {
            $( #[doc = $help] pub $key: $type, )*
            $( #[doc = $about] pub $part: $Part, )*
        }

        $(
            #[doc = $about]
            #[derive(Clone, Debug, PartialEq, Eq)]
            pub struct $Part {
                $( #[doc = $part_help] pub $part_key: $part_type, )*
            }

            impl $Part {
                /// Each of its keys with its value, to compare.
                pub fn entries(&self) -> BTreeMap<String, String> {
                    let entries = [$( (concat!(stringify!($part), ".", stringify!($part_key)), plain(&self.$part_key)), )*];
                    entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
                }
            }
        )*

        impl Merge<'_> {
            fn config(&mut self) -> Result<Config, Error> {
                Ok(Config {
                    $( $key: self.value(stringify!($key), $help, &$default.to_string(), $kind)?, )*
                    $( $part: $Part { $(
                        $part_key: self.value(
                            concat!(stringify!($part), ".", stringify!($part_key)),
                            $part_help,
                            &$part_default.to_string(),
                            $part_kind,
                        )?,
                    )* }, )*
                })
            }
        }
    };
}

/// A value as it would be set.
fn plain(value: &impl fmt::Debug) -> String {
    let text = format!("{value:?}");
    match text.strip_prefix("Some(").and_then(|text| text.strip_suffix(')')) {
        Some(set) => set.to_owned(),
        None if text == "None" => "auto".to_owned(),
        None => text,
    }
}

keys! {
    {
        /// The directory that holds the logs. It is made if it is not there.
        data: PathBuf = "./handover-data", directory();
        /// Where HTTP is served. Port 0 takes a free one.
        http: SocketAddr = "127.0.0.1:8420", address();
        /// Host names that HTTP is served under, besides localhost and that of mcp.resource, separated by commas.
        http_hosts: Vec<String> = "", hosts();
        /// Where MACP over gRPC is served. Port 0 takes a free one.
        macp: SocketAddr = "127.0.0.1:50051", address();
        /// Where metrics and readiness are served to the operator: an address, off, or auto for 127.0.0.1:8421, with a free port if http has port 0.
        admin: Admin = "auto", admin();
        /// How long the server serves on when it is told to stop, and says that it is not ready; auto is 0, or 5 with a store.
        drain_seconds: Option<u64> = "auto", auto_or(0..=3600);
        /// Networks or addresses of proxies in front of the server, separated by commas. Their number of connections is not limited.
        trusted_proxies: Vec<Network> = "", networks();
    }
    /// A database in the place of the data directory, for several nodes.
    store: Store {
        /// The PostgreSQL database, such as postgres://user@host/database. Without it everything is in the data directory. store alone says the same.
        url: Url = "", secret_url();
        /// The file of its password.
        password_file: Option<PathBuf> = "", file_or_nothing();
        /// The certificates in PEM that the database's own is checked against. Without them, those that the machine trusts.
        ca: Option<PathBuf> = "", file_or_nothing();
        /// The schema of the tables.
        schema: String = "handover", text();
        /// What this node is called where nodes are listed; auto is the name of the machine and its HTTP port.
        node: String = "auto", text();
        /// Whether tables that are not there, or of an older release, are made when the server starts.
        migrate: bool = true, switch();
        /// How long a node that is not seen keeps its place. One that cannot commit that it is there stops reading after half of it.
        lease_seconds: u64 = 10, number(2..=600);
        /// How long commands and reads wait for a database that does not answer.
        patience_seconds: u64 = 10, number(1..=600);
        /// How often to poll for what other nodes did, while somebody follows or while their notifications do not arrive.
        poll_ms: u64 = 20, number(1..=10_000);
        /// How many events of other nodes may be unknown before this one starts over.
        behind_max: u64 = 100_000, number(1000..=100_000_000);
    }
    /// The log, which goes to standard error.
    log: Log {
        /// The least important level that is logged: error, warn, info, debug or trace.
        level: Level = "info", one_of(&LEVELS);
        /// How a line looks: text for people, json for machines.
        format: Format = "text", one_of(&FORMATS);
    }
    /// How the engine divides its work and what it keeps in memory.
    engine: Engine {
        /// How many writers the sessions are spread over.
        shards: usize = 4, number(1..=256);
        /// How many events one commit of a shard may hold.
        batch_events_max: usize = 1024, number(1..=65_536);
        /// How many commands may wait for a shard.
        queue_max: usize = 4096, number(1..=1_000_000);
        /// How many sessions may be in memory.
        sessions_in_memory_max: usize = 100_000, number(1..=100_000_000);
        /// How many bytes they may have.
        sessions_in_memory_bytes_max: usize = 268_435_456, number(1_048_576..=1_000_000_000_000);
        /// After how long without a command a session leaves memory.
        idle_seconds: u64 = 60, number(1..=86_400);
        /// How many events may wait for a subscriber before it is disconnected.
        subscriber_queue_max: usize = 1024, number(1..=1_000_000);
    }
    /// What one request, task or agent may use. Reaching a limit is a refusal.
    limits: Limits {
        /// How many bytes one payload may have.
        payload_bytes_max: usize = 1_048_576, number(1024..=67_108_864);
        /// How many agents may take part in a session.
        participants_max: usize = 1000, number(1..=100_000);
        /// How many hours a task may be open if it has a time limit. It bounds mcp.ttl_minutes.
        ttl_hours_max: u64 = 24, number(1..=87_600);
        /// How many steers may wait for an assignee.
        steers_pending_max: usize = 64, number(1..=10_000);
        /// How many questions of a task may be open.
        questions_open_max: usize = 32, number(1..=10_000);
        /// How many conversation messages a task may have.
        messages_per_task_max: usize = 10_000, number(1..=1_000_000);
        /// How many events the log of a session may have. What ends it always fits.
        log_events_max: u64 = 200_000, number(100..=100_000_000);
        /// How many bytes the log of a session may have.
        log_bytes_max: u64 = 268_435_456, number(1_048_576..=1_000_000_000_000);
        /// How many unfinished sessions an agent may have started.
        sessions_open_per_agent_max: usize = 10_000, number(1..=100_000_000);
        /// How many sessions an agent may start in a minute. 0 is any number; auto is 600, or any number in development.
        starts_per_minute: Option<u64> = "auto", auto_or(0..=100_000_000);
        /// How many messages an agent may send in a minute. 0 is any number; auto is 12000, or any number in development.
        messages_per_minute: Option<u64> = "auto", auto_or(0..=100_000_000);
        /// How many requests of any kind an agent may make in a minute, reads and waits included. 0 is any number; auto is 36000, or any number in development.
        requests_per_minute: Option<u64> = "auto", auto_or(0..=100_000_000);
        /// How many steps it may take to check a value against a schema: about 5 ns each.
        check_steps_max: u64 = 50_000_000, number(100_000..=10_000_000_000);
        /// How many long checks may run at a time. auto is half of the processors.
        check_threads: Option<u64> = "auto", auto_or(1..=256);
        /// How many long checks may wait or run, of which an agent may have an eighth.
        checks_max: usize = 64, number(1..=100_000);
        /// How long a check may wait for a thread.
        check_wait_ms: u64 = 2000, number(1..=60_000);
        /// How many names the skills of an agent may have been listed under as tools, past ones included.
        listed_names_per_agent_max: usize = 1024, number(1..=1_000_000);
        /// How many those of all agents of a tenant together.
        listed_names_per_tenant_max: usize = 100_000, number(1..=10_000_000);
        /// How many streams and watches an agent may have open.
        streams_per_agent_max: usize = 1000, number(1..=1_000_000);
        /// How many bytes may be in memory on behalf of an agent: requests, answers and streams that are not read yet.
        memory_per_agent_bytes: u64 = 67_108_864, number(1_048_576..=1_000_000_000_000);
        /// How many for all agents of a tenant together.
        memory_per_tenant_bytes: u64 = 268_435_456, number(1_048_576..=1_000_000_000_000);
        /// How many for all tenants together.
        memory_bytes: u64 = 1_073_741_824, number(1_048_576..=1_000_000_000_000);
        /// How many bytes may be stored of the sessions that an agent started. 0 is any number; auto is 16 GiB, or any number in development.
        stored_per_agent_bytes: Option<u64> = "auto", auto_or(0..=1_000_000_000_000_000);
        /// How many of all sessions of a tenant. 0 is any number; auto is 64 GiB, or any number in development.
        stored_per_tenant_bytes: Option<u64> = "auto", auto_or(0..=1_000_000_000_000_000);
        /// How many HTTP connections may be open; auto is 10000, or what the limit of open files allows.
        connections_max: Option<u64> = "auto", auto_or(1..=1_000_000);
        /// How many MACP connections may be open; auto is 10000, or what the limit of open files allows.
        macp_connections_max: Option<u64> = "auto", auto_or(1..=1_000_000);
        /// How many connections one address may have open on each listener. This machine and trusted_proxies have no such limit.
        connections_per_address_max: usize = 256, number(1..=1_000_000);
        /// How long a client may take from connecting to the end of the head of its first request, TLS included.
        head_seconds: u64 = 10, number(1..=3600);
        /// How long a client may take to send the rest of a request, or a message of a stream.
        body_seconds: u64 = 30, number(1..=3600);
        /// After how many seconds a client that reads nothing is disconnected.
        write_seconds: u64 = 60, number(1..=3600);
    }
    /// Authentication: whose requests are served.
    identity: Identity {
        /// A file of static tokens (handover token makes its entries). Without one the token is the agent's id.
        tokens: Option<PathBuf> = "", file_or_nothing();
        /// How often that file is read again.
        tokens_reload_seconds: u64 = 5, number(1..=86_400);
        /// The agent that requests without a token act as, in development. Without it they are refused.
        anonymous: Option<String> = "", text_or_nothing();
        /// The keys that JSON Web Tokens are signed with: the file or URL of a JWK set. Without them there are no such tokens.
        jwt_keys: Option<String> = "", text_or_nothing();
        /// The issuer of JSON Web Tokens.
        jwt_issuer: Option<String> = "", text_or_nothing();
        /// The accepted audiences, separated by commas. A token must name one of them.
        jwt_audience: Vec<String> = "", texts();
        /// The accepted signature algorithms, separated by commas.
        jwt_algorithms: Vec<Algorithm> = "RS256,RS384,RS512,PS256,PS384,PS512,ES256,ES384,EdDSA", some_of(&ALGORITHMS);
        /// The claim that names the tenant.
        jwt_tenant_claim: String = "tenant", text();
        /// How many seconds the issuer's clock may differ from ours.
        jwt_skew_seconds: u64 = 60, number(0..=3600);
        /// How often the keys are read again.
        jwt_refresh_seconds: u64 = 300, number(1..=86_400);
    }
    /// The access list: who may reach whom.
    access: Access {
        /// The access list: rules for agents of a tenant. Without rules all agents of a tenant can reach each other.
        rules: handover_desk::access::Access = "[]", access_list();
    }
    /// Approvals.
    approvals: Approvals {
        /// Rules about what needs an approval before it takes effect, and whose, and roles for them. Without rules nothing needs an approval.
        rules: handover_desk::approvers::Rules = "[]", approval_rules();
    }
    /// TLS, for everything that listens.
    tls: Tls {
        /// The certificate in PEM, followed by intermediate certificates. Without it TLS is not used.
        certificate: Option<PathBuf> = "", file_or_nothing();
        /// The private key of the certificate in PEM.
        key: Option<PathBuf> = "", file_or_nothing();
        /// How often the two files are read again.
        reload_seconds: u64 = 10, number(1..=86_400);
        /// Whether something in front of the server, such as a proxy, terminates TLS: then the server may listen on other addresses without TLS.
        terminated_elsewhere: bool = false, switch();
    }
    /// The audit log.
    audit: Audit {
        /// The file of the audit log: a path, off for none, or auto for audit.jsonl in the data directory.
        file: AuditFile = "auto", audit_file();
        /// How many bytes the file may have before a new one is begun. Four older ones are kept.
        bytes_max: u64 = 67_108_864, number(65_536..=1_000_000_000_000);
    }
    /// Webhook notifications that something waits for an agent.
    webhook: Webhook {
        /// The URL that is notified when something new waits for one of webhook.agents: https, or on this machine. Without it nothing is sent.
        url: Option<String> = "", text_or_nothing();
        /// The file with the secret that notifications are signed with: whsec_ and base64, or any text of at least 24 bytes.
        secret_file: Option<PathBuf> = "", file_or_nothing();
        /// The agents to notify for, separated by commas.
        agents: Vec<String> = "", texts();
        /// The tenant of those agents.
        tenant: String = "default", text();
        /// The address of the console for links in notifications. Without it, that of http.
        console: Option<String> = "", text_or_nothing();
    }
    /// Traces.
    traces: Traces {
        /// Where spans go, as OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces. Without it they go nowhere.
        url: Option<String> = "", text_or_nothing();
        /// A file of headers to send along, one a line, such as authorization: Bearer ... Then url is https, or this machine.
        headers_file: Option<PathBuf> = "", file_or_nothing();
        /// What the server is called in traces.
        service: String = "handover", text();
    }
    /// How MCP is served.
    mcp: Mcp {
        /// How long a call of a client without support for tasks waits for its result before it returns a task's id.
        wait_seconds: u64 = 4, number(1..=3600);
        /// The same for a call whose client listens for progress.
        wait_with_progress_seconds: u64 = 8, number(1..=3600);
        /// How long a call goes on waiting while its client shows its user a question of the agent.
        wait_for_answer_seconds: u64 = 300, number(1..=3600);
        /// How long a task may take unless its caller says otherwise. 0 means no limit.
        ttl_minutes: u64 = 1440, number(0..=5_256_000);
        /// How often a client is told to look at a task.
        poll_interval_ms: u64 = 1000, number(10..=3_600_000);
        /// Whether task methods without the header Mcp-Name are refused.
        strict_headers: bool = "false", switch();
        /// Origins of web pages that may connect, besides pages of this machine, separated by commas.
        origins: Vec<String> = "", texts();
        /// The address of the endpoint as clients know it. Without it, it is taken from the request.
        resource: Option<String> = "", endpoint_or_nothing();
    }
    /// How long finished work is kept.
    retention: Retention {
        /// After how many days a finished session is deleted. 0 keeps it for ever.
        finished_days: u64 = 0, number(0..=36_500);
        /// For how many days the id of a deleted session stays taken. 0 keeps it for ever.
        tombstone_days: u64 = 0, number(0..=36_500);
    }
}

impl Config {
    /// The file of the audit log, unless there is none.
    pub fn audit_path(&self) -> Option<PathBuf> {
        match &self.audit.file {
            AuditFile::Auto => Some(self.data.join("audit.jsonl")),
            AuditFile::Off => None,
            AuditFile::At(path) => Some(path.clone()),
        }
    }
}

/// The port of the admin listener, unless somebody says otherwise.
const ADMIN_PORT: u16 = 8421;

impl Config {
    /// Where the admin listener is, unless there is none.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        let port = if self.http.port() == 0 { 0 } else { ADMIN_PORT };
        match self.admin {
            Admin::Auto => Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
            Admin::Off => None,
            Admin::At(address) => Some(address),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        let loaded = load(&Sources::default()).expect("every default in the table is a value of its kind");
        loaded.config
    }
}

/// The least important level that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// What needs a person.
    Error,
    /// What may need one.
    Warn,
    /// What an operator wants to know.
    Info,
    /// What explains a decision.
    Debug,
    /// Everything.
    Trace,
}

const LEVELS: [(&str, Level); 5] = [
    ("error", Level::Error),
    ("warn", Level::Warn),
    ("info", Level::Info),
    ("debug", Level::Debug),
    ("trace", Level::Trace),
];

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// For machines: one JSON object a line.
    Json,
}

const FORMATS: [(&str, Format); 2] = [("text", Format::Text), ("json", Format::Json)];

/// Where the admin listener is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admin {
    /// On this machine.
    Auto,
    /// There is none.
    Off,
    /// Here.
    At(SocketAddr),
}

/// Where the audit log is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditFile {
    /// In the data directory.
    Auto,
    /// There is none.
    Off,
    /// Here.
    At(PathBuf),
}

/// The places values come from, as the caller found them.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// What the flags said, by key: `("log.level", "debug")`.
    pub flags: BTreeMap<&'static str, String>,
    /// The environment. A variable that is empty counts as not set.
    pub environment: BTreeMap<String, String>,
    /// The configuration file, if one was named.
    pub file: Option<File>,
}

/// A configuration file that has been read.
#[derive(Clone, Debug)]
pub struct File {
    /// Its path, for messages.
    pub path: String,
    /// What it says.
    pub text: String,
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// The configuration file at this path.
    File(String),
    /// The environment variable of this name.
    Environment(String),
    /// The flag of this name.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(path) => write!(f, "file {path}"),
            Origin::Environment(name) => write!(f, "environment {name}"),
            Origin::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// Why a configuration is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A value is not of its key's kind.
    #[error("{key} ({origin}): expected {expected}, found {found}")]
    Value {
        /// The key.
        key: &'static str,
        /// Where the value came from.
        origin: Origin,
        /// What it may be.
        expected: String,
        /// What it was.
        found: String,
    },
    /// The file has a key that means nothing.
    #[error("unknown key {key} (file {path}): expected one of {known}")]
    UnknownKey {
        /// The key.
        key: String,
        /// The file.
        path: String,
        /// The keys that could have been meant.
        known: String,
    },
    /// The file cannot be read as TOML.
    #[error("file {path}, line {line}: expected TOML, found: {found}")]
    NotToml {
        /// The file.
        path: String,
        /// The line where reading failed.
        line: usize,
        /// What is wrong there.
        found: String,
    },
}

/// A configuration, and where each of its values came from.
#[derive(Debug)]
pub struct Loaded {
    /// The values.
    pub config: Config,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    key: &'static str,
    help: &'static str,
    value: Value,
    origin: Origin,
}

/// Take each value from the strongest of its sources.
pub fn load(sources: &Sources) -> Result<Loaded, Error> {
    let mut in_file = BTreeMap::new();
    if let Some(file) = &sources.file {
        flatten("", &file.text.parse().map_err(|error| not_toml(file, &error))?, &mut in_file);
    }
    // Short for the address alone.
    if let Some(url) = in_file.remove("store") {
        in_file.entry("store.url".to_owned()).or_insert(url);
    }
    let mut merge = Merge { sources, in_file, entries: Vec::new() };
    let config = merge.config()?;
    let Merge { entries, in_file, .. } = merge;
    if let Some(file) = &sources.file {
        refuse_unknown(file, &in_file, &entries)?;
    }
    time_limit_fits(&config, &entries)?;
    for key in sources.flags.keys() {
        assert!(entries.iter().any(|entry| entry.key == *key), "the flag of {key} has no key in the table");
    }
    Ok(Loaded { config, entries })
}

impl Loaded {
    /// The configuration as a file that gives the same configuration again. Each value says where it came from.
    pub fn to_toml(&self) -> String {
        let mut text = String::from("# The configuration in effect, and where each value came from.\n");
        let mut current = "";
        for Entry { key, help, value, origin } in &self.entries {
            let part = part_of(key);
            let name = key.rsplit('.').next().unwrap_or(key);
            if part != current {
                text += &format!("\n[{part}]");
                current = part;
            }
            // A path may hold a line break, which would end the comment.
            let origin = origin.to_string().replace(char::is_control, "?");
            text += &format!("\n#{help}\n{name} = {value} # {origin}\n");
        }
        text
    }
}

/// The walk over the table: each key in turn takes its value from the sources.
struct Merge<'a> {
    sources: &'a Sources,
    in_file: BTreeMap<String, Value>,
    entries: Vec<Entry>,
}

impl Merge<'_> {
    fn value<T>(
        &mut self,
        key: &'static str,
        help: &'static str,
        default: &str,
        kind: Kind<T>,
    ) -> Result<T, Error> {
        // From the weakest source to the strongest: each is checked, the last one counts.
        let mut given = vec![(Origin::Default, default.to_owned(), None)];
        if let (Some(file), Some(value)) = (&self.sources.file, self.in_file.get(key)) {
            given.push((Origin::File(file.path.clone()), text_of(value), Some(value)));
        }
        let variable = variable_of(key);
        if let Some(text) = self.sources.environment.get(&variable).filter(|text| !text.is_empty()) {
            given.push((Origin::Environment(variable), text.clone(), None));
        }
        if let Some(text) = self.sources.flags.get(key) {
            given.push((Origin::Flag(flag_of(key)), text.clone(), None));
        }

        let mut taken = None;
        for (origin, text, typed) in given {
            let refuse = |expected| Error::Value {
                key,
                origin: origin.clone(),
                expected,
                found: typed.map_or_else(|| format!("{text:?}"), Value::to_string),
            };
            let value = (kind.parse)(&text).map_err(refuse)?;
            let printed = (kind.print)(&value);
            if typed.is_some_and(|typed| !typed.same_type(&printed)) {
                return Err(refuse(format!("a value of type {}, such as {printed}", printed.type_str())));
            }
            taken = Some((value, printed, origin));
        }
        let (value, printed, origin) = taken.expect("a default is always given");
        self.entries.push(Entry { key, help, value: printed, origin });
        Ok(value)
    }
}

/// Whether tasks may have the time limit that they get over MCP. Otherwise every task there would be refused when it starts.
fn time_limit_fits(config: &Config, entries: &[Entry]) -> Result<(), Error> {
    let (key, hours, found) = ("mcp.ttl_minutes", config.limits.ttl_hours_max, config.mcp.ttl_minutes);
    if found <= hours * 60 {
        return Ok(());
    }
    let entry = entries.iter().find(|entry| entry.key == key).expect("the table has this key");
    let expected = format!(
        "a whole number from 0 to {}, because limits.ttl_hours_max is {hours} (raise it for more)",
        hours * 60
    );
    Err(Error::Value { key, origin: entry.origin.clone(), expected, found: found.to_string() })
}

/// What a key is called that stands for its whole part.
fn short(key: &str) -> &str {
    if key == "store.url" { "store" } else { key }
}

fn variable_of(key: &str) -> String {
    format!("HANDOVER_{}", short(key).replace('.', "_").to_uppercase())
}

fn flag_of(key: &str) -> String {
    format!("--{}", short(key).replace(['.', '_'], "-"))
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The values of a file by their full keys. An empty table stands for itself, so that it can be refused.
fn flatten(prefix: &str, table: &Table, into: &mut BTreeMap<String, Value>) {
    for (name, value) in table {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        if let Value::Table(inner) = &value
            && !inner.is_empty()
        {
            flatten(&key, inner, into);
        } else {
            into.insert(key, value.clone());
        }
    }
}

fn refuse_unknown(file: &File, in_file: &BTreeMap<String, Value>, entries: &[Entry]) -> Result<(), Error> {
    let keys_of = |part: &str| -> Vec<&str> {
        entries.iter().map(|entry| entry.key).filter(|key| part_of(key) == part).collect()
    };
    for (key, value) in in_file {
        let is_key = entries.iter().any(|entry| entry.key == key);
        let is_empty_part = value.is_table() && !keys_of(key).is_empty();
        if !is_key && !is_empty_part {
            let mut known = if part_of(key).is_empty() { Vec::new() } else { keys_of(part_of(key)) };
            if known.is_empty() {
                known = entries.iter().map(|entry| entry.key).collect();
            }
            return Err(Error::UnknownKey {
                key: key.clone(),
                path: file.path.clone(),
                known: known.join(", "),
            });
        }
    }
    Ok(())
}

fn part_of(key: &str) -> &str {
    key.split_once('.').map_or("", |(part, _)| part)
}

fn not_toml(file: &File, error: &toml::de::Error) -> Error {
    let at = error.span().map_or(0, |span| span.start).min(file.text.len());
    let line = 1 + file.text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count();
    Error::NotToml { path: file.path.clone(), line, found: error.message().replace('\n', ", ") }
}

#[cfg(test)]
mod tests;
