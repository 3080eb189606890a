//! A worker that shows no sign of life, as each protocol sees it.

use serde_json::json;

use super::client::Node;
use super::others::both::{Both, hears};
use super::others::macp::{self, With, envelope};
use super::others::stage::*;

/// How long a worker may be silent here.
const WINDOW_S: f64 = 0.2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grid_sender_is_told_that_its_mcp_worker_is_silent_and_that_it_is_back() {
    let stage = Stage::in_memory().await;
    let sender = Node::new(&stage, "planner");
    let mut told = sender.listens().await;
    let worker = stage.worker("worker", json!([])).await;
    let asked = json!({ "to": "worker", "message": "dig", "silentAfter": WINDOW_S, "whenSilent": "tell" });
    let task = sender.ok("task/send", asked).await["task"]["taskId"].as_str().unwrap().to_owned();
    let job = worker.next().await;
    told.notified("silent").await;
    let shown = sender.get(&task).await;
    assert!(shown["silentSince"].is_string() && shown["state"] == "working", "{shown}");
    let said = sender.reads(&task).await;
    assert!(said.iter().any(|message| message["kind"] == "silent"), "{said:?}");
    // The worker sees what the others see, and a word of it ends the silence.
    let seen = worker.client.tool("task_status", json!({ "task_id": task })).await;
    assert!(seen["silent_since"].is_string(), "{seen}");
    job.update(json!({ "message": "I was away" })).await;
    assert!(sender.get(&task).await.get("silentSince").is_none());
    drop(told);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_silent_worker_had_is_freed_and_done_once_by_another() {
    let stage = Stage::in_memory().await;
    let planner = stage.client("planner");
    let (first, second) = (stage.worker("worker", json!([])).await, stage.worker("helper", json!([])).await);
    let delegate = json!({
        "title": "dig", "instructions": "dig", "agents": ["worker", "helper"],
        "silent_after_ms": 200, "when_silent": "free",
    });
    let task = planner.tool("delegate_task", delegate).await["task_id"].clone();
    let lost = first.next().await;
    // It waits until the task is free.
    let taken = second.next().await;
    assert_eq!(task, taken.id);
    let refused = lost.try_tool("work_complete", json!({ "output": "mine" })).await.to_string();
    assert!(refused.contains("NO_LONGER_ASSIGNEE") && refused.contains("no sign of life"), "{refused}");
    // The same over the other protocols: an agent is the same on every face.
    let node = Node::new(&stage, "worker");
    let refused = node.refused("message/send", json!({ "taskId": task, "message": "mine" })).await;
    assert_eq!(super::client::code(&refused), "NO_LONGER_ASSIGNEE");
    taken.completes_with(json!({ "output": "ours" })).await;
    let done = planner.tool("task_wait", json!({ "task_id": task })).await;
    assert!(done["status"] == "completed" && done["result"].to_string().contains("ours"), "{done}");
    for (wrong, what) in [
        (json!({ "when_silent": "free" }), "after how long"),
        (json!({ "silent_after_ms": 100, "when_silent": "shout" }), "nothing, tell, free or fail"),
        (json!({ "silent_after_ms": 0 }), "from 1 to"),
    ] {
        let mut asked = json!({ "title": "dig", "instructions": "dig", "agents": ["worker"] });
        asked.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
        let said = planner.call("delegate_task", asked).await.to_string();
        assert!(said.contains(what), "{said}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_macp_requester_whose_policy_expects_signs_of_life_hears_a_signal() {
    let both = Both::open().await;
    let planner = both.macp("planner");
    let rules = r#"{"liveness":{"window_ms":200,"on_silence":"fail"}}"#;
    let policy = macp::policy("policy.alive", "macp.mode.task.v1", rules);
    planner.macp.clone().register_policy(policy).await.unwrap();
    let mut hearing = planner.signals().await;
    let start = macp::start().with(|start| start.policy_version = "policy.alive".to_owned());
    planner.ok(envelope(macp::SESSION, start)).await;
    planner.ok(envelope(macp::SESSION, macp::request())).await;
    let worker = both.macp("worker");
    worker.ok(envelope(macp::SESSION, macp::accept())).await;
    assert!(hears(&mut hearing, "task.silent").await.contains('T'), "a moment");
    let error = worker.refused(envelope(macp::SESSION, macp::complete())).await;
    assert_eq!(error.code, "FORBIDDEN");
    // Nothing settles by itself on MACP: the requester binds what became of it.
    let commitment = macp::commit().with(|commitment| {
        commitment.action = "task.failed".to_owned();
        commitment.outcome_positive = false;
        commitment.policy_version = "policy.alive".to_owned();
    });
    planner.ok(envelope(macp::SESSION, commitment)).await;
    drop((planner, worker, hearing));
    both.stop().await;
}
