//! How a task looks.

use handover_desk::calendar::rfc3339;
use handover_desk::caller::Caller;
use handover_desk::converse::unread;
use handover_kernel::command::Need;
use handover_kernel::conversation::Party;
use handover_kernel::session::Lifecycle;
use handover_kernel::{AgentId, Session};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::state::{self, State};
use crate::face::approval;
use crate::face::budget;

/// A task as one of its agents sees it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// Its id, the same on every protocol.
    pub task_id: String,
    /// Where it is.
    pub state: State,
    /// Whether it is paused: it keeps its state.
    pub paused: bool,
    /// Who sent it.
    pub from_node_id: String,
    /// Who received it; none if whoever takes it first shall have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_node_id: Option<String>,
    /// In a few words.
    pub title: String,
    /// What it belongs to, as its sender calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_id: Option<String>,
    /// The task that it is part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_task_id: Option<String>,
    /// The sender's own name for the conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender_session_key: Option<String>,
    /// The receiver's own name for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver_session_key: Option<String>,
    /// How many messages you have not read.
    pub unread_count: usize,
    /// Up to which message each side has read.
    pub read_up_to: ReadUpTo,
    /// Whether the receiver has given a sign since the sender last said something.
    pub acknowledged: bool,
    /// The check-in window that is open, or was missed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check_in: Option<CheckIn>,
    /// Since when the receiver has shown no sign of life, though it should.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<String>,
    /// What waits for somebody's approval, or was not approved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<approval::Shown>,
    /// What is used of its budget, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<budget::Shown>,
    /// What the receiver said that it used for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<budget::Numbers>,
    /// What waits for an answer, where it has a name or a form.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<Question>,
    /// How it goes, as the receiver last said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// The number of the last thing that happened to it.
    pub sequence: u64,
    /// When it was sent.
    pub created_at: String,
    /// When something last happened to it.
    pub updated_at: String,
    /// When its time is up, if it is bounded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
}

/// Up to which message each side has read.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ReadUpTo {
    /// The sender of the task.
    pub sender: u64,
    /// Its receiver.
    pub receiver: u64,
}

/// A message that the receiver should acknowledge.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckIn {
    /// Which message.
    pub message: u64,
    /// By when, or when it counts as missed again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_at: Option<String>,
    /// How many windows have passed.
    pub missed: u32,
}

/// A question that waits for an answer.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Question {
    /// Its name.
    pub key: String,
    /// In words.
    pub text: String,
    /// Whether it asks for permission.
    pub permission: bool,
    /// A JSON Schema of its answer, if any will not do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
}

/// How a task goes.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Progress {
    /// How much is done, from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done: Option<f64>,
    /// In a sentence.
    pub message: String,
}

/// A task as this agent sees it, and with what `caller` may see of an approval.
pub fn of(session: &Session, reader: &AgentId, caller: &Caller) -> Option<Task> {
    let (task, binding) = (session.task()?, &session.binding);
    let (request, conversation) = (session.wanted(), &task.conversation);
    let key = |party| conversation.side(party).key.as_ref().map(ToString::to_string);
    let named = request.and_then(|request| request.assignee.as_ref());
    let only = (binding.participants.len() == 1).then(|| &binding.participants[0]);
    let shown = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let questions = task.phase.questions().iter().filter(|_| !session.lifecycle.is_terminal());
    Some(Task {
        task_id: binding.id.to_string(),
        state: state::of(session),
        paused: matches!(session.lifecycle, Lifecycle::Suspended { .. }),
        from_node_id: binding.requester.to_string(),
        to_node_id: task.phase.assignee().or(named).or(only).map(ToString::to_string),
        title: request.map_or_else(String::new, |request| request.title.to_string()),
        context_id: shown(&binding.context_id),
        parent_task_id: binding.parent.as_ref().map(ToString::to_string),
        sender_session_key: key(Party::Requester),
        receiver_session_key: key(Party::Receiver),
        unread_count: unread(session, reader).len(),
        read_up_to: ReadUpTo {
            sender: conversation.side(Party::Requester).read_up_to.0,
            receiver: conversation.side(Party::Receiver).read_up_to.0,
        },
        acknowledged: !conversation.unacknowledged,
        check_in: check_in(session),
        silent_since: task.signs.silent_since.map(rfc3339),
        approval: approval::shown_to(caller, session),
        budget: budget::shown(session),
        used: budget::used(session),
        questions: questions
            .map(|question| Question {
                key: question.key.to_string(),
                text: question.text.to_string(),
                permission: question.need == Need::Authorization,
                schema: serde_json::from_slice(&question.schema).ok(),
            })
            .collect(),
        progress: progress(task),
        sequence: session.head.0,
        created_at: rfc3339(binding.created_at),
        updated_at: rfc3339(session.last_at),
        deadline: session.deadline.map(rfc3339),
    })
}

fn progress(task: &handover_kernel::task::Task) -> Option<Progress> {
    let told = task.phase.progress()?;
    let says = told.done.is_some() || !told.message.is_empty();
    says.then(|| Progress { done: told.done, message: told.message.to_string() })
}

fn check_in(session: &Session) -> Option<CheckIn> {
    let conversation = &session.task()?.conversation;
    if session.lifecycle.is_terminal() {
        return None;
    }
    match (conversation.check_in.as_deref(), conversation.check_in_missed.as_deref()) {
        (Some(open), _) => {
            Some(CheckIn { message: open.message.0, due_at: Some(rfc3339(open.due)), missed: open.missed })
        }
        (None, Some(missed)) => {
            Some(CheckIn { message: missed.message.0, due_at: None, missed: missed.times })
        }
        (None, None) => None,
    }
}
