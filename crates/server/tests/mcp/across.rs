//! One task, two protocols: who asks speaks MCP and who works speaks MACP, and the other way round.

use handover_server::face::macp::proto::handoff::HandoffAcceptPayload;
use handover_server::face::macp::proto::handover::{
    AgentSkill, AgentSkillAnswers, ListQuestionsRequest, RegisterAgentRequest,
};
use handover_server::face::macp::proto::task::{
    TaskAcceptPayload, TaskCompletePayload, TaskRequestPayload, TaskUpdatePayload,
};
use handover_server::face::macp::proto::v1::{CommitmentPayload, Envelope, SessionState};
use serde_json::{Value, json};

use super::both::*;
use super::macp::{self, Agent, With, envelope};
use super::scene::*;
use super::stage::*;

/// The types of these envelopes, which must all be of this session and the Task Mode, each with an id of its own.
fn types<'a>(envelopes: &'a [Envelope], session: &str) -> Vec<&'a str> {
    let mut ids: Vec<&str> = envelopes.iter().map(|envelope| envelope.message_id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), envelopes.len(), "each has an id of its own");
    for envelope in envelopes {
        assert_eq!((envelope.mode.as_str(), envelope.session_id.as_str()), ("macp.mode.task.v1", session));
        assert_eq!((envelope.macp_version.as_str(), envelope.sender.is_empty()), ("1.0", false));
    }
    envelopes.iter().map(|envelope| envelope.message_type.as_str()).collect()
}

/// The task that the skill's caller began, as an agent of MACP finds it.
async fn find_work(agent: &Agent) -> String {
    let watch = in_time(agent.macp.clone().watch_sessions(macp::watch_sessions())).await;
    let event = in_time(watch.unwrap().into_inner().message()).await.unwrap().unwrap().event.unwrap();
    event.session.unwrap().session_id
}

fn update(status: &str, message: &str) -> TaskUpdatePayload {
    macp::update(status).with(|update| {
        update.task_id = SKILL.to_owned();
        update.message = message.to_owned();
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_mcp_host_calls_a_skill_of_a_macp_agent() {
    let both = Both::open().await;
    let worker = both.macp("worker");
    let host = both.stage.client("planner").declaring(interaction());
    let (mut tools, _) = host.listen(json!({ "toolsListChanged": true })).await;
    let skill = AgentSkill {
        name: SKILL.to_owned(),
        description: "digs a hole".to_owned(),
        input_schema: json!({ "type": "object", "properties": { "depth": { "type": "integer" } } })
            .to_string(),
        answers: AgentSkillAnswers::Task.into(),
        ..AgentSkill::default()
    };
    let registration =
        RegisterAgentRequest { name: "Digger".to_owned(), skills: vec![skill], ..Default::default() };
    worker.handover.clone().register_agent(registration).await.unwrap();
    tools.next_of("notifications/tools/list_changed").await;
    let listed = host.ok("tools/list", json!({})).await["tools"].clone();
    assert!(listed.as_array().unwrap().iter().any(|tool| tool["name"] == SKILL), "{listed}");

    let task = host.begin(SKILL, json!({ "depth": 3 })).await;
    let (mut told, _) = host.listen(json!({ "taskIds": [task] })).await;
    let said = host.get(&task).await["statusMessage"].as_str().unwrap().to_owned();
    assert!(said.starts_with("waiting for worker, "), "{said}");
    assert_eq!(find_work(&worker).await, task);
    let begun = transcript(&worker, &task, 2).await;
    assert_eq!(types(&begun, &task), ["SessionStart", "TaskRequest"]);
    let request: TaskRequestPayload = payload(&begun[1]);
    assert_eq!((request.task_id.as_str(), request.requested_assignee.as_str()), (SKILL, "worker"));
    assert_eq!(serde_json::from_slice::<Value>(&request.input).unwrap(), json!({ "depth": 3 }));

    work_through(&worker, &host, &task, &mut told).await;
    drop((tools, told));

    let all = transcript(&both.macp("planner"), &task, 9).await;
    let life = [
        "SessionStart",
        "TaskRequest",
        "TaskAccept",
        "TaskUpdate",
        "TaskUpdate",
        "TaskUpdate",
        "TaskUpdate",
        "TaskComplete",
        "Commitment",
    ];
    assert_eq!(types(&all, &task), life);
    let commitment: CommitmentPayload = payload(&all[8]);
    assert_eq!((commitment.outcome_positive, all[8].sender.as_str()), (true, "planner"));
    // What came through MCP has an id that no client can take.
    for index in [0, 1, 8] {
        assert!(all[index].message_id.starts_with("handover:"), "{}", all[index].message_id);
    }
    drop(worker);
    both.stop().await;
}

/// Hear that the task has come to a status. What lasts for a moment only need not be told, so that each is waited for.
async fn is_told(told: &mut Reply, status: &str) {
    while told.next_of("notifications/tasks").await["status"] != status {}
}

/// Accept, report, ask, hear the answer, be steered, paused and resumed, and complete; the host hears of it all.
async fn work_through(worker: &Agent, host: &Client, task: &str, told: &mut Reply) {
    let mut hearing = worker.signals().await;
    worker.ok(envelope(task, TaskAcceptPayload { task_id: SKILL.to_owned(), ..Default::default() })).await;
    assert_eq!(host.get(task).await["status"], "working");
    is_told(told, "working").await;
    worker.ok(envelope(task, update("working", "half"))).await;
    assert_eq!(host.get(task).await["statusMessage"], "half");

    let schema =
        json!({ "type": "object", "properties": { "side": { "type": "string" } }, "required": ["side"] });
    let asks = update("input_required", "Where to?")
        .with(|ask| ask.partial_output = schema.to_string().into_bytes())
        .with(|ask| ask.progress = 0.0);
    worker.ok(envelope(task, asks)).await;
    let shown = host.get(task).await;
    assert_eq!(shown["status"], "input_required");
    let view = host.tool("task_status", json!({ "task_id": task })).await;
    assert_eq!(view["progress"], 0.5, "a question without progress is no step back");
    is_told(told, "input_required").await;
    let key = asked(&shown)[0].to_owned();
    assert_eq!(shown["inputRequests"][&key]["params"]["requestedSchema"], schema);
    let answer = json!({ "action": "accept", "content": { "side": "left" } });
    assert_eq!(host.update(task, json!({ key.as_str(): answer })).await, ack());
    let heard: Value = serde_json::from_str(&hears(&mut hearing, "task.answer").await).unwrap();
    assert_eq!((&heard[0]["key"], &heard[0]["action"]), (&json!(key), &json!("accept")));
    assert!(heard[0]["content"].to_string().contains("left"), "{heard}");
    is_told(told, "working").await;

    host.steer(task, "deeper").await;
    worker.ok(envelope(task, update("working", "digging"))).await;
    assert_eq!(hears(&mut hearing, "task.steer").await, "deeper");
    until(async || host.kinds(task).await.iter().filter(|kind| *kind == "delivered").count() == 2).await;

    assert_eq!(host.pause(task).await["status"], "working");
    let paused = worker.ok(envelope(task, update("working", "at a safe point"))).await;
    assert_eq!(paused.session_state(), SessionState::Suspended);
    hears(&mut hearing, "task.pause").await;
    assert_eq!(host.get(task).await["status"], "paused");
    is_told(told, "paused").await;
    host.steer(task, "wider").await;
    assert_eq!(worker.refused(envelope(task, update("working", "x"))).await.code, "SESSION_NOT_OPEN");

    assert_eq!(host.resume(task).await["status"], "working");
    is_told(told, "working").await;
    let complete = TaskCompletePayload {
        task_id: SKILL.to_owned(),
        output: br#"{"depth":3}"#.to_vec(),
        ..TaskCompletePayload::default()
    };
    worker.ok(envelope(task, complete)).await;
    let shown = host.get(task).await;
    assert_eq!(shown["status"], "completed");
    assert_eq!(shown["result"]["structuredContent"], json!({ "depth": 3 }));
    is_told(told, "completed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_mcp_worker_does_what_a_macp_agent_asks_for() {
    let both = Both::open().await;
    let mut planner = both.macp("planner");
    let host = both.stage.client("planner").declaring(interaction());
    let worker = digger(&both.stage).await;
    planner.ok(envelope(macp::SESSION, macp::start())).await;
    planner.ok(envelope(macp::SESSION, macp::request())).await;

    let job = worker.next().await;
    assert_eq!(job.id, macp::SESSION);
    assert_eq!(job.shown["instructions"], "read the numbers, write a page");
    job.update(json!({ "message": "half", "progress": 1, "total": 2 })).await;
    planner.handover.steer(macp::steer(macp::SESSION, "shorter")).await.unwrap();
    assert_eq!(steers(&job.says("writing").await), ["shorter"]);

    job.asks_for("where", "Which quarter?").await;
    assert_eq!(host.get(macp::SESSION).await["status"], "input_required");
    let list = ListQuestionsRequest { session_id: macp::SESSION.to_owned() };
    let open = planner.handover.list_questions(list).await.unwrap().into_inner().questions;
    assert_eq!((open[0].key.as_str(), open[0].text.as_str()), ("where", "Which quarter?"));
    planner.handover.answer(macp::answer(macp::SESSION, "where", "the third")).await.unwrap();
    let told = job.checkpoint().await["orders"].clone();
    assert_eq!(told[0]["answers"]["where"], json!({ "action": "accept", "content": "the third" }));

    planner.handover.pause(macp::pause(macp::SESSION)).await.unwrap();
    assert_eq!(reach(&job).await["paused"], true);
    assert_eq!(host.get(macp::SESSION).await["statusMessage"], "paused: lunch; resume it to go on");
    planner.macp.resume_session(macp::resume(macp::SESSION)).await.unwrap();
    assert_eq!(job.checkpoint().await["paused"], false);

    job.completes_with(json!({ "output": { "page": 1 } })).await;
    // The charter of MACP leaves the outcome to the requester.
    let shown = host.get(macp::SESSION).await;
    assert_eq!(
        (&shown["status"], &shown["statusMessage"]),
        (&json!("working"), &json!("reported: the requester has not decided about the result yet"))
    );
    let steer = json!({ "taskId": macp::SESSION, "message": "late" });
    assert_eq!(host.refused("tasks/steer", steer).await.as_pair(), (200, INVALID_PARAMS));
    planner.ok(envelope(macp::SESSION, macp::commit())).await;
    let shown = host.get(macp::SESSION).await;
    assert_eq!(
        (&shown["status"], &shown["result"]["structuredContent"]),
        (&json!("completed"), &json!({ "page": 1 }))
    );

    let all = transcript(&planner, macp::SESSION, 8).await;
    let life = [
        "SessionStart",
        "TaskRequest",
        "TaskAccept",
        "TaskUpdate",
        "TaskUpdate",
        "TaskUpdate",
        "TaskComplete",
        "Commitment",
    ];
    assert_eq!(types(&all, macp::SESSION), life);
    let question: TaskUpdatePayload = payload(&all[5]);
    assert_eq!((question.status.as_str(), question.message.as_str()), ("input_required", "Which quarter?"));
    let report: TaskCompletePayload = payload(&all[6]);
    assert_eq!((report.assignee.as_str(), report.output.as_slice()), ("worker", &br#"{"page":1}"#[..]));
    for index in [2, 3, 4, 5, 6] {
        assert_eq!(all[index].sender, "worker");
        assert!(all[index].message_id.starts_with("handover:"), "{}", all[index].message_id);
    }
    drop(planner);
    both.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_macp_agent_that_declines_tells_an_mcp_host_who_and_why() {
    let both = Both::open().await;
    let worker = both.macp("worker");
    let host = both.stage.client("planner");
    let delegate = json!({ "title": "dig", "instructions": "dig a hole", "agents": ["worker"] });
    let task = host.tool("delegate_task", delegate).await["task_id"].as_str().unwrap().to_owned();
    let begun = transcript(&worker, &task, 2).await;
    let request: TaskRequestPayload = payload(&begun[1]);
    let no = macp::reject().with(|reject| {
        reject.task_id = request.task_id.clone();
        reject.reason = "no spade".to_owned();
    });
    worker.ok(envelope(&task, no)).await;
    let shown = host.get(&task).await;
    assert_eq!((&shown["status"], &shown["result"]["isError"]), (&json!("completed"), &json!(true)));
    let text = shown["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("worker"), "{text}");
    assert!(host.tool("task_timeline", json!({ "task_id": task })).await.to_string().contains("no spade"));
    drop(worker);
    both.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_mcp_worker_hands_a_running_task_on_to_a_macp_agent() {
    let both = Both::open().await;
    let helper = both.macp("helper");
    let host = both.stage.client("planner");
    let worker = digger(&both.stage).await;
    let delegate = json!({ "title": "dig", "instructions": "dig", "agents": ["worker", "helper"] });
    let task = host.tool("delegate_task", delegate).await["task_id"].as_str().unwrap().to_owned();
    let job = worker.next().await;
    host.steer(&task, "deeper").await;

    let offer = json!({ "to": "helper", "context": { "depth": 1 } });
    let handoff = job.tool("handoff_offer", offer).await["handoff_id"].as_str().unwrap().to_owned();
    let accept = HandoffAcceptPayload { handoff_id: handoff.clone(), ..Default::default() };
    helper.ok(envelope(&handoff, accept)).await;
    assert_eq!(host.tool("task_status", json!({ "task_id": task })).await["assignee"], "worker");
    worker.client.tool("handoff_commit", json!({ "handoff_id": handoff })).await;
    assert_eq!(host.tool("task_status", json!({ "task_id": task })).await["assignee"], "helper");
    assert_eq!(host.get(&task).await["status"], "working");

    // Whoever has it now hears what waited, and ends it.
    let mut hearing = helper.signals().await;
    let name = payload::<TaskRequestPayload>(&transcript(&helper, &task, 2).await[1]).task_id;
    let named = |update: &mut TaskUpdatePayload| update.task_id = name.clone();
    helper.ok(envelope(&task, macp::update("working").with(named))).await;
    assert_eq!(hears(&mut hearing, "task.steer").await, "deeper");
    let refused = job.try_tool("work_update", json!({ "message": "still here" })).await;
    assert!(refused["content"][0]["text"].as_str().unwrap().contains("NO_LONGER_ASSIGNEE"), "{refused}");
    let report = envelope(&task, macp::complete().with(|complete| complete.task_id = name.clone()));
    helper.ok(report.clone()).await;
    assert_eq!(host.get(&task).await["result"]["content"][0]["text"], "a page");

    // RFC-MACP-0009 §8: the key of the outcome is the same for everybody.
    let key = format!("{name}:helper:{}", report.message_id);
    assert_eq!(host.tool("task_status", json!({ "task_id": task })).await["outcome_key"], key);
    let keys: Vec<(String, Value)> = (helper.timeline(&task).await.into_iter())
        .map(|event| {
            let detail: Value = serde_json::from_str(&event.detail_json).unwrap();
            (event.kind, detail["outcome_key"].clone())
        })
        .filter(|(_, key)| !key.is_null())
        .collect();
    assert_eq!(keys, ["completed", "committed"].map(|kind| (kind.to_owned(), json!(key))));

    let all = transcript(&helper, &task, 8).await;
    let life = [
        ("SessionStart", "planner"),
        ("TaskRequest", "planner"),
        ("TaskAccept", "worker"),
        ("TaskReject", "worker"),
        ("TaskAccept", "helper"),
        ("TaskUpdate", "helper"),
        ("TaskComplete", "helper"),
        ("Commitment", "planner"),
    ];
    let senders = all.iter().map(|envelope| envelope.sender.as_str());
    assert_eq!(types(&all, &task).into_iter().zip(senders).collect::<Vec<_>>(), life);
    drop(helper);
    both.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_one_face_is_no_key_of_another() {
    let both = Both::open().await;
    let mut planner = both.macp("planner");
    let host = both.stage.client("planner");
    let worker = digger(&both.stage).await;
    planner.ok(envelope(macp::SESSION, macp::start())).await;
    planner.ok(envelope(macp::SESSION, macp::request())).await;
    let job = worker.next().await;
    let named = macp::steer(macp::SESSION, "by macp").with(|steer| steer.message_id = "k".to_owned());
    planner.handover.steer(named).await.unwrap();
    let steer = host.request("tasks/steer", json!({ "taskId": macp::SESSION, "message": "by mcp" }));
    let steer = steer.meta("dev.handover/idempotencyKey", json!("k"));
    assert_eq!(steer.clone().answer().await.result(), ack());
    assert_eq!(steer.answer().await.result(), ack());
    assert_eq!(steers(&job.checkpoint().await), ["by macp", "by mcp"]);
    drop(planner);
    both.stop().await;
}
