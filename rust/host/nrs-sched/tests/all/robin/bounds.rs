// SPDX-License-Identifier: GPL-2.0-only

//! Limits of classes and of records: no request is lost when they are reached.

use super::ALL;
use crate::bench::{attrs, read, Bench};
use nrs_sched::{
    arena::feed,
    policy::{
        params::{heads::PerHead, BufferMax, ClassesMax},
        robin, Kind, Part, Tunables,
    },
    rng::Rng,
};
use std::collections::{BTreeMap, HashMap, VecDeque};

fn tunables(classes: u32, records: u32, quantum: u32) -> Tunables {
    let mut tunables = Tunables::default();
    let classes = ClassesMax::new(classes).expect("within limits");
    tunables.crrn.classes_max = classes;
    for of in [&mut tunables.orr, &mut tunables.trr] {
        of.classes_max = classes;
        of.buffer_max = BufferMax::new(records).expect("within limits");
        let quantum = robin::params::Quantum::new(quantum).expect("within limits");
        of.quantum = PerHead::both(quantum);
    }
    tunables
}

/// Checks 10,000 requests for one object with 256 records: the oldest 256 are sorted, batch by
/// batch.
#[test]
fn one_object_beyond_the_records() {
    for quantum in [100, 1000] {
        let mut bench = Bench::new(Kind::Orr, &tunables(64, 256, quantum));
        let mut rng = Rng::new(1);
        let mut line = VecDeque::new();
        for i in 0..10_000u64 {
            let offset = rng.below(1 << 20);
            let id = bench.push(&attrs(1), read(offset)).expect("taken");
            feed(&mut bench.part);
            line.push_back((i / u64::from(quantum), offset, id));
        }
        let mut sorted = std::collections::BTreeSet::new();
        sorted.extend(line.drain(..256));
        for _ in 0..10_000 {
            let (_, _, id) = sorted.pop_first().expect("not empty");
            assert_eq!(bench.serve(), Some(id));
            sorted.extend(line.pop_front());
        }
        assert_eq!(bench.serve(), None);
    }
}

/// Checks many classes with few records, with and without memory in time. Each request is served
/// once, each class has its turn in each round, and batches of one class do not mix.
#[test]
fn many_objects_beyond_the_records() {
    for fed in [true, false] {
        for classes in [3u32, 40, 400] {
            let mut bench = Bench::new(Kind::Orr, &tunables(1024, 256, 8));
            let mut rng = Rng::new(u64::from(classes));
            let mut who = HashMap::new();
            let mut count = HashMap::new();
            for _ in 0..10_000 {
                let class = rng.below(u64::from(classes)) as u32;
                let id = bench.push(&attrs(class), read(rng.below(1 << 20)));
                let number = count.entry(class).or_insert(0u64);
                who.insert(id.expect("taken"), (class, *number / 8));
                *number += 1;
                if fed {
                    feed(&mut bench.part);
                }
            }
            assert_eq!(bench.part.overflow() == 0, fed || classes < 64);
            let mut last = BTreeMap::new();
            let mut round = 0;
            for i in 0..10_000 {
                let id = bench.serve().expect("something is queued");
                let (class, batch) = who.remove(&id).expect("it comes out once");
                if i % 64 == 0 && fed {
                    feed(&mut bench.part);
                }
                if bench.part.overflow() == 0 {
                    let before = last.insert(class, batch);
                    assert!(before <= Some(batch), "batches of one class do not mix");
                    assert!(batch >= round, "rounds go one after the other");
                    round = batch;
                }
            }
            assert_eq!(bench.serve(), None);
        }
    }
}

/// Checks that requests with and without a record are removed from the middle, and all others are
/// served.
#[test]
fn dequeue_with_and_without_record() {
    for kind in ALL {
        for without in [true, false] {
            let mut bench = Bench::new(kind, &tunables(64, 256, 8));
            let mut rng = Rng::new(3);
            let mut ids = Vec::new();
            for _ in 0..3000 {
                let class = rng.below(5) as u32;
                ids.extend(bench.push(&attrs(class), read(rng.below(1 << 20))));
                if !without {
                    feed(&mut bench.part);
                }
            }
            let mut served = Vec::new();
            while bench.len() > 0 {
                let index = rng.below(ids.len() as u64) as usize;
                if rng.below(2) == 0 {
                    bench.take(ids.swap_remove(index));
                } else {
                    let id = bench.serve().expect("not empty");
                    ids.retain(|other| *other != id);
                    served.push(id);
                }
            }
            assert!(ids.is_empty() && served.len() > 1000);
        }
    }
}

/// Checks more than 65,536 requests of one class, where 16-bit counts would wrap, beside one of
/// another class.
#[test]
fn seventy_thousand_of_one() {
    for kind in ALL {
        let mut bench = Bench::new(kind, &tunables(64, 1 << 17, 65_535));
        for i in 0..70_000 {
            bench.push(&attrs(1), read(i));
            if i % 16 == 0 {
                feed(&mut bench.part);
            }
        }
        let other = bench.push(&attrs(2), read(0));
        let order = bench.drain();
        assert_eq!(order.len(), 70_001);
        assert!(order.iter().filter(|&&id| Some(id) != other).is_sorted());
        let place = order.iter().position(|&id| Some(id) == other);
        let want = match kind {
            Kind::Crrn => 8,
            _ => 65_535,
        };
        assert_eq!(place, Some(want), "{kind:?}");
    }
}

/// Checks a thousand clients with at most 64 classes. The remaining clients are served as one class
/// and counted; once the first clients are idle, new ones get classes.
#[test]
fn classes_come_and_go() {
    for kind in ALL {
        let mut bench = Bench::new(kind, &tunables(64, 256, 8));
        for who in 0..1000 {
            bench.push(&attrs(who), read(0));
            feed(&mut bench.part);
        }
        assert_eq!(bench.part.overflow(), 936);
        let order = bench.drain();
        assert_eq!(order.len(), 1000);
        // The oldest idle class is replaced by another one at once.
        let class = bench.part.classify(&attrs(2000), bench.now);
        assert!(bench.part.is_live(class));
        assert_eq!(bench.part.overflow(), 936);
        // All idle classes are evicted after ten seconds.
        bench.now += 11_000_000_000;
        while bench.part.age(bench.now, 64) {}
        assert!(!bench.part.is_live(class));
    }
}

/// Checks that a client that accesses ever new objects does not starve another client's second
/// batch.
#[test]
fn new_objects_do_not_starve_other_clients() {
    let mut bench = Bench::new(Kind::Orr, &tunables(16_384, 65_536, 8));
    for _ in 0..80 {
        bench.push(&attrs(u32::MAX), read(0));
    }
    let mut objects = 0..;
    let mut come = |bench: &mut Bench| {
        bench.push(&attrs(objects.next().expect("no end")), read(0));
        feed(&mut bench.part);
    };
    come(&mut bench);
    come(&mut bench);
    let (mut served, mut since, mut longest) = (0, 0, 0);
    while served < 80 {
        let id = bench.serve().expect("not empty");
        if id <= 80 {
            served += 1;
            longest = longest.max(since);
            since = 0;
        } else {
            // Always a new object, and always two of them queued.
            come(&mut bench);
            since += 1;
        }
    }
    // The limit, and the requests that were deferred to the round.
    assert!(longest <= 64 + 3 + 3, "{longest}");
}
