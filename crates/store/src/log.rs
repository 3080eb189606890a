//! The words of the store and the trait that every store serves.
//!
//! Events are opaque bytes. The trait is blocking and object-safe; whoever calls it brings the threads.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use crate::fault::Fault;
use crate::place::{Place, Position, Slot};

/// The key of a session: tenants are namespaces, so both parts are always needed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    /// The namespace.
    pub tenant: Box<str>,
    /// The session's id within it.
    pub session: Box<str>,
}

impl SessionKey {
    /// The key of `session` in `tenant`.
    pub fn new(tenant: impl Into<Box<str>>, session: impl Into<Box<str>>) -> Self {
        SessionKey { tenant: tenant.into(), session: session.into() }
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.tenant, self.session)
    }
}

/// How many bytes are read for one page. A page ends with the item that reaches them, so that it always has one.
pub const PAGE_BYTES_MAX: usize = 256 * 1024;

/// The items of one page: as many as there are, up to the one that reaches [`PAGE_BYTES_MAX`].
pub(crate) fn cut<T: Weight, E>(items: impl IntoIterator<Item = Result<T, E>>) -> Result<Vec<T>, E> {
    let (mut page, mut bytes) = (Vec::new(), 0);
    for item in items {
        let item = item?;
        bytes += item.weight();
        page.push(item);
        if bytes >= PAGE_BYTES_MAX {
            break;
        }
    }
    Ok(page)
}

/// A page of items that have a place, cut in the same way, and where the next one begins if there is one.
pub(crate) fn placed<T: Weight, E>(
    items: impl IntoIterator<Item = Result<T, E>>,
    max: usize,
    place: impl Fn(&T) -> Cursor,
) -> Result<(Vec<T>, Option<Cursor>), E> {
    let mut items = items.into_iter();
    let page = cut(items.by_ref().take(max))?;
    let more = items.next().transpose()?.is_some();
    let next = page.last().map(place).filter(|_| more);
    Ok((page, next))
}

/// Whether a page that was asked for with `max` is full. One that is not is the last; after one that is, there may be more.
pub fn is_full<T: Weight>(page: &[T], max: usize) -> bool {
    page.len() >= max || page.iter().map(Weight::weight).sum::<usize>() >= PAGE_BYTES_MAX
}

/// What is read in pages: how many bytes it takes on one.
pub trait Weight {
    /// About as many as it has in memory.
    fn weight(&self) -> usize;
}

impl Weight for StoredEvent {
    fn weight(&self) -> usize {
        self.bytes.len()
    }
}

impl Weight for FeedItem {
    fn weight(&self) -> usize {
        self.event.weight()
    }
}

impl Weight for Record {
    fn weight(&self) -> usize {
        self.key.len() + self.value.len()
    }
}

impl Weight for Listed {
    fn weight(&self) -> usize {
        self.key.session.len() + self.row.weight()
    }
}

impl Weight for Waiting {
    fn weight(&self) -> usize {
        self.key.session.len() + self.row.weight()
    }
}

impl Weight for IndexRow {
    fn weight(&self) -> usize {
        let agents = self.agents.iter().chain(self.waits.iter().map(|waits| &waits.agent));
        self.summary.len() + self.requester.len() + agents.map(|agent| agent.len()).sum::<usize>()
    }
}

/// New events of one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    /// Whose log.
    pub key: SessionKey,
    /// The sequence number of the last event that the writer knows; 0 for a new session.
    pub expected: u64,
    /// The new events; the first gets sequence number `expected + 1`. Without any, only the row, the wake time and the
    /// snapshot change; that needs a session that is there, and is a conflict otherwise.
    pub events: Vec<Vec<u8>>,
    /// The index row, if a listed fact changed.
    pub row: Option<IndexRow>,
    /// When the session next needs to be woken, if that changed. It is kept with the row, and only if there is one.
    pub wake: Wake,
    /// The writer's state after the last event of this append, opaque and disposable. Replaces the one before.
    pub snapshot: Option<Vec<u8>>,
}

/// What an append says about the time to wake a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Wake {
    /// As before.
    #[default]
    Unchanged,
    /// Not at all.
    Never,
    /// At this time, in milliseconds of the Unix epoch.
    At(u64),
}

/// What became of one [`Append`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is durable.
    Appended {
        /// The position of its first event; the others follow without a hole. Without events, where the next would stand.
        first: Position,
        /// The stamp of its first event; those of the others are later.
        stamp: u64,
    },
    /// Someone else was first: nothing of this item was kept.
    Conflict {
        /// The sequence number of the last event in the log now.
        head: u64,
    },
    /// The session was deleted by retention and its id is not free yet: nothing of this item was kept.
    Tombstone {
        /// When it was deleted.
        deleted_at: u64,
    },
}

/// What a list shows of a session, and what it can be found by. Written only when one of these changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexRow {
    /// What the session is about, a small number that the writer chooses.
    pub kind: u8,
    /// Where it stands, a small number that the writer chooses.
    pub status: u8,
    /// The agent that started it.
    pub requester: Box<str>,
    /// The agents whose lists show it, the requester among them. Fixed when the session starts: the first row
    /// decides, what later ones say here has no effect.
    pub agents: Vec<Box<str>>,
    /// When it started.
    pub created_at: u64,
    /// When it ended, if it has. Only sessions that have one are counted as finished, and only they are ever deleted, once
    /// they have no wake time any more.
    pub finished_at: Option<u64>,
    /// What else the list shows, opaque to the store.
    pub summary: Vec<u8>,
    /// For which agents the session waits: whose inboxes show it. Every row can change it, and the agents need not be
    /// among `agents`.
    pub waits: Vec<Waits>,
}

impl IndexRow {
    /// The kinds for which the session waits for `agent`, 0 if it does not.
    pub fn waits_for(&self, agent: &str) -> u32 {
        kinds_for(&self.waits, agent)
    }
}

/// That a session waits for an agent, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    /// For whom.
    pub agent: Box<str>,
    /// A set of small numbers that the writer chooses, one bit for each.
    pub kinds: u32,
}

/// An agent that is named twice is waited for because of both.
pub(crate) fn kinds_for(waits: &[Waits], agent: &str) -> u32 {
    waits.iter().filter(|waits| &*waits.agent == agent).fold(0, |kinds, waits| kinds | waits.kinds)
}

/// A writer's state, kept beside the log so that it need not be made from all events again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The last event that it includes.
    pub seq: u64,
    /// The very bytes that were appended.
    pub bytes: Vec<u8>,
}

/// An event as it was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its number in the session's log; the first is 1.
    pub seq: u64,
    /// Its place among all events.
    pub position: Position,
    /// Later than that of everything that it could rest on: of what stands before it in its session or in its slot, and of
    /// what its writer had read. Where there is one slot, the number of its position.
    pub stamp: u64,
    /// The very bytes that were appended.
    pub bytes: Vec<u8>,
}

/// Which part of the feed of all events to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Feed {
    /// Every event of every tenant.
    Everything,
    /// The events of the sessions that one agent's list shows.
    Agent {
        /// The agent's namespace.
        tenant: Box<str>,
        /// The agent.
        agent: Box<str>,
    },
}

/// An event on the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedItem {
    /// Whose log it is in.
    pub key: SessionKey,
    /// The event.
    pub event: StoredEvent,
}

/// Something that another writer did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// Its place among all events.
    pub position: Position,
    /// As that of an event: later than everything that it could rest on.
    pub stamp: u64,
    /// What was done.
    pub what: Done,
}

/// What a writer can do that others must hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// An event was appended.
    Appended {
        /// Whose log it is in.
        key: SessionKey,
        /// Its number there.
        seq: u64,
        /// The very bytes that were appended.
        bytes: Vec<u8>,
        /// The agents whose lists show the session.
        agents: Vec<Box<str>>,
        /// The agent that started it.
        requester: Box<str>,
    },
    /// A session was deleted by retention.
    Deleted(SessionKey),
    /// A record was written or removed.
    Record {
        /// What it is one of.
        space: Box<str>,
        /// Whose it is.
        tenant: Box<str>,
        /// Its key within the two.
        key: Box<str>,
    },
    /// Somebody said something to the other writers.
    Said(Vec<u8>),
}

/// How long a writer that does not look can still hear of everything that was not appended.
pub const NEWS_KEPT: Duration = Duration::from_secs(600);

impl Weight for News {
    fn weight(&self) -> usize {
        match &self.what {
            Done::Appended { bytes, agents, .. } => {
                bytes.len() + agents.iter().map(|agent| agent.len()).sum::<usize>()
            }
            Done::Deleted(key) => key.session.len(),
            Done::Record { key, .. } => key.len(),
            Done::Said(bytes) => bytes.len(),
        }
    }
}

/// Which sessions to list. Every part that is set must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of this tenant.
    pub tenant: Option<Box<str>>,
    /// On this agent's list.
    pub agent: Option<Box<str>>,
    /// With one of these statuses, one bit for each number from 0 to 63; 0 is any status.
    pub statuses: u64,
    /// Of this kind.
    pub kind: Option<u8>,
    /// Started at this time or later.
    pub created_from: Option<u64>,
    /// Started before this time.
    pub created_before: Option<u64>,
}

/// In which order to list: by the order in which the sessions were first written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The newest first.
    #[default]
    Newest,
    /// The oldest first.
    Oldest,
}

/// Where a page ended. Stays valid while sessions come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor(pub u64);

/// One session on a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Which session.
    pub key: SessionKey,
    /// Where a page that ends with it ends.
    pub place: Cursor,
    /// Its index row.
    pub row: IndexRow,
}

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The sessions, in order.
    pub sessions: Vec<Listed>,
    /// Where the next page begins, if there may be one. A page can be short, even empty, and still have a next one: a
    /// store looks at a bounded number of sessions for one page, and reads a bounded number of bytes.
    pub next: Option<Cursor>,
}

/// One session in an agent's inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Which session.
    pub key: SessionKey,
    /// Where a page that ends with it ends.
    pub place: Cursor,
    /// Its index row.
    pub row: IndexRow,
    /// All kinds for which it waits for the agent, also those that were not asked for.
    pub kinds: u32,
}

/// A page of an inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxPage {
    /// The sessions, the oldest first.
    pub sessions: Vec<Waiting>,
    /// Where the next page begins, if there is one. A page that was cut by bytes is shorter than what was asked for.
    pub next: Option<Cursor>,
}

/// Where a page of what is due ended. Stays valid while wake times come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueCursor {
    /// The wake time of the last session on the page.
    pub at: u64,
    /// Its place among those with the same one.
    pub place: u64,
}

/// A page of what is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuePage {
    /// The sessions and their wake times, the earliest first.
    pub sessions: Vec<(SessionKey, u64)>,
    /// Where the next page begins, if the page is full.
    pub next: Option<DueCursor>,
}

/// A small keyed row beside the sessions: an agent, a policy, a nonce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What it is one of, such as `agent` or `policy`.
    pub space: Box<str>,
    /// Whose it is; empty for the server's own.
    pub tenant: Box<str>,
    /// Its key within the two.
    pub key: Box<str>,
    /// What it says.
    pub value: Vec<u8>,
}

/// Whether a record may replace one that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// Replace it.
    Replace,
    /// Leave it.
    IfAbsent,
}

/// A change of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What it is one of, whose it is, and its key.
    pub name: (Box<str>, Box<str>, Box<str>),
    /// What must be there for it.
    pub over: Over,
    /// What it says from then on; none removes it.
    pub value: Option<Vec<u8>>,
}

/// What must be there for a record to be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Over {
    /// Whatever it is.
    Anything,
    /// Nothing.
    Nothing,
    /// Something.
    Something,
    /// This.
    Value(Vec<u8>),
}

impl Change {
    /// Write a record where this was read before.
    pub fn since(record: Record, read: Option<Vec<u8>>) -> Change {
        let Record { space, tenant, key, value } = record;
        let over = read.map_or(Over::Nothing, Over::Value);
        Change { name: (space, tenant, key), over, value: Some(value) }
    }

    /// Remove a record, if it is there.
    pub fn remove(space: &str, tenant: &str, key: &str) -> Change {
        Change { name: (space.into(), tenant.into(), key.into()), over: Over::Something, value: None }
    }
}

impl Over {
    /// Whether it is so.
    pub(crate) fn is(&self, found: Option<&[u8]>) -> bool {
        match self {
            Over::Anything => true,
            Over::Nothing => found.is_none(),
            Over::Something => found.is_some(),
            Over::Value(value) => found == Some(value),
        }
    }
}

/// How a writer stands among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// How many there are, itself included.
    pub nodes: u64,
    /// How much that others did it has not read.
    pub behind: u64,
    /// How often it was found out what became of an append in doubt, since it began.
    pub doubts_settled: u64,
}

impl Default for Standing {
    /// Alone.
    fn default() -> Self {
        Standing { nodes: 1, behind: 0, doubts_settled: 0 }
    }
}

/// What a writer wants of something that comes at a rate, and that all writers share: so many at once, and one more after each
/// interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Whose it is, and which of its rates.
    pub of: (Box<str>, Box<str>, u8),
    /// The time between two, in nanoseconds.
    pub every: u64,
    /// How many may come at once.
    pub burst: u64,
    /// How many it still has of what it was lent.
    pub has: u64,
    /// How many it wants in addition.
    pub wants: u64,
    /// How many were used without having been lent.
    pub owes: u64,
}

/// What was lent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lent {
    /// So many.
    pub count: u64,
    /// When there will be one, in nanoseconds, if there was none.
    pub after: u64,
}

/// How long a writer may keep what it was lent. What it does not use until then is lost.
pub const LENT_FOR: Duration = Duration::from_secs(60);

/// What records are of, and whose: a space and a tenant.
pub type Space = (Box<str>, Box<str>);

/// What stays of a session that was deleted: its id is not free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tombstone {
    /// Which session.
    pub key: SessionKey,
    /// When it was deleted.
    pub deleted_at: u64,
}

/// A session that retention deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// Which session.
    pub key: SessionKey,
    /// When it had ended.
    pub finished_at: u64,
    /// Who had started it.
    pub requester: Box<str>,
    /// How many bytes its events had.
    pub bytes: u64,
}

/// How many bytes the events of the sessions that a requester started have: tenant, agent, bytes.
pub type StoredBytes = (Box<str>, Box<str>, u64);

/// How many unfinished sessions a requester has: tenant, agent, count.
pub type OpenCount = (Box<str>, Box<str>, u64);

/// Durable per-session logs, with the rows that find them.
pub trait Store: Send + Sync {
    /// Append all items in one durable commit and say for each what became of it, in the order given. Returns only
    /// when it is on disk. Calls from several threads share a commit. Two items for the same session in one batch
    /// are taken one after the other.
    ///
    /// On a fault nothing may be assumed: the items may be there or not, and reading the heads settles it.
    fn append(&self, batch: &[Append]) -> Result<Vec<Outcome>, Fault>;

    /// The events of a session after sequence number `after`, at most `max` of them, cut by bytes: [`is_full`] says
    /// whether there may be more. Empty if there are none, or no such session. An event that does not match its checksum, or is missing in the middle, is a fault.
    fn read(&self, key: &SessionKey, after: u64, max: usize) -> Result<Vec<StoredEvent>, Fault>;

    /// The last sequence number of a session, if there is such a session.
    fn head(&self, key: &SessionKey) -> Result<Option<u64>, Fault>;

    /// The newest snapshot of a session. A damaged one is as good as none, never a fault: the log is the truth, and the
    /// state can be made from it.
    fn snapshot(&self, key: &SessionKey) -> Result<Option<Snapshot>, Fault>;

    /// The events after `after` in the order of their stamps, at most `max` of them, cut by bytes. The events of a slot and
    /// of a session come in their order, and nothing comes before what it rests on.
    fn feed(&self, feed: &Feed, after: &Place, max: usize) -> Result<Vec<FeedItem>, Fault>;

    /// The place after the last event of all.
    fn last_place(&self) -> Result<Place, Fault>;

    /// The slot that this writer appends to, if others may append to this store as well, each to a slot of its own. None
    /// where everything that is appended passes through here.
    fn slot(&self) -> Option<Slot> {
        None
    }

    /// The slots of the writers that are there, as far as is known; none where there is one writer.
    fn live(&self) -> Result<Vec<Slot>, Fault> {
        Ok(Vec::new())
    }

    /// How this writer stands among the others, as it was known a moment ago.
    fn standing(&self) -> Standing {
        Standing::default()
    }

    /// Return when nothing that a failed append left in doubt can take effect any more: it has, or never will.
    fn settle(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// What other writers did after a place, in the order of its stamps, at most `max` of it, cut by bytes. Whatever was
    /// acknowledged before the call is on a page that is not full.
    ///
    /// A writer that has lost its slot and goes on in another is told so once, by [`Fault::SlotTaken`], and nothing is appended
    /// in the new slot before it was refused once: what was in it may not have been heard, and will not be told any more. Whatever
    /// rests on news is to be read again.
    fn news(&self, _after: &Place, _max: usize) -> Result<Vec<News>, Fault> {
        Ok(Vec::new())
    }

    /// Call this when another writer has done something, as soon as that is known. It must not block. Nothing may rest on it:
    /// not every call comes.
    fn on_hint(&self, _wake: Box<dyn Fn() + Send + Sync>) {}

    /// Whether what others do is hinted at, as far as is known.
    fn hints(&self) -> bool {
        false
    }

    /// Let the other writers hear something that is not kept. Nobody hears it where there is one writer.
    fn say(&self, _bytes: &[u8]) -> Result<(), Fault> {
        Ok(())
    }

    /// Lend what was asked for, as far as there is enough of it. Over all writers, never more is used in any time than may come
    /// at once and what the time brings, if each keeps nothing for longer than [`LENT_FOR`]. Where there is one writer, what it
    /// counts itself is all that there is.
    fn lend(&self, asks: &[Ask]) -> Result<Vec<Lent>, Fault> {
        Ok(asks.iter().map(|ask| Lent { count: ask.wants, after: 0 }).collect())
    }

    /// A page of sessions, at most `max` of them. The cost of a page depends on its size, not on how many came before
    /// or how few match.
    fn list(&self, filter: &Filter, order: Order, after: Option<Cursor>, max: usize) -> Result<Page, Fault>;

    /// A page of the sessions that wait for an agent for at least one of `kinds`, at most `max` of them, in the order in
    /// which they were first written. The cost of a page depends on its size, not on what else the agent has or had.
    fn inbox(
        &self,
        tenant: &str,
        agent: &str,
        kinds: u32,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<InboxPage, Fault>;

    /// The index row of one session.
    fn row(&self, key: &SessionKey) -> Result<Option<IndexRow>, Fault>;

    /// A page of the sessions that are to be woken at `until` or earlier, the earliest first, at most `max` of them.
    fn due_after(&self, after: Option<DueCursor>, until: u64, max: usize) -> Result<DuePage, Fault>;

    /// The first page of what is due.
    fn due(&self, until: u64, max: usize) -> Result<Vec<(SessionKey, u64)>, Fault> {
        self.due_after(None, until, max).map(|page| page.sessions)
    }

    /// How many unfinished sessions each requester has, in the order of their names.
    fn open_counts(&self) -> Result<Vec<OpenCount>, Fault>;

    /// How many bytes are stored of each requester's sessions, in the order of their names. Reads what was appended since
    /// they were last counted: much after an upgrade, once, and otherwise as little as [`Store::count_stored`] leaves.
    fn stored_bytes(&self) -> Result<Vec<StoredBytes>, Fault>;

    /// Go on counting what is stored, if much was appended since; costs a few milliseconds. Says whether there may be more.
    fn count_stored(&self) -> Result<bool, Fault>;

    /// Change records, durably: all of them, or none if something else is there than must be for one. Each is named once.
    fn change_records(&self, changes: &[Change]) -> Result<bool, Fault>;

    /// Write a record, durably. False if it was to be left and something is there.
    fn put_record(&self, record: &Record, put: Put) -> Result<bool, Fault> {
        let Record { space, tenant, key, value } = record.clone();
        let over = match put {
            Put::Replace => Over::Anything,
            Put::IfAbsent => Over::Nothing,
        };
        self.change_records(&[Change { name: (space, tenant, key), over, value: Some(value) }])
    }

    /// Read a record.
    fn record(&self, space: &str, tenant: &str, key: &str) -> Result<Option<Vec<u8>>, Fault>;

    /// The records of a space and tenant in the order of their keys, after `after`, at most `max` of them, cut by bytes.
    fn records(
        &self,
        space: &str,
        tenant: &str,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<Record>, Fault>;

    /// Every space and tenant that has records, in the order of their names. Reads the names of all records.
    fn spaces(&self) -> Result<Vec<Space>, Fault>;

    /// Remove a record, durably. False if there was none.
    fn remove_record(&self, space: &str, tenant: &str, key: &str) -> Result<bool, Fault> {
        self.change_records(&[Change::remove(space, tenant, key)])
    }

    /// Delete whole sessions that finished before `finished_before` and are not to be woken any more, the oldest first, at
    /// most `max` of them, and leave a tombstone with the time `now` for each.
    fn delete_finished(&self, finished_before: u64, now: u64, max: usize) -> Result<Vec<Deleted>, Fault>;

    /// When a session was deleted, if its tombstone is still there.
    fn tombstone(&self, key: &SessionKey) -> Result<Option<u64>, Fault>;

    /// The tombstones after `after`, at most `max` of them, the oldest first; those of one time in the order of their session
    /// ids and tenants.
    fn tombstones(&self, after: Option<&Tombstone>, max: usize) -> Result<Vec<Tombstone>, Fault>;

    /// Write tombstones, durably. Where there is one already, or a session, what is there stays.
    fn put_tombstones(&self, tombstones: &[Tombstone]) -> Result<(), Fault>;

    /// Remove the tombstones of before `deleted_before`; their ids are free again. Says how many there were.
    fn forget_tombstones(&self, deleted_before: u64) -> Result<u64, Fault>;

    /// The keys of all sessions in the order in which they were first written, for rebuilding the index.
    fn sessions(&self, after: Option<Cursor>, max: usize)
    -> Result<(Vec<SessionKey>, Option<Cursor>), Fault>;

    /// The keys of the sessions whose index rows say that they have not ended, in the order in which they were first
    /// written, for making their rows again.
    fn unfinished(
        &self,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<(Vec<SessionKey>, Option<Cursor>), Fault>;

    /// Remove every index row, wake time and snapshot, and set the index version to 0. The logs stay.
    fn clear_index(&self) -> Result<(), Fault>;

    /// Write index rows and wake times without touching the logs: fills an index that was cleared, and replaces the rows
    /// of these sessions, their agents and their places in inboxes included, in one that was not. Nothing checks that a
    /// session is still as its row says; while others append to it, append the row without events instead.
    fn restore_index(&self, rows: &[(SessionKey, IndexRow, Wake)]) -> Result<(), Fault>;

    /// What was last set as the version of the index, 0 if nothing was. The number is the writer's: it tells whether rows
    /// were written by a release that knew less.
    fn index_version(&self) -> Result<u32, Fault>;

    /// Set the version of the index, durably. False if another writer that is there writes rows of an older one: they are to be made
    /// again when it is gone.
    fn set_index_version(&self, version: u32) -> Result<bool, Fault>;

    /// Whether another writer that is there writes rows of an older version.
    fn index_is_older_elsewhere(&self, _version: u32) -> Result<bool, Fault> {
        Ok(false)
    }

    /// Write a copy of everything that was acknowledged to a file that is not there yet, durably, while others go on. It is
    /// consistent in itself: what was appended meanwhile is in it or not, whole. Not every store has one.
    fn copy_to(&self, _file: &Path) -> Result<(), Fault> {
        let source = std::io::Error::other("this store makes no copies of itself");
        Err(Fault::Unavailable { doing: "copying the store", source: source.into() })
    }

    /// Write something small, durably: shows that the store can take an append now.
    fn probe(&self) -> Result<(), Fault>;

    /// The time that all writers go by, in milliseconds of the Unix epoch; none where it is the machine's.
    fn time(&self) -> Result<Option<u64>, Fault> {
        Ok(None)
    }

    /// Where it is and what this writer is there, for the operator, if that is not a directory. Names no secret.
    fn about(&self) -> Option<String> {
        None
    }
}
