// SPDX-License-Identifier: GPL-2.0-only

//! Lost messages, slow networks, and rate-limited classes.

use super::{small, CLIENTS};
use nrs_sched::timeouts::terms::{AtCountPolicyDelay, TimeoutTerms};
use nrs_sim::timeouts::{story::whole, Net, Setup, Sim, MS, SECOND};

/// Checks that clients give up only on lost messages, and on a live server only after a lost early
/// reply.
#[test]
fn loss_is_the_only_reason_to_give_up() {
    let mut setup = small(TimeoutTerms::default());
    setup.net.loss = 5_000;
    let (sim, _) = whole(setup);
    let counts = sim.counts();
    assert!(counts.lost > 100, "{counts:?}");
    assert_eq!(counts.false_timeouts, counts.after_lost_early, "{counts:?}");
    assert!(counts.sent - counts.replied <= CLIENTS.into());
}

/// Checks that network time is not service time: no estimate rises, and clients wait longer.
#[test]
fn a_slow_network_is_not_a_slow_service() {
    let mut sim = Sim::new(small(TimeoutTerms::default()));
    sim.active(CLIENTS / 10, SECOND);
    sim.run(60 * SECOND);
    for seconds in [2, 5, 7, 10] {
        sim.net(Net {
            latency: seconds * SECOND,
            jitter: 100 * MS,
            loss: 0,
        });
        let counts = sim.run(200 * SECOND);
        // At the third step, the round trip is longer than the shortest timeout; clients know it
        // from the step before.
        assert_eq!(counts.false_timeouts, 0, "{seconds} s");
        assert_eq!(sim.estimate(), 5_000, "{seconds} s");
    }
}

/// Checks that the delay of a rate-limited class counts for other clients only if
/// `at_count_policy_delay` is on, and that no client gives up.
#[test]
fn policy_delay_is_counted_only_on_request() {
    for (count_policy_delay, counted) in [
        (AtCountPolicyDelay::Off, false),
        (AtCountPolicyDelay::On, true),
    ] {
        let terms = TimeoutTerms {
            count_policy_delay,
            ..TimeoutTerms::default()
        };
        let mut sim = Sim::new(Setup {
            withheld: 50,
            ..small(terms)
        });
        sim.active(CLIENTS / 2, SECOND);
        let counts = sim.run(600 * SECOND);
        assert_eq!(counts.false_timeouts, 0, "{count_policy_delay}: {counts:?}");
        assert_eq!(counts.refused, 0, "{count_policy_delay}: {counts:?}");
        // Fifty clients at one request per second.
        assert!(sim.take_longest() > 35_000);
        assert_eq!(sim.estimate() > 35_000, counted, "{}", sim.estimate());
        let timeout = sim.trace().last().expect("seconds").timeout;
        assert_eq!(timeout > 40_000, counted, "{timeout}");
    }
}
