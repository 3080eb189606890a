//! A copy of the store, made while others append.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use handover_store::{Append, MemoryStore, SessionKey, SqliteStore, Store, Wake};

fn append(store: &dyn Store, key: &SessionKey, seq: u64) {
    let events = vec![seq.to_le_bytes().to_vec()];
    let append = Append {
        key: key.clone(),
        expected: seq - 1,
        events,
        row: None,
        wake: Wake::Unchanged,
        snapshot: None,
    };
    store.append(&[append]).unwrap();
}

/// Open what a copy holds as a data directory of its own.
fn open(copy: &Path, dir: &Path) -> SqliteStore {
    std::fs::create_dir(dir).unwrap();
    std::fs::copy(copy, dir.join(SqliteStore::DATABASE)).unwrap();
    SqliteStore::open(dir).unwrap()
}

#[test]
fn a_copy_has_everything_that_was_acknowledged_before_it_also_what_was_in_the_journal_only() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&dir.path().join("data")).unwrap();
    let keys: Vec<SessionKey> = (0..2).map(|n| SessionKey::new("t", format!("s{n}"))).collect();
    let acknowledged = [AtomicU64::new(0), AtomicU64::new(0)];
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (key, acknowledged) in keys.iter().zip(&acknowledged) {
            let (store, stop) = (&store, &stop);
            scope.spawn(move || {
                for seq in 1.. {
                    append(store, key, seq);
                    acknowledged.store(seq, Ordering::SeqCst);
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                }
            });
        }
        for round in 0..10 {
            while acknowledged.iter().any(|last| last.load(Ordering::SeqCst) < 5 * (round + 1)) {
                std::thread::yield_now();
            }
            let before = [0, 1].map(|n: usize| acknowledged[n].load(Ordering::SeqCst));
            let copy = dir.path().join(format!("copy-{round}.db"));
            store.copy_to(&copy).unwrap();
            assert_eq!(std::fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
            let copied = open(&copy, &dir.path().join(format!("opened-{round}")));
            for (key, before) in keys.iter().zip(before) {
                let head = copied.head(key).unwrap().unwrap();
                assert!(head >= before, "round {round}: {head} of {before}");
                // Without a hole, and it goes on from there.
                let read = copied.read(key, 0, usize::MAX).unwrap();
                assert!(read.iter().zip(1..).all(|(event, seq)| event.seq == seq));
                append(&copied, key, head + 1);
            }
        }
        stop.store(true, Ordering::SeqCst);
    });
}

#[test]
fn a_copy_takes_the_place_of_nothing_and_a_store_without_a_file_says_that_it_has_none() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&dir.path().join("data")).unwrap();
    let file = dir.path().join("there");
    std::fs::write(&file, "something else").unwrap();
    store.copy_to(&file).unwrap_err();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "something else");
    assert!(MemoryStore::new().copy_to(&dir.path().join("none")).is_err());
}
