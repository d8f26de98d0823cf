// SPDX-License-Identifier: GPL-2.0-only

//! Tests of shares over ideal servers: the effect of the rule and of the messages. `study rule` has
//! more servers and seeds.

use nrs_agent::Terms;
use nrs_sim::study::fluid::{run, FluidJob, Layout, Path, Run};

/// Returns terms with requests of one unit.
fn terms() -> Terms {
    Terms {
        grain: 1,
        ..Terms::default()
    }
}

/// Number of deltas of a run that does not settle.
const NEVER: usize = usize::MAX;

fn settled(run: &Run) -> usize {
    run.settled(0.05).unwrap_or(NEVER)
}

#[test]
fn shares_converge_to_max_min_with_losses() {
    for (loss, limit) in [(0, 10), (100, 12), (300, 15)] {
        for seed in 0..3 {
            let layout = Layout::random(8, 24, &[1], seed);
            let path = Path {
                loss,
                ..Path::UNDISTURBED
            };
            let run = run(&layout, terms(), path, 60, seed);
            assert!(settled(&run) <= limit, "{loss} {seed}: {}", settled(&run));
            assert!(run.late(20) < 0.001, "{loss} {seed}: {}", run.late(20));
        }
    }
}

#[test]
fn weights_count_over_servers() {
    for weights in [&[1, 2, 8][..], &[1, 10, 100, 1000, 10_000]] {
        let layout = Layout::random(4, 12, weights, 5);
        let run = run(&layout, terms(), Path::UNDISTURBED, 80, 5);
        assert!(settled(&run) <= 10, "{weights:?}: {}", settled(&run));
        assert!(run.end_max_error(10) < 0.01, "{}", run.end_max_error(10));
    }
}

/// Checks that heavy jobs with enough service elsewhere leave a server to light jobs.
#[test]
fn heavy_jobs_leave_bandwidth_to_light_jobs() {
    for weight in [1, 100, 10_000] {
        let job = |weight, servers: &[usize]| FluidJob {
            weight,
            servers: servers.to_vec(),
            demand: f64::INFINITY,
            on: true,
        };
        let mut jobs = vec![job(1, &[0]); 5];
        jobs.extend(vec![job(weight, &[0, 1]); 10]);
        let layout = Layout {
            capacity: vec![1000.0, 250_000.0 * f64::from(weight)],
            jobs,
        };
        let run = run(&layout, terms(), Path::UNDISTURBED, 80, 1);
        assert!(
            run.end_max_error(10) < 0.01,
            "{weight}: {}",
            run.end_max_error(10)
        );
    }
}

#[test]
fn no_oscillation_with_slow_messages() {
    for (delay, limit) in [(500, 10), (1500, 12), (2500, 16), (3500, 20)] {
        let layout = Layout::random(16, 24, &[1], 2);
        let path = Path {
            delay,
            ..Path::UNDISTURBED
        };
        let run = run(&layout, terms(), path, 120, 2);
        assert!(
            run.end_max_error(20) < 0.01,
            "{delay}: {}",
            run.end_max_error(20)
        );
        assert!(settled(&run) <= limit, "{delay}: {}", settled(&run));
        assert!(run.late(20) < 0.001, "{delay}: {}", run.late(20));
    }
}

#[test]
fn a_server_that_starts_again_catches_up() {
    let layout = Layout::random(8, 24, &[1], 3);
    for (saved, limit) in [(false, 52), (true, 41)] {
        let path = Path {
            restart: 40,
            saved,
            ..Path::UNDISTURBED
        };
        let run = run(&layout, terms(), path, 90, 3);
        assert!(run.worst[38] < 0.05, "{}", run.worst[38]);
        assert!(run.worst[39] > 0.05, "{}", run.worst[39]);
        assert!(settled(&run) < limit, "{}", settled(&run));
    }
}

#[test]
fn jobs_come_and_go() {
    let layout = Layout::random(8, 24, &[1], 4);
    let path = Path {
        toggle: 20,
        loss: 100,
        ..Path::UNDISTURBED
    };
    let run = run(&layout, terms(), path, 200, 4);
    assert!(run.late(1) < 0.01, "{}", run.late(1));
    assert!(run.end_max_error(1) < 0.1, "{}", run.end_max_error(1));
}

#[test]
fn limited_demand_keeps_fairness() {
    for seed in 0..3 {
        let mut layout = Layout::random(8, 24, &[1], seed);
        for job in layout.jobs.iter_mut().step_by(4) {
            job.demand = 50.0;
        }
        let run = run(&layout, terms(), Path::UNDISTURBED, 150, seed);
        assert!(run.late(50) < 0.002, "{seed}: {}", run.late(50));
    }
}

#[test]
fn noise_is_not_amplified() {
    let layout = Layout::random(8, 24, &[1], 6);
    let path = Path {
        noise: 200,
        ..Path::UNDISTURBED
    };
    let run = run(&layout, terms(), path, 100, 6);
    assert!(run.end_max_error(40) < 0.2, "{}", run.end_max_error(40));
    assert!(run.late(40) < 0.05, "{}", run.late(40));
}
