//! What spans two sessions: a handoff that moves a running task, a parent that takes its children with it.

use std::sync::Arc;

use handover_kernel::command::{Act, Start};
use handover_kernel::errand::Verdict;
use handover_kernel::session::Standing;
use handover_kernel::{Author, Charter, Fact, Refusal, SessionId};
use handover_store::{MemoryStore, Store};

use crate::faulty::{Failing, Faulty};
use crate::stage::*;

fn movable() -> Charter {
    Charter { reassignment: true, ..Charter::macp() }
}

fn child_of(parent: &str) -> Start {
    Start { parent: Some(SessionId::from(parent)), ..task(Charter::macp()) }
}

/// A handoff of the task `t` to `helper`, accepted and committed.
async fn hand_on(stage: &Stage, name: &str) {
    stage.ok(name, "planner", start(handoff(Charter::macp()))).await;
    stage.ok(name, "planner", offer("o1", "helper", "task:t")).await;
    stage.ok(name, "helper", take_offer("o1")).await;
    stage.ok(name, "planner", commit("handoff.accepted")).await;
}

fn is_done(fact: &Fact) -> bool {
    matches!(fact, Fact::ErrandSettled { verdict: Verdict::Done, .. })
}

on_every_store! {
    async fn a_committed_handoff_makes_its_target_the_assignee_and_both_logs_say_so(store) {
        let stage = Stage::on(&store);
        stage.working("t", task(movable())).await;
        hand_on(&stage, "h").await;
        let log = stage.until_log_has("h", "ErrandSettled").await;
        assert_eq!(kinds(&log), ["Started", "Offered", "OfferAccepted", "Committed", "ErrandSettled"]);
        assert!(is_done(&log[4].fact));
        let log = stage.log("t");
        assert_eq!(kinds(&log[3..]), ["Declined", "Accepted"]);
        assert_eq!((&log[3].author, &log[4].author), (&Author::Agent(agent("worker")), &Author::Agent(agent("helper"))));
        let of_handoff = Some(SessionId::from("h"));
        assert!(matches!(&log[3].fact, Fact::Declined { handoff, .. } if *handoff == of_handoff));
        assert!(matches!(&log[4].fact, Fact::Accepted { handoff, .. } if *handoff == of_handoff));
        let session = stage.session("t").await.unwrap();
        assert_eq!(session.task().unwrap().phase.assignee(), Some(&agent("helper")));
        assert!(matches!(stage.refused("t", "worker", complete()).await, Refusal::NoLongerAssignee { .. }));
        stage.ok("t", "helper", complete()).await;
        assert!(store.due(u64::MAX, 10).unwrap().is_empty(), "nothing is owed any more");
    }

    async fn an_offer_of_a_task_that_has_gone_to_another_agent_takes_it_from_nobody(store) {
        let stage = Stage::on(&store);
        let everybody = ["worker", "helper", "second"].map(agent).to_vec();
        stage.working("t", Start { participants: everybody, ..task(movable()) }).await;
        stage.ok("h", "worker", start(handoff(Charter::macp()))).await;
        stage.ok("h", "worker", offer("o1", "helper", "task:t")).await;
        stage.ok("h", "helper", take_offer("o1")).await;
        stage.ok("t", "worker", decline()).await;
        stage.ok("t", "second", accept()).await;
        stage.ok("h", "worker", commit("handoff.accepted")).await;
        let log = stage.until_log_has("h", "ErrandSettled").await;
        let settled = &log.last().unwrap().fact;
        let refused = |verdict: &Verdict| *verdict == Verdict::Refused { code: "NOT_ASSIGNEE".into() };
        assert!(matches!(settled, Fact::ErrandSettled { verdict, .. } if refused(verdict)), "{settled:?}");
        let session = stage.session("t").await.unwrap();
        assert_eq!(session.task().unwrap().phase.assignee(), Some(&agent("second")));
        stage.ok("t", "second", complete()).await;
    }

    async fn a_task_that_may_not_change_hands_cannot_be_offered(store) {
        let stage = Stage::on(&store);
        stage.working("t", task(Charter::macp())).await;
        stage.ok("h", "planner", start(handoff(Charter::macp()))).await;
        assert_eq!(
            stage.refused("h", "planner", offer("o1", "helper", "task:t")).await,
            Refusal::HandOnDenied
        );
        let unknown = stage.refused("h", "planner", offer("o1", "helper", "task:nowhere")).await;
        assert!(matches!(unknown, Refusal::Invalid { .. }), "found {unknown:?}");
        assert_eq!(kinds(&stage.log("h")), ["Started"]);
        assert_eq!(stage.log("t").len(), 3);
        stage.ok("h", "planner", offer("o1", "helper", "something else")).await;
    }

    async fn the_retry_of_an_offer_is_answered_though_the_task_has_moved_on(store) {
        let stage = Stage::on(&store);
        stage.working("t", task(movable())).await;
        stage.ok("h", "planner", start(handoff(Charter::macp()))).await;
        let first = stage.put_as("m1", "h", "planner", offer("o1", "helper", "task:t")).await.unwrap();
        stage.ok("t", "worker", complete()).await;
        let again = stage.put_as("m1", "h", "planner", offer("o1", "helper", "task:t")).await.unwrap();
        assert!(again.receipt.duplicate);
        assert_eq!((again.receipt.seq, again.receipt.at), (first.receipt.seq, first.receipt.at));
        let new = refusal(stage.put_as("m2", "h", "planner", offer("o2", "helper", "task:t")).await);
        assert_eq!(new, Refusal::AlreadyReported);
    }

    async fn the_retry_of_a_subtask_is_answered_though_its_parent_has_ended(store) {
        let stage = Stage::on(&store);
        stage.working("parent", task(Charter::macp())).await;
        let begin = || start(child_of("parent"));
        let first = stage.put_as("m1", "child", "worker", begin()).await.unwrap();
        stage.ok("parent", "planner", cancel()).await;
        let again = stage.put_as("m1", "child", "worker", begin()).await.unwrap();
        assert!(again.receipt.duplicate);
        assert_eq!((again.receipt.seq, again.receipt.at), (first.receipt.seq, first.receipt.at));
        let new = refusal(stage.put_as("m1", "another", "worker", begin()).await);
        assert_eq!(new, Refusal::SessionEnded { state: "cancelled" });
    }

    async fn cancelling_a_parent_cancels_its_children_and_theirs(store) {
        let stage = Stage::on(&store);
        stage.working("parent", task(Charter::macp())).await;
        for name in ["one", "two"] {
            stage.ok(name, "worker", start(Start { participants: vec![agent("helper")], ..child_of("parent") })).await;
            stage.until_log_has(name, "ErrandSettled").await;
        }
        stage.ok("grandchild", "worker", start(child_of("one"))).await;
        stage.until_log_has("grandchild", "ErrandSettled").await;
        stage.ok("parent", "planner", cancel()).await;
        for name in ["one", "two", "grandchild"] {
            let log = stage.until_log_has(name, "Cancelled").await;
            let cancelled = log.iter().find(|event| kind(&event.fact) == "Cancelled").unwrap();
            assert_eq!(cancelled.author, Author::Runtime);
            assert_eq!(cancelled.fact, Fact::Cancelled { reason: "parent_cancelled".into(), keeps_children: false });
        }
        until("nothing is owed any more", || store.due(u64::MAX, 10).unwrap().is_empty()).await;
        let log = stage.log("parent");
        assert_eq!(
            kinds(&log[3..]),
            ["ChildAdded", "ChildAdded", "Cancelled", "ErrandSettled", "ErrandSettled"]
        );
    }

    async fn a_parent_that_was_cancelled_just_before_the_engine_stopped_takes_its_children_with_it(store) {
        for round in 0..10 {
            let (parent, child) = (format!("parent {round}"), format!("child {round}"));
            let stage = Stage::on(&store);
            stage.working(&parent, task(Charter::macp())).await;
            stage.ok(&child, "worker", start(child_of(&parent))).await;
            stage.until_log_has(&child, "ErrandSettled").await;
            stage.ok(&parent, "planner", cancel()).await;
            drop(stage);
            let stage = Stage::on(&store);
            stage.until_log_has(&child, "Cancelled").await;
            stage.until_log_has(&parent, "ErrandSettled").await;
            assert_eq!(stage.session(&child).await.unwrap().standing(), Standing::Cancelled);
        }
    }

    async fn a_subtask_whose_parent_ends_before_it_is_known_ends_too(store) {
        let stage = Stage::on(&store);
        for round in 0..20 {
            let (parent, child) = (format!("parent {round}"), format!("child {round}"));
            stage.working(&parent, task(Charter::macp())).await;
            let (started, cancelled) = tokio::join!(
                stage.put(&child, "worker", start(child_of(&parent))),
                stage.put(&parent, "planner", cancel()),
            );
            cancelled.unwrap();
            match started {
                Ok(_) => {
                    stage.until_log_has(&child, "Cancelled").await;
                }
                Err(denied) => assert_eq!(refusal(Err(denied)), Refusal::SessionEnded { state: "cancelled" }),
            }
        }
        until("nothing is owed any more", || store.due(u64::MAX, 10).unwrap().is_empty()).await;
    }
}

// What stays due is tried again at every look at the store, a few seconds apart: once is enough for these.

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handoff_of_a_paused_task_waits_until_it_goes_on() {
    in_time(async {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let stage = Stage::on(&store);
        stage.working("t", task(movable())).await;
        stage.ok("t", "planner", Act::Pause { reason: "later".into(), gently: false }).await;
        hand_on(&stage, "h").await;
        assert_eq!(kinds(&stage.log("h")).last().unwrap(), "Committed");
        stage.ok("t", "planner", Act::Resume { reason: "now".into() }).await;
        let log = stage.until_log_has("h", "ErrandSettled").await;
        assert!(is_done(&log.last().unwrap().fact));
        let session = stage.session("t").await.unwrap();
        assert_eq!(session.task().unwrap().phase.assignee(), Some(&agent("helper")));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_errand_that_was_not_taken_is_tried_again_when_the_other_session_changes() {
    in_time(async {
        let faulty = Faulty::in_memory();
        let store: Arc<dyn Store> = faulty.clone();
        let stage = Stage::on(&store);
        stage.working("t", task(movable())).await;
        stage.ok("t", "planner", Act::Pause { reason: "later".into(), gently: false }).await;
        // No look at the store finds it: only the change itself can. Before the first look nothing is known to be due soon.
        until("the engine has looked who is due", || faulty.count(&faulty.looks) > 0).await;
        faulty.hide_who_is_due();
        let before = stage.metrics.ticks.get();
        hand_on(&stage, "h").await;
        until("the errand is tried", || stage.metrics.ticks.get() > before).await;
        stage.ok("t", "planner", Act::Resume { reason: "now".into() }).await;
        // If the task went on in the very moment of the try, its next change will do.
        while !stage.log("h").iter().any(|event| is_done(&event.fact)) {
            stage.put("t", "worker", update("going")).await.ok();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_errand_survives_a_store_that_fails() {
    in_time(async {
        let faulty = Faulty::in_memory();
        let store: Arc<dyn Store> = faulty.clone();
        let stage = Arc::new(Stage::on(&store));
        stage.working("parent", task(Charter::macp())).await;
        stage.ok("child", "worker", start(child_of("parent"))).await;
        stage.until_log_has("child", "ErrandSettled").await;
        stage.until_log_has("parent", "ChildAdded").await;
        let before = faulty.count(&faulty.commits);
        faulty.hold();
        let asking = Arc::clone(&stage);
        let cancelling = tokio::spawn(async move { asking.ok("parent", "planner", cancel()).await });
        until("the cancellation is being written", || faulty.count(&faulty.commits) == before + 1).await;
        faulty.release_one();
        cancelling.await.unwrap();
        // The child's cancellation is kept, and nobody hears of it.
        faulty.fail_append(Failing::LoseAnswer);
        faulty.release();
        stage.until_log_has("parent", "ErrandSettled").await;
        assert_eq!(faulty.count(&faulty.faults), 1);
        let log = stage.log("child");
        assert_eq!(log.iter().filter(|event| kind(&event.fact) == "Cancelled").count(), 1);
        assert_eq!(stage.session("child").await.unwrap().standing(), Standing::Cancelled);
    })
    .await;
}
