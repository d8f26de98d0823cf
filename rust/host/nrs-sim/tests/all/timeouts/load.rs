// SPDX-License-Identifier: GPL-2.0-only

//! Contention grows and eases again.

use super::{small, CLIENTS, ESTIMATORS};
use nrs_sched::timeouts::terms::{AtHistory, Terms};
use nrs_sim::timeouts::{
    fixed,
    story::{whole, with, Phase},
    Counts, Setup, Sim, SECOND,
};

/// Whatever estimates are made of, nobody gives up on a server that is alive, and all are served.
#[test]
fn nobody_gives_up_on_a_live_server() {
    for estimator in ESTIMATORS {
        for seed in 1..=2 {
            let setup = Setup {
                seed,
                ..small(with(estimator))
            };
            let (sim, phases) = whole(setup);
            let counts = sim.counts();
            assert_eq!(counts.false_timeouts, 0, "{estimator} {seed}");
            assert_eq!((counts.lost, counts.refused), (0, 0), "{estimator} {seed}");
            assert!(counts.sent - counts.replied <= CLIENTS.into());
            // The device was slow indeed.
            let (_, longest) = phases[Phase::After as usize];
            assert!(longest > 40_000, "{longest}");
        }
    }
}

/// A fixed timeout of 10 s, or one that is only somewhat shorter than the longest wait, makes some give up.
#[test]
fn a_fixed_timeout_has_to_be_the_longest_wait() {
    let (_, phases) = whole(small(Terms::default()));
    let longest = phases.map(|(_, longest)| longest).into_iter().max();
    let longest = longest.expect("phases") / 1_000;
    for (timeout, gives_up) in [(10, true), (longest * 9 / 10, true), (longest + 5, false)] {
        let (sim, _) = whole(small(fixed(timeout)));
        let counts = sim.counts();
        assert_eq!(
            counts.false_timeouts > 0,
            gives_up,
            "{timeout} of {longest} s"
        );
        assert_eq!(counts.early(), 0);
    }
}

/// The timeout of everybody rises with the load.
#[test]
fn timeouts_rise() {
    let (sim, phases) = whole(small(Terms::default()));
    let at = |phase: Phase| sim.trace()[phase.end() as usize - 1];
    assert_eq!(at(Phase::Light).timeout, 11_250);
    let (_, longest) = phases[Phase::After as usize];
    let after = at(Phase::After);
    assert!(after.estimate >= longest - 1_000, "{after:?} {longest}");
    // Not more than a grant above what was seen.
    assert!(after.estimate <= longest + 31_000, "{after:?} {longest}");
    assert!(after.timeout > longest, "{after:?} {longest}");
}

/// The first second from which on nothing was longer than `limit` ms, and that from which on everybody's
/// timeout is the shortest again.
fn fall(sim: &Sim, limit: u32) -> (u64, u64) {
    let trace = sim.trace();
    let last = |f: &dyn Fn(u32, u32, u32) -> bool| {
        let found = trace
            .iter()
            .rposition(|point| f(point.longest, point.estimate, point.timeout));
        found.map_or(0, |place| trace[place].second)
    };
    (
        last(&|longest, _, _| longest > limit),
        last(&|_, estimate, timeout| estimate > 5_000 || timeout > 11_250),
    )
}

/// When the load is gone, so is what it did to the estimates, at `at_history` at the latest: those of the
/// server, and of clients as soon as they have a reply.
#[test]
fn timeouts_fall_within_the_history() {
    for history in [60, 600] {
        for estimator in ESTIMATORS {
            let terms = Terms {
                history: AtHistory::new(history).expect("a history"),
                ..with(estimator)
            };
            let (sim, _) = whole(small(terms));
            let (loaded, fallen) = fall(&sim, 5_000);
            assert!(fallen > loaded, "it has not risen");
            let after = fallen - loaded;
            // All clients have had a reply within five times their mean time to think.
            let limit = u64::from(history) + 30;
            assert!(after <= limit, "{estimator}, {history} s: {after} s");
        }
    }
}

fn percent(counts: &Counts) -> f64 {
    counts.early() as f64 * 100.0 / counts.messages as f64
}

/// Less than one message of a hundred is an early reply when the load is steady, few clients or all of them.
#[test]
fn few_early_replies_when_steady() {
    for estimator in ESTIMATORS {
        let (sim, phases) = whole(small(with(estimator)));
        for phase in [Phase::Light, Phase::Full] {
            let (counts, _) = phases[phase as usize];
            assert!(percent(&counts) < 1.0, "{estimator} {phase:?}: {counts:?}");
        }
        let at = |second: u64| sim.trace()[second as usize - 1].counts;
        // And long after it was not, with clients still there or gone.
        for (from, to) in [
            (Phase::After.end() - 200, Phase::After.end()),
            (1_700, 1_860),
        ] {
            let counts = at(to).since(&at(from));
            assert!(percent(&counts) < 1.0, "{estimator} {from}: {counts:?}");
        }
    }
}

/// Equal seeds, equal stories.
#[test]
fn repeats() {
    let told = |seed| {
        let mut sim = Sim::new(Setup {
            seed,
            ..small(Terms::default())
        });
        sim.active(CLIENTS, SECOND);
        sim.run(100 * SECOND);
        (sim.counts(), sim.trace().to_vec())
    };
    assert_eq!(told(3), told(3));
    assert_ne!(told(3), told(4));
}
