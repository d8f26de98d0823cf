// SPDX-License-Identifier: GPL-2.0-only

//! Search for the number of slots while a device works.

mod device;
mod table;

use device::{Device, Pair, ServiceTime, Work};
use nrs_sched::{
    knee::Knee,
    units::{NSEC_PER_MSEC, NSEC_PER_SEC},
};

const PLACES_64: Device = Device::new(64, ServiceTime::Fixed(NSEC_PER_MSEC));

/// Checks that a user with fewer requests than the device has places is not slowed down when alone.
#[test]
fn a_light_load() {
    for requests in [1, 2, 4, 8, 12, 20, 33, 50, 64] {
        let mut most = Work::new(PLACES_64, requests, 7);
        most.run(6 * NSEC_PER_SEC, 1_024);
        let mut work = Work::new(PLACES_64, requests, 7);
        let mut search = Knee::new();
        work.tune(&mut search, 2 * NSEC_PER_SEC);
        let before = work.ended;
        work.tune(&mut search, 6 * NSEC_PER_SEC);
        let part = (work.ended - before) as f64 / (most.ended as f64 / 6.0 * 4.0);
        println!("{requests} requests: {part:.3}");
        assert!(part >= 0.98, "{requests} requests: {part:.3}");
    }
}

/// Checks that requests of one service that queue at the slower target leave no slot of either
/// target unused.
#[test]
fn two_targets() {
    let fast = Device::new(16, ServiceTime::Fixed(NSEC_PER_MSEC / 2));
    for slow in [
        Device::new(4, ServiceTime::Fixed(5 * NSEC_PER_MSEC)),
        Device::new(16, ServiceTime::Fixed(NSEC_PER_MSEC)),
        fast,
    ] {
        let most = Pair::new([slow, fast], 256).rate(Some(1_024));
        let found = Pair::new([slow, fast], 256).rate(None);
        println!("{found:.0} of {most:.0} requests/s");
        assert!(found >= 0.98 * most, "{found:.0} of {most:.0} requests/s");
    }
}

/// Checks that a few long requests without data, such as discards, do not affect the result for the
/// requests after them.
#[test]
fn discards_first() {
    let reads = Device {
        sizes: &[128 << 10],
        ..Device::new(32, ServiceTime::Random(NSEC_PER_MSEC))
    };
    for (per_second, pause) in [10, 40, 100, 400]
        .into_iter()
        .flat_map(|n| [(n, 0), (n, 3600)])
    {
        let discards = Device {
            sizes: &[0],
            ..Device::new(1, ServiceTime::Fixed(NSEC_PER_SEC / per_second))
        };
        let mut work = Work::new(discards, 2_000, 7);
        let mut search = Knee::new();
        work.tune(&mut search, 600 * NSEC_PER_MSEC);
        work.device = reads;
        if pause > 0 {
            work.pause(&mut search, pause * NSEC_PER_SEC);
        }
        let end = work.now + 6 * NSEC_PER_SEC;
        work.tune(&mut search, end);
        let slots = search.found(true).slots;
        println!("{per_second} discards/s, {pause} s: {slots} slots");
        assert!(
            (28..=48).contains(&slots),
            "{per_second} discards/s, {pause} s: {slots} slots"
        );
    }
}

/// Verifies that the capacity is known from the end of the first search on, rises with the device,
/// and hardly falls while the device is slower.
#[test]
fn capacity_is_the_most_measured() {
    let device = |per_second| Device::new(8, ServiceTime::Fixed(8 * NSEC_PER_SEC / per_second));
    let mut work = Work::new(device(1_000), 2_000, 7);
    let mut search = Knee::new();
    let mut last = 0;
    for (per_second, least, most) in [
        (1_000, 980, 1_020),
        (2_000, 1_960, 2_040),
        (500, 1_900, 2_040),
    ] {
        work.device = device(per_second);
        for _ in 0..100 {
            let end = work.now + 100 * NSEC_PER_MSEC;
            work.tune(&mut search, end);
            let [requests, _] = search.capacity();
            assert!(requests > 0 || last == 0, "{per_second}/s: unknown again");
            last = requests;
        }
        assert!((least..=most).contains(&last), "{per_second}/s: {last}");
    }
}

/// Checks that the number of slots never exceeds the limit, and that the limit may change.
#[test]
fn bounds() {
    let mut work = Work::new(PLACES_64, 2_000, 7);
    let mut search = Knee::new();
    for (max, slots) in [(3, 3), (32, 32), (20, 20), (1, 1), (0, 1)] {
        search.bound(max);
        assert!(search.slots() <= max.max(1));
        let end = work.now + 3 * NSEC_PER_SEC;
        work.tune(&mut search, end);
        assert_eq!(search.found(true).slots, slots);
    }
}
