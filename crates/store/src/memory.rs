//! A store that lives as long as the process, for tests and the simulator.
//!
//! Ordered maps only: the same calls give the same answers, always. A clone is another handle on the same data, so
//! that two nodes can share one store.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::fault::Fault;
use crate::log::{
    Append, Cursor, Deleted, DueCursor, DuePage, Feed, FeedItem, Filter, Hint, InboxPage, IndexRow, Listed,
    OpenCount, Order, Outcome, Page, Position, Put, Record, SessionKey, Snapshot, Store, StoredBytes,
    StoredEvent, Waiting, Wake, cut, placed,
};

/// Logs and rows in memory. Nothing is ever lost, except with the process.
#[derive(Clone, Default)]
pub struct MemoryStore {
    data: Arc<Mutex<Data>>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        MemoryStore::default()
    }

    fn data(&self) -> MutexGuard<'_, Data> {
        self.data.lock().expect("no holder of the lock panics")
    }
}

type Number = u64;

/// Space, tenant, key.
type RecordName = (Box<str>, Box<str>, Box<str>);

#[derive(Default)]
struct Data {
    numbers: BTreeMap<SessionKey, Number>,
    sessions: BTreeMap<Number, Session>,
    places: BTreeMap<Position, (Number, u64)>,
    wakes: BTreeSet<(u64, Number)>,
    tombstones: BTreeMap<SessionKey, u64>,
    records: BTreeMap<RecordName, Vec<u8>>,
    watchers: Vec<SyncSender<Hint>>,
    last_number: Number,
    last_position: Position,
    index_version: u32,
}

struct Session {
    key: SessionKey,
    events: Vec<StoredEvent>,
    row: Option<IndexRow>,
    wake: Option<u64>,
    snapshot: Option<Snapshot>,
}

impl Session {
    fn bytes(&self) -> u64 {
        self.events.iter().map(|event| event.bytes.len() as u64).sum()
    }

    fn head(&self) -> u64 {
        self.events.len() as u64
    }

    fn is_listed_for(&self, agent: &str) -> bool {
        self.row.as_ref().is_some_and(|row| row.agents.iter().any(|listed| &**listed == agent))
    }
}

impl Data {
    fn session(&self, key: &SessionKey) -> Option<&Session> {
        self.numbers.get(key).map(|number| &self.sessions[number])
    }

    /// A page of the sessions for which `chosen` finds something, the oldest first.
    fn page<T>(
        &self,
        after: Option<Cursor>,
        max: usize,
        chosen: impl Fn(&Session) -> Option<T>,
    ) -> (Vec<T>, Option<Cursor>) {
        let from = after.map_or(Bound::Unbounded, |Cursor(after)| Bound::Excluded(after));
        let mut rest = self
            .sessions
            .range((from, Bound::Unbounded))
            .filter_map(|(number, session)| Some((*number, chosen(session)?)));
        let (numbers, page): (Vec<Number>, Vec<T>) = rest.by_ref().take(max).unzip();
        let end = numbers.last().map(|number| Cursor(*number)).or(after);
        (page, end.filter(|_| rest.next().is_some()))
    }

    fn append(&mut self, item: &Append) -> Outcome {
        if let Some(&deleted_at) = self.tombstones.get(&item.key) {
            return Outcome::Tombstone { deleted_at };
        }
        let known = self.numbers.get(&item.key).copied();
        let head = known.map_or(0, |number| self.sessions[&number].head());
        if item.expected != head || (known.is_none() && item.events.is_empty()) {
            return Outcome::Conflict { head };
        }
        let number = known.unwrap_or_else(|| self.start(&item.key));
        let first = self.last_position + 1;
        let session = self.sessions.get_mut(&number).expect("every number has a session");
        for bytes in &item.events {
            self.last_position += 1;
            let event =
                StoredEvent { seq: session.head() + 1, position: self.last_position, bytes: bytes.clone() };
            self.places.insert(event.position, (number, event.seq));
            session.events.push(event);
        }
        if let Some(bytes) = &item.snapshot {
            session.snapshot = Some(Snapshot { seq: session.head(), bytes: bytes.clone() });
        }
        if let Some(row) = &item.row {
            self.write_row(number, row);
        }
        self.write_wake(number, item.wake);
        Outcome::Appended { first }
    }

    fn start(&mut self, key: &SessionKey) -> Number {
        self.last_number += 1;
        let session = Session { key: key.clone(), events: Vec::new(), row: None, wake: None, snapshot: None };
        self.sessions.insert(self.last_number, session);
        self.numbers.insert(key.clone(), self.last_number);
        self.last_number
    }

    fn write_row(&mut self, number: Number, row: &IndexRow) {
        let session = self.sessions.get_mut(&number).expect("every number has a session");
        let mut row = row.clone();
        if let Some(before) = session.row.take() {
            row.agents = before.agents;
        }
        session.row = Some(row);
    }

    fn write_wake(&mut self, number: Number, wake: Wake) {
        let wake = match wake {
            Wake::Unchanged => return,
            Wake::Never => None,
            Wake::At(at) => Some(at),
        };
        let session = self.sessions.get_mut(&number).expect("every number has a session");
        if session.row.is_none() {
            return;
        }
        if let Some(before) = session.wake {
            self.wakes.remove(&(before, number));
        }
        session.wake = wake;
        self.wakes.extend(wake.map(|at| (at, number)));
    }

    fn hint(&mut self, batch: &[Append], outcomes: &[Outcome]) {
        let mut grown = BTreeSet::new();
        for (item, outcome) in batch.iter().zip(outcomes) {
            if matches!(outcome, Outcome::Appended { .. }) && !item.events.is_empty() {
                grown.insert(self.numbers[&item.key]);
            }
        }
        for number in grown {
            let session = &self.sessions[&number];
            let hint = Hint { key: session.key.clone(), head: session.head() };
            self.watchers.retain(|watcher| match watcher.try_send(hint.clone()) {
                Ok(()) | Err(TrySendError::Full(_)) => true,
                Err(TrySendError::Disconnected(_)) => false,
            });
        }
    }

    fn delete(&mut self, number: Number, now: u64) -> SessionKey {
        self.write_wake(number, Wake::Never);
        let session = self.sessions.remove(&number).expect("every number has a session");
        self.numbers.remove(&session.key);
        for event in &session.events {
            self.places.remove(&event.position);
        }
        self.tombstones.insert(session.key.clone(), now);
        session.key
    }
}

fn matches(filter: &Filter, session: &Session, row: &IndexRow) -> bool {
    filter.tenant.as_ref().is_none_or(|tenant| *tenant == session.key.tenant)
        && filter.agent.as_ref().is_none_or(|agent| session.is_listed_for(agent))
        && (filter.statuses == 0 || 1_u64.checked_shl(row.status.into()).unwrap_or(0) & filter.statuses != 0)
        && filter.kind.is_none_or(|kind| kind == row.kind)
        && filter.created_from.is_none_or(|from| row.created_at >= from)
        && filter.created_before.is_none_or(|before| row.created_at < before)
}

impl Store for MemoryStore {
    fn append(&self, batch: &[Append]) -> Result<Vec<Outcome>, Fault> {
        let mut data = self.data();
        let outcomes: Vec<Outcome> = batch.iter().map(|item| data.append(item)).collect();
        data.hint(batch, &outcomes);
        Ok(outcomes)
    }

    fn read(&self, key: &SessionKey, after: u64, max: usize) -> Result<Vec<StoredEvent>, Fault> {
        let data = self.data();
        let events = data.session(key).map_or(&[][..], |session| &session.events);
        let from = usize::try_from(after).unwrap_or(usize::MAX);
        cut(events.iter().skip(from).take(max).cloned().map(Ok))
    }

    fn head(&self, key: &SessionKey) -> Result<Option<u64>, Fault> {
        Ok(self.data().session(key).map(Session::head))
    }

    fn snapshot(&self, key: &SessionKey) -> Result<Option<Snapshot>, Fault> {
        Ok(self.data().session(key).and_then(|session| session.snapshot.clone()))
    }

    fn feed(&self, feed: &Feed, after: Position, max: usize) -> Result<Vec<FeedItem>, Fault> {
        let data = self.data();
        let items =
            data.places.range((Bound::Excluded(after), Bound::Unbounded)).filter_map(|(_, (number, seq))| {
                let session = &data.sessions[number];
                let shown = match feed {
                    Feed::Everything => true,
                    Feed::Agent { tenant, agent } => {
                        session.key.tenant == *tenant && session.is_listed_for(agent)
                    }
                };
                let event = &session.events[(seq - 1) as usize];
                shown.then(|| FeedItem { key: session.key.clone(), event: event.clone() })
            });
        cut(items.take(max).map(Ok))
    }

    fn last_position(&self) -> Result<Position, Fault> {
        Ok(self.data().last_position)
    }

    fn list(&self, filter: &Filter, order: Order, after: Option<Cursor>, max: usize) -> Result<Page, Fault> {
        let data = self.data();
        let found = |(number, session): (&Number, &Session)| {
            let row = session.row.as_ref().filter(|row| matches(filter, session, row))?;
            Some(Ok(Listed { key: session.key.clone(), place: Cursor(*number), row: row.clone() }))
        };
        let from = match (order, after) {
            (Order::Oldest, Some(Cursor(after))) => (Bound::Excluded(after), Bound::Unbounded),
            (Order::Newest, Some(Cursor(after))) => (Bound::Unbounded, Bound::Excluded(after)),
            (Order::Oldest | Order::Newest, None) => (Bound::Unbounded, Bound::Unbounded),
        };
        let sessions = data.sessions.range(from);
        let (sessions, next) = match order {
            Order::Oldest => placed(sessions.filter_map(found), max, |listed| listed.place)?,
            Order::Newest => placed(sessions.rev().filter_map(found), max, |listed| listed.place)?,
        };
        Ok(Page { sessions, next })
    }

    fn inbox(
        &self,
        tenant: &str,
        agent: &str,
        kinds: u32,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<InboxPage, Fault> {
        let data = self.data();
        let from = after.map_or(Bound::Unbounded, |Cursor(after)| Bound::Excluded(after));
        let waiting = data.sessions.range((from, Bound::Unbounded)).filter_map(|(number, session)| {
            let row = session.row.as_ref().filter(|_| &*session.key.tenant == tenant)?;
            let waits = row.waits_for(agent);
            let (key, place) = (session.key.clone(), Cursor(*number));
            (waits & kinds != 0).then(|| Ok(Waiting { key, place, row: row.clone(), kinds: waits }))
        });
        let (sessions, next) = placed(waiting, max, |waiting| waiting.place)?;
        Ok(InboxPage { sessions, next })
    }

    fn row(&self, key: &SessionKey) -> Result<Option<IndexRow>, Fault> {
        Ok(self.data().session(key).and_then(|session| session.row.clone()))
    }

    fn due_after(&self, after: Option<DueCursor>, until: u64, max: usize) -> Result<DuePage, Fault> {
        let data = self.data();
        let from = after.map_or(Bound::Unbounded, |cursor| Bound::Excluded((cursor.at, cursor.place)));
        let later = data.wakes.range((from, Bound::Unbounded));
        let due: Vec<_> = later.take_while(|(at, _)| *at <= until).take(max).collect();
        let last = due.last().filter(|_| due.len() == max);
        let next = last.map(|(at, number)| DueCursor { at: *at, place: *number });
        let sessions = due.iter().map(|(at, number)| (data.sessions[number].key.clone(), *at)).collect();
        Ok(DuePage { sessions, next })
    }

    fn open_counts(&self) -> Result<Vec<OpenCount>, Fault> {
        let data = self.data();
        let mut counts = BTreeMap::new();
        for session in data.sessions.values() {
            if let Some(row) = session.row.as_ref().filter(|row| row.finished_at.is_none()) {
                *counts.entry((session.key.tenant.clone(), row.requester.clone())).or_insert(0) += 1;
            }
        }
        Ok(counts.into_iter().map(|((tenant, agent), count)| (tenant, agent, count)).collect())
    }

    fn stored_bytes(&self) -> Result<Vec<StoredBytes>, Fault> {
        let mut stored: BTreeMap<(Box<str>, Box<str>), u64> = BTreeMap::new();
        for session in self.data().sessions.values() {
            if let Some(row) = &session.row {
                let of = (session.key.tenant.clone(), row.requester.clone());
                *stored.entry(of).or_default() += session.bytes();
            }
        }
        Ok(stored.into_iter().map(|((tenant, agent), bytes)| (tenant, agent, bytes)).collect())
    }

    fn count_stored(&self) -> Result<bool, Fault> {
        Ok(false)
    }

    fn put_record(&self, record: &Record, put: Put) -> Result<bool, Fault> {
        let Record { space, tenant, key, value } = record.clone();
        let records = &mut self.data().records;
        let name = (space, tenant, key);
        if put == Put::IfAbsent && records.contains_key(&name) {
            return Ok(false);
        }
        records.insert(name, value);
        Ok(true)
    }

    fn record(&self, space: &str, tenant: &str, key: &str) -> Result<Option<Vec<u8>>, Fault> {
        Ok(self.data().records.get(&(space.into(), tenant.into(), key.into())).cloned())
    }

    fn records(
        &self,
        space: &str,
        tenant: &str,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<Record>, Fault> {
        let name = |key: &str| (space.into(), tenant.into(), key.into());
        let from = after.map_or(Bound::Included(name("")), |after| Bound::Excluded(name(after)));
        let data = self.data();
        let records = data.records.range((from, Bound::Unbounded)).map(|((space, tenant, key), value)| {
            Record { space: space.clone(), tenant: tenant.clone(), key: key.clone(), value: value.clone() }
        });
        cut(records.take_while(|found| &*found.space == space && &*found.tenant == tenant).take(max).map(Ok))
    }

    fn remove_record(&self, space: &str, tenant: &str, key: &str) -> Result<bool, Fault> {
        Ok(self.data().records.remove(&(space.into(), tenant.into(), key.into())).is_some())
    }

    fn delete_finished(&self, finished_before: u64, now: u64, max: usize) -> Result<Vec<Deleted>, Fault> {
        let mut data = self.data();
        let finished = data.sessions.iter().filter_map(|(number, session)| {
            let finished_at = session.row.as_ref()?.finished_at?;
            (finished_at < finished_before && session.wake.is_none()).then_some((finished_at, *number))
        });
        let oldest: BTreeSet<(u64, Number)> = finished.collect();
        let deleted = oldest.into_iter().take(max).map(|(finished_at, number)| {
            let session = &data.sessions[&number];
            let requester = session.row.as_ref().map_or_else(Box::default, |row| row.requester.clone());
            let bytes = session.bytes();
            Deleted { key: data.delete(number, now), finished_at, requester, bytes }
        });
        Ok(deleted.collect())
    }

    fn tombstone(&self, key: &SessionKey) -> Result<Option<u64>, Fault> {
        Ok(self.data().tombstones.get(key).copied())
    }

    fn forget_tombstones(&self, deleted_before: u64) -> Result<u64, Fault> {
        let tombstones = &mut self.data().tombstones;
        let before = tombstones.len();
        tombstones.retain(|_, deleted_at| *deleted_at >= deleted_before);
        Ok((before - tombstones.len()) as u64)
    }

    fn watch(&self, capacity: usize) -> Result<mpsc::Receiver<Hint>, Fault> {
        let (sender, receiver) = mpsc::sync_channel(capacity);
        self.data().watchers.push(sender);
        Ok(receiver)
    }

    fn sessions(
        &self,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<(Vec<SessionKey>, Option<Cursor>), Fault> {
        Ok(self.data().page(after, max, |session| Some(session.key.clone())))
    }

    fn unfinished(
        &self,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<(Vec<SessionKey>, Option<Cursor>), Fault> {
        let open = |session: &Session| session.row.as_ref().is_some_and(|row| row.finished_at.is_none());
        Ok(self.data().page(after, max, |session| open(session).then(|| session.key.clone())))
    }

    fn clear_index(&self) -> Result<(), Fault> {
        let mut data = self.data();
        data.wakes.clear();
        data.index_version = 0;
        for session in data.sessions.values_mut() {
            session.row = None;
            session.wake = None;
            session.snapshot = None;
        }
        Ok(())
    }

    fn restore_index(&self, rows: &[(SessionKey, IndexRow, Wake)]) -> Result<(), Fault> {
        let mut data = self.data();
        for (key, row, wake) in rows {
            if let Some(number) = data.numbers.get(key).copied() {
                // Without one before, the new row says which agents there are.
                data.sessions.get_mut(&number).expect("every number has a session").row = None;
                data.write_row(number, row);
                data.write_wake(number, *wake);
            }
        }
        Ok(())
    }

    fn index_version(&self) -> Result<u32, Fault> {
        Ok(self.data().index_version)
    }

    fn set_index_version(&self, version: u32) -> Result<(), Fault> {
        self.data().index_version = version;
        Ok(())
    }

    fn probe(&self) -> Result<(), Fault> {
        Ok(())
    }
}
