// SPDX-License-Identifier: GPL-2.0-only

//! Shares over several servers: what the rule and the messages make of them. Cuts and relays are scenarios of nrs-sim.

mod cluster;
mod hostile;

use cluster::{run, Layout, Path, Run};
use nrs_agent::Terms;

/// Every request is one unit.
fn terms() -> Terms {
    Terms {
        grain: 1,
        ..Terms::default()
    }
}

/// Not settled in all deltas.
const NEVER: usize = usize::MAX;

fn settled(run: &Run) -> usize {
    run.settled(0.05).unwrap_or(NEVER)
}

#[test]
fn shares_become_max_min_whatever_is_lost() {
    for (loss, limit) in [(0, 20), (100, 25), (300, 40)] {
        for seed in 0..3 {
            let layout = Layout::random(8, 24, &[1], seed);
            let path = Path {
                loss,
                ..Path::QUIET
            };
            let run = run(&layout, terms(), path, 60, seed);
            assert!(settled(&run) <= limit, "{loss} {seed}: {}", settled(&run));
            assert!(run.late(20) < 0.01, "{loss} {seed}: {}", run.late(20));
        }
    }
}

#[test]
fn weights_count_over_servers() {
    let layout = Layout::striped(4, 12, 4, &[1, 2, 8], 5);
    let run = run(&layout, terms(), Path::QUIET, 80, 5);
    assert!(run.late_worst(10) < 0.06, "{}", run.late_worst(10));
}

#[test]
fn nothing_rings_when_messages_take_long() {
    for (delay, limit) in [(500, 0.01), (1500, 0.01), (2500, 0.03)] {
        let layout = Layout::random(16, 24, &[1], 2);
        let path = Path {
            delay,
            ..Path::QUIET
        };
        let run = run(&layout, terms(), path, 120, 2);
        assert!(
            run.late_worst(20) < limit * 3.0,
            "{delay}: {}",
            run.late_worst(20)
        );
        assert!(run.late(20) < limit, "{delay}: {}", run.late(20));
    }
}

#[test]
fn a_server_that_starts_again_catches_up() {
    let layout = Layout::random(8, 24, &[1], 3);
    let path = Path {
        restart: 40,
        ..Path::QUIET
    };
    let run = run(&layout, terms(), path, 90, 3);
    assert!(run.worst[38] < 0.05, "{}", run.worst[38]);
    assert!(run.worst[41] > 0.05, "{}", run.worst[41]);
    assert!(settled(&run) < 65, "{}", settled(&run));
}

#[test]
fn jobs_come_and_go() {
    let layout = Layout::random(8, 24, &[1], 4);
    let path = Path {
        toggle: 20,
        loss: 100,
        ..Path::QUIET
    };
    let run = run(&layout, terms(), path, 200, 4);
    // The last delta before each change.
    let last: Vec<f64> = (58..200).step_by(20).map(|at| run.mean[at]).collect();
    assert!(last.iter().all(|error| *error < 0.1), "{last:?}");
    let mean = last.iter().sum::<f64>() / last.len() as f64;
    assert!(mean < 0.03, "{last:?}");
}

#[test]
fn who_wants_little_does_not_spoil_it_for_others() {
    for seed in 0..3 {
        let mut layout = Layout::random(8, 24, &[1], seed);
        for job in layout.jobs.iter_mut().step_by(4) {
            job.demand = 50.0;
        }
        let run = run(&layout, terms(), Path::QUIET, 150, seed);
        assert!(run.late(50) < 0.02, "{seed}: {}", run.late(50));
    }
}

#[test]
fn noise_is_not_amplified() {
    let layout = Layout::random(8, 24, &[1], 6);
    let path = Path {
        noise: 200,
        ..Path::QUIET
    };
    let run = run(&layout, terms(), path, 100, 6);
    assert!(run.late_worst(40) < 0.2, "{}", run.late_worst(40));
    assert!(run.late(40) < 0.05, "{}", run.late(40));
}
