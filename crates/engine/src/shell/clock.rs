//! The watch over the clock: wakes what is due, lets go of what is idle, deletes what is past its time.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use handover_kernel::Timestamp;
use handover_store::Standing;

use super::parts::Locked;
use super::{Inner, chain};
use crate::clock::{Watch, go_by, machine, now};
use crate::index;
use crate::key::Key;
use crate::locks::lock;
use crate::node;
use crate::timers::{Found, SCAN_MAX};

/// How many wakes may be under way at once, and how many are begun in a millisecond: a crowd that is due at one moment is
/// spread out, so that every commit has room for everybody else.
const WAKES_MAX: usize = 128;
const WAKES_PER_MS: usize = 10;

/// What a late look at the clock may make up for.
const CATCH_UP_MS: usize = 10;

/// How often the engine looks for sessions that nobody needs in memory.
const SWEEP_EVERY: Duration = Duration::from_millis(500);

/// How soon it goes on to count what is stored while there is more to count: a start waits for what is left.
const TALLY_ON_EVERY: Duration = Duration::from_millis(15);

/// How often the store is asked for the time that all nodes go by, if it has one.
const ASK_EVERY: Duration = Duration::from_secs(10);

/// How often it is counted again what is stored, where other nodes delete as well.
const COUNT_EVERY: Duration = Duration::from_secs(60);

/// How often finished sessions past their time are deleted, and how many at a time: appends wait for that, and timers.
const RETENTION_EVERY: Duration = Duration::from_secs(1);
const RETENTION_BATCH: usize = 100;

/// How often it is looked whether the index is to be made again.
const INDEX_EVERY: Duration = Duration::from_secs(5);

/// A step of the time that all nodes go by which is worth a word, in milliseconds.
const STEP_MS: u64 = 1000;

impl Inner {
    /// The watch over the clock: wakes what is due, lets go of what is idle, deletes what is past its time.
    pub(super) fn watch_the_clock(&self) {
        let (mut swept, mut asked, mut counted) = (Instant::now(), Instant::now(), Instant::now());
        let (mut tallied, mut rest) = (Instant::now(), SWEEP_EVERY);
        let mut retained: Option<Instant> = None;
        let mut pace = Pace::new();
        let mut watch = Watch::new(now(), machine());
        while !self.stopping.load(Ordering::Acquire) {
            self.pulse.store(now().0, Ordering::Release);
            self.scan();
            let more = self.wake_due(&mut pace);
            if swept.elapsed() >= SWEEP_EVERY {
                swept = Instant::now();
                self.sweep();
                if let Some((by_ms, apart_ms)) = watch.look(now(), machine()) {
                    tracing::warn!(
                        by_ms,
                        apart_ms,
                        "the machine's clock was set: sessions go on by their own time"
                    );
                }
            }
            if tallied.elapsed() >= rest {
                rest = if self.count_stored() { TALLY_ON_EVERY } else { SWEEP_EVERY };
                tallied = Instant::now();
            }
            if asked.elapsed() >= ASK_EVERY {
                asked = Instant::now();
                // One that does not answer now will later.
                if let Ok(Some(at)) = self.store.time() {
                    let by_ms = go_by(Timestamp(at));
                    if by_ms >= STEP_MS {
                        tracing::warn!(by_ms, "the database's clock went ahead: sessions go on by it");
                        watch = Watch::new(now(), machine());
                    }
                }
            }
            if self.tail.is_some() && counted.elapsed() >= COUNT_EVERY {
                counted = Instant::now();
                if let Ok(stored) = self.store.stored_bytes() {
                    self.stored.recount(stored);
                }
            }
            let mut behind = false;
            if retained.is_none_or(|at| at.elapsed() >= RETENTION_EVERY) {
                behind = self.retain();
                retained = Some(Instant::now()).filter(|_| !behind);
            }
            let next = Duration::from_millis(lock(&self.timers).next_at().since(now()));
            let pause = if more || behind { Duration::from_millis(1) } else { next.min(rest) };
            if !pause.is_zero() {
                self.clock.wait(pause);
            }
        }
    }

    /// The watch over the index, where nodes of an earlier release may be beside this one.
    pub(super) fn watch_the_index(&self) {
        while !self.stopping.load(Ordering::Acquire) {
            let goes_on = || !self.stopping.load(Ordering::Acquire);
            if let Err(fault) = index::refresh_after_others(&*self.store, goes_on)
                && let Some(unsaid) = self.unwritten.now()
            {
                tracing::error!(error = %chain(&fault), unsaid, "the index could not be brought up to date");
            }
            self.index.wait(INDEX_EVERY);
        }
    }

    fn scan(&self) {
        let Some(scan) = lock(&self.timers).scan(now()) else {
            return;
        };
        let found = match self.store.due_after(scan.after, scan.until.0, SCAN_MAX) {
            // Who is there need not be known for sure: a session that two nodes wake is woken once.
            Ok(page) => {
                Some(Found::from(page).shared(self.store.slot(), &self.store.live().unwrap_or_default()))
            }
            Err(fault) => {
                self.counters.store_faults.inc();
                if let Some(unsaid) = self.unread.now() {
                    tracing::error!(error = %chain(&fault), unsaid, "the store did not say who is due");
                }
                None
            }
        };
        lock(&self.timers).scanned(found, now());
    }

    /// Wake what is due, as far as there is room. Says whether there may be more.
    fn wake_due(&self, pace: &mut Pace) -> bool {
        let room =
            pace.room(Instant::now()).min(WAKES_MAX.saturating_sub(self.wakes.load(Ordering::Acquire)));
        let due = lock(&self.timers).due(now(), room);
        pace.left -= due.len();
        let more = due.len() == room;
        for key in due {
            self.counters.ticks.inc();
            self.wakes.fetch_add(1, Ordering::AcqRel);
            node::wake(&mut Locked::new(self), &key);
        }
        more
    }

    /// Count a part of what was appended since it was last counted. Says whether there is more.
    fn count_stored(&self) -> bool {
        self.store.count_stored().unwrap_or_else(|fault| {
            tracing::error!(error = %chain(&fault), "what is stored could not be counted");
            false
        })
    }

    fn sweep(&self) {
        let mut in_memory = 0;
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard.sweep(now());
            in_memory += shard.sessions();
        }
        self.counters.sessions_in_memory.set(in_memory as i64);
        let (subscribers, queued) = {
            let hub = lock(&self.hub);
            (hub.len(), hub.bytes())
        };
        self.counters.subscribers.set(subscribers as i64);
        self.counters.subscriber_bytes.set(signed(queued));
        self.counters.stored_bytes.set(signed(self.stored.total()));
        let Standing { nodes, behind, doubts_settled } = self.store.standing();
        self.counters.nodes.set(signed(nodes));
        self.counters.tail_behind_events.set(signed(behind));
        let known = self.counters.doubts_settled.get();
        self.counters.doubts_settled.inc_by(doubts_settled.saturating_sub(known));
    }

    /// Delete some finished sessions past their time, from memory as well; their ids stay taken. Says whether there may be more.
    fn retain(&self) -> bool {
        let Some(keep) = self.settings.retention_ms else {
            return false;
        };
        let before = now().0.saturating_sub(keep);
        let deleted = match self.store.delete_finished(before, now().0, RETENTION_BATCH) {
            Ok(deleted) => deleted,
            Err(fault) => {
                if let Some(unsaid) = self.unwritten.now() {
                    tracing::error!(error = %chain(&fault), unsaid, "finished sessions could not be deleted");
                }
                return false;
            }
        };
        for gone in &deleted {
            let key = Key::from(gone.key.clone());
            lock(self.shard(&key)).deleted(&key);
            self.stored.take(&gone.key.tenant, &gone.requester, gone.bytes);
        }
        if deleted.len() == RETENTION_BATCH {
            return true;
        }
        if let Some(keep) = self.settings.tombstones_ms
            && let Err(fault) = self.store.forget_tombstones(now().0.saturating_sub(keep))
            && let Some(unsaid) = self.unwritten.now()
        {
            tracing::error!(error = %chain(&fault), unsaid, "tombstones could not be removed");
        }
        false
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// How many wakes may begin now, so that there are never more than [`WAKES_PER_MS`] over a longer time.
struct Pace {
    counted: Instant,
    left: usize,
}

impl Pace {
    fn new() -> Pace {
        Pace { counted: Instant::now(), left: 0 }
    }

    fn room(&mut self, now: Instant) -> usize {
        let passed = now.duration_since(self.counted).as_millis() as usize;
        if passed > 0 {
            self.counted = now;
            self.left = (self.left + passed.saturating_mul(WAKES_PER_MS)).min(CATCH_UP_MS * WAKES_PER_MS);
        }
        self.left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakes_are_spread_out_and_a_late_look_makes_up_for_little() {
        let mut pace = Pace::new();
        let begun = pace.counted;
        let after = |ms| begun + Duration::from_millis(ms);
        assert_eq!(pace.room(begun), 0);
        assert_eq!(pace.room(after(2)), 2 * WAKES_PER_MS);
        pace.left = 1;
        assert_eq!(pace.room(after(2)), 1, "the same moment gives nothing twice");
        assert_eq!(pace.room(after(3)), 1 + WAKES_PER_MS);
        assert_eq!(pace.room(after(1_000)), CATCH_UP_MS * WAKES_PER_MS);
    }
}
