//! The watch over the clock: wakes what is due, lets go of what is idle, deletes what is past its time.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use handover_kernel::Timestamp;
use handover_kernel::command::{Act, Command};

use super::{Inner, chain, lock, now};
use crate::engine::key::Key;
use crate::engine::shard::Ticket;
use crate::engine::timers::SCAN_MAX;

/// How many wakes may be under way at once, so that a crowd of timers leaves room for everybody else.
const WAKES_MAX: usize = 512;

/// How often the engine looks for sessions that nobody needs in memory.
const SWEEP_EVERY: Duration = Duration::from_millis(500);

/// How often finished sessions past their time are deleted, and how many at a time.
const RETENTION_EVERY: Duration = Duration::from_secs(60);
const RETENTION_BATCH: usize = 500;

impl Inner {
    /// The watch over the clock: wakes what is due, lets go of what is idle, deletes what is past its time.
    pub(super) fn watch_the_clock(&self) {
        let mut swept = Instant::now();
        let mut retained: Option<Instant> = None;
        while !self.stopping.load(Ordering::Acquire) {
            self.pulse.store(now().0, Ordering::Release);
            self.scan();
            self.wake_due();
            if swept.elapsed() >= SWEEP_EVERY {
                swept = Instant::now();
                self.sweep();
            }
            if retained.is_none_or(|at| at.elapsed() >= RETENTION_EVERY) {
                retained = Some(Instant::now());
                self.retain();
            }
            let crowded = self.wakes.load(Ordering::Acquire) >= WAKES_MAX;
            let next = Duration::from_millis(lock(&self.timers).next_at().since(now()));
            let pause = if crowded { Duration::from_millis(5) } else { next.min(SWEEP_EVERY) };
            if !pause.is_zero() {
                self.clock.wait(pause);
            }
        }
    }

    fn scan(&self) {
        let Some(scan) = lock(&self.timers).scan(now()) else {
            return;
        };
        let found = match self.store.due(scan.until.0, SCAN_MAX) {
            Ok(rows) => Some(rows.into_iter().map(|(key, at)| (Key::from(key), Timestamp(at))).collect()),
            Err(fault) => {
                self.metrics.store_faults.inc();
                tracing::error!(error = %chain(&fault), "the store did not say who is due");
                None
            }
        };
        lock(&self.timers).scanned(scan, found, now());
    }

    fn wake_due(&self) {
        let room = WAKES_MAX.saturating_sub(self.wakes.load(Ordering::Acquire));
        let due = lock(&self.timers).due(now(), room);
        for key in due {
            self.metrics.ticks.inc();
            self.wakes.fetch_add(1, Ordering::AcqRel);
            let effects = self.put(Ticket::Wake, &key, Command::runtime(Act::Tick));
            self.carry_out(effects);
        }
    }

    fn sweep(&self) {
        let mut in_memory = 0;
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard.sweep(now());
            in_memory += shard.sessions();
        }
        self.metrics.sessions_in_memory.set(in_memory as i64);
        self.metrics.subscribers.set(lock(&self.hub).len() as i64);
    }

    /// Delete finished sessions past their time; their ids stay taken for as long again.
    fn retain(&self) {
        let Some(keep) = self.settings.retention_ms else {
            return;
        };
        let before = now().0.saturating_sub(keep);
        loop {
            match self.store.delete_finished(before, now().0, RETENTION_BATCH) {
                Ok(deleted) if deleted.len() < RETENTION_BATCH => break,
                Ok(_) if self.stopping.load(Ordering::Acquire) => return,
                Ok(_) => {}
                Err(fault) => {
                    tracing::error!(error = %chain(&fault), "finished sessions could not be deleted");
                    return;
                }
            }
        }
        if let Err(fault) = self.store.forget_tombstones(before) {
            tracing::error!(error = %chain(&fault), "tombstones could not be removed");
        }
    }
}
