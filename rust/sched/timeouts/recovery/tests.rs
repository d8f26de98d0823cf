// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use crate::sched::timeouts::terms::{AtExtra, AtMax, ObdTimeout};

fn terms(max: u32, fixed: u32) -> Terms {
    Terms {
        max: AtMax::new(max).unwrap(),
        fixed: ObdTimeout::new(fixed).unwrap(),
        ..Terms::default()
    }
}

#[test]
fn a_window() {
    let terms = Terms::default();
    let mut recovery = Recovery::new();
    assert!(recovery.is_over(0) && recovery.is_over(u64::MAX));
    recovery.begin(1000, &terms);
    // timeout(at_initial)
    assert_eq!(recovery.ends(), 18_500);
    for (now, timeout, ends, largest) in [
        (2000, 17_500, 28_875, 17_500),
        // Smaller ones move the end as the largest one does.
        (3000, 5000, 29_875, 17_500),
        (4000, 0, 30_875, 17_500),
        (5000, u32::MAX, 31_875, 17_500),
        // Never back.
        (1000, 100, 31_875, 17_500),
        (6000, 100_000, 136_000, 100_000),
        // Nobody waits longer than timeout(at_max).
        (7000, 4_000_000, 762_000, 4_000_000),
    ] {
        assert_eq!(recovery.join(now, timeout, &terms), ends, "{now} {timeout}");
        assert_eq!((recovery.ends(), recovery.largest()), (ends, largest));
        assert!(!recovery.is_over(ends - 1) && recovery.is_over(ends));
    }
    assert_eq!(recovery.clients(), 7);
}

/// Who comes after the end begins another window; one that begins again goes on.
#[test]
fn windows() {
    let terms = Terms::default();
    let mut recovery = Recovery::new();
    assert_eq!(recovery.join(1000, 50_000, &terms), 1000 + 67_500);
    assert_eq!(recovery.join(68_500, 20_000, &terms), 68_500 + 30_000);
    assert_eq!((recovery.clients(), recovery.largest()), (1, 20_000));
    recovery.begin(70_000, &terms);
    assert_eq!((recovery.ends(), recovery.clients()), (100_000, 0));
    recovery.begin(u64::MAX, &terms);
    assert_eq!(recovery.ends(), u64::MAX);
}

#[test]
fn other_modes() {
    let (fixed, off) = (terms(0, 100), terms(0, 0));
    let mut recovery = Recovery::new();
    assert_eq!(recovery.join(0, 50_000, &fixed), 100_000);
    assert_eq!(recovery.join(0, 250_000, &fixed), 250_000);
    assert_eq!(recovery.join(0, u32::MAX - 1, &fixed), 3_600_000);
    let mut recovery = Recovery::new();
    assert_eq!(recovery.join(7, 50_000, &off), 7);
    assert!(recovery.is_over(7));
}

#[test]
fn what_early_replies_grant() {
    for (extra, timeout, want) in [
        // A quarter of 17.5 s, of 67.5 s, and no more than at_extra.
        (30, 0, 4375),
        (30, 50_000, 16_875),
        (30, 500_000, 30_000),
        (2, 50_000, 2000),
        (1, 0, 1000),
    ] {
        let terms = Terms {
            extra: AtExtra::new(extra).unwrap(),
            ..Terms::default()
        };
        let mut recovery = Recovery::new();
        recovery.join(0, timeout, &terms);
        assert_eq!(recovery.extra(&terms), want);
    }
    assert_eq!(Recovery::new().extra(&terms(0, 0)), 1000);
}
