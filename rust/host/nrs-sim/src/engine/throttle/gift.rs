// SPDX-License-Identifier: GPL-2.0-only

//! A model of GIFT (Patel et al., FAST 2020) on one server, as far as the published constants go. A
//! job that is throttled gets *coupons*, which are redeemed when there is a surplus.
//!
//! Each *decision* divides the bandwidth for the time until the next decision:
//!
//! 1. The *demand* of a job is unlimited if requests of the job are queued or the job used its cap
//!    up to [`THRESHOLD`]. Otherwise, the demand is the bandwidth that the job used and
//!    [`THRESHOLD`] more.
//! 2. Each job gets its demand, up to an equal part of the bandwidth. The rest goes to holders of
//!    coupons, up to [`REDEEM`] of the coupons, and then in equal parts to jobs with more demand.
//! 3. A job that arrived between decisions with a demand of at least its equal part may have got
//!    less. The job gets coupons for the difference.
//!
//! A job that arrives between two decisions gets the bandwidth that is not assigned, at least
//! [`TRICKLE`] of the whole. The model leaves out three things. Two need many servers: the linear
//! program, and throttling a server's part to the pace of the slowest server. The third is the time
//! that the central server needs.

use super::SECOND;

/// Interval between decisions, ns: half a second.
pub(super) const INTERVAL: u64 = SECOND / 2;
/// Part of the cap that a job may leave unused and still count as having more demand.
const THRESHOLD: f64 = 0.1;
/// Part of its coupons that a job may redeem at one decision.
const REDEEM: f64 = 0.8;
/// Minimum part of the bandwidth that a job gets until the first decision about it.
const TRICKLE: f64 = 0.01;

/// State of a job.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// True if the job has sent requests since it was last idle.
    known: bool,
    /// Cap until the next decision, bytes/s.
    cap: f64,
    /// Bytes since the last decision.
    used: u64,
    /// Bytes by which the job got less than its part.
    coupons: f64,
}

/// Allocator of the caps.
#[derive(Debug)]
pub(super) struct Gift {
    bandwidth: f64,
    accounts: Vec<Account>,
    next: u64,
}

impl Gift {
    /// Creates the state for `jobs` jobs on a device of `bandwidth` bytes/s.
    pub(super) fn new(jobs: usize, bandwidth: u64) -> Self {
        Self {
            bandwidth: bandwidth as f64,
            accounts: vec![Account::default(); jobs],
            next: 0,
        }
    }

    /// Returns the time of the next decision, ns.
    pub(super) fn next_decision(&self) -> u64 {
        self.next
    }

    /// Handles an arrival; returns the cap of the job, bytes/s, if the job is new.
    pub(super) fn arrived(&mut self, job: usize, now: u64) -> Option<u64> {
        if self.accounts[job].known {
            return None;
        }
        if self.next <= now {
            self.next = now + INTERVAL;
        }
        let given: f64 = self.accounts.iter().map(|account| account.cap).sum();
        let left = (self.bandwidth - given).max(self.bandwidth * TRICKLE);
        self.accounts[job] = Account {
            known: true,
            cap: left,
            ..self.accounts[job]
        };
        Some(left as u64)
    }

    /// Counts the completion of a request of `bytes` bytes.
    pub(super) fn served(&mut self, job: usize, bytes: u64) {
        self.accounts[job].used += bytes;
    }

    /// Decides the caps until the next decision, bytes/s by job; `waiting` tells which jobs are
    /// backlogged.
    pub(super) fn decide(&mut self, waiting: &[bool], now: u64) -> Vec<u64> {
        let seconds = INTERVAL as f64 / SECOND as f64;
        for (account, waits) in self.accounts.iter_mut().zip(waiting) {
            account.known = *waits || account.used > 0;
        }
        let active = self.accounts.iter().filter(|account| account.known).count();
        let part = self.bandwidth / active.max(1) as f64;
        let mut wants = Vec::with_capacity(self.accounts.len());
        for (account, waits) in self.accounts.iter_mut().zip(waiting) {
            let used = account.used as f64 / seconds;
            let want = match (
                account.known,
                *waits || used >= account.cap * (1.0 - THRESHOLD),
            ) {
                (false, _) => 0.0,
                (true, true) => f64::INFINITY,
                (true, false) => used * (1.0 + THRESHOLD),
            };
            if want >= part && used < part * (1.0 - THRESHOLD) && account.cap < part {
                account.coupons += (part - used) * seconds;
            }
            account.used = 0;
            account.cap = want.min(part);
            wants.push(want);
        }
        let given: f64 = self.accounts.iter().map(|account| account.cap).sum();
        let mut left = (self.bandwidth - given).max(0.0);
        for (account, want) in self.accounts.iter_mut().zip(&wants) {
            let redeemed = (account.coupons * REDEEM / seconds)
                .min(want - account.cap)
                .min(left)
                .max(0.0);
            account.cap += redeemed;
            account.coupons -= redeemed * seconds;
            left -= redeemed;
        }
        let more = wants.iter().filter(|want| want.is_infinite()).count();
        for (account, want) in self.accounts.iter_mut().zip(&wants) {
            if want.is_infinite() {
                account.cap += left / more as f64;
            }
        }
        self.next = now + INTERVAL;
        self.accounts
            .iter()
            .map(|account| account.cap as u64)
            .collect()
    }
}
