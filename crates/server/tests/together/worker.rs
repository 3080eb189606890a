//! Whoever does the work, in each protocol's own words.

use handover_server::face::macp::proto::handoff::{HandoffAcceptPayload, HandoffOfferPayload};
use handover_server::face::macp::proto::handover::RegisterAgentRequest;
use handover_server::face::macp::proto::task::{
    TaskAcceptPayload, TaskCompletePayload, TaskFailPayload, TaskRequestPayload, TaskUpdatePayload,
};
use handover_server::face::macp::proto::v1::{SessionState, SignalPayload};
use prost::Message;
use serde_json::{Value, json};

use super::Protocol;
use super::grid::Stream;
use super::others::both::{Both, payload, transcript};
use super::others::client::Client;
use super::others::macp::{self, Agent, Hearing, OfHandoff, Payload, With, envelope};
use super::others::stage::in_time;
use super::requester::{Speaker, method, tool};

impl Payload for TaskFailPayload {
    const MODE: &str = "macp.mode.task.v1";
    const TYPE: &str = "TaskFail";
}

/// Whoever does the work, in the directory and listening.
pub struct Worker {
    pub name: String,
    pub speaker: Speaker,
    pub protocol: Protocol,
    /// Where a MACP agent is told of orders.
    signals: Option<Hearing>,
    /// Where a Grid agent is told of everything.
    told: Option<Stream>,
}

impl Worker {
    pub async fn new(both: &Both, protocol: Protocol, name: &str) -> Worker {
        let speaker = Speaker::new(both, protocol, name);
        let (mut signals, mut told) = (None, None);
        match &speaker {
            Speaker::Macp(agent) => {
                let registration = RegisterAgentRequest { name: name.to_owned(), ..Default::default() };
                agent.handover.clone().register_agent(registration).await.unwrap();
                signals = Some(agent.signals().await);
            }
            Speaker::Mcp(client) => {
                client.tool("agent_register", json!({ "name": name, "description": "digs" })).await;
            }
            Speaker::Grid(node) => {
                assert_eq!(node.rest("POST", "/grid/nodes", json!({ "name": name })).await.0, 201);
                told = Some(node.listens().await);
            }
        }
        Worker { name: name.to_owned(), speaker, protocol, signals, told }
    }

    /// Find the task as an agent of the protocol finds work.
    pub async fn finds(&mut self, task: &str) {
        match &self.speaker {
            Speaker::Macp(agent) => {
                let watch = in_time(agent.macp.clone().watch_sessions(macp::watch_sessions())).await;
                let found = in_time(watch.unwrap().into_inner().message()).await.unwrap().unwrap();
                assert_eq!(found.event.unwrap().session.unwrap().session_id, task);
            }
            Speaker::Mcp(client) => {
                assert_eq!(client.tool("work_next", json!({})).await["work"][0]["task_id"], task);
            }
            Speaker::Grid(_) => {
                assert_eq!(self.told.as_mut().unwrap().notified("task").await["taskId"], task);
            }
        }
    }

    pub async fn accepts(&self, task: &str) {
        match &self.speaker {
            Speaker::Macp(agent) => {
                let task_id = task_name(agent, task).await;
                agent.ok(envelope(task, TaskAcceptPayload { task_id, ..Default::default() })).await;
            }
            Speaker::Mcp(client) => _ = tool(client, "work_accept", task, json!({})).await,
            // On the Grid the first state accepts.
            Speaker::Grid(node) => method(node, "task/update", task, json!({ "state": "working" })).await,
        }
    }

    pub async fn reports(&self, task: &str, text: &str) {
        match &self.speaker {
            Speaker::Macp(agent) => _ = macp_update(agent, task, "working", text).await,
            Speaker::Mcp(client) => _ = tool(client, "work_update", task, json!({ "message": text })).await,
            Speaker::Grid(node) => _ = node.says_with(task, text, "working").await,
        }
    }

    pub async fn asks(&self, task: &str, text: &str) {
        match &self.speaker {
            Speaker::Macp(agent) => _ = macp_update(agent, task, "input_required", text).await,
            Speaker::Mcp(client) => mcp_ask(client, task, json!({ "message": text })).await,
            Speaker::Grid(node) => _ = node.says_with(task, text, "input_required").await,
        }
    }

    /// Ask for permission.
    pub async fn asks_permission(&self, task: &str, text: &str) {
        match &self.speaker {
            Speaker::Macp(agent) => _ = macp_update(agent, task, "auth_required", text).await,
            Speaker::Mcp(client) => {
                mcp_ask(client, task, json!({ "message": text, "permission": true })).await;
            }
            Speaker::Grid(node) => _ = node.says_with(task, text, "auth_required").await,
        }
    }

    /// Reach a safe point; says what was ordered.
    pub async fn hears(&mut self, task: &str) -> String {
        match &self.speaker {
            Speaker::Macp(agent) => {
                macp_update(agent, task, "working", "looking up").await;
                let heard = signal(&mut self.signals, task).await.1;
                // That it was heard is recorded once it was sent.
                agent.until_happened(task, "delivered", 1).await;
                heard
            }
            Speaker::Mcp(client) => safe_point(client, task).await["orders"].to_string(),
            Speaker::Grid(node) => format!("{:?}", node.hears(task).await).replace('\\', ""),
        }
    }

    /// Reach a safe point at which the task is paused, and see that it is.
    pub async fn stops(&mut self, task: &str) {
        match &self.speaker {
            Speaker::Macp(agent) => {
                if self.speaker.word(task).await == "OPEN" {
                    let state = macp_update(agent, task, "working", "at a safe point").await;
                    assert_eq!(state, SessionState::Suspended);
                }
                assert_eq!(signal(&mut self.signals, task).await.0, "task.pause");
            }
            Speaker::Mcp(client) => assert_eq!(safe_point(client, task).await["paused"], true),
            Speaker::Grid(node) => {
                node.reads(task).await;
                assert_eq!(node.get(task).await["paused"], true);
            }
        }
    }

    pub async fn delivers(&self, task: &str, text: &str) {
        match &self.speaker {
            Speaker::Macp(agent) => {
                let (task_id, output) = (task_name(agent, task).await, text.as_bytes().to_vec());
                let complete = TaskCompletePayload { task_id, output, ..Default::default() };
                agent.ok(envelope(task, complete)).await;
            }
            Speaker::Mcp(client) => _ = tool(client, "work_complete", task, json!({ "text": text })).await,
            Speaker::Grid(node) => _ = node.says(task, text).await,
        }
    }

    pub async fn fails(&self, task: &str, reason: &str) {
        match &self.speaker {
            Speaker::Macp(agent) => {
                let (task_id, reason) = (task_name(agent, task).await, reason.to_owned());
                agent.ok(envelope(task, TaskFailPayload { task_id, reason, ..Default::default() })).await;
            }
            Speaker::Mcp(client) => _ = tool(client, "work_fail", task, json!({ "reason": reason })).await,
            Speaker::Grid(node) => _ = node.says_with(task, reason, "failed").await,
        }
    }

    /// Hand the task on to an agent of the same protocol, if that is MACP or MCP; why not, if it may not.
    pub async fn hands_on(&self, task: &str, to: &Worker) -> Result<(), String> {
        if let (Speaker::Macp(agent), Speaker::Macp(other)) = (&self.speaker, &to.speaker) {
            let session = format!("a-handoff-of-{task}");
            let names = vec![self.name.clone(), to.name.clone()];
            let start = macp::start().with(|start| start.participants = names);
            agent.ok(envelope(&session, start).of_handoff()).await;
            let (target_participant, scope) = (to.name.clone(), format!("task:{task}"));
            let offer = HandoffOfferPayload { target_participant, scope, ..macp::offer() };
            if let Some(error) = agent.send(envelope(&session, offer)).await.error {
                return Err(String::from_utf8(error.details).unwrap());
            }
            let handoff_id = macp::HANDOFF.to_owned();
            other.ok(envelope(&session, HandoffAcceptPayload { handoff_id, ..Default::default() })).await;
            let commit = macp::commit().with(|commit| commit.action = "handoff.accepted".to_owned());
            agent.ok(envelope(&session, commit).of_handoff()).await;
        }
        if let (Speaker::Mcp(client), Speaker::Mcp(other)) = (&self.speaker, &to.speaker) {
            let offered = client.call("handoff_offer", json!({ "to": to.name, "task_id": task })).await;
            if offered["isError"] == true {
                return Err(offered["content"].to_string());
            }
            let handoff = json!({ "handoff_id": offered["structuredContent"]["handoff_id"] });
            other.tool("handoff_accept", handoff.clone()).await;
            client.tool("handoff_commit", handoff).await;
        }
        Ok(())
    }
}

/// The requester's name for a task, which every envelope of it repeats.
pub async fn task_name(agent: &Agent, task: &str) -> String {
    payload::<TaskRequestPayload>(&transcript(agent, task, 2).await[1]).task_id
}

pub async fn macp_update(agent: &Agent, task: &str, status: &str, text: &str) -> SessionState {
    let (task_id, message) = (task_name(agent, task).await, text.to_owned());
    let update = TaskUpdatePayload { task_id, message, ..macp::update(status) };
    agent.ok(envelope(task, update)).await.session_state()
}

async fn mcp_ask(client: &Client, task: &str, question: Value) {
    tool(client, "work_ask", task, json!({ "questions": { "a-key": question }, "wait_ms": 0 })).await;
}

async fn safe_point(client: &Client, task: &str) -> Value {
    tool(client, "work_checkpoint", task, json!({ "wait_ms": 0 })).await
}

/// The next signal, which must be about this task: its type and what it says.
async fn signal(hearing: &mut Option<Hearing>, task: &str) -> (String, String) {
    let told = hearing.as_mut().unwrap().next().await.unwrap().unwrap().envelope.unwrap();
    let heard = SignalPayload::decode(told.payload.as_slice()).unwrap();
    assert_eq!(heard.correlation_session_id, task);
    (heard.signal_type, String::from_utf8(heard.data).unwrap().replace('\\', ""))
}
