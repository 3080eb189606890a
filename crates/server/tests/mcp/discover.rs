//! Section C: what the server says of itself, and which revisions it speaks.

use serde_json::json;

use super::stage::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_discover_says_versions_capabilities_and_how_long_to_keep_them() {
    let stage = Stage::in_memory().await;
    let said = stage.client("planner").ok("server/discover", json!({})).await;
    assert_eq!(said["supportedVersions"], json!([MODERN, "2025-11-25", "2025-06-18", "2025-03-26"]));
    assert!(said["capabilities"].is_object() && said["instructions"].is_string());
    assert!(said["ttlMs"].as_u64().unwrap() > 0);
    assert!(["public", "private"].contains(&said["cacheScope"].as_str().unwrap()));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c2_what_is_declared_is_served_and_nothing_else() {
    let stage = Stage::in_memory().await;
    stage.worker("worker", json!([skill("dig")])).await;
    let client = stage.client("planner");
    let said = client.ok("server/discover", json!({})).await;
    let mut names: Vec<&String> = said["capabilities"].as_object().unwrap().keys().collect();
    names.sort();
    assert_eq!(names, ["completions", "extensions", "logging", "prompts", "resources", "tools"]);
    client.ok("tools/list", json!({})).await;
    client.ok("prompts/list", json!({})).await;
    client.ok("resources/list", json!({})).await;
    client.ok("resources/templates/list", json!({})).await;
    let task = client.begin("dig", json!({})).await;
    let uri = format!("task://{task}");
    let of = json!({ "type": "ref/resource", "uri": "task://{id}" });
    client.ok("completion/complete", json!({ "ref": of, "argument": { "name": "id", "value": "" } })).await;
    let wanted =
        json!({ "toolsListChanged": true, "resourceSubscriptions": [uri], "promptsListChanged": true });
    let (_stream, agreed) = client.listen(wanted).await;
    assert_eq!(agreed, json!({ "toolsListChanged": true, "resourceSubscriptions": [uri] }));
    for method in ["roots/list", "sampling/createMessage", "elicitation/create"] {
        assert_eq!(client.refused(method, json!({})).await.as_pair(), (404, NO_METHOD), "{method}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c3_the_tasks_extension_is_declared_without_settings() {
    let stage = Stage::in_memory().await;
    let client = stage.client("planner");
    for declared in [json!({}), tasks_and_forms()] {
        let said = client.declaring(declared).ok("server/discover", json!({})).await;
        assert_eq!(said["capabilities"]["extensions"][TASKS], json!({}));
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c4_the_tasks_of_older_revisions_are_not_declared() {
    let stage = Stage::in_memory().await;
    let said = stage.client("planner").ok("server/discover", json!({})).await;
    assert!(said["capabilities"].get("tasks").is_none());
    let client = stage.handshake("planner", json!({})).await;
    let said = client.request("initialize", client.initialize()).answer().await.result();
    assert!(said["capabilities"].get("tasks").is_none() && said["capabilities"].get("extensions").is_none());
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c5_without_the_extension_a_call_is_plain_or_refused() {
    let stage = Stage::in_memory().await;
    let skills = json!([skill("dig"), skill_with("build", json!({ "answers": "task" }))]);
    let worker = stage.worker("worker", skills).await;
    let _working = worker.plays(|job| async move {
        job.completes("dug").await;
    });
    let client = stage.client("planner").declaring(json!({}));
    let plain = client.call("dig", json!({})).await;
    assert_eq!((&plain["resultType"], &plain["content"][0]["text"]), (&json!("complete"), &json!("dug")));
    let refused = client.refused("tools/call", json!({ "name": "build" })).await;
    assert_eq!(refused.as_pair(), (400, MISSING_CAPABILITY));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c6_one_endpoint_serves_both_eras() {
    let stage = Stage::in_memory().await;
    let modern = stage.client("planner").ok("tools/list", json!({})).await;
    let older = stage.handshake("planner", json!({})).await.ok("tools/list", json!({})).await;
    assert_eq!(modern["tools"], older["tools"]);
    assert!(modern.get("resultType").is_some() && older.get("resultType").is_none());
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_methods_of_the_handshake_are_not_there_in_the_stateless_revision() {
    let stage = Stage::in_memory().await;
    let client = stage.client("planner");
    for method in ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"] {
        let params =
            json!({ "protocolVersion": MODERN, "capabilities": {}, "level": "info", "uri": "task://x" });
        let answer = client.ask(method, params).await;
        assert_eq!(answer.refused().as_pair(), (404, NO_METHOD), "{method}");
        assert!(!answer.headers.contains_key("mcp-session-id"), "{method}");
    }
    stage.stop().await;
}
