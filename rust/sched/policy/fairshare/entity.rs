// SPDX-License-Identifier: GPL-2.0-only

//! Entities and virtual time.
//!
//! # Vocabulary
//!
//! - *Virtual time*: how much service an entity of weight 1 should have received; a wrapping number, of
//!   which 2^32 are one page ([`Clock`]).
//! - *Weight*: 4096 stands for 1; from [`WEIGHT_MIN`] to [`WEIGHT_MAX`].
//! - *Tag*: the virtual time up to which an entity has been served; an entity with weight `w` that is
//!   charged `c` pages moves on by `c * 2^32 / w`.
//! - *Lag*: virtual time minus tag: positive if the entity is owed service.
//!
//! # Numbers
//!
//! A charge is at most 2^14 pages and the smallest weight 2^6, so a step of a tag is at most 2^40. `inv`
//! is 2^48 / w, at most 2^42; its product with a cost is below 2^56. Sixteen bits are carried from step to
//! step, which keeps the error of a tag below 2^-17 of a page per charge at any weight.

/// A weight of one.
pub const WEIGHT_ONE: u32 = 1 << 12;
/// Smallest weight.
pub const WEIGHT_MIN: u32 = 1 << 6;
/// Largest weight.
pub const WEIGHT_MAX: u32 = 1 << 20;
/// Largest cost that is charged for one request, pages (64 MiB); what is above counts as this.
pub const COST_MAX: u32 = 1 << 14;
/// Largest debt that forced requests make, pages (64 MiB); what is above is forgiven, so that nobody
/// who has to write metadata is shut out for long.
pub const DEBT_MAX: u32 = COST_MAX;

/// Where an entity is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nowhere: no requests.
    Out,
    /// Among those that are ahead of the clock.
    Wait,
    /// Among those that may be served.
    Ready,
}

/// The share of one class in a part.
///
/// # Invariants
///
/// `inv` is `2^48 / weight`, rounded; `weight` is within its limits.
#[derive(Clone, Copy, Debug)]
pub struct Entity {
    /// Tag: start of the request that is served next.
    pub start: u64,
    inv: u64,
    /// Lag at the moment it left; only while it is [`Place::Out`].
    pub owed: i64,
    weight: u32,
    rest: u16,
    /// Where it is queued.
    pub place: Place,
}

impl Entity {
    /// An entity of `weight` (limited to what is allowed) that starts at virtual time `start`.
    pub fn new(weight: u32, start: u64) -> Self {
        let weight = weight.clamp(WEIGHT_MIN, WEIGHT_MAX);
        Self {
            start,
            inv: inverse(weight),
            owed: 0,
            weight,
            rest: 0,
            place: Place::Out,
        }
    }

    /// The weight.
    pub const fn weight(&self) -> u32 {
        self.weight
    }

    /// How far a tag moves for `cost` pages.
    #[inline]
    pub const fn advance(&self, cost: u32) -> u64 {
        (cost as u64).wrapping_mul(self.inv) >> 16
    }

    /// Moves the tag on for `cost` pages, with the rest of earlier steps.
    #[inline]
    pub fn charge(&mut self, cost: u32) {
        let step = u64::from(cost)
            .wrapping_mul(self.inv)
            .wrapping_add(u64::from(self.rest));
        self.start = self.start.wrapping_add(step >> 16);
        self.rest = step as u16;
    }

    /// Deadline of a request of `cost` pages.
    #[inline]
    pub const fn deadline(&self, cost: u32) -> u64 {
        self.start.wrapping_add(self.advance(cost))
    }

    /// Lag at virtual time `now`, in units of virtual time.
    #[inline]
    pub const fn lag(&self, now: u64) -> i64 {
        now.wrapping_sub(self.start) as i64
    }

    /// Gives the entity another weight at virtual time `now`, so that its lag in pages stays the same.
    pub fn reweight(&mut self, weight: u32, now: u64) {
        let weight = weight.clamp(WEIGHT_MIN, WEIGHT_MAX);
        self.owed = rescale(self.owed, self.weight, weight);
        let ahead = rescale(self.lag(now).wrapping_neg(), self.weight, weight);
        self.start = now.wrapping_add(ahead as u64);
        self.weight = weight;
        self.inv = inverse(weight);
    }

    /// A lag in tenths of a page.
    pub fn decipages(&self, lag: i64) -> i64 {
        let scale = i128::from(self.weight).wrapping_mul(10);
        (i128::from(lag).wrapping_mul(scale) >> 32) as i64
    }
}

/// `2^48 / weight`, rounded; `weight` is not 0.
fn inverse(weight: u32) -> u64 {
    let weight = u64::from(weight);
    let half = weight >> 1;
    (1u64 << 48)
        .wrapping_add(half)
        .checked_div(weight)
        .unwrap_or(0)
}

/// A difference of virtual times times `from / to`; loses eight bits.
fn rescale(difference: i64, from: u32, to: u32) -> i64 {
    let scaled = (difference >> 8).saturating_mul(i64::from(from));
    scaled
        .checked_div(i64::from(to))
        .unwrap_or(0)
        .saturating_mul(1 << 8)
}

/// Virtual time of the entities that have requests.
///
/// # Invariants
///
/// `weight` is the sum of the weights of the entities that entered and did not leave; `rest` is below it,
/// or both are 0. The time never moves back.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    now: u64,
    rest: u64,
    weight: u64,
}

impl Clock {
    /// The virtual time.
    pub const fn now(&self) -> u64 {
        self.now
    }

    /// Sum of the weights.
    pub const fn weight(&self) -> u64 {
        self.weight
    }

    /// An entity of `weight` has requests now.
    pub fn enter(&mut self, weight: u32) {
        self.weight = self.weight.saturating_add(u64::from(weight));
    }

    /// An entity of `weight` has no requests any more; answers whether nobody has.
    pub fn leave(&mut self, weight: u32) -> bool {
        self.weight = self.weight.saturating_sub(u64::from(weight));
        if self.weight == 0 {
            self.rest = 0;
        }
        self.weight == 0
    }

    /// Moves on by the service `amount`, of which 2^32 are one page.
    #[inline]
    pub fn run(&mut self, amount: u64) {
        let sum = self.rest.saturating_add(amount);
        if let (Some(step), Some(rest)) =
            (sum.checked_div(self.weight), sum.checked_rem(self.weight))
        {
            self.now = self.now.wrapping_add(step);
            self.rest = rest;
        }
    }

    /// Moves on to `time` if that is ahead.
    pub fn jump(&mut self, time: u64) {
        if time.wrapping_sub(self.now) as i64 > 0 {
            self.now = time;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The carried rest keeps tags exact: a weight that does not divide 2^48, many small charges.
    #[test]
    fn charges_add_up() {
        for weight in [64, 100, 4096, 4097, 640_000, 1 << 20] {
            let mut entity = Entity::new(weight, u64::MAX - 1000);
            let start = entity.start;
            for _ in 0..100_000 {
                entity.charge(3);
            }
            let got = entity.start.wrapping_sub(start);
            let want = (300_000u128 << 32) / u128::from(weight);
            // `inv` itself is rounded by at most half: 2^-1 * 300000 / 2^16.
            assert!(
                u128::from(got).abs_diff(want) <= 4,
                "{weight}: {got} {want}"
            );
        }
    }

    #[test]
    fn largest_numbers_fit() {
        let entity = Entity::new(0, 0);
        assert_eq!(
            (entity.weight(), entity.advance(COST_MAX)),
            (WEIGHT_MIN, 1 << 40)
        );
        let entity = Entity::new(u32::MAX, 0);
        assert_eq!((entity.weight(), entity.advance(1)), (WEIGHT_MAX, 1 << 12));
    }

    #[test]
    fn reweight_keeps_the_lag_in_pages() {
        let now = 5u64 << 40;
        for (from, to) in [(64, 1 << 20), (1 << 20, 64), (4096, 12288)] {
            for pages in [-200i64, -1, 0, 3, 16000] {
                let mut entity = Entity::new(from, now);
                entity.start = now.wrapping_sub(((pages << 32) / i64::from(from)) as u64);
                entity.reweight(to, now);
                let got = entity.decipages(entity.lag(now));
                assert!((got - pages * 10).abs() <= 1, "{from} {to} {pages}: {got}");
            }
        }
    }

    #[test]
    fn clock() {
        let mut clock = Clock::default();
        clock.run(1 << 32);
        assert_eq!(clock.now(), 0);
        clock.enter(3);
        for _ in 0..3 {
            clock.run(1);
        }
        assert_eq!((clock.now(), clock.weight()), (1, 3));
        clock.jump(0);
        assert_eq!(clock.now(), 1);
        clock.jump(9);
        clock.enter(4);
        assert!(!clock.leave(3) && clock.leave(4));
        assert_eq!(clock.now(), 9);
    }
}
