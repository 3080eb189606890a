//! A store that lives as long as the process, for tests and the simulator.
//!
//! Ordered maps only: the same calls give the same answers, always. A clone is another handle on the same data and the
//! same slot; [`MemoryStore::writer`] gives a writer a slot of its own, so that several nodes can share one store.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use crate::fault::Fault;
use crate::log::{
    Append, Change, Cursor, Deleted, Done, DueCursor, DuePage, Feed, FeedItem, Filter, InboxPage, IndexRow,
    Listed, News, OpenCount, Order, Outcome, Page, Record, SessionKey, Snapshot, Space, Store, StoredBytes,
    StoredEvent, Tombstone, Waiting, Wake, cut, placed,
};
use crate::place::{Place, Position, Slot};

/// Logs and rows in memory. Nothing is ever lost, except with the process.
#[derive(Clone, Default)]
pub struct MemoryStore {
    data: Arc<Mutex<Data>>,
    slot: Slot,
    /// Whether others have slots of their own.
    shared: bool,
    /// The last stamp of everything that was read through this handle. As long as a writer has it, it is there.
    seen: Arc<AtomicU64>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        MemoryStore::default()
    }

    /// The same data for a writer with a slot of its own.
    pub fn writer(&self, slot: Slot) -> MemoryStore {
        self.holding(slot, 0)
    }

    /// The same writer in another slot, with what it has seen until now.
    pub fn moved(&self, slot: Slot) -> MemoryStore {
        self.holding(slot, self.seen.load(Ordering::Acquire))
    }

    fn holding(&self, slot: Slot, seen: u64) -> MemoryStore {
        let seen = Arc::new(AtomicU64::new(seen));
        self.data().writers.push((slot, Arc::downgrade(&seen)));
        MemoryStore { data: Arc::clone(&self.data), slot, shared: true, seen }
    }

    /// What is read is seen: whatever is appended from now on comes after it.
    fn see(&self, stamp: u64) {
        self.seen.fetch_max(stamp, Ordering::AcqRel);
    }

    fn stamps(&self) -> Writer {
        Writer { slot: self.slot, seen: self.seen.load(Ordering::Acquire) }
    }

    fn note(&self, data: &mut Data, done: Done) {
        if self.shared {
            data.place(self.stamps(), Item::Note(done));
        }
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
    /// Where the events of all slots stand, and what else was done, by their stamps.
    places: BTreeMap<(u64, Slot), (Position, Item)>,
    wakes: BTreeSet<(u64, Number)>,
    tombstones: BTreeMap<SessionKey, u64>,
    records: BTreeMap<RecordName, Vec<u8>>,
    last_number: Number,
    /// The last number and stamp of each slot.
    last: BTreeMap<Slot, (u64, u64)>,
    /// Who writes to which slot, or did.
    writers: Vec<(Slot, Weak<AtomicU64>)>,
    index_version: u32,
}

/// What stands at a position.
#[derive(Clone)]
enum Item {
    /// An event of a session, by its number there.
    Event(Number, u64),
    Note(Done),
}

/// Who appends: to which slot, and after what it has seen.
#[derive(Clone, Copy)]
struct Writer {
    slot: Slot,
    seen: u64,
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

    /// Give something the next position of a slot, and a stamp that is later than all that it could rest on.
    fn place(&mut self, by: Writer, item: Item) -> (Position, u64) {
        let (number, stamp) = self.last.entry(by.slot).or_default();
        *number += 1;
        *stamp = by.seen.max(*stamp) + 1;
        let (position, stamp) = (Position { slot: by.slot, number: *number }, *stamp);
        self.places.insert((stamp, by.slot), (position, item));
        (position, stamp)
    }

    /// What stands after a place, by its stamps.
    fn after<'a>(&'a self, place: &'a Place) -> impl Iterator<Item = (u64, Position, &'a Item)> {
        // No stamp is smaller than its number.
        let from = self.last.keys().map(|slot| place.number(*slot)).min().unwrap_or(0);
        let later = self.places.range((Bound::Excluded((from, Slot(u16::MAX))), Bound::Unbounded));
        let items = later.map(|((stamp, _), (position, item))| (*stamp, *position, item));
        items.filter(move |(_, position, _)| place.is_before(*position))
    }

    fn append(&mut self, item: &Append, by: Writer) -> Outcome {
        if let Some(&deleted_at) = self.tombstones.get(&item.key) {
            return Outcome::Tombstone { deleted_at };
        }
        let known = self.numbers.get(&item.key).copied();
        let head = known.map_or(0, |number| self.sessions[&number].head());
        if item.expected != head || (known.is_none() && item.events.is_empty()) {
            return Outcome::Conflict { head };
        }
        let number = known.unwrap_or_else(|| self.start(&item.key));
        // What its session says was seen as well, whether it was read or kept as a snapshot.
        let before = self.sessions[&number].events.last().map_or(0, |event| event.stamp);
        let by = Writer { seen: by.seen.max(before), ..by };
        let (last, stamp) = self.last.get(&by.slot).copied().unwrap_or_default();
        let (first, stamp) = (Position { slot: by.slot, number: last + 1 }, by.seen.max(stamp) + 1);
        for (seq, bytes) in (head + 1..).zip(&item.events) {
            let (position, stamp) = self.place(by, Item::Event(number, seq));
            let event = StoredEvent { seq, position, stamp, bytes: bytes.clone() };
            self.sessions.get_mut(&number).expect("every number has a session").events.push(event);
        }
        let session = self.sessions.get_mut(&number).expect("every number has a session");
        if let Some(bytes) = &item.snapshot {
            session.snapshot = Some(Snapshot { seq: session.head(), bytes: bytes.clone() });
        }
        if let Some(row) = &item.row {
            self.write_row(number, row);
        }
        self.write_wake(number, item.wake);
        Outcome::Appended { first, stamp }
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

    fn delete(&mut self, number: Number, now: u64) -> SessionKey {
        self.write_wake(number, Wake::Never);
        let session = self.sessions.remove(&number).expect("every number has a session");
        self.numbers.remove(&session.key);
        for event in &session.events {
            self.places.remove(&(event.stamp, event.position.slot));
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
        Ok(batch.iter().map(|item| data.append(item, self.stamps())).collect())
    }

    fn read(&self, key: &SessionKey, after: u64, max: usize) -> Result<Vec<StoredEvent>, Fault> {
        let data = self.data();
        let events = data.session(key).map_or(&[][..], |session| &session.events);
        let from = usize::try_from(after).unwrap_or(usize::MAX);
        let read = cut(events.iter().skip(from).take(max).cloned().map(Ok))?;
        read.iter().for_each(|event| self.see(event.stamp));
        Ok(read)
    }

    fn head(&self, key: &SessionKey) -> Result<Option<u64>, Fault> {
        Ok(self.data().session(key).map(Session::head))
    }

    fn snapshot(&self, key: &SessionKey) -> Result<Option<Snapshot>, Fault> {
        Ok(self.data().session(key).and_then(|session| session.snapshot.clone()))
    }

    fn feed(&self, feed: &Feed, after: &Place, max: usize) -> Result<Vec<FeedItem>, Fault> {
        let data = self.data();
        let items = data.after(after).filter_map(|(_, _, item)| {
            let Item::Event(number, seq) = item else { return None };
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

    fn last_place(&self) -> Result<Place, Fault> {
        let mut place = Place::default();
        for (slot, (number, _)) in &self.data().last {
            place.reach(Position { slot: *slot, number: *number });
        }
        Ok(place)
    }

    fn slot(&self) -> Option<Slot> {
        self.shared.then_some(self.slot)
    }

    fn live(&self) -> Result<Vec<Slot>, Fault> {
        let mut data = self.data();
        data.writers.retain(|(_, writer)| writer.strong_count() > 0);
        Ok(data.writers.iter().map(|(slot, _)| *slot).collect::<BTreeSet<_>>().into_iter().collect())
    }

    fn news(&self, after: &Place, max: usize) -> Result<Vec<News>, Fault> {
        let data = self.data();
        let others = data.after(after).filter(|(_, position, _)| position.slot != self.slot);
        let news = others.map(|(stamp, position, item)| {
            let what = match item {
                Item::Note(done) => done.clone(),
                Item::Event(number, seq) => {
                    let session = &data.sessions[number];
                    let bytes = session.events[(seq - 1) as usize].bytes.clone();
                    let listed = |row: &IndexRow| (row.agents.clone(), row.requester.clone());
                    let (agents, requester) = session.row.as_ref().map(listed).unwrap_or_default();
                    Done::Appended { key: session.key.clone(), seq: *seq, bytes, agents, requester }
                }
            };
            News { position, stamp, what }
        });
        let news = cut(news.take(max).map(Ok))?;
        news.iter().for_each(|news| self.see(news.stamp));
        Ok(news)
    }

    fn say(&self, bytes: &[u8]) -> Result<(), Fault> {
        self.note(&mut self.data(), Done::Said(bytes.to_vec()));
        Ok(())
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

    fn change_records(&self, changes: &[Change]) -> Result<bool, Fault> {
        let mut data = self.data();
        if !changes.iter().all(|change| change.over.is(data.records.get(&change.name).map(Vec::as_slice))) {
            return Ok(false);
        }
        for Change { name, value, .. } in changes.iter().cloned() {
            let (space, tenant, key) = name.clone();
            match value {
                Some(value) => data.records.insert(name, value),
                None => data.records.remove(&name),
            };
            self.note(&mut data, Done::Record { space, tenant, key });
        }
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

    fn spaces(&self) -> Result<Vec<Space>, Fault> {
        let mut spaces: Vec<_> =
            self.data().records.keys().map(|(space, tenant, _)| (space.clone(), tenant.clone())).collect();
        spaces.dedup();
        Ok(spaces)
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
        let deleted: Vec<Deleted> = deleted.collect();
        deleted.iter().for_each(|deleted| self.note(&mut data, Done::Deleted(deleted.key.clone())));
        Ok(deleted)
    }

    fn tombstone(&self, key: &SessionKey) -> Result<Option<u64>, Fault> {
        Ok(self.data().tombstones.get(key).copied())
    }

    fn tombstones(&self, after: Option<&Tombstone>, max: usize) -> Result<Vec<Tombstone>, Fault> {
        let place =
            |found: &Tombstone| (found.deleted_at, found.key.session.clone(), found.key.tenant.clone());
        let after = after.map(place);
        let data = self.data();
        let found = data
            .tombstones
            .iter()
            .map(|(key, deleted_at)| Tombstone { key: key.clone(), deleted_at: *deleted_at });
        let mut found: Vec<Tombstone> =
            found.filter(|found| after.as_ref().is_none_or(|after| place(found) > *after)).collect();
        found.sort_by_key(place);
        found.truncate(max);
        Ok(found)
    }

    fn put_tombstones(&self, tombstones: &[Tombstone]) -> Result<(), Fault> {
        let mut data = self.data();
        for Tombstone { key, deleted_at } in tombstones {
            if !data.numbers.contains_key(key) {
                data.tombstones.entry(key.clone()).or_insert(*deleted_at);
            }
        }
        Ok(())
    }

    fn forget_tombstones(&self, deleted_before: u64) -> Result<u64, Fault> {
        let tombstones = &mut self.data().tombstones;
        let before = tombstones.len();
        tombstones.retain(|_, deleted_at| *deleted_at >= deleted_before);
        Ok((before - tombstones.len()) as u64)
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

    fn set_index_version(&self, version: u32) -> Result<bool, Fault> {
        self.data().index_version = version;
        Ok(true)
    }

    fn probe(&self) -> Result<(), Fault> {
        Ok(())
    }
}
