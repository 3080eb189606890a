//! What hostile and careless callers try.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use handover_desk::Data;
use handover_desk::identity::Identity;
use handover_desk::identity::tokens::{Tokens, hash_text};
use handover_desk::shutdown::{Shutdown, Trigger};
use handover_server::config::Config;
use handover_server::face::{grid, mcp};
use handover_server::house::{self, House};
use handover_server::http::{self, Bounds, Checks, Hosts, listen};
use handover_server::tls::wire::Wire;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::client::{Node, Stream, code};
use super::others::stage::*;

const UNKNOWN: &str = "a-task-that-never-was-0000";

/// A message of one part of text.
fn message(text: &str) -> Value {
    json!({ "role": "user", "parts": [{ "type": "text", "text": text }] })
}

/// Every method that names a task, with what it needs beside that, rightly and wrongly.
fn methods() -> Vec<(&'static str, Value)> {
    let long = "k".repeat(257);
    let mut methods = vec![
        ("message/send", json!({ "message": "hello" })),
        ("message/send", json!({ "message": message("hello"), "messageId": "m1" })),
        ("message/send", json!({ "message": "hello", "messageId": long })),
        ("message/send", json!({ "message": "hello", "messageId": "" })),
        ("message/send", json!({ "message": "hello", "messageId": "handover:1" })),
        ("message/send", json!({ "message": "" })),
        ("message/send", json!({})),
        (
            "message/send",
            json!({ "message": "?", "state": "input_required", "schema": { "type": "object" } }),
        ),
        ("message/send", json!({ "message": "?", "state": "input_required", "schema": { "type": 5 } })),
        ("message/send", json!({ "message": "?", "schema": {} })),
        ("task/read", json!({})),
        ("task/read", json!({ "max": 1, "waitMs": 60_000 })),
        ("message/ack", json!({})),
        ("task/get", json!({})),
        ("task/history", json!({})),
        ("task/history", json!({ "after": 1000, "max": 1 })),
        ("task/update", json!({ "sessionKey": "mine" })),
        ("task/update", json!({ "sessionKey": "" })),
        ("task/update", json!({ "sessionKey": long })),
        ("task/update", json!({ "sessionKey": "mine", "state": "submitted" })),
        ("task/complete", json!({})),
        ("task/complete", json!({ "reason": "fine" })),
        ("task/reject", json!({ "reason": "no spade" })),
        ("task/cancel", json!({})),
        ("task/cancel", json!({ "keepSubtasks": true })),
        ("task/tree", json!({})),
        ("task/steer", json!({ "text": "deeper", "messageId": "m2" })),
        ("task/steer", json!({ "text": "" })),
        ("task/pause", json!({})),
        ("task/resume", json!({})),
    ];
    for state in [
        "submitted",
        "working",
        "input_required",
        "auth_required",
        "completed",
        "rejected",
        "failed",
        "canceled",
    ] {
        methods.push(("message/send", json!({ "message": "hello", "state": state })));
        methods.push(("task/update", json!({ "state": state })));
    }
    methods
}

fn with(mut params: Value, name: &str, value: impl Into<Value>) -> Value {
    params[name] = value.into();
    params
}

/// A server on which everybody has to prove who it is.
async fn guarded() -> Stage {
    Stage::with(|set| {
        set.identity = tokens();
        set.limits.starts_per_minute = 0;
        set.limits.messages_per_minute = 0;
    })
    .await
}

/// A task of another tenant, whose planner has a token of its own.
async fn of_another_tenant(stage: &Stage) -> String {
    let elsewhere = Node::new(stage, "elsewhere").named("planner");
    let sent = json!({ "to": "outsider", "message": "dig", "queue": true });
    let sent = elsewhere.ok("task/send", sent).await;
    sent["task"]["taskId"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_of_others_is_answered_byte_for_byte_like_one_that_never_was() {
    let stage = guarded().await;
    let (planner, outsider) = (Node::new(&stage, "planner"), Node::new(&stage, "outsider"));
    let submitted = planner.sends("worker", "dig").await;
    let asked = planner.sends("worker", "dig").await;
    Node::new(&stage, "worker").says_with(&asked, "may I?", "auth_required").await;
    let ended = planner.sends("worker", "dig").await;
    planner.ok("task/cancel", json!({ "taskId": ended })).await;
    let elsewhere = of_another_tenant(&stage).await;
    let before = stage.written();
    for (method, params) in methods() {
        let none = outsider.answer(method, with(params.clone(), "taskId", UNKNOWN)).await;
        let error = none.refused();
        if params != json!({}) || method != "message/send" {
            assert_eq!(none.status, 200, "{method} {params}: {none:?}");
        }
        for task in [&submitted, &asked, &ended, &elsewhere] {
            let found = outsider.answer(method, with(params.clone(), "taskId", task.as_str())).await;
            assert_eq!(found.text.replace(task.as_str(), UNKNOWN), none.text, "{method} {params}: {error:?}");
            assert_eq!(found.status, none.status, "{method} {params}");
        }
    }
    // A task that is to be a part of another one.
    let part_of = |parent: &str| json!({ "to": "worker", "message": "dig", "parentTaskId": parent });
    let none = outsider.answer("task/send", part_of(UNKNOWN)).await;
    for task in [&submitted, &asked, &ended, &elsewhere] {
        let found = outsider.answer("task/send", part_of(task)).await;
        assert_eq!(found.text.replace(task.as_str(), UNKNOWN), none.text);
    }
    assert_eq!(stage.written(), before, "nothing leaves a trace");
    for list in
        [json!({}), json!({ "unread": true }), json!({ "with": "planner" }), json!({ "state": "canceled" })]
    {
        assert_eq!(outsider.ok("task/list", list).await["tasks"], json!([]));
    }
    assert_eq!(outsider.ok("task/active", json!({ "nodeId": "planner" })).await["task"], Value::Null);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_of_two_tenants_do_not_meet() {
    let stage = guarded().await;
    let elsewhere = Node::new(&stage, "elsewhere").named("planner");
    let task = of_another_tenant(&stage).await;
    let outsider = Node::new(&stage, "outsider");
    assert_eq!(outsider.ok("task/list", json!({})).await["tasks"], json!([]));
    assert_eq!(code(&outsider.refused("task/read", json!({ "taskId": task })).await), "SESSION_NOT_FOUND");
    // The planner of this tenant has the same name, and nothing else in common.
    let planner = Node::new(&stage, "planner");
    assert_eq!(code(&planner.refused("task/get", json!({ "taskId": task })).await), "SESSION_NOT_FOUND");
    assert_eq!(elsewhere.state(&task).await, "submitted");
    // The same name for a request leads to another task.
    let named = json!({ "to": "worker", "message": "dig", "messageId": "m1", "queue": true });
    let (here, there) =
        (planner.ok("task/send", named.clone()).await, elsewhere.ok("task/send", named).await);
    assert_eq!((&here["duplicate"], &there["duplicate"]), (&json!(false), &json!(false)));
    assert_ne!(here["task"]["taskId"], there["task"]["taskId"]);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_large_is_refused_and_leaves_no_trace() {
    let stage = Stage::in_memory().await;
    let planner = Node::new(&stage, "planner");
    let task = planner.sends("worker", "dig").await;
    let before = stage.written();
    let said = |bytes: usize| json!({ "taskId": task, "message": "m".repeat(bytes) });
    let long = planner.refused("message/send", said(1_100_000)).await;
    assert_eq!(code(&long), "PAYLOAD_TOO_LARGE");
    let long =
        planner.refused("task/send", json!({ "to": "worker", "message": "m".repeat(1_100_000) })).await;
    assert_eq!(code(&long), "PAYLOAD_TOO_LARGE");
    let answer = planner.answer("message/send", said(2_200_000)).await;
    assert_eq!(answer.status, 413, "{answer:?}");
    let part = json!({ "type": "text", "text": "m" });
    for count in [0, 65, 10_000] {
        let message = json!({ "parts": vec![part.clone(); count] });
        for (method, params) in
            [("message/send", json!({ "taskId": task })), ("task/send", json!({ "to": "worker" }))]
        {
            let refused = planner.refused(method, with(params, "message", message.clone())).await;
            let said = refused["message"].as_str().unwrap();
            assert!(said.contains("expected 1 to 64") && said.contains(&count.to_string()), "{said}");
        }
    }
    assert_eq!(stage.written(), before);
    let message = json!({ "parts": vec![part; 64] });
    planner.says(&task, message).await;
    let read = Node::new(&stage, "worker").reads(&task).await;
    assert_eq!(read[1]["parts"].as_array().unwrap().len(), 64);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_have_at_most_256_bytes() {
    let stage = Stage::in_memory().await;
    let (planner, worker) = (Node::new(&stage, "planner"), Node::new(&stage, "worker"));
    let task = planner.sends("worker", "dig").await;
    let (fits, long) = ("n".repeat(256), "n".repeat(257));
    let before = stage.written();
    let send = json!({ "to": "worker", "message": "dig" });
    for (node, method, params) in [
        (&planner, "task/send", with(send.clone(), "messageId", long.as_str())),
        (&planner, "task/send", with(send.clone(), "sessionKey", long.as_str())),
        (&planner, "task/send", with(send.clone(), "parentTaskId", long.as_str())),
        (&planner, "task/send", with(send.clone(), "to", long.as_str())),
        (&planner, "message/send", json!({ "taskId": task, "message": "x", "messageId": long })),
        (&worker, "message/send", json!({ "taskId": task, "message": "x", "messageId": long })),
        (&worker, "task/update", json!({ "taskId": task, "state": "working", "messageId": long })),
        (&worker, "task/update", json!({ "taskId": task, "sessionKey": long })),
        (&planner, "task/steer", json!({ "taskId": task, "text": "x", "messageId": long })),
        (&planner, "task/get", json!({ "taskId": long })),
        (&planner, "task/read", json!({ "taskId": long })),
    ] {
        let refused = node.refused(method, params.clone()).await;
        assert_eq!(refused["code"], -32602, "{method} {params}: {refused}");
    }
    // Nor may anybody use the names that the server uses.
    let reserved = json!({ "taskId": task, "message": "x", "messageId": "handover:7" });
    assert_eq!(code(&planner.refused("message/send", reserved).await), "RESERVED_ID");
    let empty = json!({ "taskId": task, "message": "x", "messageId": "" });
    assert_eq!(planner.refused("message/send", empty).await["code"], -32602);
    assert_eq!(stage.written(), before);
    planner.ok("message/send", json!({ "taskId": task, "message": "x", "messageId": fits })).await;
    worker.ok("task/update", json!({ "taskId": task, "sessionKey": fits })).await;
    assert_eq!(planner.get(&task).await["receiverSessionKey"], json!(fits));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parameters_of_the_wrong_shape_are_refused_and_change_nothing() {
    let stage = Stage::in_memory().await;
    let planner = Node::new(&stage, "planner");
    let task = planner.sends("worker", "dig").await;
    let before = stage.written();
    let said = |message: Value| ("message/send", json!({ "taskId": task, "message": message }));
    let part = |part: Value| json!({ "parts": [part] });
    let send = json!({ "to": "worker", "message": "dig" });
    for (method, params) in [
        ("task/get", json!({})),
        ("task/get", json!({ "taskId": 5 })),
        ("task/get", json!({ "taskId": null })),
        ("task/get", json!({ "taskId": [task] })),
        ("task/get", json!({ "taskId": task, "task_id": task })),
        said(json!(5)),
        said(json!([])),
        said(json!({})),
        said(json!(null)),
        said(json!({ "parts": "x" })),
        said(json!({ "parts": [], "extra": 1 })),
        said(part(json!({ "type": "text" }))),
        said(part(json!({ "type": "text", "text": 5 }))),
        said(part(json!({ "type": "text", "text": "x", "extra": 1 }))),
        said(part(json!({ "type": "sound", "sound": "x" }))),
        said(part(json!({ "type": "data", "data": [] }))),
        said(part(json!({ "type": "file", "file": { "bytes": "no base64!" } }))),
        said(part(json!({ "type": "file", "file": { "bytes": "", "size": 5 } }))),
        ("message/send", json!({ "taskId": task, "to": "worker", "message": "x" })),
        ("message/send", json!({ "message": "x" })),
        ("message/send", json!({ "taskId": task, "message": "x", "state": "Working" })),
        ("message/send", json!({ "taskId": task, "message": "x", "state": "paused" })),
        ("message/send", json!({ "to": "nobody-i-know", "message": "x" })),
        ("task/update", json!({ "taskId": task })),
        ("task/update", json!({ "taskId": task, "message": "x" })),
        ("task/read", json!({ "taskId": task, "waitMs": -1 })),
        ("task/read", json!({ "taskId": task, "waitMs": 1.5 })),
        ("task/read", json!({ "taskId": task, "waitMs": "1" })),
        ("task/read", json!({ "taskId": task, "max": -1 })),
        ("task/list", json!({ "cursor": "no cursor" })),
        ("task/list", json!({ "state": "open" })),
        ("task/list", json!({ "unread": "yes" })),
        ("task/history", json!({ "taskId": task, "after": -1 })),
        ("task/steer", json!({ "taskId": task, "text": "  " })),
        ("task/send", with(send.clone(), "to", "")),
        ("task/send", with(send.clone(), "to", "planner")),
        ("task/send", with(send.clone(), "message", json!(null))),
        ("task/send", json!({ "to": "worker" })),
        ("task/send", with(send.clone(), "checkIn", 0)),
        ("task/send", with(send.clone(), "checkIn", -1)),
        ("task/send", with(send.clone(), "checkIn", 1e300)),
        ("task/send", with(send.clone(), "failAfterMisses", 0)),
        ("task/send", with(send.clone(), "failAfterMisses", -1)),
        ("task/send", with(send.clone(), "deadline", 0)),
        ("task/send", with(send.clone(), "deadline", 1e9)),
        ("task/active", json!({})),
    ] {
        let refused = planner.refused(method, params.clone()).await;
        assert_eq!(refused["code"], -32602, "{method} {params}: {refused}");
        assert!(refused["message"].as_str().unwrap().len() > 10, "{refused}");
    }
    assert_eq!(stage.written(), before);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_may_be_open_for_as_long_as_the_server_lets_it() {
    let two_days = json!({ "to": "worker", "message": "dig", "deadline": 2 * 86_400, "queue": true });
    let stage = Stage::in_memory().await;
    let refused = Node::new(&stage, "planner").refused("task/send", two_days.clone()).await;
    assert!(refused["message"].as_str().unwrap().contains("from 1 to 86400000 ms"), "{refused}");
    stage.stop().await;
    let stage = Stage::with(|set| set.engine.limits.ttl_ms_max = 2 * 86_400_000).await;
    Node::new(&stage, "planner").ok("task/send", two_days).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_request_is_refused_with_the_status_of_http() {
    let stage = Stage::in_memory().await;
    let planner = Node::new(&stage, "planner");
    let request = planner.request("task/list", json!({}));
    let cases: [(&str, u16, i64); 8] = [
        ("", 400, PARSE_ERROR),
        ("{", 400, PARSE_ERROR),
        ("[]", 400, INVALID_REQUEST),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"task/list"}]"#, 400, INVALID_REQUEST),
        (r#"{"id":1,"method":"task/list"}"#, 400, INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, 400, INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1,"method":"task/list","params":[]}"#, 400, INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1,"method":"task/list","params":"x"}"#, 400, INVALID_REQUEST),
    ];
    for (body, status, number) in cases {
        let answer = request.answer_to(body.to_owned()).await;
        assert_eq!(answer.refused().as_pair(), (status, number), "{body}: {}", answer.text);
    }
    let none = planner.answer("task/delete", json!({})).await.refused();
    assert_eq!(none.as_pair(), (404, NO_METHOD));
    let plain = request.clone().header("content-type", "text/plain").answer().await;
    assert_eq!(plain.status, 415, "{plain:?}");
    assert_eq!(request.clone().by("PUT").answer().await.status, 405);
    // A notification has its effect and no answer.
    let told = planner.request("task/send", json!({ "to": "worker", "message": "dig" }));
    let answer = told.set("id", Value::Null).answer().await;
    assert_eq!((answer.status, answer.text.as_str()), (202, ""));
    assert_eq!(planner.ok("task/list", json!({})).await["tasks"].as_array().unwrap().len(), 1);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_acts_under_the_node_of_another() {
    let stage = guarded().await;
    let planner = Node::new(&stage, "planner");
    let worker = Node::new(&stage, "worker");
    worker.rest("POST", "/grid/nodes", json!({ "name": "Worker" })).await;
    let task = planner.sends("worker", "dig").await;
    let before = stage.written();
    let pretends = planner.named("worker");
    for (method, params) in
        [("task/read", json!({ "taskId": task })), ("task/list", json!({})), ("no/such", json!({}))]
    {
        let refused = pretends.answer(method, params).await;
        assert_eq!(refused.status, 403, "{method}: {refused:?}");
    }
    assert_eq!(pretends.stream(None).await.status, 403);
    for (method, target, body) in [
        ("PUT", "/grid/nodes/worker", json!({ "name": "Mine" })),
        ("PATCH", "/grid/nodes/worker", json!({ "name": "Mine" })),
        ("POST", "/grid/nodes/worker/heartbeat", json!({})),
        ("PUT", "/grid/nodes/worker/status", json!({ "status": "busy" })),
        ("DELETE", "/grid/nodes/worker", Value::Null),
    ] {
        let (status, told) = planner.rest(method, target, body).await;
        assert_eq!(status, 403, "{method} {target}: {told}");
    }
    assert_eq!(stage.written(), before);
    let (_, shown) = planner.rest("GET", "/grid/nodes/worker", Value::Null).await;
    assert_eq!((&shown["name"], &shown["status"]), (&json!("Worker"), &json!("available")));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_no_token_is_told_nothing() {
    let stage = guarded().await;
    let planner = Node::new(&stage, "planner");
    let task = planner.sends("worker", "dig").await;
    let unknown = Node::new(&stage, "no-token-of-anybody").named("planner");
    for (method, params) in [("task/get", json!({ "taskId": task })), ("task/list", json!({}))] {
        for request in [
            planner.request(method, params.clone()).without("authorization"),
            unknown.request(method, params),
        ] {
            let answer = request.answer().await;
            assert_eq!(answer.status, 401, "{answer:?}");
            assert!(!answer.text.contains(&task), "{answer:?}");
        }
    }
    for token in [None, Some("no-token-of-anybody")] {
        let stream = Stream::open(stage.address, "/grid/a2a/planner/events", token, None).await;
        assert_eq!(stream.status, 401);
    }
    for (method, target) in [("GET", "/grid/nodes"), ("GET", "/grid/nodes/planner"), ("POST", "/grid/search")]
    {
        let request = planner.post(target, json!({ "query": "x" })).by(method).without("authorization");
        assert_eq!(request.answer().await.status, 401, "{method} {target}");
    }
    stage.stop().await;
}

/// How many streams are open, as the operator reads it.
fn open(stage: &Stage) -> u64 {
    let text = stage.metrics.to_text();
    let line = text.lines().find_map(|line| line.strip_prefix("handover_streams_open "));
    line.unwrap().parse().unwrap()
}

async fn until_open(stage: &Stage, count: u64) {
    until(async || open(stage) == count).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_waits_is_answered_with_the_first_news_however_long_it_asked_for() {
    let stage = Stage::in_memory().await;
    let (planner, worker) = (Node::new(&stage, "planner"), Node::new(&stage, "worker"));
    // However long it asks for, it is answered as soon as there is something.
    let list = worker.request("task/list", json!({ "unread": true, "waitMs": u64::MAX }));
    let waiting = tokio::spawn(list.answer());
    until_open(&stage, 1).await;
    let task = planner.sends("worker", "dig").await;
    let listed = in_time(waiting).await.unwrap().result();
    assert_eq!(listed["tasks"][0]["taskId"], json!(task));
    worker.reads(&task).await;
    let read = worker.request("task/read", json!({ "taskId": task, "waitMs": u64::MAX }));
    let waiting = tokio::spawn(read.answer());
    until_open(&stage, 1).await;
    planner.says(&task, "and wider").await;
    let read = in_time(waiting).await.unwrap().result();
    assert_eq!(read["messages"][0]["parts"][0]["text"], "and wider");
    until_open(&stage, 0).await;
    // Without news it is answered when its time is up.
    for (method, params) in
        [("task/read", json!({ "taskId": task })), ("task/list", json!({ "unread": true }))]
    {
        let answered = worker.ok(method, with(params, "waitMs", 1)).await;
        let found = answered.get("messages").or_else(|| answered.get("tasks")).unwrap();
        assert_eq!(found, &json!([]), "{method}");
    }
    until_open(&stage, 0).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_and_calls_that_wait_have_places_among_the_streams_of_their_agent_and_give_them_back() {
    let stage = Stage::with(|set| set.limits.streams_max = 1).await;
    let (planner, worker) = (Node::new(&stage, "planner"), Node::new(&stage, "worker"));
    let task = planner.sends("worker", "dig").await;
    worker.reads(&task).await;
    let waits = [
        ("task/read", json!({ "taskId": task, "waitMs": 20_000 })),
        ("task/list", json!({ "unread": true, "waitMs": 20_000 })),
    ];
    for round in 0..3 {
        // A stream, and each of the calls that wait.
        let (stream, waiting) = match round {
            0 => (Some(worker.listens().await), None),
            _ => (
                None,
                Some(worker.request(waits[round - 1].0, waits[round - 1].1.clone()).on_the_wire().await),
            ),
        };
        until_open(&stage, 1).await;
        let before = stage.written();
        let mut second = worker.stream(None).await;
        let told = second.rest().await;
        assert_eq!(second.status, 429, "{told}");
        assert!(told.contains("at most 1 open streams"), "{told}");
        for (method, params) in &waits {
            let refused = worker.refused(method, params.clone()).await;
            assert_eq!(code(&refused), "RATE_LIMITED", "{refused}");
        }
        let waits_too = stage.client("worker").call("task_wait", json!({ "task_id": task })).await;
        let told = waits_too.to_string();
        assert!(told.contains("at most 1 open streams"), "it is one count for all faces: {told}");
        assert_eq!(stage.written(), before);
        // What does not wait needs no place, and others have their own.
        worker.ok("task/list", json!({})).await;
        drop(planner.listens().await);
        drop((stream, waiting));
        until_open(&stage, 0).await;
    }
    // Who is refused for another reason takes none.
    assert_eq!(worker.named("planner").stream(None).await.status, 403);
    assert_eq!(open(&stage), 0);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_says_that_the_server_stops() {
    let stage = Stage::in_memory().await;
    let stream = Node::new(&stage, "worker").listens().await;
    stage.begin_stop();
    assert_eq!(stream.reconnect().await, "the server stops");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_ends_with_the_token_that_it_was_opened_with() {
    let file = |of_worker: Option<&str>| {
        let entry = |agent: &str, rest: &str| {
            format!("[[token]]\nsha256 = \"{}\"\nagent = \"{agent}\"\n{rest}\n", hash_text(agent))
        };
        entry("planner", "") + &of_worker.map(|rest| entry("worker", rest)).unwrap_or_default()
    };
    for changed in [Some("revoked = true"), Some("expires_at = 2020-01-01T00:00:00Z"), None] {
        let tokens = Arc::new(Tokens::parse(&file(Some(""))).unwrap());
        let identity = Identity::Tokens(Arc::clone(&tokens));
        let stage = Stage::with(|set| set.identity = identity).await;
        let (planner, worker) = (Node::new(&stage, "planner"), Node::new(&stage, "worker"));
        let (mut others, stream) = (planner.listens().await, worker.listens().await);
        let task = planner.sends("worker", "dig").await;
        worker.acks(&task).await;
        tokens.replace(&file(changed)).unwrap();
        assert_eq!(stream.reconnect().await, "the credential does not count any more", "{changed:?}");
        assert_eq!(worker.stream(None).await.status, 401);
        assert_eq!(others.notified("ack").await["taskId"], json!(task), "nobody else's stream ends");
        drop(others);
        stage.stop().await;
    }
}

/// A server whose streams last as long as a play wants.
struct Short {
    address: SocketAddr,
    trigger: Trigger,
    serving: JoinHandle<()>,
    house: House,
}

impl Short {
    async fn open(lifetime: Duration) -> Short {
        let (config, identity) = (Config::default(), Identity::Development);
        let (trigger, shutdown) = Shutdown::new();
        let settings = handover_desk::Settings { audit: None, ..house::desk_settings(&config, &identity) };
        let grid = grid::Settings { lifetime, ..grid::Settings::new(&config) };
        let data = Data::Store(empty_store());
        let mcp = mcp::Settings::new(&config);
        let house = House::with(data, settings, mcp, grid, identity, shutdown.clone()).unwrap();
        let (checks, metrics) = (Checks::new(Vec::new()), Arc::clone(&house.metrics));
        let bounds = Bounds::for_payload(config.limits.payload_bytes_max);
        let router = http::router(house.routes(), checks, metrics, bounds, Hosts::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving =
            tokio::spawn(http::serve(listener, listen::Settings::new(Wire::Plain), router, shutdown));
        Short { address, trigger, serving, house }
    }

    async fn stop(self) {
        self.trigger.begin();
        in_time(self.serving).await.unwrap();
        let desk = self.house.desk;
        tokio::task::spawn_blocking(move || desk.stop()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_whose_stream_has_lived_its_time_comes_back_and_misses_nothing() {
    let short = Short::open(Duration::from_millis(50)).await;
    let (planner, worker) = (Node::at(short.address, "planner"), Node::at(short.address, "worker"));
    let mut stream = worker.listens().await;
    let (mut last, mut told, mut sent) = (None, Vec::new(), Vec::new());
    let mut lives = 0;
    while lives < 3 || told.len() < sent.len() {
        if sent.len() < 20 {
            sent.push(planner.sends("worker", "dig").await);
        }
        while let Some(next) = stream.next().await {
            match next.event.as_str() {
                "task_notify" => told.push(next.data["taskId"].as_str().unwrap().to_owned()),
                "connected" => assert_eq!(next.data["resumed"], true),
                other => assert_eq!(other, "reconnect", "{next:?}"),
            }
            last = Some(next.id);
            if told.len() == sent.len() && sent.len() < 20 {
                sent.push(planner.sends("worker", "dig").await);
            }
        }
        lives += 1;
        stream = worker.stream(last.as_deref()).await;
    }
    assert_eq!(told, sent, "each once, in order");
    drop(stream);
    short.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_that_is_none_is_told_to_look_for_itself() {
    let stage = Stage::in_memory().await;
    let (planner, worker) = (Node::new(&stage, "planner"), Node::new(&stage, "worker"));
    planner.sends("worker", "dig").await;
    for place in ["no place", "e", "e-1", "effffffffffffffff", "eg"] {
        let mut stream = worker.stream(Some(place)).await;
        assert_eq!(stream.next().await.unwrap().data["resumed"], false, "{place}");
        assert_eq!(stream.next().await.unwrap().event, "resync", "{place}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_tells_what_others_did_and_the_keys_of_both() {
    let stage = Stage::in_memory().await;
    let (planner, worker) = (Node::new(&stage, "planner"), Node::new(&stage, "worker"));
    let (mut to_planner, mut to_worker) = (planner.listens().await, worker.listens().await);
    let mut to_outsider = Node::new(&stage, "outsider").listens().await;
    let sent = json!({ "to": "worker", "message": "dig", "sessionKey": "of-planner", "contextId": "garden" });
    let task = planner.ok("task/send", sent).await["task"]["taskId"].as_str().unwrap().to_owned();
    worker.ok("task/update", json!({ "taskId": task, "sessionKey": "of-worker" })).await;
    worker.reads(&task).await;
    worker.acks(&task).await;
    worker.says(&task, "a hole").await;
    planner.reads(&task).await;
    planner.ok("task/complete", json!({ "taskId": task })).await;
    Node::new(&stage, "someone").sends("outsider", "the last thing that happens").await;

    let mut kinds = Vec::new();
    while kinds.last().is_none_or(|last| last != "message") {
        let told = to_planner.next().await.unwrap().data;
        assert_eq!((&told["taskId"], &told["fromNodeId"]), (&json!(task), &json!("worker")), "{told}");
        assert_eq!((&told["senderSessionKey"], &told["contextId"]), (&json!("of-planner"), &json!("garden")));
        assert_eq!(told["receiverSessionKey"], "of-worker");
        kinds.push(told["kind"].as_str().unwrap().to_owned());
    }
    assert_eq!(kinds, ["read", "ack", "state", "message"]);
    for kind in ["task", "read", "state"] {
        let told = to_worker.next().await.unwrap().data;
        assert_eq!((&told["kind"], &told["fromNodeId"]), (&json!(kind), &json!("planner")), "{told}");
        if kind == "state" {
            assert_eq!(told["state"], "completed");
        }
    }
    assert_eq!(to_outsider.next().await.unwrap().data["fromNodeId"], "someone", "it hears of nothing else");
    drop((to_planner, to_worker, to_outsider));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_gives_no_sign_is_told_to_the_sender_and_fails_if_the_sender_said_so() {
    let stage = Stage::in_memory().await;
    let (planner, worker) = (Node::new(&stage, "planner"), Node::new(&stage, "worker"));
    let mut told = planner.listens().await;
    let sent = json!({ "to": "worker", "message": "dig", "checkIn": 0.01, "failAfterMisses": 2 });
    let task = planner.ok("task/send", sent).await["task"]["taskId"].as_str().unwrap().to_owned();
    for _ in 0..2 {
        assert_eq!(told.notified("no_ack").await["taskId"], json!(task));
    }
    assert_eq!(told.notified("state").await["state"], "failed");
    assert_eq!(worker.state(&task).await, "failed");
    let heard = worker.hears(&task).await;
    assert!(heard.iter().any(|(kind, _)| kind == "state"), "both sides are told: {heard:?}");
    drop(told);
    stage.stop().await;
}
