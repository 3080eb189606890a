//! The desk: what a face may do, typed and in the kernel's words. The one door to the engine.
//!
//! In reading order:
//! - [`mod@open`]: opening it, and everything beneath
//! - [`identity`]: whose request it is
//! - [`caller`]: who asks, through which face
//! - [`keys`]: keys that agents sign their requests with
//! - [`signins`]: signing in with a browser
//! - [`limit`], [`bucket`]: what callers may use, and how much of a rate is left
//! - [`memory`]: what is held in memory on behalf of callers
//! - [`gate`]: who asks, how often it may, and whether it may see what it asks for
//! - [`access`]: who may reach whom
//! - [`approvers`], [`approvals`]: what needs whose approval first, and what they decide
//! - [`visible`]: what can be seen of a name
//! - [`audit`]: who tried what, for whoever asks later
//! - [`act`]: what callers do
//! - [`names`]: ids and names that callers choose
//! - [`look`]: what callers see: sessions, lists, histories
//! - [`find`]: tasks among many
//! - [`inbox`]: what waits for an agent
//! - [`follow`]: what happens, for streams and for calls that wait
//! - [`wait`]: how long calls wait
//! - [`waiting`]: which agents wait for which others
//! - [`tell`], [`signals`]: what is told and not kept
//! - [`wishes`], [`wishing`]: what sessions of clients want to be told, and hearing of it
//! - [`announce`], `claim`: what newly waits, for whoever tells it elsewhere, and which of several nodes does
//! - `others`: what the desks of several nodes tell each other
//! - [`orders`]: what waits for an assignee
//! - [`answerable`]: whether what a worker asks is shown to somebody
//! - [`errands`]: what an act brings about in other sessions
//! - [`delegate`]: handing out work and responsibility, and settling it
//! - [`converse`]: a task as two agents talk about it
//! - [`contract`]: whether values fit what was agreed on
//! - [`checks`]: where long checks run
//! - [`agents`]: registrations, with the same rules on every face
//! - [`no`]: why a caller does not get what it asked for
//! - [`page`], [`payload`]: cursors, and what bytes are
//! - [`admin`]: what only administrators do
//! - [`policies`]: the policies that sessions can be bound to
//! - [`directory`]: the agents, their skills, and who is there
//! - [`schema`]: JSON Schemas of what skills take and questions ask for
//! - [`timeline`]: everything that happened in a session, in words
//! - [`traces`]: the same as spans
//! - [`state`]: where a task is, in one word
//! - [`codes`]: what each refusal is called on every wire
//! - [`id`]: ids that we mint
//! - [`portable`]: which records mean something in another store
//! - [`calendar`]: a moment in words
//! - [`private`]: what only its owner may read
//! - `census`: how many sessions are open, and for whom they wait
//! - [`counters`]: what is counted for the operator
//! - [`shutdown`]: how the parts learn that the server is to stop
//!
//! Always: a rule about callers (who, how much, what they may see, whether a value fits its contract) is here. Never: a
//! rule about tasks, a word of one protocol, HTTP or gRPC.

pub mod access;
pub mod act;
pub mod admin;
pub mod agents;
pub mod announce;
pub mod answerable;
pub mod approvals;
pub mod approvers;
pub mod audit;
pub mod bucket;
pub mod calendar;
pub mod caller;
mod census;
pub mod checks;
mod claim;
pub mod codes;
pub mod contract;
pub mod converse;
pub mod counters;
pub mod delegate;
pub mod directory;
pub mod errands;
pub mod find;
pub mod follow;
pub mod gate;
pub mod id;
pub mod identity;
pub mod inbox;
pub mod keys;
pub mod limit;
pub mod look;
pub mod memory;
pub mod names;
pub mod no;
pub mod open;
pub mod orders;
mod others;
pub mod page;
pub mod payload;
pub mod policies;
pub mod portable;
pub mod private;
mod reading;
pub mod schema;
pub mod shutdown;
pub mod signals;
pub mod signins;
pub mod state;
pub mod tell;
pub mod timeline;
pub mod traces;
pub mod visible;
pub mod wait;
pub mod waiting;
pub mod wishes;
pub mod wishing;

pub use handover_engine::clock;
pub use handover_engine::view::{WaitKind, status_number};
pub use handover_engine::{Accepted, Delivery, Denied};
pub use no::No;
pub use open::{Data, Desk, Settings, open};
