//! What is durable in the journal and not yet in the database.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::record::Placed;
use super::writer::Number;
use crate::log::SessionKey;

/// When it is written to the database: after so long, or when there is so much. More at once costs less, and whoever reads
/// a list then waits longer for it.
const AGE_MAX: Duration = Duration::from_millis(20);
const EVENTS_ENOUGH: usize = 512;
const BYTES_ENOUGH: usize = 512 << 10;

/// At so many times as much, appends wait for it. More than comes while the write-ahead log is moved.
const TOO_MUCH: usize = 8;

/// The appends of one record of the journal.
pub(super) struct Record {
    number: u64,
    pub(super) items: Vec<Placed>,
    since: Instant,
}

#[derive(Default)]
pub(super) struct Pending {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    records: VecDeque<Arc<Record>>,
    sessions: HashMap<SessionKey, Head>,
    events: usize,
    bytes: usize,
    nudged: bool,
    stopping: bool,
}

/// Where the log of a session ends.
struct Head {
    number: Number,
    seq: i64,
    /// The last record with something for it.
    record: u64,
}

impl Record {
    pub(super) fn new(number: u64, items: Vec<Placed>) -> Record {
        Record { number, items, since: Instant::now() }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    fn size(&self) -> (usize, usize) {
        let bytes = |item: &Placed| {
            let events = item.append.events.iter().map(Vec::len).sum::<usize>();
            events + item.append.snapshot.as_ref().map_or(0, Vec::len)
        };
        let events = |item: &Placed| item.append.events.len().max(1);
        (self.items.iter().map(events).sum(), self.items.iter().map(bytes).sum())
    }
}

impl State {
    fn is(&self, times: usize) -> bool {
        self.events >= EVENTS_ENOUGH * times || self.bytes >= BYTES_ENOUGH * times
    }
}

impl Pending {
    pub(super) fn push(&self, record: Record) {
        let (events, bytes) = record.size();
        let mut state = self.state();
        for item in &record.items {
            let head = Head { number: item.number, seq: item.head(), record: record.number };
            match state.sessions.get_mut(&item.append.key) {
                Some(known) => *known = head,
                None => _ = state.sessions.insert(item.append.key.clone(), head),
            }
        }
        let before = state.records.is_empty() || state.is(1);
        state.records.push_back(Arc::new(record));
        state.events += events;
        state.bytes += bytes;
        let wake = state.records.len() == 1 || (!before && state.is(1));
        drop(state);
        if wake {
            self.changed.notify_one();
        }
    }

    /// The number and the last sequence number of a session that has something here.
    pub(super) fn head(&self, key: &SessionKey) -> Option<(Number, i64)> {
        self.state().sessions.get(key).map(|head| (head.number, head.seq))
    }

    /// The number of the oldest record.
    pub(super) fn first(&self) -> Option<u64> {
        self.state().records.front().map(|record| record.number)
    }

    /// The number of the newest record.
    pub(super) fn last(&self) -> Option<u64> {
        self.state().records.back().map(|record| record.number)
    }

    /// The number of the oldest record, if there is too much.
    pub(super) fn too_much(&self) -> Option<u64> {
        let state = self.state();
        state.records.front().map(|record| record.number).filter(|_| state.is(TOO_MUCH))
    }

    /// The oldest records, enough for one transaction.
    pub(super) fn oldest(&self) -> Vec<Arc<Record>> {
        let mut events = 0;
        let enough = |record: &&Arc<Record>| {
            let more = events < 2 * EVENTS_ENOUGH;
            events += record.size().0;
            more
        };
        self.state().records.iter().take_while(enough).cloned().collect()
    }

    /// The database has everything up to this record.
    pub(super) fn applied(&self, number: u64) {
        let mut state = self.state();
        let mut gone = Vec::new();
        while let Some(record) = state.records.pop_front_if(|record| record.number <= number) {
            let (events, bytes) = record.size();
            state.events -= events;
            state.bytes -= bytes;
            for item in &record.items {
                if state.sessions.get(&item.append.key).is_some_and(|head| head.record <= number) {
                    state.sessions.remove(&item.append.key);
                }
            }
            gone.push(record);
        }
        // Others need not wait while it is let go of.
        drop(state);
    }

    /// Wait until there is something to do. False if it is to end.
    pub(super) fn wait(&self) -> bool {
        let mut state = self.state();
        loop {
            if state.stopping || std::mem::take(&mut state.nudged) || state.is(1) {
                return !state.stopping;
            }
            state = match state.records.front().map(|oldest| oldest.since.elapsed()) {
                None => self.changed.wait(state).expect(NO_PANIC),
                Some(age) if age >= AGE_MAX => return true,
                Some(age) => self.changed.wait_timeout(state, AGE_MAX - age).expect(NO_PANIC).0,
            };
        }
    }

    /// Wait so long. False if it is to end.
    pub(super) fn pause(&self, long: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.state(), long, |state| !state.stopping);
        !waited.expect(NO_PANIC).0.stopping
    }

    /// There is something to do beside what is here.
    pub(super) fn nudge(&self) {
        self.state().nudged = true;
        self.changed.notify_one();
    }

    pub(super) fn stop(&self) {
        self.state().stopping = true;
        self.changed.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect(NO_PANIC)
    }
}

const NO_PANIC: &str = "no holder of what is pending panics";
