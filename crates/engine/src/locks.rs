//! Locks that are never poisoned in earnest.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Take a lock. A holder that panics takes the process with it, so a poisoned lock is only ever met in tests.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
