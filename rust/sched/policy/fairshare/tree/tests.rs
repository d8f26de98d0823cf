// SPDX-License-Identifier: GPL-2.0-only

//! Checks the invariants of the tree with two parts, while requests arrive, complete, are removed,
//! forced and corrected.

use super::*;
use crate::{
    arena::{feed, Request},
    sched::{
        attr::{Attrs, Id},
        class::ClassId,
        item::Direction,
        mem,
        policy::{
            fairshare::{
                entity::COST_MAX, entity_table::Weights, node::NodeBody, params::CostModel,
                timeline::tests::looks, Config, Shared, State, Update,
            },
            params::ClassesMax,
            BypassReason, Configuration, Decision, Grant, Part, PartView, Tunables,
        },
        rng::Rng,
        units::NSEC_PER_SEC,
    },
};
use std::collections::HashMap;

fn parts(model: CostModel) -> Vec<State<Request>> {
    let mut tunables = Tunables::default().fairshare;
    tunables.cost_model = model;
    let config = Config::parse(Some("gid_then_uid_fair"), &tunables).unwrap();
    let shared = mem::Shared::new(Shared::new(&config, 1, 2).unwrap()).unwrap();
    let part = |seed| State::new(&config, seed, &shared).unwrap();
    (0..2).map(part).collect()
}

/// Checks the invariants of all schedulers of `state`; returns the virtual time of the root.
fn check(state: &State<Request>) -> u64 {
    let tree = state.selector.tree.as_ref().unwrap();
    let nodes = &state.members;
    let mut weights = HashMap::from([(NONE, 0)]);
    for idx in 0..nodes.table.entry_count() {
        let Some(node) = nodes.table.at(idx) else {
            continue;
        };
        let busy = match &node.body {
            NodeBody::Leaf(leaf) => !leaf.queue.is_empty(),
            NodeBody::Inner(inner) => {
                weights.entry(idx).or_insert(0);
                !inner.sched.is_empty()
            }
        };
        assert_eq!(node.entity.place != TimelineState::Out, busy, "{idx}");
        if busy {
            *weights.entry(node.parent).or_insert(0) += u64::from(node.entity.weight());
        }
    }
    for (idx, weight) in weights {
        let sched = nodes.sched(idx).map(NodeScheduler::weight);
        assert_eq!(sched.unwrap_or(tree.root.weight()), weight, "{idx}");
    }
    tree.root.now()
}

fn who(rng: &mut Rng) -> Attrs {
    Attrs {
        gid: Id::new(rng.below(3) as u32),
        uid: Id::new(rng.below(4) as u32),
        ..Attrs::UNKNOWN
    }
}

/// Performs a random operation on `state` at `now`.
fn step(
    state: &mut State<Request>,
    rng: &mut Rng,
    now: u64,
    queued: &mut Vec<(ClassId, <Request as Item>::Handle)>,
    running: &mut Vec<(Request, Grant)>,
) {
    let pages = [1, 16, 256, 2 * COST_MAX][rng.below(4) as usize];
    let mut request = Request {
        pages,
        arrival: now,
        direction: Direction::Read,
        ..Request::default()
    };
    let class = state.classify(&who(rng), now);
    match rng.below(16) {
        0..=5 => {
            queued.push((class, request.register()));
            state.enqueue(request, class, now).unwrap();
        }
        6 => {
            let _ = state.pass(
                class,
                request.cost(),
                BypassReason::Forced { contended: true },
                || now,
            );
        }
        7 if !queued.is_empty() => {
            // A request that was dispatched in the meantime is not found.
            let (class, handle) = queued.swap_remove(rng.below(queued.len() as u64) as usize);
            state.dequeue(class, &handle, now);
        }
        8 => {
            let text = format!("gid:1:{} uid:2:{}", 1 + rng.below(9), 1 + rng.below(10_000));
            let weights = mem::Shared::new(Weights::new().apply(&text).unwrap()).unwrap();
            state.update(Update::new(weights, &Default::default()), now);
            state.refresh(0, u32::MAX, now);
        }
        9 if !running.is_empty() => {
            let at = rng.below(running.len() as u64) as usize;
            let (request, grant) = running.swap_remove(at);
            state.stop(&grant, request.cost(), now);
        }
        _ => {
            let view = PartView {
                now,
                force: false,
                table: None,
            };
            match state.get(&view) {
                Decision::Item(served) => running.push(served),
                Decision::Empty => assert_eq!(state.len(), 0),
                Decision::Throttled { .. } => panic!("nothing is throttled"),
            }
        }
    }
}

#[test]
fn invariants() {
    for (seed, model) in [(1, CostModel::Pages), (2, CostModel::Time)] {
        let mut parts = parts(model);
        let mut rng = Rng::new(seed);
        let mut queued = [Vec::new(), Vec::new()];
        let mut running = [Vec::new(), Vec::new()];
        let mut clocks = [0u64; 2];
        let mut now = 86_400 * NSEC_PER_SEC;
        for _ in 0..30_000 {
            let part = rng.below(2) as usize;
            now += rng.below(1_000_000);
            let state = &mut parts[part];
            feed(state);
            step(state, &mut rng, now, &mut queued[part], &mut running[part]);
            if rng.below(3000) == 0 {
                // Idle classes expire.
                now += 11 * NSEC_PER_SEC;
                state.age(now, 1000);
            }
            let clock = check(state);
            assert!(clock.wrapping_sub(clocks[part]) as i64 >= 0);
            clocks[part] = clock;
        }
    }
}

/// Counts the nodes of the timelines that `count` decisions read with `users` backlogged users;
/// returns the sum and the largest number for one decision.
fn looks_of(users: u32, mode: &str, weights: &str, count: u32) -> (u64, u64) {
    let mut tunables = Tunables::default().fairshare;
    tunables.classes_max = ClassesMax::new(1 << 18).unwrap();
    let config = Config::parse(Some(mode), &tunables).unwrap();
    let shared = mem::Shared::new(Shared::new(&config, 1, 1).unwrap()).unwrap();
    let mut state = State::new(&config, 1, &shared).unwrap();
    let weights = mem::Shared::new(Weights::new().apply(weights).unwrap()).unwrap();
    state.update(Update::new(weights, &tunables), 0);
    for uid in 0..users {
        feed(&mut state);
        let attrs = Attrs {
            uid: Id::new(uid),
            gid: Id::new(uid % 300),
            ..Attrs::UNKNOWN
        };
        let class = state.classify(&attrs, 0);
        for id in 0..2 {
            let request = Request::new(uid, id, 1, 0);
            state.enqueue(request, class, 0).unwrap();
        }
    }
    let (start, mut most) = (looks(), 0);
    for now in 0..count.into() {
        let before = looks();
        let view = PartView {
            now,
            force: false,
            table: None,
        };
        let Decision::Item((request, grant)) = state.get(&view) else {
            panic!("all have requests");
        };
        state.stop(&grant, request.cost(), now);
        state.enqueue(request, grant.class, now).unwrap();
        most = most.max(looks() - before);
    }
    (looks() - start, most)
}

/// Verifies that no decision is much more work than the mean, however many entities become eligible
/// at a time.
#[test]
fn there_are_no_bursts_of_work() {
    let weights: Vec<_> = (0..1000).map(|uid| format!("uid:{uid}:10000")).collect();
    for (users, mode, weights) in [
        (100_000, "uid_fair", ""),
        (100_000, "uid_fair", &weights.join(" ")),
        (30_000, "gid_then_uid_fair", ""),
    ] {
        let count = 2 * users + users / 2;
        let (sum, most) = looks_of(users, mode, weights, count);
        let mean = sum / u64::from(count);
        assert!(most <= 4 * mean, "{mode}: {most}, on average {mean}");
    }
}
