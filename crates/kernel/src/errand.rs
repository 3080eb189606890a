//! What a session owes to another one.
//!
//! `decide` sees one session. What spans two is an errand: the session says in its log that it owes it, the engine
//! carries it to the other session as an idempotent command, and what came of it is recorded in both. An errand that
//! has not been settled makes its session due, so it survives a restart.

use serde::{Deserialize, Serialize};

use crate::budget::Amounts;
use crate::command::{Act, TaskAct};
use crate::id::{AgentId, Seq, SessionId, Text};
use crate::session::Session;

/// Something to be done in another session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errand {
    /// The event that made it so; with the session's id it names the errand.
    pub id: Seq,
    /// The other session.
    pub to: SessionId,
    /// What to do there.
    pub what: What,
}

/// What to do in the other session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names of most fields say all")]
pub enum What {
    /// A committed handoff makes its target the assignee of the task.
    HandOn {
        to: AgentId,
        /// Who offered it, and must still have the right to when it is carried out.
        by: AgentId,
    },
    /// A subtask makes itself known to its parent.
    TellParent,
    /// A cancelled task cancels its subtask.
    CancelChild,
    /// A task tells the root of the budget above it what was used.
    Spend { used: Amounts },
}

/// What came of an errand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// It was done.
    Done,
    /// The other session refused for good.
    Refused {
        /// The refusal's code.
        code: Text,
    },
}

/// Why a subtask was cancelled with its parent, or because the parent had ended before.
const PARENT_CANCELLED: &str = "parent_cancelled";
pub(crate) const PARENT_ENDED: &str = "parent_ended";

/// What the root of a budget says when it is told of more than it has left.
pub(crate) const BUDGET_SPENT: &str = "BUDGET_SPENT";

/// Whether a subtask was cancelled because of its parent.
pub fn is_parents(reason: &str) -> bool {
    [PARENT_CANCELLED, PARENT_ENDED].contains(&reason)
}

impl Errand {
    /// The act that carries it out, for the session `from` that owes it.
    pub fn act(&self, from: &SessionId) -> Act {
        match &self.what {
            What::HandOn { to, by } => {
                Act::Task(TaskAct::HandOn { handoff: from.clone(), to: to.clone(), by: by.clone() })
            }
            What::TellParent => Act::Task(TaskAct::AddChild { child: from.clone() }),
            What::CancelChild => Act::cancel(PARENT_CANCELLED),
            What::Spend { used } => Act::Task(TaskAct::Spend { from: from.clone(), used: used.clone() }),
        }
    }

    /// What came of it in the session that has taken it. What was used is counted whatever is left; whoever told it learns
    /// that there is nothing left.
    pub fn verdict(&self, there: &Session) -> Verdict {
        match self.what {
            What::Spend { .. } if there.is_overspent() => Verdict::Refused { code: Text::from(BUDGET_SPENT) },
            What::Spend { .. } | What::HandOn { .. } | What::TellParent | What::CancelChild => Verdict::Done,
        }
    }

    /// The message id under which it has one effect there.
    pub fn message_id(&self, from: &SessionId) -> String {
        format!("handover:errand:{from}:{}", self.id)
    }
}
