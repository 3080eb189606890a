//! Section A: JSON-RPC as this revision uses it.

use serde_json::{Value, json};

use super::stage::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a3_an_answer_carries_the_id_of_its_request_and_its_type() {
    let stage = Stage::in_memory().await;
    let client = stage.client("planner");
    for id in [json!(0), json!(-5), json!("a b"), json!("7"), json!(9_007_199_254_740_993_i64)] {
        let good = client.request("tools/list", json!({})).set("id", id.clone()).answer().await;
        assert_eq!(good.message()["id"], id);
        let bad = client.request("no/such", json!({})).set("id", id.clone()).answer().await;
        assert_eq!(bad.message()["id"], id);
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a4_every_result_says_what_kind_it_is() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let client = stage.client("planner");
    let created = client.call("dig", json!({})).await;
    assert_eq!(created["resultType"], "task");
    let task = created["taskId"].as_str().unwrap();
    let job = worker.next().await;
    job.asks_for("where", "where?").await;
    let plain = client.declaring(json!({ "elicitation": {} }));
    for (method, params) in [
        ("server/discover", json!({})),
        ("tools/list", json!({})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", json!({ "uri": format!("task://{task}") })),
        ("prompts/list", json!({})),
        ("prompts/get", json!({ "name": "work" })),
        ("tasks/get", json!({ "taskId": task })),
        ("tasks/update", json!({ "taskId": task, "inputResponses": {} })),
        ("tasks/pause", json!({ "taskId": task })),
        ("tasks/resume", json!({ "taskId": task })),
        ("tasks/steer", json!({ "taskId": task, "message": "deeper" })),
        ("tasks/cancel", json!({ "taskId": task })),
        ("tools/call", json!({ "name": "agent_list", "arguments": {} })),
        ("tools/call", json!({ "name": "task_status", "arguments": { "task_id": "none" } })),
    ] {
        assert_eq!(client.ok(method, params).await["resultType"], "complete", "{method}");
    }
    let asking = tokio::spawn(async move { plain.call("dig", json!({})).await });
    worker.next().await.asks_for("where", "where?").await;
    assert_eq!(asking.await.unwrap()["resultType"], "input_required");
    stage.stop().await;
}

/// Everything that a request can be refused for, and what it is refused with.
async fn refusals(stage: &Stage) -> Vec<Answer> {
    let client = stage.client("planner");
    let get = || client.request("tasks/get", json!({ "taskId": "none" }));
    vec![
        get().answer().await,
        get().answer_to("{").await,
        get().answer_to("[]").await,
        get().set("method", json!("no/such")).header("mcp-method", "no/such").answer().await,
        get().header("mcp-method", "no/such").answer().await,
        get().meta(VERSION, json!("1999-01-01")).header("mcp-protocol-version", "1999-01-01").answer().await,
        get().meta(CAPABILITIES, json!({})).answer().await,
        get().meta(CAPABILITIES, Value::Null).answer().await,
        client.ask("tools/call", json!({ "name": "no_such_tool" })).await,
        client.ask("resources/read", json!({ "uri": "task://none" })).await,
        client.ask("resources/read", json!({ "uri": "http://elsewhere" })).await,
        client.ask("prompts/get", json!({ "name": "none" })).await,
        client.ask("tools/list", json!({ "cursor": "none" })).await,
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a5_an_error_has_a_code_and_one_short_sentence() {
    let stage = Stage::in_memory().await;
    for answer in refusals(&stage).await {
        let refused = answer.refused();
        assert!(!refused.message.is_empty() && refused.message.len() < 200, "{refused:?}");
        assert!(!refused.message.contains('\n') && !refused.message.ends_with('.'), "{refused:?}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a6_a_notification_is_not_answered() {
    let stage = Stage::in_memory().await;
    let client = stage.client("planner");
    for method in ["notifications/cancelled", "notifications/progress", "notifications/no_such", "tools/list"]
    {
        let told = client.notify(method, json!({ "requestId": 1 })).await;
        assert_eq!((told.status, &*told.text), (202, ""), "{method}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a7_the_server_asks_nothing_by_itself() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let client = stage.client("planner").declaring(json!({ "elicitation": {} }));
    let calling = tokio::spawn({
        let client = client.clone();
        async move {
            let request =
                client.request("tools/call", json!({ "name": "dig", "_meta": { "progressToken": 1 } }));
            request.answer().await
        }
    });
    let job = worker.next().await;
    job.update(json!({ "progress": 1 })).await;
    job.asks_for("where", "where?").await;
    let answer = calling.await.unwrap();
    // A question is part of the answer; what came before it wants none.
    assert!(!answer.told("notifications/progress").is_empty());
    let (last, before) = answer.messages.split_last().unwrap();
    assert!(before.iter().all(|message| message.get("id").is_none()), "{before:?}");
    assert!(last.get("method").is_none() && last["result"]["inputRequests"]["where"].is_object(), "{last}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a8_reserved_codes_have_their_own_meaning_only() {
    let stage = Stage::in_memory().await;
    let client = stage.client("planner");
    let get = || client.request("tasks/get", json!({ "taskId": "none" }));
    assert_eq!(get().header("mcp-method", "x").answer().await.refused().code, HEADER_MISMATCH);
    assert_eq!(get().meta(CAPABILITIES, json!({})).answer().await.refused().code, MISSING_CAPABILITY);
    let old = get().meta(VERSION, json!("1999-01-01")).header("mcp-protocol-version", "1999-01-01");
    assert_eq!(old.answer().await.refused().code, UNSUPPORTED_VERSION);
    let known = [PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS];
    let reserved = [HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION];
    for answer in refusals(&stage).await {
        let code = answer.refused().code;
        assert!(known.contains(&code) || reserved.contains(&code), "{answer:?}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a9_codes_of_older_revisions_are_not_used() {
    let stage = Stage::in_memory().await;
    for answer in refusals(&stage).await {
        assert!(![-32002, -32042].contains(&answer.refused().code), "{answer:?}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a12_nothing_is_remembered_from_earlier_requests() {
    let stage = Stage::in_memory().await;
    stage.worker("worker", json!([skill("dig")])).await;
    let client = stage.client("planner");
    let task = client.begin("dig", json!({})).await;
    // What was declared then is not declared now; who asked then does not ask now.
    let undeclared = client.declaring(json!({}));
    assert_eq!(undeclared.refused("tasks/get", json!({ "taskId": task })).await.code, MISSING_CAPABILITY);
    let nobody = stage.nobody().ask("tasks/get", json!({ "taskId": task })).await;
    assert_eq!(nobody.status, 401);
    let lacks = client.request("tasks/get", json!({ "taskId": task })).meta(VERSION, Value::Null);
    assert_eq!(lacks.answer().await.refused().as_pair(), (400, INVALID_PARAMS));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a13_what_lasts_is_found_by_its_id_from_any_connection_and_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::on_disk(dir.path()).await;
    stage.worker("worker", json!([skill("dig")])).await;
    let task = stage.client("planner").begin("dig", json!({})).await;
    // Who was seen is forgotten, and said again when it is known.
    let found = async |stage: &Stage| {
        let mut found = stage.client("planner").get(&task).await;
        found.as_object_mut().unwrap().remove("statusMessage");
        found
    };
    let before = found(&stage).await;
    stage.stop().await;

    let stage = Stage::on_disk(dir.path()).await;
    assert_eq!(found(&stage).await, before);
    stage.stop().await;
}
