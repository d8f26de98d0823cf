// SPDX-License-Identifier: GPL-2.0-only

//! Achieved rates: within 1 % of the rules on both sides, with any delay of the timer.

use super::sim::{mixed, near, none, one, TbfSim, SECOND};
use nrs_sched::{
    policy::tbf::{
        params::{CostModel, Depth, GlobalRate},
        Tunables,
    },
    rng::Rng,
};

/// Returns the seconds in which `rate` gives at least 1000 requests, at most 1000 s.
fn seconds(rate: u64) -> u64 {
    (1000 / rate).clamp(1, 1000)
}

#[test]
fn requests_from_1_to_a_million_per_second() {
    for late in [0, 5_000, 50_000] {
        for rate in [1, 3, 7, 100, 999, 10_000, 100_000, 1_000_000] {
            let mut sim = TbfSim::by_uid();
            sim.late = late;
            sim.rule(&format!("start a uid={{1}} rate={rate}"));
            sim.queue(0, 1, 64, 1);
            // Saved tokens are spent after the time of ten tokens.
            sim.run(sim.now + 10 * SECOND / rate, one);
            // 40,000 requests are enough.
            let time = (seconds(rate) * SECOND).min(40_000 * SECOND / rate);
            let got = sim.count(1, time, one);
            near(
                got,
                (rate as f64 * time as f64 / 1e9) as u64,
                1.0,
                &format!("{rate} late {late}"),
            );
        }
    }
}

#[test]
fn bytes_with_requests_of_4_kib_and_1_mib() {
    for rate in [64u64 << 10, 1 << 20, 200 << 20, 1 << 30, 1 << 36] {
        for next in [one, |_: &mut Rng| 256, mixed] {
            let mut sim = TbfSim::by_uid();
            sim.rule(&format!("start a uid={{1}} rate={rate}B/s"));
            sim.queue(0, 1, 64, 1);
            // 250 MiB: 250 large requests, or 64,000 small ones.
            let time = ((250u128 << 20) * u128::from(SECOND) / rate as u128) as u64;
            sim.run(sim.now + time / 4, next);
            let got = sim.measure(time, next)[&1].1 * 4096;
            let want = (rate as f64 * time as f64 / 1e9) as u64;
            near(got, want, 1.0, &format!("{rate} B/s for {time} ns"));
        }
    }
}

/// Checks that a request larger than the depth is throttled until the bucket is full, and later
/// requests until the debt is paid.
#[test]
fn a_request_larger_than_the_depth_pays_its_debt() {
    let mut sim = TbfSim::by_uid();
    sim.late = 0;
    sim.rule("start a uid={1} rate=1MiB/s");
    sim.queue(0, 1, 3, 1024);
    sim.log = Some(Vec::new());
    let start = sim.now;
    sim.run(start + 20 * SECOND, none);
    let at: Vec<u64> = sim
        .log
        .take()
        .unwrap()
        .iter()
        .map(|(_, at)| (at - start) / 1_000_000)
        .collect();
    assert_eq!(at, [0, 4000, 8000]);
}

#[test]
fn pages_where_the_cost_model_says_so() {
    let tunables = Tunables {
        cost_model: CostModel::Pages,
        ..Tunables::default()
    };
    // Rules with different units in one policy: a rate with a unit counts that unit.
    for (rate, pages) in [
        ("25600", Some(25_600)),
        ("200iops", None),
        ("100MiB/s", Some(25_600)),
    ] {
        let mut sim = TbfSim::new("uid", 1, &tunables);
        sim.rule(&format!("start a uid={{1}} rate={rate}"));
        sim.queue(0, 1, 8, 1);
        sim.run(sim.now + SECOND, mixed);
        let got = sim.measure(20 * SECOND, mixed)[&1];
        match pages {
            Some(pages) => near(got.1, 20 * pages, 1.0, rate),
            None => near(got.0, 4000, 1.0, rate),
        }
    }
}

/// Checks that all partitions of a service share the rate, and that each has its own without
/// `global_rate`.
#[test]
fn global_or_per_partition() {
    for (global_rate, factor) in [(GlobalRate::On, 1), (GlobalRate::Off, 2)] {
        for rate in [10, 1000, 20_000] {
            let tunables = Tunables {
                global_rate,
                ..Tunables::default()
            };
            let mut sim = TbfSim::new("uid", 2, &tunables);
            sim.rule(&format!("start a uid={{1}} rate={rate}"));
            sim.queue(0, 1, 32, 1);
            sim.queue(1, 1, 32, 1);
            sim.run(sim.now + SECOND, one);
            let time = (10_000 / rate).clamp(1, 100);
            let before: Vec<u64> = sim
                .rows()
                .iter()
                .map(|row| row.counters.dispatched)
                .collect();
            let got = sim.count(1, time * SECOND, one);
            near(
                got,
                factor * time * rate,
                1.0,
                &format!("{rate} {global_rate}"),
            );
            // Both partitions get about half.
            for (row, before) in sim.rows().iter().zip(before) {
                let part = row.counters.dispatched - before;
                near(part, got / 2, 5.0, &format!("{rate} {global_rate} by part"));
            }
            assert_eq!(sim.shared.full(), 0);
        }
    }
}

/// Checks that a paused partition leaves the whole rate to the other, and gets its part again
/// afterwards.
#[test]
fn a_partition_that_pauses_leaves_its_part() {
    let mut sim = TbfSim::new("uid", 2, &Tunables::default());
    sim.rule("start a uid={1} rate=1000");
    for round in 0..5 {
        sim.queue(round % 2, 1, 8, 1);
        sim.run(sim.now + SECOND / 10, one);
        near(sim.count(1, SECOND, one), 1000, 1.5, "alone");
        sim.queue(1 - round % 2, 1, 8, 1);
        near(sim.count(1, SECOND, one), 1000, 1.5, "both");
        sim.run(sim.now + SECOND, none);
    }
}

trait IsItem {
    fn is_item(&self) -> bool;
}

impl<I> IsItem for nrs_sched::policy::Decision<I> {
    fn is_item(&self) -> bool {
        matches!(self, Self::Item(_))
    }
}

/// Checks that exactly `depth` tokens are saved during idle time of any length, including the
/// tokens kept over a pause of 10 ms.
#[test]
fn a_burst_is_the_depth() {
    for depth in [1, 3, 100] {
        let tunables = Tunables {
            depth: Depth::new(depth).unwrap(),
            ..Tunables::default()
        };
        for rate in [1, 100, 100_000] {
            let mut sim = TbfSim::new("uid", 1, &tunables);
            sim.rule(&format!("start a uid={{1}} rate={rate}"));
            for idle in [
                20_000_000 + 1_000 * SECOND / rate,
                3600 * SECOND,
                315_360_000 * SECOND,
            ] {
                sim.run(sim.now + idle, one);
                sim.queue(0, 1, depth + 50, 1);
                let burst = std::iter::from_fn(|| sim.get(0, false).is_item().then_some(()));
                assert_eq!(burst.count() as u32, depth, "{depth} {rate} {idle}");
                while sim.get(0, true).is_item() {}
                // The debt of a forced drain is paid before the next burst.
                sim.now += 200 * SECOND;
            }
        }
    }
}

/// Checks that a jump of the clock by hours, with requests queued, is followed by the depth and the
/// delay that is made up for, at most.
#[test]
fn a_jump_of_the_clock_is_no_burst() {
    for (realtime, made_up) in [(0, 10), (1, 1000)] {
        let mut sim = TbfSim::by_uid();
        sim.rule(&format!("start a uid={{1}} rate=1000 realtime={realtime}"));
        sim.queue(0, 1, 8, 1);
        sim.run(sim.now + SECOND, one);
        sim.now += 5 * 3600 * SECOND;
        let got = sim.count(1, SECOND, one);
        assert!(
            (1000..=1000 + 3 + made_up + 1).contains(&got),
            "{realtime}: {got}"
        );
    }
}

/// Checks that a synchronous client with short pauses gets its rate, although its queue is empty in
/// between.
#[test]
fn short_pauses_lose_nothing() {
    for rate in [100, 10_000, 50_000] {
        let mut sim = TbfSim::by_uid();
        sim.rule(&format!("start a uid={{1}} rate={rate}"));
        let (start, mut served) = (sim.now, 0);
        while sim.now < start + SECOND {
            // Eight requests at a time, after all earlier ones were served.
            sim.queue(0, 1, 8, 1);
            loop {
                match sim.get(0, false) {
                    nrs_sched::policy::Decision::Item(_) => served += 1,
                    nrs_sched::policy::Decision::Throttled { until } => sim.now = until + 50_000,
                    nrs_sched::policy::Decision::Empty => break,
                }
            }
            sim.now += 20_000;
        }
        near(served, rate, 8.0, &format!("{rate}"));
    }
}
