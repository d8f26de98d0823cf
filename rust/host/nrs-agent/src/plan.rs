// SPDX-License-Identifier: GPL-2.0-only

//! What the weights of a server stand for: service that is known without counting it.
//!
//! # Vocabulary
//!
//! - *Share*: the logarithm of the weight of a member here, factor included, by the sum of the weights of all
//!   members that wait here.
//! - *Planned*: what its share of the service to all members that wait comes to.
//! - *Lead*: planned service less counted service of an entity, over its life.
//!
//! A scheduler keeps what is counted within some requests of what is planned, while an entity has requests
//! queued. So the planned service is the measured one without the noise of whole requests, and an entity with a
//! request per minute is measured as well as any other. Where the lead reaches [`SLACK`] requests the plan is
//! wrong, and what is counted counts: an entity that wants less than its share, or a change within the delta.
//!
//! The same plan says what the next delta brings, after the weights were corrected. That is what a server tells the
//! others.

use super::{
    log2::{log2, scale},
    peers::{rate, RATE_BITS},
    rule::Member,
};

/// Large requests that planned and counted service may differ by.
const SLACK: i64 = 4;

/// Returns the units that planned and counted service may differ by, with large requests of `grain` units.
pub fn slack(grain: u32) -> i64 {
    i64::from(grain) * SLACK
}

/// The members that wait: what was counted of them, units, and the sum of their weights.
fn waiting(members: &[&mut Member]) -> (u64, u64) {
    let waiting = members.iter().filter(|member| member.waiting);
    waiting.fold((0, 0), |(counted, weights), member| {
        (counted + member.counted, weights + member.scaled())
    })
}

/// Finds the rates of `members`, a group of siblings, in the last `us`, with large requests of `grain` units.
pub fn measure(members: &mut [&mut Member], us: u64, grain: u32) {
    let (all, weights) = waiting(members);
    // A counted step is at most 2^36 units of each member.
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

/// Finds what the new thetas of `members` make of their rates.
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
