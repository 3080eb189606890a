//! Section G: how a task begins, and how it looks then.

use serde_json::{Value, json};

use super::stage::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_only_who_declares_the_extension_in_this_request_is_given_a_task() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let _working = worker.plays(|job| async move {
        job.completes("dug").await;
    });
    let client = stage.client("planner");
    assert_eq!(client.call("dig", json!({})).await["resultType"], "task");
    for declared in [json!({}), json!({ "elicitation": {} }), json!({ "extensions": {} })] {
        assert_eq!(client.declaring(declared).call("dig", json!({})).await["resultType"], "complete");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_a_call_that_takes_long_without_the_extension_answers_with_a_handle() {
    let stage = Stage::with(|set| set.waits.plain = std::time::Duration::ZERO).await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let client = stage.client("planner").declaring(json!({}));
    let handle = client.call("dig", json!({})).await;
    assert_eq!((&handle["resultType"], handle.get("taskId")), (&json!("complete"), None));
    let task = handle["structuredContent"]["task_id"].clone();
    assert!(handle["content"][0]["text"].as_str().unwrap().contains(task.as_str().unwrap()));
    worker.next().await.completes("dug").await;
    let ended = client.tool("task_wait", json!({ "task_id": task })).await;
    assert_eq!(ended["result"]["content"][0]["text"], "dug");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g2_what_is_only_served_as_a_task_names_the_extension() {
    let stage = Stage::in_memory().await;
    stage.worker("worker", json!([skill_with("build", json!({ "answers": "task" }))])).await;
    let client = stage.client("planner");
    let before = stage.written();
    let refused = client.declaring(json!({})).refused("tools/call", json!({ "name": "build" })).await;
    assert_eq!(refused.as_pair(), (400, MISSING_CAPABILITY));
    assert_eq!(refused.data["requiredCapabilities"]["extensions"], json!({ TASKS: {} }));
    assert_eq!(stage.written(), before);
    assert_eq!(client.call("build", json!({})).await["resultType"], "task");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g3_a_skill_may_answer_at_once_all_the_same() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill_with("dig", json!({ "answers": "at_once" }))])).await;
    let _working = worker.plays(|job| async move {
        job.completes("dug").await;
    });
    let answer = stage.client("planner").call("dig", json!({})).await;
    assert_eq!((&answer["resultType"], &answer["content"][0]["text"]), (&json!("complete"), &json!("dug")));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g4_only_calls_of_tools_become_tasks() {
    let stage = Stage::in_memory().await;
    stage.worker("worker", json!([skill("dig")])).await;
    let client = stage.client("planner");
    let task = client.begin("dig", json!({})).await;
    let before = stage.written();
    for (method, params) in [
        ("prompts/get", json!({ "name": "work", "task": { "ttl": 1 } })),
        ("resources/read", json!({ "uri": format!("task://{task}"), "task": {} })),
        ("tools/list", json!({ "task": {} })),
        ("server/discover", json!({ "task": {} })),
    ] {
        assert_eq!(client.ok(method, params).await["resultType"], "complete", "{method}");
    }
    assert_eq!(stage.written(), before);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g5_a_created_task_is_flat_and_nothing_else_is_called_so() {
    let stage = Stage::in_memory().await;
    stage.worker("worker", json!([skill("dig")])).await;
    let client = stage.client("planner");
    let created = client.call("dig", json!({})).await;
    assert_eq!((&created["resultType"], &created["status"]), (&json!("task"), &json!("working")));
    let task = created["taskId"].as_str().unwrap();
    for (method, params) in [
        ("tasks/get", json!({ "taskId": task })),
        ("tasks/update", json!({ "taskId": task, "inputResponses": {} })),
        ("tasks/pause", json!({ "taskId": task })),
        ("tasks/resume", json!({ "taskId": task })),
        ("tasks/cancel", json!({ "taskId": task })),
        ("tools/call", json!({ "name": "task_status", "arguments": { "task_id": task } })),
    ] {
        assert_eq!(client.ok(method, params).await["resultType"], "complete", "{method}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g6_a_created_task_has_these_fields_and_no_others() {
    let stage = Stage::in_memory().await;
    stage.worker("worker", json!([skill("dig")])).await;
    let mut created = stage.client("planner").call("dig", json!({})).await;
    let fields = created.as_object_mut().unwrap();
    let mut take = |name: &str| fields.remove(name).unwrap_or_else(|| panic!("expected {name}"));
    assert!(take("taskId").is_string() && take("createdAt").is_string() && take("lastUpdatedAt").is_string());
    assert!(take("ttlMs").as_u64().unwrap() > 0 && take("pollIntervalMs").as_u64().unwrap() > 0);
    assert_eq!((take("resultType"), take("status")), (json!("task"), json!("working")));
    assert!(take("statusMessage").is_string() && take("_meta").is_object());
    assert_eq!(created, json!({}));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g6_a_task_that_may_take_for_ever_says_so() {
    let stage = Stage::with(|set| set.face.ttl_ms = None).await;
    stage.worker("worker", json!([skill("dig")])).await;
    let created = stage.client("planner").call("dig", json!({})).await;
    assert_eq!(created.get("ttlMs"), Some(&Value::Null));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g7_a_task_is_on_disk_before_anybody_hears_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::on_disk(dir.path()).await;
    stage.worker("worker", json!([skill("dig")])).await;
    let client = stage.client("planner");
    for _ in 0..20 {
        let created = client.call("dig", json!({})).await;
        let found = client.get(created["taskId"].as_str().unwrap()).await;
        assert_eq!(found["createdAt"], created["createdAt"]);
    }
    let task = client.begin("dig", json!({})).await;
    stage.stop().await;
    let stage = Stage::on_disk(dir.path()).await;
    assert_eq!(stage.client("planner").get(&task).await["status"], "working");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g8_a_skill_that_asks_first_becomes_a_task_after_its_questions() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill_with("dig", json!({ "asks_first": true }))])).await;
    let client = stage.client("planner");
    let call = |more: Value| {
        let mut params = json!({ "name": "dig", "arguments": { "deep": true } });
        for (key, value) in more.as_object().unwrap() {
            params[key] = value.clone();
        }
        tokio::spawn(client.request("tools/call", params).answer())
    };
    let first = call(json!({}));
    let job = worker.next().await;
    job.asks_for("where", "where?").await;
    let asked = first.await.unwrap().result();
    assert_eq!(asked["resultType"], "input_required");
    let accepted = json!({ "action": "accept", "content": { "answer": "here" } });
    let second =
        call(json!({ "requestState": asked["requestState"], "inputResponses": { "where": accepted } }));
    // The answer is an order; what the worker says next begins the task.
    let orders = job.tool("work_checkpoint", json!({ "wait_ms": 60_000 })).await;
    assert_eq!(orders["orders"][0]["answers"]["where"]["content"], "here");
    job.says("digging").await;
    let created = second.await.unwrap().result();
    assert_eq!((&created["resultType"], &created["taskId"]), (&json!("task"), &json!(job.id)));
    assert_eq!(client.get(&job.id).await.get("inputRequests"), None);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g9_the_task_parameter_of_older_revisions_is_passed_over() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let _working = worker.plays(|job| async move {
        job.completes("dug").await;
    });
    let client = stage.client("planner");
    let call = json!({ "name": "dig", "arguments": {}, "task": { "ttl": 5 } });
    let created = client.ok("tools/call", call.clone()).await;
    assert!(created["ttlMs"].as_u64().unwrap() > 5);
    let plain = client.declaring(json!({})).ok("tools/call", call.clone()).await;
    assert_eq!((&plain["resultType"], &plain["content"][0]["text"]), (&json!("complete"), &json!("dug")));
    let older =
        stage.handshake("planner", json!({ "tasks": { "requests": { "tools": { "call": {} } } } })).await;
    let plain = older.ok("tools/call", call).await;
    assert_eq!((&plain["content"][0]["text"], plain.get("task")), (&json!("dug"), None));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g10_the_tasks_capability_of_older_revisions_declares_nothing() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let _working = worker.plays(|job| async move {
        job.completes("dug").await;
    });
    let declared = json!({ "tasks": { "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } } });
    let client = stage.client("planner").declaring(declared);
    assert_eq!(client.call("dig", json!({})).await["resultType"], "complete");
    let refused = client.refused("tasks/get", json!({ "taskId": "x" })).await;
    assert_eq!(refused.as_pair(), (400, MISSING_CAPABILITY));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g11_a_handshake_that_declares_the_extension_enables_nothing() {
    let stage = Stage::in_memory().await;
    let skills = json!([skill("dig"), skill_with("build", json!({ "answers": "task" }))]);
    let worker = stage.worker("worker", skills).await;
    let _working = worker.plays(|job| async move {
        job.completes("dug").await;
    });
    let client = stage.handshake("planner", interaction()).await;
    for skill in ["dig", "build"] {
        let plain = client.call(skill, json!({})).await;
        assert_eq!((&plain["content"][0]["text"], plain.get("taskId")), (&json!("dug"), None), "{skill}");
    }
    for method in ["tasks/get", "tasks/update", "tasks/cancel", "tasks/steer", "subscriptions/listen"] {
        let refused = client.refused(method, json!({ "taskId": "x" })).await;
        assert_eq!(refused.as_pair(), (404, NO_METHOD), "{method}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g14_times_have_three_digits_after_the_second() {
    let stage = Stage::in_memory().await;
    stage.worker("worker", json!([skill("dig")])).await;
    let created = stage.client("planner").call("dig", json!({})).await;
    for field in ["createdAt", "lastUpdatedAt"] {
        let shape: String = created[field]
            .as_str()
            .unwrap()
            .chars()
            .map(|letter| if letter.is_ascii_digit() { '0' } else { letter })
            .collect();
        assert_eq!(shape, "0000-00-00T00:00:00.000Z");
    }
    stage.stop().await;
}
