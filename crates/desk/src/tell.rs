//! Telling what is not kept: signals never touch a session, and one that relates to a session reaches those who may see it.

use std::sync::Arc;

use handover_kernel::{AgentId, Blob};
use tokio::sync::broadcast;

use crate::Desk;
use crate::access::To;
use crate::caller::Caller;
use crate::follow::Over;
use crate::no::No;
use crate::signals::Signal;

/// What one agent may hear.
pub struct Listening {
    desk: Desk,
    caller: Caller,
    heard: broadcast::Receiver<Arc<Signal>>,
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
        let (tenant, about) = (caller.tenant.clone(), about.map(Box::from));
        // Nobody listening is no error: a signal is not kept.
        let sender = caller.agent.clone();
        _ = self.signals.0.send(Arc::new(Signal { tenant, sender, about, proven: caller.proven, body }));
        Ok(())
    }

    /// Listen: what is told after this is heard.
    pub fn listen(&self, caller: &Caller) -> Listening {
        Listening { desk: self.clone(), caller: caller.clone(), heard: self.signals.0.subscribe() }
    }
}

impl Listening {
    /// Whether the agent may know of the other one.
    fn hears(&self, sender: &AgentId) -> bool {
        let (access, who) = (self.desk.directory.access(), &self.caller);
        access.allows(&who.tenant, who.agent.as_str(), To::See, sender.as_str())
    }

    /// The next signal that the agent may hear. Waits for it.
    pub async fn next(&mut self) -> Result<Arc<Signal>, Over> {
        loop {
            let signal = match self.heard.recv().await {
                Ok(signal) => signal,
                Err(broadcast::error::RecvError::Lagged(_)) => return Err(Over::Lagging),
                Err(broadcast::error::RecvError::Closed) => return Err(Over::Stopping),
            };
            if signal.tenant != self.caller.tenant {
                continue;
            }
            let hears = match &signal.about {
                Some(session) => self.desk.sees(&self.caller, session).await,
                None => self.hears(&signal.sender),
            };
            if hears {
                return Ok(signal);
            }
        }
    }
}
