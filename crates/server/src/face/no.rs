//! A no of the desk, as the faces that speak JSON-RPC say it.

use std::ops::Deref;

use handover_client::jsonrpc::{Error, INVALID_PARAMS};
use handover_desk::Denied;
use handover_desk::follow::Over;
use handover_kernel::Refusal;
use serde_json::json;

/// A no of the desk.
#[derive(Clone, Debug)]
pub(crate) struct No(pub(crate) handover_desk::No);

impl Deref for No {
    type Target = handover_desk::No;

    fn deref(&self) -> &handover_desk::No {
        &self.0
    }
}

impl From<handover_desk::No> for No {
    fn from(no: handover_desk::No) -> No {
        No(no)
    }
}

impl From<Denied> for No {
    fn from(denied: Denied) -> No {
        No(denied.into())
    }
}

impl No {
    /// Of what could not be followed any longer.
    pub(crate) fn over(over: Over) -> No {
        No(over.no().unwrap_or(handover_desk::No::Denied(Denied::Stopping)))
    }

    /// The code that the caller is to hear.
    pub(crate) fn said_code(&self) -> &'static str {
        if self.is_unknown() { Refusal::SessionNotFound.code() } else { self.code() }
    }

    /// In a sentence, with the words that such protocols have for what the kernel calls a session.
    pub(crate) fn said(&self) -> String {
        match self.refusal() {
            _ if self.is_unknown() => "there is no such task".to_owned(),
            Some(_) => self.message().replace("session", "task").replace("suspended", "paused"),
            None => self.message(),
        }
    }

    /// As an error that says this.
    pub(crate) fn error(&self, said: String) -> Error {
        let code = if self.is_unknown() { INVALID_PARAMS } else { self.meaning().json_rpc };
        let error = Error::new(code, said).named(self.said_code());
        match &self.0 {
            handover_desk::No::Limited(limited) => {
                error.data(json!({ "retryAfterMs": limited.retry_after_ms() }))
            }
            handover_desk::No::Unauthenticated(_) => error.status(401),
            handover_desk::No::Denied(_)
            | handover_desk::No::Unfit(_)
            | handover_desk::No::NotAdministrator { .. }
            | handover_desk::No::NotAllowed { .. }
            | handover_desk::No::DoNotDisturb { .. }
            | handover_desk::No::NoSuchAgent { .. } => error,
        }
    }
}
