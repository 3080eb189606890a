//! What the desk counts for its operator.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

type Waiting = [(&'static str, &'static str); 2];

/// The numbers of one desk. Each can be changed from any thread.
#[derive(Debug, Default)]
pub struct Counters {
    limited: Family<[(&'static str, &'static str); 1], Counter>,
    /// Unauthenticated requests.
    pub authentications_failed: Counter,
    /// Requests for what the agent may not see or do.
    pub forbidden: Counter,
    /// Lines that were written to the audit log.
    pub audit_lines: Counter,
    /// What the audit log left out.
    pub audit_left_out: Counter,
    /// Streams and watches that agents have open now.
    pub streams_open: Gauge,
    /// Bytes that are held in memory on behalf of agents now.
    pub memory_held: Gauge,
    sessions_open: Family<Waiting, Gauge>,
    longest_idle: Family<Waiting, Gauge<f64, AtomicU64>>,
    longest_wait: Family<Waiting, Gauge<f64, AtomicU64>>,
    /// Spans that were exported.
    pub spans_told: Counter,
    /// Spans that were refused where they were to be exported to.
    pub spans_dropped: Counter,
    /// Events whose spans are still to be exported.
    pub traces_behind: Gauge,
}

impl Counters {
    /// Everything at zero; `limits` are the names of all limits there are.
    pub fn new(limits: impl IntoIterator<Item = &'static str>) -> Arc<Counters> {
        let counters = Counters::default();
        for limit in limits {
            counters.limited.get_or_create(&[("limit", limit)]).inc_by(0);
        }
        Arc::new(counters)
    }

    /// Show them.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("limited", "Requests that reached a limit, by limit", self.limited.clone());
        let failed = "Unauthenticated requests";
        registry.register("authentications_failed", failed, self.authentications_failed.clone());
        let forbidden = "Requests that were refused because the agent may not see or do this";
        registry.register("forbidden", forbidden, self.forbidden.clone());
        registry.register(
            "audit_lines",
            "Lines that were written to the audit log",
            self.audit_lines.clone(),
        );
        registry.register(
            "audit_left_out",
            "Lines that could not be written to the audit log",
            self.audit_left_out.clone(),
        );
        let open = "Streams and watches that agents have open now";
        registry.register("streams_open", open, self.streams_open.clone());
        let held = "Bytes in memory now for requests, answers and streams of agents";
        registry.register("memory_held_bytes", held, self.memory_held.clone());
        let open = "Open sessions in the whole store, by mode and by whom they wait for";
        registry.register("sessions_open", open, self.sessions_open.clone());
        let idle = "Time since the last event of the open session that has been idle for longest, by mode and by whom it waits for";
        let longest = self.longest_idle.clone();
        registry.register_with_unit("longest_idle", idle, Unit::Seconds, longest);
        let wait = "How long the open session that has waited for longest has waited, by mode and by whom it waits for";
        registry.register_with_unit("longest_wait", wait, Unit::Seconds, self.longest_wait.clone());
        registry.register("spans_exported", "Spans that were exported", self.spans_told.clone());
        let dropped = "Spans that the collector refused";
        registry.register("spans_dropped", dropped, self.spans_dropped.clone());
        let behind = "Events whose spans are still to be exported";
        registry.register("spans_behind_events", behind, self.traces_behind.clone());
    }

    /// How many sessions of a mode wait for somebody, how long nothing has happened in one of them, and how long the first has
    /// waited.
    pub(crate) fn count_open(
        &self,
        mode: &'static str,
        whom: &'static str,
        open: i64,
        idle_seconds: f64,
        waited_seconds: f64,
    ) {
        let label = [("mode", mode), ("waits_for", whom)];
        self.sessions_open.get_or_create(&label).set(open);
        self.longest_idle.get_or_create(&label).set(idle_seconds);
        self.longest_wait.get_or_create(&label).set(waited_seconds);
    }

    /// Count a request that reached a limit.
    pub fn count_limited(&self, limit: &'static str) {
        self.limited.get_or_create(&[("limit", limit)]).inc();
    }
}
