//! Ids that we mint: nobody guesses them.

use sha2::{Digest, Sha256};

/// A UUID of version 4: 122 random bits.
pub fn unguessable() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has random bytes");
    uuid(bytes, 4)
}

/// The id that the same names always lead to, so that a request that is sent again finds what it began.
pub fn derived(names: &[&str]) -> String {
    let mut hash = Sha256::new();
    for name in names {
        hash.update((name.len() as u64).to_be_bytes());
        hash.update(name.as_bytes());
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    uuid(bytes, 8)
}

fn uuid(mut bytes: [u8; 16], version: u8) -> String {
    bytes[6] = bytes[6] & 0x0f | version << 4;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
    fn the_same_names_lead_to_the_same_id_and_others_to_another() {
        assert_eq!(derived(&["a", "b"]), derived(&["a", "b"]));
        assert_ne!(derived(&["a", "b"]), derived(&["ab", ""]));
        assert_eq!(&derived(&["a"])[14..15], "8");
    }
}
