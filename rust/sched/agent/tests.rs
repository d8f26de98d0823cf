// SPDX-License-Identifier: GPL-2.0-only

//! Tests of leases, factors and changes. The tests of the policies cover the hooks of the parts.

use super::*;

const MS: u64 = NSEC_PER_MSEC;

fn report(id: u64, service: u64) -> Report {
    Report {
        account: Account {
            id,
            parent: 0,
            weight: 4096,
            leaf: true,
            service,
            active: true,
            waiting: true,
        },
        level: 0,
        factor: ONE,
    }
}

fn list(reports: &[(u64, u64)]) -> GrowingList<Report> {
    let mut list = GrowingList::new();
    for &(id, service) in reports {
        list.push(report(id, service)).unwrap();
    }
    list
}

fn reading(reports: &[(u64, u64)]) -> Reading {
    Reading {
        terms: 1,
        list: merged(&list(reports)).unwrap(),
    }
}

/// Returns for each change the id, the service, and true if the class was removed.
fn told(changes: Changes<'_>) -> Vec<(u64, u64, bool)> {
    changes
        .map(|(report, gone)| {
            assert_eq!(report.account.active, !gone);
            assert_eq!(report.account.waiting, !gone);
            (report.account.id, report.account.service, gone)
        })
        .collect()
}

#[test]
fn reports_of_one_class_add_up() {
    let mut reports = list(&[(9, 1), (3, u64::MAX), (5, 2), (3, 5)]);
    let other = &mut reports.as_mut_slice()[3];
    (other.account.weight, other.account.active) = (8192, false);
    other.factor = ONE / 2;
    let merged = merged(&reports).unwrap();
    let ids: Vec<u64> = merged.as_slice().iter().map(|r| r.account.id).collect();
    assert_eq!(ids, [3, 5, 9]);
    let sum = &merged.as_slice()[0];
    assert_eq!((sum.account.service, sum.account.weight), (4, 8192));
    assert!(sum.account.active && sum.factor == ONE);
}

#[test]
fn differences_are_reported() {
    let mut told_last = LastReading::new();
    let step = |old: &mut LastReading, instance, now: &[(u64, u64)], all| {
        let now = reading(now);
        let said = told(old.changes(instance, &now, all));
        old.note(instance, now);
        said
    };
    let mut step = |instance, now: &[(u64, u64)], all| step(&mut told_last, instance, now, all);
    assert!(step(1, &[], false).is_empty());
    assert_eq!(
        step(1, &[(2, 5), (4, 5)], false),
        [(2, 5, false), (4, 5, false)]
    );
    assert!(step(1, &[(2, 5), (4, 5)], false).is_empty());
    // New classes before, between and after the known ones; a changed class; a removed class.
    assert_eq!(
        step(1, &[(1, 0), (3, 0), (4, 6), (9, 0)], false),
        [
            (1, 0, false),
            (2, 5, true),
            (3, 0, false),
            (4, 6, false),
            (9, 0, false)
        ]
    );
    assert_eq!(
        step(1, &[(3, 0)], false),
        [(1, 0, true), (4, 6, true), (9, 0, true)]
    );
    assert_eq!(step(1, &[(3, 0)], true), [(3, 0, false)]);
    assert_eq!(step(1, &[(7, 0)], true), [(7, 0, false)]);
    // Ids of another instance count as new.
    assert_eq!(step(2, &[(7, 0), (8, 0)], false).len(), 2);
    assert_eq!(step(2, &[], false), [(7, 0, true), (8, 0, true)]);
    assert!(step(2, &[], false).is_empty());
}

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
    assert_eq!(lease.hold(999 * MS), Some(1000 * MS));
    assert_eq!((lease.steps(1000 * MS), lease.steps(u64::MAX - 1)), (0, 0));
    lease.resume(1000 * MS);
    assert_eq!((lease.steps(999 * MS), lease.steps(1000 * MS)), (0, 1));
    // An ended lease cannot be extended.
    assert_eq!(lease.hold(1000 * MS), None);
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
