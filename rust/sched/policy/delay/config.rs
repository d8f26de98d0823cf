// SPDX-License-Identifier: GPL-2.0-only

//! Configuration of a part: the parameters at the start, and the head.

use super::params::Tunables;
use crate::sched::{
    attr::Priority,
    policy::{NoArgument, Simple},
    rng::Rng,
    units::NSEC_PER_SEC,
};

/// Delays of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Shortest delay, ns.
    min: u64,
    /// Longest delay minus shortest delay, ns.
    span: u64,
    /// Percentage of requests that are delayed.
    pct: u32,
}

impl Setting {
    /// Creates a setting with delays of `min` to `max` seconds for `pct` percent of the requests.
    pub const fn new(min: u32, max: u32, pct: u32) -> Self {
        Self {
            min: (min as u64).saturating_mul(NSEC_PER_SEC),
            span: (max.saturating_sub(min) as u64).saturating_mul(NSEC_PER_SEC),
            pct,
        }
    }

    /// Returns true if any request is delayed.
    pub const fn delays(&self) -> bool {
        self.pct > 0
    }

    /// Draws the delay of a request, ns; `None` if the request is not delayed.
    pub fn draw(&self, rng: &mut Rng) -> Option<u64> {
        if rng.below(100) >= u64::from(self.pct) {
            return None;
        }
        // The span is below 2^46.
        let more = rng.below(self.span.saturating_add(1));
        Some(self.min.saturating_add(more))
    }
}

/// Change of parameters of a running part; applies to later requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update(pub Setting);

impl Simple for Tunables {
    type Update = Update;

    fn update_to(&self, new: &Self, priority: Priority) -> Option<Update> {
        (self.buffer_max == new.buffer_max).then(|| Update(new.setting(priority)))
    }
}

/// Configuration of a part.
pub type Config = NoArgument<Tunables>;

impl Tunables {
    /// Returns the delays on the head of `priority`.
    pub const fn setting(&self, priority: Priority) -> Setting {
        Setting::new(
            self.min.of(priority).get(),
            self.max.of(priority).get(),
            self.pct.of(priority).get(),
        )
    }
}
