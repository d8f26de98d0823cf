// SPDX-License-Identifier: GPL-2.0-only

//! Slots that are found while a device works.

use nrs_sched::{
    knee::{Knee, Load, Totals, LOOK_MIN},
    rng::Rng,
    units::{NSEC_PER_MSEC, NSEC_PER_SEC},
};
use std::{cmp::Reverse, collections::BinaryHeap};

/// How long a place needs for a request.
#[derive(Clone, Copy, PartialEq)]
enum Service {
    /// That long (ns).
    Fixed(u64),
    /// That long on average, exponentially distributed (ns).
    Random(u64),
}

/// A device: places that work side by side, and then one link for the data of all.
#[derive(Clone, Copy)]
struct Device {
    places: usize,
    service: Service,
    /// Bytes per second; 0: any number.
    bandwidth: u64,
}

/// A device at work, with as many requests as it may have, of those that there are.
struct Work {
    device: Device,
    sizes: &'static [u64],
    requests: u32,
    rng: Rng,
    now: u64,
    in_flight: u32,
    waiting: u32,
    busy: usize,
    /// What happens when: a place is done, or data have arrived.
    events: BinaryHeap<Reverse<(u64, bool, u64)>>,
    link_free: u64,
    ended: u64,
    bytes: u64,
}

impl Work {
    fn new(device: Device, sizes: &'static [u64], requests: u32) -> Self {
        Self {
            device,
            sizes,
            requests,
            rng: Rng::new(7),
            now: 0,
            in_flight: 0,
            waiting: 0,
            busy: 0,
            events: BinaryHeap::new(),
            link_free: 0,
            ended: 0,
            bytes: 0,
        }
    }

    fn serve(&mut self) {
        self.busy += 1;
        let size = self.sizes[self.rng.next_u64() as usize % self.sizes.len()];
        let time = match self.device.service {
            Service::Fixed(time) => time,
            Service::Random(time) => {
                let uniform = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
                (-(1.0 - uniform).ln() * time as f64) as u64
            }
        };
        self.events.push(Reverse((self.now + time, false, size)));
    }

    fn fill(&mut self, slots: u32) {
        while self.in_flight < slots.min(self.requests) {
            self.in_flight += 1;
            if self.busy < self.device.places {
                self.serve();
            } else {
                self.waiting += 1;
            }
        }
    }

    /// Goes on until `end` with `slots`.
    fn run(&mut self, end: u64, slots: u32) {
        self.fill(slots);
        while let Some(&Reverse((at, arrived, size))) = self.events.peek() {
            if at > end {
                break;
            }
            self.events.pop();
            self.now = at;
            if !arrived {
                self.busy -= 1;
                if self.waiting > 0 {
                    self.waiting -= 1;
                    self.serve();
                }
                if let Some(time) = (size * NSEC_PER_SEC).checked_div(self.device.bandwidth) {
                    self.link_free = self.link_free.max(at) + time;
                    self.events.push(Reverse((self.link_free, true, size)));
                    continue;
                }
            }
            self.in_flight -= 1;
            self.ended += 1;
            self.bytes += size;
            self.fill(slots);
        }
        self.now = end;
    }

    /// Has `knee` look until `end`; returns the mean of the slots.
    fn tune(&mut self, knee: &mut Knee, end: u64) -> f64 {
        let (mut sum, mut looks) = (0, 0);
        while self.now < end {
            let slots = knee.slots();
            self.run(self.now + LOOK_MIN, slots);
            let load = match self.in_flight {
                count if count > slots => Load::Over,
                count if count < slots || self.requests <= slots => Load::Light,
                _ => Load::Full,
            };
            knee.look(Totals::at(self.now).plus(self.ended, self.bytes), load);
            (sum, looks) = (sum + u64::from(slots), looks + 1);
        }
        sum as f64 / looks as f64
    }
}

const SECONDS: u64 = 6;

/// Returns the bytes of the last seconds with `slots`, from the second `from` on.
fn fixed(device: Device, sizes: &'static [u64], requests: u32, slots: u32) -> u64 {
    let mut work = Work::new(device, sizes, requests);
    work.run(2 * NSEC_PER_SEC, slots);
    let before = work.bytes;
    work.run(SECONDS * NSEC_PER_SEC, slots);
    work.bytes - before
}

/// From the third second on there are on average at most 1.5 times as many slots as `knee`, and `least` of what the device does
/// with 1,024.
fn found(device: Device, sizes: &'static [u64], knee: u32, least: f64) {
    let most = fixed(device, sizes, 2_000, 1_024);
    let mut work = Work::new(device, sizes, 2_000);
    let mut search = Knee::new();
    work.tune(&mut search, 2 * NSEC_PER_SEC);
    let before = work.bytes;
    let mean = work.tune(&mut search, SECONDS * NSEC_PER_SEC);
    let part = (work.bytes - before) as f64 / most as f64;
    let text = format!(
        "{} places, knee {knee}: {mean:.1} slots, {part:.3}",
        device.places
    );
    println!("{text}");
    assert!(mean <= 1.5 * f64::from(knee) && part >= least, "{text}");
}

#[test]
fn as_many_as_there_are_places() {
    for places in [1, 2, 4, 8, 16, 32, 64, 128] {
        for time in [NSEC_PER_MSEC, 4 * NSEC_PER_MSEC] {
            let device = Device {
                places,
                service: Service::Fixed(time),
                bandwidth: 0,
            };
            found(device, &[4096], places as u32, 0.98);
        }
    }
}

/// With service times that vary, and few requests each second, less can be told.
#[test]
fn where_times_vary() {
    for (places, least) in [(1, 0.97), (4, 0.97), (16, 0.98), (64, 0.98)] {
        let device = Device {
            places,
            service: Service::Random(NSEC_PER_MSEC),
            bandwidth: 0,
        };
        found(device, &[4096], places as u32, least);
    }
}

/// The product of bandwidth and latency.
#[test]
fn as_many_as_a_link_needs() {
    for (bandwidth, latency, knee) in [
        (100_000_000, NSEC_PER_MSEC, 3),
        (1_000_000_000, NSEC_PER_MSEC, 17),
        (1_000_000_000, NSEC_PER_MSEC / 10, 3),
    ] {
        let device = Device {
            places: 10_000,
            service: Service::Fixed(latency),
            bandwidth,
        };
        found(device, &[65_536], knee, 0.97);
    }
}

/// The device gets ten times slower or faster: two seconds later its new rate is reached with few slots.
#[test]
fn a_change_of_speed() {
    let device = |bandwidth| Device {
        places: 10_000,
        service: Service::Fixed(NSEC_PER_MSEC),
        bandwidth,
    };
    for (before, after) in [(1_000_000_000, 100_000_000), (100_000_000, 1_000_000_000)] {
        let most = fixed(device(after), &[65_536], 2_000, 1_024) / (SECONDS - 2);
        let mut work = Work::new(device(before), &[65_536], 2_000);
        let mut search = Knee::new();
        work.tune(&mut search, 3 * NSEC_PER_SEC);
        work.device = device(after);
        work.tune(&mut search, 5 * NSEC_PER_SEC);
        let bytes = work.bytes;
        let mean = work.tune(&mut search, 9 * NSEC_PER_SEC);
        let part = (work.bytes - bytes) as f64 / (4 * most) as f64;
        let knee = if after > before { 17.0 } else { 3.0 };
        println!("{before} to {after}: {mean:.1} slots, {part:.3}");
        assert!(
            mean <= 1.5 * knee && part >= 0.97,
            "{mean:.1} slots, {part:.3}"
        );
    }
}

/// Who has fewer requests than the device has places is not slowed down.
#[test]
fn a_light_load() {
    let device = Device {
        places: 64,
        service: Service::Fixed(NSEC_PER_MSEC),
        bandwidth: 0,
    };
    for requests in [1, 4, 8, 20, 50] {
        let most = fixed(device, &[4096], requests, 1_024);
        let mut work = Work::new(device, &[4096], requests);
        let mut search = Knee::new();
        work.tune(&mut search, 2 * NSEC_PER_SEC);
        let before = work.bytes;
        work.tune(&mut search, SECONDS * NSEC_PER_SEC);
        let part = (work.bytes - before) as f64 / most as f64;
        println!("{requests} requests: {part:.3}");
        assert!(part >= 0.98, "{requests} requests: {part:.3}");
    }
}

/// There are never more slots than are allowed, and what is allowed may change.
#[test]
fn bounds() {
    let device = Device {
        places: 64,
        service: Service::Fixed(NSEC_PER_MSEC),
        bandwidth: 0,
    };
    let mut work = Work::new(device, &[4096], 2_000);
    let mut search = Knee::new();
    for (max, slots) in [(3, 3), (32, 32), (20, 20), (1, 1), (0, 1)] {
        search.bound(max);
        assert!(search.slots() <= max.max(1));
        let end = work.now + 3 * NSEC_PER_SEC;
        work.tune(&mut search, end);
        assert_eq!(search.good(), slots);
    }
}
