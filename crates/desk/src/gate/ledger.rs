//! What each agent has used of its limits. Split by agent, so that agents do not wait for each other; one that has
//! been idle for a while is forgotten.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;

use crate::bucket::{Bucket, Rate};
use crate::limit::{Kind, Lane};
use handover_engine::locks::lock;

/// Into how many parts the agents are split.
const PARTS: usize = 64;

/// How often a part that is in use forgets who is idle.
const FORGET_EVERY: Duration = Duration::from_secs(10);

/// What every agent has used.
#[derive(Debug)]
pub struct Ledger {
    parts: Vec<Mutex<Part>>,
    /// Agents choose their names: where one ends up must not be theirs to choose.
    hasher: RandomState,
    streams: Gauge,
}

#[derive(Debug, Default)]
struct Part {
    /// By tenant, then by agent: found without making a key.
    tenants: BTreeMap<Box<str>, BTreeMap<Box<str>, Used>>,
    forgotten_at: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct Used {
    starts: Bucket,
    messages: Bucket,
    requests: Bucket,
    streams: u64,
}

impl Used {
    fn is_idle(self, now: Duration) -> bool {
        let full = |bucket: Bucket| bucket.is_full(now);
        self.streams == 0 && [self.starts, self.messages, self.requests].into_iter().all(full)
    }

    fn bucket(&mut self, kind: Kind) -> &mut Bucket {
        match kind {
            Kind::Start => &mut self.starts,
            Kind::Message => &mut self.messages,
            Kind::Request => &mut self.requests,
        }
    }
}

/// A place among an agent's streams, given back when it is dropped.
#[derive(Debug)]
pub struct Permit {
    ledger: Arc<Ledger>,
    tenant: Box<str>,
    agent: Box<str>,
}

impl Ledger {
    /// Nobody has used anything. The gauge follows the streams of everybody together.
    pub fn new(streams: Gauge) -> Arc<Ledger> {
        let parts = (0..PARTS).map(|_| Mutex::default()).collect();
        Arc::new(Ledger { parts, hasher: RandomState::new(), streams })
    }

    /// Take one of this kind, or else say how long to wait.
    pub fn take(
        &self,
        tenant: &str,
        agent: &str,
        kind: Kind,
        rate: Rate,
        now: Duration,
    ) -> Result<Lane, Duration> {
        let mut part = lock(self.part(tenant, agent));
        part.forget_idle(now);
        part.used(tenant, agent, |used| {
            let bucket = used.bucket(kind);
            bucket.take(rate, now)?;
            Ok(if bucket.is_half_spent(rate, now) { Lane::Slow } else { Lane::Fast })
        })
    }

    /// What was taken last was not used after all.
    pub fn give_back(&self, tenant: &str, agent: &str, kind: Kind, rate: Rate) {
        let mut part = lock(self.part(tenant, agent));
        part.used(tenant, agent, |used| used.bucket(kind).give_back(rate));
    }

    /// Take as many of this kind as were used already.
    pub fn charge(&self, tenant: &str, agent: &str, (kind, count): (Kind, u64), rate: Rate, now: Duration) {
        let mut part = lock(self.part(tenant, agent));
        part.used(tenant, agent, |used| used.bucket(kind).charge(rate, count, now));
    }

    /// A place for one more stream, unless the agent has as many as it may.
    pub fn stream(self: &Arc<Self>, tenant: &str, agent: &str, max: u64, now: Duration) -> Option<Permit> {
        let mut part = lock(self.part(tenant, agent));
        part.forget_idle(now);
        let taken = part.used(tenant, agent, |used| {
            let free = used.streams < max;
            used.streams += u64::from(free);
            free
        });
        taken.then(|| {
            self.streams.inc();
            Permit { ledger: Arc::clone(self), tenant: tenant.into(), agent: agent.into() }
        })
    }

    /// How many streams of an agent are open.
    pub fn streams_of(&self, tenant: &str, agent: &str) -> u64 {
        lock(self.part(tenant, agent)).used(tenant, agent, |used| used.streams)
    }

    fn part(&self, tenant: &str, agent: &str) -> &Mutex<Part> {
        let hash = self.hasher.hash_one((tenant, agent));
        &self.parts[(hash % PARTS as u64) as usize]
    }

    #[cfg(test)]
    fn agents(&self) -> usize {
        let known = |part: &Mutex<Part>| lock(part).tenants.values().map(BTreeMap::len).sum::<usize>();
        self.parts.iter().map(known).sum()
    }
}

impl Part {
    fn used<R>(&mut self, tenant: &str, agent: &str, change: impl FnOnce(&mut Used) -> R) -> R {
        if let Some(used) = self.tenants.get_mut(tenant).and_then(|agents| agents.get_mut(agent)) {
            return change(used);
        }
        change(self.tenants.entry(tenant.into()).or_default().entry(agent.into()).or_default())
    }

    fn forget_idle(&mut self, now: Duration) {
        if now < self.forgotten_at + FORGET_EVERY {
            return;
        }
        self.forgotten_at = now;
        self.tenants.retain(|_, agents| {
            agents.retain(|_, used| !used.is_idle(now));
            !agents.is_empty()
        });
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut part = lock(self.ledger.part(&self.tenant, &self.agent));
        part.used(&self.tenant, &self.agent, |used| used.streams = used.streams.saturating_sub(1));
        drop(part);
        self.ledger.streams.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(1);

    fn ledger() -> Arc<Ledger> {
        Ledger::new(Gauge::default())
    }

    fn rate() -> Rate {
        Rate::per_minute(60).unwrap()
    }

    fn drain(ledger: &Ledger, tenant: &str, agent: &str, kind: Kind) -> usize {
        (0..1000).filter(|_| ledger.take(tenant, agent, kind, rate(), START).is_ok()).count()
    }

    #[test]
    fn agents_tenants_and_kinds_are_counted_apart() {
        let ledger = ledger();
        for (tenant, agent) in [("t", "ada"), ("t", "ben"), ("u", "ada"), ("ta", "da")] {
            for kind in [Kind::Start, Kind::Message, Kind::Request] {
                assert_eq!(drain(&ledger, tenant, agent, kind), 10, "{tenant} {agent} {kind:?}");
                assert_eq!(drain(&ledger, tenant, agent, kind), 0, "{tenant} {agent} {kind:?}");
            }
        }
    }

    #[test]
    fn clients_that_poll_as_they_are_told_are_never_refused() {
        let (ledger, rate) = (ledger(), Rate::per_minute(crate::gate::REQUESTS_PER_MINUTE).unwrap());
        // Every second, at the interval that they are told: the tasks of one agent, all at the same moment.
        for second in 0..120 {
            let now = START + Duration::from_secs(second);
            for task in 0..600 {
                let taken = ledger.take("t", "ada", Kind::Request, rate, now);
                assert_eq!(taken, Ok(Lane::Fast), "task {task} in second {second}");
            }
        }
    }

    #[test]
    fn a_stream_gives_its_place_back_when_it_is_dropped() {
        let ledger = ledger();
        let first = ledger.stream("t", "ada", 2, START).unwrap();
        let second = ledger.stream("t", "ada", 2, START).unwrap();
        assert!(ledger.stream("t", "ada", 2, START).is_none());
        let other = ledger.stream("t", "ben", 2, START).unwrap();
        assert_eq!(ledger.streams.get(), 3);
        drop(first);
        let third = ledger.stream("t", "ada", 2, START).unwrap();
        drop((second, third, other));
        assert_eq!(ledger.streams.get(), 0);
    }

    #[test]
    fn who_is_idle_is_forgotten_and_who_is_not_is_kept() {
        let ledger = ledger();
        for index in 0..1000 {
            ledger.take("t", &format!("agent {index}"), Kind::Message, rate(), START).unwrap();
        }
        let held = ledger.stream("t", "listener", 1, START).unwrap();
        assert_eq!(ledger.agents(), 1001);
        let later = START + FORGET_EVERY;
        // Somebody in each part stirs: enough names that none is left out.
        for index in 0..2000 {
            ledger.take("u", &format!("agent {index}"), Kind::Message, rate(), later).unwrap();
        }
        assert_eq!(ledger.agents(), 2001);
        assert!(ledger.stream("t", "listener", 1, later).is_none(), "a listener is not idle");
        drop(held);
        assert!(ledger.stream("t", "listener", 1, later).is_some());
    }

    #[test]
    fn whoever_used_up_its_rate_is_not_helped_by_being_forgotten() {
        let ledger = ledger();
        assert_eq!(drain(&ledger, "t", "ada", Kind::Start), 10);
        // Ten at one a second: it is full again, and idle, no sooner than that.
        for second in 0..9 {
            let now = START + Duration::from_secs(second);
            lock(ledger.part("t", "ada")).forget_idle(now);
            assert_eq!(ledger.agents(), 1, "second {second}");
        }
        lock(ledger.part("t", "ada")).forgotten_at = Duration::ZERO;
        lock(ledger.part("t", "ada")).forget_idle(START + Duration::from_secs(10));
        assert_eq!(ledger.agents(), 0);
    }
}
