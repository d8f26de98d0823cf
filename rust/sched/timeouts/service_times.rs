// SPDX-License-Identifier: GPL-2.0-only

//! Service times of a client or a partition, and the timeout derived from them over time.

use super::{
    estimator::{Estimator, EstimatorView, SampleFilter},
    terms::TimeoutTerms,
};

/// History of service times, under the terms of its service.
pub struct ServiceTimes {
    estimator: Estimator,
    terms: TimeoutTerms,
}

/// Timeout at one instant, and the conditions under which it can change.
#[derive(Clone, Copy, Debug)]
pub struct Outlook {
    /// Estimate and its bins.
    pub seen: EstimatorView,
    /// Samples that change nothing.
    pub filter: SampleFilter,
    /// Timeout, ms; 0 if there are no deadlines.
    pub timeout: u32,
    /// Timeout while a discard, a secure erase or a write of zeroes is in flight, ms; it follows
    /// from a service time of `at_max`.
    pub longest: u32,
}

impl ServiceTimes {
    /// Creates a history without samples.
    pub fn new() -> Self {
        Self {
            estimator: Estimator::new(),
            terms: TimeoutTerms::default(),
        }
    }

    /// Sets the terms to `terms`.
    pub fn set_terms(&mut self, terms: &TimeoutTerms) {
        self.terms = *terms;
    }

    /// Records a sample of `service` ms at `now`, or none if `service` is 0; returns the resulting
    /// timeout.
    pub fn measure(&mut self, service: u32, now: u64) -> Outlook {
        let rule = self.terms.rule();
        self.estimator.measure(service, now, &rule);
        let seen = self.estimator.seen(now, &rule);
        Outlook {
            seen,
            filter: self.estimator.filter(now, &rule),
            timeout: self.terms.timeout(seen.current),
            longest: self.terms.timeout(u32::MAX),
        }
    }
}

impl Outlook {
    /// Returns the time of the next check, ms, of a device that has owed a completion since `owed`.
    /// Returns `None` if the device is lost at `now`. With `lengthy`, a request with the timeout
    /// [`Self::longest`] is in flight.
    pub fn next_check(&self, owed: u64, lengthy: bool, now: u64) -> Option<u64> {
        let timeout = if lengthy { self.longest } else { self.timeout };
        let end = owed.saturating_add(timeout.into());
        // The timeout can become shorter before that: samples expire, or a lengthy request ends.
        let soon = now.saturating_add(self.timeout.into());
        (now < end).then(|| end.min(soon).min(self.filter.until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::timeouts::{
        in_flight::Submitted,
        terms::{AtEstimator, AtHistory, AtIncrement, AtMax, AtMin, ObdTimeout},
    };

    /// Milliseconds per second.
    const S: u64 = 1000;

    /// Creates a history of 8 s in bins of 2 s, with timeouts of at least 1.25 s.
    fn quick() -> ServiceTimes {
        let mut times = ServiceTimes::new();
        times.set_terms(&TimeoutTerms {
            min: AtMin::new(1).unwrap(),
            history: AtHistory::new(8).unwrap(),
            increment: AtIncrement::new(0).unwrap(),
            ..TimeoutTerms::default()
        });
        times
    }

    /// Checks a device that has owed a completion since `owed` until the device is lost; returns
    /// that time, ms.
    fn lost_at(times: &mut ServiceTimes, owed: u64, lengthy: impl Fn(u64) -> bool) -> u64 {
        let mut now = owed;
        while let Some(look) = times.measure(0, now).next_check(owed, lengthy(now), now) {
            assert!(look > now);
            now = look;
        }
        now
    }

    /// Checks that a device that was slow, and then idle for a whole history, is lost after the
    /// minimum timeout. The timer of an idle device is never armed for later than the expiry of the
    /// history.
    #[test]
    fn an_idle_device_forgets_its_congestion() {
        let mut times = quick();
        let slow = times.measure(60_000, 100 * S);
        assert_eq!((slow.seen.current, slow.timeout), (60_000, 75_000));
        // The timer was armed by a request that ended soon after.
        let armed = slow.next_check(100 * S, false, 100 * S).unwrap();
        assert!(armed <= 102 * S, "armed for {armed}");
        let idle = times.measure(0, 108 * S);
        assert_eq!((idle.seen.current, idle.timeout), (1000, 1250));
        assert_eq!(lost_at(&mut times, 109 * S, |_| false), 110 * S + 250);
    }

    /// Checks that a device that owes a completion while its history expires is lost as soon as the
    /// shorter timeout has passed.
    #[test]
    fn a_history_ages_while_a_device_is_silent() {
        let mut times = quick();
        times.measure(60_000, 100 * S);
        times.measure(2_000, 107 * S);
        // The worst sample expires at 108 s, the other sample at 114 s.
        assert_eq!(lost_at(&mut times, 107 * S, |_| false), 109 * S + 500);
    }

    /// Checks that a discard has the timeout of `at_max`, and later requests their normal timeout.
    #[test]
    fn a_lengthy_request_loses_no_device() {
        let mut times = quick();
        assert_eq!(lost_at(&mut times, 100 * S, |_| true), 850 * S);
        times.measure(1, 900 * S);
        assert_eq!(lost_at(&mut times, 900 * S, |_| false), 901 * S + 250);
        // The lengthy request ends at 950 s; another request is owed since then.
        let first = times.measure(0, 900 * S).next_check(900 * S, true, 900 * S);
        assert!(first.is_some_and(|look| look <= 901 * S + 250), "{first:?}");
    }

    /// Checks that a request in flight while the clock jumped by hours, as after a pause of a
    /// virtual machine, raises the timeout to that of `at_max`, for one history.
    #[test]
    fn a_jump_of_the_clock_is_forgotten() {
        for &estimator in AtEstimator::ALL {
            let mut times = quick();
            times.terms.estimator = estimator;
            let usual = times.measure(5, 100 * S).timeout;
            for hours in [1, 5, 500] {
                let now = 100 * S + hours * 3_600 * S;
                let jumped = times.measure(Submitted::at(100 * S).elapsed(now), now);
                assert_eq!(jumped.timeout, jumped.longest, "{estimator} {hours} h");
                let later = times.measure(5, now + 8 * S);
                assert_eq!(later.timeout, usual, "{estimator} {hours} h");
            }
        }
    }

    #[test]
    fn without_deadlines_no_look_is_due() {
        let mut times = ServiceTimes::new();
        times.set_terms(&TimeoutTerms {
            max: AtMax::new(0).unwrap(),
            fixed: ObdTimeout::new(0).unwrap(),
            ..TimeoutTerms::default()
        });
        let off = times.measure(5, 7);
        assert_eq!((off.timeout, off.longest), (0, 0));
        assert_eq!(off.next_check(7, true, 7), None);
    }
}
