// SPDX-License-Identifier: GPL-2.0-only

//! Inflow of a bucket as a function of time, readable while it is being changed.

use crate::sched::{
    atomic::AtomicWord,
    bucket::{nanoseconds, Pace},
    qbm::terms::UNREGULATED,
    units::NSEC_PER_SEC,
};

/// Highest effective rate, bytes/s; higher rates count as this rate.
pub const RATE_MAX: u64 = (1 << 40) - 1;

/// Fraction bits of a speed.
const FRACTION: u32 = 52;

/// Inflow between two changes of the rate: linear from `base` at `start` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inflow {
    /// Inflow at `start`, bytes.
    pub base: u64,
    /// Start time, ns.
    pub start: u64,
    /// Inflow speed, bytes per ns in units of 2^-52; 0: unregulated.
    pub speed: u64,
    /// Time per byte.
    pub pace: Pace,
}

impl Inflow {
    /// Creates the inflow of `rate`, bytes/s, from `start` on.
    pub fn new(rate: u64, base: u64, start: u64) -> Self {
        let rate = if rate == UNREGULATED {
            0
        } else {
            rate.clamp(1, RATE_MAX)
        };
        // rate * 2^52 / 10^9 in two steps: the rate is below 2^40, the remainder below 2^30.
        let (high, rest) = (rate << 23, (rate << 23) % NSEC_PER_SEC);
        let speed = ((high / NSEC_PER_SEC) << 29) | ((rest << 29) / NSEC_PER_SEC);
        Self {
            base,
            start,
            speed,
            pace: Pace::new(rate),
        }
    }

    /// Returns true if the rate is limited.
    pub const fn is_regulated(&self) -> bool {
        self.speed != 0
    }

    /// Returns the inflow during `ns`, bytes.
    #[inline]
    pub fn bytes(&self, ns: u64) -> u64 {
        (u128::from(ns).wrapping_mul(u128::from(self.speed)) >> FRACTION) as u64
    }

    /// Returns the inflow at `now`, bytes.
    #[inline]
    pub fn inflow(&self, now: u64) -> u64 {
        let elapsed = now.saturating_sub(self.start);
        self.base.wrapping_add(self.bytes(elapsed))
    }

    /// Returns the time at which the inflow reaches `at`, ns; `now` if already reached.
    #[inline]
    pub fn reaches(&self, at: u64, now: u64) -> u64 {
        let missing = at.wrapping_sub(self.inflow(now)) as i64;
        if missing <= 0 {
            return now;
        }
        // A part of the next byte has already flowed in.
        let came = u128::from(now.saturating_sub(self.start)).wrapping_mul(u128::from(self.speed));
        let part = (came >> (FRACTION - 16)) as u64 & 0xffff;
        let there = self.pace.span(1).saturating_mul(part) >> 16;
        let wait = self.pace.span(missing.unsigned_abs());
        let wait = nanoseconds(wait.saturating_sub(there));
        now.saturating_add(wait).saturating_add(1)
    }
}

/// Storage of an inflow, one of two: one is written while the other is read.
pub struct InflowCell {
    base: AtomicWord,
    start: AtomicWord,
    speed: AtomicWord,
    pace: AtomicWord,
}

impl InflowCell {
    /// Creates a cell that holds `course`.
    pub fn new(course: &Inflow) -> Self {
        Self {
            base: AtomicWord::new(course.base),
            start: AtomicWord::new(course.start),
            speed: AtomicWord::new(course.speed),
            pace: AtomicWord::new(course.pace.word()),
        }
    }

    /// Returns the inflow; a mixture of two inflows if written concurrently.
    #[inline]
    pub fn load(&self) -> Inflow {
        Inflow {
            base: self.base.get(),
            start: self.start.get(),
            speed: self.speed.get(),
            pace: Pace::from_word(self.pace.get()),
        }
    }

    /// Stores `course`.
    pub fn store(&self, course: &Inflow) {
        self.base.set(course.base);
        self.start.set(course.start);
        self.speed.set(course.speed);
        self.pace.set(course.pace.word());
    }
}
