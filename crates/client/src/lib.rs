//! What talks to a server.
//!
//! In reading order:
//! - [`fetch`]: HTTP requests to other servers
//!
//! Always: a request ends, with an answer or with an error that says whether it may have had an effect. Never: the kernel,
//! the store, the engine, the desk or the server; a redirect that is followed; a token in a message.

pub mod fetch;
