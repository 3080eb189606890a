//! The tokens that were checked before, so that an agent's second request costs a hash and not a signature.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use super::keys::KeySet;
use crate::identity::Principal;

/// How many tokens are remembered at least, if there are so many.
pub const TOKENS: usize = 8192;

/// Whose each token is, by its hash. Holds at most twice [`TOKENS`]: when the younger half is full, the older one goes.
#[derive(Default)]
pub struct Seen {
    /// The keys that everything here was checked with.
    keys: Weak<KeySet>,
    younger: BTreeMap<[u8; 32], Principal>,
    older: BTreeMap<[u8; 32], Principal>,
}

impl Seen {
    /// Whose token this is, if it was checked with these keys. It may have expired since.
    pub fn find(&self, keys: &Arc<KeySet>, name: &[u8; 32]) -> Option<Principal> {
        if !self.is_of(keys) {
            return None;
        }
        self.younger.get(name).or_else(|| self.older.get(name)).cloned()
    }

    /// Remember whose token this is.
    pub fn add(&mut self, keys: &Arc<KeySet>, name: [u8; 32], principal: Principal) {
        if !self.is_of(keys) {
            *self = Seen { keys: Arc::downgrade(keys), ..Seen::default() };
        }
        if self.younger.len() >= TOKENS {
            self.older = std::mem::take(&mut self.younger);
        }
        self.younger.insert(name, principal);
    }

    fn is_of(&self, keys: &Arc<KeySet>) -> bool {
        // The weak reference keeps the place of the keys from being taken by others.
        std::ptr::eq(self.keys.as_ptr(), Arc::as_ptr(keys))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_seen_is_bounded_and_the_oldest_goes_first() {
        let keys = Arc::new(KeySet::default());
        let principal = crate::identity::Identity::Development.authenticate(Some("planner")).unwrap();
        let name = |n: usize| crate::identity::tokens::hash(&n.to_string());
        let mut seen = Seen::default();
        for n in 0..TOKENS * 3 {
            seen.add(&keys, name(n), principal.clone());
        }
        assert!(seen.younger.len() + seen.older.len() <= TOKENS * 2);
        assert_eq!(seen.find(&keys, &name(0)), None);
        assert_eq!(seen.find(&keys, &name(TOKENS * 3 - 1)), Some(principal));
    }

    #[test]
    fn other_keys_have_seen_nothing() {
        let (old, new) = (Arc::new(KeySet::default()), Arc::new(KeySet::default()));
        let principal = crate::identity::Identity::Development.authenticate(Some("planner")).unwrap();
        let mut seen = Seen::default();
        seen.add(&old, [1; 32], principal.clone());
        assert_eq!(seen.find(&new, &[1; 32]), None);
        seen.add(&new, [2; 32], principal);
        assert_eq!((seen.find(&old, &[1; 32]), seen.younger.len()), (None, 1));
    }
}
