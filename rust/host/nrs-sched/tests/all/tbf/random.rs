// SPDX-License-Identifier: GPL-2.0-only

//! Random arrivals, decisions and rule changes: each request comes out exactly once and in order.

use super::sim::{Sim, SECOND};
use nrs_sched::{
    arena::feed,
    policy::{
        tbf::{params::GlobalRate, Tunables},
        Get, Part, Passed, Way,
    },
};
use proptest::prelude::*;
use std::collections::{HashMap, VecDeque};

#[derive(Clone, Debug)]
enum Op {
    Arrive { part: usize, owner: u32, pages: u32 },
    Pass { owner: u32, forced: bool },
    Serve { part: usize },
    Wait(u64),
    Rule { index: usize, refresh: bool },
    Refresh { part: usize, from: u32 },
    Age,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0usize..2, 0u32..12, 1u32..300)
            .prop_map(|(part, owner, pages)| Op::Arrive { part, owner, pages }),
        2 => (0u32..12, any::<bool>()).prop_map(|(owner, forced)| Op::Pass { owner, forced }),
        8 => (0usize..2).prop_map(|part| Op::Serve { part }),
        3 => (0u64..SECOND / 10).prop_map(Op::Wait),
        1 => (0u64..1000 * SECOND).prop_map(Op::Wait),
        2 => (0usize..COMMANDS.len(), any::<bool>())
            .prop_map(|(index, refresh)| Op::Rule { index, refresh }),
        1 => (0usize..2, 0u32..16).prop_map(|(part, from)| Op::Refresh { part, from }),
        1 => Just(Op::Age),
    ]
}

const COMMANDS: [&str; 14] = [
    "start a uid={1 2 3} rate=100",
    "start b uid={3 4} rate=1MiB/s minrate=64KiB/s",
    "start c uid={5 6 7} rate=50 borrow=1",
    "start d uid={1 5 8} rate=3 also=a+b",
    "start e uid={2 6 9} rate=5 also=a realtime=1 borrow=1",
    "change a rate=7 minrate=2",
    "change a rate=10000000",
    "change b rate=1B/s minrate=0",
    "change d also=",
    "stop c",
    "stop d",
    "stop e",
    "stop a",
    "change default rate=20",
];

proptest! {
    #[test]
    fn every_request_comes_out_once_and_in_order(
        ops in proptest::collection::vec(op(), 1..300),
        global in any::<bool>(),
    ) {
        let tunables = Tunables {
            global_rate: if global { GlobalRate::On } else { GlobalRate::Off },
            ..Tunables::default()
        };
        let mut sim = Sim::new("uid", 2, &tunables);
        let mut queued: HashMap<(usize, u32), VecDeque<u64>> = HashMap::new();
        let mut len = [0u32; 2];
        let mut next = 1;
        for op in ops {
            match op {
                Op::Arrive { part, owner, pages } => {
                    sim.queue(part, owner, 1, pages);
                    queued.entry((part, owner)).or_default().push_back(next);
                    next += 1;
                    len[part] += 1;
                }
                Op::Pass { owner, forced } => {
                    let way = if forced { Way::Forced } else { Way::Opportunity };
                    let passed = sim.pass(owner, 1, way);
                    next += 1;
                    let behind = queued.get(&(0, owner)).is_some_and(|q| !q.is_empty());
                    match passed {
                        Passed::Counted => prop_assert!(forced || !behind),
                        Passed::Refused => prop_assert!(!forced),
                        Passed::Stale => prop_assert!(false),
                    }
                }
                Op::Serve { part } => match sim.get(part, false) {
                    Get::Item(request) => {
                        let first = queued.get_mut(&(part, request.owner)).and_then(VecDeque::pop_front);
                        prop_assert_eq!(first, Some(request.id));
                        len[part] -= 1;
                    }
                    Get::Empty => prop_assert_eq!(len[part], 0),
                    Get::Throttled { until } => {
                        prop_assert!(len[part] > 0 && until > sim.now);
                    }
                },
                Op::Wait(ns) => sim.now += ns,
                Op::Rule { index, refresh } => {
                    let command = COMMANDS[index];
                    let parsed = nrs_sched::rules::Command::parse(command).unwrap();
                    if sim.book.apply(&parsed).is_ok() {
                        if refresh {
                            sim.rule(command);
                        } else {
                            sim.rule_later(command);
                        }
                    }
                }
                Op::Refresh { part, from } => {
                    let now = sim.now;
                    sim.parts[part].refresh(from, 3, now);
                }
                Op::Age => {
                    let now = sim.now;
                    for part in &mut sim.parts {
                        part.age(now, 64);
                        feed(part);
                    }
                }
            }
            for (part, len) in sim.parts.iter().zip(len) {
                prop_assert_eq!(part.len(), len);
            }
        }
        // All that is left comes out by itself before long, or when the part is drained.
        for part in 0..2 {
            let force = part == 0;
            loop {
                match sim.get(part, force) {
                    Get::Item(request) => {
                        let first = queued.get_mut(&(part, request.owner)).and_then(VecDeque::pop_front);
                        prop_assert_eq!(first, Some(request.id));
                    }
                    Get::Empty => break,
                    Get::Throttled { until } => {
                        prop_assert!(!force);
                        // No request here takes longer than the largest one at a byte per second.
                        prop_assert!(until - sim.now < 400 * 300 * 4096 * SECOND);
                        sim.now = until;
                    }
                }
            }
        }
        prop_assert!(queued.values().all(VecDeque::is_empty));
    }
}
