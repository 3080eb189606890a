//! Requests that an agent signs with a key of its own (Ed25519), in the place of a bearer token: what they look like, and
//! whether a signature is that of a key.
//!
//! - [`canonical`](mod@canonical): the bytes that are signed

pub mod canonical;

use std::fmt;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use handover_kernel::Timestamp;
use sha2::{Digest, Sha256};

pub use self::canonical::{DEPTH_MAX, canonical};
use self::canonical::{Fields, read_text};
use super::hex;
use crate::calendar::parse_rfc3339;
use crate::id;

/// How large a signed request may be: it is read before it is known who asks.
pub const BODY_BYTES_MAX: usize = 64 * 1024;

/// How far the clock of whoever signs may be from ours.
pub const SKEW_MS: u64 = 5 * 60 * 1000;

/// Whole numbers above this are milliseconds, those below seconds.
const SECONDS_MAX: u64 = 100_000_000_000;

/// The namespace of DNS names (RFC 9562 §6.6).
const DNS: [u8; 16] =
    [0x6b, 0xa7, 0xb8, 0x10, 0x9d, 0xad, 0x11, 0xd1, 0x80, 0xb4, 0x00, 0xc0, 0x4f, 0xd4, 0x30, 0xc8];

/// What a key is called: the UUIDv5, in the namespace of DNS, of the lower-case hexadecimal SHA-256 of its 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId([u8; 16]);

impl NodeId {
    /// What this key is called.
    pub fn of(public_key: &[u8; 32]) -> NodeId {
        let name = id::digits(&Sha256::digest(public_key));
        let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[&DNS[..], name.as_bytes()].concat());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.as_ref()[..16]);
        bytes[6] = bytes[6] & 0x0f | 0x50;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        NodeId(bytes)
    }

    /// The id that a text is, in lower case as ids are shown.
    pub fn parse(text: &str) -> Option<NodeId> {
        let node = hex(&text.replace('-', "")).map(NodeId)?;
        (node.to_string() == text).then_some(node)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&id::uuid(self.0, 5))
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A signed request, of which nobody has checked the signature yet.
pub struct Signed {
    /// Whose it says that it is.
    pub node: NodeId,
    at: Timestamp,
    nonce: Box<str>,
    signature: [u8; 64],
    payload: String,
}

// A signature is nothing that a log should show.
impl fmt::Debug for Signed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a request signed as {}", self.node)
    }
}

impl Signed {
    /// What the body of a signed request says, or else what was expected.
    pub fn read(body: &[u8]) -> Result<Signed, &'static str> {
        if body.len() > BODY_BYTES_MAX {
            return Err("expected at most 64 KiB");
        }
        let fields = Fields::read(str::from_utf8(body).map_err(|_| "expected UTF-8")?)?;
        let text = |name: &str| fields.get(name).and_then(|value| read_text(value).ok());
        let node = text("fromNodeId").and_then(|text| NodeId::parse(&text));
        let is_nonce =
            |text: &String| text.len() == 32 && !text.bytes().any(|byte| byte.is_ascii_uppercase());
        let nonce = text("nonce").filter(|text| is_nonce(text) && hex::<16>(text).is_some());
        Ok(Signed {
            node: node.ok_or("expected fromNodeId to be the UUID of a key, in lower case")?,
            at: fields
                .get("timestamp")
                .and_then(time)
                .ok_or("expected timestamp in Unix seconds or milliseconds, or in RFC 3339")?,
            nonce: nonce.ok_or("expected nonce to be 32 lower-case hexadecimal digits")?.into(),
            signature: text("signature")
                .and_then(|text| hex(&text))
                .ok_or("expected signature to be 128 hexadecimal digits")?,
            payload: fields.payload()?,
        })
    }

    /// Whether it was signed about now, or else why it does not count.
    pub fn check_time(&self, now: Timestamp) -> Result<(), &'static str> {
        match self.at.0.abs_diff(now.0) <= SKEW_MS {
            true => Ok(()),
            false => Err("its timestamp is not within five minutes of the server's time"),
        }
    }

    /// Whether it was signed with this key, or else why it does not count.
    pub fn check_signature(&self, public_key: &[u8]) -> Result<(), &'static str> {
        let key = UnparsedPublicKey::new(&ED25519, public_key);
        key.verify(self.payload.as_bytes(), &self.signature)
            .map_err(|_| "its signature is not that of its key over the canonical form of the request")
    }

    /// What is remembered of it, so that it counts once: the minute that it was signed in comes first. Whoever sends it again
    /// cannot change that.
    pub(super) fn mark(&self) -> String {
        format!("{}:{}:{}", minute(self.at), self.node, self.nonce)
    }
}

/// The minute of a moment, in the order of time also as text.
pub(super) fn minute(at: Timestamp) -> String {
    format!("{:014}", at.0 / 60_000)
}

/// Whether the body of a request was signed just now with this key, and what the key is called; or else why not. For the
/// request that binds the key, which a bearer token comes with.
pub fn check(body: &[u8], public_key: &[u8; 32], now: Timestamp) -> Result<NodeId, &'static str> {
    let signed = Signed::read(body)?;
    signed.check_time(now)?;
    if signed.node != NodeId::of(public_key) {
        return Err("its fromNodeId is not that of its key");
    }
    signed.check_signature(public_key).map(|()| signed.node)
}

/// The moment that a number or a text of JSON names.
fn time(value: &str) -> Option<Timestamp> {
    if value.starts_with('"') {
        return parse_rfc3339(&read_text(value).ok()?);
    }
    if let Ok(number) = value.parse::<u64>() {
        let ms = if number > SECONDS_MAX { number } else { number * 1000 };
        return Some(Timestamp(ms));
    }
    let seconds: f64 = value.parse().ok()?;
    (0.0..SECONDS_MAX as f64).contains(&seconds).then_some(Timestamp((seconds * 1000.0) as u64))
}

#[cfg(test)]
mod tests;
