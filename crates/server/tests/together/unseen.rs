//! A question that nobody at the other end will be shown: its worker is told so at once, whatever it speaks.

use handover_server::face::macp::proto::task::TaskAcceptPayload;
use serde_json::{Value, json};

use super::grid::Node;
use super::others::both::Both;
use super::others::client::TASKS;
use super::others::macp::envelope;
use super::others::stage::in_time;
use super::others::worker::skill;
use super::worker::{macp_update, task_name};

const UNSEEN: &str = "nobody may ever see yours";

/// A task of a client that follows tasks, for an agent with this skill.
async fn begun(both: &Both, agent: &str, of_skill: &str, shows: bool) -> String {
    let mut able = json!({ "extensions": { TASKS: {} } });
    if shows {
        able["elicitation"] = json!({});
    }
    both.stage.worker(agent, json!([skill(of_skill)])).await;
    both.stage.client("planner").declaring(able).begin(of_skill, json!({})).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grid_worker_is_warned_of_a_question_that_nobody_will_see() {
    let both = Both::open().await;
    let node = Node::new(&both.stage, "digger");
    let warning = |answer: &Value| answer["warning"].as_str().map(str::to_owned);
    for (shows, state) in [
        (false, "input_required"),
        (false, "auth_required"),
        (true, "input_required"),
        (true, "auth_required"),
    ] {
        let task = begun(&both, "digger", "dig", shows).await;
        let said = json!({ "taskId": task, "message": "on it", "state": "working" });
        assert_eq!(warning(&node.ok("message/send", said).await), None);
        let asks = json!({ "taskId": task, "message": "which?", "state": state });
        for method in ["message/send", "task/update"] {
            let told = warning(&node.ok(method, asks.clone()).await);
            assert_eq!(told.is_some_and(|told| told.contains(UNSEEN)), !shows, "{method}, {state}");
        }
    }
    // A Grid sender reads its questions.
    let task = Node::new(&both.stage, "planner").sends("digger", "dig").await;
    let asks = json!({ "taskId": task, "message": "which?", "state": "input_required" });
    assert_eq!(warning(&node.ok("message/send", asks).await), None);
    both.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_macp_worker_is_signalled_that_nobody_will_see_its_question() {
    let both = Both::open().await;
    let miner = both.macp("miner");
    let mut signals = miner.signals().await;
    for shows in [true, false] {
        let task = begun(&both, "miner", "mine", shows).await;
        let task_id = task_name(&miner, &task).await;
        miner.ok(envelope(&task, TaskAcceptPayload { task_id, ..Default::default() })).await;
        macp_update(&miner, &task, "input_required", "which?").await;
    }
    // The first one is shown to somebody: the only signal is of the second.
    let (name, said) = in_time(signals.heard()).await;
    assert_eq!(name, "task.unseen");
    assert!(said.contains(UNSEEN) && said.contains("TaskFail"), "{said}");
    both.stop().await;
}
