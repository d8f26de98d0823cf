// SPDX-License-Identifier: GPL-2.0-only

//! Exact division of an amount in proportion to goals, within bounds.
//!
//! With shares in proportion to goals, `share = ratio * goal`, some clients would violate a bound.
//! Little bandwidth leaves some below the floor, much bandwidth takes some above their maximum.
//! These clients are *pinned* to the bound, and the rest of the amount is divided among the other
//! clients:
//!
//! ```text
//!   bandwidth
//!      │            ┌───┐ goals                 pinned: 1 and 2
//!      │      ┌───┐ │   │
//!      │      │ ─ │ │───│ ratio * goal          ratio = (total - 2 * floor) / (goal 3 + goal 4)
//!      │┌───┐ │▒▒▒│ │▒▒▒│
//!      ││───│─│▒▒▒│─│▒▒▒│─ floor
//!      └┴───┴─┴───┴─┴───┴──► clients
//! ```
//!
//! The set of pinned clients depends on the ratio, and the ratio on that set. The first pass starts
//! without pinned clients; each pass pins the clients that violate their bound at the previous
//! ratio. The ratio then changes in one direction only, so that no client is ever unpinned. This is
//! Newton's method on a piecewise linear function of the ratio. It ends when a pass pins no further
//! client, usually after two or three passes.

use super::{client::AllocatorClient, Allocator};
use crate::sched::qbm::terms::BandwidthClass;

/// Quotient `amount / weight`, to be multiplied by weights.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShareRatio {
    amount: u64,
    weight: u64,
    /// Quotient, rounded down: an integer part and a fraction of 64 bits.
    whole: u64,
    fraction: u64,
}

impl ShareRatio {
    /// Creates the ratio `amount / weight`; 0 for a weight of 0. The weight must be below 2^63.
    pub(super) const fn new(amount: u64, weight: u64) -> Self {
        let mut ratio = Self {
            amount,
            weight,
            whole: 0,
            fraction: 0,
        };
        let (Some(whole), Some(mut rest)) =
            (amount.checked_div(weight), amount.checked_rem(weight))
        else {
            ratio.amount = 0;
            return ratio;
        };
        ratio.whole = whole;
        // Long division bit by bit, because the kernel has no 128-bit division.
        let mut bit = 0;
        while bit < u64::BITS {
            rest = rest.wrapping_shl(1);
            ratio.fraction = ratio.fraction.wrapping_shl(1);
            if rest >= weight {
                rest = rest.wrapping_sub(weight);
                ratio.fraction |= 1;
            }
            bit = bit.wrapping_add(1);
        }
        ratio
    }

    /// Returns `amount * weight / self.weight`, rounded down, for a `weight` up to `self.weight`.
    pub(super) const fn of(self, weight: u64) -> u64 {
        let part = (weight as u128).wrapping_mul(self.fraction as u128) >> 64;
        let share = weight.wrapping_mul(self.whole).wrapping_add(part as u64);
        // The product is at most one too small, because the quotient is less than 2^-64 too small.
        let next = share.wrapping_add(1);
        let product = (weight as u128).wrapping_mul(self.amount as u128);
        if (next as u128).wrapping_mul(self.weight as u128) <= product && self.weight > 0 {
            next
        } else {
            share
        }
    }
}

/// Running division of an amount: the sum of all shares so far is the rounded share of the sum of
/// the weights so far. The shares of all weights add up to the amount.
struct ExactDivider {
    ratio: ShareRatio,
    weights: u64,
    given: u64,
}

impl ExactDivider {
    const fn new(ratio: ShareRatio) -> Self {
        Self {
            ratio,
            weights: 0,
            given: 0,
        }
    }

    /// Returns the share of `weight`.
    fn next(&mut self, weight: u64) -> u64 {
        self.weights = self.weights.wrapping_add(weight);
        let upto = self.ratio.of(self.weights);
        let share = upto.wrapping_sub(self.given);
        self.given = upto;
        share
    }
}

/// Kind of a bound on shares.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bound {
    /// Lower bound.
    Least,
    /// Upper bound.
    Most,
}

impl Bound {
    /// Returns true if a client with `goal` is pinned to `bound` at `ratio`.
    const fn pins(self, ratio: ShareRatio, goal: u64, bound: u64) -> bool {
        // INVARIANT: the weight of the ratio includes the goals of all clients that are not pinned.
        if goal > ratio.weight {
            return true;
        }
        let share = ratio.of(goal);
        match self {
            Self::Least => share < bound,
            Self::Most => share >= bound,
        }
    }
}

impl Allocator {
    /// Divides `total` among the clients of `class` in proportion to their goals, at least the
    /// floor and at most the goal for each. No client may have extra. The total must be less than
    /// the sum of goals and at least the sum of floors.
    pub(super) fn divide_below_goals(&mut self, class: BandwidthClass, total: u64) {
        let floor = self.parameters.floor;
        let ratio = self.ratio(class, total, Bound::Least, |_| floor);
        let mut carver = ExactDivider::new(ratio);
        self.each(class, |client| {
            let pinned = Bound::Least.pins(ratio, client.goal, floor);
            client.set(if pinned {
                floor
            } else {
                carver.next(client.goal)
            });
        });
    }

    /// Gives each client of `class` the goal, and divides `extra` in proportion to goals, up to the
    /// cap of each client. Returns the rest that exceeds all caps.
    pub(super) fn divide_extra(&mut self, class: BandwidthClass, extra: u64) -> u64 {
        let room = |client: &AllocatorClient| client.cap.saturating_sub(client.goal);
        let rooms = self
            .members(class)
            .fold(0, |sum: u64, client| sum.saturating_add(room(client)));
        if rooms <= extra {
            self.each(class, |client| client.set(client.cap));
            return extra.wrapping_sub(rooms);
        }
        let ratio = self.ratio(class, extra, Bound::Most, room);
        let mut carver = ExactDivider::new(ratio);
        self.each(class, |client| {
            let room = room(client);
            let pinned = Bound::Most.pins(ratio, client.goal, room);
            let share = if pinned {
                room
            } else {
                carver.next(client.goal)
            };
            client.set(client.goal.wrapping_add(share));
        });
        0
    }

    /// Takes `less` of the extra of `class`, from each client in proportion to the client's extra.
    /// The sum of extra must be at least `less`.
    pub(super) fn cut_extra(&mut self, class: BandwidthClass, less: u64) {
        let tally = self.tally(class);
        let left = tally.extra.wrapping_sub(less);
        let mut carver = ExactDivider::new(ShareRatio::new(left, tally.extra));
        self.each(class, |client| {
            let extra = client.extra();
            if extra > 0 {
                client.set(client.goal.wrapping_add(carver.next(extra)));
            }
        });
    }

    /// Computes the ratio at which the bounded shares of the clients of `class` add up to `total`.
    fn ratio(
        &self,
        class: BandwidthClass,
        total: u64,
        side: Bound,
        bound: impl Fn(&AllocatorClient) -> u64,
    ) -> ShareRatio {
        let goals = self.tally(class).goals;
        let mut ratio = ShareRatio::new(total, goals);
        let mut before = 0u64;
        loop {
            let (mut pinned, mut bounds, mut weights) = (0u64, 0u64, 0u64);
            for client in self.members(class) {
                let bound = bound(client);
                if side.pins(ratio, client.goal, bound) {
                    pinned = pinned.wrapping_add(1);
                    bounds = bounds.wrapping_add(bound);
                    weights = weights.wrapping_add(client.goal);
                }
            }
            if pinned <= before {
                return ratio;
            }
            before = pinned;
            ratio = ShareRatio::new(total.saturating_sub(bounds), goals.wrapping_sub(weights));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_exact() {
        for (amount, weight) in [
            (0, 1),
            (1, 3),
            (2, 3),
            (7, 7),
            (1_000_000_000, 1_200_000_000),
            (1 << 48, (1 << 48) - 1),
            ((1 << 48) - 1, 1 << 62),
            (1 << 60, 3),
        ] {
            let ratio = ShareRatio::new(amount, weight);
            for part in [0, 1, 2, weight / 3, weight / 2, weight] {
                let exact = u128::from(amount) * u128::from(part) / u128::from(weight);
                let got = u128::from(ratio.of(part));
                assert_eq!(got, exact, "{amount}/{weight} {part}");
            }
        }
        assert_eq!(ShareRatio::new(5, 0).of(7), 0);
    }

    #[test]
    fn carving_loses_nothing() {
        for amount in [0, 1, 90, 91, 92, 1000, 1 << 48] {
            let mut carver = ExactDivider::new(ShareRatio::new(amount, 7 * 13));
            let shares = [(); 13].map(|()| carver.next(7));
            assert_eq!(shares.iter().sum::<u64>(), amount);
            let most = amount.div_ceil(13);
            assert!(shares
                .iter()
                .all(|share| (amount / 13..=most).contains(share)));
        }
    }
}
