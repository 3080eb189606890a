//! A session's key as the engine's maps hold it: shared, and in an order that costs one comparison of numbers.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use handover_store::{SessionKey, Slot};

/// A session's key, shared by everything that speaks of it. Ordered by its hash first, so that looking one up in a map
/// of many does not read the text of each that it passes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    hash: u64,
    key: Arc<SessionKey>,
}

impl Key {
    /// The shard of the session, out of so many.
    pub fn shard(&self, shards: usize) -> usize {
        (self.hash % shards as u64) as usize
    }

    /// Whose the session is among the nodes with these slots, for what only one of them should do. When a node comes or
    /// goes, only what is its own changes hands.
    pub fn owner(&self, nodes: &[Slot]) -> Option<Slot> {
        let weight = |slot: &Slot| {
            let mixed = (self.hash ^ u64::from(slot.0).wrapping_mul(0x9e37_79b9_7f4a_7c15))
                .wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (mixed ^ (mixed >> 31), *slot)
        };
        nodes.iter().copied().max_by_key(weight)
    }
}

impl From<SessionKey> for Key {
    fn from(key: SessionKey) -> Key {
        // FNV-1a of both parts: the same on every machine.
        let bytes = key.tenant.bytes().chain([0]).chain(key.session.bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Key { hash, key: Arc::new(key) }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&*self.key, f)
    }
}

impl Deref for Key {
    type Target = SessionKey;

    fn deref(&self) -> &SessionKey {
        &self.key
    }
}
