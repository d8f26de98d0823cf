// SPDX-License-Identifier: GPL-2.0-only

//! Requests of one client in flight, and the time since which its device has owed a completion.
//!
//! The device owes a completion since the later of two instants. The first is the submission of a
//! request while none was in flight, the second is the last completion of any client's request. A
//! device that owes a completion for longer than the timeout is lost. Its client is informed once:
//! the requests in flight are *given up*, and no longer count as owed.
//!
//! ```text
//!   submitted ──┐        submitted        completion (of any client)
//!   none in     ▼            │                 │
//!   flight    owes ──────────▼─── owes ────────┴──► owes since then, if requests are in flight
//! ```

/// Bits of the number of requests.
const COUNT_BITS: u32 = 24;
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;

/// Number of requests of a client in flight, and the submission time of the first of them.
///
/// # Invariants
///
/// High 40 bits: the time at which a request was submitted while none was in flight, ms (34 years).
/// Low 24 bits: the number of requests in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight(u64);

impl InFlight {
    /// No requests in flight.
    pub const NONE: Self = Self(0);

    /// Creates the value from the result of [`Self::bits`].
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns both values packed into a word; a completion subtracts 1 from the word.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Adds a request submitted at `now`, ms, while `given_up` of the requests in flight are given
    /// up. Returns `None` if 2^24 - 1 requests are in flight.
    pub const fn submitted(self, now: u64, given_up: u32) -> Option<Self> {
        // INVARIANT: the count does not reach the other bits.
        match self.count() {
            count if count as u64 == COUNT_MAX => None,
            count if count <= given_up => {
                Some(Self((now << COUNT_BITS) | (count as u64).wrapping_add(1)))
            }
            _ => Some(Self(self.0.wrapping_add(1))),
        }
    }

    /// Returns the number of requests.
    pub const fn count(self) -> u32 {
        (self.0 & COUNT_MAX) as u32
    }

    /// Returns the time, ms, since which the device has owed a completion; `None` if no request is
    /// in flight. `alive` is the time of its last completion. The result is meaningless for
    /// requests that are given up.
    pub fn owed_since(self, alive: u64) -> Option<u64> {
        (self.count() != 0).then(|| (self.0 >> COUNT_BITS).max(alive))
    }
}

/// Submission time of a request, ms modulo 2^32, for its service time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submitted(u32);

impl Submitted {
    /// Value of a request that is not counted as in flight.
    pub const NONE: Self = Self(u32::MAX);

    /// Creates the submission time of a request submitted at `now`, ms.
    pub const fn at(now: u64) -> Self {
        match now as u32 {
            u32::MAX => Self(0),
            now => Self(now),
        }
    }

    /// Returns true if the request is not counted as in flight.
    pub const fn is_none(self) -> bool {
        self.0 == Self::NONE.0
    }

    /// Returns the time from submission to `now`, ms; 0 if the request is not counted or the clock
    /// ran backwards.
    pub const fn elapsed(self, now: u64) -> u32 {
        let elapsed = (now as u32).wrapping_sub(self.0);
        if self.is_none() || elapsed > i32::MAX as u32 {
            0
        } else {
            elapsed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owed_since_the_first_submission_or_the_last_completion() {
        let none = InFlight::NONE;
        assert_eq!((none.count(), none.owed_since(5)), (0, None));
        let one = none.submitted(100, 0).unwrap();
        let two = one.submitted(200, 0).unwrap();
        assert_eq!((two.count(), two.owed_since(5)), (2, Some(100)));
        // A completion of another client.
        assert_eq!(two.owed_since(150), Some(150));
        // A completion of the client itself; the other request is owed since then.
        let one = InFlight::from_bits(two.bits() - 1);
        assert_eq!((one.count(), one.owed_since(250)), (1, Some(250)));
        let idle = InFlight::from_bits(one.bits() - 1);
        assert_eq!((idle.count(), idle.owed_since(250)), (0, None));
        // Idle time is not owed.
        let again = idle.submitted(9_000, 0).unwrap();
        assert_eq!((again.count(), again.owed_since(250)), (1, Some(9_000)));
    }

    #[test]
    fn what_is_given_up_is_owed_no_more() {
        let two = InFlight::NONE.submitted(100, 0).unwrap();
        let two = two.submitted(200, 0).unwrap();
        // Both requests are given up: the next request is owed since its own submission, and so is
        // the request after it.
        let three = two.submitted(900, 2).unwrap();
        assert_eq!((three.count(), three.owed_since(5)), (3, Some(900)));
        let four = three.submitted(950, 2).unwrap();
        assert_eq!((four.count(), four.owed_since(5)), (4, Some(900)));
    }

    #[test]
    fn both_fit_a_word() {
        let late = (1 << 40) - 1;
        let full = InFlight::from_bits((late << COUNT_BITS) | (COUNT_MAX - 1));
        let full = full.submitted(0, 0).unwrap();
        assert_eq!(u64::from(full.count()), COUNT_MAX);
        assert_eq!(full.submitted(0, 0), None);
        assert_eq!(full.owed_since(0), Some(late));
    }

    #[test]
    fn elapsed() {
        let start = (7 << 32) + u64::from(u32::MAX);
        for now in [start - 1, start, start + 1] {
            let at = Submitted::at(now);
            assert!(!at.is_none());
            // Up to 1 ms of error at the instant that encodes `NONE`.
            assert!(at.elapsed(now + 500).abs_diff(500) <= 1, "{now}");
            assert_eq!(at.elapsed(now - 500), 0);
        }
        assert_eq!(Submitted::NONE.elapsed(start), 0);
    }
}
