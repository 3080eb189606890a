//! A store that counts, fails and waits on demand, in front of one that works.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use handover_store::{
    Append, Change, Cursor, Deleted, DueCursor, DuePage, Fault, Feed, FeedItem, Filter, InboxPage, IndexRow,
    MemoryStore, News, OpenCount, Order, Outcome, Page, Place, Record, SessionKey, Slot, Snapshot, Space,
    Store, StoredBytes, StoredEvent, Tombstone, Wake,
};

/// How an append fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failing {
    /// Nothing is kept.
    Refuse,
    /// Everything is kept, and the writer hears of a fault.
    LoseAnswer,
}

#[derive(Default)]
struct Plan {
    appends: VecDeque<Failing>,
    record_writes: VecDeque<Failing>,
    reads: u64,
    blind: bool,
    deaf: bool,
    held: bool,
    /// Commits that may pass all the same.
    passes: u64,
}

/// The store.
pub struct Faulty {
    inner: Arc<dyn Store>,
    plan: Mutex<Plan>,
    released: Condvar,
    /// Commits that were asked for.
    pub commits: AtomicU64,
    /// Events that were in them.
    pub events: AtomicU64,
    /// Index rows that were in them.
    pub rows: AtomicU64,
    /// Events that were read from logs.
    pub events_read: AtomicU64,
    /// Faults that there were.
    pub faults: AtomicU64,
    /// Items that somebody else was first with.
    pub conflicts: AtomicU64,
    /// How often it was asked who is due.
    pub looks: AtomicU64,
    /// Records that were written or removed, and pages of them that were read.
    pub record_writes: AtomicU64,
    pub record_reads: AtomicU64,
}

impl Faulty {
    pub fn over(inner: Arc<dyn Store>) -> Arc<Faulty> {
        Arc::new(Faulty {
            inner,
            plan: Mutex::default(),
            released: Condvar::new(),
            commits: AtomicU64::new(0),
            events: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            events_read: AtomicU64::new(0),
            faults: AtomicU64::new(0),
            conflicts: AtomicU64::new(0),
            looks: AtomicU64::new(0),
            record_writes: AtomicU64::new(0),
            record_reads: AtomicU64::new(0),
        })
    }

    pub fn in_memory() -> Arc<Faulty> {
        Faulty::over(Arc::new(MemoryStore::new()))
    }

    /// The next commit fails so, once those that were to fail before it have.
    pub fn fail_append(&self, how: Failing) {
        self.plan().appends.push_back(how);
    }

    /// The next change of a record fails so, once those that were to fail before it have.
    pub fn fail_record(&self, how: Failing) {
        self.plan().record_writes.push_back(how);
    }

    /// The next reads of a log fail.
    pub fn fail_reads(&self, count: u64) {
        self.plan().reads = count;
    }

    /// From now on it does not say who is due.
    pub fn hide_who_is_due(&self) {
        self.plan().blind = true;
    }

    /// From now on it does not say what others did, or it does again.
    pub fn deafen(&self, deaf: bool) {
        self.plan().deaf = deaf;
    }

    /// Commits wait from now on.
    pub fn hold(&self) {
        self.plan().held = true;
    }

    /// They need not wait any more.
    pub fn release(&self) {
        self.plan().held = false;
        self.released.notify_all();
    }

    /// One of them need not.
    pub fn release_one(&self) {
        self.plan().passes += 1;
        self.released.notify_all();
    }

    pub fn count(&self, counter: &AtomicU64) -> u64 {
        counter.load(Ordering::SeqCst)
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap()
    }

    fn fault(&self) -> Fault {
        self.faults.fetch_add(1, Ordering::SeqCst);
        Fault::Unavailable { doing: "being tested", source: "on demand".into() }
    }

    fn change_record(&self, change: impl FnOnce() -> Result<bool, Fault>) -> Result<bool, Fault> {
        self.record_writes.fetch_add(1, Ordering::SeqCst);
        let failing = self.plan().record_writes.pop_front();
        if failing == Some(Failing::Refuse) {
            return Err(self.fault());
        }
        let changed = change()?;
        if failing == Some(Failing::LoseAnswer) { Err(self.fault()) } else { Ok(changed) }
    }
}

impl Store for Faulty {
    fn append(&self, batch: &[Append]) -> Result<Vec<Outcome>, Fault> {
        self.commits.fetch_add(1, Ordering::SeqCst);
        let plan = self.plan();
        let mut plan = self.released.wait_while(plan, |plan| plan.held && plan.passes == 0).unwrap();
        plan.passes = plan.passes.saturating_sub(1);
        let failing = plan.appends.pop_front();
        drop(plan);
        if failing == Some(Failing::Refuse) {
            return Err(self.fault());
        }
        let outcomes = self.inner.append(batch)?;
        self.rows.fetch_add(batch.iter().flat_map(|item| &item.row).count() as u64, Ordering::SeqCst);
        for (item, outcome) in batch.iter().zip(&outcomes) {
            match outcome {
                Outcome::Appended { .. } => self.events.fetch_add(item.events.len() as u64, Ordering::SeqCst),
                Outcome::Conflict { .. } | Outcome::Tombstone { .. } => {
                    self.conflicts.fetch_add(1, Ordering::SeqCst)
                }
            };
        }
        if failing == Some(Failing::LoseAnswer) { Err(self.fault()) } else { Ok(outcomes) }
    }

    fn read(&self, key: &SessionKey, after: u64, max: usize) -> Result<Vec<StoredEvent>, Fault> {
        let mut plan = self.plan();
        if plan.reads > 0 {
            plan.reads -= 1;
            return Err(self.fault());
        }
        drop(plan);
        let events = self.inner.read(key, after, max)?;
        self.events_read.fetch_add(events.len() as u64, Ordering::SeqCst);
        Ok(events)
    }

    fn head(&self, key: &SessionKey) -> Result<Option<u64>, Fault> {
        self.inner.head(key)
    }

    fn snapshot(&self, key: &SessionKey) -> Result<Option<Snapshot>, Fault> {
        self.inner.snapshot(key)
    }

    fn feed(&self, feed: &Feed, after: &Place, max: usize) -> Result<Vec<FeedItem>, Fault> {
        self.inner.feed(feed, after, max)
    }

    fn last_place(&self) -> Result<Place, Fault> {
        self.inner.last_place()
    }

    fn slot(&self) -> Option<Slot> {
        self.inner.slot()
    }

    fn news(&self, after: &Place, max: usize) -> Result<Vec<News>, Fault> {
        if self.plan().deaf {
            return Err(self.fault());
        }
        self.inner.news(after, max)
    }

    fn settle(&self) -> Result<(), Fault> {
        self.inner.settle()
    }

    fn list(&self, filter: &Filter, order: Order, after: Option<Cursor>, max: usize) -> Result<Page, Fault> {
        self.inner.list(filter, order, after, max)
    }

    fn inbox(
        &self,
        tenant: &str,
        agent: &str,
        kinds: u32,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<InboxPage, Fault> {
        self.inner.inbox(tenant, agent, kinds, after, max)
    }

    fn row(&self, key: &SessionKey) -> Result<Option<IndexRow>, Fault> {
        self.inner.row(key)
    }

    fn due_after(&self, after: Option<DueCursor>, until: u64, max: usize) -> Result<DuePage, Fault> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        if self.plan().blind {
            return Err(self.fault());
        }
        self.inner.due_after(after, until, max)
    }

    fn open_counts(&self) -> Result<Vec<OpenCount>, Fault> {
        self.inner.open_counts()
    }

    fn change_records(&self, changes: &[Change]) -> Result<bool, Fault> {
        self.change_record(|| self.inner.change_records(changes))
    }

    fn record(&self, space: &str, tenant: &str, key: &str) -> Result<Option<Vec<u8>>, Fault> {
        self.inner.record(space, tenant, key)
    }

    fn records(
        &self,
        space: &str,
        tenant: &str,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<Record>, Fault> {
        self.record_reads.fetch_add(1, Ordering::SeqCst);
        self.inner.records(space, tenant, after, max)
    }

    fn stored_bytes(&self) -> Result<Vec<StoredBytes>, Fault> {
        self.inner.stored_bytes()
    }

    fn count_stored(&self) -> Result<bool, Fault> {
        self.inner.count_stored()
    }

    fn delete_finished(&self, finished_before: u64, now: u64, max: usize) -> Result<Vec<Deleted>, Fault> {
        self.inner.delete_finished(finished_before, now, max)
    }

    fn tombstone(&self, key: &SessionKey) -> Result<Option<u64>, Fault> {
        self.inner.tombstone(key)
    }

    fn spaces(&self) -> Result<Vec<Space>, Fault> {
        self.inner.spaces()
    }

    fn tombstones(&self, after: Option<&Tombstone>, max: usize) -> Result<Vec<Tombstone>, Fault> {
        self.inner.tombstones(after, max)
    }

    fn put_tombstones(&self, tombstones: &[Tombstone]) -> Result<(), Fault> {
        self.inner.put_tombstones(tombstones)
    }

    fn forget_tombstones(&self, deleted_before: u64) -> Result<u64, Fault> {
        self.inner.forget_tombstones(deleted_before)
    }

    fn sessions(
        &self,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<(Vec<SessionKey>, Option<Cursor>), Fault> {
        self.inner.sessions(after, max)
    }

    fn unfinished(
        &self,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<(Vec<SessionKey>, Option<Cursor>), Fault> {
        self.inner.unfinished(after, max)
    }

    fn clear_index(&self) -> Result<(), Fault> {
        self.inner.clear_index()
    }

    fn restore_index(&self, rows: &[(SessionKey, IndexRow, Wake)]) -> Result<(), Fault> {
        self.inner.restore_index(rows)
    }

    fn index_version(&self) -> Result<u32, Fault> {
        self.inner.index_version()
    }

    fn set_index_version(&self, version: u32) -> Result<bool, Fault> {
        self.inner.set_index_version(version)
    }

    fn index_is_older_elsewhere(&self, version: u32) -> Result<bool, Fault> {
        self.inner.index_is_older_elsewhere(version)
    }

    fn probe(&self) -> Result<(), Fault> {
        self.inner.probe()
    }
}
