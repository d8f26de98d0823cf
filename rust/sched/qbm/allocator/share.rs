// SPDX-License-Identifier: GPL-2.0-only

//! Dividing a sum in proportion to goals, between bounds, without losing a byte.
//!
//! With shares in proportion to goals, `share = ratio * goal`, some clients would end up beyond a bound:
//! below the floor when there is little, above their maximum when there is much. They are *pinned* to the
//! bound, and the rest of the sum is divided among the others:
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
//! Who is pinned depends on the ratio and the other way round. Starting with nobody pinned, each pass pins
//! those that are beyond their bound at the ratio of the pass before; the ratio then moves one way only, so
//! nobody gets unpinned again. This is Newton's method on a piecewise linear function of the ratio: it ends
//! when a pass pins nobody, mostly after two or three.

use super::{client::Client, Allocator};
use crate::sched::qbm::terms::Class;

/// `amount / weight`, to be multiplied by weights.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ratio {
    amount: u64,
    weight: u64,
    /// The quotient, rounded down: an integer, and 64 bits behind the point.
    whole: u64,
    fraction: u64,
}

impl Ratio {
    /// `amount / weight`; 0 for a weight of 0. The weight is below 2^63.
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
        // Long division by bits: there is no 128-bit division in the kernel.
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

    /// `amount * weight / self.weight` for any `weight` up to that of the ratio, rounded down.
    pub(super) const fn of(self, weight: u64) -> u64 {
        let part = (weight as u128).wrapping_mul(self.fraction as u128) >> 64;
        let share = weight.wrapping_mul(self.whole).wrapping_add(part as u64);
        // At most one too small, since the quotient is less than 2^-64 too small.
        let next = share.wrapping_add(1);
        let product = (weight as u128).wrapping_mul(self.amount as u128);
        if (next as u128).wrapping_mul(self.weight as u128) <= product && self.weight > 0 {
            next
        } else {
            share
        }
    }
}

/// Hands out shares one after the other so that their sum is the share of the sum of weights, at any time: each
/// is rounded down or up. When all weights are in, all of the amount is.
struct Carver {
    ratio: Ratio,
    weights: u64,
    given: u64,
}

impl Carver {
    const fn new(ratio: Ratio) -> Self {
        Self {
            ratio,
            weights: 0,
            given: 0,
        }
    }

    /// The share of `weight`.
    fn next(&mut self, weight: u64) -> u64 {
        self.weights = self.weights.wrapping_add(weight);
        let upto = self.ratio.of(self.weights);
        let share = upto.wrapping_sub(self.given);
        self.given = upto;
        share
    }
}

/// On which side of the proportional share a bound is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bound {
    /// Nobody gets less.
    Least,
    /// Nobody gets more.
    Most,
}

impl Bound {
    /// Whether a client with `goal` is pinned to `bound` at `ratio`.
    const fn pins(self, ratio: Ratio, goal: u64, bound: u64) -> bool {
        // INVARIANT: the ratio has the goals of all that are not pinned.
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
    /// Sharing: `class` has `total` from now on, divided among its clients in proportion to their goals; nobody
    /// below the floor, nobody above its goal. Nobody has extra before; the total is less than the sum of goals
    /// and not less than the floors.
    pub(super) fn share_short(&mut self, class: Class, total: u64) {
        let floor = self.setup.floor;
        let ratio = self.ratio(class, total, Bound::Least, |_| floor);
        let mut carver = Carver::new(ratio);
        self.each(class, |client| {
            let pinned = Bound::Least.pins(ratio, client.goal, floor);
            client.set(if pinned {
                floor
            } else {
                carver.next(client.goal)
            });
        });
    }

    /// Sharing: each client of `class` gets its goal, and `extra` is divided in proportion to goals beyond that;
    /// nobody above its cap. What nobody has room for stays in the hand.
    pub(super) fn share_rich(&mut self, class: Class, extra: u64) -> u64 {
        let room = |client: &Client| client.cap.saturating_sub(client.goal);
        let rooms = self
            .members(class)
            .fold(0, |sum: u64, client| sum.saturating_add(room(client)));
        if rooms <= extra {
            self.each(class, |client| client.set(client.cap));
            return extra.wrapping_sub(rooms);
        }
        let ratio = self.ratio(class, extra, Bound::Most, room);
        let mut carver = Carver::new(ratio);
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

    /// Takes `less` of the extra of `class` into the hand, from each client in proportion to its extra; it is at
    /// most what they have.
    pub(super) fn cut_extra(&mut self, class: Class, less: u64) {
        let tally = self.tally(class);
        let left = tally.extra.wrapping_sub(less);
        let mut carver = Carver::new(Ratio::new(left, tally.extra));
        self.each(class, |client| {
            let extra = client.extra();
            if extra > 0 {
                client.set(client.goal.wrapping_add(carver.next(extra)));
            }
        });
    }

    /// The ratio at which the shares of the clients of `class`, between their bounds, add up to `total`.
    fn ratio(
        &self,
        class: Class,
        total: u64,
        side: Bound,
        bound: impl Fn(&Client) -> u64,
    ) -> Ratio {
        let goals = self.tally(class).goals;
        let mut ratio = Ratio::new(total, goals);
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
            ratio = Ratio::new(total.saturating_sub(bounds), goals.wrapping_sub(weights));
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
            let ratio = Ratio::new(amount, weight);
            for part in [0, 1, 2, weight / 3, weight / 2, weight] {
                let exact = u128::from(amount) * u128::from(part) / u128::from(weight);
                let got = u128::from(ratio.of(part));
                assert_eq!(got, exact, "{amount}/{weight} {part}");
            }
        }
        assert_eq!(Ratio::new(5, 0).of(7), 0);
    }

    #[test]
    fn carving_loses_nothing() {
        for amount in [0, 1, 90, 91, 92, 1000, 1 << 48] {
            let mut carver = Carver::new(Ratio::new(amount, 7 * 13));
            let shares = [(); 13].map(|()| carver.next(7));
            assert_eq!(shares.iter().sum::<u64>(), amount);
            let most = amount.div_ceil(13);
            assert!(shares
                .iter()
                .all(|share| (amount / 13..=most).contains(share)));
        }
    }
}
