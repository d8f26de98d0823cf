// SPDX-License-Identifier: GPL-2.0-only

//! Replacement of `rust/sched/atomic.rs`: another task may run before each operation on an
//! [`AtomicWord`], and the operations of a task can be listed ([`watch`](crate::touch::watch)).

use crate::{search::point, touch::touch};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// A word of 64 bits.
pub struct AtomicWord(AtomicU64);

impl AtomicWord {
    /// Creates a word that holds `value`.
    pub const fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    /// Returns the value.
    pub fn get(&self) -> u64 {
        point();
        touch(self, false);
        self.0.load(SeqCst)
    }

    /// Sets the value.
    pub fn set(&self, value: u64) {
        point();
        touch(self, true);
        self.0.store(value, SeqCst);
    }

    /// Sets the value; returns the previous value.
    pub fn swap(&self, value: u64) -> u64 {
        point();
        touch(self, true);
        self.0.swap(value, SeqCst)
    }

    /// Subtracts `value`, wrapping; returns the previous value.
    pub fn sub(&self, value: u64) -> u64 {
        point();
        touch(self, true);
        self.0.fetch_sub(value, SeqCst)
    }

    /// Sets the bits of `value`.
    pub fn set_bits(&self, value: u64) {
        point();
        touch(self, true);
        self.0.fetch_or(value, SeqCst);
    }

    /// Clears the bits of `value`.
    pub fn clear_bits(&self, value: u64) {
        point();
        touch(self, true);
        self.0.fetch_and(!value, SeqCst);
    }

    /// Replaces `old` by `new`; returns true if `old` was the value.
    pub fn replace(&self, old: u64, new: u64) -> bool {
        point();
        touch(self, true);
        self.0.compare_exchange(old, new, SeqCst, SeqCst).is_ok()
    }

    /// Replaces the value by the result of `change`, if it is `Some`; returns true if the value was
    /// replaced.
    pub fn change(&self, change: impl FnMut(u64) -> Option<u64>) -> bool {
        point();
        touch(self, true);
        self.0.fetch_update(SeqCst, SeqCst, change).is_ok()
    }
}

/// A number with one writer at a time and many readers. It is not ordered with other memory, so no
/// other task runs before an operation on it.
pub struct Hint(AtomicU64);

impl Hint {
    /// Creates a hint with `value`.
    pub const fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    /// Returns the value.
    pub fn get(&self) -> u64 {
        touch(self, false);
        self.0.load(SeqCst)
    }

    /// Sets the value.
    pub fn set(&self, value: u64) {
        touch(self, true);
        self.0.store(value, SeqCst);
    }
}
