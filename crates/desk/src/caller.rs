//! Who asks, through which face, from where, and as part of which trace.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

use handover_engine::codec::id_scope;
use handover_kernel::command::{Act, Command};
use handover_kernel::{Face, IdScope, Session, Trace};

use crate::identity::Principal;
use crate::memory::{BROUGHT_BYTES, Lease, REQUEST_BYTES, Room};

/// Who asks, through which face and from where.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Who. Shared, because a caller is handed on and cloned with every request.
    pub principal: Arc<Principal>,
    /// Through which wire.
    pub face: Face,
    /// From where, if it is known.
    pub peer: Option<SocketAddr>,
    /// The trace that its request is part of, if it said so.
    pub trace: Option<Box<Trace>>,
    /// What is held in memory for its request, once it was taken in.
    pub held: Option<Arc<Lease>>,
}

impl Caller {
    /// Who asks through this face, from a place that is not known.
    pub fn new(principal: Principal, face: Face) -> Caller {
        Caller { principal: Arc::new(principal), face, peer: None, trace: None, held: None }
    }

    /// The room in memory that it has, once its request was taken in.
    pub fn room(&self) -> Option<&Room> {
        self.held.as_deref().map(Lease::room)
    }

    /// Its request has turned out to bring so many bytes, which are held from now on. To be called before it is cloned.
    pub fn brings(&mut self, bytes: u64) {
        if let Some(held) = self.held.as_mut().and_then(Arc::get_mut) {
            held.settle(REQUEST_BYTES + bytes.saturating_sub(BROUGHT_BYTES));
        }
    }

    /// Its request was read, and nothing is kept of it. To be called before it is cloned.
    pub fn rests(&mut self) {
        if let Some(held) = self.held.as_mut().and_then(Arc::get_mut) {
            held.settle(0);
        }
    }

    /// The same, whose request is part of this trace.
    pub fn traced(mut self, trace: Option<Trace>) -> Caller {
        self.trace = trace.map(Box::new);
        self
    }

    /// A command of the caller, whose message ids count where those of its face do.
    pub fn command(&self, act: Act) -> Command {
        let command = Command::by(&self.principal.agent, self.face, act);
        let command = match id_scope(self.face) {
            IdScope::Session => command.in_session_scope(),
            IdScope::Sender | IdScope::Runtime => command,
        };
        Command { trace: self.trace.clone(), ..command }
    }
}

impl Deref for Caller {
    type Target = Principal;

    fn deref(&self) -> &Principal {
        &self.principal
    }
}

/// Whether an agent may see a session of its tenant.
pub fn sees(who: &Principal, session: &Session) -> bool {
    who.observer || session.involves(&who.agent)
}
