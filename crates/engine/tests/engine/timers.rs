//! What happens by itself, when its time has come, whether or not anybody remembers the session.

use std::sync::Arc;
use std::time::Duration;

use handover_engine::clock::now;
use handover_engine::{Settings, shard};
use handover_kernel::command::{Act, Command, Start};
use handover_kernel::event::ExpiryCause;
use handover_kernel::session::Standing;
use handover_kernel::{Author, Charter, Fact};

use crate::stage::*;

/// Settings under which a session leaves memory soon.
pub fn forgetful() -> Settings {
    let shard = shard::Settings { idle_ms: 1, finished_idle_ms: 1, ..Default::default() };
    Settings { shard, ..Settings::default() }
}

on_every_store! {
    async fn a_deadline_passes_by_itself(store) {
        let stage = Stage::on(&store);
        stage.ok("s", "planner", start(task_for(300))).await;
        let log = stage.until_log_has("s", "Expired").await;
        assert_eq!(kinds(&log), ["Started", "Expired"]);
        let last = log.last().unwrap();
        assert_eq!(last.fact, Fact::Expired { cause: ExpiryCause::Deadline });
        assert_eq!(last.author, Author::Runtime);
        let deadline = stage.session("s").await.unwrap().deadline.unwrap();
        assert!(last.at > deadline, "not before its time");
        assert_eq!(stage.session("s").await.unwrap().standing(), Standing::Expired);
        assert!(store.due(u64::MAX, 10).unwrap().is_empty());
    }

    async fn a_check_in_that_is_missed_is_recorded(store) {
        let stage = Stage::on(&store);
        let charter = Charter { check_in_ms: Some(100), ..Charter::grid() };
        stage.ok("s", "planner", start(task(charter))).await;
        stage.ok("s", "planner", request()).await;
        let log = stage.until_log_has("s", "CheckInMissed").await;
        assert_eq!(kinds(&log), ["Started", "Requested", "CheckInMissed"]);
        assert!(matches!(log[2].fact, Fact::CheckInMissed { message, .. } if message == log[1].seq));
        assert_eq!(log[2].at, log[1].at.plus(100));
    }

    async fn an_offer_that_nobody_answers_is_accepted_for_its_target(store) {
        let stage = Stage::on(&store);
        let charter = Charter { implicit_accept_ms: Some(100), ..Charter::macp() };
        stage.ok("h", "planner", start(handoff(charter))).await;
        stage.ok("h", "planner", offer("o1", "helper", "the account")).await;
        let log = stage.until_log_has("h", "OfferAccepted").await;
        assert!(matches!(log[2].fact, Fact::OfferAccepted { implicit: true, .. }));
        assert_eq!((&log[2].author, log[2].at), (&Author::Agent(agent("helper")), log[1].at.plus(100)));
        stage.ok("h", "planner", commit("handoff.accepted")).await;
    }

    async fn a_suspension_that_lasts_too_long_ends_the_session(store) {
        let stage = Stage::on(&store);
        let charter = Charter { suspension_cap_ms: 100, ..Charter::macp() };
        stage.working("s", task(charter)).await;
        stage.ok("s", "planner", Act::Pause { reason: "later".into(), gently: false }).await;
        let log = stage.until_log_has("s", "Expired").await;
        assert_eq!(log.last().unwrap().fact, Fact::Expired { cause: ExpiryCause::SuspensionCap });
    }

    async fn a_timer_that_came_due_while_no_engine_ran_fires_when_one_does(store) {
        // On a busy machine the time may be up before the engine has stopped: then there is more.
        for ttl_ms in [300, 2_000, 10_000] {
            let name = format!("{ttl_ms}");
            let stage = Stage::on(&store);
            stage.ok(&name, "planner", start(task_for(ttl_ms))).await;
            drop(stage);
            let due = store.due(u64::MAX, 10).unwrap();
            if let [(_, at)] = due[..] {
                until("it is due", || now().0 > at).await;
                assert_eq!(log(&*store, &name).len(), 1, "nobody was there to wake it");
                let stage = Stage::on(&store);
                assert_eq!(stage.until_log_has(&name, "Expired").await.len(), 2);
                return;
            }
        }
        panic!("the engine never stopped in time");
    }

    async fn the_timer_of_a_session_that_has_left_memory_fires(store) {
        let stage = Stage::with(&store, forgetful());
        // On a busy machine the time may be up before the session has left: then it gets more.
        for ttl_ms in [2_000, 8_000, 20_000] {
            let name = format!("{ttl_ms}");
            stage.ok(&name, "planner", start(task_for(ttl_ms))).await;
            stage.until_memory_is_empty().await;
            let left_in_time = stage.log(&name).len() == 1;
            let log = stage.until_log_has(&name, "Expired").await;
            assert_eq!(log.len(), 2);
            if left_in_time {
                return;
            }
        }
        panic!("the session never left memory in time");
    }

    async fn a_tick_that_is_delivered_twice_does_nothing(store) {
        let stage = Stage::on(&store);
        let tick = || stage.engine.submit(key("s"), Command::runtime(Act::Tick));
        stage.ok("s", "planner", start(task_for(500))).await;
        for _ in 0..3 {
            tick().await.unwrap();
        }
        let log = stage.until_log_has("s", "Expired").await;
        assert_eq!(kinds(&log), ["Started", "Expired"]);
        for _ in 0..3 {
            let told = tick().await.unwrap();
            assert_eq!((told.receipt.seq.0, told.standing()), (log.len() as u64, Standing::Expired));
        }
        assert_eq!(stage.log("s").len(), log.len());
        assert_eq!(written(&*store), log.len() as u64);
    }

    async fn a_thousand_sessions_expire_at_the_same_moment(store) {
        let stage = Arc::new(Stage::with(&store, forgetful()));
        let begun = now();
        let clients: Vec<_> = (0..1000)
            .map(|index| {
                let stage = Arc::clone(&stage);
                tokio::spawn(async move {
                    let start = Start { sent_at: Some(begun), ..task_for(2_500) };
                    stage.ok(&format!("{index}"), "planner", Act::Start(Box::new(start))).await;
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
        until("all have expired", || store.open_counts().unwrap().is_empty()).await;
        for index in 0..1000 {
            let log = stage.log(&format!("{index}"));
            assert_eq!(kinds(&log), ["Started", "Expired"]);
            assert!(log[1].at >= begun.plus(2_501));
        }
        assert!(store.due(u64::MAX, 10).unwrap().is_empty());
        // Each was woken about once: one that is swept up twice by a scan does no harm, but it is not the rule.
        let ticks = stage.metrics.ticks.get();
        assert!((1000..3000).contains(&ticks), "found {ticks} ticks");
    }

    async fn a_session_that_was_finished_in_time_does_not_expire(store) {
        let stage = Stage::on(&store);
        // On a busy machine the time may be up before it is finished: then there is more.
        for ttl_ms in [1_000, 5_000, 20_000] {
            let (name, later) = (format!("{ttl_ms}"), format!("later {ttl_ms}"));
            stage.ok(&name, "planner", start(task_for(ttl_ms))).await;
            let cancelled = stage.ok(&name, "planner", cancel()).await;
            stage.ok(&later, "planner", start(task_for(ttl_ms))).await;
            stage.until_log_has(&later, "Expired").await;
            if cancelled.standing() == Standing::Cancelled {
                assert_eq!(kinds(&stage.log(&name)), ["Started", "Cancelled"]);
                return;
            }
        }
        panic!("it was never finished in time");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_timers_leaves_room_for_clients() {
    in_time(async {
        let store: Arc<dyn handover_store::Store> = Arc::new(handover_store::MemoryStore::new());
        let stage = Arc::new(Stage::on(&store));
        for index in 0..1500 {
            let name = format!("{index}");
            stage.ok(&name, "planner", start(task_for(1))).await;
        }
        let answered = tokio::time::timeout(Duration::from_secs(20), stage.life("a client")).await;
        assert!(answered.is_ok());
        until("all have expired", || store.open_counts().unwrap().is_empty()).await;
    })
    .await;
}
