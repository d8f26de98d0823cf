// SPDX-License-Identifier: GPL-2.0-only

//! How a part was started: the parameters of that time, and for which head.

use super::params::Tunables;
use crate::sched::{
    attr::Priority,
    policy::{NoArgument, Simple},
    rng::Rng,
    units::NSEC_PER_SEC,
};

/// Which requests a part delays, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Shortest delay, ns.
    min: u64,
    /// By how much the longest delay is longer, ns.
    span: u64,
    /// Requests in a hundred that are delayed.
    pct: u32,
}

impl Setting {
    /// Delays of `min` to `max` seconds for `pct` requests in a hundred.
    pub const fn new(min: u32, max: u32, pct: u32) -> Self {
        Self {
            min: (min as u64).saturating_mul(NSEC_PER_SEC),
            span: (max.saturating_sub(min) as u64).saturating_mul(NSEC_PER_SEC),
            pct,
        }
    }

    /// Whether any request is delayed.
    pub const fn delays(&self) -> bool {
        self.pct > 0
    }

    /// The delay of a request, ns; none if it is not delayed.
    pub fn draw(&self, rng: &mut Rng) -> Option<u64> {
        if rng.below(100) >= u64::from(self.pct) {
            return None;
        }
        // The span is below 2^46.
        let more = rng.below(self.span.saturating_add(1));
        Some(self.min.saturating_add(more))
    }
}

/// What a part is told when parameters change; it holds for requests that come later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update(pub Setting);

impl Simple for Tunables {
    type Update = Update;

    fn update_to(&self, new: &Self, priority: Priority) -> Option<Update> {
        (self.buffer_max == new.buffer_max).then(|| Update(new.setting(priority)))
    }
}

/// How a part is started.
pub type Config = NoArgument<Tunables>;

impl Tunables {
    /// Which requests are delayed on the head of `priority`, and for how long.
    pub const fn setting(&self, priority: Priority) -> Setting {
        Setting::new(
            self.min.of(priority).get(),
            self.max.of(priority).get(),
            self.pct.of(priority).get(),
        )
    }
}
