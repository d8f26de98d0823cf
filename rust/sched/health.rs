// SPDX-License-Identifier: GPL-2.0-only

//! Health of a service, judged by progress.
//!
//! - Withheld request: queued but not eligible, because a policy throttles or delays it or an
//!   earlier request has to end first.
//! - Ready request: eligible and queued.
//! - Decision: dispatch of a request by a policy.
//! - Idle time: time since the last decision.
//!
//! A slow service is not unhealthy: the age of queued requests does not matter, only progress does.
//! A service is unhealthy only if a request was ready for longer than `at_max` and there was no
//! decision for longer than `at_max * factor`. A request that was withheld counts as ready only
//! from the end of that time.

use crate::sched::{timeouts::terms::AtMax, units::NSEC_PER_SEC};
use core::fmt;

/// Limits beyond which a service is unhealthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthLimits {
    at_max: u64,
    factor: u32,
}

impl HealthLimits {
    /// Creates limits: a request may be ready for `at_max`, and the idle time may be `factor` times
    /// as long. If `factor` is 0, no service is unhealthy. If `at_max` is 0 (timeouts are not
    /// adaptive), its default applies.
    pub fn new(at_max: AtMax, factor: u32) -> Self {
        let seconds = match at_max.get() {
            0 => AtMax::default().get(),
            seconds => seconds,
        };
        Self {
            // Below 2^62.
            at_max: u64::from(seconds).saturating_mul(NSEC_PER_SEC),
            factor,
        }
    }
}

/// State of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionHealth {
    /// Number of queued requests, including withheld ones.
    pub queued: u64,
    /// Time from which a request is ready, monotonic ns: its arrival, or the end of the time for
    /// which it was withheld. `None`: no request is ready.
    pub since: Option<u64>,
    /// Time of the last decision, or of the start of the service, monotonic ns.
    pub decided: u64,
}

/// Reason of a verdict, from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum HealthReason {
    /// Nothing is queued.
    Empty,
    /// All queued requests are withheld.
    Withheld,
    /// A request is ready, but for no longer than `at_max`.
    Ready,
    /// A request is ready for longer than `at_max`, but there are decisions.
    Slow,
    /// A request is ready for longer than `at_max`, but the check is disabled.
    Ignored,
    /// There are no decisions.
    Stuck,
}

/// Verdict with its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    reason: HealthReason,
    /// Number of queued requests.
    queued: u64,
    /// Time for which a request has been ready, ns.
    ready: u64,
    /// Idle time, ns.
    idle: u64,
}

impl Health {
    /// Returns true if the service makes progress or has nothing to do.
    pub const fn is_healthy(&self) -> bool {
        !matches!(self.reason, HealthReason::Stuck)
    }
}

/// Two lines: `healthy` or `NOT HEALTHY`, and the reason.
impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.is_healthy() {
            "healthy"
        } else {
            "NOT HEALTHY"
        };
        writeln!(f, "{word}\n{}", HealthDetails(self))
    }
}

/// Reason of a verdict, also of a healthy service, on one line.
pub struct HealthDetails<'a>(pub &'a Health);

impl fmt::Display for HealthDetails<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Health {
            queued,
            ready,
            idle,
            reason,
        } = self.0;
        let (ready, idle) = (ready / NSEC_PER_SEC, idle / NSEC_PER_SEC);
        match reason {
            HealthReason::Empty => f.write_str("nothing is queued"),
            HealthReason::Withheld => write!(f, "{queued} queued, all throttled or blocked"),
            reason => {
                let suffix = if *reason == HealthReason::Ignored {
                    ", check disabled"
                } else {
                    ""
                };
                write!(
                    f,
                    "{queued} queued, the first one ready for {ready} s, \
                     last decision {idle} s ago{suffix}"
                )
            }
        }
    }
}

/// Returns the verdict on one partition at `now`.
fn judge_one(one: PartitionHealth, limits: HealthLimits, now: u64) -> Health {
    let idle = now.saturating_sub(one.decided);
    let ready = one.since.map_or(0, |since| now.saturating_sub(since));
    let reason = if one.queued == 0 {
        HealthReason::Empty
    } else if one.since.is_none() {
        HealthReason::Withheld
    } else if ready <= limits.at_max {
        HealthReason::Ready
    } else if limits.factor == 0 {
        HealthReason::Ignored
    } else if idle <= limits.at_max.saturating_mul(limits.factor.into()) {
        HealthReason::Slow
    } else {
        HealthReason::Stuck
    };
    Health {
        reason,
        queued: one.queued,
        ready,
        idle,
    }
}

/// Returns the verdict on a service by its worst partition at `now`, monotonic ns. A clock that
/// seems to run backwards does not cause an unhealthy verdict.
pub fn judge(
    seen: impl IntoIterator<Item = PartitionHealth>,
    limits: HealthLimits,
    now: u64,
) -> Health {
    let nothing = Health {
        reason: HealthReason::Empty,
        queued: 0,
        ready: 0,
        idle: 0,
    };
    let judged = seen.into_iter().map(|one| judge_one(one, limits, now));
    judged.fold(nothing, |worst, other| {
        let queued = worst.queued.saturating_add(other.queued);
        let rank = |health: &Health| (health.reason, health.ready, health.idle);
        let worse = if rank(&other) > rank(&worst) {
            other
        } else {
            worst
        };
        Health { queued, ..worse }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000 * NSEC_PER_SEC;

    /// Creates the state of a partition with `queued` requests, the first one ready for `ready`
    /// seconds, the last decision `idle` seconds ago.
    fn seen(queued: u64, ready: Option<u64>, idle: u64) -> PartitionHealth {
        PartitionHealth {
            queued,
            since: ready.map(|ready| NOW - ready * NSEC_PER_SEC),
            decided: NOW - idle * NSEC_PER_SEC,
        }
    }

    fn limits(at_max: u32, factor: u32) -> HealthLimits {
        HealthLimits::new(AtMax::new(at_max).unwrap(), factor)
    }

    #[test]
    fn one_partition() {
        let far = 1_000_000;
        for (at_max, factor, queued, ready, idle, healthy) in [
            (600, 3, 0, None, far, true),
            (600, 3, 5, None, far, true),
            (600, 3, 5, Some(1), far, true),
            (600, 3, 5, Some(600), far, true),
            (600, 3, 5, Some(601), far, false),
            (600, 3, 5, Some(far), 0, true),
            (600, 3, 5, Some(far), 1800, true),
            (600, 3, 5, Some(far), 1801, false),
            (600, 1, 5, Some(601), 601, false),
            (600, 0, 5, Some(far), far, true),
            (1, 3, 5, Some(2), 4, false),
            (1, 3, 5, Some(1), 4, true),
            // Same as 600.
            (0, 3, 5, Some(601), 1800, true),
            (0, 3, 5, Some(601), 1801, false),
            // Limits that are never exceeded.
            (3600, u32::MAX, 5, Some(far), far, true),
        ] {
            let line = match ready {
                None if queued == 0 => "nothing is queued".to_string(),
                None => "5 queued, all throttled or blocked".to_string(),
                Some(ready) => {
                    let suffix = if factor == 0 { ", check disabled" } else { "" };
                    format!(
                        "5 queued, the first one ready for {ready} s, \
                         last decision {idle} s ago{suffix}"
                    )
                }
            };
            let health = judge([seen(queued, ready, idle)], limits(at_max, factor), NOW);
            let word = if healthy { "healthy" } else { "NOT HEALTHY" };
            assert_eq!(health.to_string(), format!("{word}\n{line}\n"));
            assert_eq!(health.is_healthy(), healthy, "{line}");
        }
    }

    #[test]
    fn the_worst_partition_decides() {
        let limits = limits(600, 3);
        let idle = seen(0, None, 9_000);
        let busy = seen(7, Some(2), 0);
        let held = seen(3, None, 9_000);
        let stuck = seen(2, Some(2_000), 2_000);
        for (parts, want) in [
            (&[][..], "healthy\nnothing is queued\n"),
            (
                &[idle, held][..],
                "healthy\n3 queued, all throttled or blocked\n",
            ),
            (
                &[busy, held, idle][..],
                "healthy\n10 queued, the first one ready for 2 s, last decision 0 s ago\n",
            ),
            (
                &[busy, stuck, held][..],
                "NOT HEALTHY\n12 queued, the first one ready for 2000 s, \
                 last decision 2000 s ago\n",
            ),
        ] {
            assert_eq!(judge(parts.iter().copied(), limits, NOW).to_string(), want);
        }
    }

    /// Checks times after `now`, which other CPUs may have recorded.
    #[test]
    fn the_future_is_healthy() {
        let limits = limits(1, 1);
        let ahead = PartitionHealth {
            queued: 1,
            since: Some(NOW + 5),
            decided: NOW + 9,
        };
        assert!(judge([ahead], limits, NOW).is_healthy());
        assert!(judge([ahead], limits, 0).is_healthy());
    }
}
