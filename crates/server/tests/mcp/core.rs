//! Section J: lists, tools, resources, schemas and tokens.

use std::collections::BTreeSet;
use std::sync::Arc;

use handover_desk::identity::Identity;
use handover_desk::identity::jwt::Verifier;
use handover_desk::identity::jwt::keys::KeySet;
use handover_desk::identity::tokens::{Tokens, hash_text};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::issuer::{self, Key, claims_with, now};
use super::stage::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j1_lists_say_how_long_they_may_be_kept_and_by_whom() {
    let stage = Stage::in_memory().await;
    stage.worker("worker", json!([skill("dig")])).await;
    let client = stage.client("planner");
    let mut task = String::new();
    for _ in 0..101 {
        task = client.begin("dig", json!({})).await;
    }
    let kept = |result: &Value| {
        assert!(result["ttlMs"].is_u64(), "{result}");
        let scope = result["cacheScope"].as_str().unwrap().to_owned();
        assert!(["public", "private"].contains(&&*scope));
        scope
    };
    for (method, params) in [
        ("server/discover", json!({})),
        ("tools/list", json!({})),
        ("prompts/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", json!({ "uri": format!("task://{task}") })),
    ] {
        kept(&client.ok(method, params).await);
    }
    let first = client.ok("resources/list", json!({})).await;
    let second = client.ok("resources/list", json!({ "cursor": first["nextCursor"] })).await;
    assert_eq!(kept(&first), kept(&second));
    assert_eq!(
        first["resources"].as_array().unwrap().len() + second["resources"].as_array().unwrap().len(),
        101
    );
    stage.stop().await;
}

/// The names of the tools that a client sees.
async fn names(client: &Client) -> Vec<String> {
    let tools = client.ok("tools/list", json!({})).await["tools"].clone();
    tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j2_the_list_of_tools_depends_on_who_asks_and_on_nothing_else() {
    let stage = Stage::in_memory().await;
    stage.worker("worker", json!([skill("dig"), skill("build")])).await;
    let secret = json!({ "name": "Helper", "description": "helps", "skills": [skill("whisper")], "visible_to": ["planner"] });
    stage.client("helper").tool("agent_register", secret).await;
    let planner = stage.client("planner");
    let seen = names(&planner).await;
    let (own, skills) = seen.split_at(seen.len() - 3);
    assert!(own.is_sorted() && skills == ["build", "dig", "whisper"], "{seen:?}");
    for other in [planner.clone(), planner.declaring(json!({})), stage.client("planner")] {
        assert_eq!(names(&other).await, seen);
    }
    assert_eq!(names(&stage.handshake("planner", json!({})).await).await, seen);
    let outsider = names(&stage.client("outsider")).await;
    assert!(!outsider.contains(&"whisper".to_owned()) && outsider.contains(&"dig".to_owned()));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j3_the_names_of_tools_are_such_that_every_client_takes_them() {
    let stage = Stage::in_memory().await;
    let client = stage.client("planner");
    stage.worker("worker", json!([skill("dig.deep-er_2")])).await;
    for name in names(&client).await {
        assert!((1..=64).contains(&name.len()), "{name}");
        assert!(
            name.chars().all(|letter| letter.is_ascii_alphanumeric() || "_.-".contains(letter)),
            "{name}"
        );
    }
    for wrong in ["", "two words", "a/b", "ä", "x".repeat(129).as_str()] {
        let said = json!({ "name": "W", "description": "d", "skills": [skill(wrong)] });
        assert_eq!(client.call("agent_register", said).await["isError"], true, "{wrong}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j4_a_broken_call_is_an_error_and_a_wrong_argument_is_a_result() {
    let stage = Stage::in_memory().await;
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    stage.worker("worker", json!([skill_with("dig", json!({ "inputSchema": schema }))])).await;
    let client = stage.client("planner");
    let before = stage.written();
    for broken in
        [json!({ "name": "none" }), json!({ "name": "" }), json!({ "name": "dig", "arguments": [1] })]
    {
        assert_eq!(
            client.refused("tools/call", broken.clone()).await.as_pair(),
            (200, INVALID_PARAMS),
            "{broken}"
        );
    }
    for (tool, arguments) in [
        ("dig", json!({})),
        ("dig", json!({ "n": "x" })),
        ("task_status", json!({})),
        ("task_status", json!({ "task_id": 1 })),
        ("task_status", json!({ "task_id": "x", "more": 1 })),
        ("delegate_task", json!({ "title": "t", "instructions": "i", "agent": "worker", "agents": [] })),
    ] {
        let result = client.call(tool, arguments.clone()).await;
        assert_eq!(
            (&result["isError"], &result["resultType"]),
            (&json!(true), &json!("complete")),
            "{tool} {arguments}"
        );
        assert!(result["content"][0]["text"].is_string());
    }
    assert_eq!(stage.written(), before);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j5_a_skill_with_an_output_schema_returns_what_fits_it() {
    let stage = Stage::with(|set| set.waits.plain = PATIENCE).await;
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    let skill = skill_with("count", json!({ "outputSchema": schema, "answers": "at_once" }));
    let worker = stage.worker("worker", json!([skill])).await;
    let client = stage.client("planner");
    let listed = client.ok("tools/list", json!({})).await["tools"].clone();
    let count = listed.as_array().unwrap().iter().find(|tool| tool["name"] == "count").unwrap();
    let listed = &count["outputSchema"];
    assert_eq!((&listed["type"], &listed["anyOf"][0]), (&json!("object"), &schema));
    let call = tokio::spawn(client.request("tools/call", json!({ "name": "count" })).answer());
    let job = worker.next().await;
    for wrong in [
        json!({ "text": "three" }),
        json!({ "output": { "n": "three" } }),
        json!({ "output": {} }),
        json!({ "result": { "content": [], "structuredContent": { "n": 1.5 } } }),
        json!({}),
    ] {
        assert_eq!(job.try_tool("work_complete", wrong.clone()).await["isError"], true, "{wrong}");
    }
    job.completes_with(json!({ "output": { "n": 3 } })).await;
    let result = call.await.unwrap().result();
    assert_eq!(result["structuredContent"], json!({ "n": 3 }));
    // The same as text, for clients that read only that.
    let text = result["content"][0]["text"].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(text).unwrap(), json!({ "n": 3 }));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j5_a_handle_fits_what_a_skill_with_an_output_schema_is_listed_with() {
    let stage = Stage::with(|set| set.waits.plain = std::time::Duration::ZERO).await;
    let skill = skill_with("count", json!({ "outputSchema": { "type": "object", "required": ["n"] } }));
    stage.worker("worker", json!([skill])).await;
    let client = stage.client("planner").declaring(json!({}));
    let handle = client.call("count", json!({})).await;
    assert_eq!(handle.get("isError"), None, "hosts would report a failure, and models call again: {handle}");
    assert_eq!(handle["structuredContent"]["status"], "working", "{handle}");
    assert!(handle["content"][0]["text"].as_str().unwrap().contains("task_wait"));
    let listed = client.ok("tools/list", json!({})).await["tools"].clone();
    let count = listed.as_array().unwrap().iter().find(|tool| tool["name"] == "count").unwrap();
    let schema = jsonschema::draft202012::new(&count["outputSchema"]).unwrap();
    assert!(schema.is_valid(&handle["structuredContent"]) && schema.is_valid(&json!({ "n": 1 })));
    assert!(!schema.is_valid(&json!({ "m": 1 })));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j6_who_may_not_see_a_skill_cannot_call_it() {
    let stage = Stage::in_memory().await;
    let secret = json!({ "name": "Helper", "description": "helps", "skills": [skill("whisper")], "visible_to": ["planner"] });
    stage.client("helper").tool("agent_register", secret).await;
    let unseen = stage.client("outsider").refused("tools/call", json!({ "name": "whisper" })).await;
    assert_eq!(unseen, stage.client("outsider").refused("tools/call", json!({ "name": "whisper" })).await);
    assert_eq!(unseen.message, "there is no tool \"whisper\"");
    assert_eq!(stage.client("planner").call("whisper", json!({})).await["resultType"], "task");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j6_who_calls_too_often_is_told_when_to_come_back() {
    let stage = Stage::with(|set| set.limits.starts_per_minute = 2).await;
    stage.worker("worker", json!([skill("dig")])).await;
    let client = stage.client("planner");
    let mut answer = client.ask("tools/call", json!({ "name": "dig" })).await;
    for _ in 0..100 {
        if answer.message().get("error").is_some() {
            break;
        }
        answer = client.ask("tools/call", json!({ "name": "dig" })).await;
    }
    let refused = answer.refused();
    assert_eq!(refused.code, INTERNAL_ERROR);
    assert!(refused.data["retryAfterMs"].as_u64().unwrap() > 0, "{refused:?}");
    // Others may go on.
    assert_eq!(stage.client("helper").call("dig", json!({})).await["resultType"], "task");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j6_what_a_worker_returns_is_made_of_blocks_that_clients_know() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let task = stage.client("planner").begin("dig", json!({})).await;
    let job = worker.next().await;
    for block in [
        json!({ "type": "script", "text": "x" }),
        json!({ "type": "text" }),
        json!({ "type": "image", "data": "not base64!", "mimeType": "image/png" }),
        json!({ "type": "image", "data": "AAAA" }),
        json!({ "type": "resource", "resource": {} }),
        json!("text"),
    ] {
        let result = job.try_tool("work_complete", json!({ "result": { "content": [block] } })).await;
        assert_eq!(result["isError"], true, "{block}");
    }
    job.completes_with(json!({ "result": { "content": [{ "type": "text", "text": "dug" }] } })).await;
    assert_eq!(stage.client("planner").get(&task).await["result"]["content"][0]["text"], "dug");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j7_schemas_are_those_of_2020_12_and_nothing_is_fetched_for_them() {
    let stage = Stage::in_memory().await;
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/schema.json", elsewhere.local_addr().unwrap());
    let client = stage.client("worker");
    let offer = |schema: Value| json!({ "name": "W", "description": "d", "skills": [skill_with("s", json!({ "inputSchema": schema }))] });
    let remote = json!({ "type": "object", "properties": { "a": { "$ref": address } } });
    assert_eq!(client.call("agent_register", offer(remote)).await["isError"], true);
    let asked = tokio::time::timeout(std::time::Duration::ZERO, elsewhere.accept()).await;
    assert!(asked.is_err(), "somebody asked for {address}");

    let modern = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": { "pair": { "type": "array", "prefixItems": [{ "type": "integer" }, { "type": "string" }], "items": false } },
        "properties": { "pair": { "$ref": "#/$defs/pair" } },
        "dependentRequired": { "pair": ["why"] },
    });
    client.tool("agent_register", offer(modern)).await;
    let planner = stage.client("planner");
    for (arguments, fits) in [
        (json!({ "pair": [1, "x"], "why": 1 }), true),
        (json!({ "pair": ["x", 1], "why": 1 }), false),
        (json!({ "pair": [1, "x", 2], "why": 1 }), false),
        (json!({ "pair": [1, "x"] }), false),
    ] {
        let result = planner.call("s", arguments.clone()).await;
        assert_eq!(result["resultType"] == "task", fits, "{arguments}: {result}");
    }
    // Deeper than anybody needs.
    let deep = (0..40).fold(json!({ "type": "integer" }), |inner, _| json!({ "properties": { "a": inner } }));
    assert_eq!(client.call("agent_register", offer(deep)).await["isError"], true);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j8_a_resource_that_is_not_there_is_an_error() {
    let stage = Stage::in_memory().await;
    let client = stage.client("planner");
    for uri in ["task://none", "task://", "task://a/b", "file:///etc/passwd", "none", ""] {
        let refused = client.refused("resources/read", json!({ "uri": uri })).await;
        assert_eq!(refused.as_pair(), (200, INVALID_PARAMS), "{uri}");
        assert_eq!(refused.data["uri"], uri);
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j9_a_cursor_that_nobody_gave_out_is_refused_and_pages_do_not_overlap() {
    let stage = Stage::in_memory().await;
    stage.worker("worker", json!([skill("dig")])).await;
    let client = stage.client("planner");
    for cursor in ["none", "", "-1", "99999999999999999999999"] {
        for method in ["tools/list", "resources/list"] {
            let refused = client.refused(method, json!({ "cursor": cursor })).await;
            assert_eq!(refused.as_pair(), (200, INVALID_PARAMS), "{method} {cursor:?}");
        }
        assert_eq!(
            client.call("task_list", json!({ "cursor": cursor })).await["isError"],
            true,
            "{cursor:?}"
        );
    }
    let mut begun = BTreeSet::new();
    for _ in 0..7 {
        begun.insert(client.begin("dig", json!({})).await);
    }
    let (mut seen, mut asked) = (Vec::new(), json!({ "max": 3 }));
    loop {
        let page = client.tool("task_list", asked.clone()).await;
        seen.extend(
            page["tasks"].as_array().unwrap().iter().map(|task| task["task_id"].as_str().unwrap().to_owned()),
        );
        // What begins meanwhile moves nothing.
        client.begin("dig", json!({})).await;
        match page["next_cursor"].as_str() {
            Some(next) => asked["cursor"] = json!(next),
            None => break,
        }
    }
    assert_eq!((seen.len(), seen.into_iter().collect()), (7, begun));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j10_progress_grows_for_those_who_asked_until_the_answer() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill_with("dig", json!({ "answers": "at_once" }))])).await;
    let _working = worker.plays(|job| async move {
        for progress in [1.0, 1.0, 0.5, 2.0, 2.0, 2.5] {
            // What does not grow may be refused, and is not told in any case.
            job.try_tool("work_update", json!({ "progress": progress })).await;
        }
        job.completes("dug").await;
        job.try_tool("work_update", json!({ "progress": 9 })).await;
    });
    let client = stage.client("planner");
    for token in [json!("t"), json!(7)] {
        let call =
            client.request("tools/call", json!({ "name": "dig" })).meta("progressToken", token.clone());
        let answer = call.answer().await;
        let told = answer.told("notifications/progress");
        assert!(told.iter().all(|told| told["progressToken"] == token));
        let steps: Vec<f64> = told.iter().map(|told| told["progress"].as_f64().unwrap()).collect();
        assert_eq!(steps, [1.0, 2.0, 2.5]);
        assert!(answer.message().get("result").is_some());
    }
    let quiet = client.ask("tools/call", json!({ "name": "dig" })).await;
    assert_eq!(quiet.messages.len(), 1);
    stage.stop().await;
}

/// A server that lets in whom the issuer knows, with clocks that never differ.
async fn guarded(key: &Key) -> Stage {
    let settings = handover_desk::identity::jwt::settings::Settings { skew_seconds: 0, ..issuer::settings() };
    let verifier = Verifier::new(settings);
    verifier.set_keys(KeySet::parse(issuer::set(&[key]).as_bytes()).unwrap());
    Stage::with(|set| {
        set.identity = Identity::Jwt(Arc::new(verifier), Arc::default());
        set.face.authorization_servers = vec![issuer::ISSUER.to_owned()];
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j11_who_has_no_good_token_is_told_where_to_get_one() {
    let key = Key::ec("e");
    let stage = guarded(&key).await;
    let good = key.token(&claims_with(json!({})));
    stage.client(&good).ok("tools/list", json!({})).await;
    let address = format!("http://{}", stage.address);
    let metadata = format!("resource_metadata=\"{address}/.well-known/oauth-protected-resource/mcp\"");
    let none = stage.nobody().ask("tools/list", json!({})).await;
    assert_eq!((none.status, &none.headers["www-authenticate"]), (401, &format!("Bearer {metadata}")));
    let stranger = Key::ec("e");
    for (what, token) in [
        ("of another audience", key.token(&claims_with(json!({ "aud": "https://elsewhere.example" })))),
        ("of no audience", key.token(&claims_with(json!({ "aud": null })))),
        ("of another issuer", key.token(&claims_with(json!({ "iss": "https://elsewhere.example" })))),
        ("that has expired", key.token(&claims_with(json!({ "exp": now() - 1 })))),
        ("that somebody else signed", stranger.token(&claims_with(json!({})))),
        ("that is none", "x".to_owned()),
    ] {
        let refused = stage.client(&token).ask("tools/list", json!({})).await;
        let challenge = &refused.headers["www-authenticate"];
        assert_eq!(refused.status, 401, "a token {what}");
        assert_eq!(*challenge, format!("Bearer {metadata}, error=\"invalid_token\""), "a token {what}");
        assert!(!refused.text.contains(&token), "a token {what}");
    }
    for path in ["/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"] {
        let host = stage.address;
        let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        let answer = raw(stage.address, request.as_bytes()).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        let said: Value = serde_json::from_str(body).unwrap();
        assert_eq!(said["resource"], format!("{address}/mcp"));
        assert_eq!(said["authorization_servers"], json!([issuer::ISSUER]));
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j11_a_token_that_is_meant_for_the_endpoint_as_its_metadata_names_it_is_let_in() {
    const ENDPOINT: &str = "https://agents.example/mcp";
    let key = Key::ec("e");
    let audience = vec![ENDPOINT.to_owned(), "handover".to_owned()];
    let settings = handover_desk::identity::jwt::settings::Settings { audience, ..issuer::settings() };
    let verifier = Verifier::new(settings);
    verifier.set_keys(KeySet::parse(issuer::set(&[&key]).as_bytes()).unwrap());
    let stage = Stage::with(|set| {
        set.identity = Identity::Jwt(Arc::new(verifier), Arc::default());
        set.face.resource = Some(ENDPOINT.to_owned());
    })
    .await;
    // A client of MCP's OAuth asks its issuer for a token for exactly what the metadata calls the resource (RFC 8707).
    let path = "/.well-known/oauth-protected-resource/mcp";
    let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", stage.address);
    let answer = raw(stage.address, request.as_bytes()).await;
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let said: Value = serde_json::from_str(body).unwrap();
    assert_eq!(said["resource"], ENDPOINT);
    let token = key.token(&claims_with(json!({ "aud": said["resource"] })));
    stage.client(&token).ok("tools/list", json!({})).await;
    let beside = key.token(&claims_with(json!({ "aud": format!("{ENDPOINT}/other") })));
    assert_eq!(stage.client(&beside).ask("tools/list", json!({})).await.status, 401);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j11_what_goes_on_ends_with_the_token() {
    let entry = |token: &str, agent: &str, rest: &str| {
        format!("[[token]]\nsha256 = \"{}\"\nagent = \"{agent}\"\n{rest}\n", hash_text(token))
    };
    let file = |of_brief: &str| {
        entry("worker", "worker", "")
            + &entry("next", "planner", "")
            + &entry("brief", "planner", of_brief)
            + &entry("idle", "helper", of_brief)
    };
    let tokens = Arc::new(Tokens::parse(&file("")).unwrap());
    let stage = Stage::with(|set| set.identity = Identity::Tokens(Arc::clone(&tokens))).await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let (brief, idle) = (stage.client("brief"), stage.client("idle"));
    let task = brief.begin("dig", json!({})).await;
    let job = worker.next().await;
    let (mut stream, _) = brief.listen(json!({ "taskIds": [task] })).await;
    let waiting = tokio::spawn({
        let request = brief.request(
            "tools/call",
            json!({ "name": "task_wait", "arguments": { "task_id": task, "wait_ms": 60_000 } }),
        );
        request.answer()
    });
    let working = tokio::spawn(
        idle.request("tools/call", json!({ "name": "work_next", "arguments": { "wait_ms": 60_000 } }))
            .answer(),
    );
    let calling =
        tokio::spawn(brief.declaring(json!({})).request("tools/call", json!({ "name": "dig" })).answer());
    let other = worker.next().await;
    // Once all of them wait, their time is up; each ends well before anything else would end it.
    until(async || stage.metrics.to_text().contains("handover_streams_open 4")).await;
    tokens.replace(&file("expires_at = 2020-01-01T00:00:00Z")).unwrap();
    let last = stream.next().await.unwrap();
    assert_eq!(last["result"]["resultType"], "complete", "{last}");
    assert!(last["result"]["_meta"][SUBSCRIPTION].is_i64());
    assert_eq!(stream.next().await, None);
    assert_eq!(waiting.await.unwrap().result()["structuredContent"]["status"], "working");
    assert_eq!(working.await.unwrap().result()["structuredContent"]["work"], json!([]));
    let handle = calling.await.unwrap().result();
    assert_eq!(handle["structuredContent"]["task_id"], other.id);
    assert_eq!(brief.ask("tasks/get", json!({ "taskId": task })).await.status, 401);
    // What was handed out goes on: the same agent looks at it with its next token.
    job.completes("dug").await;
    other.completes("dug").await;
    let next = stage.client("next");
    for id in [&task, &other.id] {
        assert_eq!(next.get(id).await["status"], "completed");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_goes_on_is_refused_at_the_moment_when_its_token_is_revoked() {
    let file = |names: &[&str]| -> String {
        let entry =
            |name: &&str| format!("[[token]]\nsha256 = \"{}\"\nagent = \"{name}\"\n", hash_text(name));
        names.iter().map(entry).collect()
    };
    let tokens = Arc::new(Tokens::parse(&file(&["worker", "planner", "helper"])).unwrap());
    let stage = Stage::with(|set| set.identity = Identity::Tokens(Arc::clone(&tokens))).await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let (planner, helper) = (stage.client("planner"), stage.client("helper"));
    let task = planner.begin("dig", json!({})).await;
    let job = worker.next().await;
    let (mut stream, _) = planner.listen(json!({ "taskIds": [task] })).await;
    let waits = json!({ "task_id": task, "wait_ms": 60_000 });
    let calls = [
        planner.request("tools/call", json!({ "name": "task_wait", "arguments": waits })),
        helper.request("tools/call", json!({ "name": "work_next", "arguments": { "wait_ms": 60_000 } })),
        planner.declaring(json!({})).request("tools/call", json!({ "name": "dig" })),
    ];
    let calls = calls.map(|call| tokio::spawn(call.answer()));
    let other = worker.next().await;
    // All of them wait by now: each has a place among the streams, and so has the subscription.
    until(async || stage.metrics.to_text().contains("handover_streams_open 4")).await;
    tokens.replace(&file(&["worker"])).unwrap();
    let last = stream.next().await.unwrap();
    assert_eq!(last["error"]["data"]["code"], "UNAUTHENTICATED", "{last}");
    assert_eq!(stream.next().await, None);
    for call in calls {
        let answer = call.await.unwrap();
        let refused = &answer.message()["error"];
        assert_eq!(refused["data"]["code"], "UNAUTHENTICATED", "{refused}");
        assert_eq!(refused["message"], "the bearer token was refused: unknown token");
    }
    assert_eq!(planner.ask("tasks/get", json!({ "taskId": task })).await.status, 401);
    // What was handed out goes on, but for the call that nobody can come back to.
    job.completes("dug").await;
    let ended = worker
        .client
        .ask("tools/call", json!({ "name": "work_checkpoint", "arguments": { "task_id": other.id } }));
    assert_eq!(ended.await.result()["structuredContent"]["ended"], true);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_was_used_for_another_call_is_refused() {
    let stage = Stage::in_memory().await;
    stage.worker("worker", json!([skill("dig"), skill("fill")])).await;
    let client = stage.client("planner");
    let call = |name: &str, arguments: Value| {
        let request = client.request("tools/call", json!({ "name": name, "arguments": arguments }));
        request.meta("dev.handover/idempotencyKey", json!("once")).answer()
    };
    let first = call("dig", json!({ "n": 1 })).await.result();
    let again = call("dig", json!({ "n": 1 })).await.result();
    assert_eq!(first["taskId"], again["taskId"]);
    let before = stage.written();
    assert_eq!(call("dig", json!({ "n": 2 })).await.refused().code, INVALID_PARAMS);
    assert_eq!(call("fill", json!({ "n": 1 })).await.refused().code, INVALID_PARAMS);
    assert_eq!(stage.written(), before);
    stage.stop().await;
}

#[tokio::test]
async fn whoever_uses_a_tool_has_been_seen() {
    let stage = Stage::in_memory().await;
    let worker = stage.client("worker");
    worker.tool("agent_register", json!({ "name": "Worker", "description": "digs" })).await;
    let listed = stage.client("planner").tool("agent_list", json!({})).await;
    assert_eq!(
        (&listed["agents"][0]["id"], &listed["agents"][0]["online"]),
        (&json!("worker"), &json!(false))
    );
    assert!(listed["agents"][0]["last_seen"].is_string(), "{listed}");
    assert_eq!(listed["agents"][0]["status"], "available");
    stage.stop().await;
}
