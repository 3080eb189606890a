//! Section L: the older revisions; and what real clients do, which no revision says: rows `interop`.

use handover_desk::caller::Caller;
use handover_desk::identity::Identity;
use handover_kernel::Face;
use serde_json::{Value, json};

use super::macp::database;
use super::stage::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l1_initialize_answers_with_the_same_revision_or_the_newest_of_the_kind() {
    let stage = Stage::in_memory().await;
    let client = stage.client("planner");
    for (asked, answered) in [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2025-03-26", "2025-03-26"),
        ("2024-11-05", "2025-11-25"),
        ("2030-01-01", "2025-11-25"),
        ("", "2025-11-25"),
    ] {
        let params = json!({ "protocolVersion": asked, "capabilities": {}, "clientInfo": { "name": "x", "version": "1" } });
        let request =
            client.request("initialize", json!({})).set("params", params).without("mcp-protocol-version");
        let said = request.without("mcp-method").answer().await.result();
        assert_eq!(said["protocolVersion"], answered, "{asked}");
        assert!(said["capabilities"]["tools"].is_object() && said["serverInfo"]["name"] == "handover");
        assert_eq!((said.get("resultType"), said.get("ttlMs")), (None, None));
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l2_a_client_says_that_it_is_ready() {
    let stage = Stage::in_memory().await;
    let client = stage.handshake("planner", json!({})).await;
    let told = client.notify("notifications/initialized", json!({})).await;
    assert_eq!((told.status, &*told.text), (202, ""));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l3_a_stream_tells_of_changed_tools_and_of_the_resources_that_are_followed() {
    let stage = Stage::in_memory().await;
    let client = stage.handshake("planner", json!({})).await;
    let get = || client.request("ping", json!({})).by("GET").header("accept", "text/event-stream");
    let mut stream = get().send().await;
    assert!(stream.status == 200 && stream.streams());
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    assert_eq!(stream.next_of("notifications/tools/list_changed").await, json!({}));

    let task =
        client.tool("delegate_task", json!({ "title": "t", "instructions": "i", "agent": "worker" })).await;
    let uri = format!("task://{}", task["task_id"].as_str().unwrap());
    client.ok("resources/subscribe", json!({ "uri": uri })).await;
    let job = worker.next().await;
    assert_eq!(stream.next_of("notifications/resources/updated").await, json!({ "uri": uri }));
    client.ok("resources/unsubscribe", json!({ "uri": uri })).await;
    // The next thing that it hears of is not the task.
    job.says("on it").await;
    worker.offer(json!([skill("dig"), skill("build")])).await;
    loop {
        let told = stream.next().await.unwrap();
        if told["method"] == "notifications/tools/list_changed" {
            break;
        }
        assert_eq!(told["params"]["uri"], uri.as_str(), "what happened before it was taken back");
    }
    // A task that it may not see is not followed, and looks like none.
    let hidden = stage
        .client("outsider")
        .tool("delegate_task", json!({ "title": "t", "instructions": "i", "agent": "helper" }))
        .await;
    let hidden = format!("task://{}", hidden["task_id"].as_str().unwrap());
    client.ok("resources/subscribe", json!({ "uri": hidden })).await;
    assert_eq!(
        client.refused("resources/subscribe", json!({ "uri": "file:///x" })).await.code,
        INVALID_PARAMS
    );

    for (refused, status) in [
        (get().header("accept", "application/json"), 405),
        (get().without("accept"), 405),
        (get().without("mcp-session-id"), 405),
        (get().header("mcp-protocol-version", MODERN), 405),
        (get().without("authorization"), 401),
        (get().header("origin", "http://evil.example"), 403),
    ] {
        assert_eq!(refused.send().await.status, status);
    }
    stage.begin_stop();
    assert!(stream.next().await.is_none(), "it ends with the server");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l4_a_session_is_visible_ascii_and_never_ends() {
    let stage = Stage::in_memory().await;
    let client = stage.handshake("planner", json!({ "elicitation": {}, "sampling": {} })).await;
    let session = client.session.clone().unwrap();
    assert!(!session.is_empty() && session.bytes().all(|byte| byte.is_ascii_graphic()), "{session}");
    let bytes = client.request("ping", json!({})).header("connection", "close").bytes();
    let delete = String::from_utf8(bytes).unwrap().replacen("POST", "DELETE", 1);
    assert!(raw(stage.address, delete.as_bytes()).await.starts_with("HTTP/1.1 405 "));
    client.ok("ping", json!({})).await;
    // It carries what the client can do and is no credential: none, and one that was made up, are as good.
    client.request("ping", json!({})).without("mcp-session-id").answer().await.result();
    client.request("ping", json!({})).header("mcp-session-id", "made up").answer().await.result();
    assert_eq!(client.request("ping", json!({})).without("authorization").answer().await.status, 401);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l5_a_revision_that_is_not_spoken_is_refused_and_none_is_the_oldest() {
    let stage = Stage::in_memory().await;
    let client = stage.handshake("planner", json!({})).await;
    for version in ["1999-01-01", "x", ""] {
        let wrong = client.request("ping", json!({})).header("mcp-protocol-version", version);
        assert_eq!(wrong.answer().await.refused().status, 400, "{version:?}");
        let told = client.request("notifications/initialized", json!({})).set("id", Value::Null);
        assert_eq!(told.header("mcp-protocol-version", version).answer().await.status, 400, "{version:?}");
    }
    client.request("ping", json!({})).without("mcp-protocol-version").answer().await.result();
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l6_who_hangs_up_takes_nothing_back() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let client = stage.handshake("planner", json!({})).await;
    let call = || client.request("tools/call", json!({ "name": "dig", "_meta": { "progressToken": 1 } }));
    let connection = call().on_the_wire().await;
    let silent = worker.next().await;
    drop(connection);
    let calling = tokio::spawn(call().send());
    let job = worker.next().await;
    job.update(json!({ "progress": 1 })).await;
    let mut reply = calling.await.unwrap();
    reply.next_of("notifications/progress").await;
    drop(reply);
    for job in [silent, job] {
        assert_eq!(job.says("digging").await["ended"], false);
        job.completes("dug").await;
        let status = client.tool("task_status", json!({ "task_id": job.id })).await;
        assert_eq!(status["status"], "completed");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l7_ping_and_levels_work() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let _working = worker.plays(|job| async move {
        let line = |level: &str| json!({ "level": level, "data": level });
        job.update(json!({ "log": [line("debug"), line("info"), line("error")] })).await;
        job.completes("dug").await;
    });
    let client = stage.handshake("planner", json!({})).await;
    assert_eq!(client.ok("ping", json!({})).await, json!({}));
    for (level, heard) in
        [("debug", &["debug", "info", "error"][..]), ("error", &["error"]), ("emergency", &[])]
    {
        assert_eq!(client.ok("logging/setLevel", json!({ "level": level })).await, json!({}));
        let answer = client.ask("tools/call", json!({ "name": "dig" })).await;
        let lines = answer.told("notifications/message");
        let levels: Vec<&str> = lines.iter().map(|line| line["level"].as_str().unwrap()).collect();
        assert_eq!(levels, heard, "{level}");
    }
    assert_eq!(client.refused("logging/setLevel", json!({ "level": "loud" })).await.code, INVALID_PARAMS);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_session_wants_to_be_told_at_one_node_counts_at_the_others() {
    let mut stores = database::shared(2).into_iter();
    let mut next = async || {
        let store = stores.next().unwrap();
        Stage::with(move |set| set.store = store).await
    };
    let (one, two) = (next().await, next().await);
    let worker = one.worker("worker", json!([skill("dig")])).await;
    let client = one.handshake("planner", json!({})).await;
    let mut there = two.client("planner");
    (there.session, there.version) = (client.session.clone(), client.version);
    let get = there.request("ping", json!({})).by("GET").header("accept", "text/event-stream");
    let mut stream = get.send().await;
    assert!(stream.streams());
    let task =
        client.tool("delegate_task", json!({ "title": "t", "instructions": "i", "agent": "worker" })).await;
    let uri = format!("task://{}", task["task_id"].as_str().unwrap());
    client.ok("resources/subscribe", json!({ "uri": uri })).await;
    let job = worker.next().await;
    let begun = tokio::spawn(async move { stream.next_of("notifications/resources/updated").await });
    // It may take a moment until the other node knows.
    while !begun.is_finished() {
        job.says("on it").await;
    }
    assert_eq!(begun.await.unwrap(), json!({ "uri": uri }));
    job.completes("dug").await;

    let _working = worker.plays(|job| async move {
        job.update(json!({ "log": [{ "level": "debug", "data": "deep" }] })).await;
        job.completes("dug").await;
    });
    client.ok("logging/setLevel", json!({ "level": "debug" })).await;
    in_time(async {
        while there.ask("tools/call", json!({ "name": "dig" })).await.told("notifications/message").is_empty()
        {
        }
    })
    .await;
    two.stop().await;
    one.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_session_wants_to_be_told_counts_at_a_node_that_starts_later() {
    let mut stores = database::shared(2).into_iter();
    let mut next = async || {
        let store = stores.next().unwrap();
        Stage::with(move |set| set.store = store).await
    };
    let one = next().await;
    let worker = one.worker("worker", json!([skill("dig")])).await;
    let client = one.handshake("planner", json!({})).await;
    let begin = json!({ "title": "t", "instructions": "i", "agent": "worker" });
    let task = client.tool("delegate_task", begin).await;
    let uri = format!("task://{}", task["task_id"].as_str().unwrap());
    client.ok("resources/subscribe", json!({ "uri": uri })).await;
    client.ok("logging/setLevel", json!({ "level": "debug" })).await;
    let job = worker.next().await;

    let two = next().await;
    let mut there = two.client("planner");
    (there.session, there.version) = (client.session.clone(), client.version);
    let listen = |client: &Client| {
        client.request("ping", json!({})).by("GET").header("accept", "text/event-stream").send()
    };
    let mut stream = listen(&there).await;
    let told = tokio::spawn(async move { stream.next_of("notifications/resources/updated").await });
    // What happens before the stream has begun to follow it is not told.
    while !told.is_finished() {
        job.says("on it").await;
    }
    assert_eq!(told.await.unwrap(), json!({ "uri": uri }));
    job.completes("dug").await;
    let _working = worker.plays(|job| async move {
        job.update(json!({ "log": [{ "level": "debug", "data": "deep" }] })).await;
        job.completes("dug").await;
    });
    let answer = there.ask("tools/call", json!({ "name": "dig" })).await;
    assert!(!answer.told("notifications/message").is_empty());
    // Another agent that knows the session's id hears of nothing that it may not see, and does not change what is told.
    let mut other = two.client("outsider");
    (other.session, other.version) = (client.session.clone(), client.version);
    other.ok("resources/unsubscribe", json!({ "uri": uri })).await;
    let planner = Identity::Development.authenticate(Some("planner")).unwrap();
    let planner = Caller::new(planner, Face::Mcp);
    let wanted = two.desk.wishing(&planner, client.session.as_deref().unwrap()).next().await;
    assert_eq!(wanted.into_iter().collect::<Vec<_>>(), [uri]);
    two.stop().await;
    one.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l9_questions_are_requests_on_the_stream_of_the_call() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let client = stage.handshake("planner", json!({ "elicitation": {}, "sampling": {} })).await;
    let calling = tokio::spawn(client.request("tools/call", json!({ "name": "dig" })).send());
    let job = worker.next().await;
    let sampling = json!({ "method": "sampling/createMessage", "params": { "messages": [{ "role": "user", "content": { "type": "text", "text": "x" } }], "maxTokens": 9 } });
    job.asks(json!({ "model": { "request": sampling }, "where": { "message": "where?" } })).await;
    let mut reply = calling.await.unwrap();
    let model = reply.next().await.unwrap();
    assert_eq!(
        (&model["method"], &model["params"]["maxTokens"]),
        (&json!("sampling/createMessage"), &json!(9))
    );
    let form = reply.next().await.unwrap();
    assert_eq!(
        (&form["method"], &form["params"]["message"]),
        (&json!("elicitation/create"), &json!("worker asks: where?"))
    );
    // Who was not asked cannot answer, and what does not fit is no answer.
    let thief = stage.handshake("outsider", json!({ "elicitation": {} })).await;
    let here = json!({ "action": "accept", "content": { "answer": "here" } });
    let refused = thief.respond(&form["id"], here.clone()).await;
    assert_eq!(refused.refused().as_pair(), (400, INVALID_PARAMS));
    assert_eq!(client.respond(&form["id"], json!({ "action": "maybe" })).await.status, 400);
    assert_eq!(client.respond(&json!("never asked"), here.clone()).await.status, 400);
    assert_eq!(client.respond(&form["id"], here).await.status, 202);
    let said = json!({ "role": "assistant", "model": "m", "content": { "type": "text", "text": "dig" } });
    assert_eq!(client.respond(&model["id"], said).await.status, 202);
    let mut answers = Vec::new();
    while answers.len() < 2 {
        let orders = job.tool("work_checkpoint", json!({ "wait_ms": 60_000 })).await;
        for order in orders["orders"].as_array().unwrap() {
            answers.extend(order["answers"].as_object().unwrap().keys().cloned());
        }
    }
    assert_eq!(answers, ["where", "model"]);
    job.completes("dug").await;
    assert_eq!(reply.next().await.unwrap()["result"]["content"][0]["text"], "dug");
    assert_eq!(reply.next().await, None);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l10_the_tasks_of_the_older_revision_are_not_served() {
    let stage = Stage::in_memory().await;
    let client = stage.handshake("planner", json!({ "tasks": {} })).await;
    for method in ["tasks/get", "tasks/list", "tasks/result", "tasks/cancel"] {
        assert_eq!(
            client.refused(method, json!({ "taskId": "x" })).await.as_pair(),
            (404, NO_METHOD),
            "{method}"
        );
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l11_every_handshake_revision_can_hand_out_work() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let _working = worker.plays(|job| async move {
        job.completes("dug").await;
    });
    for version in ["2025-11-25", "2025-06-18", "2025-03-26"] {
        let client = Client::handshake(stage.address, "planner", version, json!({})).await;
        assert_eq!(client.call("dig", json!({})).await["content"][0]["text"], "dug", "{version}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l12_results_look_as_they_did_then() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let _working = worker.plays(|job| async move {
        job.completes("dug").await;
    });
    let client = stage.handshake("planner", json!({})).await;
    for (method, params) in [
        ("tools/list", json!({})),
        ("tools/call", json!({ "name": "dig" })),
        ("tools/call", json!({ "name": "agent_list" })),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("prompts/list", json!({})),
        ("prompts/get", json!({ "name": "work" })),
    ] {
        let result = client.ok(method, params).await;
        for newer in ["resultType", "ttlMs", "cacheScope", "_meta"] {
            assert_eq!(result.get(newer), None, "{method}");
        }
    }
    let refused = client.refused("resources/read", json!({ "uri": "task://none" })).await;
    assert_eq!(refused.as_pair(), (200, -32002));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interop1_a_task_method_without_its_name_in_the_headers_is_taken_unless_told_otherwise() {
    for strict in [false, true] {
        let stage = Stage::with(|set| set.face.strict_headers = strict).await;
        stage.worker("worker", json!([skill("dig")])).await;
        let client = stage.client("planner");
        let task = client.begin("dig", json!({})).await;
        for (method, more) in [
            ("tasks/get", json!({})),
            ("tasks/update", json!({ "inputResponses": {} })),
            ("tasks/steer", json!({ "message": "deeper" })),
            ("tasks/pause", json!({})),
            ("tasks/resume", json!({})),
            ("tasks/cancel", json!({})),
        ] {
            let mut params = json!({ "taskId": task });
            for (key, value) in more.as_object().unwrap() {
                params[key] = value.clone();
            }
            let request = || client.request(method, params.clone());
            let wrong = request().header("mcp-name", "another").answer().await.refused();
            assert_eq!(wrong.as_pair(), (400, HEADER_MISMATCH), "{method}");
            let absent = request().without("mcp-name").answer().await;
            if strict {
                assert_eq!(absent.refused().as_pair(), (400, HEADER_MISMATCH), "{method}");
                request().answer().await.result();
            } else {
                absent.result();
            }
        }
        stage.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interop2_paused_is_shown_only_to_those_who_know_it() {
    let stage = Stage::in_memory().await;
    stage.worker("worker", json!([skill("dig")])).await;
    let client = stage.client("planner");
    let task = client.begin("dig", json!({})).await;
    client.ok("tasks/pause", json!({ "taskId": task })).await;
    assert_eq!(client.declaring(interaction()).get(&task).await["status"], "paused");
    let shown = client.get(&task).await;
    assert_eq!(shown["status"], "working");
    assert!(shown["statusMessage"].as_str().unwrap().contains("paused"), "{shown}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interop3_acknowledgements_say_nothing_more() {
    let stage = Stage::in_memory().await;
    stage.worker("worker", json!([skill("dig")])).await;
    let client = stage.client("planner");
    let task = client.begin("dig", json!({})).await;
    for (method, params) in [
        ("tasks/update", json!({ "taskId": task, "inputResponses": {} })),
        ("tasks/steer", json!({ "taskId": task, "message": "deeper" })),
        ("tasks/cancel", json!({ "taskId": task })),
    ] {
        assert_eq!(client.ok(method, params).await, json!({ "resultType": "complete" }), "{method}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interop4_steering_is_declared_beside_the_tasks_extension() {
    let stage = Stage::in_memory().await;
    let client = stage.client("planner");
    let extensions = client.ok("server/discover", json!({})).await["capabilities"]["extensions"].clone();
    assert_eq!(extensions[TASKS], json!({}));
    assert_eq!(extensions["dev.handover/task-interaction"], json!({ "steer": true, "pause": true }));
    // Who says that it knows them finds them where the draft has them.
    let knowing = client.declaring(interaction()).ok("server/discover", json!({})).await;
    assert_eq!(knowing["capabilities"]["extensions"][TASKS], json!({ "steer": true, "pause": true }));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interop5_a_handshake_that_names_the_stateless_revision_is_answered_with_the_newest_other() {
    let stage = Stage::in_memory().await;
    let client = stage.client("planner");
    let params = json!({ "protocolVersion": MODERN, "capabilities": {}, "clientInfo": { "name": "x", "version": "1" } });
    let request = || client.request("initialize", json!({})).set("params", params.clone());
    for request in [request().without("mcp-protocol-version"), request()] {
        let answer = request.answer().await;
        assert_eq!(answer.result()["protocolVersion"], "2025-11-25");
        assert!(answer.headers.contains_key("mcp-session-id"));
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interop6_who_knows_no_tasks_can_do_everything_with_tools() {
    let stage = Stage::with(|set| set.waits.plain = std::time::Duration::ZERO).await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    for client in [stage.client("planner").declaring(json!({})), stage.handshake("planner", json!({})).await]
    {
        let handle = client.call("dig", json!({})).await;
        let task = handle["structuredContent"]["task_id"].as_str().unwrap().to_owned();
        let on = |more: Value| {
            let mut arguments = json!({ "task_id": task });
            for (key, value) in more.as_object().unwrap() {
                arguments[key] = value.clone();
            }
            arguments
        };
        let job = worker.next().await;
        client.tool("task_steer", on(json!({ "message": "deeper" }))).await;
        assert_eq!(job.checkpoint().await["orders"][0]["message"], "deeper");
        job.asks_for("where", "where?").await;
        let asked = client.tool("task_wait", on(json!({}))).await;
        assert!(asked["questions"]["where"].is_object());
        let answers = json!({ "where": { "action": "accept", "content": { "answer": "here" } } });
        client.tool("task_answer", on(json!({ "answers": answers }))).await;
        client.tool("task_pause", on(json!({}))).await;
        job.checkpoint_now().await;
        assert_eq!(client.tool("task_status", on(json!({}))).await["status"], "paused");
        client.tool("task_resume", on(json!({}))).await;
        job.completes("dug").await;
        let ended = client.tool("task_wait", on(json!({}))).await;
        assert_eq!(ended["result"]["content"][0]["text"], "dug");
    }
    stage.stop().await;
}
