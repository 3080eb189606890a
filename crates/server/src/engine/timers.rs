//! When to wake which session. A plain state machine: it says what to look up and what is due, and calls nothing.
//!
//! The store keeps every wake time; memory keeps only those of the near future, so that a million sleeping sessions
//! cost disk, not memory. A wake that was lost, or whose tick came to nothing, is found by the next scan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use handover_kernel::Timestamp;

use crate::engine::shard::Key;

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

    /// A session is to be woken then, or not at all.
    pub fn set(&mut self, key: &Key, at: Option<Timestamp>) {
        if let Some(old) = self.by_key.remove(key) {
            self.by_time.remove(&(old, Arc::clone(key)));
        }
        // What lies behind the horizon is left to the scan that reaches it.
        if let Some(at) = at.filter(|at| *at <= self.known_until) {
            self.by_key.insert(Arc::clone(key), at);
            self.by_time.insert((at, Arc::clone(key)));
        }
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
                self.by_key.insert(Arc::clone(&key), at);
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
