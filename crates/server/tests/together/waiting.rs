//! Who waits for whom, across protocols, and circles of them.

use handover_desk::approvers::Rules;
use serde_json::{Value, json};

use super::grid::Node;
use super::others::both::Both;
use super::others::stage::*;

/// A task that a worker has taken: its id.
async fn in_hand(requester: &Client, agent: &str, parent: Option<&str>, worker: &Client) -> String {
    let work =
        json!({ "title": "t", "instructions": "i", "agent": agent, "queue": true, "parent_task_id": parent });
    let id = requester.tool("delegate_task", work).await["task_id"].as_str().unwrap().to_owned();
    worker.tool("work_accept", json!({ "task_id": id })).await;
    id
}

fn edges(shown: &Value) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let edges = shown["waits"].as_array().cloned().unwrap_or_default();
    edges.iter().map(|edge| (text(&edge["from"]), text(&edge["to"]), text(&edge["why"]))).collect()
}

fn edge(from: &str, to: &str, why: &str) -> (String, String, String) {
    (from.to_owned(), to.to_owned(), why.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_circle_is_told_to_the_requesters_of_its_tasks_and_gone_when_somebody_acts() {
    let both = Both::open().await;
    let [planner, worker, helper] = ["planner", "worker", "helper"].map(|name| both.stage.client(name));
    let mut told = Node::new(&both.stage, "planner").listens().await;
    let mut signals = both.macp("worker").signals().await;
    let status = async |client: &Client, id: &str| client.tool("task_status", json!({ "task_id": id })).await;

    // planner → worker → helper: the worker waits for what it delegated.
    let whole = in_hand(&planner, "worker", None, &worker).await;
    let part = in_hand(&worker, "helper", Some(&whole), &helper).await;
    until(async || edges(&status(&planner, &whole).await) == [edge("worker", "helper", "delegated")]).await;
    assert_eq!(status(&planner, &whole).await.get("message"), None);

    // The helper asks: it is the worker's turn, and nobody waits in a circle.
    let ask = json!({ "task_id": part, "questions": { "q": { "message": "which?" } }, "wait_ms": 0 });
    helper.tool("work_ask", ask).await;
    assert_eq!(edges(&status(&worker, &part).await), [edge("helper", "worker", "question")]);
    assert_eq!(edges(&status(&planner, &whole).await), []);
    let answers = json!({ "q": { "action": "decline" } });
    worker.tool("task_answer", json!({ "task_id": part, "answers": answers })).await;

    // The helper delegates a part of its part back to the worker, who takes it while it waits for the helper.
    let back = in_hand(&helper, "worker", Some(&part), &worker).await;
    until(async || edges(&status(&worker, &part).await) == [edge("helper", "worker", "delegated")]).await;
    let told = told.notified("cycle").await;
    assert_eq!(told["taskId"], json!(whole));
    let circle = "these agents wait for each other: helper → worker → helper";
    assert_eq!(status(&planner, &whole).await["message"], circle);
    assert_eq!(status(&worker, &part).await["message"], circle);
    assert_eq!(signals.heard().await, ("task.cycle".to_owned(), circle.to_owned()));
    let read = Node::new(&both.stage, "planner").hears(&whole).await;
    assert!(read.contains(&("cycle".to_owned(), circle.to_owned())), "{read:?}");

    worker.tool("work_complete", json!({ "task_id": back, "output": "done" })).await;
    helper.tool("work_update", json!({ "task_id": part, "message": "going on" })).await;
    assert_eq!(status(&worker, &part).await["message"], "going on");
    assert_eq!(edges(&status(&worker, &part).await), []);
    let found = both.macp("planner").kinds(&whole).await;
    assert_eq!(found.iter().filter(|kind| *kind == "cycle_found").count(), 1, "{found:?}");
    both.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_for_an_approval_of_one_that_waits_for_it_is_in_a_circle() {
    let rules = r#"[{ agents = ["helper"], delegate = ["mailer"], by = ["worker"] }]"#;
    let both = Both::with(|set| set.approvals = Rules::parse(rules).unwrap()).await;
    let [planner, worker, helper] = ["planner", "worker", "helper"].map(|name| both.stage.client(name));
    let whole = in_hand(&planner, "worker", None, &worker).await;
    let part = in_hand(&worker, "helper", Some(&whole), &helper).await;
    let mail = json!({ "title": "t", "instructions": "i", "agent": "mailer", "queue": true, "parent_task_id": part });
    let held = helper.tool("delegate_task", mail).await;
    let node = Node::new(&both.stage, "helper");
    let waits = node.ok("task/get", json!({ "taskId": held["task_id"] })).await["waits"].clone();
    assert_eq!((&waits[0]["toNodeId"], &waits[0]["why"]), (&json!("worker"), &json!("approval")));
    let shown = worker.tool("task_status", json!({ "task_id": whole })).await;
    assert_eq!(shown["message"], "these agents wait for each other: helper → worker → helper");
    both.stop().await;
}
