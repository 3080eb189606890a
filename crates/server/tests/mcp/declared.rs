//! What the extension declares as checks of its own, and no scenario of its suite makes: section N of the list.

use serde_json::{Value, json};

use super::scene::*;
use super::stage::*;

const UNKNOWN: &str = "9b2c3a40-0000-4000-8000-000000000000";

async fn unknown_is_refused(method: &str) {
    let stage = Stage::in_memory().await;
    let refused = stage.client("planner").refused(method, params(method, UNKNOWN)).await;
    assert_eq!(refused.as_pair(), (200, INVALID_PARAMS));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n_cancel_error_unknown_task_id_is_an_error() {
    unknown_is_refused("tasks/cancel").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n_update_error_unknown_task_id_is_an_error() {
    unknown_is_refused("tasks/update").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n_tasks_update_cancel_invalid_task_id_32602_whatever_the_id_is() {
    let stage = Stage::in_memory().await;
    let planner = stage.client("planner");
    for method in ["tasks/update", "tasks/cancel"] {
        for id in [json!("no uuid"), json!("../../etc"), json!(7), json!({}), Value::Null] {
            let mut params = params(method, UNKNOWN);
            params["taskId"] = id.clone();
            let refused = planner.request(method, params).without("mcp-name").answer().await.refused();
            assert_eq!(refused.as_pair(), (200, INVALID_PARAMS), "{method} {id}");
        }
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n_cancel_not_via_cancelled_notification_but_by_its_method() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    let cancelled = json!({ "requestId": 1, "reason": "changed my mind", "taskId": job.id });
    assert_eq!(planner.notify("notifications/cancelled", cancelled).await.status, 202);
    assert_eq!(planner.get(&job.id).await["status"], "working");
    planner.cancel(&job.id).await;
    assert_eq!(planner.get(&job.id).await["status"], "cancelled");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n_failed_includes_statusmessage_of_the_error() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    job.breaks(-32001, "there is no ground").await;
    assert_eq!(planner.get(&job.id).await["statusMessage"], "there is no ground");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n_failed_status_jsonrpc_only_and_never_for_a_worker_that_failed() {
    let stage = Stage::in_memory().await;
    for result in
        [json!({ "reason": "frozen" }), json!({ "reason": "frozen", "code": "-32603", "retryable": true })]
    {
        let (planner, job) = in_hand(&stage).await;
        job.tool("work_fail", result).await;
        let shown = planner.get(&job.id).await;
        assert_eq!((&shown["status"], &shown["result"]["isError"]), (&json!("completed"), &json!(true)));
        assert!(shown.get("error").is_none());
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n_input_request_key_unique_per_task_and_free_in_another() {
    let stage = Stage::in_memory().await;
    for _ in 0..2 {
        let (planner, job) = in_hand(&stage).await;
        job.asks_for("where", "Where to?").await;
        let again = json!({ "questions": { "where": { "message": "Where?" } }, "wait_ms": 0 });
        assert_eq!(job.try_tool("work_ask", again).await["isError"], true);
        assert_eq!(
            planner.get(&job.id).await["inputRequests"]["where"]["params"]["message"],
            "worker asks: Where to?"
        );
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n_no_key_reuse_after_response_whatever_it_was() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    for (key, response) in
        [("a", says("left")), ("b", json!({ "action": "decline" })), ("c", json!({ "action": "cancel" }))]
    {
        job.asks_for(key, "Where to?").await;
        planner.update(&job.id, json!({ key: response })).await;
        let again = json!({ "questions": { key: { "message": "Where?" } }, "wait_ms": 0 });
        assert_eq!(job.try_tool("work_ask", again).await["isError"], true, "{key}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n_legacy_capability_treated_as_non_declaring_everywhere() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    let legacy = planner
        .declaring(json!({ "tasks": { "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } } }));
    for method in METHODS {
        assert_eq!(
            legacy.refused(method, params(method, &job.id)).await.as_pair(),
            (400, MISSING_CAPABILITY)
        );
    }
    let worker = stage.worker("worker", json!([skill_with(SKILL, json!({ "answers": "task" }))])).await;
    let call = json!({ "name": SKILL, "arguments": {}, "task": { "ttl": 60_000 } });
    assert_eq!(legacy.refused("tools/call", call.clone()).await.as_pair(), (400, MISSING_CAPABILITY));
    // A skill that answers as each caller can answers as if there were no tasks.
    worker.offer(json!([skill(SKILL)])).await;
    let called = tokio::spawn(async move { legacy.ok("tools/call", call).await });
    worker.next().await.completes("a hole").await;
    let returned = in_time(called).await.unwrap();
    assert_eq!((&returned["resultType"], returned.get("taskId")), (&json!("complete"), None));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n_migrate_from_legacy_capabilities_to_the_extension() {
    let stage = Stage::in_memory().await;
    digger(&stage).await;
    let planner = stage.client("planner");
    let capabilities = planner.ok("server/discover", json!({})).await["capabilities"].clone();
    assert_eq!((capabilities.get("tasks"), &capabilities["extensions"][TASKS]), (None, &json!({})));
    // Whoever still says both is taken at the newer word, and the older parameter means nothing.
    let both = planner.declaring(json!({ "tasks": {}, "extensions": { TASKS: {} } }));
    let created =
        both.ok("tools/call", json!({ "name": SKILL, "arguments": {}, "task": { "ttl": 1 } })).await;
    assert_eq!(created["resultType"], "task");
    assert_ne!(created["ttlMs"], 1);
    // In the older revisions nothing is declared, and nothing is served.
    let shaken = stage.handshake("planner", json!({ "tasks": {}, "extensions": { TASKS: {} } })).await;
    let initialized = shaken.ok("initialize", shaken.initialize()).await;
    assert!(initialized["capabilities"].get("tasks").is_none());
    assert!(initialized["capabilities"].get("extensions").is_none());
    for method in METHODS {
        let task = created["taskId"].as_str().unwrap();
        assert_eq!(
            shaken.refused(method, params(method, task)).await.as_pair(),
            (404, NO_METHOD),
            "{method}"
        );
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n_no_progress_or_message_on_task_stream_even_if_asked_for() {
    let stage = Stage::in_memory().await;
    let worker = digger(&stage).await;
    let planner = stage.client("planner");
    let call = planner.request("tools/call", json!({ "name": SKILL, "arguments": {} }));
    let call = call.meta("progressToken", json!(1)).meta(LOG_LEVEL, json!("debug"));
    let task = call.answer().await.result()["taskId"].as_str().unwrap().to_owned();
    let (mut reply, _) = planner.listen(json!({ "taskIds": [task] })).await;
    let job = worker.next().await;
    job.update(json!({ "progress": 1, "log": [{ "level": "alert", "data": "x" }] })).await;
    job.completes("a hole").await;
    loop {
        let message = reply.next().await.unwrap();
        assert_eq!(message["method"], "notifications/tasks");
        if message["params"]["status"] == "completed" {
            break;
        }
    }
    drop(reply);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n_no_task_result_type_on_others_than_what_creates_one() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    for method in
        ["server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list"]
    {
        assert_eq!(planner.ok(method, json!({})).await["resultType"], "complete", "{method}");
    }
    let read = json!({ "uri": format!("task://{}", job.id) });
    assert_eq!(planner.ok("resources/read", read).await["resultType"], "complete");
    assert_eq!(planner.call("task_status", json!({ "task_id": job.id })).await["resultType"], "complete");
    let delegated = json!({ "title": "t", "instructions": "i", "agent": "worker" });
    assert_eq!(planner.call("delegate_task", delegated).await["resultType"], "complete");
    job.asks_for("where", "Where to?").await;
    planner.pause(&job.id).await;
    for method in ["tasks/get", "tasks/steer", "tasks/resume", "tasks/update", "tasks/pause", "tasks/cancel"]
    {
        assert_eq!(planner.ok(method, params(method, &job.id)).await["resultType"], "complete", "{method}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n_subscribe_missing_capability_non_declaring_is_refused() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    let listen = json!({ "notifications": { "taskIds": [job.id] } });
    let refused = planner.declaring(json!({ "tasks": {} })).refused("subscriptions/listen", listen).await;
    assert_eq!(refused.as_pair(), (400, MISSING_CAPABILITY));
    assert_eq!(refused.data["requiredCapabilities"]["extensions"][TASKS], json!({}));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n_tasks_get_status_cancelled_carries_nothing_else() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    job.asks_for("where", "Where to?").await;
    planner.cancel(&job.id).await;
    let shown = planner.get(&job.id).await;
    assert_eq!(shown["status"], "cancelled");
    for payload in ["inputRequests", "result", "error"] {
        assert!(shown.get(payload).is_none(), "{shown}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n_update_ignore_unknown_keys_and_take_the_others() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    job.asks_for("where", "Where to?").await;
    let responses = json!({ "nowhere": says("x"), "where": says("left"), "": 7 });
    assert_eq!(planner.update(&job.id, responses).await, ack());
    let orders = job.checkpoint().await["orders"].clone();
    assert_eq!(orders[0]["answers"], json!({ "where": { "action": "accept", "content": "left" } }));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n_result_type_complete_on_get_in_every_status() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    assert_eq!(planner.get(&job.id).await["resultType"], "complete");
    for (status, planner, job) in ended(&stage).await {
        assert_eq!(planner.get(&job.id).await["resultType"], "complete", "{status}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n_result_type_complete_on_update_and_nothing_else() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    let answer = planner.ask("tasks/update", params("tasks/update", &job.id)).await;
    assert_eq!((answer.status, answer.result()), (200, ack()));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n_result_type_complete_on_cancel_and_nothing_else() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    let answer = planner.ask("tasks/cancel", params("tasks/cancel", &job.id)).await;
    assert_eq!((answer.status, answer.result()), (200, ack()));
    stage.stop().await;
}
