//! The agent that must not feel it: it looks at one task over MCP and reports on another over MACP, one call after the
//! other, over connections that it keeps.

use std::time::{Duration, Instant};

use serde_json::json;

use super::super::macp::runtime::{Caller, Server, Tokens};
use super::super::macp::script::{Ids, OPENING, Script, UPDATE};
use super::super::mcp::wire::{Agent, Connection, ask};
use super::token;
use crate::Failure;

pub const REQUESTER: &str = "planner";
pub const WORKER: &str = "builder";

/// Between two calls, so that the agent stays far below its rates.
const PAUSE: Duration = Duration::from_millis(10);

/// The honest agent and what it works on.
pub struct Honest {
    looking: Agent,
    task: String,
    macp: String,
    session: String,
    script: Script,
}

/// How long each call took, in microseconds.
pub struct Seen {
    pub looks: Vec<f64>,
    pub sends: Vec<f64>,
}

impl Honest {
    /// Begin both tasks.
    pub async fn begin(server: &Server) -> Result<Honest, Failure> {
        let looking = Agent { target: server.http.clone(), token: token(REQUESTER) };
        let script = Script::new(REQUESTER, WORKER);
        let mut ids = Ids::new();
        let session = ids.next();
        let mut caller = connect(&server.address).await?;
        for line in &script.lines()[..OPENING] {
            caller.send(&script, line, &session, &mut ids).await?;
        }
        let mut connection = open(&looking).await?;
        let asked =
            json!({ "agent": WORKER, "title": "Watch", "instructions": "Go on until told otherwise." });
        let created = ask(&mut connection, &looking.call("delegate_task", asked)).await?;
        let found = created["taskId"].as_str().or_else(|| created["structuredContent"]["task_id"].as_str());
        let task =
            found.ok_or_else(|| Failure::Fault(format!("expected a task, found {created}")))?.to_owned();
        Ok(Honest { looking, task, macp: server.address.clone(), session, script })
    }

    /// Work for a while, on both faces at once.
    pub async fn work(&self, turn: Duration) -> Result<Seen, Failure> {
        let end = Instant::now() + turn;
        let (looks, sends) = tokio::join!(self.look(end), self.send(end));
        Ok(Seen { looks: looks?, sends: sends? })
    }

    async fn look(&self, end: Instant) -> Result<Vec<f64>, Failure> {
        let mut connection = open(&self.looking).await?;
        let request = self.looking.look(&self.task);
        let mut took = Vec::new();
        while Instant::now() < end {
            let begun = Instant::now();
            ask(&mut connection, &request).await?;
            took.push(begun.elapsed().as_secs_f64() * 1e6);
            tokio::time::sleep(PAUSE).await;
        }
        Ok(took)
    }

    async fn send(&self, end: Instant) -> Result<Vec<f64>, Failure> {
        let mut caller = connect(&self.macp).await?;
        let mut ids = Ids::new();
        let line = &self.script.lines()[UPDATE];
        let mut took = Vec::new();
        while Instant::now() < end {
            let begun = Instant::now();
            caller.send(&self.script, line, &self.session, &mut ids).await?;
            took.push(begun.elapsed().as_secs_f64() * 1e6);
            tokio::time::sleep(PAUSE).await;
        }
        Ok(took)
    }
}

async fn connect(macp: &str) -> Result<Caller, Failure> {
    Caller::connect(macp, Tokens::new(&token(REQUESTER), &token(WORKER))?).await
}

async fn open(agent: &Agent) -> Result<Connection, Failure> {
    agent.connect().await.map_err(|error| Failure::fault("connecting", &error))
}
