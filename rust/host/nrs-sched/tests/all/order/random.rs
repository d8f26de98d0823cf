// SPDX-License-Identifier: GPL-2.0-only

//! Random graphs, ranges and streams under every policy.

use super::model::{configs, Arrival, Watched};
use nrs_sched::{
    arena::Request,
    item::{Direction, Spot},
    order::Relation,
    policy::Config,
    server::Relate,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Range {
        domain: u64,
        block: u64,
        blocks: u64,
        direction: Direction,
    },
    Stream(u64),
    /// So many requests before this one, each of them.
    Graph(Vec<u64>),
    Free,
    Unrelated,
    Complete(usize),
    Promote(u64),
    ForceAll,
    Feed,
    Wait(u64),
    /// Another policy.
    Install(usize),
}

/// An operation, and how it is brought if it is a request.
type Step = (Op, Arrival);

/// How many of each kind there are.
#[derive(Clone, Copy, Debug)]
struct Mix {
    ranges: u32,
    streams: u32,
    graphs: u32,
}

const MIXES: [Mix; 4] = [
    Mix {
        ranges: 20,
        streams: 0,
        graphs: 0,
    },
    Mix {
        ranges: 0,
        streams: 20,
        graphs: 0,
    },
    Mix {
        ranges: 0,
        streams: 0,
        graphs: 20,
    },
    Mix {
        ranges: 8,
        streams: 6,
        graphs: 6,
    },
];

fn op(mix: Mix) -> impl Strategy<Value = Op> {
    let direction = prop_oneof![
        4 => Just(Direction::Read),
        3 => Just(Direction::Write),
        1 => Just(Direction::Other),
    ];
    let range =
        (0u64..2, 0u64..24, 0u64..6, direction).prop_map(|(domain, block, blocks, direction)| {
            Op::Range {
                domain,
                block,
                blocks,
                direction,
            }
        });
    prop_oneof![
        mix.ranges => range,
        mix.streams => (0u64..5).prop_map(Op::Stream),
        mix.graphs => proptest::collection::vec(1u64..40, 0..9).prop_map(Op::Graph),
        2 => prop_oneof![Just(Op::Free), Just(Op::Unrelated)],
        12 => any::<usize>().prop_map(Op::Complete),
        2 => (1u64..60).prop_map(Op::Promote),
        1 => Just(Op::ForceAll),
        1 => Just(Op::Feed),
        2 => (0u64..50_000_000).prop_map(Op::Wait),
        1 => any::<usize>().prop_map(Op::Install),
    ]
}

fn step(mix: Mix) -> impl Strategy<Value = Step> {
    (op(mix), 0u32..6, 0u32..10, 0u32..20).prop_map(|(op, owner, high, forced)| {
        let how = Arrival {
            owner,
            high: high == 0,
            forced: forced == 0,
        };
        (op, how)
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    (0..MIXES.len()).prop_flat_map(|mix| proptest::collection::vec(step(MIXES[mix]), 1..200))
}

fn run(watched: &mut Watched, configs: &[Config], steps: &[Step]) {
    for (op, how) in steps {
        let (now, last) = (watched.server.now, watched.len());
        let mut request = Request {
            pages: 1 + how.owner * 3,
            spot: Spot::new(u64::from(how.owner), now % 4096, 0),
            ..Request::default()
        };
        let relate = match op {
            Op::Range {
                domain,
                block,
                blocks,
                direction,
            } => {
                request.spot = Spot::new(*domain, block * 4096, blocks * 4096);
                request.direction = *direction;
                Some(Relate::Range(*domain))
            }
            Op::Stream(stream) => Some(Relate::As(Relation::sequence(100 + stream))),
            Op::Graph(back) => {
                let ids: Vec<u64> = back
                    .iter()
                    .filter_map(|back| last.checked_sub(*back))
                    .collect();
                Some(watched.after(&ids))
            }
            Op::Free => Some(Relate::As(Relation::Free)),
            Op::Unrelated => Some(Relate::Not),
            Op::Complete(which) => {
                watched.complete(*which);
                None
            }
            Op::Promote(back) => {
                if let Some(id) = last.checked_sub(*back) {
                    watched.promote(id);
                }
                None
            }
            Op::ForceAll => {
                watched.force_all();
                None
            }
            Op::Feed => {
                watched.feed();
                None
            }
            Op::Wait(ns) => {
                watched.wait(*ns);
                None
            }
            Op::Install(which) => {
                watched.install(&configs[which % configs.len()]);
                None
            }
        };
        if let Some(relate) = relate {
            watched.arrive(request, relate, *how);
        }
        watched.check_urgent();
    }
    let mut which = 0usize;
    watched.drain(|| {
        which = which.wrapping_mul(31).wrapping_add(7);
        which
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_served_is_a_linear_extension(
        steps in steps(),
        slots in 1u32..6,
        records in prop_oneof![1u32..12, Just(4096u32)],
    ) {
        let configs = configs();
        for config in &configs {
            let mut watched = Watched::new(config, slots, records);
            run(&mut watched, &configs, &steps);
        }
    }
}
