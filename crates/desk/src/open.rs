//! Opening the desk: the store, the engine, the gate and what else every face stands on, wired in one place and stopped in
//! order.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use handover_engine::Settings as EngineSettings;
pub use handover_engine::codec::EVENTS;
pub use handover_engine::index::INDEX_VERSION;
pub use handover_engine::shard::Settings as ShardSettings;
use handover_engine::{Engine, OnPublished, clock};
pub use handover_kernel::Limits;
pub use handover_store::postgres;
use handover_store::{Fault, MemoryStore, PostgresStore, Put, SqliteStore, Store};
use prometheus_client::registry::Registry;

use crate::access::Access;
use crate::approvers::Rules;
use crate::audit::{self, Audit, Record};
use crate::checks::{self, Checks};
use crate::contract::Contracts;
use crate::counters::Counters;
use crate::directory::{Directory, listed};
use crate::gate::lender::Lender;
use crate::gate::{self, Gate};
use crate::id::Secret;
use crate::identity::Identity;
use crate::identity::bound::Keys;
use crate::identity::signins::SignIns;
use crate::identity::tokens::Tokens;
use crate::limit::Limit;
use crate::others::{self, Others};
use crate::policies::Policies;
use crate::private;
use crate::shutdown::Shutdown;
use crate::signals::Signals;
use crate::wait;
use crate::wishes::Wishes;

/// What the desk is told.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// How the engine divides its work, and what it may use.
    pub engine: handover_engine::Settings,
    /// What each agent may use, unless its credential says otherwise.
    pub gate: gate::Settings,
    /// Who may reach whom.
    pub access: Access,
    /// What needs whose approval.
    pub approvals: Rules,
    /// What checks of values against schemas may use.
    pub checks: checks::Settings,
    /// How many names skills may be listed under.
    pub names: listed::Bounds,
    /// How long calls wait.
    pub waits: wait::Settings,
    /// The file of the audit log and how many bytes it may have; none keeps none.
    pub audit: Option<(PathBuf, u64)>,
}

/// Where everything is kept.
#[derive(Clone)]
pub enum Data {
    /// In this directory, durably.
    Directory(PathBuf),
    /// In memory, for as long as the process lives.
    Memory,
    /// In a database that other nodes may use as well.
    Database(Box<postgres::Options>),
    /// In a store that somebody else opened.
    Store(Arc<dyn Store>),
}

/// Why the desk cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// Another process has the data.
    #[error("opening the data in {}", .path.display())]
    InUse {
        /// Where the data is.
        path: PathBuf,
        /// What the store says.
        #[source]
        fault: Fault,
    },
    /// The store does not work.
    #[error("opening the data{}", shown(.path.as_ref()))]
    Store {
        /// Where the data is, if it is in a directory.
        path: Option<PathBuf>,
        /// What the store says.
        #[source]
        fault: Fault,
    },
    /// The audit log cannot be written.
    #[error("opening the audit log {}", .path.display())]
    Audit {
        /// Its file.
        path: PathBuf,
        /// What the system says.
        #[source]
        error: io::Error,
    },
}

fn shown(path: Option<&PathBuf>) -> String {
    path.map_or_else(String::new, |path| format!(" in {}", path.display()))
}

/// How far the machine's clock may be from that of the store before it is said.
const APART_MAX_MS: u64 = 5000;

/// What every face stands on. Cheap to clone; all clones are the same desk.
#[derive(Clone)]
pub struct Desk {
    pub(crate) parts: Arc<Parts>,
}

/// The parts of a desk.
pub struct Parts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) engine: Engine,
    /// Who asks, and how often it may.
    pub gate: Gate,
    /// Who is there, and what they can do.
    pub directory: Directory,
    pub(crate) keys: Arc<Keys>,
    pub(crate) sign_ins: Arc<SignIns>,
    pub(crate) wishes: Arc<Wishes>,
    /// What sessions can be bound to.
    pub policies: Policies,
    pub(crate) contracts: Contracts,
    pub(crate) approvals: Rules,
    pub(crate) waits: wait::Settings,
    pub(crate) signals: Signals,
    pub(crate) others: Others,
    /// What this node is called, where several may share a database; otherwise empty.
    node: Box<str>,
    /// What makes derived ids unguessable.
    pub(crate) secret: Secret,
    /// When everything is to end.
    pub shutdown: Shutdown,
    pub(crate) audit: Audit,
    pub(crate) counters: Arc<Counters>,
    engine_counters: Arc<handover_engine::Counters>,
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Desk")
    }
}

impl Deref for Desk {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

/// Open the data and start everything.
pub fn open(data: Data, settings: Settings, identity: Identity, shutdown: Shutdown) -> Result<Desk, Failed> {
    let node = match &data {
        Data::Database(options) => options.node.clone(),
        Data::Directory(_) | Data::Memory | Data::Store(_) => String::new(),
    };
    let (store, path) = open_store(data)?;
    let failed = |fault| Failed::Store { path: path.clone(), fault };
    let counters = Counters::new(Limit::ALL.map(Limit::name));
    let audit = match &settings.audit {
        None => Audit::default(),
        // The data directory is there by now.
        Some((path, bytes_max)) => Audit::open(path, *bytes_max, &node, Arc::clone(&counters))
            .map_err(|error| Failed::Audit { path: path.clone(), error })?,
    };
    warn_of_readers(path.as_deref(), settings.audit.as_ref().map(|(path, _)| path.as_path()));
    let mut engine_settings = settings.engine;
    if audit.is_on() {
        let audit = audit.clone();
        engine_settings.on_published = Some(OnPublished(Arc::new(move |published| {
            let told = published
                .events
                .iter()
                .filter_map(|event| Record::happened(&published.key, &published.binding.participants, event));
            told.for_each(|record| audit.record(record));
        })));
    }
    if audit.is_on() {
        note_access(&*store, &audit, &settings.access, &settings.approvals, identity.tokens())
            .map_err(failed)?;
    }
    let engine_counters = handover_engine::Counters::new();
    let engine =
        Engine::start(Arc::clone(&store), engine_settings, Arc::clone(&engine_counters)).map_err(failed)?;
    let lender = engine.slot().map(|_| {
        let store = Arc::clone(&store);
        Lender::begin(Box::new(move |asks| store.lend(asks))).map_err(failed)
    });
    let lender = lender.transpose()?;
    let gate =
        Gate::new(identity, engine.clone(), settings.gate, lender, audit.clone(), Arc::clone(&counters));
    let parts = Parts {
        directory: Directory::with(
            Arc::clone(&store),
            settings.access,
            settings.names,
            engine.slot().map(|_| engine.clone()),
        ),
        keys: Arc::new(Keys::new(Arc::clone(&store))),
        sign_ins: Arc::new(SignIns::new(Arc::clone(&store))),
        wishes: Arc::new(Wishes::new(Arc::clone(&store))),
        policies: Policies::new(Arc::clone(&store)),
        contracts: Contracts::new(Checks::new(settings.checks)),
        approvals: settings.approvals,
        waits: settings.waits,
        signals: Signals::default(),
        others: Others::default(),
        node: node.into(),
        secret: Secret::open(&*store).map_err(failed)?,
        store,
        engine,
        gate,
        shutdown,
        audit,
        counters,
        engine_counters,
    };
    let desk = Desk { parts: Arc::new(parts) };
    others::begin(&desk).map_err(failed)?;
    Ok(desk)
}

/// Write down who may do what if that is not what it was when the server started before: the operator may have changed it
/// while nothing ran.
fn note_access(
    store: &dyn Store,
    audit: &Audit,
    access: &Access,
    approvals: &Rules,
    tokens: Option<&Tokens>,
) -> Result<(), Fault> {
    let rules = access.to_value();
    let count = rules.as_array().map_or(0, Vec::len);
    let none = Tokens::default();
    let tokens = tokens.unwrap_or(&none);
    let settings = [
        (
            "access.rules",
            Access::default().to_value().to_string().into_bytes(),
            rules.to_string().into_bytes(),
            format!("{count} rules"),
        ),
        (
            "approvals.rules",
            Rules::default().to_value().to_string().into_bytes(),
            approvals.to_value().to_string().into_bytes(),
            format!("{} rules", approvals.to_value().as_array().map_or(0, Vec::len)),
        ),
        (
            "identity.tokens",
            none.digest().to_vec(),
            tokens.digest().to_vec(),
            format!("{} tokens", tokens.len()),
        ),
    ];
    for (setting, default, value, shown) in settings {
        let before = store.record("server", "", setting)?.unwrap_or(default);
        if before != value {
            let record = handover_store::Record {
                space: "server".into(),
                tenant: "".into(),
                key: setting.into(),
                value,
            };
            // In this order: told twice is better than never.
            audit.record(Record::of_access(setting, shown));
            store.put_record(&record, Put::Replace)?;
        }
    }
    Ok(())
}

/// Say in the log if others than the owner can read what is kept here.
fn warn_of_readers(data: Option<&Path>, audit: Option<&Path>) {
    let data = data.map(SqliteStore::places).unwrap_or_default();
    let audit = audit.map(audit::file::places).unwrap_or_default();
    data.iter().chain(&audit).for_each(|path| private::warn_unless(path));
}

fn open_store(data: Data) -> Result<(Arc<dyn Store>, Option<PathBuf>), Failed> {
    match data {
        Data::Memory => Ok((Arc::new(MemoryStore::new()), None)),
        Data::Store(store) => Ok((store, None)),
        Data::Database(options) => match PostgresStore::open(*options) {
            Ok(store) => Ok((Arc::new(store), None)),
            Err(fault) => Err(Failed::Store { path: None, fault }),
        },
        Data::Directory(path) => match SqliteStore::open(&path) {
            Ok(store) => Ok((Arc::new(store), Some(path))),
            Err(fault @ Fault::InUse { .. }) => Err(Failed::InUse { path, fault }),
            Err(fault) => Err(Failed::Store { path: Some(path), fault }),
        },
    }
}

impl Desk {
    /// Show what is counted here and beneath.
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.engine_counters.register(registry);
        self.counters.register(registry);
    }

    /// Nobody asks any more: finish what is under way, and give the data back. Blocks until it is done.
    pub fn stop(&self) {
        self.engine.stop();
        self.audit.stop();
    }

    /// Whether the store can be written now, or else why not. May block.
    pub fn check_store(&self) -> Result<(), String> {
        self.store.probe().map_err(chain)
    }

    /// What this node is called, where several may share a database; otherwise empty.
    pub fn node(&self) -> &str {
        &self.parts.node
    }

    /// Where the data is and what this node is there, for the operator, if others may use it as well.
    pub fn about_store(&self) -> Option<String> {
        let about = self.store.about()?;
        let (engine, machine) = (clock::now(), clock::machine());
        let apart_ms = engine.0.abs_diff(machine.0);
        match apart_ms > APART_MAX_MS {
            true => Some(format!("{about}; the machine's clock is {} s off the database's", apart_ms / 1000)),
            false => Some(about),
        }
    }

    /// Write a copy of everything that was acknowledged to a file that is not there yet, while others go on. May block for long.
    pub fn copy_store(&self, file: &Path) -> Result<(), String> {
        self.store.copy_to(file).map_err(chain)
    }

    /// What one session may hold.
    pub fn limits(&self) -> &Limits {
        self.engine.limits()
    }

    /// Whether the engine runs, or else why not.
    pub fn check_engine(&self) -> Result<(), String> {
        self.engine.check()
    }
}

/// A fault with all that lies beneath it.
fn chain(fault: Fault) -> String {
    let causes = std::iter::successors(Some(&fault as &dyn std::error::Error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::tokens::hash_text;

    #[test]
    fn who_may_do_what_is_written_down_when_it_is_not_what_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let start = |rules: &str, tokens: &str| {
            let audit = Audit::open(&path, 1_000_000, "", Counters::new([])).unwrap();
            let tokens = Tokens::parse(tokens).unwrap();
            note_access(&*store, &audit, &Access::parse(rules).unwrap(), &Rules::default(), Some(&tokens))
                .unwrap();
            audit.stop();
            let text = std::fs::read_to_string(&path).unwrap();
            text.matches("access_changed").count()
        };
        let rule = r#"[{ agents = ["intern"], delegate = [] }]"#;
        let token = format!("[[token]]\nsha256 = \"{}\"\nagent = \"planner\"\n", hash_text("one"));
        let revoked = format!("{token}revoked = true\n");
        assert_eq!(start("[]", ""), 0, "as it is when nobody has said anything");
        assert_eq!((start(rule, ""), start(rule, "")), (1, 1));
        assert_eq!((start(rule, &token), start(rule, &token)), (2, 2));
        assert_eq!((start(rule, &revoked), start("[]", &revoked)), (3, 4));
    }
}
