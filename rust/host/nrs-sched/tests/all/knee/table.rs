// SPDX-License-Identifier: GPL-2.0-only

//! Results of the search at devices of many kinds: `cargo test -p nrs-sched --test all knee --
//! --nocapture` prints the table.

use super::device::{Device, ServiceTime, ServiceTime::*, Work};
use nrs_sched::{
    knee::Knee,
    units::{NSEC_PER_MSEC as MS, NSEC_PER_SEC as SECOND},
};
use std::collections::HashMap;

/// Number of requests, and a number of slots equivalent to no limit.
const MANY: u32 = 2_000;
const UNLIMITED: u32 = 1_024;

/// Duration of a measured search, and start of the part of it that counts, ns.
const WATCHED: u64 = 12 * SECOND;
const COUNTS: u64 = 2 * SECOND;

/// Required or measured values, mean of some runs.
#[derive(Clone, Copy)]
struct Aims {
    /// Minimum throughput as a fraction of the unlimited throughput.
    throughput: f64,
    /// Maximum number of slots as a multiple of the smallest number that reaches 98 %.
    depth: f64,
    /// Seconds until the slots settle. For half a second they stay between the number that reaches
    /// 96.5 % and 1.5 times the number that reaches 98 %.
    settled: f64,
}

const WANTED: Aims = Aims {
    throughput: 0.98,
    depth: 1.5,
    settled: 2.0,
};

/// Requirements with few requests per second and varying times. The mean of n exponentially
/// distributed times is known to 1/sqrt(n). Detecting 1 % thus takes 10,000 requests before and
/// after a step, and a search has about six steps.
const FEW: Aims = Aims {
    throughput: 0.96,
    depth: 3.5,
    settled: 9.0,
};

/// Returns the requirements of a search at `device`, which serves `rate` requests/s.
fn aims(device: &Device, rate: f64) -> Aims {
    let few = if device.varies() { 10_000.0 } else { 100.0 };
    if rate < few {
        FEW
    } else {
        WANTED
    }
}

/// Throughput of a device by the number of slots, each measured with about 50,000 requests.
struct Curve {
    device: Device,
    length: u64,
    rate: f64,
    known: HashMap<u32, f64>,
}

impl Curve {
    fn new(device: Device) -> Self {
        let mut work = Work::new(device, MANY, 3);
        work.run(2 * SECOND, UNLIMITED);
        let rate = work.ended as f64 / 2.0;
        let length = (50_000.0 / rate * SECOND as f64) as u64;
        let mut curve = Self {
            device,
            length: length.max(SECOND / 2),
            rate,
            known: HashMap::new(),
        };
        let most = curve.part(UNLIMITED);
        curve.known.values_mut().for_each(|part| *part /= most);
        curve.rate = most;
        curve
    }

    /// Returns the throughput with `slots`, as a fraction of the unlimited throughput.
    fn part(&mut self, slots: u32) -> f64 {
        let (device, length) = (self.device, self.length);
        let seconds = length as f64 / SECOND as f64;
        let unlimited = self.known.contains_key(&UNLIMITED);
        let most = if unlimited { self.rate } else { 1.0 };
        *self.known.entry(slots).or_insert_with(|| {
            let mut work = Work::new(device, MANY, 3);
            work.run(SECOND, slots);
            let before = work.ended;
            work.run(SECOND + length, slots);
            (work.ended - before) as f64 / seconds / most
        })
    }

    /// Returns the smallest number of slots that reaches the fraction `part` of the throughput.
    fn least(&mut self, part: f64) -> u32 {
        let (mut low, mut high) = (0, UNLIMITED);
        while high - low > 1 {
            let middle = (low + high) / 2;
            if self.part(middle) >= part {
                high = middle;
            } else {
                low = middle;
            }
        }
        high
    }
}

/// Measures a search at the device of `curve`; the device is `before` until the search has ended
/// there.
fn watch(before: Option<Device>, curve: &mut Curve, seed: u64) -> Aims {
    let knee = curve.least(0.98);
    let most = (1.5 * f64::from(knee)).max(f64::from(knee) + 0.5);
    let band = f64::from(curve.least(0.965))..=most;
    let mut work = Work::new(before.unwrap_or(curve.device), MANY, seed);
    let mut search = Knee::new();
    search.bound(curve.device.depth);
    if before.is_some() {
        work.tune(&mut search, 5 * SECOND);
        work.device = curve.device;
    }
    let (from, mut since, mut settled) = (work.now, work.now, None);
    let (mut throughput, mut depth, mut count) = (0.0, 0.0, 0.0);
    while work.now < from + WATCHED {
        let slots = search.slots();
        work.sample_once(&mut search);
        if work.now > from + COUNTS {
            throughput += curve.part(slots);
            depth += f64::from(slots) / f64::from(knee);
            count += 1.0;
        }
        if !band.contains(&search.found(true).slots.into()) {
            since = work.now;
        } else if settled.is_none() && work.now >= since + SECOND / 2 {
            settled = Some(since - from);
        }
    }
    Aims {
        throughput: throughput / count,
        depth: depth / count,
        settled: settled.unwrap_or(WATCHED) as f64 / SECOND as f64,
    }
}

/// Prints the mean of some runs at `device` and the worst of each number; asserts that the means
/// meet the requirements.
fn row(name: &str, before: Option<Device>, device: Device) {
    let mut curve = Curve::new(device);
    let aims = aims(&device, curve.rate);
    let runs: Vec<_> = (1..=6)
        .map(|seed| watch(before, &mut curve, seed))
        .collect();
    let mean = |number: fn(&Aims) -> f64| runs.iter().map(number).sum::<f64>() / runs.len() as f64;
    let most = |number: fn(&Aims) -> f64| runs.iter().map(number).fold(f64::MIN, f64::max);
    let least = runs
        .iter()
        .map(|run| run.throughput)
        .fold(f64::MAX, f64::min);
    let (throughput, depth, settled) = (
        mean(|run| run.throughput),
        mean(|run| run.depth),
        mean(|run| run.settled),
    );
    let knee = curve.least(0.98);
    let text = format!(
        "{name:40} {:6.0}/s knee {:4}  throughput {throughput:.3} ({least:.3})  depth {depth:.2} \
         ({:.2})  settled {settled:.1} ({:.1}) s",
        curve.rate,
        knee,
        most(|run| run.depth),
        most(|run| run.settled),
    );
    println!("{text}");
    let met = throughput >= aims.throughput && depth <= aims.depth && settled <= aims.settled;
    assert!(met, "{text}");
}

/// Returns a text with the kind and the time of `service`.
fn times(service: ServiceTime) -> String {
    match service {
        Fixed(time) => format!("{} us", time / 1_000),
        Random(time) => format!("~{} us", time / 1_000),
        Seek(time) => format!("seeks of {} us", time / 1_000),
    }
}

/// Checks devices of 1 to 128 places.
#[test]
fn places() {
    for places in [1, 2, 3, 4, 8, 16, 24, 32, 64, 128] {
        for service in [Fixed(MS), Random(MS), Random(4 * MS)] {
            if places < 64 || service == Random(4 * MS) {
                let name = format!("{places} places of {}", times(service));
                row(&name, None, Device::new(places, service));
            }
        }
    }
}

/// Checks links with different products of bandwidth and latency.
#[test]
fn links() {
    for (mb, service, kib) in [
        (100, Fixed(MS), 4),
        (100, Random(MS), 4),
        (100, Fixed(MS), 64),
        (100, Random(MS), 64),
        (500, Fixed(MS), 64),
        (500, Random(MS), 64),
        (500, Random(10 * MS), 64),
        (100, Fixed(MS), 1_024),
        (100, Random(MS), 1_024),
        (500, Fixed(MS), 1_024),
        (500, Random(MS), 1_024),
        (500, Random(10 * MS), 1_024),
    ] {
        let device = match kib {
            4 => Device::link(mb, service, &[4_096]),
            64 => Device::link(mb, service, &[65_536]),
            _ => Device::link(mb, service, &[1_048_576]),
        };
        let name = format!("{mb} MB/s, {kib} KiB, {}", times(service));
        row(&name, None, device);
    }
    for mb in [200, 2_000] {
        let sizes = &[4_096, 4_096, 4_096, 16_384, 65_536, 1_048_576];
        let device = Device::link(mb, Random(MS), sizes);
        row(&format!("{mb} MB/s, 4 KiB to 1 MiB"), None, device);
    }
}

/// Checks writes that take ten times as long as reads in their places, or four times as long on the
/// link.
#[test]
fn reads_and_writes() {
    for places in [4, 16, 64] {
        for service in [Fixed(MS), Random(MS)] {
            let device = Device {
                write: [10, 1],
                ..Device::new(places, service)
            };
            let name = format!("{places} places of {}, writes 10 times", times(service));
            row(&name, None, device);
        }
    }
    let device = Device {
        write: [1, 4],
        ..Device::link(400, Fixed(MS), &[65_536])
    };
    row("400 MB/s, 64 KiB, writes 4 times", None, device);
}

/// Checks devices whose speed changes by ten times, or whose number of places changes.
#[test]
fn changes() {
    let link = |mb| Device::link(mb, Fixed(MS), &[65_536]);
    let places = |places| Device::new(places, Fixed(MS));
    for (name, a, b) in [
        ("1000 and 100 MB/s", link(1_000), link(100)),
        ("60 and 6 places", places(60), places(6)),
    ] {
        row(&format!("{name}, to less"), Some(a), b);
        row(&format!("{name}, to more"), Some(b), a);
    }
    for places in [1, 4, 16] {
        for service in [Fixed, Random] {
            let [fast, slow] = [MS / 2, 5 * MS].map(|time| Device::new(places, service(time)));
            let name = format!("{places} places of {}", times(slow.service));
            row(&format!("{name}, were faster"), Some(fast), slow);
            let name = format!("{places} places of {}", times(fast.service));
            row(&format!("{name}, were slower"), Some(slow), fast);
        }
    }
}

/// Checks a disk that seeks: it gains from each further request, and completes too few for a search
/// to detect the last 4 %.
#[test]
fn a_disk_that_seeks() {
    let device = Device {
        depth: 32,
        ..Device::new(1, Seek(8 * MS))
    };
    row("seeks of 8 ms, 32 in flight", None, device);
}
