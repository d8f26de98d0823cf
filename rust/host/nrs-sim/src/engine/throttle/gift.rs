// SPDX-License-Identifier: GPL-2.0-only

//! A model of GIFT (Patel et al., FAST 2020) on one server, as far as its published constants go: what is
//! throttled now gets *coupons*, which are redeemed when there is a surplus.
//!
//! At each *decision* the bandwidth is divided for the time until the next one:
//!
//! 1. A job *demands* whatever it can get if something of it waits or it used its cap up to [`THRESHOLD`];
//!    otherwise what it used and [`THRESHOLD`] more.
//! 2. Each gets its demand, up to an equal part of the bandwidth; what the others leave goes to those that
//!    hold coupons, up to [`REDEEM`] of these, and then in equal parts to those that demand more.
//! 3. Who demanded its equal part and got less until this decision, because it came in between, holds
//!    coupons for the difference.
//!
//! A job that comes between two decisions gets what is not given away, [`TRICKLE`] of the bandwidth at
//! least. What is *not* modelled: the linear program over many servers and the throttling of one server's
//! part to the pace of the slowest, which need many servers; the time the central server needs.

use super::SECOND;

/// Time between decisions, ns: half a second.
pub(super) const INTERVAL: u64 = SECOND / 2;
/// A job that used all but this part of its cap is taken to want more.
const THRESHOLD: f64 = 0.1;
/// The part of its coupons that a job may redeem at one decision.
const REDEEM: f64 = 0.8;
/// The part of the bandwidth that a job gets until the first decision about it.
const TRICKLE: f64 = 0.01;

/// What is known about a job.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// It has sent something since it was last idle.
    known: bool,
    /// Bytes per second until the next decision.
    cap: f64,
    /// Bytes since the last decision.
    used: u64,
    /// Bytes that it was denied.
    coupons: f64,
}

/// Who decides.
#[derive(Debug)]
pub(super) struct Gift {
    bandwidth: f64,
    accounts: Vec<Account>,
    next: u64,
}

impl Gift {
    /// For so many jobs on `bandwidth` bytes per second.
    pub(super) fn new(jobs: usize, bandwidth: u64) -> Self {
        Self {
            bandwidth: bandwidth as f64,
            accounts: vec![Account::default(); jobs],
            next: 0,
        }
    }

    /// When the next decision is, ns.
    pub(super) fn next_decision(&self) -> u64 {
        self.next
    }

    /// A request came; the cap of its job, if that is new.
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

    /// A request of so many bytes ended.
    pub(super) fn served(&mut self, job: usize, bytes: u64) {
        self.accounts[job].used += bytes;
    }

    /// Caps until the next decision, by job; `waiting`: something of it is queued.
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
