// SPDX-License-Identifier: GPL-2.0-only

//! The service times of a client or a partition, and the timeout that follows as time passes.

use super::{
    estimator::{Estimator, Filter, Seen},
    terms::Terms,
};

/// A history of service times, under the terms of its service.
pub struct ServiceTimes {
    estimator: Estimator,
    terms: Terms,
}

/// The timeout at one instant, and what can change it.
#[derive(Clone, Copy, Debug)]
pub struct Outlook {
    /// The estimate and its bins.
    pub seen: Seen,
    /// Samples that change nothing.
    pub filter: Filter,
    /// Timeout, ms; 0: there are no deadlines.
    pub timeout: u32,
    /// Timeout while a discard, a secure erase or a write of zeroes is in flight, ms: that of a service time of `at_max`.
    pub longest: u32,
}

impl ServiceTimes {
    /// Creates a history without samples.
    pub fn new() -> Self {
        Self {
            estimator: Estimator::new(),
            terms: Terms::default(),
        }
    }

    /// Follows `terms` from now on.
    pub fn follow(&mut self, terms: &Terms) {
        self.terms = *terms;
    }

    /// Takes a sample of `service` ms at `now`, or none if it is 0; returns what follows.
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
    /// Returns when to look again at a device that has owed a completion since `owed`, ms; `None`: the device is lost
    /// at `now`. `lengthy`: a request that [`Self::longest`] is for is in flight.
    pub fn next_look(&self, owed: u64, lengthy: bool, now: u64) -> Option<u64> {
        let timeout = if lengthy { self.longest } else { self.timeout };
        let end = owed.saturating_add(timeout.into());
        // The timeout can become shorter before that: samples are forgotten, a lengthy request ends.
        let soon = now.saturating_add(self.timeout.into());
        (now < end).then(|| end.min(soon).min(self.filter.until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::timeouts::terms::{AtHistory, AtIncrement, AtMax, AtMin, ObdTimeout};

    /// Milliseconds of a second.
    const S: u64 = 1000;

    /// Timeouts of 1.25 s at least, a history of 8 s in bins of 2 s.
    fn quick() -> ServiceTimes {
        let mut times = ServiceTimes::new();
        times.follow(&Terms {
            min: AtMin::new(1).unwrap(),
            history: AtHistory::new(8).unwrap(),
            increment: AtIncrement::new(0).unwrap(),
            ..Terms::default()
        });
        times
    }

    /// Looks at a device that has owed a completion since `owed` until the device is lost; returns when, ms.
    fn lost_at(times: &mut ServiceTimes, owed: u64, lengthy: impl Fn(u64) -> bool) -> u64 {
        let mut now = owed;
        while let Some(look) = times.measure(0, now).next_look(owed, lengthy(now), now) {
            assert!(look > now);
            now = look;
        }
        now
    }

    /// A device that was slow, and idle for a whole history, is lost after the least timeout: when idle no timer is
    /// armed for later than the history ages.
    #[test]
    fn an_idle_device_forgets_its_congestion() {
        let mut times = quick();
        let slow = times.measure(60_000, 100 * S);
        assert_eq!((slow.seen.current, slow.timeout), (60_000, 75_000));
        // Armed by a request that ended soon after.
        let armed = slow.next_look(100 * S, false, 100 * S).unwrap();
        assert!(armed <= 102 * S, "armed for {armed}");
        let idle = times.measure(0, 108 * S);
        assert_eq!((idle.seen.current, idle.timeout), (1000, 1250));
        assert_eq!(lost_at(&mut times, 109 * S, |_| false), 110 * S + 250);
    }

    /// A device that owes a completion while its history ages is lost as soon as the shorter timeout is over.
    #[test]
    fn a_history_ages_while_a_device_is_silent() {
        let mut times = quick();
        times.measure(60_000, 100 * S);
        times.measure(2_000, 107 * S);
        // The worst sample is forgotten at 108 s, the other one at 114 s.
        assert_eq!(lost_at(&mut times, 107 * S, |_| false), 109 * S + 500);
    }

    /// A discard has as much time as `at_max` gives, the requests after it their own again.
    #[test]
    fn a_lengthy_request_loses_no_device() {
        let mut times = quick();
        assert_eq!(lost_at(&mut times, 100 * S, |_| true), 850 * S);
        times.measure(1, 900 * S);
        assert_eq!(lost_at(&mut times, 900 * S, |_| false), 901 * S + 250);
        // The lengthy one ends at 950 s, another one is owed since then.
        let first = times.measure(0, 900 * S).next_look(900 * S, true, 900 * S);
        assert!(first.is_some_and(|look| look <= 901 * S + 250), "{first:?}");
    }

    #[test]
    fn without_deadlines_no_look_is_due() {
        let mut times = ServiceTimes::new();
        times.follow(&Terms {
            max: AtMax::new(0).unwrap(),
            fixed: ObdTimeout::new(0).unwrap(),
            ..Terms::default()
        });
        let off = times.measure(5, 7);
        assert_eq!((off.timeout, off.longest), (0, 0));
        assert_eq!(off.next_look(7, true, 7), None);
    }
}
