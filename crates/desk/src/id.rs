//! Ids that we mint: nobody guesses them. And what looks like an id.

use std::fmt;

use handover_store::{Fault, Put, Record, Store};
use sha2::{Digest, Sha256};

/// Where the secret is kept.
pub(crate) const SPACE: &str = "server";
pub(crate) const KEY: &str = "id-secret";

/// What makes derived ids unguessable: random bytes of this data directory, made once and kept in it.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

// A secret is nothing that a log should show.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// The secret of a store.
    pub fn open(store: &dyn Store) -> Result<Secret, Fault> {
        if let Some(secret) = store.record(SPACE, "", KEY)? {
            return Ok(Secret(secret));
        }
        let mut bytes = vec![0; 32];
        getrandom::fill(&mut bytes).expect("the system has random bytes");
        let record = Record { space: SPACE.into(), tenant: "".into(), key: KEY.into(), value: bytes.clone() };
        // If another process was first, its secret is the one.
        match store.put_record(&record, Put::IfAbsent)? {
            true => Ok(Secret(bytes)),
            false => Ok(Secret(store.record(SPACE, "", KEY)?.unwrap_or(bytes))),
        }
    }

    /// The id that the same names always lead to, so that a request that is sent again finds what it began.
    pub fn derive(&self, names: &[&str]) -> String {
        let mut hash = Sha256::new();
        hash.update(&self.0);
        for name in names {
            hash.update((name.len() as u64).to_be_bytes());
            hash.update(name.as_bytes());
        }
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.finalize()[..16]);
        uuid(bytes, 8)
    }
}

/// A UUID of version 4: 122 random bits.
pub fn unguessable() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has random bytes");
    uuid(bytes, 4)
}

/// Sixteen bytes as a UUID of this version.
pub(crate) fn uuid(mut bytes: [u8; 16], version: u8) -> String {
    bytes[6] = bytes[6] & 0x0f | version << 4;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = digits(&bytes);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Bytes in digits.
pub(crate) fn digits(bytes: &[u8]) -> String {
    let halves = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0x0f]);
    halves.map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)])).collect()
}

/// Whether a text has the shape of a UUID, of whatever version and case.
pub fn is_uuid(text: &str) -> bool {
    let shaped = |(index, byte): (usize, u8)| match index {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    text.len() == 36 && text.bytes().enumerate().all(shaped)
}

/// Whether a text is 22 to 128 characters of base64url, which a session may be called as well.
pub fn is_token(text: &str) -> bool {
    let base64url = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (22..=128).contains(&text.len()) && text.bytes().all(base64url)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use handover_store::MemoryStore;

    use super::*;

    #[test]
    fn h4_minted_ids_are_uuids_with_122_random_bits() {
        let ids: BTreeSet<String> = (0..1000).map(|_| unguessable()).collect();
        assert_eq!(ids.len(), 1000);
        for id in ids {
            assert_eq!((id.len(), &id[14..15]), (36, "4"));
            assert!(matches!(&id[19..20], "8" | "9" | "a" | "b"));
        }
    }

    #[test]
    fn h4_the_same_names_lead_to_the_same_id_of_the_same_data_and_nobody_else_can_tell_it() {
        let (store, other) = (MemoryStore::new(), MemoryStore::new());
        let derive = |store: &MemoryStore, names: &[&str]| Secret::open(store).unwrap().derive(names);
        let id = derive(&store, &["a", "b"]);
        assert_eq!(derive(&store, &["a", "b"]), id);
        assert_ne!(derive(&store, &["ab", ""]), id);
        assert_ne!(derive(&other, &["a", "b"]), id);
        assert_eq!(&id[14..15], "8");
        assert_eq!(format!("{:?}", Secret::open(&store).unwrap()), "Secret");
    }
}
