// SPDX-License-Identifier: GPL-2.0-only

//! Comparison of `peek` with `get` for every policy: both return the same answer, and no decision
//! depends on `peek`.

use crate::{
    bench::{attrs, read, Bench},
    settings,
};
use nrs_sched::{
    arena::{feed, view, walk, Request},
    item::Item,
    policy::{Config, Decision, Kind, Part},
    rng::Rng,
};

const MS: u64 = 1_000_000;

/// Numbers of results of a peek and the next decision. Both are an item, both throttled until the
/// same time, both empty, or a peeked item is still throttled.
type Answers = [u32; 4];

/// Returns the decisions of a trace of `seed`, with or without extra peeks, and counts the
/// comparisons in `answers`.
fn trace(config: &Config, seed: u64, peeks: bool, answers: &mut Answers) -> Vec<u64> {
    let mut bench = Bench::of(config);
    let mut rng = Rng::new(seed);
    let (mut served, mut active) = (Vec::new(), Vec::new());
    for _ in 0..3_000 {
        bench.now += rng.below(3 * MS);
        bench.force = rng.below(20) == 0;
        if peeks {
            for force in [false, true, false] {
                let _ = bench.part.peek(&view(bench.now, force));
                let _ = bench.part.peek(&view(bench.now + 50 * MS, force));
            }
        }
        match rng.below(10) {
            0..=3 => {
                feed(&mut bench.part);
                let request = Request {
                    pages: 1 + rng.below(8) as u32,
                    ..read(rng.below(1 << 20) << 12)
                };
                let _ = bench.push(&attrs(rng.below(12) as u32), request);
                walk(&mut bench.part, bench.now);
            }
            4 if !bench.queued.is_empty() => {
                let at = rng.below(bench.queued.len() as u64) as usize;
                let id = *bench.queued.keys().nth(at).expect("so many");
                let kind = bench.part.kind();
                if !matches!(kind, Kind::Crrn | Kind::Orr | Kind::Trr) {
                    bench.take(id);
                }
            }
            5 if !active.is_empty() => {
                let (item, grant): (Request, _) = active.swap_remove(0);
                bench.part.stop(&grant, item.cost(), bench.now);
            }
            6 => {
                bench.part.age(bench.now, 64);
            }
            _ => {
                let peeked = bench.part.peek(&view(bench.now, bench.force));
                let got = bench.decide();
                let kind = match (peeked, &got) {
                    (Decision::Item(()), Decision::Item(_)) => 0,
                    (Decision::Throttled { until }, Decision::Throttled { until: at })
                        if until == *at =>
                    {
                        1
                    }
                    (Decision::Empty, Decision::Empty) => 2,
                    (Decision::Item(()), Decision::Throttled { .. }) => 3,
                    (peeked, got) => panic!("{peeked:?}, but {got:?}"),
                };
                answers[kind] += 1;
                served.push(match got {
                    Decision::Item((item, grant)) => {
                        let id = item.id;
                        active.push((item, grant));
                        id
                    }
                    Decision::Throttled { until } => until,
                    Decision::Empty => 0,
                });
            }
        }
    }
    served
}

#[test]
fn peek_changes_nothing_and_returns_the_result_of_get() {
    for config in settings::limited() {
        let mut answers = Answers::default();
        for seed in 1..=5 {
            let [with, without] =
                [true, false].map(|peeks| trace(&config, seed, peeks, &mut answers));
            assert_eq!(with, without, "{config:?}");
        }
        let [items, throttled, empty, late] = answers;
        assert!(items > 500 && empty > 0, "{config:?}: {answers:?}");
        let limits = matches!(config.kind(), Kind::Tbf | Kind::Qbm | Kind::Delay);
        let lazy = limits && config.kind() != Kind::Delay;
        assert_eq!(throttled > 100, limits, "{config:?}: {answers:?}");
        assert!(lazy || late == 0, "{config:?}: {answers:?}");
        assert!(late * 20 <= items, "{config:?}: {answers:?}");
    }
}
