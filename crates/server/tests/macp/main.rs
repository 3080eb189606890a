//! The MACP face over a real connection: what it refuses, what it streams, what it tells whom.
//!
//! - [`stage`]: a server to play on, its clients, and short words for what the cast sends
//! - [`issuer`]: somebody who signs tokens
//! - the plays, each about one promise

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../jwt/issuer.rs"]
mod issuer;
mod stage;

mod agents;
mod audit;
mod bad_input;
mod discovery;
mod ids;
mod issued;
mod limits;
mod lists;
mod memory;
mod orders;
mod policies;
mod retention;
mod revoked;
mod signals;
mod streams;
mod tenants;
mod visibility;
mod watches;
