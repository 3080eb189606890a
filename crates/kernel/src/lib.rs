//! Pure decisions about tasks and handoffs: no clock, no randomness, no I/O, no async.
//!
//! In reading order:
//! - [`id`]: a type for every id, number and time
//! - [`charter`]: the rules bound to a session when it starts
//! - [`policy`]: MACP policy descriptors, compiled into charters
//! - [`command`]: what someone asks for, and in which [`trace`]
//! - [`event`]: what was accepted
//! - [`refusal`]: why the kernel said no
//! - [`limits`]: how much of everything
//! - [`session`]: one log, one lifecycle, and [`session::step`], the one way in
//! - [`task`]: the task mode, with its [`orders`] and its [`conversation`]
//! - [`handoff`]: the handoff mode
//! - [`approval`]: what needs somebody's approval before it takes effect
//! - [`budget`]: bounds that a task shares with everything under it
//! - [`commitment`]: what every commitment must satisfy
//! - [`errand`]: what a session owes to another one
//! - [`repeat`]: whether a message is one that was accepted before
//! - [`rehearsal`]: what would have happened under another charter
//!
//! Always: `decide` looks and never changes, `apply` changes and never refuses. Never: a protocol's word.

pub mod approval;
pub mod budget;
pub mod charter;
pub mod command;
pub mod commitment;
pub mod conversation;
pub mod errand;
pub mod event;
pub mod handoff;
pub mod id;
pub mod limits;
pub mod orders;
pub mod policy;
pub mod rare;
pub mod refusal;
pub mod rehearsal;
pub mod repeat;
mod seen;
pub mod session;
pub mod task;
pub mod trace;
mod weight;

pub use charter::Charter;
pub use command::{Act, Command};
pub use event::{Event, Fact};
pub use id::{
    AgentId, Author, Blob, Face, HandoffId, IdScope, MessageId, Millis, Ordinal, QuestionKey, Seq, SessionId,
    Text, Timestamp,
};
pub use limits::Limits;
pub use refusal::{Refusal, cut};
pub use session::{Receipt, SNAPSHOT_LAYOUT, Session, Step, replay, step};
pub use trace::Trace;
