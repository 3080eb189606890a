//! One shard: the only writer of its sessions. A plain state machine that calls nothing.
//!
//! It takes inputs (a command, what was read, what became of a commit) and returns effects (read this, tell that). It
//! decides on memory, ahead of the disk: what it decides gathers in a batch while the batch before it is being
//! written, and every answer that rests on something that is not durable is held back until it is. If someone else
//! appended first, the session is read again and its commands are decided again. If the store fails, nothing that
//! rests on it is answered as accepted, and all memory is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use handover_kernel::command::{Act, Command};
use handover_kernel::errand::Errand;
use handover_kernel::session::{Binding, Standing};
use handover_kernel::{
    Event, Fact, Limits, Receipt, Refusal, Seq, Session, SessionId, Timestamp, replay, step,
};
use handover_store::{Append, Fault, Outcome, SessionKey, Wake};

use crate::codec;
use crate::engine::key::Key;
use crate::engine::names::Names;
use crate::view::{self, Listed};

/// How much a shard may hold.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Commands that may wait for the disk.
    pub queue_max: usize,
    /// Events that one batch may hold before no more commands are taken.
    pub batch_events_max: usize,
    /// Sessions that may stay in memory.
    pub sessions_in_memory_max: usize,
    /// How long a session that nobody asks for stays in memory.
    pub idle_ms: u64,
    /// How long a finished one does.
    pub finished_idle_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            queue_max: 4096,
            batch_events_max: 1024,
            sessions_in_memory_max: 25_000,
            idle_ms: 60_000,
            finished_idle_ms: 1_000,
        }
    }
}

/// Who waits for an answer.
#[derive(Debug)]
pub enum Ticket<T> {
    /// Somebody outside.
    Client(T),
    /// The watch over the clock.
    Wake,
    /// Nobody.
    Nobody,
    /// The session that owes this errand.
    Errand {
        /// Which session.
        from: Key,
        /// Which errand.
        errand: Seq,
    },
}

/// What the shard wants done.
#[derive(Debug)]
pub enum Effect<T> {
    /// Read the whole log of this session and come back with [`Shard::loaded`].
    Load(Key),
    /// Tell whoever waits.
    Answer {
        /// Who.
        ticket: Ticket<T>,
        /// What.
        answer: Answer,
    },
    /// These events are durable.
    Publish(Published),
    /// The session wants to be woken then, or not at all.
    Wake {
        /// Which session.
        key: Key,
        /// When.
        at: Option<Timestamp>,
    },
    /// The session owes something to another one.
    Errand {
        /// Which session.
        from: Key,
        /// What.
        errand: Errand,
    },
}

/// Durable events of one session.
#[derive(Clone, Debug)]
pub struct Published {
    /// Which session.
    pub key: Key,
    /// What was bound when it started.
    pub binding: Arc<Binding>,
    /// The events, in order.
    pub events: Vec<Arc<Event>>,
    /// The position of the first of them among all events; the others follow.
    pub first: u64,
    /// Whether the session has ended with them.
    pub ended: bool,
}

impl Published {
    /// Whether the session has started with them.
    pub fn started(&self) -> bool {
        self.events.first().is_some_and(|event| event.seq == Seq(1))
    }
}

/// What somebody is told.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The command was accepted, now or before, and is durable.
    Accepted(Accepted),
    /// It was not.
    Denied(Denied),
    /// The session as it is, durably; none if there is none.
    State(Option<Arc<Session>>),
}

/// What the sender of an accepted command is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// What the kernel says.
    pub receipt: Receipt,
    /// Where the session stands now.
    pub standing: Standing,
}

/// Why a command was not accepted.
#[derive(Clone, Debug)]
pub enum Denied {
    /// The domain says no.
    Refused(Refusal),
    /// The world failed; the outcome may be unknown.
    Fault(Arc<Fault>),
    /// The log of the session cannot be read.
    Unreadable(Arc<str>),
    /// The engine takes no more commands.
    Stopping,
}

/// Everything that was read of a session.
#[derive(Debug)]
pub struct Log {
    /// Its events, all of them.
    pub events: Vec<Vec<u8>>,
    /// When it was deleted, if it was.
    pub tombstone: Option<u64>,
}

#[derive(Debug)]
enum Work<T> {
    Command { ticket: Ticket<T>, command: Command },
    Read { reader: T },
}

#[derive(Debug)]
enum Slot<T> {
    Loading { waiting: Vec<Work<T>> },
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
    last_used: Timestamp,
    /// Its place in [`Shard::idle`].
    looked_at: Timestamp,
}

/// What a command led to, with what the index and the timers said before it.
struct Decided {
    events: Vec<Event>,
    listed: Listed,
    wake_at: Option<Timestamp>,
}

/// What one commit writes, and who waits for it.
#[derive(Debug)]
struct Batch<T> {
    entries: BTreeMap<Key, Entry>,
    held: Vec<Held<T>>,
    events: usize,
}

#[derive(Debug)]
struct Entry {
    append: Append,
    events: Vec<Arc<Event>>,
    binding: Arc<Binding>,
    /// When the session wants to be woken, if that changed.
    wake_at: Option<Option<Timestamp>>,
    ended: bool,
}

/// An answer that rests on something that is not durable yet, with the work to decide it again.
#[derive(Debug)]
struct Held<T> {
    key: Key,
    work: Work<T>,
    answer: Answer,
}

impl<T> Default for Batch<T> {
    fn default() -> Self {
        Batch { entries: BTreeMap::new(), held: Vec::new(), events: 0 }
    }
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
    /// What the sessions in memory have in common.
    names: Names,
    /// When each session in memory is looked at again to see whether it is idle: one entry for each that is ready.
    idle: BTreeSet<(Timestamp, Key)>,
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
            names: Names::default(),
            idle: BTreeSet::new(),
        }
    }

    /// How many sessions are in memory.
    pub fn sessions(&self) -> usize {
        self.slots.len()
    }

    /// Whether anything waits to be written.
    pub fn has_pending(&self) -> bool {
        self.flight.is_none() && !self.pending.entries.is_empty()
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
        now: Timestamp,
    ) -> Vec<Effect<T>> {
        let full =
            self.backlog >= self.settings.queue_max || self.pending.events >= self.settings.batch_events_max;
        if full && matches!(ticket, Ticket::Client(_)) {
            return vec![Effect::Answer { ticket, answer: Answer::Denied(Denied::Refused(Refusal::Busy)) }];
        }
        let mut command = command;
        self.names.share_command(&mut command);
        // A start needs no look at the disk: if the session exists, the store will say so.
        let optimistic = matches!(command.act, Act::Start(_));
        let mut effects = Vec::new();
        self.take(key, Work::Command { ticket, command }, optimistic, now, &mut effects);
        effects
    }

    /// Somebody wants to see a session.
    pub fn read(&mut self, reader: T, key: &Key, now: Timestamp) -> Vec<Effect<T>> {
        if self.backlog >= self.settings.queue_max {
            let answer = Answer::Denied(Denied::Refused(Refusal::Busy));
            return vec![Effect::Answer { ticket: Ticket::Client(reader), answer }];
        }
        let mut effects = Vec::new();
        self.take(key, Work::Read { reader }, false, now, &mut effects);
        effects
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
            Some(Slot::Loading { waiting }) => {
                waiting.push(work);
                self.backlog += 1;
            }
            Some(Slot::Ready(_)) => self.decide(key, work, now, effects),
            None if optimistic => {
                self.settle_in(key, None, false, now);
                self.decide(key, work, now, effects);
            }
            None => {
                self.slots.insert(key.clone(), Slot::Loading { waiting: vec![work] });
                self.backlog += 1;
                effects.push(Effect::Load(key.clone()));
            }
        }
    }

    /// What was read of a session.
    pub fn loaded(&mut self, key: &Key, log: Result<Log, Arc<Fault>>, now: Timestamp) -> Vec<Effect<T>> {
        let mut effects = Vec::new();
        let waiting = match self.slots.get_mut(key) {
            Some(Slot::Loading { waiting }) => std::mem::take(waiting),
            // The slot was dropped while the read was under way: nobody waits for it.
            Some(Slot::Ready(_)) | None => return effects,
        };
        self.backlog -= waiting.len();
        let read = match log {
            Ok(log) => {
                revive_sharing(key, &log, &mut self.names).map(|session| (session, log.tombstone.is_some()))
            }
            Err(fault) => Err(Denied::Fault(fault)),
        };
        match read {
            Ok((session, tombstone)) => {
                self.slots.remove(key);
                self.settle_in(key, session, tombstone, now);
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

    fn settle_in(&mut self, key: &Key, session: Option<Session>, tombstone: bool, now: Timestamp) {
        let ready = Ready {
            durable: session.as_ref().map_or(Seq(0), |session| session.head),
            session: session.map(Arc::new),
            tombstone,
            last_used: now,
            looked_at: now,
        };
        let looked_at = ready.leaves_at(&self.settings);
        let ready = Ready { looked_at, ..ready };
        self.slots.insert(key.clone(), Slot::Ready(Box::new(ready)));
        self.idle.insert((looked_at, key.clone()));
    }

    fn decide(&mut self, key: &Key, work: Work<T>, now: Timestamp, effects: &mut Vec<Effect<T>>) {
        let Some(Slot::Ready(ready)) = self.slots.get_mut(key) else {
            unreachable!("a session is decided only when it is in memory");
        };
        ready.last_used = now;
        let answer = match &work {
            Work::Read { .. } => Answer::State(ready.session.clone()),
            Work::Command { command, .. } => {
                let (answer, decided) = ready.put(key, command, &self.limits, now);
                if let (Some(decided), Some(session)) = (decided, &ready.session) {
                    self.pending.add(key, session, decided);
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
                answer
            }
        };
        // One that has ended may leave sooner.
        let leaves_at = ready.leaves_at(&self.settings);
        if leaves_at < ready.looked_at {
            self.idle.remove(&(ready.looked_at, key.clone()));
            self.idle.insert((leaves_at, key.clone()));
            ready.looked_at = leaves_at;
        }
        let settled = ready.is_durable();
        if settled && ready.session.is_none() && !ready.tombstone {
            // Nothing is known of this id: the next command looks at the disk.
            self.forget(key);
        }
        if settled {
            effects.push(work.answered(answer));
            return;
        }
        self.backlog += 1;
        let held = Held { key: key.clone(), work, answer };
        match &mut self.flight {
            Some(flight) if !self.pending.entries.contains_key(key) => flight.held.push(held),
            Some(_) | None => self.pending.held.push(held),
        }
    }

    /// What is to be written next, if nothing is being written. Its outcome comes back with [`Shard::complete`].
    pub fn take_batch(&mut self) -> Option<Vec<Append>> {
        if !self.has_pending() {
            return None;
        }
        let mut batch = std::mem::take(&mut self.pending);
        let appends = batch.entries.values_mut().map(Entry::take_append).collect();
        self.flight = Some(batch);
        Some(appends)
    }

    /// What became of the batch that was taken, one outcome for each of its items.
    pub fn complete(&mut self, result: Result<&[Outcome], Arc<Fault>>, now: Timestamp) -> Vec<Effect<T>> {
        let Some(flight) = self.flight.take() else {
            unreachable!("a batch is completed once");
        };
        match result {
            Ok(outcomes) => self.committed(flight, outcomes, now),
            Err(fault) => self.failed(flight, &fault),
        }
    }

    fn committed(&mut self, flight: Batch<T>, outcomes: &[Outcome], now: Timestamp) -> Vec<Effect<T>> {
        assert_eq!(outcomes.len(), flight.entries.len(), "the store answers every item of a batch");
        let mut effects = Vec::new();
        let mut lost: BTreeMap<Key, Vec<Work<T>>> = BTreeMap::new();
        for ((key, entry), outcome) in flight.entries.into_iter().zip(outcomes) {
            match outcome {
                Outcome::Appended { first } => self.published(key, entry, *first, &mut effects),
                Outcome::Conflict { .. } | Outcome::Tombstone { .. } => {
                    lost.insert(key, Vec::new());
                }
            }
        }
        for held in flight.held {
            self.backlog -= 1;
            match lost.get_mut(&held.key) {
                Some(works) => works.push(held.work),
                None => effects.push(held.work.answered(held.answer)),
            }
        }
        for (key, works) in lost {
            self.decide_again(key, works, now, &mut effects);
        }
        effects
    }

    fn published(&mut self, key: Key, entry: Entry, first: u64, effects: &mut Vec<Effect<T>>) {
        if let (Some(Slot::Ready(ready)), Some(last)) = (self.slots.get_mut(&key), entry.events.last()) {
            ready.durable = ready.durable.max(last.seq);
        }
        if let Some(at) = entry.wake_at {
            effects.push(Effect::Wake { key: key.clone(), at });
        }
        let Entry { events, binding, ended, .. } = entry;
        effects.push(Effect::Publish(Published { key, binding, events, first, ended }));
    }

    /// Someone else was first: forget the session, read it again, and decide again what was decided on it.
    fn decide_again(
        &mut self,
        key: Key,
        mut works: Vec<Work<T>>,
        now: Timestamp,
        effects: &mut Vec<Effect<T>>,
    ) {
        self.forget(&key);
        if let Some(entry) = self.pending.entries.remove(&key) {
            self.pending.events -= entry.events.len();
        }
        let (again, kept) =
            std::mem::take(&mut self.pending.held).into_iter().partition(|held| held.key == key);
        self.pending.held = kept;
        self.backlog -= again.len();
        works.extend(again.into_iter().map(|held: Held<T>| held.work));
        for work in works {
            self.take(&key, work, false, now, effects);
        }
    }

    /// The store failed: the outcome of what was being written is unknown, and all memory is dropped.
    fn failed(&mut self, flight: Batch<T>, fault: &Arc<Fault>) -> Vec<Effect<T>> {
        let pending = std::mem::take(&mut self.pending);
        let held = flight.held.into_iter().chain(pending.held);
        let effects: Vec<Effect<T>> =
            held.map(|held| held.work.answered(Answer::Denied(Denied::Fault(Arc::clone(fault))))).collect();
        self.backlog -= effects.len();
        self.slots.retain(|_, slot| matches!(slot, Slot::Loading { .. }));
        self.idle.clear();
        effects
    }

    fn forget(&mut self, key: &Key) {
        if let Some(Slot::Ready(ready)) = self.slots.remove(key) {
            self.idle.remove(&(ready.looked_at, key.clone()));
        }
    }

    /// Let go of the sessions that nobody asked for in a while, finished ones first.
    pub fn sweep(&mut self, now: Timestamp) {
        while let Some((at, key)) = self.idle.first().cloned() {
            let over = self.slots.len() > self.settings.sessions_in_memory_max;
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
    /// When it may leave memory, if nobody asks for it until then.
    fn leaves_at(&self, settings: &Settings) -> Timestamp {
        let ended = self.session.as_ref().is_none_or(|session| session.lifecycle.is_terminal());
        self.last_used.plus(if ended { settings.finished_idle_ms } else { settings.idle_ms })
    }

    fn is_durable(&self) -> bool {
        self.session.as_ref().is_none_or(|session| session.head == self.durable)
    }

    /// Put a command to the session, and say what to answer and what was decided.
    fn put(
        &mut self,
        key: &Key,
        command: &Command,
        limits: &Limits,
        now: Timestamp,
    ) -> (Answer, Option<Decided>) {
        if self.tombstone && self.session.is_none() {
            let starts = matches!(command.act, Act::Start(_));
            let refusal = if starts { Refusal::SessionExists } else { Refusal::SessionNotFound };
            return (Answer::Denied(Denied::Refused(refusal)), None);
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
        let answer = match (step.answer, &self.session) {
            (Ok(receipt), Some(session)) => {
                Answer::Accepted(Accepted { receipt, standing: session.standing() })
            }
            (Ok(_), None) => unreachable!("an accepted command leaves a session"),
            (Err(refusal), _) => Answer::Denied(Denied::Refused(refusal)),
        };
        let decided = (!step.events.is_empty()).then_some(Decided { events: step.events, listed, wake_at });
        (answer, decided)
    }
}

impl<T> Batch<T> {
    /// Add what was decided on a session, with its index row and its wake time if they changed.
    fn add(&mut self, key: &Key, session: &Session, decided: Decided) {
        let Decided { events, listed, wake_at } = decided;
        self.events += events.len();
        let entry = self.entries.entry(key.clone()).or_insert_with(|| Entry {
            append: Append {
                key: SessionKey::clone(key),
                expected: session.head.0 - events.len() as u64,
                events: Vec::new(),
                row: None,
                wake: Wake::Unchanged,
            },
            events: Vec::new(),
            binding: Arc::clone(&session.binding),
            wake_at: None,
            ended: false,
        });
        entry.append.events.extend(events.iter().map(codec::encode));
        entry.ended |= events.iter().any(|event| ends_session(&event.fact));
        entry.events.extend(events.into_iter().map(Arc::new));
        if Listed::of(session) != listed {
            entry.append.row = Some(view::row(session));
        }
        if session.wake_at() != wake_at {
            entry.wake_at = Some(session.wake_at());
            entry.append.wake = wake(session.wake_at());
        }
    }
}

impl Entry {
    fn take_append(&mut self) -> Append {
        let key = self.append.key.clone();
        let empty = Append { key, expected: 0, events: Vec::new(), row: None, wake: Wake::Unchanged };
        std::mem::replace(&mut self.append, empty)
    }
}

impl<T> Work<T> {
    fn answered(self, answer: Answer) -> Effect<T> {
        match self {
            Work::Command { ticket, .. } => Effect::Answer { ticket, answer },
            Work::Read { reader } => Effect::Answer { ticket: Ticket::Client(reader), answer },
        }
    }
}

fn ends_session(fact: &Fact) -> bool {
    matches!(fact, Fact::Committed(_) | Fact::Cancelled { .. } | Fact::Expired { .. })
}

/// The store's word for a wake time.
pub fn wake(at: Option<Timestamp>) -> Wake {
    match at {
        Some(at) => Wake::At(at.0),
        None => Wake::Never,
    }
}

/// The session that a log tells of.
pub fn revive(key: &SessionKey, log: &Log) -> Result<Option<Session>, Denied> {
    revive_sharing(key, log, &mut Names::default())
}

fn revive_sharing(key: &SessionKey, log: &Log, names: &mut Names) -> Result<Option<Session>, Denied> {
    let unreadable =
        |what: String| Denied::Unreadable(Arc::from(format!("session {key} cannot be read: {what}")));
    let mut events: Vec<Event> = log
        .events
        .iter()
        .map(|bytes| codec::decode(bytes))
        .collect::<Result<_, _>>()
        .map_err(|error| unreadable(error.to_string()))?;
    events.iter_mut().for_each(|event| names.share_event(event));
    replay(&SessionId::from(&*key.session), &events).map_err(|error| unreadable(error.to_string()))
}

#[cfg(test)]
pub(crate) mod tests {
    use handover_kernel::command::{ModeKind, Request, Start, TaskAct};
    use handover_kernel::{AgentId, Blob, Charter, Face, Text};

    use super::*;

    pub(crate) const NOW: Timestamp = Timestamp(1_700_000_000_000);

    pub(crate) fn key(session: &str) -> Key {
        Key::from(SessionKey::new("t", session))
    }

    pub(crate) fn by(agent: &str, act: Act) -> Command {
        Command::by(&AgentId::from(agent), Face::Macp, act)
    }

    /// `planner` starts a task that `worker` or `helper` may take.
    pub(crate) fn start(parent: Option<&str>) -> Command {
        let start = Start {
            mode: ModeKind::Task,
            participants: ["worker", "helper"].map(AgentId::from).to_vec(),
            charter: Charter::macp(),
            mode_version: Text::from("1.0.0"),
            configuration_version: Text::from("unit"),
            policy_version: Text::default(),
            ttl_ms: None,
            sent_at: None,
            intent: Text::default(),
            context_id: Text::default(),
            extension_keys: Vec::new(),
            parent: parent.map(SessionId::from),
        };
        by("planner", Act::Start(Box::new(start)))
    }

    pub(crate) fn request() -> Command {
        let request = Request {
            task: Text::from("t1"),
            title: Text::default(),
            instructions: Text::default(),
            assignee: None,
            input: Blob::default(),
            wanted_by: None,
            check_in_ms: None,
        };
        by("planner", Act::Task(TaskAct::Request(request)))
    }

    fn accept(agent: &str) -> Command {
        by(agent, Act::Task(TaskAct::Accept { task: None, assignee: None, reason: Text::default() }))
    }

    fn cancel() -> Command {
        by("planner", Act::Cancel { reason: Text::default() })
    }

    pub(crate) fn shard(settings: Settings) -> Shard<u32> {
        Shard::new(settings, Limits::default())
    }

    fn put(shard: &mut Shard<u32>, client: u32, name: &str, command: Command) -> Vec<Effect<u32>> {
        shard.submit(Ticket::Client(client), &key(name), command, NOW)
    }

    /// Write what waits, and keep the bytes as the log of each session.
    fn write(shard: &mut Shard<u32>, disk: &mut BTreeMap<SessionKey, Vec<Vec<u8>>>) -> Vec<Effect<u32>> {
        let batch = shard.take_batch().expect("something waits to be written");
        let mut outcomes = Vec::new();
        for append in batch {
            let log = disk.entry(append.key).or_default();
            assert_eq!(append.expected, log.len() as u64);
            outcomes.push(Outcome::Appended { first: 100 });
            log.extend(append.events);
        }
        shard.complete(Ok(&outcomes), NOW)
    }

    /// A session that is there and written.
    fn settled(shard: &mut Shard<u32>, name: &str) -> BTreeMap<SessionKey, Vec<Vec<u8>>> {
        let mut disk = BTreeMap::new();
        put(shard, 0, name, start(None));
        put(shard, 0, name, request());
        write(shard, &mut disk);
        disk
    }

    /// Who is told what, in short.
    fn told(effects: &[Effect<u32>]) -> Vec<String> {
        let short = |effect: &Effect<u32>| match effect {
            Effect::Load(key) => format!("load {}", key.session),
            Effect::Publish(published) => {
                format!("publish {} {}", published.key.session, published.events.len())
            }
            Effect::Wake { key, .. } => format!("wake {}", key.session),
            Effect::Errand { from, .. } => format!("errand of {}", from.session),
            Effect::Answer { ticket, answer } => {
                let who = match ticket {
                    Ticket::Client(client) => format!("client {client}"),
                    Ticket::Wake => "clock".to_owned(),
                    Ticket::Nobody => "nobody".to_owned(),
                    Ticket::Errand { .. } => "errand".to_owned(),
                };
                let what = match answer {
                    Answer::Accepted(accepted) => format!("accepted {}", accepted.receipt.seq),
                    Answer::Denied(Denied::Refused(refusal)) => refusal.code().to_owned(),
                    Answer::Denied(Denied::Fault(_)) => "fault".to_owned(),
                    Answer::Denied(Denied::Unreadable(_)) => "unreadable".to_owned(),
                    Answer::Denied(Denied::Stopping) => "stopping".to_owned(),
                    Answer::State(state) => format!("state {}", state.as_ref().map_or(0, |s| s.head.0)),
                };
                format!("{who}: {what}")
            }
        };
        effects.iter().map(short).collect()
    }

    fn fault() -> Arc<Fault> {
        Arc::new(Fault::Unavailable { doing: "testing", source: "on demand".into() })
    }

    #[test]
    fn whatever_rests_on_a_batch_is_held_until_it_is_written() {
        let mut shard = shard(Settings::default());
        let mut disk = settled(&mut shard, "s");
        assert!(put(&mut shard, 1, "s", accept("worker")).is_empty());
        assert!(put(&mut shard, 2, "s", accept("helper")).is_empty(), "the refusal rests on the first");
        let batch = shard.take_batch().unwrap();
        assert!(shard.take_batch().is_none(), "one batch at a time");
        // Decided on what is being written: a look, a refusal, and an event that is for the next batch.
        assert!(shard.read(3, &key("s"), NOW).is_empty());
        assert!(put(&mut shard, 4, "s", accept("helper")).is_empty());
        assert!(put(&mut shard, 5, "s", cancel()).is_empty());
        assert!(!shard.has_pending() && !shard.is_quiet());
        disk.get_mut(&*key("s")).unwrap().extend(batch[0].events.clone());
        let effects = shard.complete(Ok(&[Outcome::Appended { first: 3 }]), NOW);
        assert_eq!(
            told(&effects),
            [
                "publish s 1",
                "client 1: accepted 3",
                "client 2: ALREADY_ASSIGNED",
                "client 3: state 3",
                "client 4: ALREADY_ASSIGNED"
            ]
        );
        assert_eq!(told(&write(&mut shard, &mut disk)), ["publish s 1", "client 5: accepted 4"]);
        assert!(shard.is_quiet());
    }

    #[test]
    fn after_a_fault_everything_that_rests_on_it_is_denied_and_the_log_is_read_again() {
        let mut shard = shard(Settings::default());
        let disk = settled(&mut shard, "s");
        put(&mut shard, 1, "s", accept("worker"));
        shard.take_batch().unwrap();
        put(&mut shard, 2, "s", cancel());
        put(&mut shard, 3, "other", start(None));
        let effects = shard.complete(Err(fault()), NOW);
        assert_eq!(told(&effects), ["client 1: fault", "client 2: fault", "client 3: fault"]);
        assert!(shard.is_quiet() && shard.sessions() == 0 && shard.idle.is_empty());
        assert_eq!(told(&shard.read(4, &key("s"), NOW)), ["load s"]);
        let log = Log { events: disk[&*key("s")].clone(), tombstone: None };
        assert_eq!(told(&shard.loaded(&key("s"), Ok(log), NOW)), ["client 4: state 2"]);
    }

    #[test]
    fn when_somebody_else_was_first_the_session_is_read_and_decided_again() {
        let mut shard = shard(Settings::default());
        let mut disk = settled(&mut shard, "s");
        put(&mut shard, 1, "s", accept("helper"));
        shard.take_batch().unwrap();
        put(&mut shard, 2, "s", cancel());
        put(&mut shard, 3, "other", start(None));
        let effects = shard.complete(Ok(&[Outcome::Conflict { head: 3 }]), NOW);
        assert_eq!(told(&effects), ["load s"]);
        // What another writer had decided on the same log.
        let mut elsewhere = self::shard(Settings::default());
        let mut there = settled(&mut elsewhere, "s");
        put(&mut elsewhere, 9, "s", accept("worker"));
        write(&mut elsewhere, &mut there);
        let log = Log { events: there[&*key("s")].clone(), tombstone: None };
        assert_eq!(told(&shard.loaded(&key("s"), Ok(log), NOW)), ["client 1: ALREADY_ASSIGNED"]);
        disk.insert(SessionKey::clone(&key("s")), there.remove(&*key("s")).unwrap());
        let effects = told(&write(&mut shard, &mut disk));
        assert_eq!(
            effects,
            ["publish other 1", "publish s 1", "client 3: accepted 1", "client 2: accepted 4"]
        );
        assert!(shard.is_quiet());
        assert_eq!(shard.idle.len(), shard.sessions());
    }

    #[test]
    fn a_start_on_a_deleted_session_is_refused_once_the_tombstone_is_seen() {
        let mut shard = shard(Settings::default());
        put(&mut shard, 1, "s", start(None));
        shard.take_batch().unwrap();
        let effects = shard.complete(Ok(&[Outcome::Tombstone { deleted_at: 7 }]), NOW);
        assert_eq!(told(&effects), ["load s"]);
        let log = Log { events: Vec::new(), tombstone: Some(7) };
        assert_eq!(told(&shard.loaded(&key("s"), Ok(log), NOW)), ["client 1: SESSION_EXISTS"]);
        assert_eq!(told(&put(&mut shard, 2, "s", request())), ["client 2: SESSION_NOT_FOUND"]);
    }

    #[test]
    fn a_read_that_failed_is_told_to_everybody_who_waits_for_it() {
        let mut shard = shard(Settings::default());
        assert_eq!(told(&put(&mut shard, 1, "s", request())), ["load s"]);
        assert!(shard.read(2, &key("s"), NOW).is_empty(), "one read serves all");
        assert!(!shard.is_quiet());
        let effects = shard.loaded(&key("s"), Err(fault()), NOW);
        assert_eq!(told(&effects), ["client 1: fault", "client 2: fault"]);
        assert!(shard.is_quiet() && shard.sessions() == 0);
        put(&mut shard, 3, "s", request());
        let log = Log { events: vec![b"no event".to_vec()], tombstone: None };
        assert_eq!(told(&shard.loaded(&key("s"), Ok(log), NOW)), ["client 3: unreadable"]);
    }

    #[test]
    fn what_never_existed_leaves_nothing_behind() {
        let mut shard = shard(Settings::default());
        for client in 0..10 {
            let name = format!("{client}");
            put(&mut shard, client, &name, request());
            let log = Log { events: Vec::new(), tombstone: None };
            let effects = shard.loaded(&key(&name), Ok(log), NOW);
            assert_eq!(told(&effects), [format!("client {client}: SESSION_NOT_FOUND")]);
            let refused = by("planner", start(None).act).with_id("handover:not allowed");
            assert_eq!(told(&put(&mut shard, client, &name, refused)).len(), 1);
        }
        assert!(shard.is_quiet() && shard.sessions() == 0 && shard.idle.is_empty());
    }

    #[test]
    fn only_clients_are_refused_when_the_queue_is_full() {
        let mut shard = shard(Settings { queue_max: 1, ..Settings::default() });
        let mut disk = BTreeMap::new();
        assert!(put(&mut shard, 1, "s", start(None)).is_empty());
        assert_eq!(told(&put(&mut shard, 2, "s", request())), ["client 2: BUSY"]);
        assert_eq!(told(&shard.read(3, &key("s"), NOW)), ["client 3: BUSY"]);
        assert!(shard.submit(Ticket::Wake, &key("s"), Command::runtime(Act::Tick), NOW).is_empty());
        let effects = told(&write(&mut shard, &mut disk));
        assert_eq!(effects, ["publish s 1", "client 1: accepted 1", "clock: accepted 1"]);
        assert!(put(&mut shard, 4, "s", request()).is_empty());
    }

    #[test]
    fn what_a_session_owes_is_carried_out_only_when_the_reason_for_it_is_written() {
        let mut shard = shard(Settings::default());
        let mut disk = BTreeMap::new();
        put(&mut shard, 1, "child", start(Some("parent")));
        let tick = |shard: &mut Shard<u32>| {
            told(&shard.submit(Ticket::Wake, &key("child"), Command::runtime(Act::Tick), NOW))
        };
        assert!(tick(&mut shard).is_empty());
        assert_eq!(told(&write(&mut shard, &mut disk))[..2], ["wake child", "publish child 1"]);
        assert_eq!(tick(&mut shard), ["errand of child", "clock: accepted 1"]);
        assert_eq!(tick(&mut shard), ["errand of child", "clock: accepted 1"], "until it is settled");
    }

    #[test]
    fn idle_sessions_leave_memory_and_those_in_use_stay() {
        let settings = Settings { idle_ms: 100, finished_idle_ms: 10, ..Settings::default() };
        let mut shard = shard(settings);
        settled(&mut shard, "idle");
        settled(&mut shard, "used");
        settled(&mut shard, "being written");
        shard.sweep(NOW.plus(99));
        assert_eq!(shard.sessions(), 3);
        shard.read(1, &key("used"), NOW.plus(60));
        put(&mut shard, 2, "being written", accept("worker"));
        shard.sweep(NOW.plus(100));
        assert_eq!(shard.sessions(), 2);
        assert!(!shard.slots.contains_key(&key("idle")));
        shard.sweep(NOW.plus(160));
        assert_eq!(shard.sessions(), 1, "what is not on disk yet cannot go");
        shard.take_batch().unwrap();
        shard.sweep(NOW.plus(500));
        assert_eq!(shard.sessions(), 1, "nor while it is being written");
        shard.complete(Ok(&[Outcome::Appended { first: 9 }]), NOW.plus(500));
        shard.sweep(NOW.plus(600));
        assert_eq!((shard.sessions(), shard.idle.len()), (0, 0));
    }

    #[test]
    fn finished_sessions_leave_sooner_than_the_others() {
        let settings = Settings { idle_ms: 100, finished_idle_ms: 10, ..Settings::default() };
        let mut shard = shard(settings);
        settled(&mut shard, "open");
        let mut disk = settled(&mut shard, "finished");
        put(&mut shard, 1, "finished", cancel());
        write(&mut shard, &mut disk);
        shard.sweep(NOW.plus(10));
        assert_eq!(shard.slots.keys().map(|key| &*key.session).collect::<Vec<_>>(), ["open"]);
        // One that is read again leaves again as soon.
        shard.read(2, &key("finished"), NOW.plus(20));
        let log = Log { events: disk.remove(&*key("finished")).unwrap(), tombstone: None };
        assert_eq!(told(&shard.loaded(&key("finished"), Ok(log), NOW.plus(20))), ["client 2: state 3"]);
        shard.sweep(NOW.plus(29));
        assert_eq!(shard.sessions(), 2);
        shard.sweep(NOW.plus(30));
        assert_eq!(shard.sessions(), 1);
    }

    #[test]
    fn when_there_are_too_many_the_finished_ones_go_first_and_then_those_that_waited_longest() {
        let settings = Settings { sessions_in_memory_max: 2, ..Settings::default() };
        let mut shard = shard(settings);
        for name in ["a", "b", "c"] {
            settled(&mut shard, name);
        }
        let mut disk = settled(&mut shard, "finished");
        put(&mut shard, 1, "finished", cancel());
        write(&mut shard, &mut disk);
        shard.read(2, &key("c"), NOW.plus(4));
        shard.read(3, &key("a"), NOW.plus(5));
        shard.sweep(NOW.plus(6));
        let mut left: Vec<&str> = shard.slots.keys().map(|key| &*key.session).collect();
        left.sort_unstable();
        assert_eq!(left, ["a", "c"], "the one that was asked for last stays, though it came first");
    }
}
