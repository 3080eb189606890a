//! Whoever does the work: an agent with skills that uses the server's own tools, as any MCP host can.

// No play needs all of it.
#![allow(dead_code)]

use std::future::Future;
use std::pin::Pin;

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::client::Client;
use super::stage::in_time;

/// A skill by its name, which answers as each caller can.
pub fn skill(name: &str) -> Value {
    json!({ "name": name, "description": "a skill of a play" })
}

/// The same with something more said of it.
pub fn skill_with(name: &str, more: Value) -> Value {
    let mut skill = skill(name);
    for (key, value) in more.as_object().unwrap() {
        skill[key] = value.clone();
    }
    skill
}

/// An agent with skills.
#[derive(Clone)]
pub struct Worker {
    pub client: Client,
}

impl Worker {
    pub async fn register(client: Client, skills: Value) -> Worker {
        let worker = Worker { client };
        worker.offer(skills).await;
        worker
    }

    /// Offer these skills from now on.
    pub async fn offer(&self, skills: Value) {
        let said = json!({ "name": "Worker", "description": "does what a play says", "skills": skills });
        self.client.tool("agent_register", said).await;
    }

    /// The next job, taken.
    pub async fn next(&self) -> Job {
        in_time(async {
            loop {
                let found = self.client.tool("work_next", json!({ "accept": true })).await;
                if let Some(work) = found["work"].as_array().unwrap().first() {
                    return Job::new(&self.client, work.clone());
                }
            }
        })
        .await
    }

    /// Do every job like this, until the play is over.
    pub fn plays<F>(&self, act: fn(Job) -> F) -> Playing
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let worker = self.clone();
        Playing(tokio::spawn(async move {
            loop {
                let found = worker
                    .client
                    .ask("tools/call", json!({ "name": "work_next", "arguments": { "accept": true } }));
                let found = found.await;
                let Some(work) =
                    found.messages.last().map(|message| &message["result"]["structuredContent"]["work"])
                else {
                    return;
                };
                for work in work.as_array().into_iter().flatten() {
                    let job: Pin<Box<dyn Future<Output = ()> + Send>> =
                        Box::pin(act(Job::new(&worker.client, work.clone())));
                    tokio::spawn(job);
                }
            }
        }))
    }
}

/// A worker at work. It stops with the play.
pub struct Playing(JoinHandle<()>);

impl Drop for Playing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A task in hand.
#[derive(Clone)]
pub struct Job {
    pub client: Client,
    pub id: String,
    /// As `work_next` showed it.
    pub shown: Value,
}

impl Job {
    fn new(client: &Client, shown: Value) -> Job {
        let id = shown["task_id"].as_str().unwrap().to_owned();
        Job { client: client.clone(), id, shown }
    }

    /// What the skill was called with.
    pub fn arguments(&self) -> &Value {
        &self.shown["arguments"]
    }

    /// The skill that was called.
    pub fn skill(&self) -> &str {
        self.shown["skill"].as_str().unwrap_or_default()
    }

    /// Use a tool on it. It must not fail.
    pub async fn tool(&self, tool: &str, mut arguments: Value) -> Value {
        arguments["task_id"] = json!(self.id);
        self.client.tool(tool, arguments).await
    }

    /// Use a tool on it, whatever it says.
    pub async fn try_tool(&self, tool: &str, mut arguments: Value) -> Value {
        arguments["task_id"] = json!(self.id);
        self.client.call(tool, arguments).await
    }

    /// Say how it goes.
    pub async fn says(&self, message: &str) -> Value {
        self.tool("work_update", json!({ "message": message })).await
    }

    /// Say how it goes in other words: progress, total, log, partial.
    pub async fn update(&self, update: Value) -> Value {
        self.tool("work_update", update).await
    }

    /// Take the orders that came.
    pub async fn checkpoint(&self) -> Value {
        self.tool("work_checkpoint", json!({})).await
    }

    /// The same, without waiting for a paused task to go on.
    pub async fn checkpoint_now(&self) -> Value {
        self.tool("work_checkpoint", json!({ "wait_ms": 0 })).await
    }

    /// Ask, without waiting for the answers.
    pub async fn asks(&self, questions: Value) -> Value {
        self.tool("work_ask", json!({ "questions": questions, "wait_ms": 0 })).await
    }

    /// Ask one thing in words, without waiting for the answer.
    pub async fn asks_for(&self, key: &str, message: &str) -> Value {
        self.asks(json!({ key: { "message": message } })).await
    }

    /// End it well.
    pub async fn completes(&self, text: &str) -> Value {
        self.tool("work_complete", json!({ "text": text })).await
    }

    /// End it with this: text, output or result.
    pub async fn completes_with(&self, result: Value) -> Value {
        self.tool("work_complete", result).await
    }

    /// End it badly.
    pub async fn fails(&self, reason: &str) -> Value {
        self.tool("work_fail", json!({ "reason": reason })).await
    }

    /// End it because the call is broken.
    pub async fn breaks(&self, code: i64, message: &str) -> Value {
        let error = json!({ "code": code, "message": message });
        self.tool("work_fail", json!({ "reason": message, "protocol_error": error })).await
    }
}
