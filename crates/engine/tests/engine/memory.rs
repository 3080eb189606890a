//! Memory holds what is in use; everything else is on disk and comes back on demand.

use std::sync::Arc;

use handover_engine::{Settings, index, shard};
use handover_kernel::Charter;
use handover_store::{MemoryStore, Store};

use crate::faulty::Faulty;
use crate::stage::*;
use crate::timers::forgetful;

on_every_store! {
    async fn idle_sessions_leave_memory_and_come_back_the_same(store) {
        let stage = Stage::with(&store, forgetful());
        for index in 0..20 {
            stage.working(&format!("{index}"), task(Charter::macp())).await;
        }
        let mut before = Vec::new();
        for index in 0..20 {
            before.push(stage.session(&format!("{index}")).await.unwrap());
        }
        stage.until_memory_is_empty().await;
        for (index, before) in before.iter().enumerate() {
            let name = format!("{index}");
            assert_eq!(stage.session(&name).await.unwrap(), *before);
            stage.ok(&name, "worker", complete()).await;
        }
        stage.until_memory_is_empty().await;
        for index in 0..20 {
            let told = stage.ok(&format!("{index}"), "planner", commit("task.completed")).await;
            assert_eq!(told.receipt.seq.0, 5);
        }
        stage.until_memory_is_empty().await;
        assert_eq!(stage.metrics.sessions_in_memory.get(), 0);
    }

    async fn a_retry_after_the_session_has_left_memory_is_still_a_retry(store) {
        let stage = Stage::with(&store, forgetful());
        let first = stage.put_as("m1", "s", "planner", start(task(Charter::mcp()))).await.unwrap();
        let second = stage.put_as("m2", "s", "planner", request()).await.unwrap();
        stage.until_memory_is_empty().await;
        let again = stage.put_as("m2", "s", "planner", request()).await.unwrap();
        assert!(again.receipt.duplicate);
        assert_eq!((again.receipt.seq, again.receipt.at), (second.receipt.seq, second.receipt.at));
        stage.until_memory_is_empty().await;
        let again = stage.put_as("m1", "s", "planner", start(task(Charter::mcp()))).await.unwrap();
        assert!(again.receipt.duplicate);
        assert_eq!((again.receipt.seq, again.receipt.at), (first.receipt.seq, first.receipt.at));
        assert_eq!(stage.log("s").len(), 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finished_sessions_leave_memory_long_before_the_others() {
    in_time(async {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let shard = shard::Settings { idle_ms: 10_000_000, finished_idle_ms: 1, ..Default::default() };
        let stage = Stage::with(&store, Settings { shard, ..Settings::default() });
        for index in 0..5 {
            stage.working(&format!("open {index}"), task(Charter::macp())).await;
            stage.life(&format!("finished {index}")).await;
        }
        until("the finished ones have left", || stage.engine.sessions_in_memory() == 5).await;
        for index in 0..5 {
            stage.session(&format!("finished {index}")).await.unwrap();
        }
        until("and leave again", || stage.engine.sessions_in_memory() == 5).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_sessions_stay_in_memory_than_may() {
    in_time(async {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let shard = shard::Settings { sessions_in_memory_max: 10, idle_ms: 10_000_000, ..Default::default() };
        let stage = Stage::with(&store, Settings { shards: 2, shard, ..Settings::default() });
        for index in 0..100 {
            stage.working(&format!("{index}"), task(Charter::macp())).await;
        }
        until("the cap holds", || stage.engine.sessions_in_memory() <= 20).await;
        assert!(stage.engine.sessions_in_memory() >= 10, "no more leave than must");
        for index in 0..100 {
            let told = stage.ok(&format!("{index}"), "worker", complete()).await;
            assert_eq!(told.receipt.seq.0, 4);
        }
        until("the cap holds", || stage.engine.sessions_in_memory() <= 20).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_session_is_loaded_from_its_snapshot_and_the_events_after_it() {
    in_time(async {
        let faulty = Faulty::in_memory();
        let store: Arc<dyn Store> = Arc::clone(&faulty) as Arc<dyn Store>;
        let stage = Stage::on(&store);
        stage.working("long", task(Charter::macp())).await;
        for _ in 3..5_000 {
            stage.ok("long", "worker", update("so far")).await;
        }
        let before = stage.session("long").await.unwrap();
        assert_eq!(before.head.0, 5_000);
        drop(stage);
        let read = || faulty.count(&faulty.events_read);
        for rebuilt in [false, true] {
            if rebuilt {
                index::rebuild(&*store, |_| ()).unwrap();
            }
            let stage = Stage::on(&store);
            let begun = read();
            assert_eq!(stage.session("long").await.unwrap(), before);
            let took = read() - begun;
            assert!(rebuilt == (took == 5_000) && (rebuilt || took <= 1_000), "{took} events were read");
        }
    })
    .await;
}
