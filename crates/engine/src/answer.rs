//! What whoever put a command or a question to a session is told.

use std::sync::Arc;

use handover_kernel::session::Standing;
use handover_kernel::{Receipt, Refusal, Session};
use handover_store::Fault;

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
    /// The session as it is then, so that nobody reads again what it just wrote.
    pub session: Arc<Session>,
}

impl Accepted {
    /// Where the session stands now.
    pub fn standing(&self) -> Standing {
        self.session.standing()
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
