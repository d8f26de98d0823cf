// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use proptest::prelude::*;

/// Generates weights, with the limits more often.
fn weights() -> impl Strategy<Value = u32> {
    prop_oneof![
        Just(WEIGHT_MIN),
        Just(WEIGHT_MAX),
        (0u32..31).prop_map(|bits| 1 << bits),
        (1u32..=10_000).prop_map(|weight| weight * WEIGHT_ONE),
        WEIGHT_MIN..=WEIGHT_MAX,
    ]
}

fn costs() -> impl Strategy<Value = u32> {
    prop_oneof![
        Just(1),
        Just(COST_MAX),
        (0u32..18).prop_map(|bits| 1 << bits),
        1..=COST_MAX
    ]
}

proptest! {
    /// Verifies that no number overflows, and that steps of a tag and the carried sum are exact up
    /// to rounding.
    #[test]
    fn steps_are_exact(weight in weights(), costs in proptest::collection::vec(costs(), 1..200)) {
        let mut entity = Entity::new(weight);
        prop_assert!((1 << 31..=1 << 62).contains(&entity.inv));
        entity.start = u64::MAX - 1000;
        let start = entity.start;
        let mut sum = 0u64;
        for &cost in &costs {
            let want = (u128::from(cost) << 32) / u128::from(weight);
            prop_assert!(u128::from(entity.advance(cost)).abs_diff(want) <= 1);
            prop_assert!(entity.advance(cost) <= 1 << 49);
            entity.charge(cost);
            prop_assert!(entity.rest < 1 << CARRIED);
            sum += u64::from(cost);
        }
        let got = entity.start.wrapping_sub(start);
        let want = (u128::from(sum) << 32) / u128::from(weight);
        prop_assert!(u128::from(got).abs_diff(want) <= 1);
        for &cost in &costs {
            entity.refund(cost);
        }
        prop_assert_eq!((entity.start, entity.rest), (start, 0));
    }

    /// Verifies that the lag of one entity as service fits, with room for thousands of entities.
    #[test]
    fn service_fits(weight in weights(), cost in costs(), back in any::<bool>()) {
        let entity = Entity::new(weight);
        let lag = entity.advance(cost) as i64;
        let lag = if back { -lag } else { lag };
        let service = entity.service(lag);
        prop_assert!(service.unsigned_abs() <= 1 << 49);
        let exact = i128::from(lag) * i128::from(weight);
        prop_assert_eq!(i128::from(service), exact);
        prop_assert!(service.unsigned_abs().abs_diff(u64::from(cost) << 32) <= u64::from(weight));
        let want = i64::from(cost) * if back { -10 } else { 10 };
        prop_assert!((entity.tenths(lag) - want).abs() <= 10);
        let fits = entity.fits(entity.advance(cost));
        prop_assert!(fits.abs_diff(cost) <= 1);
    }

    /// Verifies that a change of weight keeps the lag in units, from any weight to any other and
    /// back.
    #[test]
    fn reweight_keeps_the_lag(
        from in weights(), to in weights(), units in -i64::from(COST_MAX)..=i64::from(COST_MAX),
        now in any::<u64>(),
    ) {
        let mut entity = Entity::new(from);
        entity.owed = (units << 32) / i64::from(from);
        entity.start = now.wrapping_sub(entity.owed as u64);
        entity.reweight(to, now);
        for lag in [entity.owed, entity.lag(now)] {
            // Resolution of a step of virtual time at the larger weight.
            let grain = 2 + (i64::from(from.max(to)) >> 29) * 10;
            prop_assert!((entity.tenths(lag) - units * 10).abs() <= grain);
        }
    }

    /// Verifies that idle tags move near the clock and stay on the same side.
    #[test]
    fn refresh_keeps_the_side(now in any::<u64>(), start in any::<u64>(), weight in weights()) {
        let mut entity = Entity::new(weight);
        entity.start = start;
        let before = entity.lag(now);
        entity.refresh(now);
        let after = entity.lag(now);
        prop_assert!(after.abs() <= FAR && after.signum() == before.signum());
        prop_assert!(after == before || after.unsigned_abs() > entity.advance(COST_MAX));
    }

    /// Verifies that the advance of the clock is the sum of service and corrections, for all
    /// weights.
    #[test]
    fn clock_is_exact(
        weights in proptest::collection::vec(weights(), 1..50),
        steps in proptest::collection::vec((costs(), any::<bool>()), 1..100),
    ) {
        let mut clock = VirtualClock::default();
        clock.jump(u64::MAX - 5);
        weights.iter().for_each(|&weight| clock.enter(weight));
        let (start, mut given, mut back) = (clock.now(), 0i128, 0i128);
        for (cost, correct) in steps {
            let before = clock.now();
            let amount = u64::from(cost) << 32;
            match correct {
                true => {
                    clock.correct(-i64::from(cost));
                    back += i128::from(amount);
                }
                false => {
                    clock.pull(cost);
                    given += i128::from(amount);
                }
            }
            prop_assert!(clock.now().wrapping_sub(before) as i64 >= 0);
        }
        let ran = i128::from(clock.now().wrapping_sub(start)) * i128::from(clock.weight());
        let left = i128::from(clock.behind);
        prop_assert_eq!(ran + i128::from(clock.rest) - left, given - back);
    }
}

#[test]
fn clock() {
    const ONE: u64 = 1 << 32;
    let mut clock = VirtualClock::default();
    clock.pull(1);
    clock.correct(-7);
    assert_eq!((clock.now(), clock.behind), (0, 0));
    clock.enter(2);
    clock.serve(3);
    assert_eq!((clock.now(), clock.weight()), (3 * ONE / 2, 2));
    // The clock stops until the service of the correction is made up for.
    clock.correct(-2);
    clock.serve(1);
    assert_eq!(clock.now(), 3 * ONE / 2);
    clock.serve(2);
    assert_eq!(clock.now(), 2 * ONE);
    clock.correct(4);
    assert_eq!(clock.now(), 4 * ONE);
    // A jump raises all lags, so the clock is slower until the deviation is 0.
    clock.jump(ONE);
    assert_eq!((clock.now(), clock.owed), (4 * ONE, 0));
    clock.jump(5 * ONE);
    assert_eq!((clock.now(), clock.owed), (5 * ONE, 2 * ONE as i64));
    for _ in 0..200 {
        let before = clock.now();
        clock.serve(1);
        let step = clock.now() - before;
        assert!((ONE / 4..=ONE / 2).contains(&step));
    }
    assert!(clock.owed < 8 && clock.now().abs_diff(104 * ONE) <= 4);
    clock.correct(-1);
    clock.leave(2);
    assert_eq!((clock.behind, clock.owed >> 3), (0, ONE as i64 >> 3));
}
