//! How long a call waits for what it asks for before it is answered with what there is. Clients give up after a while, most
//! without saying so, and some after five seconds: whoever waits longer than its client finds nobody to answer.

use std::time::Duration;

use crate::caller::Caller;

/// No call waits longer, whoever asks for it.
pub const WAIT_MAX: Duration = Duration::from_secs(3600);

/// How long calls wait unless a token or a request says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A call that hears nothing meanwhile.
    pub plain: Duration,
    /// A call that hears of progress: its client is one that expects to wait.
    pub with_progress: Duration,
    /// A call whose client has put a question to its user, which takes a person's time.
    pub for_answer: Duration,
}

impl Default for Settings {
    // The most impatient clients that are tested give up after 5 seconds, and after 10 where they hear of progress.
    fn default() -> Self {
        Settings {
            plain: Duration::from_secs(4),
            with_progress: Duration::from_secs(8),
            for_answer: Duration::from_secs(300),
        }
    }
}

impl Settings {
    /// How long a call of this caller waits: as it asks for, or as its token says, or as the server does.
    pub(crate) fn of(&self, caller: &Caller, asked: Option<Duration>, hears_progress: bool) -> Duration {
        let of_token = caller.allowance.wait_seconds.map(Duration::from_secs);
        let of_server = if hears_progress { self.plain.max(self.with_progress) } else { self.plain };
        asked.or(of_token).unwrap_or(of_server).min(WAIT_MAX)
    }
}
