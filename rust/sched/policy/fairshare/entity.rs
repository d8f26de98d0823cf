// SPDX-License-Identifier: GPL-2.0-only

//! Entities and virtual time.
//!
//! # Vocabulary
//!
//! - *Cost*: what a request takes of the service, in units: pages, requests or microseconds.
//! - *Virtual time*: how much service an entity of weight 1 should have received; a wrapping number, of
//!   which 2^32 are one unit at raw weight 1 ([`Clock`]).
//! - *Weight*: a raw number; 4096 stands for one ([`WEIGHT_ONE`]).
//! - *Tag*: the virtual time up to which an entity has been served; an entity with weight `w` that is
//!   charged `c` units moves on by `c * 2^32 / w`.
//! - *Lag*: virtual time minus tag: positive if the entity is owed service.
//!
//! # Numbers
//!
//! | Number | Bits | Why |
//! |---|---|---|
//! | weight `w` | 1 to 2^31 - 1 | 1 to 10,000, times a job size up to 4096, times 4096, at most 2^19 - 1 of it; and 2^-10 of one when servers share |
//! | cost `c` | up to 2^17 | 512 MiB in pages, 131 ms in microseconds |
//! | `inv` | 2^31 to 2^62 | 2^62 / w, rounded |
//! | `c * inv` | below 2^80 | in 128 bits: one multiplication and one shift, no division |
//! | step of a tag | up to 2^49 | `(c * inv) >> 30`; tags that are compared are a few such steps apart, far from 2^63 |
//! | lag times weight | up to 2^49 for one largest cost | service, of which 2^32 are one unit: 2^14 largest costs until the sum saturates |
//!
//! Thirty bits are carried from step to step. What is left is the rounding of `inv`: at most half of 2^-30
//! per unit of cost, so after 2^40 units a tag is less than 2^10 off, and 2^10 of tag are less than one
//! unit at every weight.

/// A weight of one.
pub const WEIGHT_ONE: u32 = 1 << 12;
/// Smallest weight.
pub const WEIGHT_MIN: u32 = 1;
/// Largest weight.
pub const WEIGHT_MAX: u32 = (1 << 31) - 1;
/// Largest cost that is charged for one request, units; what is above counts as this.
pub const COST_MAX: u32 = 1 << 17;
/// Largest debt that forced requests make, units; what is above is forgiven, so that nobody who has to
/// write metadata is shut out for long.
pub const DEBT_MAX: u32 = 1 << 14;

/// Bits of a tag's step that are carried.
const CARRIED: u32 = 30;
/// An idle tag further than this from the clock is brought nearer.
const FAR: i64 = 1 << 52;
/// Where it is brought: further than any request.
const NEAR: i64 = 1 << 50;

/// After how many of its own requests of idle time the surplus of an entity that was busy expires.
const IDLE_LONG: u64 = 64;

/// Whether an entity is in the timeline of its scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// No: it has no requests.
    Out,
    /// It is.
    In,
}

/// The share of one node among its siblings.
///
/// # Invariants
///
/// `inv` is `2^62 / weight`, rounded; `weight` is within its limits; `rest` is below 2^30.
#[derive(Clone, Copy, Debug)]
pub struct Entity {
    /// Tag: start of the request that is served next.
    pub(super) start: u64,
    inv: u64,
    /// Lag at the moment it left; only while it is [`Place::Out`].
    pub(super) owed: i64,
    weight: u32,
    rest: u32,
    /// Cost of the request that is served next; only while it is not [`Place::Out`].
    pub(super) head: u32,
    /// What it was charged for service elsewhere since it was served here, units.
    pub(super) pulled: u32,
    /// Service elsewhere that is not charged yet.
    pub(super) pending: u32,
    /// What [`Entity::ease`] carries, 1/256 of a unit.
    eased: u8,
    /// Whether it is in a timeline.
    pub(super) place: Place,
    /// Whether it had another request queued when one was served, since it became a member.
    pub(super) busy: bool,
}

impl Entity {
    /// An entity of `weight` (limited to what is allowed).
    pub fn new(weight: u32) -> Self {
        let weight = weight.clamp(WEIGHT_MIN, WEIGHT_MAX);
        Self {
            start: 0,
            inv: inverse(weight),
            owed: 0,
            weight,
            rest: 0,
            head: 0,
            pulled: 0,
            pending: 0,
            eased: 0,
            place: Place::Out,
            busy: false,
        }
    }

    /// The weight.
    pub const fn weight(&self) -> u32 {
        self.weight
    }

    /// How far a tag moves for `cost` units.
    #[inline]
    pub(super) fn advance(&self, cost: u32) -> u64 {
        let step = u128::from(cost.min(COST_MAX)).wrapping_mul(u128::from(self.inv));
        (step >> CARRIED) as u64
    }

    /// Moves the tag on for `cost` units, with the rest of earlier steps.
    #[inline]
    pub(super) fn charge(&mut self, cost: u32) {
        let step = u128::from(cost.min(COST_MAX)).wrapping_mul(u128::from(self.inv));
        let step = step.wrapping_add(u128::from(self.rest));
        self.start = self.start.wrapping_add((step >> CARRIED) as u64);
        self.rest = step as u32 & ((1 << CARRIED) - 1);
    }

    /// Takes back a charge of `cost` units.
    fn refund(&mut self, cost: u32) {
        let step = u128::from(cost.min(COST_MAX)).wrapping_mul(u128::from(self.inv));
        // The carried bits borrow from the tag: two's complement does that.
        let left = u128::from(self.rest).wrapping_sub(step);
        self.start = self.start.wrapping_add((left >> CARRIED) as u64);
        self.rest = left as u32 & ((1 << CARRIED) - 1);
    }

    /// Deadline of the request that is served next.
    #[inline]
    pub(super) fn deadline(&self) -> u64 {
        self.start.wrapping_add(self.advance(self.head))
    }

    /// Lag at virtual time `now`, in units of virtual time.
    #[inline]
    pub(super) const fn lag(&self, now: u64) -> i64 {
        now.wrapping_sub(self.start) as i64
    }

    /// Largest number of units whose tag step is at most `room`, limited to 2^32 - 1.
    pub(super) fn fits(&self, room: u64) -> u32 {
        let units = u128::from(room).wrapping_mul(u128::from(self.weight)) >> 32;
        units.min(u128::from(u32::MAX)) as u32
    }

    /// What service of `cost` units elsewhere counts here: one part in 256 less.
    ///
    /// Were all of it counted, any division of what the entity gets among the partitions would be as good as
    /// any other; this makes the even one come back by itself.
    pub(super) fn ease(&mut self, cost: u64) -> u64 {
        let whole = cost.min(u64::from(u32::MAX)).wrapping_mul(255);
        let eased = whole.wrapping_add(u64::from(self.eased));
        self.eased = eased as u8;
        eased >> 8
    }

    /// Gives the entity another weight at virtual time `now`, so that its lag in units stays the same.
    pub(super) fn reweight(&mut self, weight: u32, now: u64) {
        let weight = weight.clamp(WEIGHT_MIN, WEIGHT_MAX);
        self.owed = rescale(self.owed, self.weight, weight);
        let lag = rescale(self.lag(now), self.weight, weight);
        self.start = now.wrapping_sub(lag as u64);
        self.weight = weight;
        self.inv = inverse(weight);
    }

    /// Brings the tag so near to `now` that it cannot wrap around; what is further than any request away
    /// stays that far.
    pub(super) fn refresh(&mut self, now: u64) {
        let lag = self.lag(now);
        if lag > FAR {
            self.start = now.wrapping_sub(NEAR as u64);
        } else if lag < FAR.wrapping_neg() {
            self.start = now.wrapping_add(NEAR as u64);
        }
    }

    /// Becomes a member at virtual time `now` with a request of `cost`; answers how much its lag is more than
    /// when it left.
    ///
    /// Surplus expires when the clock has passed the old tag; that of an entity which was busy only after a
    /// long idle time.
    pub(super) fn resume(&mut self, now: u64, cost: u32) -> i64 {
        let owed = self.due(now, cost);
        self.start = now.wrapping_sub(owed as u64);
        self.busy = false;
        self.pulled = 0;
        self.pending = 0;
        owed.saturating_sub(core::mem::take(&mut self.owed))
    }

    /// Lag of an entity without requests if it came at virtual time `now` with a request of `cost`.
    fn due(&self, now: u64, cost: u32) -> i64 {
        let idle = self.lag(now);
        let long = self.advance(cost).saturating_mul(IDLE_LONG) as i64;
        if self.owed > 0 || (self.busy && idle < long) {
            self.owed
        } else {
            idle.min(0)
        }
    }

    /// Lag in tenths of a unit of cost, at virtual time `now`.
    pub(super) fn tenths_at(&self, now: u64) -> i64 {
        let lag = match self.place {
            Place::Out => self.due(now, 1),
            _ => self.lag(now),
        };
        self.tenths(lag)
    }

    /// Is a member no more; answers how much its lag is more than it was: what is remembered is limited to
    /// one largest request.
    pub(super) fn retire(&mut self, now: u64) -> i64 {
        let bound = self.advance(COST_MAX) as i64;
        let lag = self.lag(now);
        self.owed = lag.clamp(bound.wrapping_neg(), bound);
        self.start = now.wrapping_sub(self.owed as u64);
        self.place = Place::Out;
        self.owed.saturating_sub(lag)
    }

    /// Changes by `-cost` units what an entity without requests is owed, to no less than `-most` units;
    /// answers how much its lag is more than it was.
    fn shift(&mut self, now: u64, cost: i64, most: u32) -> i64 {
        let floor = (self.advance(most) as i64).wrapping_neg();
        let step = self.advance(limited(cost)) as i64;
        let step = if cost < 0 { step.wrapping_neg() } else { step };
        let due = self.due(now, limited(cost));
        let owed = due.saturating_sub(step);
        // What is below the floor already stays there.
        let owed = owed.min(self.advance(COST_MAX) as i64).max(floor.min(due));
        let change = owed.saturating_sub(self.owed);
        self.owed = owed;
        self.start = now.wrapping_sub(owed as u64);
        change
    }

    /// A request of `cost` went past the queue of an entity without requests: what it is owed pays first,
    /// the rest is surplus, up to [`DEBT_MAX`]; answers how much its lag is more than it was.
    pub(super) fn absorb(&mut self, now: u64, cost: u32) -> i64 {
        self.shift(now, i64::from(cost), DEBT_MAX)
    }

    /// A request of an entity with requests cost `delta` units more than was charged.
    pub(super) fn correct(&mut self, delta: i64) {
        if delta > 0 {
            self.charge(limited(delta));
        } else {
            self.refund(limited(delta));
        }
    }

    /// A request of an entity without requests cost `delta` units more than was charged, and the clock took
    /// that into account; answers the service that is out of balance since then.
    pub(super) fn correct_idle(&mut self, now: u64, delta: i64) -> i64 {
        let more = self.shift(now, delta, COST_MAX);
        let service = (u64::from(limited(delta)) << 32) as i64;
        let service = if delta > 0 {
            service
        } else {
            service.wrapping_neg()
        };
        self.service(more).saturating_add(service)
    }

    /// A lag in tenths of a unit of cost.
    fn tenths(&self, lag: i64) -> i64 {
        let scale = i128::from(self.weight).wrapping_mul(10);
        let tenths = i128::from(lag).wrapping_mul(scale) >> 32;
        tenths.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }

    /// A lag in service, of which 2^32 are one unit; saturating.
    pub(super) fn service(&self, lag: i64) -> i64 {
        lag.saturating_mul(i64::from(self.weight))
    }
}

/// `2^62 / weight`, rounded; `weight` is not 0.
fn inverse(weight: u32) -> u64 {
    let weight = u64::from(weight);
    let half = weight >> 1;
    (1u64 << 62)
        .wrapping_add(half)
        .checked_div(weight)
        .unwrap_or(0)
}

/// A difference of virtual times times `from / to`, limited to what is [`FAR`].
fn rescale(difference: i64, from: u32, to: u32) -> i64 {
    let scaled = i128::from(difference).wrapping_mul(i128::from(from));
    let scaled = scaled.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
    let result = scaled.checked_div(i64::from(to)).unwrap_or(0);
    result.clamp(FAR.wrapping_neg(), FAR)
}

/// Units of a correction, at most one largest request.
fn limited(delta: i64) -> u32 {
    delta.unsigned_abs().min(u64::from(COST_MAX)) as u32
}

/// Virtual time of the entities that have requests.
///
/// Service is in units of 2^-32 of a unit of cost.
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
    /// Service by which the time is ahead of what it should be.
    behind: u64,
    /// Sum of the lags, of those that have requests and those that come again, as service.
    owed: i64,
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

    /// An entity of `weight` has no requests any more.
    pub fn leave(&mut self, weight: u32) {
        self.weight = self.weight.saturating_sub(u64::from(weight));
        if self.weight == 0 {
            // What it stood still for is in the lags for good.
            self.owed = self.owed.saturating_add_unsigned(self.behind);
            (self.rest, self.behind) = (0, 0);
        }
    }

    /// The lags sum to `service` more than they should: something was forgotten, or served to somebody
    /// who has no requests.
    pub fn tilt(&mut self, service: i64) {
        self.owed = self.owed.saturating_add(service);
    }

    /// Moves on for `cost` units that were served, slower or faster by up to a half as long as the lags do
    /// not sum to 0.
    #[inline]
    pub fn serve(&mut self, cost: u32) {
        let service = u64::from(cost.min(COST_MAX)) << 32;
        let bleed = self.owed >> 3;
        if bleed == 0 {
            return self.run(service);
        }
        let half = (service >> 1) as i64;
        let bled = bleed.clamp(half.wrapping_neg(), half);
        self.owed = self.owed.saturating_sub(bled);
        self.run(service.wrapping_sub(bled as u64));
    }

    /// Moves on for `cost` units that were served elsewhere.
    pub fn pull(&mut self, cost: u32) {
        self.run(u64::from(cost.min(COST_MAX)) << 32);
    }

    /// A request cost `delta` units more than was charged: moves on, or stands still for as much.
    pub fn correct(&mut self, delta: i64) {
        let service = u64::from(limited(delta)) << 32;
        if delta > 0 {
            self.run(service);
        } else if self.weight > 0 {
            self.behind = self.behind.saturating_add(service);
        }
    }

    /// Moves on by the service `amount`, after what it has to stand still for.
    #[inline]
    fn run(&mut self, amount: u64) {
        let mut due = amount;
        if self.behind > 0 {
            due = amount.saturating_sub(self.behind);
            self.behind = self.behind.saturating_sub(amount);
        }
        let sum = self.rest.saturating_add(due);
        if let (Some(step), Some(rest)) =
            (sum.checked_div(self.weight), sum.checked_rem(self.weight))
        {
            self.now = self.now.wrapping_add(step);
            self.rest = rest;
        }
    }

    /// Moves on to `time` if that is ahead, which gives to all.
    pub fn jump(&mut self, time: u64) {
        let ahead = time.wrapping_sub(self.now);
        if ahead as i64 > 0 {
            self.now = time;
            let given = ahead.saturating_mul(self.weight).min(i64::MAX as u64);
            self.tilt(given as i64);
        }
    }
}

#[cfg(test)]
mod tests;
