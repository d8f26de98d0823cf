// SPDX-License-Identifier: GPL-2.0-only

//! What users set of adaptive timeouts.
//!
//! # Vocabulary
//!
//! - *Terms*: all that is set of one service ([`Terms`]).
//! - *Mode*: whether timeouts adapt, are fixed, or are not there ([`Mode`]).
//!
//! Names and defaults are Lustre's, where it has them; the initial estimate and the increment are those of
//! Barton and Rutman, *Adaptive RPC Timeouts*, 2007, who also name the average.

use crate::sched::{
    error::{Error, Result},
    parameters::schema::parameters,
    units::MSEC_PER_SEC,
};

parameters! {
    /// What is set of one service.
    pub struct Terms of |values| values.timeouts, "adaptive-timeouts.md", "" {
        /// Least estimate of what a request takes.
        "at_min" min: [number AtMin, "s, ", 1..=3600 = 5, " and at most at_max"],
        /// Largest estimate, and how long early replies can hold a client.
        "at_max" max: [number AtMax, "s, ", 0..=3600 = 600, "; 0: timeouts are fixed"],
        /// How long a service time counts.
        "at_history" history: [number AtHistory, "s, ", 4..=3600 = 600],
        /// What an early reply grants.
        "at_extra" extra: [number AtExtra, "s, ", 1..=3600 = 30, " and at most at_max"],
        /// How long before a deadline an early reply is sent.
        "at_early_margin" early_margin: [number AtEarlyMargin,
            "s, ", 1..=3600 = 5, " and at most at_min"],
        /// What an estimate is multiplied with for a timeout.
        "at_factor" factor: [number AtFactor, "percent, ", 100..=1000 = 125],
        /// What is added to that.
        "at_increment" increment: [number AtIncrement, "s, ", 0..=600 = 5],
        /// Estimate of a service that has served nothing.
        "at_initial" initial: [number AtInitial, "s, ", 1..=3600 = 10],
        /// How far above the mean the estimate is if at_estimator is average.
        "at_deviations" deviations: [number AtDeviations, "standard deviations, ", 1..=100 = 4],
        /// How the estimate is made of service times.
        "at_estimator" estimator: [choice AtEstimator,
            /// The worst one of the history.
            #[default]
            Worst = "worst",
            /// The mean of the history and some standard deviations.
            Average = "average",
        ],
        /// Whether time for which a policy keeps requests on purpose counts.
        "at_count_policy_delay" count_policy_delay: [choice AtCountPolicyDelay,
            /// It is not: a rate limit makes nobody wait longer for others.
            #[default]
            Off = "0",
            /// It is.
            On = "1",
        ],
        /// The fixed timeout while at_max is 0.
        "obd_timeout" fixed: [number ObdTimeout, "s, ", 0..=3600 = 100, "; 0: none"],
    }
    also {}
    texts {
        /// What requests take.
        "timeouts" Read "a line per partition", "", "", None;
        /// How long clients wait.
        "client_timeouts" Read "lines per block device", "", "", None;
        /// Early replies, timeouts, devices given up.
        "at_stats" Read "YAML", "", "", None;
        /// Sets the counters of at_stats to zero.
        "at_stats_reset" Write "anything", "", "", None;
    }
}

/// Whether timeouts adapt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// They follow the estimate.
    Adaptive,
    /// All are the same.
    Fixed,
    /// There are none.
    Off,
}

impl Terms {
    /// Whether the terms go together.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: `at_min` or `at_extra` is above `at_max` and that is not 0, or `at_early_margin` is above
    ///   `at_min`.
    pub fn check(&self) -> Result {
        let adaptive = self.mode() == Mode::Adaptive;
        let wrong = if adaptive && self.min.get() > self.max.get() {
            "at_min would be above at_max"
        } else if adaptive && self.extra.get() > self.max.get() {
            "at_extra would be above at_max"
        } else if self.early_margin.get() > self.min.get() {
            "at_early_margin would be above at_min"
        } else {
            return Ok(());
        };
        Err(Error::invalid(wrong))
    }

    /// Whether timeouts adapt.
    #[inline]
    pub const fn mode(&self) -> Mode {
        if self.max.get() != 0 {
            Mode::Adaptive
        } else if self.fixed.get() != 0 {
            Mode::Fixed
        } else {
            Mode::Off
        }
    }

    /// `estimate` within `at_min` and `at_max`, ms; the longer one counts where they contradict.
    pub const fn clamp(&self, estimate: u32) -> u32 {
        let (min, max) = (millis(self.min.get()), millis(self.max.get()));
        if estimate < min {
            min
        } else if max != 0 && estimate > max {
            if max > min {
                max
            } else {
                min
            }
        } else {
            estimate
        }
    }

    /// How long a client waits for a service of that `estimate`, ms, without what the network takes; 0: for
    /// ever.
    ///
    /// The estimate times `at_factor` plus `at_increment`, or `obd_timeout`.
    pub fn timeout(&self, estimate: u32) -> u32 {
        match self.mode() {
            Mode::Adaptive => {
                // Below 2^32 * 1000.
                let scaled =
                    u64::from(self.clamp(estimate)).saturating_mul(self.factor.get().into());
                // At most 3600 s * 10.
                let scaled = u32::try_from(scaled / 100).unwrap_or(u32::MAX);
                scaled.saturating_add(millis(self.increment.get()))
            }
            Mode::Fixed => millis(self.fixed.get()),
            Mode::Off => 0,
        }
    }
}

/// Milliseconds of `seconds`.
pub const fn millis(seconds: u32) -> u32 {
    seconds.saturating_mul(MSEC_PER_SEC as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::error::Code;

    /// Terms with these tunables, s; what is `None` is as by default.
    fn terms(min: u32, max: u32, extra: u32, margin: u32, fixed: u32) -> Terms {
        Terms {
            min: AtMin::new(min).unwrap(),
            max: AtMax::new(max).unwrap(),
            extra: AtExtra::new(extra).unwrap(),
            early_margin: AtEarlyMargin::new(margin).unwrap(),
            fixed: ObdTimeout::new(fixed).unwrap(),
            ..Terms::default()
        }
    }

    #[test]
    fn numbers_by_default() {
        let terms = Terms::default();
        assert_eq!(terms.check(), Ok(()));
        assert_eq!(terms.mode(), Mode::Adaptive);
        for (text, want) in [
            (terms.min.to_string(), "5"),
            (terms.max.to_string(), "600"),
            (terms.history.to_string(), "600"),
            (terms.extra.to_string(), "30"),
            (terms.early_margin.to_string(), "5"),
            (terms.factor.to_string(), "125"),
            (terms.increment.to_string(), "5"),
            (terms.initial.to_string(), "10"),
            (terms.deviations.to_string(), "4"),
            (terms.estimator.to_string(), "worst"),
            (terms.count_policy_delay.to_string(), "0"),
            (terms.fixed.to_string(), "100"),
        ] {
            assert_eq!(text, want);
        }
    }

    #[test]
    fn limits() {
        fn limits<T>(new: impl Fn(u32) -> Option<T>, min: u32, max: u32) {
            assert!(new(min).is_some() && new(max).is_some());
            assert!(min == 0 || new(min - 1).is_none());
            assert!(new(max + 1).is_none() && new(u32::MAX).is_none());
        }
        limits(AtMin::new, 1, 3600);
        limits(AtMax::new, 0, 3600);
        limits(AtHistory::new, 4, 3600);
        limits(AtExtra::new, 1, 3600);
        limits(AtEarlyMargin::new, 1, 3600);
        limits(AtFactor::new, 100, 1000);
        limits(AtIncrement::new, 0, 600);
        limits(AtInitial::new, 1, 3600);
        limits(AtDeviations::new, 1, 100);
        limits(ObdTimeout::new, 0, 3600);
        for wrong in ["", "-1", "5s", "4294967296", "worst"] {
            assert!(AtMin::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(AtEstimator::parse("average\n"), Ok(AtEstimator::Average));
        assert!(AtEstimator::parse("total").is_err());
        assert_eq!(AtCountPolicyDelay::parse("1"), Ok(AtCountPolicyDelay::On));
        assert!(AtCountPolicyDelay::parse("2").is_err());
    }

    #[test]
    fn what_goes_together() {
        for (min, max, extra, margin, wrong) in [
            (5, 600, 30, 5, None),
            (600, 600, 600, 600, None),
            (601, 600, 30, 5, Some("at_min would be above at_max")),
            (5, 29, 30, 5, Some("at_extra would be above at_max")),
            (5, 30, 30, 5, None),
            (4, 600, 30, 5, Some("at_early_margin would be above at_min")),
            // Without adaptive timeouts there is nothing for these to be above.
            (601, 0, 3600, 5, None),
            (4, 0, 30, 5, Some("at_early_margin would be above at_min")),
        ] {
            let checked = terms(min, max, extra, margin, 100).check();
            let reason = checked.err().map(|error| error.reason);
            assert_eq!(reason, wrong, "{min} {max} {extra} {margin}");
            assert!(checked.is_ok() || checked.is_err_and(|e| e.code == Code::Invalid));
        }
    }

    #[test]
    fn timeouts() {
        let usual = Terms::default();
        for (terms, estimate, want) in [
            (usual, 10_000, 17_500),
            (usual, 33_000, 46_250),
            (usual, 600_000, 755_000),
            // Below at_min, above at_max, nothing, without end.
            (usual, 1, 11_250),
            (usual, 0, 11_250),
            (usual, 600_001, 755_000),
            (usual, u32::MAX, 755_000),
            (terms(5, 0, 30, 5, 100), 33_000, 100_000),
            (terms(5, 0, 30, 5, 0), 33_000, 0),
        ] {
            assert_eq!(terms.timeout(estimate), want, "{estimate}");
        }
        let longest = Terms {
            max: AtMax::new(3600).unwrap(),
            factor: AtFactor::new(1000).unwrap(),
            increment: AtIncrement::new(600).unwrap(),
            ..usual
        };
        assert_eq!(longest.timeout(u32::MAX), 36_600_000);
        // Fields that contradict each other.
        assert_eq!(terms(700, 600, 30, 5, 0).clamp(1), 700_000);
        assert_eq!(terms(700, 600, 30, 5, 0).clamp(u32::MAX), 700_000);
        // Without at_max there is no upper end.
        assert_eq!(terms(5, 0, 30, 5, 0).clamp(u32::MAX), u32::MAX);
    }
}
