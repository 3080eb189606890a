//! Telling what is not kept: signals never touch a session, and one that relates to a session reaches those who may see it.

use std::sync::Arc;

use handover_kernel::{AgentId, Blob};

use crate::Desk;
use crate::access::To;
use crate::caller::Caller;
use crate::follow::Over;
use crate::no::No;
use crate::others;
use crate::reading::blocking;
use crate::signals::{Heard, Lagging, Signal};

/// What one agent may hear.
pub struct Listening {
    desk: Desk,
    caller: Caller,
    heard: Heard,
    /// Heard, and not yet known whether the agent may hear it: whoever stops waiting for the next one must not lose it.
    unjudged: Option<Arc<Signal>>,
}

impl Desk {
    /// Tell everybody who may hear it. What relates to a session, the caller must see itself.
    /// `bytes` is what counts against the limit of a payload.
    pub async fn signal(
        &self,
        caller: &Caller,
        about: Option<&str>,
        bytes: usize,
        body: Blob,
    ) -> Result<(), No> {
        self.gate.fits(caller, bytes)?;
        if let Some(session) = about {
            self.session(caller, session).await?;
        }
        let (sender, about) = (caller.agent.clone(), about.map(Box::from));
        let signal = Signal { sender, about, proven: caller.proven, body };
        if self.engine.slot().is_some() {
            let (desk, tenant, told) = (self.clone(), caller.tenant.clone(), signal.clone());
            blocking(move || others::tell_signal(&desk, &tenant, &told)).await?;
        }
        self.signals.tell(&caller.tenant, signal);
        Ok(())
    }

    /// Listen: what is told after this is heard.
    pub fn listen(&self, caller: &Caller) -> Listening {
        let (desk, heard) = (self.clone(), self.signals.listen(&caller.tenant));
        Listening { desk, caller: caller.clone(), heard, unjudged: None }
    }
}

impl Listening {
    /// Whether the agent may know of the other one.
    fn hears(&self, sender: &AgentId) -> bool {
        let (access, who) = (self.desk.directory.access(), &self.caller);
        access.allows(&who.tenant, who.agent.as_str(), To::See, sender.as_str())
    }

    /// The next signal that the agent may hear. Waits for it; whoever gives up waiting misses nothing.
    pub async fn next(&mut self) -> Result<Arc<Signal>, Over> {
        loop {
            let signal = match self.unjudged.clone() {
                Some(signal) => signal,
                None => self.heard.next().await.map_err(|Lagging| Over::Lagging)?,
            };
            self.unjudged = Some(Arc::clone(&signal));
            let hears = match &signal.about {
                Some(session) => self.desk.sees(&self.caller, session).await,
                None => self.hears(&signal.sender),
            };
            self.unjudged = None;
            if hears {
                return Ok(signal);
            }
        }
    }
}
