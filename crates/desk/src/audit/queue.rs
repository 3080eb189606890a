//! What waits to be written to the audit log. Bounded for each source by itself, so that nobody hides what another did: what
//! there is no room for is counted by source and kind, and so is what a source makes too much of.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use super::What;
use crate::bucket::{Bucket, Rate};

/// How many records may wait for the disk, and how many of one source.
const WAITING_MAX: usize = 16_384;
const WAITING_OF_ONE_MAX: usize = 4096;

/// What is written of each kind that anybody can make as much of as they like: so many of a source at once, and then so
/// many a minute. Low, because a log that is turned over loses its oldest lines.
const CHEAP_AT_ONCE: u64 = 300;
const CHEAP_PER_MINUTE: u64 = 60;

/// The same for one address that nobody has authenticated from. All of those together get no more than one agent.
const ADDRESS_AT_ONCE: u64 = 30;
const ADDRESS_PER_MINUTE: u64 = 10;

/// How many agents and how many addresses have bounds of their own; the others of each share some.
const AGENTS_MAX: usize = 1024;
const ADDRESSES_MAX: usize = 64;

/// How often it is told what was left out of a source.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// How often those are looked for who have done nothing for a while.
const FORGET_EVERY: Duration = Duration::from_secs(1);

/// Who makes something happen, as far as bounds go.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// An authenticated agent, by its tenant and its id. Without an id it is the server itself, for the tenant.
    Agent(Box<str>, Box<str>),
    /// Agents beyond those that have bounds of their own.
    OtherAgents,
    /// Somebody unauthenticated at this address, or within its /64.
    Address(IpAddr),
    /// Somebody unauthenticated elsewhere, or nobody knows where.
    OtherAddresses,
}

impl Source {
    /// Somebody unauthenticated at this address. Who has one address of IPv6 has billions: the /64 counts.
    pub fn at(address: Option<IpAddr>) -> Source {
        match address.map(|address| address.to_canonical()) {
            None => Source::OtherAddresses,
            Some(IpAddr::V6(address)) => {
                let [a, b, c, d, ..] = address.segments();
                Source::Address(IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0)))
            }
            Some(address @ IpAddr::V4(_)) => Source::Address(address),
        }
    }

    fn is_agent(&self) -> bool {
        match self {
            Source::Agent(..) | Source::OtherAgents => true,
            Source::Address(_) | Source::OtherAddresses => false,
        }
    }

    /// Whom it shares bounds with if too many have some of their own.
    fn crowd(&self) -> Source {
        if self.is_agent() { Source::OtherAgents } else { Source::OtherAddresses }
    }

    fn rate(&self) -> Option<Rate> {
        if self.is_agent() {
            Rate::per_minute_after(CHEAP_PER_MINUTE, CHEAP_AT_ONCE)
        } else {
            Rate::per_minute_after(ADDRESS_PER_MINUTE, ADDRESS_AT_ONCE)
        }
    }
}

impl fmt::Display for Source {
    /// Where somebody unauthenticated is; nothing of an agent, which has a name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Agent(..) => Ok(()),
            Source::OtherAgents => f.write_str("other agents"),
            Source::Address(address @ IpAddr::V6(_)) => write!(f, "{address}/64"),
            Source::Address(address @ IpAddr::V4(_)) => write!(f, "{address}"),
            Source::OtherAddresses => f.write_str("other addresses"),
        }
    }
}

/// How much was left out of each kind, by source.
pub type LeftOut = Vec<(Source, What, u64)>;

/// What waits.
#[derive(Debug)]
pub struct Queue<R> {
    waiting: Vec<R>,
    sources: BTreeMap<Source, Used>,
    /// What those who are unauthenticated make together.
    nobody: [Bucket; What::ALL.len()],
    /// The most that waits of one source.
    most: usize,
    /// When it is to be told next what was left out, if something was.
    tells_at: Option<Duration>,
    forgotten_at: Duration,
    stopped: bool,
}

#[derive(Debug, Default)]
struct Used {
    kinds: [Kind; What::ALL.len()],
    waiting: usize,
    /// When it may be told what was left out, if something was.
    told_at: Option<Duration>,
    left_out: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Kind {
    bucket: Bucket,
    left_out: u64,
}

impl Used {
    fn is_idle(&self, now: Duration) -> bool {
        let is_told = self.told_at.is_none_or(|at| at + TELL_EVERY <= now);
        self.waiting == 0
            && !self.left_out
            && is_told
            && self.kinds.iter().all(|kind| kind.bucket.is_full(now))
    }

    /// When it is to be told what was left out, if something was.
    fn tells_at(&self) -> Option<Duration> {
        self.left_out.then(|| self.told_at.map_or(Duration::ZERO, |at| at + TELL_EVERY))
    }
}

impl<R> Default for Queue<R> {
    fn default() -> Self {
        Queue {
            waiting: Vec::new(),
            sources: BTreeMap::new(),
            nobody: [Bucket::default(); What::ALL.len()],
            most: 0,
            tells_at: None,
            forgotten_at: Duration::ZERO,
            stopped: false,
        }
    }
}

impl<R> Queue<R> {
    /// One more, or one left out. Whether whoever writes is to be woken.
    pub fn push(&mut self, source: Source, what: What, record: R, now: Duration) -> bool {
        let idle = !self.has_work(now);
        let source = self.with_bounds(source, now);
        let (is_agent, rate) = (source.is_agent(), source.rate().filter(|_| what.is_cheap()));
        let full = self.stopped || self.waiting.len() >= WAITING_MAX;
        let used = self.sources.entry(source).or_default();
        let kind = &mut used.kinds[what as usize];
        let allowed = !full
            && used.waiting < WAITING_OF_ONE_MAX
            && rate.is_none_or(|rate| kind.bucket.take(rate, now).is_ok())
            && (is_agent || self.nobody[what as usize].take(together(), now).is_ok());
        if !allowed {
            kind.left_out += 1;
            used.left_out = true;
            // A flood must not wake the writer each time: only for what is to be told sooner than it knows.
            let sooner = used.tells_at().filter(|at| self.tells_at.is_none_or(|known| *at < known));
            self.tells_at = sooner.or(self.tells_at);
            return sooner.is_some();
        }
        used.waiting += 1;
        self.most = self.most.max(used.waiting);
        let presses = self.waiting.len() + 1 == WAITING_MAX / 2 || used.waiting == WAITING_OF_ONE_MAX / 2;
        self.waiting.push(record);
        idle || presses
    }

    /// The source itself, if it has bounds of its own or there is room for them; otherwise the crowd that it is part of.
    fn with_bounds(&mut self, source: Source, now: Duration) -> Source {
        if self.sources.contains_key(&source) {
            return source;
        }
        let is_agent = source.is_agent();
        let max = if is_agent { AGENTS_MAX } else { ADDRESSES_MAX };
        let has_room = |sources: &BTreeMap<Source, Used>| {
            sources.keys().filter(|source| source.is_agent() == is_agent).count() < max
        };
        if !has_room(&self.sources) && now >= self.forgotten_at + FORGET_EVERY {
            self.forgotten_at = now;
            self.sources.retain(|_, used| !used.is_idle(now));
        }
        if has_room(&self.sources) { source } else { source.crowd() }
    }

    /// Whether there is anything to write now.
    pub fn has_work(&self, now: Duration) -> bool {
        self.stopped || !self.waiting.is_empty() || self.tells_at.is_some_and(|at| at <= now)
    }

    /// When it is to be told what was left out, if something was.
    pub fn tells_at(&self) -> Option<Duration> {
        self.tells_at
    }

    /// Whether it should be written at once.
    pub fn is_pressing(&self) -> bool {
        self.stopped || self.waiting.len() >= WAITING_MAX / 2 || self.most >= WAITING_OF_ONE_MAX / 2
    }

    /// Take no more.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Everything that waits, what was left out of those whose turn it is to be told, and whether that was all.
    pub fn take(&mut self, now: Duration) -> (Vec<R>, LeftOut, bool) {
        let mut left_out = Vec::new();
        for (source, used) in &mut self.sources {
            used.waiting = 0;
            if !used.tells_at().is_some_and(|at| at <= now || self.stopped) {
                continue;
            }
            (used.left_out, used.told_at) = (false, Some(now));
            for what in What::ALL {
                let count = std::mem::take(&mut used.kinds[what as usize].left_out);
                if count > 0 {
                    left_out.push((source.clone(), what, count));
                }
            }
        }
        self.most = 0;
        self.tells_at = self.sources.values().filter_map(Used::tells_at).min();
        (std::mem::take(&mut self.waiting), left_out, self.stopped)
    }
}

/// What is written of each kind for everybody unauthenticated together.
fn together() -> Rate {
    Rate::per_minute_after(CHEAP_PER_MINUTE, CHEAP_AT_ONCE).expect("it is a rate")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    fn agent(name: &str) -> Source {
        Source::Agent("acme".into(), name.into())
    }

    fn address(n: u32) -> Source {
        Source::at(Some(IpAddr::from(n.to_be_bytes())))
    }

    fn flood<R: Copy>(queue: &mut Queue<R>, source: &Source, what: What, count: u64, record: R) {
        for _ in 0..count {
            queue.push(source.clone(), what, record, NOW);
        }
    }

    #[test]
    fn the_place_of_each_kind_is_its_own() {
        for (place, what) in What::ALL.into_iter().enumerate() {
            assert_eq!(what as usize, place);
        }
    }

    #[test]
    fn one_source_fills_its_own_share_and_no_more() {
        let mut queue = Queue::default();
        assert!(queue.push(agent("busy"), What::SessionResolved, 0, NOW), "the first wakes the writer");
        for index in 1..WAITING_OF_ONE_MAX + 5 {
            let wakes = [WAITING_OF_ONE_MAX / 2 - 1, WAITING_OF_ONE_MAX].contains(&index);
            let woken = queue.push(agent("busy"), What::SessionResolved, index, NOW);
            assert_eq!(
                woken, wakes,
                "and so do the one that makes its share half full and the first left out"
            );
        }
        assert!(queue.is_pressing());
        queue.push(agent("other"), What::SessionResolved, usize::MAX, NOW);
        let (waiting, left_out, stopped) = queue.take(NOW);
        let expected: Vec<usize> = (0..WAITING_OF_ONE_MAX).chain([usize::MAX]).collect();
        assert_eq!(waiting, expected);
        assert_eq!((left_out, stopped), (vec![(agent("busy"), What::SessionResolved, 5)], false));
        assert!(!queue.has_work(NOW) && !queue.is_pressing());
    }

    #[test]
    fn all_sources_together_have_a_bound() {
        let mut queue = Queue::default();
        for name in 0..=WAITING_MAX / WAITING_OF_ONE_MAX {
            flood(
                &mut queue,
                &agent(&name.to_string()),
                What::SessionResolved,
                WAITING_OF_ONE_MAX as u64,
                (),
            );
        }
        let (waiting, left_out, _) = queue.take(NOW);
        let left_out: u64 = left_out.iter().map(|(_, _, count)| count).sum();
        assert_eq!((waiting.len(), left_out), (WAITING_MAX, WAITING_OF_ONE_MAX as u64));
    }

    #[test]
    fn a_flood_of_nobodys_requests_hides_no_agents_and_of_one_agent_no_others() {
        let mut queue = Queue::default();
        for n in 0..1000 {
            flood(&mut queue, &address(n), What::AuthenticationFailed, 100, "stranger");
        }
        flood(&mut queue, &agent("loud"), What::Forbidden, 100_000, "loud");
        flood(&mut queue, &agent("quiet"), What::Forbidden, CHEAP_AT_ONCE, "quiet");
        queue.push(agent("loud"), What::Limited, "loud", NOW);
        let (waiting, left_out, _) = queue.take(NOW);
        let of = |who: &str| waiting.iter().filter(|found| **found == who).count() as u64;
        assert_eq!(
            (of("stranger"), of("loud"), of("quiet")),
            (CHEAP_AT_ONCE, CHEAP_AT_ONCE + 1, CHEAP_AT_ONCE)
        );
        let count = |source: &Source| {
            left_out.iter().filter(|(found, ..)| found == source).map(|(_, _, n)| n).sum::<u64>()
        };
        assert_eq!((count(&agent("loud")), count(&agent("quiet"))), (100_000 - CHEAP_AT_ONCE, 0));
        assert_eq!(count(&address(0)), 100 - ADDRESS_AT_ONCE, "each is told by itself");
        let addresses: u64 =
            left_out.iter().filter(|(source, ..)| !source.is_agent()).map(|(_, _, n)| n).sum();
        assert_eq!(addresses, 100_000 - CHEAP_AT_ONCE, "and none is lost");
        assert!(left_out.len() <= ADDRESSES_MAX + 2, "{}", left_out.len());
    }

    #[test]
    fn what_was_left_out_is_told_at_once_and_then_once_a_minute() {
        let mut queue = Queue::default();
        flood(&mut queue, &agent("a"), What::Limited, CHEAP_AT_ONCE + 2, ());
        assert_eq!(queue.take(NOW).1, [(agent("a"), What::Limited, 2)]);
        flood(&mut queue, &agent("a"), What::Limited, 3, ());
        assert!(!queue.has_work(NOW));
        assert_eq!((queue.take(NOW).1, queue.tells_at()), (vec![], Some(TELL_EVERY)));
        assert!(queue.has_work(TELL_EVERY));
        assert_eq!(queue.take(TELL_EVERY).1, [(agent("a"), What::Limited, 3)]);
        assert_eq!(queue.tells_at(), None);
    }

    #[test]
    fn sources_are_bounded_and_who_is_idle_makes_room() {
        let mut queue = Queue::default();
        for n in 0..5000_u32 {
            queue.push(agent(&n.to_string()), What::Limited, (), NOW);
            queue.push(address(n), What::AuthenticationFailed, (), NOW);
        }
        assert!(queue.sources.len() <= AGENTS_MAX + ADDRESSES_MAX + 2, "{}", queue.sources.len());
        queue.take(NOW);
        let later = Duration::from_secs(3600);
        queue.push(agent("new"), What::Limited, (), later);
        queue.take(later);
        queue.push(agent("newer"), What::Limited, (), later * 2);
        assert!(queue.sources.contains_key(&agent("newer")) && queue.sources.len() < AGENTS_MAX);
    }

    #[test]
    fn an_address_is_itself_or_its_64() {
        let shown = |address: &str| Source::at(Some(address.parse().unwrap())).to_string();
        assert_eq!(shown("10.0.0.7"), "10.0.0.7");
        assert_eq!(shown("::ffff:10.0.0.7"), "10.0.0.7");
        assert_eq!(shown("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
        assert_eq!(Source::at(None).to_string(), "other addresses");
    }

    #[test]
    fn what_comes_after_the_stop_is_left_out() {
        let mut queue = Queue::default();
        queue.push(agent("a"), What::PolicyRegistered, 1, NOW);
        queue.stop();
        queue.push(agent("a"), What::PolicyRegistered, 2, NOW);
        assert_eq!(queue.take(NOW), (vec![1], vec![(agent("a"), What::PolicyRegistered, 1)], true));
    }
}
