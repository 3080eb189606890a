//! Two pipes to a server over HTTP: a client cannot tell them from a server of its own.

use handover_client::bridge::{self, Endpoint};
use handover_desk::shutdown::{Shutdown, Trigger};
use serde_json::{Value, json};
use tokio_rustls::rustls::RootCertStore;

use super::pipes::{Pipes, call};
use super::stage::*;

/// A bridge, and what ends it.
fn bridge_to(address: &str, token: Option<&str>) -> (Pipes, Trigger) {
    let endpoint = Endpoint::new(address, token, RootCertStore::empty()).unwrap();
    let (trigger, mut shutdown) = Shutdown::new();
    let stop = async move { shutdown.begun().await };
    (Pipes::to(|input, output| bridge::serve(endpoint, stop, input, output)), trigger)
}

fn bridge(stage: &Stage, token: &str) -> (Pipes, Trigger) {
    bridge_to(&format!("http://{}", stage.address), Some(token))
}

fn plain(stage: &Stage) -> Client {
    stage.client("planner").declaring(json!({ "elicitation": {} }))
}

#[tokio::test]
async fn a_call_through_the_bridge_tells_its_progress_and_then_its_result() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let (mut pipes, _trigger) = bridge(&stage, "planner");
    let request = call(&plain(&stage), "dig", json!({ "depth": 3 })).meta("progressToken", json!("p"));
    let id = pipes.request(request).await;
    let job = worker.next().await;
    assert_eq!(job.arguments(), &json!({ "depth": 3 }));
    job.update(json!({ "progress": 1, "total": 3, "message": "one\nof three" })).await;
    let told = pipes.next().await.unwrap();
    assert_eq!(
        (&told["method"], &told["params"]["progressToken"]),
        (&json!("notifications/progress"), &json!("p"))
    );
    assert_eq!(told["params"]["message"], "one\nof three");
    job.completes("done").await;
    let (answer, _) = pipes.answer_to(&id).await;
    assert_eq!(answer["result"]["content"][0]["text"], "done");
    assert!(pipes.close().await.is_empty());
}

#[tokio::test]
async fn every_method_goes_through_with_the_headers_that_it_needs() {
    let stage = Stage::with(|set| set.face.strict_headers = true).await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let client = stage.client("planner").declaring(interaction());
    let (mut pipes, _trigger) = bridge(&stage, "planner");
    pipes.ask(client.request("server/discover", json!({}))).await;
    let created = pipes.ask(call(&client, "dig", json!({}))).await;
    let task = created["taskId"].clone();
    let job = worker.next().await;
    pipes.ask(client.request("tasks/get", json!({ "taskId": task }))).await;
    pipes.ask(client.request("tasks/steer", json!({ "taskId": task, "message": "deeper" }))).await;
    assert_eq!(job.checkpoint().await["orders"][0]["kind"], "steer");
    pipes.ask(client.request("tasks/pause", json!({ "taskId": task }))).await;
    assert_eq!(job.says("a safe point").await["paused"], true);
    pipes.ask(client.request("tasks/resume", json!({ "taskId": task }))).await;
    pipes.ask(client.request("tasks/update", json!({ "taskId": task, "inputResponses": {} }))).await;
    pipes.ask(client.request("tasks/cancel", json!({ "taskId": task }))).await;
    pipes.ask(client.request("prompts/get", json!({ "name": "work" }))).await;
    let resources = pipes.ask(client.request("resources/list", json!({}))).await;
    let uri = &resources["resources"][0]["uri"];
    pipes.ask(client.request("resources/read", json!({ "uri": uri }))).await;
    // A name that no header carries as it is gets there all the same, and is refused for what it is.
    let odd = pipes.refused(client.request("tasks/get", json!({ "taskId": " m\u{fc}nchen\n" }))).await;
    assert_eq!(odd["code"], INVALID_PARAMS, "{odd}");
    let unknown =
        pipes.refused(client.request("server/discover", json!({})).meta(VERSION, json!("2099-01-01")));
    assert_eq!(unknown.await["code"], UNSUPPORTED_VERSION);
}

#[tokio::test]
async fn arguments_that_a_tool_wants_in_headers_are_put_there_without_a_list() {
    let stage = Stage::in_memory().await;
    let schema = json!({ "type": "object", "properties": {
        "region": { "type": "string", "x-mcp-header": "Region" },
        "size": { "type": "integer", "x-mcp-header": "Size" },
    } });
    let worker =
        stage.worker("worker", json!([skill_with("deploy", json!({ "inputSchema": schema }))])).await;
    let client = stage.client("planner");
    let (mut pipes, _trigger) = bridge(&stage, "planner");
    for region in ["north", "m\u{fc}nchen", ""] {
        let created = pipes.ask(call(&client, "deploy", json!({ "region": region, "size": 2 }))).await;
        assert_eq!(created["resultType"], "task", "{created}");
        assert_eq!(worker.next().await.arguments()["region"], region);
    }
    // What the schema asks for changes, and so does what is sent.
    worker.offer(json!([skill("deploy")])).await;
    pipes.ask(call(&client, "deploy", json!({ "region": "south" }))).await;
}

#[tokio::test]
async fn taking_a_call_back_closes_it_and_nothing_more_is_said_of_it() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let (mut pipes, _trigger) = bridge(&stage, "planner");
    let id = pipes.request(call(&plain(&stage), "dig", json!({}))).await;
    let job = worker.next().await;
    pipes.cancel(&json!("unknown")).await;
    pipes.cancel(&id).await;
    stage.client("planner").until_status(&job.id, "cancelled").await;
    pipes.ask(stage.client("planner").request("tools/list", json!({}))).await;
    assert!(pipes.close().await.is_empty());
}

#[tokio::test]
async fn a_client_that_shook_hands_is_asked_and_answers_through_the_bridge() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let (mut pipes, _trigger) = bridge(&stage, "planner");
    let initialize = json!({ "protocolVersion": "2025-06-18", "capabilities": { "elicitation": {} }, "clientInfo": { "name": "play", "version": "1" } });
    pipes.send(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": initialize })).await;
    // Whoever does not wait for the handshake is served as if it had.
    pipes.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    let params = json!({ "name": "dig", "arguments": {} });
    pipes.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })).await;
    let opened = pipes.next().await.unwrap();
    assert_eq!(opened["result"]["protocolVersion"], "2025-06-18", "{opened}");
    let job = worker.next().await;
    job.asks_for("where", "Where?").await;
    let asked = pipes.next().await.unwrap();
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    let reply = json!({ "action": "accept", "content": { "answer": "here" } });
    pipes.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": reply })).await;
    let orders = job.tool("work_checkpoint", json!({ "wait_ms": 20_000 })).await;
    assert_eq!(orders["orders"][0]["kind"], "answer", "{orders}");
    job.completes("done").await;
    let (answer, _) = pipes.answer_to(&json!(1)).await;
    assert_eq!(answer["result"]["content"][0]["text"], "done", "{answer}");
}

#[tokio::test]
async fn e7_a_subscription_that_the_server_ends_is_over_for_the_client_of_a_bridge() {
    let stage = Stage::in_memory().await;
    let (mut pipes, _trigger) = bridge(&stage, "planner");
    let listen = stage.client("planner").request("subscriptions/listen", json!({ "notifications": {} }));
    let id = pipes.request(listen).await;
    assert_eq!(pipes.next().await.unwrap()["params"]["_meta"][SUBSCRIPTION], id);
    stage.begin_stop();
    let told = pipes.next().await.unwrap();
    assert_eq!((&told["method"], &told["params"]["requestId"]), (&json!("notifications/cancelled"), &id));
    assert!(pipes.next().await.unwrap()["result"].is_object());
}

#[tokio::test]
async fn what_the_server_says_without_a_message_becomes_an_error() {
    let stage = Stage::with(|set| set.identity = tokens()).await;
    let at = |path: &str| format!("http://{}{path}", stage.address);
    let list = || stage.client("planner").request("tools/list", json!({}));
    let large = list().set("padding", json!("x".repeat(3 * 1024 * 1024)));
    let cases = [
        (at(""), None, list(), 401, "UNAUTHENTICATED", "wants a token"),
        (at(""), Some("hand_wrong"), list(), 401, "UNAUTHENTICATED", "does not accept the token"),
        (at("/elsewhere"), Some("planner"), list(), 404, "NOT_FOUND", "there is no MCP"),
        (at("/mcp/"), Some("planner"), large, 413, "PAYLOAD_TOO_LARGE", "larger"),
    ];
    for (address, token, request, status, code, words) in cases {
        let (mut pipes, _trigger) = bridge_to(&address, token);
        let error = pipes.refused(request).await;
        let data = json!({ "status": status, "code": code, "help": format!("/errors/{code}") });
        assert_eq!((&error["code"], &error["data"]), (&json!(INTERNAL_ERROR), &data), "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(words) && !message.contains("hand_wrong"), "{message}");
    }
}

#[tokio::test]
async fn lines_that_are_no_messages_do_not_leave_the_bridge() {
    let stage = Stage::in_memory().await;
    let (mut pipes, _trigger) = bridge(&stage, "planner");
    for line in ["{", "[]", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":7}"] {
        pipes.write(format!("{line}\n")).await;
        assert!(pipes.next().await.unwrap()["error"]["code"].is_i64());
    }
    assert_eq!(stage.written(), 0);
    pipes.ask(stage.client("planner").request("tools/list", json!({}))).await;
}

#[tokio::test]
async fn many_requests_at_once_share_the_bridge() {
    let stage = Stage::in_memory().await;
    let client = stage.client("planner");
    let (mut pipes, _trigger) = bridge(&stage, "planner");
    let mut input = pipes.input.take().unwrap();
    let writing = tokio::spawn(async move {
        for _ in 0..300 {
            let line = format!("{}\n", client.request("prompts/list", json!({})).body);
            tokio::io::AsyncWriteExt::write_all(&mut input, line.as_bytes()).await.unwrap();
        }
        input
    });
    let mut answered = std::collections::BTreeSet::new();
    while answered.len() < 300 {
        let message = pipes.next().await.unwrap();
        assert!(message.get("result").is_some(), "{message}");
        assert!(answered.insert(message["id"].as_i64().unwrap()));
    }
    pipes.input = Some(in_time(writing).await.unwrap());
    assert!(pipes.close().await.is_empty());
}

#[tokio::test]
async fn the_end_of_the_bridge_takes_back_what_is_under_way() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    for by_signal in [false, true] {
        let (mut pipes, trigger) = bridge(&stage, "planner");
        pipes.request(call(&plain(&stage), "dig", json!({}))).await;
        let job = worker.next().await;
        if by_signal {
            trigger.begin();
            assert_eq!(pipes.next().await, None::<Value>);
            pipes.end().await;
        } else {
            assert!(pipes.close().await.is_empty());
        }
        stage.client("planner").until_status(&job.id, "cancelled").await;
    }
}

#[tokio::test]
async fn a_client_of_the_handshake_hears_of_changes_through_the_bridge() {
    let stage = Stage::in_memory().await;
    let (mut pipes, _trigger) = bridge(&stage, "planner");
    let initialize = json!({ "protocolVersion": "2025-11-25", "capabilities": {} });
    pipes.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize })).await;
    pipes.answer_to(&json!(1)).await;
    until(async || stage.metrics.to_text().contains("handover_streams_open 1")).await;
    stage.worker("worker", json!([skill("dig")])).await;
    assert_eq!(pipes.next().await.unwrap()["method"], "notifications/tools/list_changed");
}

#[tokio::test]
async fn a_message_that_the_server_does_not_take_is_said_to_be_too_large() {
    let stage = Stage::in_memory().await;
    let (mut pipes, _trigger) = bridge(&stage, "planner");
    for bytes in [3_000_000, 12_000_000] {
        let arguments = json!({ "title": "t", "instructions": "x".repeat(bytes), "agent": "w" });
        let refused = pipes.refused(call(&plain(&stage), "delegate_task", arguments)).await;
        assert_eq!(refused["data"]["code"], "PAYLOAD_TOO_LARGE", "{refused}");
    }
}

#[tokio::test]
async fn the_address_of_a_bridge_says_how_its_host_is_served() {
    let stage = Stage::in_memory().await;
    let address = format!("http://{}?profile=worker", stage.address);
    let (mut pipes, _trigger) = bridge_to(&address, Some("planner"));
    let listed = pipes.ask(stage.client("planner").request("tools/list", json!({}))).await;
    let names: Vec<&str> =
        listed["tools"].as_array().unwrap().iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert!(names.contains(&"work_next") && !names.contains(&"delegate_task"), "{names:?}");
    assert!(pipes.close().await.is_empty());
    stage.stop().await;
}
