//! When to wake which session. A plain state machine: it says what to look up and what is due, and calls nothing.
//!
//! The store keeps every wake time; memory keeps only those of the near future, so that a million sleeping sessions
//! cost disk, not memory. A wake that was lost, or whose tick came to nothing, is found by the next scan.

use std::collections::BTreeMap;

use handover_kernel::Timestamp;
use handover_store::{DueCursor, DuePage, Slot};

use crate::key::Key;

/// How far ahead a scan looks.
pub const HORIZON_MS: u64 = 10_000;

/// How often the store is scanned.
pub const SCAN_EVERY_MS: u64 = 5_000;

/// How many wake times one scan takes.
pub const SCAN_MAX: usize = 20_000;

/// How soon the next page is looked at, if there is one.
const NEXT_PAGE_MS: u64 = 100;

/// What the store is to be asked for: a page of [`SCAN_MAX`] sessions that are due until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Where the page before ended; none for the first.
    pub after: Option<DueCursor>,
    /// Until when.
    pub until: Timestamp,
}

/// What the store answered.
#[derive(Debug)]
pub struct Found {
    /// The sessions and their wake times.
    pub sessions: Vec<(Key, Timestamp)>,
    /// Where the page ended, if there may be more.
    pub next: Option<DueCursor>,
}

impl From<DuePage> for Found {
    fn from(page: DuePage) -> Found {
        let sessions = page.sessions.into_iter().map(|(key, at)| (Key::from(key), Timestamp(at)));
        Found { sessions: sessions.collect(), next: page.next }
    }
}

/// How much later the other nodes wake a session that its owner should have woken.
pub const STEP_IN_MS: u64 = 2_000;

impl Found {
    /// The same for one of several nodes: what another one owns is left to it, and looked at later.
    pub fn shared(mut self, own: Option<Slot>, live: &[Slot]) -> Found {
        for (key, at) in &mut self.sessions {
            if key.owner(live).is_some_and(|owner| Some(owner) != own) {
                *at = at.plus(STEP_IN_MS);
            }
        }
        self
    }
}

/// When a session is due, and how many came before it: of those with one time the first to come is first. So a crowd is
/// woken in the order in which the store holds it, and what is written together lies together.
type Place = (Timestamp, u64);

/// The wake times of the near future.
#[derive(Debug, Default)]
pub struct Timers {
    by_time: BTreeMap<Place, Key>,
    by_key: BTreeMap<Key, Place>,
    /// How many were ever set.
    count: u64,
    /// Everything that is due until then is here.
    known_until: Timestamp,
    next_scan: Timestamp,
    scanning: bool,
    /// Where the next page of the store begins, if the last look did not come to the horizon.
    page: Option<DueCursor>,
}

impl Timers {
    /// No timers, and a scan to be made at once.
    pub fn new() -> Timers {
        Timers::default()
    }

    /// A session is to be woken then, or not at all. Says whether that is before anything else.
    pub fn set(&mut self, key: &Key, at: Option<Timestamp>) -> bool {
        if let Some(old) = self.by_key.remove(key) {
            self.by_time.remove(&old);
        }
        // What lies behind the horizon is left to the scan that reaches it.
        let Some(at) = at.filter(|at| *at <= self.known_until) else {
            return false;
        };
        let first = self.by_time.first_key_value().is_none_or(|((earliest, _), _)| at < *earliest);
        self.insert(key.clone(), at);
        first
    }

    fn insert(&mut self, key: Key, at: Timestamp) {
        self.count += 1;
        self.by_key.insert(key.clone(), (at, self.count));
        self.by_time.insert((at, self.count), key);
    }

    /// The scan that is to be made now, if one is.
    pub fn scan(&mut self, now: Timestamp) -> Option<Scan> {
        if now < self.next_scan || !self.may_scan() {
            return None;
        }
        self.scanning = true;
        self.next_scan = now.plus(SCAN_EVERY_MS);
        let until = now.plus(HORIZON_MS);
        // From here on new wake times up to there are taken as they come: none falls between scan and memory.
        self.known_until = self.known_until.max(until);
        Some(Scan { after: self.page, until })
    }

    /// One scan at a time, and the next page when half of the one before has been dealt with: memory never holds many more
    /// than one.
    fn may_scan(&self) -> bool {
        !self.scanning && (self.page.is_none() || self.by_time.len() <= SCAN_MAX / 2)
    }

    /// What the scan found, or that it failed.
    pub fn scanned(&mut self, found: Option<Found>, now: Timestamp) {
        self.scanning = false;
        let Some(found) = found else {
            return;
        };
        self.page = found.next;
        if let Some(next) = found.next {
            // There is more. The next page goes on from here, past those that stay due whatever is tried.
            self.known_until = Timestamp(next.at);
            self.next_scan = now.plus(NEXT_PAGE_MS);
        }
        for (key, at) in found.sessions {
            if !self.by_key.contains_key(&key) {
                self.insert(key, at);
            }
        }
    }

    /// The sessions that are due now, at most `max` of them. They are forgotten: what they decide says when they are
    /// to be woken again.
    pub fn due(&mut self, now: Timestamp, max: usize) -> Vec<Key> {
        let mut due = Vec::new();
        while due.len() < max {
            match self.by_time.first_entry() {
                Some(first) if first.key().0 <= now => due.push(first.remove()),
                Some(_) | None => break,
            }
        }
        for key in &due {
            self.by_key.remove(key);
        }
        due
    }

    /// When something is to be done next.
    pub fn next_at(&self) -> Timestamp {
        let scan = self.may_scan().then_some(self.next_scan);
        let first = self.by_time.first_key_value().map(|((at, _), _)| *at);
        scan.into_iter().chain(first).min().unwrap_or(self.next_scan)
    }
}

#[cfg(test)]
mod tests {
    use handover_store::SessionKey;

    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn key(name: impl Into<Box<str>>) -> Key {
        Key::from(SessionKey::new("t", name))
    }

    /// Timers whose first scan found nothing.
    fn scanned() -> Timers {
        let mut timers = Timers::new();
        timers.scan(NOW).unwrap();
        timers.scanned(found([]), NOW);
        timers
    }

    /// A page that holds everything.
    fn found(sessions: impl IntoIterator<Item = (Key, Timestamp)>) -> Option<Found> {
        Some(Found { sessions: sessions.into_iter().collect(), next: None })
    }

    fn names(due: &[Key]) -> Vec<&str> {
        due.iter().map(|key| &*key.session).collect()
    }

    #[test]
    fn each_session_is_woken_by_one_of_several_nodes_and_by_the_others_later() {
        let live = [Slot(0), Slot(3), Slot(4)];
        let sessions = || (0..300).map(|number| (key(format!("s{number}")), NOW));
        let mut woken = std::collections::BTreeMap::new();
        for own in live {
            let found = found(sessions()).unwrap().shared(Some(own), &live);
            for (key, at) in found.sessions {
                assert!(at == NOW || at == NOW.plus(STEP_IN_MS));
                *woken.entry(key).or_insert(0) += u64::from(at == NOW);
            }
        }
        assert!(woken.len() == 300 && woken.values().all(|by| *by == 1), "{woken:?}");
        let of = |nodes: &[Slot]| sessions().map(|(key, _)| key.owner(nodes)).collect::<Vec<_>>();
        let (before, after) = (of(&live), of(&live[..2]));
        assert!(before.iter().zip(&after).all(|(before, after)| before == after || *before == Some(Slot(4))));
        assert!(live.iter().all(|slot| before.iter().filter(|owner| **owner == Some(*slot)).count() > 60));
        let alone = found(sessions()).unwrap().shared(None, &[]);
        assert!(alone.sessions.iter().all(|(_, at)| *at == NOW), "there are no others");
    }

    #[test]
    fn the_first_scan_is_due_at_once_and_the_next_a_while_later() {
        let mut timers = Timers::new();
        assert_eq!(timers.next_at(), Timestamp(0));
        let scan = timers.scan(NOW).unwrap();
        assert_eq!(scan.until, NOW.plus(HORIZON_MS));
        assert_eq!(timers.scan(NOW.plus(SCAN_EVERY_MS)), None, "one scan at a time");
        timers.scanned(found([]), NOW);
        assert_eq!(timers.next_at(), NOW.plus(SCAN_EVERY_MS));
        assert_eq!(timers.scan(NOW.plus(SCAN_EVERY_MS - 1)), None);
        assert!(timers.scan(NOW.plus(SCAN_EVERY_MS)).is_some());
    }

    #[test]
    fn what_is_set_within_the_horizon_is_due_in_order_and_once() {
        let mut timers = scanned();
        timers.set(&key("b"), Some(NOW.plus(20)));
        timers.set(&key("a"), Some(NOW.plus(30)));
        timers.set(&key("c"), Some(NOW.plus(10)));
        assert_eq!(timers.next_at(), NOW.plus(10));
        assert!(timers.due(NOW.plus(9), 10).is_empty());
        assert_eq!(names(&timers.due(NOW.plus(30), 2)), ["c", "b"]);
        assert_eq!(names(&timers.due(NOW.plus(30), 2)), ["a"]);
        assert!(timers.due(NOW.plus(30), 2).is_empty());
        assert!(timers.by_key.is_empty());
    }

    #[test]
    fn a_crowd_with_one_time_is_due_in_the_order_in_which_it_came() {
        let mut timers = scanned();
        timers.set(&key("z"), Some(NOW));
        timers.set(&key("a"), Some(NOW));
        timers.scan(NOW.plus(SCAN_EVERY_MS)).unwrap();
        timers.scanned(found(["y", "a", "b"].map(|name| (key(name), NOW))), NOW);
        assert_eq!(names(&timers.due(NOW, 10)), ["z", "a", "y", "b"]);
    }

    #[test]
    fn a_session_has_one_timer_and_the_last_word_counts() {
        let mut timers = scanned();
        timers.set(&key("a"), Some(NOW.plus(10)));
        timers.set(&key("a"), Some(NOW.plus(50)));
        assert!(timers.due(NOW.plus(49), 10).is_empty());
        assert_eq!(names(&timers.due(NOW.plus(50), 10)), ["a"]);
        timers.set(&key("a"), Some(NOW.plus(60)));
        timers.set(&key("a"), None);
        timers.set(&key("unknown"), None);
        assert!(timers.due(NOW.plus(100), 10).is_empty());
        timers.set(&key("a"), Some(NOW.plus(60)));
        timers.set(&key("a"), Some(NOW.plus(HORIZON_MS + 1)));
        assert!(timers.due(NOW.plus(HORIZON_MS + 1), 10).is_empty(), "the scan that reaches it will find it");
    }

    #[test]
    fn what_lies_behind_the_horizon_is_left_to_the_scan_that_reaches_it() {
        let mut timers = scanned();
        let at = NOW.plus(HORIZON_MS + 1);
        timers.set(&key("far"), Some(at));
        assert!(timers.by_key.is_empty());
        let later = NOW.plus(SCAN_EVERY_MS);
        let scan = timers.scan(later).unwrap();
        assert!(scan.until >= at);
        timers.scanned(found([(key("far"), at)]), later);
        assert_eq!(names(&timers.due(at, 10)), ["far"]);
    }

    #[test]
    fn a_wake_time_that_changes_during_a_scan_is_not_undone_by_it() {
        let mut timers = Timers::new();
        timers.scan(NOW).unwrap();
        timers.set(&key("a"), Some(NOW.plus(500)));
        timers.set(&key("new"), Some(NOW.plus(200)));
        timers.scanned(found([(key("a"), NOW.plus(100))]), NOW);
        assert_eq!(names(&timers.due(NOW.plus(499), 10)), ["new"]);
        assert_eq!(names(&timers.due(NOW.plus(500), 10)), ["a"]);
    }

    #[test]
    fn a_scan_that_failed_is_made_again() {
        let mut timers = Timers::new();
        timers.scan(NOW).unwrap();
        timers.scanned(None, NOW);
        timers.scan(NOW.plus(SCAN_EVERY_MS)).unwrap();
        timers.scanned(found([(key("a"), NOW)]), NOW.plus(SCAN_EVERY_MS));
        assert_eq!(names(&timers.due(NOW.plus(SCAN_EVERY_MS), 10)), ["a"]);
    }

    #[test]
    fn a_wake_that_came_to_nothing_is_found_by_the_next_scan() {
        let mut timers = scanned();
        timers.set(&key("a"), Some(NOW));
        assert_eq!(names(&timers.due(NOW, 10)), ["a"]);
        let later = NOW.plus(SCAN_EVERY_MS);
        timers.scan(later).unwrap();
        timers.scanned(found([(key("a"), NOW)]), later);
        assert_eq!(names(&timers.due(later, 10)), ["a"]);
    }

    /// A page of the crowd, ten of which are due in each millisecond.
    fn page(from: usize, count: usize) -> Option<Found> {
        let at = |index: usize| NOW.plus(index as u64 / 10);
        let sessions = (from..from + count).map(|index| (key(format!("{index:06}")), at(index))).collect();
        let end = from + count - 1;
        let next = (count == SCAN_MAX).then_some(DueCursor { at: at(end).0, place: end as u64 });
        Some(Found { sessions, next })
    }

    #[test]
    fn when_a_scan_finds_more_than_it_takes_the_rest_is_looked_for_soon() {
        let mut timers = Timers::new();
        assert_eq!(timers.scan(NOW).unwrap().after, None);
        timers.scanned(page(0, SCAN_MAX), NOW);
        let last = NOW.plus(SCAN_MAX as u64 / 10 - 1);
        timers.set(&key("known"), Some(last));
        timers.set(&key("not yet"), Some(last.plus(1)));
        assert!(timers.by_key.contains_key(&key("known")) && !timers.by_key.contains_key(&key("not yet")));

        let soon = NOW.plus(NEXT_PAGE_MS);
        assert_eq!(timers.scan(soon), None, "what was read comes first");
        let half = timers.due(last, SCAN_MAX / 2).len();
        assert!(timers.next_at() > NOW.plus(NEXT_PAGE_MS), "nothing is to be done before the next is due");
        let mut woken = half + timers.due(last, usize::MAX).len();
        assert_eq!(woken, SCAN_MAX + 1);
        let after = timers.scan(soon).unwrap().after;
        assert_eq!(after, Some(DueCursor { at: last.0, place: SCAN_MAX as u64 - 1 }));
        timers.scanned(page(SCAN_MAX, 7), soon);
        assert_eq!(timers.scan(soon.plus(NEXT_PAGE_MS)), None, "that was the rest");
        woken += timers.due(last.plus(10), usize::MAX).len();
        assert_eq!(woken, SCAN_MAX + 8);
        assert_eq!(timers.scan(soon.plus(SCAN_EVERY_MS)).unwrap().after, None, "from the beginning again");
    }

    #[test]
    fn those_that_stay_due_whatever_is_tried_do_not_hide_the_others() {
        let mut timers = Timers::new();
        let mut now = NOW.plus(60_000);
        for round in 0..3 {
            // The same crowd is due each time, because its ticks come to nothing.
            assert_eq!(timers.scan(now).unwrap().after, None, "round {round}");
            timers.scanned(page(0, SCAN_MAX), now);
            assert_eq!(timers.due(now, usize::MAX).len(), SCAN_MAX);
            now = now.plus(NEXT_PAGE_MS);
            assert!(timers.scan(now).unwrap().after.is_some(), "round {round}");
            timers.scanned(found([(key("other"), now)]), now);
            assert_eq!(names(&timers.due(now, usize::MAX)), ["other"], "round {round}");
            now = now.plus(SCAN_EVERY_MS);
        }
    }
}
