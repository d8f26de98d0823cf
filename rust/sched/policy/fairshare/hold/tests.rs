// SPDX-License-Identifier: GPL-2.0-only

use super::{credit::AHEAD, *};
use crate::sched::{
    bucket::instant,
    policy::fairshare::params::{HoldPermille, HoldSlots, HoldUs},
    rng::Rng,
};

const LONGEST: u64 = 2 * NSEC_PER_MSEC;

fn holds(permille: u32, hold_us: u32, hold: HoldSlots, parts: u32) -> Holds {
    let tunables = Tunables {
        hold_permille: HoldPermille::new(permille).unwrap(),
        hold_us: HoldUs::new(hold_us).unwrap(),
        hold,
        ..Tunables::default()
    };
    Holds::new(&tunables, parts).expect("memory")
}

/// Begins to expect the leaf at index `idx` without a request.
fn add(holds: &mut Holds, idx: u32, now: u64) -> bool {
    let slots = holds.next_slots(idx, now);
    holds.add(Expected::new(idx, 0, slots, LeafPhase::Competing), now)
}

/// Returns `free` of `slots` slots, which no other partition uses.
const fn free_slots(slots: u32, free: u32) -> FreeSlots {
    FreeSlots {
        slots,
        free,
        is_shared: false,
    }
}

/// Returns the credit for `ticks` of time, ns of all slots.
fn tokens(holds: &Holds, ticks: u64) -> u64 {
    let tokens = u128::from(ticks) * u128::from(NSEC_PER_SEC);
    (tokens / u128::from(holds.credit.pace.span(NSEC_PER_SEC))) as u64
}

fn credit(holds: &Holds, now: u64) -> u64 {
    let now = instant(now);
    let level = holds.credit.level.at_least(holds.credit.floor(now));
    tokens(holds, now - level.0)
}

/// Verifies that in any window of time the slots are kept free for no more than their part of that
/// time, and once the largest credit, whatever arrives, ends and expires when.
#[test]
fn the_loss_is_bounded_in_every_window() {
    let mut rng = Rng::new(7);
    for (permille, hold_us, hold, parts, slots) in [
        (1, 2000, HoldSlots::One, 1, 8),
        (10, 2000, HoldSlots::One, 1, 2),
        (10, 100_000, HoldSlots::One, 1, 8),
        (10, 2000, HoldSlots::All, 1, 8),
        (100, 500, HoldSlots::One, 3, 4),
        (300, 2000, HoldSlots::All, 3, 16),
        (1000, 2000, HoldSlots::One, 1, 64),
    ] {
        let mut holds = holds(permille, hold_us, hold, parts);
        let mut now = 86_400 * NSEC_PER_SEC;
        // Time and sum of the time of all slots that was used, ns.
        let mut used = vec![(now, 0)];
        let end = |holds: &mut Holds, idx, now, used: &mut Vec<(u64, u64)>| {
            holds.take(idx, now);
            let last = used.last().unwrap().1;
            used.push((now, last + core::mem::take(&mut holds.uncounted)));
        };
        for _ in 0..4000 {
            now += rng.below(200_000);
            while let Some(idx) = holds.over(now) {
                end(&mut holds, idx, now, &mut used);
            }
            // With more leaves than places only one slot is kept free.
            let leaves = if hold == HoldSlots::All { 4 } else { 6 };
            let idx = rng.below(leaves) as u32;
            match rng.below(4) {
                0 if holds.iter().all(|one| one.idx != idx) => {
                    let room = holds.iter().count() < EXPECTED_MAX;
                    assert_eq!(add(&mut holds, idx, now), room);
                }
                1 => end(&mut holds, idx, now, &mut used),
                _ => {
                    for one in holds.expected.iter_mut().flatten() {
                        if one.phase == LeafPhase::Competing {
                            one.phase = LeafPhase::Chosen;
                        }
                    }
                    let free = 1 + rng.below(slots.into()) as u32;
                    holds.pay(&free_slots(slots, free), now);
                    assert!(holds.slots().slots <= holds.wanted());
                }
            }
            assert_eq!(usize::from(holds.count), holds.iter().count());
        }
        // A hold that ends in a window began at most `hold_us` earlier.
        let longest = u64::from(hold_us) * NSEC_PER_USEC;
        let most = |time: u64| time * u64::from(permille) / 1000 / u64::from(parts);
        let bound = most(AHEAD).max(holds.terms.largest()) + most(longest) + 2;
        let whole = used.last().unwrap().1;
        assert!(whole > 0, "{permille} {hold_us}: holds were possible");
        for (index, (from, before)) in used.iter().enumerate() {
            for (to, after) in used.iter().skip(index).step_by(7) {
                let (used, time) = (after - before, to - from);
                assert!(
                    used <= most(time) + bound,
                    "{permille} {hold_us}: {used} of {time}"
                );
            }
        }
    }
}

/// Verifies that the part of a hold that was not needed is returned, and that of `all` slots the
/// hold takes those that are free, each from the time on at which it is.
#[test]
fn only_an_arrival_returns_the_rest() {
    let start = NSEC_PER_SEC;
    let chosen = |hold: HoldSlots| {
        let mut holds = holds(20, 2000, hold, 1);
        assert!(add(&mut holds, 3, start));
        holds.expected[0].as_mut().unwrap().phase = LeafPhase::Chosen;
        (credit(&holds, start), holds)
    };
    let hold_of = |slots| Hold {
        slots,
        until: start + LONGEST,
    };
    for (hold, first, all) in [(HoldSlots::One, 1, 1), (HoldSlots::All, 2, 3)] {
        let (before, mut holds) = chosen(hold);
        assert_eq!(before, tokens(&holds, holds.credit.window));
        holds.pay(&free_slots(4, 2), start);
        assert_eq!(holds.slots(), hold_of(first));
        assert_eq!(
            before - credit(&holds, start),
            u64::from(first) * LONGEST / 4
        );
        // A quarter later one more slot is free, and at half of the time the request arrives.
        holds.pay(&free_slots(4, 3), start + LONGEST / 4);
        assert_eq!(holds.slots(), hold_of(all));
        let phase = holds.take(3, start + LONGEST / 2).unwrap().phase;
        assert!(matches!(phase, LeafPhase::Holding(_)));
        assert_eq!(holds.uncounted, u64::from(first + all) * LONGEST / 16);
        assert_eq!(before - credit(&holds, start), holds.uncounted);
        assert!(!holds.is_expecting() && holds.take(3, start).is_none());
        // A hold that ends otherwise, as by a forced request, returns nothing.
        let (before, mut holds) = chosen(hold);
        holds.pay(&free_slots(4, 2), start);
        assert!(holds.take(3, u64::MAX).is_some());
        assert_eq!(
            before - credit(&holds, start),
            u64::from(first) * LONGEST / 4
        );
    }
    // Without credit for all free slots one is kept.
    let (_, mut holds) = chosen(HoldSlots::All);
    let left = Payment::of(1, 2, start, start + LONGEST);
    assert!(holds.credit.buy(left, 0).is_some());
    holds.pay(&free_slots(4, 4), start);
    assert_eq!(holds.slots(), hold_of(1));
}

/// Verifies that a pause that holds leave no credit for costs nothing.
#[test]
fn a_pause_without_credit_is_free() {
    let mut holds = holds(20, 2000, HoldSlots::One, 1);
    let start = NSEC_PER_SEC;
    let most = Payment::of(1, 1, start, start + AHEAD * 12 / 1000);
    assert!(holds.credit.buy(most, 0).is_some());
    let left = |credit: &Credit| credit.level.at_least(credit.floor(instant(start))).0;
    let before = left(&holds.spread_credit);
    let pause = Payment::of(1, 8, start, start + NSEC_PER_MSEC);
    assert_eq!(holds.buy_pause(pause), None);
    assert_eq!(left(&holds.spread_credit), before);
}

/// Returns true if the next request is expected after `pauses`, ns.
fn is_expected(pauses: impl IntoIterator<Item = u64>) -> bool {
    let (mut leaf, mut now) = (Pauses::default(), NSEC_PER_SEC);
    for pause in pauses {
        leaf.ended = now;
        now += pause;
        leaf.arrived(now, LONGEST);
    }
    leaf.are_short(LONGEST)
}

/// Verifies the estimate for equal pauses, outliers, a step up and down, and extreme values.
#[test]
fn pauses_are_followed() {
    let (short, long) = (LONGEST / 10, 5 * LONGEST);
    assert!(!is_expected([]) && is_expected([short]) && is_expected([0; 40]));
    // A long pause counts as twice the longest that is waited for.
    let usual = || [short; 40].into_iter();
    assert!(is_expected(usual().chain([u64::MAX >> 8])));
    assert!(is_expected(usual().chain([long; 4])));
    assert!(!is_expected(usual().chain([long; 8])));
    let again = [long; 40].into_iter().chain([short; 8]);
    assert!(is_expected(again));
    // A request that did not end here, or ended unseen, has no pause.
    let mut leaf = Pauses::default();
    leaf.arrived(NSEC_PER_SEC, LONGEST);
    assert_eq!(leaf.average, 0);
}

/// Verifies that a change of parameters ends the rest after an aim was given up.
#[test]
fn parameters_end_a_rest() {
    let mut holds = holds(20, 2000, HoldSlots::One, 1);
    let (aim, now) = (10, NSEC_PER_SEC);
    let terms = |permille| HoldTerms {
        permille,
        aim,
        ..HoldTerms::of(&Tunables::default())
    };
    for (permille, is_given_up) in [(20, false), (20, true), (300, false)] {
        holds.set(terms(permille), now);
        assert_eq!(holds.aims.are_given_up(now), is_given_up, "{permille}");
        for _ in 0..1000 {
            holds.aims.record(0, 2 * aim, 8, now);
        }
    }
}

/// Verifies that times without queued requests do not count between two ends, so that bursts on a
/// fast device are not spread.
#[test]
fn idle_time_is_no_gap() {
    let slots = FreeSlots {
        slots: 8,
        free: 2,
        is_shared: false,
    };
    for (between, backlogged) in [
        (GAP_MIN / 8, true),
        (2 * GAP_MIN, false),
        (2 * GAP_MIN, true),
    ] {
        let mut holds = holds(20, 2000, HoldSlots::One, 1);
        let mut now = 86_400 * NSEC_PER_SEC;
        holds.watch(now);
        for _ in 0..40 {
            for end in 0..8 {
                now += between;
                holds.note_end(now, backlogged && end < 7);
            }
            now += 50 * NSEC_PER_MSEC;
        }
        holds.watch(now);
        holds.note_dispatch(now);
        let pause = holds.spread(&slots, now);
        let is_slow = backlogged && between > GAP_MIN;
        assert_eq!(pause.is_some(), is_slow, "{} ns", holds.gap);
        // Half of the credit is left, whatever the pauses cost.
        for _ in 0..1000 {
            holds.note_dispatch(now);
            let _ = holds.spread(&slots, now);
            now += NSEC_PER_USEC;
        }
        let half = tokens(&holds, holds.credit.window / 2);
        assert!(credit(&holds, now) >= half || !is_slow);
        holds.end_pause(now);
        assert_eq!(holds.uncounted > 0, is_slow);
    }
}
