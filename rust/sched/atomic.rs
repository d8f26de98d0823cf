// SPDX-License-Identifier: GPL-2.0-only

//! Words that several CPUs change concurrently, without function calls.
//!
//! Without `CONFIG_RUST_INLINE_HELPERS` each operation of the kernel crate's `Atomic` calls an
//! exported function. A request needs about a dozen operations, which is 1 to 2 % of all its
//! instructions in `make bench-vm`. Therefore the words of the hot path use the language's own
//! atomics. `rust/host/nrs-model` replaces this file by one that switches tasks at each operation.
//!
//! # Ordering
//!
//! These words are never shared with C, so only the language's memory model applies. Every
//! operation takes part in one total order (`SeqCst`), which [`crate::sched::partition::slot_pool`]
//! depends on: if two tasks each write one word and then read the other's, at least one of them
//! sees the other's write. Counters alone need no order.

use core::sync::atomic::{AtomicU64, Ordering};

/// Atomic word of 64 bits.
pub struct AtomicWord(AtomicU64);

impl AtomicWord {
    /// Creates a word with `value`.
    pub const fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    /// Returns the value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Sets the value.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::SeqCst);
    }

    /// Sets the value; returns the previous value.
    pub fn swap(&self, value: u64) -> u64 {
        self.0.swap(value, Ordering::SeqCst)
    }

    /// Adds `value`, wrapping; returns the previous value.
    pub fn add(&self, value: u64) -> u64 {
        self.0.fetch_add(value, Ordering::SeqCst)
    }

    /// Subtracts `value`, wrapping; returns the previous value.
    pub fn sub(&self, value: u64) -> u64 {
        self.0.fetch_sub(value, Ordering::SeqCst)
    }

    /// Sets the bits of `value`.
    pub fn set_bits(&self, value: u64) {
        self.0.fetch_or(value, Ordering::SeqCst);
    }

    /// Clears the bits of `value`.
    pub fn clear_bits(&self, value: u64) {
        self.0.fetch_and(!value, Ordering::SeqCst);
    }

    /// Replaces the value by `new` if it is `old`; returns true if so.
    #[inline]
    pub fn replace(&self, old: u64, new: u64) -> bool {
        let order = Ordering::SeqCst;
        self.0.compare_exchange(old, new, order, order).is_ok()
    }

    /// Replaces the value by the result of `change`, unless the result is `None`; returns true if
    /// the value was replaced.
    pub fn change(&self, mut change: impl FnMut(u64) -> Option<u64>) -> bool {
        self.0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, &mut change)
            .is_ok()
    }
}

/// Number with one writer at a time and many readers. A reader that sees a value also sees all
/// writes before that value was set; there is no total order with other words.
pub struct Hint(AtomicU64);

impl Hint {
    /// Creates a hint with `value`.
    pub const fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    /// Returns the value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Sets the value.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }
}

/// Counter that only grows until it is reset; not ordered with other memory accesses.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Creates a counter with value zero.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Resets the counter to zero.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Adds `n`, wrapping.
    pub fn count(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Returns the value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
