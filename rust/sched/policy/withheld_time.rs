// SPDX-License-Identifier: GPL-2.0-only

//! Throttling delay of requests, as opposed to the time in which they compete for slots.
//!
//! - *Front*: next request of a class.
//! - *Throttled*: a front is throttled while its rate forbids the dispatch; the requests behind the
//!   front are throttled, too.
//! - *Withheld time*: time from a request's arrival to the end of the last interval in which its
//!   class was throttled. The rest of the queueing time is due to the service.
//!
//! ```text
//!   arrival          front of its class        eligible           dispatched
//!      │ behind others      │ throttled           │ waits for a slot   │
//!      ├────────────────────┴─────────────────────┼────────────────────┤
//!      │◀─────────────── withheld ───────────────▶│
//! ```

use crate::sched::units::NSEC_PER_MSEC;

/// Returns the time from `arrival` to `until`, ns, as milliseconds; 0 if `until` is before the
/// arrival.
pub fn withheld(arrival: u64, until: u64) -> u32 {
    u32::try_from(until.saturating_sub(arrival) / NSEC_PER_MSEC).unwrap_or(u32::MAX)
}

/// End of the last interval in which a class was throttled.
#[derive(Clone, Copy, Debug, Default)]
pub struct WithheldUntil {
    until: u64,
}

impl WithheldUntil {
    /// Value for a class that was never throttled.
    pub const NEVER: Self = Self { until: 0 };

    /// Notes that the front, which arrived at `arrival`, is dispatched at `now`. The front became
    /// the front at `staged` and was not eligible before `due`. All times are monotonic, ns.
    /// Returns the withheld time of the front, ms.
    #[inline]
    pub fn front_goes(&mut self, staged: u64, due: u64, arrival: u64, now: u64) -> u32 {
        if due > staged {
            self.until = due.min(now);
        }
        withheld(arrival, self.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::units::NSEC_PER_MSEC as MS;

    #[test]
    fn a_class_at_its_rate() {
        // One request per second; all arrive at 5 s, and each is dispatched when eligible.
        let (mut kept, arrival) = (WithheldUntil::NEVER, 5_000 * MS);
        for (n, want) in (0u64..5).zip([0, 1_000, 2_000, 3_000, 4_000]) {
            let due = arrival + n * 1_000 * MS;
            let staged = due - if n == 0 { 0 } else { 1_000 * MS };
            assert_eq!(kept.front_goes(staged, due, arrival, due), want, "{n}");
        }
    }

    #[test]
    fn a_class_that_waits_for_slots() {
        // The front was eligible at any time.
        let (mut kept, arrival) = (WithheldUntil::NEVER, 5_000 * MS);
        for n in 0..5 {
            let staged = arrival + n * 700 * MS;
            let now = staged + 700 * MS;
            assert_eq!(kept.front_goes(staged, staged, arrival, now), 0);
        }
    }

    #[test]
    fn throttled_time_is_counted_before_slot_wait() {
        let (mut kept, arrival) = (WithheldUntil::NEVER, 5_000 * MS);
        // Throttled for two seconds, then queued for a slot for three.
        assert_eq!(
            kept.front_goes(arrival, 7_000 * MS, arrival, 10_000 * MS),
            2_000
        );
        // Behind the first request until its dispatch, and eligible since.
        assert_eq!(
            kept.front_goes(10_000 * MS, 10_000 * MS, arrival, 11_000 * MS),
            2_000
        );
        // Arrived while the class was not throttled.
        assert_eq!(
            kept.front_goes(11_000 * MS, 11_000 * MS, 8_000 * MS, 12_000 * MS),
            0
        );
    }

    #[test]
    fn dispatched_before_it_was_due() {
        let mut kept = WithheldUntil::NEVER;
        assert_eq!(kept.front_goes(MS, 900_000 * MS, MS, 3 * MS), 2);
        assert_eq!(kept.front_goes(MS, u64::MAX, 0, u64::MAX), u32::MAX);
        // Time that moves back.
        assert_eq!(kept.front_goes(9 * MS, 8 * MS, u64::MAX, 0), 0);
    }
}
