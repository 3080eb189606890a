//! The SQLite store changes inboxes and snapshots only where something changed, and leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use handover_store::{Append, IndexRow, SessionKey, SqliteStore, Store, Waits, Wake};
use rusqlite::Connection;

fn append(store: &SqliteStore, expected: u64, row: Option<IndexRow>, snapshot: Option<Vec<u8>>) {
    let key = SessionKey::new("acme", "one");
    let events = vec![vec![1]];
    store.append(&[Append { key, expected, events, row, wake: Wake::Unchanged, snapshot }]).unwrap();
    // Whoever reads all sessions finds it in the database, and so does the test.
    store.open_counts().unwrap();
}

fn row(waits: &[(&str, u32)], finished_at: Option<u64>) -> IndexRow {
    IndexRow {
        kind: 1,
        status: 1,
        requester: "a".into(),
        agents: vec!["a".into()],
        created_at: 1,
        finished_at,
        summary: Vec::new(),
        waits: waits.iter().map(|(agent, kinds)| Waits { agent: (*agent).into(), kinds: *kinds }).collect(),
    }
}

#[test]
fn only_the_difference_is_written() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut store = SqliteStore::open(dir.path()).unwrap();
    let counting = Connection::open(dir.path().join("handover.db")).unwrap();
    counting.execute_batch("INSERT INTO counters VALUES ('inbox', 0), ('snapshots', 0);").unwrap();
    for table in ["inbox", "snapshots"] {
        for change in ["INSERT", "UPDATE", "DELETE"] {
            let sql = format!(
                "CREATE TRIGGER {table}_{change} AFTER {change} ON index_{table}
                 BEGIN UPDATE counters SET value = value + 1 WHERE name = '{table}'; END"
            );
            counting.execute_batch(&sql).unwrap();
        }
    }
    let number = |sql: &str| counting.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    let counted = || {
        let of = |name| number(&format!("SELECT value FROM counters WHERE name = '{name}'"));
        (of("inbox"), of("snapshots"))
    };

    let (mut head, mut before) = (0, (0, 0));
    let mut step = |store: &SqliteStore, row, snapshot: Option<&str>| {
        append(store, head, row, snapshot.map(|text| text.as_bytes().to_vec()));
        head += 1;
        let (now, then) = (counted(), before);
        before = now;
        (now.0 - then.0, now.1 - then.1)
    };
    assert_eq!(step(&store, Some(row(&[], None)), None), (0, 0));
    assert_eq!(step(&store, Some(row(&[("a", 0b11), ("b", 0b1)], None)), Some("first")), (3, 1));
    assert_eq!(step(&store, None, None), (0, 0));
    assert_eq!(step(&store, Some(row(&[("a", 0b11), ("b", 0b1)], None)), None), (0, 0));
    assert_eq!(step(&store, Some(row(&[("b", 0b1), ("a", 0b11)], None)), None), (0, 0));
    assert_eq!(step(&store, Some(row(&[("b", 0b1), ("a", 0b101)], None)), Some("second")), (2, 1));
    // A writer that was just opened reads what was written before.
    drop(store);
    store = SqliteStore::open(dir.path()).unwrap();
    assert_eq!(step(&store, Some(row(&[("b", 0b1), ("a", 0b101)], None)), None), (0, 0));
    assert_eq!(step(&store, Some(row(&[("a", 0b100)], None)), None), (2, 0));
    assert_eq!(step(&store, Some(row(&[("a", 0b100), ("c", 0)], Some(5))), Some("third")), (0, 1));
    assert_eq!(number("SELECT count(*) FROM index_inbox"), 1);

    assert_eq!(store.delete_finished(6, 7, 10).unwrap().len(), 1);
    assert_eq!(number("SELECT count(*) FROM index_inbox"), 0);
    assert_eq!(number("SELECT count(*) FROM index_snapshots"), 0);
    assert_eq!(counted(), (8, 4));
}
