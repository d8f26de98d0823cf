// SPDX-License-Identifier: GPL-2.0-only

//! Contention grows and eases again.

use super::{small, CLIENTS, ESTIMATORS};
use nrs_sched::timeouts::terms::{AtHistory, TimeoutTerms};
use nrs_sim::timeouts::{
    fixed,
    story::{whole, with, Phase},
    Counts, Setup, Sim, SECOND,
};

/// Checks that no client gives up on a live server with either estimator, and that all are served.
#[test]
fn no_false_timeouts() {
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
            // The device was slow.
            let (_, longest) = phases[Phase::After as usize];
            assert!(longest > 40_000, "{longest}");
        }
    }
}

/// Checks that clients give up with a fixed timeout of 10 s or of 90 % of the longest wait.
#[test]
fn a_fixed_timeout_has_to_be_the_longest_wait() {
    let (_, phases) = whole(small(TimeoutTerms::default()));
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

/// Checks that the timeouts of all clients rise with the load.
#[test]
fn timeouts_rise() {
    let (sim, phases) = whole(small(TimeoutTerms::default()));
    let at = |phase: Phase| sim.trace()[phase.end() as usize - 1];
    assert_eq!(at(Phase::Light).timeout, 11_250);
    let (_, longest) = phases[Phase::After as usize];
    let after = at(Phase::After);
    assert!(after.estimate >= longest - 1_000, "{after:?} {longest}");
    // The estimate exceeds the longest wait by at most one grant.
    assert!(after.estimate <= longest + 31_000, "{after:?} {longest}");
    assert!(after.timeout > longest, "{after:?} {longest}");
}

/// Returns the second after which no wait exceeds `limit` ms, and the second after which the
/// estimate and the timeouts are minimal.
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

/// Checks that estimates fall within `at_history` after the load: those of the server, and those of
/// clients that have received a reply.
#[test]
fn timeouts_fall_within_the_history() {
    for history in [60, 600] {
        for estimator in ESTIMATORS {
            let terms = TimeoutTerms {
                history: AtHistory::new(history).expect("a history"),
                ..with(estimator)
            };
            let (sim, _) = whole(small(terms));
            let (loaded, fallen) = fall(&sim, 5_000);
            assert!(fallen > loaded, "it has not risen");
            let after = fallen - loaded;
            // All clients have had a reply within five times the mean think time.
            let limit = u64::from(history) + 30;
            assert!(after <= limit, "{estimator}, {history} s: {after} s");
        }
    }
}

fn percent(counts: &Counts) -> f64 {
    counts.early() as f64 * 100.0 / counts.messages as f64
}

/// Checks that less than 1 % of messages are early replies under steady load, with few and with all
/// clients.
#[test]
fn few_early_replies_when_steady() {
    for estimator in ESTIMATORS {
        let (sim, phases) = whole(small(with(estimator)));
        for phase in [Phase::Light, Phase::Full] {
            let (counts, _) = phases[phase as usize];
            assert!(percent(&counts) < 1.0, "{estimator} {phase:?}: {counts:?}");
        }
        let at = |second: u64| sim.trace()[second as usize - 1].counts;
        // Long after the load was unsteady, with all and with few clients.
        for (from, to) in [
            (Phase::After.end() - 200, Phase::After.end()),
            (1_700, 1_860),
        ] {
            let counts = at(to).since(&at(from));
            assert!(percent(&counts) < 1.0, "{estimator} {from}: {counts:?}");
        }
    }
}

/// Checks that equal seeds give equal results.
#[test]
fn repeats() {
    let told = |seed| {
        let mut sim = Sim::new(Setup {
            seed,
            ..small(TimeoutTerms::default())
        });
        sim.active(CLIENTS, SECOND);
        sim.run(100 * SECOND);
        (sim.counts(), sim.trace().to_vec())
    };
    assert_eq!(told(3), told(3));
    assert_ne!(told(3), told(4));
}
