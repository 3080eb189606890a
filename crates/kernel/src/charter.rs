//! The rules bound to a session when it starts, never changed afterwards.
//!
//! Protocols differ in who may do what, not in what a task is: each face builds a charter, the kernel knows only
//! charters.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::approval::Approvals;
use crate::budget::Budget;
use crate::command::CheckInTerms;
use crate::id::{AgentId, Millis};

/// A day: the default bound on the total time that a session may be suspended.
pub const SUSPENSION_CAP_DEFAULT_MS: Millis = 24 * 60 * 60 * 1000;

/// The time that a Grid receiver has to acknowledge a message.
pub const CHECK_IN_DEFAULT_MS: Millis = 30_000;

/// Who may do what in one session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charter {
    /// Who may bind the outcome.
    pub authority: Authority,
    /// What a complete report leads to.
    pub on_complete: Settlement,
    /// What a fail report leads to.
    pub on_fail: Settlement,
    /// What a decline leads to.
    pub on_decline: OnDecline,
    /// Who may cancel.
    pub cancel: Cancel,
    /// When a pause takes effect.
    pub pause: PauseAt,
    /// Whether the assignee of a paused task may fail it, and let it go on if it held it itself.
    pub ends_pause: bool,
    /// Whether the assignee may give the task back or hand it on, so that another agent takes it.
    pub reassignment: bool,
    /// Whether a positive commitment needs an output.
    pub require_output: bool,
    /// Whether acting on a task accepts it: the first message, update or question of an agent that may accept.
    pub acting_accepts: bool,
    /// Whether the requester's message answers the oldest open question.
    pub message_answers: bool,
    /// Whether a positive commitment without a report completes the task for the assignee, its last message being
    /// the output.
    pub commit_completes: bool,
    /// Whether changes of state count as messages that the other party has not read.
    pub notices: bool,
    /// How long the receiver has to acknowledge each message of the requester.
    pub check_in_ms: Option<Millis>,
    /// Total suspension beyond this expires the session.
    pub suspension_cap_ms: Millis,
    /// How long an offer may stay unanswered before the runtime accepts it for the target.
    pub implicit_accept_ms: Option<Millis>,
    /// What is expected of an assignee at work.
    pub liveness: Option<Box<Liveness>>,
    /// Whose approval is needed for what.
    pub approvals: Option<Arc<Approvals>>,
    /// How much may be used by the task and everything under it.
    pub budget: Option<Arc<Budget>>,
}

/// The signs of life that are expected of an assignee at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Liveness {
    /// How long it may go without one before it counts as silent.
    pub window_ms: Millis,
    /// What follows then.
    pub then: OnSilence,
}

/// What follows when an assignee is silent, beside that everybody can see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnSilence {
    /// Nothing.
    Nothing,
    /// The requester is told.
    Tell,
    /// The task is taken from it, so that others may take it.
    Free,
    /// The task fails.
    Fail,
}

/// Who may bind the outcome (RFC-MACP-0012 `commitment.authority`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Authority {
    /// The requester.
    Requester,
    /// The requester or any participant.
    AnyParticipant,
    /// These and nobody else.
    Designated(BTreeSet<AgentId>),
}

/// What a report leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Settlement {
    /// Somebody with authority reviews it and commits.
    Review,
    /// The runtime commits at once on the requester's behalf.
    AtOnce,
}

/// What a decline leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnDecline {
    /// The session stays open.
    StayOpen,
    /// The runtime cancels once nobody is left who could accept.
    CancelWhenNobodyLeft,
    /// The runtime commits the failure at once.
    FailAtOnce,
}

/// Who may cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cancel {
    /// The requester.
    Requester,
    /// The requester or the receiver.
    EitherParty,
}

/// When a pause takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PauseAt {
    /// At once.
    Once,
    /// At the assignee's next safe point; at once when nobody is working.
    SafePoint,
}

impl OnSilence {
    /// The words for them.
    pub const NAMES: &str = "nothing, tell, free or fail";

    /// The one with this name.
    pub fn of(name: &str) -> Option<OnSilence> {
        match name {
            "nothing" => Some(OnSilence::Nothing),
            "tell" => Some(OnSilence::Tell),
            "free" => Some(OnSilence::Free),
            "fail" => Some(OnSilence::Fail),
            _ => None,
        }
    }
}

impl Charter {
    /// How a message is to be acknowledged whose sender says this much about it.
    pub(crate) fn check_in(&self, terms: CheckInTerms) -> CheckInTerms {
        CheckInTerms { window_ms: terms.window_ms.or(self.check_in_ms), ..terms }
    }

    /// Whether what a worker delivers in a message is its report, and not something to be reviewed in the conversation.
    pub fn delivery_reports(&self) -> bool {
        !self.commit_completes
    }

    /// A MACP session under `policy.default`: nothing settles by itself.
    pub fn macp() -> Charter {
        Charter {
            authority: Authority::Requester,
            on_complete: Settlement::Review,
            on_fail: Settlement::Review,
            on_decline: OnDecline::StayOpen,
            cancel: Cancel::Requester,
            pause: PauseAt::Once,
            ends_pause: false,
            reassignment: false,
            require_output: false,
            acting_accepts: false,
            message_answers: false,
            commit_completes: false,
            notices: false,
            check_in_ms: None,
            suspension_cap_ms: SUSPENSION_CAP_DEFAULT_MS,
            implicit_accept_ms: None,
            liveness: None,
            approvals: None,
            budget: None,
        }
    }

    /// An MCP task: the server settles on the requester's behalf as soon as there is a report.
    pub fn mcp() -> Charter {
        Charter {
            on_complete: Settlement::AtOnce,
            on_fail: Settlement::AtOnce,
            on_decline: OnDecline::CancelWhenNobodyLeft,
            pause: PauseAt::SafePoint,
            ends_pause: true,
            reassignment: true,
            ..Charter::macp()
        }
    }

    /// A Grid task: a conversation of two, in which only the sender completes.
    pub fn grid() -> Charter {
        Charter {
            on_fail: Settlement::AtOnce,
            on_decline: OnDecline::FailAtOnce,
            cancel: Cancel::EitherParty,
            pause: PauseAt::SafePoint,
            ends_pause: true,
            acting_accepts: true,
            message_answers: true,
            commit_completes: true,
            notices: true,
            check_in_ms: Some(CHECK_IN_DEFAULT_MS),
            ..Charter::macp()
        }
    }
}
