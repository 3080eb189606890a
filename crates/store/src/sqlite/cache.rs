//! A bounded map of what was used lately.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// Two generations: when the young one is full it becomes the old one, and what nobody asked for since then is dropped
/// with it. Never holds more than twice the capacity.
pub(super) struct Cache<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    capacity: usize,
}

impl<K: Hash + Eq, V> Cache<K, V> {
    pub(super) fn new(capacity: usize) -> Self {
        Cache { young: HashMap::new(), old: HashMap::new(), capacity }
    }

    pub(super) fn get_mut<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        if let Some((key, value)) = self.old.remove_entry(key) {
            self.insert(key, value);
        }
        self.young.get_mut(key)
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.capacity {
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&key);
        self.young.insert(key, value);
    }

    pub(super) fn remove<Q>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.young.remove(key);
        self.old.remove(key);
    }

    pub(super) fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::Cache;

    #[test]
    fn what_is_used_stays_and_the_rest_goes() {
        let mut cache = Cache::new(2);
        cache.insert(0, "used");
        for key in 1..100 {
            cache.insert(key, "once");
            assert_eq!(cache.get_mut(&0), Some(&mut "used"));
            assert!(cache.young.len() + cache.old.len() <= 4);
        }
        assert_eq!(cache.get_mut(&1), None);
    }

    #[test]
    fn a_newer_value_hides_the_older_generation() {
        let mut cache = Cache::new(2);
        cache.insert(1, "before");
        cache.insert(2, "other");
        cache.insert(3, "other");
        cache.insert(1, "after");
        assert_eq!(cache.get_mut(&1), Some(&mut "after"));
        cache.remove(&1);
        assert_eq!(cache.get_mut(&1), None);
    }
}
