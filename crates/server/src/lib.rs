//! The server library.
//!
//! In reading order:
//! - [`config`]: what the server is told, and by whom
//! - [`telemetry`]: what it tells its operator
//! - [`engine`]: commands in, durable events out
//! - [`view`]: what a list or a card shows of a session
//! - [`timeline`]: everything that happened in a session, in words
//! - [`identity`]: whose request it is
//! - [`fetch`]: requests of ours to other servers
//! - [`gate`]: what every face asks before the engine: who, how often, and whether it may see it
//! - [`audit`]: who tried what, for whoever asks later
//! - [`policies`]: the policies that sessions can be bound to
//! - [`directory`]: the agents, their skills, and who is there
//! - [`schema`]: JSON Schemas of what skills take and questions ask for
//! - [`codes`]: what each refusal is called on every wire
//! - [`face`]: the faces, each a protocol
//! - [`http`]: health, readiness, metrics, and the bounds of every request
//! - [`tls`]: the certificate that is shown, and connections
//! - [`exposure`]: whether the listeners may be where they are put
//! - [`codec`]: the bytes of an event in a log
//! - [`shutdown`]: how its parts learn that it is to stop

pub mod audit;
pub mod calendar;
pub mod codec;
pub mod codes;
pub mod config;
pub mod directory;
pub mod engine;
pub mod exposure;
pub mod face;
pub mod fetch;
pub mod gate;
pub mod http;
pub mod id;
pub mod identity;
pub mod policies;
pub mod schema;
pub mod shutdown;
pub mod telemetry;
pub mod timeline;
pub mod tls;
pub mod view;
pub mod work;
