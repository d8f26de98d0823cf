// SPDX-License-Identifier: GPL-2.0-only

//! Messages that are lost, networks that are slow, and classes that are kept on purpose.

use super::{small, CLIENTS};
use nrs_sched::timeouts::terms::{AtCountPolicyDelay, Terms};
use nrs_sim::timeouts::{story::whole, Net, Setup, Sim, MS, SECOND};

/// Where messages are lost clients give up on those, and on a live server only where an early reply was lost.
#[test]
fn loss_is_the_only_reason_to_give_up() {
    let mut setup = small(Terms::default());
    setup.net.loss = 5_000;
    let (sim, _) = whole(setup);
    let counts = sim.counts();
    assert!(counts.lost > 100, "{counts:?}");
    assert_eq!(counts.false_timeouts, counts.after_lost_early, "{counts:?}");
    assert!(counts.sent - counts.replied <= CLIENTS.into());
}

/// What the network takes is no service time: nobody's estimate rises, and clients wait longer.
#[test]
fn a_slow_network_is_not_a_slow_service() {
    let mut sim = Sim::new(small(Terms::default()));
    sim.active(CLIENTS / 10, SECOND);
    sim.run(60 * SECOND);
    for seconds in [2, 5, 7, 10] {
        sim.net(Net {
            latency: seconds * SECOND,
            jitter: 100 * MS,
            loss: 0,
        });
        let counts = sim.run(200 * SECOND);
        // Twice that is more than the shortest timeout at the third step; the one before has taught them.
        assert_eq!(counts.false_timeouts, 0, "{seconds} s");
        assert_eq!(sim.estimate(), 5_000, "{seconds} s");
    }
}

/// What a class with a rate waits on purpose is nobody else's matter, unless that is asked for; nobody of it
/// gives up.
#[test]
fn what_is_withheld_is_not_counted() {
    for (count_policy_delay, counted) in [
        (AtCountPolicyDelay::Off, false),
        (AtCountPolicyDelay::On, true),
    ] {
        let terms = Terms {
            count_policy_delay,
            ..Terms::default()
        };
        let mut sim = Sim::new(Setup {
            withheld: 50,
            ..small(terms)
        });
        sim.active(CLIENTS / 2, SECOND);
        let counts = sim.run(600 * SECOND);
        assert_eq!(counts.false_timeouts, 0, "{count_policy_delay}: {counts:?}");
        assert_eq!(counts.refused, 0, "{count_policy_delay}: {counts:?}");
        // Fifty of them at one a second.
        assert!(sim.take_longest() > 35_000);
        assert_eq!(sim.estimate() > 35_000, counted, "{}", sim.estimate());
        let timeout = sim.trace().last().expect("seconds").timeout;
        assert_eq!(timeout > 40_000, counted, "{timeout}");
    }
}
