//! How the last hour was: a few numbers of the metrics every few seconds, in a ring of a fixed size, for people who want to see
//! a line and have no Prometheus at hand.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use handover_desk::clock::now;
use handover_kernel::Timestamp;

use super::Metrics;

/// How often the numbers are looked at, and how many looks make an hour.
pub const EVERY: Duration = Duration::from_secs(5);
const KEPT: usize = 720;

/// The numbers at one moment. Those that only grow are counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// When.
    pub at: Timestamp,
    /// Commands that were accepted.
    pub accepted: f64,
    /// Commands that were refused, and requests that reached a limit.
    pub refused: f64,
    /// Commits, and how many seconds they took together.
    pub commits: (f64, f64),
    /// Sessions in memory.
    pub sessions: f64,
    /// Streams that are open.
    pub streams: f64,
    /// Bytes held in memory on behalf of agents.
    pub memory: f64,
}

impl Sample {
    fn of(metrics: &Metrics) -> Sample {
        let text = metrics.to_text();
        let sum = |name: &str| -> f64 {
            let lines = text.lines().filter_map(|line| line.strip_prefix(name));
            // A label or the number follows: another name may begin in the same way.
            let own = lines.filter(|rest| rest.starts_with(['{', ' ']));
            own.filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok()).sum()
        };
        Sample {
            at: now(),
            accepted: sum("handover_commands_total{outcome=\"accepted\"}"),
            refused: sum("handover_commands_total{outcome=\"refused\"}") + sum("handover_limited_total"),
            commits: (sum("handover_commit_seconds_count"), sum("handover_commit_seconds_sum")),
            sessions: sum("handover_sessions_in_memory"),
            streams: sum("handover_streams_open"),
            memory: sum("handover_memory_held_bytes"),
        }
    }
}

/// The last hour. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct Past {
    metrics: Arc<Metrics>,
    samples: Arc<Mutex<VecDeque<Sample>>>,
}

impl Past {
    /// Nothing but now.
    pub fn new(metrics: Arc<Metrics>) -> Past {
        let past = Past { metrics, samples: Arc::default() };
        past.look();
        past
    }

    /// Look at the numbers.
    pub fn look(&self) {
        let sample = Sample::of(&self.metrics);
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() == KEPT {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// Look at them again and again, for as long as the process lives.
    pub async fn watch(self) {
        let mut every = tokio::time::interval(EVERY);
        loop {
            every.tick().await;
            self.look();
        }
    }

    /// The samples, the oldest first, with one of this moment at the end.
    pub fn samples(&self) -> Vec<Sample> {
        let mut samples: Vec<Sample> =
            self.samples.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        samples.push(Sample::of(&self.metrics));
        samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_past_is_read_from_the_metrics_and_stays_small() {
        let engine = handover_engine::Counters::new();
        let desk = handover_desk::counters::Counters::new(["messages", "requests"]);
        let metrics = Metrics::new(|registry| {
            engine.register(registry);
            desk.register(registry);
        });
        let past = Past::new(metrics);
        engine.commit_seconds.observe(0.25);
        engine.commit_seconds.observe(0.5);
        engine.sessions_in_memory.set(7);
        desk.streams_open.set(3);
        desk.count_limited("messages");
        desk.count_limited("requests");
        let samples = past.samples();
        assert_eq!(samples.len(), 2);
        let Sample { commits, sessions, streams, refused, accepted, .. } = samples[1];
        assert_eq!((commits, sessions, streams, refused, accepted), ((2.0, 0.75), 7.0, 3.0, 2.0, 0.0));
        for _ in 0..KEPT + 5 {
            past.look();
        }
        assert_eq!(past.samples().len(), KEPT + 1);
    }
}
