//! What one commit writes, and what becomes of it: the batch that gathers while the one before it is being written, and
//! the answers that wait for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use handover_kernel::session::Binding;
use handover_kernel::{Event, Session, Timestamp};
use handover_store::{Append, Fault, Outcome, Position, SessionKey, Wake};

use super::{Answer, Denied, Effect, End, Published, Said, Shard, Slot, Work, wake};
use crate::codec;
use crate::key::Key;
use crate::view::{self, Listed};

/// What a command led to, with what the index and the timers said before it.
pub(super) struct Decided {
    pub(super) events: Vec<Event>,
    pub(super) listed: Listed,
    pub(super) wake_at: Option<Timestamp>,
}

/// What one commit writes, and who waits for it.
#[derive(Debug)]
pub(super) struct Batch<T> {
    pub(super) entries: BTreeMap<Key, Entry>,
    pub(super) held: Vec<Held<T>>,
    pub(super) events: usize,
}

#[derive(Debug)]
pub(super) struct Entry {
    append: Append,
    events: Vec<Arc<Event>>,
    binding: Arc<Binding>,
    /// When the session wants to be woken, if that changed.
    wake_at: Option<Option<Timestamp>>,
    ended: Option<End>,
    /// How many bytes the events have as they are stored.
    bytes: u64,
    /// The session after the last of the events, once they are being written.
    session: Option<Arc<Session>>,
}

/// An answer that rests on something that is not durable yet, with the work to decide it again.
#[derive(Debug)]
pub(super) struct Held<T> {
    pub(super) key: Key,
    pub(super) work: Work<T>,
    pub(super) said: Said,
    /// Whether it came when its batch was being written: the commit may lie before it.
    pub(super) late: bool,
}

impl<T> Default for Batch<T> {
    fn default() -> Self {
        Batch { entries: BTreeMap::new(), held: Vec::new(), events: 0 }
    }
}

impl<T> Shard<T> {
    /// What is to be written next, if nothing is being written. Its outcome comes back with [`Shard::complete`].
    pub fn take_batch(&mut self) -> Option<Vec<Append>> {
        if !self.has_pending() {
            return None;
        }
        let mut batch = std::mem::take(&mut self.pending);
        let mut appends = Vec::with_capacity(batch.entries.len());
        for (key, entry) in &mut batch.entries {
            let mut append = entry.take_append();
            // What was decided last is in the batch, so that the session in memory is the one after its last event.
            if let Some(Slot::Ready(ready)) = self.slots.get_mut(key) {
                append.snapshot = ready.snapshot(self.settings.snapshot_every);
                entry.session = ready.session.clone();
            }
            appends.push(append);
        }
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
        // In the order of the keys, as the entries are.
        let mut written: Vec<(Key, Option<Arc<Session>>)> = Vec::with_capacity(flight.entries.len());
        for ((key, mut entry), outcome) in flight.entries.into_iter().zip(outcomes) {
            written.push((key.clone(), entry.session.take()));
            match outcome {
                Outcome::Appended { first, stamp } => {
                    self.published(key, entry, (*first, *stamp), &mut effects);
                }
                Outcome::Conflict { .. } | Outcome::Tombstone { .. } => {
                    lost.insert(key, Vec::new());
                }
            }
        }
        for held in flight.held {
            self.backlog -= 1;
            match lost.get_mut(&held.key) {
                Some(works) => works.push(held.work),
                None if held.late && held.work.after.is_some() => self.wait(held.key, held.work),
                None => {
                    let at = written.binary_search_by(|(key, _)| key.cmp(&held.key));
                    let session = at.ok().and_then(|at| written[at].1.as_ref());
                    effects.push(held.work.answered(held.said.about(session)));
                }
            }
        }
        for (key, works) in lost {
            self.decide_again(key, works, now, &mut effects);
        }
        effects
    }

    fn published(
        &mut self,
        key: Key,
        entry: Entry,
        (first, stamp): (Position, u64),
        effects: &mut Vec<Effect<T>>,
    ) {
        if let (Some(Slot::Ready(ready)), Some(last)) = (self.slots.get_mut(&key), entry.events.last()) {
            ready.durable = ready.durable.max(last.seq);
            if ready.is_durable() && ready.heard > ready.durable {
                // Another node has gone on from there since.
                self.forget(&key);
            }
        }
        if let Some(at) = entry.wake_at {
            effects.push(Effect::Wake { key: key.clone(), at });
        }
        let Entry { events, binding, ended, bytes, .. } = entry;
        effects.push(Effect::Publish(Published { key, binding, events, first, stamp, bytes, ended }));
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
            // What is read now is not older than any of them.
            self.take(&key, Work { after: None, ..work }, false, now, effects);
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
        self.bytes = 0;
        effects
    }
}

impl<T> Batch<T> {
    /// Add what was decided on a session, with its index row and its wake time if they changed.
    pub(super) fn add(&mut self, key: &Key, session: &Session, decided: Decided) {
        let Decided { events, listed, wake_at } = decided;
        self.events += events.len();
        let entry = self.entries.entry(key.clone()).or_insert_with(|| Entry {
            append: Append {
                key: SessionKey::clone(key),
                expected: session.head.0 - events.len() as u64,
                events: Vec::new(),
                row: None,
                wake: Wake::Unchanged,
                snapshot: None,
            },
            events: Vec::new(),
            binding: Arc::clone(&session.binding),
            wake_at: None,
            ended: None,
            bytes: 0,
            session: None,
        });
        for event in &events {
            let bytes = codec::encode(event);
            entry.bytes += bytes.len() as u64;
            entry.append.events.push(bytes);
        }
        entry.ended = entry.ended.or_else(|| events.iter().find_map(|event| End::of(&event.fact)));
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
        let empty =
            Append { key, expected: 0, events: Vec::new(), row: None, wake: Wake::Unchanged, snapshot: None };
        std::mem::replace(&mut self.append, empty)
    }
}
