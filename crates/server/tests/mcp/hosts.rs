//! What the hosts that people have need: names that every model API takes, answers before their clients give up, and lists
//! that show a model no more than it uses.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use handover_desk::access::Access;
use handover_desk::approvers::Rules;
use handover_desk::identity::Identity;
use handover_desk::identity::tokens::{Tokens, hash_text};
use handover_server::config::Config;
use serde_json::{Value, json};

use super::stage::*;

fn names(listed: &Value) -> Vec<&str> {
    listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_listed_name_is_one_that_model_apis_take_and_leads_to_its_own_skill() {
    let stage = Stage::in_memory().await;
    stage.worker("analyst", json!([skill("search"), skill("web.search")])).await;
    stage.worker("evil", json!([skill("analyst.search"), skill("Search"), skill("task_list")])).await;
    let planner = stage.client("planner");
    let listed = planner.ok("tools/list", json!({})).await;
    let mut read = BTreeSet::new();
    for name in names(&listed) {
        let fits = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
        assert!((1..=64).contains(&name.len()) && name.chars().all(fits), "{name}");
        assert!(read.insert(name.to_lowercase().replace(['_', '-'], "")), "{name} reads like another");
    }
    for (called, agent, skill) in [
        ("search", "analyst", "search"),
        ("analyst.search", "analyst", "search"),
        ("web_search", "analyst", "web.search"),
        ("web.search", "analyst", "web.search"),
        ("evil_analyst_search", "evil", "analyst.search"),
        ("evil_Search", "evil", "Search"),
        ("evil.task_list", "evil", "task_list"),
    ] {
        planner.begin(called, json!({})).await;
        let work = stage.client(agent).tool("work_next", json!({ "accept": true })).await;
        assert_eq!(work["work"][0]["skill"], skill, "{called}");
    }
    // Who registers is told what its skills are listed as, and so is who looks at it.
    let said = json!({ "name": "Evil", "description": "x", "skills": [skill("Search")] });
    let again = stage.client("evil").tool("agent_register", said).await;
    assert_eq!(again["tools"], json!([{ "skill": "Search", "tool": "evil_Search" }]));
    let agents = planner.tool("agent_list", json!({})).await;
    assert_eq!(agents["agents"][1]["skills"][0]["tool"], "evil_Search");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_servers_own_tools_come_first_and_a_profile_shows_what_it_is_for() {
    let entry = |agent: &str, rest: &str| {
        format!("[[token]]\nsha256 = \"{}\"\nagent = \"{agent}\"\n{rest}\n", hash_text(agent))
    };
    let file = entry("planner", "") + &entry("clerk", "profile = \"requester\"") + &entry("worker", "");
    let identity = Identity::Tokens(Arc::new(Tokens::parse(&file).unwrap()));
    let stage = Stage::with(|set| set.identity = identity).await;
    stage.worker("worker", json!([skill("aardvark"), skill("zebra")])).await;
    let list = async |agent: &str, address: &str| {
        let listed = stage.client(agent).request("tools/list", json!({})).at(address).answer().await.result();
        names(&listed).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let all = list("planner", "/mcp").await;
    assert_eq!(&all[all.len() - 2..], ["aardvark", "zebra"], "skills come last");
    let own = &all[..all.len() - 2];
    assert!(own.is_sorted() && own.contains(&"work_next".to_owned()), "{own:?}");
    assert_eq!(all, list("planner", "/mcp?profile=all").await);

    for (agent, address, shown, hidden) in [
        (
            "planner",
            "/mcp?profile=requester",
            &["delegate_task", "task_wait", "agent_list", "zebra"][..],
            "work_next",
        ),
        ("clerk", "/mcp", &["delegate_task", "zebra"], "work_next"),
        ("clerk", "/mcp?profile=worker", &["work_next", "agent_register", "task_message"], "zebra"),
    ] {
        let found = list(agent, address).await;
        assert!(shown.iter().all(|name| found.contains(&(*name).to_owned())), "{agent} {address} {found:?}");
        assert!(!found.contains(&hidden.to_owned()) && found.len() < 23, "{agent} {address} {found:?}");
    }
    // What is not shown can be called all the same.
    stage.client("clerk").tool("work_list", json!({})).await;
    let wrong =
        stage.client("planner").request("tools/list", json!({})).at("/mcp?profile=boss").answer().await;
    assert_eq!(wrong.refused().as_pair(), (400, INVALID_PARAMS));
    stage.stop().await;
}

/// What a plain call of a skill comes to, which nobody works on before it is answered: its result, or a handle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn how_long_a_call_waits_is_said_by_the_server_the_token_or_the_request() {
    let config = Config::default().mcp;
    assert_eq!(
        (config.wait_seconds, config.wait_with_progress_seconds),
        (4, 8),
        "clients give up after 5 and 10 s"
    );
    let entry = |agent: &str, limits: &str| {
        format!("[[token]]\nsha256 = \"{}\"\nagent = \"{agent}\"\n{limits}\n", hash_text(agent))
    };
    let file =
        entry("hasty", "") + &entry("patient", "limits = { wait_seconds = 60 }") + &entry("worker", "");
    let identity = Identity::Tokens(Arc::new(Tokens::parse(&file).unwrap()));
    let stage = Stage::with(|set| {
        set.identity = identity;
        set.waits.plain = Duration::ZERO;
    })
    .await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let token = || ("progressToken", json!(7));
    let wait = |ms: u64| ("dev.handover/waitMs", json!(ms));
    for (agent, address, meta, waits) in [
        ("hasty", "/mcp", vec![], false),
        ("hasty", "/mcp", vec![token()], true),
        ("hasty", "/mcp", vec![wait(60_000)], true),
        ("hasty", "/mcp?wait_seconds=60", vec![], true),
        ("hasty", "/mcp?wait_seconds=60", vec![wait(0), token()], false),
        ("patient", "/mcp", vec![], true),
        ("patient", "/mcp", vec![wait(0)], false),
        ("patient", "/mcp?wait_seconds=0", vec![], false),
    ] {
        for client in [stage.client(agent).declaring(json!({})), stage.handshake(agent, json!({})).await] {
            let mut request = client.request("tools/call", json!({ "name": "dig", "_meta": {} })).at(address);
            for (key, value) in &meta {
                request = request.meta(key, value.clone());
            }
            let shown = format!("{agent} {address} {meta:?}");
            if waits {
                let call = tokio::spawn(request.answer());
                worker.next().await.completes("dug").await;
                assert_eq!(call.await.unwrap().result()["content"][0]["text"], "dug", "{shown}");
            } else {
                let handle = request.answer().await.result();
                assert!(handle["structuredContent"]["task_id"].is_string(), "{shown} {handle}");
                worker.next().await.completes("dug").await;
            }
        }
    }
    // The same for those who wait for work.
    let nothing = stage.client("worker").tool("work_next", json!({})).await;
    assert_eq!(nothing["work"], json!([]));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_a_client_of_the_handshake_gave_up_leaves_a_task_that_its_model_finds() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let client = stage.handshake("planner", json!({})).await;
    let given_up = client.request("tools/call", json!({ "name": "dig" })).on_the_wire().await;
    let job = worker.next().await;
    drop(given_up);
    let listed = client.tool("task_list", json!({})).await;
    let task = listed["tasks"][0]["task_id"].as_str().unwrap().to_owned();
    job.completes("dug").await;
    let ended = client.tool("task_wait", json!({ "task_id": task })).await;
    assert_eq!(ended["result"]["content"][0]["text"], "dug");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_that_is_let_in_can_read_what_it_is_told() {
    let stage = Stage::with(|set| set.face.origins = vec!["https://console.example".to_owned()]).await;
    let request = || stage.client("planner").request("tools/list", json!({}));
    for (origin, welcome) in [
        ("https://console.example", true),
        ("http://localhost:3000", true),
        ("http://localhost:80@evil.example", false),
        ("https://console.example.evil", false),
    ] {
        let asked = request().by("OPTIONS").without("authorization").header("origin", origin);
        let asked = asked.header("access-control-request-headers", "authorization,mcp-param-n");
        let answers = [asked.send().await, request().header("origin", origin).send().await];
        let statuses = answers.each_ref().map(|answer| answer.status);
        assert_eq!(statuses, if welcome { [204, 200] } else { [403, 403] }, "{origin}");
        for answer in &answers {
            let header = |name: &str| answer.headers.get(name).map(String::as_str);
            assert_eq!(header("access-control-allow-origin"), welcome.then_some(origin));
            let exposed = header("access-control-expose-headers").unwrap_or_default();
            assert_eq!(exposed.contains("mcp-session-id"), welcome, "{exposed}");
        }
        let allowed = answers[0].headers.get("access-control-allow-headers").map(String::as_str);
        assert_eq!(allowed, welcome.then_some("authorization,mcp-param-n"));
    }
    // So can it when it ends its session, as clients of the handshake revisions do.
    let asked = request().by("OPTIONS").without("authorization").header("origin", "http://localhost");
    assert!(asked.send().await.headers["access-control-allow-methods"].contains("DELETE"));
    let ended = request().by("DELETE").header("origin", "http://localhost").send().await;
    assert_eq!((ended.status, &*ended.headers["access-control-allow-origin"]), (405, "http://localhost"));
    // A refusal can be read as well: it says where tokens come from.
    let refused = request().header("origin", "http://localhost").without("authorization").send().await;
    assert_eq!(refused.status, 401);
    assert_eq!(refused.headers["access-control-allow-origin"], "http://localhost");
    assert!(!request().send().await.headers.contains_key("access-control-allow-origin"), "no page asked");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_of_tasks_and_agents_are_completed() {
    let stage = Stage::in_memory().await;
    stage.worker("worker", json!([skill("dig")])).await;
    let planner = stage.client("planner");
    let task = planner.begin("dig", json!({})).await;
    let complete = async |agent: &str, of: Value, name: &str, value: &str| {
        let asked = json!({ "ref": of, "argument": { "name": name, "value": value } });
        stage.client(agent).ask("completion/complete", asked).await
    };
    let tasks = || json!({ "type": "ref/resource", "uri": "task://{id}" });
    let agents = || json!({ "type": "ref/prompt", "name": "delegate" });
    for (agent, of, name, typed, expected) in [
        ("planner", tasks(), "id", &task[..4], vec![task.as_str()]),
        ("planner", tasks(), "id", "no such", vec![]),
        ("outsider", tasks(), "id", "", vec![]),
        ("planner", agents(), "agent", "w", vec!["worker"]),
        ("worker", agents(), "agent", "w", vec![]),
    ] {
        let found = complete(agent, of, name, typed).await.result();
        let (values, total) = (json!(expected), json!(expected.len()));
        assert_eq!(
            (&found["completion"]["values"], &found["completion"]["total"]),
            (&values, &total),
            "{agent} {typed}"
        );
    }
    assert_eq!(complete("planner", agents(), "id", "").await.refused().code, INVALID_PARAMS);
    // More than fit on a page of the directory: all of them are looked at.
    let long = "d".repeat(8000);
    for number in 0..40 {
        let agent = json!({ "name": "W", "description": long });
        stage.client(&format!("agent-{number}")).tool("agent_register", agent).await;
    }
    let found = complete("planner", agents(), "agent", "w").await.result();
    assert_eq!(found["completion"]["values"], json!(["worker"]));
    let slip = json!({ "title": "t", "instructions": "i", "agent": "wroker" });
    let warning = planner.tool("delegate_task", slip).await["warning"].clone();
    assert!(warning.as_str().unwrap().contains("\"worker\""), "{warning}");
    let prompt =
        planner.ok("prompts/get", json!({ "name": "delegate", "arguments": { "agent": "worker" } })).await;
    assert!(prompt["messages"][0]["content"]["text"].as_str().unwrap().ends_with("the agent worker."));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_is_told_that_it_may_not() {
    let entry = |agent: &str, rest: &str| {
        format!("[[token]]\nsha256 = \"{}\"\nagent = \"{agent}\"\n{rest}\n", hash_text(agent))
    };
    let file = entry("planner", "") + &entry("worker", "") + &entry("auditor", "roles = [\"observer\"]");
    let identity = Identity::Tokens(Arc::new(Tokens::parse(&file).unwrap()));
    let stage = Stage::with(|set| set.identity = identity).await;
    stage.worker("worker", json!([skill("dig")])).await;
    let task = stage.client("planner").begin("dig", json!({})).await;
    let auditor = stage.client("auditor");
    assert_eq!(auditor.get(&task).await["status"], "working");
    let refused = auditor.refused("tasks/cancel", json!({ "taskId": task })).await;
    assert_eq!(refused.data["code"], "NOT_ALLOWED", "{refused:?}");
    let told = auditor.call("task_steer", json!({ "task_id": task, "message": "x" })).await;
    assert!(told["content"][0]["text"].as_str().unwrap().contains("auditor may read this task"), "{told}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_for_an_agent_that_nobody_knows_is_refused_or_warned_of() {
    for (identity, refuses) in [(tokens(), true), (Identity::Development, false)] {
        let stage = Stage::with(|set| set.identity = identity).await;
        stage.worker("worker", json!([skill("dig")])).await;
        let hidden = json!({ "name": "H", "description": "x", "visible_to": ["outsider"] });
        stage.client("helper").tool("agent_register", hidden).await;
        let planner = stage.client("planner");
        let work = |agent: &str, queue: bool| json!({ "title": "t", "instructions": "i", "agent": agent, "queue": queue });
        // Registered; with a token, though never seen; and one that is told of on purpose.
        let with_token = if refuses { "outsider" } else { "worker" };
        for (agent, queue) in [("worker", false), (with_token, false), ("wroker", true)] {
            let begun = planner.tool("delegate_task", work(agent, queue)).await;
            assert_eq!((&begun["status"], begun.get("warning")), (&json!("working"), None), "{agent}");
        }
        let slip = planner.call("delegate_task", work("wroker", false)).await;
        let said = match refuses {
            true => slip["content"][0]["text"].as_str().unwrap(),
            false => slip["structuredContent"]["warning"].as_str().unwrap(),
        };
        assert_eq!(slip["isError"] == true, refuses, "{slip}");
        assert!(said.contains("\"worker\"") && !said.contains("helper"), "{said}");
        stage.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_learns_who_exists_beyond_the_agents_that_it_may_reach() {
    let rules = r#"[{ agents = ["planner"], delegate = ["writer-*", "helper"] }]"#;
    let stage = Stage::with(|set| {
        set.identity = tokens();
        set.access = Access::parse(rules).unwrap();
    })
    .await;
    let hidden = json!({ "name": "H", "description": "x", "visible_to": ["outsider"] });
    stage.client("helper").tool("agent_register", hidden).await;
    let planner = stage.client("planner");
    let refused = async |agent: &str| {
        let work = json!({ "title": "t", "instructions": "i", "agent": agent });
        let refused = planner.call("delegate_task", work).await;
        assert_eq!(refused["isError"], true, "{refused}");
        refused["content"][0]["text"].as_str().unwrap().replace(agent, "AGENT")
    };
    let forbidden = refused("worker").await;
    assert!(forbidden.contains("NOT_ALLOWED"), "{forbidden}");
    assert_eq!(refused("phantom").await, forbidden);
    // That an id is in use is not hidden by whom its agent shows itself to.
    assert!(refused("helper").await.contains("NOT_ALLOWED"));
    assert!(refused("writer-1").await.contains("AGENT_NOT_FOUND"));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_is_sent_again_is_answered_as_it_was_also_when_its_agent_has_left() {
    let entry = |name: &&str| format!("[[token]]\nsha256 = \"{}\"\nagent = \"{name}\"\n", hash_text(name));
    let file = |names: &[&str]| names.iter().map(entry).collect::<String>();
    let tokens = Arc::new(Tokens::parse(&file(&["planner", "worker"])).unwrap());
    let stage = Stage::with(|set| set.identity = Identity::Tokens(Arc::clone(&tokens))).await;
    let planner = stage.client("planner");
    let send = |key: &str| {
        let work = json!({ "title": "t", "instructions": "i", "agent": "worker" });
        let call = json!({ "name": "delegate_task", "arguments": work, "_meta": {} });
        planner.request("tools/call", call).meta("dev.handover/idempotencyKey", json!(key)).answer()
    };
    let first = send("once").await.result();
    tokens.replace(&file(&["planner"])).unwrap();
    let again = send("once").await.result();
    assert_eq!(again["structuredContent"]["task_id"], first["structuredContent"]["task_id"], "{again}");
    assert_eq!(send("twice").await.result()["isError"], true, "a new task finds nobody");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_says_who_is_waited_for_and_what_was_heard_of_them() {
    let stage = Stage::in_memory().await;
    let planner = stage.client("planner");
    let work = json!({ "title": "t", "instructions": "i", "agent": "analyst" });
    let begun = planner.tool("delegate_task", work).await;
    let task = begun["task_id"].as_str().unwrap().to_owned();
    let said = begun["message"].as_str().unwrap();
    assert!(said.starts_with("waiting for analyst, never seen, since ") && said.ends_with(" UTC"), "{said}");
    assert!(begun["next_step"].as_str().unwrap().contains("task_wait"));

    let analyst = stage.client("analyst");
    analyst.tool("work_next", json!({ "accept": true })).await;
    analyst.tool("work_update", json!({ "task_id": task, "progress": 0.5, "message": "half" })).await;
    let seen = planner.tool("task_status", json!({ "task_id": task })).await;
    planner.tool("task_steer", json!({ "task_id": task, "message": "left" })).await;
    let again = planner.tool("task_status", json!({ "task_id": task })).await;
    assert!(seen["assignee_seen_at"].is_string());
    assert_eq!(seen["assignee_online"], false, "nothing of it is open");
    assert_eq!(again["assignee_seen_at"], seen["assignee_seen_at"], "a requester's act is no sign of it");
    let question = json!({ "task_id": task, "questions": { "q": { "message": "which?" } }, "wait_ms": 0 });
    analyst.tool("work_ask", question).await;
    let asking = planner.tool("task_status", json!({ "task_id": task })).await;
    assert_eq!((&asking["status"], &asking["progress"]), (&json!("input_required"), &json!(0.5)));
    assert_eq!(asking["questions"]["q"]["message"], "analyst asks: which?");
    let listed = planner.tool("task_list", json!({})).await;
    assert_eq!(listed["tasks"][0]["status"], "input_required");
    planner.tool("task_pause", json!({ "task_id": task })).await;
    for (tool, status) in [("task_status", "paused"), ("task_cancel", "cancelled")] {
        let found = planner.tool(tool, json!({ "task_id": task })).await;
        let listed = planner.tool("task_list", json!({})).await;
        assert_eq!((&found["status"], &listed["tasks"][0]["status"]), (&json!(status), &json!(status)));
    }
    let over = analyst.tool("work_checkpoint", json!({ "task_id": task })).await;
    assert_eq!((&over["ended"], &over["status"]), (&json!(true), &json!("cancelled")));
    let late = planner.call("task_steer", json!({ "task_id": task, "message": "x" })).await;
    assert_eq!(late["content"][0]["text"], "the task has ended: it is cancelled (SESSION_ENDED)");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_that_nobody_will_see_is_told_of_at_once() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let ask = json!({ "questions": { "q": { "message": "which?" } }, "wait_ms": 60_000 });
    let tasks = || json!({ "extensions": { TASKS: {} } });
    stage.client("planner").declaring(tasks()).begin("dig", json!({})).await;
    let job = worker.next().await;
    let told = job.tool("work_ask", ask).await;
    assert_eq!(told["answered"], false);
    assert!(told["note"].as_str().unwrap().contains("work_fail"), "{told}");
    // The answer may come all the same, and who can be asked is waited for.
    let answers = json!({ "q": { "action": "accept", "content": { "answer": "this" } } });
    let answer = json!({ "task_id": job.id, "answers": answers });
    stage.client("planner").tool("task_answer", answer).await;
    assert_eq!(job.checkpoint().await["orders"][0]["kind"], "answer");
    stage.client("planner").begin("dig", json!({})).await;
    let now = json!({ "questions": { "q": { "message": "which?" } }, "wait_ms": 0 });
    assert!(worker.next().await.tool("work_ask", now).await.get("note").is_none());
    stage.stop().await;
}

/// What every tool of the server's returns is what its schema says, and every one has hints.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_servers_own_tools_return_fits_their_schemas() {
    let rules = r#"[{ delegate = ["mailer"], by = ["lead"] }]"#;
    let stage = Stage::with(|set| set.approvals = Rules::parse(rules).unwrap()).await;
    let (planner, worker) = (stage.client("planner"), stage.client("worker"));
    let listed = planner.ok("tools/list", json!({})).await;
    let mut left = BTreeSet::new();
    for tool in listed["tools"].as_array().unwrap() {
        for hint in ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"] {
            assert!(tool["annotations"][hint].is_boolean(), "{tool}");
        }
        left.insert(tool["name"].as_str().unwrap().to_owned());
    }
    let mut check = |name: &str, found: &Value| {
        let tool = listed["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == name).unwrap();
        let schema = jsonschema::draft202012::new(&tool["outputSchema"]).unwrap();
        let wrong: Vec<String> = schema.iter_errors(found).map(|error| error.to_string()).collect();
        assert!(wrong.is_empty(), "{name}: {wrong:?} in {found}");
        left.remove(name);
    };
    let work = || json!({ "title": "t", "instructions": "i", "agent": "worker" });
    let registration = json!({ "name": "W", "description": "works", "skills": [skill("dig")] });
    let mut task = String::new();
    for (client, name, arguments) in [
        (&worker, "agent_register", registration),
        (&planner, "agent_list", json!({})),
        (&planner, "delegate_task", work()),
        (&worker, "work_next", json!({})),
        (&worker, "work_accept", json!({})),
        (&worker, "work_list", json!({})),
        (&worker, "work_update", json!({ "message": "m", "progress": 1, "partial": { "a": 1 } })),
        (&planner, "task_steer", json!({ "message": "left" })),
        (&planner, "task_message", json!({ "message": "left" })),
        (&worker, "work_checkpoint", json!({})),
        (&worker, "work_ask", json!({ "questions": { "q": { "message": "which?" } }, "wait_ms": 0 })),
        (&planner, "task_status", json!({})),
        (&planner, "task_answer", json!({ "answers": { "q": { "action": "decline" } } })),
        (&worker, "work_hold", json!({ "reason": "rest" })),
        (&worker, "work_resume", json!({})),
        (&worker, "work_hold", json!({ "reason": "rest" })),
        (&planner, "task_resume", json!({})),
        (&planner, "task_pause", json!({})),
        (&planner, "task_list", json!({})),
        (&worker, "work_complete", json!({ "output": { "n": 1 } })),
        (&planner, "task_wait", json!({})),
        (&planner, "task_timeline", json!({})),
        (&planner, "task_cancel", json!({})),
        (&planner, "delegate_task", work()),
        (&worker, "work_decline", json!({ "reason": "no" })),
        (&planner, "delegate_task", work()),
        (&worker, "work_next", json!({ "accept": true })),
        (&worker, "work_fail", json!({ "reason": "no" })),
        (&planner, "handoff_offer", json!({ "to": "worker", "scope": "x" })),
        (&worker, "handoff_list", json!({})),
        (&worker, "handoff_accept", json!({})),
        (&planner, "handoff_status", json!({})),
        (&planner, "handoff_commit", json!({})),
        (&planner, "handoff_offer", json!({ "to": "worker", "scope": "x" })),
        (&worker, "handoff_decline", json!({})),
        (&worker, "agent_unregister", json!({})),
    ] {
        let mut arguments = arguments;
        let required = |field: &str| {
            let tool = listed["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == name).unwrap();
            tool["inputSchema"]["required"].as_array().unwrap().contains(&json!(field))
        };
        for field in ["task_id", "handoff_id"] {
            if required(field) {
                arguments[field] = json!(task);
            }
        }
        let found = client.tool(name, arguments).await;
        check(name, &found);
        let begun = found.get("task_id").or_else(|| found.get("handoff_id")).and_then(Value::as_str);
        if matches!(name, "delegate_task" | "handoff_offer") {
            task = begun.unwrap().to_owned();
        }
    }
    let mail = json!({ "title": "t", "instructions": "i", "agent": "mailer", "queue": true });
    let held = planner.tool("delegate_task", mail).await;
    check("delegate_task", &held);
    let lead = stage.client("lead");
    for (decision, reason) in [("ask_changes", Some("whom?")), ("approve", None)] {
        let waiting = lead.tool("approval_list", json!({})).await;
        check("approval_list", &waiting);
        let number = &waiting["proposals"][0]["approval"]["proposal"];
        let decided =
            json!({ "task_id": held["task_id"], "proposal": number, "decision": decision, "reason": reason });
        check("approval_decide", &lead.tool("approval_decide", decided).await);
        if reason.is_some() {
            let again = json!({ "task_id": held["task_id"], "instructions": "ann" });
            check("task_propose", &planner.tool("task_propose", again).await);
        }
    }
    // Only tasks of other protocols wait for a commitment.
    left.remove("task_commit");
    assert!(left.is_empty(), "nobody called {left:?}");
    // JSON is JSON in a timeline.
    let events = planner.tool("task_list", json!({})).await["tasks"].as_array().unwrap().clone();
    let first = events.last().unwrap()["task_id"].clone();
    let timeline = planner.tool("task_timeline", json!({ "task_id": first })).await;
    let completed = timeline["events"].as_array().unwrap().iter().find(|event| event["kind"] == "completed");
    assert_eq!(completed.unwrap()["detail"]["output"], json!({ "n": 1 }));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_breaks_says_so_though_its_task_is_paused() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let planner = stage.client("planner").declaring(interaction());
    let task = planner.begin("dig", json!({})).await;
    let job = worker.next().await;
    planner.ok("tasks/pause", json!({ "taskId": task })).await;
    assert_eq!(job.checkpoint_now().await["paused"], true);
    let refused = job.try_tool("work_resume", json!({})).await;
    assert_eq!(refused["isError"], true, "the requester paused it: {refused}");
    assert_eq!(job.fails("no disk").await["status"], "failed");
    let ended = planner.get(&task).await;
    assert_eq!((&ended["status"], &ended["result"]["isError"]), (&json!("completed"), &json!(true)));
    stage.stop().await;
}
