//! What callers may use, and how they are told that they asked for more.

use std::fmt;

use handover_kernel::Refusal;

/// How a request is worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// At once.
    Fast,
    /// In turns with others who have used more than half of what may come at once.
    Slow,
}

/// What is limited by a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A session start.
    Start,
    /// Everything else that an agent submits.
    Message,
    /// A request, whatever it is: reads and waits too.
    Request,
}

impl Kind {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Kind::Start => "session starts",
            Kind::Message => "messages",
            Kind::Request => "requests",
        }
    }
}

/// Something was limited: its name in metrics and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(&'static str);

impl Limit {
    /// Every limit.
    pub const ALL: [Limit; 19] = [
        Limit("session_starts"),
        Limit("messages"),
        Limit("requests"),
        Limit("streams"),
        Limit("memory"),
        Limit("storage"),
        Limit("checks"),
        Limit("check_steps"),
        Limit("payload_bytes"),
        Limit("sessions_open"),
        Limit("participants"),
        Limit("steers"),
        Limit("questions"),
        Limit("messages_per_task"),
        Limit("children"),
        Limit("offers"),
        Limit("proposals"),
        Limit("log"),
        Limit("queue"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        self.0
    }

    /// The limit that a refusal speaks of, if it does.
    pub fn of(refusal: &Refusal) -> Option<Limit> {
        Some(Limit(match refusal.code() {
            "PAYLOAD_TOO_LARGE" => "payload_bytes",
            "TOO_MANY_SESSIONS" => "sessions_open",
            "TOO_MANY_PARTICIPANTS" => "participants",
            "TOO_MANY_STEERS" => "steers",
            "TOO_MANY_QUESTIONS" => "questions",
            "TOO_MANY_MESSAGES" => "messages_per_task",
            "TOO_MANY_CHILDREN" => "children",
            "TOO_MANY_OFFERS" => "offers",
            "TOO_MANY_PROPOSALS" => "proposals",
            "LOG_FULL" => "log",
            "BUSY" => "queue",
            _ => return None,
        }))
    }
}

/// An agent asked for more than it may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limited {
    /// Too much in too little time.
    Rate {
        /// Of what.
        kind: Kind,
        /// How many it may submit in a minute.
        per_minute: u64,
        /// When the next will be let through.
        retry_after_ms: u64,
    },
    /// The store does not say whether it was too much.
    Unknown {
        /// Of what.
        kind: Kind,
        /// When to try again.
        retry_after_ms: u64,
    },
    /// Too many streams at once.
    Streams {
        /// How many it may have open.
        max: u64,
    },
    /// Too much in memory.
    Memory {
        /// Whose budget is spent.
        whose: Whose,
        /// How many bytes it is.
        max: u64,
    },
    /// Too much on disk.
    Storage {
        /// Whose budget is spent: that of the agent that started the session, or of its tenant.
        whose: Whose,
        /// How many bytes it is.
        max: u64,
    },
    /// The threads for long checks are all taken, and the queue is full or the wait was too long.
    Checks {
        /// When to try again.
        retry_after_ms: u64,
    },
    /// A check that would take too long.
    CheckSteps {
        /// What is checked, what was expected and what was found.
        what: String,
    },
}

/// Whose a budget is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// That of one agent.
    Agent,
    /// That of all agents of a tenant.
    Tenant,
    /// That of everybody.
    Server,
}

impl Whose {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Whose::Agent => "this agent",
            Whose::Tenant => "the agents of this tenant",
            Whose::Server => "all agents",
        }
    }
}

/// When whoever found a budget spent may try again: what is held in memory comes and goes quickly.
const MEMORY_RETRY_MS: u64 = 500;

impl Limited {
    /// Which limit it is.
    pub fn limit(&self) -> Limit {
        Limit(match self {
            Limited::Rate { kind, .. } | Limited::Unknown { kind, .. } => match kind {
                Kind::Start => "session_starts",
                Kind::Message => "messages",
                Kind::Request => "requests",
            },
            Limited::Streams { .. } => "streams",
            Limited::Memory { .. } => "memory",
            Limited::Storage { .. } => "storage",
            Limited::Checks { .. } => "checks",
            Limited::CheckSteps { .. } => "check_steps",
        })
    }

    /// When to try again, where time helps.
    pub fn retry_after_ms(&self) -> Option<u64> {
        match self {
            Limited::Rate { retry_after_ms, .. }
            | Limited::Unknown { retry_after_ms, .. }
            | Limited::Checks { retry_after_ms } => Some(*retry_after_ms),
            Limited::Memory { .. } => Some(MEMORY_RETRY_MS),
            Limited::Streams { .. } | Limited::Storage { .. } | Limited::CheckSteps { .. } => None,
        }
    }
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limited::Rate { kind, per_minute, retry_after_ms } => {
                let what = kind.words();
                write!(
                    f,
                    "expected at most {per_minute} {what} a minute, found more: try again in {retry_after_ms} ms"
                )
            }
            Limited::Unknown { kind, retry_after_ms } => {
                let what = kind.words();
                write!(
                    f,
                    "expected the database to say whether there may be more {what}, found no answer: try again in \
                     {retry_after_ms} ms"
                )
            }
            Limited::Streams { max } => {
                write!(f, "expected at most {max} open streams, found one more: end one and try again")
            }
            Limited::Storage { whose, max } => {
                let whose = match whose {
                    Whose::Agent => "the tasks and handoffs that the same agent started",
                    Whose::Tenant | Whose::Server => "the tasks and handoffs of this tenant",
                };
                write!(f, "expected at most {max} bytes stored of {whose}, found more")
            }
            Limited::Memory { whose, max } => {
                let whose = whose.name();
                write!(
                    f,
                    "expected at most {max} bytes in memory for {whose}, found more: read the answers and \
                     streams that are open, and try again"
                )
            }
            Limited::Checks { retry_after_ms } => {
                write!(
                    f,
                    "expected a thread free to check the value, found none: try again in {retry_after_ms} ms"
                )
            }
            Limited::CheckSteps { what } => f.write_str(what),
        }
    }
}

impl std::error::Error for Limited {}
