//! The embedded store: one SQLite file with a journal in front of it, one process.
//!
//! In reading order: `schema` (the tables), `work` (what can be written), `queue` (group commit), `commit` (how work becomes
//! durable), `front` (what becomes of an append), `journal` and `record` (its files, and what is in them), `pending` (what
//! the database does not have yet), `writer` (writing to the database), `rows` (the index rows of a session), `reader` and
//! `list` (reading), `inbox` (what waits for an agent), `failure` (what goes wrong).

mod agents;
mod cache;
mod commit;
mod failure;
mod front;
mod inbox;
mod journal;
mod list;
mod pending;
mod queue;
mod reader;
mod record;
mod rows;
mod schema;
mod work;
mod writer;

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use self::commit::Core;
use self::failure::Failure;
use self::front::Front;
use self::pending::Pending;
use self::queue::Queue;
use self::reader::Readers;
use self::work::{Reply, Work};
use self::writer::Writer;
use crate::checksum::checksum;
use crate::fault::Fault;
use crate::log::{
    Append, Change, Cursor, Deleted, DueCursor, DuePage, Feed, FeedItem, Filter, InboxPage, IndexRow,
    OpenCount, Order, Outcome, Page, Record, SessionKey, Snapshot, Space, Store, StoredBytes, StoredEvent,
    Tombstone, Wake,
};
use crate::number::{natural, signed};
use crate::place::{Place, Slot};

/// How much memory to use, and when to pause for what.
#[derive(Clone, Debug)]
pub struct Options {
    /// The pages of the write-ahead log after which they are moved into the database. More is faster on the whole, with
    /// rarer and longer pauses for those who read lists, a longer log on disk and a slower open after a crash. Appends do
    /// not wait for it.
    pub checkpoint_pages: u32,
    /// After how many bytes a file of the journal is full, and the other is begun if everything in it is in the database.
    pub journal_bytes: u64,
    /// The size of a page in a new database, a power of two.
    pub page_bytes: u32,
    /// The most memory that the writing connection uses for pages. More is not better: after a commit in which pages of
    /// a tree changed places, which is nearly every one under load, SQLite looks at each page that it has cached. One
    /// that it has not costs a read from the system's cache.
    pub writer_cache_kib: u32,
    /// The most memory that each reading connection uses for pages.
    pub reader_cache_kib: u32,
    /// The most connections that read at once.
    pub readers_max: usize,
    /// After how many events a commit takes no more of what is waiting.
    pub commit_events_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            checkpoint_pages: 1_000,
            journal_bytes: 8 << 20,
            page_bytes: 4096,
            writer_cache_kib: 16 * 1024,
            reader_cache_kib: 2 * 1024,
            readers_max: 4,
            commit_events_max: 4096,
        }
    }
}

/// Logs and rows in a SQLite file. Times and sequence numbers go up to `i64::MAX`; higher ones count as that.
pub struct SqliteStore {
    core: Arc<Core>,
    /// Writes to the database what is in the journal.
    settler: Option<JoinHandle<()>>,
}

const DATABASE_FILE: &str = "handover.db";
const LOCK_FILE: &str = "lock";

impl SqliteStore {
    /// Open the store in a directory, which is made if it is not there. The directory is this process's own until the
    /// store is dropped.
    pub fn open(dir: &Path) -> Result<SqliteStore, Fault> {
        SqliteStore::open_with(dir, Options::default())
    }

    /// What the database is called in its directory.
    pub const DATABASE: &str = DATABASE_FILE;

    /// Where a store in this directory keeps its data: the directory itself, and its files, of which some may not be there.
    pub fn places(dir: &Path) -> Vec<PathBuf> {
        let files = ["", "-wal", "-shm"].map(|end| dir.join(format!("{DATABASE_FILE}{end}")));
        let journal = journal::FILES.map(|name| dir.join(name));
        [dir.to_owned()].into_iter().chain(files).chain(journal).collect()
    }

    /// Which version the tables in this directory have, and which this release knows. Changes nothing.
    pub fn versions(dir: &Path) -> Result<(u32, u32), Fault> {
        Ok((schema::version_of(&dir.join(DATABASE_FILE))?, schema::KNOWN))
    }

    /// [`open`](SqliteStore::open) with other options.
    pub fn open_with(dir: &Path, options: Options) -> Result<SqliteStore, Fault> {
        make_dir(dir).map_err(|source| io_fault("making the data directory", source))?;
        let lock = lock(dir)?;
        let file = dir.join(DATABASE_FILE);
        make_file(&file).map_err(|source| io_fault("making the database", source))?;
        schema::write_log_again(&file)
            .map_err(|source| io_fault("writing the write-ahead log again", source))?;
        let (writer, salt) = recover(dir, &options)?;
        journal::remove(dir).map_err(|source| io_fault("removing the journal", source))?;
        let lookups = Readers::new(file.clone(), Options { readers_max: 1, ..options.clone() });
        let core = Arc::new(Core {
            readers: Readers::new(file, options.clone()),
            front: Mutex::new(Front::new(lookups, &writer)),
            durable: AtomicU64::new(writer.applied),
            slot: Mutex::new(Some(writer)),
            broken: AtomicBool::new(false),
            pending: Pending::default(),
            salt,
            queue: Queue::new(options.commit_events_max),
            dir: dir.to_owned(),
            options,
            _lock: lock,
        });
        let settler = Arc::clone(&core);
        let settler =
            thread::Builder::new().name("settler".to_owned()).spawn(move || settler.keep_settling());
        let settler = Some(settler.map_err(|source| io_fault("starting the store's thread", source))?);
        Ok(SqliteStore { core, settler })
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.core.pending.stop();
        if let Some(settler) = self.settler.take() {
            // One that panicked has said so.
            _ = settler.join();
        }
        // What cannot be written now is in the journal.
        _ = self.core.close();
    }
}

/// Bring the database to where the last process, or this one, was when it stopped. The write-ahead log was written once more:
/// after a failed sync some of it may be in the system's memory and never reach the disk. What is in it and in the
/// journal is applied and synced before anything new rests on it, and then the journal is not needed any more. Without room for
/// moving the log, it is as good as before.
fn recover(dir: &Path, options: &Options) -> Result<(Writer, u64), Fault> {
    let opening = |source| fault("opening the database", source);
    let file = dir.join(DATABASE_FILE);
    let connection = schema::open_writer(&file, options).map_err(opening)?;
    if schema::checkpoint(&connection, "NOOP").map_err(opening)?.moved > 0 {
        // Another program has kept SQLite's notes of what was moved into the database. Nobody knows whether that was synced.
        let source = io::Error::other("another program has the database open, and must close it first");
        return Err(io_fault("opening the database", source));
    }
    schema::migrate(&connection)?;
    let salt: i64 = connection
        .query_row("SELECT value FROM counters WHERE name = 'journal_salt'", [], |row| row.get(0))
        .map_err(opening)?;
    let mut writer = Writer::over(connection).map_err(opening)?;
    let found = journal::read(dir, salt.cast_unsigned(), writer.applied)?;
    if let Some(last) = found.last() {
        let mut apply = || writer.apply(found.items(), last, true).map_err(Failure::from);
        let applied = match apply() {
            Err(failure) if failure.is_full => {
                found.give_back(dir);
                apply()
            }
            applied => applied,
        };
        applied.map_err(|failure| failure.fault("writing what is in the journal to the database"))?;
    }
    match schema::checkpoint(&writer.connection, "TRUNCATE").map_err(Failure::from) {
        Err(failure) if !failure.is_full => Err(failure.fault("moving the write-ahead log"))?,
        _ => {}
    }
    Ok((writer, salt.cast_unsigned()))
}

/// Make a directory that is its owner's alone, so that it survives a crash.
fn make_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)?;
    match fs::canonicalize(dir)?.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// Make an empty file that is its owner's alone, if there is none. SQLite takes it for a new database, and gives the files
/// that it keeps beside it the same mode; left to itself, it would let everybody read them.
fn make_file(path: &Path) -> io::Result<()> {
    let mut options = File::options();
    options.create(true).append(true);
    private(&mut options);
    options.open(path).map(drop)
}

fn private(options: &mut fs::OpenOptions) {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
}

/// The directory is ours. Let go in so many words: closing the file would leave the lock with any process that is just
/// being started from this one and has not yet closed its copy.
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Without it, closing the file lets go a moment later.
        let _ = self.0.unlock();
    }
}

fn lock(dir: &Path) -> Result<Lock, Fault> {
    let locking = |source| io_fault("locking the data directory", source);
    let mut options = File::options();
    options.create(true).truncate(false).write(true);
    private(&mut options);
    let file = options.open(dir.join(LOCK_FILE)).map_err(locking)?;
    match file.try_lock() {
        Ok(()) => Ok(Lock(file)),
        Err(TryLockError::WouldBlock) => Err(Fault::InUse { dir: dir.display().to_string() }),
        Err(TryLockError::Error(source)) => Err(locking(source)),
    }
}

fn fault(doing: &'static str, source: rusqlite::Error) -> Fault {
    Failure::from(source).fault(doing)
}

fn io_fault(doing: &'static str, source: io::Error) -> Fault {
    Failure::from(source).fault(doing)
}

/// How many events are counted in one commit, while others wait to write and when nobody does.
const COUNTED_AT_ONCE: u64 = 4096;
const COUNTED_AT_THE_START: u64 = 100_000;

impl SqliteStore {
    /// To read what is about all sessions.
    fn readers(&self) -> Result<&Readers, Fault> {
        self.core.settle()?;
        Ok(&self.core.readers)
    }

    /// To read what is about one session.
    fn readers_of(&self, key: &SessionKey) -> Result<&Readers, Fault> {
        self.core.settle_session(key)?;
        Ok(&self.core.readers)
    }

    /// To read what never waits in the journal.
    fn readers_at_once(&self) -> Result<&Readers, Fault> {
        self.core.sound()?;
        Ok(&self.core.readers)
    }
}

impl Store for SqliteStore {
    fn copy_to(&self, file: &Path) -> Result<(), Fault> {
        const DOING: &str = "copying the database";
        let failed = |source| io_fault(DOING, source);
        let name =
            file.to_str().ok_or_else(|| failed(io::Error::other("the name of the copy is no UTF-8")))?;
        // SQLite takes an empty file, which is ours alone already.
        make_file(file).map_err(failed)?;
        // One read transaction: the journal was written to the database before it, and what comes after is not in it.
        self.readers()?.ask(DOING, |connection| connection.execute("VACUUM INTO ?1", [name]))?;
        schema::check_copy(file).map_err(failed)?;
        File::open(file).and_then(|file| file.sync_all()).map_err(failed)
    }

    fn append(&self, batch: &[Append]) -> Result<Vec<Outcome>, Fault> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let Reply::Outcomes(outcomes) = self.core.submit(Work::Append(batch.to_vec()))? else {
            unreachable!("an append is answered with outcomes");
        };
        Ok(outcomes)
    }

    fn read(&self, key: &SessionKey, after: u64, max: usize) -> Result<Vec<StoredEvent>, Fault> {
        self.readers_of(key)?.read(key, after, max)
    }

    fn head(&self, key: &SessionKey) -> Result<Option<u64>, Fault> {
        let readers = self.readers_at_once()?;
        match self.core.pending.head(key) {
            Some((_, head)) => Ok(Some(natural(head))),
            None => readers.head(key),
        }
    }

    fn snapshot(&self, key: &SessionKey) -> Result<Option<Snapshot>, Fault> {
        self.readers_of(key)?.snapshot(key)
    }

    fn feed(&self, feed: &Feed, after: &Place, max: usize) -> Result<Vec<FeedItem>, Fault> {
        self.readers()?.feed(feed, after.number(Slot::default()), max)
    }

    fn last_place(&self) -> Result<Place, Fault> {
        self.readers()?.last_position().map(Place::first_slot)
    }

    fn settle(&self) -> Result<(), Fault> {
        // After a failure the store is opened again before anything is written.
        self.probe()
    }

    fn list(&self, filter: &Filter, order: Order, after: Option<Cursor>, max: usize) -> Result<Page, Fault> {
        self.readers()?.list(filter, order, after, max)
    }

    fn inbox(
        &self,
        tenant: &str,
        agent: &str,
        kinds: u32,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<InboxPage, Fault> {
        self.readers()?.inbox(tenant, agent, kinds, after, max)
    }

    fn row(&self, key: &SessionKey) -> Result<Option<IndexRow>, Fault> {
        self.readers_of(key)?.row(key)
    }

    fn due_after(&self, after: Option<DueCursor>, until: u64, max: usize) -> Result<DuePage, Fault> {
        self.readers()?.due(after, until, max)
    }

    fn open_counts(&self) -> Result<Vec<OpenCount>, Fault> {
        self.readers()?.open_counts()
    }

    fn stored_bytes(&self) -> Result<Vec<StoredBytes>, Fault> {
        while self.core.count(1, COUNTED_AT_THE_START)? {}
        self.readers_at_once()?.stored_bytes()
    }

    fn count_stored(&self) -> Result<bool, Fault> {
        self.core.count(COUNTED_AT_ONCE, COUNTED_AT_ONCE)
    }

    fn change_records(&self, changes: &[Change]) -> Result<bool, Fault> {
        let Reply::Changed(changed) = self.core.submit(Work::Change(changes.to_vec()))? else {
            unreachable!("a change is answered with whether it was made");
        };
        Ok(changed)
    }

    fn record(&self, space: &str, tenant: &str, key: &str) -> Result<Option<Vec<u8>>, Fault> {
        self.readers_at_once()?.record(space, tenant, key)
    }

    fn records(
        &self,
        space: &str,
        tenant: &str,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<Record>, Fault> {
        self.readers_at_once()?.records(space, tenant, after, max)
    }

    fn spaces(&self) -> Result<Vec<Space>, Fault> {
        self.readers_at_once()?.spaces()
    }

    fn delete_finished(&self, finished_before: u64, now: u64, max: usize) -> Result<Vec<Deleted>, Fault> {
        let Reply::Deleted(deleted) = self.core.submit(Work::DeleteFinished { finished_before, now, max })?
        else {
            unreachable!("a deletion is answered with what was deleted");
        };
        Ok(deleted)
    }

    fn tombstone(&self, key: &SessionKey) -> Result<Option<u64>, Fault> {
        self.readers_at_once()?.tombstone(key)
    }

    fn tombstones(&self, after: Option<&Tombstone>, max: usize) -> Result<Vec<Tombstone>, Fault> {
        self.readers_at_once()?.tombstones(after, max)
    }

    fn put_tombstones(&self, tombstones: &[Tombstone]) -> Result<(), Fault> {
        self.core.submit(Work::PutTombstones(tombstones.to_vec())).map(|_| ())
    }

    fn forget_tombstones(&self, deleted_before: u64) -> Result<u64, Fault> {
        let Reply::Count(count) = self.core.submit(Work::ForgetTombstones { deleted_before })? else {
            unreachable!("forgetting tombstones is answered with a count");
        };
        Ok(count)
    }

    fn sessions(
        &self,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<(Vec<SessionKey>, Option<Cursor>), Fault> {
        self.readers()?.sessions(after, max)
    }

    fn unfinished(
        &self,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<(Vec<SessionKey>, Option<Cursor>), Fault> {
        self.readers()?.unfinished(after, max)
    }

    fn clear_index(&self) -> Result<(), Fault> {
        self.core.submit(Work::ClearIndex).map(|_| ())
    }

    fn restore_index(&self, rows: &[(SessionKey, IndexRow, Wake)]) -> Result<(), Fault> {
        self.core.submit(Work::RestoreIndex(rows.to_vec())).map(|_| ())
    }

    fn index_version(&self) -> Result<u32, Fault> {
        self.readers_at_once()?.index_version()
    }

    fn set_index_version(&self, version: u32) -> Result<bool, Fault> {
        self.core.submit(Work::SetIndexVersion(version)).map(|_| true)
    }

    fn probe(&self) -> Result<(), Fault> {
        self.core.submit(Work::Probe).map(|_| ())
    }
}
