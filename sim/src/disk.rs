//! A store that refuses, tears, loses its answers and its unsynced writes.
//!
//! What survives is a list of the items that were kept, in order; a power loss begins a new store from that list.

use handover_engine::log::{Log, load, revive};
use handover_engine::snapshot;
use handover_store::{Append, Fault, MemoryStore, Outcome, Store};

use crate::plant::Plant;
use crate::rng::Rng;

/// How often each fault happens, out of a thousand commits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Odds {
    /// Nothing is kept and the writer hears of a fault.
    pub refuse: u64,
    /// Everything is kept and the writer hears of a fault.
    pub lose_answer: u64,
    /// Some items are kept, some are not, and the writer hears of a fault.
    pub tear: u64,
    /// The writer hears of a fault, and everything is kept all the same, but only just before the next commit.
    pub late: u64,
}

/// How many faults of each kind there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Commits of which nothing was kept.
    pub refused: u64,
    /// Commits that were kept without the writer knowing.
    pub answers_lost: u64,
    /// Commits of which a part was kept.
    pub torn: u64,
    /// Commits that were kept after the writer had heard of a fault.
    pub late: u64,
    /// Engines that lost their memory.
    pub crashes: u64,
    /// Items that another writer was first with.
    pub conflicts: u64,
    /// Subscribers that did not keep up.
    pub cuts: u64,
    /// Reads that failed.
    pub reads_failed: u64,
}

impl Faults {
    /// All of them together.
    pub fn add(&mut self, other: &Faults) {
        self.refused += other.refused;
        self.answers_lost += other.answers_lost;
        self.torn += other.torn;
        self.late += other.late;
        self.crashes += other.crashes;
        self.conflicts += other.conflicts;
        self.cuts += other.cuts;
        self.reads_failed += other.reads_failed;
    }
}

/// The disk.
pub struct Disk {
    store: MemoryStore,
    /// What a power loss leaves.
    synced: Vec<Append>,
    /// What it takes.
    unsynced: Vec<Append>,
    /// What is in doubt: the next commit comes after it.
    late: Vec<Append>,
    plant: Option<Plant>,
    /// How often it fails.
    pub odds: Odds,
    /// How often it failed.
    pub faults: Faults,
}

fn fault(what: &'static str) -> Fault {
    Fault::Unavailable { doing: what, source: "simulated".into() }
}

impl Disk {
    /// An empty disk.
    pub fn new(plant: Option<Plant>, odds: Odds) -> Disk {
        Disk {
            store: MemoryStore::default(),
            synced: Vec::new(),
            unsynced: Vec::new(),
            late: Vec::new(),
            plant,
            odds,
            faults: Faults::default(),
        }
    }

    /// What is on it, as a reader sees it.
    pub fn store(&self) -> &MemoryStore {
        &self.store
    }

    /// One commit.
    pub fn append(&mut self, batch: &[Append], rng: &mut Rng) -> Result<Vec<Outcome>, Fault> {
        if !self.late.is_empty() {
            self.faults.late += 1;
            let late = std::mem::take(&mut self.late);
            self.keep(&late)?;
        }
        if rng.chance(self.odds.late) {
            self.late = batch.to_vec();
            return Err(fault("writing"));
        }
        if rng.chance(self.odds.refuse) {
            self.faults.refused += 1;
            return Err(fault("writing"));
        }
        if rng.chance(self.odds.tear) {
            self.faults.torn += 1;
            for item in batch {
                if rng.chance(500) {
                    self.keep(std::slice::from_ref(item))?;
                }
            }
            return Err(fault("writing"));
        }
        let outcomes = self.keep(batch)?;
        if rng.chance(self.odds.lose_answer) {
            self.faults.answers_lost += 1;
            return Err(fault("syncing"));
        }
        Ok(outcomes)
    }

    fn keep(&mut self, batch: &[Append]) -> Result<Vec<Outcome>, Fault> {
        let mut items = batch.to_vec();
        for item in &mut items {
            if self.plant == Some(Plant::DropRows) && item.expected > 2 {
                item.row = None;
            }
            if self.plant == Some(Plant::StaleSnapshot) {
                item.snapshot = item.snapshot.take().and_then(|_| self.stale(item));
            }
            if self.plant == Some(Plant::IgnoreConflicts) {
                item.expected = self.store.head(&item.key)?.unwrap_or_default();
            }
        }
        let outcomes = self.store.append(&items)?;
        for (item, outcome) in items.into_iter().zip(&outcomes) {
            match outcome {
                Outcome::Appended { .. } if self.plant == Some(Plant::SkipSync) => self.unsynced.push(item),
                Outcome::Appended { .. } => self.synced.push(item),
                Outcome::Conflict { .. } | Outcome::Tombstone { .. } => self.faults.conflicts += 1,
            }
        }
        Ok(outcomes)
    }

    /// A snapshot that says to include the last event of an append, and does not.
    fn stale(&self, item: &Append) -> Option<Vec<u8>> {
        let log = load(&self.store, &item.key, 1).ok()?;
        let events = item.events.split_last()?.1.to_vec();
        let before = Log { events: log.events.into_iter().chain(events).collect(), ..log };
        let mut session = revive(&item.key, before).ok()??;
        session.head = session.head.next();
        Some(snapshot::keep(&session))
    }

    /// The power goes: what was not synced is gone.
    pub fn lose_power(&mut self) -> Result<(), Fault> {
        self.late.clear();
        if self.unsynced.is_empty() {
            return Ok(());
        }
        self.unsynced.clear();
        self.store = MemoryStore::default();
        for item in &self.synced {
            self.store.append(std::slice::from_ref(item))?;
        }
        Ok(())
    }
}
