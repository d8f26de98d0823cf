// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use crate::sched::{
    policy::fairshare::params::{HoldPermille, HoldUs},
    rng::Rng,
};

const LONGEST: u64 = 2 * NSEC_PER_MSEC;

fn holds(permille: u32, hold_us: u32, parts: u32) -> Holds {
    let tunables = Tunables {
        hold_permille: HoldPermille::new(permille).unwrap(),
        hold_us: HoldUs::new(hold_us).unwrap(),
        ..Tunables::default()
    };
    Holds::new(&tunables, parts)
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
    for (permille, hold_us, parts, slots) in [
        (1, 2000, 1, 8),
        (10, 2000, 1, 2),
        (10, 100_000, 1, 8),
        (100, 500, 3, 4),
        (1000, 2000, 1, 64),
    ] {
        let mut holds = holds(permille, hold_us, parts);
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
            let idx = rng.below(6) as u32;
            match rng.below(4) {
                0 if holds.iter().all(|one| one.idx != idx) => {
                    let time = rng.below(u64::from(hold_us) * 1000).max(EXPECTED_MIN);
                    let room = holds.iter().count() < EXPECTED_MAX;
                    assert_eq!(holds.add(idx, now, time), room);
                }
                1 => end(&mut holds, idx, now, &mut used),
                _ => {
                    for one in holds.expected.iter_mut().flatten() {
                        if one.phase == LeafPhase::Competing {
                            one.phase = LeafPhase::Chosen;
                        }
                    }
                    holds.pay(slots, now);
                }
            }
            assert_eq!(usize::from(holds.count), holds.iter().count());
        }
        // A hold that ends in a window began at most `hold_us` earlier.
        let longest = u64::from(hold_us) * NSEC_PER_USEC;
        let most = |time: u64| time * u64::from(permille) / 1000 / u64::from(parts);
        let bound = most(AHEAD).max(longest / 2) + most(longest) + 2;
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

/// Verifies that the part of a hold that was not needed is returned.
#[test]
fn only_an_arrival_returns_the_rest() {
    let mut holds = holds(10, 2000, 1);
    let start = NSEC_PER_SEC;
    let before = credit(&holds, start);
    assert_eq!(before, tokens(&holds, holds.credit.window));
    assert!(holds.add(3, start, NSEC_PER_MSEC));
    holds.expected[0].as_mut().unwrap().phase = LeafPhase::Chosen;
    holds.pay(4, start);
    assert_eq!(before - credit(&holds, start), NSEC_PER_MSEC / 4);
    let slots = Hold {
        slots: 1,
        until: start + NSEC_PER_MSEC,
    };
    assert_eq!(holds.slots(), slots);
    let phase = holds.take(3, start + NSEC_PER_MSEC / 4).unwrap();
    let used = holds.uncounted;
    assert!(matches!(phase, LeafPhase::Holding(payment) if payment.since == start));
    assert_eq!(used, NSEC_PER_MSEC / 16);
    assert_eq!(before - credit(&holds, start), used);
    assert!(!holds.is_expecting() && holds.take(3, start).is_none());
    // One that ends otherwise, as by a forced request, returns nothing.
    assert!(holds.add(3, start, NSEC_PER_MSEC));
    holds.expected[0].as_mut().unwrap().phase = LeafPhase::Chosen;
    let before = credit(&holds, start);
    holds.pay(4, start);
    assert!(holds.take(3, u64::MAX).is_some());
    assert_eq!(before - credit(&holds, start), NSEC_PER_MSEC / 4);
}

/// Returns the expectation after `pauses`, ns.
fn expectation(pauses: impl IntoIterator<Item = u64>) -> Option<u64> {
    let (mut leaf, mut now) = (Pauses::default(), NSEC_PER_SEC);
    for pause in pauses {
        leaf.ended = now;
        now += pause;
        leaf.arrived(now, LONGEST);
    }
    leaf.expectation(LONGEST)
}

/// Verifies the estimate for equal pauses, one outlier, a step up and down, and extreme values.
#[test]
fn pauses_are_followed() {
    let short = 200_000;
    assert_eq!(expectation([]), None);
    // The first deviation is half of the first pause.
    assert_eq!(expectation([short]), Some(5 * short));
    let equal = expectation([short; 40]).unwrap();
    assert!((short..short * 11 / 10).contains(&equal), "{equal}");
    let outlier = expectation([short; 40].into_iter().chain([u64::MAX >> 8])).unwrap();
    assert_eq!(outlier, LONGEST);
    let after = [short; 40]
        .into_iter()
        .chain([20 * LONGEST])
        .chain([short; 30]);
    let after = expectation(after).unwrap();
    assert!(after < 2 * short, "{after}");
    // One whose pauses have become long is not expected; one whose pauses have become short is.
    let long = 5 * LONGEST;
    assert_eq!(expectation([short; 40].into_iter().chain([long; 8])), None);
    let again = [long; 40].into_iter().chain([short; 40]);
    assert!(expectation(again).unwrap() <= LONGEST);
    assert_eq!(expectation([0; 40]), Some(EXPECTED_MIN));
    // A request that did not end here, or ended unseen, has no pause.
    let mut leaf = Pauses::default();
    leaf.arrived(NSEC_PER_SEC, LONGEST);
    assert_eq!(leaf.average, 0);
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
        let mut holds = holds(20, 2000, 1);
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
