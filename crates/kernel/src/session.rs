//! One log, one lifecycle, one requester, declared participants.
//!
//! [`step`] is the one way in: it first does what is due, then decides the command and applies what was decided.

mod apply;
mod decide;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::approval::Proposal;
use crate::budget::Under;
use crate::charter::{Authority, Charter};
use crate::command::{Command, Contract, ModeKind};
use crate::commitment::{Commitment, Versions};
use crate::errand::Errand;
use crate::event::{Event, ExpiryCause, Fact};
use crate::handoff::Handoff;
use crate::id::{AgentId, Author, Face, Millis, Ordinal, Seq, SessionId, Text, Timestamp};
use crate::limits::Limits;
use crate::orders::Order;
use crate::rare::Rare;
use crate::refusal::Refusal;
use crate::seen::Seen;
use crate::session::decide::accept;
use crate::task::{NO_ASSIGNEE, Phase, Task};

pub use crate::session::apply::apply;
pub(crate) use crate::session::decide::{Decision, Draft};

/// A start's timestamp that is older than this says nothing about when the session's time began.
pub const START_AGE_MAX_MS: Millis = 60_000;

/// What one command did to one session.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The events that were accepted: first what was due, then what the command led to.
    pub events: Vec<Event>,
    /// What to tell the sender. A refused command leaves no trace but what it proposes; what was due happens all the same.
    pub answer: Result<Receipt, Refusal>,
}

/// What the sender of an accepted command is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The event of the command, or the last event if the command had nothing to change.
    pub seq: Seq,
    /// When it was accepted.
    pub at: Timestamp,
    /// Whether the command had been accepted before.
    pub duplicate: bool,
    /// Whether it changed anything now: what was done before, or had nothing to do, did not.
    pub changed: bool,
    /// The orders that this answer hands over.
    pub orders: Vec<Order>,
}

/// Put `command` to the session in `slot`, whose id is `id`, at the time `now`.
pub fn step(
    slot: &mut Option<Session>,
    id: &SessionId,
    command: &Command,
    limits: &Limits,
    now: Timestamp,
) -> Step {
    let mut events = Vec::new();
    if let Some(session) = slot.as_mut() {
        session.do_what_is_due(now, &mut events);
    }
    let decision = match slot.as_ref() {
        Some(session) => session.decide(command, limits, now),
        None => Session::decide_start(command, limits, now),
    };
    let answer = match decision {
        Ok(Decision::New(drafts)) => Ok(accept(slot, id, command, drafts, now, &mut events)),
        Ok(Decision::Duplicate { seq, at }) => {
            Ok(Receipt { seq, at, duplicate: true, changed: false, orders: Vec::new() })
        }
        Ok(Decision::Put(draft, refusal)) => {
            accept(slot, id, command, vec![*draft], now, &mut events);
            Err(refusal)
        }
        Err(refusal) => Err(refusal),
    };
    Step { events, answer }
}

/// The session that these events tell of, none if there are none. A log that no session can have written is refused
/// with what was expected and what was found.
pub fn replay<'a>(
    id: &SessionId,
    events: impl IntoIterator<Item = &'a Event>,
) -> Result<Option<Session>, Unreadable> {
    replay_after(None, id, events)
}

/// The same, from a session that was kept as it was before these events.
pub fn replay_after<'a>(
    kept: Option<Session>,
    id: &SessionId,
    events: impl IntoIterator<Item = &'a Event>,
) -> Result<Option<Session>, Unreadable> {
    let mut slot = kept;
    for event in events {
        let (head, last_at) = match &slot {
            Some(session) => (session.head, session.last_at),
            None => (Seq(0), Timestamp(0)),
        };
        let starts = matches!((&event.fact, &event.author), (Fact::Started(_), Author::Agent(_)));
        let why = if event.seq != head.next() {
            Some("it is out of place")
        } else if starts && slot.is_some() {
            Some("the session starts twice")
        } else if !starts && slot.is_none() {
            Some("no agent has started the session")
        } else if event.at < last_at {
            Some("it is older than the one before it")
        } else {
            None
        };
        if let Some(why) = why {
            return Err(Unreadable { expected: head.next(), found: event.seq, why });
        }
        apply(&mut slot, id, event);
    }
    Ok(slot)
}

/// A log that no session can have written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The place that the next event should have had.
    pub expected: Seq,
    /// The place that it had.
    pub found: Seq,
    /// Why it cannot stand there.
    pub why: &'static str,
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "expected event {}, found event {}: {}", self.expected, self.found, self.why)
    }
}

impl std::error::Error for Unreadable {}

/// The layout of a serialised [`Session`]: raised whenever it changes, so that a snapshot of another layout is thrown away
/// and the session read from its log instead.
pub const SNAPSHOT_LAYOUT: u32 = 10;

/// One session. It can be serialised and read back, as a snapshot that saves replaying its log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// What was bound when it started.
    pub binding: Arc<Binding>,
    /// Where it stands.
    pub lifecycle: Lifecycle,
    /// When its time is up, while it is open.
    pub deadline: Option<Timestamp>,
    /// When it ended, if it has.
    pub ended_at: Option<Timestamp>,
    /// How long it was suspended so far, a suspension that lasts not counted.
    pub suspended_ms: Millis,
    /// Its last event.
    pub head: Seq,
    /// How much its events weigh.
    pub log_bytes: u64,
    /// Its last MACP envelope.
    pub ordinal: Ordinal,
    /// When its last event was accepted.
    pub last_at: Timestamp,
    /// How many messages of its mode each agent sent, and when the last.
    pub activity: Activities,
    /// What it owes to other sessions.
    pub errands: Vec<Errand>,
    /// What was proposed last, if it has not taken effect.
    pub proposal: Option<Box<Proposal>>,
    /// Since when its task or handoff is where it is, and waits for whom it waits for if it waits: neither a suspension nor a
    /// question more begins that anew.
    pub stands_since: Timestamp,
    /// What it is about.
    pub mode: Mode,
    seen: Seen,
}

/// What was bound when a session started and never changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Binding {
    /// Its id, the same on every face.
    pub id: SessionId,
    /// Who started it.
    pub requester: AgentId,
    /// Through which wire.
    pub face: Face,
    /// Who may take part.
    pub participants: Box<[AgentId]>,
    /// Who may do what.
    pub charter: Charter,
    /// The versions that a commitment must name.
    pub versions: Versions,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// From when its time counts.
    pub base: Timestamp,
    /// What it is for, in a sentence.
    pub intent: Text,
    /// A reference to a context that is kept elsewhere.
    pub context_id: Text,
    /// The names of its extension blocks.
    pub extension_keys: Rare<Vec<Text>>,
    /// The task that this one is part of.
    pub parent: Option<SessionId>,
    /// What the work takes and gives.
    pub contract: Option<Arc<Contract>>,
    /// The budgets that it stands under.
    pub under: Option<Arc<Under>>,
}

/// Where a session stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names of most fields say all")]
pub enum Lifecycle {
    /// It takes everything.
    Open,
    /// It takes little, and its time stands still.
    Suspended {
        since: Timestamp,
        /// The time that is left.
        banked_ms: Option<Millis>,
        reason: Text,
        /// Whether the assignee holds it, and nobody else asked for it.
        held: bool,
    },
    /// A commitment settled it.
    Resolved { commitment: Box<Commitment> },
    /// Its time was up.
    Expired { cause: ExpiryCause },
    /// It was ended without an outcome.
    Cancelled { by: Author, reason: Text },
}

/// What a session is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Mode {
    /// Bounded work for another agent.
    Task(Box<Task>),
    /// Transfer of a responsibility.
    Handoff(Box<Handoff>),
}

/// How much each agent said: a short list in the order of the agents, because most sessions have two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activities(Vec<(AgentId, Activity)>);

impl Activities {
    /// Of one agent; none if it said nothing.
    pub fn get(&self, agent: &AgentId) -> Option<&Activity> {
        self.place(agent).ok().map(|index| &self.0[index].1)
    }

    /// Of every agent that said something.
    pub fn iter(&self) -> impl Iterator<Item = (&AgentId, &Activity)> {
        self.0.iter().map(|(agent, activity)| (agent, activity))
    }

    fn place(&self, agent: &AgentId) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.cmp(agent))
    }

    fn note(&mut self, agent: &AgentId, at: Timestamp) {
        let index = self.place(agent).unwrap_or_else(|index| {
            self.0.reserve_exact(1);
            self.0.insert(index, (agent.clone(), Activity::default()));
            index
        });
        let activity = &mut self.0[index].1;
        activity.messages += 1;
        activity.last_at = at;
    }
}

/// How much an agent said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// How many messages of the mode.
    pub messages: u32,
    /// When the last.
    pub last_at: Timestamp,
}

/// Everything that a list or a card says about where a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Nothing was requested or offered yet.
    Pending,
    /// A task waits for somebody to accept it, or an offer for its answer.
    Requested,
    /// The assignee works.
    Working,
    /// The assignee waits for information.
    WaitingInput,
    /// The assignee waits for permission.
    WaitingAuthorization,
    /// The assignee waits for the requester's word.
    WaitingReply,
    /// The assignee reported success, or an offer was accepted: a commitment is to follow.
    ReportedComplete,
    /// The assignee reported failure, or an offer was declined.
    ReportedFail,
    /// Suspended.
    Suspended,
    /// Settled, with success.
    ResolvedPositive,
    /// Settled, without.
    ResolvedNegative,
    /// Its time was up.
    Expired,
    /// Ended without an outcome.
    Cancelled,
}

impl Standing {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Standing::Pending => "pending",
            Standing::Requested => "requested",
            Standing::Working => "working",
            Standing::WaitingInput => "waiting_input",
            Standing::WaitingAuthorization => "waiting_authorization",
            Standing::WaitingReply => "waiting_reply",
            Standing::ReportedComplete => "reported_complete",
            Standing::ReportedFail => "reported_fail",
            Standing::Suspended => "suspended",
            Standing::ResolvedPositive => "resolved_positive",
            Standing::ResolvedNegative => "resolved_negative",
            Standing::Expired => "expired",
            Standing::Cancelled => "cancelled",
        }
    }
}

impl Lifecycle {
    /// The word for it.
    pub fn name(&self) -> &'static str {
        match self {
            Lifecycle::Open => "open",
            Lifecycle::Suspended { .. } => "suspended",
            Lifecycle::Resolved { .. } => "resolved",
            Lifecycle::Expired { .. } => "expired",
            Lifecycle::Cancelled { .. } => "cancelled",
        }
    }

    /// Whether it is final.
    pub fn is_terminal(&self) -> bool {
        match self {
            Lifecycle::Open | Lifecycle::Suspended { .. } => false,
            Lifecycle::Resolved { .. } | Lifecycle::Expired { .. } | Lifecycle::Cancelled { .. } => true,
        }
    }
}

impl Session {
    /// What waits for the assignee and may be handed over now; nothing while the session is suspended.
    pub fn orders(&self) -> impl Iterator<Item = &Order> {
        let task = match (&self.mode, &self.lifecycle) {
            (Mode::Task(task), Lifecycle::Open) => Some(task),
            (Mode::Task(_), _) | (Mode::Handoff(_), _) => None,
        };
        task.into_iter().flat_map(|task| task.orders.deliverable())
    }

    /// The task, if it is about one.
    pub fn task(&self) -> Option<&Task> {
        match &self.mode {
            Mode::Task(task) => Some(task),
            Mode::Handoff(_) => None,
        }
    }

    /// The handoff, if it is about one.
    pub fn handoff(&self) -> Option<&Handoff> {
        match &self.mode {
            Mode::Handoff(handoff) => Some(handoff),
            Mode::Task(_) => None,
        }
    }

    /// What it is about.
    pub fn kind(&self) -> ModeKind {
        match &self.mode {
            Mode::Task(_) => ModeKind::Task,
            Mode::Handoff(_) => ModeKind::Handoff,
        }
    }

    /// Where it stands, in one word.
    pub fn standing(&self) -> Standing {
        match &self.lifecycle {
            Lifecycle::Open => match &self.mode {
                Mode::Task(task) => task.standing(),
                Mode::Handoff(handoff) => handoff.standing(),
            },
            Lifecycle::Suspended { .. } => Standing::Suspended,
            Lifecycle::Resolved { commitment } if commitment.positive => Standing::ResolvedPositive,
            Lifecycle::Resolved { .. } => Standing::ResolvedNegative,
            Lifecycle::Expired { .. } => Standing::Expired,
            Lifecycle::Cancelled { .. } => Standing::Cancelled,
        }
    }

    /// Where its task or handoff is, as far as that says for whom it waits: all that it can ask of its requester is one, and a
    /// request that nobody is left to take is another than one that somebody can.
    fn place(&self) -> (Standing, bool) {
        match &self.mode {
            Mode::Task(task) if matches!(task.phase, Phase::Waiting { .. }) => {
                (Standing::WaitingReply, false)
            }
            Mode::Task(task) => (task.standing(), task.is_untaken(&self.binding)),
            Mode::Handoff(handoff) => (handoff.standing(), false),
        }
    }

    /// Whether it ended because nobody was left who could take it.
    pub fn was_untaken(&self) -> bool {
        matches!(&self.lifecycle,
            Lifecycle::Cancelled { by: Author::Runtime, reason } if **reason == *NO_ASSIGNEE)
    }

    /// Whether the agent has a part in the session.
    pub fn involves(&self, agent: &AgentId) -> bool {
        let approvals = self.binding.charter.approvals.as_ref();
        if *agent == self.binding.requester
            || approvals.is_some_and(|approvals| approvals.all().any(|named| named == agent))
        {
            return true;
        }
        if self.is_held_back() {
            return false;
        }
        let designated = match &self.binding.charter.authority {
            Authority::Designated(agents) => agents.contains(agent),
            Authority::Requester | Authority::AnyParticipant => false,
        };
        designated || self.binding.participants.contains(agent)
    }

    /// When the session next needs a tick: at that time, and not before, something is due.
    pub fn wake_at(&self) -> Option<Timestamp> {
        let owed = (!self.errands.is_empty()).then_some(self.last_at);
        let due = self.next_due().map(|(at, _)| at);
        owed.into_iter().chain(due).min()
    }

    /// When its time is up if nothing else happens: at its deadline, or, while it is suspended, when it has been for too
    /// long.
    pub fn ends_by(&self) -> Option<Timestamp> {
        match &self.lifecycle {
            Lifecycle::Suspended { since, .. } => Some(self.suspension_ends(*since).0),
            Lifecycle::Open
            | Lifecycle::Resolved { .. }
            | Lifecycle::Expired { .. }
            | Lifecycle::Cancelled { .. } => self.deadline,
        }
    }

    /// When a suspension ends the session, and why: the time of a budget does not stand still.
    fn suspension_ends(&self, since: Timestamp) -> (Timestamp, ExpiryCause) {
        let left = self.binding.charter.suspension_cap_ms.saturating_sub(self.suspended_ms);
        let cap = (since.plus(left), ExpiryCause::SuspensionCap);
        let until = self.binding.until().map(|until| (until, ExpiryCause::Deadline));
        until.into_iter().chain([cap]).min_by_key(|(at, _)| *at).unwrap_or(cap)
    }

    /// The next thing that happens by itself. A deadline is passed when it is later than it.
    fn next_due(&self) -> Option<(Timestamp, Vec<Draft>)> {
        let expiry = |at: Timestamp, cause| (at, vec![Draft::runtime(Fact::Expired { cause }).at(at)]);
        match &self.lifecycle {
            Lifecycle::Open => {
                let deadline = self.deadline.map(|at| expiry(at.plus(1), ExpiryCause::Deadline));
                let mode = match &self.mode {
                    Mode::Task(task) => task.next_due(self),
                    Mode::Handoff(handoff) => {
                        handoff.next_due(&self.binding.charter).map(|(at, draft)| (at, vec![draft]))
                    }
                };
                // The deadline stands first: at the same moment it wins.
                deadline.into_iter().chain(mode).min_by_key(|(at, _)| *at)
            }
            Lifecycle::Suspended { since, .. } => {
                let (at, cause) = self.suspension_ends(*since);
                Some(expiry(at.plus(1), cause))
            }
            Lifecycle::Resolved { .. } | Lifecycle::Expired { .. } | Lifecycle::Cancelled { .. } => None,
        }
    }
}
