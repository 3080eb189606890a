//! What hostile agents do within their limits, and what callers do who have no token.
//!
//! Every attack goes on until it is told that the turn is over. Being refused, cut off or made to wait is what it is
//! there for, and no error.

use std::sync::Arc;
use std::time::Duration;

use handover_server::face::macp::proto::task::TaskUpdatePayload;
use handover_server::face::macp::proto::v1::stream_session_response::Response as Frame;
use handover_server::face::macp::proto::v1::{SendRequest, StreamSessionRequest};
use prost::Message;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_stream::StreamExt;

use super::super::macp::runtime::{Caller, Server, Tokens};
use super::super::macp::script::{By, Ids, OPENING, Script, UPDATE};
use super::super::mcp::wire::{Agent, ask};
use super::raw::{self, Answer};
use super::{ATTACKERS, Tally, token};
use crate::Failure;

/// One way to do harm.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Attack {
    Nobody,
    Flood,
    Bodies,
    Checks,
    Reads,
    Unread,
}

pub const ALL: &[Attack] =
    &[Attack::Nobody, Attack::Flood, Attack::Bodies, Attack::Checks, Attack::Reads, Attack::Unread];

/// Connections that one agent keeps busy in one attack.
const BUSY: usize = 4;

/// Streams that one agent leaves unread over each protocol.
const UNREAD: usize = 20;

/// One update of the large session.
const CHUNK_BYTES: usize = 512 * 1024;

/// After being cut off, so that the generator does not spend the machine on connecting.
const BREATH: Duration = Duration::from_millis(5);

/// The name of an attacker.
pub fn name(index: usize) -> String {
    format!("raider-{index}")
}

/// The skill with the costly schema.
const SKILL: &str = "raid";

/// One hostile agent.
pub struct Attacker {
    http: String,
    macp: String,
    agent: Agent,
    /// Shows it as the requester of its own sessions, and its partner as the worker.
    caller: Caller,
    script: Script,
    /// A large session that it takes part in.
    large: String,
    /// A task that it requested.
    task: String,
}

/// Let them get ready: two pairs, each with a large session, and a skill with a costly schema.
pub async fn prepare(server: &Server, megabytes: usize) -> Result<Vec<Arc<Attacker>>, Failure> {
    let mut attackers = Vec::new();
    for index in 0..ATTACKERS {
        let partner = (index + 1) % ATTACKERS;
        let tokens = Tokens::new(&token(&name(index)), &token(&name(partner)))?;
        let mut caller = Caller::connect(&server.address, tokens).await?;
        let script = Script::new(&name(index), &name(partner));
        let agent = Agent { target: server.http.clone(), token: token(&name(index)) };
        let large = begin(&mut caller, &script, (megabytes << 20) / ATTACKERS).await?;
        let mut connection =
            agent.connect().await.map_err(|error| Failure::fault("connecting an attacker", &error))?;
        let about = json!({ "name": "Raider", "description": "Costs", "skills": [{
            "name": SKILL, "description": "Costs", "inputSchema": costly_schema(), "answers": "task",
        }] });
        ask(&mut connection, &agent.call("agent_register", about)).await?;
        let asked = json!({ "agent": name(partner), "title": "Wait", "instructions": "Wait." });
        let created = ask(&mut connection, &agent.call("delegate_task", asked)).await?;
        let task = created["structuredContent"]["task_id"].as_str().unwrap_or_default().to_owned();
        attackers.push(Arc::new(Attacker {
            http: server.http.clone(),
            macp: server.address.clone(),
            agent,
            caller,
            script,
            large,
            task,
        }));
    }
    Ok(attackers)
}

/// A session with updates of about so many bytes.
async fn begin(caller: &mut Caller, script: &Script, bytes: usize) -> Result<String, Failure> {
    let mut ids = Ids::new();
    let session = ids.next();
    for line in &script.lines()[..OPENING] {
        caller.send(script, line, &session, &mut ids).await?;
    }
    for _ in 0..bytes.div_ceil(CHUNK_BYTES) {
        let mut envelope = script.envelope(&script.lines()[UPDATE], &session, ids.next());
        envelope.payload = TaskUpdatePayload {
            task_id: "t1".to_owned(),
            status: "running".to_owned(),
            progress: 0.5,
            message: "more".to_owned(),
            partial_output: vec![b'x'; CHUNK_BYTES],
        }
        .encode_to_vec();
        caller.put(By::Worker, envelope).await?;
    }
    Ok(session)
}

/// As much work as a schema of a few hundred bytes can be made to cause, of what the server registers.
fn costly_schema() -> Value {
    let words: Vec<String> = (0..8).map(|n| format!("^(a|b|ab){{1,{}}}$", n + 2)).collect();
    json!({
        "type": "object",
        "properties": { "items": { "type": "array", "items": {
            "anyOf": words.iter().map(|word| json!({ "type": "string", "pattern": word })).collect::<Vec<_>>(),
        } } },
    })
}

impl Attack {
    pub fn name(self) -> &'static str {
        match self {
            Attack::Nobody => "nobody",
            Attack::Flood => "flood",
            Attack::Bodies => "bodies",
            Attack::Checks => "checks",
            Attack::Reads => "reads",
            Attack::Unread => "unread",
        }
    }

    /// Let an agent do it until the turn is over.
    pub fn begin(
        self,
        attacker: &Arc<Attacker>,
        tally: &Arc<Tally>,
        sockets: usize,
        under_way: &mut JoinSet<()>,
    ) {
        let (agent, wrong) = (&attacker.agent, Agent { token: "wrong".to_owned(), ..attacker.agent.clone() });
        match self {
            Attack::Nobody => {
                under_way.spawn(raw::silent(attacker.http.clone(), sockets, Arc::clone(tally)));
                under_way.spawn(raw::silent(attacker.macp.clone(), sockets, Arc::clone(tally)));
                under_way.spawn(raw::announce(attacker.macp.clone(), sockets, Arc::clone(tally)));
                attacker.repeat(vec![wrong.look(&attacker.task)], tally, under_way);
            }
            Attack::Flood => {
                let start = json!({ "agent": name(0), "title": "More", "instructions": "More." });
                let requests = vec![agent.look(&attacker.task), agent.call("delegate_task", start)];
                attacker.repeat(requests, tally, under_way);
                under_way.spawn(Arc::clone(attacker).send_updates(Arc::clone(tally)));
            }
            Attack::Bodies => {
                let wide: Value = (0..20_000)
                    .map(|n| (format!("k{n}"), Value::from(n)))
                    .collect::<serde_json::Map<_, _>>()
                    .into();
                let deep = (0..60).fold(json!(1), |inner, _| json!([inner]));
                let long = "\\u0000\u{1f980}\"".repeat(20_000);
                let bodies = [wide, deep, long.into()];
                let requests =
                    bodies
                        .into_iter()
                        .map(|input| {
                            agent.call("delegate_task", json!({
                            "agent": name(0), "title": "More", "instructions": "More.", "input": input,
                        }))
                        })
                        .collect();
                attacker.repeat(requests, tally, under_way);
            }
            Attack::Checks => {
                let items = vec![Value::from("ab".repeat(500)); 400];
                attacker.repeat(vec![agent.call(SKILL, json!({ "items": items }))], tally, under_way);
            }
            Attack::Reads => {
                let uri = format!("task://{}", attacker.large);
                let history = json!({ "task_id": attacker.large, "max": 1000 });
                let requests = vec![
                    agent.request("resources/read", &uri, json!({ "uri": uri })),
                    agent.call("task_history", history),
                ];
                attacker.repeat(requests, tally, under_way);
            }
            Attack::Unread => {
                for _ in 0..UNREAD {
                    under_way.spawn(Arc::clone(attacker).stream_unread(Arc::clone(tally)));
                }
                let listen = json!({ "notifications": { "taskIds": [attacker.large, attacker.task] } });
                let request = agent.request("subscriptions/listen", "", listen);
                under_way.spawn(raw::unread(attacker.http.clone(), request, UNREAD, Arc::clone(tally)));
            }
        }
    }
}

impl Attacker {
    /// Send these requests in turn over a few connections, each as soon as the one before it was answered.
    fn repeat(&self, requests: Vec<Vec<u8>>, tally: &Arc<Tally>, under_way: &mut JoinSet<()>) {
        let requests = Arc::new(requests);
        for _ in 0..BUSY {
            let (target, requests, tally) = (self.http.clone(), Arc::clone(&requests), Arc::clone(tally));
            under_way.spawn(async move {
                let mut connection = None;
                for request in requests.iter().cycle() {
                    if tally.over() {
                        return;
                    }
                    match raw::exchange(&mut connection, &target, request).await {
                        Answer::Accepted => tally.count(true),
                        Answer::Refused => tally.count(false),
                        Answer::CutOff => {
                            tally.count(false);
                            tokio::time::sleep(BREATH).await;
                        }
                    }
                }
            });
        }
    }

    /// Reports over MACP, as fast as they are answered.
    async fn send_updates(self: Arc<Self>, tally: Arc<Tally>) {
        let (mut caller, mut ids) = (self.caller.clone(), Ids::new());
        while !tally.over() {
            let envelope = self.script.envelope(&self.script.lines()[UPDATE], &self.large, ids.next());
            let request = caller.request(By::Worker, SendRequest { envelope: Some(envelope) });
            let answer = caller.client().send(request).await;
            let ack = answer.ok().and_then(|answer| answer.into_inner().ack);
            tally.count(ack.is_some_and(|ack| ack.ok));
        }
    }

    /// Follow the large session from its beginning, and take the first frame only.
    async fn stream_unread(self: Arc<Self>, tally: Arc<Tally>) {
        let Ok(tokens) = Tokens::new(&self.agent.token, &self.agent.token) else { return };
        // A connection of its own: on a shared one the first unread stream would hold back the others' bytes too.
        let Ok(mut caller) = Caller::connect(&self.macp, tokens).await else { return tally.count(false) };
        let first = StreamSessionRequest {
            subscribe_session_id: self.large.clone(),
            after_sequence: 0,
            ..StreamSessionRequest::default()
        };
        // The sending side stays open: a half-closed stream may end with what was accepted so far.
        let request =
            caller.request(By::Requester, tokio_stream::iter([first]).chain(tokio_stream::pending()));
        match caller.client().stream_session(request).await {
            Ok(answer) => {
                let mut stream = answer.into_inner();
                let first = stream.message().await;
                let frame = first.ok().flatten().and_then(|frame| frame.response);
                tally.count(matches!(frame, Some(Frame::Envelope(_))));
                while !tally.over() {
                    tokio::time::sleep(BREATH).await;
                }
            }
            Err(_) => tally.count(false),
        }
    }
}
