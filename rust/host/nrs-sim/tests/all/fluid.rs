// SPDX-License-Identifier: GPL-2.0-only

//! Tests of shares over ideal servers: what `study rule` does not vary.

use nrs_agent::Terms;
use nrs_sim::study::fluid::{run, FluidJob, Layout, Path};

/// Returns terms with requests of one unit.
fn terms() -> Terms {
    Terms {
        grain: 1,
        ..Terms::default()
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
        let settled = run.settled(0.05);
        assert!(settled.is_some_and(|deltas| deltas < limit), "{settled:?}");
    }
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
