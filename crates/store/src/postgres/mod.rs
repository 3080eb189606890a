//! The store of several nodes: logs and rows in a PostgreSQL database, to which each node appends in a slot of its own.
//!
//! - `schema-1.sql`: the tables, and the functions that write to them
//! - `schema`: making them, step by step
//! - [`database`]: which one it is, and whether it will do
//! - `slot`: being there as a node, and which others are
//! - `heart`: being seen there, again and again
//! - `link`: connections
//! - `append`: a batch as the database takes it
//! - `hint`: letting other nodes know that there is something to read
//! - `read`: what is asked of it
//! - `bare`: the database without the store, for benchmarks
//!
//! An append is one call of one function, which commits by itself. A call whose answer is lost, or does not come in time, is
//! looked for: its number is in the slot's row if it was kept, and else it is sent again.
//!
//! Nothing waits for the database for longer than the patience, and nothing is read of one that has not seen this node for half
//! of its lease: it may be a former primary.

mod append;
mod bare;
pub mod database;
mod heart;
mod hint;
mod link;
mod read;
mod schema;
mod slot;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use tokio_postgres::Row;
use tokio_postgres::error::{DbError, Severity, SqlState};

use self::append::Races;
pub use self::bare::Bare;
use self::database::About;
pub use self::database::Database;
use self::heart::Heart;
use self::hint::Hints;
use self::link::{AT_ITS_LEISURE, Error, Link, Pool, Session, Value, values};
pub use self::schema::{migrate, remove};
pub use self::slot::{Node, Says, nodes};
use crate::fault::Fault;
use crate::log::{
    Append, Ask, Change, Cursor, Deleted, DueCursor, DuePage, Feed, FeedItem, Filter, InboxPage, IndexRow,
    LENT_FOR, Lent, News, OpenCount, Order, Outcome, Over, Page, Record, SessionKey, Snapshot, Space,
    Standing, Store, StoredBytes, StoredEvent, Tombstone, Wake, cut,
};
use crate::number::{natural, signed};
use crate::place::{Place, Position, Slot};

/// Another node has taken the slot; a batch has another number than the next.
const TAKEN: &str = "HO001";
const OUT_OF_TURN: &str = "HO002";

/// A lock could not be had in time, or two waited for each other: nothing was done.
const LOCKED: &str = "55P03";
const DEADLOCKED: &str = "40P01";

/// How much longer than anything else it may take to begin, and to count everything.
const LONG_PATIENCES: u32 = 6;

/// How long to wait before the database is tried again.
const RETRY_AFTER: Duration = Duration::from_millis(50);

/// The longest that anybody has to wait for what was used without having been lent, in nanoseconds: five years.
const OWED_MAX: u64 = 5 * 365 * 24 * 3600 * 1_000_000_000;

/// Where the database is, and how a node uses it.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it is.
    pub database: Database,
    /// The schema of its own in which the tables are.
    pub schema: String,
    /// What this node is called where nodes are listed.
    pub node: String,
    /// How long a node that is not seen keeps its slot.
    pub lease: Duration,
    /// How long anything waits for a database that does not answer.
    pub patience: Duration,
    /// The most connections that read at once.
    pub readers_max: usize,
    /// Whether tables that are not there, or old, are made.
    pub migrate: bool,
    /// Whether this node gives the others hints, and hears theirs.
    pub hints: bool,
    /// What this node says of itself, for the others to compare.
    pub says: Says,
}

impl Options {
    /// For this database.
    pub fn new(database: Database) -> Options {
        Options {
            database,
            schema: "handover".to_owned(),
            node: "handover".to_owned(),
            lease: Duration::from_secs(10),
            patience: Duration::from_secs(10),
            readers_max: 4,
            migrate: true,
            hints: true,
            says: Says::default(),
        }
    }
}

/// One node's way to the database.
pub struct PostgresStore {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
}

struct Inner {
    link: Link,
    options: Options,
    readers: Pool,
    /// Every answer that writes nothing waits for what this reads, however long the others read.
    tail: Pool,
    /// Its own connection: when others hang, it must be found out whether the database is still the one.
    heart: Heart,
    hints: Arc<Hints>,
    writer: Mutex<Writer>,
    held: Mutex<Held>,
    /// The last stamp of everything that was read.
    seen: AtomicU64,
    /// How far the engine has read what other nodes did.
    reached: Mutex<Place>,
    /// How many other nodes there were then, and how many of their events this one did not know.
    others: AtomicU64,
    behind: AtomicU64,
    /// How often it was found out what became of an append whose answer was lost.
    doubts_settled: AtomicU64,
    /// In what other nodes are set otherwise.
    differences: Mutex<BTreeSet<String>>,
}

/// The slot that is held.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    slot: Slot,
    /// One more with each holder.
    epoch: i64,
    /// It is another one than before: what its last holder wrote may not have been heard, and whoever listens has not been told.
    missed: bool,
}

/// The connection that writes, one thing after the other.
#[derive(Default)]
struct Writer {
    session: Option<Arc<Session>>,
    /// The number of the last batch that is known to be kept or never to be.
    batch: i64,
    /// Whether it is unknown what became of the one after it.
    in_doubt: bool,
    /// The slot is another one than at the last append, and whoever appends has not been told.
    moved: bool,
    /// The sessions for which others were first.
    races: Races,
}

/// Why something could not be written.
enum Refused {
    /// The database said so: nothing was kept.
    Said(Error),
    /// The connection ended before it answered, or it did not answer in time.
    Lost(Error),
    /// It answered with a warning: a standby may not have it.
    Warned,
}

impl PostgresStore {
    /// Open the store as one of its nodes. Makes the tables if there are none.
    pub fn open(options: Options) -> Result<PostgresStore, Fault> {
        let inner = Inner::new(options)?;
        inner.migrate(&schema::STEPS)?;
        // A database that has just started may wait for its standby.
        let within = inner.options.patience * LONG_PATIENCES;
        inner.take_slot(&mut lock(&inner.writer), within)?;
        // Nothing was heard before.
        inner.heard_of_the_slot();
        lock(&inner.writer).moved = false;
        if inner.options.hints {
            let (hints, channel) = (Arc::clone(&inner.hints), inner.options.schema.clone());
            inner.link.begin(|database| hints.carry(database, channel));
        }
        let mut store = PostgresStore { inner: Arc::new(inner), threads: Vec::new() };
        store.begin("heartbeat", Inner::keep_beating)?;
        store.begin("upkeep", Inner::keep_tidy)?;
        Ok(store)
    }

    /// A thread that ends with the store.
    fn begin(&mut self, name: &str, work: fn(&Inner)) -> Result<(), Fault> {
        let inner = Arc::clone(&self.inner);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || work(&inner));
        self.threads.push(thread.map_err(|source| Fault::Unavailable {
            doing: "starting the store's threads",
            source: source.into(),
        })?);
        Ok(())
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.inner.heart.stop();
        for thread in self.threads.drain(..) {
            _ = thread.join();
        }
        // Others need not wait for the lease to end.
        let free = "UPDATE @slots SET seen_at = '-infinity' WHERE slot = $1 AND epoch = $2";
        _ = self.inner.ask("giving the slot back", free, || lock(&self.inner.held).values());
    }
}

impl Inner {
    fn new(options: Options) -> Result<Inner, Fault> {
        let schema = &options.schema;
        if schema.is_empty() || !schema.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            let what = format!("expected letters, digits and _ in the name of a schema, found {schema:?}");
            return Err(Fault::Unfit { what });
        }
        Ok(Inner {
            link: Link::new(options.database.clone(), schema, &options.node, options.patience)?,
            readers: Pool::new(options.readers_max),
            tail: Pool::new(1),
            heart: Heart::new(),
            hints: Arc::new(Hints::new()),
            writer: Mutex::default(),
            held: Mutex::default(),
            seen: AtomicU64::new(0),
            reached: Mutex::default(),
            others: AtomicU64::new(0),
            behind: AtomicU64::new(0),
            doubts_settled: AtomicU64::new(0),
            differences: Mutex::default(),
            options,
        })
    }

    fn slot(&self) -> Slot {
        lock(&self.held).slot
    }

    fn see(&self, stamp: u64) {
        self.seen.fetch_max(stamp, Ordering::AcqRel);
    }

    /// Ask for something that changes nothing, or nothing but once.
    fn ask(
        &self,
        doing: &'static str,
        sql: &str,
        values: impl Fn() -> Vec<Value>,
    ) -> Result<Vec<Row>, Fault> {
        self.ask_within(self.options.patience, sql, values).map_err(|error| fault(doing, error))
    }

    fn ask_within(
        &self,
        within: Duration,
        sql: &str,
        values: impl Fn() -> Vec<Value>,
    ) -> Result<Vec<Row>, Error> {
        self.readers.with(&self.link, within, |session, within| self.link.ask(session, sql, values(), within))
    }

    /// The same of a database that is sure to be the one, for whatever is answered.
    fn read(
        &self,
        doing: &'static str,
        sql: &str,
        values: impl Fn() -> Vec<Value>,
    ) -> Result<Vec<Row>, Fault> {
        self.read_within(self.options.patience, doing, sql, values)
    }

    fn read_within(
        &self,
        within: Duration,
        doing: &'static str,
        sql: &str,
        values: impl Fn() -> Vec<Value>,
    ) -> Result<Vec<Row>, Fault> {
        self.surely(within, |within| {
            self.ask_surely(&self.readers, within, sql, &values).map_err(|error| fault(doing, error))
        })
    }

    fn ask_surely(
        &self,
        pool: &Pool,
        within: Duration,
        sql: &str,
        values: impl Fn() -> Vec<Value>,
    ) -> Result<Vec<Row>, Error> {
        let until = Instant::now() + within;
        let left = || until.saturating_duration_since(Instant::now());
        loop {
            let asked = pool.with(&self.link, left(), |session, within| {
                self.be_sure_of(session, within)?;
                self.link.ask(session, sql, values(), within)
            });
            match asked {
                // The next beat says which server it is.
                Err(Error::Left) if !left().is_zero() => _ = self.be_seen(left()),
                asked => return asked,
            }
        }
    }

    /// One thing that changes something.
    fn write(
        &self,
        writer: &mut Writer,
        sql: &str,
        values: Vec<Value>,
        within: Duration,
    ) -> Result<Vec<Row>, Refused> {
        let until = Instant::now() + within;
        let session = self.writing(writer, within).map_err(Refused::Lost)?;
        let left = until.saturating_duration_since(Instant::now());
        match self.link.ask(&session, sql, values, left) {
            Ok(rows) => {
                writer.session = Some(session);
                self.hints.wrote();
                Ok(rows)
            }
            Err(error) if refuses(&error) => {
                writer.session = Some(session);
                Err(Refused::Said(error))
            }
            Err(Error::Warned) => Err(Refused::Warned),
            Err(error) => Err(Refused::Lost(error)),
        }
    }

    /// The connection that writes: the same as before, if it can be used.
    fn writing(&self, writer: &mut Writer, within: Duration) -> Result<Arc<Session>, Error> {
        if let Some(session) = writer.session.take().filter(|session| self.link.is_usable(session)) {
            return Ok(session);
        }
        let until = Instant::now() + within;
        let session = self.link.connect(within)?;
        self.be_sure_of(&session, until.saturating_duration_since(Instant::now()))?;
        Ok(session)
    }

    /// Write something of the slot's, which takes its turn among the appends.
    fn write_own(
        &self,
        doing: &'static str,
        sql: &str,
        values: impl FnOnce() -> Vec<Value>,
    ) -> Result<Vec<Row>, Fault> {
        let mut writer = lock(&self.writer);
        let held = *lock(&self.held);
        let mut all = held.values();
        all.extend(values![signed(self.seen.load(Ordering::Acquire)) => INT8]);
        all.extend(values());
        match self.write(&mut writer, sql, all, self.options.patience) {
            Ok(rows) => Ok(rows),
            Err(Refused::Said(error)) if is(&error, TAKEN) => Err(self.move_from(held, &mut writer)),
            Err(Refused::Said(error) | Refused::Lost(error)) => Err(fault(doing, error)),
            Err(Refused::Warned) => Err(warned(doing)),
        }
    }

    /// One call of the function that appends. What becomes of it is found out, if that can be within the patience.
    fn append(&self, writer: &mut Writer, items: &[&Append]) -> Result<Vec<Outcome>, Fault> {
        if std::mem::take(&mut writer.moved) {
            return Err(Fault::SlotTaken);
        }
        if writer.in_doubt {
            self.settle(writer)?;
        }
        let until = Instant::now() + self.options.patience;
        let left = || until.saturating_duration_since(Instant::now());
        let batch = writer.batch + 1;
        // What was lost may still be on its way, and turn up in the place of what was sent again.
        let mut was_lost = false;
        loop {
            let held = *lock(&self.held);
            let seen = self.seen.load(Ordering::Acquire);
            let values = append::arguments(held, batch, seen, items, &writer.races);
            // The other half is for finding out, on another connection, what became of it.
            let lost = match self.write(writer, append::APPEND, values, left() / 2) {
                Ok(rows) => {
                    (writer.batch, writer.in_doubt) = (batch, false);
                    return append::outcomes(held.slot, &rows, items, &mut writer.races);
                }
                Err(Refused::Said(error)) if is(&error, TAKEN) => {
                    let fault = self.move_from(held, writer);
                    writer.moved = false;
                    return Err(fault);
                }
                // Something of the slot's is still under way, or somebody waited for this one as well: nothing was done.
                Err(Refused::Said(error)) if passes(&error) && !left().is_zero() => continue,
                Err(Refused::Said(error)) if is(&error, OUT_OF_TURN) => error,
                Err(Refused::Said(error)) => {
                    writer.in_doubt = was_lost;
                    return Err(fault("appending", error));
                }
                Err(Refused::Lost(error)) => error,
                Err(Refused::Warned) => {
                    writer.in_doubt = true;
                    return Err(warned("appending"));
                }
            };
            (writer.in_doubt, was_lost) = (true, true);
            let found = self.look_until_known(writer, batch, items, until)?;
            self.doubts_settled.fetch_add(1, Ordering::Relaxed);
            if let Some(outcomes) = found {
                (writer.batch, writer.in_doubt) = (batch, false);
                return Ok(outcomes);
            }
            // It is not there: once more.
            if left().is_zero() {
                return Err(fault("appending", lost));
            }
        }
    }

    /// Find out what became of a batch whose answer was lost, until then at most.
    fn look_until_known(
        &self,
        writer: &mut Writer,
        batch: i64,
        items: &[&Append],
        until: Instant,
    ) -> Result<Option<Vec<Outcome>>, Fault> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.look_for(writer, batch, items, left) {
                Ok(found) => return Ok(found),
                Err(error) if left.is_zero() || is(&error, TAKEN) => return Err(fault("appending", error)),
                Err(_) => thread::sleep(RETRY_AFTER.min(left)),
            }
        }
    }

    /// What became of a batch whose answer was lost: none if it was not kept. Waits for a commit that is still under way.
    fn look_for(
        &self,
        writer: &mut Writer,
        batch: i64,
        items: &[&Append],
        within: Duration,
    ) -> Result<Option<Vec<Outcome>>, Error> {
        let held = "SELECT batch, before FROM @hold_v1($1, $2)";
        let session = self.writing(writer, within)?;
        let row = self.link.ask(&session, held, lock(&self.held).values(), within)?;
        writer.session = Some(Arc::clone(&session));
        let (last, before): (i64, i64) = row.first().map_or((0, 0), |row| (row.get(0), row.get(1)));
        if last != batch {
            return Ok(None);
        }
        let mut outcomes = Vec::with_capacity(items.len());
        for item in items {
            let sql = "SELECT e.number, e.stamp, (SELECT coalesce(max(h.seq), 0) FROM @events h WHERE h.sid = $1)
                       FROM (SELECT 1) one LEFT JOIN @events e ON e.sid = $1 AND e.seq = $2 AND e.slot = $3 AND e.number > $4";
            let slot = self.slot();
            let values = values![sid(&item.key) => BYTEA, signed(item.expected + 1) => INT8, i32::from(slot.0) => INT4, before => INT8];
            let found = self.link.ask(&session, sql, values, within)?;
            let (number, stamp, head): (Option<i64>, Option<i64>, i64) =
                found.first().map_or((None, None, 0), |row| (row.get(0), row.get(1), row.get(2)));
            outcomes.push(match (number, stamp) {
                (Some(number), Some(stamp)) if !item.events.is_empty() => {
                    let first = Position { slot, number: natural(number) };
                    Outcome::Appended { first, stamp: natural(stamp) }
                }
                // Whoever wrote it reads the session again.
                _ => Outcome::Conflict { head: natural(head) },
            });
        }
        // It is still the same holder's: what was found is not somebody else's.
        self.link.ask(&session, held, lock(&self.held).values(), within)?;
        Ok(Some(outcomes))
    }

    /// See to it that a batch in doubt is there or never will be: its number is used up.
    fn settle(&self, writer: &mut Writer) -> Result<(), Fault> {
        let doing = "settling a commit in doubt";
        let held = *lock(&self.held);
        let mut all = held.values();
        all.extend(values![writer.batch + 1 => INT8]);
        match self.write(writer, "SELECT @settle_v1($1, $2, $3)", all, self.options.patience) {
            Ok(_) => {
                self.doubts_settled.fetch_add(1, Ordering::Relaxed);
                writer.batch += 1;
                writer.in_doubt = false;
                Ok(())
            }
            // Whoever took the slot waited for it, and nothing is taken from the holder before.
            Err(Refused::Said(error)) if is(&error, TAKEN) => {
                let fault = self.move_from(held, writer);
                if matches!(fault, Fault::SlotTaken) { Ok(()) } else { Err(fault) }
            }
            Err(Refused::Said(error) | Refused::Lost(error)) => Err(fault(doing, error)),
            Err(Refused::Warned) => Err(warned(doing)),
        }
    }
}

impl Held {
    /// The values that say whose slot it is.
    fn values(self) -> Vec<Value> {
        values![i32::from(self.slot.0) => INT4, self.epoch => INT8]
    }
}

impl Store for PostgresStore {
    fn append(&self, batch: &[Append]) -> Result<Vec<Outcome>, Fault> {
        let mut writer = lock(&self.inner.writer);
        let mut outcomes = Vec::with_capacity(batch.len());
        for call in append::calls(batch) {
            let items: Vec<&Append> = call.iter().map(|index| &batch[*index]).collect();
            outcomes.extend(self.inner.append(&mut writer, &items)?);
        }
        Ok(outcomes)
    }

    fn read(&self, key: &SessionKey, after: u64, max: usize) -> Result<Vec<StoredEvent>, Fault> {
        self.inner.read_events(key, after, max)
    }

    fn head(&self, key: &SessionKey) -> Result<Option<u64>, Fault> {
        self.inner.read_head(key)
    }

    fn snapshot(&self, key: &SessionKey) -> Result<Option<Snapshot>, Fault> {
        self.inner.read_snapshot(key)
    }

    fn feed(&self, feed: &Feed, after: &Place, max: usize) -> Result<Vec<FeedItem>, Fault> {
        self.inner.read_feed(feed, after, max)
    }

    fn last_place(&self) -> Result<Place, Fault> {
        self.inner.read_last_place()
    }

    fn slot(&self) -> Option<Slot> {
        Some(self.inner.slot())
    }

    fn live(&self) -> Result<Vec<Slot>, Fault> {
        let sql = "SELECT slot FROM @slots WHERE seen_at > clock_timestamp() - $1 * interval '1 second' ORDER BY slot";
        let rows = self.inner.read(
            "reading which nodes are there",
            sql,
            || values![self.inner.lease() => FLOAT8],
        )?;
        rows.iter()
            .map(|row| row.try_get::<_, i32>(0).map(|slot| Slot(slot as u16)).map_err(unexpected))
            .collect()
    }

    fn standing(&self) -> Standing {
        let read = |of: &AtomicU64| of.load(Ordering::Acquire);
        let Inner { others, behind, doubts_settled, .. } = &*self.inner;
        Standing { nodes: read(others) + 1, behind: read(behind), doubts_settled: read(doubts_settled) }
    }

    fn settle(&self) -> Result<(), Fault> {
        let mut writer = lock(&self.inner.writer);
        if writer.in_doubt { self.inner.settle(&mut writer) } else { Ok(()) }
    }

    fn news(&self, after: &Place, max: usize) -> Result<Vec<News>, Fault> {
        *lock(&self.inner.reached) = after.clone();
        let news = self.inner.read_news(after, max);
        if matches!(news, Err(Fault::SlotTaken)) {
            self.inner.heard_of_the_slot();
        }
        news
    }

    fn on_hint(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.inner.hints.on_hint(wake);
    }

    fn hints(&self) -> bool {
        self.inner.hints.come()
    }

    fn say(&self, bytes: &[u8]) -> Result<(), Fault> {
        let sql = "SELECT @say_v1($1, $2, $3, $4)";
        self.inner.write_own("telling the other nodes", sql, || values![bytes.to_vec() => BYTEA]).map(drop)
    }

    fn lend(&self, asks: &[Ask]) -> Result<Vec<Lent>, Fault> {
        let sql = "SELECT count, after FROM @lend_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
        let of = |of: fn(&Ask) -> &str| asks.iter().map(|ask| of(ask).to_owned()).collect::<Vec<_>>();
        let numbers = |of: fn(&Ask) -> u64| asks.iter().map(|ask| signed(of(ask))).collect::<Vec<_>>();
        let owed = |ask: &Ask| ask.owes.saturating_mul(ask.every).min(OWED_MAX);
        // A little longer than a node keeps it.
        let kept = LENT_FOR.as_nanos() as i64 / 60 * 61;
        let rows = self.inner.read("lending", sql, || {
            values![
                i32::from(self.inner.slot().0) => INT4,
                kept => INT8,
                of(|ask| &ask.of.0) => TEXT_ARRAY,
                of(|ask| &ask.of.1) => TEXT_ARRAY,
                asks.iter().map(|ask| i16::from(ask.of.2)).collect::<Vec<_>>() => INT2_ARRAY,
                numbers(|ask| ask.every.max(1)) => INT8_ARRAY,
                numbers(|ask| ask.burst) => INT8_ARRAY,
                numbers(|ask| ask.has) => INT8_ARRAY,
                numbers(|ask| ask.wants) => INT8_ARRAY,
                asks.iter().map(|ask| signed(owed(ask))).collect::<Vec<_>>() => INT8_ARRAY,
            ]
        })?;
        let number = |row: &Row, at| row.try_get::<_, i64>(at).map(natural).map_err(unexpected);
        rows.iter().map(|row| Ok(Lent { count: number(row, 0)?, after: number(row, 1)? })).collect()
    }

    fn list(&self, filter: &Filter, order: Order, after: Option<Cursor>, max: usize) -> Result<Page, Fault> {
        self.inner.read_list(filter, order, after, max)
    }

    fn inbox(
        &self,
        tenant: &str,
        agent: &str,
        kinds: u32,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<InboxPage, Fault> {
        self.inner.read_inbox(tenant, agent, kinds, after, max)
    }

    fn row(&self, key: &SessionKey) -> Result<Option<IndexRow>, Fault> {
        self.inner.read_row(key)
    }

    fn due_after(&self, after: Option<DueCursor>, until: u64, max: usize) -> Result<DuePage, Fault> {
        self.inner.read_due(after, until, max)
    }

    fn open_counts(&self) -> Result<Vec<OpenCount>, Fault> {
        let sql = "SELECT tenant, requester, count(*) FROM @listed WHERE finished_at IS NULL
                   GROUP BY tenant, requester ORDER BY tenant, requester";
        self.inner.read_counts("counting the open sessions", sql)
    }

    fn stored_bytes(&self) -> Result<Vec<StoredBytes>, Fault> {
        let sql = "SELECT tenant, requester, sum(bytes)::bigint FROM @stored
                   GROUP BY tenant, requester HAVING sum(bytes) > 0 ORDER BY tenant, requester";
        self.inner.read_counts("counting what is stored", sql)
    }

    fn count_stored(&self) -> Result<bool, Fault> {
        Ok(false)
    }

    fn change_records(&self, changes: &[Change]) -> Result<bool, Fault> {
        let sql = "SELECT @change_records_v1($1, $2, $3, $4, $5, $6, $7, $8, $9)";
        let names =
            |of: fn(&Change) -> &str| changes.iter().map(|change| of(change).to_owned()).collect::<Vec<_>>();
        let over = |change: &Change| match change.over {
            Over::Anything => 0_i16,
            Over::Nothing => 1,
            Over::Something => 2,
            Over::Value(_) => 3,
        };
        let before = |change: &Change| match &change.over {
            Over::Value(value) => Some(value.clone()),
            Over::Anything | Over::Nothing | Over::Something => None,
        };
        let rows = self.inner.write_own("changing records", sql, || {
            values![
                names(|change| &change.name.0) => TEXT_ARRAY,
                names(|change| &change.name.1) => TEXT_ARRAY,
                names(|change| &change.name.2) => TEXT_ARRAY,
                changes.iter().map(over).collect::<Vec<_>>() => INT2_ARRAY,
                changes.iter().map(before).collect::<Vec<_>>() => BYTEA_ARRAY,
                changes.iter().map(|change| change.value.clone()).collect::<Vec<_>>() => BYTEA_ARRAY,
            ]
        })?;
        first(&rows, "changing records")
    }

    fn record(&self, space: &str, tenant: &str, key: &str) -> Result<Option<Vec<u8>>, Fault> {
        let sql = "SELECT value FROM @records WHERE space = $1 AND tenant = $2 AND key = $3";
        let rows = self.inner.read(
            "reading a record",
            sql,
            || values![space.to_owned() => TEXT, tenant.to_owned() => TEXT, key.to_owned() => TEXT],
        )?;
        rows.first().map(|row| row.try_get(0).map_err(unexpected)).transpose()
    }

    fn records(
        &self,
        space: &str,
        tenant: &str,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<Record>, Fault> {
        let sql = "SELECT key, value FROM @records
                   WHERE space = $1 AND tenant = $2 AND ($3::text IS NULL OR key > $3) ORDER BY key LIMIT $4";
        let max = signed(max as u64).min(10_000);
        let rows = self.inner.read("reading records", sql, || {
            values![space.to_owned() => TEXT, tenant.to_owned() => TEXT, after.map(str::to_owned) => TEXT, max => INT8]
        })?;
        cut(rows.iter().map(|row| {
            let key: &str = row.try_get(0).map_err(unexpected)?;
            let value = row.try_get(1).map_err(unexpected)?;
            Ok(Record { space: space.into(), tenant: tenant.into(), key: key.into(), value })
        }))
    }

    fn spaces(&self) -> Result<Vec<Space>, Fault> {
        self.inner.read_spaces()
    }

    fn delete_finished(&self, finished_before: u64, now: u64, max: usize) -> Result<Vec<Deleted>, Fault> {
        let sql = "SELECT tenant, session, finished_at, requester, bytes FROM @delete_finished_v1($1, $2, $3, $4, $5, $6, $7 * interval '1 second')";
        let max = signed(max as u64).min(10_000);
        let rows = self.inner.write_own(
            "deleting sessions",
            sql,
            || values![signed(finished_before) => INT8, signed(now) => INT8, max => INT8, self.inner.lease() => FLOAT8],
        )?;
        let text = |row: &Row, at| row.try_get::<_, &str>(at).map(Box::<str>::from).map_err(unexpected);
        let number = |row: &Row, at| row.try_get::<_, i64>(at).map(natural).map_err(unexpected);
        let deleted = rows.iter().map(|row| {
            Ok(Deleted {
                key: SessionKey { tenant: text(row, 0)?, session: text(row, 1)? },
                finished_at: number(row, 2)?,
                requester: text(row, 3)?,
                bytes: number(row, 4)?,
            })
        });
        deleted.collect()
    }

    fn tombstone(&self, key: &SessionKey) -> Result<Option<u64>, Fault> {
        let sql = "SELECT deleted_at FROM @sessions WHERE sid = $1";
        self.inner.read_number("reading a tombstone", sql, || values![sid(key) => BYTEA])
    }

    fn tombstones(&self, after: Option<&Tombstone>, max: usize) -> Result<Vec<Tombstone>, Fault> {
        self.inner.read_tombstones(after, max)
    }

    fn put_tombstones(&self, tombstones: &[Tombstone]) -> Result<(), Fault> {
        // The row of a session that never was here: what is deleted has no place among those that are listed.
        let sql = "INSERT INTO @sessions (sid, tenant, session, born, deleted_at)
                   SELECT t.sid, t.tenant, t.session, nextval('@sessions_born'), t.deleted_at
                   FROM unnest($1, $2, $3, $4) AS t (sid, tenant, session, deleted_at) ORDER BY t.sid
                   ON CONFLICT DO NOTHING";
        let text = |of: fn(&Tombstone) -> &str| {
            tombstones.iter().map(|tombstone| of(tombstone).to_owned()).collect::<Vec<_>>()
        };
        let values = || {
            values![
                tombstones.iter().map(|tombstone| sid(&tombstone.key)).collect::<Vec<_>>() => BYTEA_ARRAY,
                text(|tombstone| &tombstone.key.tenant) => TEXT_ARRAY,
                text(|tombstone| &tombstone.key.session) => TEXT_ARRAY,
                tombstones.iter().map(|tombstone| signed(tombstone.deleted_at)).collect::<Vec<_>>() => INT8_ARRAY,
            ]
        };
        self.inner.ask("writing tombstones", sql, values).map(drop)
    }

    fn forget_tombstones(&self, deleted_before: u64) -> Result<u64, Fault> {
        let sql = "WITH gone AS (DELETE FROM @sessions WHERE deleted_at < least($1,
                       (extract(epoch FROM clock_timestamp()) * 1000)::bigint - (SELECT tombstones FROM @kept_v1($2 * interval '1 second')))
                   RETURNING 1) SELECT count(*) FROM gone";
        let count = self.inner.read_number(
            "forgetting tombstones",
            sql,
            || values![signed(deleted_before) => INT8, self.inner.lease() => FLOAT8],
        )?;
        Ok(count.unwrap_or(0))
    }

    fn sessions(
        &self,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<(Vec<SessionKey>, Option<Cursor>), Fault> {
        let sql = "SELECT tenant, session, born FROM @sessions WHERE deleted_at IS NULL AND born > $1 ORDER BY born LIMIT $2";
        self.inner.read_keys(sql, after, max)
    }

    fn unfinished(
        &self,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<(Vec<SessionKey>, Option<Cursor>), Fault> {
        let sql = "SELECT k.tenant, k.session, l.born FROM @listed l JOIN @sessions k ON k.sid = l.sid
                   WHERE l.finished_at IS NULL AND l.born > $1 ORDER BY l.born LIMIT $2";
        self.inner.read_keys(sql, after, max)
    }

    fn clear_index(&self) -> Result<(), Fault> {
        let sql = "WITH a AS (DELETE FROM @lists), b AS (DELETE FROM @inbox), c AS (DELETE FROM @snapshots), d AS (DELETE FROM @listed)
                   UPDATE @facts SET value = 0 WHERE name = 'index_version'";
        let cleared = self.inner.ask_within(AT_ITS_LEISURE, sql, Vec::new);
        cleared.map(drop).map_err(|error| fault("clearing the index", error))
    }

    fn restore_index(&self, rows: &[(SessionKey, IndexRow, Wake)]) -> Result<(), Fault> {
        let sql = "SELECT @restore_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
        for rows in unique(rows) {
            let values = || {
                let mut all =
                    values![rows.iter().map(|(key, ..)| sid(key)).collect::<Vec<_>>() => BYTEA_ARRAY];
                all.extend(append::rows(rows.iter().map(|(_, row, wake)| (Some(row), *wake))));
                all
            };
            self.inner.ask("restoring the index", sql, values)?;
        }
        Ok(())
    }

    fn index_version(&self) -> Result<u32, Fault> {
        let sql = "SELECT value FROM @facts WHERE name = 'index_version'";
        let version = self.inner.read_number("reading the index version", sql, Vec::new)?.unwrap_or(0);
        Ok(u32::try_from(version).unwrap_or(u32::MAX))
    }

    fn set_index_version(&self, version: u32) -> Result<bool, Fault> {
        let doing = "setting the index version";
        let sql = "SELECT @set_index_v1($1, $2 * interval '1 second')";
        let values = || values![i64::from(version) => INT8, self.inner.lease() => FLOAT8];
        first(&self.inner.ask(doing, sql, values)?, doing)
    }

    fn index_is_older_elsewhere(&self, version: u32) -> Result<bool, Fault> {
        let doing = "asking who writes an older index";
        let sql = "SELECT @index_older_v1($1, $2 * interval '1 second')";
        let values = || values![i64::from(version) => INT8, self.inner.lease() => FLOAT8];
        first(&self.inner.ask(doing, sql, values)?, doing)
    }

    fn probe(&self) -> Result<(), Fault> {
        self.inner.be_seen(self.inner.options.patience)
    }

    fn time(&self) -> Result<Option<u64>, Fault> {
        let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
        self.inner.read_number("reading the time", sql, Vec::new)
    }

    fn about(&self) -> Option<String> {
        let Options { database, node, .. } = &self.inner.options;
        let row = self.inner.ask("asking the database about itself", database::ABOUT, Vec::new).ok()?;
        let standby = match About::read(row.first()?).ok()?.is_synchronous() {
            true => "a synchronous standby",
            false => "no synchronous standby",
        };
        let differences =
            lock(&self.inner.differences).iter().fold(String::new(), |all, one| all + "; " + one);
        Some(format!("{}, slot {} as {node}, {standby}{differences}", database.shown(), self.inner.slot().0))
    }
}

/// The key of a session in the tables: 128 bits of a hash, so that they can be distributed by it.
fn sid(key: &SessionKey) -> Vec<u8> {
    let mut hash = Sha256::new();
    hash.update((key.tenant.len() as u64).to_le_bytes());
    hash.update(key.tenant.as_bytes());
    hash.update(key.session.as_bytes());
    hash.finalize()[..16].to_vec()
}

/// Rows in parts that name no session twice.
fn unique(rows: &[(SessionKey, IndexRow, Wake)]) -> Vec<Vec<&(SessionKey, IndexRow, Wake)>> {
    let mut parts: Vec<Vec<&(SessionKey, IndexRow, Wake)>> = Vec::new();
    for row in rows {
        match parts.last_mut().filter(|part| part.iter().all(|other| other.0 != row.0)) {
            Some(part) => part.push(row),
            None => parts.push(vec![row]),
        }
    }
    parts
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn first(rows: &[Row], doing: &'static str) -> Result<bool, Fault> {
    rows.first().ok_or_else(|| empty(doing))?.try_get(0).map_err(unexpected)
}

fn is(error: &Error, code: &str) -> bool {
    error.code().is_some_and(|found| found.code() == code)
}

/// Whether nothing was done for a reason that passes by itself.
fn passes(error: &Error) -> bool {
    is(error, LOCKED) || is(error, DEADLOCKED)
}

/// Whether the database refused a statement, and goes on. Whatever else it says ends the connection.
fn refuses(error: &Error) -> bool {
    error.as_db_error().and_then(DbError::parsed_severity) == Some(Severity::Error)
}

fn fault(doing: &'static str, error: Error) -> Fault {
    match error.code() {
        Some(code) if *code == SqlState::DISK_FULL => Fault::Full { doing, source: error.into() },
        Some(_) | None => Fault::Unavailable { doing, source: error.into() },
    }
}

fn unexpected(error: tokio_postgres::Error) -> Fault {
    fault("reading what the database answered", error.into())
}

fn empty(doing: &'static str) -> Fault {
    Fault::Unavailable { doing, source: "the database answered with nothing".into() }
}

fn warned(doing: &'static str) -> Fault {
    fault(doing, Error::Warned)
}
