//! The MCP face over a real connection: every row of the list has a test whose name begins with it.
//!
//! - [`stage`]: a server to play on
//! - [`client`]: who asks, in any revision, rightly or wrongly
//! - [`pipes`]: who asks over two pipes
//! - [`worker`]: who does the work, through the same tools as anybody
//! - [`issuer`]: somebody who signs tokens
//! - [`rows`]: no row without a test
//! - the plays, by what they are about

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod client;
#[path = "../jwt/issuer.rs"]
mod issuer;
mod pipes;
mod rows;
mod stage;
mod worker;

mod bridge;
mod creation;
mod discover;
mod envelope;
mod headers;
mod meta;
mod rounds;
mod stdio;
