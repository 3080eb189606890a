//! A disk that loses what was not synced, and one whose sync fails.
//!
//! A child process runs over `shim/disk.c`, which undoes what is not durable when the power goes.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod child;
mod work;

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;

use handover_store::sqlite::Options;
use handover_store::{Append, Fault, Filter, IndexRow, Order, Outcome, SessionKey, SqliteStore, Store, Wake};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use tempfile::TempDir;

use self::child::Random;
use self::work::{Acked, Heads};

const POWER_LOST: i32 = 77;
const WORKERS: u64 = 3;

/// The child's part: append until the power goes, at the latest at the end.
#[test]
fn append_until_the_power_goes() {
    let Some(role) = child::role() else { return };
    let mut role = role.splitn(3, ' ');
    let [run, checkpoint_pages, dir] = std::array::from_fn(|_| role.next().unwrap());
    let dir = Path::new(dir);
    let checkpoint_pages = checkpoint_pages.parse().unwrap();
    // Small, so that the journal's files are used again.
    let options = Options { checkpoint_pages, journal_bytes: 8 << 10, ..Options::default() };
    let store = SqliteStore::open_with(&dir.join("data"), options.clone()).unwrap();
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (store, options) = (&store, &options);
            scope.spawn(move || {
                let mut random = Random(run.parse::<u64>().unwrap() * WORKERS + worker);
                let mut heads = Heads::unknown(run == "1");
                for at in 0..20 {
                    let before = syncs(dir);
                    match work::append(store, worker, &format!("{run}.{at}"), &mut random, &mut heads) {
                        Ok(lines) => {
                            assert!(syncs(dir) > before || cheating(), "an acknowledgement needs a sync");
                            work::acknowledge(&lines);
                            // Has the log moved into the database soon, if that is wanted after every page. It may fail.
                            if options.checkpoint_pages == 1 {
                                _ = store.stored_bytes();
                            }
                        }
                        Err(fault @ Fault::Unavailable { .. }) => {
                            eprintln!("{fault:?}");
                            work::say("fault");
                        }
                        Err(fault) => panic!("expected the store to be unavailable, found {fault}"),
                    }
                }
            });
        }
    });
    File::create(dir.join("data").join("lose")).unwrap().sync_all().unwrap();
}

/// The child's part: a deletion fails in doubt, what it has deleted is appended to, and the process is killed.
#[test]
fn append_to_what_was_deleted_in_doubt() {
    let Some(role) = child::role() else { return };
    let store = SqliteStore::open(&Path::new(&role).join("data")).unwrap();
    let key = SessionKey::new("acme", "one");
    let row = IndexRow {
        kind: 0,
        status: 0,
        requester: "a".into(),
        agents: vec!["a".into()],
        created_at: 1,
        finished_at: Some(2),
        summary: Vec::new(),
        waits: Vec::new(),
    };
    let (events, wake) = (vec![vec![1]], Wake::Unchanged);
    let first = Append { key, expected: 0, events, row: Some(row), wake, snapshot: None };
    store.append(std::slice::from_ref(&first)).unwrap();
    let fault = store.delete_finished(3, 4, 10).unwrap_err();
    assert!(matches!(fault, Fault::Unavailable { .. }), "expected the sync to fail, found {fault}");
    // Its bytes are in the log, so it has happened, for everybody.
    let second = Append { expected: 1, row: None, ..first };
    assert_eq!(store.append(&[second]).unwrap(), [Outcome::Tombstone { deleted_at: 4 }]);
    std::process::exit(POWER_LOST);
}

/// The child's part: the log is moved into the database in two parts because somebody reads, and the sync after the second
/// fails. SQLite does not sync after the first.
#[test]
fn move_the_log_in_two_parts() {
    let Some(role) = child::role() else { return };
    let dir = Path::new(&role);
    let data = dir.join("data");
    let store = SqliteStore::open_with(&data, Options { checkpoint_pages: 1, ..Options::default() }).unwrap();
    let connect = || {
        let connection = Connection::open(data.join("handover.db")).unwrap();
        // It must not move the log itself, should it be the last.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
        connection
    };
    let read = || {
        let reader = connect();
        reader.execute_batch("BEGIN; SELECT * FROM counters").unwrap();
        reader
    };
    // How many pages the log has, and how many of them were moved.
    let pages = || {
        let columns = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?));
        connect().query_row("PRAGMA wal_checkpoint(NOOP)", [], columns).unwrap()
    };
    // Everything that was appended is in the log after this, and there is something to move.
    let settle = || store.stored_bytes().unwrap();
    let wait = |until: &dyn Fn() -> bool| {
        while !until() {
            thread::yield_now();
        }
    };
    let mut random = Random(1);
    let mut heads = Heads::unknown(true);
    let mut append = |name: &str| {
        work::acknowledge(&work::append(&store, 0, name, &mut random, &mut heads).unwrap());
        settle();
    };

    let nothing_moves = read();
    append("first");
    let only_the_first_moves = read();
    append("second");
    drop(nothing_moves);
    settle();
    wait(&|| pages().1 > 0);
    let (long, moved) = pages();
    assert!(moved < long, "the log was moved as a whole");
    drop(only_the_first_moves);
    settle();
    wait(&|| counted(dir)[1] == 1);
    wait(&|| pages().0 == pages().1);
    // Until the log begins anew, what was in it is in the database alone, and nothing is left to be done from the journal.
    (0..).take_while(|_| pages().0 >= long).for_each(|at| append(&format!("more{at}")));
    wait(&|| pages().0 == pages().1);
    File::create(data.join("lose")).unwrap().sync_all().unwrap();
}

/// Whether the disk only pretends to sync.
fn cheating() -> bool {
    std::env::var_os("DISK_NO_SYNC").is_some()
}

/// How many syncs succeeded.
fn syncs(dir: &Path) -> u64 {
    counted(dir)[0]
}

/// How many syncs succeeded, and how many failed.
fn counted(dir: &Path) -> [u64; 2] {
    let bytes = fs::read(dir.join("syncs")).unwrap_or_default();
    let number =
        |at: usize| bytes.get(at..at + 8).map_or(0, |bytes| u64::from_ne_bytes(bytes.try_into().unwrap()));
    [number(0), number(8)]
}

/// The shim, built once.
fn shim() -> &'static Path {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    SHIM.get_or_init(|| {
        let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let (shim, built_here) = (tmp.join("disk.so"), tmp.join(format!("disk-{}.so", std::process::id())));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shim/disk.c");
        let mut cc = Command::new("cc");
        let built = cc
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-o"])
            .arg(&built_here)
            .arg(source)
            .arg("-ldl")
            .status();
        assert!(built.unwrap().success(), "cc builds the shim");
        fs::rename(built_here, &shim).unwrap();
        shim
    })
}

/// A directory and what was acknowledged over it.
struct Disk {
    dir: TempDir,
    runs: u64,
    acked: Acked,
    faults: u64,
    checkpoint_pages: u32,
}

impl Disk {
    fn new() -> Disk {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        drop(SqliteStore::open(&dir.path().join("data")).unwrap());
        Disk { dir, runs: 0, acked: Acked::default(), faults: 0, checkpoint_pages: 40 }
    }

    /// Let a child append until the power goes.
    fn run(&mut self, settings: &[(&str, u64)]) {
        self.run_only("*", settings);
    }

    /// The same, with faults only in files with such names. Says how many syncs failed.
    fn run_only(&mut self, only: &str, settings: &[(&str, u64)]) -> u64 {
        self.runs += 1;
        let role = format!("{} {} ", self.runs, self.checkpoint_pages);
        self.run_child("append_until_the_power_goes", &role, only, settings)
    }

    /// The same with another child. Its role ends with the directory.
    fn run_child(&mut self, child: &str, role: &str, only: &str, settings: &[(&str, u64)]) -> u64 {
        let dir = fs::canonicalize(self.dir.path()).unwrap();
        let _ = fs::remove_file(dir.join("syncs"));
        let mut command = child::command(child, &format!("{role}{}", dir.display()));
        command
            .env("LD_PRELOAD", shim())
            .env("DISK_DIR", dir.join("data"))
            .env("DISK_COUNT", dir.join("syncs"))
            .env("DISK_ONLY", only);
        command.envs(settings.iter().map(|(name, value)| (name, value.to_string())));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        self.acked.listen(out, |line| self.faults += u64::from(line == "fault"));
        assert_eq!(child.wait().unwrap().code(), Some(POWER_LOST));
        counted(&dir)[1]
    }

    fn check(&self) -> Result<u64, String> {
        let store = SqliteStore::open(&self.dir.path().join("data")).map_err(|fault| fault.to_string())?;
        self.acked.check(&store)
    }
}

#[test]
fn what_was_acknowledged_survives_every_power_loss() {
    let mut disk = Disk::new();
    let mut random = Random(11);
    for _ in 0..30 {
        let tear = random.below(2) * random.below(1000);
        disk.run(&[("DISK_LOSE_SYNC", 1 + random.below(40)), ("DISK_TEAR", tear)]);
        disk.check().unwrap();
    }
    eprintln!("{} power losses, {} events acknowledged", disk.runs, disk.acked.count());
    assert!(disk.acked.count() >= 500, "expected 500 acknowledged events, found {}", disk.acked.count());
    assert_eq!(disk.faults, 0);
}

#[test]
fn without_syncs_the_loss_is_seen() {
    let mut disk = Disk::new();
    disk.run(&[("DISK_NO_SYNC", 1)]);
    assert!(disk.acked.count() > 0);
    let wrong = disk.check().expect_err("the acknowledged events are gone");
    assert!(wrong.contains("was acknowledged"), "found {wrong}");
}

#[test]
fn without_syncs_of_the_journal_the_loss_is_seen() {
    let mut disk = Disk::new();
    // The log never moves, so the database has nothing durably.
    disk.checkpoint_pages = u32::MAX;
    disk.run_only("journal-*", &[("DISK_NO_SYNC", 1)]);
    assert!(disk.acked.count() > 0);
    let wrong = disk.check().expect_err("the acknowledged events are gone");
    assert!(wrong.contains("was acknowledged") || wrong.contains("is damaged"), "found {wrong}");
}

#[test]
fn a_failed_sync_of_the_database_loses_nothing_and_nobody_need_be_told() {
    let (mut failed, mut acked) = (0, 0);
    for failing in 1..=8 {
        for more in [0, 2] {
            for tear in [0, failing] {
                let mut disk = Disk::new();
                disk.checkpoint_pages = 1;
                let settings = [("DISK_FAIL_SYNC", failing), ("DISK_FAIL_MORE", more), ("DISK_TEAR", tear)];
                failed += disk.run_only("handover.db*", &settings);
                if let Err(wrong) = disk.check() {
                    panic!("after sync {failing} of the database and {more} more failed: {wrong}");
                }
                assert_eq!(disk.faults, 0);
                // And it goes on where it was.
                disk.run(&[]);
                disk.check().unwrap();
                acked += disk.acked.count();
            }
        }
    }
    eprintln!("{failed} failed syncs of the database, {acked} events acknowledged");
    assert!(failed >= 16, "expected 16 failed syncs, found {failed}");
}

#[test]
fn a_failed_sync_does_not_lose_what_was_moved_before_without_one() {
    let mut disk = Disk::new();
    let settings = [("DISK_FAIL_SYNC", 1)];
    assert_eq!(disk.run_child("move_the_log_in_two_parts", "", "handover.db", &settings), 1);
    disk.check().unwrap();
}

#[test]
fn a_commit_in_doubt_is_settled_before_anything_rests_on_it() {
    let disk = Disk::new();
    let dir = fs::canonicalize(disk.dir.path()).unwrap();
    let mut command = child::command("append_to_what_was_deleted_in_doubt", dir.to_str().unwrap());
    command.env("LD_PRELOAD", shim()).env("DISK_DIR", dir.join("data")).env("DISK_ONLY", "handover.db-wal");
    // The first sync is that of a new write-ahead log, before anything is committed to it.
    let output = command.env("DISK_FAIL_SYNC", "2").output().unwrap();
    assert_eq!(output.status.code(), Some(POWER_LOST), "{}", String::from_utf8_lossy(&output.stdout));
    let store = SqliteStore::open(&dir.join("data")).unwrap();
    assert_eq!(store.tombstone(&SessionKey::new("acme", "one")).unwrap(), Some(4));
    assert_eq!(store.list(&Filter::default(), Order::Oldest, None, 10).unwrap().sessions.len(), 0);
}

#[test]
fn a_failed_sync_is_a_fault_and_nothing_acknowledged_later_rests_on_it() {
    let (mut faults, mut acked) = (0, 0);
    for failing in 1..=16 {
        let more = failing % 3;
        // The power goes soon after, or at the end.
        for lose in [failing + more + 3, u64::MAX] {
            let mut disk = Disk::new();
            disk.run(&[("DISK_FAIL_SYNC", failing), ("DISK_FAIL_MORE", more), ("DISK_LOSE_SYNC", lose)]);
            if let Err(wrong) = disk.check() {
                panic!("after sync {failing} and {more} more failed: {wrong}");
            }
            // Those that shared a failed commit were told.
            let most = WORKERS * (1 + more);
            assert!(disk.faults <= most, "expected at most {most} faults, found {}", disk.faults);
            // All later appends went through.
            let least = if lose == u64::MAX { 60 } else { 0 };
            assert!(disk.acked.count() >= least, "expected {least} events, found {}", disk.acked.count());
            faults += disk.faults;
            acked += disk.acked.count();
        }
    }
    eprintln!("32 disks with failed syncs, {faults} faults, {acked} events acknowledged");
    assert!(faults >= 16, "expected 16 faults, found {faults}");
}
