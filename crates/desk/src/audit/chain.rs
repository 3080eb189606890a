//! The chain of hashes that holds the lines together: each line ends with a hash over itself and the hash before it.
//!
//! A line is `{…,"hash":"…"}`; its hash is SHA-256 over the 32 bytes of the hash before it and the line as it is without
//! `,"hash":"…"`. A file begins with a line that says which hash came before, so that each can be checked by itself.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::calendar::rfc3339;
use crate::id::digits;
use handover_engine::clock::machine;

/// A hash.
pub type Hash = [u8; 32];

/// What comes before the hash of a line, and after it.
const BEFORE: &[u8] = b",\"hash\":\"";
const AFTER: &[u8] = b"\"}";

/// How many bytes longer a line is with its hash and its end than without.
pub const SEAL_BYTES: usize = BEFORE.len() + 64 + AFTER.len();

/// A chain begins: nothing is known of what was before.
pub const BEGAN: &str = "chain_began";
/// A chain goes on in another file.
pub const CONTINUED: &str = "chain_continued";
/// The server found the log shorter than it had left it.
pub const MISSING: &str = "lines_missing";

/// The line that a file begins with.
#[derive(Debug, Serialize, Deserialize)]
pub struct Opening {
    time: String,
    /// [`BEGAN`] or [`CONTINUED`].
    pub event: String,
    /// The first file of a chain is 1.
    pub file: u64,
    /// The hash of the last line of the file before.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub previous: String,
}

impl Opening {
    /// The line that the file of this number begins with.
    pub fn line(file: u64, previous: Option<&Hash>) -> Vec<u8> {
        let event = if previous.is_some() { CONTINUED } else { BEGAN };
        let previous = previous.map(hex).unwrap_or_default();
        let opening = Opening { time: rfc3339(machine()), event: event.to_owned(), file, previous };
        serde_json::to_vec(&opening).expect("texts and numbers are JSON")
    }

    /// Read such a line, if it is one.
    pub fn of(line: &[u8]) -> Option<Opening> {
        let opening: Opening = serde_json::from_slice(line).ok()?;
        [BEGAN, CONTINUED].contains(&opening.event.as_str()).then_some(opening)
    }
}

/// Append a line, a JSON object without its hash, and say the hash.
pub fn seal(previous: &Hash, line: &[u8], into: &mut Vec<u8>) -> Hash {
    let hash = hash(previous, line);
    into.extend_from_slice(&line[..line.len() - 1]);
    into.extend_from_slice(BEFORE);
    into.extend_from_slice(hex(&hash).as_bytes());
    into.extend_from_slice(AFTER);
    into.push(b'\n');
    hash
}

fn hash(previous: &Hash, line: &[u8]) -> Hash {
    Sha256::new().chain_update(previous).chain_update(line).finalize().into()
}

/// The hash that a line says it has, if it says one.
pub fn said(line: &[u8]) -> Option<Hash> {
    let rest = line.strip_suffix(AFTER)?;
    let (rest, digits) = rest.split_at_checked(rest.len().checked_sub(64)?)?;
    rest.ends_with(BEFORE).then(|| unhex(digits))?
}

/// Whether a line that says a hash has that hash after this one.
pub fn follows(previous: &Hash, line: &[u8], said: &Hash) -> bool {
    let bare = line.len().saturating_sub(SEAL_BYTES);
    let bare = [&line[..bare], b"}"].concat();
    hash(previous, &bare) == *said
}

/// A hash in digits.
pub fn hex(hash: &Hash) -> String {
    digits(hash)
}

/// A hash from 64 digits.
pub fn unhex(digits: &[u8]) -> Option<Hash> {
    let mut hash = [0; 32];
    if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let text = str::from_utf8(digits).ok()?;
    for (place, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[place * 2..place * 2 + 2], 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_follows_the_one_that_it_was_sealed_after_and_no_other() {
        let mut bytes = Vec::new();
        let first = seal(&[0; 32], br#"{"event":"a"}"#, &mut bytes);
        let second = seal(&first, br#"{"event":"b","hash":"mine"}"#, &mut bytes);
        let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
        assert_eq!(lines[0].len() + 1, br#"{"event":"a"}"#.len() + SEAL_BYTES);
        assert_eq!((said(lines[0]), said(lines[1]), said(lines[2])), (Some(first), Some(second), None));
        assert!(follows(&[0; 32], lines[0], &first) && follows(&first, lines[1], &second));
        assert!(!follows(&[0; 32], lines[1], &second) && !follows(&[1; 32], lines[0], &first));
        let mut changed = lines[1].to_vec();
        changed[10] ^= 1;
        assert!(!follows(&first, &changed, &second));
        assert!(lines[..2].iter().all(|line| serde_json::from_slice::<serde_json::Value>(line).is_ok()));
        for none in [&b""[..], b"\"}", b"{\"event\":\"a\"}", &lines[0][1..70]] {
            assert_eq!(said(none), None);
        }
    }
}
