//! Reaching a limit is a refusal with its own code, and it passes.

use std::sync::Arc;

use handover_engine::{Denied, Settings, shard};
use handover_kernel::{Charter, Refusal};
use handover_store::Store;

use crate::faulty::{Failing, Faulty};
use crate::stage::*;

async fn busy_once_this_many_wait(settings: shard::Settings, room: usize) {
    let held = Faulty::in_memory();
    let store: Arc<dyn Store> = held.clone();
    let stage = Arc::new(Stage::with(&store, Settings { shards: 1, shard: settings, ..Settings::default() }));
    held.hold();
    let mut clients = Vec::new();
    for index in 0..room {
        let stage = Arc::clone(&stage);
        let name = format!("{index}");
        clients.push(tokio::spawn(
            async move { stage.ok(&name, "planner", start(task(Charter::macp()))).await },
        ));
        if index == 0 {
            until("a commit", || held.count(&held.commits) == 1).await;
        }
    }
    until("everybody waits", || clients.len() == room && stage_is_full(&stage, room)).await;
    assert_eq!(stage.refused("late", "planner", start(task(Charter::macp()))).await, Refusal::Busy);
    held.release();
    for client in clients {
        client.await.unwrap();
    }
    stage.ok("late", "planner", start(task(Charter::macp()))).await;
    assert_eq!(written(&*store), room as u64 + 1);
}

fn stage_is_full(stage: &Stage, room: usize) -> bool {
    stage.engine.sessions_in_memory() == room
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_refuses_commands_until_there_is_room() {
    in_time(busy_once_this_many_wait(shard::Settings { queue_max: 4, ..Default::default() }, 4)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_batch_refuses_commands_until_it_is_written() {
    // One is being written, three are gathered.
    in_time(busy_once_this_many_wait(shard::Settings { batch_events_max: 3, ..Default::default() }, 4)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_refuses_readers_as_well() {
    in_time(async {
        let held = Faulty::in_memory();
        let store: Arc<dyn Store> = held.clone();
        let shard = shard::Settings { queue_max: 1, ..Default::default() };
        let stage = Arc::new(Stage::with(&store, Settings { shards: 1, shard, ..Settings::default() }));
        held.hold();
        let waiting = Arc::clone(&stage);
        let client =
            tokio::spawn(async move { waiting.ok("s", "planner", start(task(Charter::macp()))).await });
        until("the session is decided", || stage.engine.sessions_in_memory() == 1).await;
        let read = stage.engine.session(key("s")).await;
        assert!(matches!(read, Err(Denied::Refused(Refusal::Busy))), "found {read:?}");
        held.release();
        client.await.unwrap();
        assert!(stage.session("s").await.is_some());
    })
    .await;
}

fn two_each() -> Settings {
    Settings { sessions_open_per_agent_max: 2, ..Settings::default() }
}

on_every_store! {
    async fn an_agent_has_only_so_many_sessions_open(store) {
        let stage = Stage::with(&store, two_each());
        stage.working("a", task(Charter::macp())).await;
        stage.working("b", task(Charter::macp())).await;
        let more = || start(task(Charter::macp()));
        assert_eq!(stage.refused("c", "planner", more()).await, Refusal::TooManySessions { limit: 2 });
        stage.ok("of another", "outsider", more()).await;

        stage.ok("a", "worker", complete()).await;
        stage.ok("a", "planner", commit("task.completed")).await;
        stage.ok("c", "planner", more()).await;
        assert_eq!(stage.refused("d", "planner", more()).await, Refusal::TooManySessions { limit: 2 });
        stage.ok("c", "planner", cancel()).await;
        stage.ok("d", "planner", more()).await;

        drop(stage);
        let stage = Stage::with(&store, two_each());
        assert_eq!(stage.refused("e", "planner", more()).await, Refusal::TooManySessions { limit: 2 });
        stage.ok("d", "planner", cancel()).await;
        stage.ok("e", "planner", more()).await;
    }

    async fn a_start_that_is_refused_takes_no_place(store) {
        let stage = Stage::with(&store, two_each());
        stage.ok("a", "planner", start(task(Charter::macp()))).await;
        let alone = || {
            let mut alone = task(Charter::macp());
            alone.participants = vec![agent("planner")];
            start(alone)
        };
        for _ in 0..5 {
            assert_eq!(stage.refused("a", "planner", start(task(Charter::macp()))).await, Refusal::SessionExists);
            assert!(matches!(stage.refused("b", "planner", alone()).await, Refusal::Invalid { .. }));
        }
        stage.ok("b", "planner", start(task(Charter::macp()))).await;
    }

    async fn a_crowd_that_starts_at_once_gets_no_more_places_than_there_are(store) {
        let stage = Arc::new(Stage::with(&store, two_each()));
        let clients = (0..20).map(|index| {
            let stage = Arc::clone(&stage);
            tokio::spawn(async move {
                stage.put(&format!("{index}"), "planner", start(task(Charter::macp()))).await.is_ok()
            })
        });
        let mut started = 0;
        for client in clients.collect::<Vec<_>>() {
            started += usize::from(client.await.unwrap());
        }
        assert_eq!(started, 2);
        assert_eq!(store.open_counts().unwrap(), [(TENANT.into(), "planner".into(), 2)]);
    }

    async fn the_retry_of_a_start_is_answered_though_the_agent_has_no_place_left(store) {
        let stage = Stage::with(&store, two_each());
        let more = || start(task(Charter::mcp()));
        let first = stage.put_as("m1", "a", "planner", more()).await.unwrap();
        stage.put_as("m2", "b", "planner", more()).await.unwrap();
        let again = stage.put_as("m1", "a", "planner", more()).await.unwrap();
        assert!(again.receipt.duplicate);
        assert_eq!((again.receipt.seq, again.receipt.at), (first.receipt.seq, first.receipt.at));
        let third = refusal(stage.put_as("m3", "c", "planner", more()).await);
        assert_eq!(third, Refusal::TooManySessions { limit: 2 });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_is_free_again_though_nobody_knew_that_the_session_had_ended() {
    in_time(async {
        let faulty = Faulty::in_memory();
        let store: Arc<dyn Store> = faulty.clone();
        let stage = Stage::with(&store, Settings { sessions_open_per_agent_max: 1, ..Settings::default() });
        stage.ok("a", "planner", start(task(Charter::macp()))).await;
        faulty.fail_append(Failing::LoseAnswer);
        assert!(is_fault(&stage.put("a", "planner", cancel()).await));
        assert_eq!(kinds(&stage.log("a")), ["Started", "Cancelled"]);
        // Nobody else writes anything: the count must be set right all the same.
        let mut told = stage.put("b", "planner", start(task(Charter::macp()))).await;
        while let Err(Denied::Refused(Refusal::TooManySessions { .. })) = told {
            tokio::task::yield_now().await;
            told = stage.put("b", "planner", start(task(Charter::macp()))).await;
        }
        told.unwrap();
    })
    .await;
}
