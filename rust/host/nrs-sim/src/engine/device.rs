// SPDX-License-Identifier: GPL-2.0-only

//! Device models: compute the completion time of a dispatched request.
//!
//! - *Channel*: serves one request at a time. Pipes and disks have one.
//! - *Service time*: the time for which a request occupies its channel.
//! - *Jitter*: each service time is multiplied by a number drawn uniformly around 1.
//!
//! A request takes the channel that becomes free first, in the order of dispatch.
//!
//! # Disks
//!
//! A hash of a file's number decides where the file begins on the disk. A seek over a distance d on
//! a disk of length D takes s * 15/8 * sqrt(d / D). Here, s is the average seek time. The square
//! root models the acceleration of the arm (Ruemmler and Wilkes, "An introduction to disk drive
//! modeling", Computer 27, 1994). The mean of sqrt(d / D) over uniformly drawn positions is 8/15.
//! After a seek the rotational position is random: the delay is up to one revolution. A request
//! that continues where the last one ended needs neither seek nor rotation.

use super::item::{Op, Record, DISK};
use crate::scenario::{Device as Written, Model, Side};
use nrs_sched::rng::Rng;

/// Nanoseconds per second.
const SECOND: u128 = 1_000_000_000;

/// Returns the time for `bytes` at `rate` bytes/s, ns.
pub fn transfer(bytes: u64, rate: u64) -> u64 {
    let ns = u128::from(bytes) * SECOND / u128::from(rate.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// Simulated device.
pub struct SimDevice {
    model: Model,
    /// Jitter in units of 2^-32.
    jitter: u64,
    /// Time at which each channel becomes free, ns.
    free: Vec<u64>,
    /// Position of the disk's arm, bytes.
    arm: u64,
    /// Sum of all service times, ns.
    busy: u64,
    rng: Rng,
}

/// Completion of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// Completion time, ns.
    pub done: u64,
    /// Service time, ns.
    pub time: u64,
}

impl SimDevice {
    /// Creates the device `written`.
    ///
    /// # Errors
    ///
    /// A key of the device is missing or not allowed.
    pub fn new(written: &Written, seed: u64) -> Result<Self, String> {
        let model = written
            .model()
            .map_err(|(key, reason)| format!("device {}: {key} {reason}", written.name))?;
        let channels = match &model {
            Model::Flash { channels, .. } => (*channels).max(1),
            _ => 1,
        };
        Ok(Self {
            model,
            jitter: (written.jitter.clamp(0.0, 1.0) * (1u64 << 32) as f64) as u64,
            free: vec![0; channels as usize],
            arm: 0,
            busy: 0,
            rng: Rng::new(seed),
        })
    }

    /// Returns the sum of all service times per channel, ns.
    pub fn busy(&self) -> u64 {
        self.busy / self.free.len() as u64
    }

    /// Serves the request of `record`, dispatched at `now`, ns.
    pub fn serve(&mut self, record: &Record, now: u64) -> Service {
        let side = |side: &Side| side.base.0 + transfer(record.bytes, side.bandwidth.0);
        let mut after = 0;
        let time = match (self.model, record.op) {
            (
                Model::Pipe {
                    latency,
                    operation,
                    bandwidth,
                },
                op,
            ) => {
                after = latency.0;
                match op {
                    Op::Metadata => operation.0,
                    _ => transfer(record.bytes, bandwidth.0),
                }
            }
            (Model::Flash { metadata, .. }, Op::Metadata) => metadata.0,
            (Model::Flash { read, .. }, Op::Read) => side(&read),
            (Model::Flash { write, .. }, Op::Write) => side(&write),
            (Model::Disk { operation, .. }, Op::Metadata) => operation.0,
            (
                Model::Disk {
                    seek,
                    rotation,
                    bandwidth,
                    ..
                },
                _,
            ) => self.travel(record, seek.0, rotation.0) + transfer(record.bytes, bandwidth.0),
        };
        let time = self.apply_jitter(time);
        let free = self.free.iter_mut().min().expect("there is a channel");
        *free = (*free).max(now) + time;
        self.busy += time;
        Service {
            done: *free + after,
            time,
        }
    }

    /// Multiplies `time` by the jitter.
    fn apply_jitter(&mut self, time: u64) -> u64 {
        if self.jitter == 0 {
            return time;
        }
        let factor = (1u64 << 32) - self.jitter + self.rng.below(2 * self.jitter + 1);
        ((u128::from(time) * u128::from(factor)) >> 32) as u64
    }

    /// Moves the arm to the data of `record` and leaves it at the end of the data; returns the
    /// time, ns.
    fn travel(&mut self, record: &Record, seek: u64, rotation: u64) -> u64 {
        let place = record.disk_offset();
        let distance = self.arm.abs_diff(place);
        self.arm = (place + record.bytes) % DISK;
        if distance == 0 {
            return 0;
        }
        let root = (distance as f64 / DISK as f64).sqrt();
        (seek as f64 * root * 15.0 / 8.0) as u64 + self.rng.below(rotation + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(text: &str) -> SimDevice {
        let written = toml_edit::de::from_str(&format!("name = \"d\"\n{text}")).unwrap();
        SimDevice::new(&written, 1).unwrap()
    }

    fn request(op: Op, object: u64, offset: u64, bytes: u64) -> Record {
        Record {
            op,
            object,
            offset,
            bytes,
            ..Record::default()
        }
    }

    /// Verifies that requests are served one after another, and that latency delays no other
    /// request.
    #[test]
    fn pipe() {
        let mut device = device(
            "kind = \"pipe\"\nbandwidth = \"1GB/s\"\nlatency = \"500ns\"\noperation = \"70ns\"",
        );
        let mut serve = |op, bytes, now| device.serve(&request(op, 0, 0, bytes), now).done;
        assert_eq!(serve(Op::Read, 1000, 0), 1500);
        assert_eq!(serve(Op::Write, 1000, 100), 2500);
        assert_eq!(serve(Op::Metadata, 0, 100), 2570);
        assert_eq!(serve(Op::Read, 10, 9_000), 9_510);
        assert_eq!(device.busy(), 2080);
    }

    /// Verifies the mean of the seek time, and that a sequential read needs no seek.
    #[test]
    fn disk() {
        let mut device =
            device("kind = \"disk\"\nseek = \"8ms\"\nrotation = \"8ms\"\nbandwidth = \"1GB/s\"");
        let count = 20_000;
        for file in 0..count {
            device.serve(&request(Op::Read, file, 0, 0), 0);
        }
        let mean = device.busy() as f64 / count as f64;
        assert!((mean - 12_000_000.0).abs() < 120_000.0, "{mean}");
        let before = device.busy();
        let first = device.serve(&request(Op::Read, 7, 0, 1000), 0).time;
        for at in 1..100 {
            assert_eq!(
                device.serve(&request(Op::Read, 7, at * 1000, 1000), 0).time,
                1000
            );
        }
        assert_eq!(device.busy() - before, first + 99_000);
    }

    /// Verifies the mean and the bounds of the jitter.
    #[test]
    fn jitter() {
        let mut device = device("kind = \"pipe\"\nbandwidth = \"1GB/s\"\njitter = 0.25");
        let count = 20_000u64;
        for _ in 0..count {
            let time = device.serve(&request(Op::Read, 0, 0, 10_000), 0).time;
            assert!((7_500..=12_500).contains(&time), "{time}");
        }
        assert!(device.busy().abs_diff(10_000 * count) < 10_000 * count / 200);
    }
}
