//! The MCP face over a real connection: every row of the list has a test whose name begins with it.
//!
//! - [`stage`]: a server to play on
//! - [`client`]: who asks, in any revision, rightly or wrongly
//! - [`pipes`]: who asks over two pipes
//! - [`worker`]: who does the work, through the same tools as anybody
//! - [`issuer`]: somebody who signs tokens
//! - [`rows`]: no row without a test
//! - [`both`]: a server with both faces
//! - [`scene`]: short words for the plays about tasks; [`acts`] and [`macp`] are those of other faces
//! - the plays, by what they are about

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../../../kernel/tests/stage/acts.rs"]
#[allow(dead_code, reason = "no play needs all of it")]
mod acts;
mod both;
mod client;
#[path = "../jwt/issuer.rs"]
mod issuer;
#[path = "../macp/stage.rs"]
#[allow(dead_code, reason = "no play needs all of it")]
mod macp;
mod pipes;
mod rows;
mod scene;
mod stage;
mod worker;

mod across;
mod authority;
mod bad_input;
mod bounds;
mod bridge;
mod contracts;
mod core;
mod costs;
mod creation;
mod declared;
mod discover;
mod envelope;
mod handoffs;
mod handshake;
mod headers;
mod histories;
mod hosts;
mod interaction;
mod listen;
mod lists;
mod memory;
mod meta;
mod models;
mod pausing;
mod registrations;
mod retold;
mod rounds;
mod shown;
mod states;
mod stdio;
mod tasks;
mod traces;
mod unseen;
mod waiting;
