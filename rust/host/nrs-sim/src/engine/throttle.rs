// SPDX-License-Identifier: GPL-2.0-only

//! Baselines for comparison that are not part of nrs: a fixed cap for each job, and a model of
//! GIFT.
//!
//! - The *cap* of a job is a rate; jobs below their caps take turns. A job that has used up its cap
//!   is throttled even if the device is idle: neither baseline is work conserving.
//! - `throttle-static RATE` gives every job the same constant cap, as hand-written rules do.
//! - `throttle-gift` recomputes caps at every *decision* ([`gift`]).
//!
//! ```text
//! enqueue --> queue of the job --(cap allows)--> get
//!                  ^                 |
//!               decision          stop: counted for the next decision
//! ```

mod gift;

use std::collections::VecDeque;

use nrs_sched::item::Item as _;
use nrs_sched::policy::Decision;
use nrs_sched::units::NSEC_PER_SEC as SECOND;

use self::gift::Gift;
use super::item::Item;
use crate::scenario::Rate;

/// Policy lines of the baselines, for messages.
pub const BASELINES: &str = "throttle-gift, throttle-static RATE";

/// Time by which a job may be ahead of its cap, ns; otherwise, rounding and turns would cost
/// bandwidth.
const AHEAD: u64 = 1_000_000;

/// Rate limit of one job.
///
/// # Invariants
///
/// The job has received at most `rate` * (time since its start + [`AHEAD`]) bytes, plus one
/// request.
#[derive(Clone, Copy, Debug)]
struct Cap {
    /// Rate, bytes/s; 0 dispatches nothing.
    rate: u64,
    /// Time at which the dispatched bytes would have passed at the rate, ns.
    due: u64,
}

impl Cap {
    /// Returns the time from which the next request is eligible, ns.
    fn until(&self) -> u64 {
        match self.rate {
            0 => u64::MAX,
            _ => self.due.saturating_sub(AHEAD),
        }
    }

    /// Charges a request.
    fn pass(&mut self, bytes: u64, now: u64) {
        let ns = u128::from(bytes.max(1)) * u128::from(SECOND) / u128::from(self.rate.max(1));
        let ns = u64::try_from(ns).unwrap_or(u64::MAX);
        self.due = self.due.max(now).saturating_add(ns);
    }
}

/// Queue and cap of a job on a server.
#[derive(Debug)]
struct ThrottledJob {
    queue: VecDeque<Item>,
    cap: Cap,
}

/// Allocator of the caps.
#[derive(Debug)]
enum By {
    /// Constant caps.
    Static,
    /// Caps from periodic decisions.
    Gift(Gift),
}

/// Baseline scheduler of one server.
#[derive(Debug)]
pub struct Throttle {
    jobs: Vec<ThrottledJob>,
    /// Indices of backlogged jobs; the first one has the next turn.
    turns: VecDeque<usize>,
    queued: u32,
    by: By,
}

impl Throttle {
    /// Creates the baseline of `line` for `jobs` jobs on a device of `bandwidth` bytes/s.
    ///
    /// # Errors
    ///
    /// `line` is not a baseline, or its rate is invalid or 0.
    pub fn new(line: &str, jobs: usize, bandwidth: u64) -> Result<Self, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (by, rate) = match words[..] {
            ["throttle-static", rate] => match rate.parse::<Rate>()?.0 {
                0 => return Err("rate is 0 (minimum: 1B/s)".to_string()),
                rate => (By::Static, rate),
            },
            ["throttle-gift"] => (By::Gift(Gift::new(jobs, bandwidth)), 0),
            _ => return Err(format!("`{line}`: unknown baseline ({BASELINES})")),
        };
        let job = |_| ThrottledJob {
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

    /// Removes the next request to dispatch.
    pub fn get(&mut self, now: u64) -> Decision<Item> {
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
                return Decision::Item(request);
            }
        }
        if self.queued == 0 {
            return Decision::Empty;
        }
        // A decision may come earlier than any cap permits.
        if let By::Gift(gift) = &self.by {
            until = until.min(gift.next_decision());
        }
        Decision::Throttled { until }
    }

    /// Counts the completion of a request of a job.
    pub fn stop(&mut self, job: u32, bytes: u64) {
        if let By::Gift(gift) = &mut self.by {
            gift.served(job as usize, bytes);
        }
    }

    /// Decides the caps; called every [`Throttle::interval`].
    pub fn tick(&mut self, now: u64) {
        let By::Gift(gift) = &mut self.by else {
            return;
        };
        let waiting: Vec<bool> = self.jobs.iter().map(|job| !job.queue.is_empty()).collect();
        for (job, rate) in self.jobs.iter_mut().zip(gift.decide(&waiting, now)) {
            job.cap.rate = rate;
            // Budget left over from another rate is discarded.
            job.cap.due = job.cap.due.min(now.saturating_add(AHEAD));
        }
    }

    /// Returns the interval between ticks, ns; 0 for no ticks.
    pub fn interval(&self) -> u64 {
        match self.by {
            By::Static => 0,
            By::Gift(_) => gift::INTERVAL,
        }
    }
}
