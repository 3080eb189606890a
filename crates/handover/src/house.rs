//! What every way of serving stands on: the store, the engine, the gate and the MCP face, started from a configuration and
//! stopped in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use handover_server::audit::Audit;
use handover_server::config::{Config, File, Sources};
use handover_server::directory::Directory;
use handover_server::engine::{self, Engine};
use handover_server::face::mcp::handshake::Levels;
use handover_server::face::mcp::{self, Mcp};
use handover_server::gate::{self, Gate};
use handover_server::id::Secret;
use handover_server::identity::Identity;
use handover_server::shutdown::Shutdown;
use handover_server::telemetry::Metrics;
use handover_server::work::Work;
use handover_store::{Fault, SqliteStore, Store};
use tokio::signal::unix::{SignalKind, signal};

use crate::Failure;

/// The parts, ready to serve.
pub struct House {
    /// Where everything is kept.
    pub store: Arc<dyn Store>,
    /// Commands in, durable events out.
    pub engine: Engine,
    /// What every face asks first.
    pub gate: Gate,
    /// Who is there.
    pub directory: Directory,
    /// The MCP face.
    pub mcp: Mcp,
    audit: Audit,
}

impl House {
    /// Open the data and start everything. `hint` follows when another process has the data.
    pub fn start(
        config: &Config,
        identity: Identity,
        metrics: &Arc<Metrics>,
        shutdown: &Shutdown,
        hint: &str,
    ) -> Result<House, Failure> {
        let store = open_store(config, hint)?;
        let audit = open_audit(config, metrics)?;
        let settings = engine::Settings { audit: audit.clone(), ..engine::Settings::from(config) };
        let engine = Engine::start(Arc::clone(&store), settings, Arc::clone(metrics))
            .map_err(|fault| Failure::fault("starting the engine", &fault))?;
        let directory = Directory::new(Arc::clone(&store));
        let limits = gate::Settings::new(&config.limits, &identity);
        let gate = Gate::new(identity, engine.clone(), limits, Arc::clone(metrics));
        let mcp = Mcp::new(mcp::Parts {
            gate: gate.clone(),
            store: Arc::clone(&store),
            directory: directory.clone(),
            work: Work::new(engine.clone(), Arc::clone(&store)),
            shutdown: shutdown.clone(),
            settings: mcp::Settings::new(config),
            levels: Levels::default(),
            secret: Secret::open(&*store).map_err(|fault| Failure::fault("reading the data", &fault))?,
        });
        Ok(House { store, engine, gate, directory, mcp, audit })
    }

    /// Nobody asks any more: finish what is under way, and give the data directory back.
    pub async fn stop(self) -> Result<(), Failure> {
        let stopping = tokio::task::spawn_blocking(move || {
            self.engine.stop();
            self.audit.stop();
        });
        stopping.await.map_err(|error| Failure::fault("stopping the engine", &error))
    }
}

fn open_store(config: &Config, hint: &str) -> Result<Arc<dyn Store>, Failure> {
    let doing = || format!("opening the data in {}", config.data.display());
    match SqliteStore::open(&config.data) {
        Ok(store) => Ok(Arc::new(store)),
        Err(fault @ Fault::InUse { .. }) => Err(Failure::Fault(format!("{}: {fault}{hint}", doing()))),
        Err(fault) => Err(Failure::fault(doing(), &fault)),
    }
}

/// The data directory is there by now.
fn open_audit(config: &Config, metrics: &Arc<Metrics>) -> Result<Audit, Failure> {
    let Some(path) = config.audit_path() else {
        return Ok(Audit::default());
    };
    let doing = || format!("opening the audit log {} (audit.file: a path, off or auto)", path.display());
    Audit::open(&path, config.audit.bytes_max, Arc::clone(metrics))
        .map_err(|error| Failure::fault(doing(), &error))
}

/// What the flags, the environment and the file say. The file is the one that `named` names, or else the environment.
pub fn sources(
    flags: &[(&'static str, &Option<String>)],
    named: Option<&String>,
) -> Result<Sources, Failure> {
    let flags = flags.iter().filter_map(|(key, text)| Some((*key, (*text).clone()?))).collect();
    let mut environment = BTreeMap::new();
    for (name, text) in std::env::vars_os() {
        let Some(name) = name.to_str().filter(|name| name.starts_with("HANDOVER_")) else { continue };
        let not_text =
            |found| Failure::Usage(format!("environment {name}: expected text in UTF-8, found {found:?}"));
        environment.insert(name.to_owned(), text.into_string().map_err(not_text)?);
    }
    let named = named.or(environment.get("HANDOVER_CONFIG").filter(|path| !path.is_empty()));
    let file = named.map(|path| read_file(path)).transpose()?;
    Ok(Sources { flags, environment, file })
}

fn read_file(path: &str) -> Result<File, Failure> {
    let unreadable =
        |error| Failure::Usage(format!("file {path}: expected a configuration file, found: {error}"));
    Ok(File { path: path.to_owned(), text: std::fs::read_to_string(path).map_err(unreadable)? })
}

/// SIGTERM and SIGINT begin the shutdown; a second one does not wait for it.
pub fn stop_on_signal() -> Result<Shutdown, Failure> {
    let listen = |kind| signal(kind).map_err(|error| Failure::fault("listening for signals", &error));
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    let (trigger, shutdown) = Shutdown::new();
    tokio::spawn(async move {
        let mut signalled = async || {
            tokio::select! { _ = terminate.recv() => "SIGTERM", _ = interrupt.recv() => "SIGINT" }
        };
        let signal = signalled().await;
        tracing::info!(signal, "stopping: no new requests, finishing those in flight");
        trigger.begin();
        let signal = signalled().await;
        tracing::warn!(signal, "stopping at once");
        // Nothing is lost: what was answered is durable, and the log is read again at the next start.
        std::process::exit(1);
    });
    Ok(shutdown)
}
