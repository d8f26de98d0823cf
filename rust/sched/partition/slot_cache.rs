// SPDX-License-Identifier: GPL-2.0-only

//! Per-CPU stocks of slots, which avoid contention of CPUs on one word.
//!
//! A slot of a stock is in use in the pool, and free for a request dispatched on the CPU of the
//! stock. A bitmap lists the stocks that may have slots. A CPU that puts a slot into an unlisted
//! stock sets its bit afterwards. A CPU that empties all listed stocks clears the bitmap first.
//!
//! ```text
//!            several slots                a request passes
//!   pool ─────────────────────▶ stock ─────────────────────▶ in flight
//!     ▲                         │   ▲                             │
//!     └── stock full, or ───────┘   └────── the request ends ─────┘
//!         a request is queued
//! ```

use crate::sched::{atomic::AtomicWord, cpus::PerCpu, mem::NoMemory};

/// Maximum slots of one stock.
const MOST: u32 = 16;

/// Flag of a listed stock; the bits below are the number of its slots.
const LISTED: u64 = 1 << 32;

/// Stocks of a target.
pub struct SlotCaches {
    /// Bitmap of listed stocks; CPUs whose numbers are equal modulo 64 share a bit.
    listed: AtomicWord,
    stocks: PerCpu<AtomicWord>,
}

impl SlotCaches {
    /// Creates an empty set of stocks.
    pub const fn none() -> Self {
        Self {
            listed: AtomicWord::new(0),
            stocks: PerCpu::none(),
        }
    }

    /// Creates empty stocks for `cpus` CPUs; sleeps.
    pub fn new(cpus: u32) -> Result<Self, NoMemory> {
        Ok(Self {
            listed: AtomicWord::new(0),
            stocks: PerCpu::new(cpus, || AtomicWord::new(0))?,
        })
    }

    /// Returns the maximum number of slots in one stock: half of `slots` divided by the number of
    /// CPUs.
    pub(super) fn most(&self, slots: u32) -> u32 {
        let cpus = self.stocks.len();
        slots
            .checked_div(cpus.saturating_mul(2))
            .unwrap_or(0)
            .min(MOST)
    }

    /// Takes a slot from the stock of `cpu`; returns true if the stock had one.
    #[inline]
    pub(super) fn take(&self, cpu: u32) -> bool {
        self.stocks.of(cpu).is_some_and(|stock| {
            let slots = stock.get();
            count_of(slots) > 0 && stock.replace(slots, slots.wrapping_sub(1))
        })
    }

    /// Puts a slot into the stock of `cpu`, if the stock is listed and has fewer than `most` slots;
    /// returns true if it did.
    #[inline]
    pub(super) fn put_one(&self, cpu: u32, most: u32) -> bool {
        self.stocks.of(cpu).is_some_and(|stock| {
            let slots = stock.get();
            let room = slots >= LISTED && count_of(slots) < most;
            room && stock.replace(slots, slots.wrapping_add(1))
        })
    }

    /// Puts `slots` slots into the stock of `cpu`, up to `most` in all; returns the number of
    /// excess slots. A stock that would exceed `most` keeps half of `most`, rounded up.
    pub(super) fn put(&self, cpu: u32, slots: u32, most: u32) -> u32 {
        let Some(stock) = self.stocks.of(cpu) else {
            return slots;
        };
        let (mut before, mut left) = (0, 0);
        stock.change(|stock| {
            before = stock;
            let sum = count_of(stock).wrapping_add(slots);
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

    /// Empties the stock of `cpu`; returns the number of its slots.
    #[cold]
    pub(super) fn empty(&self, cpu: u32) -> u32 {
        let stock = self.stocks.of(cpu);
        stock.map_or(0, |stock| count_of(stock.swap(0)))
    }

    /// Empties all listed stocks; returns the number of their slots.
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
        let all = (0..).zip(self.stocks.iter());
        let found = all.filter(|(cpu, _)| listed & bit(*cpu) != 0);
        found.fold(0, |sum, (_, stock)| {
            sum.wrapping_add(count_of(stock.swap(0)))
        })
    }

    /// Returns the number of slots in all stocks.
    pub(super) fn sum(&self) -> u32 {
        if self.listed.get() == 0 {
            return 0;
        }
        let counts = self.stocks.iter().map(|stock| count_of(stock.get()));
        counts.fold(0, u32::wrapping_add)
    }
}

/// Returns the number of slots in a stock.
const fn count_of(stock: u64) -> u32 {
    stock as u32
}

/// Returns the bit of `cpu` in the list.
const fn bit(cpu: u32) -> u64 {
    1u64.wrapping_shl(cpu)
}
