// SPDX-License-Identifier: GPL-2.0-only

//! Words that several CPUs change at once, without a call.
//!
//! Without `CONFIG_RUST_INLINE_HELPERS` each operation of the kernel crate's `Atomic` is a call of an
//! exported function. A request passes about a dozen of them, which `make bench-vm` shows as 1 to 2 % of
//! all its instructions; so the words of the hot path use the language's own atomics.
//! `rust/host/nrs-model` has another file in place of this one, which switches tasks at each operation.
//!
//! # Ordering
//!
//! These words are never shared with C, so the language's memory model is all that counts for them. Every
//! operation takes part in one total order (`SeqCst`), which is what [`crate::sched::partition::line`]
//! builds on: of two tasks that each write one word and then read the other's, at least one sees the other's write.
//! Counters alone need no order.

use core::sync::atomic::{AtomicU64, Ordering};

/// A word of 64 bits.
pub struct Word(AtomicU64);

impl Word {
    /// Creates a word that holds `value`.
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

    /// Sets the value; returns the value before.
    pub fn swap(&self, value: u64) -> u64 {
        self.0.swap(value, Ordering::SeqCst)
    }

    /// Adds `value`, wrapping; returns the value before.
    pub fn add(&self, value: u64) -> u64 {
        self.0.fetch_add(value, Ordering::SeqCst)
    }

    /// Subtracts `value`, wrapping; returns the value before.
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

    /// Replaces `old` by `new`; returns whether `old` was the value.
    #[inline]
    pub fn replace(&self, old: u64, new: u64) -> bool {
        let order = Ordering::SeqCst;
        self.0.compare_exchange(old, new, order, order).is_ok()
    }

    /// Replaces the value by what `change` makes of it, if anything; returns whether it was replaced.
    pub fn change(&self, mut change: impl FnMut(u64) -> Option<u64>) -> bool {
        self.0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, &mut change)
            .is_ok()
    }
}

/// A number that one CPU writes at a time and many read. A reader of a value sees what was done before
/// the value was written; in no total order with anything else.
pub struct Hint(AtomicU64);

impl Hint {
    /// Creates a hint that says `value`.
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

/// A counter that only grows until it is reset; in no order with anything else.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Creates a counter at zero.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Starts from zero again.
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
