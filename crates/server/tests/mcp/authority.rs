//! Who may do what to whom, on every face: keys that are one call's, the access list, agents that show themselves to some,
//! and whose words a description is.

use handover_desk::access::Access;
use handover_server::face::macp::proto::handover::{ListAgentsRequest, RegisterAgentRequest};
use handover_server::face::macp::proto::v1::GetManifestRequest;
use serde_json::{Value, json};

use super::both::*;
use super::macp::{self, OfHandoff, With, envelope, macp_code};
use super::scene::*;
use super::stage::*;

const KEY: &str = "dev.handover/idempotencyKey";

/// Use a tool under a key, whatever it says.
async fn keyed(client: &Client, key: &str, tool: &str, arguments: Value) -> Value {
    let request = client.request("tools/call", json!({ "name": tool, "arguments": arguments }));
    request.meta(KEY, json!(key)).answer().await.result()
}

fn told(result: &Value) -> &str {
    assert_eq!(result["isError"], true, "{result}");
    result["content"][0]["text"].as_str().unwrap()
}

fn listed(result: &Value) -> Vec<&str> {
    result["agents"].as_array().unwrap().iter().map(|agent| agent["id"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_one_calls_and_never_answers_another_as_done() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_steady_hand(&stage).await;
    let on = |mut arguments: Value| {
        arguments["task_id"] = json!(job.id);
        arguments
    };
    let calls = [
        (&job.client, "work_update", on(json!({ "message": "half" }))),
        (&job.client, "work_checkpoint", on(json!({ "wait_ms": 0 }))),
        (&job.client, "work_ask", on(json!({ "questions": { "q": { "message": "which?" } }, "wait_ms": 0 }))),
        (&planner, "task_steer", on(json!({ "message": "left" }))),
        (&planner, "task_message", on(json!({ "message": "hello" }))),
        (&job.client, "work_complete", on(json!({ "text": "done" }))),
    ];
    for (client, tool, arguments) in &calls {
        let first = keyed(client, tool, tool, arguments.clone()).await;
        assert_ne!(first["isError"], true, "{tool}: {first}");
    }
    let before = stage.written();
    let others = [
        ("work_update", on(json!({ "message": "more" }))),
        ("work_fail", on(json!({ "reason": "broken" }))),
        ("task_steer", on(json!({ "message": "right" }))),
        ("task_message", on(json!({ "message": "bye" }))),
        ("work_complete", on(json!({ "text": "done", "summary": "in words" }))),
    ];
    for (client, key, arguments) in &calls {
        let again = keyed(client, key, key, arguments.clone()).await;
        assert_ne!(again["isError"], true, "{key}: {again}");
        for (tool, arguments) in &others {
            let refused = keyed(client, key, tool, arguments.clone()).await;
            assert!(told(&refused).contains("(DUPLICATE_MESSAGE)"), "{tool} under {key}: {refused}");
        }
    }
    // The key that began a task is no key for what is done to it.
    let delegate = json!({ "title": "dig", "instructions": "dig", "agents": ["worker", "helper"] });
    let task = keyed(&planner, "d", "delegate_task", delegate.clone()).await["structuredContent"].clone();
    let before_steer = stage.written();
    let steer = json!({ "task_id": task["task_id"], "message": "deeper" });
    assert!(told(&keyed(&planner, "d", "task_steer", steer.clone()).await).contains("(DUPLICATE_MESSAGE)"));
    let params = json!({ "taskId": task["task_id"], "message": "deeper" });
    let refused = planner.request("tasks/steer", params).meta(KEY, json!("d")).answer().await.refused();
    assert_eq!(refused.code, INVALID_PARAMS);
    for other in [
        json!({ "title": "dig", "instructions": "dig", "agents": ["worker"] }),
        json!({ "title": "dig", "instructions": "dig", "agent": "worker" }),
        json!({ "title": "dig", "instructions": "dig deeper", "agents": ["worker", "helper"] }),
        json!({ "title": "dig", "instructions": "dig", "agents": ["worker", "helper"], "parent_task_id": job.id }),
    ] {
        let refused = keyed(&planner, "d", "delegate_task", other).await;
        assert!(told(&refused).contains("(DUPLICATE_MESSAGE)"), "{refused}");
    }
    let again = keyed(&planner, "d", "delegate_task", delegate).await;
    assert_eq!(again["structuredContent"]["task_id"], task["task_id"]);
    assert_eq!(stage.written(), before_steer);
    assert!(before_steer > before);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_access_list_holds_for_every_way_to_reach_an_agent() {
    let rules = r#"[{ agents = ["intern-*"], see = ["intern-*", "worker", "secret"], delegate = ["worker"],
                      hand_on = ["intern-*"], register = ["draft-*"] },
                    { agents = ["guest"], see = [], register = [] }]"#;
    let both = Both::with(|set| set.access = Access::parse(rules).unwrap()).await;
    let stage = &both.stage;
    let (intern, guest) = (stage.client("intern-1"), stage.client("guest"));
    stage.worker("worker", json!([skill("dig")])).await;
    stage.worker("planner", json!([skill("plan")])).await;
    stage.worker("intern-2", json!([skill("draft-a")])).await;
    let skills = async |client: &Client| -> Vec<String> {
        let tools = client.ok("tools/list", json!({})).await["tools"].clone();
        let tools = tools.as_array().unwrap().clone();
        let whose = |tool: &Value| tool["_meta"]["dev.handover/describedBy"]["kind"] == "agent";
        tools
            .iter()
            .filter(|tool| whose(tool))
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    };
    // Seeing: the directory, the tools, manifests, on both faces.
    assert_eq!(listed(&intern.tool("agent_list", json!({})).await), ["intern-2", "worker"]);
    assert_eq!(skills(&intern).await, ["dig"], "to see is not to delegate");
    assert!(listed(&guest.tool("agent_list", json!({})).await).is_empty() && skills(&guest).await.is_empty());
    assert_eq!(skills(&stage.client("planner")).await, ["dig", "draft-a"], "no rule is for it");
    let mut macp_intern = both.macp("intern-1");
    let page = macp_intern.handover.list_agents(ListAgentsRequest::default()).await.unwrap().into_inner();
    assert_eq!(page.agents.iter().map(|agent| &*agent.agent_id).collect::<Vec<_>>(), ["intern-2", "worker"]);
    let manifest = |id: &str| GetManifestRequest { agent_id: id.to_owned() };
    macp_intern.macp.get_manifest(manifest("worker")).await.unwrap();
    let hidden = macp_intern.macp.get_manifest(manifest("planner")).await.unwrap_err();
    let nobody = macp_intern.macp.get_manifest(manifest("nobody")).await.unwrap_err();
    assert_eq!((hidden.code(), hidden.message()), (nobody.code(), nobody.message()));

    // Signals of agents that one may not know of are not heard.
    let mut hearing = macp_intern.signals().await;
    both.macp("planner").ok(macp::signal("weather.rain", "")).await;
    both.macp("worker").ok(macp::signal("weather.sun", "")).await;
    assert_eq!(hearing.heard().await.0, "weather.sun");
    drop(hearing);

    // Delegating and handing on, and that a refusal is the same whether there is such an agent or not.
    let before = stage.written();
    let delegate = |agents: Value| json!({ "title": "dig", "instructions": "dig", "agents": agents });
    let offer = |to: &str| json!({ "to": to, "scope": "the garden" });
    let mut answers = Vec::new();
    for name in ["planner", "phantom"] {
        let refused = intern.call("delegate_task", delegate(json!(["worker", name]))).await;
        let offered = intern.call("handoff_offer", offer(name)).await;
        let started = macp_intern.refused(envelope(
            &format!("a-session-that-names-{name}"),
            macp::start().with(|start| start.participants = vec!["worker".to_owned(), name.to_owned()]),
        ));
        let handed = macp_intern.refused(
            envelope(
                &format!("a-handoff-that-names-{name}"),
                macp::start().with(|start| start.participants = vec!["intern-1".to_owned(), name.to_owned()]),
            )
            .of_handoff(),
        );
        let (started, handed) = (started.await, handed.await);
        assert_eq!((&*started.code, &*handed.code), ("FORBIDDEN", "FORBIDDEN"));
        let said = [told(&refused), told(&offered), &*started.message, &*handed.message];
        assert!(said[..2].iter().all(|said| said.contains("(NOT_ALLOWED)")), "{said:?}");
        answers.push(said.map(|said| said.replace(name, "X")));
    }
    assert_eq!(answers[0], answers[1]);
    assert!(told(&intern.call("handoff_offer", offer("worker")).await).contains("may hand on to"));
    assert!(
        told(&intern.call("delegate_task", delegate(json!(["intern-2"]))).await).contains("may delegate to")
    );
    assert!(
        intern.refused("tools/call", json!({ "name": "plan", "arguments": {} })).await.code == INVALID_PARAMS
    );
    assert_eq!(stage.written(), before);
    intern.tool("handoff_offer", offer("intern-2")).await;
    let everybody = json!({ "title": "dig", "instructions": "dig" });
    let task = intern.tool("delegate_task", everybody.clone()).await;
    let id = task["task_id"].as_str().unwrap();
    let kinds = macp_intern.kinds(id).await;
    assert_eq!(kinds, ["started", "requested"]);
    assert_eq!(stage.client("worker").tool("work_next", json!({})).await["work"][0]["task_id"], json!(id));
    assert!(stage.client("planner").tool("work_next", json!({ "wait_ms": 0 })).await["work"] == json!([]));
    assert!(told(&guest.call("delegate_task", everybody).await).contains("found none in the directory"));

    // Registering.
    let register = |skills: Value| json!({ "name": "I", "description": "d", "skills": skills });
    intern.tool("agent_register", register(json!([skill("draft-b")]))).await;
    let refused = intern.call("agent_register", register(json!([skill("draft-b"), skill("plan")]))).await;
    assert!(told(&refused).contains("may register, found \"plan\" (NOT_ALLOWED)"), "{refused}");
    let said = RegisterAgentRequest { name: "Guest".to_owned(), ..Default::default() };
    let status = both.macp("guest").handover.register_agent(said).await.unwrap_err();
    assert_eq!(macp_code(&status), "FORBIDDEN");
    drop(macp_intern);
    both.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_shows_itself_to_some_is_reached_by_nobody_else() {
    let both = Both::open().await;
    let stage = &both.stage;
    let hidden = |to: Value| json!({ "name": "Helper", "description": "helps some", "visible_to": to, "skills": [skill("help")] });
    stage.client("helper").tool("agent_register", hidden(json!(["planner"]))).await;
    let (planner, outsider) = (stage.client("planner"), stage.client("outsider"));
    let agent = json!({ "title": "dig", "instructions": "dig", "agent": "helper" });
    let agents = json!({ "title": "dig", "instructions": "dig", "agents": ["worker", "helper"] });
    let before = stage.written();
    for (tool, arguments) in [
        ("delegate_task", agent.clone()),
        ("delegate_task", agents.clone()),
        ("handoff_offer", json!({ "to": "helper", "scope": "the garden" })),
    ] {
        let refused = outsider.call(tool, arguments.clone()).await;
        assert!(told(&refused).contains("(NOT_ALLOWED)"), "{tool} {arguments}: {refused}");
    }
    // A MACP session that names the skill of the agent, and one that does not.
    for context in ["skill:help", ""] {
        let start = macp::start().with(|start| start.context_id = context.to_owned());
        let refused = both.macp("outsider").refused(envelope("a-session-of-an-outsider", start)).await;
        assert_eq!(refused.code, "FORBIDDEN");
    }
    assert_eq!(outsider.refused("tools/call", json!({ "name": "help" })).await.code, INVALID_PARAMS);
    assert_eq!(stage.written(), before);
    planner.begin("help", json!({})).await;
    planner.tool("delegate_task", agents).await;
    let first = keyed(&planner, "k", "delegate_task", agent.clone()).await["structuredContent"].clone();
    // What stands in the way of a retry did not when it was accepted.
    stage.client("helper").tool("agent_register", hidden(json!(["outsider"]))).await;
    let again = keyed(&planner, "k", "delegate_task", agent.clone()).await;
    assert_eq!(again["structuredContent"]["task_id"], first["task_id"], "{again}");
    assert!(told(&keyed(&planner, "l", "delegate_task", agent).await).contains("(NOT_ALLOWED)"));
    both.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_gave_a_task_back_cannot_hand_it_on_nor_add_to_it() {
    let stage = Stage::in_memory().await;
    let planner = stage.client("planner");
    let [thief, owner, friend] = ["thief", "owner", "friend"].map(|name| stage.client(name));
    let delegate = json!({ "title": "dig", "instructions": "dig", "agents": ["thief", "owner", "friend"] });
    let task = planner.tool("delegate_task", delegate).await["task_id"].clone();
    let on = |more: Value| {
        let mut arguments = json!({ "task_id": task });
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        arguments
    };
    let subtask = |parent: &Value| json!({ "title": "a part", "instructions": "dig", "agent": "friend", "parent_task_id": parent });
    // Who could take it, and has not, adds nothing to it.
    assert!(told(&owner.call("delegate_task", subtask(&task)).await).contains("(NOT_ASSIGNEE)"));
    thief.tool("work_accept", on(json!({}))).await;
    thief.tool("delegate_task", subtask(&task)).await;
    let handoff = thief.tool("handoff_offer", on(json!({ "to": "friend" }))).await["handoff_id"].clone();
    friend.tool("handoff_accept", json!({ "handoff_id": handoff })).await;
    thief.tool("work_decline", on(json!({ "reason": "no time" }))).await;
    owner.tool("work_accept", on(json!({}))).await;
    thief.tool("handoff_commit", json!({ "handoff_id": handoff })).await;
    let settled = async || {
        let events =
            stage.store.read(&handover_store::SessionKey::new("default", handoff.as_str().unwrap()), 0, 100);
        events.unwrap().len() >= 5
    };
    until(settled).await;
    assert_eq!(planner.tool("task_status", on(json!({}))).await["assignee"], "owner");
    assert!(told(&thief.call("delegate_task", subtask(&task)).await).contains("(NO_LONGER_ASSIGNEE)"));
    owner.tool("work_complete", on(json!({ "text": "done" }))).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_agents_say_of_themselves_is_seen_whole_and_is_said_to_be_theirs() {
    let both = Both::open().await;
    let stage = &both.stage;
    let (worker, planner) = (stage.client("worker"), stage.client("planner"));
    let said = |name: &str, skill: Value| json!({ "name": name, "description": "digs\u{202e}\u{200b}\nholes", "skills": [skill] });
    let fine = skill_with("dig", json!({ "title": "D\u{2066}ig\n", "description": "digs\u{e0041}\u{7}" }));
    worker.tool("agent_register", said("The Worker", fine.clone())).await;
    let tools = planner.ok("tools/list", json!({})).await["tools"].clone();
    let tool =
        |name: &str| tools.as_array().unwrap().iter().find(|tool| tool["name"] == name).unwrap().clone();
    assert_eq!(
        (&tool("dig")["title"], &tool("dig")["description"]),
        (&json!("Dig "), &json!("digs (a skill of worker)"))
    );
    let whose = |tool: &Value| tool["_meta"]["dev.handover/describedBy"].clone();
    assert_eq!(whose(&tool("dig")), json!({ "kind": "agent", "id": "worker" }));
    assert_eq!(whose(&tool("delegate_task")), json!({ "kind": "server", "id": "handover" }));
    let agent = planner.tool("agent_list", json!({})).await["agents"][0].clone();
    assert_eq!((&agent["description"], whose(&agent)), (&json!("digs\nholes"), whose(&tool("dig"))));
    let mut reader = both.macp("planner");
    let page = reader.handover.list_agents(ListAgentsRequest::default()).await.unwrap().into_inner();
    assert_eq!((&*page.agents[0].description, &*page.agents[0].described_by), ("digs\nholes", "worker"));
    let manifest = reader.macp.get_manifest(GetManifestRequest { agent_id: "worker".to_owned() }).await;
    assert_eq!(manifest.unwrap().into_inner().manifest.unwrap().metadata["described_by"], "worker");

    // Names and what is part of a contract are refused, saying where and what.
    let schema = |text: &str| json!({ "type": "object", "properties": { "to": { "description": text } } });
    for (name, skill, expected) in [
        ("The\u{200b}Worker", fine.clone(), "name: expected visible characters, found U+200B"),
        ("W\u{202e}", fine.clone(), "name: expected visible characters, found U+202E"),
        (
            "W",
            skill_with("dig", json!({ "annotations": { "title": "\u{2067}x" } })),
            "annotations: expected visible characters, found U+2067",
        ),
        (
            "W",
            skill_with("dig", json!({ "inputSchema": schema("a\u{feff}") })),
            "input_schema: expected visible characters, found U+FEFF",
        ),
        ("W", skill_with("di\u{200d}g", json!({})), "skill name: expected 1 to 64 letters"),
    ] {
        let refused = worker.call("agent_register", said(name, skill)).await;
        assert!(told(&refused).contains(expected), "{refused}");
    }
    // Bodies are nobody's business.
    let words = "dig\u{202e} \u{200b}here\u{7}";
    let delegate = json!({ "title": words, "instructions": words, "agent": "worker" });
    planner.tool("delegate_task", delegate).await;
    let work = worker.tool("work_next", json!({})).await["work"][0].clone();
    assert_eq!((&work["title"], &work["instructions"]), (&json!(words), &json!(words)));
    drop(reader);
    both.stop().await;
}
