//! The tables, the steps from one version of them to the next, and how connections are set up.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::Options;
use crate::fault::Fault;

/// Each step takes the file from its place in the list to the next version. A released step never changes.
const STEPS: &[&str] = &[V1, V2, V3, V4, V5];

/// The newest version that this release knows.
pub(super) const KNOWN: u32 = STEPS.len() as u32;

/// What decides the rate is how many distinct pages a commit touches. So sessions have local numbers in the order in
/// which they came, events lie in the order in which they were appended (their rowid is their position), the index
/// that finds them by session is narrow, and rows that are written together are neighbours.
///
/// The `index_` tables can be emptied and rebuilt from the rest.
///
/// Deleting must not free a position or a session number for reuse, or feeds and cursors would skip what comes next:
/// `counters` keeps the last ones that were ever given.
const V1: &str = "
CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO counters VALUES ('position', 0), ('number', 0), ('probe', 0);

CREATE TABLE sessions (
    number INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    session TEXT NOT NULL
);
CREATE UNIQUE INDEX session_key ON sessions (session, tenant);

CREATE TABLE events (
    position INTEGER PRIMARY KEY,
    number INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    bytes BLOB NOT NULL
);
CREATE UNIQUE INDEX event_place ON events (number, seq);

CREATE TABLE tombstones (
    session TEXT NOT NULL,
    tenant TEXT NOT NULL,
    deleted_at INTEGER NOT NULL,
    PRIMARY KEY (session, tenant)
) WITHOUT ROWID;
CREATE INDEX tombstone_age ON tombstones (deleted_at);

CREATE TABLE records (
    space TEXT NOT NULL,
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (space, tenant, key)
) WITHOUT ROWID;

CREATE TABLE index_rows (
    number INTEGER PRIMARY KEY,
    kind INTEGER NOT NULL,
    status INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    finished_at INTEGER,
    requester TEXT NOT NULL,
    agents BLOB NOT NULL,
    summary BLOB NOT NULL
);
CREATE INDEX index_finished ON index_rows (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX index_open ON index_rows (number) WHERE finished_at IS NULL;

CREATE TABLE index_wakes (
    number INTEGER PRIMARY KEY,
    at INTEGER NOT NULL
);
CREATE INDEX index_due ON index_wakes (at);

-- A list is an agent's, or with no agent the whole tenant's.
CREATE TABLE index_lists (
    list INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    agent TEXT
);
CREATE UNIQUE INDEX index_list_name ON index_lists (tenant, agent);

CREATE TABLE index_listed (
    list INTEGER NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (list, number)
) WITHOUT ROWID;
";

/// The inbox of an agent, snapshots, and the version of the index.
///
/// The inbox has one row for each agent, kind and session. The column `waits` says which of them a session has, so that
/// they are found by the session too, and changed by difference. A list without sessions can have an inbox.
const V2: &str = "
ALTER TABLE index_rows ADD COLUMN waits BLOB NOT NULL DEFAULT x'';

CREATE TABLE index_inbox (
    list INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (list, kind, number)
) WITHOUT ROWID;

CREATE TABLE index_snapshots (
    number INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    bytes BLOB NOT NULL
);

INSERT INTO counters VALUES ('index_version', 0);
";

/// The wake time joins the row. One index has everything that is still to be done, which is little beside all the
/// sessions that ever were: those that have not finished, and those that have a wake time.
const V3: &str = "
ALTER TABLE index_rows ADD COLUMN wake INTEGER;
UPDATE index_rows SET wake = (SELECT at FROM index_wakes w WHERE w.number = index_rows.number)
    WHERE number IN (SELECT number FROM index_wakes);
DROP TABLE index_wakes;
DROP INDEX index_open;
CREATE INDEX index_todo ON index_rows (wake) WHERE finished_at IS NULL OR wake IS NOT NULL;
";

/// How many bytes the events of each requester's sessions have, up to a position. Counted now and then and not with every
/// append: a page more in every commit would cost more than reading the last events again.
const V4: &str = "
CREATE TABLE index_stored (
    tenant TEXT NOT NULL,
    agent TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (tenant, agent)
) WITHOUT ROWID;
INSERT INTO counters VALUES ('stored', 0);
";

/// The journal in front of the database: the last record of it that is in the tables, and the number that its checksums
/// begin with.
const V5: &str = "
INSERT INTO counters VALUES ('journal', 0), ('journal_salt', random());
";

/// Empties the `index_` tables.
pub(super) const CLEAR_INDEX: &str = "
DELETE FROM index_rows;
DELETE FROM index_lists;
DELETE FROM index_listed;
DELETE FROM index_inbox;
DELETE FROM index_snapshots;
DELETE FROM index_stored;
UPDATE counters SET value = 0 WHERE name IN ('index_version', 'stored');
";

const BUSY_MS: u64 = 10_000;
const STATEMENTS_MAX: usize = 64;

/// Take the file to the newest version, or refuse it if it is newer than that.
pub(super) fn migrate(connection: &Connection) -> Result<(), Fault> {
    let doing = "opening the database";
    let read = || connection.query_row("PRAGMA user_version", [], |row| row.get::<_, u32>(0));
    let found = read().map_err(|source| super::fault(doing, source))?;
    if found > KNOWN {
        return Err(Fault::TooNew { found, known: KNOWN });
    }
    for (version, step) in (1..).zip(STEPS).skip(found as usize) {
        connection
            .execute_batch(&format!("BEGIN IMMEDIATE; {step} PRAGMA user_version = {version}; COMMIT;"))
            .map_err(|source| super::fault("bringing the tables up to date", source))?;
    }
    Ok(())
}

/// Which version the tables of a file have. Looks at the head of the file alone, so that nothing is written beside it: where a
/// write-ahead log is not in it yet, the file may have a newer version than this.
pub(super) fn version_of(file: &Path) -> Result<u32, Fault> {
    // "User version", in SQLite's description of its file format.
    const PLACE: u64 = 60;
    let mut version = [0; 4];
    let read = File::open(file).and_then(|file| file.read_exact_at(&mut version, PLACE));
    read.map_err(|source| super::io_fault("reading the version of the tables", source))?;
    Ok(u32::from_be_bytes(version))
}

/// What became of a checkpoint.
pub(super) struct Moved {
    /// How many pages are in the write-ahead log.
    pub(super) pages: u32,
    /// How many of them the database has, perhaps not durably.
    pub(super) moved: u32,
    /// Whether the database has all of them, durably. Not while somebody reads what was before.
    pub(super) is_complete: bool,
}

/// Move the write-ahead log into the database. SQLite syncs the log before it writes to the database, and syncs the database
/// when it has all of the log, before it writes over that.
pub(super) fn checkpoint(connection: &Connection, how: &str) -> rusqlite::Result<Moved> {
    connection.query_row(&format!("PRAGMA wal_checkpoint({how})"), [], |row| {
        let (busy, pages, moved): (bool, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let count = |pages: i64| pages.try_into().unwrap_or(0);
        Ok(Moved { pages: count(pages), moved: count(moved), is_complete: !busy && moved == pages })
    })
}

/// Write the bytes of the write-ahead log once more, and sync them. After a failed sync some of them may be in the
/// system's memory and never reach the disk, whatever the next sync says.
pub(super) fn write_log_again(database: &Path) -> io::Result<()> {
    let mut log = database.as_os_str().to_owned();
    log.push("-wal");
    let file = match File::options().read(true).write(true).open(&log) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let mut piece = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        let length = file.read_at(&mut piece, at)?;
        if length == 0 {
            break;
        }
        file.write_all_at(&piece[..length], at)?;
        at += length as u64;
    }
    if at > 0 { file.sync_data() } else { Ok(()) }
}

/// The one connection that writes. How it syncs is said with each transaction, and when the write-ahead log moves into the
/// database is said by others, who want to know what came of it.
pub(super) fn open_writer(file: &Path, options: &Options) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(
        file,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    remove_log_on_close(&connection, false)?;
    connection.busy_timeout(Duration::from_millis(BUSY_MS))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    connection.pragma_update(None, "page_size", options.page_bytes)?;
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.query_row("PRAGMA wal_autocheckpoint = 0", [], |_| Ok(()))?;
    connection.pragma_update(None, "cache_size", -i64::from(options.writer_cache_kib))?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(connection)
}

/// Whether the connection moves what is in the write-ahead log and removes it when it is closed as the last. Not before
/// it is known that nothing failed.
pub(super) fn remove_log_on_close(connection: &Connection, remove: bool) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, !remove).map(drop)
}

/// A connection that cannot write.
pub(super) fn open_reader(file: &Path, options: &Options) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(
        file,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.busy_timeout(Duration::from_millis(BUSY_MS))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    connection.pragma_update(None, "cache_size", -i64::from(options.reader_cache_kib))?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.query_row("SELECT value FROM counters WHERE name = 'probe'", [], |_| Ok(()))?;
    Ok(connection)
}

/// Whether a copy of the database is sound.
pub(super) fn check_copy(file: &Path) -> io::Result<()> {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let said = Connection::open_with_flags(file, flags)
        .and_then(|copy| copy.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0)));
    match said {
        Ok(said) if said == "ok" => Ok(()),
        Ok(said) => Err(io::Error::other(format!("the copy is damaged: {said}"))),
        Err(error) => Err(io::Error::other(error)),
    }
}
