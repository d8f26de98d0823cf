// SPDX-License-Identifier: GPL-2.0-only

use super::{inflow::RATE_MAX, *};
use crate::sched::{
    rng::Rng,
    units::{NSEC_PER_MSEC as MS, NSEC_PER_SEC as SECOND},
};

mod courses;
mod races;
mod threads;

const MIB: u64 = 1 << 20;
/// Time of the tests, long after the start of the clock.
const NOW: u64 = 12_345 * SECOND + 678;

fn write(bytes: u64) -> Cost {
    Cost::new(Direction::Write, bytes)
}

/// Creates a table of one full gate with `rate`.
fn gates(rate: u64) -> Gates {
    let gates = Gates::new(1, 1).unwrap();
    gate(&gates).clear(NOW);
    gate(&gates).set(rate, 1, NOW);
    gates
}

fn gate(gates: &Gates) -> &Gate {
    gates.get(0).unwrap()
}

/// Returns the inflow of `rate` in `ns`.
fn comes(rate: u64, ns: u64) -> u64 {
    (u128::from(rate) * u128::from(ns) / u128::from(SECOND)) as u64
}

/// Asserts that both values are equal, to one byte.
#[track_caller]
fn assert_near(got: i64, want: i64) {
    assert!(got.abs_diff(want) <= 1, "{got} {want}");
}

const RATES: [u64; 9] = [
    32 << 10,
    100_000,
    MIB,
    10_000_000,
    123_456_789,
    1_000_000_000,
    9_999_999_999,
    31_415_926_535,
    100_000_000_000,
];

const SIZES: [u64; 6] = [512, 4096, 65_536, 1_000_003, MIB, 4 * MIB];

/// Returns the number of requests that take ten seconds, within practical bounds.
fn requests(rate: u64, size: u64) -> u64 {
    (rate.saturating_mul(10) / size).clamp(100, 30_000)
}

/// Asserts that `wait` dispatches requests at the rate of the gate, to 1 %, for all rates and
/// sizes. `wait` waits for and dispatches one request, up to `late` ns late, and returns the
/// dispatch time.
fn assert_exact(late: u64, mut wait: impl FnMut(&Gate, u64, u64, &mut dyn FnMut() -> u64) -> u64) {
    let mut rng = Rng::new(late);
    for rate in RATES {
        for size in SIZES {
            let gates = gates(rate);
            let gate = gate(&gates);
            let count = requests(rate, size);
            // Lateness of the last requests is not compensated, so it is limited to 1/3 % of the
            // time.
            let late = late.min(count * size / 300 * SECOND / rate).max(1);
            let (mut now, mut start) = (NOW, 0);
            // The first requests empty the bucket.
            let filled = comes(rate, 60 * MS) / size + 2;
            for i in 0..filled + count {
                if i == filled {
                    start = now;
                }
                now = wait(gate, size, now, &mut || rng.below(late));
            }
            assert_eq!(gate.usage().written, (filled + count) * size);
            let bytes = u128::from(count) * u128::from(size);
            let want = (bytes * u128::from(SECOND) / u128::from(rate)) as u64;
            let off = (now - start).abs_diff(want) as f64 / want as f64;
            assert!(off <= 0.01, "{rate} {size} {late}: {:.3} %", off * 100.0);
        }
    }
}

/// Verifies that a client with requests queued gets its rate to 1 %, for all rates and request
/// sizes (including sizes above the depth). The gate is polled up to 5 ms late.
#[test]
fn a_booked_rate_is_exact() {
    for late in [1, 50_000, 5 * MS] {
        assert_exact(late, |gate, size, mut now, late| {
            let (ticket, mut due) = gate.reserve(write(size), now);
            while due > now {
                now = due + late();
                due = gate.due(&ticket, now);
            }
            gate.count(write(size));
            now
        });
    }
}

/// Verifies the rate of a client that polls at the times that the gate returns.
#[test]
fn a_polled_rate_is_exact() {
    assert_exact(50_000, |gate, size, mut now, late| {
        let mut polls = 0;
        while let Err(until) = gate.take(write(size), now) {
            assert!(until > now);
            now = until + late();
            polls += 1;
        }
        assert!(polls <= 2, "{size}: {polls} polls");
        now
    });
}

/// Verifies that partitions that book at one gate share the rate and are served in the order of
/// booking.
#[test]
fn partitions_share_a_gate_in_order() {
    const PARTS: usize = 4;
    let rate = 10_000_000;
    // 4 MiB is ten times the depth.
    let sizes = [4096, 65_536, 4 * MIB, 512];
    let gates = gates(rate);
    let gate = gate(&gates);
    let mut fronts = sizes.map(|size| gate.reserve(write(size), NOW));
    let mut served = [0u64; PARTS];
    let (mut now, mut last) = (NOW, 0);
    let mut order: Vec<usize> = (0..PARTS).collect();
    while now < NOW + 100 * SECOND {
        let next = (0..PARTS).min_by_key(|&part| fronts[part].1).unwrap();
        now = now.max(fronts[next].1);
        let due = gate.due(&fronts[next].0, now);
        if due > now {
            fronts[next].1 = due;
            continue;
        }
        assert!(now >= last);
        last = now;
        // Requests are served in the order of booking, except for equal times.
        let place = order.iter().position(|&part| part == next).unwrap();
        assert!(place <= 1, "{place}");
        order.remove(place);
        order.push(next);
        served[next] += 1;
        fronts[next] = gate.reserve(write(sizes[next]), now);
    }
    // Each partition dispatches one request in turn: large requests do not starve.
    let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
    assert!(most - least <= 1, "{served:?}");
    let bytes: u64 = served.iter().zip(sizes).map(|(n, size)| n * size).sum();
    let want = comes(rate, 100 * SECOND);
    assert!(bytes.abs_diff(want) <= want / 100 + 4 * MIB + sizes.iter().sum::<u64>());
}

/// Verifies that polling requests do not overtake a booked large request. A large request that
/// polls would starve.
#[test]
fn who_polls_does_not_pass_who_has_booked() {
    let gates = gates(MIB);
    let gate = gate(&gates);
    while gate.take(write(4096), NOW).is_ok() {}
    let (ticket, due) = gate.reserve(write(MIB), NOW);
    assert!(due > NOW + 30 * MS && due < NOW + 60 * MS);
    let mut now = NOW;
    while gate.due(&ticket, now) > now {
        assert!(gate.take(write(512), now).is_err());
        now += MS;
    }
    assert!(now <= due + MS);
    // The refunded bytes are available to other requests.
    gate.cancel(&ticket);
    assert_eq!(gate.take(write(512), now), Ok(()));
}

/// Verifies that dispatched bytes in any interval do not exceed the inflow, a full bucket, the
/// compensated lateness and one request.
#[test]
fn credit_is_not_exceeded() {
    let mut rng = Rng::new(3);
    for rate in [100_000, 20 * MIB, 3_000_000_000] {
        let gates = gates(rate);
        let gate = gate(&gates);
        let room = comes(rate, 40 * MS + LATE);
        let (mut now, mut went) = (NOW, Vec::new());
        for _ in 0..20_000 {
            now += match rng.below(20) {
                0 => rng.below(300 * MS),
                1..=5 => rng.below(5 * MS),
                _ => rng.below(20_000),
            };
            let size = 512 << rng.below(13);
            if gate.take(write(size), now).is_ok() {
                went.push((now, size));
            }
        }
        // The maximum of dispatched bytes less inflow over all intervals, in one pass: the sum
        // restarts below 0.
        let (mut over, mut last) = (0i128, NOW);
        for (at, size) in went {
            over = (over - i128::from(comes(rate, at - last))).max(0) + i128::from(size);
            last = at;
            assert!(
                over <= i128::from(room + 2 * MIB + 20_000),
                "{rate}: {over}"
            );
        }
    }
}

/// Verifies the credit after a pause: a full bucket, plus compensated lateness unless `wake` was
/// called.
#[test]
fn a_pause_fills_the_bucket_and_no_more() {
    let rate = 100 * MIB;
    for (wakes, ns) in [(true, 40 * MS), (false, 40 * MS + LATE)] {
        let gates = gates(rate);
        let gate = gate(&gates);
        while gate.take(write(4096), NOW).is_ok() {}
        let later = NOW + 3600 * SECOND;
        if wakes {
            gate.wake(later);
        }
        assert_near(gate.balance(later), comes(rate, 40 * MS) as i64);
        let mut went = 0;
        while gate.take(write(4096), later).is_ok() {
            went += 4096;
        }
        assert!(went <= comes(rate, ns) && went + 4097 >= comes(rate, ns));
        // A booking is charged to the same credit.
        let (booked, whole) = (self::gates(rate), write(comes(rate, 45 * MS)));
        let booked = self::gate(&booked);
        if wakes {
            booked.wake(later);
        }
        assert_eq!(booked.reserve(whole, later).1, later);
        let due = booked.reserve(whole, later).1 - later;
        assert!(due.abs_diff(85 * MS - ns) < 1_000, "{due}");
        // Below that limit, `wake` discards nothing.
        let before = gate.balance(later + MS);
        gate.wake(later + MS);
        assert_eq!(gate.balance(later + MS), before);
    }
}

/// Verifies that changes of the rate preserve debt and tickets, in bytes.
#[test]
fn rate_changes_lose_nothing() {
    let gates = gates(MIB);
    let gate = gate(&gates);
    assert_eq!(gate.take(write(10 * MIB), NOW), Ok(()));
    let owed = gate.balance(NOW);
    let (ticket, due) = gate.reserve(write(MIB), NOW);
    assert!(due > NOW + 9 * SECOND);
    let mut now = NOW;
    for (rate, rank) in [(5 * MIB, 1), (5 * MIB, 3), (32 << 10, 0), (10 * MIB, 2)] {
        let version = gate.version();
        gate.set(rate, rank, now);
        assert_ne!(gate.version(), version);
        assert_eq!((gate.rate(), gate.rank()), (rate, rank));
        gate.set(rate, rank, now);
        assert_eq!(gate.version(), version.wrapping_add(1));
        assert_eq!(gate.balance(now), owed - MIB as i64);
        now += 0;
    }
    // The debt is 10 MiB less a full bucket, and the ticket needs a full bucket, at 10 MiB/s.
    let after = gate.due(&ticket, now);
    assert!((after - NOW).abs_diff(SECOND) <= 40 * MS, "{}", after - NOW);

    // Random changes: the complete inflow at all rates is dispatched, to one byte per change.
    let mut rng = Rng::new(4);
    let gates = self::gates(MIB);
    let gate = self::gate(&gates);
    let (mut now, mut came, mut went, mut rate) = (NOW, 0u128, 0u64, MIB);
    let (mut front, mut size) = (gate.reserve(write(4096), now), 4096);
    for change in 0..2_000u32 {
        let until = now + rng.below(50 * MS);
        loop {
            let due = gate.due(&front.0, now);
            let step = due.min(until).max(now);
            came += u128::from(rate) * u128::from(step - now);
            now = step;
            if due > now {
                break;
            }
            went += size;
            size = 512 << rng.below(10);
            front = gate.reserve(write(size), now);
        }
        rate = 32_768 << rng.below(12);
        gate.set(rate, (change % 4) as u8, now);
        let came = (came / u128::from(SECOND)) as u64;
        let depth = 41 * 32_768 * 4096 / 1000;
        assert!(went <= came + depth, "{change}: {went} {came}");
        assert!(
            went + (1 << 20) + u64::from(change) >= came,
            "{change}: {went} {came}"
        );
    }
}

#[test]
fn unregulated_is_not_throttled() {
    let gates = Gates::new(3, 1).unwrap();
    assert!(gates.get(gates.len()).is_none() && gates.get(GateClaim::NONE.idx()).is_none());
    let gate = gate(&gates);
    assert_eq!(gate.rate(), UNREGULATED);
    for _ in 0..1000 {
        assert_eq!(gate.take(write(1 << 40), NOW), Ok(()));
    }
    assert_eq!(gate.reserve(write(MIB), NOW), (GateTicket::FREE, NOW));
    gate.force(write(MIB), NOW);
    assert_eq!((gate.usage().requests, gate.balance(NOW)), (1001, 0));
    // Requests dispatched while unregulated leave no debt.
    gate.set(MIB, 0, NOW);
    assert_near(gate.balance(NOW), comes(MIB, 40 * MS) as i64);
    assert_eq!(gate.take(write(4 * MIB), NOW), Ok(()));
    let (ticket, due) = gate.reserve(write(MIB), NOW);
    assert!(due > NOW + 3 * SECOND);
    gate.set(UNREGULATED, 0, NOW);
    assert_eq!(gate.due(&ticket, NOW), NOW);
}

/// Verifies that requests without bytes or without direction are free.
#[test]
fn only_bytes_count() {
    let gates = gates(1);
    let gate = gate(&gates);
    assert_eq!(gate.take(write(MIB), NOW), Ok(()));
    for cost in [write(0), Cost::of_bytes(MIB), Cost::new(Direction::Read, 0)] {
        assert_eq!(gate.take(cost, NOW), Ok(()));
        assert_eq!(gate.reserve(cost, NOW), (GateTicket::FREE, NOW));
    }
    assert!(gate.take(Cost::new(Direction::Read, 1), NOW).is_err());
    gate.force(Cost::new(Direction::Read, 5), NOW);
    // A merge is not counted as a request.
    gate.merge(Cost::new(Direction::Read, 7), NOW);
    let usage = gate.usage();
    assert_eq!((usage.requests, usage.read, usage.written), (5, 12, MIB));
    assert_eq!(usage.bytes(), MIB + 12);
}

#[test]
fn forced_debt_is_bounded() {
    let gates = gates(MIB);
    let gate = gate(&gates);
    let before = gate.balance(NOW);
    gate.merge(write(MIB), NOW);
    assert_eq!(gate.balance(NOW), before - MIB as i64);
    for _ in 0..100 {
        gate.force(write(MIB), NOW);
    }
    assert_near(gate.balance(NOW), -10 * MIB as i64);
    // Forced requests do not reduce existing debt.
    let deep = gate.reserve(write(90 * MIB), NOW);
    gate.force(write(MIB), NOW);
    assert_near(gate.balance(NOW), -100 * MIB as i64);
    gate.cancel(&deep.0);
    assert_near(gate.balance(NOW), -10 * MIB as i64);
    gate.clear(NOW);
    assert_near(gate.balance(NOW), comes(MIB, 40 * MS) as i64);
    assert_eq!(gate.usage(), Usage::default());
}

/// Verifies that each throttled period counts once, for any number of requests.
#[test]
fn periods_slept_count_once() {
    let gates = gates(MIB);
    let gate = gate(&gates);
    gate.clear(0);
    let sleeps = || gate.usage().sleeps;
    let at = |period: u64, part: u64| period * 40 * MS + part;
    gate.sleep(at(5, 1), at(5, 2));
    assert_eq!(sleeps(), 1);
    for i in 0..40 {
        gate.sleep(at(5, i), at(5, 30 * MS + i));
    }
    assert_eq!(sleeps(), 1);
    // From period 5 into period 9: four new periods. Intervals within them add nothing.
    gate.sleep(at(5, 3), at(9, 0));
    assert_eq!(sleeps(), 5);
    gate.sleep(at(7, 3), at(8, 0));
    gate.sleep(at(7, 3), at(9, 39 * MS));
    assert_eq!(sleeps(), 5);
    // A gap is not counted, even if a later call covers it.
    gate.sleep(at(20, 0), at(20, 1));
    assert_eq!(sleeps(), 6);
    gate.sleep(at(12, 0), at(20, 2));
    assert_eq!(sleeps(), 6);
    // A clock value that was read earlier is harmless.
    gate.sleep(at(30, 0), at(29, 0));
    assert_eq!(sleeps(), 7);
    // After a change of the period, one period may be lost.
    gates.set_period(100 * MS);
    gate.sleep(at(30, 0), 3000 * MS);
    assert_eq!(sleeps(), 7 + 19);
}

/// Verifies that a wrapped inflow yields a full bucket instead of a huge debt.
#[test]
fn wrapped_inflow_fills_the_bucket() {
    let gates = gates(RATE_MAX);
    let gate = gate(&gates);
    assert_eq!(gate.take(write(4096), NOW), Ok(()));
    for days in [1, 50, 96, 97, 120, 150] {
        let later = NOW + days * 86_400 * SECOND;
        let took = gate.take(write(MIB), later);
        assert_eq!(took, Ok(()), "after {days} days");
        let gates = self::gates(UNREGULATED - 1);
        let other = self::gate(&gates);
        assert_eq!(other.take(write(4096), later), Ok(()));
    }
}

#[test]
fn patience_is_the_time_at_the_floor() {
    let gates = Gates::new(1, 1).unwrap();
    assert_eq!(gates.patience(32 << 10), SECOND);
    gates.set_floor(1 << 20);
    assert_eq!(gates.patience(4096), SECOND / 256);
}
