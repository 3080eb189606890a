//! A type for every id, number and time.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Bytes that are carried and never looked into.
pub type Blob = Arc<[u8]>;

/// Text that is carried; cheap to clone.
pub type Text = Arc<str>;

/// A span of time.
pub type Millis = u64;

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                $name(Arc::from(text))
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                $name(Arc::from(text))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    };
}

text_id!(
    /// An authenticated principal, such as `planner` or `agent://planner`.
    AgentId
);
text_id!(
    /// One session. It is the task's id on every face.
    SessionId
);
text_id!(
    /// What a sender calls one of its messages; the same id twice has one effect.
    MessageId
);
text_id!(
    /// The name of a question, unique for the life of its task.
    QuestionKey
);
text_id!(
    /// The name of one offer in a handoff session.
    HandoffId
);

/// The place of an event in its session's log; the first is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Seq(pub u64);

impl Seq {
    /// The place after this one.
    pub fn next(self) -> Seq {
        Seq(self.0 + 1)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The place of an event among those that are MACP envelopes of the session's mode; the start is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ordinal(pub u64);

/// Milliseconds of the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// This much later, or the end of time.
    pub fn plus(self, span: Millis) -> Timestamp {
        Timestamp(self.0.saturating_add(span))
    }

    /// How long after `earlier` this is, zero if it is not.
    pub fn since(self, earlier: Timestamp) -> Millis {
        self.0.saturating_sub(earlier.0)
    }
}

/// Whose an event or a command is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Author {
    /// An agent's.
    Agent(AgentId),
    /// The runtime's own: timers, settlements, what spans two sessions.
    Runtime,
}

impl Author {
    /// The agent, if it is one.
    pub fn agent(&self) -> Option<&AgentId> {
        match self {
            Author::Agent(agent) => Some(agent),
            Author::Runtime => None,
        }
    }
}

/// Where a message id means one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IdScope {
    /// In the whole session, whoever sends it.
    Session,
    /// Among the messages of one agent on one wire.
    Sender,
    /// Among what the runtime writes, which no sender can reach.
    Runtime,
}

/// The wire that a command came through: a label, of which the kernel only asks whether it is the runtime's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Face {
    /// The Multi-Agent Coordination Protocol.
    Macp,
    /// The Model Context Protocol.
    Mcp,
    /// Grid-style task conversations.
    Grid,
    /// The console in the browser.
    Console,
    /// The command line.
    Cli,
    /// No wire: the runtime itself.
    Runtime,
}
