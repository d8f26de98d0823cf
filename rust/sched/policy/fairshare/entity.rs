// SPDX-License-Identifier: GPL-2.0-only

//! Entities and virtual time.
//!
//! - *Cost*: service that a request takes, in units: pages, requests or microseconds.
//! - *Virtual time*: service that an entity of weight 1 should have received ([`VirtualClock`]).
//!   The number wraps; 2^32 are one unit at raw weight 1.
//! - *Weight*: a raw number; 4096 stands for one ([`WEIGHT_ONE`]).
//! - *Tag*: virtual time up to which an entity has been served. A charge of `c` units advances the
//!   tag of an entity with weight `w` by `c * 2^32 / w`.
//! - *Lag*: virtual time minus tag; positive if the entity is owed service.
//!
//! # Numbers
//!
//! - `w`, weight: 1 to 2^31 - 1. An entry of the table (1 to 10,000) times a job size up to 4096,
//!   limited to 2^19 - 1, times 4096, times a factor of at least 2^-10 if servers share.
//! - `c`, cost: up to 2^17, which is 512 MiB in pages, 131 ms in microseconds.
//! - `inv`: 2^31 to 2^62, `2^62 / w` rounded.
//! - `c * inv`: below 2^80, in 128 bits; one multiplication and one shift, no division.
//! - Step of a tag, `(c * inv) >> 30`: up to 2^49. Tags that are compared are a few such steps
//!   apart, far below 2^63.
//! - Lag times weight, service of which 2^32 are one unit: up to 2^49 for one largest cost. The sum
//!   saturates at 2^14 largest costs.
//!
//! Thirty bits are carried from step to step. The remaining error is the rounding of `inv`: at most
//! half of 2^-30 per unit of cost. So after 2^40 units a tag is less than 2^10 off, which is less
//! than one unit at every weight.

/// Weight of one.
pub const WEIGHT_ONE: u32 = 1 << 12;
/// Smallest weight.
pub const WEIGHT_MIN: u32 = 1;
/// Largest weight.
pub const WEIGHT_MAX: u32 = (1 << 31) - 1;
/// Largest cost charged for one request, units; larger costs are charged as this cost.
pub const COST_MAX: u32 = 1 << 17;
/// Largest debt from forced requests, units. Debt above this is dropped, so that an entity that has
/// to write metadata is not excluded for long.
pub const DEBT_MAX: u32 = 1 << 14;

/// Bits of a tag's step that are carried to the next step.
const CARRIED: u32 = 30;
/// Largest distance of an idle tag from the clock.
const FAR: i64 = 1 << 52;
/// Distance to which a tag beyond `FAR` is moved; larger than any request.
const NEAR: i64 = 1 << 50;

/// Idle time, in requests of the entity, after which the surplus of a busy entity expires.
const IDLE_LONG: u64 = 64;

/// State of an entity in the timeline of its scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimelineState {
    /// Not in the timeline: the entity has no requests.
    Out,
    /// In the timeline.
    In,
    /// Not in the timeline: the entity is throttled ([`super::throttle`]).
    Parked,
}

/// Weight and tag of one node among its siblings.
///
/// # Invariants
///
/// `inv` is `2^62 / weight`, rounded; `weight` is within its limits; `rest` is below 2^30.
#[derive(Clone, Copy, Debug)]
pub struct Entity {
    /// Tag: start of the request that is served next.
    pub(super) start: u64,
    inv: u64,
    /// Lag at the moment the entity left; valid while `place` is not [`TimelineState::In`].
    pub(super) owed: i64,
    weight: u32,
    rest: u32,
    /// Cost of the request that is dispatched next; valid while `place` is
    /// [`TimelineState::In`].
    pub(super) head: u32,
    /// Charges for service elsewhere since the last dispatch here, units.
    pub(super) pulled: u32,
    /// Service elsewhere that is not charged yet, units.
    pub(super) pending: u32,
    /// Remainder carried by [`Entity::discount_remote`], 1/256 of a unit.
    eased: u8,
    /// Presence in a timeline.
    pub(super) place: TimelineState,
    /// True if another request was queued at a dispatch, since the entity became a member.
    pub(super) busy: bool,
}

impl Entity {
    /// Creates an entity of `weight`, limited to [`WEIGHT_MIN`] and [`WEIGHT_MAX`].
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
            place: TimelineState::Out,
            busy: false,
        }
    }

    /// Returns the weight.
    pub const fn weight(&self) -> u32 {
        self.weight
    }

    /// Returns the distance by which a charge of `cost` units moves the tag.
    #[inline]
    pub(super) fn advance(&self, cost: u32) -> u64 {
        let step = u128::from(cost.min(COST_MAX)).wrapping_mul(u128::from(self.inv));
        (step >> CARRIED) as u64
    }

    /// Advances the tag by `cost` units, with the remainder of earlier steps.
    #[inline]
    pub(super) fn charge(&mut self, cost: u32) {
        let step = u128::from(cost.min(COST_MAX)).wrapping_mul(u128::from(self.inv));
        let step = step.wrapping_add(u128::from(self.rest));
        self.start = self.start.wrapping_add((step >> CARRIED) as u64);
        self.rest = step as u32 & ((1 << CARRIED) - 1);
    }

    /// Reverts a charge of `cost` units.
    fn refund(&mut self, cost: u32) {
        let step = u128::from(cost.min(COST_MAX)).wrapping_mul(u128::from(self.inv));
        // The carried bits borrow from the tag in two's complement.
        let left = u128::from(self.rest).wrapping_sub(step);
        self.start = self.start.wrapping_add((left >> CARRIED) as u64);
        self.rest = left as u32 & ((1 << CARRIED) - 1);
    }

    /// Returns the deadline of the request that is dispatched next.
    #[inline]
    pub(super) fn deadline(&self) -> u64 {
        self.start.wrapping_add(self.advance(self.head))
    }

    /// Returns the lag at virtual time `now`, in units of virtual time.
    #[inline]
    pub(super) const fn lag(&self, now: u64) -> i64 {
        now.wrapping_sub(self.start) as i64
    }

    /// Returns the largest number of units with a tag step of at most `room`, limited to 2^32 - 1.
    pub(super) fn fits(&self, room: u64) -> u32 {
        let units = u128::from(room).wrapping_mul(u128::from(self.weight)) >> 32;
        units.min(u128::from(u32::MAX)) as u32
    }

    /// Returns the charge here for service of `cost` units elsewhere: one part in 256 less than
    /// `cost`.
    ///
    /// With a full charge every division of an entity's service among the partitions would be
    /// stable. The reduced charge makes the division converge to the even one.
    pub(super) fn discount_remote(&mut self, cost: u64) -> u64 {
        let whole = cost.min(u64::from(u32::MAX)).wrapping_mul(255);
        let eased = whole.wrapping_add(u64::from(self.eased));
        self.eased = eased as u8;
        eased >> 8
    }

    /// Sets the weight at virtual time `now`, so that the lag in units stays the same.
    pub(super) fn reweight(&mut self, weight: u32, now: u64) {
        let weight = weight.clamp(WEIGHT_MIN, WEIGHT_MAX);
        self.owed = rescale(self.owed, self.weight, weight);
        let lag = rescale(self.lag(now), self.weight, weight);
        self.start = now.wrapping_sub(lag as u64);
        self.weight = weight;
        self.inv = inverse(weight);
    }

    /// Limits the distance of the tag from `now`, so that the tag cannot wrap around. A tag beyond
    /// `FAR` moves to `NEAR`, which is further than any request.
    pub(super) fn refresh(&mut self, now: u64) {
        let lag = self.lag(now);
        if lag > FAR {
            self.start = now.wrapping_sub(NEAR as u64);
        } else if lag < FAR.wrapping_neg() {
            self.start = now.wrapping_add(NEAR as u64);
        }
    }

    /// Makes the entity a member at virtual time `now` with a request of `cost`. Returns by how
    /// much its lag is larger than when the entity left.
    ///
    /// A surplus, which is a negative lag, expires as the clock passes the old tag. For a busy
    /// entity it expires only after a long idle time ([`IDLE_LONG`]).
    pub(super) fn resume(&mut self, now: u64, cost: u32) -> i64 {
        let owed = self.due(now, cost);
        self.start = now.wrapping_sub(owed as u64);
        self.busy = false;
        self.pulled = 0;
        self.pending = 0;
        owed.saturating_sub(core::mem::take(&mut self.owed))
    }

    /// Returns the lag that an entity without requests would have if a request of `cost` arrived at
    /// `now`.
    fn due(&self, now: u64, cost: u32) -> i64 {
        let idle = self.lag(now);
        let long = self.advance(cost).saturating_mul(IDLE_LONG) as i64;
        if self.owed > 0 || (self.busy && idle < long) {
            self.owed
        } else {
            idle.min(0)
        }
    }

    /// Returns the lag at virtual time `now`, in tenths of a unit of cost.
    pub(super) fn tenths_at(&self, now: u64) -> i64 {
        let lag = match self.place {
            TimelineState::In => self.lag(now),
            TimelineState::Out | TimelineState::Parked => self.due(now, 1),
        };
        self.tenths(lag)
    }

    /// Ends the membership and saves the lag, limited to one largest request in either direction.
    /// Returns by how much the lag grew.
    pub(super) fn retire(&mut self, now: u64) -> i64 {
        let bound = self.advance(COST_MAX) as i64;
        let lag = self.lag(now);
        self.owed = lag.clamp(bound.wrapping_neg(), bound);
        self.start = now.wrapping_sub(self.owed as u64);
        self.place = TimelineState::Out;
        self.owed.saturating_sub(lag)
    }

    /// Changes the lag of an entity without requests by `-cost` units, to no less than `-most`
    /// units. Returns by how much the lag grew.
    fn shift(&mut self, now: u64, cost: i64, most: u32) -> i64 {
        let floor = (self.advance(most) as i64).wrapping_neg();
        let step = self.advance(limited(cost)) as i64;
        let step = if cost < 0 { step.wrapping_neg() } else { step };
        let due = self.due(now, limited(cost));
        let owed = due.saturating_sub(step);
        // A lag below the floor stays unchanged.
        let owed = owed.min(self.advance(COST_MAX) as i64).max(floor.min(due));
        let change = owed.saturating_sub(self.owed);
        self.owed = owed;
        self.start = now.wrapping_sub(owed as u64);
        change
    }

    /// Charges a request of `cost` dispatched without queueing to an entity without requests. The
    /// charge lowers the lag to no less than minus [`DEBT_MAX`]. Returns by how much the lag grew.
    pub(super) fn charge_idle(&mut self, now: u64, cost: u32) -> i64 {
        self.shift(now, i64::from(cost), DEBT_MAX)
    }

    /// Corrects the tag of a member by a request that cost `delta` units more than its charge.
    pub(super) fn correct(&mut self, delta: i64) {
        if delta > 0 {
            self.charge(limited(delta));
        } else {
            self.refund(limited(delta));
        }
    }

    /// Corrects the lag of an entity without requests by a request that cost `delta` units more
    /// than its charge, for which the clock was corrected. Returns the service by which the sum of
    /// the lags deviates since then.
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

    /// Converts a lag to tenths of a unit of cost.
    fn tenths(&self, lag: i64) -> i64 {
        let scale = i128::from(self.weight).wrapping_mul(10);
        let tenths = i128::from(lag).wrapping_mul(scale) >> 32;
        tenths.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }

    /// Converts a lag to service, of which 2^32 are one unit; saturates.
    pub(super) fn service(&self, lag: i64) -> i64 {
        lag.saturating_mul(i64::from(self.weight))
    }
}

/// Returns `2^62 / weight`, rounded; `weight` is not 0.
fn inverse(weight: u32) -> u64 {
    let weight = u64::from(weight);
    let half = weight >> 1;
    (1u64 << 62)
        .wrapping_add(half)
        .checked_div(weight)
        .unwrap_or(0)
}

/// Multiplies a difference of virtual times by `from / to`, limited to [`FAR`].
fn rescale(difference: i64, from: u32, to: u32) -> i64 {
    let scaled = i128::from(difference).wrapping_mul(i128::from(from));
    let scaled = scaled.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
    let result = scaled.checked_div(i64::from(to)).unwrap_or(0);
    result.clamp(FAR.wrapping_neg(), FAR)
}

/// Limits a correction to one largest request, units.
fn limited(delta: i64) -> u32 {
    delta.unsigned_abs().min(u64::from(COST_MAX)) as u32
}

/// Virtual time of the entities that have requests.
///
/// Service is in units of 2^-32 of a unit of cost.
///
/// # Invariants
///
/// `weight` is the sum of the weights of the entities that entered and did not leave. `rest` is
/// below `weight`, or both are 0. The time never moves back.
#[derive(Clone, Copy, Debug, Default)]
pub struct VirtualClock {
    now: u64,
    rest: u64,
    weight: u64,
    /// Service for which the clock has to stop.
    behind: u64,
    /// Sum of the lags of all children, members or not, as service.
    owed: i64,
}

impl VirtualClock {
    /// Returns the virtual time.
    pub const fn now(&self) -> u64 {
        self.now
    }

    /// Returns the sum of the weights.
    pub const fn weight(&self) -> u64 {
        self.weight
    }

    /// Adds the weight of an entity that became a member.
    pub fn enter(&mut self, weight: u32) {
        self.weight = self.weight.saturating_add(u64::from(weight));
    }

    /// Subtracts the weight of an entity that left.
    pub fn leave(&mut self, weight: u32) {
        self.weight = self.weight.saturating_sub(u64::from(weight));
        if self.weight == 0 {
            // The service for which the clock stopped stays in the lags.
            self.owed = self.owed.saturating_add_unsigned(self.behind);
            (self.rest, self.behind) = (0, 0);
        }
    }

    /// Notes that the sum of the lags grew by `service`, because a lag was dropped or because an
    /// entity without requests was served.
    pub fn add_imbalance(&mut self, service: i64) {
        self.owed = self.owed.saturating_add(service);
    }

    /// Advances the clock for `cost` units dispatched, by up to a half slower or faster while the
    /// lags do not sum to 0.
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

    /// Advances the clock for `cost` units dispatched elsewhere.
    pub fn pull(&mut self, cost: u32) {
        self.run(u64::from(cost.min(COST_MAX)) << 32);
    }

    /// Corrects the clock for a request that cost `delta` units more than its charge: the clock
    /// advances, or stops for as much service.
    pub fn correct(&mut self, delta: i64) {
        let service = u64::from(limited(delta)) << 32;
        if delta > 0 {
            self.run(service);
        } else if self.weight > 0 {
            self.behind = self.behind.saturating_add(service);
        }
    }

    /// Advances the clock by the service `amount`, minus the service for which the clock has to
    /// stop.
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

    /// Advances the clock to `time` if `time` is ahead, which raises the lags of all members.
    pub fn jump(&mut self, time: u64) {
        let ahead = time.wrapping_sub(self.now);
        if ahead as i64 > 0 {
            self.now = time;
            let given = ahead.saturating_mul(self.weight).min(i64::MAX as u64);
            self.add_imbalance(given as i64);
        }
    }
}

#[cfg(test)]
mod tests;
