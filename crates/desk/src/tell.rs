//! Telling what is not kept: signals never touch a session, and one that relates to a session reaches those who may see it.

use std::sync::Arc;

use handover_kernel::Blob;
use tokio::sync::broadcast;

use crate::Desk;
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
        _ = self.signals.0.send(Arc::new(Signal { tenant, about, proven: caller.proven, body }));
        Ok(())
    }

    /// Listen: what is told after this is heard.
    pub fn listen(&self, caller: &Caller) -> Listening {
        Listening { desk: self.clone(), caller: caller.clone(), heard: self.signals.0.subscribe() }
    }
}

impl Listening {
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
            match &signal.about {
                Some(session) if !self.desk.sees(&self.caller, session).await => {}
                Some(_) | None => return Ok(signal),
            }
        }
    }
}
