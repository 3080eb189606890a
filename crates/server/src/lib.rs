//! The server library.
//!
//! In reading order:
//! - [`config`]: what the server is told, and by whom
//! - [`telemetry`]: what it tells its operator
//! - [`http`]: health, readiness, metrics, and the bounds of every request
//! - [`codec`]: the bytes of an event in a log
//! - [`shutdown`]: how its parts learn that it is to stop

pub mod codec;
pub mod config;
pub mod http;
pub mod shutdown;
pub mod telemetry;
