// SPDX-License-Identifier: GPL-2.0-only

//! How a server corrects its weights: an integral in the logarithmic domain.
//!
//! # Vocabulary
//!
//! - *Member*: an entity as one of a group of siblings ([`Member`]).
//! - *Level*: the logarithm of its service on all servers by its weight.
//! - *Local level*: the mean of the levels of those that wait here, by what each is served here.
//! - *Theta*: the logarithm of its factor.
//! - *Home*: the part of its service that an entity would get here if all servers where it is gave it the same
//!   part of their capacity.
//!
//! # The rule
//!
//! For each group of siblings, once per delta, with all logarithms to base 2:
//!
//! ```text
//! level_i  = log(service_i everywhere / weight_i)
//! local    = sum(level_j * own_j) / sum(own_j)                over those that wait
//! gain_i   = Ki * 8 / (8 + lag_i) * clamp(home_i / (2 * own_i / service_i), 1, boost)
//! speed_i  = clamp(gain_i * clamp(local - level_i, -2, 2) + speed_i * momentum, -4, 4)
//! theta_i += speed_i                                          those that wait, not up if behind their plan
//! theta_i  = clamp(theta_i - max(theta_j), log(min(weight_j) / weight_i) - 12, 0)        j: those that wait
//! factor_i = 2^theta_i
//! ```
//!
//! - *Fixed point.* Whoever is still served here has the local level; whoever has more elsewhere is at the floor,
//!   2^-12 of the smallest weight that waits, and not below: nobody starves. That is weighted max-min fairness but
//!   for the floor.
//! - *Gain.* Rates of the last delta see what the last step did, so that a difference is corrected at once. Rates
//!   that are up to 7 deltas late are scaled by what was corrected here since ([`super::plan`]), and what that
//!   leaves out makes Ki less than 1.
//! - *Boost.* All servers of an entity correct at once, each by its part of the service: an entity that is served
//!   here less than half of what its home would be may be corrected faster, and the sum over its servers stays
//!   below 1.5 Ki. It brings back who is at the floor, and brings there who leaves.
//! - *Momentum.* Two groups of servers with few jobs in common are a slow mode, which a difference that lasts
//!   makes faster.
//! - *Behind.* Who is served less than planned does not ask for more: a larger weight changes nothing, and would only
//!   push the others to the floor.
//! - *Hierarchies.* Each group of siblings is a flat set of entities with what the node above them got as the
//!   servers' capacity. What a node gets on all servers is fair among its siblings; how that is split over
//!   servers is not unique, so that within a node shares are max-min fair for the split that came about, and not
//!   for the best one.
//!
//! See Documentation/fairshare.md for where it comes from, and Documentation/global-fairness.md for what it was
//! measured to do.

use super::log2::{log2, power, Q16};

/// Logarithm of the smallest weight by that of the lightest that waits: the module's weights are not finer.
pub const FLOOR: i32 = -12 * Q16;

/// The smallest theta that a factor can express.
pub const DEEPEST: i32 = -30 * Q16;

/// Largest difference from the local level that counts.
const STEP: i32 = 2 * Q16;

/// Deltas for which what was corrected is remembered.
pub const DELTAS: usize = 8;

/// How strongly a server corrects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gains {
    /// Part of a difference that is corrected in one step, Q16.
    pub integral: u32,
    /// How much more it may be for who is served little here, a multiple.
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

/// An entity as one of a group of siblings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Member {
    /// The weight that counts on all servers, not 0.
    pub weight: u32,
    /// The weight here without factor, not 0.
    pub here: u32,
    /// Service here since the last step, units.
    pub counted: u64,
    /// Service here, 1/4096 units per second.
    pub own: u64,
    /// Service here after this step, if nothing else changes.
    pub next: u64,
    /// Service by others.
    pub elsewhere: u64,
    /// Home, Q16.
    pub home: u32,
    /// Whether it has requests that wait here.
    pub waiting: bool,
    /// Its theta, Q16.
    pub theta: i32,
    /// Deltas that the oldest of its rates is late.
    pub lag: u8,
    /// Its share before this step, Q16.
    pub share: i32,
    /// Planned service less what was counted, 1/4096 units.
    pub lead: i64,
    /// Whether it gets less than planned.
    pub behind: bool,
    /// Sums of the changes of its share by this rule, Q16, the last one first.
    pub moved: [i32; DELTAS],
    /// The last correction, Q16.
    pub speed: i32,
}

impl Member {
    /// Returns its service everywhere.
    pub fn service(&self) -> u64 {
        self.own + self.elsewhere
    }

    /// Returns the weight that the scheduler uses.
    pub fn scaled(&self) -> u64 {
        ((u64::from(self.here) * u64::from(power(self.theta))) >> 31).max(1)
    }

    /// Returns its level, Q16; the fixed point is far enough up that it is not negative.
    fn level(&self) -> i32 {
        log2(self.service() + 1) - log2(self.weight.into())
    }

    /// Returns the part of its service that is here by its home, Q16, at most 1.
    pub fn alike(&self) -> u32 {
        let here = (u128::from(self.own) << 32) / u128::from(self.service().max(1));
        (here / u128::from(self.home.max(1))).min(1 << 16) as u32
    }

    /// Returns how much its theta moves for each part of difference, Q16.
    fn gain(&self, gains: &Gains) -> u32 {
        // Twice the part of its service that is here, Q16.
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
    // Parts of at most 2^32, so that sums with logarithms fit.
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

/// Returns the smallest theta of a member where the lightest of those that wait has the weight `lightest`.
fn floor(member: &Member, lightest: u32) -> i32 {
    let above = log2(member.here.max(lightest).into()) - log2(lightest.into());
    (FLOOR - above).max(DEEPEST)
}

#[cfg(test)]
mod tests;
