// SPDX-License-Identifier: GPL-2.0-only

//! What users set of `delay`: bounds and a percentage for each head.

use crate::sched::{
    error::{Error, Result},
    parameters::schema::parameters,
    policy::{params::BufferMax, Tuning},
};

parameters! {
    /// What users can set.
    ///
    /// # Invariants
    ///
    /// On each head `min` is at most `max` ([`Tuning::check`]); whoever sets the fields otherwise gets delays of
    /// `min` exactly.
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
        /// Delayed requests that are ordered by the end of their delay.
        buffer_max: BufferMax,
    }
    texts {}
}

impl Tuning for Tunables {
    /// On each head the shortest delay is at most the longest one.
    fn check(&self) -> Result {
        let ordered = |min: Min, max: Max| min.get() <= max.get();
        if ordered(self.min.regular, self.max.regular) && ordered(self.min.high, self.max.high) {
            Ok(())
        } else {
            Err(Error::invalid("nrs_delay_min would be above nrs_delay_max"))
        }
    }

    fn set_buffer_max(&mut self, max: BufferMax) {
        self.buffer_max = max;
    }
}
