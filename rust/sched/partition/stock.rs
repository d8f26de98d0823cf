// SPDX-License-Identifier: GPL-2.0-only

//! Stocks: slots that a CPU keeps for its next requests, so that CPUs do not write one word in
//! turn.
//!
//! A slot of a stock is in use in the pool, and free for a request that passes on that CPU. A stock
//! is *listed* if a look at the list finds it: who puts a slot into a stock that is not listed
//! lists the stock afterwards, who empties all listed stocks clears the list before.
//!
//! ```text
//!            several at once              a request passes
//!   pool ─────────────────────▶ stock ─────────────────────▶ in flight
//!     ▲                         │   ▲                             │
//!     └── it is full, or a ─────┘   └────── the request has ended ┘
//!         request is queued
//! ```

use crate::sched::{atomic::Word, cpus::PerCpu, mem::NoMemory};

/// Slots of one stock, at most.
const MOST: u32 = 16;

/// Bit of a stock that is listed; the bits below are the number of its slots.
const LISTED: u64 = 1 << 32;

/// The stocks of a target.
pub struct Stocks {
    /// Listed stocks; CPUs whose numbers are equal modulo 64 share a bit.
    listed: Word,
    stocks: PerCpu<Word>,
}

impl Stocks {
    /// Returns no stocks.
    pub const fn none() -> Self {
        Self {
            listed: Word::new(0),
            stocks: PerCpu::none(),
        }
    }

    /// Creates empty stocks for `cpus` CPUs; sleeps.
    pub fn new(cpus: u32) -> Result<Self, NoMemory> {
        Ok(Self {
            listed: Word::new(0),
            stocks: PerCpu::new(cpus, || Word::new(0))?,
        })
    }

    /// Returns how many of `slots` slots one stock holds, at most: half of the slots, shared out.
    pub(super) fn most(&self, slots: u32) -> u32 {
        let cpus = self.stocks.len();
        slots
            .checked_div(cpus.saturating_mul(2))
            .unwrap_or(0)
            .min(MOST)
    }

    /// Takes a slot from the stock of `cpu`; returns whether there was one.
    #[inline]
    pub(super) fn take(&self, cpu: u32) -> bool {
        self.stocks.of(cpu).is_some_and(|stock| {
            let slots = stock.get();
            count_of(slots) > 0 && stock.replace(slots, slots.wrapping_sub(1))
        })
    }

    /// Puts a slot into the stock of `cpu`, if that is listed and has fewer than `most`; returns
    /// whether it did.
    #[inline]
    pub(super) fn put_one(&self, cpu: u32, most: u32) -> bool {
        self.stocks.of(cpu).is_some_and(|stock| {
            let slots = stock.get();
            let room = slots >= LISTED && count_of(slots) < most;
            room && stock.replace(slots, slots.wrapping_add(1))
        })
    }

    /// Puts `slots` slots into the stock of `cpu`, which is to hold `most` at most; returns how
    /// many are left over: of a stock that becomes full half is, too.
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

    /// Takes all slots out of the stock of `cpu`; returns how many.
    #[cold]
    pub(super) fn empty(&self, cpu: u32) -> u32 {
        let stock = self.stocks.of(cpu);
        stock.map_or(0, |stock| count_of(stock.swap(0)))
    }

    /// Takes all slots out of all stocks; returns how many.
    #[inline]
    pub(super) fn empty_all(&self) -> u32 {
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

    /// Returns how many slots are in stocks.
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
