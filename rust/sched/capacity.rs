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

    /// Sets the capacity to the sum of the `rates` of all devices; a device whose rates were not
    /// measured counts as the average.
    pub fn set_sum(&self, rates: impl Iterator<Item = [u64; 2]>) {
        let (mut sums, mut known, mut all) = ([0; 2], 0u64, 0u64);
        for rates in rates {
            all = all.saturating_add(1);
            known = known.saturating_add((rates != [0; 2]).into());
            for (sum, rate) in sums.iter_mut().zip(rates) {
                *sum = rate.saturating_add(*sum);
            }
        }
        let whole = |sum: u64| sum.saturating_mul(all).checked_div(known).unwrap_or(0);
        self.set(sums.map(whole));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unmeasured_device_counts_as_the_average() {
        let capacity = Capacity::new();
        let request = Cost::of_bytes(0);
        let rate = |rates: &[[u64; 2]]| {
            capacity.set_sum(rates.iter().copied());
            let span = capacity.span(request);
            Pace::new(1).span(1).checked_div(span).unwrap_or(0)
        };
        assert_eq!(rate(&[]), 0);
        assert_eq!(rate(&[[0; 2]; 3]), 0);
        let measured = rate(&[[100, 1 << 30], [0; 2], [300, 1 << 30]]);
        // Times are rounded up.
        assert!((599..=600).contains(&measured), "{measured}");
    }
}
