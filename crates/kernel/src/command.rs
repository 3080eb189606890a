//! What someone asks for, in the imperative.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::approval::Ruling;
use crate::budget::{Amounts, Under};
use crate::charter::Charter;
use crate::commitment::Commitment;
use crate::errand::Verdict;
use crate::id::{
    AgentId, Author, Blob, Face, HandoffId, IdScope, MessageId, Millis, QuestionKey, Seq, SessionId, Text,
    Timestamp,
};
use crate::trace::Trace;

/// Message ids that begin so are the runtime's own.
pub const RESERVED_PREFIXES: [&str; 2] = ["handover:", "implicit-accept:"];

/// What an authenticated agent, or the runtime, asks of one session.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// Who asks.
    pub by: Author,
    /// Through which wire.
    pub face: Face,
    /// What the sender calls this message; the same id twice has one effect.
    pub id: Option<MessageId>,
    /// Among which messages that id is the only one.
    pub id_scope: IdScope,
    /// What it means if it starts a session that exists.
    pub second_start: SecondStart,
    /// The bytes of the wire, where it must give back the very bytes that it took.
    pub verbatim: Option<Blob>,
    /// What its sender takes the session to be about, on wires where each message says so.
    pub mode: Option<ModeKind>,
    /// Whether the answer will carry the waiting orders to the assignee, so that they count as delivered.
    pub takes_orders: bool,
    /// Whether acting on a task accepts it whatever the charter says, on wires that have no word for accepting.
    pub accepts: bool,
    /// Whether what needs an approval is kept until it has one. Else it is refused, and sent again then: on wires whose
    /// readers see what is accepted at once.
    pub held: bool,
    /// When its sender says that it was sent: no part of what makes two messages the same.
    pub sent_at: Option<Timestamp>,
    /// The trace that it belongs to: no part of what makes two messages the same.
    pub trace: Option<Box<Trace>>,
    /// What its sender says that it has used for the task since it last said so.
    pub used: Amounts,
    /// What is asked.
    pub act: Act,
}

impl Command {
    /// A command of an agent without a message id. An id that it gets is its sender's own, and a second start under it
    /// is a retry.
    pub fn by(agent: &AgentId, face: Face, act: Act) -> Command {
        Command {
            by: Author::Agent(agent.clone()),
            face,
            id: None,
            id_scope: IdScope::Sender,
            second_start: SecondStart::MayBeRetry,
            verbatim: None,
            mode: None,
            takes_orders: false,
            accepts: false,
            held: true,
            sent_at: None,
            trace: None,
            used: Amounts::default(),
            act,
        }
    }

    /// A command of the runtime.
    pub fn runtime(act: Act) -> Command {
        Command {
            by: Author::Runtime,
            face: Face::Runtime,
            id: None,
            id_scope: IdScope::Runtime,
            second_start: SecondStart::Refused,
            verbatim: None,
            mode: None,
            takes_orders: false,
            accepts: false,
            held: true,
            sent_at: None,
            trace: None,
            used: Amounts::default(),
            act,
        }
    }

    /// The same, called by a message id.
    pub fn with_id(mut self, id: impl Into<MessageId>) -> Command {
        self.id = Some(id.into());
        self
    }

    /// The same on a wire whose message ids are one space per session, and where a session starts once: a second start
    /// is refused whatever its id.
    pub fn in_session_scope(mut self) -> Command {
        self.id_scope = IdScope::Session;
        self.second_start = SecondStart::Refused;
        self.held = false;
        self
    }
}

/// What a command that starts a session means if the session exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecondStart {
    /// A retry, if the start had the same message id.
    MayBeRetry,
    /// Always a mistake.
    Refused,
}

/// What is asked of a session.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names of most fields say all")]
pub enum Act {
    /// Start it.
    Start(Box<Start>),
    /// Start it with its work: a task that nobody ever sees without its request.
    Delegate(Box<Delegation>),
    /// End it without an outcome.
    Cancel {
        reason: Text,
        /// Whether what was delegated under it goes on.
        keeps_children: bool,
    },
    /// Suspend it, at once or at the next safe point as the charter says.
    Pause {
        reason: Text,
        /// Wait for a safe point even if the charter would suspend at once.
        gently: bool,
    },
    /// Go on.
    Resume { reason: Text },
    /// Do what is due by now.
    Tick,
    /// Bind the outcome.
    Commit(Box<Commitment>),
    /// Decide about what was proposed.
    Decide { proposal: Seq, ruling: Ruling },
    /// Something of the task mode.
    Task(TaskAct),
    /// Something of the handoff mode.
    Handoff(HandoffAct),
    /// Record what came of an errand.
    SettleErrand {
        errand: Seq,
        /// What came of it.
        verdict: Verdict,
    },
}

/// What a session is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ModeKind {
    /// Bounded work for another agent.
    Task,
    /// Transfer of a responsibility.
    Handoff,
}

impl ModeKind {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            ModeKind::Task => "task",
            ModeKind::Handoff => "handoff",
        }
    }
}

/// How a session starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// What it is about.
    pub mode: ModeKind,
    /// The agents that may take part, fixed from now on.
    pub participants: Vec<AgentId>,
    /// The rules, fixed from now on.
    pub charter: Charter,
    /// The semantic profile of the mode.
    pub mode_version: Text,
    /// The execution profile.
    pub configuration_version: Text,
    /// The policy that the charter was made from.
    pub policy_version: Text,
    /// How long the session may be open; none means for ever.
    pub ttl_ms: Option<Millis>,
    /// When the sender says that it sent this.
    pub sent_at: Option<Timestamp>,
    /// What the session is for, in a sentence.
    pub intent: Text,
    /// A reference to a context that is kept elsewhere.
    pub context_id: Text,
    /// The names of the extension blocks; their bytes are in the verbatim payload.
    pub extension_keys: Vec<Text>,
    /// The task that this one is part of.
    pub parent: Option<SessionId>,
    /// What the work takes and gives, fixed from now on.
    pub contract: Option<Arc<Contract>>,
    /// The budgets that it stands under: filled in from its parent, never by who starts it.
    pub under: Option<Arc<Under>>,
}

/// The skill that a task was started for, as its agent described it then. Nothing here looks into the schemas.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Contract {
    /// The name of the skill.
    pub skill: Text,
    /// A JSON Schema for the input; empty if any will do.
    pub input: Blob,
    /// A JSON Schema for the output; empty if any will do.
    pub output: Blob,
}

/// How a session starts together with what it is for.
#[derive(Clone, Debug, PartialEq)]
pub struct Delegation {
    /// The session.
    pub start: Start,
    /// What it is for.
    pub opening: Opening,
}

/// What a session is for, said with its start.
#[derive(Clone, Debug, PartialEq)]
pub enum Opening {
    /// The work of a task.
    Request(Request),
    /// The first offer of a handoff.
    Offer(NewOffer),
}

/// An offer of a responsibility.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewOffer {
    /// The name of the offer.
    pub handoff: HandoffId,
    /// The one agent that may answer it.
    pub target: AgentId,
    /// What it covers; `task:<session id>` names a running task.
    pub scope: Text,
    /// For the target.
    pub reason: Text,
    /// What is attached to it, so that nobody ever sees the offer without.
    pub context: Option<OfferContext>,
}

/// What is asked of a task.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names of most fields say all")]
pub enum TaskAct {
    /// Define the work.
    Request(Box<Request>),
    /// Take it.
    Accept {
        /// The task's name, where the sender gave one.
        task: Option<Text>,
        /// The agent, where the sender repeats itself.
        assignee: Option<AgentId>,
        reason: Text,
    },
    /// Turn it down, or give it back.
    Decline {
        /// The task's name, where the sender gave one.
        task: Option<Text>,
        /// The agent, where the sender repeats itself.
        assignee: Option<AgentId>,
        reason: Text,
    },
    /// Say how it goes.
    Update {
        /// The task's name, where the sender gave one.
        task: Option<Text>,
        progress: Progress,
        /// Whether this takes back the open questions.
        withdraws: bool,
    },
    /// Ask the requester.
    Ask {
        /// The task's name, where the sender gave one.
        task: Option<Text>,
        /// The questions, at least one.
        questions: Vec<NewQuestion>,
        /// How it goes meanwhile.
        progress: Progress,
    },
    /// Reach a safe point without anything to say.
    Checkpoint,
    /// Hold the task until the requester resumes it: at a bill to approve, or for want of a resource.
    Hold { reason: Text },
    /// Record that the orders up to there have reached the assignee.
    Deliver {
        /// The last order that did.
        up_to: Seq,
    },
    /// Answer questions, all or some.
    Answer {
        answers: Vec<Answer>,
        /// Whether keys that are not open are passed over rather than refused.
        ignore_unknown: bool,
        /// Whether a paused task refuses it rather than keeping it.
        refuse_when_paused: bool,
    },
    /// Tell the assignee something that it will hear at its next safe point.
    Steer { text: Text },
    /// Report success.
    Complete {
        /// The task's name, where the sender gave one.
        task: Option<Text>,
        /// The agent, where the sender repeats itself.
        assignee: Option<AgentId>,
        output: Blob,
        /// The result in a sentence.
        summary: Text,
    },
    /// Report failure.
    Fail {
        /// The task's name, where the sender gave one.
        task: Option<Text>,
        /// The agent, where the sender repeats itself.
        assignee: Option<AgentId>,
        failure: Failure,
    },
    /// Say something in the conversation.
    Say {
        body: Blob,
        /// What the assignee does next. What the requester says leaves that as it is.
        next: Next,
        /// How the requester wants to hear that it was received.
        check_in: CheckInTerms,
    },
    /// Have read the messages up to there.
    Read {
        /// The last message that was read.
        up_to: Seq,
    },
    /// Have received the messages and be working on them.
    Acknowledge,
    /// Set the caller's own session key.
    SetKey {
        /// The key; none removes it.
        key: Option<Text>,
    },
    /// Ask whether `by` could hand the running task on to `to`. Changes nothing.
    CanHandOn {
        /// The owner that would offer it.
        by: AgentId,
        /// The agent that would take it.
        to: AgentId,
    },
    /// Ask whether `by` may start a subtask of this task. Changes nothing.
    CanHaveChild {
        /// Who would start it.
        by: AgentId,
    },
    /// Make another agent the assignee, as a committed handoff says.
    HandOn {
        handoff: SessionId,
        to: AgentId,
        /// Who offered it.
        by: AgentId,
    },
    /// Record a subtask.
    AddChild { child: SessionId },
    /// Record that these agents wait for each other, each for the next and the last for the first.
    NoteCycle { agents: Vec<AgentId> },
    /// Count a task that is about to start under this one's budget.
    Reserve {
        child: SessionId,
        /// How many levels it will be below this one.
        depth: u32,
    },
    /// Count what a task under this one's budget has used.
    Spend { from: SessionId, used: Amounts },
}

/// The work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The requester's name for it.
    pub task: Text,
    /// In a few words.
    pub title: Text,
    /// What to do.
    pub instructions: Text,
    /// Who shall do it; none means whoever accepts first.
    pub assignee: Option<AgentId>,
    /// What to do it with.
    pub input: Blob,
    /// When the requester would like to have it: it settles nothing.
    pub wanted_by: Option<Timestamp>,
    /// How the requester wants to hear that it was received.
    pub check_in: CheckInTerms,
    /// The requester's own name for the conversation.
    pub session_key: Option<Text>,
}

/// How the sender of a message wants to hear that it was received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckInTerms {
    /// How long the receiver has to acknowledge it, where the sender says so and not the charter.
    pub window_ms: Option<Millis>,
    /// After how many windows without a sign the task has failed; none means never.
    pub misses_max: Option<u32>,
}

/// What an assignee does next that has said something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of most fields say all")]
pub enum Next {
    /// What it did before.
    #[default]
    AsBefore,
    /// Works, and waits for nobody.
    Works,
    /// Waits for the requester's word. Where messages answer nothing, or it asks for permission or for something in
    /// particular, that is a question.
    Asks {
        need: Need,
        /// The question as a person would put it.
        text: Text,
        /// A JSON Schema for the answer; empty if any will do.
        schema: Blob,
    },
    /// Has delivered what it was asked for. Where the requester completes, it waits for the requester's word; elsewhere
    /// that is its report.
    Delivers,
}

/// How the work goes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// In one word.
    pub status: Text,
    /// How much is done.
    pub done: Option<f64>,
    /// In a sentence.
    pub message: Text,
    /// What there is already.
    pub partial: Blob,
}

/// What a question asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Need {
    /// Information.
    Input,
    /// Permission.
    Authorization,
}

/// A question as the assignee puts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewQuestion {
    /// Its name; without one it is called after its sequence number.
    pub key: Option<QuestionKey>,
    /// What it asks for.
    pub need: Need,
    /// The question as a person would put it.
    pub text: Text,
    /// A JSON Schema for the answer; empty if any will do.
    pub schema: Blob,
    /// The question as the asker's wire puts it, for readers of the same wire.
    pub wire: Option<Blob>,
}

/// An answer to one question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The question that it answers.
    pub key: QuestionKey,
    /// What the answer is.
    pub reply: Reply,
}

/// What the requester answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// An answer.
    Content(Blob),
    /// The requester declined to answer.
    Refused,
    /// Nothing: the question was dismissed.
    Dismissed,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// A code for machines.
    pub code: Text,
    /// In a sentence.
    pub reason: Text,
    /// Whether trying again may help.
    pub retryable: bool,
    /// Whether the call itself was broken, rather than the work.
    pub protocol_error: bool,
    /// What the assignee has to show all the same.
    pub output: Blob,
}

/// What is asked of a handoff.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of most fields say all")]
pub enum HandoffAct {
    /// Offer the responsibility.
    Offer(NewOffer),
    /// Attach something to an offer.
    Context { handoff: HandoffId, content_type: Text, body: Blob },
    /// Take the responsibility.
    Accept {
        handoff: HandoffId,
        /// The agent, where the sender repeats itself.
        by: Option<AgentId>,
        reason: Text,
        /// Claimed by the sender; only the runtime may accept so.
        implicit: bool,
    },
    /// Turn it down.
    Decline {
        handoff: HandoffId,
        /// The agent, where the sender repeats itself.
        by: Option<AgentId>,
        reason: Text,
    },
}

/// What is attached to an offer when it is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferContext {
    /// The media type of the body.
    pub content_type: Text,
    /// What the target should know.
    pub body: Blob,
}

impl Act {
    /// End a session without an outcome, and what was delegated under it.
    pub fn cancel(reason: impl Into<Text>) -> Act {
        Act::Cancel { reason: reason.into(), keeps_children: false }
    }

    /// The word for it, for logs.
    pub fn name(&self) -> &'static str {
        match self {
            Act::Start(_) => "start",
            Act::Delegate(_) => "delegate",
            Act::Cancel { .. } => "cancel",
            Act::Pause { .. } => "pause",
            Act::Resume { .. } => "resume",
            Act::Tick => "tick",
            Act::Commit(_) => "commit",
            Act::Decide { .. } => "decide",
            Act::Task(act) => act.name(),
            Act::Handoff(act) => match act {
                HandoffAct::Offer(_) => "offer",
                HandoffAct::Context { .. } => "context",
                HandoffAct::Accept { .. } => "accept_offer",
                HandoffAct::Decline { .. } => "decline_offer",
            },
            Act::SettleErrand { .. } => "settle_errand",
        }
    }

    /// The same, of which more can be said.
    pub fn start_mut(&mut self) -> Option<&mut Start> {
        match self {
            Act::Start(start) => Some(start),
            Act::Delegate(delegation) => Some(&mut delegation.start),
            Act::Cancel { .. }
            | Act::Pause { .. }
            | Act::Resume { .. }
            | Act::Tick
            | Act::Commit(_)
            | Act::Decide { .. }
            | Act::Task(_)
            | Act::Handoff(_)
            | Act::SettleErrand { .. } => None,
        }
    }

    /// How it starts a session, if it starts one.
    pub fn start(&self) -> Option<&Start> {
        match self {
            Act::Start(start) => Some(start),
            Act::Delegate(delegation) => Some(&delegation.start),
            Act::Cancel { .. }
            | Act::Pause { .. }
            | Act::Resume { .. }
            | Act::Tick
            | Act::Commit(_)
            | Act::Decide { .. }
            | Act::Task(_)
            | Act::Handoff(_)
            | Act::SettleErrand { .. } => None,
        }
    }
}

impl TaskAct {
    fn name(&self) -> &'static str {
        match self {
            TaskAct::Request(_) => "request",
            TaskAct::Accept { .. } => "accept",
            TaskAct::Decline { .. } => "decline",
            TaskAct::Update { .. } => "update",
            TaskAct::Ask { .. } => "ask",
            TaskAct::Checkpoint => "checkpoint",
            TaskAct::Hold { .. } => "hold",
            TaskAct::Deliver { .. } => "deliver",
            TaskAct::Answer { .. } => "answer",
            TaskAct::Steer { .. } => "steer",
            TaskAct::Complete { .. } => "complete",
            TaskAct::Fail { .. } => "fail",
            TaskAct::Say { .. } => "say",
            TaskAct::Read { .. } => "read",
            TaskAct::Acknowledge => "acknowledge",
            TaskAct::SetKey { .. } => "set_key",
            TaskAct::CanHandOn { .. } => "can_hand_on",
            TaskAct::CanHaveChild { .. } => "can_have_child",
            TaskAct::HandOn { .. } => "hand_on",
            TaskAct::AddChild { .. } => "add_child",
            TaskAct::NoteCycle { .. } => "note_cycle",
            TaskAct::Reserve { .. } => "reserve",
            TaskAct::Spend { .. } => "spend",
        }
    }
}

impl Reply {
    /// What was said, if anything was.
    pub fn content(&self) -> Option<&Blob> {
        match self {
            Reply::Content(body) => Some(body),
            Reply::Refused | Reply::Dismissed => None,
        }
    }
}
