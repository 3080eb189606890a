//! One task, two protocols, over real connections: the sender or the receiver is an agent of the Grid, the other speaks MCP
//! or MACP.

use handover_server::face::macp::proto::handover::{ListQuestionsRequest, Question};
use handover_server::face::macp::proto::task::{
    TaskAcceptPayload, TaskCompletePayload, TaskRequestPayload, TaskUpdatePayload,
};
use handover_server::face::macp::proto::v1::{CommitmentPayload, Envelope};
use serde_json::{Value, json};

use super::client::{Node, code};
use super::others::both::{Both, payload, transcript};
use super::others::macp::{self, Agent, With, envelope};
use super::others::scene::{Interacts, SKILL, ack, asked, reach, says, steers};
use super::others::stage::*;

/// The types of these envelopes, and who sent each.
fn types(envelopes: &[Envelope]) -> Vec<(&str, &str)> {
    envelopes.iter().map(|envelope| (envelope.message_type.as_str(), envelope.sender.as_str())).collect()
}

/// An agent of the Grid with the skill, in the directory.
async fn registered(stage: &Stage, name: &str) -> Node {
    let node = Node::new(stage, name);
    let skill = json!({ "name": SKILL, "description": "digs a hole" });
    let (status, shown) =
        node.rest("POST", "/grid/nodes", json!({ "name": "Digger", "skills": [skill] })).await;
    assert_eq!((status, &shown["nodeId"]), (201, &json!(name)), "{shown}");
    node
}

/// A task of the MCP host `planner`, called as a skill of the Grid agent `worker`.
async fn called(stage: &Stage) -> (Client, Node, String) {
    let worker = registered(stage, "worker").await;
    let host = stage.client("planner").declaring(interaction());
    let task = host.begin(SKILL, json!({ "depth": 3 })).await;
    (host, worker, task)
}

// A Grid sender, an MCP worker.

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_mcp_worker_does_what_a_grid_sender_asks_for() {
    let stage = Stage::in_memory().await;
    let sender = Node::new(&stage, "planner");
    let mut told = sender.listens().await;
    let worker = stage.worker("worker", json!([])).await;
    let task = sender.sends("worker", "dig a hole").await;

    let found = worker.client.tool("work_next", json!({})).await["work"][0].clone();
    assert_eq!((&found["task_id"], &found["instructions"]), (&json!(task), &json!("dig a hole")));
    assert_eq!(sender.state(&task).await, "submitted");
    worker.client.tool("work_accept", json!({ "task_id": task })).await;
    assert_eq!(told.notified("state").await["state"], "working");
    assert_eq!(sender.state(&task).await, "working");

    let job = Job { client: worker.client.clone(), id: task.clone(), shown: found };
    job.update(json!({ "message": "half", "progress": 1, "total": 2 })).await;
    told.notified("progress").await;
    let shown = sender.get(&task).await;
    assert_eq!(
        (&shown["progress"]["message"], shown["acknowledged"].as_bool()),
        (&json!("half"), Some(true))
    );

    sender.ok("task/steer", json!({ "taskId": task, "text": "deeper" })).await;
    assert_eq!(steers(&reach(&job).await), ["deeper"]);

    job.asks_for("where", "Where to?").await;
    told.notified("message").await;
    assert_eq!(sender.get(&task).await["questions"][0]["key"], "where");
    assert_eq!(sender.state(&task).await, "input_required");
    assert_eq!(sender.hears(&task).await.last().unwrap(), &("question".to_owned(), "Where to?".to_owned()));
    assert_eq!(sender.says(&task, "to the left").await["state"], "working");
    let orders = job.checkpoint().await["orders"].clone();
    assert!(orders.to_string().contains("to the left"), "{orders}");

    job.completes_with(json!({ "output": { "depth": 3 } })).await;
    let shown = sender.get(&task).await;
    assert_eq!(shown["state"], "input_required", "only the sender completes");
    let delivered = sender.reads(&task).await.pop().unwrap();
    assert_eq!((&delivered["kind"], &delivered["via"]), (&json!("result"), &json!("mcp")));
    assert!(delivered["parts"].to_string().contains(r#"{"depth":3}"#), "{delivered}");
    let refused = sender.refused("message/send", json!({ "taskId": task, "message": "and wider" })).await;
    assert_eq!(code(&refused), "ALREADY_REPORTED");
    assert!(refused["message"].as_str().unwrap().contains("new task"), "{refused}");
    sender.ok("task/complete", json!({ "taskId": task })).await;
    assert_eq!(sender.state(&task).await, "completed");
    let shown = worker.client.tool("task_status", json!({ "task_id": task })).await;
    assert_eq!(shown["status"], "completed");
    drop(told);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_does_not_fit_what_an_mcp_worker_asks_for_names_the_field_and_leaves_the_question_open()
 {
    let stage = Stage::in_memory().await;
    let sender = Node::new(&stage, "planner");
    let worker = stage.worker("worker", json!([])).await;
    let task = sender.sends("worker", "dig a hole").await;
    let job = worker.next().await;
    let schema = json!({
        "type": "object", "properties": { "side": { "type": "string" } }, "required": ["side"],
    });
    job.asks(json!({ "where": { "message": "Where to?", "schema": schema } })).await;
    assert_eq!(sender.get(&task).await["questions"][0]["schema"], schema);
    let before = stage.written();
    let data = |data: Value| json!({ "parts": [{ "type": "data", "data": data }] });
    for (message, field) in [(json!("left"), "object"), (data(json!({ "side": 3 })), "side")] {
        let refused = sender.refused("message/send", json!({ "taskId": task, "message": message })).await;
        let said = refused["message"].as_str().unwrap();
        assert!(said.contains("where") && said.contains(field), "{said}");
    }
    assert_eq!(stage.written(), before, "what does not fit leaves no trace");
    assert_eq!(sender.get(&task).await["questions"].as_array().unwrap().len(), 1);
    assert_eq!(sender.says(&task, data(json!({ "side": "left" }))).await["state"], "working");
    assert_eq!(sender.get(&task).await.get("questions"), None);
    let orders = job.checkpoint().await["orders"].to_string();
    assert!(orders.contains("left"), "{orders}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grid_sender_sees_that_an_mcp_worker_failed_or_declined() {
    let stage = Stage::in_memory().await;
    let sender = Node::new(&stage, "planner");
    let worker = stage.worker("worker", json!([])).await;
    let failed = sender.sends("worker", "dig a hole").await;
    worker.next().await.fails("no ground").await;
    assert_eq!(sender.state(&failed).await, "failed");
    let heard = sender.hears(&failed).await;
    assert!(heard.iter().any(|(kind, text)| kind == "state" && text.contains("no ground")), "{heard:?}");

    let declined = sender.sends("worker", "dig a hole").await;
    worker.client.tool("work_decline", json!({ "task_id": declined, "reason": "no spade" })).await;
    assert_eq!(sender.state(&declined).await, "rejected");
    let heard = sender.hears(&declined).await;
    assert!(heard.iter().any(|(kind, text)| kind == "state" && text.contains("no spade")), "{heard:?}");
    stage.stop().await;
}

// A Grid sender, a MACP worker.

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_macp_worker_does_what_a_grid_sender_asks_for() {
    let both = Both::open().await;
    let sender = Node::new(&both.stage, "planner");
    let worker = both.macp("worker");
    let task = sender.sends("worker", "dig a hole").await;
    let begun = transcript(&worker, &task, 2).await;
    let request: TaskRequestPayload = payload(&begun[1]);
    assert_eq!(
        (request.requested_assignee.as_str(), request.instructions.as_str()),
        ("worker", "dig a hole")
    );
    let name = request.task_id;
    let mut hearing = worker.signals().await;

    worker.ok(envelope(&task, TaskAcceptPayload { task_id: name.clone(), ..Default::default() })).await;
    assert_eq!(sender.state(&task).await, "working");
    let update = |status: &str, message: &str| {
        macp::update(status).with(|update: &mut TaskUpdatePayload| {
            update.task_id = name.clone();
            update.message = message.to_owned();
        })
    };
    worker.ok(envelope(&task, update("working", "half"))).await;
    assert_eq!(sender.get(&task).await["progress"], json!({ "done": 0.5, "message": "half" }));
    worker.ok(envelope(&task, update("input_required", "Where to?"))).await;
    assert_eq!(sender.state(&task).await, "input_required");
    assert_eq!(sender.hears(&task).await.last().unwrap(), &("question".to_owned(), "Where to?".to_owned()));
    assert_eq!(sender.says(&task, "to the left").await["state"], "working");
    let (kind, data) = hearing.heard().await;
    assert!(kind.starts_with("task.") && data.contains("to the left"), "{kind}: {data}");

    let complete = TaskCompletePayload {
        task_id: name.clone(),
        output: b"a hole".to_vec(),
        ..TaskCompletePayload::default()
    };
    worker.ok(envelope(&task, complete)).await;
    assert_eq!(sender.state(&task).await, "input_required");
    assert_eq!(sender.hears(&task).await.last().unwrap(), &("result".to_owned(), "a hole".to_owned()));
    sender.ok("task/complete", json!({ "taskId": task, "reason": "a fine hole" })).await;
    assert_eq!(sender.state(&task).await, "completed");

    let all = transcript(&worker, &task, 7).await;
    let life = [
        ("SessionStart", "planner"),
        ("TaskRequest", "planner"),
        ("TaskAccept", "worker"),
        ("TaskUpdate", "worker"),
        ("TaskUpdate", "worker"),
        ("TaskComplete", "worker"),
        ("Commitment", "planner"),
    ];
    assert_eq!(types(&all), life, "a valid transcript of Task Mode");
    let commitment: CommitmentPayload = payload(&all[6]);
    assert_eq!((commitment.outcome_positive, commitment.reason.as_str()), (true, "a fine hole"));
    drop((worker, hearing));
    both.stop().await;
}

// An MCP host, a Grid receiver.

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grid_receiver_is_notified_reads_acknowledges_and_delivers_what_an_mcp_host_asked_for() {
    let stage = Stage::in_memory().await;
    let worker = registered(&stage, "worker").await;
    let mut told = worker.listens().await;
    let host = stage.client("planner").declaring(interaction());
    let task = host.begin(SKILL, json!({ "depth": 3 })).await;
    let notified = told.notified("task").await;
    assert_eq!((&notified["taskId"], &notified["fromNodeId"]), (&json!(task), &json!("planner")));
    assert_eq!(notified["state"], "submitted");
    let listed = worker.ok("task/list", json!({ "unread": true })).await;
    assert_eq!(listed["tasks"][0]["taskId"], json!(task));

    let read = worker.reads(&task).await;
    assert_eq!((read.len(), &read[0]["kind"], &read[0]["via"]), (1, &json!("task"), &json!("mcp")));
    let given = read[0]["parts"].as_array().unwrap();
    assert!(given.contains(&json!({ "type": "data", "data": { "depth": 3 } })), "{given:?}");
    assert_eq!(worker.state(&task).await, "submitted", "to read takes nothing");
    assert!(worker.acks(&task).await);
    assert!(!worker.acks(&task).await, "it was told before");
    assert_eq!(host.get(&task).await["status"], "working");

    assert_eq!(worker.says(&task, "a hole").await["state"], "completed");
    let shown = host.get(&task).await;
    assert_eq!(shown["status"], "completed");
    assert_eq!(shown["result"]["content"][0]["text"], "a hole");
    let late = worker.refused("message/send", json!({ "taskId": task, "message": "and another" })).await;
    assert_eq!(code(&late), "SESSION_ENDED");
    assert!(late["message"].as_str().unwrap().contains("send a new task"), "{late}");
    drop(told);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_grid_receiver_delivers_must_fit_what_its_skill_promised() {
    let stage = Stage::in_memory().await;
    let worker = Node::new(&stage, "worker");
    let output =
        json!({ "type": "object", "properties": { "depth": { "type": "integer" } }, "required": ["depth"] });
    let skill = json!({ "name": SKILL, "description": "digs", "outputSchema": output });
    let (status, shown) =
        worker.rest("POST", "/grid/nodes", json!({ "name": "Digger", "skills": [skill] })).await;
    assert_eq!(status, 201, "{shown}");
    let host = stage.client("planner");
    let task = host.begin(SKILL, json!({})).await;
    let data = |depth: Value| json!({ "parts": [{ "type": "data", "data": { "depth": depth } }] });
    let wrong = json!({ "taskId": task, "message": data(json!("deep")) });
    let refused = worker.refused("message/send", wrong).await;
    assert!(refused["message"].as_str().unwrap().contains("depth"), "{refused}");
    assert_eq!(host.get(&task).await["status"], "working");
    worker.says(&task, data(json!(3))).await;
    assert_eq!(host.get(&task).await["result"]["structuredContent"], json!({ "depth": 3 }));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grid_receiver_asks_an_mcp_host_and_asks_it_for_permission() {
    let stage = Stage::in_memory().await;
    let (host, worker, task) = called(&stage).await;
    assert_eq!(worker.says_with(&task, "Where to?", "input_required").await["state"], "input_required");
    let shown = host.get(&task).await;
    assert_eq!(shown["status"], "input_required");
    let key = asked(&shown)[0].to_owned();
    let put = &shown["inputRequests"][&key]["params"];
    assert!(put["message"].as_str().unwrap().contains("Where to?"), "{put}");
    worker.reads(&task).await;
    assert_eq!(host.update(&task, json!({ key.as_str(): says("left") })).await, ack());
    assert_eq!(worker.state(&task).await, "working");
    assert_eq!(worker.hears(&task).await, [("answer".to_owned(), "left".to_owned())]);

    assert_eq!(worker.says_with(&task, "Through the wall?", "auth_required").await["state"], "auth_required");
    let shown = host.get(&task).await;
    let key = asked(&shown)[0].to_owned();
    let form = &shown["inputRequests"][&key]["params"]["requestedSchema"];
    assert_eq!(form["properties"]["approved"]["type"], "boolean", "{form}");
    let approved = json!({ "action": "accept", "content": { "approved": true } });
    assert_eq!(host.update(&task, json!({ key.as_str(): approved })).await, ack());
    assert_eq!(worker.state(&task).await, "working");
    let heard = worker.hears(&task).await;
    assert!(heard.len() == 1 && heard[0].1.contains("true"), "{heard:?}");

    assert_eq!(worker.says_with(&task, "Through the roof?", "auth_required").await["state"], "auth_required");
    let key = asked(&host.get(&task).await)[0].to_owned();
    host.update(&task, json!({ key.as_str(): { "action": "decline" } })).await;
    assert_eq!(worker.hears(&task).await, [("answer".to_owned(), "refused".to_owned())]);

    assert_eq!(worker.says_with(&task, "half", "working").await["state"], "working");
    assert_eq!(host.get(&task).await["status"], "working");
    worker.says(&task, "a hole").await;
    assert_eq!(host.get(&task).await["status"], "completed");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steers_and_pauses_of_an_mcp_host_reach_a_grid_receiver_where_it_reads() {
    let stage = Stage::in_memory().await;
    let (host, worker, task) = called(&stage).await;
    let mut told = worker.listens().await;
    worker.ok("task/update", json!({ "taskId": task, "state": "working" })).await;
    worker.reads(&task).await;
    host.steer(&task, "deeper").await;
    told.notified("steer").await;
    assert_eq!(worker.get(&task).await["unreadCount"], 1);
    assert_eq!(worker.hears(&task).await, [("steer".to_owned(), "deeper".to_owned())]);
    assert_eq!(worker.get(&task).await["unreadCount"], 0);

    assert_eq!(host.pause(&task).await["status"], "working", "it is not paused before it has read so");
    told.notified("pause").await;
    let heard = worker.hears(&task).await;
    assert!(heard.len() == 1 && heard[0].1.starts_with("the task is to be paused"), "{heard:?}");
    assert_eq!(host.get(&task).await["status"], "paused");
    assert_eq!(
        (worker.get(&task).await["paused"].as_bool(), worker.state(&task).await),
        (Some(true), "working".to_owned())
    );
    let refused = worker.refused("message/send", json!({ "taskId": task, "message": "a hole" })).await;
    assert_eq!(code(&refused), "SESSION_SUSPENDED");
    host.resume(&task).await;
    assert_eq!(worker.get(&task).await["paused"], false);
    worker.says(&task, "a hole").await;
    assert_eq!(host.get(&task).await["status"], "completed");
    drop(told);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_mcp_host_sees_that_a_grid_receiver_failed_or_turned_it_down() {
    let stage = Stage::in_memory().await;
    let (host, worker, failed) = called(&stage).await;
    assert_eq!(worker.says_with(&failed, "no ground", "failed").await["state"], "failed");
    let shown = host.get(&failed).await;
    assert_eq!((&shown["status"], &shown["result"]["isError"]), (&json!("completed"), &json!(true)));
    assert_eq!(shown["result"]["content"][0]["text"], "no ground");

    let rejected = host.begin(SKILL, json!({})).await;
    let rejection = json!({ "taskId": rejected, "reason": "no spade" });
    assert_eq!(worker.ok("task/reject", rejection).await["task"]["state"], "rejected");
    let shown = host.get(&rejected).await;
    assert_eq!((&shown["status"], &shown["result"]["isError"]), (&json!("completed"), &json!(true)));
    assert!(shown["result"].to_string().contains("worker"), "{shown}");

    // Who may cancel is the rule of the requester's protocol.
    let task = host.begin(SKILL, json!({})).await;
    let refused = worker.refused("task/cancel", json!({ "taskId": task })).await;
    assert_eq!(code(&refused), "NOT_REQUESTER");
    host.cancel(&task).await;
    assert_eq!(worker.state(&task).await, "canceled");
    stage.stop().await;
}

// A MACP initiator, a Grid receiver.

/// A task of the MACP agent `planner` for the Grid agent `worker`.
async fn requested(planner: &Agent) {
    planner.ok(envelope(macp::SESSION, macp::start())).await;
    let named = macp::request().with(|request| request.requested_assignee = "worker".to_owned());
    planner.ok(envelope(macp::SESSION, named)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grid_receiver_delivers_to_a_macp_initiator_which_commits() {
    let both = Both::open().await;
    let planner = both.macp("planner");
    let worker = Node::new(&both.stage, "worker");
    let mut told = worker.listens().await;
    requested(&planner).await;
    assert_eq!(told.notified("task").await["taskId"], macp::SESSION);
    let heard = worker.hears(macp::SESSION).await;
    assert!(heard[0].1.starts_with("read the numbers, write a page"), "{heard:?}");
    assert!(worker.acks(macp::SESSION).await);

    worker.says_with(macp::SESSION, "half", "working").await;
    assert_eq!(
        worker.says_with(macp::SESSION, "Which quarter?", "input_required").await["state"],
        "input_required"
    );
    let list = ListQuestionsRequest { session_id: macp::SESSION.to_owned() };
    let open: Vec<Question> =
        planner.handover.clone().list_questions(list).await.unwrap().into_inner().questions;
    assert_eq!(open[0].text, "Which quarter?");
    let answer = macp::answer(macp::SESSION, &open[0].key, "the third");
    planner.handover.clone().answer(answer).await.unwrap();
    assert_eq!(worker.hears(macp::SESSION).await, [("answer".to_owned(), "the third".to_owned())]);
    assert_eq!(worker.state(macp::SESSION).await, "working");

    assert_eq!(worker.says(macp::SESSION, "a page").await["state"], "input_required");
    let all = transcript(&planner, macp::SESSION, 6).await;
    let life = [
        ("SessionStart", "planner"),
        ("TaskRequest", "planner"),
        ("TaskAccept", "worker"),
        ("TaskUpdate", "worker"),
        ("TaskUpdate", "worker"),
        ("TaskComplete", "worker"),
    ];
    assert_eq!(types(&all), life);
    let report: TaskCompletePayload = payload(&all[5]);
    assert_eq!((report.assignee.as_str(), report.output.as_slice()), ("worker", &b"a page"[..]));
    let question: TaskUpdatePayload = payload(&all[4]);
    assert_eq!((question.status.as_str(), question.message.as_str()), ("input_required", "Which quarter?"));
    let refused = worker.refused("task/complete", json!({ "taskId": macp::SESSION })).await;
    assert_eq!(code(&refused), "NOT_AUTHORITY");

    planner.ok(envelope(macp::SESSION, macp::commit())).await;
    let notified = told.notified("state").await;
    assert_eq!((&notified["state"], &notified["fromNodeId"]), (&json!("completed"), &json!("planner")));
    assert_eq!(worker.state(macp::SESSION).await, "completed");
    let mut reader = planner.subscribed(macp::SESSION, 6).await.1;
    assert_eq!(reader.envelope().await.message_type, "Commitment");
    drop((planner, reader, told));
    both.stop().await;
}

// The conversation tools of MCP, a Grid agent.

/// Where a host is shown the tools of conversations.
const ADDRESS: &str = "/mcp?profile=conversation";

/// A host with the tools of conversations.
struct Host(Client);

impl Host {
    /// What a tool returns.
    async fn tool(&self, tool: &str, arguments: Value) -> Value {
        let call = json!({ "name": tool, "arguments": arguments });
        let called = self.0.request("tools/call", call).at(ADDRESS).answer().await.result();
        assert_ne!(called["isError"], true, "{tool}: {called}");
        called["structuredContent"].clone()
    }

    async fn tools_at(&self, address: &str) -> Vec<Value> {
        let listed = self.0.request("tools/list", json!({})).at(address).answer().await.result();
        listed["tools"].as_array().unwrap().clone()
    }
}

const TALK: [&str; 9] = [
    "message_ack",
    "search_agents",
    "send_message",
    "send_task",
    "set_status",
    "task_complete",
    "task_read",
    "task_reject",
    "task_update",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_conversation_tools_are_listed_only_where_they_are_asked_for() {
    let stage = Stage::in_memory().await;
    let host = Host(stage.client("planner"));
    let shown = host.tools_at(ADDRESS).await;
    for tool in TALK.into_iter().chain(["task_list", "task_cancel", "task_timeline", "agent_register"]) {
        assert!(shown.iter().any(|shown| shown["name"] == tool), "{tool}");
    }
    for address in ["/mcp", "/mcp?profile=all", "/mcp?profile=requester", "/mcp?profile=worker"] {
        for tool in host.tools_at(address).await {
            assert!(!TALK.contains(&tool["name"].as_str().unwrap()), "{address}: {tool}");
        }
    }
    stage.stop().await;
}

/// Clients give up a result that does not fit what the tool promised.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_conversation_tools_return_is_what_they_promise() {
    let stage = Stage::in_memory().await;
    let host = Host(stage.client("planner"));
    let worker = registered(&stage, "worker").await;
    host.tool("agent_register", json!({ "name": "Planner", "description": "plans" })).await;
    let task = worker.sends("planner", "plan").await;
    let on = |more: Value| {
        let mut arguments = more;
        arguments["task_id"] = json!(task);
        arguments
    };
    let asks = json!({ "message": "?", "state": "input_required", "schema": { "type": "string" } });
    let rejected = json!({ "task_id": worker.sends("planner", "plan").await });
    let mut wrong = Vec::new();
    for (tool, arguments) in [
        ("send_task", json!({ "to": "worker", "message": "dig" })),
        ("task_read", on(json!({}))),
        ("message_ack", on(json!({}))),
        ("task_update", on(json!({ "state": "working" }))),
        ("send_message", on(asks)),
        ("send_message", on(json!({ "message": "a plan" }))),
        ("task_reject", rejected),
        ("search_agents", json!({ "query": "digger" })),
        ("set_status", json!({ "status": "busy" })),
        ("task_list", json!({ "unread": true })),
    ] {
        let tools = host.tools_at(ADDRESS).await;
        let promised = &tools.iter().find(|shown| shown["name"] == tool).unwrap()["outputSchema"];
        let returned = host.tool(tool, arguments).await;
        let errors = jsonschema::validator_for(promised).unwrap();
        wrong.extend(errors.iter_errors(&returned).map(|error| format!("{tool}: {error}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_holds_a_whole_conversation_with_a_grid_agent_through_tools() {
    let stage = Stage::in_memory().await;
    let worker = registered(&stage, "worker").await;
    let host = Host(stage.client("planner"));
    let found = host.tool("search_agents", json!({ "query": "digger" })).await;
    assert_eq!(found["agents"].as_array().unwrap().len(), 1, "{found}");
    assert!(found["agents"][0].to_string().contains("worker"), "{found}");

    let sent =
        host.tool("send_task", json!({ "to": "worker", "message": "dig", "session_key": "mine" })).await;
    let task = sent["task"]["task_id"].as_str().unwrap().to_owned();
    assert_eq!(
        (&sent["task"]["state"], &sent["task"]["sender_session_key"]),
        (&json!("submitted"), &json!("mine"))
    );
    assert_eq!(host.tool("task_list", json!({ "unread": true })).await["tasks"], json!([]));
    assert_eq!(worker.hears(&task).await, [("task".to_owned(), "dig".to_owned())]);
    worker.acks(&task).await;
    worker.says_with(&task, "Where to?", "input_required").await;

    let listed = host.tool("task_list", json!({ "unread": true })).await["tasks"].clone();
    assert_eq!((&listed[0]["task_id"], &listed[0]["unread_count"]), (&json!(task), &json!(2)));
    let read = host.tool("task_read", json!({ "task_id": task })).await;
    let messages = read["messages"].as_array().unwrap();
    assert_eq!(messages.last().unwrap()["parts"], json!([{ "type": "text", "text": "Where to?" }]));
    assert_eq!(messages.last().unwrap()["from_node_id"], "worker");
    let said =
        host.tool("send_message", json!({ "task_id": task, "message": "left", "message_id": "m1" })).await;
    assert_eq!((&said["task"]["state"], &said["duplicate"]), (&json!("working"), &json!(false)));
    let again =
        host.tool("send_message", json!({ "task_id": task, "message": "left", "message_id": "m1" })).await;
    assert_eq!((&again["sequence"], &again["duplicate"]), (&said["sequence"], &json!(true)));
    assert_eq!(worker.hears(&task).await, [("message".to_owned(), "left".to_owned())]);
    assert_eq!(worker.says(&task, "a hole").await["state"], "input_required");
    host.tool("task_read", json!({ "task_id": task, "wait_ms": 5000 })).await;
    let done = host.tool("task_complete", json!({ "task_id": task, "reason": "a fine hole" })).await;
    assert_eq!(done["task"]["state"], "completed");
    assert_eq!(worker.state(&task).await, "completed");

    // The other way round: the host is the receiver.
    host.tool("agent_register", json!({ "name": "Planner", "description": "plans" })).await;
    let task = worker.sends("planner", "plan").await;
    let listed = host.tool("task_list", json!({ "unread": true })).await["tasks"].clone();
    assert!(listed.as_array().unwrap().iter().any(|listed| listed["task_id"] == json!(task)), "{listed}");
    assert_eq!(host.tool("task_read", json!({ "task_id": task })).await["messages"][0]["kind"], "task");
    assert_eq!(host.tool("message_ack", json!({ "task_id": task })).await["acknowledged"], true);
    let data = json!({ "parts": [{ "type": "data", "data": { "planIs": "dig" } }] });
    host.tool("send_message", json!({ "task_id": task, "message": data })).await;
    let delivered = worker.reads(&task).await.pop().unwrap();
    assert_eq!(delivered["parts"][0]["data"], json!({ "planIs": "dig" }), "data is left as it is");
    worker.ok("task/complete", json!({ "taskId": task })).await;

    host.tool("set_status", json!({ "status": "do_not_disturb", "text": "at lunch" })).await;
    let (_, shown) = worker.rest("GET", "/grid/nodes/planner", Value::Null).await;
    assert_eq!((&shown["status"], &shown["statusText"]), (&json!("do_not_disturb"), &json!("at lunch")));
    let refused = worker.refused("task/send", json!({ "to": "planner", "message": "plan" })).await;
    assert!(refused["message"].as_str().unwrap().contains("at lunch"), "{refused}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_is_told_the_trace_of_its_work_and_the_sender_is_not() {
    let stage = Stage::in_memory().await;
    let (sender, receiver) = (Node::new(&stage, "planner"), registered(&stage, "digger").await);
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let sends = sender.request("task/send", json!({ "to": "digger", "message": "dig" }));
    let sent =
        sends.header("traceparent", &format!("00-{trace}-00f067aa0ba902b7-01")).answer().await.result();
    let task = sent["task"]["taskId"].clone();
    let read =
        async |node: &Node| node.ok("task/read", json!({ "taskId": task })).await["traceparent"].clone();
    let offered = read(&receiver).await;
    assert!(offered.as_str().is_some_and(|parent| parent.contains(trace)), "{offered}");
    receiver.ok("task/update", json!({ "taskId": task, "state": "working" })).await;
    // By now there is a span of its work.
    let worked = read(&receiver).await;
    assert!(worked.as_str().is_some_and(|parent| parent.contains(trace)) && worked != offered, "{worked}");
    assert_eq!(read(&sender).await, Value::Null);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_only_polls_has_been_seen() {
    let stage = Stage::in_memory().await;
    let planner = stage.client("planner");
    let work = json!({ "title": "t", "instructions": "i", "agent": "poller", "queue": true });
    let begun = planner.tool("delegate_task", work).await;
    assert!(begun["message"].as_str().unwrap().contains("poller, never seen"), "{begun}");
    Node::new(&stage, "poller").ok("task/list", json!({})).await;
    let shown = planner.tool("task_status", json!({ "task_id": begun["task_id"] })).await;
    assert!(shown["message"].as_str().unwrap().contains("poller, last seen"), "{shown}");
    stage.stop().await;
}
