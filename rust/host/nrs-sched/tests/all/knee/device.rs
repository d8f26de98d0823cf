// SPDX-License-Identifier: GPL-2.0-only

//! A device and its load, for searches for the knee.

use nrs_sched::{
    knee::{DeviceLoad, Knee, Totals, SAMPLE_MIN},
    rng::Rng,
    units::{NSEC_PER_MSEC, NSEC_PER_SEC},
};
use std::{cmp::Reverse, collections::BinaryHeap};

/// Service time of a request in a place, ns.
#[derive(Clone, Copy, PartialEq)]
pub enum ServiceTime {
    /// Constant.
    Fixed(u64),
    /// Exponentially distributed, with this mean.
    Random(u64),
    /// Evenly distributed around this mean, divided by a gain that grows with the number of
    /// requests that a disk can choose from.
    Seek(u64),
}

/// Places that work in parallel, followed by one link for the data of all.
#[derive(Clone, Copy)]
pub struct Device {
    pub places: usize,
    pub service: ServiceTime,
    /// Bandwidth of the link, bytes/s; 0 for unlimited.
    pub bandwidth: u64,
    /// Sizes of requests, equally frequent, bytes.
    pub sizes: &'static [u64],
    /// Factors of the time of a write in its place and on the link; with 1 and 1, all requests are
    /// reads.
    pub write: [u64; 2],
    /// Maximum number of requests in flight.
    pub depth: u32,
}

impl Device {
    /// Returns a device with `places` places for requests of 4 KiB.
    pub const fn new(places: usize, service: ServiceTime) -> Self {
        Self {
            places,
            service,
            bandwidth: 0,
            sizes: &[4_096],
            write: [1, 1],
            depth: 1_024,
        }
    }

    /// Returns a device that is limited by a link of `mb` MB/s, for requests of `sizes`.
    pub const fn link(mb: u64, service: ServiceTime, sizes: &'static [u64]) -> Self {
        Self {
            bandwidth: mb * 1_000_000,
            sizes,
            ..Self::new(10_000, service)
        }
    }

    /// Returns true if some requests take longer than others.
    pub fn varies(&self) -> bool {
        !matches!(self.service, ServiceTime::Fixed(_))
            || self.sizes.len() > 1
            || self.write != [1, 1]
    }
}

/// Event of a request at a device.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// The place has finished the request.
    Served { size: u64, write: bool },
    /// The data have arrived.
    Arrived { size: u64 },
}

/// A device under load: as many requests in flight as the slots and the load allow.
pub struct Work {
    pub device: Device,
    /// Number of requests of the load.
    pub requests: u32,
    pub now: u64,
    pub ended: u64,
    pub bytes: u64,
    rng: Rng,
    in_flight: u32,
    waiting: u32,
    busy: usize,
    events: BinaryHeap<Reverse<(u64, Step)>>,
    link_free: u64,
}

impl Work {
    pub fn new(device: Device, requests: u32, seed: u64) -> Self {
        Self {
            device,
            requests,
            now: 0,
            ended: 0,
            bytes: 0,
            rng: Rng::new(seed),
            in_flight: 0,
            waiting: 0,
            busy: 0,
            events: BinaryHeap::new(),
            link_free: 0,
        }
    }

    /// Returns a random number from 0 to 1.
    fn uniform(&mut self) -> f64 {
        (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn serve(&mut self) {
        self.busy += 1;
        let sizes = self.device.sizes;
        let size = sizes[self.rng.next_u64() as usize % sizes.len()];
        let write = self.device.write != [1, 1] && self.rng.next_u64() % 2 == 0;
        let time = match self.device.service {
            ServiceTime::Fixed(time) => time as f64,
            ServiceTime::Random(time) => -(1.0 - self.uniform()).ln() * time as f64,
            ServiceTime::Seek(time) => {
                let gain = 1.0 + f64::from(self.waiting + 1).log2() / 4.0;
                (0.5 + self.uniform()) * time as f64 / gain
            }
        };
        let times = if write { self.device.write[0] } else { 1 };
        let at = self.now + time as u64 * times;
        self.events
            .push(Reverse((at, Step::Served { size, write })));
    }

    fn fill(&mut self, slots: u32) {
        while self.in_flight < slots.min(self.requests).min(self.device.depth) {
            self.in_flight += 1;
            self.waiting += 1;
            self.start();
        }
    }

    /// Starts requests queued in the device on free places.
    fn start(&mut self) {
        while self.waiting > 0 && self.busy < self.device.places {
            self.waiting -= 1;
            self.serve();
        }
    }

    /// Runs until `end` with `slots`.
    pub fn run(&mut self, end: u64, slots: u32) {
        self.fill(slots);
        while self
            .events
            .peek()
            .is_some_and(|Reverse((at, _))| *at <= end)
        {
            let Some(Reverse((at, step))) = self.events.pop() else {
                break;
            };
            self.now = at;
            let size = match step {
                Step::Served { size, write } => {
                    self.busy -= 1;
                    self.start();
                    let times = if write { self.device.write[1] } else { 1 };
                    let time = size * times * NSEC_PER_SEC;
                    if let Some(time) = time.checked_div(self.device.bandwidth) {
                        self.link_free = self.link_free.max(at) + time;
                        let arrived = Step::Arrived { size };
                        self.events.push(Reverse((self.link_free, arrived)));
                        continue;
                    }
                    size
                }
                Step::Arrived { size } => size,
            };
            self.in_flight -= 1;
            self.ended += 1;
            self.bytes += size;
            self.fill(slots);
        }
        self.now = end;
    }

    /// Runs for `SAMPLE_MIN` and reports the totals to `knee` once.
    pub fn sample_once(&mut self, knee: &mut Knee) {
        let slots = knee.slots();
        self.run(self.now + SAMPLE_MIN, slots);
        self.report(knee, slots);
    }

    /// Reports the totals to `knee`, which allowed `slots`.
    fn report(&self, knee: &mut Knee, slots: u32) {
        let load = match self.in_flight {
            count if count > slots => DeviceLoad::Over,
            count if count < slots || self.requests <= slots => DeviceLoad::Light,
            _ => DeviceLoad::Full,
        };
        knee.sample(Totals::at(self.now).plus(self.ended, self.bytes), load);
    }

    /// Ends all requests in flight, is idle for `ns`, and reports to `knee`.
    pub fn pause(&mut self, knee: &mut Knee, ns: u64) {
        self.events.clear();
        (self.in_flight, self.waiting, self.busy) = (0, 0, 0);
        self.now += ns;
        let slots = knee.slots();
        self.report(knee, slots);
    }

    /// Runs with `knee` until `end`.
    pub fn tune(&mut self, knee: &mut Knee, end: u64) {
        while self.now < end {
            self.sample_once(knee);
        }
    }
}

/// Two targets of one service. A client whose request has ended submits the next one to either
/// target.
pub struct Pair {
    pub works: [Work; 2],
    rng: Rng,
}

impl Pair {
    pub fn new(devices: [Device; 2], requests: u32) -> Self {
        Self {
            works: devices.map(|device| Work::new(device, requests / 2, 5)),
            rng: Rng::new(11),
        }
    }

    /// Runs until `end` with `slots`; requests change their target each millisecond.
    fn run(&mut self, end: u64, slots: [u32; 2]) {
        while self.works[0].now < end {
            for from in [0, 1] {
                let before = self.works[from].ended;
                let now = self.works[from].now;
                self.works[from].run(now + NSEC_PER_MSEC, slots[from]);
                let ended = self.works[from].ended - before;
                let moved = (0..ended).filter(|_| self.rng.next_u64() % 2 == 0).count() as u32;
                let moved = moved.min(self.works[from].requests);
                self.works[from].requests -= moved;
                self.works[1 - from].requests += moved;
            }
        }
    }

    /// Returns the throughput, requests/s, from the third second on, with `slots` or with a search
    /// for each target.
    pub fn rate(&mut self, slots: Option<u32>) -> f64 {
        let mut knees = [Knee::new(), Knee::new()];
        let mut before = 0;
        let ended = |works: &[Work; 2]| works[0].ended + works[1].ended;
        for look in 0..500 {
            if look == 100 {
                before = ended(&self.works);
            }
            let slots = [0, 1].map(|i| slots.unwrap_or_else(|| knees[i].slots()));
            self.run(self.works[0].now + SAMPLE_MIN, slots);
            for i in [0, 1] {
                self.works[i].report(&mut knees[i], slots[i]);
            }
        }
        (ended(&self.works) - before) as f64 / 8.0
    }
}
