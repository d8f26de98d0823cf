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

/// What a policy line may say instead of a policy.
pub const BASELINES: &str = "throttle-gift, throttle-static RATE";

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
            _ => return Err(format!("`{line}`: no such baseline ({BASELINES})")),
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
}
