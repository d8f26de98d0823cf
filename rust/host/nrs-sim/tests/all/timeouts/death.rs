// SPDX-License-Identifier: GPL-2.0-only

//! The server dies, and restarts or does not.

use super::{small, CLIENTS, ESTIMATORS};
use nrs_sched::timeouts::terms::TimeoutTerms;
use nrs_sim::timeouts::{
    fixed,
    story::{die, until, whole, with},
    Setup, Sim, MS, SECOND,
};

/// Returns the smallest fixed timeout without false timeouts, s.
fn least() -> u32 {
    let (_, phases) = whole(small(TimeoutTerms::default()));
    let longest = phases.into_iter().map(|(_, longest)| longest).max();
    longest.expect("phases") / 1_000 + 1
}

/// Checks that all waiting clients detect the death, twice as fast as with a fixed timeout that is
/// long enough for the slow device.
#[test]
fn a_dead_server_is_detected_early() {
    let fixed_one = die(small(fixed(least())), 55, 900);
    let longest = |times: &[u32]| times.iter().copied().max().expect("detections");
    for estimator in ESTIMATORS {
        for second in [55, 595, 1_855] {
            let times = die(small(with(estimator)), second, 900);
            let all = if second == 595 { CLIENTS } else { CLIENTS / 10 };
            assert_eq!(times.len() as u32, all, "{estimator}, {second} s");
            let (adaptive, other) = (longest(&times), longest(&fixed_one));
            assert!(
                adaptive * 2 < other,
                "{estimator}, {second} s: {adaptive} {other}"
            );
        }
    }
}

/// Compares predicted with actual detection times.
#[test]
fn detection_is_foreseen() {
    for second in [595, 655, 900] {
        let mut sim = Sim::new(small(TimeoutTerms::default()));
        until(&mut sim, CLIENTS, second);
        let foreseen = sim.predicted_detections_ms();
        let times = die(small(TimeoutTerms::default()), second, 900);
        assert_eq!(foreseen.len(), times.len());
        let mean = |times: &[u32]| times.iter().sum::<u32>() / times.len() as u32;
        let (one, other) = (mean(&foreseen), mean(&times));
        assert!(one.abs_diff(other) < 2_000, "{second} s: {one} {other}");
    }
}

/// Checks detection while the device is slow and after that: no client waits longer than the
/// timeout for `at_max`.
#[test]
fn a_loaded_server_that_dies_is_detected() {
    for second in [655, 900] {
        let times = die(small(TimeoutTerms::default()), second, 900);
        assert_eq!(times.len() as u32, CLIENTS);
        assert!(times.iter().all(|time| *time < 755_000), "{second} s");
    }
}

/// Checks that a restarted server waits for all clients, with any load before its death.
#[test]
fn recovery_waits_for_all_clients() {
    for second in [55, 595, 655, 900] {
        for dead in [2, 30, 200] {
            let mut sim = Sim::new(Setup {
                seed: second + dead,
                ..small(TimeoutTerms::default())
            });
            until(&mut sim, CLIENTS, second);
            sim.slow(1);
            sim.kill(false);
            sim.run(dead * SECOND);
            sim.revive();
            let back = sim.time();
            let mut ends = sim.recovery().expect("it has begun");
            while let Some(later) = sim.recovery() {
                assert!(later >= ends, "the end of recovery came closer");
                ends = later;
                sim.run(SECOND);
            }
            sim.run(300 * SECOND);
            let (counts, what) = (sim.counts(), format!("{second} s, dead for {dead} s"));
            assert_eq!(counts.missed, 0, "{what}");
            assert_eq!(sim.away(), 0, "{what}");
            assert!(sim.joined().is_some(), "{what}");
            // Recovery lasts as long as clients may reconnect: two timeouts.
            assert!(ends > back / MS, "{what}: {ends}");
            assert!(ends - back / MS < 2 * 300_000, "{what}: {ends}");
        }
    }
}
