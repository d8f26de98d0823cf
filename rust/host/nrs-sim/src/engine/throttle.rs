// SPDX-License-Identifier: GPL-2.0-only

//! Schedulers that are not of nrs, to compare it with: a fixed cap for each job, and a model of GIFT.
//!
//! * The *cap* of a job is a rate; within it, jobs take turns. A job that has used up its cap waits, even
//!   if the device is idle: neither of these is work conserving.
//! * `throttle-static RATE` gives every job the same cap for ever, as rules written by hand do.
//! * `throttle-gift` sets caps anew at every *decision* ([`gift`]).
//!
//! ```text
//! enqueue --> queue of the job --(cap allows)--> get
//!                  ^                 |
//!               decision          stop: counted for the next decision
//! ```

mod gift;

use std::collections::VecDeque;

use nrs_sched::item::Item as _;
use nrs_sched::policy::Get;
use nrs_sched::units::NSEC_PER_SEC as SECOND;

use self::gift::Gift;
use super::item::Item;
use crate::scenario::Rate;

/// A job may be this far ahead of its cap, ns; without it, rounding and turns would cost bandwidth.
const AHEAD: u64 = 1_000_000;

/// A rate for one job.
///
/// # Invariants
///
/// At no time has the job got more than its rate times the time since it began, and that of [`AHEAD`] and
/// one request more.
#[derive(Clone, Copy, Debug)]
struct Cap {
    /// Bytes per second; 0: nothing passes.
    rate: u64,
    /// When all that passed would have passed at the rate, ns.
    due: u64,
}

impl Cap {
    /// When the next request may pass.
    fn until(&self) -> u64 {
        match self.rate {
            0 => u64::MAX,
            _ => self.due.saturating_sub(AHEAD),
        }
    }

    /// Counts a request.
    fn pass(&mut self, bytes: u64, now: u64) {
        let ns = u128::from(bytes.max(1)) * u128::from(SECOND) / u128::from(self.rate.max(1));
        let ns = u64::try_from(ns).unwrap_or(u64::MAX);
        self.due = self.due.max(now).saturating_add(ns);
    }
}

/// A job on a server.
#[derive(Debug)]
struct Job {
    queue: VecDeque<Item>,
    cap: Cap,
}

/// Who sets the caps.
#[derive(Debug)]
enum By {
    /// Nobody, once they are set.
    Static,
    /// A decision now and then.
    Gift(Gift),
}

/// A throttle of one server.
#[derive(Debug)]
pub struct Throttle {
    jobs: Vec<Job>,
    /// Jobs that have something queued, whose turn is next first.
    turns: VecDeque<usize>,
    queued: u32,
    by: By,
}

impl Throttle {
    /// The throttle that `line` names, for `jobs` jobs on a device of `bandwidth` bytes per second.
    ///
    /// # Errors
    ///
    /// `line` names none, or its rate is none.
    pub fn new(line: &str, jobs: usize, bandwidth: u64) -> Result<Self, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (by, rate) = match words[..] {
            ["throttle-static", rate] => match rate.parse::<Rate>()?.0 {
                0 => return Err("the rate is zero".to_string()),
                rate => (By::Static, rate),
            },
            ["throttle-gift"] => (By::Gift(Gift::new(jobs, bandwidth)), 0),
            _ => return Err(format!("\"{line}\" is no throttle")),
        };
        let job = |_| Job {
            queue: VecDeque::new(),
            cap: Cap { rate, due: 0 },
        };
        Ok(Self {
            jobs: (0..jobs).map(job).collect(),
            turns: VecDeque::new(),
            queued: 0,
            by,
        })
    }

    /// Queues a request of a job.
    pub fn enqueue(&mut self, job: u32, request: Item, now: u64) {
        let index = job as usize;
        if let By::Gift(gift) = &mut self.by {
            if let Some(rate) = gift.arrived(index, now) {
                self.jobs[index].cap.rate = rate;
            }
        }
        let queue = &mut self.jobs[index].queue;
        if queue.is_empty() {
            self.turns.push_back(index);
        }
        queue.push_back(request);
        self.queued += 1;
    }

    /// The request to serve next.
    pub fn get(&mut self, now: u64) -> Get<Item> {
        let mut until = u64::MAX;
        for _ in 0..self.turns.len() {
            let Some(index) = self.turns.pop_front() else {
                break;
            };
            let job = &mut self.jobs[index];
            let allowed = job.cap.until();
            if allowed > now {
                until = until.min(allowed);
                self.turns.push_back(index);
                continue;
            }
            let request = job.queue.pop_front();
            if !job.queue.is_empty() {
                self.turns.push_back(index);
            }
            if let Some(request) = request {
                job.cap.pass(request.cost().bytes, now);
                self.queued -= 1;
                return Get::Item(request);
            }
        }
        if self.queued == 0 {
            return Get::Empty;
        }
        // A decision may come sooner than any cap allows.
        if let By::Gift(gift) = &self.by {
            until = until.min(gift.next_decision());
        }
        Get::Throttled { until }
    }

    /// A request of a job ended.
    pub fn stop(&mut self, job: u32, bytes: u64, _now: u64) {
        if let By::Gift(gift) = &mut self.by {
            gift.served(job as usize, bytes);
        }
    }

    /// Every [`Throttle::interval`]: decides anew.
    pub fn tick(&mut self, now: u64) {
        let By::Gift(gift) = &mut self.by else {
            return;
        };
        let waiting: Vec<bool> = self.jobs.iter().map(|job| !job.queue.is_empty()).collect();
        for (job, rate) in self.jobs.iter_mut().zip(gift.decide(&waiting, now)) {
            job.cap.rate = rate;
            // What was left over from another rate is forgotten.
            job.cap.due = job.cap.due.min(now.saturating_add(AHEAD));
        }
    }

    /// Time between ticks, ns; 0: no ticks.
    pub fn interval(&self) -> u64 {
        match self.by {
            By::Static => 0,
            By::Gift(_) => gift::INTERVAL,
        }
    }

    /// Requests that are queued.
    pub fn len(&self) -> u32 {
        self.queued
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.queued == 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::item::{Op, Record};
    use super::*;

    const MIB: u64 = 1 << 20;

    fn item(job: usize) -> Item {
        let record = Record {
            op: Op::Write,
            bytes: MIB,
            ..Record::default()
        };
        Item::new(job as u32, &record)
    }

    /// Bytes of each job in `[from, to)`, with queues that never run empty; jobs join at their times. The
    /// device takes whatever the throttle gives, up to `bandwidth`.
    fn run(line: &str, joins: &[u64], from: u64, to: u64, bandwidth: u64) -> Vec<u64> {
        let mut throttle = Throttle::new(line, joins.len(), bandwidth).unwrap();
        let mut bytes = vec![0; joins.len()];
        let mut now = 0;
        let mut tick = throttle.interval();
        let mut joined = vec![false; joins.len()];
        while now < to {
            for (job, at) in joins.iter().enumerate() {
                if !joined[job] && *at <= now {
                    joined[job] = true;
                    (0..64).for_each(|_| throttle.enqueue(job as u32, item(job), now));
                }
            }
            if tick > 0 && now >= tick {
                throttle.tick(now);
                tick += throttle.interval();
            }
            match throttle.get(now) {
                Get::Item(request) => {
                    let job = request.slot as usize;
                    throttle.enqueue(job as u32, request, now);
                    throttle.stop(job as u32, MIB, now);
                    if now >= from {
                        bytes[job] += MIB;
                    }
                    now += MIB * SECOND / bandwidth;
                }
                Get::Throttled { until } => {
                    assert!(until > now);
                    now = until.min(now + 1_000_000);
                }
                Get::Empty => now += 1_000_000,
            }
        }
        bytes
    }

    #[test]
    fn a_static_cap_holds_and_lends_nothing() {
        let gb = SECOND;
        for (line, joins, want) in [
            ("throttle-static 1GB/s", &[0][..], &[1.0][..]),
            ("throttle-static 1GB/s", &[0, 0], &[1.0, 1.0]),
            ("throttle-static 4GB/s", &[0, 0], &[2.0, 2.0]),
        ] {
            let bytes = run(line, joins, SECOND, 3 * SECOND, 4 * gb);
            for (bytes, want) in bytes.iter().zip(want) {
                let rate = *bytes as f64 / 2e9;
                assert!(
                    (rate - want).abs() < 0.01 * want,
                    "{line}: {rate}, not {want}"
                );
            }
        }
        assert!(Throttle::new("throttle-static", 1, 1).is_err());
        assert!(Throttle::new("throttle-static fast", 1, 1).is_err());
        assert!(Throttle::new("fifo", 1, 1).is_err());
    }

    #[test]
    fn gift_shares_and_settles() {
        let gb = SECOND;
        let bytes = run("throttle-gift", &[0], 3 * SECOND, 5 * SECOND, 4 * gb);
        assert!(bytes[0] as f64 / 2e9 > 3.9, "{bytes:?}");
        let bytes = run(
            "throttle-gift",
            &[0, 2 * SECOND],
            6 * SECOND,
            8 * SECOND,
            4 * gb,
        );
        for bytes in &bytes {
            let rate = *bytes as f64 / 2e9;
            assert!((rate - 2.0).abs() < 0.1, "{rate}");
        }
    }
}
