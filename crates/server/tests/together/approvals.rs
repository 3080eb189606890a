//! What needs somebody's approval before it takes effect: whoever asks, works and decides, on whichever protocol.

use handover_desk::approvers::Rules;
use handover_server::face::macp::proto::handover::{
    DecideRequest, GetApprovalRequest, ListApprovalsRequest, ProposalChanges, decide_request,
};
use serde_json::{Value, json};

use super::grid::{Node, code};
use super::others::both::Both;
use super::others::macp::{self, Agent, SESSION, With, envelope};

/// `lead` approves what goes to `worker`, and every outcome of a skill called `refund`.
const RULES: &str = r#"[
    { delegate = ["worker"], hand_on = ["worker"], by = ["lead"] },
    { skills = ["refund"], commit = true, by = ["role:money"] },
    { role = "money", agents = ["cfo", "lead"] },
]"#;

async fn guarded() -> Both {
    Both::with(|set| set.approvals = Rules::parse(RULES).unwrap()).await
}

fn delegated(instructions: &str) -> Value {
    json!({ "title": "dig", "instructions": instructions, "agent": "worker", "queue": true })
}

/// What a Grid agent is asked to decide about.
async fn waiting(node: &Node) -> Vec<Value> {
    node.ok("approval/list", json!({})).await["approvals"].as_array().unwrap().clone()
}

/// The number of the proposal that an error of MACP names.
fn proposal(details: &[u8]) -> u64 {
    serde_json::from_slice::<Value>(details).unwrap()["proposal"].as_u64().unwrap()
}

async fn decide(agent: &Agent, proposal: u64, ruling: decide_request::Ruling) {
    let (session_id, message_id) = (SESSION.to_owned(), String::new());
    let request = DecideRequest { session_id, proposal, ruling: Some(ruling), message_id };
    agent.handover.clone().decide(request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_mcp_host_delegates_waits_for_a_grid_agent_and_reaches_nobody_before() {
    let both = guarded().await;
    let host = both.stage.client("planner");
    let (lead, worker) = (Node::new(&both.stage, "lead"), Node::new(&both.stage, "worker"));
    let (mut told, mut heard) = (lead.listens().await, worker.listens().await);
    let task = host.tool("delegate_task", delegated("dig a hole")).await;
    let id = task["task_id"].as_str().unwrap().to_owned();
    assert_eq!((&task["status"], &task["title"]), (&json!("working"), &json!("dig")));
    assert_eq!(task["message"], "the request waits for the approval of lead");
    assert_eq!(task["approval"]["waits_for"], json!(["lead"]));
    assert_eq!(told.notified("approval").await["taskId"], json!(id));

    // Nobody else knows of it.
    assert_eq!(code(&worker.refused("task/get", json!({ "taskId": id })).await), "SESSION_NOT_FOUND");
    assert!(worker.ok("task/list", json!({})).await["tasks"].as_array().unwrap().is_empty());
    assert!(
        both.stage.client("worker").tool("work_list", json!({})).await["work"].as_array().unwrap().is_empty()
    );
    let listed = both.stage.client("worker").tool("task_list", json!({})).await;
    assert!(listed["tasks"].as_array().unwrap().is_empty(), "{listed}");
    assert_eq!(code(&worker.refused("task/reject", json!({ "taskId": id })).await), "SESSION_NOT_FOUND");

    // Only an approver decides, and says why.
    let found = waiting(&lead).await;
    assert_eq!((found.len(), &found[0]["taskId"], &found[0]["kind"]), (1, &json!(id), &json!("task")));
    assert_eq!(found[0]["approval"]["to"], json!(["worker"]));
    let number = found[0]["approval"]["proposal"].clone();
    let ruling = |decision: &str| json!({ "taskId": id, "proposal": number, "decision": decision });
    assert_eq!(code(&worker.refused("approval/decide", ruling("approve")).await), "SESSION_NOT_FOUND");
    let told_off =
        host.call("approval_decide", json!({ "task_id": id, "proposal": number, "decision": "approve" }));
    assert!(told_off.await["content"][0]["text"].as_str().unwrap().contains("NOT_APPROVER"));
    assert_eq!(code(&lead.refused("approval/decide", ruling("reject")).await), "INVALID");
    assert_eq!(code(&lead.refused("approval/decide", ruling("perhaps")).await), "INVALID_PARAMS");

    // Sent back, proposed again, approved with a change.
    let back =
        json!({ "taskId": id, "proposal": number, "decision": "ask_changes", "reason": "say how deep" });
    lead.ok("approval/decide", back).await;
    let seen = host.tool("task_wait", json!({ "task_id": id })).await;
    assert_eq!(seen["message"], "lead asked for changes of the request: say how deep");
    host.tool("task_propose", json!({ "task_id": id, "instructions": "dig a hole of 3 m" })).await;
    let number = waiting(&lead).await[0]["approval"]["proposal"].clone();
    let changes = json!({ "title": "dig safely" });
    let yes = json!({ "taskId": id, "proposal": number, "decision": "approve", "changes": changes });
    assert_eq!(lead.ok("approval/decide", yes).await["approval"], Value::Null);
    assert!(waiting(&lead).await.is_empty());

    assert_eq!(heard.notified("task").await["taskId"], json!(id), "the first that it hears of it");
    let shown = worker.get(&id).await;
    assert_eq!((&shown["title"], &shown["state"]), (&json!("dig safely"), &json!("submitted")));
    assert_eq!(worker.reads(&id).await[0]["parts"][0]["text"], "dig a hole of 3 m");
    // How it was before is the business of those who proposed and decided it.
    let history = worker.ok("task/history", json!({ "taskId": id })).await.to_string();
    assert!(!history.contains("how deep") && !history.contains("approval"), "{history}");
    let kinds = both.macp("planner").kinds(&id).await;
    assert_eq!(kinds[..6], ["started", "proposed", "decided", "proposed", "decided", "requested"]);
    assert_eq!(both.macp("worker").kinds(&id).await[..2], ["started", "requested"]);
    both.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_macp_agent_requests_is_denied_with_its_proposal_and_taken_once_it_is_approved() {
    let both = guarded().await;
    let (planner, lead, worker) = (both.macp("planner"), both.macp("lead"), both.macp("worker"));
    let mut signals = lead.signals().await;
    let mut heard = planner.signals().await;
    planner.ok(envelope(SESSION, macp::start())).await;
    let request = envelope(SESSION, macp::request());
    let denied = planner.refused(request.clone()).await;
    assert_eq!(denied.code, "POLICY_DENIED");
    let number = proposal(&denied.details);
    assert_eq!(signals.heard().await.0, "task.approval");
    assert_eq!(proposal(&planner.refused(request.clone()).await.details), number, "it is there already");
    assert_eq!(worker.refused(envelope(SESSION, macp::accept())).await.code, "FORBIDDEN");

    let list = ListApprovalsRequest { page_size: 0, page_token: String::new() };
    let found = lead.handover.clone().list_approvals(list).await.unwrap().into_inner().approvals;
    assert_eq!((found.len(), found[0].proposal, found[0].what.as_str()), (1, number, "request"));
    assert!(found[0].proposed_json.contains("sum up the quarter"));
    decide(&lead, number, decide_request::Ruling::Approve(ProposalChanges::default())).await;
    assert_eq!(heard.heard().await.0, "task.decided");
    let get = GetApprovalRequest { session_id: SESSION.to_owned() };
    let got = planner.handover.clone().get_approval(get).await.unwrap().into_inner();
    assert_eq!((got.state.as_str(), got.decided_by.as_str()), ("approved", "lead"));
    // Another one is another proposal; the approved one is taken, under its id.
    let other = macp::request().with(|request| request.title = "something else".to_owned());
    assert_eq!(planner.refused(envelope(SESSION, other)).await.code, "POLICY_DENIED");
    let number = proposal(&planner.refused(request.clone()).await.details);
    decide(&lead, number, decide_request::Ruling::Approve(ProposalChanges::default())).await;
    assert!(!planner.ok(request).await.duplicate);
    worker.ok(envelope(SESSION, macp::accept())).await;
    both.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_delegation_is_rejected_on_every_face() {
    let both = guarded().await;
    let sender = Node::new(&both.stage, "planner");
    let mut told = sender.listens().await;
    let task = sender.ok("task/send", json!({ "to": "worker", "message": "dig", "queue": true })).await;
    let id = task["task"]["taskId"].as_str().unwrap().to_owned();
    assert_eq!(task["task"]["approval"]["state"], "waiting");
    let lead = both.stage.client("lead");
    let number = lead.tool("approval_list", json!({})).await["proposals"][0]["approval"]["proposal"].clone();
    let no = json!({ "task_id": id, "proposal": number, "decision": "reject", "reason": "not there" });
    assert_eq!(lead.tool("approval_decide", no).await["decided"], "rejected");
    told.notified("approval").await;
    assert_eq!(sender.state(&id).await, "rejected");
    assert_eq!(sender.get(&id).await["approval"]["words"], "not there");
    let shown = both.stage.client("planner").tool("task_status", json!({ "task_id": id })).await;
    assert_eq!((&shown["status"], &shown["result"]["isError"]), (&json!("rejected"), &json!(true)));
    let said = shown["result"]["content"][0]["text"].as_str().unwrap();
    assert_eq!(said, "lead rejected the request: not there");
    both.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_outcome_of_a_skill_waits_for_a_role_and_an_input_that_does_not_fit_is_refused() {
    let both = guarded().await;
    let schema =
        json!({ "type": "object", "properties": { "sum": { "type": "integer" } }, "required": ["sum"] });
    let skills = json!([{ "name": "refund", "description": "gives money back", "inputSchema": schema, "answers": "task" }]);
    let helper = both.stage.worker("helper", skills).await;
    let host = both.stage.client("planner");
    let id = host.begin("refund", json!({ "sum": 5 })).await;
    let cfo = both.stage.client("cfo");
    let open = cfo.tool("approval_list", json!({})).await["proposals"][0].clone();
    let decided = |proposal: &Value, input: Value| {
        let changes = json!({ "input": input });
        json!({ "task_id": id, "proposal": proposal, "decision": "approve", "changes": changes })
    };
    assert_eq!((&open["approval"]["skill"], &open["approval"]["to"]), (&json!("refund"), &json!(["helper"])));
    let number = &open["approval"]["proposal"];
    let wrong = cfo.call("approval_decide", decided(number, json!({ "sum": "all" }))).await;
    let said = wrong["content"][0]["text"].as_str().unwrap();
    assert!(said.contains("sum") && said.contains("INVALID"), "{said}");
    assert_eq!(cfo.tool("approval_list", json!({})).await["proposals"][0], open, "it is still open");
    cfo.tool("approval_decide", decided(number, json!({ "sum": 3 }))).await;
    let work = helper.client.tool("work_next", json!({})).await["work"][0].clone();
    assert_eq!(work["arguments"], json!({ "sum": 3 }));
    helper.client.tool("work_accept", json!({ "task_id": id })).await;
    helper.client.tool("work_complete", json!({ "task_id": id, "output": "done" })).await;

    // The one who approved the opening may be another than the one who approves the outcome.
    let shown = host.tool("task_status", json!({ "task_id": id })).await;
    assert_eq!(shown["status"], "working");
    assert_eq!(shown["message"], "the commitment waits for the approval of cfo or lead");
    assert_eq!(shown["approval"]["what"], "commitment");
    // How that is decided is not the worker's business, on any protocol.
    let own = helper.client.tool("task_status", json!({ "task_id": id })).await;
    assert!(!own.to_string().contains("approval"), "{own}");
    let own = Node::new(&both.stage, "helper").get(&id).await;
    assert!(!own.to_string().contains("approval"), "{own}");
    let request = GetApprovalRequest { session_id: id.clone() };
    let own = both.macp("helper").handover.clone().get_approval(request).await;
    assert!(!format!("{own:?}").contains("cfo"), "{own:?}");
    let lead = Node::new(&both.stage, "lead");
    let number = waiting(&lead).await[0]["approval"]["proposal"].clone();
    lead.ok("approval/decide", json!({ "taskId": id, "proposal": number, "decision": "approve" })).await;
    assert_eq!(host.tool("task_wait", json!({ "task_id": id })).await["status"], "completed");
    assert_eq!(
        code(
            &lead
                .refused(
                    "approval/decide",
                    json!({ "taskId": id, "proposal": number, "decision": "approve" })
                )
                .await
        ),
        "SESSION_ENDED"
    );
    both.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handoff_waits_with_its_context_and_nobody_approves_its_own() {
    let both = guarded().await;
    let owner = both.stage.client("planner");
    let offered = json!({ "to": "worker", "scope": "on call", "context": "the runbook" });
    let offer = owner.tool("handoff_offer", offered.clone()).await;
    assert_eq!((&offer["status"], &offer["approval"]["what"]), (&json!("proposed"), &json!("offer")));
    let worker = both.stage.client("worker");
    assert_eq!(worker.tool("handoff_list", json!({})).await["handoffs"], json!([]));
    let lead = both.stage.client("lead");
    let number = offer["approval"]["proposal"].clone();
    let yes = json!({ "task_id": offer["handoff_id"], "proposal": number, "decision": "approve" });
    lead.tool("approval_decide", yes).await;
    assert_eq!(worker.tool("handoff_list", json!({})).await["handoffs"][0]["status"], "offered");
    worker.tool("handoff_accept", json!({ "handoff_id": offer["handoff_id"] })).await;
    // Whoever is the only one to approve it may not do it alone.
    let own = lead.call("handoff_offer", offered).await;
    assert!(own["content"][0]["text"].as_str().unwrap().contains("name nobody but lead"), "{own}");
    both.stop().await;
}
