//! A process that appends is killed again and again over the same directory: what it acknowledged is there.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod child;
mod work;

use std::fs;
use std::io::{self, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::thread;

use handover_store::SqliteStore;
use handover_store::sqlite::Options;
use rusqlite::Connection;

use self::child::Random;
use self::work::{Acked, Heads};

const KILLS: u64 = 100;
const WORKERS: u64 = 4;
const ACKED_MIN: usize = 5000;
const REPLAYED_MIN: usize = 20;

/// The child's part: several threads append until the process is killed.
#[test]
fn append_until_killed() {
    let Some(role) = child::role() else { return };
    let (run, dir) = role.split_once(' ').unwrap();
    // Small, so that many kills fall into moving the write-ahead log into the database, and the files of the journal are
    // used again.
    let options = Options { checkpoint_pages: 60, journal_bytes: 16 << 10, ..Options::default() };
    let store = SqliteStore::open_with(Path::new(dir), options).unwrap();
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let store = &store;
            scope.spawn(move || {
                let mut random = Random(run.parse::<u64>().unwrap() * WORKERS + worker);
                let mut heads = Heads::unknown(false);
                for at in 0_u64.. {
                    let name = format!("{run}.{at}");
                    let lines = work::append(store, worker, &name, &mut random, &mut heads).unwrap();
                    work::acknowledge(&lines);
                }
            });
        }
    });
}

/// How many events the database has, looked for in a copy of it.
fn in_the_database(dir: &Path) -> u64 {
    let copy = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for name in ["handover.db", "handover.db-wal"] {
        match fs::copy(dir.join(name), copy.path().join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => panic!("{error}"),
            _ => {}
        }
    }
    let database = Connection::open(copy.path().join("handover.db")).unwrap();
    // The child may have been killed before it made the tables.
    database
        .query_row("SELECT count(*) FROM events", [], |row| row.get::<_, i64>(0))
        .map_or(0, i64::cast_unsigned)
}

#[test]
fn what_was_acknowledged_survives_every_kill() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().to_str().unwrap();
    let mut random = Random(7);
    let mut acked = Acked::default();
    let (mut stored, mut replayed) = (0, 0);
    for run in 0..KILLS {
        let mut command = child::command("append_until_killed", &format!("{run} {path}"));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        // Sometimes before the first acknowledgement, sometimes long after.
        let mut left = random.below(8) * random.below(40);
        if left == 0 {
            child.kill().unwrap();
        }
        acked.listen(out, |_| {
            left = left.saturating_sub(1);
            if left == 0 {
                child.kill().unwrap();
            }
        });
        assert!(!child.wait().unwrap().success(), "the child ends only by being killed");
        let in_the_database = in_the_database(dir.path());
        let store = SqliteStore::open(dir.path()).unwrap();
        stored = acked.check(&store).unwrap();
        replayed += usize::from(in_the_database < stored);
    }
    eprintln!(
        "{KILLS} kills, {} events acknowledged, {stored} stored, after {replayed} kills some in the journal only",
        acked.count()
    );
    assert!(replayed >= REPLAYED_MIN, "expected {REPLAYED_MIN} to leave something there, found {replayed}");
    assert!(acked.count() >= ACKED_MIN, "expected {ACKED_MIN} acknowledged events, found {}", acked.count());
}
