//! Calls that wait have a place among the streams of their agent, and give it back.

use serde_json::{Value, json};

use super::both::*;
use super::macp::macp_code;
use super::scene::*;
use super::stage::*;

const FULL: &str = "at most 1 open streams";

/// How many streams are open, as the operator reads it.
fn open(stage: &Stage) -> u64 {
    let text = stage.metrics.to_text();
    let line = text.lines().find_map(|line| line.strip_prefix("handover_streams_open "));
    line.unwrap().parse().unwrap()
}

async fn until_open(stage: &Stage, count: u64) {
    until(async || open(stage) == count).await;
}

/// A server on which everybody may have one.
async fn narrow() -> Both {
    Both::with(|set| set.limits.streams_max = 1).await
}

fn calls(task: &str) -> [(&'static str, Value); 4] {
    [
        ("work_next", json!({})),
        ("task_wait", json!({ "task_id": task })),
        ("work_checkpoint", json!({ "task_id": task, "wait_ms": 60_000 })),
        ("work_ask", json!({ "task_id": task, "questions": { "where": { "message": "?" } } })),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_call_that_waits_is_refused_while_a_first_one_does() {
    let both = narrow().await;
    let (planner, job) = in_hand(&both.stage).await;
    let worker = both.stage.client("worker");
    for (first, arguments) in calls(&job.id) {
        if first == "work_ask" {
            continue;
        }
        let waiting = worker.request("tools/call", json!({ "name": first, "arguments": arguments }));
        let waiting = waiting.on_the_wire().await;
        until_open(&both.stage, 1).await;
        let before = both.stage.written();
        for (second, arguments) in calls(&job.id) {
            let refused = worker.call(second, arguments).await;
            assert_eq!(refused["isError"], true, "{second}: {refused}");
            assert!(refused["content"][0]["text"].as_str().unwrap().contains(FULL), "{second}: {refused}");
        }
        let listen = worker.refused("subscriptions/listen", json!({ "notifications": {} })).await;
        assert_eq!(listen.status, 429, "{listen:?}");
        assert!(listen.message.contains(FULL), "{listen:?}");
        let status = both.macp("worker").macp.watch_signals(super::macp::watch_signals()).await.unwrap_err();
        assert_eq!(macp_code(&status), "RATE_LIMITED", "it is one count for all faces");
        assert_eq!(both.stage.written(), before, "what may not wait does nothing");
        // Others have places of their own, and what does not wait needs none.
        planner.tool("task_wait", json!({ "task_id": job.id, "wait_ms": 0 })).await;
        job.says("half").await;
        // Whoever goes away gives it back.
        drop(waiting);
        until_open(&both.stage, 0).await;
    }
    drop(worker.listen(json!({})).await);
    until_open(&both.stage, 0).await;
    both.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_ends_gives_its_place_back() {
    let both = narrow().await;
    let (planner, job) = in_hand(&both.stage).await;
    let wait =
        planner.request("tools/call", json!({ "name": "task_wait", "arguments": { "task_id": job.id } }));
    let waiting = tokio::spawn(wait.answer());
    until_open(&both.stage, 1).await;
    job.completes("a hole").await;
    let ended = in_time(waiting).await.unwrap().result()["structuredContent"].clone();
    assert_eq!(ended["status"], "completed");
    until_open(&both.stage, 0).await;

    let next = job.client.request("tools/call", json!({ "name": "work_next", "arguments": {} }));
    let waiting = tokio::spawn(next.answer());
    until_open(&both.stage, 1).await;
    let task = planner.begin(SKILL, json!({})).await;
    let found = in_time(waiting).await.unwrap().result()["structuredContent"].clone();
    assert_eq!(found["work"][0]["task_id"], json!(task));
    until_open(&both.stage, 0).await;

    // One that is over before it waits does not keep it either.
    for (tool, arguments) in [
        ("work_next", json!({ "wait_ms": 0, "accept": true })),
        ("task_wait", json!({ "task_id": task, "wait_ms": 0 })),
    ] {
        job.client.tool(tool, arguments).await;
        until_open(&both.stage, 0).await;
    }
    both.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_skill_that_may_not_be_waited_for_is_not_begun() {
    let both = narrow().await;
    both.stage.worker("worker", json!([skill_with(SKILL, json!({ "answers": "at_once" }))])).await;
    let planner = both.stage.client("planner");
    let (stream, _) = planner.listen(json!({})).await;
    let before = both.stage.written();
    let refused = planner.refused("tools/call", json!({ "name": SKILL, "arguments": {} })).await;
    assert!(refused.message.contains(FULL), "{refused:?}");
    assert_eq!(both.stage.written(), before);
    drop(stream);
    until_open(&both.stage, 0).await;
    let call = planner.request("tools/call", json!({ "name": SKILL, "arguments": {} })).on_the_wire().await;
    until_open(&both.stage, 1).await;
    drop(call);
    until_open(&both.stage, 0).await;
    both.stop().await;
}
