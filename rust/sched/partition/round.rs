// SPDX-License-Identifier: GPL-2.0-only

//! Dispatch rounds: the partitions of a target take turns at free slots.
//!
//! While several partitions are ready, a CPU that finds a free slot does not use it for its own
//! partition. It lets the partition whose turn it is dispatch one request. It repeats this until no
//! usable slot is free, or each ready partition has been queried without a dispatch
//! ([`SlotPool::next`]). A partition that dispatched nothing is skipped for the rest of the round
//! only. No wake-up is lost: such a partition has nothing eligible until it is marked ready again,
//! or needs a slot of the other kind. The CPU that causes either event starts another round, after
//! all marks and slots that this round has read.
//!
//! A timer cannot lock other partitions, so it wakes the progress hook of the service, which runs
//! the round ([`is_needed`]).

use super::{
    decide::Decided,
    slot_pool::{bit, SlotPool},
    BATCH,
};
use crate::sched::slots::SlotLimits;

/// Partitions of a target, each with its own lock.
pub trait RoundPartitions {
    /// Returns the slot pool of the target.
    fn slot_pool(&self) -> &SlotPool;

    /// Returns the current limits of the slots.
    fn limits(&self) -> SlotLimits;

    /// Dispatches up to `most` requests of the partition at `index`.
    fn decide(&mut self, index: u16, most: u32) -> Decided;

    /// Returns the maximum number of requests that an event dispatches, as [`Env::batch`] does.
    ///
    /// [`Env::batch`]: super::Env::batch
    #[inline]
    fn batch(&self) -> Option<u32> {
        Some(BATCH)
    }
}

/// Dispatches from the partitions in turn while slots are free, except partitions in `asked`
/// (bits), which have already dispatched all they could.
#[inline]
pub fn pass_on(partitions: &mut impl RoundPartitions, asked: u64) {
    if let Some(most) = partitions.batch() {
        dispatch(partitions, asked, most);
    }
}

/// Dispatches up to `most` requests as [`pass_on`] does, and finds out whether one more could be
/// dispatched.
pub(super) fn dispatch(partitions: &mut impl RoundPartitions, mut asked: u64, most: u32) {
    let (mut left, mut turns) = (most, BATCH);
    while let Some(next) = partitions
        .slot_pool()
        .next(asked, || partitions.limits())
        .filter(|_| turns > 0)
    {
        let most = if next.alone { left } else { left.min(1) };
        let decided = partitions.decide(next.index, most);
        left = left.saturating_sub(decided.count);
        if decided.more && left == 0 {
            return;
        }
        if decided.vain {
            // Partitions queried earlier may have more requests by now, and may have missed the
            // returned slot.
            asked = bit(next.index);
        } else if next.alone || decided.count == 0 {
            asked |= bit(next.index);
        }
        turns = turns.saturating_sub(decided.count.max(1));
    }
}

/// Runs a round after the arrival of a request if other partitions may use a slot (`others`) and a
/// partition is backlogged. Returns true if a round was needed.
#[inline]
pub fn arrived(partitions: &mut impl RoundPartitions, others: bool) -> bool {
    let needed = others && !partitions.slot_pool().is_uncontended();
    if needed {
        pass_on(partitions, 0);
    }
    needed
}

/// Dispatches after the end of a request. `home` is the index of the partition that queued or
/// recorded the request. `end` counts the end there and dispatches up to the given number of
/// requests, as [`PartitionMachine::end`](super::PartitionMachine::end) does.
#[inline]
pub fn ended<R: RoundPartitions>(
    partitions: &mut R,
    home: Option<u16>,
    end: impl FnOnce(&mut R, u16, Option<u32>),
) {
    let mut asked = 0;
    if let Some(index) = home {
        // `end` takes the lock of `home` anyway, so `home` dispatches there if no other partition
        // is ready.
        let most = match partitions.slot_pool().other_ready(index) {
            false => partitions.batch(),
            true => None,
        };
        end(partitions, index, most);
        if most.is_some() {
            asked = bit(index);
        }
    }
    pass_on(partitions, asked);
}

/// Returns true if a partition other than `index`, whose timer has expired, may have a slot.
pub fn is_needed(slot_pool: &SlotPool, index: u16, limits: impl FnOnce() -> SlotLimits) -> bool {
    slot_pool.next(bit(index), limits).is_some()
}
