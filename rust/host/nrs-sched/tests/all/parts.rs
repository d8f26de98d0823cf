// SPDX-License-Identifier: GPL-2.0-only

//! What every policy promises: each request comes out exactly once, in order within its class, and
//! something is served whenever something is queued.

use nrs_sched::{
    arena::{attrs, feed, lone_part, pass, view, Request},
    item::{Cost, Item},
    policy::{
        fairshare::params::Select, params::ClassesMax, AnyPart, Config, Get, Grant, Kind, Part,
        Passed, Tunables,
    },
};
use proptest::prelude::*;
use std::collections::{HashMap, VecDeque};

fn part(kind: Kind, select: Select, classes_max: u32) -> AnyPart<Request> {
    let mut tunables = Tunables::default();
    tunables.fairshare.select = select;
    tunables.fairshare.classes_max = ClassesMax::new(classes_max).expect("within limits");
    let argument = (kind == Kind::Fairshare).then_some("uid_fair");
    let config = Config::parse(kind, argument, &tunables).expect("valid");
    lone_part(&config, 7).expect("memory")
}

/// All policies and selections.
fn all(classes_max: u32) -> Vec<AnyPart<Request>> {
    let mut parts = vec![part(Kind::Fifo, Select::Deadline, classes_max)];
    for select in Select::ALL {
        parts.push(part(Kind::Fairshare, *select, classes_max));
    }
    parts
}

fn take(part: &mut AnyPart<Request>) -> Option<(Request, Grant)> {
    match part.get(&view(0, false)) {
        Get::Item(found) => Some(found),
        Get::Empty => None,
        Get::Throttled { .. } => panic!("nothing here throttles"),
    }
}

#[derive(Clone, Debug)]
enum Op {
    Arrive { owner: u32, pages: u32 },
    Pass { owner: u32 },
    Serve,
    End,
    Feed,
    Age,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        5 => (0u32..12, 1u32..300).prop_map(|(owner, pages)| Op::Arrive { owner, pages }),
        1 => (0u32..12).prop_map(|owner| Op::Pass { owner }),
        4 => Just(Op::Serve),
        3 => Just(Op::End),
        1 => Just(Op::Feed),
        1 => Just(Op::Age),
    ]
}

proptest! {
    #[test]
    fn every_request_comes_out_once_and_in_order(ops in proptest::collection::vec(op(), 1..400)) {
        for mut part in all(64) {
            let mut queued: HashMap<u32, VecDeque<u64>> = HashMap::new();
            let mut active = VecDeque::new();
            let (mut next, mut now, mut len) = (0u64, 0u64, 0u32);
            for op in &ops {
                now += 1_000_000_000;
                match op {
                    Op::Arrive { owner, pages } => {
                        let class = part.classify(&attrs(*owner), now);
                        let request = Request { owner: *owner, id: next, pages: *pages, arrival: now, ..Request::default() };
                        prop_assert!(part.enqueue(request, class, now).is_ok());
                        queued.entry(*owner).or_default().push_back(next);
                        next += 1;
                        len += 1;
                    }
                    Op::Pass { owner } => {
                        let class = part.classify(&attrs(*owner), now);
                        let request = Request { owner: *owner, id: 0, pages: 1, arrival: now, ..Request::default() };
                        prop_assert_eq!(pass(&mut part, class, request.cost()), Passed::Counted);
                    }
                    Op::Serve => {
                        let found = take(&mut part);
                        prop_assert_eq!(found.is_some(), len > 0);
                        if let Some((request, grant)) = found {
                            let first = queued.get_mut(&request.owner).and_then(VecDeque::pop_front);
                            prop_assert_eq!(first, Some(request.id));
                            active.push_back((request, grant));
                            len -= 1;
                        }
                    }
                    Op::End => {
                        if let Some((request, grant)) = active.pop_front() {
                            part.stop(&grant, request.cost(), now);
                        }
                    }
                    Op::Feed => feed(&mut part),
                    Op::Age => {
                        let _ = part.age(now, 64);
                    }
                }
                prop_assert_eq!(part.len(), len);
            }
            while let Get::Item((request, _)) = part.get(&view(0, true)) {
                let first = queued.get_mut(&request.owner).and_then(VecDeque::pop_front);
                prop_assert_eq!(first, Some(request.id));
                len -= 1;
            }
            prop_assert_eq!(len, 0);
            prop_assert!(queued.values().all(VecDeque::is_empty));
        }
    }

    #[test]
    fn a_lone_entity_is_served_like_fifo(sizes in proptest::collection::vec(1u32..1000, 1..200)) {
        let mut orders = Vec::new();
        for mut part in all(64) {
            let class = part.classify(&attrs(1), 0);
            for (id, pages) in (0u64..).zip(&sizes) {
                let request = Request { owner: 1, id, pages: *pages, arrival: id, ..Request::default() };
                prop_assert!(part.enqueue(request, class, id).is_ok());
            }
            let order: Vec<u64> = std::iter::from_fn(|| take(&mut part)).map(|(r, _)| r.id).collect();
            orders.push(order);
        }
        prop_assert!(orders.windows(2).all(|pair| pair[0] == pair[1]));
    }
}

/// A table that is full of classes with queued requests sends the rest to the default class, counts them,
/// and serves them.
#[test]
fn beyond_the_bound_the_default_class_serves() {
    for select in Select::ALL {
        let mut part = part(Kind::Fairshare, *select, 64);
        feed(&mut part);
        for owner in 0..200 {
            let class = part.classify(&attrs(owner), 0);
            assert_eq!(part.is_live(class), owner < 64, "{select} {owner}");
            let request = Request {
                owner,
                id: owner.into(),
                pages: 1,
                arrival: owner.into(),
                ..Request::default()
            };
            assert!(part.enqueue(request, class, 0).is_ok());
        }
        assert_eq!(part.overflow(), 136, "{select}");
        assert_eq!(std::iter::from_fn(|| take(&mut part)).count(), 200);
    }
}

/// Without memory from the worker the reserve is all there is.
#[test]
fn without_memory_the_default_class_serves() {
    let mut part = part(Kind::Fairshare, Select::Deadline, 1 << 20);
    let live = (0..100_000)
        .filter(|owner| {
            let class = part.classify(&attrs(*owner), 0);
            let request = Request {
                owner: *owner,
                id: 0,
                pages: 1,
                arrival: 0,
                ..Request::default()
            };
            assert!(part.enqueue(request, class, 0).is_ok());
            part.is_live(class)
        })
        .count();
    assert!((64..10_000).contains(&live), "{live}");
    assert_eq!(part.overflow(), 100_000 - live as u64);
    assert_eq!(part.len(), 100_000);
}

/// A request that passes is not told about when it ends, so it must not keep its class.
#[test]
fn passing_does_not_hold_a_class() {
    let mut part = part(Kind::Fairshare, Select::Deadline, 64);
    feed(&mut part);
    for owner in 0..1000 {
        let class = part.classify(&attrs(owner), owner.into());
        assert!(part.is_live(class), "{owner}");
        assert_eq!(
            pass(&mut part, class, Cost::of_bytes(4096)),
            Passed::Counted
        );
    }
    assert_eq!(part.overflow(), 0);
}

/// A class that only ever passes is in use, however long ago it was made.
#[test]
fn a_class_that_passes_is_not_forgotten() {
    let mut part = part(Kind::Fairshare, Select::Deadline, 64);
    let (used, unused) = (part.classify(&attrs(1), 0), part.classify(&attrs(2), 0));
    for second in 0..60u64 {
        assert_eq!(pass(&mut part, used, Cost::of_bytes(4096)), Passed::Counted);
        part.age(second * 1_000_000_000, 64);
    }
    assert!(part.is_live(used) && !part.is_live(unused));
    // Unused from now on, it goes.
    for second in 60..90u64 {
        part.age(second * 1_000_000_000, 64);
    }
    assert!(!part.is_live(used));
    assert_eq!(pass(&mut part, used, Cost::of_bytes(4096)), Passed::Stale);
}
