//! The bytes of an event in a log.
//!
//! One byte says which version of the envelope follows, then comes a protobuf message with numbered fields. In reading
//! order: `wire` is the message, `encode` makes it from a kernel event, `decode` makes a kernel event from it.
//!
//! Always: what was stored can be read by every later release, and decodes to the event that was encoded. Never: an
//! event that this release does not know is skipped, because what follows it would be misread.

mod decode;
mod encode;
mod wire;

use handover_kernel::{Event, Face, IdScope, Seq};
use prost::Message;

/// The version of the envelope that this release writes.
pub const VERSION: u8 = 1;

/// Which events this release reads and writes: one more with each release that has a new kind, or a new value of a field, since
/// none before it can read that. Nodes that share a store compare it.
pub const EVENTS: u32 = 1;

/// Why bytes are not an event that this release can read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// There are no bytes.
    #[error("expected an encoded event, found no bytes")]
    Empty,
    /// The envelope has another version.
    #[error("expected version {VERSION} of the envelope, found version {found}")]
    UnknownVersion {
        /// The version that it has.
        found: u8,
    },
    /// What follows the version is not a protobuf message.
    #[error("expected a protobuf message, found other bytes: {0}")]
    NotProtobuf(#[from] prost::DecodeError),
    /// Every event of its kind has this field, but this one does not.
    #[error("expected the field {field}, found none that this release knows")]
    Missing {
        /// Which field.
        field: &'static str,
    },
    /// The event says something that this release has no word for.
    #[error(
        "expected a kind of event that this release knows, found another at event {seq}: a newer release wrote it"
    )]
    UnknownKind {
        /// Its place in the log.
        seq: Seq,
    },
    /// A field has a value that this release has no word for.
    #[error("expected a value of {field} that this release knows, found {value}: a newer release wrote it")]
    UnknownValue {
        /// Which field.
        field: &'static str,
        /// Its value.
        value: u32,
    },
}

/// The number that a wire has in stored bytes.
pub fn face_number(face: Face) -> u32 {
    wire::Numbered::number(&face)
}

/// Where the message ids of a wire count. It is not stored: it never changes for a wire, so the face tells it.
pub fn id_scope(face: Face) -> IdScope {
    match face {
        Face::Macp => IdScope::Session,
        Face::Mcp | Face::Grid | Face::Console | Face::Cli => IdScope::Sender,
        Face::Runtime => IdScope::Runtime,
    }
}

/// The bytes of an event, the same on every machine.
pub fn encode(event: &Event) -> Vec<u8> {
    let message = encode::event(event);
    let mut bytes = Vec::with_capacity(1 + message.encoded_len());
    bytes.push(VERSION);
    message.encode(&mut bytes).expect("a vector has room for all that is memory");
    bytes
}

/// The event of these bytes. Fields that this release does not know are passed over: stored bytes are never rewritten,
/// so nothing is lost by it.
pub fn decode(bytes: &[u8]) -> Result<Event, Error> {
    match bytes.split_first() {
        None => Err(Error::Empty),
        Some((&VERSION, message)) => decode::event(wire::Event::decode(message)?),
        Some((&found, _)) => Err(Error::UnknownVersion { found }),
    }
}
