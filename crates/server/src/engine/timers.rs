//! When to wake which session. A plain state machine: it says what to look up and what is due, and calls nothing.
//!
//! The store keeps every wake time; memory keeps only those of the near future, so that a million sleeping sessions
//! cost disk, not memory. A wake that was lost, or whose tick came to nothing, is found by the next scan.

use std::collections::{BTreeMap, BTreeSet};

use handover_kernel::Timestamp;

use crate::engine::key::Key;

/// How far ahead a scan looks.
pub const HORIZON_MS: u64 = 10_000;

/// How often the store is scanned.
pub const SCAN_EVERY_MS: u64 = 5_000;

/// How many wake times one scan takes.
pub const SCAN_MAX: usize = 20_000;

/// What the store is to be asked for: the sessions that are due until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Until when.
    pub until: Timestamp,
}

/// The wake times of the near future.
#[derive(Debug, Default)]
pub struct Timers {
    by_time: BTreeSet<(Timestamp, Key)>,
    by_key: BTreeMap<Key, Timestamp>,
    /// Everything that is due until then is here.
    known_until: Timestamp,
    next_scan: Timestamp,
    scanning: bool,
}

impl Timers {
    /// No timers, and a scan to be made at once.
    pub fn new() -> Timers {
        Timers::default()
    }

    /// A session is to be woken then, or not at all. Says whether that is before anything else.
    pub fn set(&mut self, key: &Key, at: Option<Timestamp>) -> bool {
        if let Some(old) = self.by_key.remove(key) {
            self.by_time.remove(&(old, key.clone()));
        }
        // What lies behind the horizon is left to the scan that reaches it.
        let Some(at) = at.filter(|at| *at <= self.known_until) else {
            return false;
        };
        let first = self.by_time.first().is_none_or(|(earliest, _)| at < *earliest);
        self.by_key.insert(key.clone(), at);
        self.by_time.insert((at, key.clone()));
        first
    }

    /// The scan that is to be made now, if one is.
    pub fn scan(&mut self, now: Timestamp) -> Option<Scan> {
        if self.scanning || now < self.next_scan {
            return None;
        }
        self.scanning = true;
        self.next_scan = now.plus(SCAN_EVERY_MS);
        let until = now.plus(HORIZON_MS);
        // From here on new wake times up to there are taken as they come: none falls between scan and memory.
        self.known_until = self.known_until.max(until);
        Some(Scan { until })
    }

    /// What the scan found, or that it failed.
    pub fn scanned(&mut self, scan: Scan, found: Option<Vec<(Key, Timestamp)>>, now: Timestamp) {
        self.scanning = false;
        let Some(found) = found else {
            return;
        };
        if found.len() >= SCAN_MAX {
            // There is more: look again as soon as these are done.
            let last = found.last().map_or(scan.until, |(_, at)| *at);
            self.known_until = last;
            self.next_scan = now.plus(100);
        }
        for (key, at) in found {
            if !self.by_key.contains_key(&key) {
                self.by_key.insert(key.clone(), at);
                self.by_time.insert((at, key));
            }
        }
    }

    /// The sessions that are due now, at most `max` of them. They are forgotten: what they decide says when they are
    /// to be woken again.
    pub fn due(&mut self, now: Timestamp, max: usize) -> Vec<Key> {
        let mut due = Vec::new();
        while due.len() < max {
            match self.by_time.first() {
                Some((at, _)) if *at <= now => {}
                Some(_) | None => break,
            }
            if let Some((_, key)) = self.by_time.pop_first() {
                self.by_key.remove(&key);
                due.push(key);
            }
        }
        due
    }

    /// When something is to be done next.
    pub fn next_at(&self) -> Timestamp {
        let first = self.by_time.first().map_or(self.next_scan, |(at, _)| *at);
        if self.scanning { first } else { first.min(self.next_scan) }
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
        let scan = timers.scan(NOW).unwrap();
        timers.scanned(scan, Some(Vec::new()), NOW);
        timers
    }

    fn names(due: &[Key]) -> Vec<&str> {
        due.iter().map(|key| &*key.session).collect()
    }

    #[test]
    fn the_first_scan_is_due_at_once_and_the_next_a_while_later() {
        let mut timers = Timers::new();
        assert_eq!(timers.next_at(), Timestamp(0));
        let scan = timers.scan(NOW).unwrap();
        assert_eq!(scan.until, NOW.plus(HORIZON_MS));
        assert_eq!(timers.scan(NOW.plus(SCAN_EVERY_MS)), None, "one scan at a time");
        timers.scanned(scan, Some(Vec::new()), NOW);
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
        timers.scanned(scan, Some(vec![(key("far"), at)]), later);
        assert_eq!(names(&timers.due(at, 10)), ["far"]);
    }

    #[test]
    fn a_wake_time_that_changes_during_a_scan_is_not_undone_by_it() {
        let mut timers = Timers::new();
        let scan = timers.scan(NOW).unwrap();
        timers.set(&key("a"), Some(NOW.plus(500)));
        timers.set(&key("new"), Some(NOW.plus(200)));
        timers.scanned(scan, Some(vec![(key("a"), NOW.plus(100))]), NOW);
        assert_eq!(names(&timers.due(NOW.plus(499), 10)), ["new"]);
        assert_eq!(names(&timers.due(NOW.plus(500), 10)), ["a"]);
    }

    #[test]
    fn a_scan_that_failed_is_made_again() {
        let mut timers = Timers::new();
        let scan = timers.scan(NOW).unwrap();
        timers.scanned(scan, None, NOW);
        let again = timers.scan(NOW.plus(SCAN_EVERY_MS)).unwrap();
        timers.scanned(again, Some(vec![(key("a"), NOW)]), NOW.plus(SCAN_EVERY_MS));
        assert_eq!(names(&timers.due(NOW.plus(SCAN_EVERY_MS), 10)), ["a"]);
    }

    #[test]
    fn a_wake_that_came_to_nothing_is_found_by_the_next_scan() {
        let mut timers = scanned();
        timers.set(&key("a"), Some(NOW));
        assert_eq!(names(&timers.due(NOW, 10)), ["a"]);
        let later = NOW.plus(SCAN_EVERY_MS);
        let scan = timers.scan(later).unwrap();
        timers.scanned(scan, Some(vec![(key("a"), NOW)]), later);
        assert_eq!(names(&timers.due(later, 10)), ["a"]);
    }

    #[test]
    fn when_a_scan_finds_more_than_it_takes_the_rest_is_looked_for_soon() {
        let mut timers = Timers::new();
        let scan = timers.scan(NOW).unwrap();
        let crowd = |from: usize, count: usize| -> Vec<(Key, Timestamp)> {
            (from..from + count)
                .map(|index| (key(format!("{index:06}")), NOW.plus(index as u64 / 10)))
                .collect()
        };
        timers.scanned(scan, Some(crowd(0, SCAN_MAX)), NOW);
        let last = NOW.plus(SCAN_MAX as u64 / 10 - 1);
        timers.set(&key("known"), Some(last));
        timers.set(&key("not yet"), Some(last.plus(1)));
        assert!(timers.by_key.contains_key(&key("known")) && !timers.by_key.contains_key(&key("not yet")));

        let mut woken = timers.due(last, usize::MAX).len();
        assert_eq!(woken, SCAN_MAX + 1);
        let soon = NOW.plus(100);
        let scan = timers.scan(soon).unwrap();
        timers.scanned(scan, Some(crowd(SCAN_MAX, 7)), soon);
        assert_eq!(timers.scan(soon.plus(100)), None, "that was the rest");
        woken += timers.due(last.plus(10), usize::MAX).len();
        assert_eq!(woken, SCAN_MAX + 8);
    }
}
