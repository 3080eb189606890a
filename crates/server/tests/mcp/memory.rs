//! What is in memory on behalf of a client is bounded in bytes: answers and streams that it does not read, and what it calls
//! its requests.

use axum::body::Body;
use axum::response::Response;
use handover_desk::memory;
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};

use super::client::Request;
use super::scene::*;
use super::stage::*;

const BUDGET: u64 = 4 * 1024 * 1024;
const LARGE: usize = 200 * 1024;

async fn with_budget() -> Stage {
    Stage::with(|set| {
        set.limits.memory = memory::Settings { per_agent: BUDGET, ..memory::Settings::default() };
    })
    .await
}

fn held(stage: &Stage) -> u64 {
    let text = stage.metrics.to_text();
    let line = text.lines().find_map(|line| line.strip_prefix("handover_memory_held_bytes "));
    line.expect("there is such a metric").parse().unwrap()
}

/// An answer as the server made it: nothing is read of it but by whoever asks its body.
async fn unread(stage: &Stage, request: &Request) -> Response {
    let service = TowerToHyperService::new(stage.router.clone());
    let body = request.body.to_string();
    let mut sent = axum::http::Request::post("/mcp").header("content-length", body.len());
    for (name, value) in &request.headers {
        sent = sent.header(name, value);
    }
    in_time(service.call(sent.body(Body::from(body)).unwrap())).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_nobody_reads_are_counted_until_they_are_gone() {
    let stage = with_budget().await;
    let (planner, job) = in_hand(&stage).await;
    for _ in 0..4 {
        job.says(&"x".repeat(LARGE)).await;
    }
    let read = planner.request("resources/read", json!({ "uri": format!("task://{}", job.id) }));
    let mut answers = Vec::new();
    let refused = loop {
        let answer = unread(&stage, &read).await;
        if answer.status() != 200 {
            break answer;
        }
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        if let Ok(refused) = serde_json::from_slice::<Value>(&text)
            && refused["error"]["data"]["code"] == "MEMORY_BUDGET_SPENT"
        {
            assert!(refused["error"]["data"]["retryAfterMs"].as_u64().is_some());
            break Response::new(Body::empty());
        }
        answers.push(text);
        assert!(answers.len() < 100, "nothing is refused");
    };
    assert!(matches!(refused.status().as_u16(), 200 | 429));
    assert!(answers.len() >= 4, "{}", answers.len());
    assert!(held(&stage) <= BUDGET + 1024 * 1024, "{}", held(&stage));
    // Somebody else is served.
    stage.client("worker").tool("task_list", json!({})).await;
    drop(answers);
    // The answer to the other client is let go of when its connection is done with it.
    until(async || held(&stage) == 0).await;
    assert_eq!(unread(&stage, &read).await.status(), 200);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriptions_that_nobody_reads_hold_few_bytes_and_tell_the_last_of_it_when_they_are_read() {
    let stage = with_budget().await;
    let (planner, job) = in_hand(&stage).await;
    let listen = planner.request("subscriptions/listen", json!({ "notifications": { "taskIds": [job.id] } }));
    let mut streams = Vec::new();
    for _ in 0..30 {
        streams.push(unread(&stage, &listen).await);
    }
    for _ in 0..30 {
        job.says(&"x".repeat(LARGE)).await;
        assert!(held(&stage) <= 2 * BUDGET, "{}", held(&stage));
    }
    job.says("the last of it").await;
    let mut body = streams.pop().unwrap().into_body();
    drop(streams);
    loop {
        let frame = in_time(body.frame()).await.unwrap().unwrap().into_data().unwrap();
        if String::from_utf8_lossy(&frame).contains("the last of it") {
            break;
        }
    }
    drop(body);
    until(async || held(&stage) == 0).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_client_calls_things_is_short() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    let before = stage.written();
    let long = "x".repeat(2000);
    let steer = planner.request("tasks/cancel", json!({ "taskId": job.id }));
    let wrong = [
        steer.meta("dev.handover/idempotencyKey", json!(long)),
        planner.request("tasks/get", json!({ "taskId": job.id })).meta("progressToken", json!(long)),
        planner.request("tasks/get", json!({ "taskId": long })),
    ];
    for request in wrong {
        let answer = request.answer().await;
        let said = answer.message()["error"]["message"].as_str().unwrap().to_owned();
        assert!(said.len() < 300, "{said}");
    }
    let mut named = planner.request("tasks/get", json!({ "taskId": job.id }));
    named.body["id"] = json!(long);
    let answer = named.answer().await;
    assert_eq!((answer.status, &answer.message()["error"]["code"]), (400, &json!(-32600)));
    assert!(answer.message()["id"].is_null());
    let worker = stage.client("worker");
    let questions = json!({ long.as_str(): { "message": "which way?" } });
    let asked =
        worker.call("work_ask", json!({ "task_id": job.id, "questions": questions, "wait_ms": 0 })).await;
    assert_eq!(asked["isError"], true, "{asked}");
    assert_eq!(stage.written(), before);
    stage.stop().await;
}
