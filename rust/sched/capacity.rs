// SPDX-License-Identifier: GPL-2.0-only

//! Capacity of a service, for limits in percent.
//!
//! A request takes the larger of its parts of the requests/s and of the bytes/s. These are the most
//! that were measured, which small and large requests reach at different times.

use crate::sched::{
    atomic::AtomicWord,
    bucket::{rate::RateUnit, Pace},
    item::Cost,
};

/// Measured capacity of a service: what all its devices serve together.
pub struct Capacity {
    /// [`Pace`] of requests and of bytes at the capacity; 0 if unknown.
    paces: [AtomicWord; 2],
}

impl Capacity {
    /// Creates an unknown capacity.
    pub const fn new() -> Self {
        Self {
            paces: [const { AtomicWord::new(0) }; 2],
        }
    }

    /// Sets the capacity, requests and bytes per second; 0: unknown.
    pub fn set(&self, rates: [u64; 2]) {
        for (pace, rate) in self.paces.iter().zip(rates) {
            let word = if rate == 0 { 0 } else { Pace::new(rate).word() };
            if pace.get() != word {
                pace.set(word);
            }
        }
    }

    /// Returns the time that the devices take for a request of `cost`, ticks; 0 if unknown.
    pub fn span(&self, cost: Cost) -> u64 {
        let units = [RateUnit::Requests, RateUnit::Bytes].iter();
        let spans = self.paces.iter().zip(units).map(|(pace, unit)| {
            let pace = Pace::from_word(pace.get());
            pace.span(unit.of(cost))
        });
        spans.fold(0, u64::max)
    }
}
