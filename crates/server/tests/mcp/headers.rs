//! Section D: Streamable HTTP.

use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use super::stage::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d1_there_is_one_endpoint_and_it_takes_post() {
    let stage = Stage::in_memory().await;
    let request = stage.client("planner").request("tools/list", json!({}));
    let sent = String::from_utf8(request.header("connection", "close").bytes()).unwrap();
    assert!(raw(stage.address, sent.as_bytes()).await.starts_with("HTTP/1.1 200 "));
    // The console's first page is at the root, and takes no POST.
    for (path, status) in [("/", 405), ("/mcp/", 404), ("/mcp/x", 404), ("/MCP", 404)] {
        let elsewhere = sent.replacen("/mcp", path, 1);
        let expected = format!("HTTP/1.1 {status} ");
        assert!(raw(stage.address, elsewhere.as_bytes()).await.starts_with(&expected), "{path}");
    }
    for method in ["PUT", "PATCH"] {
        let other = sent.replacen("POST", method, 1);
        assert!(raw(stage.address, other.as_bytes()).await.starts_with("HTTP/1.1 405 "), "{method}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d2_a_page_of_elsewhere_is_not_let_in() {
    let stage = Stage::with(|set| set.face.origins = vec!["https://console.example".to_owned()]).await;
    stage.worker("worker", json!([skill("dig")])).await;
    let before = stage.written();
    let call = || stage.client("planner").request("tools/call", json!({ "name": "dig" }));
    for origin in
        ["http://evil.example", "null", "http://localhost.evil.example", "https://console.example.evil"]
    {
        assert_eq!(call().header("origin", origin).answer().await.status, 403, "{origin}");
    }
    assert_eq!(stage.written(), before);
    for origin in ["http://localhost:3000", "http://127.0.0.1", "http://[::1]:80", "https://console.example"]
    {
        assert_eq!(call().header("origin", origin).answer().await.status, 200, "{origin}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d4_a_notification_is_taken_without_a_word_or_refused() {
    let stage = Stage::in_memory().await;
    let client = stage.client("planner");
    let told = client.notify("notifications/cancelled", json!({ "requestId": 1 })).await;
    assert_eq!((told.status, &*told.text), (202, ""));
    let telling = || client.request("notifications/cancelled", json!({})).set("id", Value::Null);
    assert_eq!(telling().answer().await.status, 202);
    assert_eq!(telling().without("mcp-method").answer().await.status, 202);
    for wrong in [
        telling().header("mcp-method", "tools/list"),
        telling().header("mcp-protocol-version", "1999-01-01"),
        telling().meta(VERSION, json!("2025-11-25")),
        telling().meta(VERSION, json!(1)),
        telling().set("jsonrpc", json!("1.0")),
        telling().without("authorization"),
    ] {
        let refused = wrong.clone().answer().await;
        assert!((400..500).contains(&refused.status), "{:?}: {refused:?}", wrong.headers);
    }
    // No request of the server's can be answered in this revision: it makes none.
    let answered = client.respond(&json!("handover:x:y"), json!({})).await;
    assert_eq!(answered.refused().as_pair(), (400, INVALID_REQUEST));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_an_answer_is_json_or_a_stream_of_events() {
    let stage = Stage::in_memory().await;
    let client = stage.client("planner");
    let json = client.ask("tools/list", json!({})).await;
    assert_eq!(json.headers["content-type"], "application/json");
    let (stream, _) = client.listen(json!({ "toolsListChanged": true })).await;
    assert_eq!(stream.headers["content-type"], "text/event-stream");
    for headers in [&json.headers, &stream.headers] {
        assert_eq!(headers["cache-control"], "no-store");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_an_answer_that_takes_long_begins_before_it_is_there() {
    let stage = Stage::with(|set| set.face.head_within = std::time::Duration::ZERO).await;
    let worker = stage.worker("worker", json!([skill_with("dig", json!({ "answers": "at_once" }))])).await;
    let client = stage.client("planner");
    for (accepted, kind) in [
        ("application/json, text/event-stream", "text/event-stream"),
        ("application/json", "application/json"),
    ] {
        let params = json!({ "name": "dig", "_meta": { "progressToken": 1 } });
        let call = client.request("tools/call", params).header("accept", accepted);
        // The head is here, and the work has not begun.
        let reply = call.send().await;
        assert_eq!((reply.status, reply.headers["content-type"].as_str()), (200, kind));
        let job = worker.next().await;
        for step in 1..=100 {
            job.update(json!({ "progress": step })).await;
        }
        job.completes("dug").await;
        let answer = reply.answer().await;
        assert_eq!(answer.result()["content"][0]["text"], "dug");
        assert_eq!(answer.told("notifications/progress").len(), if answer.streamed { 100 } else { 0 });
    }
    // Who hangs up then takes the call back all the same.
    let call = client.request("tools/call", json!({ "name": "dig" })).header("accept", "application/json");
    let reply = call.send().await;
    let job = worker.next().await;
    drop(reply);
    assert_eq!(job.tool("work_checkpoint", json!({ "wait_ms": 60_000 })).await["ended"], true);
    stage.stop().await;
}

/// A worker that tells how it goes, by the name that it was called with.
async fn telling(stage: &Stage) -> (Worker, Playing) {
    let worker = stage.worker("worker", json!([skill_with("dig", json!({ "answers": "at_once" }))])).await;
    let playing = worker.plays(|job| async move {
        let name = job.arguments()["name"].clone();
        for step in 1..=3 {
            job.update(json!({ "progress": step, "total": 3, "message": name })).await;
        }
        job.completes(name.as_str().unwrap()).await;
    });
    (worker, playing)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d6_what_comes_before_an_answer_belongs_to_its_request() {
    let stage = Stage::in_memory().await;
    let _working = telling(&stage).await;
    let client = stage.client("planner");
    let calls = ["spade", "shovel", "fork"].map(|name| {
        let params =
            json!({ "name": "dig", "arguments": { "name": name }, "_meta": { "progressToken": name } });
        (name, tokio::spawn(client.request("tools/call", params).answer()))
    });
    for (name, call) in calls {
        let answer = call.await.unwrap();
        assert_eq!(answer.result()["content"][0]["text"], name);
        let told = answer.told("notifications/progress");
        assert_eq!(told.len(), 3);
        assert!(told.iter().all(|told| told["progressToken"] == name && told["message"] == name), "{told:?}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d7_the_answer_ends_the_stream() {
    let stage = Stage::in_memory().await;
    let _working = telling(&stage).await;
    let params = json!({ "name": "dig", "arguments": { "name": "spade" }, "_meta": { "progressToken": 1 } });
    let mut reply = stage.client("planner").request("tools/call", params).send().await;
    assert!(reply.streams());
    while reply.next().await.unwrap().get("result").is_none() {}
    assert_eq!(reply.next().await, None);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d8_a_stream_asks_not_to_be_held_back() {
    let stage = Stage::in_memory().await;
    let (stream, _) = stage.client("planner").listen(json!({})).await;
    assert_eq!(stream.headers["x-accel-buffering"], "no");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d9_who_hangs_up_takes_the_call_back() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill_with("dig", json!({ "answers": "at_once" }))])).await;
    let client = stage.client("planner");
    let call = || client.request("tools/call", json!({ "name": "dig", "_meta": { "progressToken": 1 } }));
    // Before anything was told.
    let connection = call().on_the_wire().await;
    let job = worker.next().await;
    drop(connection);
    assert_eq!(job.tool("work_checkpoint", json!({ "wait_ms": 60_000 })).await["ended"], true);
    // In the middle of the stream.
    let calling = tokio::spawn(call().send());
    let job = worker.next().await;
    job.update(json!({ "progress": 1 })).await;
    let mut reply = calling.await.unwrap();
    reply.next_of("notifications/progress").await;
    drop(reply);
    assert_eq!(job.tool("work_checkpoint", json!({ "wait_ms": 60_000 })).await["ended"], true);
    let task = client.get(&job.id).await;
    assert_eq!(task["status"], "cancelled");
    assert!(task["statusMessage"].as_str().unwrap().contains("went away"), "{task}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d9_who_hangs_up_on_a_task_that_was_created_leaves_it_alone() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let client = stage.client("planner");
    let task = client.begin("dig", json!({})).await;
    let (stream, _) = client.listen(json!({ "taskIds": [task] })).await;
    let waiting =
        client.request("tools/call", json!({ "name": "task_wait", "arguments": { "task_id": task } }));
    let connection = waiting.on_the_wire().await;
    let job = worker.next().await;
    drop((stream, connection));
    assert_eq!(job.says("digging").await["ended"], false);
    job.completes("dug").await;
    assert_eq!(client.get(&task).await["status"], "completed");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d10_the_revision_of_the_header_is_that_of_the_body() {
    let stage = Stage::in_memory().await;
    let list = || stage.client("planner").request("tools/list", json!({}));
    for version in ["2025-11-25", "1999-01-01", "", "2026-07-28x"] {
        let refused = list().header("mcp-protocol-version", version).answer().await.refused();
        assert_eq!(refused.as_pair(), (400, HEADER_MISMATCH), "{version}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d11_a_method_that_is_not_there_is_not_found() {
    let stage = Stage::in_memory().await;
    let client = stage.client("planner");
    for method in ["no/such", "", "tools", "tools/list/", "TOOLS/LIST", "tasks/list", "tasks/result"] {
        assert_eq!(client.refused(method, json!({})).await.as_pair(), (404, NO_METHOD), "{method}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d12_without_a_revision_in_the_header_a_stateless_request_is_refused() {
    let stage = Stage::in_memory().await;
    let list = || stage.client("planner").request("tools/list", json!({})).without("mcp-protocol-version");
    assert_eq!(list().answer().await.refused().as_pair(), (400, HEADER_MISMATCH));
    // Who says nothing anywhere is a client of before the header.
    let oldest = list().set("params", json!({})).answer().await;
    assert!(oldest.result()["tools"].is_array());
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d13_the_method_of_the_header_is_that_of_the_body() {
    let stage = Stage::in_memory().await;
    let list = || stage.client("planner").request("tools/list", json!({}));
    for refused in [
        list().without("mcp-method"),
        list().header("mcp-method", "prompts/list"),
        list().header("mcp-method", "Tools/List"),
        list().header("mcp-method", ""),
    ] {
        assert_eq!(refused.answer().await.refused().as_pair(), (400, HEADER_MISMATCH));
    }
    let bytes = String::from_utf8(list().header("connection", "close").bytes()).unwrap();
    let shouted = bytes.replace("mcp-method", "MCP-METHOD");
    assert!(raw(stage.address, shouted.as_bytes()).await.starts_with("HTTP/1.1 200 "));
    // Twice, somebody in between may have believed the other one.
    for other in ["tools/list", "prompts/list"] {
        let twice = bytes.replace("mcp-method", &format!("mcp-method: {other}\r\nmcp-method"));
        assert!(raw(stage.address, twice.as_bytes()).await.starts_with("HTTP/1.1 400 "), "{other}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d14_what_is_called_or_read_is_named_in_the_header() {
    let stage = Stage::in_memory().await;
    let client = stage.client("planner");
    for (method, params) in [
        ("tools/call", json!({ "name": "agent_list" })),
        ("prompts/get", json!({ "name": "work" })),
        ("resources/read", json!({ "uri": "task://x" })),
    ] {
        let request = || client.request(method, params.clone());
        for wrong in [request().without("mcp-name"), request().header("mcp-name", "another")] {
            assert_eq!(wrong.answer().await.refused().as_pair(), (400, HEADER_MISMATCH), "{method}");
        }
        assert_eq!(request().answer().await.status, 200, "{method}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d15_a_name_in_base64_is_read_before_it_is_compared() {
    let stage = Stage::in_memory().await;
    let call = || stage.client("planner").request("tools/call", json!({ "name": "agent_list" }));
    let named = |name| async move { call().header("mcp-name", name).answer().await };
    assert_eq!(named("=?base64?YWdlbnRfbGlzdA==?=").await.status, 200);
    for wrong in ["=?base64?!!!?=", "=?base64?b3RoZXI=?=", "=?BASE64?YWdlbnRfbGlzdA==?=", "=?base64?/w==?="] {
        assert_eq!(named(wrong).await.refused().as_pair(), (400, HEADER_MISMATCH), "{wrong}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d16_whatever_is_wrong_with_a_header_is_told_the_same_way() {
    let stage = Stage::in_memory().await;
    stage.worker("worker", json!([repeating()])).await;
    let client = stage.client("planner");
    let before = stage.written();
    let call =
        || client.request("tools/call", json!({ "name": "place", "arguments": { "region": "north" } }));
    let right = || call().header("mcp-param-region", "north");
    for wrong in [
        right().without("mcp-method"),
        right().without("mcp-name"),
        right().without("mcp-protocol-version"),
        call(),
        right().header("mcp-param-region", "south"),
        right().header("mcp-name", "=?base64?%?="),
    ] {
        let answer = wrong.answer().await;
        assert_eq!(answer.refused().as_pair(), (400, HEADER_MISMATCH));
        assert!(answer.message()["id"].is_i64());
    }
    assert_eq!(stage.written(), before);
    // Bytes that are no text.
    let bytes = right().header("connection", "close").bytes();
    let place = bytes.windows(10).position(|window| window == b"tools/call").unwrap();
    let mut broken = bytes.clone();
    broken[place] = 0xff;
    let answer = raw(stage.address, &broken).await;
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("-32020"), "{answer}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d17_space_around_a_value_does_not_count() {
    let stage = Stage::in_memory().await;
    let bytes =
        stage.client("planner").request("tools/list", json!({})).header("connection", "close").bytes();
    let spaced = String::from_utf8(bytes)
        .unwrap()
        .replace("mcp-method: tools/list", "mcp-method: \t tools/list \t")
        .replace("mcp-protocol-version: ", "mcp-protocol-version:   ");
    assert!(raw(stage.address, spaced.as_bytes()).await.starts_with("HTTP/1.1 200 "));
    stage.stop().await;
}

/// A skill some of whose arguments are repeated in headers.
fn repeating() -> Value {
    let properties = json!({
        "region": { "type": "string", "x-mcp-header": "Region" },
        "count": { "type": "integer", "x-mcp-header": "Count" },
        "other": { "type": "string" },
    });
    skill_with("place", json!({ "inputSchema": { "type": "object", "properties": properties } }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d18_arguments_that_a_skill_wants_repeated_are_compared() {
    let stage = Stage::in_memory().await;
    stage.worker("worker", json!([repeating()])).await;
    let client = stage.client("planner");
    let call =
        |arguments: Value| client.request("tools/call", json!({ "name": "place", "arguments": arguments }));
    for right in [
        call(json!({})),
        call(json!({ "other": "x" })),
        call(json!({ "region": "north" })).header("mcp-param-region", "north"),
        call(json!({ "region": "nörd" })).header("mcp-param-region", "=?base64?bsO2cmQ=?="),
        call(json!({ "count": 42 })).header("mcp-param-count", "42"),
        call(json!({ "count": 42 })).header("mcp-param-count", "42.0"),
    ] {
        assert_eq!(right.answer().await.result()["resultType"], "task");
    }
    for wrong in [
        call(json!({ "region": "north" })),
        call(json!({ "region": "north" })).header("mcp-param-region", "North"),
        call(json!({ "region": "north" })).header("mcp-param-region", "=?base64?x?="),
        call(json!({ "count": 42 })).header("mcp-param-count", "41"),
        call(json!({ "count": 42 })).header("mcp-param-count", "x"),
        call(json!({})).header("mcp-param-region", "north"),
    ] {
        assert_eq!(wrong.answer().await.refused().as_pair(), (400, HEADER_MISMATCH));
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d19_a_skill_whose_headers_cannot_be_is_not_taken() {
    let stage = Stage::in_memory().await;
    let client = stage.client("worker");
    let text = |name: Value| json!({ "type": "string", "x-mcp-header": name });
    for wrong in [
        json!({ "type": "object", "properties": { "a": text(json!("")) } }),
        json!({ "type": "object", "properties": { "a": text(json!("two words")) } }),
        json!({ "type": "object", "properties": { "a": text(json!("a:b")) } }),
        json!({ "type": "object", "properties": { "a": text(json!(1)) } }),
        json!({ "type": "object", "properties": { "a": text(json!("Same")), "b": text(json!("same")) } }),
        json!({ "type": "object", "properties": { "a": { "type": "object", "x-mcp-header": "A" } } }),
        json!({ "type": "object", "properties": { "a": { "type": "array", "items": text(json!("A")) } } }),
        json!({ "type": "object", "x-mcp-header": "A" }),
    ] {
        let said = json!({ "name": "W", "description": "d", "skills": [skill_with("s", json!({ "inputSchema": wrong }))] });
        let result = client.call("agent_register", said).await;
        assert_eq!(result["isError"], true, "{wrong}");
        assert!(result["content"][0]["text"].as_str().unwrap().contains("x-mcp-header"), "{result}");
    }
    let tools = client.ok("tools/list", json!({})).await;
    assert!(!tools.to_string().contains("x-mcp-header"));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d20_there_is_no_session_and_nothing_to_get_or_delete() {
    let stage = Stage::in_memory().await;
    let client = stage.client("planner");
    let request = client.request("tools/list", json!({}));
    let answer = request.header("mcp-session-id", "made up").header("last-event-id", "7").answer().await;
    assert!(answer.result()["tools"].is_array());
    assert!(!answer.headers.contains_key("mcp-session-id"));
    let bytes = client.request("tools/list", json!({})).header("connection", "close").bytes();
    for method in ["GET", "DELETE"] {
        let other = String::from_utf8(bytes.clone()).unwrap().replacen("POST", method, 1);
        assert!(raw(stage.address, other.as_bytes()).await.starts_with("HTTP/1.1 405 "), "{method}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d21_a_stream_is_not_taken_up_again() {
    let stage = Stage::in_memory().await;
    let listen = stage.client("planner").request("subscriptions/listen", json!({ "notifications": {} }));
    let listen = listen.header("last-event-id", "1").header("connection", "close");
    let mut connection = listen.on_the_wire().await;
    let mut told = Vec::new();
    in_time(async {
        while !told.ends_with(b"}\n\n\r\n") {
            connection.read_buf(&mut told).await.unwrap();
        }
        stage.begin_stop();
        connection.read_to_end(&mut told).await.unwrap();
    })
    .await;
    let told = String::from_utf8(told).unwrap();
    // Events have no ids that a client could come back with.
    assert!(told.contains("event: message\ndata: {"), "{told}");
    assert!(!told.lines().any(|line| line.starts_with("id:") || line.starts_with("retry:")), "{told}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d22_what_a_method_refuses_is_no_fault_of_the_transport() {
    let stage = Stage::in_memory().await;
    let client = stage.client("planner");
    for (method, params) in [
        ("tasks/get", json!({ "taskId": "none" })),
        ("tools/call", json!({ "name": "none" })),
        ("resources/read", json!({ "uri": "task://none" })),
        ("prompts/get", json!({ "name": "none" })),
        ("tools/list", json!({ "cursor": "none" })),
    ] {
        assert_eq!(client.refused(method, params).await.as_pair(), (200, INVALID_PARAMS), "{method}");
    }
    stage.stop().await;
}
