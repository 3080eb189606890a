//! Budgets: a task is counted by its root before it starts, once, whatever becomes of the start.

use std::sync::Arc;

use handover_kernel::budget::{Amount, Amounts, Budget};
use handover_kernel::command::{Act, Start};
use handover_kernel::{Charter, Command, Face, Refusal, SessionId, Text};

use crate::stage::*;

fn bounded(budget: Budget) -> Start {
    task(Charter { budget: Some(Arc::new(budget)), ..Charter::mcp() })
}

fn of_tasks(tasks: u32) -> Budget {
    Budget { tasks: Some(tasks), ..Budget::default() }
}

fn child_of(parent: &str) -> Start {
    Start { parent: Some(SessionId::from(parent)), ..task(Charter::mcp()) }
}

fn tokens(count: u64) -> Amounts {
    Amounts::stored([(Text::from("tokens"), Amount(count * 1_000_000))])
}

fn is_spent(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::BudgetSpent { .. })
}

async fn reserved(stage: &Stage, root: &str) -> Vec<String> {
    let session = stage.session(root).await.unwrap();
    let reserved = &session.task().unwrap().ledger.reserved;
    reserved.iter().map(|child| child.as_str().to_owned()).collect()
}

on_every_store! {
    async fn a_tree_shares_what_its_root_may_start_and_a_retry_counts_once(store) {
        let stage = Stage::on(&store);
        stage.working("root", bounded(of_tasks(2))).await;
        stage.working("other", task(Charter::mcp())).await;
        let first = || start(child_of("root"));
        stage.put_as("m1", "child", "worker", first()).await.unwrap();
        stage.ok("child", "worker", request()).await;
        stage.ok("child", "helper", accept()).await;
        stage.put_as("m2", "grandchild", "helper", start(child_of("child"))).await.unwrap();
        let refused = refusal(stage.put_as("m3", "more", "worker", start(child_of("root"))).await);
        assert!(is_spent(&refused), "{refused:?}");
        assert!(stage.session("more").await.is_none());
        assert_eq!(reserved(&stage, "root").await, ["child", "grandchild"]);
        let deep = stage.session("grandchild").await.unwrap();
        let under = deep.binding.under.as_ref().unwrap();
        assert_eq!((under.root.as_str(), under.depth), ("root", 2));
        // A retry is answered as it was, though nothing is left.
        assert!(stage.put_as("m1", "child", "worker", first()).await.unwrap().receipt.duplicate);
        assert_eq!(kinds(&stage.log("root")).iter().filter(|kind| *kind == "Reserved").count(), 2);
        stage.ok("elsewhere", "worker", start(child_of("other"))).await;
    }

    async fn a_start_that_is_refused_for_another_reason_counts_nothing(store) {
        let stage = Stage::on(&store);
        stage.working("root", bounded(of_tasks(2))).await;
        let alone = Start { participants: Vec::new(), ..child_of("root") };
        assert!(matches!(stage.refused("child", "worker", start(alone)).await, Refusal::Invalid { .. }));
        assert!(matches!(stage.refused("child", "second", start(child_of("root"))).await, Refusal::Invalid { .. }));
        let full = Command::by(&agent("worker"), Face::Mcp, start(child_of("root")));
        let full = refusal(stage.engine.submit_within(key("child"), full, 0).await);
        assert!(matches!(full, Refusal::TooManySessions { .. }), "{full:?}");
        stage.ok("taken", "worker", start(child_of("root"))).await;
        assert_eq!(stage.refused("taken", "worker", start(child_of("root"))).await, Refusal::SessionExists);
        assert_eq!(reserved(&stage, "root").await, ["taken"]);
    }

    async fn a_reservation_without_a_start_waits_for_it(store) {
        let stage = Stage::on(&store);
        stage.working("root", bounded(of_tasks(1))).await;
        // As after a crash between the two.
        let child = SessionId::from("child");
        let reserve = Act::Task(handover_kernel::command::TaskAct::Reserve { child, depth: 1 });
        stage.engine.submit(key("root"), Command::runtime(reserve)).await.unwrap();
        assert!(is_spent(&stage.refused("another", "worker", start(child_of("root"))).await));
        stage.ok("child", "worker", start(child_of("root"))).await;
        assert_eq!(reserved(&stage, "root").await, ["child"]);
    }

    async fn a_budget_within_another_counts_at_both_and_the_deeper_one_bounds_its_own(store) {
        let stage = Stage::on(&store);
        stage.working("outer", bounded(of_tasks(3))).await;
        let inner = Start { parent: Some(SessionId::from("outer")), ..bounded(of_tasks(1)) };
        stage.ok("inner", "worker", start(inner)).await;
        stage.ok("inner", "worker", request()).await;
        stage.ok("inner", "helper", accept()).await;
        stage.ok("leaf", "helper", start(child_of("inner"))).await;
        assert!(is_spent(&stage.refused("second", "helper", start(child_of("inner"))).await));
        stage.ok("third", "worker", start(child_of("outer"))).await;
        assert!(is_spent(&stage.refused("fourth", "worker", start(child_of("outer"))).await));
        assert_eq!(reserved(&stage, "inner").await, ["leaf"]);
        assert_eq!(reserved(&stage, "outer").await, ["inner", "leaf", "third"]);
        assert_eq!(stage.session("outer").await.unwrap().task().unwrap().ledger.depth, 2);
    }

    async fn depth_and_the_end_of_the_root_stop_what_is_below(store) {
        let stage = Stage::on(&store);
        stage.working("root", bounded(Budget { depth: Some(1), time_ms: Some(60_000), ..Budget::default() })).await;
        stage.ok("child", "worker", start(child_of("root"))).await;
        let root = stage.session("root").await.unwrap();
        let child = stage.session("child").await.unwrap();
        assert_eq!((child.deadline, root.deadline), (root.deadline, Some(root.binding.base.plus(60_000))));
        assert!(is_spent(&stage.refused("deeper", "worker", start(child_of("child"))).await));
        assert_eq!(reserved(&stage, "root").await, ["child"]);
    }

    async fn what_is_used_below_reaches_the_root_and_stops_it(store) {
        let stage = Stage::on(&store);
        stage.working("root", bounded(Budget { numbers: tokens(10), ..Budget::default() })).await;
        stage.ok("child", "worker", start(child_of("root"))).await;
        stage.ok("child", "worker", request()).await;
        stage.ok("child", "helper", accept()).await;
        let using = |count, act| Command { used: tokens(count), ..Command::by(&agent("helper"), Face::Mcp, act) };
        let report = using(11, update("half")).with_id("m1");
        for _ in 0..2 {
            stage.engine.submit(key("child"), report.clone()).await.unwrap();
        }
        let settled = |log: &[handover_kernel::Event]| {
            kinds(log).iter().filter(|kind| *kind == "ErrandSettled").count() == 2
        };
        until("the root has heard of it", || settled(&stage.log("child"))).await;
        assert_eq!(stage.session("root").await.unwrap().task().unwrap().ledger.spent, tokens(11));
        assert!(is_spent(&stage.refused("more", "worker", start(child_of("root"))).await));
        let again = refusal(stage.engine.submit(key("child"), using(1, update("more"))).await);
        assert!(is_spent(&again), "{again:?}");
        stage.engine.submit(key("child"), using(1, complete())).await.unwrap();
    }
}
