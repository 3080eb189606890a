//! The server library.
//!
//! In reading order:
//! - [`config`]: what the server is told, and by whom
//! - [`telemetry`]: what it tells its operator
//! - [`engine`]: commands in, durable events out
//! - [`view`]: what a list or a card shows of a session
//! - [`http`]: health, readiness, metrics, and the bounds of every request
//! - [`codec`]: the bytes of an event in a log
//! - [`shutdown`]: how its parts learn that it is to stop

pub mod codec;
pub mod config;
pub mod engine;
pub mod http;
pub mod shutdown;
pub mod telemetry;
pub mod view;
