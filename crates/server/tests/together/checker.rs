//! What the log holds of a task, and what each protocol must say of it.

use handover_engine::codec;
use handover_kernel::command::Reply;
use handover_kernel::session::{Session, Standing, replay};
use handover_kernel::{Event, Face, Fact, SessionId};
use handover_server::face::macp::proto::v1::StreamSessionRequest;
use handover_store::SessionKey;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::Protocol;
use super::grid::Node;
use super::others::both::Both;
use super::others::client::{Client, Reply as Notifications, interaction};
use super::others::macp::{Agent, Listening, subscribe};
use super::others::scene::bare;
use super::requester::Speaker;

/// The observer: it sees every task, and has a part in none.
pub const WATCHER: &str = "watcher";

/// Where a task is: in the kernel, and the words of MACP, MCP and Grid for it. A paused Grid task keeps its state, so that
/// the word here is for one that was at work.
const STATES: [(Standing, [&str; 3]); 12] = [
    (Standing::Requested, ["OPEN", "working", "submitted"]),
    (Standing::Working, ["OPEN", "working", "working"]),
    (Standing::WaitingInput, ["OPEN", "input_required", "input_required"]),
    (Standing::WaitingAuthorization, ["OPEN", "input_required", "auth_required"]),
    (Standing::WaitingReply, ["OPEN", "working", "input_required"]),
    (Standing::Suspended, ["SUSPENDED", "paused", "working, paused"]),
    (Standing::ReportedComplete, ["OPEN", "working", "input_required"]),
    (Standing::ReportedFail, ["OPEN", "working", "failed"]),
    (Standing::ResolvedPositive, ["RESOLVED", "completed", "completed"]),
    (Standing::ResolvedNegative, ["RESOLVED", "completed", "failed"]),
    (Standing::Cancelled, ["CANCELLED", "cancelled", "canceled"]),
    (Standing::Expired, ["EXPIRED", "failed", "failed"]),
];

/// The word of a protocol for a standing.
pub fn word(protocol: Protocol, standing: Standing) -> &'static str {
    let row = STATES.iter().find(|(found, _)| *found == standing);
    row.unwrap_or_else(|| panic!("no act leads to {standing:?}")).1[protocol as usize]
}

/// What an event is called: on the timelines of MACP and MCP, as an envelope of MACP, as a message of the Grid. What is
/// none is not shown there.
struct Shown {
    kind: &'static str,
    envelope: Option<&'static str>,
    message: Option<&'static str>,
    /// What it says, wherever it is shown.
    words: String,
}

#[allow(clippy::wildcard_enum_match_arm, reason = "a fact that no act here leads to has no row")]
fn shown(session: &Session, event: &Event) -> Shown {
    let by_requester = event.author.agent() == Some(&session.binding.requester);
    // What the runtime makes of a party's act is no news on the Grid.
    let news = |message: &'static str| (event.face != Face::Runtime).then_some(message);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let row = |kind, envelope, message, words: &str| (kind, envelope, message, words.to_owned());
    let (kind, envelope, message, words) = match &event.fact {
        Fact::Started(_) => row("started", Some("SessionStart"), None, ""),
        Fact::Requested(request) => {
            row("requested", Some("TaskRequest"), Some("task"), &request.instructions)
        }
        Fact::Accepted { reason, .. } => row("accepted", Some("TaskAccept"), Some("state"), reason),
        Fact::Declined { reason, .. } => row("declined", Some("TaskReject"), Some("state"), reason),
        Fact::Updated { progress, .. } => {
            row("updated", Some("TaskUpdate"), Some("progress"), &progress.message)
        }
        Fact::Asked { questions, .. } => {
            row("asked", Some("TaskUpdate"), Some("question"), &questions[0].text)
        }
        Fact::Said { body, .. } if by_requester => row("said", None, Some("message"), &text(body)),
        Fact::Said { body, .. } => row("said", Some("TaskUpdate"), Some("message"), &text(body)),
        Fact::Answered { answers } => {
            let Reply::Content(content) = &answers[0].reply else { panic!("nobody here refuses to answer") };
            row("answered", None, Some("answer"), &text(content))
        }
        Fact::Steered { text } => row("steered", None, Some("steer"), text),
        Fact::PauseRequested { reason } => row("pause_requested", None, Some("state"), reason),
        Fact::Suspended { reason, .. } => row("suspended", None, Some("state"), reason),
        Fact::Resumed { reason, .. } => row("resumed", None, Some("state"), reason),
        Fact::Completed { output, .. } => {
            row("completed", Some("TaskComplete"), news("result"), &text(output))
        }
        Fact::Failed(failure) => row("failed", Some("TaskFail"), Some("state"), &failure.reason),
        Fact::Committed(commitment) => {
            row("committed", Some("Commitment"), news("state"), &commitment.reason)
        }
        Fact::Cancelled { reason, .. } => row("cancelled", None, Some("state"), reason),
        Fact::Expired { .. } => row("expired", None, Some("state"), ""),
        Fact::Delivered { .. } => row("delivered", None, None, ""),
        Fact::Checkpointed => row("checkpointed", None, None, ""),
        Fact::Read { .. } => row("read", None, None, ""),
        other => panic!("no act leads to {other:?}"),
    };
    Shown { kind, envelope, message, words }
}

/// Every event of a task, from the store, and the session that they tell of.
pub fn log(both: &Both, task: &str) -> (Vec<Event>, Session) {
    let stored = both.stage.store.read(&SessionKey::new("default", task), 0, 1000).unwrap();
    let events: Vec<Event> = stored.iter().map(|stored| codec::decode(&stored.bytes).unwrap()).collect();
    let session = replay(&SessionId::from(task), &events).unwrap().unwrap();
    (events, session)
}

fn via(event: &Event) -> &'static str {
    match event.face {
        Face::Macp => "macp",
        Face::Mcp => "mcp",
        Face::Grid => "grid",
        Face::Console | Face::Cli => unreachable!("nobody here speaks so"),
        Face::Runtime => "runtime",
    }
}

fn says(words: &str, said: &str, told: &str) {
    // In JSON within JSON quotes are escaped.
    assert!(said.replace('\\', "").contains(words), "{told}: expected {words:?} in {said}");
}

/// An observer of one task on every protocol. MACP and MCP tell it what happens as it happens; the Grid's stream is for
/// the two parties, so that there it reads.
pub struct Watch {
    macp: Agent,
    mcp: Client,
    grid: Node,
    frames: mpsc::Sender<StreamSessionRequest>,
    envelopes: Listening,
    notifications: Notifications,
    /// The last thing that MCP told of the task.
    last: Value,
    statuses: Vec<String>,
}

impl Watch {
    pub async fn new(both: &Both, task: &str) -> Watch {
        let (macp, grid) = (both.macp(WATCHER), Node::new(&both.stage, WATCHER));
        let mcp = both.stage.client(WATCHER).declaring(interaction());
        let (frames, envelopes) = macp.subscribed(task, 0).await;
        let (notifications, followed) = mcp.listen(json!({ "taskIds": [task] })).await;
        assert_eq!(followed["taskIds"], json!([task]));
        let (last, statuses) = (Value::Null, Vec::new());
        Watch { macp, mcp, grid, frames, envelopes, notifications, last, statuses }
    }

    /// Wait until MCP tells that the task has this status.
    pub async fn until_told(&mut self, status: &str) {
        while self.last["status"] != status {
            self.hear().await;
        }
    }

    async fn hear(&mut self) {
        self.last = bare(self.notifications.next_of("notifications/tasks").await);
        self.statuses.push(self.last["status"].as_str().unwrap().to_owned());
    }

    /// Everybody's word for where a task is must be that of its log.
    pub async fn sees(&self, both: &Both, task: &str, standing: Standing) {
        assert_eq!(log(both, task).1.standing(), standing);
        for protocol in Protocol::ALL {
            let found = Speaker::new(both, protocol, WATCHER).word(task).await;
            assert_eq!(found, word(protocol, standing), "{} for {standing:?}", protocol.name());
        }
    }

    /// The history of the task is the same on every protocol, and is that of its log.
    pub async fn checks(mut self, both: &Both, task: &str) {
        let (events, session) = log(both, task);
        self.checks_macp(&events, &session, task).await;
        self.checks_mcp(&events, &session, task).await;
        self.checks_grid(&events, &session, task).await;
        assert_eq!(log(both, task).0, events, "whoever looks changes nothing");
    }

    async fn checks_macp(&mut self, events: &[Event], session: &Session, task: &str) {
        let timeline = self.macp.timeline(task).await;
        assert_eq!(timeline.len(), events.len());
        let mut ordinal = 0;
        for (event, told) in events.iter().zip(timeline) {
            let shown = shown(session, event);
            let author = event.author.agent().map_or("", |agent| agent.as_str());
            let found = (told.sequence, told.author.as_str(), told.face.as_str(), told.kind.as_str());
            assert_eq!(found, (event.seq.0, author, via(event), shown.kind), "{told:?}");
            says(&shown.words, &told.detail_json, "the timeline of MACP");
            let Some(name) = shown.envelope else {
                assert_eq!(told.ordinal, 0, "{told:?}");
                continue;
            };
            ordinal += 1;
            assert_eq!(told.ordinal, ordinal, "{told:?}");
            let envelope = self.envelopes.envelope().await;
            assert_eq!((envelope.message_type.as_str(), envelope.sender.as_str()), (name, author));
            let foreign = envelope.message_id == format!("handover:{}", event.seq);
            assert_eq!(foreign, event.face != Face::Macp, "{}", envelope.message_id);
            says(&shown.words, &String::from_utf8_lossy(&envelope.payload), name);
        }
        // The refusal is the next frame: there was no other envelope.
        self.frames.send(subscribe("another-session-altogether", 0)).await.unwrap();
        assert_eq!(self.envelopes.error().await.code, "INVALID_ENVELOPE");
    }

    async fn checks_mcp(&mut self, events: &[Event], session: &Session, task: &str) {
        let told = self.mcp.tool("task_timeline", json!({ "task_id": task })).await;
        let entries = told["events"].as_array().unwrap();
        assert_eq!(entries.len(), events.len());
        for (event, entry) in events.iter().zip(entries) {
            let shown = shown(session, event);
            let by = event.author.agent().map(|agent| agent.as_str());
            let found = (&entry["seq"], &entry["by"], &entry["face"], &entry["kind"]);
            let expected = (json!(event.seq.0), json!(by), json!(via(event)), json!(shown.kind));
            assert_eq!(found, (&expected.0, &expected.1, &expected.2, &expected.3));
            says(&shown.words, &entry["detail"].to_string(), "the timeline of MCP");
        }
        // What it was told as it happened ends with what it is told when it asks, and came in the order of the log.
        let now = bare(self.mcp.get(task).await);
        while self.last != now {
            self.hear().await;
        }
        let id = SessionId::from(task);
        let after = |count: usize| replay(&id, &events[..count]).unwrap().unwrap();
        let pending = |session: &Session| session.standing() == Standing::Pending;
        let sessions = (1..=events.len()).map(after).filter(|session| !pending(session));
        let mut log = sessions.map(|session| word(Protocol::Mcp, session.standing()));
        for status in &self.statuses {
            assert!(log.any(|known| known == status), "{status} of {:?} is out of order", self.statuses);
        }
    }

    async fn checks_grid(&self, events: &[Event], session: &Session, task: &str) {
        let told = self.grid.ok("task/history", json!({ "taskId": task })).await;
        let mut messages = told["messages"].as_array().unwrap().iter();
        for event in events {
            let shown = shown(session, event);
            let Some(kind) = shown.message else { continue };
            // A state without a word is no message.
            if kind == "progress"
                && messages.as_slice().first().is_none_or(|next| next["sequence"] != event.seq.0)
            {
                assert_eq!(shown.words, "");
                continue;
            }
            let message = messages.next().unwrap_or_else(|| panic!("expected {kind}, found the end"));
            let from = event.author.agent().filter(|_| event.face != Face::Runtime);
            let role = match from {
                Some(_) if kind == "state" => "system",
                Some(agent) if *agent == session.binding.requester => "user",
                Some(_) => "agent",
                None => "system",
            };
            let found = ["sequence", "fromNodeId", "via", "kind", "role"].map(|field| &message[field]);
            let from = from.map(|agent| agent.as_str());
            let expected = json!([event.seq.0, from, via(event), kind, role]);
            assert_eq!(json!(found), expected);
            says(&shown.words, &message["parts"].to_string(), "the history of the Grid");
        }
        assert_eq!(messages.next(), None, "there is nothing else");
    }
}
