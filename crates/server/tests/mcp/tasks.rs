//! The methods of the tasks extension: section H of the list.

use std::collections::BTreeSet;
use std::sync::Arc;

use handover_desk::identity::DEFAULT_TENANT;
use handover_engine::Settings;
use handover_engine::clock::now;
use handover_store::SessionKey;
use serde_json::{Value, json};

use super::scene::*;
use super::stage::*;

const UNKNOWN: &str = "9b2c3a40-0000-4000-8000-000000000000";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h1_without_the_extension_every_method_is_refused() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    let before = stage.written();
    for capabilities in
        [json!({}), json!({ "elicitation": {}, "extensions": { "dev.handover/task-interaction": {} } })]
    {
        let stranger = planner.declaring(capabilities);
        for method in METHODS {
            let refused = stranger.refused(method, params(method, &job.id)).await;
            assert_eq!(refused.as_pair(), (400, MISSING_CAPABILITY), "{method}");
            assert_eq!(
                refused.data,
                json!({ "requiredCapabilities": { "extensions": { TASKS: {} } }, "code": "MISSING_CAPABILITY", "help": "/errors/MISSING_CAPABILITY" })
            );
        }
    }
    assert_eq!(stage.written(), before);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2_an_unknown_task_is_a_wrong_parameter() {
    let stage = Stage::in_memory().await;
    let planner = stage.client("planner");
    for id in [UNKNOWN, "", "task://x", "\u{1f573}"] {
        for method in METHODS {
            let request = planner.request(method, params(method, id)).without("mcp-name");
            let refused = request.answer().await.refused();
            assert_eq!(refused.as_pair(), (200, INVALID_PARAMS), "{method} {id:?}");
            assert_eq!(refused.message, "there is no such task");
        }
    }
    for method in METHODS {
        for wrong in [json!({}), json!({ "taskId": 7 }), json!({ "taskId": null })] {
            assert_eq!(planner.refused(method, wrong).await.as_pair(), (200, INVALID_PARAMS), "{method}");
        }
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2_a_task_past_its_time_is_unknown_once_it_is_deleted() {
    let store = empty_store();
    let kept = Arc::clone(&store);
    let stage = Stage::with(|set| set.store = kept).await;
    let (_, job) = in_hand(&stage).await;
    job.completes("a hole").await;
    stage.stop().await;
    let key = SessionKey::new(DEFAULT_TENANT, job.id.as_str());
    let finished_at = store.row(&key).unwrap().unwrap().finished_at.unwrap();
    until(async || now().0 > finished_at + 60).await;
    // An engine deletes what is past its time as soon as it starts.
    let settings = Settings { retention_ms: Some(50), ..Settings::default() };
    let kept = Arc::clone(&store);
    let stage = Stage::with(|set| (set.store, set.engine) = (kept, settings)).await;
    until(async || store.head(&key).unwrap().is_none()).await;
    let planner = stage.client("planner");
    for method in METHODS {
        let refused = planner.refused(method, params(method, &job.id)).await;
        assert_eq!(refused.as_pair(), (200, INVALID_PARAMS), "{method}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_each_request_is_authenticated_and_authorised() {
    let stage = Stage::with(|set| set.identity = tokens()).await;
    let (planner, job) = in_hand(&stage).await;
    let before = stage.written();
    for method in METHODS {
        assert_eq!(stage.nobody().ask(method, params(method, &job.id)).await.status, 401, "{method}");
        let forged = stage.client("nobody's token").ask(method, params(method, &job.id)).await;
        assert_eq!(forged.status, 401, "{method}");
        // To have the id is not to have the task.
        for token in ["outsider", "helper", "elsewhere"] {
            let refused = stage.client(token).refused(method, params(method, &job.id)).await;
            assert_eq!(refused.as_pair(), (200, INVALID_PARAMS), "{method} by {token}");
        }
    }
    // Whoever does the work may look at it, and no more.
    assert_eq!(job.client.get(&job.id).await["status"], "working");
    job.asks_for("where", "Where to?").await;
    let after_asking = stage.written();
    for method in METHODS.into_iter().filter(|method| *method != "tasks/get") {
        let refused = job.client.refused(method, params(method, &job.id)).await;
        assert_eq!(refused.as_pair(), (200, INVALID_PARAMS), "{method}");
    }
    assert_eq!(stage.written(), after_asking);
    assert!(after_asking > before);
    assert_eq!(planner.get(&job.id).await["status"], "input_required");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h4_task_ids_cannot_be_guessed() {
    let stage = Stage::in_memory().await;
    let planner = stage.client("planner");
    digger(&stage).await;
    let mut ids = BTreeSet::new();
    for _ in 0..20 {
        let id = planner.begin(SKILL, json!({})).await;
        assert_eq!((id.len(), &id[14..15]), (36, "4"), "{id}");
        ids.insert(id);
    }
    assert_eq!(ids.len(), 20);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h5_each_status_carries_what_belongs_to_it() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    let payloads = |shown: &Value| {
        assert_eq!(shown["resultType"], "complete");
        let has = |key: &&&str| shown.get(**key).is_some();
        ["inputRequests", "result", "error"].iter().filter(has).copied().collect::<Vec<_>>().join(",")
    };
    assert_eq!(payloads(&planner.get(&job.id).await), "");
    job.asks(json!({ "where": { "message": "Where to?" }, "why": { "message": "Why?" } })).await;
    job.asks_for("when", "When?").await;
    let shown = planner.get(&job.id).await;
    assert_eq!((payloads(&shown).as_str(), asked(&shown)), ("inputRequests", vec!["when", "where", "why"]));
    let expected = [("completed", "result"), ("failed", "error"), ("cancelled", "")];
    for ((status, planner, job), (expected_status, payload)) in ended(&stage).await.into_iter().zip(expected)
    {
        let shown = planner.get(&job.id).await;
        assert_eq!((status, payloads(&shown).as_str()), (expected_status, payload));
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h6_failed_is_for_broken_calls_alone() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    job.fails("the ground is frozen").await;
    let shown = planner.get(&job.id).await;
    assert_eq!((&shown["status"], &shown["result"]["isError"]), (&json!("completed"), &json!(true)));
    assert_eq!(shown["result"]["content"][0]["text"], "the ground is frozen");

    let (planner, job) = in_hand(&stage).await;
    let result = json!({ "content": [{ "type": "text", "text": "half a hole" }], "isError": true });
    job.completes_with(json!({ "result": result })).await;
    let shown = planner.get(&job.id).await;
    assert_eq!((&shown["status"], &shown["result"]["isError"]), (&json!("completed"), &json!(true)));

    let (planner, job) = in_hand(&stage).await;
    job.breaks(-32001, "there is no ground").await;
    let shown = planner.get(&job.id).await;
    assert_eq!(shown["status"], "failed");
    assert_eq!(shown["error"], json!({ "code": -32001, "message": "there is no ground" }));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h7_a_failed_task_has_an_error_and_says_why() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    let error = json!({ "code": -32001, "message": "there is no ground", "data": { "depth": 0 } });
    job.tool("work_fail", json!({ "reason": "no ground", "protocol_error": error })).await;
    let shown = planner.get(&job.id).await;
    assert_eq!((&shown["status"], &shown["error"]), (&json!("failed"), &error));
    assert_eq!(shown["statusMessage"], "there is no ground");
    assert!(shown.get("result").is_none());
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h8_the_result_is_what_the_call_would_have_returned() {
    let stage = Stage::in_memory().await;
    let worker = digger(&stage).await;
    let planner = stage.client("planner");
    let results = [
        json!({ "text": "a hole" }),
        json!({ "output": { "depth": 3 } }),
        json!({ "output": [1, 2] }),
        json!({ "result": {
            "content": [{ "type": "image", "data": "aG9sZQ==", "mimeType": "image/png" }, { "type": "text", "text": "a hole" }],
            "structuredContent": { "depth": 3 },
            "_meta": { "example.org/spade": 1 },
        } }),
        json!({ "result": { "content": [{ "type": "text", "text": "no" }], "isError": true } }),
    ];
    for result in results {
        let task = planner.begin(SKILL, json!({})).await;
        worker.next().await.completes_with(result.clone()).await;
        let shown = planner.get(&task).await["result"].clone();

        let plain = planner.declaring(json!({}));
        let called = tokio::spawn(async move { plain.call(SKILL, json!({})).await });
        worker.next().await.completes_with(result).await;
        let mut returned = in_time(called).await.unwrap();
        let meta = returned["_meta"].as_object_mut().unwrap();
        // Who answered is said of the answer, not of the result.
        meta.remove(SERVER_INFO).unwrap();
        if meta.is_empty() {
            returned.as_object_mut().unwrap().remove("_meta");
        }
        assert_eq!(shown, returned);
        assert_eq!(shown["resultType"], "complete");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h9_the_result_bears_no_mark_of_its_task() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    let marked = json!({
        "content": [{ "type": "text", "text": "a hole" }],
        "_meta": { "io.modelcontextprotocol/related-task": { "taskId": job.id }, "example.org/spade": 1 },
    });
    job.completes_with(json!({ "result": marked })).await;
    let shown = planner.get(&job.id).await;
    assert_eq!(shown["result"]["_meta"], json!({ "example.org/spade": 1 }));
    assert!(!shown.to_string().contains("related-task"));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h10_a_task_fails_when_its_time_has_passed_and_not_before() {
    let stage = Stage::with(|set| set.face.ttl_ms = Some(300)).await;
    let planner = stage.client("planner");
    digger(&stage).await;
    let task = planner.begin(SKILL, json!({})).await;
    assert_eq!(planner.get(&task).await["ttlMs"], 300);
    let shown = planner.until_status(&task, "failed").await;
    let millis = |field: &str| {
        let text = shown[field].as_str().unwrap();
        let seconds: f64 = text[17..23].parse().unwrap();
        let minutes: f64 = text[14..16].parse().unwrap();
        minutes * 60_000.0 + seconds * 1000.0
    };
    let lived = (millis("lastUpdatedAt") - millis("createdAt")).rem_euclid(3_600_000.0);
    assert!(lived > 299.5, "{shown}");
    assert_eq!(shown["error"]["code"], INTERNAL_ERROR);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h12_a_key_is_never_used_twice() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    job.asks_for("where", "Where to?").await;
    for _ in 0..2 {
        let again = json!({ "questions": { "where": { "message": "And now?" } }, "wait_ms": 0 });
        let refused = job.try_tool("work_ask", again).await;
        assert_eq!(refused["isError"], true);
        assert!(refused["content"][0]["text"].as_str().unwrap().contains("QUESTION_KEY_USED"), "{refused}");
        // Open the first time, answered the second.
        planner.update(&job.id, json!({ "where": says("left") })).await;
    }
    job.asks_for("where-then", "And now?").await;
    assert_eq!(asked(&planner.get(&job.id).await), ["where-then"]);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h13_only_what_the_client_declared_is_asked() {
    let stage = Stage::in_memory().await;
    let everything = json!({ "elicitation": { "form": {}, "url": {} }, "sampling": {}, "roots": {}, "extensions": { TASKS: {} } });
    let form = json!({ "method": "elicitation/create", "params": { "mode": "form", "message": "m", "requestedSchema": { "type": "object", "properties": { "n": { "type": "integer" } } } } });
    let url = json!({ "method": "elicitation/create", "params": { "mode": "url", "message": "m", "url": "https://example.org/x", "elicitationId": "e" } });
    let sampling = json!({ "method": "sampling/createMessage", "params": { "messages": [{ "role": "user", "content": { "type": "text", "text": "x" } }], "maxTokens": 5 } });
    let roots = json!({ "method": "roots/list" });
    let all = [("form", &form), ("url", &url), ("sampling", &sampling), ("roots", &roots)];

    let (planner, job) = in_hand_of(&stage, &stage.client("planner").declaring(everything)).await;
    let questions: Value =
        all.iter().map(|(key, request)| ((*key).to_owned(), json!({ "request": request }))).collect();
    job.asks(questions).await;
    let shown = planner.get(&job.id).await;
    for (key, request) in all {
        // As it was asked, and with who asks.
        let mut expected = request.clone();
        if let Some(params) = expected.get_mut("params") {
            if params.get("message").is_some() {
                params["message"] = json!("worker asks: m");
            }
            params["_meta"] = json!({ "dev.handover/askedBy": { "kind": "agent", "id": "worker" } });
        }
        assert_eq!(shown["inputRequests"][key], expected);
    }
    // Each request says anew what its client can do.
    for (capabilities, keys) in [
        (json!({ "elicitation": {}, "extensions": { TASKS: {} } }), vec!["form"]),
        (json!({ "elicitation": { "url": {} }, "extensions": { TASKS: {} } }), vec!["url"]),
        (json!({ "sampling": {}, "extensions": { TASKS: {} } }), vec!["sampling"]),
        (json!({ "roots": {}, "sampling": {}, "extensions": { TASKS: {} } }), vec!["roots", "sampling"]),
        (json!({ "extensions": { TASKS: {} } }), vec![]),
    ] {
        let shown = planner.declaring(capabilities).get(&job.id).await;
        assert_eq!(asked(&shown), keys);
        assert_eq!(shown["status"], if keys.is_empty() { "working" } else { "input_required" });
        assert!(shown["statusMessage"].as_str().unwrap().starts_with("worker asks: "));
    }

    // A worker cannot ask a client for what that did not declare when it called.
    let (_, job) = in_hand(&stage).await;
    for (key, request) in [("url", &url), ("sampling", &sampling), ("roots", &roots)] {
        let ask = json!({ "questions": { key: { "request": request } }, "wait_ms": 0 });
        assert_eq!(job.try_tool("work_ask", ask).await["isError"], true, "{key}");
    }
    let unknown = json!({ "questions": { "x": { "request": { "method": "tools/list" } } }, "wait_ms": 0 });
    assert_eq!(job.try_tool("work_ask", unknown).await["isError"], true);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h14_update_acknowledges_and_says_nothing_more() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    job.asks_for("where", "Where to?").await;
    assert_eq!(planner.update(&job.id, json!({ "where": says("left") })).await, ack());
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h15_keys_that_nobody_waits_for_are_passed_over() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    job.asks_for("where", "Where to?").await;
    planner.update(&job.id, json!({ "where": says("left") })).await;
    let before = stage.written();
    for responses in
        [json!({}), json!({ "nowhere": says("x") }), json!({ "where": says("right") }), json!({ "where": 7 })]
    {
        assert_eq!(planner.update(&job.id, responses).await, ack());
    }
    assert_eq!(stage.written(), before);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h16_some_may_be_answered_now_and_some_later() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    job.asks(json!({ "where": { "message": "Where to?" }, "why": { "message": "Why?" } })).await;
    planner.update(&job.id, json!({ "why": says("because"), "other": says("x") })).await;
    let shown = planner.get(&job.id).await;
    assert_eq!((&shown["status"], asked(&shown)), (&json!("input_required"), vec!["where"]));
    planner.update(&job.id, json!({ "where": says("left") })).await;
    let shown = planner.get(&job.id).await;
    assert_eq!((&shown["status"], shown.get("inputRequests")), (&json!("working"), None));
    let orders = job.checkpoint().await["orders"].clone();
    let answers: Vec<&Value> = orders.as_array().unwrap().iter().map(|order| &order["answers"]).collect();
    let accepted = |text: &str| json!({ "action": "accept", "content": text });
    assert_eq!(answers, [&json!({ "why": accepted("because") }), &json!({ "where": accepted("left") })]);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h17_answers_are_checked_and_a_no_is_an_answer() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    let schema = json!({ "type": "object", "properties": { "depth": { "type": "integer", "minimum": 1 } }, "required": ["depth"] });
    let deep = json!({ "message": "How deep?", "schema": schema });
    job.asks(json!({ "a": deep, "b": deep, "c": deep })).await;
    let before = stage.written();
    let accept = |content: Value| json!({ "action": "accept", "content": content });
    for wrong in [
        accept(json!({})),
        accept(json!({ "depth": 0 })),
        accept(json!("deep")),
        json!({ "action": "perhaps" }),
        json!(3),
    ] {
        // All or nothing: the good one beside it is not taken either.
        let responses = json!({ "a": wrong, "b": accept(json!({ "depth": 2 })) });
        let update = json!({ "taskId": job.id, "inputResponses": responses });
        let refused = planner.refused("tasks/update", update).await;
        assert_eq!(refused.as_pair(), (200, INVALID_PARAMS), "{wrong}");
        assert!(refused.message.contains("inputResponses.a"), "{}", refused.message);
    }
    assert_eq!(stage.written(), before);
    let responses = json!({ "a": accept(json!({ "depth": 2 })), "b": { "action": "decline" }, "c": { "action": "cancel" } });
    planner.update(&job.id, responses).await;
    let told = json!({ "a": accept(json!({ "depth": 2 })), "b": { "action": "decline" }, "c": { "action": "cancel" } });
    assert_eq!(job.checkpoint().await["orders"][0]["answers"], told);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h18_cancel_acknowledges_and_says_nothing_more() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    assert_eq!(planner.cancel(&job.id).await, ack());
    planner.until_status(&job.id, "cancelled").await;
    // The worker hears of it when it next says something.
    let told = job.says("half").await;
    assert_eq!((&told["ended"], &told["status"]), (&json!(true), &json!("cancelled")));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h19_cancelling_what_has_ended_is_acknowledged() {
    let stage = Stage::in_memory().await;
    for (status, planner, job) in ended(&stage).await {
        let before = stage.written();
        assert_eq!(planner.cancel(&job.id).await, ack(), "{status}");
        assert_eq!(stage.written(), before, "{status}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h20_what_has_ended_stays_as_it_is() {
    let stage = Stage::in_memory().await;
    let mut all = ended(&stage).await;
    let planner = stage.client("planner");
    let worker = digger(&stage).await;
    let short = json!({ "title": "t", "instructions": "i", "agent": "worker", "ttl_ms": 1 });
    let delegated = planner.tool("delegate_task", short).await;
    let id = delegated["task_id"].as_str().unwrap().to_owned();
    let job = Job { client: worker.client, id, shown: delegated };
    planner.until_status(&job.id, "failed").await;
    all.push(("expired", planner, job));
    for (status, planner, job) in all {
        let shown = planner.get(&job.id).await;
        let before = stage.written();
        for method in METHODS {
            planner.ask(method, params(method, &job.id)).await;
        }
        for (tool, arguments) in [
            ("work_update", json!({ "message": "more" })),
            ("work_checkpoint", json!({})),
            ("work_ask", json!({ "questions": { "late": { "message": "Late?" } }, "wait_ms": 0 })),
            ("work_hold", json!({ "reason": "late" })),
            ("work_complete", json!({ "text": "another hole" })),
            ("work_fail", json!({ "reason": "late" })),
            ("work_decline", json!({ "reason": "late" })),
            ("work_accept", json!({})),
        ] {
            job.try_tool(tool, arguments).await;
        }
        assert_eq!(planner.get(&job.id).await, shown, "{status}");
        assert_eq!(stage.written(), before, "{status}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h21_a_cancelled_notification_cancels_no_task() {
    let stage = Stage::in_memory().await;
    let worker = digger(&stage).await;
    let planner = stage.client("planner");
    let request = planner.request("tools/call", json!({ "name": SKILL, "arguments": {} }));
    let id = request.id();
    let task = request.answer().await.result()["taskId"].as_str().unwrap().to_owned();
    let before = stage.written();
    for params in
        [json!({ "requestId": id }), json!({ "requestId": id, "taskId": task }), json!({ "taskId": task })]
    {
        assert_eq!(planner.notify("notifications/cancelled", params).await.status, 202);
    }
    assert_eq!(stage.written(), before);
    assert_eq!(planner.get(&task).await["status"], "working");
    worker.next().await.completes("a hole").await;
    assert_eq!(planner.get(&task).await["status"], "completed");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h22_methods_of_the_older_tasks_are_not_there() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    for method in ["tasks/result", "tasks/list", "tasks/delete"] {
        let refused = planner.refused(method, json!({ "taskId": job.id })).await;
        assert_eq!(refused.as_pair(), (404, NO_METHOD), "{method}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h23_progress_and_log_lines_of_a_task_are_told_nowhere() {
    let stage = Stage::in_memory().await;
    let worker = digger(&stage).await;
    let planner = stage.client("planner");
    let wants = |request: Request| request.meta("progressToken", json!("p")).meta(LOG_LEVEL, json!("debug"));
    let call = planner.request("tools/call", json!({ "name": SKILL, "arguments": {} }));
    let created = wants(call).answer().await;
    assert_eq!(created.messages.len(), 1);
    let task = created.result()["taskId"].as_str().unwrap().to_owned();
    let job = worker.next().await;
    job.update(
        json!({ "progress": 1, "total": 2, "log": [{ "level": "error", "data": "the spade broke" }] }),
    )
    .await;
    for method in METHODS {
        let answer = wants(planner.request(method, params(method, &task))).answer().await;
        assert!(!answer.streamed && answer.messages.len() == 1, "{method}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h24_a_name_that_is_given_must_be_the_task_id() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    for method in METHODS {
        let request = || planner.request(method, params(method, UNKNOWN));
        for wrong in [job.id.as_str(), "", "=?base64?%%?="] {
            let refused = request().header("mcp-name", wrong).answer().await.refused();
            assert_eq!(refused.as_pair(), (400, HEADER_MISMATCH), "{method} {wrong:?}");
        }
        // There are clients that send none.
        assert_eq!(request().without("mcp-name").answer().await.refused().as_pair(), (200, INVALID_PARAMS));
        assert_eq!(request().answer().await.refused().as_pair(), (200, INVALID_PARAMS));
    }
    stage.stop().await;
    let stage = Stage::with(|set| set.face.strict_headers = true).await;
    let planner = stage.client("planner");
    for method in METHODS {
        let request = planner.request(method, params(method, UNKNOWN)).without("mcp-name");
        assert_eq!(request.answer().await.refused().as_pair(), (400, HEADER_MISMATCH), "{method}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h25_a_task_of_others_looks_like_one_that_is_not_there() {
    let stage = Stage::with(|set| set.identity = tokens()).await;
    let (_, job) = in_hand(&stage).await;
    let outsider = stage.client("outsider");
    for method in METHODS {
        let foreign = outsider.refused(method, params(method, &job.id)).await;
        assert_eq!(foreign, outsider.refused(method, params(method, UNKNOWN)).await, "{method}");
        assert!(!foreign.message.is_empty());
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h26_reserved_names_are_used_for_what_they_are_reserved_for() {
    let stage = Stage::in_memory().await;
    let planner = stage.client("planner");
    for method in ["tasks/", "tasks/answer", "tasks/wait", "tasks/timeline", "tasks/commit", "tasks/GET"] {
        assert_eq!(planner.refused(method, json!({ "taskId": UNKNOWN })).await.as_pair(), (404, NO_METHOD));
    }
    // What we add is advertised under a name of our own.
    let found = planner.ok("server/discover", json!({})).await;
    let names: Vec<&str> =
        found["capabilities"]["extensions"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names, ["dev.handover/task-interaction", TASKS]);
    stage.stop().await;
}
