//! What happened in a task, as messages of its conversation: what the parties said, and what the system says when the state
//! changes.

use handover_desk::approvals::decides;
use handover_desk::calendar::rfc3339;
use handover_desk::waiting::cycle;
use handover_kernel::command::{Answer, Reply, Request};
use handover_kernel::errand::is_parents;
use handover_kernel::task::REJECTED;
use handover_kernel::{AgentId, Event, Face, Fact, Session};
use schemars::JsonSchema;
use serde::Serialize;

use super::calls::UNNAMED;
use super::parts::{self, Part};
use super::state::{self, State};

/// Who speaks: the one who asks for work, the one who does it, or neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The sender of the task.
    User,
    /// Its receiver.
    Agent,
    /// The server: the state has changed.
    System,
}

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The task itself.
    Task,
    /// Something that a party said.
    Message,
    /// A question with a name, and perhaps a form for its answer.
    Question,
    /// An answer to such a question.
    Answer,
    /// What the sender wants to be taken into account.
    Steer,
    /// How it goes.
    Progress,
    /// What the receiver delivered, on a wire that says so.
    Result,
    /// The state has changed.
    State,
    /// The receiver did not acknowledge in time.
    NoAck,
    /// The receiver has shown no sign of life for too long.
    Silent,
    /// Agents wait for each other, the receiver among them.
    Cycle,
    /// Something was proposed that needs an approval, or was decided about.
    Approval,
    /// More was used than the budget allows.
    Overspent,
}

/// One message of a conversation.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    /// Its place in the task's history: the same for everybody, for ever.
    pub sequence: u64,
    /// What its sender called it, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Who speaks.
    pub role: Role,
    /// The agent that it comes from; none if it comes from the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_node_id: Option<String>,
    /// What it is about.
    pub kind: Kind,
    /// What it says.
    pub parts: Vec<Part>,
    /// The state that it led to, if it led to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// When it was accepted.
    pub at: String,
    /// The protocol that it came through.
    pub via: &'static str,
}

/// An event as a message, if it is one to this agent.
pub fn of(session: &Session, event: &Event, reader: &AgentId) -> Option<Message> {
    let (kind, parts) = said(session, event, reader)?;
    let author = event.author.agent().filter(|_| !event.is_by_runtime());
    let role = match (kind, author) {
        (Kind::State | Kind::NoAck | Kind::Silent | Kind::Overspent, _) | (_, None) => Role::System,
        (_, Some(agent)) if *agent == session.binding.requester => Role::User,
        (_, Some(_)) => Role::Agent,
    };
    Some(Message {
        sequence: event.seq.0,
        message_id: message_id(event),
        role,
        from_node_id: author.map(ToString::to_string),
        kind,
        parts,
        state: state::after(&event.fact, session),
        at: rfc3339(event.at),
        via: handover_desk::timeline::face(event.face),
    })
}

/// What its sender called it. The id of a task's first message is the sender's name for the task.
fn message_id(event: &Event) -> Option<String> {
    if let (Fact::Requested(request), Face::Grid) = (&event.fact, event.face) {
        return (*request.task != *UNNAMED).then(|| request.task.to_string());
    }
    event.id.as_ref().filter(|_| !event.is_by_runtime()).map(ToString::to_string)
}

fn text(text: impl Into<String>) -> Vec<Part> {
    vec![Part::Text { text: text.into() }]
}

/// A sentence, and why if that is known.
fn because(what: &str, reason: &str) -> Vec<Part> {
    text(if reason.is_empty() { what.to_owned() } else { format!("{what}: {reason}") })
}

fn said(session: &Session, event: &Event, reader: &AgentId) -> Option<(Kind, Vec<Part>)> {
    let author = event.author.agent().filter(|_| !event.is_by_runtime());
    let whose = |what: &str| match (author, what) {
        (Some(agent), _) => format!("{agent} {what} the task"),
        (None, "failed") => "the task failed".to_owned(),
        (None, _) => format!("the task was {what}"),
    };
    let state = |what: &str, reason: &str| Some((Kind::State, because(what, reason)));
    match &event.fact {
        Fact::Requested(request) => Some((Kind::Task, requested(request))),
        Fact::Said { body, .. } => Some((Kind::Message, parts::of_body(body))),
        Fact::Asked { questions, .. } => {
            let asked = || questions.iter().flat_map(|question| text(&*question.text)).collect();
            let verbatim = event.verbatim.as_ref().filter(|_| event.face == Face::Grid);
            Some((Kind::Question, verbatim.map_or_else(asked, |body| parts::of_body(body))))
        }
        Fact::Answered { answers } => Some((Kind::Answer, answers.iter().flat_map(answered).collect())),
        Fact::Steered { text: words } => Some((Kind::Steer, text(&**words))),
        Fact::Updated { progress, .. } => {
            let words = if progress.message.is_empty() { &progress.status } else { &progress.message };
            let mut parts = if words.is_empty() { Vec::new() } else { text(&**words) };
            parts.extend(parts::of_body(&progress.partial));
            (!parts.is_empty()).then_some((Kind::Progress, parts))
        }
        // What the receiver said last is what it delivered: that was read already.
        Fact::Completed { .. } if event.is_by_runtime() => None,
        Fact::Completed { output, summary } => {
            let mut parts = if summary.is_empty() { Vec::new() } else { text(&**summary) };
            parts.extend(parts::of_body(output));
            Some((Kind::Result, parts))
        }
        Fact::Failed(failure) => {
            let reason = if failure.reason.is_empty() { &failure.code } else { &failure.reason };
            let what = if *failure.code == *REJECTED { "rejected" } else { "failed" };
            let (_, mut parts) = state(&whose(what), reason)?;
            parts.extend(parts::of_body(&failure.output));
            Some((Kind::State, parts))
        }
        Fact::Accepted { reason, .. } => state(&whose("took"), reason),
        Fact::Declined { reason, .. } => state(&whose("rejected"), reason),
        Fact::Suspended { reason, .. } => state("the task is paused", reason),
        Fact::Resumed { reason, .. } => state("the task goes on", reason),
        Fact::PauseRequested { reason } => state("the task is to be paused", reason),
        Fact::Expired { .. } => state("the task failed", "its time is up"),
        Fact::Cancelled { reason, .. } => {
            let reason = if is_parents(reason) { "so was the task that it is part of" } else { reason };
            state(&whose("canceled"), reason)
        }
        // What follows from a report or a decline was told with that.
        Fact::Committed(_) if session.task().is_some_and(|task| task.follows(event)) => None,
        Fact::Committed(commitment) => {
            let outcome = if commitment.positive { "completed" } else { state::of(session).name() };
            state(&whose(outcome), &commitment.reason)
        }
        Fact::CheckInMissed { message, next, .. } => {
            let waits = if next.is_some() { "" } else { "; you are not told again" };
            let what = format!("no acknowledgement of message {message} in time{waits}");
            (*reader == session.binding.requester).then(|| (Kind::NoAck, text(what)))
        }
        Fact::FellSilent { since } => {
            let what = format!("no sign of life of the receiver since {}", rfc3339(*since));
            (*reader == session.binding.requester).then(|| (Kind::Silent, text(what)))
        }
        Fact::CycleFound { agents } => {
            (*reader == session.binding.requester).then(|| (Kind::Cycle, text(cycle(agents))))
        }
        // What led to a task concerns those who proposed and decided it.
        Fact::Proposed { what, .. } => {
            let what = format!("a {} that needs an approval was proposed", what.name());
            decides(session, reader).then(|| (Kind::Approval, text(what)))
        }
        Fact::Decided { proposal, ruling } => {
            let by = event.author.agent().map_or("somebody", |agent| agent.as_str());
            let how = ruling.name().replace('_', " ");
            let what = format!("{how} by {by}: proposal {proposal}");
            let words = ruling.words().map_or("", |words| &**words);
            decides(session, reader).then(|| (Kind::Approval, because(&what, words)))
        }
        Fact::Overspent { name, of, used } => {
            let what = format!("the budget is spent: {used} {name} were used, and the limit is {of}");
            (*reader == session.binding.requester).then(|| (Kind::Overspent, text(what)))
        }
        Fact::Started(_)
        | Fact::ErrandSettled { .. }
        | Fact::Reserved { .. }
        | Fact::Used { .. }
        | Fact::Spent { .. }
        | Fact::Checkpointed
        | Fact::Delivered { .. }
        | Fact::Read { .. }
        | Fact::Acknowledged
        | Fact::KeySet { .. }
        | Fact::ChildAdded { .. }
        | Fact::Offered { .. }
        | Fact::ContextAdded { .. }
        | Fact::OfferAccepted { .. }
        | Fact::OfferDeclined { .. } => None,
    }
}

/// The message that a task was sent with: what it was sent as, or in whichever words another protocol has for it.
fn requested(request: &Request) -> Vec<Part> {
    let input = parts::of_body(&request.input);
    let untold = request.instructions.is_empty() && input.is_empty();
    let words = if untold { &request.title } else { &request.instructions };
    // A message of several parts has its text among them, and the words are that text once more.
    if words.is_empty() || (!input.is_empty() && parts::to_text(&input) == **words) {
        return input;
    }
    let mut all = text(&**words);
    all.extend(input);
    all
}

fn answered(answer: &Answer) -> Vec<Part> {
    match &answer.reply {
        Reply::Content(body) => parts::of_body(body),
        Reply::Refused => text("refused"),
        Reply::Dismissed => text("dismissed"),
    }
}
