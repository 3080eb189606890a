//! Section B: what every request says of itself.

use serde_json::{Value, json};

use super::stage::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b1_a_request_without_its_revision_or_its_capabilities_is_refused() {
    let stage = Stage::in_memory().await;
    let client = stage.client("planner");
    for method in ["tools/list", "server/discover", "tasks/get", "tools/call", "subscriptions/listen"] {
        for key in [VERSION, CAPABILITIES] {
            let lacking = client.request(method, json!({})).meta(key, Value::Null);
            let refused = lacking.answer().await.refused();
            assert_eq!(refused.as_pair(), (400, INVALID_PARAMS), "{method} without {key}");
            assert!(refused.message.contains(key), "{refused:?}");
        }
        let none = client.request(method, json!({})).set("params", json!({}));
        assert_eq!(none.answer().await.refused().as_pair(), (400, INVALID_PARAMS), "{method}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b2_a_client_need_not_say_what_it_is_called() {
    let stage = Stage::in_memory().await;
    let request = stage.client("planner").request("tools/list", json!({})).meta(INFO, Value::Null);
    assert!(request.answer().await.result()["tools"].is_array());
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b3_a_capability_that_is_needed_and_not_declared_is_named() {
    let stage = Stage::in_memory().await;
    let skills = json!([
        skill_with("think", json!({ "requires": ["sampling", "roots"] })),
        skill_with("build", json!({ "answers": "task" })),
    ]);
    stage.worker("worker", skills).await;
    let client = stage.client("planner");
    let before = stage.written();
    let refused = client.refused("tools/call", json!({ "name": "think", "arguments": {} })).await;
    assert_eq!(refused.as_pair(), (400, MISSING_CAPABILITY));
    assert_eq!(
        refused.data,
        json!({ "requiredCapabilities": { "sampling": {}, "roots": {} }, "code": "MISSING_CAPABILITY", "help": "/errors/MISSING_CAPABILITY" })
    );
    let half = client.declaring(json!({ "sampling": {} }));
    let refused = half.refused("tools/call", json!({ "name": "think", "arguments": {} })).await;
    assert_eq!(
        refused.data,
        json!({ "requiredCapabilities": { "roots": {} }, "code": "MISSING_CAPABILITY", "help": "/errors/MISSING_CAPABILITY" })
    );
    let refused = half.refused("tools/call", json!({ "name": "build", "arguments": {} })).await;
    assert_eq!(refused.as_pair(), (400, MISSING_CAPABILITY));
    assert_eq!(
        refused.data,
        json!({ "requiredCapabilities": { "extensions": { TASKS: {} } }, "code": "MISSING_CAPABILITY", "help": "/errors/MISSING_CAPABILITY" })
    );
    assert_eq!(stage.written(), before);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b4_results_say_who_answered() {
    let stage = Stage::in_memory().await;
    stage.worker("worker", json!([skill("dig")])).await;
    let client = stage.client("planner");
    let task = client.begin("dig", json!({})).await;
    for (method, params) in [
        ("server/discover", json!({})),
        ("tools/list", json!({})),
        ("tools/call", json!({ "name": "dig" })),
        ("tools/call", json!({ "name": "agent_list" })),
        ("tasks/get", json!({ "taskId": task })),
        ("prompts/get", json!({ "name": "work" })),
    ] {
        let result = client.ok(method, params).await;
        assert_eq!(result["_meta"][SERVER_INFO]["name"], "handover", "{method}");
        assert!(result["_meta"][SERVER_INFO]["version"].is_string(), "{method}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b5_what_a_client_calls_itself_changes_nothing() {
    let stage = Stage::in_memory().await;
    let client = stage.client("planner");
    let plain = client.ok("tools/list", json!({})).await;
    for name in ["handover", "worker", "", "admin"] {
        let info = json!({ "name": name, "version": "9" });
        let request = client.request("tools/list", json!({})).meta(INFO, info);
        assert_eq!(request.answer().await.result(), plain);
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b6_a_revision_that_is_not_spoken_is_answered_with_those_that_are() {
    let stage = Stage::in_memory().await;
    let client = stage.client("planner");
    for version in ["1900-01-01", "2027-01-01", "2025-11-25", ""] {
        let request = client.request("tools/list", json!({}));
        let request = request.meta(VERSION, json!(version)).header("mcp-protocol-version", version);
        let refused = request.answer().await.refused();
        assert_eq!(refused.as_pair(), (400, UNSUPPORTED_VERSION), "{version}");
        assert_eq!(refused.data["requested"], version);
        assert_eq!(refused.data["supported"][0], MODERN);
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b7_log_lines_come_only_when_asked_for_and_from_that_level_on() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill_with("dig", json!({ "answers": "at_once" }))])).await;
    let client = stage.client("planner");
    let _working = worker.plays(|job| async move {
        let line = |level: &str| json!({ "level": level, "data": level, "logger": "spade" });
        job.update(json!({ "log": [line("debug"), line("info"), line("error")] })).await;
        job.completes("dug").await;
    });
    for (level, heard) in [
        (Value::Null, &[][..]),
        (json!("debug"), &["debug", "info", "error"]),
        (json!("info"), &["info", "error"]),
        (json!("warning"), &["error"]),
        (json!("critical"), &[]),
    ] {
        let request = client.request("tools/call", json!({ "name": "dig" })).meta(LOG_LEVEL, level.clone());
        let answer = request.answer().await;
        let lines = answer.told("notifications/message");
        let levels: Vec<&str> = lines.iter().map(|line| line["level"].as_str().unwrap()).collect();
        assert_eq!(levels, heard, "{level}");
        assert!(lines.iter().all(|line| line["logger"] == "spade" && line["data"] == line["level"]));
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b8_a_level_that_nobody_knows_is_refused() {
    let stage = Stage::in_memory().await;
    let client = stage.client("planner");
    for level in [json!("loud"), json!("INFO"), json!(""), json!(3)] {
        let request = client.request("tools/list", json!({})).meta(LOG_LEVEL, level.clone());
        assert_eq!(request.answer().await.refused().code, INVALID_PARAMS, "{level}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b9_the_keys_of_traces_are_left_to_traces() {
    let stage = Stage::in_memory().await;
    let client = stage.client("planner");
    let request = client.request("tools/list", json!({}));
    let request = request
        .meta("traceparent", json!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))
        .meta("tracestate", json!("vendor=1"))
        .meta("baggage", json!("a=b"));
    let result = request.answer().await.result();
    // Neither repeated nor used for anything else: every key of ours has a prefix.
    assert!(result["_meta"].as_object().unwrap().keys().all(|key| key.contains('/')), "{result}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b10_extensions_of_our_own_keep_out_of_reserved_prefixes() {
    let stage = Stage::in_memory().await;
    let said = stage.client("planner").ok("server/discover", json!({})).await;
    let extensions = said["capabilities"]["extensions"].as_object().unwrap();
    assert!(extensions.len() > 1);
    for name in extensions.keys().filter(|name| *name != TASKS) {
        let (prefix, rest) = name.split_once('/').unwrap();
        let labels: Vec<&str> = prefix.split('.').collect();
        assert!(labels.len() >= 2 && !rest.is_empty(), "{name}");
        assert!(!["modelcontextprotocol", "mcp"].contains(&labels[1]), "{name}");
    }
    stage.stop().await;
}

/// What `_meta` and the parameters may be instead of what they should be: each is refused, and nothing comes of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_the_wrong_type_are_refused_wherever_they_are() {
    let stage = Stage::in_memory().await;
    stage.worker("worker", json!([skill("dig")])).await;
    let client = stage.client("planner");
    let before = stage.written();
    let wrong = |what: &str, refused: Refused| {
        let status = [200, 400].contains(&refused.status);
        assert!(status && [INVALID_PARAMS, INVALID_REQUEST].contains(&refused.code), "{what}: {refused:?}");
    };
    let others = [json!(1), json!("x"), json!(true), json!([]), json!([{}]), json!(1.5)];
    for value in &others {
        let list = |key| client.request("tools/list", json!({})).meta(key, value.clone());
        for key in [VERSION, CAPABILITIES, LOG_LEVEL, "dev.handover/idempotencyKey"] {
            if value.is_string() && key != CAPABILITIES {
                continue;
            }
            wrong(key, list(key).answer().await.refused());
        }
        if !value.is_string() && value != &json!(1) {
            wrong("progressToken", list("progressToken").answer().await.refused());
        }
        for pointer in ["elicitation", "sampling", "roots", "extensions"] {
            let declared = client.declaring(json!({ pointer: value }));
            // One capability that is odd does not keep a client out.
            declared.ok("tools/list", json!({})).await;
        }
        let declared = client.declaring(json!({ "extensions": { TASKS: value } }));
        assert_eq!(declared.refused("tasks/get", json!({ "taskId": "x" })).await.code, MISSING_CAPABILITY);
        let meta = client.request("tools/list", json!({})).set("params", json!({ "_meta": value }));
        wrong("_meta", meta.answer().await.refused());
        let params = client.request("tools/list", json!({})).set("params", value.clone());
        wrong("params", params.answer().await.refused());
    }
    for value in [json!(1), json!(true), json!([]), json!({}), Value::Null] {
        for (method, params) in [
            ("tasks/get", json!({ "taskId": value })),
            ("tasks/cancel", json!({ "taskId": value })),
            ("tasks/pause", json!({ "taskId": value })),
            ("tasks/resume", json!({ "taskId": value })),
            ("tasks/steer", json!({ "taskId": value, "message": "x" })),
            ("tasks/steer", json!({ "taskId": "x", "message": value })),
            ("tasks/update", json!({ "taskId": value, "inputResponses": {} })),
            ("resources/read", json!({ "uri": value })),
            ("prompts/get", json!({ "name": value })),
            ("tools/call", json!({ "name": value })),
        ] {
            let request = client.request(method, params).header("mcp-name", "x");
            wrong(method, request.answer().await.refused());
        }
    }
    for value in &others {
        for (method, params) in [
            ("tasks/update", json!({ "taskId": "x", "inputResponses": value })),
            ("tools/call", json!({ "name": "dig", "arguments": value })),
            ("tools/call", json!({ "name": "dig", "inputResponses": value })),
            ("subscriptions/listen", json!({ "notifications": value })),
            ("subscriptions/listen", json!({ "notifications": { "taskIds": { "x": value } } })),
            ("subscriptions/listen", json!({ "notifications": { "resourceSubscriptions": [value, 1] } })),
            ("subscriptions/listen", json!({ "notifications": { "toolsListChanged": [value] } })),
        ] {
            wrong(method, client.refused(method, params).await);
        }
    }
    for method in [
        "tasks/get",
        "tasks/update",
        "tasks/cancel",
        "resources/read",
        "prompts/get",
        "tools/call",
        "subscriptions/listen",
    ] {
        let request = client.request(method, json!({})).header("mcp-name", "x");
        wrong(method, request.answer().await.refused());
    }
    assert_eq!(stage.written(), before);
    stage.stop().await;
}
