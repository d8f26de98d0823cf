// SPDX-License-Identifier: GPL-2.0-only

//! Tests of a `fairshare` part at the limits of its class table, and with classes that only pass
//! requests.

use crate::bench::{read, Bench};
use nrs_sched::{
    arena::{attrs, pass, Request},
    item::Cost,
    policy::{
        fairshare::params::Select, params::ClassesMax, BypassOutcome, Config, Kind, Part, Tunables,
    },
};

fn bench(select: Select, classes_max: u32) -> Bench {
    let mut tunables = Tunables::default();
    tunables.fairshare.select = select;
    tunables.fairshare.classes_max = ClassesMax::new(classes_max).expect("within limits");
    let config = Config::parse(Kind::Fairshare, Some("uid_fair"), &tunables);
    Bench::of(&config.expect("valid"))
}

/// Checks that requests beyond a full class table are counted and served in the default class.
#[test]
fn beyond_the_bound_the_default_class_serves() {
    for select in Select::ALL {
        let mut bench = bench(*select, 64);
        for owner in 0..200 {
            let id = bench.push(&attrs(owner), read(0)).expect("taken");
            let class = bench.queued[&id].0;
            assert_eq!(bench.part.is_live(class), owner < 64, "{select} {owner}");
        }
        assert_eq!(bench.part.overflow(), 136, "{select}");
        assert_eq!(bench.drain().len(), 200);
    }
}

/// Checks that a part without memory from the worker creates classes from the reserve only.
#[test]
fn without_memory_the_default_class_serves() {
    let mut part = bench(Select::Deadline, 1 << 20).part;
    let live = (0..100_000)
        .filter(|owner| {
            let class = part.classify(&attrs(*owner), 0);
            let request = Request::new(*owner, 0, 1, 0);
            assert!(part.enqueue(request, class, 0).is_ok());
            part.is_live(class)
        })
        .count();
    assert!((64..10_000).contains(&live), "{live}");
    assert_eq!(part.overflow(), 100_000 - live as u64);
    assert_eq!(part.len(), 100_000);
}

/// Checks that a passing request does not pin its class: the part does not see the end of the
/// request.
#[test]
fn passing_does_not_hold_a_class() {
    let mut part = bench(Select::Deadline, 64).part;
    for owner in 0..1000 {
        let class = part.classify(&attrs(owner), owner.into());
        assert!(part.is_live(class), "{owner}");
        assert_eq!(
            pass(&mut part, class, Cost::of_bytes(4096)),
            BypassOutcome::Counted
        );
    }
    assert_eq!(part.overflow(), 0);
}

/// Checks that a class that only passes requests is not evicted, regardless of its age.
#[test]
fn a_class_that_passes_is_not_forgotten() {
    let mut part = bench(Select::Deadline, 64).part;
    let (used, unused) = (part.classify(&attrs(1), 0), part.classify(&attrs(2), 0));
    for second in 0..60u64 {
        assert_eq!(
            pass(&mut part, used, Cost::of_bytes(4096)),
            BypassOutcome::Counted
        );
        part.age(second * 1_000_000_000, 64);
    }
    assert!(part.is_live(used) && !part.is_live(unused));
    // The class is unused from now on and is evicted.
    for second in 60..90u64 {
        part.age(second * 1_000_000_000, 64);
    }
    assert!(!part.is_live(used));
    assert_eq!(
        pass(&mut part, used, Cost::of_bytes(4096)),
        BypassOutcome::Stale
    );
}
