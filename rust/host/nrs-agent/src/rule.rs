// SPDX-License-Identifier: GPL-2.0-only

//! Correction of weights by a server: an integral controller in the logarithmic domain.
//!
//! # Terms
//!
//! - *Member*: an entity in its group of siblings ([`Member`]).
//! - *Level*: logarithm of an entity's service on all servers divided by its weight.
//! - *Local level*: mean level of the backlogged members, weighted by their service on this server.
//! - *Theta*: logarithm of a factor.
//! - *Home*: the fraction of an entity's service that this server would provide if all servers of
//!   the entity gave it equal fractions of their capacity.
//!
//! # The rule
//!
//! For each group of siblings, once per delta, with all logarithms to base 2:
//!
//! ```text
//! level_i  = log(service_i on all servers / weight_i)
//! local    = sum(level_j * own_j) / sum(own_j)                over backlogged members
//! gain_i   = Ki * 8 / (8 + lag_i) * clamp(home_i / (2 * own_i / service_i), 1, boost)
//! speed_i  = clamp(gain_i * clamp(local - level_i, -2, 2) + speed_i * momentum, -4, 4)
//! theta_i += speed_i                                          backlogged; not raised if behind
//! theta_i  = clamp(theta_i - max(theta_j), log(min(weight_j) / weight_i) - 12, 0)    j: backlogged
//! factor_i = 2^theta_i
//! ```
//!
//! - *Fixed point.* An entity that is still served on this server has the local level. An entity
//!   with a higher level is at the floor, 2^-12 of the smallest backlogged weight, and not below,
//!   which prevents starvation. Apart from the floor this is weighted max-min fairness.
//! - *Gain.* Rates of the last delta include the effect of the last step, so a difference can be
//!   corrected at once. Rates that are up to 7 deltas old are scaled by the corrections made here
//!   since ([`super::plan`]). The remaining error is the reason for reducing the gain by
//!   8 / (8 + lag_i).
//! - *Boost.* All servers of an entity correct simultaneously, each in proportion to its part of
//!   the service. An entity that is served here less than half of its home may be corrected faster;
//!   the sum over its servers stays below 1.5 Ki. Boost speeds up entities that leave the floor or
//!   move towards it.
//! - *Momentum.* Two groups of servers with few common jobs form a slow mode. Momentum accelerates
//!   the correction of a persistent difference.
//! - *Behind.* An entity that is served less than planned is not raised. A larger weight would have
//!   no effect but to push other entities to the floor.
//! - *Hierarchies.* Each group of siblings is a flat set of entities. The service of their parent
//!   takes the place of the capacity of the servers. The total service of a node on all servers is
//!   fair among its siblings. The split of this service over servers is not unique. So shares
//!   within a node are max-min fair for the resulting split, which need not be the best one.
//!
//! See Documentation/fairshare.md for the derivation, and Documentation/global-fairness.md for
//! measurements.

use super::log2::{log2, power, Q16};

/// Logarithm of the smallest weight divided by the lightest backlogged weight: the resolution of
/// the module's weights.
pub const FLOOR: i32 = -12 * Q16;

/// Smallest theta that a factor can represent.
pub const DEEPEST: i32 = -30 * Q16;

/// Maximum difference from the local level that is used.
const STEP: i32 = 2 * Q16;

/// Number of deltas for which corrections are stored.
pub const DELTAS: usize = 8;

/// Gains of the correction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gains {
    /// Part of a difference that is corrected in one step, Q16.
    pub integral: u32,
    /// Maximum multiplier of the gain for entities with little service on this server.
    pub boost: u32,
    /// Part of the last correction that is added to the next one, Q16.
    pub momentum: u32,
}

impl Default for Gains {
    fn default() -> Self {
        Self {
            integral: 1 << 16,
            boost: 4,
            momentum: 1 << 14,
        }
    }
}

/// Entity in its group of siblings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Member {
    /// Weight that applies on all servers, not 0.
    pub weight: u32,
    /// Weight on this server without factor, not 0.
    pub here: u32,
    /// Service on this server since the last step, units.
    pub counted: u64,
    /// Service on this server, 1/4096 units per second.
    pub own: u64,
    /// Predicted service on this server after this step, 1/4096 units per second.
    pub next: u64,
    /// Service on other servers, 1/4096 units per second.
    pub elsewhere: u64,
    /// Home, Q16.
    pub home: u32,
    /// True if the entity is backlogged on this server.
    pub waiting: bool,
    /// Theta of the entity, Q16.
    pub theta: i32,
    /// Age of the oldest rate of the entity, deltas.
    pub lag: u8,
    /// Share of the entity before this step, Q16.
    pub share: i32,
    /// Planned minus counted service, 1/4096 units.
    pub lead: i64,
    /// True if the entity is served less than planned.
    pub behind: bool,
    /// Cumulative changes of the share by this rule, Q16, the latest first.
    pub moved: [i32; DELTAS],
    /// Last correction, Q16.
    pub speed: i32,
}

impl Member {
    /// Returns the service of the entity on all servers, 1/4096 units per second.
    pub fn service(&self) -> u64 {
        self.own + self.elsewhere
    }

    /// Returns the weight that the scheduler uses.
    pub fn scaled(&self) -> u64 {
        ((u64::from(self.here) * u64::from(power(self.theta))) >> 31).max(1)
    }

    /// Returns the level of the entity, Q16: 0 or more from one unit per second per weight of 4096.
    fn level(&self) -> i32 {
        log2(self.service() + 1) - log2(self.weight.into())
    }

    /// Returns the fraction of the service that is on this server, divided by home, Q16, at most 1.
    pub fn alike(&self) -> u32 {
        let here = (u128::from(self.own) << 32) / u128::from(self.service().max(1));
        (here / u128::from(self.home.max(1))).min(1 << 16) as u32
    }

    /// Returns the change of theta per unit of difference, Q16.
    fn gain(&self, gains: &Gains) -> u32 {
        // Twice the fraction of the service that is on this server, Q16.
        let here = (u128::from(self.own) << 17) / u128::from(self.service().max(1));
        let more = (u128::from(self.home) << 16) / here.max(1);
        let most = u128::from(gains.boost.clamp(1, 64)) << 16;
        let more = more.clamp(1 << 16, most) as u64;
        let late = DELTAS as u64 * u64::from(gains.integral.min(1 << 17))
            / (DELTAS as u64 + u64::from(self.lag));
        ((more * late) >> 16) as u32
    }
}

/// Makes a step for the `members` of a group.
pub fn step(members: &mut [&mut Member], gains: &Gains) {
    let waiting = || members.iter().filter(|member| member.waiting);
    // A rate is at most 2^48, a level below 2^22.
    let own: u64 = waiting().map(|member| member.own + 1).sum();
    // Parts are limited to 2^32, so that the sum of products with levels does not overflow.
    let shift = 32u32.saturating_sub(own.leading_zeros());
    let (sum, parts) = waiting().fold((0i64, 0i64), |(sum, parts), member| {
        let part = (member.own >> shift) as i64 + 1;
        (sum + i64::from(member.level()) * part, parts + part)
    });
    let Some(local) = sum.checked_div(parts) else {
        return;
    };
    let lightest = waiting().map(|member| member.here).min().unwrap_or(1);
    for member in members.iter_mut() {
        if member.waiting {
            let off = local - i64::from(member.level());
            let off = off.clamp(i64::from(-STEP), i64::from(STEP)) as i32;
            if off > 0 && member.behind {
                member.speed = 0;
                continue;
            }
            let now = i64::from(off) * i64::from(member.gain(gains));
            let last = i64::from(member.speed) * i64::from(gains.momentum.min(1 << 16));
            let most = i64::from(2 * STEP);
            member.speed = ((now + last) >> 16).clamp(-most, most) as i32;
            member.theta += member.speed;
        }
    }
    let top = members.iter().filter(|member| member.waiting);
    let top = top.map(|member| member.theta).max().unwrap_or(0);
    for member in members.iter_mut() {
        let theta = member.theta.saturating_sub(top);
        let floor = floor(member, lightest);
        if theta <= floor {
            member.speed = 0;
        }
        member.theta = theta.clamp(floor, 0);
    }
}

/// Returns the minimum theta of a member; `lightest` is the smallest backlogged weight.
fn floor(member: &Member, lightest: u32) -> i32 {
    let above = log2(member.here.max(lightest).into()) - log2(lightest.into());
    (FLOOR - above).max(DEEPEST)
}

#[cfg(test)]
mod tests;
