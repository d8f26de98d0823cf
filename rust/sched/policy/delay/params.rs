// SPDX-License-Identifier: GPL-2.0-only

//! Parameters of `delay`: limits and a percentage for each head.

use crate::sched::{
    error::{Error, Result},
    parameters::schema::parameters,
    policy::{params::BufferMax, Tuning},
};

parameters! {
    /// Parameters of the policy.
    ///
    /// # Invariants
    ///
    /// On each head `min` is at most `max` ([`Tuning::check`]). If `min` is above `max`, delays are
    /// exactly `min`.
    pub struct Tunables of |values| values.policies.delay, "delay.md", "ENOMEM" {
        /// Shortest delay.
        "nrs_delay_min" min: [heads "delay_min" number Min,
            "s, ", 0..=65_535 = 5, " and at most nrs_delay_max"],
        /// Longest delay.
        "nrs_delay_max" max: [heads "delay_max" number Max,
            "s, ", 0..=65_535 = 300, " and at least nrs_delay_min"],
        /// Delayed requests per 100.
        "nrs_delay_pct" pct: [heads "delay_pct" number Pct, "percent, ", 0..=100 = 100],
    }
    also {
        /// Largest number of delayed requests that are sorted by the end of their delay.
        buffer_max: BufferMax,
    }
    texts {}
}

impl Tuning for Tunables {
    /// Checks that on each head the shortest delay is at most the longest one.
    fn check(&self) -> Result {
        let ordered = |min: Min, max: Max| min.get() <= max.get();
        if ordered(self.min.regular, self.max.regular) && ordered(self.min.high, self.max.high) {
            Ok(())
        } else {
            Err(Error::invalid("nrs_delay_min exceeds nrs_delay_max"))
        }
    }

    fn set_buffer_max(&mut self, max: BufferMax) {
        self.buffer_max = max;
    }
}
