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
//! level_i = log(service_i everywhere / weight_i)
//! local   = sum(level_j * own_j) / sum(own_j)                 over those that wait
//! gain_i  = Ki * max(clamp(home_i / (2 * own_i / service_i), 1, boost), clamp(1 + (run_i - 8) / 4, 1, patience))
//! theta_i += gain_i * clamp(local - level_i, -2, 2)           those that wait and are not content
//! theta_i = clamp(theta_i - max(theta_j), -10, 0)             all; the largest of those that wait
//! factor_i = 2^theta_i
//! ```
//!
//! - *Fixed point.* Whoever is still served here has the local level; whoever has more elsewhere is at the floor,
//!   2^-10 of its weight, and not below: nobody starves. That is weighted max-min fairness but for the floor.
//! - *Gain.* An integral that sees what it did after d steps is stable below `2 sin(pi / (2 (2d + 1)))`: 1, 0.62,
//!   0.45 and 0.35 for d from 1 to 4. Ki is 3/8, for messages that take up to two deltas; 1/2 rings there.
//! - *Boost.* All servers of an entity correct at once, each by its part of the service: an entity that is served
//!   here less than half of what its home would be may be corrected faster, and the sum over its servers stays
//!   below 1.5 Ki. It brings back who is at the floor.
//! - *Patience.* A difference that keeps its sign for more than 8 steps belongs to a slow mode, two groups of
//!   servers with few jobs in common; a ring would have changed it. The gain grows then, and falls back when the
//!   sign changes.
//! - *Content.* Who is served less than half of what its weight here stands for does not ask for more: a larger
//!   weight changes nothing, and would only push the others to the floor.
//! - *Start.* Who is new here begins at the logarithm of its home, in the frame of those that are served here.
//! - *Hierarchies.* Each group of siblings is a flat set of entities with what the node above them got as the
//!   servers' capacity. What a node gets on all servers is fair among its siblings; how that is split over
//!   servers is not unique, so that within a node shares are max-min fair for the split that came about, and not
//!   for the best one.
//!
//! See Documentation/fairshare.md for where it comes from, and Documentation/global-fairness.md for what it was
//! measured to do.

use super::log2::{log2, power, Q16};

/// Smallest theta.
pub const FLOOR: i32 = -10 * Q16;

/// Largest difference from the local level that counts.
const STEP: i32 = 2 * Q16;

/// Steps in the same way after which a difference lasts; longer than half an oscillation at a delay of two deltas.
const LASTING: u8 = 8;

/// How strongly a server corrects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gains {
    /// Part of a difference that is corrected in one step, Q16.
    pub integral: u32,
    /// How much more it may be for who is served little here, a multiple.
    pub boost: u32,
    /// How much more it may be for a difference that lasts, a multiple.
    pub patience: u32,
    /// Whether who is served less than its weight stands for is taken to want no more.
    pub content: bool,
}

impl Default for Gains {
    fn default() -> Self {
        Self {
            integral: 3 << 13,
            boost: 4,
            patience: 4,
            content: true,
        }
    }
}

/// An entity as one of a group of siblings.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// Its path, hashed.
    pub id: u64,
    /// Its weight without factor, not 0.
    pub weight: u32,
    /// Its service here, sixteenths of a unit per second.
    pub own: u64,
    /// Its service everywhere.
    pub service: u64,
    /// Home, Q16.
    pub home: u32,
    /// Whether it has requests that wait here.
    pub waiting: bool,
    /// Whether its rates are new.
    pub fresh: bool,
    /// Whether it is to start from its home.
    pub starts: bool,
    /// Its theta, Q16.
    pub theta: i32,
    /// Steps in which it was corrected the same way, negative for down.
    pub run: i8,
}

impl Member {
    /// Its level, Q16; the fixed point is far enough up that it is not negative.
    fn level(&self) -> i32 {
        log2(self.service + 1) - log2(u64::from(self.weight))
    }

    /// How much its theta moves for each part of difference, Q16.
    fn gain(&self, gains: &Gains) -> u32 {
        // Twice the part of its service that is here, Q16; a rate is at most 2^41.
        let here = (self.own * (2 << 16) / self.service.max(1)).max(1);
        let more = (u64::from(self.home) << 16) / here;
        let most = u64::from(gains.boost.clamp(1, 64)) << 16;
        let more = more.clamp(1 << 16, most);
        let lasts = self.run.unsigned_abs().saturating_sub(LASTING);
        let lasts = (u64::from(lasts) << 14) + (1 << 16);
        let lasts = lasts.min(u64::from(gains.patience.clamp(1, 16)) << 16);
        let more = more.max(lasts);
        ((more * u64::from(gains.integral.min(1 << 17))) >> 16) as u32
    }

    /// Counts a correction by `off`.
    fn lasts(&mut self, off: i32) {
        self.run = match (off.signum(), self.run.signum()) {
            (1, -1) | (-1, 1) | (0, _) => 0,
            (way, _) => self.run.saturating_add(way as i8),
        };
    }
}

/// A step for the `members` of a group.
pub fn step(members: &mut [Member], gains: &Gains) {
    let waiting = || members.iter().filter(|member| member.waiting);
    // A rate is at most 2^41, a level below 2^22.
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
    let frame = frame(members);
    let weights: u64 = waiting().map(weighed).sum();
    for member in members.iter_mut() {
        if member.starts {
            member.theta = log2(u64::from(member.home.max(1))) - 16 * Q16 + frame;
        } else if member.waiting && member.fresh {
            let off = local - i64::from(member.level());
            let off = off.clamp(i64::from(-STEP), i64::from(STEP)) as i32;
            if off > 0 && gains.content && is_content(member, own, weights) {
                continue;
            }
            member.lasts(off);
            let by = (i64::from(off) * i64::from(member.gain(gains))) >> 16;
            let by = by.clamp(i64::from(-2 * STEP), i64::from(2 * STEP)) as i32;
            member.theta += by;
        }
    }
    let top = members.iter().filter(|member| member.waiting);
    let top = top.map(|member| member.theta).max().unwrap_or(0);
    for member in members {
        member.theta = (member.theta - top).clamp(FLOOR, 0);
    }
}

/// What the weight of a member is here.
fn weighed(member: &Member) -> u64 {
    (u64::from(member.weight) * u64::from(power(member.theta))) >> 16
}

/// Whether a member gets less than half of what its weight stands for, so that a larger one would not help.
fn is_content(member: &Member, own: u64, weights: u64) -> bool {
    let due = u128::from(own) * u128::from(weighed(member));
    let got = u128::from(member.own) * u128::from(weights);
    got * 2 < due
}

/// Where thetas are: of those that are served here, the mean of theta less the logarithm of the part of their
/// service that is here.
fn frame(members: &[Member]) -> i32 {
    let (mut sum, mut parts) = (0i128, 0i128);
    for member in members
        .iter()
        .filter(|member| member.waiting && !member.starts)
    {
        let here = log2(member.own + 1) - log2(member.service + 1);
        let part = i128::from((member.own >> 8) + 1).min(1 << 32);
        sum += i128::from(member.theta - here) * part;
        parts += part;
    }
    sum.checked_div(parts)
        .unwrap_or(0)
        .clamp(i128::from(FLOOR), i128::from(-FLOOR)) as i32
}

#[cfg(test)]
mod tests;
