//! The task mode: `Pending → Requested → Working ⇄ Waiting → Reported`, then a commitment.
//!
//! What it is and what can be asked of it; `decide` looks and never changes, `apply` changes and never refuses.

mod alive;
mod apply;
mod decide;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::budget::Ledger;
use crate::command::{Failure, Need, Progress, Request};
use crate::conversation::{Conversation, Party};
use crate::event::{Fact, Question};
use crate::id::{AgentId, Blob, Face, MessageId, QuestionKey, Seq, SessionId, Text, Timestamp};
use crate::orders::Orders;
use crate::rare::Rare;
use crate::refusal::Refusal;
use crate::session::{Binding, Draft, Session, Standing};

pub use crate::task::alive::{SILENT, Signs};
pub use crate::task::decide::{NO_ASSIGNEE, REJECTED};

/// Why a task failed whose receiver gave no sign.
pub const NO_ACK: &str = "no_ack";

/// One task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Where it is.
    pub phase: Phase,
    /// Who has left it, and how: none of them can take it any more.
    pub declined: Rare<BTreeMap<AgentId, Left>>,
    /// What waits for the assignee.
    pub orders: Orders,
    /// A pause that waits for a safe point, and why.
    pub pause: Option<Text>,
    /// What the parties said to each other.
    pub conversation: Conversation,
    /// Its subtasks, with the events that added them.
    pub children: Rare<Vec<(Seq, SessionId)>>,
    /// What of budgets is used.
    pub ledger: Rare<Ledger>,
    /// Whether its assignee is there.
    pub signs: Signs,
    /// The event with which it was taken last.
    pub taken: Option<Seq>,
    /// The agents that were found to wait for each other, its assignee among them, unless somebody has acted since.
    pub cycle: Rare<Vec<AgentId>>,
    /// Every key that a question ever had.
    keys_used: Rare<BTreeSet<QuestionKey>>,
}

/// How an agent has left a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Left {
    /// It turned it down.
    Declined,
    /// It gave it back.
    GaveBack,
    /// It was handed on to another agent.
    HandedOn,
    /// It was taken from it because it showed no sign of life.
    Freed,
}

impl Left {
    /// Whether the agent had accepted it before.
    pub fn had_it(self) -> bool {
        self != Left::Declined
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Left::Declined => "it was turned down",
            Left::GaveBack => "it was given back",
            Left::HandedOn => "it was handed on",
            Left::Freed => "it was freed for others after no sign of life",
        }
    }
}

/// Where a task is. Each state carries exactly the data that it has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names of most fields say all")]
pub enum Phase {
    /// Nothing was requested yet.
    #[default]
    Pending,
    /// It waits for somebody to accept it.
    Requested { request: Arc<Request> },
    /// The assignee works on it.
    Working { request: Arc<Request>, assignee: AgentId, progress: Option<Arc<Progress>> },
    /// The assignee waits for the requester.
    Waiting {
        request: Arc<Request>,
        assignee: AgentId,
        progress: Option<Arc<Progress>>,
        /// The open questions, the oldest first.
        questions: Vec<Question>,
        /// Whether the assignee waits for the requester's next message.
        awaits_reply: bool,
    },
    /// The assignee has said its last word.
    Reported {
        request: Arc<Request>,
        assignee: AgentId,
        report: Report,
        /// The wire that it said it on, and the bytes there.
        wire: (Face, Option<Blob>),
        /// What readers call the message with which it did.
        message: MessageId,
    },
}

/// The assignee's last word. It settles nothing by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names of most fields say all")]
pub enum Report {
    /// It is done.
    Complete {
        output: Blob,
        /// The result in a sentence.
        summary: Text,
    },
    /// It cannot be done.
    Fail(Failure),
}

impl Phase {
    /// The work, once it is requested.
    pub fn request(&self) -> Option<&Arc<Request>> {
        match self {
            Phase::Pending => None,
            Phase::Requested { request }
            | Phase::Working { request, .. }
            | Phase::Waiting { request, .. }
            | Phase::Reported { request, .. } => Some(request),
        }
    }

    /// Who does it, or did it.
    pub fn assignee(&self) -> Option<&AgentId> {
        match self {
            Phase::Pending | Phase::Requested { .. } => None,
            Phase::Working { assignee, .. }
            | Phase::Waiting { assignee, .. }
            | Phase::Reported { assignee, .. } => Some(assignee),
        }
    }

    /// How it goes, as the assignee last said.
    pub fn progress(&self) -> Option<&Arc<Progress>> {
        match self {
            Phase::Working { progress, .. } | Phase::Waiting { progress, .. } => progress.as_ref(),
            Phase::Pending | Phase::Requested { .. } | Phase::Reported { .. } => None,
        }
    }

    /// The open questions, the oldest first.
    pub fn questions(&self) -> &[Question] {
        match self {
            Phase::Waiting { questions, .. } => questions,
            Phase::Pending | Phase::Requested { .. } | Phase::Working { .. } | Phase::Reported { .. } => &[],
        }
    }

    /// The word for it.
    pub fn name(&self) -> &'static str {
        match self {
            Phase::Pending => "Pending",
            Phase::Requested { .. } => "Requested",
            Phase::Working { .. } => "Working",
            Phase::Waiting { .. } => "Waiting",
            Phase::Reported { .. } => "Reported",
        }
    }
}

impl Task {
    /// Whether the assignee is at work, and not at a safe point.
    pub fn is_busy(&self) -> bool {
        matches!(self.phase, Phase::Working { .. })
    }

    /// Where it stands, the session being open.
    pub fn standing(&self) -> Standing {
        match &self.phase {
            Phase::Pending => Standing::Pending,
            Phase::Requested { .. } => Standing::Requested,
            Phase::Working { .. } => Standing::Working,
            Phase::Waiting { questions, .. } => {
                if questions.iter().any(|question| question.need == Need::Authorization) {
                    Standing::WaitingAuthorization
                } else if questions.is_empty() {
                    Standing::WaitingReply
                } else {
                    Standing::WaitingInput
                }
            }
            Phase::Reported { report: Report::Complete { .. }, .. } => Standing::ReportedComplete,
            Phase::Reported { report: Report::Fail(_), .. } => Standing::ReportedFail,
        }
    }

    /// The key of the outcome, once there is a report: the task, its assignee and the report that was accepted
    /// (RFC-MACP-0009 §8), so that what follows from an outcome is done once. Its parts are joined by colons; colons and
    /// percent signs within a part are escaped as in a URL, so that no two outcomes have the same key.
    pub fn outcome_key(&self) -> Option<String> {
        let Phase::Reported { request, assignee, message, .. } = &self.phase else { return None };
        let parts = [&*request.task, assignee.as_str(), message.as_str()];
        Some(parts.map(|part| part.replace('%', "%25").replace(':', "%3A")).join(":"))
    }

    /// Whether the agent has the task, or may take it.
    pub fn is_receiver(&self, binding: &Binding, agent: &AgentId) -> bool {
        match self.phase.assignee() {
            Some(assignee) => assignee == agent,
            None => self.may_take(binding, agent).is_ok(),
        }
    }

    /// Which side of the conversation the agent is on.
    pub fn party(&self, binding: &Binding, agent: &AgentId) -> Option<Party> {
        if *agent == binding.requester {
            Some(Party::Requester)
        } else if self.is_receiver(binding, agent) {
            Some(Party::Receiver)
        } else {
            None
        }
    }

    /// Whether the agent may take the task, were it free (RFC-MACP-0009 §5 rules 2, 2a, 3c). That a named assignee has
    /// declined frees nobody else; that it gave back what it had accepted does, where the charter allows reassignment.
    pub fn may_take(&self, binding: &Binding, agent: &AgentId) -> Result<(), Refusal> {
        let request = self.phase.request().ok_or(Refusal::NotRequested)?;
        if !binding.participants.contains(agent) {
            return Err(Refusal::NotEligible { agent: agent.clone() });
        }
        self.is_free_for(binding, request, agent)
    }

    /// The same of one that is known to be a participant.
    fn is_free_for(&self, binding: &Binding, request: &Request, agent: &AgentId) -> Result<(), Refusal> {
        let not_eligible = || Refusal::NotEligible { agent: agent.clone() };
        // The requester takes its own task only if it named itself.
        if *agent == binding.requester && request.assignee.as_ref() != Some(agent) {
            return Err(not_eligible());
        }
        if self.declined.contains_key(agent) {
            return Err(Refusal::Declined { agent: agent.clone() });
        }
        match &request.assignee {
            Some(named) if named != agent && !self.declined.get(named).is_some_and(|left| left.had_it()) => {
                Err(not_eligible())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Everybody who may take the task, were it free: those for whom [`Task::may_take`] holds, without looking for each
    /// of them among all participants.
    pub fn takers<'a>(&'a self, binding: &'a Binding) -> impl Iterator<Item = &'a AgentId> {
        let request = self.phase.request();
        binding.participants.iter().filter(move |agent| {
            request.is_some_and(|request| self.is_free_for(binding, request, agent).is_ok())
        })
    }

    /// Whether it is requested and nobody is left who could take it.
    pub(crate) fn is_untaken(&self, binding: &Binding) -> bool {
        matches!(self.phase, Phase::Requested { .. }) && !self.anybody_left(binding)
    }

    fn anybody_left(&self, binding: &Binding) -> bool {
        self.takers(binding).next().is_some()
    }

    pub(crate) fn next_due(&self, session: &Session) -> Option<(Timestamp, Vec<Draft>)> {
        let check_in = self.check_in_due(&session.binding).map(|(at, draft)| (at, vec![draft]));
        check_in.into_iter().chain(self.silence_due(session)).min_by_key(|(at, _)| *at)
    }

    fn check_in_due(&self, binding: &Binding) -> Option<(Timestamp, Draft)> {
        if let Some(since) = self.conversation.given_up {
            let failed = Draft::for_agent(&binding.requester, binding.settlement(false, NO_ACK));
            return Some((since, failed.at(since)));
        }
        let window = self.conversation.check_in.as_deref()?;
        let (next, gives_up) = window.after_miss();
        let missed = Fact::CheckInMissed { message: window.message, next, gives_up };
        Some((window.due, Draft::runtime(missed).at(window.due)))
    }
}
