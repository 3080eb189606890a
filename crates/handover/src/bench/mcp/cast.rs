//! Who takes part: an agent that hands tasks out, and one that does them, both through the tools that every agent has.

use serde_json::{Value, json};

use super::wire::{Agent, Connection, ask};
use crate::Failure;

/// The skill that is called.
pub const SKILL: &str = "bench_square";

/// How many tasks a worker takes at once.
const TAKEN_MAX: usize = 100;

/// Both agents, on one server.
#[derive(Clone)]
pub struct Cast {
    /// Hands tasks out.
    pub requester: Agent,
    /// Does them.
    pub worker: Agent,
}

/// A connection, or why there is none.
pub async fn connect(agent: &Agent) -> Result<Connection, Failure> {
    let target = &agent.target;
    agent.connect().await.map_err(|error| Failure::fault(format!("connecting to {target}"), &error))
}

impl Cast {
    /// Let the worker say what it can do.
    pub async fn register(&self) -> Result<(), Failure> {
        let skill = json!({
            "name": SKILL,
            "description": "Square a number",
            "inputSchema": { "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] },
            "answers": "task",
        });
        let about = json!({ "name": "Bench", "description": "Squares numbers", "skills": [skill] });
        ask(&mut connect(&self.worker).await?, &self.worker.call("agent_register", about)).await?;
        Ok(())
    }

    /// A call that begins a task.
    pub fn call(&self, n: u64) -> Vec<u8> {
        self.requester.call(SKILL, json!({ "n": n }))
    }

    /// Begin a task, and say its id.
    pub async fn begin(&self, connection: &mut Connection, n: u64) -> Result<String, Failure> {
        let created = ask(connection, &self.call(n)).await?;
        let id = created["taskId"].as_str().filter(|_| created["resultType"] == "task");
        id.map(str::to_owned).ok_or_else(|| Failure::Fault(format!("expected a task, found {created}")))
    }

    /// Begin so many tasks, have them taken, and let each report how it goes: they are running.
    pub async fn running(&self, count: usize) -> Result<Vec<String>, Failure> {
        let (mut asking, mut working) = (connect(&self.requester).await?, connect(&self.worker).await?);
        let mut ids = Vec::with_capacity(count);
        let mut taken = 0;
        while ids.len() < count || taken < count {
            for n in ids.len()..count.min(ids.len() + TAKEN_MAX) {
                ids.push(self.begin(&mut asking, n as u64).await?);
            }
            let wanted = json!({ "wait_ms": 5000, "accept": true, "max": TAKEN_MAX });
            let next = ask(&mut working, &self.worker.call("work_next", wanted)).await?;
            let next = next["structuredContent"]["work"].as_array().map_or(0, Vec::len);
            if next == 0 {
                return Err(Failure::Fault(format!("expected {count} tasks to be given out, found {taken}")));
            }
            taken += next;
        }
        for id in &ids {
            ask(&mut working, &self.update(id, 1)).await?;
        }
        Ok(ids)
    }

    /// How a task goes, as its worker says. Said again, it has no second effect.
    pub fn update(&self, id: &str, step: u64) -> Vec<u8> {
        let update = json!({ "task_id": id, "message": marker(step), "progress": step });
        self.say_once("work_update", &update, &format!("{id}-{step}"))
    }

    /// How a task ends. Said again, it has no second effect.
    pub fn complete(&self, id: &str, n: u64) -> Vec<u8> {
        self.say_once("work_complete", &json!({ "task_id": id, "output": output(n) }), &format!("{id}-done"))
    }

    fn say_once(&self, tool: &str, arguments: &Value, key: &str) -> Vec<u8> {
        let params = json!({ "name": tool, "arguments": arguments });
        self.worker.request_once("tools/call", tool, params, Some(key))
    }
}

/// What an update says, and a notification of it too.
pub fn marker(step: u64) -> String {
    format!("step {step} of the bench")
}

/// What comes of a task.
pub fn output(n: u64) -> Value {
    json!({ "n": n, "square": n * n })
}
