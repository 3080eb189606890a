//! The methods: what each takes and returns. The document for machines is made from these very types.

use std::fmt;

use handover_client::jsonrpc::{Error, params};
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::approvals::{Decide, ListApprovals, Proposal, Propose, WaitingApprovals};
use super::message::Message;
use super::parts::Part;
use super::state::State;
use super::task::Task;
use crate::face::budget::{Numbers, Shown};

/// A message as its sender gives it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMessage {
    /// Who speaks: `user` asks for work, `agent` does it. What the server knows better is ignored.
    #[serde(default)]
    #[allow(dead_code, reason = "the server knows who speaks")]
    pub role: Option<String>,
    /// What it says, 1 to 64 parts.
    pub parts: Vec<Part>,
}

/// What a message can be given as: parts, or plain text for short.
#[derive(Debug, Default, JsonSchema)]
#[schemars(untagged)]
pub enum Words {
    /// Plain text.
    Text(String),
    /// A message of parts.
    Parts(NewMessage),
    /// Nothing.
    #[default]
    Nothing,
}

// Left to itself, serde says of neither what is wrong with it.
impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Words, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Words;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, or an object with parts")
            }

            fn visit_str<E>(self, text: &str) -> Result<Words, E> {
                Ok(Words::Text(text.to_owned()))
            }

            fn visit_unit<E>(self) -> Result<Words, E> {
                Ok(Words::Nothing)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Words, A::Error> {
                NewMessage::deserialize(MapAccessDeserializer::new(map)).map(Words::Parts)
            }
        }
        value.deserialize_any(Either)
    }
}

macro_rules! methods {
    ($($(#[doc = $doc:literal])+ $name:literal $variant:ident($params:ty) -> $result:ty;)+) => {
        /// Which method.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Method { $(#[doc = $name] $variant,)+ }

        /// What is asked of a method.
        #[derive(Debug)]
        pub enum Asked { $(#[doc = $name] $variant(Box<$params>),)+ }

        impl Method {
            /// What is asked of it with these parameters.
            pub fn read(self, given: Option<&RawValue>) -> Result<Asked, Error> {
                match self { $(Method::$variant => params(given).map(Asked::$variant),)+ }
            }

            /// Every one, in the order of the documentation.
            pub const ALL: &'static [Method] = &[$(Method::$variant),+];

            /// What it is called.
            pub fn name(self) -> &'static str {
                match self { $(Method::$variant => $name,)+ }
            }

            /// What it does, in a sentence or two.
            pub fn summary(self) -> String {
                match self { $(Method::$variant => [$($doc),+].map(str::trim).join(" "),)+ }
            }

            /// The JSON Schemas of what it takes and of what it returns.
            pub fn schemas(self, generator: &mut schemars::SchemaGenerator) -> (schemars::Schema, schemars::Schema) {
                match self {
                    $(Method::$variant => {
                        (generator.subschema_for::<$params>(), generator.subschema_for::<$result>())
                    })+
                }
            }
        }
    };
}

methods! {
    /// Send a task to an agent. It is `submitted`, and the receiver is told.
    "task/send" Send(SendTask) -> Sent;
    /// Say something in a task. The sender's message answers the oldest open question; the receiver's delivers, and
    /// leads to `input_required`, unless it says another state.
    "message/send" Say(SendMessage) -> Sent;
    /// Read what you have not read, which gives the other side a receipt. It acknowledges nothing.
    "task/read" Read(ReadTask) -> WasRead;
    /// Say that you have received the messages and work on them.
    "message/ack" Ack(OnlyTask) -> Acknowledged;
    /// Where a task is.
    "task/get" Get(OnlyTask) -> One;
    /// Your tasks, the newest first; with `unread`, those with something to read, the oldest first.
    "task/list" List(ListTasks) -> Listed;
    /// What was said in a task from its beginning, read or not. Reading so gives no receipt.
    "task/history" History(ReadHistory) -> WasSaid;
    /// Set the state of a task, or your session key in it.
    "task/update" Update(UpdateTask) -> One;
    /// Accept what the receiver delivered. Only the sender can.
    "task/complete" Complete(EndTask) -> One;
    /// Turn a task down. Only the receiver can.
    "task/reject" Reject(EndTask) -> One;
    /// Give a task up, and what was delegated under it unless you say otherwise. Either side can.
    "task/cancel" Cancel(CancelTask) -> Canceled;
    /// The newest task between you and another agent that has not ended.
    "task/active" Active(WithAgent) -> MaybeOne;
    /// A task and what was delegated under it.
    "task/tree" Tree(OnlyTask) -> Delegated;
    /// Tell the receiver something that it should take into account, without waiting for its reply.
    "task/steer" Steer(Steering) -> One;
    /// Pause a task: at once, or when the receiver next reads or reports.
    "task/pause" Pause(EndTask) -> One;
    /// Let a paused task go on.
    "task/resume" Resume(EndTask) -> One;
    /// What waits for your approval, the oldest first.
    "approval/list" Approvals(ListApprovals) -> WaitingApprovals;
    /// Approve what was proposed, as it is or changed, send it back for changes, or reject it.
    "approval/decide" Decide(Decide) -> Proposal;
    /// Propose again, changed, what you proposed and was sent back.
    "task/propose" Propose(Propose) -> One;
}

impl Method {
    /// The method of this name.
    pub fn of(name: &str) -> Option<Method> {
        Method::ALL.iter().copied().find(|method| method.name() == name)
    }
}

/// A new task.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SendTask {
    /// The node id of the agent that shall do it.
    pub(super) to: String,
    /// What is to be done.
    pub(super) message: Words,
    /// In a few words; the beginning of the message unless given.
    pub(super) title: Option<String>,
    /// Your name for this request: sent again with it, it finds the task that it began.
    pub(super) message_id: Option<String>,
    /// What the task belongs to, as you call it.
    #[serde(default)]
    pub(super) context_id: String,
    /// A task of yours that this one is part of.
    pub(super) parent_task_id: Option<String>,
    /// Your own name for the conversation, part of every notification.
    pub(super) session_key: Option<String>,
    /// How many seconds the receiver has to acknowledge it; 30 unless given.
    pub(super) check_in: Option<f64>,
    /// After how many windows without an acknowledgement the task has failed; never unless given.
    pub(super) fail_after_misses: Option<u32>,
    /// How many seconds the task may take; for ever unless given.
    pub(super) deadline: Option<f64>,
    /// After how many seconds without a sign of life the receiver, while it works, counts as silent; never unless given.
    pub(super) silent_after: Option<f64>,
    /// What follows then: `nothing`, `tell` (the default), `free` or `fail`.
    pub(super) when_silent: Option<String>,
    /// How much the task and everything under it may use.
    pub(super) budget: Option<NewBudget>,
    /// Whether the task may wait for an agent that nobody knows.
    #[serde(default)]
    pub(super) queue: bool,
}

/// How much a task and everything under it may use. What is not given is not bounded.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewBudget {
    /// How many tasks may be started under it, at all levels together.
    pub(super) tasks: Option<u32>,
    /// How many levels of tasks may be under it.
    pub(super) depth: Option<u32>,
    /// After how many seconds it and everything under it ends.
    pub(super) time: Option<f64>,
    /// How much may be used of what agents report in `used`, such as `tokens`.
    pub(super) numbers: Option<Numbers>,
}

/// A message.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SendMessage {
    /// In which task.
    pub(super) task_id: Option<String>,
    /// To whom, in the place of a task: in the newest task between you that has not ended.
    pub(super) to: Option<String>,
    /// What to say.
    #[serde(default)]
    pub(super) message: Words,
    /// The state that it leads to.
    pub(super) state: Option<State>,
    /// With `input_required` or `auth_required`: a JSON Schema that the answer must fit.
    pub(super) schema: Option<Value>,
    /// Your name for the message: sent again with it, it is said once.
    pub(super) message_id: Option<String>,
    /// How many seconds the receiver has to acknowledge it; 30 unless given.
    pub(super) check_in: Option<f64>,
    /// After how many windows without an acknowledgement the task has failed; never unless given.
    pub(super) fail_after_misses: Option<u32>,
    /// What you have used for the task since you last said so, as its receiver: `{"tokens": 1200}`.
    pub(super) used: Option<Numbers>,
}

/// What to read.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadTask {
    /// Of which task.
    pub(super) task_id: String,
    /// At most so many messages.
    pub(super) max: Option<usize>,
    /// How many milliseconds to wait for something to read, at most 25,000.
    pub(super) wait_ms: Option<u64>,
}

/// Which part of a history to read.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadHistory {
    /// Of which task.
    pub(super) task_id: String,
    /// After this sequence number; from the beginning unless given.
    #[serde(default)]
    pub(super) after: u64,
    /// Looking at no more than so many events.
    pub(super) max: Option<usize>,
}

/// A task.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OnlyTask {
    /// Which.
    pub(super) task_id: String,
}

/// A task, and why.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndTask {
    /// Which.
    pub(super) task_id: String,
    /// Why, in words.
    #[serde(default)]
    pub(super) reason: String,
}

/// A task to give up.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CancelTask {
    /// Which.
    pub(super) task_id: String,
    /// Why, in words.
    #[serde(default)]
    pub(super) reason: String,
    /// Whether what was delegated under it goes on.
    #[serde(default)]
    pub(super) keep_subtasks: bool,
}

/// An agent.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WithAgent {
    /// Its node id.
    pub(super) node_id: String,
}

/// What to take into account.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Steering {
    /// In which task.
    pub(super) task_id: String,
    /// What, in words.
    pub(super) text: String,
    /// Your name for it: sent again with it, it is said once.
    pub(super) message_id: Option<String>,
}

/// What to change.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpdateTask {
    /// Of which task.
    pub(super) task_id: String,
    /// The new state: `working`, `input_required`, `auth_required`, `failed`, `rejected` by the receiver, `completed` by the
    /// sender, `canceled` by either.
    pub(super) state: Option<State>,
    /// What to say with it.
    #[serde(default)]
    pub(super) message: Words,
    /// Your own name for the conversation; an empty one takes it away.
    pub(super) session_key: Option<String>,
    /// Your name for this request: sent again with it, it has no second effect.
    pub(super) message_id: Option<String>,
    /// What you have used for the task since you last said so, as its receiver: `{"tokens": 1200}`.
    pub(super) used: Option<Numbers>,
}

/// Which tasks to list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListTasks {
    /// In this state.
    pub(super) state: Option<State>,
    /// Of this context.
    pub(super) context_id: Option<String>,
    /// With this agent.
    pub(super) with: Option<String>,
    /// Only with something that you have not read.
    #[serde(default)]
    pub(super) unread: bool,
    /// `nextCursor` of the last page.
    pub(super) cursor: Option<String>,
    /// At most so many.
    pub(super) max: Option<usize>,
    /// How many milliseconds to wait for the first of them, at most 25,000.
    pub(super) wait_ms: Option<u64>,
}

/// What was said is stored.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sent {
    /// The task as it is then.
    pub(super) task: Task,
    /// The place of the message in its history.
    pub(super) sequence: u64,
    /// Whether it was sent before under its message id: it has no second effect.
    pub(super) duplicate: bool,
    /// What you should know, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) warning: Option<String>,
}

/// A task.
#[derive(Debug, Serialize, JsonSchema)]
pub struct One {
    /// As it is now.
    pub(super) task: Task,
    /// Who waits for whom because of it: told by `task/get`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) waits: Vec<Waits>,
    /// What you should know, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) warning: Option<String>,
}

/// One agent waits for another.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Waits {
    /// Who waits.
    pub(super) from_node_id: String,
    /// For whom.
    pub(super) to_node_id: String,
    /// What for: `question`, `approval`, `review` or `delegated`.
    pub(super) why: &'static str,
    /// The task that it waits for.
    pub(super) task_id: String,
}

/// A task, if there is one.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MaybeOne {
    /// As it is now.
    pub(super) task: Option<Task>,
}

/// The first acknowledgement after a message is told to its sender.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Acknowledged {
    /// Whether it was the first one since the sender last said something.
    pub(super) acknowledged: bool,
    /// The task as it is then.
    pub(super) task: Task,
}

/// What was read.
#[derive(Debug, Serialize, JsonSchema)]
pub struct WasRead {
    /// The task as it is then.
    pub(super) task: Task,
    /// What you had not read, the oldest first.
    pub(super) messages: Vec<Message>,
    /// Whether there is more to read.
    pub(super) more: bool,
    /// For the receiver: the W3C trace context of its work, as the parent of its own spans.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) traceparent: Option<String>,
}

/// What was said.
#[derive(Debug, Serialize, JsonSchema)]
pub struct WasSaid {
    /// The messages, in order.
    pub(super) messages: Vec<Message>,
    /// The sequence number after which the next page begins, if there is one.
    pub(super) next: Option<u64>,
}

/// A page of tasks.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Listed {
    /// The tasks.
    pub(super) tasks: Vec<Task>,
    /// Where the next page begins, if there may be one. A page can be short, even empty, and have a next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_cursor: Option<String>,
}

/// A task was given up.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Canceled {
    /// The task as it is then.
    pub(super) task: Task,
    /// What was delegated under it and is canceled with it.
    pub(super) subtasks: Vec<String>,
    /// What was delegated under it and goes on: because it was to, or because it could not be reached yet.
    pub(super) going_on: Vec<String>,
}

/// A task and what was delegated under it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Delegated {
    /// The tasks, each before those under it.
    pub(super) tasks: Vec<Branch>,
    /// Whether there are more of them.
    pub(super) more: bool,
}

/// One task of a tree: little of it, because whoever began the first may have no part in the others.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Branch {
    /// Its id.
    pub(super) task_id: String,
    /// The task above it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parent_task_id: Option<String>,
    /// How many tasks are above it here.
    pub(super) depth: usize,
    /// Where it is.
    pub(super) state: State,
    /// Who sent it.
    pub(super) from_node_id: String,
    /// Who received it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) to_node_id: Option<String>,
    /// In a few words.
    pub(super) title: String,
    /// When it was sent.
    pub(super) created_at: String,
    /// What is used of its budget, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) budget: Option<Shown>,
    /// What its receiver said that it used for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) used: Option<Numbers>,
}
