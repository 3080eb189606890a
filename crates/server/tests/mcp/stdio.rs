//! Two pipes instead of a connection.

use std::time::{Duration, Instant};

use handover_server::face::mcp::caller::Wishes;
use handover_server::face::mcp::stdio;
use serde_json::{Value, json};

use super::pipes::{Pipes, call};
use super::stage::*;

/// A client of the server at two pipes.
fn pipes(stage: &Stage, token: &'static str) -> Pipes {
    let mcp = stage.mcp.clone();
    Pipes::to(|input, output| async move {
        stdio::serve(mcp, Some(token), Wishes::default(), input, output).await
    })
}

/// A client that declares forms, and no tasks.
fn plain(stage: &Stage) -> Client {
    stage.client("planner").declaring(json!({ "elicitation": {} }))
}

#[tokio::test]
async fn e1_one_message_a_line_whatever_is_in_it() {
    let stage = Stage::in_memory().await;
    let client = stage.client("planner");
    let mut pipes = pipes(&stage, "planner");
    let text = "one\ntwo\r\nthree\u{2028}four\u{85}\u{0}";
    let said = json!({ "name": "Planner", "description": text });
    pipes.ask(call(&client, "agent_register", said)).await;
    // Empty lines, and lines that end as others write them, are no harm.
    pipes.write("\n  \r\n").await;
    let request = stage.client("worker").request("tools/call", json!({ "name": "agent_list" }));
    pipes.write(format!("{}\r\n", request.body)).await;
    let (answer, told) = pipes.answer_to(&request.id()).await;
    let shown = "one\ntwo\nthree\nfour\n";
    assert_eq!(answer["result"]["structuredContent"]["agents"][0]["description"], shown);
    assert!(told.is_empty());
    assert!(pipes.close().await.is_empty());
}

#[tokio::test]
async fn e1_what_is_no_message_is_refused_and_the_next_one_is_read() {
    let stage = Stage::in_memory().await;
    let mut pipes = pipes(&stage, "planner");
    let long = [b"\"".as_slice(), &vec![b'x'; 3 * 1024 * 1024], b"\""].concat();
    let wrong: [(&[u8], i64); 6] = [
        (b"{", PARSE_ERROR),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", PARSE_ERROR),
        (b"[]", INVALID_REQUEST),
        (b"\"text\"", INVALID_REQUEST),
        (b"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}", INVALID_REQUEST),
        (&long, INVALID_REQUEST),
    ];
    for (line, code) in wrong {
        pipes.write(line).await;
        pipes.write("\n").await;
        let answer = pipes.next().await.unwrap();
        assert_eq!((&answer["error"]["code"], answer.get("id")), (&json!(code), None), "{answer}");
    }
    pipes.ask(stage.client("planner").request("tools/list", json!({}))).await;
    // The last line needs no end.
    let last = stage.client("planner").request("prompts/list", json!({}));
    pipes.write(last.body.to_string()).await;
    let rest = pipes.close().await;
    assert_eq!((rest.len(), &rest[0]["id"]), (1, &last.id()));
}

#[tokio::test]
async fn e2_a_question_is_an_answer_and_never_a_request() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let client = plain(&stage);
    let mut pipes = pipes(&stage, "planner");
    let id = pipes.request(call(&client, "dig", json!({}))).await;
    let job = worker.next().await;
    job.asks_for("where", "Where?").await;
    let (answer, told) = pipes.answer_to(&id).await;
    let asked = &answer["result"];
    assert_eq!((&asked["resultType"], told.len()), (&json!("input_required"), 0), "{asked}");
    assert_eq!(asked["inputRequests"]["where"]["method"], "elicitation/create");

    let responses = json!({ "where": { "action": "accept", "content": { "answer": "here" } } });
    let again = json!({
        "name": "dig", "arguments": {}, "requestState": asked["requestState"], "inputResponses": responses,
    });
    let id = pipes.request(client.request("tools/call", again)).await;
    job.completes("done").await;
    let (answer, told) = pipes.answer_to(&id).await;
    assert_eq!(answer["result"]["content"][0]["text"], "done", "{answer}");
    assert!(told.is_empty(), "{told:?}");
}

#[tokio::test]
async fn a_client_that_has_shaken_hands_hears_of_changed_tools_and_of_what_it_follows() {
    let stage = Stage::in_memory().await;
    let mut pipes = pipes(&stage, "planner");
    let initialize = json!({ "protocolVersion": "2025-06-18", "capabilities": {} });
    pipes.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize })).await;
    let (answer, _) = pipes.answer_to(&json!(1)).await;
    assert_eq!(answer["result"]["capabilities"]["tools"]["listChanged"], true);
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    assert_eq!(pipes.next().await.unwrap()["method"], "notifications/tools/list_changed");
    let task = stage.client("planner").begin("dig", json!({})).await;
    let uri = format!("task://{task}");
    pipes
        .send(
            &json!({ "jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": { "uri": uri } }),
        )
        .await;
    let (answer, _) = pipes.answer_to(&json!(2)).await;
    assert_eq!(answer["result"], json!({}));
    let job = worker.next().await;
    job.completes("done").await;
    assert_eq!(pipes.next().await.unwrap()["params"], json!({ "uri": uri }));
    stage.stop().await;
}

#[tokio::test]
async fn e2_only_a_client_that_has_shaken_hands_is_asked() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let mut pipes = pipes(&stage, "planner");
    let initialize = json!({ "protocolVersion": "2025-11-25", "capabilities": { "elicitation": {} }, "clientInfo": { "name": "play", "version": "1" } });
    pipes.send(&json!({ "jsonrpc": "2.0", "id": "i", "method": "initialize", "params": initialize })).await;
    let (answer, _) = pipes.answer_to(&json!("i")).await;
    assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
    pipes.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    let params = json!({ "name": "dig", "arguments": {} });
    pipes.send(&json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params })).await;
    let job = worker.next().await;
    job.asks_for("where", "Where?").await;
    let asked = pipes.next().await.unwrap();
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    let reply = json!({ "action": "accept", "content": { "answer": "here" } });
    pipes.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": reply })).await;
    let orders = job.tool("work_checkpoint", json!({ "wait_ms": 20_000 })).await;
    assert_eq!(orders["orders"][0]["kind"], "answer", "{orders}");
    job.completes("done").await;
    let (answer, _) = pipes.answer_to(&json!(2)).await;
    assert_eq!(answer["result"]["content"][0]["text"], "done", "{answer}");
}

#[tokio::test]
async fn e3_a_cancelled_request_is_stopped_and_never_answered() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let mut pipes = pipes(&stage, "planner");
    let id = pipes.request(call(&plain(&stage), "dig", json!({}))).await;
    let job = worker.next().await;
    pipes.cancel(&id).await;
    stage.client("planner").until_status(&job.id, "cancelled").await;
    assert_eq!(job.try_tool("work_complete", json!({ "text": "done" })).await["isError"], true);
    let listen = stage.client("planner").request("subscriptions/listen", json!({ "notifications": {} }));
    let listening = pipes.request(listen).await;
    assert_eq!(
        pipes.next().await.unwrap()["method"],
        "notifications/subscriptions/acknowledged",
        "nothing comes before"
    );
    pipes.cancel(&listening).await;
    pipes.ask(stage.client("planner").request("tools/list", json!({}))).await;
    let rest = pipes.close().await;
    assert!(rest.is_empty(), "{rest:?}");
}

#[tokio::test]
async fn e3_a_client_that_shook_hands_takes_its_call_back_as_well() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let mut pipes = pipes(&stage, "planner");
    let params = json!({ "name": "dig", "arguments": {} });
    pipes.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })).await;
    let job = worker.next().await;
    pipes.cancel(&json!(1)).await;
    stage.client("planner").until_status(&job.id, "cancelled").await;
    assert!(pipes.close().await.is_empty());
}

#[tokio::test]
async fn e3_taking_back_what_is_not_under_way_changes_nothing() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let mut pipes = pipes(&stage, "planner");
    let id = pipes.request(call(&plain(&stage), "dig", json!({}))).await;
    let job = worker.next().await;
    for unknown in [json!(999_999), json!(id.to_string()), json!(null), json!({}), json!([id])] {
        pipes.cancel(&unknown).await;
    }
    pipes.write("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\"}\n").await;
    job.completes("done").await;
    let (answer, told) = pipes.answer_to(&id).await;
    assert_eq!((&answer["result"]["content"][0]["text"], told.len()), (&json!("done"), 0), "{answer}");
    pipes.cancel(&id).await;
    assert!(pipes.close().await.is_empty());
}

#[tokio::test]
async fn e4_the_end_of_input_ends_it_whatever_is_under_way() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let client = plain(&stage);
    let mut pipes = pipes(&stage, "planner");
    pipes.request(client.request("subscriptions/listen", json!({ "notifications": {} }))).await;
    pipes.request(call(&client, "dig", json!({}))).await;
    let job = worker.next().await;
    let began = Instant::now();
    pipes.close().await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    // Nobody waits for the call any more.
    stage.client("planner").until_status(&job.id, "cancelled").await;
}

#[tokio::test]
async fn e4_what_was_asked_before_the_end_of_input_is_answered() {
    let stage = Stage::in_memory().await;
    let client = stage.client("planner");
    let mut pipes = pipes(&stage, "planner");
    let mut asked = Vec::new();
    for _ in 0..10 {
        asked.push(pipes.request(client.request("prompts/list", json!({}))).await);
        asked.push(pipes.request(call(&client, "agent_list", json!({}))).await);
    }
    let mut answered: Vec<Value> = pipes.close().await.iter().map(|message| message["id"].clone()).collect();
    answered.sort_by_key(Value::as_i64);
    assert_eq!(answered, asked);
}

#[tokio::test]
async fn e5_discover_may_come_first() {
    let stage = Stage::in_memory().await;
    let mut pipes = pipes(&stage, "planner");
    let found = pipes.ask(stage.client("planner").request("server/discover", json!({}))).await;
    assert_eq!(found["supportedVersions"][0], MODERN);
    assert_eq!(found["resultType"], "complete");
    // So may anything else: each request stands for itself.
    let mut other = self::pipes(&stage, "planner");
    other.ask(stage.client("planner").request("tools/list", json!({}))).await;
}

#[tokio::test]
async fn e5_an_unknown_revision_is_refused_so_that_a_client_can_tell() {
    let stage = Stage::in_memory().await;
    let mut pipes = pipes(&stage, "planner");
    let probe = stage.client("planner").request("server/discover", json!({}));
    let error = pipes.refused(probe.clone().meta(VERSION, json!("2099-01-01"))).await;
    assert_eq!(error["code"], UNSUPPORTED_VERSION);
    assert_eq!(
        (&error["data"]["requested"], &error["data"]["supported"][0]),
        (&json!("2099-01-01"), &json!(MODERN))
    );
    let error = pipes.refused(probe.meta(CAPABILITIES, Value::Null).set("id", json!("again"))).await;
    assert_eq!(error["code"], INVALID_PARAMS);
    let unknown = pipes.refused(stage.client("planner").request("no/such", json!({}))).await;
    assert_eq!(unknown["code"], NO_METHOD);
}

#[tokio::test]
async fn e6_subscriptions_share_the_pipe_each_tagged_and_acknowledged_first() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let client = stage.client("planner");
    let task = client.begin("dig", json!({})).await;
    let job = worker.next().await;
    let mut pipes = pipes(&stage, "planner");
    let listen = |id: Value| {
        let filter = json!({ "notifications": { "taskIds": [task] } });
        client.request("subscriptions/listen", filter).set("id", id)
    };
    let ids = [json!(41), json!("forty-two")];
    for id in &ids {
        pipes.request(listen(id.clone())).await;
        let first = pipes.next().await.unwrap();
        assert_eq!(first["method"], "notifications/subscriptions/acknowledged", "{first}");
        assert_eq!(first["params"]["_meta"][SUBSCRIPTION], *id);
        assert_eq!(first["params"]["notifications"]["taskIds"], json!([task]));
    }
    job.completes("done").await;
    let asked = pipes.request(client.request("tools/list", json!({}))).await;
    let mut told: Vec<Value> = Vec::new();
    let mut answered = false;
    while told.len() < 2 || !answered {
        let message = pipes.next().await.unwrap();
        match message["method"].as_str() {
            Some(method) => {
                assert_eq!(
                    (method, &message["params"]["status"]),
                    ("notifications/tasks", &json!("completed"))
                );
                told.push(message["params"]["_meta"][SUBSCRIPTION].clone());
            }
            None => {
                assert_eq!(message["id"], asked);
                answered = true;
            }
        }
    }
    told.sort_by_key(Value::is_string);
    assert_eq!(told, ids);
}

#[tokio::test]
async fn e7_a_subscription_that_the_server_ends_is_told_and_answered() {
    let stage = Stage::in_memory().await;
    let mut pipes = pipes(&stage, "planner");
    let listen = stage.client("planner").request("subscriptions/listen", json!({ "notifications": {} }));
    let id = pipes.request(listen).await;
    assert!(pipes.next().await.unwrap()["params"]["_meta"].is_object());
    stage.begin_stop();
    let told = pipes.next().await.unwrap();
    assert_eq!((&told["method"], &told["params"]["requestId"]), (&json!("notifications/cancelled"), &id));
    let last = pipes.next().await.unwrap();
    assert_eq!((&last["id"], &last["result"]["_meta"][SUBSCRIPTION]), (&id, &id), "{last}");
    assert_eq!(last["result"]["resultType"], "complete");
    assert!(pipes.next().await.is_none());
    pipes.end().await;
}

#[tokio::test]
async fn a_thousand_requests_at_once_are_all_answered() {
    let stage = Stage::in_memory().await;
    let client = stage.client("planner");
    let mut pipes = pipes(&stage, "planner");
    let mut input = pipes.input.take().unwrap();
    let writing = tokio::spawn(async move {
        for _ in 0..500 {
            for request in [client.request("prompts/list", json!({})), call(&client, "agent_list", json!({}))]
            {
                let line = format!("{}\n", request.body);
                tokio::io::AsyncWriteExt::write_all(&mut input, line.as_bytes()).await.unwrap();
            }
        }
        input
    });
    let mut answered = std::collections::BTreeSet::new();
    while answered.len() < 1000 {
        let message = pipes.next().await.unwrap();
        assert!(message.get("result").is_some(), "{message}");
        assert!(answered.insert(message["id"].as_i64().unwrap()), "answered twice: {message}");
    }
    pipes.input = Some(in_time(writing).await.unwrap());
    assert!(pipes.close().await.is_empty());
}

#[tokio::test]
async fn one_call_too_many_is_refused_until_another_is_taken_back() {
    let stage = Stage::in_memory().await;
    let client = stage.client("planner");
    let mut pipes = pipes(&stage, "planner");
    let listen = || client.request("subscriptions/listen", json!({ "notifications": {} }));
    let mut first = None;
    for _ in 0..1000 {
        let id = pipes.request(listen()).await;
        first.get_or_insert(id);
        assert!(pipes.next().await.unwrap()["method"].is_string());
    }
    assert_eq!(pipes.refused(listen()).await["code"], INTERNAL_ERROR);
    // What is short has places of its own.
    pipes.ask(client.request("tools/list", json!({}))).await;
    pipes.cancel(&first.unwrap()).await;
    until_taken(&mut pipes, &client).await;
}

/// A place is free as soon as the call that had it has ended.
async fn until_taken(pipes: &mut Pipes, client: &Client) {
    in_time(async {
        loop {
            pipes.request(client.request("subscriptions/listen", json!({ "notifications": {} }))).await;
            if pipes.next().await.unwrap()["method"].is_string() {
                return;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn an_id_that_is_under_way_is_not_taken_twice() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let mut pipes = pipes(&stage, "planner");
    let request = call(&plain(&stage), "dig", json!({}));
    let id = pipes.request(request.clone()).await;
    let job = worker.next().await;
    assert_eq!(pipes.refused(request).await["code"], INVALID_REQUEST);
    job.completes("done").await;
    let (answer, _) = pipes.answer_to(&id).await;
    assert_eq!(answer["result"]["content"][0]["text"], "done");
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_up_nobody() {
    let stage = Stage::in_memory().await;
    let client = stage.client("planner");
    let mut pipes = pipes(&stage, "planner");
    let mut input = pipes.input.take().unwrap();
    // It asks until nothing fits into the pipes any more.
    let asking = tokio::spawn(async move {
        loop {
            let line = format!("{}\n", client.request("tools/list", json!({})).body);
            if tokio::io::AsyncWriteExt::write_all(&mut input, line.as_bytes()).await.is_err() {
                return;
            }
        }
    });
    for _ in 0..20 {
        stage.client("worker").ok("tools/list", json!({})).await;
    }
    assert!(!asking.is_finished());
    stage.begin_stop();
    // What was asked is not waited for, and what was not read is not written.
    pipes.end().await;
    in_time(asking).await.unwrap();
}

#[tokio::test]
async fn whoever_is_nobody_is_not_served() {
    let stage = Stage::with(|set| set.identity = tokens()).await;
    let (input, output) = (tokio::io::BufReader::new(tokio::io::empty()), tokio::io::sink());
    let refused = stdio::serve(stage.mcp.clone(), Some("stranger"), Wishes::default(), input, output)
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    assert!(!refused.to_string().contains("stranger"), "{refused}");
}

#[tokio::test]
async fn whoever_starts_the_server_says_which_tools_its_host_is_shown() {
    let stage = Stage::in_memory().await;
    let mcp = stage.mcp.clone();
    let wishes = Wishes::of(Some("profile=worker")).ok().unwrap();
    let mut pipes =
        Pipes::to(
            |input, output| async move { stdio::serve(mcp, Some("worker"), wishes, input, output).await },
        );
    let listed = pipes.ask(stage.client("worker").request("tools/list", json!({}))).await;
    let names: Vec<&str> =
        listed["tools"].as_array().unwrap().iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert!(names.contains(&"work_next") && !names.contains(&"delegate_task"), "{names:?}");
    let opened = pipes.ask(Client::modern(stage.address, None).request("server/discover", json!({}))).await;
    assert!(!opened["instructions"].as_str().unwrap().contains("delegate_task"), "{opened}");
    assert!(pipes.close().await.is_empty());
    stage.stop().await;
}

#[tokio::test]
async fn a_client_that_may_not_be_told_of_changes_has_one_answer_to_its_opening() {
    let stage = Stage::with(|set| set.limits.streams_max = 1).await;
    let client = stage.handshake("worker", json!({})).await;
    let mut pipes = pipes(&stage, "worker");
    pipes.ask(client.request("initialize", client.initialize())).await;
    // The place that there is has the opening of before.
    let refused = pipes.refused(client.request("initialize", client.initialize())).await;
    assert!(refused.is_object(), "{refused}");
    assert!(pipes.close().await.is_empty(), "a request has one answer");
    stage.stop().await;
}
