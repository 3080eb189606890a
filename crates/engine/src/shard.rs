//! One shard: the only writer of its sessions. A plain state machine that calls nothing.
//!
//! It takes inputs (a command, what was read, what became of a commit) and returns effects (read this, tell that). It
//! decides on memory, ahead of the disk: what it decides gathers in a batch while the batch before it is being
//! written, and every answer that rests on something that is not durable is held back until it is. If someone else
//! appended first, the session is read again and its commands are decided again. If the store fails, nothing that
//! rests on it is answered as accepted, and all memory is dropped.

mod batch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use handover_kernel::command::{Act, Command};
use handover_kernel::errand::Errand;
use handover_kernel::session::{Standing, apply};
use handover_kernel::{AgentId, Event, Limits, Receipt, Refusal, Seq, Session, SessionId, Timestamp, step};
use handover_store::{Fault, Wake};

use self::batch::{Batch, Decided, Held};
pub use crate::answer::{Accepted, Answer, Denied, End, Published};
use crate::key::Key;
use crate::log::{Kept, Log, revive_sharing};
use crate::names::Names;
use crate::snapshot;
use crate::view::Listed;

/// How much a shard may hold.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Commands that may wait for the disk.
    pub queue_max: usize,
    /// Events that one batch may hold before no more commands are taken.
    pub batch_events_max: usize,
    /// Sessions that may stay in memory.
    pub sessions_in_memory_max: usize,
    /// How many bytes they may have.
    pub sessions_bytes_max: usize,
    /// How long a session that nobody asks for stays in memory.
    pub idle_ms: u64,
    /// How long a finished one does.
    pub finished_idle_ms: u64,
    /// After how many events a session is kept beside its log again: about as many are read to load it.
    pub snapshot_every: u64,
}

/// After how many bytes of events a session is kept beside its log again, however few they are.
const SNAPSHOT_EVERY_BYTES: u64 = 16 * 1024 * 1024;

impl Default for Settings {
    fn default() -> Self {
        Settings {
            queue_max: 4096,
            batch_events_max: 1024,
            sessions_in_memory_max: 25_000,
            sessions_bytes_max: 64 * 1024 * 1024,
            idle_ms: 60_000,
            finished_idle_ms: 1_000,
            snapshot_every: 1_000,
        }
    }
}

/// The number of a look at what other nodes did.
pub type Round = u64;

/// Who waits for an answer.
#[derive(Debug)]
pub enum Ticket<T> {
    /// Somebody outside.
    Client(T),
    /// The watch over the clock.
    Wake,
    /// Nobody.
    Nobody,
    /// The session that owes an errand.
    Errand(Box<Trip>),
}

/// An errand on its way.
#[derive(Debug)]
pub struct Trip {
    /// Who owes it.
    pub from: Key,
    /// Which one it is.
    pub errand: Errand,
    /// Where it goes.
    pub to: Key,
}

/// What the shard wants done.
#[derive(Debug)]
#[allow(missing_docs, reason = "the names of the fields say all")]
pub enum Effect<T> {
    /// Read this session and come back with [`Shard::loaded`].
    Load(Key),
    /// Tell whoever waits.
    Answer { ticket: Ticket<T>, answer: Answer },
    /// These events are durable.
    Publish(Published),
    /// The session wants to be woken then, or not at all.
    Wake { key: Key, at: Option<Timestamp> },
    /// The session owes something to another one.
    Errand { from: Key, errand: Errand },
}

#[derive(Debug)]
struct Work<T> {
    what: What<T>,
    /// With which look at what other nodes did it is known that memory is as new as this work; none if it is known.
    after: Option<Round>,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all work is commands, and none waits for long")]
enum What<T> {
    Command { ticket: Ticket<T>, command: Command },
    Read { reader: T },
}

#[derive(Debug)]
enum Slot<T> {
    Loading {
        waiting: Vec<Work<T>>,
        /// Whether it was deleted since: what is being read may be from before.
        deleted: bool,
        /// The last event that another node has been heard to append since: what is being read may be from before.
        heard: Seq,
    },
    Ready(Box<Ready>),
}

/// A session in memory, ahead of the disk by what the batches hold.
#[derive(Debug)]
struct Ready {
    session: Option<Arc<Session>>,
    /// Its id may not be used again yet.
    tombstone: bool,
    /// The last event that is on disk.
    durable: Seq,
    /// The last event that another node has been heard to append while ours were being written. It may come after them: then what
    /// is in memory lacks it.
    heard: Seq,
    /// Its snapshot, which may still be on its way to the disk.
    kept: Kept,
    last_used: Timestamp,
    /// How many bytes it has.
    weight: usize,
    /// Its place in [`Shard::idle`].
    looked_at: Timestamp,
}

/// One shard.
#[derive(Debug)]
pub struct Shard<T> {
    settings: Settings,
    limits: Limits,
    slots: BTreeMap<Key, Slot<T>>,
    /// What is being gathered.
    pending: Batch<T>,
    /// What is being written, in the order in which it was handed to the store.
    flight: Option<Batch<T>>,
    /// Commands that wait for anything.
    backlog: usize,
    /// Nothing is taken from outside any more.
    closed: bool,
    /// What the sessions in memory have in common.
    names: Names,
    /// When each session in memory is looked at again to see whether it is idle: one entry for each that is ready.
    idle: BTreeSet<(Timestamp, Key)>,
    /// How many bytes the sessions in memory have.
    bytes: usize,
    /// What is answered from memory, once it is known that memory is not older than the question.
    unsure: Vec<(Key, Work<T>)>,
}

impl<T> Shard<T> {
    /// An empty shard.
    pub fn new(settings: Settings, limits: Limits) -> Shard<T> {
        Shard {
            settings,
            limits,
            slots: BTreeMap::new(),
            pending: Batch::default(),
            flight: None,
            backlog: 0,
            closed: false,
            names: Names::default(),
            idle: BTreeSet::new(),
            bytes: 0,
            unsure: Vec::new(),
        }
    }

    /// Take nothing from outside any more, and finish what is under way.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// How many sessions are in memory.
    pub fn sessions(&self) -> usize {
        self.slots.len()
    }

    /// Whether anything waits to be written.
    pub fn has_pending(&self) -> bool {
        self.flight.is_none() && !self.pending.entries.is_empty()
    }

    /// Whether an answer waits for a look at what other nodes did.
    pub fn is_unsure(&self) -> bool {
        !self.unsure.is_empty()
    }

    /// Whether nothing waits for anything.
    pub fn is_quiet(&self) -> bool {
        self.backlog == 0 && self.flight.is_none() && self.pending.entries.is_empty()
    }

    /// A command for one of the shard's sessions.
    pub fn submit(
        &mut self,
        ticket: Ticket<T>,
        key: &Key,
        command: Command,
        after: Option<Round>,
        now: Timestamp,
    ) -> Vec<Effect<T>> {
        if matches!(ticket, Ticket::Client(_))
            && let Some(denied) = self.denies(self.pending.events >= self.settings.batch_events_max)
        {
            return vec![Effect::Answer { ticket, answer: Answer::Denied(denied) }];
        }
        let mut command = command;
        self.names.share_command(&mut command);
        // A start needs no look at the disk: if the session exists, the store will say so.
        let optimistic = command.act.start().is_some();
        let mut effects = Vec::new();
        let work = Work { what: What::Command { ticket, command }, after };
        self.take(key, work, optimistic, now, &mut effects);
        effects
    }

    /// Somebody wants to see a session.
    pub fn read(&mut self, reader: T, key: &Key, after: Option<Round>, now: Timestamp) -> Vec<Effect<T>> {
        if let Some(denied) = self.denies(false) {
            return vec![Effect::Answer { ticket: Ticket::Client(reader), answer: Answer::Denied(denied) }];
        }
        let mut effects = Vec::new();
        self.take(key, Work { what: What::Read { reader }, after }, false, now, &mut effects);
        effects
    }

    /// Why nothing more can be taken from outside, if nothing can.
    fn denies(&self, batch_is_full: bool) -> Option<Denied> {
        if self.closed {
            return Some(Denied::Stopping);
        }
        let full = batch_is_full || self.backlog >= self.settings.queue_max;
        full.then_some(Denied::Refused(Refusal::Busy))
    }

    /// A session that is in memory and durable as it is: nobody has to wait to see it.
    pub fn glance(&mut self, key: &Key, now: Timestamp) -> Option<Arc<Session>> {
        match self.slots.get_mut(key).filter(|_| !self.closed) {
            Some(Slot::Ready(ready)) if ready.is_durable() => {
                ready.last_used = now;
                ready.session.clone()
            }
            Some(Slot::Ready(_) | Slot::Loading { .. }) | None => None,
        }
    }

    /// A session was deleted. What is still to be written of it is refused by the store, and read again then.
    pub fn deleted(&mut self, key: &Key) {
        match self.slots.get_mut(key) {
            Some(Slot::Loading { deleted, .. }) => *deleted = true,
            Some(Slot::Ready(ready)) if ready.is_durable() => self.forget(key),
            // Unless that was written before.
            Some(Slot::Ready(ready)) => ready.heard = Seq(u64::MAX),
            None => {}
        }
    }

    /// Who started a session, if it is in memory.
    pub fn requester(&self, key: &Key) -> Option<AgentId> {
        match self.slots.get(key) {
            Some(Slot::Ready(ready)) => {
                ready.session.as_ref().map(|session| session.binding.requester.clone())
            }
            Some(Slot::Loading { .. }) | None => None,
        }
    }

    fn take(
        &mut self,
        key: &Key,
        work: Work<T>,
        optimistic: bool,
        now: Timestamp,
        effects: &mut Vec<Effect<T>>,
    ) {
        match self.slots.get_mut(key) {
            Some(Slot::Loading { waiting, .. }) => {
                waiting.push(work);
                self.backlog += 1;
            }
            Some(Slot::Ready(_)) => self.decide(key, work, now, effects),
            None if optimistic => {
                self.settle_in(key, None, false, Kept::default(), now);
                self.decide(key, work, now, effects);
            }
            None => {
                // What is read from now on is not older than the work.
                let waiting = vec![Work { after: None, ..work }];
                let slot = Slot::Loading { waiting, deleted: false, heard: Seq(0) };
                self.slots.insert(key.clone(), slot);
                self.backlog += 1;
                effects.push(Effect::Load(key.clone()));
            }
        }
        if self.bytes > self.settings.sessions_bytes_max {
            self.sweep(now);
        }
    }

    /// What was read of a session.
    pub fn loaded(&mut self, key: &Key, log: Result<Log, Arc<Fault>>, now: Timestamp) -> Vec<Effect<T>> {
        let mut effects = Vec::new();
        let (waiting, deleted) = match self.slots.get_mut(key) {
            // What another node wrote meanwhile may not be in it.
            Some(Slot::Loading { heard, deleted: false, .. }) if is_older(&log, *heard) => {
                *heard = Seq(0);
                effects.push(Effect::Load(key.clone()));
                return effects;
            }
            Some(Slot::Loading { waiting, deleted, .. }) => (std::mem::take(waiting), *deleted),
            // The slot was dropped while the read was under way: nobody waits for it.
            Some(Slot::Ready(_)) | None => return effects,
        };
        self.backlog -= waiting.len();
        let log = if deleted { Ok(Log { tombstone: Some(0), ..Log::default() }) } else { log };
        let read = match log {
            Ok(log) => {
                let kept = log.kept;
                let tombstone = log.tombstone.is_some();
                revive_sharing(key, log, &mut self.names).map(|session| (session, tombstone, kept))
            }
            Err(fault) => Err(Denied::Fault(fault)),
        };
        match read {
            Ok((session, tombstone, kept)) => {
                self.slots.remove(key);
                self.settle_in(key, session, tombstone, kept, now);
                for work in waiting {
                    // A decision may drop the slot again: a start that was refused leaves nothing.
                    self.take(key, work, false, now, &mut effects);
                }
            }
            Err(denied) => {
                self.slots.remove(key);
                effects.extend(waiting.into_iter().map(|work| work.answered(Answer::Denied(denied.clone()))));
            }
        }
        effects
    }

    fn settle_in(
        &mut self,
        key: &Key,
        session: Option<Session>,
        tombstone: bool,
        kept: Kept,
        now: Timestamp,
    ) {
        let ready = Ready {
            kept,
            durable: session.as_ref().map_or(Seq(0), |session| session.head),
            heard: Seq(0),
            session: session.map(Arc::new),
            tombstone,
            last_used: now,
            looked_at: now,
            weight: 0,
        };
        let (looked_at, weight) = (ready.leaves_at(&self.settings), ready.weigh());
        let ready = Ready { looked_at, weight, ..ready };
        self.bytes += weight;
        self.slots.insert(key.clone(), Slot::Ready(Box::new(ready)));
        self.idle.insert((looked_at, key.clone()));
    }

    fn decide(&mut self, key: &Key, work: Work<T>, now: Timestamp, effects: &mut Vec<Effect<T>>) {
        let Some(Slot::Ready(ready)) = self.slots.get_mut(key) else {
            unreachable!("a session is decided only when it is in memory");
        };
        ready.last_used = now;
        let said = match &work.what {
            What::Read { .. } => Said::Other(Answer::State(ready.session.clone())),
            What::Command { command, .. } => {
                let (said, decided) = ready.put(key, command, &self.limits, now);
                if let (Some(decided), Some(session)) = (decided, &ready.session) {
                    self.pending.add(key, session, decided);
                    let weight = ready.weigh();
                    self.bytes = self.bytes - ready.weight + weight;
                    ready.weight = weight;
                }
                if let (Act::Tick, Some(session)) = (&command.act, &ready.session) {
                    // What a session owes is carried out once the reason for it is durable.
                    if session.head == ready.durable {
                        effects.extend(
                            session
                                .errands
                                .iter()
                                .map(|errand| Effect::Errand { from: key.clone(), errand: errand.clone() }),
                        );
                    }
                }
                said
            }
        };
        // One that has ended may leave sooner.
        let leaves_at = ready.leaves_at(&self.settings);
        if leaves_at < ready.looked_at {
            self.idle.remove(&(ready.looked_at, key.clone()));
            self.idle.insert((leaves_at, key.clone()));
            ready.looked_at = leaves_at;
        }
        if ready.is_durable() {
            if work.after.is_some() && !work.is_a_wake() {
                return self.wait(key.clone(), work);
            }
            effects.push(work.answered(said.about(ready.session.as_ref())));
            if ready.session.is_none() && !ready.tombstone {
                // Nothing is known of this id: the next command looks at the disk.
                self.forget(key);
            }
            return;
        }
        self.backlog += 1;
        let held = Held { key: key.clone(), work, said, late: false };
        match &mut self.flight {
            Some(flight) if !self.pending.entries.contains_key(key) => {
                flight.held.push(Held { late: true, ..held });
            }
            Some(_) | None => self.pending.held.push(held),
        }
    }

    /// Answer when it is known that memory is not older than the question.
    fn wait(&mut self, key: Key, work: Work<T>) {
        // Of a session that was not there when it was to start, nothing is known.
        if matches!(self.slots.get(&key), Some(Slot::Ready(ready)) if ready.session.is_none() && !ready.tombstone)
        {
            self.forget(&key);
        }
        self.backlog += 1;
        self.unsure.push((key, work));
    }

    /// What other nodes did is known up to this look: what waited for it is decided again, on what is so now.
    pub fn confirmed(&mut self, round: Round, now: Timestamp) -> Vec<Effect<T>> {
        let mut effects = Vec::new();
        let (sure, unsure) =
            std::mem::take(&mut self.unsure).into_iter().partition(|(_, work)| work.after <= Some(round));
        self.unsure = unsure;
        let sure: Vec<(Key, Work<T>)> = sure;
        self.backlog -= sure.len();
        for (key, work) in sure {
            self.take(&key, Work { after: None, ..work }, false, now, &mut effects);
        }
        effects
    }

    /// What other nodes did cannot be known: whoever waits for that is told so.
    pub fn unconfirmed(&mut self, fault: &Arc<Fault>) -> Vec<Effect<T>> {
        let unsure = std::mem::take(&mut self.unsure);
        self.backlog -= unsure.len();
        let denied = || Answer::Denied(Denied::Fault(Arc::clone(fault)));
        unsure.into_iter().map(|(_, work)| work.answered(denied())).collect()
    }

    /// Another node has appended an event to a session.
    pub fn heard(&mut self, key: &Key, event: &Event) {
        match self.slots.get_mut(key) {
            Some(Slot::Loading { heard, .. }) => *heard = event.seq.max(*heard),
            // What is to be written here is refused by the store, and decided again then; or it was written before this.
            Some(Slot::Ready(ready)) if !ready.is_durable() => ready.heard = ready.heard.max(event.seq),
            Some(Slot::Ready(ready)) if event.seq <= ready.durable => {}
            Some(Slot::Ready(ready)) if event.seq == ready.durable.next() && !ready.tombstone => {
                let mut slot = ready.session.take().map(Arc::unwrap_or_clone);
                apply(&mut slot, &SessionId::from(&*key.session), event);
                ready.session = slot.map(Arc::new);
                ready.durable = event.seq;
                let weight = ready.weigh();
                self.bytes = self.bytes - ready.weight + weight;
                ready.weight = weight;
            }
            Some(Slot::Ready(_)) => self.forget(key),
            None => {}
        }
    }

    /// Let go of everything in memory, of what is being written as soon as it is: other nodes may have changed it.
    pub fn let_go(&mut self) {
        let is_durable = |slot: &Slot<T>| matches!(slot, Slot::Ready(ready) if ready.is_durable());
        let durable = self.slots.iter().filter(|(_, slot)| is_durable(slot));
        for key in durable.map(|(key, _)| key.clone()).collect::<Vec<Key>>() {
            self.forget(&key);
        }
        for slot in self.slots.values_mut() {
            match slot {
                Slot::Loading { heard, .. } => *heard = Seq(u64::MAX),
                Slot::Ready(ready) => ready.heard = Seq(u64::MAX),
            }
        }
    }

    fn forget(&mut self, key: &Key) {
        if let Some(Slot::Ready(ready)) = self.slots.remove(key) {
            self.idle.remove(&(ready.looked_at, key.clone()));
            self.bytes -= ready.weight;
        }
    }

    /// Let go of the sessions that nobody asked for in a while, finished ones first.
    pub fn sweep(&mut self, now: Timestamp) {
        while let Some((at, key)) = self.idle.first().cloned() {
            let over = self.slots.len() > self.settings.sessions_in_memory_max
                || self.bytes > self.settings.sessions_bytes_max;
            if at > now && !over {
                return;
            }
            let Some(Slot::Ready(ready)) = self.slots.get_mut(&key) else {
                unreachable!("only sessions in memory can be idle");
            };
            let leaves_at = ready.leaves_at(&self.settings);
            if leaves_at <= at && ready.is_durable() {
                self.forget(&key);
                continue;
            }
            // It was asked for since, or is still to be written.
            let again = if leaves_at > at { leaves_at } else { at.max(now).plus(1) };
            ready.looked_at = again;
            self.idle.remove(&(at, key.clone()));
            self.idle.insert((again, key));
            if over && leaves_at <= at {
                // What is left cannot go yet: look again when something has been written.
                return;
            }
        }
    }
}

impl Ready {
    fn weigh(&self) -> usize {
        self.session.as_ref().map_or(0, |session| session.weight())
    }

    /// When it may leave memory, if nobody asks for it until then.
    fn leaves_at(&self, settings: &Settings) -> Timestamp {
        let ended = self.session.as_ref().is_none_or(|session| session.lifecycle.is_terminal());
        self.last_used.plus(if ended { settings.finished_idle_ms } else { settings.idle_ms })
    }

    fn is_durable(&self) -> bool {
        self.session.as_ref().is_none_or(|session| session.head == self.durable)
    }

    /// The session to keep beside its log, if many events or bytes have been added since that was last done.
    fn snapshot(&mut self, every: u64) -> Option<Vec<u8>> {
        let grown = |session: &&Arc<Session>| {
            session.head.0 >= self.kept.seq.0 + every.max(1)
                || session.log_bytes >= self.kept.bytes + SNAPSHOT_EVERY_BYTES
        };
        let session = self.session.as_ref().filter(grown)?;
        self.kept = Kept::of(session);
        Some(snapshot::keep(session))
    }

    /// Put a command to the session, and say what to answer and what was decided.
    fn put(
        &mut self,
        key: &Key,
        command: &Command,
        limits: &Limits,
        now: Timestamp,
    ) -> (Said, Option<Decided>) {
        if self.tombstone && self.session.is_none() {
            let starts = command.act.start().is_some();
            let refusal = if starts { Refusal::SessionExists } else { Refusal::SessionNotFound };
            return (Said::Other(Answer::Denied(Denied::Refused(refusal))), None);
        }
        let id = match &self.session {
            Some(session) => session.binding.id.clone(),
            None => SessionId::from(&*key.session),
        };
        // What the index and the timers say now, if the store has been told.
        let listed = self.session.as_ref().map_or_else(Listed::nothing, |session| Listed::of(session));
        let wake_at = self.session.as_ref().and_then(|session| session.wake_at());
        let mut slot = self.session.take().map(Arc::unwrap_or_clone);
        let step = step(&mut slot, &id, command, limits, now);
        self.session = slot.map(Arc::new);
        let said = match (step.answer, &self.session) {
            (Ok(receipt), Some(session)) => Said::Accepted(receipt, session.standing()),
            (Ok(_), None) => unreachable!("an accepted command leaves a session"),
            (Err(refusal), _) => Said::Other(Answer::Denied(Denied::Refused(refusal))),
        };
        let decided = (!step.events.is_empty()).then_some(Decided { events: step.events, listed, wake_at });
        (said, decided)
    }
}

/// What a session said, without the session: whoever holds that makes the next command copy it.
#[derive(Debug)]
enum Said {
    Accepted(Receipt, Standing),
    Other(Answer),
}

impl Said {
    /// The answer, with the session as it is now.
    fn about(self, session: Option<&Arc<Session>>) -> Answer {
        match (self, session) {
            (Said::Accepted(receipt, standing), Some(session)) => {
                Answer::Accepted(Accepted { receipt, standing, session: Arc::clone(session) })
            }
            (Said::Accepted(..), None) => unreachable!("an accepted command leaves a session"),
            (Said::Other(answer), _) => answer,
        }
    }
}

impl<T> Work<T> {
    fn answered(self, answer: Answer) -> Effect<T> {
        match self.what {
            What::Command { ticket, .. } => Effect::Answer { ticket, answer },
            What::Read { reader } => Effect::Answer { ticket: Ticket::Client(reader), answer },
        }
    }

    /// Nobody acts on the answer to a tick: what it finds nothing to do for will be due again.
    fn is_a_wake(&self) -> bool {
        matches!(&self.what, What::Command { ticket: Ticket::Wake | Ticket::Nobody, command } if command.act == Act::Tick)
    }
}

/// Whether what was read of a session lacks an event that has been heard of.
fn is_older(log: &Result<Log, Arc<Fault>>, heard: Seq) -> bool {
    log.as_ref().is_ok_and(|log| log.head() < heard)
}

/// The store's word for a wake time.
pub fn wake(at: Option<Timestamp>) -> Wake {
    match at {
        Some(at) => Wake::At(at.0),
        None => Wake::Never,
    }
}

#[cfg(test)]
pub(crate) mod tests;
