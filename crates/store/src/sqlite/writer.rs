//! The one connection that writes, and what it keeps in memory between commits.
//!
//! What was appended comes here from the journal, much at a time. Events are written as they come; the index rows, wake
//! times and snapshots are gathered and written once per session at the end, in the order of the sessions' numbers, so
//! that neighbours are written together.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension, params};

use super::cache::Cache;
use super::record::Placed;
use super::rows::Row;
use super::work::{Reply, Work};
use super::{Options, checksum, natural, schema, signed};
use crate::log::{Change, Deleted, IndexRow, SessionKey, Tombstone, Wake};

const ROWS_CACHED_MAX: usize = 8192;
const LISTS_CACHED_MAX: usize = 4096;

pub(super) type Number = i64;

/// Valid until the first fault: then it must be dropped, because what it remembers may not be on disk.
pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) rows: Cache<Number, Row>,
    pub(super) lists: Cache<String, i64>,
    /// The last record of the journal that the database has.
    pub(super) applied: u64,
    pub(super) last_position: i64,
    pub(super) last_number: Number,
    synced: Option<bool>,
}

/// What a group of appends leaves to be written for one session: the last of each wins, but the first row says which
/// agents there are.
struct Touched<'a> {
    key: &'a SessionKey,
    agents: &'a [Box<str>],
    row: Option<&'a IndexRow>,
    wake: Wake,
    /// With the last sequence number that it includes.
    snapshot: Option<(i64, &'a [u8])>,
}

type Group<'a> = BTreeMap<Number, Touched<'a>>;

impl Writer {
    /// Open the file. The tables must be there.
    pub(super) fn open(file: &Path, options: &Options) -> rusqlite::Result<Writer> {
        Writer::over(schema::open_writer(file, options)?)
    }

    /// Write over a connection to a file whose tables are up to date.
    pub(super) fn over(connection: Connection) -> rusqlite::Result<Writer> {
        let last = |sql| connection.query_row(sql, [], |row| row.get(0));
        let last_position = last(LAST_POSITION)?;
        let last_number = last(
            "SELECT max(value, (SELECT ifnull(max(number), 0) FROM sessions)) FROM counters WHERE name = 'number'",
        )?;
        let applied = natural(last("SELECT value FROM counters WHERE name = 'journal'")?);
        Ok(Writer {
            connection,
            rows: Cache::new(ROWS_CACHED_MAX),
            lists: Cache::new(LISTS_CACHED_MAX),
            applied,
            last_position,
            last_number,
            synced: None,
        })
    }

    /// Write what was appended, and that the journal is applied up to a record.
    pub(super) fn apply<'a>(
        &mut self,
        items: impl Iterator<Item = &'a Placed>,
        applied: u64,
        synced: bool,
    ) -> rusqlite::Result<()> {
        self.begin(synced)?;
        let mut group = Group::new();
        for item in items {
            self.append(item, &mut group)?;
        }
        self.settle(group)?;
        let mut keep =
            self.connection.prepare_cached("UPDATE counters SET value = ?1 WHERE name = 'journal'")?;
        keep.execute([signed(applied)])?;
        drop(keep);
        self.run("COMMIT")?;
        self.applied = applied;
        Ok(())
    }

    /// Do all of the work in one durable transaction.
    pub(super) fn commit(&mut self, works: &[Work]) -> rusqlite::Result<Vec<Reply>> {
        self.begin(true)?;
        let replies = works.iter().map(|work| self.work(work)).collect::<rusqlite::Result<_>>()?;
        self.run("COMMIT")?;
        Ok(replies)
    }

    fn work(&mut self, work: &Work) -> rusqlite::Result<Reply> {
        Ok(match work {
            Work::Append(_) => unreachable!("what is appended is decided first"),
            Work::Change(changes) => Reply::Changed(self.change(changes)?),
            Work::DeleteFinished { finished_before, now, max } => {
                Reply::Deleted(self.delete_finished(*finished_before, *now, *max)?)
            }
            Work::PutTombstones(tombstones) => self.put_tombstones(tombstones).map(|()| Reply::Done)?,
            Work::ForgetTombstones { deleted_before } => Reply::Count(self.forget(*deleted_before)?),
            Work::ClearIndex => self.clear_index().map(|()| Reply::Done)?,
            Work::RestoreIndex(rows) => self.restore_index(rows).map(|()| Reply::Done)?,
            Work::SetIndexVersion(version) => {
                let sql = "UPDATE counters SET value = ?1 WHERE name = 'index_version'";
                self.connection.prepare_cached(sql)?.execute([version])?;
                Reply::Done
            }
            Work::Probe => {
                self.run("UPDATE counters SET value = value + 1 WHERE name = 'probe'")?;
                Reply::Done
            }
        })
    }

    /// Begin a transaction that is durable when it is committed, or one that need not be, because the journal has what is
    /// in it or because it can be done again. In either case nothing moves from the write-ahead log into the database
    /// before the log is synced.
    fn begin(&mut self, synced: bool) -> rusqlite::Result<()> {
        if self.synced != Some(synced) {
            self.connection.pragma_update(None, "synchronous", if synced { "FULL" } else { "NORMAL" })?;
            self.synced = Some(synced);
        }
        self.run("BEGIN IMMEDIATE")
    }

    fn run(&self, sql: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute([]).map(|_| ())
    }

    fn append<'a>(&mut self, item: &'a Placed, group: &mut Group<'a>) -> rusqlite::Result<()> {
        let Placed { append, number, first } = item;
        if append.expected == 0 {
            let mut insert = self.connection.prepare_cached("INSERT INTO sessions VALUES (?1, ?2, ?3)")?;
            insert.execute(params![number, append.key.tenant, append.key.session])?;
            self.rows.insert(*number, Row::Absent);
            self.last_number = self.last_number.max(*number);
        }
        let mut insert = self.connection.prepare_cached("INSERT INTO events VALUES (?1, ?2, ?3, ?4, ?5)")?;
        for ((bytes, position), seq) in append.events.iter().zip(*first..).zip(append.expected + 1..) {
            insert.execute(params![
                position,
                number,
                signed(seq),
                checksum(&append.key, seq, bytes),
                bytes
            ])?;
            self.last_position = self.last_position.max(position);
        }
        drop(insert);
        let touched = group.entry(*number).or_insert(Touched {
            key: &append.key,
            agents: &[],
            row: None,
            wake: Wake::Unchanged,
            snapshot: None,
        });
        touched.snapshot = append.snapshot.as_deref().map(|bytes| (item.head(), bytes)).or(touched.snapshot);
        if let Some(row) = &append.row {
            if touched.row.is_none() {
                touched.agents = &row.agents;
            }
            touched.row = Some(row);
        }
        let has_row = touched.row.is_some();
        if append.wake != Wake::Unchanged && (has_row || self.has_row(*number)?) {
            touched.wake = append.wake;
        }
        Ok(())
    }

    /// Write the rows, wake times and snapshots that the group has gathered, once per session.
    fn settle(&mut self, group: Group<'_>) -> rusqlite::Result<()> {
        for (number, touched) in group {
            match touched.row {
                Some(row) => self.write_row(number, touched.key, row, touched.agents, touched.wake)?,
                None => self.write_wake(number, touched.wake)?,
            }
            if let Some((seq, bytes)) = touched.snapshot {
                self.write_snapshot(number, touched.key, seq, bytes)?;
            }
        }
        Ok(())
    }

    fn change(&self, changes: &[Change]) -> rusqlite::Result<bool> {
        let mut read = self
            .connection
            .prepare_cached("SELECT value FROM records WHERE space = ?1 AND tenant = ?2 AND key = ?3")?;
        for Change { name: (space, tenant, key), over, .. } in changes {
            let found: Option<Vec<u8>> = read.query_row([space, tenant, key], |row| row.get(0)).optional()?;
            if !over.is(found.as_deref()) {
                return Ok(false);
            }
        }
        for Change { name: (space, tenant, key), value, .. } in changes {
            let sql = match value {
                Some(_) => "INSERT OR REPLACE INTO records VALUES (?1, ?2, ?3, ?4)",
                None => "DELETE FROM records WHERE space = ?1 AND tenant = ?2 AND key = ?3 AND ?4 IS NULL",
            };
            self.connection.prepare_cached(sql)?.execute(params![space, tenant, key, value])?;
        }
        Ok(true)
    }

    fn delete_finished(&mut self, before: u64, now: u64, max: usize) -> rusqlite::Result<Vec<Deleted>> {
        let mut oldest = self.connection.prepare_cached(
            "SELECT r.number, s.tenant, s.session, r.finished_at, r.requester,
                 (SELECT ifnull(sum(length(e.bytes)), 0) FROM events e WHERE e.number = r.number)
             FROM index_rows r INDEXED BY index_finished JOIN sessions s ON s.number = r.number
             WHERE r.finished_at < ?1 AND r.wake IS NULL
             ORDER BY r.finished_at, r.number LIMIT ?2",
        )?;
        let found = oldest.query_map([signed(before), signed(max as u64)], |row| {
            let key = SessionKey::new(row.get::<_, Box<str>>(1)?, row.get::<_, Box<str>>(2)?);
            let (requester, bytes) = (row.get(4)?, natural(row.get(5)?));
            let deleted = Deleted { key, finished_at: natural(row.get(3)?), requester, bytes };
            Ok((row.get::<_, Number>(0)?, deleted))
        });
        let found = found?.collect::<rusqlite::Result<Vec<_>>>()?;
        drop(oldest);
        for (number, deleted) in &found {
            self.uncount(*number, deleted)?;
            self.delete(*number, &deleted.key, now)?;
        }
        if !found.is_empty() {
            let mut keep =
                self.connection.prepare_cached("UPDATE counters SET value = ?2 WHERE name = ?1")?;
            keep.execute(params!["position", self.last_position])?;
            keep.execute(params!["number", self.last_number])?;
        }
        Ok(found.into_iter().map(|(_, deleted)| deleted).collect())
    }

    fn delete(&mut self, number: Number, key: &SessionKey, now: u64) -> rusqlite::Result<()> {
        self.remove_row(number, &key.tenant)?;
        for sql in [
            "DELETE FROM index_snapshots WHERE number = ?1",
            "DELETE FROM events WHERE number = ?1",
            "DELETE FROM sessions WHERE number = ?1",
        ] {
            self.connection.prepare_cached(sql)?.execute([number])?;
        }
        let mut insert = self.connection.prepare_cached("INSERT INTO tombstones VALUES (?1, ?2, ?3)")?;
        insert.execute(params![key.session, key.tenant, signed(now)])?;
        self.rows.remove(&number);
        Ok(())
    }

    /// Take out of the count what was counted of a session.
    fn uncount(&self, number: Number, deleted: &Deleted) -> rusqlite::Result<()> {
        let mut uncount = self.connection.prepare_cached(
            "UPDATE index_stored SET bytes = max(0, bytes - (
                 SELECT ifnull(sum(length(e.bytes)), 0) FROM events e WHERE e.number = ?1
                 AND e.position <= (SELECT value FROM counters WHERE name = 'stored')))
             WHERE tenant = ?2 AND agent = ?3",
        )?;
        uncount.execute(params![number, deleted.key.tenant, deleted.requester])?;
        Ok(())
    }

    /// Count what was appended since it was last counted. Says whether there is more. What is lost of it in a crash is
    /// counted again.
    pub(super) fn count_stored(&mut self, least: u64, most: u64) -> rusqlite::Result<bool> {
        self.begin(false)?;
        let more = self.count(least, most)?;
        self.run("COMMIT")?;
        Ok(more)
    }

    fn count(&self, least: u64, most: u64) -> rusqlite::Result<bool> {
        let counted: i64 = self
            .connection
            .prepare_cached("SELECT value FROM counters WHERE name = 'stored'")?
            .query_row([], |row| row.get(0))?;
        if self.last_position - counted < signed(least) {
            return Ok(false);
        }
        let end = self.last_position.min(counted.saturating_add(signed(most)));
        // Added up here: grouping them in SQL would gather the bytes themselves to sort them.
        let mut select = self.connection.prepare_cached(
            "SELECT s.tenant, r.requester, length(e.bytes)
             FROM events e CROSS JOIN index_rows r ON r.number = e.number
             CROSS JOIN sessions s ON s.number = e.number
             WHERE e.position > ?1 AND e.position <= ?2",
        )?;
        let mut sums: BTreeMap<(Box<str>, Box<str>), i64> = BTreeMap::new();
        let mut rows = select.query([counted, end])?;
        while let Some(row) = rows.next()? {
            *sums.entry((row.get(0)?, row.get(1)?)).or_default() += row.get::<_, i64>(2)?;
        }
        let mut add = self.connection.prepare_cached(
            "INSERT INTO index_stored VALUES (?1, ?2, ?3)
             ON CONFLICT (tenant, agent) DO UPDATE SET bytes = bytes + excluded.bytes",
        )?;
        for ((tenant, agent), bytes) in sums {
            add.execute(params![tenant, agent, bytes])?;
        }
        let mut keep =
            self.connection.prepare_cached("UPDATE counters SET value = ?1 WHERE name = 'stored'")?;
        keep.execute([end])?;
        Ok(end < self.last_position)
    }

    fn put_tombstones(&self, tombstones: &[Tombstone]) -> rusqlite::Result<()> {
        let mut insert = self.connection.prepare_cached(
            "INSERT INTO tombstones SELECT ?1, ?2, ?3
             WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE session = ?1 AND tenant = ?2) ON CONFLICT DO NOTHING",
        )?;
        for Tombstone { key, deleted_at } in tombstones {
            insert.execute(params![key.session, key.tenant, signed(*deleted_at)])?;
        }
        Ok(())
    }

    fn forget(&self, deleted_before: u64) -> rusqlite::Result<u64> {
        let mut delete = self.connection.prepare_cached("DELETE FROM tombstones WHERE deleted_at < ?1")?;
        Ok(delete.execute([signed(deleted_before)])? as u64)
    }

    fn clear_index(&mut self) -> rusqlite::Result<()> {
        self.connection.execute_batch(schema::CLEAR_INDEX)?;
        self.rows.clear();
        self.lists.clear();
        Ok(())
    }

    fn restore_index(&mut self, rows: &[(SessionKey, IndexRow, Wake)]) -> rusqlite::Result<()> {
        for (key, row, wake) in rows {
            if let Some(number) = self.find(key)? {
                // Without one before, the new row says which agents there are.
                let wake = if *wake == Wake::Unchanged { self.wake(number)? } else { *wake };
                self.remove_row(number, &key.tenant)?;
                self.write_row(number, key, row, &row.agents, wake)?;
            }
        }
        Ok(())
    }

    fn find(&self, key: &SessionKey) -> rusqlite::Result<Option<Number>> {
        let mut find = self
            .connection
            .prepare_cached("SELECT number FROM sessions WHERE session = ?1 AND tenant = ?2")?;
        find.query_row([&*key.session, &*key.tenant], |row| row.get(0)).optional()
    }
}

/// The last position that was ever given.
pub(super) const LAST_POSITION: &str =
    "SELECT max(value, (SELECT ifnull(max(position), 0) FROM events)) FROM counters WHERE name = 'position'";

/// When a session was deleted, if its tombstone is still there.
pub(super) fn tombstone(connection: &Connection, key: &SessionKey) -> rusqlite::Result<Option<u64>> {
    let mut find =
        connection.prepare_cached("SELECT deleted_at FROM tombstones WHERE session = ?1 AND tenant = ?2")?;
    find.query_row([&*key.session, &*key.tenant], |row| row.get(0).map(natural)).optional()
}
