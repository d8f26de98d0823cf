// SPDX-License-Identifier: GPL-2.0-only

//! Tests of readings and their changes. The tests of the policies cover the hooks of the parts.

use super::*;
use crate::sched::agent::{Account, ONE};

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
fn reported(changes: Changes<'_>) -> Vec<(u64, u64, bool)> {
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
        let said = reported(old.changes(instance, &now, all));
        old.record(instance, now);
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
