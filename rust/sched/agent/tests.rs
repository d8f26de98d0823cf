// SPDX-License-Identifier: GPL-2.0-only

//! Tests of leases and factors.

use super::*;

const MS: u64 = NSEC_PER_MSEC;

#[test]
fn pairs_are_checked() {
    let take = |pairs: &[(u64, u32)]| -> Result<usize> {
        let taken = FactorPairs::of(pairs.iter().copied())?;
        assert_eq!(taken.len(), pairs.len());
        Ok(taken.into_list().as_slice().len())
    };
    assert_eq!(take(&[]), Ok(0));
    assert_eq!(take(&[(1, 1), (2, ONE), (u64::MAX, ONE / 3)]), Ok(3));
    for wrong in [
        &[(0, ONE)][..],
        &[(1, 0)],
        &[(1, ONE + 1)],
        &[(1, u32::MAX)],
        &[(2, ONE), (2, ONE)],
        &[(2, ONE), (1, ONE)],
    ] {
        let refused = take(wrong).unwrap_err();
        assert_eq!(refused.code, Code::Invalid, "{wrong:?}");
    }
    let most: Vec<_> = (1..=FACTORS_MAX as u64).map(|id| (id, ONE)).collect();
    assert_eq!(take(&most), Ok(FACTORS_MAX));
    assert_eq!(FactorPairs::new(FACTORS_MAX + 1).err(), Some(TOO_MANY));
}

#[test]
fn a_lease_ends_in_steps() {
    // Lease, time since the start of the lease (both ms), steps due.
    for (lease, now, steps) in [
        (1, 0, 0),
        (1, 1, 1),
        (1, 100, 1),
        (1, 101, 2),
        (1, 901, 10),
        (5000, 4999, 0),
        (5000, 5000, 1),
        (5000, 5499, 1),
        (5000, 5500, 2),
        (5000, 9499, 9),
        (5000, 9500, 10),
        (60_000, u64::MAX / MS, 10),
    ] {
        let lease = Lease::new(7 * MS, lease);
        let now = now.saturating_add(7).saturating_mul(MS);
        assert_eq!(lease.steps(now), steps, "{now}");
    }
    // Closing the file ends the lease; later ends have no effect.
    let lease = Lease::new(0, 10_000);
    assert_eq!(lease.steps(5 * MS), 0);
    lease.end(5 * MS);
    lease.end(50 * MS);
    assert_eq!((lease.steps(5 * MS), lease.steps(1005 * MS)), (1, 2));
    lease.void();
    assert_eq!((lease.steps(0), lease.steps(1)), (STEPS, STEPS));
}

#[test]
fn a_lease_that_is_held_does_not_end() {
    let lease = Lease::new(0, 1000);
    assert_eq!(lease.suspend_expiry(999 * MS), Some(1000 * MS));
    assert_eq!((lease.steps(1000 * MS), lease.steps(u64::MAX - 1)), (0, 0));
    lease.resume(1000 * MS);
    assert_eq!((lease.steps(999 * MS), lease.steps(1000 * MS)), (0, 1));
    // An ended lease cannot be extended.
    assert_eq!(lease.suspend_expiry(1000 * MS), None);
    assert_eq!(lease.steps(1100 * MS), 2);
}

#[test]
fn each_step_halves_the_logarithm() {
    for factor in [1, 2, 46_340, ONE / 1024, ONE / 4, ONE - 1, ONE] {
        assert_eq!(faded(factor, 0), factor);
        let mut last = factor;
        for step in 1..STEPS {
            let now = faded(factor, step);
            let want = (f64::from(factor) / f64::from(ONE)).powf(0.5f64.powi(step as i32));
            let error = f64::from(now) / f64::from(ONE) / want - 1.0;
            assert!(error.abs() < 1e-4, "{factor} {step}: {now}, {error}");
            assert!(now >= last);
            last = now;
        }
        assert_eq!(faded(factor, STEPS), ONE);
        assert_eq!(faded(factor, u32::MAX), ONE);
    }
    assert_eq!(faded(u32::MAX, 0), ONE);
}

#[test]
fn instances_and_terms() {
    assert_ne!(instance(1, 1), instance(1, 2));
    assert_ne!(instance(1, 1), instance(2, 1));
    assert_ne!(instance(0, 0), 0);
    // Agents of other versions compare the digest.
    assert_eq!(
        digest(format_args!("{} {}", "uid_fair", "pages")),
        0x2545_3e9c_e1b6_437c
    );
}
