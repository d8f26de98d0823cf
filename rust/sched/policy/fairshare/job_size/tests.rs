// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use crate::sched::rng::{avalanche, Rng};

/// Window of the tests, ns.
const WINDOW: u64 = 10_000_000_000;
const HALF: u64 = WINDOW / 2;

fn table(jobs: usize) -> JobSizes {
    JobSizes::new(jobs, WINDOW).unwrap()
}

/// Counts clients `from..to` of `job` at `now`; returns the number of requests without a place for
/// the job.
fn see(sizes: &JobSizes, job: u64, clients: core::ops::Range<u64>, now: u64) -> usize {
    let seen = clients.map(|client| sizes.see(job, avalanche(client), now));
    seen.filter(|seen| !seen).count()
}

/// Measures the errors in the module's documentation.
#[test]
fn accuracy() {
    // Number of clients, and limits of the errors, in 1/1000: mean and worst.
    let limits = [
        (10, 2, 200),
        (50, 12, 60),
        (100, 12, 50),
        (500, 15, 40),
        (1000, 15, 45),
        (2000, 15, 40),
        (4096, 20, 50),
    ];
    let ones = (1..=9).map(|n| (n, 30, 500));
    println!("| clients | mean error | worst error |\n|---|---|---|");
    for (n, mean_limit, worst_limit) in ones.chain(limits) {
        let (mut sum, mut worst) = (0.0, 0.0f64);
        for seed in 0..50 {
            let sizes = table(8);
            let mut rng = Rng::new((n << 32) | seed);
            for _ in 0..n {
                let nid = rng.next_u64();
                sizes.see(7, nid, 0);
                sizes.see(7, nid, HALF);
            }
            let got = f64::from(sizes.estimate(7, HALF));
            let error = (got - n as f64).abs() / n as f64;
            sum += error;
            worst = worst.max(error);
        }
        let mean = sum / 50.0;
        println!("| {n} | {:.2} % | {:.2} % |", 100.0 * mean, 100.0 * worst);
        assert!(mean * 1000.0 <= f64::from(mean_limit), "{n}: mean {mean}");
        assert!(
            worst * 1000.0 <= f64::from(worst_limit),
            "{n}: worst {worst}"
        );
    }
}

/// Compares the result for every number of bits with the formula in floating point.
#[test]
fn the_logarithm_is_exact_to_the_unit() {
    for set in 0..=BITS {
        let m = f64::from(BITS);
        let want = (m * (m / (m - f64::from(set))).ln()).clamp(1.0, 4096.0);
        let got = f64::from(clients(set));
        assert!((got - want).abs() <= 0.501, "{set}: {got} {want}");
    }
    let table = [
        (0, 1),
        (1, 1),
        (2, 2),
        (2048, 2839),
        (2589, 4096),
        (4096, 4096),
    ];
    for (set, want) in table {
        assert_eq!(clients(set), want, "{set}");
    }
    assert_eq!(clients(u32::MAX), SIZE_MAX);
}

#[test]
fn forgets_after_a_window() {
    let sizes = table(64);
    for start in [0, HALF - 1, WINDOW, 7 * WINDOW + HALF / 3, u64::MAX / 4] {
        let job = avalanche(start);
        assert_eq!(sizes.estimate(job, start), 1);
        see(&sizes, job, 0..20, start);
        let all = sizes.estimate(job, start);
        assert!((19..=21).contains(&all), "{all}");
        let half = start / HALF * HALF;
        // At least half a window, less than a whole one.
        for (after, want) in [
            (start + HALF, all),
            (half + WINDOW - 1, all),
            (half + WINDOW, 1),
            (start + WINDOW, 1),
            (start + 9 * WINDOW, 1),
        ] {
            assert_eq!(sizes.estimate(job, after), want, "{start} {after}");
        }
        // One client continues, the other clients expire.
        assert!(sizes.see(job, 0, half + HALF));
        assert!(sizes.estimate(job, half + WINDOW - 1) >= all);
        assert!(sizes.see(job, 0, half + WINDOW));
        assert_eq!(sizes.estimate(job, half + WINDOW), 1);
    }
}

/// Verifies that both halves expire in a long pause.
#[test]
fn comes_back_after_a_pause() {
    for pause in [2, 3, 4, 5, 1000] {
        let sizes = table(8);
        see(&sizes, 9, 0..100, 0);
        see(&sizes, 9, 100..200, HALF);
        assert!(sizes.estimate(9, HALF) > 190);
        sizes.see(9, avalanche(1), HALF + pause * HALF);
        assert_eq!(sizes.estimate(9, HALF + pause * HALF), 1, "{pause}");
    }
}

/// Verifies the size for clients with one request each in turn, all within half a window.
#[test]
fn slides() {
    let sizes = table(8);
    let steps = 50;
    for round in 0..20 * steps {
        let now = round * HALF / steps;
        sizes.see(3, avalanche(round % steps), now);
        if round >= steps {
            let size = sizes.estimate(3, now);
            assert!((48..=52).contains(&size), "{round}: {size}");
        }
    }
}

#[test]
fn jobs_beyond_the_bound_count_one() {
    let sizes = table(8);
    let jobs: Vec<u64> = (1..=9).map(avalanche).collect();
    for &job in &jobs[..8] {
        assert_eq!(see(&sizes, job, 0..30, 5), 0);
        assert!(sizes.estimate(job, 5) > 25);
    }
    assert_eq!(see(&sizes, jobs[8], 0..30, 5), 30);
    assert_eq!(sizes.estimate(jobs[8], 5), 1);
    // The first seven jobs continue, the eighth expires and its place is claimed.
    for &job in &jobs[..7] {
        see(&sizes, job, 0..30, HALF);
    }
    assert_eq!(see(&sizes, jobs[8], 0..30, HALF), 30);
    assert_eq!(sizes.estimate(jobs[8], HALF), 1);
    assert_eq!(see(&sizes, jobs[8], 0..40, WINDOW), 0);
    let size = sizes.estimate(jobs[8], WINDOW);
    assert!(
        (38..=41).contains(&size),
        "size counts clients of the previous job: {size}"
    );
    assert_eq!(sizes.estimate(jobs[7], WINDOW), 1);
    assert!(sizes.estimate(jobs[0], WINDOW) > 25);
}

/// Measures the part of jobs with full blocks, for the documentation.
#[test]
fn few_find_their_block_full() {
    for (jobs, limit) in [(512u64, 0.002), (768, 0.02), (1024, 0.1)] {
        let mut full = 0;
        for seed in 0..40 {
            let sizes = table(SIZES_MAX);
            for job in 0..jobs {
                full += u64::from(!sizes.see(avalanche((seed << 32) | job), 0, 0));
            }
        }
        let part = full as f64 / (40 * jobs) as f64;
        println!("{jobs} jobs: {:.3} % find their block full", 100.0 * part);
        assert!(part <= limit, "{part}");
    }
}

#[test]
fn hashes_at_the_edge() {
    let sizes = table(8);
    // Tag 0 marks a free place, so hashes 0 and 1 share a tag.
    see(&sizes, 0, 0..5, 0);
    assert_eq!(sizes.estimate(0, 0), 5);
    sizes.see(u64::MAX, u64::MAX, u64::MAX);
    assert_eq!(sizes.estimate(u64::MAX, u64::MAX), 1);
    // Windows of a few nanoseconds.
    for window in [0, 1, 2, 3] {
        let sizes = JobSizes::new(0, window).unwrap();
        for now in [0, 1, 2, 100, u64::MAX] {
            see(&sizes, 4, 0..3, now);
            assert_eq!(sizes.estimate(4, now), 3, "{window} {now}");
        }
    }
    assert!(JobSizes::new(usize::MAX, 1).is_err());
}

/// Verifies that requests of a processor with a clock a little behind count.
#[test]
fn earlier_instants() {
    let sizes = table(8);
    see(&sizes, 4, 0..10, WINDOW);
    see(&sizes, 4, 10..20, WINDOW - 1);
    let size = sizes.estimate(4, WINDOW - 1);
    assert!((19..=20).contains(&size));
    assert_eq!(sizes.estimate(4, WINDOW), size);
}

/// Runs two threads with the same jobs and clients across halves, and verifies the sizes.
#[test]
fn two_threads() {
    let sizes = table(64);
    let jobs = 20;
    let round = |thread: u64, round: u64| {
        for job in 0..jobs {
            // 40 clients, half of them seen by both threads.
            for client in 0..30 {
                let client = (thread * 10 + client) % 40;
                assert!(sizes.see(avalanche(job), avalanche(client), round * HALF / 4));
            }
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let round = &round;
            scope.spawn(move || (0..400).for_each(|i| round(thread, i)));
        }
    });
    // Both once more at the same instant, to repeat dropped sightings.
    round(0, 400);
    round(1, 400);
    for job in 0..jobs {
        let size = sizes.estimate(avalanche(job), 100 * HALF);
        assert!((38..=42).contains(&size), "{job}: {size}");
    }
}

#[test]
fn suffixes() {
    for (name, want) in [
        ("train#64", Some(64)),
        ("a#1", Some(1)),
        ("a#4096", Some(4096)),
        ("a#4097", Some(4096)),
        ("a#99999999999999999999", Some(4096)),
        ("a#007", Some(7)),
        ("a#b#12", Some(12)),
        ("#2#3", Some(3)),
        ("fio.1000", None),
        ("fio", None),
        ("", None),
        ("#", None),
        ("#64", None),
        ("a#", None),
        ("a#0", None),
        ("a#-1", None),
        ("a#+1", None),
        ("a#1 ", None),
        ("a#12x", None),
        ("a#12#", None),
        ("a#\u{661}", None),
    ] {
        assert_eq!(suffix(name.as_bytes()), want, "{name}");
    }
}

/// Verifies that counting restarts with a longer or shorter window.
#[test]
fn another_window() {
    let sizes = table(8);
    let now = 1_000 * WINDOW;
    see(&sizes, 7, 0..5, now);
    assert_eq!(sizes.estimate(7, now), 5);
    for window in [WINDOW * 60, WINDOW / 5, WINDOW] {
        sizes.set_window(window);
        assert_eq!(sizes.estimate(7, now), 1, "{window}");
        see(&sizes, 7, 0..3, now);
        assert_eq!(sizes.estimate(7, now), 3, "{window}");
        sizes.set_window(window);
        assert_eq!(sizes.estimate(7, now), 3, "{window}");
    }
}
