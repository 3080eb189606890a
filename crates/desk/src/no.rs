//! Why a caller does not get what it asked for, in one type for every face.

use handover_engine::Denied;
use handover_kernel::{AgentId, QuestionKey, Refusal};

use crate::codes::{self, Meaning, own};
use crate::identity::Unauthenticated;
use crate::limit::Limited;

/// Why something cannot be had.
#[derive(Clone, Debug)]
pub enum No {
    /// The kernel refuses it, or the world failed.
    Denied(Denied),
    /// The caller asked for more than it may.
    Limited(Limited),
    /// A value does not fit its contract.
    Unfit(Unfit),
    /// The caller's credential counted when it asked, and does not any more.
    Unauthenticated(Unauthenticated),
    /// Only an administrator may do it.
    NotAdministrator {
        /// Who tried.
        agent: AgentId,
    },
    /// The access list does not let the caller do it.
    NotAllowed {
        /// What was expected, and what was found. It is the same whether there is such an agent or not.
        what: String,
    },
    /// The agents that a task is for take no new ones now.
    DoNotDisturb {
        /// What was expected and what was found.
        what: String,
    },
    /// Nobody knows an agent of this name.
    NoSuchAgent {
        /// What was expected and what was found.
        what: String,
    },
}

/// A value that does not fit what was agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// Which value.
    pub part: Part,
    /// What was expected and what was found.
    pub why: String,
}

/// A value that a contract speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// What a skill is called with.
    Input,
    /// What a skill returns.
    Output,
    /// The schema of a question.
    Question(QuestionKey),
    /// The answer to a question.
    Answer(QuestionKey),
}

impl From<Denied> for No {
    fn from(denied: Denied) -> No {
        No::Denied(denied)
    }
}

impl From<Limited> for No {
    fn from(limited: Limited) -> No {
        No::Limited(limited)
    }
}

impl From<Refusal> for No {
    fn from(refusal: Refusal) -> No {
        No::Denied(Denied::Refused(refusal))
    }
}

impl From<Unfit> for No {
    fn from(unfit: Unfit) -> No {
        No::Unfit(unfit)
    }
}

impl No {
    /// Whether there is no such session as far as the caller may know: one of others looks like one that does not exist.
    pub fn is_unknown(&self) -> bool {
        matches!(self.refusal(), Some(Refusal::SessionNotFound | Refusal::NotParticipant { .. }))
    }

    /// Whether what could not be read now may be read in a while.
    pub fn may_pass(&self) -> bool {
        matches!(self, No::Denied(denied) if denied.may_pass())
    }

    /// The refusal of the kernel, if it is one.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            No::Denied(Denied::Refused(refusal)) => Some(refusal),
            No::Denied(Denied::Fault(_) | Denied::Unreadable(_) | Denied::Stopping)
            | No::Limited(_)
            | No::Unfit(_)
            | No::Unauthenticated(_)
            | No::NotAdministrator { .. }
            | No::NotAllowed { .. }
            | No::DoNotDisturb { .. }
            | No::NoSuchAgent { .. } => None,
        }
    }

    /// Whether it says something about what was asked, rather than about the server.
    pub fn is_callers(&self) -> bool {
        match self {
            No::Denied(denied) => matches!(denied, Denied::Refused(_)),
            No::Limited(_)
            | No::Unfit(_)
            | No::NotAdministrator { .. }
            | No::NotAllowed { .. }
            | No::DoNotDisturb { .. }
            | No::NoSuchAgent { .. } => true,
            No::Unauthenticated(_) => false,
        }
    }

    /// What it is called on every wire.
    pub fn meaning(&self) -> Meaning {
        match self {
            No::Denied(denied) => codes::of_denied(denied),
            No::Limited(limited) => codes::of_limited(limited),
            No::Unfit(unfit) => codes::of_refusal(&Refusal::invalid(unfit.to_string())),
            No::Unauthenticated(_) => codes::UNAUTHENTICATED,
            No::NotAdministrator { .. } | No::NotAllowed { .. } => codes::FORBIDDEN,
            No::DoNotDisturb { .. } => codes::DO_NOT_DISTURB,
            No::NoSuchAgent { .. } => codes::NO_SUCH_AGENT,
        }
    }

    /// The code, the same on every face.
    pub fn code(&self) -> &'static str {
        match self {
            No::Denied(denied) => codes::code_of(denied),
            No::Limited(limited) => codes::code_of_limited(limited),
            No::Unfit(_) => "INVALID",
            No::Unauthenticated(_) => own::UNAUTHENTICATED.code,
            No::NotAdministrator { .. } => own::NOT_ADMINISTRATOR.code,
            No::NotAllowed { .. } => own::NOT_ALLOWED.code,
            No::DoNotDisturb { .. } => own::DO_NOT_DISTURB.code,
            No::NoSuchAgent { .. } => own::AGENT_NOT_FOUND.code,
        }
    }

    /// In a sentence. What went wrong beneath is for the log, not for the caller.
    pub fn message(&self) -> String {
        match self {
            No::Denied(denied) => codes::message(denied),
            No::Limited(limited) => limited.to_string(),
            No::Unfit(unfit) => unfit.to_string(),
            No::Unauthenticated(ended) => ended.to_string(),
            No::NotAdministrator { agent } => format!("expected an administrator, found {agent}"),
            No::NotAllowed { what } | No::DoNotDisturb { what } | No::NoSuchAgent { what } => what.clone(),
        }
    }
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.part, self.why)
    }
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Part::Input => f.write_str("the skill's input schema"),
            Part::Output => f.write_str("the skill's output schema"),
            Part::Question(key) => write!(f, "the schema of question {key}"),
            Part::Answer(key) => write!(f, "the answer to question {key}"),
        }
    }
}
