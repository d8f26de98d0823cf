// SPDX-License-Identifier: GPL-2.0-only

//! The scenarios. With `NRS_LONG`, tasks are interrupted once more.

use super::{
    plain, Kindred, Scenario,
    Step::{self, Arrive, Attend, Change, Complete, Drain, Expire},
};
use crate::{
    search, touch,
    world::{Primary, World},
};
use nrs_sched::{attr::Priority, policy::fairshare::params::HoldSlots};
use std::collections::BTreeSet;

/// Number of partitions and slots, initial steps, and steps of each of `N` tasks.
type Row<'a, const N: usize> = (u16, u32, &'a [Step], [&'a [Step]; N]);

/// Runs each row as [`run_with`] does; if `rate` is given, a user has `rate` requests/s.
fn run<'a, const N: usize>(rate: Option<u32>, rows: impl IntoIterator<Item = Row<'a, N>>) {
    run_with(rate.map_or(Primary::Fifo, Primary::Rate), rows);
}

/// Runs each row with two interruptions for two tasks, one for three.
fn run_with<'a, const N: usize>(primary: Primary, rows: impl IntoIterator<Item = Row<'a, N>>) {
    let long = u32::from(std::env::var_os("NRS_LONG").is_some());
    let interruptions = if N <= 2 { 2 } else { 1 };
    let rows = rows.into_iter().flat_map(|row| [(row, false), (row, true)]);
    for ((partitions, slots, before, tasks), pulls) in rows {
        let scenario = Scenario {
            partitions,
            slots,
            primary,
            before,
            tasks: &tasks,
            pulls,
        };
        let begun = std::time::Instant::now();
        let runs = scenario.run(interruptions + long);
        let time = begun.elapsed().as_millis();
        println!("{scenario:?}: {runs} orders, {time} ms");
    }
}

const fn high(home: u16) -> Kindred {
    Kindred {
        priority: Priority::High,
        ..plain(home)
    }
}

const fn write(home: u16, block: u64) -> Kindred {
    Kindred {
        block: Some(block),
        ..plain(home)
    }
}

const A: Step = Arrive(plain(0));
const B: Step = Arrive(plain(1));
const C: Step = Arrive(plain(2));
const HIGH: Step = Arrive(high(0));

/// Checks requests that arrive and end on two CPUs, with different numbers of slots and partitions.
#[test]
fn arrivals_and_completions() {
    for partitions in [1, 2] {
        for slots in [1, 2] {
            let other = if partitions == 2 { B } else { A };
            let rows: [Row<'_, 2>; 5] = [
                (partitions, slots, &[A], [&[A], &[Complete]]),
                (partitions, slots, &[A], [&[other], &[Complete]]),
                (
                    partitions,
                    slots,
                    &[A, other],
                    [&[A], &[Complete, Complete]],
                ),
                (
                    partitions,
                    slots,
                    &[A, A, other],
                    [&[Complete], &[Complete]],
                ),
                (
                    partitions,
                    slots,
                    &[A],
                    [&[A, Complete], &[other, Complete]],
                ),
            ];
            run(None, rows);
        }
    }
}

/// Checks three CPUs, with separate or shared partitions.
#[test]
fn three_cpus() {
    let rows = [
        (1, 1, &[A][..], [&[A][..], &[A], &[Complete]]),
        (2, 1, &[A], [&[A], &[B], &[Complete]]),
        (3, 1, &[A], [&[B], &[C], &[Complete]]),
        (3, 2, &[A, B, C], [&[Complete], &[Complete], &[A]]),
        (3, 2, &[A], [&[B, Complete], &[C], &[Complete]]),
    ];
    run(None, rows);
}

/// Checks slots in the slot caches of CPUs: of four slots, two CPUs may cache one each, of eight
/// two each.
#[test]
fn slot_caches() {
    let waits = |home| {
        Arrive(Kindred {
            may_pass: false,
            ..plain(home)
        })
    };
    let (wait, other) = (waits(0), waits(1));
    let full = [A, A, A, A];
    let cached = [A, A, A, A, Complete];
    let two = [A, A, A, A, A, A, A, A, Complete, Complete];
    let rows: [Row<'_, 2>; 15] = [
        // A slot goes into a slot cache while a request looks for a slot, or is queued.
        (1, 4, &full, [&[A], &[Complete]]),
        (1, 4, &full, [&[wait], &[Complete]]),
        (2, 4, &full, [&[other], &[Complete, B]]),
        (1, 4, &full, [&[A, Complete], &[Complete, A]]),
        // The slot is in a slot cache.
        (1, 4, &cached, [&[A], &[A]]),
        (1, 4, &cached, [&[wait], &[A]]),
        (2, 4, &cached, [&[wait], &[other]]),
        (2, 4, &cached, [&[wait], &[Complete, B]]),
        (1, 4, &cached, [&[HIGH], &[Complete]]),
        (1, 4, &cached, [&[HIGH], &[A]]),
        (1, 4, &cached, [&[Change(2), A], &[A]]),
        (1, 4, &cached, [&[Change(2), wait], &[Complete, A]]),
        // Several slots are taken at once.
        (1, 8, &[A, A, A, A, A, A], [&[A, wait], &[A]]),
        (2, 8, &[A, A, A, A, A, A], [&[A], &[other, other]]),
        // Several slots are returned, and a passing request needs one of them.
        (2, 8, &two, [&[other], &[A]]),
    ];
    run(None, rows);
    let full = [A; 6];
    let cached = [A, A, A, A, A, A, Complete];
    let rows: [Row<'_, 3>; 3] = [
        (2, 6, &full, [&[A], &[B], &[Complete]]),
        (2, 6, &cached, [&[wait], &[other], &[A]]),
        (3, 6, &cached, [&[wait], &[other], &[Complete, C]]),
    ];
    run(None, rows);
    // A request passes only if it arrives while its user is not throttled.
    let rows: [Row<'_, 2>; 2] = [
        (1, 4, &[A, Complete], [&[A], &[A]]),
        (2, 4, &[A, Complete], [&[A, Complete], &[B, Expire(1)]]),
    ];
    run(Some(1), rows);
}

/// Checks requests that pass without the lock of their partition, while others are queued there,
/// the partition is read, or others pass.
#[test]
fn passing_without_the_lock() {
    let pass = |home| {
        Arrive(Kindred {
            unlocked: true,
            ..plain(home)
        })
    };
    let (slip, other) = (pass(0), pass(1));
    let rows: [Row<'_, 2>; 8] = [
        (
            1,
            1,
            &[A, Complete],
            [&[slip, Complete, slip], &[A, Complete]],
        ),
        (
            2,
            1,
            &[A, Complete],
            [&[slip, Complete, slip], &[B, Complete]],
        ),
        (1, 1, &[A, Complete], [&[slip, Complete], &[slip, Complete]]),
        (
            2,
            1,
            &[A, Complete, B, Complete],
            [&[slip, Complete], &[other, Complete]],
        ),
        (1, 2, &[A, Complete], [&[slip, slip], &[HIGH, Complete]]),
        (
            1,
            4,
            &[A, A, A, A, Complete],
            [&[slip, Complete], &[slip, Complete]],
        ),
        (
            2,
            4,
            &[A, A, A, A, Complete],
            [&[slip, B], &[Complete, slip]],
        ),
        (
            1,
            4,
            &[A, A, A, A, Complete],
            [&[slip, Complete], &[Change(2), slip]],
        ),
    ];
    run(None, rows);
}

/// Checks that the last slot is reserved for high priority, and lent by a timer.
#[test]
fn high_priority() {
    let rows = [
        (1, 2, &[HIGH, A][..], [&[A][..], &[Complete]]),
        (1, 1, &[HIGH, A], [&[HIGH], &[Complete]]),
        (2, 2, &[HIGH, B], [&[B], &[Complete]]),
        (2, 2, &[HIGH, B, B], [&[HIGH], &[Complete]]),
        (2, 2, &[HIGH, A, A], [&[Complete], &[Attend]]),
        (2, 2, &[HIGH, A, A], [&[Complete], &[B]]),
        (
            2,
            2,
            &[HIGH, A, A, B],
            [&[Complete], &[Expire(0), Complete]],
        ),
        (2, 2, &[HIGH, Complete, B, A], [&[Expire(0), Attend], &[B]]),
        (
            2,
            2,
            &[HIGH, Complete, A, B, A],
            [&[Expire(1)], &[Expire(0)]],
        ),
    ];
    run(None, rows);
}

/// Checks throttled requests, with timers that expire while other requests arrive and end.
#[test]
fn timers() {
    let other = Arrive(Kindred { uid: 2, ..plain(1) });
    let here = Arrive(Kindred { uid: 2, ..plain(0) });
    let rows = [
        (1, 1, &[A, Complete, A][..], [&[Expire(0)][..], &[A]]),
        (2, 1, &[A, Complete, A], [&[Expire(0)], &[B]]),
        (2, 1, &[A, Complete, A], [&[Expire(0)], &[other]]),
        (2, 1, &[A, A, B], [&[Complete], &[other]]),
        (2, 1, &[A, Complete, A], [&[A], &[other]]),
        (2, 2, &[A, Complete, A, A], [&[Expire(0)], &[other]]),
        (
            2,
            1,
            &[A, Complete, A, B, Complete, B],
            [&[Change(1)], &[here]],
        ),
        (
            2,
            1,
            &[A, Complete, A, B, Complete, B],
            [&[Change(1)], &[other]],
        ),
        (
            2,
            1,
            &[A, Complete, A, B, Complete, B],
            [&[Expire(0)], &[Expire(1)]],
        ),
        (
            2,
            2,
            &[A, Complete, A, B, Complete, B],
            [&[Expire(0), Complete], &[other]],
        ),
        (
            2,
            1,
            &[A, Complete, A],
            [&[Expire(0), Attend], &[other, Complete]],
        ),
        (2, 1, &[other, A, A], [&[Complete, Expire(0)], &[B]]),
    ];
    run(Some(1), rows);
}

/// Checks blocked requests, drains, and changes of the number of slots.
#[test]
fn order_and_changes() {
    let (one, two) = (Arrive(write(0, 1)), Arrive(write(0, 2)));
    // Moves the queued predecessor to the other head, which may use the reserved slot.
    let promotes = Arrive(Kindred {
        priority: Priority::High,
        ..write(0, 1)
    });
    let forced = Arrive(Kindred {
        forced: true,
        ..write(0, 1)
    });
    let rows = [
        (1, 1, &[one][..], [&[one][..], &[Complete]]),
        (2, 1, &[one, one], [&[B], &[Complete]]),
        (2, 2, &[one, two, one], [&[B, Complete], &[Complete]]),
        (2, 1, &[one, one], [&[forced], &[Complete]]),
        (2, 1, &[B, one, one], [&[Drain(0)], &[Complete]]),
        (1, 2, &[HIGH, Complete, A, one], [&[promotes], &[Attend]]),
        (2, 1, &[A, A, B], [&[Change(2)], &[Complete]]),
        (2, 1, &[A, B], [&[Change(2)], &[A]]),
    ];
    run(None, rows);
}

/// Checks one slot, or all, kept free for a user with one request at a time. The next one arrives,
/// or does not, while the timer expires and requests of the same or another partition arrive and
/// end.
#[test]
fn held_slots() {
    const ONE: Step = Arrive(Kindred { uid: 2, ..plain(0) });
    let partitions = [(1, A), (2, A), (2, B)].into_iter();
    let both = |one| [HoldSlots::One, HoldSlots::All].map(|slots| (one, slots));
    for ((partitions, other), slots) in partitions.flat_map(both) {
        // The second request of the user ends while some of another user are queued.
        let mut before = vec![other; 11];
        for ends in [6, 5] {
            before.push(ONE);
            before.resize(before.len() + ends, Complete);
        }
        let world = World::new(partitions, 2, 1, Primary::Hold(slots), None, false);
        let arrives = before.iter().filter_map(|step| match step {
            Arrive(kindred) => Some(kindred.home),
            _ => None,
        });
        let homes: Vec<u16> = arrives.collect();
        super::make(&world, &homes, &before, 0);
        assert!(
            world.is_holding(),
            "{partitions} partitions, {other:?}, {slots:?}"
        );
        let any = if partitions == 2 { B } else { A };
        let forced = [Arrive(Kindred {
            uid: 2,
            forced: true,
            ..plain(0)
        })];
        let rows: [Row<'_, 2>; 10] = [
            (partitions, 2, &before, [&forced, &[Complete]]),
            (partitions, 2, &before, [&forced, &[any, ONE]]),
            (partitions, 2, &before, [&[ONE], &[Complete]]),
            (partitions, 2, &before, [&[ONE], &[Expire(0)]]),
            (partitions, 2, &before, [&[Complete], &[Expire(0)]]),
            (partitions, 2, &before, [&[any], &[Expire(0)]]),
            (partitions, 2, &before, [&[any, Complete], &[ONE, Attend]]),
            (partitions, 2, &before, [&[any], &[Change(1)]]),
            (partitions, 2, &before, [&[ONE], &[Drain(0)]]),
            (partitions, 2, &before, [&[A, Complete], &[Expire(0)]]),
        ];
        run_with(Primary::Hold(slots), rows);
    }
}

/// Checks that a passing request writes only two of all words and locks: the slot cache and the row
/// of its CPU. No other CPU accesses either.
#[test]
fn what_passes_writes_no_word_of_another_cpu() {
    const EACH: usize = 100;
    let world = World::new(1, 64, 2, Primary::Fifo, Some(2), false);
    let mut written = Vec::new();
    let mut all = Vec::new();
    for cpu in 0..2 {
        search::on(cpu, || {
            // Under the lock, so that a row and a slot cache exist.
            world.arrive(0, &plain(0));
            world.complete(&[]);
            let unlocked = Kindred {
                unlocked: true,
                ..plain(0)
            };
            let touches = touch::watch(|| {
                for _ in 0..EACH {
                    world.arrive(0, &unlocked);
                    world.complete(&[]);
                }
            });
            let lines = |write: bool| {
                let some = touches.iter().filter(|touch| touch.write || !write);
                some.map(|touch| touch.line).collect::<BTreeSet<_>>()
            };
            written.push(lines(true));
            all.push(lines(false));
            let writes = touches.iter().filter(|touch| touch.write).count();
            println!("CPU {cpu}: {writes} writes, {:?}", written[cpu]);
            // Take a slot, tally, return the slot.
            assert_eq!(writes, 3 * EACH);
        });
    }
    assert!(written.iter().all(|lines| lines.len() == 2), "{written:?}");
    assert!(written[0].is_disjoint(&all[1]) && written[1].is_disjoint(&all[0]));
}
