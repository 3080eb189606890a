//! Finished sessions are kept for a while, and their ids for ever, or for as long as is said.

use handover_engine::Settings;
use handover_engine::clock::now;
use handover_kernel::command::Act;
use handover_kernel::{Charter, Refusal};

use crate::stage::*;
use crate::timers::forgetful;

on_every_store! {
    async fn finished_sessions_past_their_time_are_deleted_and_their_ids_stay_taken(store) {
        let stage = Stage::on(&store);
        stage.life("finished").await;
        stage.working("open", task(Charter::macp())).await;
        let finished_at = store.row(&key("finished")).unwrap().unwrap().finished_at.unwrap();
        drop(stage);
        until("its time has passed", || now().0 > finished_at + 60).await;
        // An engine looks for them as soon as it starts.
        let stage = Stage::with(&store, Settings { retention_ms: Some(50), ..Settings::default() });
        until("it is deleted", || store.head(&key("finished")).unwrap().is_none()).await;
        let deleted_at = store.tombstone(&key("finished")).unwrap();
        assert!(deleted_at.is_some_and(|at| at > finished_at), "found {deleted_at:?}");
        assert!(stage.session("finished").await.is_none());
        let again = || start(task(Charter::macp()));
        assert_eq!(stage.refused("finished", "planner", again()).await, Refusal::SessionExists);
        assert_eq!(stage.refused("finished", "planner", request()).await, Refusal::SessionNotFound);
        assert_eq!(stage.refused("finished", "planner", again()).await, Refusal::SessionExists);
        assert!(stage.log("finished").is_empty());
        stage.ok("open", "worker", complete()).await;
    }

    async fn a_session_that_was_deleted_while_it_was_in_memory_takes_nothing_more(store) {
        let stage = Stage::with(&store, forgetful());
        stage.life("s").await;
        until("its time has passed", || store.delete_finished(now().0, now().0, 10).unwrap().len() == 1).await;
        // What the engine may still remember can be looked at, and nothing can be added to it.
        assert_eq!(stage.refused("s", "planner", start(task(Charter::macp()))).await, Refusal::SessionExists);
        stage.put("s", "planner", cancel()).await.ok();
        assert_eq!(store.head(&key("s")).unwrap(), None);
        stage.until_memory_is_empty().await;
        assert!(stage.session("s").await.is_none());
        assert_eq!(stage.refused("s", "planner", start(task(Charter::macp()))).await, Refusal::SessionExists);
    }

    // Nobody keeps a deleted session by asking for it, and no tombstone goes unless that is said.
    async fn a_deleted_session_that_somebody_keeps_asking_for_is_gone(store) {
        let settings = Settings { retention_ms: Some(1), ..Settings::default() };
        let stage = Stage::with(&store, settings);
        stage.life("s").await;
        in_time(async {
            while stage.session("s").await.is_some() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert!(store.tombstone(&key("s")).unwrap().is_some());
        assert_eq!(stage.refused("s", "planner", cancel()).await, Refusal::SessionNotFound);
        assert_eq!(stage.refused("s", "planner", start(task(Charter::macp()))).await, Refusal::SessionExists);
        drop(stage);
        let stage = Stage::with(&store, Settings { retention_ms: Some(1), ..Settings::default() });
        stage.life("other").await;
        until("the next is deleted", || store.tombstone(&key("other")).unwrap().is_some()).await;
        assert!(store.tombstone(&key("s")).unwrap().is_some());
    }

    async fn an_id_whose_tombstone_is_gone_is_free_again(store) {
        let stage = Stage::with(&store, forgetful());
        stage.life("s").await;
        until("it is deleted", || store.delete_finished(now().0, now().0, 10).unwrap().len() == 1).await;
        stage.until_memory_is_empty().await;
        assert_eq!(stage.refused("s", "planner", start(task(Charter::macp()))).await, Refusal::SessionExists);
        stage.until_memory_is_empty().await;
        assert_eq!(store.forget_tombstones(u64::MAX).unwrap(), 1);
        stage.life("s").await;
    }

    async fn a_finished_session_is_kept_until_it_owes_nothing_any_more(store) {
        let stage = Stage::with(&store, forgetful());
        stage.working("t", task(Charter { reassignment: true, ..Charter::macp() })).await;
        stage.ok("t", "planner", Act::Pause { reason: "later".into(), gently: false }).await;
        stage.ok("h", "planner", start(handoff(Charter::macp()))).await;
        stage.ok("h", "planner", offer("o1", "helper", "task:t")).await;
        stage.ok("h", "helper", take_offer("o1")).await;
        stage.ok("h", "planner", commit("handoff.accepted")).await;
        let finished_at = store.row(&key("h")).unwrap().unwrap().finished_at.unwrap();
        until("its time has passed", || now().0 > finished_at).await;
        assert!(store.delete_finished(now().0, now().0, 10).unwrap().is_empty(), "the task has not moved yet");
        stage.ok("t", "planner", Act::Resume { reason: "now".into() }).await;
        stage.until_log_has("h", "ErrandSettled").await;
        assert_eq!(store.delete_finished(now().0, now().0, 10).unwrap()[0].key, key("h"));
        let session = stage.session("t").await.unwrap();
        assert_eq!(session.task().unwrap().phase.assignee(), Some(&agent("helper")));
    }
}
