//! The running engine on real stores, from the command to the log and to everybody who follows it.
//!
//! - [`stage`]: an engine to play on, and short words for what the cast does
//! - [`faulty`]: a store that counts, fails and waits on demand
//! - the plays, each about one promise

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../../../store/tests/postgres/mod.rs"]
mod database;
#[allow(dead_code, reason = "the desk's tests need more of it")]
mod faulty;
#[macro_use]
mod stage;

mod archive;
mod budgets;
mod errands;
mod faults;
mod here;
mod inbox;
mod index;
mod life;
mod limits;
mod memory;
mod nodes;
mod retention;
mod stop;
mod subscriptions;
mod timers;
