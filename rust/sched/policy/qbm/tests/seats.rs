// SPDX-License-Identifier: GPL-2.0-only

//! How classes come by their gates, and lose them.

use super::{super::record::SEAT_WAIT, *};
use crate::sched::policy::params::ClassesMax;

/// A new class is held until the worker has given it a seat; that it waits is what wakes the worker.
#[test]
fn new_classes_wait_for_a_seat() {
    let mut bench = Bench::new();
    assert!(bench.part.need().is_empty());
    let class = bench.class(7, NOW);
    assert!(!bench.part.need().is_empty() && !bench.part.is_live(class));
    let cost = Cost::new(Direction::Write, PAGE);
    let passed = bench.part.pass(class, cost, Way::Opportunity, || NOW);
    assert_eq!(passed, Passed::Refused);
    bench.rate(7, MIB, 1, NOW);
    bench.queue(7, 1, NOW + 1);
    assert_eq!(bench.until(NOW + 1), NOW + 1 + SEAT_WAIT);
    let briefs = bench.walk(NOW + MS);
    let brief = Brief {
        id: class,
        who: Who::of(By::Uid, &attrs(7)),
        seat: NO_SEAT,
        busy: true,
    };
    assert_eq!(briefs, [brief]);
    assert!(bench.part.need().is_empty() && bench.part.is_live(class));
    assert_eq!(bench.get(NOW + MS).map(|request| request.owner), Some(7));
    assert_eq!(bench.gate(7).usage().written, PAGE);
    // What went since the last walk makes it busy once.
    let busy = |briefs: Vec<Brief>| briefs.iter().map(|b| (b.seat, b.busy)).collect::<Vec<_>>();
    assert_eq!(busy(bench.walk(NOW + 2 * MS)), [(7, true)]);
    assert_eq!(busy(bench.walk(NOW + 3 * MS)), [(7, false)]);
    let passed = bench.part.pass(class, cost, Way::Opportunity, || NOW);
    assert_eq!(passed, Passed::Counted);
    assert_eq!(busy(bench.walk(NOW + 4 * MS)), [(7, true)]);
    // A client that left has lost its seat; when it comes again, the worker hears of it.
    bench.part.seat(class, NO_SEAT, NOW + 5 * MS);
    assert!(bench.part.need().is_empty() && !bench.part.is_live(class));
    bench.queue(7, 1, NOW + 6 * MS);
    assert!(!bench.part.need().is_empty());
    assert_eq!(bench.until(NOW + 6 * MS), NOW + 6 * MS + SEAT_WAIT);
    // So it does if requests came while the seat was being taken away.
    bench.walk(NOW + 7 * MS);
    assert!(bench.part.need().is_empty());
    bench.part.seat(class, NO_SEAT, NOW + 8 * MS);
    assert!(!bench.part.need().is_empty());
    bench.walk(NOW + 9 * MS);
    assert!(bench.get(NOW + 9 * MS).is_some());
}

/// Should the worker not come, requests go after a second, and the gate is charged when there is one.
#[test]
fn nobody_waits_for_a_seat_for_long() {
    let mut bench = Bench::new();
    for _ in 0..10 {
        bench.queue(7, 256, NOW);
    }
    let class = bench.class(7, NOW);
    assert_eq!(bench.until(NOW + MS), NOW + SEAT_WAIT);
    let cost = Cost::new(Direction::Read, MIB);
    let passed = bench.part.pass(class, cost, Way::Forced, || NOW);
    assert_eq!(passed, Passed::Counted);
    let now = NOW + SEAT_WAIT;
    for _ in 0..9 {
        assert!(bench.get(now).is_some());
    }
    bench.rate(7, MIB, 1, now);
    bench.walk(now);
    let usage = bench.gate(7).usage();
    assert_eq!((usage.read, usage.written), (MIB, 9 * MIB));
    // It owes 10 MiB, and the front has taken one more.
    let until = bench.until(now);
    assert!(
        (until - now).abs_diff(10 * SECOND) < 50 * MS,
        "{}",
        until - now
    );
}

/// Other gates: seats are forgotten, whatever stood at them.
#[test]
fn other_gates_mean_other_seats() {
    let mut bench = Bench::new();
    for user in 1..=3 {
        bench.rate(user, MIB, 1, NOW);
        bench.class(user, NOW);
    }
    bench.walk(NOW);
    bench.queue(1, 256, NOW);
    bench.queue(2, 256, NOW);
    bench.queue(2, 256, NOW);
    assert_eq!(bench.get(NOW).map(|request| request.owner), Some(1));
    assert_eq!(bench.get(NOW).map(|request| request.owner), Some(2));
    bench.queue(1, 1, NOW);
    let gates = mem::Shared::new(Gates::new(16).unwrap()).unwrap();
    let old = bench.part.update(Update::new(gates.clone()), NOW);
    assert!(old.gates().is_some_and(|old| old.ptr_eq(&bench.gates)));
    bench.gates = gates;
    let class = bench.class(3, NOW);
    assert!(!bench.part.is_live(class));
    // Those that were about to go do not.
    assert!(bench.get(NOW + 2 * SECOND).is_none());
    let briefs = bench.walk(NOW + 2 * SECOND);
    assert!(briefs.iter().all(|brief| brief.seat == NO_SEAT) && briefs.len() == 3);
    for _ in 0..2 {
        assert!(bench.get(NOW + 2 * SECOND).is_some());
    }
    // Without gates nobody is held back.
    bench.queue(5, 1, NOW);
    let _ = bench.part.update(Update::none(), NOW);
    bench.queue(6, 1, NOW);
    for _ in 0..4 {
        bench.part.refresh(0, 64, NOW);
    }
    assert!(bench.get(NOW).is_some() && bench.get(NOW).is_some());
    assert!(bench.part.need().is_empty() || bench.part.asking);
}

/// Who finds no place in the table shares the class of nobody, and idle classes make room.
#[test]
fn a_full_table_and_old_age() {
    let gates = mem::Shared::new(Gates::new(1024).unwrap()).unwrap();
    let tunables = Tunables {
        classes_max: ClassesMax::new(64).unwrap(),
        ..tunables()
    };
    let mut bench = Bench::with(&tunables, &gates);
    bench.gate(0).set(MIB, 3, NOW);
    for user in 1..=100 {
        bench.walk(NOW);
        bench.queue(user, 1, NOW);
    }
    assert_eq!(bench.part.overflow(), 36);
    let briefs = bench.walk(NOW);
    assert_eq!(briefs.len(), 65);
    assert!(briefs
        .iter()
        .any(|brief| brief.who == Who::NOBODY && brief.busy));
    let mut went = 0;
    let mut now = NOW;
    while bench.part.len() > 0 {
        match bench.get(now) {
            Some(_) => went += 1,
            None => now = bench.until(now),
        }
    }
    assert_eq!(went, 100);
    assert_eq!(bench.gate(0).usage().requests, 36);
    // The class of nobody is told of as long as it has a seat, so that it can lose it.
    assert_eq!(bench.walk(now).len(), 65);
    assert_eq!(bench.walk(now).iter().filter(|b| b.busy).count(), 0);
    bench.class(200, now);
    assert_eq!(bench.part.overflow(), 36);
    let later = now + 11 * SECOND;
    while bench.part.age(later, 16) {}
    let left = bench.walk(later);
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].who, Who::NOBODY);
}
