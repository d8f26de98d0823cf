// SPDX-License-Identifier: GPL-2.0-only

//! All clients begin at once.

use nrs_sched::timeouts::terms::Terms;
use nrs_sim::timeouts::{story::server, Setup, Sim, SECOND};

/// A thousand clients begin within a second, and nobody knows how long anything takes: all are served as
/// soon as the server can, one after the other only as far as its slots are concerned, and nobody gives up.
#[test]
fn is_not_serialised() {
    for ideal in [5, 20, 100, 400] {
        let setup = Setup {
            slots: 16,
            service: 16 * ideal * SECOND / 1_000,
            think: 4_000 * SECOND,
            ..server(1_000, 1_000, Terms::default())
        };
        let mut sim = Sim::new(setup);
        sim.active(1_000, SECOND);
        sim.run(600 * SECOND);
        let counts = sim.counts();
        assert_eq!(counts.false_timeouts, 0, "{ideal} s");
        let served = sim.all_served().expect("everybody is served") / SECOND;
        // A few that think for a short time only come twice.
        assert!(served <= ideal + ideal / 5 + 2, "{ideal} s: {served}");
        // What one grant costs each, and no more.
        let most = 1_000 * (ideal / 25 + 1);
        assert!(counts.early() <= most, "{ideal} s: {counts:?}");
    }
}
