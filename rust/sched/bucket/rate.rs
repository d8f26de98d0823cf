// SPDX-License-Identifier: GPL-2.0-only

//! Rates of buckets: units, paces and credits.

use super::{span, Charge, Pace};
use crate::sched::{
    item::Cost,
    rules::{Burst, Rate, BURST_MAX},
    units::NSEC_PER_SEC,
};

/// Maximum credit of an idle class, in ticks of its rate.
const BURST_LONGEST: u64 = span(NSEC_PER_SEC * BURST_MAX as u64);

/// Bytes per token of the depth if a rate is in bytes.
const DEPTH_BYTES: u64 = 4096;

/// Unit that a rate counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateUnit {
    /// Requests.
    Requests,
    /// Pages, at least one per request.
    Pages,
    /// Bytes; a request without data is free.
    Bytes,
}

/// Number of units.
pub const COUNTS: usize = 3;

impl RateUnit {
    /// Returns the number of tokens for a request that costs `cost`.
    #[inline]
    pub fn of(self, cost: Cost) -> u64 {
        match self {
            Self::Requests => u64::from(!cost.is_piece),
            Self::Pages => u64::from(cost.pages.max(1)),
            Self::Bytes => cost.bytes,
        }
    }

    /// Returns the number of tokens for `depth`.
    fn depth(self, depth: u32) -> u64 {
        let depth = u64::from(depth);
        match self {
            Self::Requests | Self::Pages => depth,
            Self::Bytes => depth.saturating_mul(DEPTH_BYTES),
        }
    }

    /// Returns the name that statistics show.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Pages => "pages",
            Self::Bytes => "bytes",
        }
    }
}

/// Rate and depth of a bucket.
#[derive(Clone, Copy, Debug)]
pub struct RateDepth {
    pace: Pace,
    count: RateUnit,
    /// Maximum credit of an idle class, ticks.
    pub window: u64,
    /// Duration of one request or page of the depth, or of 4096 bytes, ticks. The number of units
    /// in a bucket stays the same when rate, depth or unit change.
    pub unit: u64,
}

impl RateDepth {
    /// Creates the rate and depth of a bucket whose rate counts `count`: the credit is `burst`, or
    /// `depth` requests, pages or 4096 bytes.
    pub fn new(rate: Rate, count: RateUnit, depth: u32, burst: Option<Burst>) -> Self {
        let pace = Pace::new(rate.per_second());
        Self {
            pace,
            count,
            window: match burst {
                None => pace.span(count.depth(depth)),
                Some(Burst::Seconds(seconds)) => span(NSEC_PER_SEC.saturating_mul(seconds.into())),
                Some(Burst::Amount(amount)) => pace.span(amount.per_second()).min(BURST_LONGEST),
            },
            unit: pace.span(count.depth(1)),
        }
    }

    /// Returns the unit that the rate counts.
    pub const fn count(&self) -> RateUnit {
        self.count
    }

    /// Returns the charge for a request that costs `cost`.
    #[inline]
    pub fn charge(&self, cost: Cost) -> Charge {
        Charge::new(self.pace, self.count.of(cost), self.window)
    }
}
