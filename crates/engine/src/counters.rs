//! What the engine counts for its operator.

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::answer::{Answer, Denied};
use crate::shard::End;

type Label = [(&'static str, &'static str); 1];

/// The numbers of one engine. Each can be changed from any thread.
#[derive(Debug)]
pub struct Counters {
    commands: Family<Label, Counter>,
    sessions_ended: Family<Label, Counter>,
    /// Events that became durable.
    pub events_appended: Counter,
    /// Durable commits.
    pub commits: Counter,
    /// How long each commit took.
    pub commit_seconds: Histogram,
    /// Sessions in memory now.
    pub sessions_in_memory: Gauge,
    /// Subscribers now.
    pub subscribers: Gauge,
    /// Subscribers that were too slow and had to go.
    pub subscribers_cut: Counter,
    /// Bytes of events that are queued for subscribers.
    pub subscriber_bytes: Gauge,
    /// Bytes of events that are stored.
    pub stored_bytes: Gauge,
    /// Ticks that were delivered to sessions.
    pub ticks: Counter,
    /// Calls of the store that failed.
    pub store_faults: Counter,
    /// Appends to a session for which another node was first.
    pub conflicts: Counter,
    /// Appends whose answer was lost, and of which it was found out what became of them.
    pub doubts_settled: Counter,
    /// Nodes that share the store, this one included.
    pub nodes: Gauge,
    /// What other nodes did that is not known here yet.
    pub tail_behind_events: Gauge,
}

impl Counters {
    /// Everything at zero.
    pub fn new() -> Arc<Counters> {
        let counters = Counters {
            commands: Family::default(),
            sessions_ended: Family::default(),
            events_appended: Counter::default(),
            commits: Counter::default(),
            commit_seconds: Histogram::new(exponential_buckets(0.0001, 2.0, 16)),
            sessions_in_memory: Gauge::default(),
            subscribers: Gauge::default(),
            subscribers_cut: Counter::default(),
            subscriber_bytes: Gauge::default(),
            stored_bytes: Gauge::default(),
            ticks: Counter::default(),
            store_faults: Counter::default(),
            conflicts: Counter::default(),
            doubts_settled: Counter::default(),
            nodes: Gauge::default(),
            tail_behind_events: Gauge::default(),
        };
        for outcome in ["accepted", "duplicate", "refused", "fault"] {
            counters.commands.get_or_create(&[("outcome", outcome)]).inc_by(0);
        }
        for end in End::ALL {
            counters.sessions_ended.get_or_create(&[("how", end.name())]).inc_by(0);
        }
        Arc::new(counters)
    }

    /// Show them. The encoder adds `_total` to the name of a counter and `_seconds` for the unit.
    pub fn register(&self, registry: &mut Registry) {
        let took = "How long a durable commit took";
        registry.register_with_unit("commit", took, Unit::Seconds, self.commit_seconds.clone());
        registry.register("commands", "Commands, by outcome", self.commands.clone());
        let ended = "Sessions that ended, by how";
        registry.register("sessions_ended", ended, self.sessions_ended.clone());
        registry.register("events_appended", "Events that were stored durably", self.events_appended.clone());
        registry.register("commits", "Durable commits", self.commits.clone());
        registry.register("sessions_in_memory", "Sessions in memory now", self.sessions_in_memory.clone());
        registry.register("subscribers", "Subscribers now", self.subscribers.clone());
        let cut = "Subscribers that were disconnected because they read too slowly";
        registry.register("subscribers_cut", cut, self.subscribers_cut.clone());
        let queued = "Bytes of events queued for subscribers";
        registry.register("subscriber_bytes", queued, self.subscriber_bytes.clone());
        let stored = "Bytes of stored events";
        registry.register("stored_bytes", stored, self.stored_bytes.clone());
        registry.register("ticks", "Timers of sessions that fired", self.ticks.clone());
        registry.register("store_faults", "Calls of the store that failed", self.store_faults.clone());
        let conflicts = "Appends to a session that lost the race against another node";
        registry.register("conflicts", conflicts, self.conflicts.clone());
        let settled = "Appends whose answer was lost, and whose outcome was found out later";
        registry.register("doubts_settled", settled, self.doubts_settled.clone());
        registry.register("nodes", "Nodes that share the store, this one included", self.nodes.clone());
        let behind = "Events of other nodes that this node has not read yet";
        registry.register("tail_behind_events", behind, self.tail_behind_events.clone());
    }

    /// Count what became of a command.
    pub fn count_answer(&self, answer: &Answer) {
        let outcome = match answer {
            Answer::Accepted(accepted) if accepted.receipt.duplicate => "duplicate",
            Answer::Accepted(_) => "accepted",
            Answer::Denied(Denied::Refused(_)) => "refused",
            Answer::Denied(Denied::Fault(_) | Denied::Unreadable(_) | Denied::Stopping) => "fault",
            Answer::State(_) => return,
        };
        self.commands.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// How many sessions have ended so.
    pub fn ended(&self, end: End) -> u64 {
        self.sessions_ended.get_or_create(&[("how", end.name())]).get()
    }

    /// Count a session that has ended.
    pub fn count_end(&self, end: End) {
        self.sessions_ended.get_or_create(&[("how", end.name())]).inc();
    }
}
