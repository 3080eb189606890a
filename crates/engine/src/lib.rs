//! The engine: commands in, durable events out.
//!
//! In reading order:
//! - [`key`]: a session's key as the engine's maps hold it
//! - [`names`]: names that many sessions share
//! - [`log`]: what is read of a session, with its [`snapshot`]
//! - [`answer`]: what whoever asked is told
//! - [`shard`]: the only writer of its sessions, a plain state machine
//! - [`commit`]: one commit for the batches of all shards
//! - [`errands`]: what spans two sessions
//! - [`timers`]: when to wake which session
//! - [`quota`]: how many sessions each agent has open
//! - [`stored`]: how many bytes are stored of each agent's sessions
//! - [`hub`]: who hears of which events
//! - [`repeat`]: whether a message is the one that was accepted under its id
//! - [`tail`]: how far what other nodes did is known
//! - [`node`]: how these play together
//! - [`shell`]: the threads that carry out what these ask for
//! - [`subscription`]: what is stored joined to what is live
//! - [`inbox`]: what waits for an agent
//! - [`index`]: the index, made again from the logs
//! - [`archive`]: what a store has, on its way to another one
//! - [`codec`]: the bytes of an event in a log
//! - [`view`]: what a list or a card shows of a session
//! - [`counters`]: what is counted for the operator
//! - [`clock`], [`locks`], [`seldom`]: what the threads share
//!
//! Always: what is answered or published is durable. Never: a rule about tasks, an identity, a protocol.

pub mod answer;
pub mod archive;
pub mod clock;
pub mod codec;
pub mod commit;
pub mod counters;
pub mod errands;
pub mod hub;
pub mod inbox;
pub mod index;
pub mod key;
pub mod locks;
pub mod log;
pub mod names;
pub mod node;
pub mod quota;
pub mod repeat;
pub mod seldom;
pub mod shard;
pub mod shell;
pub mod snapshot;
pub mod stored;
pub mod subscription;
pub mod tail;
pub mod timers;
pub mod view;

pub use answer::{Accepted, Answer, Denied};
pub use counters::Counters;
pub use hub::{Delivery, Topic};
pub use key::Key;
pub use node::Elsewhere;
pub use shard::Published;
pub use shell::{Engine, OnHeard, OnPublished, Settings};
pub use subscription::{Ended, Subscription};
