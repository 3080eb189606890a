//! What a command ends with: the same numbers everywhere, so that a script knows what happened.

use crate::Failure;

/// How a command can end, beside success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The task failed, was cancelled or ran out of time; or something else failed.
    Failed = 1,
    /// The server said no, or all who were asked did.
    Refused = 3,
    /// There is no such task, agent or handoff.
    NotFound = 4,
    /// The server wants a token, or another one.
    SignIn = 5,
    /// The task has not ended: it waits for somebody, is paused, or takes longer than was waited for.
    Open = 6,
    /// There is no server, or it went away.
    NoServer = 7,
}

impl Exit {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Exit::Failed => "failed",
            Exit::Refused => "refused",
            Exit::NotFound => "not_found",
            Exit::SignIn => "sign_in",
            Exit::Open => "open",
            Exit::NoServer => "no_server",
        }
    }

    /// A failure of this kind: what happened, and what helps.
    pub fn told(self, what: impl Into<String>, help: impl Into<String>) -> Failure {
        Failure::Told { exit: self, what: what.into(), help: help.into() }
    }

    /// The end of a task as what a command ends with; none is success.
    pub fn of_state(state: &str) -> Option<Exit> {
        match state {
            "completed" => None,
            "rejected" => Some(Exit::Refused),
            "failed" | "cancelled" | "expired" => Some(Exit::Failed),
            _ => Some(Exit::Open),
        }
    }
}

/// For the help of every command that uses a server.
pub const HELP: &str = "\
Exit codes: 0 done, 1 failed, 2 usage, 3 refused, 4 not found, 5 sign-in needed, 6 still open, 7 no server.";
