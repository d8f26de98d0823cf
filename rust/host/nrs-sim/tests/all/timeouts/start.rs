// SPDX-License-Identifier: GPL-2.0-only

//! All clients begin at once.

use nrs_sched::timeouts::terms::TimeoutTerms;
use nrs_sim::timeouts::{story::server, Setup, Sim, SECOND};

/// Checks a start of a thousand clients within a second, without any estimate: all are served as
/// fast as the slots permit, and no client gives up.
#[test]
fn is_not_serialised() {
    for ideal in [5, 20, 100, 400] {
        let setup = Setup {
            slots: 16,
            service: 16 * ideal * SECOND / 1_000,
            think: 4_000 * SECOND,
            ..server(1_000, 1_000, TimeoutTerms::default())
        };
        let mut sim = Sim::new(setup);
        sim.active(1_000, SECOND);
        sim.run(600 * SECOND);
        let counts = sim.counts();
        assert_eq!(counts.false_timeouts, 0, "{ideal} s");
        let served = sim.all_served().expect("everybody is served") / SECOND;
        // A few clients with a short think time send a second request.
        assert!(served <= ideal + ideal / 5 + 2, "{ideal} s: {served}");
        // At most the cost of the necessary grants.
        let most = 1_000 * (ideal / 25 + 1);
        assert!(counts.early() <= most, "{ideal} s: {counts:?}");
    }
}
