//! What a shard says to the outside: events that are durable, and answers.

use std::sync::Arc;

use handover_kernel::session::{Binding, Standing};
use handover_kernel::{Event, Fact, Receipt, Refusal, Seq, Session};
use handover_store::{Fault, Position};

use crate::key::Key;

/// Durable events of one session.
#[derive(Clone, Debug)]
pub struct Published {
    /// Which session.
    pub key: Key,
    /// What was bound when it started.
    pub binding: Arc<Binding>,
    /// The events, in order.
    pub events: Vec<Arc<Event>>,
    /// The position of the first of them among all events; the others follow.
    pub first: Position,
    /// The stamp of the first of them.
    pub stamp: u64,
    /// How many bytes they have as they are stored.
    pub bytes: u64,
    /// How the session has ended with them, if it has.
    pub ended: Option<End>,
}

impl Published {
    /// The position of the last of them.
    pub fn last(&self) -> Position {
        Position { number: self.first.number + (self.events.len() as u64).saturating_sub(1), ..self.first }
    }

    /// Whether the session has started with them.
    pub fn started(&self) -> bool {
        self.events.first().is_some_and(|event| event.seq == Seq(1))
    }
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its outcome was bound.
    Resolved,
    /// Its time was up.
    Expired,
    /// Somebody called it off.
    Cancelled,
}

impl End {
    /// Every way.
    pub const ALL: [End; 3] = [End::Resolved, End::Expired, End::Cancelled];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            End::Resolved => "resolved",
            End::Expired => "expired",
            End::Cancelled => "cancelled",
        }
    }

    /// Of the session whose last fact this is, if it is a last one.
    pub(crate) fn of(fact: &Fact) -> Option<End> {
        let resolved = matches!(fact, Fact::Committed(_)).then_some(End::Resolved);
        let expired = || matches!(fact, Fact::Expired { .. }).then_some(End::Expired);
        let cancelled = || matches!(fact, Fact::Cancelled { .. }).then_some(End::Cancelled);
        resolved.or_else(expired).or_else(cancelled)
    }
}

/// What somebody is told.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The command was accepted, now or before, and is durable.
    Accepted(Accepted),
    /// It was not.
    Denied(Denied),
    /// The session as it is, durably; none if there is none.
    State(Option<Arc<Session>>),
}

/// What the sender of an accepted command is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Accepted {
    /// What the kernel says.
    pub receipt: Receipt,
    /// Where the session stood after the command.
    pub standing: Standing,
    /// The session as it is when the answer is given, so that nobody reads again what it just wrote.
    pub session: Arc<Session>,
}

impl Accepted {
    /// Where the session stood after the command.
    pub fn standing(&self) -> Standing {
        self.standing
    }
}

/// Why a command was not accepted.
#[derive(Clone, Debug)]
pub enum Denied {
    /// The domain says no.
    Refused(Refusal),
    /// The world failed; the outcome may be unknown.
    Fault(Arc<Fault>),
    /// The log of the session cannot be read.
    Unreadable(Arc<str>),
    /// The engine takes no more commands.
    Stopping,
}

impl Denied {
    /// Whether what could not be read now may be read in a while.
    pub fn may_pass(&self) -> bool {
        matches!(self, Denied::Fault(fault) if fault.is_retryable())
    }
}
