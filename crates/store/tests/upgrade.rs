//! Data that releases of before wrote still opens. What is in it, its README says.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use std::fs;
use std::path::Path;

use handover_store::{
    Append, Filter, Order, Outcome, Position, SessionKey, Slot, SqliteStore, Store, Waits, Wake,
};
use rusqlite::Connection;

const UNFINISHED: [&str; 9] = [
    "f6579cda-e6d8-4c95-a6a7-42421d7455db",
    "cad5a373-130a-42ff-815f-f086065cffda",
    "44129980-8a9b-4710-9336-a897d2f57358",
    "52732bc2-8a0e-4d60-abdd-5da4e2a7deff",
    "f7e6c190-dca3-4762-8681-c88ae51c662e",
    "bf311412-6da4-4d75-ba48-f6a70f375429",
    "94421ebf-04a6-49a9-8529-0eadbc67be27",
    "c34ea428-ae42-457b-8c3b-28f3d97a8774",
    "3c2717d0-1772-4958-a4db-b387d688dd69",
];

fn schema_version(dir: &Path) -> u32 {
    let connection = Connection::open(dir.join("handover.db")).unwrap();
    connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
}

/// A copy of the data of a schema, opened by this release.
fn opened(schema: &str, version: u32) -> (tempfile::TempDir, SqliteStore) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(schema);
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::copy(data.join("handover.db"), dir.path().join("handover.db")).unwrap();
    assert_eq!(schema_version(dir.path()), version);
    let store = SqliteStore::open(dir.path()).unwrap();
    assert_eq!(schema_version(dir.path()), 5);
    (dir, store)
}

#[test]
fn data_of_schema_1_opens_and_can_be_worked_with() {
    let (dir, store) = opened("schema-1", 1);
    let (keys, _) = store.sessions(None, 100).unwrap();
    assert_eq!(keys.len(), 12);
    for key in &keys {
        let events = store.read(key, 0, 100).unwrap();
        assert!(!events.is_empty());
        assert_eq!(store.head(key).unwrap(), Some(events.len() as u64));
        assert_eq!(store.row(key).unwrap().unwrap().waits, []);
        assert_eq!(store.snapshot(key).unwrap(), None);
    }
    assert_eq!(store.list(&Filter::default(), Order::Oldest, None, 100).unwrap().sessions.len(), 12);
    let all = keys.iter().flat_map(|key| store.read(key, 0, 100).unwrap());
    let bytes: u64 = all.map(|event| event.bytes.len() as u64).sum();
    assert_eq!(store.stored_bytes().unwrap().iter().map(|(_, _, bytes)| bytes).sum::<u64>(), bytes);
    assert_eq!(store.index_version().unwrap(), 0);
    let unfinished = UNFINISHED.map(|session| SessionKey::new("default", session));
    assert_eq!(store.unfinished(None, 100).unwrap(), (unfinished.to_vec(), None));

    // What a new release does with it: it writes the rows of the unfinished sessions again, as it knows them.
    let rows = unfinished.map(|key| {
        let mut row = store.row(&key).unwrap().unwrap();
        row.waits = vec![Waits { agent: "builder".into(), kinds: 2 }];
        (key, row, Wake::Unchanged)
    });
    store.restore_index(&rows).unwrap();
    store.set_index_version(7).unwrap();
    drop(store);
    let store = SqliteStore::open(dir.path()).unwrap();
    assert_eq!(store.index_version().unwrap(), 7);
    let inbox = store.inbox("default", "builder", 2, None, 100).unwrap().sessions;
    assert!(inbox.iter().map(|waiting| &waiting.key).eq(rows.iter().map(|(key, ..)| key)));
    assert_eq!(store.due(u64::MAX, 10).unwrap().len(), 1);
}

#[test]
fn data_of_schema_2_keeps_its_inboxes_its_wake_time_and_what_is_open() {
    let (dir, store) = opened("schema-2", 2);
    let unfinished = UNFINISHED.map(|session| SessionKey::new("default", session));
    assert_eq!(store.unfinished(None, 100).unwrap(), (unfinished.to_vec(), None));
    assert_eq!(store.index_version().unwrap(), 1);
    let waiting = |agent| {
        let page = store.inbox("default", agent, u32::MAX, None, 100).unwrap();
        page.sessions.iter().map(|waiting| waiting.key.session.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(waiting("planner"), [UNFINISHED[2]]);
    assert_eq!(waiting("reviewer"), [UNFINISHED[5], UNFINISHED[7]]);
    assert_eq!(waiting("builder").len(), 8);
    let counts = store.open_counts().unwrap();
    assert_eq!(
        counts.iter().map(|(_, agent, many)| (&**agent, *many)).collect::<Vec<_>>(),
        [("builder", 2), ("planner", 7)]
    );
    let due = store.due(u64::MAX, 10).unwrap();
    assert_eq!(due.iter().map(|(key, _)| &*key.session).collect::<Vec<_>>(), [UNFINISHED[4]]);
    drop((dir, store));
}

#[test]
fn data_of_schema_4_has_no_journal_and_gets_one() {
    let (dir, store) = opened("schema-4", 4);
    let mut unfinished = UNFINISHED.map(|session| SessionKey::new("default", session)).to_vec();
    // The paused one has ended.
    unfinished.remove(4);
    assert_eq!(store.unfinished(None, 100).unwrap(), (unfinished.clone(), None));
    assert_eq!(store.last_place().unwrap().number(Slot(0)), 47);
    let counted = [("builder", 663), ("planner", 2949)];
    let stored = store.stored_bytes().unwrap();
    assert!(stored.iter().map(|(_, agent, bytes)| (&**agent, *bytes)).eq(counted));
    assert!(!dir.path().join("journal-0").exists());

    let key = unfinished[0].clone();
    let expected = store.head(&key).unwrap().unwrap();
    let wake = Wake::Unchanged;
    let item = Append { key, expected, events: vec![vec![1, 2]], row: None, wake, snapshot: None };
    assert_eq!(
        store.append(std::slice::from_ref(&item)).unwrap(),
        [Outcome::Appended { first: Position::first_slot(48), stamp: 48 }]
    );
    assert!(dir.path().join("journal-0").exists());
    drop(store);
    let store = SqliteStore::open(dir.path()).unwrap();
    assert_eq!(store.read(&item.key, expected, 10).unwrap()[0].bytes, [1, 2]);
    assert_eq!(store.stored_bytes().unwrap()[1].2, 2949 + 2);
}
