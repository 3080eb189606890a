//! The Grid face over real connections.
//!
//! - [`others`]: the stages, clients and workers of the other faces' tests
//! - [`client`]: an agent of the Grid: requests, and the stream of its notifications
//! - [`property`]: random steps of both parties, with a small model beside the server
//! - [`across`]: one task, two protocols
//! - [`budgets`]: what a tree of tasks may use
//! - [`silence`]: workers that show no sign of life
//! - [`rules`]: what hostile and careless callers try
//! - [`openrpc`]: what the methods are, for machines

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod client;
mod others;

mod across;
mod budgets;
mod openrpc;
mod property;
mod rules;
mod silence;
