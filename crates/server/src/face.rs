//! The faces: each turns its wire into commands of an authenticated agent, and views and events into its wire. A face
//! holds no task state and no rules.
//!
//! - [`macp`]: MACP over gRPC
//! - [`mcp`]: MCP over HTTP and stdio
//! - [`grid`]: task conversations over JSON-RPC, with a stream of notifications
//! - [`console`]: HTML for people
//! - `approval`, `budget`, `no`, `silence`, `skill`: what the faces that speak JSON have in common

mod approval;
mod budget;
pub mod console;
pub mod grid;
pub mod macp;
pub mod mcp;
mod no;
mod silence;
mod skill;
