//! The eight states of a Grid task, and where a task is among them.

use handover_desk::status_number;
use handover_kernel::Session;
use handover_kernel::command::Need;
use handover_kernel::event::Fact;
use handover_kernel::session::{Lifecycle, Standing};
use handover_kernel::task::{Phase, REJECTED, Report};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It was sent, and nobody has taken it.
    Submitted,
    /// The receiver works on it.
    Working,
    /// The receiver wants information, or has delivered and waits for the sender.
    InputRequired,
    /// The receiver wants permission.
    AuthRequired,
    /// The sender has accepted what was delivered.
    Completed,
    /// The receiver turned it down.
    Rejected,
    /// It went wrong.
    Failed,
    /// Somebody gave it up.
    Canceled,
}

impl State {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            State::Submitted => "submitted",
            State::Working => "working",
            State::InputRequired => "input_required",
            State::AuthRequired => "auth_required",
            State::Completed => "completed",
            State::Rejected => "rejected",
            State::Failed => "failed",
            State::Canceled => "canceled",
        }
    }

    /// The standings that it can be in, one bit for each. A suspended task keeps the state that it had.
    pub fn standings(self) -> u64 {
        let standings: &[Standing] = match self {
            State::Submitted => &[Standing::Pending, Standing::Requested, Standing::Suspended],
            State::Working => &[Standing::Working, Standing::Suspended],
            State::InputRequired => &[
                Standing::WaitingInput,
                Standing::WaitingReply,
                Standing::ReportedComplete,
                Standing::Suspended,
            ],
            State::AuthRequired => &[Standing::WaitingAuthorization, Standing::Suspended],
            State::Completed => &[Standing::ResolvedPositive],
            State::Rejected => &[Standing::ResolvedNegative, Standing::Cancelled],
            State::Failed => &[Standing::ResolvedNegative, Standing::Expired, Standing::ReportedFail],
            State::Canceled => &[Standing::Cancelled],
        };
        standings.iter().fold(0, |bits, standing| bits | 1 << status_number(*standing))
    }
}

/// Where a task is.
pub fn of(session: &Session) -> State {
    let Some(task) = session.task() else { return State::Submitted };
    match &session.lifecycle {
        Lifecycle::Open | Lifecycle::Suspended { .. } => match task.standing() {
            Standing::Working => State::Working,
            Standing::WaitingAuthorization => State::AuthRequired,
            Standing::WaitingInput | Standing::WaitingReply | Standing::ReportedComplete => {
                State::InputRequired
            }
            Standing::ReportedFail => State::Failed,
            Standing::Pending
            | Standing::Requested
            | Standing::Suspended
            | Standing::ResolvedPositive
            | Standing::ResolvedNegative
            | Standing::Expired
            | Standing::Cancelled => State::Submitted,
        },
        Lifecycle::Resolved { commitment } if commitment.positive => State::Completed,
        Lifecycle::Resolved { .. } => match &task.phase {
            Phase::Reported { report: Report::Fail(failure), .. } if *failure.code == *REJECTED => {
                State::Rejected
            }
            Phase::Requested { .. } if !task.declined.is_empty() => State::Rejected,
            Phase::Pending
            | Phase::Requested { .. }
            | Phase::Working { .. }
            | Phase::Waiting { .. }
            | Phase::Reported { .. } => State::Failed,
        },
        Lifecycle::Expired { .. } => State::Failed,
        Lifecycle::Cancelled { .. } if session.was_untaken() || session.was_not_approved() => State::Rejected,
        Lifecycle::Cancelled { .. } => State::Canceled,
    }
}

/// The state that an event leads to, if it is one that does. What ends a task leads to the state that it is in.
pub fn after(fact: &Fact, session: &Session) -> Option<State> {
    match fact {
        Fact::Requested(_) => Some(State::Submitted),
        Fact::Accepted { .. } => Some(State::Working),
        Fact::Asked { questions, .. } => {
            let permission = questions.iter().any(|question| question.need == Need::Authorization);
            Some(if permission { State::AuthRequired } else { State::InputRequired })
        }
        Fact::Said { awaits_reply: true, .. } => Some(State::InputRequired),
        Fact::Said { works: true, .. } => Some(State::Working),
        Fact::Declined { .. } if session.lifecycle.is_terminal() => Some(of(session)),
        Fact::Cancelled { .. } | Fact::Expired { .. } | Fact::Committed(_) | Fact::Failed(_) => {
            Some(of(session))
        }
        Fact::Completed { .. } => Some(State::InputRequired),
        Fact::Started(_)
        | Fact::Suspended { .. }
        | Fact::Resumed { .. }
        | Fact::ErrandSettled { .. }
        | Fact::Declined { .. }
        | Fact::Updated { .. }
        | Fact::Checkpointed
        | Fact::Delivered { .. }
        | Fact::Answered { .. }
        | Fact::Steered { .. }
        | Fact::PauseRequested { .. }
        | Fact::Said { .. }
        | Fact::Read { .. }
        | Fact::Acknowledged
        | Fact::CheckInMissed { .. }
        | Fact::FellSilent { .. }
        | Fact::CycleFound { .. }
        | Fact::Proposed { .. }
        | Fact::Decided { .. }
        | Fact::KeySet { .. }
        | Fact::Reserved { .. }
        | Fact::Used { .. }
        | Fact::Spent { .. }
        | Fact::Overspent { .. }
        | Fact::ChildAdded { .. }
        | Fact::Offered { .. }
        | Fact::ContextAdded { .. }
        | Fact::OfferAccepted { .. }
        | Fact::OfferDeclined { .. } => None,
    }
}
