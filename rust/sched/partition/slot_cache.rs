// SPDX-License-Identifier: GPL-2.0-only

//! Per-CPU caches of slots, which avoid contention of CPUs on one word.
//!
//! A slot of a cache is in use in the pool, and free for a request dispatched on the CPU of the
//! cache. A bitmap lists the caches that may have slots. A CPU that puts a slot into an unlisted
//! cache sets its bit afterwards. A CPU that empties all listed caches clears the bitmap first.
//!
//! ```text
//!            several slots                a request passes
//!   pool ─────────────────────▶ cache ─────────────────────▶ in flight
//!     ▲                         │   ▲                             │
//!     └── cache full, or ───────┘   └────── the request ends ─────┘
//!         a request is queued
//! ```

use crate::sched::{atomic::AtomicWord, cpus::PerCpu, mem::NoMemory};

/// Maximum slots of one cache.
const MOST: u32 = 16;

/// Flag of a listed cache; the bits below are the number of its slots.
const LISTED: u64 = 1 << 32;

/// Slot caches of a target.
pub struct SlotCaches {
    /// Bitmap of listed caches; CPUs whose numbers are equal modulo 64 share a bit.
    listed: AtomicWord,
    caches: PerCpu<AtomicWord>,
}

impl SlotCaches {
    /// Creates an empty set of caches.
    #[cfg(not(MODULE))]
    pub const fn none() -> Self {
        Self {
            listed: AtomicWord::new(0),
            caches: PerCpu::none(),
        }
    }

    /// Creates empty caches for `cpus` CPUs; sleeps.
    pub fn new(cpus: u32) -> Result<Self, NoMemory> {
        Ok(Self {
            listed: AtomicWord::new(0),
            caches: PerCpu::new(cpus, || AtomicWord::new(0))?,
        })
    }

    /// Returns the maximum number of slots in one cache: half of `slots` divided by the number of
    /// CPUs.
    pub(super) fn most(&self, slots: u32) -> u32 {
        let cpus = self.caches.len();
        slots
            .checked_div(cpus.saturating_mul(2))
            .unwrap_or(0)
            .min(MOST)
    }

    /// Takes a slot from the cache of `cpu`; returns true if the cache had one.
    #[inline]
    pub(super) fn take(&self, cpu: u32) -> bool {
        self.caches.of(cpu).is_some_and(|cache| {
            let slots = cache.get();
            count_of(slots) > 0 && cache.replace(slots, slots.wrapping_sub(1))
        })
    }

    /// Puts a slot into the cache of `cpu`, if the cache is listed and has fewer than `most` slots;
    /// returns true if it did.
    #[inline]
    pub(super) fn put_one(&self, cpu: u32, most: u32) -> bool {
        self.caches.of(cpu).is_some_and(|cache| {
            let slots = cache.get();
            let room = slots >= LISTED && count_of(slots) < most;
            room && cache.replace(slots, slots.wrapping_add(1))
        })
    }

    /// Puts `slots` slots into the cache of `cpu`, up to `most` in all; returns the number of
    /// excess slots. A cache that would exceed `most` keeps half of `most`, rounded up.
    pub(super) fn put(&self, cpu: u32, slots: u32, most: u32) -> u32 {
        let Some(cache) = self.caches.of(cpu) else {
            return slots;
        };
        let (mut before, mut left) = (0, 0);
        cache.change(|cache| {
            before = cache;
            let sum = count_of(cache).wrapping_add(slots);
            left = if sum <= most {
                0
            } else {
                sum.wrapping_sub(most.div_ceil(2))
            };
            Some(LISTED | u64::from(sum.wrapping_sub(left)))
        });
        if before & LISTED == 0 {
            self.listed.set_bits(bit(cpu));
        }
        left
    }

    /// Empties the cache of `cpu`; returns the number of its slots.
    #[cold]
    pub(super) fn empty(&self, cpu: u32) -> u32 {
        let cache = self.caches.of(cpu);
        cache.map_or(0, |cache| count_of(cache.swap(0)))
    }

    /// Empties all listed caches; returns the number of their slots.
    #[inline]
    pub(super) fn flush_all(&self) -> u32 {
        if self.listed.get() == 0 {
            return 0;
        }
        self.empty_listed()
    }

    #[cold]
    fn empty_listed(&self) -> u32 {
        let listed = self.listed.swap(0);
        let all = (0..).zip(self.caches.iter());
        let found = all.filter(|(cpu, _)| listed & bit(*cpu) != 0);
        found.fold(0, |sum, (_, cache)| {
            sum.wrapping_add(count_of(cache.swap(0)))
        })
    }

    /// Returns the number of slots in all caches.
    pub(super) fn sum(&self) -> u32 {
        if self.listed.get() == 0 {
            return 0;
        }
        let counts = self.caches.iter().map(|cache| count_of(cache.get()));
        counts.fold(0, u32::wrapping_add)
    }
}

/// Returns the number of slots in a cache.
const fn count_of(cache: u64) -> u32 {
    cache as u32
}

/// Returns the bit of `cpu` in the list.
const fn bit(cpu: u32) -> u64 {
    1u64.wrapping_shl(cpu)
}
