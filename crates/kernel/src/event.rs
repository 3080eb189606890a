//! What was accepted, in the past tense.

use serde::{Deserialize, Serialize};

use crate::approval::{Proposed, Ruling};
use crate::budget::{Amount, Amounts};
use crate::command::{Answer, CheckInTerms, Failure, Need, Progress, Request, Start};
use crate::commitment::Commitment;
use crate::errand::Verdict;
use crate::id::{
    AgentId, Author, Blob, Face, HandoffId, IdScope, MessageId, Millis, Ordinal, QuestionKey, Seq, SessionId,
    Text, Timestamp,
};
use crate::trace::Trace;

/// One accepted fact of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its place in the log.
    pub seq: Seq,
    /// When it was accepted, never before its predecessor.
    pub at: Timestamp,
    /// Whose it is.
    pub author: Author,
    /// The wire that it came through.
    pub face: Face,
    /// Its place among the MACP envelopes, if it is one.
    pub ordinal: Option<Ordinal>,
    /// What the sender called it.
    pub id: Option<MessageId>,
    /// Among which messages that id is the only one.
    pub id_scope: IdScope,
    /// The very bytes of the wire, where they must be given back.
    pub verbatim: Option<Blob>,
    /// When its sender says that it was sent. Nothing rests on it.
    pub sent_at: Option<Timestamp>,
    /// The trace of the command that led to it, on the first event that did.
    pub trace: Option<Box<Trace>>,
    /// What it says.
    pub fact: Fact,
}

impl Event {
    /// What it is called by readers of all messages of the session: by its sender's id where ids are one space for the
    /// whole session, else by its place.
    pub fn message_id(&self) -> MessageId {
        match &self.id {
            Some(id) if self.id_scope == IdScope::Session => id.clone(),
            Some(_) | None => MessageId::from(format!("handover:{}", self.seq)),
        }
    }

    /// Whether the runtime wrote it, be it in an agent's name.
    pub fn is_by_runtime(&self) -> bool {
        self.face == Face::Runtime
    }
}

/// What an event says.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names of most fields say all")]
pub enum Fact {
    /// The session began.
    Started(Box<Started>),
    /// It ended without an outcome.
    Cancelled {
        reason: Text,
        /// Whether what was delegated under it goes on.
        keeps_children: bool,
    },
    /// It was suspended.
    Suspended {
        reason: Text,
        /// The time that was left.
        banked_ms: Option<Millis>,
    },
    /// It went on.
    Resumed {
        reason: Text,
        /// The time that was left when it was suspended.
        banked_ms: Option<Millis>,
    },
    /// Its time was up.
    Expired { cause: ExpiryCause },
    /// The outcome was bound.
    Committed(Box<Commitment>),
    /// Something came of an errand.
    ErrandSettled {
        errand: Seq,
        /// What came of it.
        verdict: Verdict,
    },

    /// The work was defined.
    Requested(Request),
    /// An agent took it.
    Accepted {
        reason: Text,
        /// The handoff that made it so.
        handoff: Option<SessionId>,
    },
    /// An agent turned it down, or gave it back.
    Declined {
        reason: Text,
        /// The handoff that made it so.
        handoff: Option<SessionId>,
    },
    /// The assignee said how it goes.
    Updated {
        progress: Progress,
        /// The questions that this took back.
        withdrawn: Vec<QuestionKey>,
    },
    /// The assignee asked.
    Asked {
        questions: Vec<Question>,
        /// How it goes meanwhile.
        progress: Progress,
    },
    /// The assignee reached a safe point.
    Checkpointed,
    /// Orders reached the assignee.
    Delivered {
        /// The last of them.
        up_to: Seq,
        /// All of them, so that they can be told again from the log. Events of before this was kept have none.
        orders: Vec<Seq>,
    },
    /// The requester answered.
    Answered { answers: Vec<Answer> },
    /// The requester steered.
    Steered { text: Text },
    /// A pause is to take effect at the next safe point.
    PauseRequested { reason: Text },
    /// The assignee reported success.
    Completed {
        output: Blob,
        /// The result in a sentence.
        summary: Text,
    },
    /// The assignee reported failure.
    Failed(Failure),
    /// A party spoke.
    Said {
        body: Blob,
        /// Whether the assignee now waits for the requester's word.
        awaits_reply: bool,
        /// Whether the assignee now works, and waits for nobody.
        works: bool,
        /// The question that this answers.
        answers: Option<QuestionKey>,
        /// How the receiver is to acknowledge it.
        check_in: CheckInTerms,
    },
    /// A party has read the messages.
    Read {
        up_to: Seq,
        /// Whether that was a safe point, because what was read had the orders in it.
        safe_point: bool,
    },
    /// The receiver is working on the messages.
    Acknowledged,
    /// The receiver did not acknowledge a message in time.
    CheckInMissed {
        message: Seq,
        /// When it counts as missed again; none if it is not asked for any more.
        next: Option<Timestamp>,
        /// Whether it was missed so often that the task has failed.
        gives_up: bool,
    },
    /// The assignee showed no sign of life for too long.
    FellSilent {
        /// Its last one, or when it began to work.
        since: Timestamp,
    },
    /// A party set its session key.
    KeySet { key: Option<Text> },
    /// A subtask began.
    ChildAdded { child: SessionId },
    /// The assignee was found to be one of these agents, which wait for each other.
    CycleFound { agents: Vec<AgentId> },

    /// The owner offered the responsibility.
    Offered {
        /// The name of the offer.
        handoff: HandoffId,
        target: AgentId,
        scope: Text,
        reason: Text,
    },
    /// The owner attached something to an offer.
    ContextAdded { handoff: HandoffId, content_type: Text, body: Blob },
    /// The target took the responsibility, or the runtime took it for the target.
    OfferAccepted {
        handoff: HandoffId,
        reason: Text,
        /// Whether the runtime did.
        implicit: bool,
    },
    /// The target turned it down.
    OfferDeclined { handoff: HandoffId, reason: Text },

    /// Something was proposed that needs an approval.
    Proposed {
        what: Box<Proposed>,
        /// Whether it takes effect when it is approved. Else it was refused, and is sent again then.
        held: bool,
    },
    /// An approver decided about a proposal.
    Decided { proposal: Seq, ruling: Ruling },

    /// A task is about to start under this one's budget.
    Reserved {
        child: SessionId,
        /// How many levels it is below this one.
        depth: u32,
    },
    /// The assignee said what it has used for the task.
    Used { used: Amounts },
    /// A task under this one's budget has used something.
    Spent { from: SessionId, used: Amounts },
    /// More was used than the budget allows: nothing more starts under it.
    Overspent {
        /// Of what.
        name: Text,
        of: Amount,
        used: Amount,
    },
}

/// How a session began.
#[derive(Clone, Debug, PartialEq)]
pub struct Started {
    /// As it was asked for.
    pub start: Start,
    /// From when its time counts.
    pub base: Timestamp,
}

/// A question that was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Its name, unique for the life of the task.
    pub key: QuestionKey,
    /// What it asks for.
    pub need: Need,
    /// The question as a person would put it.
    pub text: Text,
    /// A JSON Schema for the answer; empty if any will do.
    pub schema: Blob,
    /// The question as the asker's wire puts it, for readers of the same wire.
    pub wire: Option<Blob>,
}

/// Which time was up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExpiryCause {
    /// The session's time to live.
    Deadline,
    /// The total time that it may be suspended.
    SuspensionCap,
}

impl Fact {
    /// That the session ended without an outcome, and what was delegated under it with it.
    pub(crate) fn cancelled(reason: &str) -> Fact {
        Fact::Cancelled { reason: Text::from(reason), keeps_children: false }
    }

    /// Whether the event is a MACP envelope of the session's mode, and so takes an ordinal. What the assignee says
    /// in a conversation is an update to MACP readers; what the requester says is not.
    pub(crate) fn is_envelope(&self, by_requester: bool) -> bool {
        match self {
            Fact::Started(_)
            | Fact::Committed(_)
            | Fact::Requested(_)
            | Fact::Accepted { .. }
            | Fact::Declined { .. }
            | Fact::Updated { .. }
            | Fact::Asked { .. }
            | Fact::Completed { .. }
            | Fact::Failed(_)
            | Fact::Offered { .. }
            | Fact::ContextAdded { .. }
            | Fact::OfferAccepted { .. }
            | Fact::OfferDeclined { .. } => true,
            Fact::Said { .. } => !by_requester,
            Fact::Cancelled { .. }
            | Fact::Suspended { .. }
            | Fact::Resumed { .. }
            | Fact::Expired { .. }
            | Fact::ErrandSettled { .. }
            | Fact::Checkpointed
            | Fact::Delivered { .. }
            | Fact::Answered { .. }
            | Fact::Steered { .. }
            | Fact::PauseRequested { .. }
            | Fact::Read { .. }
            | Fact::Acknowledged
            | Fact::CheckInMissed { .. }
            | Fact::FellSilent { .. }
            | Fact::KeySet { .. }
            | Fact::ChildAdded { .. }
            | Fact::CycleFound { .. }
            | Fact::Reserved { .. }
            | Fact::Used { .. }
            | Fact::Spent { .. }
            | Fact::Overspent { .. }
            | Fact::Proposed { .. }
            | Fact::Decided { .. } => false,
        }
    }
}
