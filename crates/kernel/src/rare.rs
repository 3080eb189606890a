//! What most sessions have nothing of: it takes the room of a pointer until there is something.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};

/// What there is of it where there is nothing.
pub trait Nothing: 'static {
    /// The same as [`Default`], which nobody has to make.
    const NOTHING: &'static Self;
}

impl<T: 'static> Nothing for Vec<T> {
    const NOTHING: &'static Self = &Vec::new();
}

impl<K: 'static, V: 'static> Nothing for BTreeMap<K, V> {
    const NOTHING: &'static Self = &BTreeMap::new();
}

impl<T: 'static> Nothing for BTreeSet<T> {
    const NOTHING: &'static Self = &BTreeSet::new();
}

/// A value that is the default most of the time.
#[derive(Clone, Serialize, Deserialize)]
pub struct Rare<T>(Option<Box<T>>);

impl<T> Default for Rare<T> {
    fn default() -> Self {
        Rare(None)
    }
}

impl<T: Nothing + PartialEq> From<T> for Rare<T> {
    fn from(value: T) -> Self {
        Rare((value != *T::NOTHING).then(|| Box::new(value)))
    }
}

impl<T: Nothing> Deref for Rare<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::NOTHING)
    }
}

/// To be used only where something is put in: it takes its room then.
impl<T: Nothing + Default> DerefMut for Rare<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}

impl<T: Nothing + PartialEq> PartialEq for Rare<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Nothing + Eq> Eq for Rare<T> {}

impl<T: Nothing + fmt::Debug> fmt::Debug for Rare<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Binding;
    use crate::task::Task;

    #[test]
    fn nothing_takes_no_room_and_equals_what_was_emptied() {
        let mut rare: Rare<Vec<u8>> = Vec::new().into();
        assert!(rare.0.is_none() && rare.is_empty());
        rare.push(1);
        assert_ne!(rare, Rare::default());
        rare.clear();
        assert_eq!(rare, Rare::default());
    }

    // What an open session takes is a promise: allocators round these up to 448 and, with its counts, to 320 bytes.
    #[test]
    fn a_task_and_its_binding_stay_small() {
        assert!(size_of::<Task>() <= 448, "{}", size_of::<Task>());
        assert!(size_of::<Binding>() <= 304, "{}", size_of::<Binding>());
    }
}
