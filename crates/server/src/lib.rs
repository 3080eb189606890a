//! The server library.
//!
//! In reading order:
//! - [`config`]: what the server is told, and by whom
//! - [`telemetry`]: what it tells its operator
//! - [`issuer`]: the keys of whoever issues JSON Web Tokens
//! - [`tokens`]: the file of static tokens
//! - [`webhook`]: who is told elsewhere that something waits
//! - [`traces`]: what happens, for OpenTelemetry
//! - [`face`]: the faces, each a protocol
//! - [`house`]: the one place where a server is wired together
//! - `queue`: what waits for the network, counted in bytes
//! - [`http`]: health, readiness, metrics, and the bounds of every request
//! - [`tls`]: the certificate that is shown, and connections
//! - [`files`]: how many connections fit into the limit of open files
//! - [`exposure`]: whether the listeners may be where they are put

pub mod config;
pub mod exposure;
pub mod face;
pub mod files;
pub mod house;
pub mod http;
pub mod issuer;
mod queue;
pub mod telemetry;
pub mod tls;
pub mod tokens;
pub mod traces;
pub mod webhook;
