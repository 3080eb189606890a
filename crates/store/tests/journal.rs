//! The journal in front of the database: what is only there is found again, and what is damaged there is not passed over.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use handover_store::sqlite::Options;
use handover_store::{
    Append, Fault, Feed, Filter, IndexRow, Order, Place, SessionKey, Slot, SqliteStore, Store, Waits, Wake,
};
use rusqlite::Connection;
use tempfile::TempDir;

const SECTOR: usize = 512;

fn temp() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn key(session: usize) -> SessionKey {
    SessionKey::new("acme", format!("s{session}"))
}

fn append(store: &SqliteStore, session: usize, expected: u64, bytes: usize) {
    let row = IndexRow {
        kind: 1,
        status: 2,
        requester: "a".into(),
        agents: vec!["a".into(), "b".into()],
        created_at: 3,
        finished_at: None,
        summary: (expected + 1).to_string().into_bytes(),
        waits: vec![Waits { agent: "b".into(), kinds: 4 }],
    };
    let item = Append {
        key: key(session),
        expected,
        events: vec![vec![expected as u8; bytes]],
        row: Some(row),
        wake: Wake::At(5),
        snapshot: Some(vec![expected as u8]),
    };
    store.append(&[item]).unwrap();
}

/// A store of which nothing but the journal knows what is appended: somebody else has the database.
struct Held {
    dir: TempDir,
    store: SqliteStore,
    holder: Connection,
}

impl Held {
    fn new() -> Held {
        let dir = temp();
        let store = SqliteStore::open(dir.path()).unwrap();
        let holder = Connection::open(dir.path().join("handover.db")).unwrap();
        holder.execute_batch("BEGIN IMMEDIATE").unwrap();
        Held { dir, store, holder }
    }

    /// What is left if it is killed now.
    fn killed(&self) -> TempDir {
        let copy = temp();
        for entry in fs::read_dir(self.dir.path()).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
        copy
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.holder.execute_batch("ROLLBACK").unwrap();
    }
}

fn journal(dir: &TempDir) -> PathBuf {
    dir.path().join("journal-0")
}

fn change(file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(file).unwrap();
    change(&mut bytes);
    fs::write(file, bytes).unwrap();
}

fn heads(dir: &TempDir) -> Vec<Option<u64>> {
    let store = SqliteStore::open(dir.path()).unwrap();
    (0..3).map(|session| store.head(&key(session)).unwrap()).collect()
}

#[test]
fn what_only_the_journal_has_is_there_after_a_kill() {
    let held = Held::new();
    for at in 0..30 {
        append(&held.store, at % 3, (at / 3) as u64, 100);
    }
    let killed = held.killed();
    let in_the_database = Connection::open(killed.path().join("handover.db")).unwrap();
    let many = |sql| in_the_database.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(many("SELECT count(*) FROM events"), 0, "the test would show nothing");
    drop(in_the_database);

    let store = SqliteStore::open(killed.path()).unwrap();
    assert_eq!(store.last_place().unwrap().number(Slot(0)), 30);
    assert_eq!(store.feed(&Feed::Everything, &Place::default(), 100).unwrap().len(), 30);
    for session in 0..3 {
        assert_eq!(store.head(&key(session)).unwrap(), Some(10));
        assert_eq!(store.read(&key(session), 0, 100).unwrap().len(), 10);
        assert_eq!(store.row(&key(session)).unwrap().unwrap().summary, b"10");
        assert_eq!(store.snapshot(&key(session)).unwrap().unwrap().seq, 10);
    }
    let listed = store.list(&Filter::default(), Order::Oldest, None, 10).unwrap().sessions;
    assert!(listed.iter().map(|listed| &listed.key).eq(&[key(0), key(1), key(2)]));
    assert_eq!(store.inbox("acme", "b", 4, None, 10).unwrap().sessions.len(), 3);
    assert_eq!(store.due(5, 10).unwrap().len(), 3);
    append(&store, 0, 10, 100);
    assert_eq!(store.last_place().unwrap().number(Slot(0)), 31);
}

#[test]
fn nobody_waits_for_the_database_to_append_or_to_learn_where_a_session_ends() {
    let held = Held::new();
    for at in 0..10 {
        append(&held.store, 0, at, 100);
        assert_eq!(held.store.head(&key(0)).unwrap(), Some(at + 1));
    }
    held.holder.execute_batch("ROLLBACK; BEGIN").unwrap();
    assert_eq!(held.store.read(&key(0), 0, 100).unwrap().len(), 10);
}

#[test]
fn a_record_that_was_cut_short_was_never_there() {
    let held = Held::new();
    append(&held.store, 0, 0, 100);
    append(&held.store, 1, 0, 3 * SECTOR);
    let whole = held.killed();
    assert_eq!(heads(&whole), [Some(1), Some(1), None]);
    // After the first sector of the file, the first record has one and the second four.
    for torn in 2..7 {
        let killed = held.killed();
        change(&journal(&killed), |bytes| bytes[torn * SECTOR..(torn + 1) * SECTOR].fill(1));
        let expected = if torn < 6 { [Some(1), None, None] } else { [Some(1), Some(1), None] };
        assert_eq!(heads(&killed), expected, "without sector {torn}");
        // And it goes on from there.
        let store = SqliteStore::open(killed.path()).unwrap();
        append(&store, 2, 0, 10);
        assert_eq!(store.last_place().unwrap().number(Slot(0)), if torn < 6 { 2 } else { 3 });
    }
    let killed = held.killed();
    change(&journal(&killed), |bytes| bytes.truncate(3 * SECTOR));
    assert_eq!(heads(&killed), [Some(1), None, None]);
}

#[test]
fn a_damaged_record_before_another_is_named_and_nothing_is_lost() {
    let held = Held::new();
    for at in 0..3 {
        append(&held.store, at, 0, 3 * SECTOR);
    }
    let whole = fs::read(journal(&held.dir)).unwrap();
    let damages: [(usize, &str); 4] = [
        (SECTOR, "record 2 at byte 2560"),
        (2 * SECTOR + 7, "record 2 at byte 2560"),
        (5 * SECTOR, "record 3 at byte 4608"),
        (8 * SECTOR + 1, "record 3 at byte 4608"),
    ];
    for (at, named) in damages {
        let killed = held.killed();
        change(&journal(&killed), |bytes| bytes[at] ^= 1);
        for _ in 0..2 {
            match SqliteStore::open(killed.path()).map(drop) {
                Err(fault @ Fault::Damaged { .. }) => {
                    let said = fault.to_string();
                    assert!(said.contains("journal-0 is damaged") && said.contains(named), "found {said}");
                    assert!(!fault.is_retryable());
                }
                other => panic!("expected damage at {at} to be found, found {other:?}"),
            }
        }
        fs::write(journal(&killed), &whole).unwrap();
        assert_eq!(heads(&killed), [Some(1), Some(1), Some(1)], "it is as it was");
    }
}

#[test]
fn the_files_of_the_journal_are_used_in_turns_and_do_not_grow() {
    take_turns(false);
}

#[test]
fn the_journal_does_not_grow_while_somebody_reads_for_long() {
    take_turns(true);
}

/// Append until each file had its turn twice, perhaps with a reader who never lets go of what was there at the beginning.
fn take_turns(read_for_long: bool) {
    let dir = temp();
    let options = Options { journal_bytes: 64 << 10, checkpoint_pages: 20, ..Options::default() };
    let store = SqliteStore::open_with(dir.path(), options).unwrap();
    let files = ["journal-0", "journal-1"].map(|name| dir.path().join(name));
    let (mut turns, mut active, mut longest) = (0, 0, 0);
    let mut before = [Vec::new(), Vec::new()];
    let mut appended = 0;
    let reader = Connection::open(dir.path().join("handover.db")).unwrap();
    if read_for_long {
        append(&store, 8, 0, 400);
        store.open_counts().unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM counters").unwrap();
    }
    // When a file is free again depends on what else the machine does.
    while turns < 4 {
        assert!(appended < 100_000, "expected turns, found {turns}");
        let at = appended;
        appended += 1;
        append(&store, at % 7, (at / 7) as u64, 400);
        if at % 20 == 0 {
            // So that the database has it, whatever else the machine does.
            store.open_counts().unwrap();
            let now = files.each_ref().map(|file| fs::read(file).unwrap());
            let changed = usize::from(now[1] != before[1]);
            turns += usize::from(changed != active);
            (active, before) = (changed, now);
            longest = longest.max(before[0].len().max(before[1].len()));
        }
    }
    assert!(longest <= 8 << 20, "expected files of a few megabytes, found {longest}");
    drop(reader);
    let modes = files.each_ref().map(|file| fs::metadata(file).unwrap().permissions().mode() & 0o777);
    assert_eq!(modes, [0o600; 2]);
    assert!(files.iter().all(|file| SqliteStore::places(dir.path()).contains(file)));

    // What was in the files before is not taken for new.
    let copy = temp();
    for name in ["handover.db", "handover.db-wal", "journal-0", "journal-1"] {
        fs::copy(dir.path().join(name), copy.path().join(name)).unwrap();
    }
    let copied = SqliteStore::open(copy.path()).unwrap();
    let all = appended as u64 + u64::from(read_for_long);
    assert_eq!(copied.last_place().unwrap().number(Slot(0)), all);
    assert_eq!(copied.feed(&Feed::Everything, &Place::default(), 3000).unwrap().len().min(1), 1);
    drop((store, copied));
    for dir in [&dir, &copy] {
        assert!(!dir.path().join("journal-0").exists() && !dir.path().join("journal-1").exists());
        let store = SqliteStore::open(dir.path()).unwrap();
        assert_eq!(store.last_place().unwrap().number(Slot(0)), all);
        assert_eq!(store.head(&key(0)).unwrap(), Some(appended.div_ceil(7) as u64));
    }
}

#[test]
fn a_journal_that_does_not_fit_the_database_is_refused() {
    let held = Held::new();
    append(&held.store, 0, 0, 10);
    append(&held.store, 1, 0, 10);
    let killed = held.killed();
    // The database of another time: it has less than the journal goes on from.
    change(&journal(&killed), |bytes| drop(bytes.drain(SECTOR..2 * SECTOR)));
    assert!(matches!(SqliteStore::open(killed.path()), Err(Fault::Damaged { .. })));
    // The journal of another store, and a file that says nothing of whose it is.
    let other = temp();
    drop(SqliteStore::open(other.path()).unwrap());
    let foreign = fs::read(journal(&held.dir)).unwrap();
    for bytes in [&foreign[..], &foreign[SECTOR..]] {
        fs::write(journal(&other), bytes).unwrap();
        let fault = SqliteStore::open(other.path()).map(drop).unwrap_err();
        assert!(fault.to_string().contains("not the journal of this database"), "found {fault}");
        assert_eq!(fs::read(journal(&other)).unwrap(), bytes, "it is as it was");
    }
    // One that was made just before the machine stopped has nothing in it.
    for bytes in [&[][..], &[0; 3 * SECTOR]] {
        fs::write(journal(&other), bytes).unwrap();
        assert_eq!(heads(&other), [None, None, None]);
    }
}
