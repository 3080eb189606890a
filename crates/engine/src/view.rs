//! What a list or a card shows of a session: a pure function of the session, so that it can be thrown away and made
//! again from the log.

mod waits;

use handover_kernel::id::Author;
use handover_kernel::session::{Binding, Lifecycle, Standing};
use handover_kernel::{AgentId, Session, Text, Timestamp};
use handover_store::{IndexRow, Waits};
use prost::Message;

use crate::codec::face_number;

pub use self::waits::{WaitKind, since, waits};

/// The listed facts of a session. Its index row is written again when, and only when, one of these changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    standing: Standing,
    assignee: Option<AgentId>,
    deadline: Option<Timestamp>,
    title: Option<Text>,
    /// Why it waits for anybody, in the place of the list of those for whom it waits.
    causes: waits::Causes,
    stands_since: Timestamp,
    /// Where the session starts, so that the first row is always written.
    exists: bool,
}

impl Listed {
    /// Of a session that does not exist yet.
    pub fn nothing() -> Listed {
        Listed {
            standing: Standing::Pending,
            assignee: None,
            deadline: None,
            title: None,
            causes: waits::Causes::default(),
            stands_since: Timestamp(0),
            exists: false,
        }
    }

    /// Of a session as it is.
    pub fn of(session: &Session) -> Listed {
        Listed {
            standing: session.standing(),
            assignee: assignee(session).cloned(),
            deadline: session.deadline,
            title: title(session).cloned(),
            causes: waits::Causes::of(session),
            stands_since: session.stands_since,
            exists: true,
        }
    }
}

/// What a list shows beside what it can be found by.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Summary {
    /// The title of a task, or the scope of the last offer.
    #[prost(string, tag = "1")]
    pub title: String,
    /// Who has the task, or was offered the responsibility.
    #[prost(string, optional, tag = "2")]
    pub assignee: Option<String>,
    /// When its time is up, in milliseconds of the Unix epoch.
    #[prost(uint64, optional, tag = "3")]
    pub deadline: Option<u64>,
    /// The task that it is part of.
    #[prost(string, optional, tag = "4")]
    pub parent: Option<String>,
    /// What the session was started for.
    #[prost(string, tag = "5")]
    pub intent: String,
    /// Why it was cancelled.
    #[prost(string, optional, tag = "6")]
    pub cancelled: Option<String>,
    /// By whom; absent if the runtime did.
    #[prost(string, optional, tag = "7")]
    pub cancelled_by: Option<String>,
    /// While its opening is not approved, those who know of it beside the requester.
    #[prost(string, repeated, tag = "8")]
    pub held_back_for: Vec<String>,
    /// The wire that it began on ([`crate::codec::face_number`]). Absent in rows of earlier releases: the session says it.
    #[prost(uint32, optional, tag = "9")]
    pub face: Option<u32>,
    /// Since when it stands as it does, in milliseconds of the Unix epoch. Absent in rows of earlier releases.
    #[prost(uint64, optional, tag = "10")]
    pub stands_since: Option<u64>,
    /// The waits that began at another time.
    #[prost(message, repeated, tag = "11")]
    pub waits: Vec<Began>,
}

/// Since when a session waits for some reasons.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Began {
    /// Bits of [`WaitKind`].
    #[prost(uint32, tag = "1")]
    pub kinds: u32,
    /// In milliseconds of the Unix epoch.
    #[prost(uint64, tag = "2")]
    pub at: u64,
}

impl Summary {
    /// Since when the session has waited for the first of these reasons (bits of [`WaitKind`]).
    pub fn waits_since(&self, kinds: u32) -> Option<Timestamp> {
        let began = |bit: u32| {
            let known = self.waits.iter().find(|began| began.kinds & bit != 0);
            known.map(|began| began.at).or(self.stands_since)
        };
        WaitKind::of(kinds).filter_map(|kind| began(kind.bit())).min().map(Timestamp)
    }

    /// Whether an agent on whose lists the session is may know of it.
    pub fn is_shown_to(&self, requester: &str, agent: &str) -> bool {
        let known = || self.held_back_for.iter().any(|known| known == agent);
        self.held_back_for.is_empty() || requester == agent || known()
    }
}

/// The number of a standing in the index. Stored: never change one, add a new one.
pub fn status_number(standing: Standing) -> u8 {
    match standing {
        Standing::Pending => 1,
        Standing::Requested => 2,
        Standing::Working => 3,
        Standing::WaitingInput => 4,
        Standing::WaitingAuthorization => 5,
        Standing::WaitingReply => 6,
        Standing::ReportedComplete => 7,
        Standing::ReportedFail => 8,
        Standing::Suspended => 9,
        Standing::ResolvedPositive => 10,
        Standing::ResolvedNegative => 11,
        Standing::Expired => 12,
        Standing::Cancelled => 13,
    }
}

/// Whether nothing more happens to a session that stands so.
pub fn is_over(standing: Standing) -> bool {
    match standing {
        Standing::Pending
        | Standing::Requested
        | Standing::Working
        | Standing::WaitingInput
        | Standing::WaitingAuthorization
        | Standing::WaitingReply
        | Standing::ReportedComplete
        | Standing::ReportedFail
        | Standing::Suspended => false,
        Standing::ResolvedPositive | Standing::ResolvedNegative | Standing::Expired | Standing::Cancelled => {
            true
        }
    }
}

/// The standing that a number in the index means.
pub fn standing_of(number: u8) -> Option<Standing> {
    const ALL: [Standing; 13] = [
        Standing::Pending,
        Standing::Requested,
        Standing::Working,
        Standing::WaitingInput,
        Standing::WaitingAuthorization,
        Standing::WaitingReply,
        Standing::ReportedComplete,
        Standing::ReportedFail,
        Standing::Suspended,
        Standing::ResolvedPositive,
        Standing::ResolvedNegative,
        Standing::Expired,
        Standing::Cancelled,
    ];
    ALL.into_iter().find(|standing| status_number(*standing) == number)
}

/// The number of a kind of session in the index. Stored: never change one, add a new one.
pub fn kind_number(kind: handover_kernel::command::ModeKind) -> u8 {
    match kind {
        handover_kernel::command::ModeKind::Task => 1,
        handover_kernel::command::ModeKind::Handoff => 2,
    }
}

/// The index row of a session.
pub fn row(session: &Session) -> IndexRow {
    let (binding, waits) = (&session.binding, waits(session));
    let (cancelled, cancelled_by) = match &session.lifecycle {
        Lifecycle::Cancelled { by, reason } => {
            let by = match by {
                Author::Agent(agent) => Some(agent.to_string()),
                Author::Runtime => None,
            };
            (Some(reason.to_string()), by)
        }
        Lifecycle::Open
        | Lifecycle::Suspended { .. }
        | Lifecycle::Resolved { .. }
        | Lifecycle::Expired { .. } => (None, None),
    };
    let summary = Summary {
        title: title(session).map_or_else(String::new, ToString::to_string),
        assignee: assignee(session).map(ToString::to_string),
        deadline: session.deadline.map(|at| at.0),
        parent: binding.parent.as_ref().map(ToString::to_string),
        intent: binding.intent.to_string(),
        cancelled,
        cancelled_by,
        held_back_for: match (&binding.charter.approvals, session.is_held_back()) {
            (Some(approvals), true) => approvals.all().map(ToString::to_string).collect(),
            (Some(_) | None, _) => Vec::new(),
        },
        face: Some(face_number(binding.face)),
        stands_since: Some(session.stands_since.0),
        waits: began(session, &waits),
    };
    IndexRow {
        kind: kind_number(session.kind()),
        status: status_number(session.standing()),
        requester: binding.requester.as_str().into(),
        agents: agents(binding),
        created_at: binding.created_at.0,
        finished_at: session.ended_at.map(|at| at.0),
        summary: summary.encode_to_vec(),
        waits,
    }
}

/// When the waits began that did not begin when the session came to stand as it does.
fn began(session: &Session, waits: &[Waits]) -> Vec<Began> {
    let kinds = waits.iter().fold(0, |kinds, waits| kinds | waits.kinds);
    let all = WaitKind::of(kinds).map(|kind| (kind, since(session, kind)));
    let others = all.filter(|(_, since)| *since != session.stands_since);
    others.map(|(kind, since)| Began { kinds: kind.bit(), at: since.0 }).collect()
}

/// The agents whose lists may show the session: the requester, the participants, and those who may bind its outcome or
/// decide about it.
pub fn agents(binding: &Binding) -> Vec<Box<str>> {
    use handover_kernel::charter::Authority;
    let mut agents: Vec<Box<str>> = vec![binding.requester.as_str().into()];
    let designated = match &binding.charter.authority {
        Authority::Designated(designated) => Some(designated),
        Authority::Requester | Authority::AnyParticipant => None,
    };
    let others = binding.participants.iter().chain(designated.into_iter().flatten());
    let approvers = binding.charter.approvals.iter().flat_map(|approvals| approvals.all());
    for agent in others.chain(approvers) {
        if agents.iter().all(|known| **known != *agent.as_str()) {
            agents.push(agent.as_str().into());
        }
    }
    agents
}

fn assignee(session: &Session) -> Option<&AgentId> {
    match (session.task(), session.handoff()) {
        (Some(task), _) => task.phase.assignee(),
        (None, Some(handoff)) => handoff.offers.last().map(|offer| &offer.target),
        (None, None) => None,
    }
}

fn title(session: &Session) -> Option<&Text> {
    match (session.task(), session.handoff()) {
        (Some(_), _) => session.wanted().map(|request| &request.title),
        (None, Some(handoff)) => handoff.offers.last().map(|offer| &offer.scope),
        (None, None) => None,
    }
}
