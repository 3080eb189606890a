//! A store that fails, and one that somebody else writes to.

use std::sync::Arc;

use handover_engine::{Denied, Settings};
use handover_kernel::{Charter, Refusal};
use handover_store::{Append, MemoryStore, Store, Wake};

use crate::faulty::{Failing, Faulty};
use crate::stage::*;

on_every_store! {
    async fn a_commit_that_failed_is_a_fault_and_its_retry_has_one_effect(store) {
        for how in [Failing::Refuse, Failing::LoseAnswer] {
            let faulty = Faulty::over(Arc::clone(&store));
            let watched: Arc<dyn Store> = faulty.clone();
            let stage = Stage::on(&watched);
            let name = format!("{how:?}");
            stage.working(&name, task(Charter::macp())).await;
            let mut follower = stage.subscribe(of_session(&name), 0);
            take(&mut follower, 3).await;

            faulty.fail_append(how);
            assert!(is_fault(&stage.put_as("m1", &name, "worker", update("half")).await));
            let kept = how == Failing::LoseAnswer;
            assert_eq!(stage.log(&name).len(), if kept { 4 } else { 3 });
            let told = stage.put_as("m1", &name, "worker", update("half")).await.unwrap();
            assert_eq!((told.receipt.seq.0, told.receipt.duplicate), (4, kept));
            stage.ok(&name, "worker", complete()).await;
            let heard: Vec<u64> = take(&mut follower, 2).await.iter().map(|heard| heard.event.seq.0).collect();
            assert_eq!(heard, [4, 5]);
            assert_eq!(stage.log(&name).len(), 5);
            assert_eq!(faulty.count(&faulty.faults), 1);
            assert_eq!(stage.metrics.store_faults.get(), 1);
        }
    }

    async fn a_start_that_failed_can_be_tried_again(store) {
        let faulty = Faulty::over(store);
        let store: Arc<dyn Store> = faulty.clone();
        let stage = Stage::with(&store, Settings { sessions_open_per_agent_max: 2, ..Settings::default() });
        for (name, how) in [("a", Failing::Refuse), ("b", Failing::LoseAnswer)] {
            faulty.fail_append(how);
            assert!(is_fault(&stage.put_as("m1", name, "planner", start(task(Charter::mcp()))).await));
            let told = stage.put_as("m1", name, "planner", start(task(Charter::mcp()))).await.unwrap();
            assert_eq!(told.receipt.duplicate, how == Failing::LoseAnswer);
            assert_eq!(stage.log(name).len(), 1);
        }
        let third = refusal(stage.put_as("m1", "c", "planner", start(task(Charter::mcp()))).await);
        assert_eq!(third, Refusal::TooManySessions { limit: 2 }, "both are counted once");
        stage.ok("a", "planner", cancel()).await;
        stage.put_as("m1", "c", "planner", start(task(Charter::mcp()))).await.unwrap();
    }

    async fn a_session_that_could_not_be_read_can_be_read_later(store) {
        let faulty = Faulty::over(store);
        let store: Arc<dyn Store> = faulty.clone();
        Stage::on(&store).working("s", task(Charter::macp())).await;
        let stage = Stage::on(&store);
        faulty.fail_reads(2);
        assert!(is_fault(&stage.put("s", "worker", update("half")).await));
        assert!(matches!(stage.engine.session(key("s")).await, Err(Denied::Fault(_))));
        stage.ok("s", "worker", update("half")).await;
        assert_eq!(stage.log("s").len(), 4);
        assert_eq!((faulty.count(&faulty.faults), stage.metrics.store_faults.get()), (2, 2));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_decided_on_a_commit_that_failed_fails_with_it() {
    in_time(async {
        let faulty = Faulty::in_memory();
        let store: Arc<dyn Store> = faulty.clone();
        let stage = Arc::new(Stage::on(&store));
        stage.requested("s", task(Charter::macp())).await;
        let before = faulty.count(&faulty.commits);
        faulty.hold();
        faulty.fail_append(Failing::Refuse);
        let put = |by: &'static str, act| {
            let stage = Arc::clone(&stage);
            tokio::spawn(async move { stage.put("s", by, act).await })
        };
        let first = put("worker", accept());
        until("a commit", || faulty.count(&faulty.commits) == before + 1).await;
        // An event, a refusal and a look that rest on what is being written. None may be told before it is.
        let ahead = [put("worker", update("half")), put("helper", accept())];
        let looking = Arc::clone(&stage);
        let look = tokio::spawn(async move { looking.engine.session(key("s")).await });
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        assert!(!first.is_finished() && ahead.iter().all(|one| !one.is_finished()) && !look.is_finished());
        faulty.release();
        assert!(is_fault(&first.await.unwrap()));
        // Whoever came after the fault was decided on what is stored: nobody has accepted the task there.
        for one in ahead {
            match one.await.unwrap() {
                Err(Denied::Fault(_)) => {}
                Err(Denied::Refused(Refusal::NotAssignee { .. } | Refusal::NotRunning)) | Ok(_) => {}
                Err(other) => panic!("found {other:?}"),
            }
        }
        drop(look.await.unwrap());
        let log = kinds(&stage.log("s"));
        assert!(log.len() <= 3 && log[..2] == ["Started", "Requested"], "found {log:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_somebody_else_was_faster_than_is_decided_again() {
    in_time(async {
        let shared = Faulty::in_memory();
        let store: Arc<dyn Store> = shared.clone();
        let (one, other) = (Stage::on(&store), Stage::on(&store));
        one.requested("s", task(Charter::macp())).await;
        other.ok("s", "worker", accept()).await;
        // The first engine still believes that the task is free.
        let late = one.refused("s", "helper", accept()).await;
        assert_eq!(late, Refusal::AlreadyAssigned { assignee: agent("worker") });
        one.ok("s", "worker", update("half")).await;
        // And the second that nothing was said since.
        other.ok("s", "worker", complete()).await;
        other.ok("s", "planner", commit("task.completed")).await;
        assert_eq!(kinds(&one.log("s")), LIFE);
        other.ok("new", "planner", start(task(Charter::macp()))).await;
        assert_eq!(one.refused("new", "planner", start(task(Charter::macp()))).await, Refusal::SessionExists);
        assert!(shared.count(&shared.conflicts) >= 3, "found {}", shared.count(&shared.conflicts));
        assert_eq!(one.log("new").len(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_engines_that_race_on_one_session_write_one_log() {
    in_time(async {
        let shared = Faulty::in_memory();
        let store: Arc<dyn Store> = shared.clone();
        let engines = [Arc::new(Stage::on(&store)), Arc::new(Stage::on(&store))];
        engines[0].working("s", task(Charter::macp())).await;
        let clients: Vec<_> = (0..8)
            .map(|client| {
                let stage = Arc::clone(&engines[client % 2]);
                tokio::spawn(async move {
                    for index in 0..25 {
                        let id = format!("{client} {index}");
                        let told = stage.put_as(&id, "s", "worker", update(&id)).await.unwrap();
                        assert!(!told.receipt.duplicate);
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
        let log = engines[0].log("s");
        let ids: std::collections::BTreeSet<_> = log.iter().filter_map(|event| event.id.clone()).collect();
        assert_eq!((log.len(), ids.len()), (203, 200));
        assert!(shared.count(&shared.conflicts) > 0, "they were in each other's way");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_cannot_be_read_is_said_to_be_so_and_harms_nobody_else() {
    in_time(async {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let events = vec![b"no event".to_vec()];
        let append = Append { key: key("torn"), expected: 0, events, row: None, wake: Wake::At(1), snapshot: None };
        store.append(&[append]).unwrap();
        let stage = Stage::on(&store);
        let told = stage.put("torn", "planner", request()).await;
        assert!(
            matches!(&told, Err(Denied::Unreadable(what)) if what.starts_with("session stage/torn cannot be read: ")),
            "found {told:?}"
        );
        stage.life("s").await;
        assert_eq!(store.head(&key("torn")).unwrap(), Some(1));
    })
    .await;
}
