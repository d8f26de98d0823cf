// SPDX-License-Identifier: GPL-2.0-only

//! Memory that a part takes for its classes and for the requests queued in them. It is counted
//! where it is allocated ([`nrs_sched::mem::taken`]), with requests of the kernel's size
//! ([`super::lean`]).

use super::lean::Lean;
use nrs_sched::{
    backlog::{member, Case},
    item::{ByteRange, Direction, Item},
    mem::{taken, Need},
    order::{Order, OrderOutcome, Relation},
    policy::{
        params::{BufferMax, ClassesMax},
        tbf::params::CacheSize,
        AnyPart, AnyShared, Kind, Part, Tunables,
    },
    qbm::{gate::Gates, plan::By},
    rng::Rng,
};

/// Number of parts of the service, as on a server with two CPU partitions.
const PARTS: u32 = 2;

/// Memory of a policy with a number of classes, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Memory that all parts of the service share.
    pub shared: usize,
    /// Memory of a part without classes, including the reserve for the first classes.
    pub empty: usize,
    /// Additional memory of the classes, including the reserve for more classes.
    pub classes: usize,
    /// Additional memory of the queued requests.
    pub requests: usize,
}

/// Maximum number of classes for which the default limits are used. Above it the largest limits are
/// used, which increases the memory that is allocated once.
const USUAL: u32 = 4_096;

/// Returns the parameters for `classes` classes.
fn tunables(classes: u32) -> Tunables {
    let mut tunables = Tunables::default();
    tunables.qbm.by = By::Uid;
    if classes <= USUAL {
        return tunables;
    }
    let most = ClassesMax::new(ClassesMax::MAX).expect("within limits");
    let requests = BufferMax::new(BufferMax::MAX).expect("within limits");
    tunables.fairshare.classes_max = most;
    tunables.tbf.classes_max = most;
    // No class has requests at first, and idle classes must not be evicted.
    tunables.tbf.cache_size = CacheSize::new(CacheSize::MAX).expect("within limits");
    tunables.crrn.classes_max = most;
    tunables.qbm.classes_max = most;
    tunables.delay.buffer_max = requests;
    for sorted in [&mut tunables.orr, &mut tunables.trr] {
        sorted.classes_max = most;
        sorted.buffer_max = requests;
    }
    tunables
}

/// Allocates the memory that `part` needs.
fn feed<I: Item>(part: &mut AnyPart<I>) {
    for _ in 0..8 {
        if part.need().is_empty() {
            return;
        }
        let spare = part.need().allocate().expect("memory");
        drop(part.grow(spare));
    }
}

/// Measures a part of `case` with `classes` classes that have `depth` requests queued each.
///
/// # Panics
///
/// The allocation failed, or a request is declined.
pub fn measure(case: &Case, classes: u32, depth: u32) -> Footprint {
    let config = case.config(classes).with(&tunables(classes));
    let start = taken();
    let common = AnyShared::new(&config, 1, PARTS).expect("memory");
    let gates = (case.kind == Kind::Qbm).then(|| Gates::new(classes.min(16_384), 1));
    let update = case.update(&config, classes);
    let shared = taken() - start;
    let mut part = AnyPart::<Lean>::new(&config, 1, &common).expect("memory");
    if let Some(update) = update {
        drop(part.update(update, 0));
    }
    feed(&mut part);
    let empty = taken() - start - shared;
    let found: Vec<_> = (0..classes)
        .map(|owner| {
            feed(&mut part);
            part.classify(&member(owner, classes, case.levels), 0)
        })
        .collect();
    feed(&mut part);
    let with_classes = taken() - start - shared;
    let mut rng = Rng::new(1);
    for _ in 0..depth {
        for &class in &found {
            feed(&mut part);
            let request = Lean::new(ByteRange::new(0, rng.below(1 << 40), 4096));
            assert!(part.enqueue(request, class, 0).is_ok(), "{}", case.name);
        }
    }
    feed(&mut part);
    let all = taken() - start - shared;
    assert_eq!(part.len(), classes * depth);
    drop(gates);
    Footprint {
        shared,
        empty,
        classes: with_classes.saturating_sub(empty),
        requests: all.saturating_sub(with_classes),
    }
}

/// Measures the memory of an order table with `requests` requests, and without any, bytes.
///
/// # Panics
///
/// The allocation failed.
pub fn order(requests: u32) -> (usize, usize) {
    let start = taken();
    let mut order = Order::<Lean>::new(1 << 20, 1).expect("memory");
    let grow = |order: &mut Order<Lean>| {
        while !order.need().is_empty() {
            let spare = order.need().allocate().expect("memory");
            drop(order.grow(spare));
        }
    };
    grow(&mut order);
    let empty = taken() - start;
    for number in 0..requests {
        grow(&mut order);
        let range = ByteRange::new(0, u64::from(number) << 12, 4096);
        match order.enter(Relation::overlap(0, &range, Direction::Write), false) {
            OrderOutcome::Free(id) => drop(order.running(id)),
            other => panic!("they do not overlap: {other:?}"),
        }
    }
    (taken() - start - empty, empty)
}
