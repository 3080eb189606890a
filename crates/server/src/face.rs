//! The faces: each turns its wire into commands of an authenticated agent, and views and events into its wire. A face
//! holds no task state and no rules.
//!
//! - [`macp`]: MACP over gRPC
//! - [`mcp`]: MCP over HTTP and stdio

pub mod macp;
pub mod mcp;
