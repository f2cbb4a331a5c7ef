//! A lock whose holders may panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock, also one whose last holder panicked: what is behind locks in this program is whole between any two statements.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
