// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use crate::sched::timeouts::terms::{AtEstimator, AtMax, ObdTimeout};

const NOW: u64 = 1_000_000;

/// What a new portal makes of one reply: the estimates of service and network.
fn after(total: u32, service: u32, estimate: u32, estimator: AtEstimator) -> (u32, u32, u32) {
    let terms = Terms {
        estimator,
        ..Terms::default()
    };
    let mut portal = Portal::new();
    portal.replied(NOW, total, service, estimate, &terms);
    assert_eq!(portal.last_reply(), Some(NOW));
    let service = portal.service(NOW, &terms).current;
    let network = portal.network(NOW, &terms).current;
    (service, network, portal.timeout(NOW, &terms))
}

#[test]
fn one_reply() {
    use AtEstimator::{Average, Worst};
    // timeout(10 s), that of nothing known; timeout(5 s), the shortest.
    let (unknown, short) = (17_500, 11_250);
    for (total, service, told, estimator, want) in [
        // The network took 2 s of 12.
        (12_000, 10_000, 0, Worst, (10_000, 2000, 19_500)),
        (12_000, 10_000, 0, Average, (10_000, 2000, 19_500)),
        // The server's estimate instead of the request's own time.
        (12_000, 10_000, 40_000, Worst, (40_000, 2000, 57_000)),
        (12_000, 10_000, 20_000, Worst, (20_000, 2000, 32_000)),
        (12_000, 10_000, u32::MAX, Worst, (10_000, 2000, 19_500)),
        // Not told: neither of them is known.
        (12_000, 0, 0, Worst, (10_000, 0, unknown)),
        (12_000, 0, 30_000, Worst, (30_000, 0, 42_500)),
        // No network, as for a block device.
        (4, 4, 0, Worst, (5000, 0, short)),
        (0, 0, 0, Worst, (10_000, 0, unknown)),
        (0, 1, 0, Worst, (5000, 0, short)),
        // Clocks that differ a little, and more than that.
        (4000, 7000, 0, Worst, (7000, 0, 13_750)),
        (4000, 7001, 0, Worst, (10_000, 0, unknown)),
        (4000, 7001, 90_000, Worst, (10_000, 0, unknown)),
        (4000, u32::MAX, 0, Worst, (10_000, 0, unknown)),
        // No end.
        (u32::MAX, u32::MAX, 0, Worst, (10_000, 0, unknown)),
        (u32::MAX, 4, 0, Worst, (10_000, 0, unknown)),
        // Longer than anything may be.
        (u32::MAX - 1, 4, 0, Worst, (5000, 600_000, 611_250)),
        (u32::MAX - 1, u32::MAX - 1, 0, Worst, (600_000, 0, 755_000)),
    ] {
        let got = after(total, service, told, estimator);
        assert_eq!(got, want, "{total} {service} {told} {estimator}");
    }
}

/// Lower estimates of the server count at once.
#[test]
fn told_estimates() {
    let terms = Terms::default();
    let mut portal = Portal::new();
    for (told, want) in [
        (60_000, 80_000),
        (20_000, 30_000),
        (0, 80_000),
        (9000, 16_250),
    ] {
        portal.replied(NOW, 300, 300, told, &terms);
        assert_eq!(portal.timeout(NOW, &terms), want);
    }
}

/// What the client states has no latency in it.
#[test]
fn stated() {
    let terms = Terms::default();
    let mut portal = Portal::new();
    assert_eq!(
        (portal.stated(0, &terms), portal.timeout(0, &terms)),
        (17_500, 17_500)
    );
    portal.replied(5, 21_000, 20_000, 0, &terms);
    assert_eq!(
        (portal.stated(5, &terms), portal.timeout(5, &terms)),
        (30_000, 31_000)
    );
    // The history of both is forgotten.
    let later = 5 + 600_000;
    assert_eq!(
        (portal.stated(later, &terms), portal.timeout(later, &terms)),
        (11_250, 11_250)
    );
    assert_eq!(portal.network(later, &terms).worst, Some((1000, 5)));
}

#[test]
fn without_adaptive_timeouts() {
    for (fixed, want) in [(100, 100_000), (0, 0)] {
        let terms = Terms {
            max: AtMax::new(0).unwrap(),
            fixed: ObdTimeout::new(fixed).unwrap(),
            ..Terms::default()
        };
        let mut portal = Portal::new();
        portal.replied(5, 90_000, 20_000, 0, &terms);
        assert_eq!(portal.timeout(5, &terms), want);
        assert_eq!(portal.stated(5, &terms), want);
    }
}

/// An early reply moves one deadline; what is known of the service stays.
#[test]
fn early_replies() {
    let terms = Terms::default();
    let mut portal = Portal::new();
    portal.replied(0, 9000, 8000, 0, &terms);
    let (service, network) = (portal.service(0, &terms), portal.network(0, &terms));
    for (now, sent, deadline, timeout, want) in [
        // Sent at 1 s, 40 s at the server, 1 s for the network.
        (15_000, 1000, 17_000, 40_000, 42_000),
        // It never comes closer.
        (15_000, 1000, 90_000, 40_000, 90_000),
        (15_000, 1000, 17_000, 0, 17_000),
        (15_000, 1000, 17_000, 1, 17_000),
        // Without end it says nothing.
        (15_000, 1000, 17_000, u32::MAX, 17_000),
        (15_000, u64::MAX, 17_000, 5, u64::MAX),
        // The clock ran backwards.
        (9000, 1000, 17_000, 40_000, 42_000),
    ] {
        assert_eq!(portal.early(now, sent, deadline, timeout, &terms), want);
        assert_eq!(portal.last_reply(), Some(15_000), "it is a sign of life");
    }
    assert_eq!(portal.service(0, &terms), service);
    assert_eq!(portal.network(0, &terms), network);
}

/// What the filter holds back would have changed nothing.
#[test]
fn filtered_replies() {
    let terms = Terms::default();
    let mut portal = Portal::new();
    portal.replied(1000, 20, 20, 0, &terms);
    let filter = portal.filter(1000, &terms);
    assert_eq!((filter.limit, filter.until), (20, 151_000));
    let before = (portal.service(2000, &terms), portal.network(2000, &terms));
    portal.replied(2000, 20, 20, 0, &terms);
    assert_eq!(
        (portal.service(2000, &terms), portal.network(2000, &terms)),
        before
    );
}
