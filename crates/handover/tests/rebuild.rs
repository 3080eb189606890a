//! `handover rebuild` on data that a server left behind.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod binary;
mod golden;

use std::path::Path;
use std::process::Output;

use handover_engine::index;
use handover_store::{Filter, Listed, MemoryStore, Order, SessionKey, SqliteStore, Store, StoredEvent};

use self::binary::{Server, handover, said};
use self::golden::{put, put_logs};

fn rebuild(data: &Path) -> Output {
    handover().args(["rebuild", "--data"]).arg(data).output().unwrap()
}

/// What the index says, and what the logs hold.
#[derive(Debug, PartialEq)]
struct Dump {
    rows: Vec<Listed>,
    wakes: Vec<(SessionKey, u64)>,
    logs: Vec<Vec<StoredEvent>>,
}

fn dump(store: &dyn Store) -> Dump {
    let (keys, _) = store.sessions(None, 1000).unwrap();
    let logs = keys.iter().map(|key| store.read(key, 0, 1000).unwrap()).collect();
    let rows = store.list(&Filter::default(), Order::Oldest, None, 1000).unwrap().sessions;
    Dump { rows, wakes: store.due(u64::MAX, 1000).unwrap(), logs }
}

#[test]
fn an_index_that_is_lost_is_made_again_from_the_logs() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    let count = put_logs(&store);
    assert!(count >= 10 && dump(&store).rows.is_empty());
    drop(store);

    let output = rebuild(dir.path());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output).1);
    assert_eq!(said(&output), (&*format!("the index of {count} sessions was made again\n"), ""));
    let expected = MemoryStore::new();
    put_logs(&expected);
    assert_eq!(index::rebuild(&expected, |_| ()).unwrap(), count as u64);
    let found = dump(&SqliteStore::open(dir.path()).unwrap());
    assert_eq!(found, dump(&expected));
    assert!(found.rows.len() == count && !found.wakes.is_empty());

    let again = rebuild(dir.path());
    assert_eq!(said(&again), said(&output));
    assert_eq!(dump(&SqliteStore::open(dir.path()).unwrap()), found);
}

#[test]
fn a_server_runs_on_an_index_that_was_made_again() {
    let dir = tempfile::tempdir().unwrap();
    put_logs(&SqliteStore::open(dir.path()).unwrap());
    assert_eq!(rebuild(dir.path()).status.code(), Some(0));
    let server = Server::start(dir.path());
    assert_eq!(server.get("/readyz").0, 200);
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn the_environment_can_name_the_directory_and_an_empty_one_has_no_sessions() {
    let dir = tempfile::tempdir().unwrap();
    let output = handover().arg("rebuild").env("HANDOVER_DATA", dir.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output).1);
    assert_eq!(said(&output).0, "the index of 0 sessions was made again\n");
}

#[test]
fn while_a_server_holds_the_directory_nothing_is_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let output = rebuild(dir.path());
    assert_eq!(output.status.code(), Some(1));
    let data = dir.path().display();
    let message = format!(
        "error: rebuilding the index of {data}: the data directory {data} is in use by another process\n"
    );
    assert_eq!(said(&output), ("", &*message));
    assert_eq!(server.get("/readyz").0, 200, "the server goes on");
}

#[test]
fn a_directory_that_is_not_there_is_refused_and_not_made() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let output = rebuild(&missing);
    assert_eq!(output.status.code(), Some(2));
    let message = format!("error: expected a data directory, found none at {}\n", missing.display());
    assert_eq!(said(&output), ("", &*message));
    assert!(!missing.exists());
}

#[test]
fn a_log_that_cannot_be_read_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    put_logs(&store);
    put(&store, SessionKey::new("t", "torn"), vec![b"no event".to_vec()]);
    drop(store);
    let output = rebuild(dir.path());
    assert_eq!(output.status.code(), Some(1));
    let (stdout, stderr) = said(&output);
    assert_eq!(stdout, "");
    let begin =
        format!("error: rebuilding the index of {}: session t/torn cannot be read: ", dir.path().display());
    assert!(stderr.starts_with(&begin), "found {stderr}");
}
