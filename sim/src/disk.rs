//! A store that refuses, tears, loses its answers and its unsynced writes.
//!
//! What survives is a list of the items that were kept, in order; a power loss begins a new store from that list. Where there
//! are several nodes, each holds a slot of its own on it, as long as it is seen: the slot of one that is not is taken by the next
//! that needs one, and what its former holder sends is refused.

use std::collections::BTreeMap;

use handover_engine::log::{Log, load, revive};
use handover_engine::snapshot;
use handover_kernel::Timestamp;
use handover_store::{Append, Fault, MemoryStore, News, Outcome, Place, Slot, Store};

use crate::plant::Plant;
use crate::rng::Rng;

/// How long a node that is not seen keeps its slot.
pub const LEASE_MS: u64 = 2_000;

/// How often each fault happens, out of a thousand commits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Odds {
    /// Nothing is kept and the writer hears of a fault.
    pub refuse: u64,
    /// Everything is kept and the writer hears of a fault.
    pub lose_answer: u64,
    /// Some items are kept, some are not, and the writer hears of a fault.
    pub tear: u64,
    /// The writer hears of a fault, and everything is kept all the same, but only later: just before its next commit where there
    /// is one node. Where there are several, at any time while nobody has taken the slot and its holder has not settled it.
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
    /// Of those, the ones whose writer had crashed.
    pub late_after_crash: u64,
    /// Engines that lost their memory.
    pub crashes: u64,
    /// Nodes that paused.
    pub pauses: u64,
    /// Nodes that lost their connections to the store for a while.
    pub disconnected: u64,
    /// Nodes whose slot was taken.
    pub fenced: u64,
    /// Of those, the ones that came back to a slot that they had had before.
    pub retook: u64,
    /// Items that another writer was first with.
    pub conflicts: u64,
    /// Subscribers that did not keep up.
    pub cuts: u64,
    /// Subscribers that went on at another node, or over another connection.
    pub moves: u64,
    /// Reads that failed.
    pub reads_failed: u64,
    /// Hints that never came.
    pub hints_lost: u64,
    /// Hints that came late.
    pub hints_late: u64,
    /// Hints that came as one with another.
    pub hints_merged: u64,
}

impl Faults {
    /// All of them together.
    pub fn add(&mut self, other: &Faults) {
        self.refused += other.refused;
        self.answers_lost += other.answers_lost;
        self.torn += other.torn;
        self.late += other.late;
        self.late_after_crash += other.late_after_crash;
        self.crashes += other.crashes;
        self.pauses += other.pauses;
        self.disconnected += other.disconnected;
        self.fenced += other.fenced;
        self.retook += other.retook;
        self.conflicts += other.conflicts;
        self.cuts += other.cuts;
        self.moves += other.moves;
        self.reads_failed += other.reads_failed;
        self.hints_lost += other.hints_lost;
        self.hints_late += other.hints_late;
        self.hints_merged += other.hints_merged;
    }
}

/// What a node is told when it asks what others did.
#[derive(Debug)]
pub enum Heard {
    /// A page of it.
    News(Vec<News>),
    /// It has taken another slot since it last asked, and was never told what is in that: it is to begin again after this place.
    /// The number is that of the slots it has taken.
    Behind(Place, u64),
}

/// The disk.
pub struct Disk {
    store: MemoryStore,
    /// The store as each node sees it.
    writers: Vec<Writer>,
    /// Who may append to each slot.
    holds: BTreeMap<Slot, Hold>,
    /// What a power loss leaves, and to which slot it was written.
    synced: Vec<(Slot, Append)>,
    /// What it takes.
    unsynced: Vec<Append>,
    /// What is in doubt.
    lates: Vec<Late>,
    /// How much was ever in doubt.
    doubts: u64,
    plant: Option<Plant>,
    /// How often it fails.
    pub odds: Odds,
    /// How often it failed.
    pub faults: Faults,
}

/// A node's way to the disk.
struct Writer {
    store: MemoryStore,
    /// That of its slot when it took it.
    epoch: u64,
    /// When it last tried to be seen.
    tried_at: Timestamp,
    /// The slots that it had before.
    had: Vec<Slot>,
    /// How many of the slots that it took its engine knows of.
    told: u64,
    /// Nothing reaches the disk before this time.
    cut_until: Timestamp,
}

/// Who may append to a slot.
#[derive(Default)]
struct Hold {
    /// One more with each holder.
    epoch: u64,
    seen_at: Timestamp,
}

/// A commit that is still under way when its writer has given up.
struct Late {
    number: u64,
    slot: Slot,
    by: MemoryStore,
    batch: Vec<Append>,
    /// Whether its writer is gone.
    left: bool,
}

fn fault(what: &'static str) -> Fault {
    Fault::Unavailable { doing: what, source: "simulated".into() }
}

impl Disk {
    /// An empty disk for so many nodes.
    pub fn new(plant: Option<Plant>, odds: Odds, nodes: usize) -> Disk {
        let store = MemoryStore::default();
        let writer = |_| Writer {
            store: store.clone(),
            epoch: 0,
            tried_at: Timestamp::default(),
            had: Vec::new(),
            told: 0,
            cut_until: Timestamp::default(),
        };
        Disk {
            writers: (0..nodes).map(writer).collect(),
            store,
            holds: BTreeMap::new(),
            synced: Vec::new(),
            unsynced: Vec::new(),
            lates: Vec::new(),
            doubts: 0,
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
        &self.writers[node].store
    }

    /// One node has the disk to itself.
    fn is_shared(&self) -> bool {
        self.writers.len() > 1
    }

    /// A node starts.
    pub fn join(&mut self, node: usize, now: Timestamp, rng: &mut Rng) -> Result<(), Fault> {
        if !self.is_shared() {
            return Ok(());
        }
        let store = self.store.writer(Slot(0));
        let cut_until = Timestamp::default();
        self.writers[node] = Writer { store, epoch: 0, tried_at: now, had: Vec::new(), told: 0, cut_until };
        self.take_slot(node, now, rng)
    }

    /// A node ends, and what it has under way goes on without it.
    pub fn leave(&mut self, node: usize) {
        if self.holds(node) {
            let slot = self.slot(node);
            self.lates.iter_mut().filter(|late| late.slot == slot).for_each(|late| late.left = true);
        }
    }

    fn slot(&self, node: usize) -> Slot {
        self.writers[node].store.slot().unwrap_or_default()
    }

    /// A slot whose holder was not seen for long, or a new one.
    fn take_slot(&mut self, node: usize, now: Timestamp, rng: &mut Rng) -> Result<(), Fault> {
        let lost = |(_, hold): &(&Slot, &Hold)| hold.seen_at.plus(LEASE_MS) <= now;
        let mut free: Vec<Slot> = self.holds.iter().filter(lost).map(|(slot, _)| *slot).collect();
        free.sort_by_key(|slot| self.holds.get(slot).map(|hold| hold.seen_at));
        let next = Slot(u16::try_from(self.holds.len()).unwrap_or(u16::MAX));
        // The one that was lost last is most of the time the one whose holder does not know it yet.
        let slot = match free.last() {
            Some(last) if rng.chance(400) => *last,
            Some(_) => *rng.pick(&free),
            None => next,
        };
        // Whoever takes a slot waits for a commit that is under way in it. One that begins later is refused.
        self.decide(slot, rng)?;
        let hold = self.holds.entry(slot).or_default();
        hold.epoch += 1;
        hold.seen_at = now;
        let writer = &mut self.writers[node];
        writer.store = writer.store.moved(slot);
        writer.epoch = hold.epoch;
        writer.tried_at = now;
        Ok(())
    }

    /// Whether a node still holds its slot.
    fn holds(&self, node: usize) -> bool {
        let held = self.holds.get(&self.slot(node)).map(|hold| hold.epoch);
        !self.is_shared() || held == Some(self.writers[node].epoch) || self.plant == Some(Plant::TakenSlot)
    }

    /// If its slot was taken, a node takes another one, and what it asked for is not done.
    fn check_slot(&mut self, node: usize, now: Timestamp, rng: &mut Rng) -> Result<(), Fault> {
        if self.holds(node) {
            return Ok(());
        }
        self.faults.fenced += 1;
        let before = self.slot(node);
        self.writers[node].had.push(before);
        self.take_slot(node, now, rng)?;
        self.faults.retook += u64::from(self.writers[node].had.contains(&self.slot(node)));
        Err(fault("writing to a slot that was taken"))
    }

    /// A node is seen, every now and then.
    pub fn beat(&mut self, node: usize, now: Timestamp, rng: &mut Rng) -> Result<(), Fault> {
        if !self.is_shared() || self.writers[node].tried_at.plus(LEASE_MS / 4) > now {
            return Ok(());
        }
        self.writers[node].tried_at = now;
        if self.is_cut(node, now) {
            return Ok(());
        }
        self.check_slot(node, now, rng)?;
        let slot = self.slot(node);
        self.holds.entry(slot).or_default().seen_at = now;
        Ok(())
    }

    /// The slots of the nodes that were seen not long ago.
    pub fn live(&self, now: Timestamp) -> Vec<Slot> {
        let seen = |(_, hold): &(&Slot, &Hold)| hold.seen_at.plus(LEASE_MS) > now;
        self.holds.iter().filter(seen).map(|(slot, _)| *slot).collect()
    }

    /// Nothing that a node asks for reaches the disk until then.
    pub fn cut(&mut self, node: usize, until: Timestamp) {
        let writer = &mut self.writers[node];
        writer.cut_until = writer.cut_until.max(until);
    }

    /// Whether nothing that a node asks for reaches it.
    pub fn is_cut(&self, node: usize, now: Timestamp) -> bool {
        self.writers[node].cut_until > now
    }

    /// What other nodes did after a place.
    pub fn news(
        &mut self,
        node: usize,
        after: &Place,
        max: usize,
        now: Timestamp,
        rng: &mut Rng,
    ) -> Result<Heard, Fault> {
        if self.plant != Some(Plant::TrustLease) {
            self.check_slot(node, now, rng)?;
        }
        let writer = &self.writers[node];
        let taken = writer.had.len() as u64;
        if writer.told < taken && self.plant != Some(Plant::HideMove) {
            return Ok(Heard::Behind(self.store.last_place()?, taken));
        }
        match self.plant {
            Some(Plant::CutCause) => self.uncut(node, after, max).map(Heard::News),
            _ => writer.store.news(after, max).map(Heard::News),
        }
    }

    /// The engine of a node knows that it has taken so many slots.
    pub fn told(&mut self, node: usize, taken: u64) {
        self.writers[node].told = taken;
    }

    /// A page of each slot, in the order of their stamps, and not cut where the shortest of them ends.
    fn uncut(&self, node: usize, after: &Place, max: usize) -> Result<Vec<News>, Fault> {
        let mut each: BTreeMap<Slot, usize> = BTreeMap::new();
        let mut all = self.writers[node].store.news(after, usize::MAX)?;
        all.retain(|news| {
            let count = each.entry(news.position.slot).or_default();
            *count += 1;
            *count <= max
        });
        Ok(all)
    }

    /// What is in doubt in a node's slot.
    pub fn in_doubt(&self, node: usize) -> Option<u64> {
        let slot = self.slot(node);
        self.lates.iter().find(|late| late.slot == slot).map(|late| late.number)
    }

    /// What was in doubt is kept, if it still can be.
    pub fn land(&mut self, number: u64) -> Result<(), Fault> {
        match self.lates.iter().position(|late| late.number == number) {
            Some(at) => self.keep_late(at),
            None => Ok(()),
        }
    }

    fn keep_late(&mut self, at: usize) -> Result<(), Fault> {
        let Late { by, batch, left, .. } = self.lates.remove(at);
        self.faults.late += 1;
        self.faults.late_after_crash += u64::from(left);
        self.keep(&by, &batch).map(drop)
    }

    /// What is in doubt in a node's slot is kept now, or never.
    pub fn settle(&mut self, node: usize, rng: &mut Rng) -> Result<(), Fault> {
        self.decide(self.slot(node), rng)
    }

    fn decide(&mut self, slot: Slot, rng: &mut Rng) -> Result<(), Fault> {
        while let Some(at) = self.lates.iter().position(|late| late.slot == slot) {
            // A disk keeps what it was given. A database may never have got it.
            if !self.is_shared() || rng.chance(500) {
                self.keep_late(at)?;
            } else {
                self.lates.remove(at);
            }
        }
        Ok(())
    }

    /// Nothing is in doubt any more.
    pub fn settle_all(&mut self, rng: &mut Rng) -> Result<(), Fault> {
        while let Some(slot) = self.lates.first().map(|late| late.slot) {
            self.decide(slot, rng)?;
        }
        Ok(())
    }

    /// One commit.
    pub fn append(
        &mut self,
        node: usize,
        batch: &[Append],
        now: Timestamp,
        rng: &mut Rng,
    ) -> Result<Vec<Outcome>, Fault> {
        if self.is_cut(node, now) {
            return Err(fault("connecting"));
        }
        self.check_slot(node, now, rng)?;
        self.settle(node, rng)?;
        let by = self.of(node).clone();
        if rng.chance(self.odds.late) {
            self.doubts += 1;
            let (number, slot) = (self.doubts, self.slot(node));
            // It knows no more than its writer did.
            let by = if self.is_shared() { by.moved(slot) } else { by };
            self.lates.push(Late { number, slot, by, batch: batch.to_vec(), left: false });
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
                    self.keep(&by, std::slice::from_ref(item))?;
                }
            }
            return Err(fault("writing"));
        }
        let outcomes = self.keep(&by, batch)?;
        if self.plant == Some(Plant::SendTwice) && rng.chance(100) {
            return self.keep_again(&by, batch);
        }
        if rng.chance(self.odds.lose_answer) {
            self.faults.answers_lost += 1;
            return Err(fault("syncing"));
        }
        Ok(outcomes)
    }

    /// The same once more, for want of an answer.
    fn keep_again(&mut self, by: &MemoryStore, batch: &[Append]) -> Result<Vec<Outcome>, Fault> {
        let mut items = batch.to_vec();
        for item in &mut items {
            item.expected = self.store.head(&item.key)?.unwrap_or_default();
        }
        self.keep(by, &items)
    }

    fn keep(&mut self, by: &MemoryStore, batch: &[Append]) -> Result<Vec<Outcome>, Fault> {
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
        let slot = by.slot().unwrap_or_default();
        let outcomes = by.append(&items)?;
        for (item, outcome) in items.into_iter().zip(&outcomes) {
            match outcome {
                Outcome::Appended { .. } if self.plant == Some(Plant::SkipSync) => self.unsynced.push(item),
                Outcome::Appended { .. } => self.synced.push((slot, item)),
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

    /// The power goes: what was not synced is gone, and what was under way is never kept.
    pub fn lose_power(&mut self) -> Result<(), Fault> {
        self.lates.clear();
        if self.unsynced.is_empty() {
            return Ok(());
        }
        self.unsynced.clear();
        self.store = MemoryStore::default();
        for node in 0..self.writers.len() {
            let slot = self.slot(node);
            let alone = self.store.clone();
            self.writers[node].store = if self.is_shared() { self.store.writer(slot) } else { alone };
        }
        for (slot, item) in &self.synced {
            self.store.writer(*slot).append(std::slice::from_ref(item))?;
        }
        Ok(())
    }
}
