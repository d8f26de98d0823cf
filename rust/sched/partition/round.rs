// SPDX-License-Identifier: GPL-2.0-only

//! The round: the partitions of a target take turns for the slots that are free.
//!
//! While several partitions are ready, the CPU that finds a slot free gives it away instead of
//! using it: it has the partition whose turn it is dispatch one request, and goes on until no slot
//! is free that one of them may use, or each that may has been asked in vain ([`Line::next`]). A
//! partition that was asked in vain is left out for the rest of that round only. No wake-up is lost
//! by that: the partition has nothing eligible before it is marked ready again, or waits for a slot
//! of the other kind, and the CPU that brings about either of them goes round once more, after all
//! marks and slots that this round has seen.
//!
//! A timer cannot ask other partitions, so it calls the caretaker of the service, which goes round
//! ([`is_needed`]).

use super::{
    decide::Decided,
    line::{bit, Line},
    BATCH,
};
use crate::sched::slots::Limits;

/// The partitions of a target, of which each has a lock of its own.
pub trait Partitions {
    /// Returns the line of the target.
    fn line(&self) -> &Line;

    /// Returns what bounds the slots now.
    fn limits(&self) -> Limits;

    /// Has the partition at `index` dispatch up to `most` requests.
    fn decide(&mut self, index: u16, most: u32) -> Decided;
}

/// Uses the slots that are free: partitions dispatch in turn, but for those that were `asked`
/// (bits) and dispatched all that they could.
pub fn pass_on(partitions: &mut impl Partitions, mut asked: u64) {
    let mut left = BATCH;
    while let Some(next) = partitions
        .line()
        .next(asked, || partitions.limits())
        .filter(|_| left > 0)
    {
        let most = if next.alone { left } else { 1 };
        let decided = partitions.decide(next.index, most);
        if decided.vain {
            // Those that were asked before may have more by now, and have seen no slot.
            asked = bit(next.index);
        } else if next.alone || decided.count == 0 {
            asked |= bit(next.index);
        }
        left = left.saturating_sub(decided.count.max(1));
    }
}

/// Goes round after the arrival of a request, of which the partition said whether it is the turn of
/// `others`; returns whether a round was needed.
#[inline]
pub fn arrived(partitions: &mut impl Partitions, others: bool) -> bool {
    let needed = others && !partitions.line().is_calm();
    if needed {
        pass_on(partitions, 0);
    }
    needed
}

/// Uses what a request gave back that has ended. With `home`, the index of the partition that
/// queued or recorded it, `end` has that partition count the end and dispatch up to so many
/// requests.
#[inline]
pub fn ended<R: Partitions>(
    partitions: &mut R,
    home: Option<u16>,
    end: impl FnOnce(&mut R, u16, u32),
) {
    let mut asked = 0;
    if let Some(index) = home {
        // Its lock is taken anyway; what no other partition waits for is its own.
        let pump = !partitions.line().others_ready(index);
        end(partitions, index, if pump { BATCH } else { 0 });
        if pump {
            asked = bit(index);
        }
    }
    pass_on(partitions, asked);
}

/// Returns whether a partition other than that at `index`, whose timer has expired, may have a
/// slot.
pub fn is_needed(line: &Line, index: u16, limits: impl FnOnce() -> Limits) -> bool {
    line.next(bit(index), limits).is_some()
}
