//! What a model reads in the answers of tools, and does next: nothing that sends it in circles, or beside its user.

use std::time::Duration;

use serde_json::{Value, json};

use super::stage::*;

/// A call that is named, so that another one with its name finds the task that it began.
fn dig(client: &Client) -> Request {
    let call = client.request("tools/call", json!({ "name": "dig", "_meta": {} }));
    call.meta("dev.handover/idempotencyKey", json!("once"))
}

fn step(view: &Value) -> &str {
    view["next_step"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_waits_while_its_user_is_asked_however_soon_it_is_answered_otherwise() {
    let stage = Stage::with(|set| set.waits.plain = Duration::ZERO).await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let client = stage.handshake("planner", json!({ "elicitation": {} })).await;
    let handle = dig(&client).answer().await.result()["structuredContent"].clone();
    let job = worker.next().await;
    assert_eq!(handle["task_id"], job.id);
    job.asks(json!({ "where": { "message": "where?" } })).await;

    // Sent again under its key, which handshake clients have too. The form is there, and the call goes on.
    let mut reply = dig(&client).send().await;
    let form = reply.next().await.unwrap();
    assert_eq!(form["method"], "elicitation/create", "{form}");
    let here = json!({ "action": "accept", "content": { "answer": "here" } });
    assert_eq!(client.respond(&form["id"], here).await.status, 202);
    let handle = reply.next().await.unwrap()["result"]["structuredContent"].clone();
    assert_eq!((&handle["task_id"], &handle["status"]), (&json!(job.id), &json!("working")), "{handle}");

    // Where the request says itself how long it waits, the model is told that its user has the question.
    job.asks(json!({ "when": { "message": "when?" } })).await;
    let mut reply = dig(&client).meta("dev.handover/waitMs", json!(0)).send().await;
    assert_eq!(reply.next().await.unwrap()["method"], "elicitation/create");
    let result = reply.next().await.unwrap()["result"].clone();
    assert!(
        step(&result["structuredContent"]).contains("your user has been asked: call task_wait"),
        "{result}"
    );
    assert!(result["content"][0]["text"].as_str().unwrap().contains("your user has been asked"));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_for_a_paused_task_waits_and_is_told_who_may_resume_it() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let planner = stage.client("planner");
    let task = planner.begin("dig", json!({})).await;
    let job = worker.next().await;
    let held = job.tool("work_hold", json!({ "reason": "no disk" })).await;
    assert_eq!(held["paused"], true);
    let status = json!({ "task_id": task });
    assert!(step(&planner.tool("task_status", status.clone()).await).contains("task_resume"));
    assert!(step(&worker.client.tool("task_status", status.clone()).await).contains("work_resume"));
    // It is paused already: only that it goes on is news.
    let waits = json!({ "name": "task_wait", "arguments": { "task_id": task, "wait_ms": 60_000 } });
    let waiting = tokio::spawn(planner.request("tools/call", waits.clone()).answer());
    until(async || stage.metrics.to_text().contains("handover_streams_open 1")).await;
    job.tool("work_resume", json!({})).await;
    let woken = waiting.await.unwrap().result()["structuredContent"].clone();
    assert_eq!(woken["status"], "working", "{woken}");
    assert!(step(&woken).contains("task_wait"));
    assert!(step(&worker.client.tool("task_status", status.clone()).await).contains("work_update"));
    planner.tool("task_pause", status.clone()).await;
    job.checkpoint_now().await;
    assert!(step(&worker.client.tool("task_status", status).await).contains("its requester can resume it"));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_with_a_question_of_its_own_is_not_told_to_answer_it() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let planner = stage.client("planner").declaring(json!({ "extensions": { TASKS: {} } }));
    let task = planner.begin("dig", json!({})).await;
    let job = worker.next().await;
    job.asks(json!({ "where": { "message": "where?" } })).await;
    let of = async |client: &Client| client.tool("task_status", json!({ "task_id": task })).await;
    assert!(step(&of(&planner).await).starts_with("answer `questions` with task_answer"));
    assert!(step(&of(&worker.client).await).contains("work_checkpoint"));
    // Its turn: a call that waits does not.
    let waited = planner.tool("task_wait", json!({ "task_id": task, "wait_ms": 60_000 })).await;
    assert_eq!(waited["status"], "input_required");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn how_a_task_ended_has_one_word_on_every_tool_and_lists_say_what_the_task_says() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let planner = stage.client("planner");
    let task = planner.begin("dig", json!({})).await;
    let job = worker.next().await;
    let row = async || planner.tool("task_list", json!({})).await["tasks"][0].clone();
    job.asks(json!({ "where": { "message": "where?" } })).await;
    let asking = planner.tool("task_status", json!({ "task_id": task })).await;
    let listed = row().await;
    for field in ["status", "state", "message", "waits_for", "updated_at", "assignee", "title", "created_at"]
    {
        assert_eq!((field, &listed[field]), (field, &asking[field]), "{listed}");
        assert!(!listed[field].is_null(), "{field}: {listed}");
    }
    assert_eq!(job.fails("rock").await["status"], "failed");
    let ended = planner.tool("task_status", json!({ "task_id": task })).await;
    let timeline = planner.tool("task_timeline", json!({ "task_id": task })).await;
    let late = job.update(json!({ "message": "still digging" })).await;
    for shown in [&ended, &row().await, &timeline, &late] {
        assert_eq!(shown["status"], "failed", "{shown}");
    }
    assert_eq!((&ended["state"], ended.get("next_step")), (&json!("failed"), None));
    // The word of the extension is its own.
    assert_eq!(planner.get(&task).await["status"], "completed");

    let refused = planner.begin("dig", json!({})).await;
    let found = worker.client.tool("work_next", json!({})).await;
    assert_eq!(found["work"][0]["task_id"], refused);
    worker.client.tool("work_decline", json!({ "task_id": refused, "reason": "no" })).await;
    let rejected = row().await;
    assert_eq!((&rejected["status"], &rejected["state"]), (&json!("rejected"), &json!("rejected")));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_paused_task_did_not_take_is_told_and_what_was_used_is_counted_once_it_goes_on() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let planner = stage.client("planner");
    let task = planner.begin("dig", json!({})).await;
    let job = worker.next().await;
    job.tool("work_hold", json!({ "reason": "no disk" })).await;
    let update = job.update(json!({ "message": "half", "used": { "tokens": 7 } })).await;
    assert_eq!((&update["paused"], &update["recorded"]), (&json!(true), &json!(false)), "{update}");
    assert!(update["note"].as_str().unwrap().contains("work_checkpoint"), "{update}");
    let used = json!({ "used": { "tokens": 5 }, "wait_ms": 0 });
    assert_eq!(job.tool("work_checkpoint", used).await["recorded"], false);

    let arguments = json!({ "task_id": task, "used": { "tokens": 5 }, "wait_ms": 60_000 });
    let call = json!({ "name": "work_checkpoint", "arguments": arguments });
    let waiting = tokio::spawn(worker.client.request("tools/call", call).answer());
    until(async || stage.metrics.to_text().contains("handover_streams_open 1")).await;
    planner.tool("task_steer", json!({ "task_id": task, "message": "left" })).await;
    planner.tool("task_resume", json!({ "task_id": task })).await;
    let point = waiting.await.unwrap().result()["structuredContent"].clone();
    assert_eq!((&point["paused"], point.get("recorded")), (&json!(false), None), "{point}");
    let shown = planner.tool("task_status", json!({ "task_id": task })).await;
    assert_eq!(shown["used"]["tokens"].as_f64(), Some(5.0), "{shown}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_an_answer_is_said_of_the_argument_that_it_came_in() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let planner = stage.client("planner");
    let task = planner.begin("dig", json!({})).await;
    let job = worker.next().await;
    for (request, expected) in [
        (json!({ "requestedSchema": { "type": "object", "properties": {} } }), "params.message"),
        (json!({ "message": "x" }), "params.requestedSchema"),
        (
            json!({ "message": "x", "requestedSchema": { "type": "object", "properties": { "a": { "type": "object" } } } }),
            "params.requestedSchema",
        ),
    ] {
        let request = json!({ "method": "elicitation/create", "params": request });
        let asked = json!({ "questions": { "q": { "request": request } }, "wait_ms": 0 });
        let refused = job.try_tool("work_ask", asked).await;
        let said = refused["content"][0]["text"].as_str().unwrap();
        assert!(refused["isError"] == true && said.contains(expected), "{refused}");
    }
    job.asks(json!({ "where": { "message": "where?" } })).await;
    let wrong = json!({ "task_id": task, "answers": { "where": { "action": "maybe" } } });
    let refused = planner.call("task_answer", wrong).await;
    let said = refused["content"][0]["text"].as_str().unwrap();
    assert!(said.contains("answers.where") && !said.contains("inputResponses"), "{said}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_that_is_held_too_fast_is_told_so_in_a_result() {
    let stage = Stage::with(|set| set.limits.starts_per_minute = 2).await;
    stage.worker("worker", json!([skill("dig")])).await;
    let planner = stage.client("planner");
    let mut last = Value::Null;
    for _ in 0..100 {
        last = planner.call("send_task", json!({ "to": "worker", "message": "dig" })).await;
        if last["isError"] == true {
            break;
        }
    }
    let said = last["content"][0]["text"].as_str().unwrap();
    assert!(last["isError"] == true && said.contains("RATE_LIMITED"), "{last}");
    stage.stop().await;
}
