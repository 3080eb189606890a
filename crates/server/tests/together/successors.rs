//! A skill names those who may go on with a call of it, on whatever protocol they are.

use serde_json::json;

use super::grid::{Node, code};
use super::others::stage::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_call_is_handed_on_to_a_successor_with_what_waited_for_the_one_before() {
    let stage = Stage::in_memory().await;
    let skill =
        json!({ "name": "dig", "description": "digs", "answers": "task", "successors": ["helper", "dan"] });
    let worker = stage.worker("worker", json!([skill])).await;
    let host = stage.client("planner");
    let id = host.begin("dig", json!({ "depth": 3 })).await;
    worker.client.tool("work_accept", json!({ "task_id": id })).await;
    host.tool("task_steer", json!({ "task_id": id, "message": "deeper" })).await;

    let (helper, other) = (Node::new(&stage, "helper"), stage.client("outsider"));
    assert_eq!(
        code(&helper.refused("task/update", json!({ "taskId": id, "state": "working" })).await),
        "NOT_ASSIGNEE"
    );
    let refused = worker.client.call("handoff_offer", json!({ "to": "outsider", "task_id": id })).await;
    assert!(refused["content"][0]["text"].as_str().unwrap().contains("NOT_ELIGIBLE"), "{refused}");
    assert!(other.tool("task_list", json!({})).await["tasks"].as_array().unwrap().is_empty());

    let offer = json!({ "to": "helper", "task_id": id, "context": { "so far": "1 m" } });
    let handoff = worker.client.tool("handoff_offer", offer).await["handoff_id"].clone();
    stage.client("helper").tool("handoff_accept", json!({ "handoff_id": handoff })).await;
    let settled = worker.client.tool("handoff_commit", json!({ "handoff_id": handoff })).await;
    assert_eq!(settled["moved"], true, "{settled}");

    let late = worker.client.call("work_update", json!({ "task_id": id, "message": "still at it" })).await;
    assert!(late["content"][0]["text"].as_str().unwrap().contains("NO_LONGER_ASSIGNEE"), "{late}");
    let heard = helper.hears(&id).await;
    assert!(heard.contains(&("steer".to_owned(), "deeper".to_owned())), "{heard:?}");
    helper.says(&id, "3 m").await;
    assert_eq!(host.tool("task_wait", json!({ "task_id": id })).await["status"], "completed");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_goes_on_with_its_answers_though_it_may_be_handed_on() {
    let stage = Stage::in_memory().await;
    let skill = json!({ "name": "dig", "description": "digs", "successors": ["helper"] });
    let worker = stage.worker("worker", json!([skill])).await;
    let host = stage.client("planner").declaring(json!({ "elicitation": {} }));
    let mut call = json!({ "name": "dig", "arguments": {} });
    let first = tokio::spawn(host.request("tools/call", call.clone()).answer());
    let job = worker.next().await;
    job.asks(json!({ "where": { "message": "where?" } })).await;
    call["requestState"] = first.await.unwrap().result()["requestState"].clone();
    call["inputResponses"] = json!({ "where": { "action": "accept", "content": { "answer": "here" } } });
    let second = tokio::spawn(host.request("tools/call", call).answer());
    let told = job.tool("work_checkpoint", json!({ "wait_ms": 60_000 })).await;
    assert!(told["orders"][0]["answers"]["where"].is_object(), "{told}");
    job.completes("dug").await;
    assert_eq!(second.await.unwrap().result()["content"][0]["text"], "dug");
    stage.stop().await;
}
