//! Reading: a few connections that cannot write, and the questions they answer.

use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard};

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::writer::{self, LAST_POSITION};
use super::{Options, agents, checksum, fault, natural, schema, signed};
use crate::checksum::{Found, check, checked};
use crate::fault::Fault;
use crate::log::{
    Cursor, DueCursor, DuePage, Feed, FeedItem, IndexRow, OpenCount, Record, SessionKey, Snapshot, Space,
    StoredBytes, StoredEvent, Tombstone, Weight, cut, is_full,
};
use crate::place::Position;

/// A pool of connections, opened when they are first needed.
pub(super) struct Readers {
    file: PathBuf,
    options: Options,
    pool: Mutex<Pool>,
    returned: Condvar,
}

#[derive(Default)]
struct Pool {
    idle: Vec<Connection>,
    /// How many there are, idle or not.
    open: usize,
    /// Whether somebody waits for all of them to be idle.
    closing: bool,
}

impl Readers {
    pub(super) fn new(file: PathBuf, options: Options) -> Self {
        Readers { file, options, pool: Mutex::default(), returned: Condvar::new() }
    }

    /// Ask with a connection of the pool; waits for one if all are in use. After a fault the connection is not kept.
    pub(super) fn ask<T>(
        &self,
        doing: &'static str,
        question: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, Fault> {
        let mut lent = Lent { readers: self, connection: self.borrow() };
        let connection = match lent.connection.take() {
            Some(connection) => connection,
            None => schema::open_reader(&self.file, &self.options).map_err(|source| fault(doing, source))?,
        };
        let answer = question(&connection).map_err(|source| fault(doing, source))?;
        lent.connection = Some(connection);
        Ok(answer)
    }

    /// An idle connection, or none as leave to open one more.
    fn borrow(&self) -> Option<Connection> {
        let mut pool = self.pool();
        loop {
            if !pool.closing {
                if let Some(connection) = pool.idle.pop() {
                    return Some(connection);
                }
                if pool.open < self.options.readers_max {
                    pool.open += 1;
                    return None;
                }
            }
            pool = self.returned.wait(pool).expect("no holder of the pool panics");
        }
    }

    /// Close all connections, when they are idle. Nobody gets one while the guard lives.
    pub(super) fn close(&self) -> MutexGuard<'_, impl Sized> {
        let mut pool = self.pool();
        pool.closing = true;
        while pool.open > pool.idle.len() {
            pool = self.returned.wait(pool).expect("no holder of the pool panics");
        }
        *pool = Pool::default();
        self.returned.notify_all();
        pool
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().expect("no holder of the pool panics")
    }
}

/// A place in the pool. Given back with the connection, or empty if that is not to be used again.
struct Lent<'a> {
    readers: &'a Readers,
    connection: Option<Connection>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let mut pool = self.readers.pool();
        match self.connection.take() {
            Some(connection) => pool.idle.push(connection),
            None => pool.open -= 1,
        }
        // The one who closes must not be missed.
        if pool.closing { self.readers.returned.notify_all() } else { self.readers.returned.notify_one() }
    }
}

impl Readers {
    pub(super) fn read(&self, key: &SessionKey, after: u64, max: usize) -> Result<Vec<StoredEvent>, Fault> {
        let found = self.ask("reading a session", |connection| {
            let mut select = connection.prepare_cached(
                "SELECT e.seq, e.position, e.checksum, e.bytes
                 FROM sessions s CROSS JOIN events e ON e.number = s.number
                 WHERE s.session = ?1 AND s.tenant = ?2 AND e.seq > ?3 ORDER BY e.seq LIMIT ?4",
            )?;
            let rows = select
                .query_map(params![key.session, key.tenant, signed(after), signed(max as u64)], |row| {
                    stored(row, 0)
                })?;
            cut(rows)
        })?;
        checked(key, after, found)
    }

    pub(super) fn head(&self, key: &SessionKey) -> Result<Option<u64>, Fault> {
        self.ask("reading a session's head", |connection| {
            let mut select = connection.prepare_cached(
                "SELECT (SELECT ifnull(max(e.seq), 0) FROM events e WHERE e.number = s.number)
                 FROM sessions s WHERE s.session = ?1 AND s.tenant = ?2",
            )?;
            select.query_row([&*key.session, &*key.tenant], |row| row.get(0).map(natural)).optional()
        })
    }

    pub(super) fn feed(&self, feed: &Feed, after: u64, max: usize) -> Result<Vec<FeedItem>, Fault> {
        let found = self.ask("reading the feed", |connection| match feed {
            Feed::Everything => {
                let sql = format!("{FEED_EVENT} WHERE e.position > ?1 ORDER BY e.position LIMIT ?2");
                let mut select = connection.prepare_cached(&sql)?;
                cut(select.query_map([signed(after), signed(max as u64)], feed_item)?)
            }
            Feed::Agent { tenant, agent } => agent_feed(connection, tenant, agent, signed(after), max),
        })?;
        let items = found.into_iter().map(|(key, event, found)| {
            let event = check(&key, event, found)?;
            Ok(FeedItem { key, event })
        });
        items.collect()
    }

    pub(super) fn last_position(&self) -> Result<u64, Fault> {
        self.ask("reading the last position", |connection| {
            connection.prepare_cached(LAST_POSITION)?.query_row([], |row| row.get(0).map(natural))
        })
    }

    pub(super) fn row(&self, key: &SessionKey) -> Result<Option<IndexRow>, Fault> {
        self.ask("reading an index row", |connection| {
            let mut select = connection.prepare_cached(&format!(
                "SELECT {ROW_COLUMNS} FROM sessions s JOIN index_rows r ON r.number = s.number
                 WHERE s.session = ?1 AND s.tenant = ?2"
            ))?;
            select.query_row([&*key.session, &*key.tenant], |row| index_row(row, 0)).optional()
        })
    }

    pub(super) fn due(&self, after: Option<DueCursor>, until: u64, max: usize) -> Result<DuePage, Fault> {
        let found = self.ask("reading what is due", |connection| {
            let mut select = connection.prepare_cached(
                "SELECT s.tenant, s.session, r.wake, r.number
                 FROM index_rows r INDEXED BY index_todo CROSS JOIN sessions s ON s.number = r.number
                 WHERE r.wake <= ?1 AND (r.wake, r.number) > (?2, ?3) ORDER BY r.wake, r.number LIMIT ?4",
            )?;
            let (at, place) = after.map_or((-1, -1), |cursor| (signed(cursor.at), signed(cursor.place)));
            let rows = select.query_map([signed(until), at, place, signed(max as u64)], |row| {
                Ok(((session_key(row, 0)?, natural(row.get(2)?)), natural(row.get(3)?)))
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        })?;
        let last = found.last().filter(|_| found.len() == max);
        let next = last.map(|((_, at), place)| DueCursor { at: *at, place: *place });
        Ok(DuePage { sessions: found.into_iter().map(|(due, _)| due).collect(), next })
    }

    pub(super) fn open_counts(&self) -> Result<Vec<OpenCount>, Fault> {
        self.ask("counting open sessions", |connection| {
            let mut select = connection.prepare_cached(
                "SELECT s.tenant, r.requester, count(*)
                 FROM index_rows r INDEXED BY index_todo CROSS JOIN sessions s ON s.number = r.number
                 WHERE r.finished_at IS NULL GROUP BY s.tenant, r.requester ORDER BY s.tenant, r.requester",
            )?;
            let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?, natural(row.get(2)?))))?;
            rows.collect()
        })
    }

    pub(super) fn stored_bytes(&self) -> Result<Vec<StoredBytes>, Fault> {
        self.ask("reading what is stored", |connection| {
            let mut select = connection.prepare_cached(
                "SELECT tenant, agent, bytes FROM index_stored WHERE bytes > 0 ORDER BY tenant, agent",
            )?;
            let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?, natural(row.get(2)?))))?;
            rows.collect()
        })
    }

    pub(super) fn record(&self, space: &str, tenant: &str, key: &str) -> Result<Option<Vec<u8>>, Fault> {
        self.ask("reading a record", |connection| {
            let mut select = connection
                .prepare_cached("SELECT value FROM records WHERE space = ?1 AND tenant = ?2 AND key = ?3")?;
            select.query_row([space, tenant, key], |row| row.get(0)).optional()
        })
    }

    pub(super) fn records(
        &self,
        space: &str,
        tenant: &str,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<Record>, Fault> {
        self.ask("reading records", |connection| {
            let sql = match after {
                None => {
                    "SELECT key, value FROM records WHERE space = ?1 AND tenant = ?2 AND ?3 IS NULL
                     ORDER BY key LIMIT ?4"
                }
                Some(_) => {
                    "SELECT key, value FROM records WHERE space = ?1 AND tenant = ?2 AND key > ?3
                     ORDER BY key LIMIT ?4"
                }
            };
            let mut select = connection.prepare_cached(sql)?;
            let rows = select.query_map(params![space, tenant, after, signed(max as u64)], |row| {
                Ok(Record {
                    space: space.into(),
                    tenant: tenant.into(),
                    key: row.get(0)?,
                    value: row.get(1)?,
                })
            })?;
            cut(rows)
        })
    }

    pub(super) fn spaces(&self) -> Result<Vec<Space>, Fault> {
        self.ask("reading which records there are", |connection| {
            let sql = "SELECT DISTINCT space, tenant FROM records ORDER BY space, tenant";
            let mut select = connection.prepare_cached(sql)?;
            let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect()
        })
    }

    pub(super) fn tombstones(&self, after: Option<&Tombstone>, max: usize) -> Result<Vec<Tombstone>, Fault> {
        self.ask("reading the tombstones", |connection| {
            let mut select = connection.prepare_cached(
                "SELECT tenant, session, deleted_at FROM tombstones
                 WHERE (deleted_at, session, tenant) > (?1, ?2, ?3)
                 ORDER BY deleted_at, session, tenant LIMIT ?4",
            )?;
            // Times are never less than 0.
            let (at, session, tenant) = after.map_or((-1, "", ""), |after| {
                (signed(after.deleted_at), &*after.key.session, &*after.key.tenant)
            });
            let rows = select.query_map(params![at, session, tenant, signed(max as u64)], |row| {
                Ok(Tombstone { key: session_key(row, 0)?, deleted_at: natural(row.get(2)?) })
            })?;
            rows.collect()
        })
    }

    pub(super) fn tombstone(&self, key: &SessionKey) -> Result<Option<u64>, Fault> {
        self.ask("reading a tombstone", |connection| writer::tombstone(connection, key))
    }

    pub(super) fn sessions(
        &self,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<(Vec<SessionKey>, Option<Cursor>), Fault> {
        let sql = "SELECT number, tenant, session FROM sessions WHERE number > ?1 ORDER BY number LIMIT ?2";
        self.keys("reading the sessions", sql, after, max)
    }

    pub(super) fn unfinished(
        &self,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<(Vec<SessionKey>, Option<Cursor>), Fault> {
        let sql = "SELECT r.number, s.tenant, s.session
             FROM index_rows r INDEXED BY index_todo CROSS JOIN sessions s ON s.number = r.number
             WHERE r.finished_at IS NULL AND r.number > ?1 ORDER BY r.number LIMIT ?2";
        self.keys("reading the unfinished sessions", sql, after, max)
    }

    fn keys(
        &self,
        doing: &'static str,
        sql: &str,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<(Vec<SessionKey>, Option<Cursor>), Fault> {
        let mut found = self.ask(doing, |connection| {
            let mut select = connection.prepare_cached(sql)?;
            let from = after.map_or(0, |Cursor(number)| signed(number));
            let rows = select.query_map([from, signed(max as u64).saturating_add(1)], |row| {
                Ok((natural(row.get(0)?), session_key(row, 1)?))
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        })?;
        let more = found.len() > max;
        found.truncate(max);
        let end = found.last().map(|(number, _)| Cursor(*number)).or(after);
        Ok((found.into_iter().map(|(_, key)| key).collect(), end.filter(|_| more)))
    }

    pub(super) fn snapshot(&self, key: &SessionKey) -> Result<Option<Snapshot>, Fault> {
        let found = self.ask("reading a snapshot", |connection| {
            let mut select = connection.prepare_cached(
                "SELECT p.seq, p.checksum, p.bytes
                 FROM sessions s CROSS JOIN index_snapshots p ON p.number = s.number
                 WHERE s.session = ?1 AND s.tenant = ?2",
            )?;
            let found = |row: &Row<'_>| -> rusqlite::Result<(Snapshot, Found)> {
                let snapshot = Snapshot { seq: natural(row.get(0)?), bytes: row.get(2)? };
                Ok((snapshot, row.get(1)?))
            };
            // A column that is not what it should be is damage too.
            select.query_row([&*key.session, &*key.tenant], |row| Ok(found(row).ok())).optional()
        })?;
        let sound = |(snapshot, found): &(Snapshot, Found)| {
            *found == i64::from(checksum(key, snapshot.seq, &snapshot.bytes))
        };
        // The log is the truth: the state is made from it when there is no sound snapshot.
        Ok(found.flatten().filter(sound).map(|(snapshot, _)| snapshot))
    }

    pub(super) fn index_version(&self) -> Result<u32, Fault> {
        self.ask("reading the version of the index", |connection| {
            let sql = "SELECT value FROM counters WHERE name = 'index_version'";
            connection.prepare_cached(sql)?.query_row([], |row| row.get(0))
        })
    }
}

impl Weight for (SessionKey, StoredEvent, Found) {
    fn weight(&self) -> usize {
        self.1.weight()
    }
}

fn stored(row: &Row<'_>, at: usize) -> rusqlite::Result<(StoredEvent, Found)> {
    let number = natural(row.get(at + 1)?);
    let event = StoredEvent {
        seq: natural(row.get(at)?),
        position: Position::first_slot(number),
        stamp: number,
        bytes: row.get(at + 3)?,
    };
    Ok((event, row.get(at + 2)?))
}

pub(super) fn session_key(row: &Row<'_>, at: usize) -> rusqlite::Result<SessionKey> {
    Ok(SessionKey { tenant: row.get(at)?, session: row.get(at + 1)? })
}

pub(super) const ROW_COLUMNS: &str =
    "r.kind, r.status, r.requester, r.agents, r.created_at, r.finished_at, r.summary, r.waits";

pub(super) fn index_row(row: &Row<'_>, at: usize) -> rusqlite::Result<IndexRow> {
    Ok(IndexRow {
        kind: row.get(at)?,
        status: row.get(at + 1)?,
        requester: row.get(at + 2)?,
        agents: agents::decode(row.get_ref(at + 3)?)?,
        created_at: natural(row.get(at + 4)?),
        finished_at: row.get::<_, Option<i64>>(at + 5)?.map(natural),
        summary: row.get(at + 6)?,
        waits: agents::decode_waits(row.get_ref(at + 7)?.as_blob()?)?,
    })
}

const FEED_EVENT: &str = "SELECT s.tenant, s.session, e.seq, e.position, e.checksum, e.bytes
     FROM events e CROSS JOIN sessions s ON s.number = e.number";

fn feed_item(row: &Row<'_>) -> rusqlite::Result<(SessionKey, StoredEvent, Found)> {
    let (event, found) = stored(row, 2)?;
    Ok((session_key(row, 0)?, event, found))
}

/// How many events are looked at one by one before the agent's sessions are asked instead.
const FEED_WINDOW: i64 = 8192;

/// A reader near the end, or an agent that is in most sessions, finds its events in the next window. If they are
/// further apart it is cheaper to ask each of the agent's sessions where its events are.
fn agent_feed(
    connection: &Connection,
    tenant: &str,
    agent: &str,
    after: i64,
    max: usize,
) -> rusqlite::Result<Vec<(SessionKey, StoredEvent, Found)>> {
    let mut find =
        connection.prepare_cached("SELECT list FROM index_lists WHERE tenant = ?1 AND agent = ?2")?;
    let Some(list) = find.query_row([tenant, agent], |row| row.get::<_, i64>(0)).optional()? else {
        return Ok(Vec::new());
    };
    let end = after.saturating_add(FEED_WINDOW);
    let near = format!(
        "{FEED_EVENT} WHERE e.position > ?1 AND e.position <= ?2
         AND EXISTS (SELECT 1 FROM index_listed l WHERE l.list = ?3 AND l.number = e.number)
         ORDER BY e.position LIMIT ?4"
    );
    let mut select = connection.prepare_cached(&near)?;
    let rows = select.query_map([after, end, list, signed(max as u64)], feed_item)?;
    let mut found = cut(rows)?;
    let last: i64 = connection.prepare_cached(LAST_POSITION)?.query_row([], |row| row.get(0))?;
    if !is_full(&found, max) && end < last {
        let far = format!(
            "{FEED_EVENT} WHERE e.position IN (
                 SELECT p.position FROM index_listed l
                 CROSS JOIN events p INDEXED BY event_place ON p.number = l.number
                 WHERE l.list = ?1 AND p.position > ?2 ORDER BY p.position LIMIT ?3)
             ORDER BY e.position"
        );
        let mut select = connection.prepare_cached(&far)?;
        let rows = select.query_map([list, end, signed((max - found.len()) as u64)], feed_item)?;
        found = cut(found.into_iter().map(Ok).chain(rows))?;
    }
    Ok(found)
}
