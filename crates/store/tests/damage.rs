//! Damaged, foreign and busy data directories.

use std::path::Path;

use handover_store::{
    Append, Fault, Feed, Outcome, Place, Position, SessionKey, Slot, SqliteStore, Store, Wake,
};
use rusqlite::Connection;
use tempfile::TempDir;

fn dir() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the target directory can be written")
}

fn key() -> SessionKey {
    SessionKey::new("acme", "one")
}

fn five_events(dir: &Path) {
    let store = SqliteStore::open(dir).expect("the store opens");
    let events = (0..5).map(|at| format!("event {at}").into_bytes()).collect();
    let item = Append { key: key(), expected: 0, events, row: None, wake: Wake::Unchanged, snapshot: None };
    let outcomes = store.append(&[item]).expect("the append succeeds");
    assert_eq!(outcomes, [Outcome::Appended { first: Position::first_slot(1), stamp: 1 }]);
}

/// Change the database behind the store's back.
fn tamper(dir: &Path, sql: &str) {
    let connection = Connection::open(dir.join("handover.db")).expect("the database opens");
    assert_eq!(connection.execute(sql, []).expect("the statement is right"), 1);
}

fn damaged_at(result: Result<impl std::fmt::Debug, Fault>) -> (SessionKey, u64) {
    match result {
        Err(Fault::Corrupt { key, seq, .. }) => (key, seq),
        other => panic!("expected damage to be found, found {other:?}"),
    }
}

#[test]
fn a_flipped_byte_is_found_and_named() {
    let dir = dir();
    five_events(dir.path());
    tamper(dir.path(), "UPDATE events SET bytes = CAST('event X' AS BLOB) WHERE seq = 3");
    let store = SqliteStore::open(dir.path()).unwrap();
    assert_eq!(damaged_at(store.read(&key(), 0, 10)), (key(), 3));
    assert_eq!(damaged_at(store.feed(&Feed::Everything, &Place::default(), 10)), (key(), 3));
    assert_eq!(store.read(&key(), 0, 2).unwrap().len(), 2, "what lies before can be read");
    assert_eq!(store.read(&key(), 3, 10).unwrap().len(), 2, "what lies behind can be read");
}

#[test]
fn a_missing_event_is_found_and_named() {
    let dir = dir();
    five_events(dir.path());
    tamper(dir.path(), "DELETE FROM events WHERE seq = 3");
    let store = SqliteStore::open(dir.path()).unwrap();
    assert_eq!(damaged_at(store.read(&key(), 0, 10)), (key(), 3));
    assert_eq!(damaged_at(store.read(&key(), 2, 1)), (key(), 3));
    assert_eq!(store.read(&key(), 0, 2).unwrap().len(), 2);
}

#[test]
fn an_event_in_the_wrong_place_is_found() {
    let dir = dir();
    five_events(dir.path());
    tamper(dir.path(), "DELETE FROM events WHERE seq = 5");
    tamper(dir.path(), "UPDATE events SET seq = 5 WHERE seq = 4");
    tamper(dir.path(), "UPDATE events SET seq = 4 WHERE seq = 3");
    tamper(dir.path(), "UPDATE events SET seq = 3 WHERE seq = 5");
    let store = SqliteStore::open(dir.path()).unwrap();
    assert_eq!(damaged_at(store.read(&key(), 0, 10)), (key(), 3));
}

#[test]
fn a_session_under_another_name_is_found() {
    let dir = dir();
    five_events(dir.path());
    tamper(dir.path(), "UPDATE sessions SET tenant = 'zeta'");
    let store = SqliteStore::open(dir.path()).unwrap();
    let other = SessionKey::new("zeta", "one");
    assert_eq!(damaged_at(store.read(&other, 0, 10)), (other, 1));
}

#[test]
fn a_damaged_snapshot_is_as_good_as_none() {
    for damage in
        ["bytes = x'00'", "checksum = 1 - checksum", "seq = 4", "number = 2", "bytes = 7", "checksum = 'x'"]
    {
        let dir = dir();
        five_events(dir.path());
        let store = SqliteStore::open(dir.path()).unwrap();
        let item = |key, expected| Append {
            key,
            expected,
            events: vec![vec![1]],
            row: None,
            wake: Wake::Unchanged,
            snapshot: Some(b"state".to_vec()),
        };
        let other = SessionKey::new("acme", "two");
        let batch = [item(key(), 5), Append { snapshot: None, ..item(other.clone(), 0) }];
        store.append(&batch).unwrap();
        assert_eq!(store.snapshot(&key()).unwrap().map(|found| found.seq), Some(6));
        drop(store);
        tamper(dir.path(), &format!("UPDATE index_snapshots SET {damage}"));
        let store = SqliteStore::open(dir.path()).unwrap();
        assert_eq!(store.snapshot(&key()).unwrap(), None, "{damage}");
        assert_eq!(store.snapshot(&other).unwrap(), None, "{damage}");
        store.append(&[item(key(), 6)]).unwrap();
        assert_eq!(store.snapshot(&key()).unwrap().map(|found| found.seq), Some(7), "the next one is good");
    }
}

#[test]
fn a_directory_in_use_is_refused_until_it_is_free() {
    let dir = dir();
    let store = SqliteStore::open(dir.path()).unwrap();
    assert!(matches!(SqliteStore::open(dir.path()), Err(Fault::InUse { .. })));
    drop(store);
    SqliteStore::open(dir.path()).unwrap();
}

#[test]
fn a_newer_directory_is_refused() {
    let dir = dir();
    five_events(dir.path());
    let connection = Connection::open(dir.path().join("handover.db")).unwrap();
    connection.pragma_update(None, "user_version", 1000).unwrap();
    drop(connection);
    assert!(matches!(SqliteStore::open(dir.path()), Err(Fault::TooNew { found: 1000, known: 5 })));
}

#[test]
fn a_clean_close_leaves_one_file_and_everything_in_it() {
    let dir = dir();
    let nested = dir.path().join("made").join("on the way");
    five_events(&nested);
    let mut left: Vec<_> =
        std::fs::read_dir(&nested).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["handover.db", "lock"]);
    let store = SqliteStore::open(&nested).unwrap();
    assert_eq!(store.read(&key(), 0, 10).unwrap().len(), 5);
    assert_eq!(store.last_place().unwrap().number(Slot(0)), 5);
}
