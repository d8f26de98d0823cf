// SPDX-License-Identifier: GPL-2.0-only

//! Planned service: the service that the weights of a server imply, without counting requests.
//!
//! # Terms
//!
//! - *Share*: logarithm of a quotient: a member's local weight, including its factor, divided by
//!   the sum of these weights over all backlogged members.
//! - *Planned service*: the member's share of the service to all backlogged members.
//! - *Lead*: planned minus counted service of an entity, over its lifetime.
//!
//! While an entity is backlogged, a scheduler keeps its counted service within some requests of the
//! planned service. So planned service is measured service without the noise of whole requests. An
//! entity with one request per minute is measured as exactly as any other. If the lead reaches
//! [`SLACK`] requests, the plan is wrong, and the counted service is used. Then the entity demands
//! less than its share, or weights or demand have changed within the delta.
//!
//! The same plan predicts the service in the next delta, after the correction of weights. The
//! prediction is what a server sends to the others.

use super::{
    log2::{log2, scale},
    peers::{rate, RATE_BITS},
    rule::Member,
};

/// Maximum difference between planned and counted service, in large requests.
const SLACK: i64 = 4;

/// Returns the maximum difference between planned and counted service in units, with large requests
/// of `grain` units.
pub fn slack(grain: u32) -> i64 {
    i64::from(grain) * SLACK
}

/// Returns the sums of counted service, units, and of weights over the backlogged members.
fn waiting(members: &[&mut Member]) -> (u64, u64) {
    let waiting = members.iter().filter(|member| member.waiting);
    waiting.fold((0, 0), |(counted, weights), member| {
        (counted + member.counted, weights + member.scaled())
    })
}

/// Calculates the rates of `members`, a group of siblings, in the last `us`, with large requests of
/// `grain` units.
pub fn measure(members: &mut [&mut Member], us: u64, grain: u32) {
    let (all, weights) = waiting(members);
    // At most 2^36 units are counted per member and step.
    let slack = slack(grain) << RATE_BITS;
    for member in members.iter_mut() {
        member.share = log2(member.scaled()) - log2(weights);
        let counted = i128::from(member.counted) << RATE_BITS;
        let planned = match member.waiting {
            true => {
                (i128::from(all) << RATE_BITS) * i128::from(member.scaled()) / i128::from(weights)
            }
            false => counted,
        };
        let lead = i128::from(member.lead) + planned - counted;
        let kept = lead.clamp((-slack).into(), slack.into());
        let served = counted + kept - i128::from(member.lead);
        member.lead = kept as i64;
        member.own = rate(served as u64, us);
        member.behind = kept < lead;
    }
}

/// Predicts the rates of `members` after their thetas have changed.
pub fn foresee(members: &mut [&mut Member]) {
    let (_, weights) = waiting(members);
    for member in members.iter_mut() {
        let by = log2(member.scaled()) - log2(weights) - member.share;
        member.next = scale(member.own, by);
        member.moved.rotate_right(1);
        let alike = (i64::from(by) * i64::from(member.alike())) >> 16;
        member.moved[0] = member.moved[1].wrapping_add(alike as i32);
    }
}

#[cfg(test)]
mod tests;
