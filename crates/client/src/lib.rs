//! What talks to a server, and the words that both ends share.
//!
//! In reading order:
//! - [`fetch`]: HTTP requests to other servers
//! - [`jsonrpc`]: JSON-RPC 2.0, in and out
//! - [`mcp`]: what both ends of MCP must call the same
//! - [`pipe`]: one message a line over two pipes, and the requests that are under way between them
//! - [`bridge`]: two pipes to a server of MCP that runs elsewhere
//! - [`caller`]: a server as a program uses it
//!
//! Always: a request ends with an answer or with an error that says whether it may have had an effect. Never: the kernel,
//! the store, the engine, the desk or the server; a redirect that is followed; a token that is shown.

pub mod bridge;
pub mod caller;
pub mod fetch;
pub mod jsonrpc;
pub mod mcp;
pub mod pipe;
