//! Whatever comes in: nothing of it breaks the server, leaves a trace that it should not, or tells more than it should.

use axum::body::Body;
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::stage::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_message_is_refused_in_the_language_of_messages() {
    let stage = Stage::in_memory().await;
    let request = stage.client("planner").request("tools/list", json!({}));
    let before = stage.written();
    let deep = "[".repeat(200_000);
    let deep_params = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{"x":{deep}}}}}"#);
    let deep_closed = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{"_meta":{{"x":{deep}{}}}}}}}"#,
        "]".repeat(200_000)
    );
    for (body, code) in [
        ("", PARSE_ERROR),
        (" ", PARSE_ERROR),
        ("{", PARSE_ERROR),
        ("{}{}", PARSE_ERROR),
        ("nonsense", PARSE_ERROR),
        ("\u{feff}{}", PARSE_ERROR),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","#, PARSE_ERROR),
        (&deep_params, PARSE_ERROR),
        ("null", INVALID_REQUEST),
        ("0", INVALID_REQUEST),
        ("\"tools/list\"", INVALID_REQUEST),
        ("[]", INVALID_REQUEST),
        (&deep, INVALID_REQUEST),
        ("{}", INVALID_REQUEST),
        (r#"{"jsonrpc":2.0,"id":1,"method":"tools/list"}"#, INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":{},"method":"tools/list"}"#, INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list"}"#, INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1,"method":["tools/list"]}"#, INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":null}"#, INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#, INVALID_REQUEST),
    ] {
        let refused = request.answer_to(body.to_owned()).await.refused();
        let shown: String = body.chars().take(60).collect();
        assert_eq!(refused.as_pair(), (400, code), "{shown}: {refused:?}");
    }
    let not_text = request.answer_to(&b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}"[..]).await;
    assert_eq!(not_text.refused().as_pair(), (400, PARSE_ERROR));
    // As deep as it likes where nobody looks: it is only passed over.
    assert!((200..500).contains(&request.answer_to(deep_closed).await.status));
    assert_eq!(stage.written(), before);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_too_large_is_not_taken() {
    let stage = Stage::in_memory().await;
    let client = stage.client("planner");
    let huge = json!({ "name": "agent_list", "arguments": { "cursor": "x".repeat(4 << 20) } });
    let request = client.request("tools/call", huge).header("connection", "close");
    // Announced: refused before it is sent.
    let answer = raw(stage.address, request.head(4 << 20).as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("PAYLOAD_TOO_LARGE"), "{answer}");
    // Not announced: cut off where it passes the limit.
    let head = request.head(0).replace("content-length: 0", "transfer-encoding: chunked");
    let body = request.body.to_string();
    let chunked = format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let answer = raw(stage.address, chunked.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{}", &answer[..answer.len().min(300)]);
    client.ok("tools/list", json!({})).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_ask_is_told_so_before_the_body_is_read() {
    let stage = Stage::in_memory().await;
    let list = || stage.client("planner").request("tools/list", json!({})).header("connection", "close");
    for (request, status) in [
        (list().header("origin", "http://localhost:80@evil.example"), 403),
        (list().without("authorization"), 401),
        (list().without("authorization").header("content-type", "text/plain"), 401),
        (list().header("content-type", "text/plain"), 415),
    ] {
        // Of the body nothing ever comes.
        let answer = raw(stage.address, request.head(100).as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "expected {status}, found {answer}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_of_another_type_is_not_taken() {
    let stage = Stage::in_memory().await;
    let list = || stage.client("planner").request("tools/list", json!({}));
    for wrong in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", "", "json"] {
        assert_eq!(list().header("content-type", wrong).answer().await.status, 415, "{wrong}");
    }
    assert_eq!(list().without("content-type").answer().await.status, 415);
    for right in ["application/json", "application/json; charset=utf-8", "Application/JSON"] {
        assert_eq!(list().header("content-type", right).answer().await.status, 200, "{right}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_sends_slowly_is_waited_for_and_holds_up_nobody() {
    let stage = Stage::in_memory().await;
    let client = stage.client("planner");
    let bytes = client.request("tools/list", json!({})).header("connection", "close").bytes();
    let mut slow = TcpStream::connect(stage.address).await.unwrap();
    slow.set_nodelay(true).unwrap();
    for (index, byte) in bytes.iter().enumerate() {
        slow.write_all(&[*byte]).await.unwrap();
        if index % 100 == 0 {
            client.ok("tools/list", json!({})).await;
        }
    }
    let mut answer = String::new();
    in_time(slow.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_reads_slowly_misses_nothing_that_counts_and_holds_up_nobody() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let client = stage.client("planner");
    let task = client.begin("dig", json!({})).await;
    let job = worker.next().await;
    let (mut slow, _) = client.listen(json!({ "taskIds": [task] })).await;
    // More than every buffer on the way can hold.
    let filler = "x".repeat(64 << 10);
    for step in 0..300 {
        job.says(&format!("{step} {filler}")).await;
    }
    job.completes("dug").await;
    assert_eq!(client.get(&task).await["status"], "completed");
    // What it then reads is each time the whole task, and the last of it is the end.
    let mut last = json!({});
    while last["status"] != "completed" {
        last = slow.next_of("notifications/tasks").await;
    }
    assert_eq!(last["result"]["content"][0]["text"], "dug");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_cut_in_its_request_leaves_no_trace() {
    let stage = Stage::in_memory().await;
    stage.worker("worker", json!([skill("dig")])).await;
    let client = stage.client("planner");
    let before = stage.written();
    let bytes = client.request("tools/call", json!({ "name": "dig" })).bytes();
    for sent in (0..bytes.len()).step_by(23) {
        let mut connection = TcpStream::connect(stage.address).await.unwrap();
        connection.write_all(&bytes[..sent]).await.unwrap();
    }
    client.ok("tools/list", json!({})).await;
    assert_eq!(stage.written(), before);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_call_that_is_cut_at_any_moment_leaves_no_open_task() {
    let stage = Stage::in_memory().await;
    stage.worker("worker", json!([skill("dig")])).await;
    let client = stage.client("planner").declaring(json!({}));
    let call = client.request("tools/call", json!({ "name": "dig" }));
    for _ in 0..50 {
        drop(call.on_the_wire().await);
    }
    // One that was certainly begun before it was cut.
    let connection = call.on_the_wire().await;
    until(async || !open(&client).await.is_empty()).await;
    drop(connection);
    until(async || open(&client).await.is_empty()).await;
    stage.stop().await;
}

/// The tasks of a client that have not ended.
async fn open(client: &Client) -> Vec<Value> {
    let tasks = client.tool("task_list", json!({})).await["tasks"].clone();
    tasks.as_array().unwrap().iter().filter(|task| task["status"] != "cancelled").cloned().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_subscriptions_to_one_task_all_hear_of_it() {
    const MANY: usize = 1000;
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let client = stage.client("planner");
    let task = client.begin("dig", json!({})).await;
    let job = worker.next().await;
    // Without a network: a machine may not have so many sockets to give.
    let service = TowerToHyperService::new(stage.router.clone());
    let listen = client.request("subscriptions/listen", json!({ "notifications": { "taskIds": [task] } }));
    let open = async || {
        let mut request = axum::http::Request::post("/mcp");
        for (name, value) in &listen.headers {
            request = request.header(name, value);
        }
        service.call(request.body(Body::from(listen.body.to_string())).unwrap()).await.unwrap()
    };
    let mut streams = Vec::new();
    for _ in 0..MANY {
        let response = in_time(open()).await;
        assert_eq!(response.status(), 200);
        let mut body = response.into_body();
        assert!(told(&mut body).await.contains("acknowledged"));
        streams.push(body);
    }
    // An agent has no more than so many.
    let one_more = in_time(open()).await;
    assert_eq!(one_more.status(), 429);

    job.says("deep down").await;
    let mut hearing = JoinSet::new();
    for mut body in streams {
        hearing.spawn(async move {
            let first = told(&mut body).await;
            (first.contains("deep down"), body)
        });
    }
    let mut heard = Vec::new();
    while let Some(one) = in_time(hearing.join_next()).await {
        let (right, body) = one.unwrap();
        assert!(right);
        heard.push(body);
    }
    assert_eq!(heard.len(), MANY);
    // Gone, they make room again.
    drop(heard);
    until(async || open().await.status() == 200).await;
    stage.stop().await;
}

/// The next event of a stream.
async fn told(body: &mut Body) -> String {
    let frame = in_time(body.frame()).await.unwrap().unwrap();
    String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
}

/// Every way to name a task: a method, or a tool, and its parameters for a task of this id.
fn ways(id: &str) -> Vec<(&'static str, Value)> {
    let tool = |name: &str, more: Value| {
        let mut arguments = json!({ "task_id": id });
        for (key, value) in more.as_object().unwrap() {
            arguments[key] = value.clone();
        }
        ("tools/call", json!({ "name": name, "arguments": arguments }))
    };
    let answer = json!({ "q": { "action": "accept", "content": { "answer": "x" } } });
    let parent = json!({ "title": "t", "instructions": "i", "agent": "helper", "parent_task_id": id });
    vec![
        ("tasks/get", json!({ "taskId": id })),
        ("tasks/update", json!({ "taskId": id, "inputResponses": answer })),
        ("tasks/cancel", json!({ "taskId": id })),
        ("tasks/steer", json!({ "taskId": id, "message": "x" })),
        ("tasks/pause", json!({ "taskId": id })),
        ("tasks/resume", json!({ "taskId": id })),
        ("resources/read", json!({ "uri": format!("task://{id}") })),
        ("tools/call", json!({ "name": "dig", "requestState": format!("{id}.1"), "inputResponses": answer })),
        ("tools/call", json!({ "name": "delegate_task", "arguments": parent })),
        tool("task_status", json!({})),
        tool("task_wait", json!({ "wait_ms": 0 })),
        tool("task_timeline", json!({})),
        tool("task_steer", json!({ "message": "x" })),
        tool("task_message", json!({ "message": "x" })),
        tool("task_answer", json!({ "answers": answer })),
        tool("task_pause", json!({})),
        tool("task_resume", json!({})),
        tool("task_cancel", json!({})),
        tool("task_commit", json!({ "success": true })),
        tool("work_accept", json!({})),
        tool("work_decline", json!({ "reason": "x" })),
        tool("work_update", json!({ "message": "x" })),
        tool("work_checkpoint", json!({})),
        tool("work_hold", json!({ "reason": "x" })),
        tool("work_ask", json!({ "questions": { "q": { "message": "x" } }, "wait_ms": 0 })),
        tool("work_complete", json!({ "text": "x" })),
        tool("work_fail", json!({ "reason": "x" })),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_task_of_another_agent_or_tenant_is_answered_like_one_that_does_not_exist() {
    let stage = Stage::with(|set| set.identity = tokens()).await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    stage.worker("elsewhere", json!([skill("dig")])).await;
    let client = stage.client("planner");
    let (open, ended) = (client.begin("dig", json!({})).await, client.begin("dig", json!({})).await);
    worker.next().await.asks_for("q", "which?").await;
    client.ok("tasks/cancel", json!({ "taskId": ended })).await;
    let unknown = "00000000-0000-4000-8000-000000000000";
    assert_eq!(unknown.len(), open.len());
    let before = stage.written();
    for thief in ["outsider", "elsewhere"] {
        let thief = stage.client(thief).declaring(interaction());
        for forged in [&open, &ended] {
            for ((method, params), (_, same)) in ways(forged).into_iter().zip(ways(unknown)) {
                let what = params["name"].as_str().unwrap_or_default();
                let found = thief.request(method, params.clone()).set("id", json!(1)).answer().await;
                let expected = thief.request(method, same).set("id", json!(1)).answer().await;
                assert_eq!(found.status, expected.status, "{method} {what}");
                assert_eq!(found.text.replace(forged.as_str(), unknown), expected.text, "{method} {what}");
                let refused =
                    expected.message().get("error").is_some() || expected.text.contains("\"isError\":true");
                assert!(refused, "{method} {what}: {expected:?}");
            }
            let uri = |id: &str| format!("task://{id}");
            let wanted =
                json!({ "taskIds": [forged, unknown], "resourceSubscriptions": [uri(forged), uri(unknown)] });
            let (_stream, agreed) = thief.listen(wanted).await;
            assert_eq!(agreed, json!({ "taskIds": [], "resourceSubscriptions": [] }));
        }
    }
    for forged in [&open, &ended] {
        let thief = stage.handshake("outsider", json!({ "elicitation": {} })).await;
        for (method, params) in ways(forged).into_iter().filter(|(method, _)| !method.starts_with("tasks/")) {
            let what = params["name"].as_str().unwrap_or_default();
            let found = thief.request(method, params.clone()).set("id", json!(1)).answer().await;
            let same: Value =
                serde_json::from_str(&params.to_string().replace(forged.as_str(), unknown)).unwrap();
            let expected = thief.request(method, same).set("id", json!(1)).answer().await;
            assert_eq!(found.text.replace(forged.as_str(), unknown), expected.text, "{method} {what}");
        }
        let respond = |id: &str| json!(format!("handover:{id}:q"));
        let found = thief.respond(&respond(forged), json!({ "action": "decline" })).await;
        let expected = thief.respond(&respond(unknown), json!({ "action": "decline" })).await;
        assert_eq!((found.status, &found.text), (expected.status, &expected.text));
    }
    assert_eq!(stage.written(), before);
    assert_eq!(client.get(&open).await["status"], "input_required");
    stage.stop().await;
}
