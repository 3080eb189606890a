//! Section I: a call that asks before it answers, in rounds. Each row is called `mrtr` and its number.

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::stage::*;

/// Calls `dig` as a client that cannot follow tasks, with more parameters.
fn dig(client: &Client, more: &Value) -> JoinHandle<Answer> {
    let mut params = json!({ "name": "dig", "arguments": { "deep": true } });
    for (key, value) in more.as_object().unwrap() {
        params[key] = value.clone();
    }
    tokio::spawn(client.request("tools/call", params).answer())
}

fn plain(stage: &Stage) -> Client {
    stage.client("planner").declaring(json!({ "elicitation": {} }))
}

fn accept(content: Value) -> Value {
    json!({ "action": "accept", "content": content })
}

/// A call that asks `where` and `when`, and what it was answered with.
async fn asked(stage: &Stage) -> (Worker, Job, Value) {
    let worker = stage.worker("worker", json!([skill("dig"), skill("fill")])).await;
    let call = dig(&plain(stage), &json!({}));
    let job = worker.next().await;
    job.asks(json!({ "where": { "message": "where?" }, "when": { "message": "when?" } })).await;
    let asked = call.await.unwrap().result();
    assert_eq!(asked["resultType"], "input_required");
    (worker, job, asked)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mrtr1_only_a_call_is_answered_with_questions() {
    let stage = Stage::in_memory().await;
    let (_worker, job, _) = asked(&stage).await;
    let client = stage.client("planner");
    for (method, params) in [
        ("tools/list", json!({})),
        ("prompts/get", json!({ "name": "work" })),
        ("resources/read", json!({ "uri": format!("task://{}", job.id) })),
        ("tasks/get", json!({ "taskId": job.id })),
        ("tasks/update", json!({ "taskId": job.id, "inputResponses": {} })),
        ("server/discover", json!({})),
    ] {
        assert_eq!(client.ok(method, params).await["resultType"], "complete", "{method}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mrtr2_questions_come_with_the_state_to_go_on_from() {
    let stage = Stage::in_memory().await;
    let (_worker, job, asked) = asked(&stage).await;
    assert!(asked["inputRequests"].is_object() && asked["requestState"].is_string());
    let responses =
        json!({ "where": accept(json!({ "answer": "here" })), "when": accept(json!({ "answer": "now" })) });
    let more = json!({ "requestState": asked["requestState"], "inputResponses": responses });
    let call = dig(&plain(&stage), &more);
    let orders = job.tool("work_checkpoint", json!({ "wait_ms": 60_000 })).await;
    assert_eq!(orders["orders"][0]["answers"].as_object().unwrap().len(), 2, "{orders}");
    job.completes("dug").await;
    assert_eq!(call.await.unwrap().result()["content"][0]["text"], "dug");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mrtr3_each_question_has_a_key_and_is_a_request_that_clients_know() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let able = stage
        .client("planner")
        .declaring(json!({ "elicitation": { "form": {}, "url": {} }, "sampling": {}, "roots": {} }));
    let call = dig(&able, &json!({}));
    let job = worker.next().await;
    let sampling = json!({ "method": "sampling/createMessage", "params": { "messages": [{ "role": "user", "content": { "type": "text", "text": "x" } }], "maxTokens": 9 } });
    job.asks(json!({
        "form": { "message": "where?" },
        "leave": { "message": "may I?", "permission": true },
        "model": { "request": sampling },
        "roots": { "request": { "method": "roots/list", "params": {} } },
    }))
    .await;
    let asked = call.await.unwrap().result()["inputRequests"].clone();
    let methods: Vec<(&String, &str)> = asked
        .as_object()
        .unwrap()
        .iter()
        .map(|(key, request)| (key, request["method"].as_str().unwrap()))
        .collect();
    let expected = [
        ("form", "elicitation/create"),
        ("leave", "elicitation/create"),
        ("model", "sampling/createMessage"),
        ("roots", "roots/list"),
    ];
    assert_eq!(
        methods,
        expected
            .map(|(key, method)| (key.to_owned(), method))
            .iter()
            .map(|(key, method)| (key, *method))
            .collect::<Vec<_>>()
    );
    // Another request, and a key that was used, are refused where they are asked.
    for wrong in [
        json!({ "form": { "message": "again?" } }),
        json!({ "other": { "request": { "method": "tools/call", "params": {} } } }),
    ] {
        assert_eq!(job.try_tool("work_ask", json!({ "questions": wrong })).await["isError"], true, "{wrong}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mrtr4_nothing_is_asked_that_the_client_did_not_declare() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let call = dig(&plain(&stage), &json!({}));
    let job = worker.next().await;
    for request in [
        json!({ "method": "sampling/createMessage", "params": { "messages": [{ "role": "user", "content": { "type": "text", "text": "x" } }], "maxTokens": 9 } }),
        json!({ "method": "roots/list", "params": {} }),
        json!({ "method": "elicitation/create", "params": { "mode": "url", "url": "https://x.example", "message": "go" } }),
    ] {
        let asked = job.try_tool("work_ask", json!({ "questions": { "q": { "request": request } } })).await;
        assert_eq!(asked["isError"], true, "{request}");
    }
    job.completes("dug").await;
    assert_eq!(call.await.unwrap().result()["content"][0]["text"], "dug");
    // Who can be asked nothing is told where the questions wait.
    let mute = stage.client("planner").declaring(json!({}));
    let call = dig(&mute, &json!({}));
    let job = worker.next().await;
    job.asks_for("where", "where?").await;
    let handle = call.await.unwrap().result();
    assert_eq!((&handle["resultType"], handle.get("inputRequests")), (&json!("complete"), None));
    assert!(handle["structuredContent"]["questions"]["where"].is_object(), "{handle}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mrtr5_a_state_is_good_for_the_call_that_was_given_it_and_nothing_else() {
    let stage = Stage::with(|set| set.identity = tokens()).await;
    let (_worker, job, asked) = asked(&stage).await;
    let client = plain(&stage);
    let state = asked["requestState"].as_str().unwrap();
    let responses = json!({ "where": accept(json!({ "answer": "here" })) });
    let before = stage.written();
    let id = &job.id;
    let other = format!("{}x.1", &id[..id.len() - 1]);
    for tampered in [
        "",
        ".",
        "x",
        "1",
        id,
        &format!("{id}."),
        &format!("{id}.x"),
        &format!("x{state}"),
        &other,
        "\u{0}.1",
    ] {
        let more = json!({ "requestState": tampered, "inputResponses": responses });
        let refused = dig(&client, &more).await.unwrap().refused();
        assert_eq!(refused.as_pair(), (200, INVALID_PARAMS), "{tampered:?}");
    }
    let good = json!({ "requestState": state, "inputResponses": responses });
    for (name, arguments) in [("fill", json!({ "deep": true })), ("dig", json!({ "deep": false }))] {
        let mut params = good.clone();
        params["name"] = json!(name);
        params["arguments"] = arguments;
        assert_eq!(client.refused("tools/call", params).await.code, INVALID_PARAMS, "{name}");
    }
    for thief in ["outsider", "helper"] {
        let thief = stage.client(thief).declaring(json!({ "elicitation": {} }));
        assert_eq!(dig(&thief, &good).await.unwrap().refused().code, INVALID_PARAMS);
    }
    assert_eq!(stage.written(), before);
    // Sent twice, it answers once.
    let more = json!({ "requestState": state, "inputResponses": responses });
    dig(&client, &more).await.unwrap().result();
    let written = stage.written();
    let changed =
        json!({ "requestState": state, "inputResponses": { "where": accept(json!({ "answer": "there" })) } });
    dig(&client, &changed).await.unwrap().result();
    assert_eq!(stage.written(), written);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mrtr6_what_is_missing_is_asked_again_and_what_is_wrong_is_refused() {
    let stage = Stage::in_memory().await;
    let (_worker, job, asked) = asked(&stage).await;
    let client = plain(&stage);
    let state = &asked["requestState"];
    let with = |responses: Value| json!({ "requestState": state, "inputResponses": responses });
    let again = dig(&client, &with(json!({}))).await.unwrap().result();
    assert_eq!(again["inputRequests"], asked["inputRequests"]);
    let again = dig(&client, &with(json!({ "no such": { "action": "accept" } }))).await.unwrap().result();
    assert_eq!(again["inputRequests"], asked["inputRequests"]);
    for wrong in
        [json!(1), json!({}), json!({ "action": "maybe" }), accept(json!({ "answer": 1 })), accept(json!({}))]
    {
        let refused = dig(&client, &with(json!({ "where": wrong }))).await.unwrap().refused();
        assert_eq!(refused.as_pair(), (200, INVALID_PARAMS), "{wrong}");
    }
    // One of two: the other stays.
    let half =
        dig(&client, &with(json!({ "where": accept(json!({ "answer": "here" })) }))).await.unwrap().result();
    let left: Vec<&String> = half["inputRequests"].as_object().unwrap().keys().collect();
    assert_eq!(left, ["when"]);
    // To decline is an answer.
    let call = dig(
        &client,
        &json!({ "requestState": half["requestState"], "inputResponses": { "when": { "action": "decline" } } }),
    );
    let mut answers = json!({});
    while answers["when"].is_null() {
        let orders = job.tool("work_checkpoint", json!({ "wait_ms": 60_000 })).await;
        for order in orders["orders"].as_array().unwrap() {
            for (key, answer) in order["answers"].as_object().unwrap() {
                answers[key] = answer.clone();
            }
        }
    }
    assert_eq!(
        answers,
        json!({ "where": { "action": "accept", "content": "here" }, "when": { "action": "decline" } })
    );
    job.completes("dug").await;
    assert_eq!(call.await.unwrap().result()["content"][0]["text"], "dug");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mrtr7_questions_are_not_to_be_kept() {
    let stage = Stage::in_memory().await;
    let (_worker, _job, asked) = asked(&stage).await;
    assert_eq!((asked.get("ttlMs"), asked.get("cacheScope")), (None, None));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mrtr8_what_is_asked_at_an_address_never_becomes_a_form() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let browsing = stage.client("planner").declaring(json!({ "elicitation": { "url": {} } }));
    let call = dig(&browsing, &json!({}));
    let job = worker.next().await;
    let params = json!({ "mode": "url", "url": "https://keys.example/enter", "elicitationId": "e1", "message": "enter your key" });
    let request = json!({ "method": "elicitation/create", "params": params });
    job.asks(json!({ "key": { "request": request } })).await;
    let asked = call.await.unwrap().result();
    let put = &asked["inputRequests"]["key"];
    assert_eq!((&put["method"], &put["params"]["url"]), (&request["method"], &request["params"]["url"]));
    assert_eq!(put["params"]["message"], "worker asks: enter your key");
    // The same caller without that capability now is refused, and not shown a form instead.
    let forms = stage.client("planner").declaring(json!({ "elicitation": { "form": {} } }));
    let refused = dig(&forms, &json!({ "requestState": asked["requestState"] })).await.unwrap().refused();
    assert_eq!(refused.as_pair(), (400, MISSING_CAPABILITY));
    assert_eq!(refused.data["requiredCapabilities"], json!({ "elicitation": { "url": {} } }));
    stage.stop().await;
}
