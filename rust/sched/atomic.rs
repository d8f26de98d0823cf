// SPDX-License-Identifier: GPL-2.0-only

//! Words that several CPUs change concurrently, without function calls.
//!
//! Without `CONFIG_RUST_INLINE_HELPERS` each operation of the kernel crate's `Atomic` calls an
//! exported function. A request needs about a dozen operations, which is 1 to 2 % of all its
//! instructions in `make bench-vm`. Therefore the words of the hot path use the language's own
//! atomics, in this file only. `rust/host/nrs-model` replaces this file by one that switches tasks
//! at each operation.
//!
//! # Ordering
//!
//! These words are never shared with C, so only the language's memory model applies. The type of a
//! word states the order of its operations; each exception states its own.
//!
//! - [`AtomicWord`], [`AtomicWord32`]: one total order (`SeqCst`), which
//!   [`crate::sched::partition::slot_pool`] depends on: if two tasks each write one word and then
//!   read the other's, at least one of them sees the other's write.
//! - [`Hint`]: a reader of a value sees all that was written before the value (`Release`,
//!   `Acquire`).
//! - [`RelaxedWord`], [`RelaxedWord32`], [`Counter`]: no order with other words (`Relaxed`).

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Defines atomic words, all of whose operations have the same memory order.
macro_rules! words {
    ($($(#[$doc:meta])* $Word:ident: $Atomic:ident of $Value:ty, $order:ident;)+) => {$(
        $(#[$doc])*
        pub struct $Word($Atomic);

        #[allow(dead_code, reason = "each word has all operations, used or not")]
        impl $Word {
            /// Creates a word with `value`.
            pub const fn new(value: $Value) -> Self {
                Self($Atomic::new(value))
            }

            /// Returns the value.
            #[inline]
            pub fn get(&self) -> $Value {
                self.0.load(Ordering::$order)
            }

            /// Sets the value.
            #[inline]
            pub fn set(&self, value: $Value) {
                self.0.store(value, Ordering::$order);
            }

            /// Sets the value; returns the previous value.
            #[inline]
            pub fn swap(&self, value: $Value) -> $Value {
                self.0.swap(value, Ordering::$order)
            }

            /// Adds `value`, wrapping; returns the previous value.
            #[inline]
            pub fn add(&self, value: $Value) -> $Value {
                self.0.fetch_add(value, Ordering::$order)
            }

            /// Subtracts `value`, wrapping; returns the previous value.
            #[inline]
            pub fn sub(&self, value: $Value) -> $Value {
                self.0.fetch_sub(value, Ordering::$order)
            }

            /// Raises the value to `value` if it is lower.
            #[inline]
            pub fn raise(&self, value: $Value) {
                self.0.fetch_max(value, Ordering::$order);
            }

            /// Sets the bits of `value`.
            #[inline]
            pub fn set_bits(&self, value: $Value) {
                self.0.fetch_or(value, Ordering::$order);
            }

            /// Clears the bits of `value`.
            #[inline]
            pub fn clear_bits(&self, value: $Value) {
                self.0.fetch_and(!value, Ordering::$order);
            }

            /// Replaces the value by `new` if it is `old`; returns true if so.
            #[inline]
            pub fn replace(&self, old: $Value, new: $Value) -> bool {
                let order = Ordering::$order;
                self.0.compare_exchange(old, new, order, order).is_ok()
            }

            /// Replaces the value by `new` if it is `old`, but can fail spuriously: for loops.
            ///
            /// # Errors
            ///
            /// The value, which stays.
            #[inline]
            pub fn replace_weak(&self, old: $Value, new: $Value) -> Result<$Value, $Value> {
                let order = Ordering::$order;
                self.0.compare_exchange_weak(old, new, order, order)
            }

            /// Replaces the value by the result of `change`, unless the result is `None`; returns
            /// true if the value was replaced.
            #[inline]
            pub fn change(&self, change: impl FnMut($Value) -> Option<$Value>) -> bool {
                self.update(change).is_ok()
            }

            /// Replaces the value by the result of `change`; returns the previous value.
            ///
            /// # Errors
            ///
            /// The value, which stays, if the result is `None`.
            #[inline]
            pub fn update(
                &self,
                change: impl FnMut($Value) -> Option<$Value>,
            ) -> Result<$Value, $Value> {
                let order = Ordering::$order;
                self.0.fetch_update(order, order, change)
            }
        }
    )+};
}

words! {
    /// Atomic word of 64 bits. All operations are in the total order (`SeqCst`).
    AtomicWord: AtomicU64 of u64, SeqCst;
    /// Atomic word of 32 bits. All operations are in the total order (`SeqCst`).
    AtomicWord32: AtomicU32 of u32, SeqCst;
    /// Atomic word of 64 bits, not ordered with other memory accesses (`Relaxed`).
    RelaxedWord: AtomicU64 of u64, Relaxed;
    /// Atomic word of 32 bits, not ordered with other memory accesses (`Relaxed`).
    RelaxedWord32: AtomicU32 of u32, Relaxed;
}

impl AtomicWord {
    /// Sets the value without order (`Relaxed`).
    pub fn set_relaxed(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

impl AtomicWord32 {
    /// Returns the value without order (`Relaxed`).
    pub fn get_relaxed(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
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

    /// Returns the value (`Acquire`).
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Sets the value (`Release`).
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }

    /// Replaces the value by `new` if it is `old`, which selects one writer. A replacement is in
    /// the total order (`SeqCst`), a failure is not (`Acquire`).
    ///
    /// # Errors
    ///
    /// The value, which stays.
    #[inline]
    pub fn replace(&self, old: u64, new: u64) -> Result<u64, u64> {
        let (done, failed) = (Ordering::SeqCst, Ordering::Acquire);
        self.0.compare_exchange(old, new, done, failed)
    }
}

/// Counter that only grows until it is reset; not ordered with other memory accesses (`Relaxed`).
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Creates a counter with value zero.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Resets the counter to zero.
    #[inline]
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Adds `n`, wrapping.
    #[inline]
    pub fn count(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Returns the value.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Resets the counter to zero; returns the previous value.
    pub fn take(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }
}
