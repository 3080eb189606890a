//! What a caller may cost: how often it may ask, and what may be checked for it.

use handover_desk::bucket::BURST_MIN;
use handover_desk::gate;
use serde_json::{Value, json};

use super::scene::*;
use super::stage::*;

/// Each level is gone through by itself, and once more to learn what it looked at.
fn evil_schema() -> Value {
    let mut evil = json!({ "type": "string" });
    for _ in 0..21 {
        evil = json!({ "unevaluatedProperties": evil });
    }
    evil["type"] = json!("object");
    evil
}

fn told(result: &Value) -> &str {
    assert_eq!(result["isError"], true, "{result}");
    result["content"][0]["text"].as_str().unwrap()
}

/// A server that takes one request of each agent a minute: ten at once, and then none for longer than any play.
async fn asked_seldom() -> Stage {
    Stage::with(|set| {
        set.limits = gate::Settings { requests_per_minute: 1, ..gate::Settings::default() };
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_too_often_is_told_so_before_it_is_listened_to_whatever_it_asks() {
    let stage = asked_seldom().await;
    let planner = stage.client("planner");
    for index in 0..BURST_MIN {
        // What cannot be read, is not there or says nothing counts as well.
        let answer = match index % 4 {
            0 => planner.ask("tools/list", json!({})).await,
            1 => planner.ask("tasks/get", json!({ "taskId": "none" })).await,
            2 => planner.ask("no/such/method", json!({})).await,
            _ => {
                let mut request = planner.request("tasks/get", json!({ "taskId": "none" }));
                request.body = json!("nothing that is a request");
                request.answer().await
            }
        };
        assert_ne!(answer.status, 429, "request {index}");
    }
    for method in ["tools/list", "tasks/get", "ping", "no/such/method"] {
        let answer = planner.ask(method, json!({ "taskId": "none" })).await;
        assert_eq!(answer.status, 429, "{method}");
        let wait: u64 = answer.headers["retry-after"].parse().unwrap();
        assert!((1..=60).contains(&wait), "{wait}");
        assert!(answer.text.contains("RATE_LIMITED"), "{}", answer.text);
    }
    assert_ne!(stage.client("worker").ask("tools/list", json!({})).await.status, 429, "others may ask");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_whose_cost_multiplies_is_refused_where_it_comes_in() {
    let stage = Stage::in_memory().await;
    let worker = stage.client("worker");
    let skill = json!({ "name": "dig", "description": "digs", "inputSchema": evil_schema() });
    let registration = json!({ "name": "worker", "description": "digs", "skills": [skill] });
    let why = worker.call("agent_register", registration).await;
    assert!(told(&why).contains("/unevaluatedProperties: expected at most"), "{why}");
    let (_, job) = in_hand(&stage).await;
    let questions = json!({ "q": { "message": "how?", "schema": evil_schema() } });
    let why = job.try_tool("work_ask", json!({ "questions": questions, "wait_ms": 0 })).await;
    assert!(told(&why).contains("/unevaluatedProperties: expected at most"), "{why}");
    stage.stop().await;
}
