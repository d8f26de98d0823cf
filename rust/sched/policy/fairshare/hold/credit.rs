// SPDX-License-Identifier: GPL-2.0-only

//! Credit for the time in which slots stay free.

use super::HoldTerms;
use crate::sched::{
    bucket::{instant, span, BucketLevel, Charge, Pace},
    units::{NSEC_PER_MSEC, NSEC_PER_SEC},
};

/// Time for which credit is kept, ns.
pub(super) const AHEAD: u64 = 100 * NSEC_PER_MSEC;

/// Payment in advance for slots that stay free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Payment {
    /// Number of slots.
    pub(super) slots: u32,
    /// Beginning and end of the time, ns.
    since: u64,
    until: u64,
    /// Price, ns of all slots.
    price: u64,
}

impl Payment {
    /// Creates the payment for `slots` of `all` slots from `since` until `until`, ns.
    pub(super) fn of(slots: u32, all: u32, since: u64, until: u64) -> Self {
        let time = until.saturating_sub(since).saturating_mul(slots.into());
        Self {
            slots,
            since,
            until,
            price: time.checked_div(all.into()).unwrap_or(time),
        }
    }

    /// Returns the price of the time from `now` on.
    fn left(&self, now: u64) -> u64 {
        let all = self.until.saturating_sub(self.since);
        let left = self.until.saturating_sub(now).min(all);
        let left = self.price.saturating_mul(left).checked_div(all);
        left.unwrap_or(0)
    }
}

/// Time for which slots may be kept free, as a bucket: a token is one nanosecond of all slots.
#[derive(Clone, Copy)]
pub(super) struct Credit {
    pub(super) level: BucketLevel,
    pub(super) pace: Pace,
    /// Largest credit, ticks: at least for one longest hold of all slots, or of one of two.
    pub(super) window: u64,
}

impl Credit {
    /// Creates the whole credit of one of `parts` parts.
    pub(super) fn new(terms: &HoldTerms, parts: u64) -> Self {
        let share = terms.permille.saturating_mul(NSEC_PER_SEC / 1000);
        let pace = Pace::new(share.checked_div(parts).unwrap_or(share));
        Self {
            level: BucketLevel::FULL,
            pace,
            window: span(AHEAD).max(pace.span(terms.largest())),
        }
    }

    /// Returns the instant before which credit is lost at `now`, an instant.
    pub(super) fn floor(&self, now: u64) -> u64 {
        now.saturating_sub(self.window)
    }

    /// Continues with other terms at `now`, ns; the tokens stay.
    pub(super) fn adjust(&mut self, new: Self, now: u64) {
        let now = instant(now);
        let level = self.level.at_least(self.floor(now));
        let [before, after] = [self.pace, new.pace].map(|pace| pace.span(NSEC_PER_SEC));
        *self = Self {
            level: level.rescale(BucketLevel::FULL, now, before, after, 0),
            ..new
        };
    }

    /// Takes the price of `payment`, and leaves at least `rest` ticks; returns `None` beyond the
    /// credit.
    pub(super) fn buy(&mut self, payment: Payment, rest: u64) -> Option<Payment> {
        let (now, span) = (instant(payment.since), self.pace.span(payment.price));
        let need = span.saturating_add(rest);
        let (floor, charge) = (self.floor(now), Charge { need, span });
        if self.level.ready(floor, charge) > now {
            return None;
        }
        self.level = self.level.take(floor, charge);
        Some(payment)
    }

    /// Returns the rest of `payment` from `now` on, ns; returns what was used, ns of all slots.
    pub(super) fn refund(&mut self, payment: Payment, now: u64) -> u64 {
        let left = payment.left(now);
        self.level = self.level.refund(self.pace.span(left));
        payment.price.saturating_sub(left)
    }
}
