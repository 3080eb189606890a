//! An engine that stops leaves nobody without an answer, and answers nothing that is not in the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use handover_engine::{Denied, Settings};
use handover_kernel::Charter;
use handover_store::{MemoryStore, SqliteStore, Store};

use crate::faulty::Faulty;
use crate::stage::*;

/// Clients that go on until the engine stops; it stops when this many commands were accepted. Says how many were.
async fn stop_amid_clients(store: Arc<dyn Store>, clients: usize, accepted_first: u64) -> u64 {
    let stage = Arc::new(Stage::with(&store, Settings { shards: 3, ..Settings::default() }));
    let accepted = Arc::new(AtomicU64::new(0));
    let clients: Vec<_> = (0..clients)
        .map(|client| {
            let (stage, accepted) = (Arc::clone(&stage), Arc::clone(&accepted));
            tokio::spawn(async move {
                let name = format!("client {client}");
                let mut last = 0;
                let mut act = start(task(Charter::macp()));
                loop {
                    match stage.put(&name, "planner", act).await {
                        Ok(told) => {
                            last = told.receipt.seq.0;
                            accepted.fetch_add(1, Ordering::SeqCst);
                        }
                        Err(Denied::Stopping) => return (name, last),
                        Err(other) => panic!("expected that the engine is stopping, found {other:?}"),
                    }
                    act = if last == 1 { request() } else { say("on") };
                }
            })
        })
        .collect();
    until("some were accepted", || accepted.load(Ordering::SeqCst) >= accepted_first).await;
    let engine = stage.engine.clone();
    tokio::task::spawn_blocking(move || engine.stop()).await.unwrap();
    for client in clients {
        let (name, last) = client.await.unwrap();
        assert_eq!(
            log(&*store, &name).len() as u64,
            last,
            "what was accepted is in the log, and nothing else"
        );
    }
    accepted.load(Ordering::SeqCst)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn stopping_amid_clients_answers_every_one_of_them() {
    in_time(async {
        for round in 0..150 {
            let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
            let accepted = stop_amid_clients(Arc::clone(&store), 12, round % 20).await;
            assert_eq!(written(&*store), accepted);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_amid_clients_leaves_a_disk_that_holds_what_was_accepted() {
    in_time(async {
        let dir = tempfile::tempdir().unwrap();
        let accepted = stop_amid_clients(Arc::new(SqliteStore::open(dir.path()).unwrap()), 32, 200).await;
        assert_eq!(written(&SqliteStore::open(dir.path()).unwrap()), accepted);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_under_way_when_the_engine_stops_is_finished() {
    in_time(async {
        let held = Faulty::in_memory();
        let store: Arc<dyn Store> = held.clone();
        let stage = Arc::new(Stage::on(&store));
        held.hold();
        let put = |name: &'static str| {
            let stage = Arc::clone(&stage);
            tokio::spawn(async move { stage.put(name, "planner", start(task(Charter::macp()))).await })
        };
        let flying = put("being written");
        until("a commit", || held.count(&held.commits) == 1).await;
        let gathered = put("gathered");
        until("both are decided", || stage.engine.sessions_in_memory() == 2).await;

        let engine = stage.engine.clone();
        let stopping = tokio::task::spawn_blocking(move || engine.stop());
        until("the engine is stopping", || stage.engine.check().is_err()).await;
        let late = stage.put("late", "planner", start(task(Charter::macp()))).await;
        assert!(matches!(late, Err(Denied::Stopping)), "found {late:?}");
        let late = stage.engine.session(key("being written")).await;
        assert!(matches!(late, Err(Denied::Stopping)), "found {late:?}");
        held.release();
        stopping.await.unwrap();
        flying.await.unwrap().unwrap();
        gathered.await.unwrap().unwrap();
        assert_eq!(written(&*store), 2);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_twice_is_stopping_once() {
    in_time(async {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let stage = Stage::on(&store);
        stage.engine.check().unwrap();
        stage.engine.stop();
        stage.engine.stop();
        assert_eq!(stage.engine.check().unwrap_err(), "the engine is stopping");
    })
    .await;
}
