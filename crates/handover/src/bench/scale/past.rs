//! An agent with a long past beside one with none: what each pays to be told what waits for it.
//!
//! The past is made through the engine before the server starts; what is measured goes over the wires that agents use.

use std::path::Path;
use std::time::Instant;

use handover_desk::identity::DEFAULT_TENANT;
use handover_kernel::AgentId;
use handover_server::face::macp::proto::v1::{SignalPayload, SuspendSessionRequest, WatchSignalsRequest};
use handover_store::sqlite::Options;
use prost::Message;
use serde_json::{Value, json};

use crate::Failure;
use crate::bench::macp::runtime::{Caller, Server, Tokens, failed};
use crate::bench::macp::script::{By, Ids, OPENING, Script};
use crate::bench::macp::{ANSWER_WITHIN, late};
use crate::bench::mcp::cast::connect;
use crate::bench::mcp::wire::{Agent, Connection, ask};
use crate::bench::{fill, life, micros, quantile};

const VETERAN: &str = "veteran";
const NOVICE: &str = "novice";
const PEER: &str = "peer";

/// With how many others the veteran has shared its sessions.
const PEERS: u64 = 50;

/// How many envelopes make a task that waits to be accepted: start, request.
const OFFERED: usize = 2;

/// Sessions that have ended, half of which the veteran handed out, and half of which it did.
pub async fn make(data: &Path, finished: usize) -> Result<(), Failure> {
    let (engine, store) = fill::start(data, fill::settings(), Options::default())?;
    let life = |number: u64| {
        let (veteran, peer) = (AgentId::from(VETERAN), AgentId::from(format!("{PEER}-{}", number % PEERS)));
        if number.is_multiple_of(2) {
            life::done(DEFAULT_TENANT, number, &peer, &veteran)
        } else {
            life::done(DEFAULT_TENANT, number, &veteran, &peer)
        }
    };
    fill::many(&engine, 0..finished as u64, life, "finished sessions").await?;
    engine.stop();
    drop((engine, store));
    Ok(())
}

/// One of the two who are compared: its connections, and what waits for it.
struct One {
    agent: Agent,
    http: Connection,
    macp: Caller,
    script: Script,
    /// A task that nobody has accepted yet.
    offered: String,
    /// A task in its hands that is suspended: whoever begins to listen is told so, however often.
    paused: String,
}

impl One {
    async fn new(server: &Server, name: &str) -> Result<One, Failure> {
        let agent = Agent { target: server.http.clone(), token: name.to_owned() };
        let http = connect(&agent).await?;
        let macp = Caller::connect(&server.address, Tokens::new(PEER, name)?).await?;
        let script = Script::new(PEER, name);
        Ok(One { agent, http, macp, script, offered: String::new(), paused: String::new() })
    }

    /// Let something of each kind wait for it.
    async fn is_wanted(&mut self) -> Result<(), Failure> {
        self.offered = self.task(OFFERED).await?;
        self.paused = self.task(OPENING).await?;
        let suspend = SuspendSessionRequest { session_id: self.paused.clone(), reason: "wait".to_owned() };
        let suspend = self.macp.request(By::Requester, suspend);
        let answer = self.macp.client().suspend_session(suspend).await;
        answer.map_err(|status| failed("SuspendSession", &status))?;
        let peer = Agent { token: PEER.to_owned(), ..self.agent.clone() };
        let offer = peer.call("handoff_offer", json!({ "to": self.agent.token, "scope": "the night shift" }));
        ask(&mut connect(&peer).await?, &offer).await?;
        Ok(())
    }

    /// A new task for it, as far as so many envelopes bring it.
    async fn task(&mut self, envelopes: usize) -> Result<String, Failure> {
        let mut ids = Ids::new();
        let session_id = ids.next();
        for line in &self.script.lines()[..envelopes] {
            self.macp.send(&self.script, line, &session_id, &mut ids).await?;
        }
        Ok(session_id)
    }

    /// Ask, and see that what waits is found and nothing else. Says how long the answer took.
    async fn answered(&mut self, question: Question) -> Result<f64, Failure> {
        let (found, took_us) = match question {
            Question::Idle | Question::Next => {
                self.tool("work_next", json!({ "wait_ms": 0 }), "work").await?
            }
            Question::Handoffs => self.tool("handoff_list", json!({}), "handoffs").await?,
            Question::Orders => {
                let begun = Instant::now();
                let first = tokio::time::timeout(ANSWER_WITHIN, self.first_order()).await;
                (json!([first.map_err(|_| late("the first order"))??]), micros(begun))
            }
        };
        let expected = match question {
            Question::Idle => true,
            Question::Next => found[0]["task_id"] == *self.offered,
            Question::Handoffs => found[0]["to"] == *self.agent.token,
            Question::Orders => found[0] == *self.paused,
        };
        let count = if question == Question::Idle { 0 } else { 1 };
        if expected && found.as_array().is_some_and(|found| found.len() == count) {
            return Ok(took_us);
        }
        let (name, asked) = (&self.agent.token, question.name());
        let message = format!("{asked}: expected {count} that waits for the {name}, found {found}");
        Err(Failure::Fault(message))
    }

    /// Call a tool: the list that it answers with, and how long that took.
    async fn tool(&mut self, tool: &str, arguments: Value, list: &str) -> Result<(Value, f64), Failure> {
        let request = self.agent.call(tool, arguments);
        let begun = Instant::now();
        let mut answer = ask(&mut self.http, &request).await?;
        let took_us = micros(begun);
        Ok((answer["structuredContent"][list].take(), took_us))
    }

    /// Listen, and say which session the first order is about.
    async fn first_order(&mut self) -> Result<String, Failure> {
        let request = self.macp.request(By::Worker, WatchSignalsRequest {});
        let failed = |status| failed("WatchSignals", &status);
        let mut signals = self.macp.client().watch_signals(request).await.map_err(failed)?.into_inner();
        let signal = signals.message().await.map_err(failed)?.unwrap_or_default();
        let payload = signal.envelope.unwrap_or_default().payload;
        let signal = SignalPayload::decode(payload.as_slice());
        let signal = signal.map_err(|error| Failure::fault("reading a signal", &error))?;
        Ok(signal.correlation_session_id)
    }
}

/// What both are asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Question {
    /// `work_next` while nothing waits.
    Idle,
    /// `work_next` while a task waits.
    Next,
    /// `handoff_list` while an offer waits.
    Handoffs,
    /// `WatchSignals`, up to the first order.
    Orders,
}

impl Question {
    fn name(self) -> &'static str {
        match self {
            Question::Idle => "work_next, nothing waits",
            Question::Next => "work_next, a task waits",
            Question::Handoffs => "handoff_list",
            Question::Orders => "WatchSignals to the first order",
        }
    }
}

/// Ask both in turns, so often, everything that an agent asks again and again.
pub async fn measure(server: &Server, rounds: usize) -> Result<Vec<Value>, Failure> {
    let mut veteran = One::new(server, VETERAN).await?;
    let mut novice = One::new(server, NOVICE).await?;
    let mut rows = vec![compare(&mut veteran, &mut novice, Question::Idle, rounds).await?];
    veteran.is_wanted().await?;
    novice.is_wanted().await?;
    for question in [Question::Next, Question::Handoffs, Question::Orders] {
        rows.push(compare(&mut veteran, &mut novice, question, rounds).await?);
    }
    Ok(rows)
}

async fn compare(
    veteran: &mut One,
    novice: &mut One,
    question: Question,
    rounds: usize,
) -> Result<Value, Failure> {
    // The first of each reads what all others find in memory.
    veteran.answered(question).await?;
    novice.answered(question).await?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        // Neither is always the second.
        if round.is_multiple_of(2) {
            with.push(veteran.answered(question).await?);
            without.push(novice.answered(question).await?);
        } else {
            without.push(novice.answered(question).await?);
            with.push(veteran.answered(question).await?);
        }
    }
    let (with_us, without_us) = (quantile(&mut with, 0.5), quantile(&mut without, 0.5));
    Ok(json!({
        "question": question.name(),
        "rounds": rounds,
        "with_past_p50_us": with_us,
        "without_past_p50_us": without_us,
        "with_past_p99_us": quantile(&mut with, 0.99),
        "without_past_p99_us": quantile(&mut without, 0.99),
        "p50_ratio": with_us / without_us,
    }))
}
