//! The embedded store: one SQLite file, one process.
//!
//! In reading order: `schema` (the tables), `work` (what can be written), `queue` (group commit), `writer` (what a
//! commit does), `rows` (the index rows of a session), `reader` and `list` (reading), `inbox` (what waits for an agent).
//!
//! A failed commit or sync is fatal for the connection that writes: it is dropped with all that it remembered, and the
//! next call opens another. The sync is never tried again, because after a failed one the system may have thrown away
//! what was to be written; the next commit writes its pages anew.

mod agents;
mod cache;
mod inbox;
mod list;
mod queue;
mod reader;
mod rows;
mod schema;
mod work;
mod writer;

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::sync::{Arc, Mutex};

use rusqlite::{Connection, ErrorCode, ffi};

use self::queue::{Answer, Queue};
use self::reader::Readers;
use self::work::{Reply, Work};
use self::writer::Writer;
use crate::fault::Fault;
use crate::log::{
    Append, Cursor, Deleted, DueCursor, DuePage, Feed, FeedItem, Filter, Hint, InboxPage, IndexRow,
    OpenCount, Order, Outcome, Page, Position, Put, Record, SessionKey, Snapshot, Store, StoredBytes,
    StoredEvent, Wake,
};

/// How much memory to use, and when to pause for what.
#[derive(Clone, Debug)]
pub struct Options {
    /// The pages of the write-ahead log after which a commit also moves them into the database. More is faster on the
    /// whole, with rarer and longer pauses, a longer log on disk and a slower open after a crash. No other thread can do it
    /// beside the commits: if its sync of the log failed, the system might throw away what a commit has just written, and
    /// the commit's own sync would succeed.
    pub checkpoint_pages: u32,
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
    // Closed in this order: the writer comes last of the connections, because the last one moves the write-ahead log
    // into the database. The lock is let go when nothing is open any more.
    readers: Readers,
    /// Never used. While it is open, a writer that was dropped after a failed sync is not the last connection, so what
    /// it may have left in the write-ahead log is not taken for committed but overwritten.
    _keeper: Mutex<Connection>,
    writer: Mutex<Option<Writer>>,
    queue: Queue,
    watchers: Mutex<Vec<SyncSender<Hint>>>,
    file: PathBuf,
    options: Options,
    _lock: Lock,
}

const DATABASE_FILE: &str = "handover.db";
const LOCK_FILE: &str = "lock";

impl SqliteStore {
    /// Open the store in a directory, which is made if it is not there. The directory is this process's own until the
    /// store is dropped.
    pub fn open(dir: &Path) -> Result<SqliteStore, Fault> {
        SqliteStore::open_with(dir, Options::default())
    }

    /// Where a store in this directory keeps its data: the directory itself, and its files, of which some may not be there.
    pub fn places(dir: &Path) -> Vec<PathBuf> {
        let files = ["", "-wal", "-shm"].map(|end| dir.join(format!("{DATABASE_FILE}{end}")));
        [dir.to_owned()].into_iter().chain(files).collect()
    }

    /// [`open`](SqliteStore::open) with other options.
    pub fn open_with(dir: &Path, options: Options) -> Result<SqliteStore, Fault> {
        make_dir(dir).map_err(|source| io_fault("making the data directory", source))?;
        let lock = lock(dir)?;
        let file = dir.join(DATABASE_FILE);
        make_file(&file).map_err(|source| io_fault("making the database", source))?;
        let opening = |source| fault("opening the database", source);
        let connection = schema::open_writer(&file, &options).map_err(opening)?;
        schema::migrate(&connection)?;
        schema::move_log(&connection)?;
        let writer = Writer::over(connection).map_err(opening)?;
        let keeper = schema::open_reader(&file, &options).map_err(opening)?;
        Ok(SqliteStore {
            readers: Readers::new(file.clone(), options.clone()),
            _keeper: Mutex::new(keeper),
            writer: Mutex::new(Some(writer)),
            queue: Queue::new(options.commit_events_max),
            watchers: Mutex::default(),
            file,
            options,
            _lock: lock,
        })
    }

    fn submit(&self, work: Work) -> Answer {
        self.queue.submit(work, |works| self.commit(works))
    }

    fn commit(&self, works: &[Work]) -> Vec<Answer> {
        let mut slot = self.writer.lock().unwrap_or_else(|poisoned| {
            self.writer.clear_poison();
            let mut slot = poisoned.into_inner();
            *slot = None;
            slot
        });
        let writer = match slot.take() {
            Some(writer) => Ok(writer),
            None => Writer::open(&self.file, &self.options),
        };
        let committed = writer.and_then(|mut writer| writer.commit(works).map(|done| (writer, done)));
        match committed {
            Ok((writer, (replies, hints))) => {
                *slot = Some(writer);
                self.publish(&hints);
                replies.into_iter().map(Ok).collect()
            }
            Err(source) => {
                let source = Arc::new(source);
                works.iter().map(|work| Err(shared_fault(work.doing(), source.clone()))).collect()
            }
        }
    }

    fn publish(&self, hints: &[Hint]) {
        let mut watchers = self.watchers.lock().expect("no holder of the watchers panics");
        watchers.retain(|watcher| {
            hints.iter().all(|hint| match watcher.try_send(hint.clone()) {
                Ok(()) | Err(TrySendError::Full(_)) => true,
                Err(TrySendError::Disconnected(_)) => false,
            })
        });
    }
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

/// What is stored beside each event and each snapshot, and checked when it is read.
fn checksum(key: &SessionKey, seq: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&(key.tenant.len() as u64).to_le_bytes());
    hasher.update(key.tenant.as_bytes());
    hasher.update(&(key.session.len() as u64).to_le_bytes());
    hasher.update(key.session.as_bytes());
    hasher.update(&seq.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// As SQLite's signed integer.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Back from SQLite's signed integer. Nothing negative is ever stored.
fn natural(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

fn fault(doing: &'static str, source: rusqlite::Error) -> Fault {
    shared_fault(doing, Arc::new(source))
}

fn shared_fault(doing: &'static str, source: Arc<rusqlite::Error>) -> Fault {
    let code = source.sqlite_error();
    // Making the shared index of the write-ahead log longer fails with a code of its own, and only for want of room.
    let full = code.is_some_and(|error| {
        error.code == ErrorCode::DiskFull || error.extended_code == ffi::SQLITE_IOERR_SHMSIZE
    });
    let source = Box::new(source);
    if full { Fault::Full { doing, source } } else { Fault::Unavailable { doing, source } }
}

fn io_fault(doing: &'static str, source: io::Error) -> Fault {
    let full = source.kind() == io::ErrorKind::StorageFull;
    let source = Box::new(source);
    if full { Fault::Full { doing, source } } else { Fault::Unavailable { doing, source } }
}

/// How many events are counted in one commit, while others wait to write and when nobody does.
const COUNTED_AT_ONCE: u64 = 4096;
const COUNTED_AT_THE_START: u64 = 100_000;

impl SqliteStore {
    fn count(&self, least: u64, most: u64) -> Result<bool, Fault> {
        let Reply::Changed(more) = self.submit(Work::CountStored { least, most })? else {
            unreachable!("counting is answered with whether there is more");
        };
        Ok(more)
    }
}

impl Store for SqliteStore {
    fn append(&self, batch: &[Append]) -> Result<Vec<Outcome>, Fault> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let Reply::Outcomes(outcomes) = self.submit(Work::Append(batch.to_vec()))? else {
            unreachable!("an append is answered with outcomes");
        };
        Ok(outcomes)
    }

    fn read(&self, key: &SessionKey, after: u64, max: usize) -> Result<Vec<StoredEvent>, Fault> {
        self.readers.read(key, after, max)
    }

    fn head(&self, key: &SessionKey) -> Result<Option<u64>, Fault> {
        self.readers.head(key)
    }

    fn snapshot(&self, key: &SessionKey) -> Result<Option<Snapshot>, Fault> {
        self.readers.snapshot(key)
    }

    fn feed(&self, feed: &Feed, after: Position, max: usize) -> Result<Vec<FeedItem>, Fault> {
        self.readers.feed(feed, after, max)
    }

    fn last_position(&self) -> Result<Position, Fault> {
        self.readers.last_position()
    }

    fn list(&self, filter: &Filter, order: Order, after: Option<Cursor>, max: usize) -> Result<Page, Fault> {
        self.readers.list(filter, order, after, max)
    }

    fn inbox(
        &self,
        tenant: &str,
        agent: &str,
        kinds: u32,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<InboxPage, Fault> {
        self.readers.inbox(tenant, agent, kinds, after, max)
    }

    fn row(&self, key: &SessionKey) -> Result<Option<IndexRow>, Fault> {
        self.readers.row(key)
    }

    fn due_after(&self, after: Option<DueCursor>, until: u64, max: usize) -> Result<DuePage, Fault> {
        self.readers.due(after, until, max)
    }

    fn open_counts(&self) -> Result<Vec<OpenCount>, Fault> {
        self.readers.open_counts()
    }

    fn stored_bytes(&self) -> Result<Vec<StoredBytes>, Fault> {
        while self.count(1, COUNTED_AT_THE_START)? {}
        self.readers.stored_bytes()
    }

    fn count_stored(&self) -> Result<bool, Fault> {
        self.count(COUNTED_AT_ONCE, COUNTED_AT_ONCE)
    }

    fn put_record(&self, record: &Record, put: Put) -> Result<bool, Fault> {
        let Reply::Changed(written) = self.submit(Work::Put(record.clone(), put))? else {
            unreachable!("a put is answered with whether it changed something");
        };
        Ok(written)
    }

    fn record(&self, space: &str, tenant: &str, key: &str) -> Result<Option<Vec<u8>>, Fault> {
        self.readers.record(space, tenant, key)
    }

    fn records(
        &self,
        space: &str,
        tenant: &str,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<Record>, Fault> {
        self.readers.records(space, tenant, after, max)
    }

    fn remove_record(&self, space: &str, tenant: &str, key: &str) -> Result<bool, Fault> {
        let work = Work::Remove { space: space.into(), tenant: tenant.into(), key: key.into() };
        let Reply::Changed(removed) = self.submit(work)? else {
            unreachable!("a removal is answered with whether it changed something");
        };
        Ok(removed)
    }

    fn delete_finished(&self, finished_before: u64, now: u64, max: usize) -> Result<Vec<Deleted>, Fault> {
        let Reply::Deleted(deleted) = self.submit(Work::DeleteFinished { finished_before, now, max })? else {
            unreachable!("a deletion is answered with what was deleted");
        };
        Ok(deleted)
    }

    fn tombstone(&self, key: &SessionKey) -> Result<Option<u64>, Fault> {
        self.readers.tombstone(key)
    }

    fn forget_tombstones(&self, deleted_before: u64) -> Result<u64, Fault> {
        let Reply::Count(count) = self.submit(Work::ForgetTombstones { deleted_before })? else {
            unreachable!("forgetting tombstones is answered with a count");
        };
        Ok(count)
    }

    fn watch(&self, capacity: usize) -> Result<mpsc::Receiver<Hint>, Fault> {
        let (sender, receiver) = mpsc::sync_channel(capacity);
        self.watchers.lock().expect("no holder of the watchers panics").push(sender);
        Ok(receiver)
    }

    fn sessions(
        &self,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<(Vec<SessionKey>, Option<Cursor>), Fault> {
        self.readers.sessions(after, max)
    }

    fn unfinished(
        &self,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<(Vec<SessionKey>, Option<Cursor>), Fault> {
        self.readers.unfinished(after, max)
    }

    fn clear_index(&self) -> Result<(), Fault> {
        self.submit(Work::ClearIndex).map(|_| ())
    }

    fn restore_index(&self, rows: &[(SessionKey, IndexRow, Wake)]) -> Result<(), Fault> {
        self.submit(Work::RestoreIndex(rows.to_vec())).map(|_| ())
    }

    fn index_version(&self) -> Result<u32, Fault> {
        self.readers.index_version()
    }

    fn set_index_version(&self, version: u32) -> Result<(), Fault> {
        self.submit(Work::SetIndexVersion(version)).map(|_| ())
    }

    fn probe(&self) -> Result<(), Fault> {
        self.submit(Work::Probe).map(|_| ())
    }
}
