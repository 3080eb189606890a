//! A store that refuses, tears, loses its answers and its unsynced writes.
//!
//! What survives is a list of the items that were kept, in order; a power loss begins a new store from that list. Where there
//! are several nodes, each has a slot of its own on it.

use handover_engine::log::{Log, load, revive};
use handover_engine::snapshot;
use handover_store::{Append, Fault, MemoryStore, Outcome, Slot, Store};

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
    /// The store as each node sees it.
    writers: Vec<MemoryStore>,
    /// What a power loss leaves, and which node wrote it.
    synced: Vec<(usize, Append)>,
    /// What it takes.
    unsynced: Vec<Append>,
    /// What is in doubt of each node: its next commit comes after it.
    late: Vec<Vec<Append>>,
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
    /// An empty disk for so many nodes.
    pub fn new(plant: Option<Plant>, odds: Odds, nodes: usize) -> Disk {
        let store = MemoryStore::default();
        Disk {
            writers: writers(&store, nodes, plant),
            store,
            synced: Vec::new(),
            unsynced: Vec::new(),
            late: vec![Vec::new(); nodes],
            plant,
            odds,
            faults: Faults::default(),
        }
    }

    /// What is on it, as a reader sees it.
    pub fn store(&self) -> &MemoryStore {
        &self.store
    }

    /// What is on it, as one of the nodes sees it.
    pub fn of(&self, node: usize) -> &MemoryStore {
        &self.writers[node]
    }

    /// Whether something is in doubt of a node.
    pub fn is_late(&self, node: usize) -> bool {
        !self.late[node].is_empty()
    }

    /// What was in doubt of a node is kept, if it still can be.
    pub fn settle(&mut self, node: usize) -> Result<(), Fault> {
        if self.is_late(node) {
            self.faults.late += 1;
            let late = std::mem::take(&mut self.late[node]);
            self.keep(node, &late)?;
        }
        Ok(())
    }

    /// One commit.
    pub fn append(&mut self, node: usize, batch: &[Append], rng: &mut Rng) -> Result<Vec<Outcome>, Fault> {
        self.settle(node)?;
        if rng.chance(self.odds.late) {
            self.late[node] = batch.to_vec();
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
                    self.keep(node, std::slice::from_ref(item))?;
                }
            }
            return Err(fault("writing"));
        }
        let outcomes = self.keep(node, batch)?;
        if self.plant == Some(Plant::SendTwice) && rng.chance(100) {
            return self.keep_again(node, batch);
        }
        if rng.chance(self.odds.lose_answer) {
            self.faults.answers_lost += 1;
            return Err(fault("syncing"));
        }
        Ok(outcomes)
    }

    /// The same once more, for want of an answer.
    fn keep_again(&mut self, node: usize, batch: &[Append]) -> Result<Vec<Outcome>, Fault> {
        let mut items = batch.to_vec();
        for item in &mut items {
            item.expected = self.store.head(&item.key)?.unwrap_or_default();
        }
        self.keep(node, &items)
    }

    fn keep(&mut self, node: usize, batch: &[Append]) -> Result<Vec<Outcome>, Fault> {
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
        let outcomes = self.writers[node].append(&items)?;
        for (item, outcome) in items.into_iter().zip(&outcomes) {
            match outcome {
                Outcome::Appended { .. } if self.plant == Some(Plant::SkipSync) => self.unsynced.push(item),
                Outcome::Appended { .. } => self.synced.push((node, item)),
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
        if self.writers.len() == 1 {
            self.late[0].clear();
        }
        if self.unsynced.is_empty() {
            return Ok(());
        }
        self.unsynced.clear();
        self.store = MemoryStore::default();
        self.writers = writers(&self.store, self.writers.len(), self.plant);
        for (node, item) in &self.synced {
            self.writers[*node].append(std::slice::from_ref(item))?;
        }
        Ok(())
    }
}

/// One node has the store to itself; of several, each has a slot of its own.
fn writers(store: &MemoryStore, nodes: usize, plant: Option<Plant>) -> Vec<MemoryStore> {
    let slot = |node| if plant == Some(Plant::TakenSlot) { Slot(1) } else { Slot(node) };
    match nodes {
        1 => vec![store.clone()],
        nodes => (1..).take(nodes).map(|node| store.writer(slot(node))).collect(),
    }
}
