//! Whoever asks for work, in each protocol's own words.

use handover_server::face::macp::proto::handover::ListQuestionsRequest;
use handover_server::face::macp::proto::v1::GetSessionRequest;
use serde_json::{Value, json};

use super::Protocol;
use super::grid::Node;
use super::others::both::Both;
use super::others::client::{Client, interaction};
use super::others::macp::{self, Agent, With, envelope};
use super::others::scene::{Interacts, ack, asked, says};

/// The policy of the MACP tasks here: the default one, except that a task may be handed on.
pub const POLICY: &str = "policy.together";

/// An agent of one protocol.
#[derive(Clone)]
pub enum Speaker {
    Macp(Box<Agent>),
    Mcp(Client),
    Grid(Node),
}

impl Speaker {
    pub fn new(both: &Both, protocol: Protocol, name: &str) -> Speaker {
        match protocol {
            Protocol::Macp => Speaker::Macp(Box::new(both.macp(name))),
            Protocol::Mcp => Speaker::Mcp(both.stage.client(name).declaring(interaction())),
            Protocol::Grid => Speaker::Grid(Node::new(&both.stage, name)),
        }
    }

    /// Where a task is, in the protocol's word for it.
    pub async fn word(&self, task: &str) -> String {
        match self {
            Speaker::Macp(agent) => {
                let get = GetSessionRequest { session_id: task.to_owned() };
                let found = agent.macp.clone().get_session(get).await.unwrap().into_inner().metadata.unwrap();
                found.state().as_str_name().trim_start_matches("SESSION_STATE_").to_owned()
            }
            Speaker::Mcp(client) => client.get(task).await["status"].as_str().unwrap().to_owned(),
            // A paused Grid task keeps its state.
            Speaker::Grid(node) => {
                let shown = node.get(task).await;
                let paused = if shown["paused"] == true { ", paused" } else { "" };
                format!("{}{paused}", shown["state"].as_str().unwrap())
            }
        }
    }
}

/// Call a method of the Grid about a task.
pub async fn method(node: &Node, method: &str, task: &str, mut params: Value) {
    params["taskId"] = json!(task);
    node.ok(method, params).await;
}

/// Call a tool of MCP about a task.
pub async fn tool(client: &Client, tool: &str, task: &str, mut arguments: Value) -> Value {
    arguments["task_id"] = json!(task);
    client.tool(tool, arguments).await
}

/// Whoever asks for work.
pub struct Requester {
    pub speaker: Speaker,
    pub protocol: Protocol,
}

impl Requester {
    pub fn new(both: &Both, protocol: Protocol, name: &str) -> Requester {
        Requester { speaker: Speaker::new(both, protocol, name), protocol }
    }

    /// A task for these agents; on the Grid it is for the first alone. MACP takes the name that it is given.
    pub async fn delegates(&self, name: &str, agents: [&str; 2], ttl_ms: u32) -> String {
        let created = match &self.speaker {
            Speaker::Macp(agent) => {
                let start = macp::start().with(|start| {
                    start.participants = agents.map(str::to_owned).to_vec();
                    start.policy_version = POLICY.to_owned();
                    start.ttl_ms = ttl_ms.into();
                });
                agent.ok(envelope(name, start)).await;
                agent.ok(envelope(name, macp::request())).await;
                return name.to_owned();
            }
            Speaker::Mcp(client) => {
                let task =
                    json!({ "title": "dig", "instructions": "dig", "agents": agents, "ttl_ms": ttl_ms });
                client.tool("delegate_task", task).await["task_id"].clone()
            }
            Speaker::Grid(node) => {
                let deadline = f64::from(ttl_ms) / 1000.0;
                let task = json!({ "to": agents[0], "message": "dig", "deadline": deadline });
                node.ok("task/send", task).await["task"]["taskId"].clone()
            }
        };
        created.as_str().unwrap().to_owned()
    }

    /// How it goes, as the requester is shown when it looks.
    pub async fn is_told(&self, task: &str) -> String {
        match &self.speaker {
            Speaker::Macp(agent) => agent.timeline(task).await.pop().unwrap().detail_json,
            Speaker::Mcp(client) => client.get(task).await["statusMessage"].to_string(),
            Speaker::Grid(node) => node.ok("task/history", json!({ "taskId": task })).await.to_string(),
        }
    }

    /// Answer what is asked, in words.
    pub async fn answers(&self, task: &str, text: &str) {
        match &self.speaker {
            Speaker::Macp(agent) => macp_answer(agent, task, "input", text).await,
            Speaker::Mcp(client) => mcp_answer(client, task, says(text)).await,
            Speaker::Grid(node) => method(node, "message/send", task, json!({ "message": text })).await,
        }
    }

    /// Give the permission that is asked for; says how.
    pub async fn grants(&self, task: &str) -> &'static str {
        match &self.speaker {
            Speaker::Macp(agent) => macp_answer(agent, task, "authorization", r#"{"approved":true}"#).await,
            Speaker::Mcp(client) => {
                let yes = json!({ "action": "accept", "content": { "approved": true } });
                mcp_answer(client, task, yes).await;
            }
            Speaker::Grid(node) => {
                assert_eq!(node.get(task).await["questions"][0]["permission"], true);
                node.says(task, "yes").await;
                return "yes";
            }
        }
        r#""approved":true"#
    }

    pub async fn steers(&self, task: &str, text: &str) {
        match &self.speaker {
            Speaker::Macp(agent) => {
                agent.handover.clone().steer(macp::steer(task, text)).await.unwrap();
            }
            Speaker::Mcp(client) => client.steer(task, text).await,
            Speaker::Grid(node) => method(node, "task/steer", task, json!({ "text": text })).await,
        }
    }

    pub async fn pauses(&self, task: &str) {
        match &self.speaker {
            Speaker::Macp(agent) => assert!(agent.suspend(task).await.ok),
            Speaker::Mcp(client) => _ = client.pause(task).await,
            Speaker::Grid(node) => method(node, "task/pause", task, json!({ "reason": "lunch" })).await,
        }
    }

    pub async fn resumes(&self, task: &str) {
        match &self.speaker {
            Speaker::Macp(agent) => assert!(agent.resume(task).await.ok),
            Speaker::Mcp(client) => _ = client.resume(task).await,
            Speaker::Grid(node) => method(node, "task/resume", task, json!({ "reason": "back" })).await,
        }
    }

    /// Settle what was reported, where that is left to the requester.
    pub async fn settles(&self, task: &str, positive: bool) {
        match &self.speaker {
            Speaker::Macp(agent) => {
                let commitment = macp::commit().with(|commitment| {
                    commitment.policy_version = POLICY.to_owned();
                    commitment.action = if positive { "task.completed" } else { "task.failed" }.to_owned();
                    commitment.outcome_positive = positive;
                });
                agent.ok(envelope(task, commitment)).await;
            }
            Speaker::Grid(node) if positive => {
                method(node, "task/complete", task, json!({ "reason": "a fine hole" })).await;
            }
            Speaker::Mcp(_) | Speaker::Grid(_) => {}
        }
    }

    pub async fn cancels(&self, task: &str) {
        match &self.speaker {
            Speaker::Macp(agent) => assert!(agent.cancel(task).await.ok),
            Speaker::Mcp(client) => assert_eq!(client.cancel(task).await, ack()),
            Speaker::Grid(node) => method(node, "task/cancel", task, json!({ "reason": "no need" })).await,
        }
    }
}

/// Answer the one open question, which must be for this need.
async fn macp_answer(agent: &Agent, task: &str, need: &str, text: &str) {
    let (mut handover, session_id) = (agent.handover.clone(), task.to_owned());
    let open = handover.list_questions(ListQuestionsRequest { session_id }).await.unwrap().into_inner();
    let question = &open.questions[0];
    assert_eq!((open.questions.len(), question.need.as_str()), (1, need));
    handover.answer(macp::answer(task, &question.key, text)).await.unwrap();
}

async fn mcp_answer(client: &Client, task: &str, response: Value) {
    let shown = client.get(task).await;
    assert_eq!(asked(&shown).len(), 1, "{shown}");
    assert_eq!(client.update(task, json!({ asked(&shown)[0]: response })).await, ack());
}
