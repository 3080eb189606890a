//! A no of the desk, as the faces that speak JSON-RPC say it.

use std::ops::Deref;

use handover_client::jsonrpc::{Error, INVALID_PARAMS};
use handover_desk::Denied;
use handover_desk::follow::Over;
use handover_kernel::Refusal;
use serde_json::json;

/// A refusal that the kernel words with a session, worded with a task. What callers said in it stays as they said it.
fn about_a_task(refusal: Option<&Refusal>) -> Option<String> {
    Some(match refusal {
        Some(Refusal::SessionExists) => "a task with this id exists already".to_owned(),
        Some(Refusal::SessionSuspended) => "the task is paused: resume it first".to_owned(),
        Some(Refusal::SessionEnded { state }) => format!("the task has ended: it is {state}"),
        Some(Refusal::NotParticipant { agent }) => format!("{agent} has no part in this task or handoff"),
        Some(Refusal::NotAuthority { agent }) => {
            format!("{agent} may not decide about the result of this task")
        }
        Some(Refusal::WrongMode { expected }) => {
            format!("this is a {expected}: what was asked is not about one")
        }
        Some(Refusal::AlreadyRequested) => "the task has its one request already".to_owned(),
        Some(Refusal::NotPaused) => "the task is not paused".to_owned(),
        Some(Refusal::AlreadyPaused) => "the task is paused already".to_owned(),
        Some(Refusal::NotRuntime) => "only the server may do this".to_owned(),
        Some(Refusal::ReservedId { prefix }) => {
            format!("message ids that begin with {prefix} are reserved for the server")
        }
        Some(Refusal::TargetDeclined { agent }) => format!("{agent} has declined an offer of this handoff"),
        Some(Refusal::TooManyOffers { limit }) => {
            format!("the handoff has seen {limit} offers and takes no more")
        }
        Some(Refusal::TooManySessions { limit }) => {
            format!("the agent has {limit} open tasks and may start no more")
        }
        Some(Refusal::LogFull { limit, unit }) => format!(
            "the task's log is full: it holds at most {limit} {unit}; the task can still be cancelled, reported or committed"
        ),
        Some(_) | None => return None,
    })
}

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
        match self.is_unknown() {
            true => "there is no such task".to_owned(),
            false => about_a_task(self.refusal()).unwrap_or_else(|| self.message()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_speaks_of_tasks_and_leaves_what_callers_said() {
        let said = |refusal: Refusal| No(refusal.into()).said();
        assert_eq!(said(Refusal::SessionSuspended), "the task is paused: resume it first");
        let theirs = "found the title \"my suspended session\"";
        assert_eq!(said(Refusal::invalid(theirs)), theirs);
        for refusal in [
            Refusal::SessionExists,
            Refusal::NotPaused,
            Refusal::AlreadyPaused,
            Refusal::AlreadyRequested,
            Refusal::WrongMode { expected: "task" },
            Refusal::TooManySessions { limit: 1 },
            Refusal::LogFull { limit: 1, unit: "events" },
            Refusal::TooManyOffers { limit: 1 },
            Refusal::NotParticipant { agent: "worker".into() },
            Refusal::NotAuthority { agent: "worker".into() },
        ] {
            let said = said(refusal);
            for ours in ["session", "runtime", "outcome"] {
                assert!(!said.contains(ours), "{said}");
            }
        }
    }
}
