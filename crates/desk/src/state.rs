//! Where a task is in one word: the words that people read, on the command line and elsewhere, whatever a protocol calls it.

use std::ops::RangeInclusive;

use handover_engine::view::{WaitKind, since, status_number, waits};
use handover_kernel::session::{Lifecycle, Standing};
use handover_kernel::task::{Phase, REJECTED, Report};
use handover_kernel::{AgentId, Session, Timestamp};

use crate::Desk;
use crate::caller::Caller;
use crate::no::No;

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It waits for somebody to accept it.
    Requested,
    /// Somebody works on it.
    Working,
    /// It waits for an answer, a message, a review or an approval.
    Waiting,
    /// It is suspended.
    Paused,
    /// Somebody should work on it, and shows no sign of life.
    Silent,
    /// It was done.
    Completed,
    /// It could not be done.
    Failed,
    /// It was turned down or not approved, or its result was not taken.
    Rejected,
    /// It was taken back.
    Cancelled,
    /// Its time was up.
    Expired,
}

impl State {
    /// Every state.
    pub const ALL: [State; 10] = [
        State::Requested,
        State::Working,
        State::Waiting,
        State::Paused,
        State::Silent,
        State::Completed,
        State::Failed,
        State::Rejected,
        State::Cancelled,
        State::Expired,
    ];

    /// The word.
    pub fn name(self) -> &'static str {
        match self {
            State::Requested => "requested",
            State::Working => "working",
            State::Waiting => "waiting",
            State::Paused => "paused",
            State::Silent => "silent",
            State::Completed => "completed",
            State::Failed => "failed",
            State::Rejected => "rejected",
            State::Cancelled => "cancelled",
            State::Expired => "expired",
        }
    }

    /// The state of that name.
    pub fn named(name: &str) -> Option<State> {
        State::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Where a session is.
    pub fn of(session: &Session) -> State {
        let task = session.task();
        // What waits for an approval, or was sent back, waits.
        if session.proposal.is_some() && session.lifecycle == Lifecycle::Open {
            return State::Waiting;
        }
        match session.standing() {
            Standing::Pending | Standing::Requested => State::Requested,
            Standing::Working if task.is_some_and(|task| task.signs.silent_since.is_some()) => State::Silent,
            Standing::Working => State::Working,
            Standing::WaitingInput
            | Standing::WaitingAuthorization
            | Standing::WaitingReply
            | Standing::ReportedComplete
            | Standing::ReportedFail => State::Waiting,
            Standing::Suspended => State::Paused,
            Standing::ResolvedPositive => State::Completed,
            Standing::ResolvedNegative => {
                let turned_down = task.is_some_and(|task| match &task.phase {
                    Phase::Reported { report: Report::Complete { .. }, .. } => true,
                    Phase::Reported { report: Report::Fail(failure), .. } => *failure.code == *REJECTED,
                    Phase::Requested { .. } => !task.declined.is_empty(),
                    Phase::Pending | Phase::Working { .. } | Phase::Waiting { .. } => false,
                });
                if turned_down { State::Rejected } else { State::Failed }
            }
            Standing::Expired => State::Expired,
            Standing::Cancelled if session.was_untaken() || session.was_not_approved() => State::Rejected,
            Standing::Cancelled => State::Cancelled,
        }
    }

    /// The standings in which a session of this state can be, as a list is asked for them.
    pub fn standings(self) -> u64 {
        let found: &[Standing] = match self {
            State::Requested => &[Standing::Pending, Standing::Requested],
            State::Working | State::Silent => &[Standing::Working],
            State::Waiting => &[
                Standing::Pending,
                Standing::WaitingInput,
                Standing::WaitingAuthorization,
                Standing::WaitingReply,
                Standing::ReportedComplete,
                Standing::ReportedFail,
            ],
            State::Paused => &[Standing::Suspended],
            State::Completed => &[Standing::ResolvedPositive],
            State::Failed => &[Standing::ResolvedNegative],
            State::Rejected => &[Standing::ResolvedNegative, Standing::Cancelled],
            State::Cancelled => &[Standing::Cancelled],
            State::Expired => &[Standing::Expired],
        };
        found.iter().map(|standing| 1 << status_number(*standing)).sum()
    }
}

impl Desk {
    /// The state of a session that the caller may see after each event from one to another, as the kernel replays its log.
    pub async fn states(
        &self,
        caller: &Caller,
        id: &str,
        seqs: RangeInclusive<u64>,
    ) -> Result<Vec<State>, No> {
        let session = self.session(caller, id).await?;
        let mut states = Vec::new();
        let look = |then: &Session| {
            if seqs.contains(&then.head.0) {
                states.push(State::of(then));
            }
        };
        self.replayed(caller, &session, *seqs.end(), look).await?;
        Ok(states)
    }
}

/// What a session waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// In a word: `approval`, `answer`, `reply`, `review` or `accept`.
    pub what: &'static str,
    /// The agents that can do it.
    pub agents: Vec<AgentId>,
    /// When it began to wait for that.
    pub since: Timestamp,
}

/// What a session waits for; none while somebody works, or after its end.
pub fn waits_for(session: &Session) -> Option<Wait> {
    const KINDS: [(WaitKind, &str); 5] = [
        (WaitKind::Approval, "approval"),
        (WaitKind::Question, "answer"),
        (WaitKind::Reply, "reply"),
        (WaitKind::Review, "review"),
        (WaitKind::TaskOffer, "accept"),
    ];
    let all = waits(session);
    KINDS.into_iter().find_map(|(kind, what)| {
        let agents = all.iter().filter(|waits| waits.kinds & kind.bit() != 0);
        let agents: Vec<AgentId> = agents.map(|waits| AgentId::from(&*waits.agent)).collect();
        (!agents.is_empty()).then(|| Wait { what, agents, since: since(session, kind) })
    })
}
