// SPDX-License-Identifier: GPL-2.0-only

//! Parameters of adaptive timeouts.
//!
//! Names and defaults are those of Lustre, if it has the parameter. The initial estimate and the
//! increment are from Barton and Rutman, *Adaptive RPC Timeouts*, 2007, who also propose the
//! average.

use super::estimator::EstimateRule;
use crate::sched::{
    error::{Error, Result},
    parameters::schema::parameters,
    units::MSEC_PER_SEC,
};

parameters! {
    /// Values of the timeouts of one service.
    pub struct TimeoutTerms of |values| values.timeouts, "adaptive-timeouts.md", "" {
        /// Minimum estimate of the service time.
        "at_min" min: [number AtMin, "s, ", 1..=3600 = 5, " and at most at_max"],
        /// Maximum estimate, and limit of early replies.
        "at_max" max: [number AtMax, "s, ", 0..=3600 = 600, "; 0: timeouts are fixed"],
        /// Window of service times.
        "at_history" history: [number AtHistory, "s, ", 4..=3600 = 600],
        /// Time granted by an early reply.
        "at_extra" extra: [number AtExtra, "s, ", 1..=3600 = 30, " and at most at_max"],
        /// Time from an early reply to the deadline.
        "at_early_margin" early_margin: [number AtEarlyMargin,
            "s, ", 1..=3600 = 5, " and at most at_min"],
        /// Timeout as a percentage of the estimate.
        "at_factor" factor: [number AtFactor, "percent, ", 100..=1000 = 125],
        /// Time added to the timeout.
        "at_increment" increment: [number AtIncrement, "s, ", 0..=600 = 5],
        /// Estimate before the first completion.
        "at_initial" initial: [number AtInitial, "s, ", 1..=3600 = 10],
        /// Margin above the mean with at_estimator average.
        "at_deviations" deviations: [number AtDeviations, "standard deviations, ", 1..=100 = 4],
        /// Estimator of service times.
        "at_estimator" estimator: [choice AtEstimator,
            /// Worst service time of the history.
            #[default]
            Worst = "worst",
            /// Mean of the history plus at_deviations standard deviations.
            Average = "average",
        ],
        /// 1 adds policy delays to service times.
        "at_count_policy_delay" count_policy_delay: [choice AtCountPolicyDelay,
            /// Policy delays are excluded: a rate limit does not extend the timeouts of other
            /// requests.
            #[default]
            Off = "0",
            /// Policy delays are included.
            On = "1",
        ],
        /// Fixed timeout while at_max is 0.
        "obd_timeout" fixed: [number ObdTimeout, "s, ", 0..=3600 = 100, "; 0: none"],
    }
    also {}
    texts {
        /// Estimates of service times.
        "timeouts" Read "a line per partition", "", "", None;
        /// Timeouts of clients.
        "client_timeouts" Read "lines per block device", "", "", None;
        /// Counters of early replies, timeouts and lost devices.
        "at_stats" Read "YAML", "", "", None;
        /// Resets the counters of at_stats.
        "at_stats_reset" Write "any text", "", "", None;
    }
}

/// Mode of timeouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutMode {
    /// Timeouts follow the estimate.
    Adaptive,
    /// All timeouts are equal.
    Fixed,
    /// There are no timeouts.
    Off,
}

impl TimeoutTerms {
    /// Checks that the terms do not contradict each other.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: `at_min` or `at_extra` is above a nonzero `at_max`, or `at_early_margin` is
    ///   above `at_min`.
    pub fn check(&self) -> Result {
        let adaptive = self.mode() == TimeoutMode::Adaptive;
        let wrong = if adaptive && self.min.get() > self.max.get() {
            "at_min exceeds at_max"
        } else if adaptive && self.extra.get() > self.max.get() {
            "at_extra exceeds at_max"
        } else if self.early_margin.get() > self.min.get() {
            "at_early_margin exceeds at_min"
        } else {
            return Ok(());
        };
        Err(Error::invalid(wrong))
    }

    /// Returns the mode of timeouts.
    #[inline]
    pub const fn mode(&self) -> TimeoutMode {
        if self.max.get() != 0 {
            TimeoutMode::Adaptive
        } else if self.fixed.get() != 0 {
            TimeoutMode::Fixed
        } else {
            TimeoutMode::Off
        }
    }

    /// Returns the rule of the estimator.
    pub fn rule(&self) -> EstimateRule {
        EstimateRule {
            min_ms: millis(self.min.get()),
            max_ms: match self.max.get() {
                0 => u32::MAX,
                max => millis(max),
            },
            history_ms: millis(self.history.get()),
            initial_ms: millis(self.initial.get()),
            deviations: match self.estimator {
                AtEstimator::Worst => None,
                AtEstimator::Average => Some(self.deviations.get()),
            },
            factor: self.factor.get(),
            increment_ms: millis(self.increment.get()),
        }
    }

    /// Returns the timeout for a service with `estimate`, ms, without network time; 0 for no
    /// timeout.
    pub fn timeout(&self, estimate: u32) -> u32 {
        match self.mode() {
            TimeoutMode::Adaptive => self.rule().timeout(estimate),
            TimeoutMode::Fixed => millis(self.fixed.get()),
            TimeoutMode::Off => 0,
        }
    }
}

/// Returns `seconds` in milliseconds.
pub const fn millis(seconds: u32) -> u32 {
    seconds.saturating_mul(MSEC_PER_SEC as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::error::Code;

    /// Returns terms with these parameters, s; all others have their defaults.
    fn terms(min: u32, max: u32, extra: u32, margin: u32, fixed: u32) -> TimeoutTerms {
        TimeoutTerms {
            min: AtMin::new(min).unwrap(),
            max: AtMax::new(max).unwrap(),
            extra: AtExtra::new(extra).unwrap(),
            early_margin: AtEarlyMargin::new(margin).unwrap(),
            fixed: ObdTimeout::new(fixed).unwrap(),
            ..TimeoutTerms::default()
        }
    }

    #[test]
    fn rules() {
        assert_eq!(TimeoutTerms::default().check(), Ok(()));
        assert_eq!(TimeoutTerms::default().rule(), EstimateRule::default());
        let unbounded = TimeoutTerms {
            estimator: AtEstimator::Average,
            ..terms(5, 0, 30, 5, 100)
        };
        let rule = unbounded.rule();
        assert_eq!((rule.max_ms, rule.deviations), (u32::MAX, Some(4)));
    }

    #[test]
    fn what_goes_together() {
        for (min, max, extra, margin, wrong) in [
            (5, 600, 30, 5, None),
            (600, 600, 600, 600, None),
            (601, 600, 30, 5, Some("at_min exceeds at_max")),
            (5, 29, 30, 5, Some("at_extra exceeds at_max")),
            (5, 30, 30, 5, None),
            (4, 600, 30, 5, Some("at_early_margin exceeds at_min")),
            // Without adaptive timeouts, `at_max` limits neither.
            (601, 0, 3600, 5, None),
            (4, 0, 30, 5, Some("at_early_margin exceeds at_min")),
        ] {
            let checked = terms(min, max, extra, margin, 100).check();
            let reason = checked.err().map(|error| error.reason);
            assert_eq!(reason, wrong, "{min} {max} {extra} {margin}");
            assert!(checked.is_ok() || checked.is_err_and(|e| e.code == Code::Invalid));
        }
    }

    #[test]
    fn timeouts() {
        for (max, fixed, mode, want) in [
            (600, 100, TimeoutMode::Adaptive, 46_250),
            (0, 100, TimeoutMode::Fixed, 100_000),
            (0, 0, TimeoutMode::Off, 0),
        ] {
            let terms = terms(5, max, 30, 5, fixed);
            assert_eq!((terms.mode(), terms.timeout(33_000)), (mode, want));
        }
    }
}
