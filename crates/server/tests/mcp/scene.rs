//! Short words for the plays about tasks: a task in hand, what its worker hears, what its requester answers.

use handover_desk::gate::Caller;
use handover_desk::identity::Identity;
use handover_kernel::charter::Charter;
use handover_kernel::command::{Act, ModeKind, Start};
use handover_kernel::{AgentId, Face, Text};
use serde_json::{Value, json};

use super::acts;
use super::stage::*;

/// The skill of most plays.
pub const SKILL: &str = "dig";

/// The methods that SEP-2663 has, and those that SEP-2669 adds.
pub const METHODS: [&str; 6] =
    ["tasks/get", "tasks/update", "tasks/cancel", "tasks/steer", "tasks/pause", "tasks/resume"];

/// What an acknowledgement is, to the last byte.
pub fn ack() -> Value {
    json!({ "resultType": "complete" })
}

/// The parameters of any of the methods, for this task.
pub fn params(method: &str, task: &str) -> Value {
    match method {
        "tasks/update" => json!({ "taskId": task, "inputResponses": {} }),
        "tasks/steer" => json!({ "taskId": task, "message": "deeper" }),
        _ => json!({ "taskId": task }),
    }
}

/// A worker that has the skill.
pub async fn digger(stage: &Stage) -> Worker {
    stage.worker("worker", json!([skill(SKILL)])).await
}

/// A task of `planner` that `worker` has in hand.
pub async fn in_hand(stage: &Stage) -> (Client, Job) {
    in_hand_of(stage, &stage.client("planner")).await
}

/// The same; the planner declares steer and pause.
pub async fn in_steady_hand(stage: &Stage) -> (Client, Job) {
    in_hand_of(stage, &stage.client("planner").declaring(interaction())).await
}

/// A task of this client that `worker` has in hand.
pub async fn in_hand_of(stage: &Stage, client: &Client) -> (Client, Job) {
    let worker = digger(stage).await;
    let task = client.begin(SKILL, json!({})).await;
    let job = worker.next().await;
    assert_eq!(job.id, task);
    (client.clone(), job)
}

/// An agent as it comes through another face.
pub fn as_macp(agent: &str) -> Caller {
    Caller::new(Identity::Development.authenticate(Some(agent)).unwrap(), Face::Macp)
}

/// Put an act to a session as another face would.
pub async fn put(stage: &Stage, task: &str, by: &str, act: Act) {
    let told = format!("{by} on {task}: {act:?}");
    let caller = as_macp(by);
    let put = stage.desk.put(&caller, task, caller.command(act)).await;
    put.unwrap_or_else(|denied| panic!("{told}: {denied:?}"));
}

/// A start by `planner` under this charter.
pub fn start(charter: Charter, ttl_ms: Option<u64>) -> Start {
    Start {
        mode: ModeKind::Task,
        participants: ["planner", "worker"].map(AgentId::from).to_vec(),
        charter,
        mode_version: Text::from("1.0.0"),
        configuration_version: Text::from("config.1"),
        policy_version: Text::from("policy.default"),
        ttl_ms,
        sent_at: None,
        intent: Text::default(),
        context_id: Text::default(),
        extension_keys: Vec::new(),
        parent: None,
        contract: None,
        under: None,
    }
}

/// A task of `planner` under this charter that nobody has taken.
pub async fn delegated(stage: &Stage, task: &str, charter: Charter, ttl_ms: Option<u64>) {
    put(stage, task, "planner", acts::delegate(start(charter, ttl_ms), None)).await;
}

/// Reach a safe point, and wait for nothing.
pub async fn reach(job: &Job) -> Value {
    job.tool("work_checkpoint", json!({ "wait_ms": 0 })).await
}

/// A task for each way to end, with its status.
pub async fn ended(stage: &Stage) -> Vec<(&'static str, Client, Job)> {
    let mut ended = Vec::new();
    for status in ["completed", "failed", "cancelled"] {
        let (planner, job) = in_hand(stage).await;
        match status {
            "completed" => job.completes("a hole").await,
            "failed" => job.breaks(-32001, "there is no ground").await,
            _ => planner.ok("tasks/cancel", json!({ "taskId": job.id })).await,
        };
        assert_eq!(planner.get(&job.id).await["status"], status);
        ended.push((status, planner, job));
    }
    ended
}

/// Text as the response to a question without a schema.
pub fn says(text: &str) -> Value {
    json!({ "action": "accept", "content": { "answer": text } })
}

/// The messages of the steers among the orders, in their order.
pub fn steers(safe_point: &Value) -> Vec<&str> {
    let orders = safe_point["orders"].as_array().unwrap().iter();
    orders.filter(|order| order["kind"] == "steer").map(|order| order["message"].as_str().unwrap()).collect()
}

/// The keys of what is asked.
pub fn asked(shown: &Value) -> Vec<&str> {
    shown["inputRequests"]
        .as_object()
        .map_or_else(Vec::new, |asked| asked.keys().map(String::as_str).collect())
}

/// A task without what an answer or a notification puts around it.
pub fn bare(mut shown: Value) -> Value {
    let shown_as = shown.as_object_mut().unwrap();
    shown_as.remove("resultType");
    shown_as.remove("_meta");
    shown
}

/// What SEP-2669 lets a requester say.
pub trait Interacts {
    async fn update(&self, task: &str, responses: Value) -> Value;
    async fn steer(&self, task: &str, message: &str);
    async fn pause(&self, task: &str) -> Value;
    async fn resume(&self, task: &str) -> Value;
    async fn cancel(&self, task: &str) -> Value;
    /// The kinds of everything that happened in a task.
    async fn kinds(&self, task: &str) -> Vec<String>;
}

impl Interacts for Client {
    async fn update(&self, task: &str, responses: Value) -> Value {
        self.ok("tasks/update", json!({ "taskId": task, "inputResponses": responses })).await
    }

    async fn steer(&self, task: &str, message: &str) {
        assert_eq!(self.ok("tasks/steer", json!({ "taskId": task, "message": message })).await, ack());
    }

    async fn pause(&self, task: &str) -> Value {
        self.ok("tasks/pause", json!({ "taskId": task })).await
    }

    async fn resume(&self, task: &str) -> Value {
        self.ok("tasks/resume", json!({ "taskId": task })).await
    }

    async fn cancel(&self, task: &str) -> Value {
        self.ok("tasks/cancel", json!({ "taskId": task })).await
    }

    async fn kinds(&self, task: &str) -> Vec<String> {
        let timeline = self.tool("task_timeline", json!({ "task_id": task })).await;
        let events = timeline["events"].as_array().unwrap().iter();
        events.map(|event| event["kind"].as_str().unwrap().to_owned()).collect()
    }
}
