// SPDX-License-Identifier: GPL-2.0-only

//! Numbers of slots to keep free so that requests meet a latency.
//!
//! - *Latency*: time from arrival to end of the only request of a leaf, while others are queued.
//! - *Aim*: latency that 99 of 100 requests should not exceed.
//! - *Guard*: number of slots that stay free for such a leaf, in parts of a slot.
//!
//! ```text
//!              beyond the aim: guard + step
//!              within: guard - step / 124
//!                   ┌────────┐    often beyond, with the largest guard
//!                   ▼        │
//!   aim set ──▶ following ───┴───────────────────────────▶ given up, guard 1
//!                 ▲ ▲ │                                       ▲      │
//!                 │ │ │ too often beyond,      not clearly    │      │
//!                 │ │ │ with the largest guard more often     │      │
//!                 │ │ └──────────────▶ trial, guard 1 ────────┘      │
//!                 │ └──────────────────────┘ clearly more often      │
//!                 └──────── rest is over, or more slots: longer ─────┘
//!                           each time, up to a limit
//! ```
//!
//! The guard is at rest where one request of 125 is beyond the aim: stochastic approximation of a
//! quantile (Robbins and Monro, 1951). So 99 of 100 are within it also while it is not at rest.
//!
//! Some requests may be beyond whatever the guard is, and then it stays the largest. So if more
//! than [`LONG_BEYOND`] of [`LONG`] requests with nearly the largest guard are beyond, others are
//! tried with guard 1. As soon as twice the share and [`TRIAL_BEYOND`] more are beyond, the guard
//! helps, and the next trial is [`REST_MAX`] later. If that is not so after [`LONG`] requests, the
//! aim is given up. Where the aim is met, 8 of [`LONG`] are beyond: trials are rare, and short.
//!
//! Each leaf has its own search, because one whose requests take long by themselves says nothing
//! about others. One slot is kept free for a leaf without a search, because [`EXPECTED_MAX`] others
//! have one and sent requests within [`KEPT`]. A new leaf at the same index continues a search.

use super::EXPECTED_MAX;
use crate::sched::{
    count::Count,
    mem::{NoMemory, Owned},
    units::NSEC_PER_SEC,
};

/// One slot, as a guard.
const SLOT: u32 = 1 << SHIFT;
const SHIFT: u32 = 16;

/// Number of requests within the aim for each one beyond it.
const WITHIN: u32 = 124;

/// Number of requests in a window, and number of these that may be beyond the aim with nearly the
/// largest guard. One more ends the window, and the aim is given up: others wait meanwhile.
const WINDOW: u32 = 100;
const BEYOND: u32 = 10;

/// Number of requests with nearly the largest guard after which a trial may begin, and number of
/// these that were beyond the aim.
const LONG: u32 = 1000;
const LONG_BEYOND: u32 = 15;

/// Number of requests of a trial that are beyond the aim by chance.
const TRIAL_BEYOND: u32 = 8;

/// Shortest and longest rest after the aim was given up, ns. Each is twice as long as the last one,
/// until as much time as the next one was within the aim, without the largest guard.
const REST_MIN: u64 = 10 * NSEC_PER_SEC;
const REST_MAX: u64 = 320 * NSEC_PER_SEC;

/// Time after its last request for which a leaf keeps its search from others, ns.
const KEPT: u64 = NSEC_PER_SEC;

/// Searches of some leaves for an aim.
pub(super) struct LatencyAims {
    /// Latency, ns; 0: none.
    aim: u64,
    leaves: [Option<LeafAim>; EXPECTED_MAX],
}

impl LatencyAims {
    /// Creates searches for `aim`, ns; 0: none. A separate function, so that a caller's stack frame
    /// has none of their bytes.
    #[inline(never)]
    pub(super) fn new(aim: u64) -> Result<Owned<Self>, NoMemory> {
        Owned::new(Self {
            aim,
            leaves: [None; EXPECTED_MAX],
        })
    }

    /// Begins again, with searches for `aim`, ns.
    pub(super) fn reset(&mut self, aim: u64) {
        self.aim = aim;
        self.leaves.iter_mut().for_each(|place| *place = None);
    }

    fn searches(&self) -> impl Iterator<Item = &LatencyAim> {
        self.leaves.iter().flatten().map(|leaf| &leaf.search)
    }

    /// Returns true if at least one slot is kept free for some leaf, as without an aim.
    #[inline]
    pub(super) fn need_a_slot(&self) -> bool {
        let mut searches = self.searches().peekable();
        searches.peek().is_none() || searches.any(LatencyAim::needs_a_slot)
    }

    /// Returns true if the aim is given up for some leaf at `now`, ns.
    pub(super) fn are_given_up(&self, now: u64) -> bool {
        self.searches().any(|search| search.is_given_up(now))
    }

    /// Returns the largest guard, slots, rounded up.
    pub(super) fn guard(&self) -> u32 {
        self.searches().map(LatencyAim::guard).max().unwrap_or(1)
    }

    /// Returns the number of slots, of `slots`, to keep free for the next request of the leaf at
    /// index `idx`.
    pub(super) fn next_slots(&mut self, idx: u32, slots: u32) -> u32 {
        let mut leaves = self.leaves.iter_mut().flatten();
        let leaf = leaves.find(|leaf| leaf.idx == idx);
        leaf.map_or(1, |leaf| leaf.search.next_slots(slots))
    }

    /// Records a request of the leaf at index `idx`; see [`LatencyAim::record`].
    pub(super) fn record(&mut self, idx: u32, latency: u64, slots: u32, now: u64) -> bool {
        // Time from which the leaf may have the place.
        let from = |place: &&mut Option<LeafAim>| match place {
            Some(leaf) if leaf.idx == idx => 0,
            None => 1,
            Some(leaf) => leaf.used.saturating_add(KEPT),
        };
        let place = self.leaves.iter_mut().min_by_key(from);
        let Some(place) = place.filter(|place| from(place) <= now) else {
            return latency <= self.aim;
        };
        if place.is_some_and(|leaf| leaf.idx != idx) {
            *place = None;
        }
        let leaf = place.get_or_insert(LeafAim {
            idx,
            used: 0,
            search: LatencyAim::new(self.aim),
        });
        leaf.used = now;
        leaf.search.record(latency, slots, now)
    }
}

/// Search of a leaf.
#[derive(Clone, Copy)]
struct LeafAim {
    idx: u32,
    /// Time of the last end of a request, ns.
    used: u64,
    search: LatencyAim,
}

/// Numbers of requests.
#[derive(Clone, Copy)]
struct Tally {
    requests: u32,
    /// Number of those beyond the aim.
    beyond: u32,
}

impl Tally {
    const NONE: Self = Self {
        requests: 0,
        beyond: 0,
    };

    /// Counts a request.
    fn count(&mut self, is_within: bool) {
        self.requests.count(1);
        self.beyond.count((!is_within).into());
    }

    /// Returns true if the share beyond is clearly more than twice that of `other`, which has more
    /// requests.
    fn is_clearly_above(&self, other: &Self) -> bool {
        let twice = other.beyond.saturating_mul(2).saturating_mul(self.requests);
        let same = twice.checked_div(other.requests).unwrap_or_default();
        self.beyond > same.saturating_add(TRIAL_BEYOND)
    }
}

/// Search for the number of slots with which requests meet an aim.
#[derive(Clone, Copy)]
struct LatencyAim {
    /// Latency, ns; 0: none.
    aim: u64,
    guard: u32,
    /// Sum of the parts of slots that were not kept free yet.
    rest_of_slot: u32,
    /// Requests in this window, and number of those beyond the aim with nearly the largest guard.
    window: Tally,
    beyond_at_most: u32,
    /// Beginning of this window, ns.
    since: u64,
    /// Number of slots at the last request that counted.
    slots: u32,
    /// Requests with nearly the largest guard, and in the trial if there is one.
    long: Tally,
    trial: Option<Tally>,
    /// Time from which a trial may begin, ns.
    trial_from: u64,
    /// Time until which the aim is given up, ns, and length of the next rest.
    given_up_until: u64,
    rest: u64,
    /// Time since the last rest in which requests were within the aim, ns.
    good: u64,
}

impl LatencyAim {
    /// Creates a search for `aim`, ns; 0: none.
    const fn new(aim: u64) -> Self {
        Self {
            aim,
            guard: SLOT,
            rest_of_slot: 0,
            window: Tally::NONE,
            beyond_at_most: 0,
            since: 0,
            slots: 0,
            long: Tally::NONE,
            trial: None,
            trial_from: 0,
            given_up_until: 0,
            rest: REST_MIN,
            good: 0,
        }
    }

    /// Returns true if at least one slot is kept free, as without an aim.
    #[inline]
    const fn needs_a_slot(&self) -> bool {
        self.guard >= SLOT
    }

    /// Returns true if the aim is given up at `now`, ns.
    const fn is_given_up(&self, now: u64) -> bool {
        now < self.given_up_until
    }

    /// Returns the guard, slots, rounded up.
    const fn guard(&self) -> u32 {
        self.guard.div_ceil(SLOT)
    }

    /// Returns the largest guard on a device with `slots` slots.
    const fn most(slots: u32) -> u32 {
        let slots = if slots == 0 { 1 } else { slots };
        slots.saturating_mul(SLOT)
    }

    /// Returns true if all of `slots` slots are kept free.
    const fn is_all(&self, slots: u32) -> bool {
        self.guard > Self::most(slots).saturating_sub(SLOT)
    }

    /// Returns the number of slots, of `slots`, to keep free for the next request: all if the guard
    /// is above all but one, otherwise in the mean the guard.
    fn next_slots(&mut self, slots: u32) -> u32 {
        // One slot is not all.
        if self.is_all(slots) && self.guard > SLOT {
            return u32::MAX;
        }
        let sum = u64::from(self.guard).saturating_add(self.rest_of_slot.into());
        self.rest_of_slot = sum as u32 & SLOT.wrapping_sub(1);
        (sum >> SHIFT) as u32
    }

    /// Records a request with this `latency`, ns, that ended at `now`, ns, on a device with `slots`
    /// slots. Returns true if it is within the aim.
    fn record(&mut self, latency: u64, slots: u32, now: u64) -> bool {
        let is_within = latency <= self.aim;
        if self.is_given_up(now) {
            if slots <= self.slots {
                return is_within;
            }
            self.given_up_until = 0;
        }
        self.slots = slots;
        let most = Self::most(slots);
        if let Some(trial) = &mut self.trial {
            trial.count(is_within);
            if trial.is_clearly_above(&self.long) {
                self.end_trial(most, now.saturating_add(REST_MAX));
            } else if trial.requests >= LONG {
                self.give_up(now);
            }
            return is_within;
        }
        let step = (most / 8).max(SLOT);
        if self.guard >= most.saturating_sub(step) {
            self.long.count(is_within);
            self.beyond_at_most.count((!is_within).into());
        }
        self.guard = match is_within {
            true => self.guard.saturating_sub(step / WITHIN),
            false => self.guard.saturating_add(step),
        }
        .min(most);
        if self.window.requests == 0 {
            self.since = now;
        }
        self.window.count(is_within);
        if self.window.requests >= WINDOW || self.beyond_at_most > BEYOND {
            self.judge(now);
        }
        is_within
    }

    /// Ends a window at `now`, ns.
    fn judge(&mut self, now: u64) {
        if self.beyond_at_most > BEYOND {
            self.give_up(now);
        } else if self.window.beyond <= BEYOND && self.beyond_at_most == 0 {
            self.good.count(now.saturating_sub(self.since));
            if self.good >= self.rest {
                self.rest = REST_MIN;
            }
        }
        (self.window, self.beyond_at_most) = (Tally::NONE, 0);
        if self.long.requests < LONG || self.is_given_up(now) {
            return;
        }
        if self.long.beyond > LONG_BEYOND && self.trial_from <= now {
            (self.trial, self.guard) = (Some(Tally::NONE), SLOT);
        } else {
            self.long = Tally::NONE;
        }
    }

    /// Ends the trial, if there is one, with `guard`; the next one begins at `trial_from`, ns, or
    /// later.
    fn end_trial(&mut self, guard: u32, trial_from: u64) {
        (self.trial, self.long) = (None, Tally::NONE);
        (self.guard, self.trial_from) = (guard, trial_from);
    }

    /// Gives the aim up at `now`, ns.
    fn give_up(&mut self, now: u64) {
        self.given_up_until = now.saturating_add(self.rest);
        self.rest = self.rest.saturating_mul(2).min(REST_MAX);
        self.good = 0;
        self.end_trial(SLOT, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::{rng::Rng, units::NSEC_PER_MSEC};

    const SLOTS: u32 = 8;

    /// Runs a search for `aim`, ms, with `requests` requests whose latency is evenly distributed up
    /// to `most(guard)`, ms. Returns it, and the number beyond the aim in the last half.
    fn run_search(aim: u64, requests: u32, most: impl Fn(u32) -> u64) -> (LatencyAim, u32) {
        let (mut rng, mut latency_aim) = (Rng::new(3), LatencyAim::new(aim * NSEC_PER_MSEC));
        let (mut now, mut beyond) = (NSEC_PER_SEC, 0);
        for request in 0..requests {
            now += 10 * NSEC_PER_MSEC;
            let latency = rng.below(most(latency_aim.next_slots(SLOTS)) * NSEC_PER_MSEC);
            let is_within = latency_aim.record(latency, SLOTS, now);
            beyond += u32::from(!is_within && request >= requests / 2);
        }
        (latency_aim, beyond)
    }

    /// Verifies that as many requests are beyond an aim that some guard meets as may be.
    #[test]
    fn fewer_than_one_of_a_hundred_are_beyond() {
        let most = |slots: u32| 20 - 2 * u64::from(slots.min(SLOTS));
        for aim in [6, 9, 12, 16] {
            let (_, beyond) = run_search(aim, 40_000, most);
            assert!((140..=180).contains(&beyond), "{aim} ms: {beyond} of 20000");
        }
        // An aim that is met anyway costs nothing.
        let (latency_aim, beyond) = run_search(20, 1000, most);
        assert_eq!((latency_aim.guard(), beyond), (0, 0));
    }

    /// Verifies that an aim that no guard meets is given up most of the time, and met again soon
    /// after the device is faster.
    #[test]
    fn an_aim_out_of_reach_is_given_up() {
        let (mut latency_aim, _) = run_search(2, 40_000, |_| 10);
        assert_eq!((latency_aim.guard(), latency_aim.rest), (1, REST_MAX));
        let mut now = latency_aim.given_up_until - 1;
        assert!(latency_aim.is_given_up(now));
        now += 1;
        for rest in [REST_MAX, REST_MIN] {
            for _ in 0..WINDOW {
                assert!(!latency_aim.is_given_up(now));
                latency_aim.record(NSEC_PER_MSEC, SLOTS, now);
                now += REST_MAX * 2 / 3 / u64::from(WINDOW);
            }
            assert_eq!(latency_aim.rest, rest);
        }
        // With more slots, a rest ends at once.
        let (mut latency_aim, _) = run_search(2, 40_000, |_| 10);
        now = latency_aim.given_up_until - 1;
        latency_aim.record(NSEC_PER_MSEC, SLOTS, now);
        assert!(latency_aim.is_given_up(now));
        latency_aim.record(NSEC_PER_MSEC, SLOTS + 1, now);
        assert!(!latency_aim.is_given_up(now));
    }

    /// Verifies that a leaf whose requests are always beyond the aim changes nothing for others,
    /// and that one without a place has one slot.
    #[test]
    fn each_leaf_has_its_own_search() {
        let (mut aims, mut now) = (LatencyAims::new(10).expect("memory"), NSEC_PER_SEC);
        for _ in 0..WINDOW {
            now += NSEC_PER_MSEC;
            for idx in 0..5 {
                let latency = if idx == 0 { 20 } else { 5 };
                assert_eq!(aims.record(idx, latency, SLOTS, now), idx > 0);
            }
        }
        assert!(aims.are_given_up(now) && aims.need_a_slot());
        assert_eq!(aims.next_slots(0, SLOTS) + aims.next_slots(4, SLOTS), 2);
        let slots = (0..200).map(|_| aims.next_slots(1, SLOTS)).sum::<u32>();
        assert!((1..200).contains(&slots), "{slots} of 200");
        // A leaf that sends no longer leaves its place.
        now += KEPT;
        assert!(!aims.record(4, 20, SLOTS, now));
        assert!(aims.next_slots(4, SLOTS) > 1);
    }

    /// Verifies that an aim that one of ten requests misses is given up, however many slots there
    /// are.
    #[test]
    fn many_slots_are_given_up_as_few() {
        for slots in [8, 64, 1024] {
            let (mut rng, mut latency_aim) = (Rng::new(3), LatencyAim::new(10));
            let (mut now, mut active) = (NSEC_PER_SEC, 0);
            for _ in 0..20_000 {
                now += 10 * NSEC_PER_MSEC;
                active += u32::from(!latency_aim.is_given_up(now));
                latency_aim.record(rng.below(10) / 9 * 20, slots, now);
            }
            assert!(active < 3000, "{slots} slots: {active} requests");
        }
    }

    /// Verifies that an aim that a few of a hundred requests miss is given up most of the time if
    /// they miss it with one slot as well, and kept if more do then.
    #[test]
    fn misses_that_no_guard_helps_are_found() {
        for (beyond_with_one, is_useful) in [(20, false), (500, true)] {
            let (mut rng, mut latency_aim) = (Rng::new(3), LatencyAim::new(10));
            let (mut now, mut active) = (NSEC_PER_SEC, 0);
            for _ in 0..100_000 {
                now += 10 * NSEC_PER_MSEC;
                let is_most = latency_aim.next_slots(SLOTS) == u32::MAX;
                active += u32::from(is_most);
                let beyond = if is_most { 20 } else { beyond_with_one };
                let latency = if rng.below(1000) < beyond { 20 } else { 5 };
                latency_aim.record(latency, SLOTS, now);
            }
            let range = if is_useful {
                80_000..100_000
            } else {
                0..20_000
            };
            assert!(range.contains(&active), "{active} of 100000");
        }
    }

    /// Verifies that the slots that are kept free are the guard in the mean, and all from the last
    /// one on.
    #[test]
    fn parts_of_slots_add_up() {
        let mut latency_aim = LatencyAim::new(1);
        for (guard, is_all) in [
            (SLOTS * SLOT, true),
            (7 * SLOT + 1, true),
            (7 * SLOT, false),
        ] {
            latency_aim.guard = guard;
            let slots = latency_aim.next_slots(SLOTS);
            assert_eq!(slots, if is_all { u32::MAX } else { 7 }, "{guard}");
        }
        // One slot is not all.
        latency_aim.guard = SLOT;
        assert_eq!(latency_aim.next_slots(1), 1);
        for guard in [0, SLOT / 3, SLOT, 7 * SLOT / 2, 4000 * SLOT + 1] {
            let mut latency_aim = LatencyAim::new(1);
            latency_aim.guard = guard;
            let sum: u64 = (0..3000)
                .map(|_| u64::from(latency_aim.next_slots(u32::MAX)))
                .sum();
            let wanted = u64::from(guard) * 3000 / u64::from(SLOT);
            assert!(sum.abs_diff(wanted) <= 1, "{guard}: {sum}");
        }
    }
}
