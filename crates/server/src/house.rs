//! The one place where a server is wired together, for `serve`, `mcp`, tests and benchmarks alike: a desk, and the faces in
//! front of it.

use std::sync::Arc;
use std::time::Duration;

use handover_desk::checks;
use handover_desk::directory::listed;
use handover_desk::gate::{self, Rates};
use handover_desk::identity::Identity;
use handover_desk::memory;
use handover_desk::open::{EVENTS, EngineSettings, Failed, INDEX_VERSION, Limits, ShardSettings, postgres};
use handover_desk::shutdown::Shutdown;
use handover_desk::wait;
use handover_desk::{Data, Desk};

use crate::config::{self, Config};
use crate::face::console::{self, Console};
use crate::face::grid::{self, Grid};
use crate::face::macp::Macp;
use crate::face::mcp::{self, Mcp};
use crate::http::{Checks, Probe, Routes};
use crate::telemetry::Metrics;

/// A server, but for its listeners.
#[derive(Clone)]
pub struct House {
    /// What every face stands on.
    pub desk: Desk,
    /// The MACP face.
    pub macp: Macp,
    /// The MCP face.
    pub mcp: Mcp,
    /// The Grid face.
    pub grid: Grid,
    /// The console.
    pub console: Console,
    /// What the operator can count.
    pub metrics: Arc<Metrics>,
    /// What must work for the server to be ready. Whoever asks shares what was found.
    pub probes: Vec<Probe>,
}

impl House {
    /// What the faces serve over HTTP.
    pub fn routes(&self) -> Routes {
        let all = mcp::http::router(self.mcp.clone())
            .merge(grid::http::router(self.grid.clone()))
            .merge(console::router(self.console.clone()));
        mcp::http::often(&self.mcp, all.into())
    }

    /// Open the data and start everything.
    pub fn open(
        data: Data,
        config: &Config,
        identity: Identity,
        shutdown: Shutdown,
    ) -> Result<House, Failed> {
        let desk = desk_settings(config, &identity);
        let (mcp, grid) = (mcp::Settings::new(config), grid::Settings::new(config));
        let house = House::with(data, desk, mcp, grid, identity, shutdown)?;
        Ok(house.with_console(console::Settings::new(config)))
    }

    /// The same with settings that no configuration has.
    pub fn with(
        data: Data,
        desk: handover_desk::Settings,
        mcp: mcp::Settings,
        grid: grid::Settings,
        identity: Identity,
        shutdown: Shutdown,
    ) -> Result<House, Failed> {
        let desk = handover_desk::open(data, desk, identity, shutdown)?;
        let metrics = Metrics::new(|registry| desk.register_metrics(registry));
        let macp = Macp::new(desk.clone(), metrics.unread.clone(), metrics.calls());
        let mcp = Mcp::new(desk.clone(), mcp, metrics.unread.clone());
        let grid = Grid::new(desk.clone(), grid, metrics.unread.clone());
        let settings = console::Settings::new(&Config::default());
        let probes = probes(&desk);
        let console = Console::new(desk.clone(), settings, &metrics, Checks::new(probes.clone()));
        Ok(House { desk, macp, mcp, grid, console, metrics, probes })
    }

    /// The same with a console that behaves so.
    pub fn with_console(mut self, settings: console::Settings) -> House {
        let checks = Checks::new(self.probes.clone());
        self.console = Console::new(self.desk.clone(), settings, &self.metrics, checks);
        self
    }
}

/// Whether the store can be written to, and the engine works.
fn probes(desk: &Desk) -> Vec<Probe> {
    let (store, about, engine) = (desk.clone(), desk.clone(), desk.clone());
    let store = Probe::new("store", move || store.check_store()).about(move || about.about_store());
    vec![store, Probe::new("engine", move || engine.check_engine())]
}

/// Where the configuration has everything kept, or else what was expected.
pub fn data(config: &Config) -> Result<Data, String> {
    Ok(match database(config)? {
        Some(options) => Data::Database(Box::new(options)),
        None => Data::Directory(config.data.clone()),
    })
}

/// The database of the configuration, if it has one, or else what was expected.
pub fn database(config: &Config) -> Result<Option<postgres::Options>, String> {
    let config::Store { url, password_file, ca, schema, node, migrate, .. } = &config.store;
    let Some(url) = url.secret() else { return Ok(None) };
    let password = password_file.as_ref().map(|path| {
        let unread = |error| {
            format!("store.password_file: expected a file to read, found {}: {error}", path.display())
        };
        std::fs::read_to_string(path)
            .map_err(unread)
            .map(|text| text.trim_end_matches(['\r', '\n']).to_owned())
    });
    let password = password.transpose()?;
    let database = postgres::Database::read(url, password.as_deref(), ca.as_deref());
    let database = database.map_err(|what| format!("store: {what}"))?;
    let node = match node.as_str() {
        "auto" => format!("{}:{}", machine_name(), config.http.port()),
        named => named.to_owned(),
    };
    Ok(Some(postgres::Options {
        schema: schema.clone(),
        node,
        lease: Duration::from_secs(config.store.lease_seconds),
        patience: Duration::from_secs(config.store.patience_seconds),
        migrate: *migrate,
        says: postgres::Says {
            reads: EVENTS,
            writes: EVENTS,
            settings: config.limits.entries().into_iter().chain(config.retention.entries()).collect(),
            finished_kept_ms: days(config.retention.finished_days),
            tombstones_kept_ms: days(config.retention.tombstone_days),
            index: Some(INDEX_VERSION),
        },
        ..postgres::Options::new(database)
    }))
}

fn machine_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// So many days; none for ever.
fn days(count: u64) -> Option<u64> {
    (count > 0).then(|| count.saturating_mul(24 * 60 * 60 * 1000))
}

/// What the configuration tells the desk and what is beneath it.
pub fn desk_settings(config: &Config, identity: &Identity) -> handover_desk::Settings {
    let Config { engine, limits, retention, .. } = config;
    let shards = engine.shards.max(1);
    handover_desk::Settings {
        engine: EngineSettings {
            shards,
            shard: ShardSettings {
                queue_max: engine.queue_max,
                batch_events_max: engine.batch_events_max,
                sessions_in_memory_max: engine.sessions_in_memory_max.div_ceil(shards),
                sessions_bytes_max: engine.sessions_in_memory_bytes_max.div_ceil(shards),
                idle_ms: engine.idle_seconds.saturating_mul(1000),
                ..ShardSettings::default()
            },
            limits: Limits {
                payload_bytes_max: limits.payload_bytes_max,
                participants_max: limits.participants_max,
                ttl_ms_max: limits.ttl_hours_max * 60 * 60 * 1000,
                steers_pending_max: limits.steers_pending_max,
                questions_open_max: limits.questions_open_max,
                messages_per_task_max: limits.messages_per_task_max,
                log_events_max: limits.log_events_max,
                log_bytes_max: limits.log_bytes_max,
                ..Limits::default()
            },
            sessions_open_per_agent_max: limits.sessions_open_per_agent_max as u64,
            subscriber_queue_max: engine.subscriber_queue_max,
            retention_ms: days(retention.finished_days),
            tombstones_ms: days(retention.tombstone_days),
            poll_ms: config.store.poll_ms,
            behind_max: config.store.behind_max,
            ..EngineSettings::default()
        },
        gate: gate_settings(limits, identity),
        access: config.access.rules.clone(),
        approvals: config.approvals.rules.clone(),
        checks: checks::Settings {
            threads: limits
                .check_threads
                .map_or(checks::Settings::default().threads, |threads| threads as usize),
            queue_max: limits.checks_max,
            wait: Duration::from_millis(limits.check_wait_ms),
            steps_max: limits.check_steps_max,
        },
        names: listed::Bounds {
            per_agent: limits.listed_names_per_agent_max,
            per_tenant: limits.listed_names_per_tenant_max,
        },
        waits: wait::Settings {
            plain: Duration::from_secs(config.mcp.wait_seconds),
            with_progress: Duration::from_secs(config.mcp.wait_with_progress_seconds),
            for_answer: Duration::from_secs(config.mcp.wait_for_answer_seconds),
        },
        audit: config.audit_path().map(|path| (path, config.audit.bytes_max)),
    }
}

/// What the configuration lets each agent use.
pub fn gate_settings(limits: &config::Limits, identity: &Identity) -> gate::Settings {
    let rates = Rates {
        starts_per_minute: limits.starts_per_minute,
        messages_per_minute: limits.messages_per_minute,
        requests_per_minute: limits.requests_per_minute,
        stored_per_agent: limits.stored_per_agent_bytes,
        stored_per_tenant: limits.stored_per_tenant_bytes,
    };
    // One request of the largest size must fit, several times over: as it comes, as it is decided, as it is stored.
    let least = 8 * limits.payload_bytes_max as u64;
    let memory = memory::Settings {
        per_agent: limits.memory_per_agent_bytes.max(least),
        per_tenant: limits.memory_per_tenant_bytes.max(least),
        server: limits.memory_bytes.max(least),
    };
    gate::Settings::new(rates, limits.streams_per_agent_max as u64, memory, identity)
}
