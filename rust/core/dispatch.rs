// SPDX-License-Identifier: GPL-2.0-only

//! Slots and who waits for one.
//!
//! # Vocabulary
//!
//! - *Slot*: the right to have one request at a device; one pool per service.
//! - *Pending*: a partition that has queued requests.
//! - *Parked*: a target with decided requests that wait for a place on it.
//!
//! # Why no wake-up is lost
//!
//! Who queues a request first marks its partition pending and then looks for a free slot; who frees a
//! slot first gives it back and then looks for a pending partition. All four are in one total order
//! ([`crate::sys::atomic`]), so at least one of them sees the other. Pending bits change under the partition's lock,
//! parked bits under the target's.

use kernel::{
    prelude::*,
    sync::{Arc, SetOnce},
};

use super::target::Target;
use crate::{
    sched::{
        attr::Priority,
        slots::{Limits, Pool, RATIO_DEFAULT, SLOTS_MAX, STALL_MS_DEFAULT},
    },
    sys::atomic::Word,
};

/// Targets of one service, at most.
pub(crate) const TARGETS_MAX: usize = 64;

/// Member of the set of those who wait that stands for all parked targets.
const ANY_PARKED: u16 = 63;

/// A set of up to 64 small numbers that many change at once.
struct Set(Word);

impl Set {
    const fn new() -> Self {
        Self(Word::new(0))
    }

    fn insert(&self, member: u16) {
        self.0.set_bits(1u64.wrapping_shl(member.into()));
    }

    fn remove(&self, member: u16) {
        self.0.clear_bits(1u64.wrapping_shl(member.into()));
    }

    /// The members, as bits.
    fn members(&self) -> u64 {
        self.0.get()
    }
}

/// Takes the next member of `set` at or after `from`, going round.
pub(crate) fn next_member(set: u64, from: u32) -> Option<u32> {
    if set == 0 {
        return None;
    }
    let turned = set.rotate_right(from & 63);
    Some(turned.trailing_zeros().wrapping_add(from) & 63)
}

/// The slots of a service, its targets, and who waits.
pub(crate) struct Dispatch {
    pool: Word,
    configured: Word,
    limit: Word,
    ratio: Word,
    stall_ms: Word,
    turn: Word,
    /// Partitions with queued requests, and [`ANY_PARKED`].
    waiting: Set,
    /// Targets with parked requests.
    parked: Set,
    targets: [SetOnce<Arc<Target>>; TARGETS_MAX],
}

impl Dispatch {
    /// A pool of `slots` slots without targets.
    pub(crate) fn new(slots: u32) -> Self {
        let slots = slots.clamp(1, SLOTS_MAX);
        Self {
            pool: Word::new(Pool::EMPTY.bits()),
            configured: Word::new(slots.into()),
            limit: Word::new(slots.into()),
            ratio: Word::new(RATIO_DEFAULT.into()),
            stall_ms: Word::new(STALL_MS_DEFAULT.into()),
            turn: Word::new(0),
            waiting: Set::new(),
            parked: Set::new(),
            targets: [const { SetOnce::new() }; TARGETS_MAX],
        }
    }

    /// Slots as configured.
    pub(crate) fn slots(&self) -> u32 {
        self.configured.get() as u32
    }

    /// Slots in effect: as configured, but no more than the targets keep in flight, so that order is
    /// decided here and not in their queues.
    pub(crate) fn limit(&self) -> u32 {
        self.limit.get() as u32
    }

    /// Sets the number of slots and what each target may have of them.
    ///
    /// A lone target may have all. With several, each leaves one for every other, beside the one that is
    /// kept for high priority, so that one that hangs never stops the rest; there are enough slots in
    /// effect for that, whatever was asked for.
    pub(crate) fn set_slots(&self, slots: u32) {
        self.configured.set(slots.into());
        let used = || self.targets().filter(|target| target.users() > 0);
        let others = u32::try_from(used().count()).unwrap_or(1).saturating_sub(1);
        let (slots, share) = if others == 0 {
            (slots, slots)
        } else {
            let kept = others.saturating_add(1);
            let slots = slots.max(kept.saturating_add(1));
            (slots, slots.saturating_sub(kept))
        };
        let mut sum = 0u32;
        for target in used() {
            sum = sum.saturating_add(target.set_limit(share));
        }
        // What is kept for high priority comes on top, or it would be missing at a target.
        let sum = sum.saturating_add(others.min(1));
        let limit = if sum == 0 { slots } else { slots.min(sum) };
        self.limit.set(limit.max(1).into());
    }

    /// High-priority requests in a row while a regular one waits.
    pub(crate) fn ratio(&self) -> u32 {
        self.ratio.get() as u32
    }

    /// Sets the ratio.
    pub(crate) fn set_ratio(&self, ratio: u32) {
        self.ratio.set(ratio.into());
    }

    /// How long requests wait without progress before they are sent down anyway, ms; 0: for ever.
    pub(crate) fn stall_ms(&self) -> u32 {
        self.stall_ms.get() as u32
    }

    /// Sets how long requests wait without progress.
    pub(crate) fn set_stall_ms(&self, stall_ms: u32) {
        self.stall_ms.set(stall_ms.into());
    }

    /// What the slots are bound by now.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            slots: self.limit(),
            high_priority: true,
            ratio: self.ratio(),
        }
    }

    /// The slots in use.
    pub(crate) fn pool(&self) -> Pool {
        Pool::from_bits(self.pool.get())
    }

    /// Takes a slot if a request of `priority` may have one.
    pub(crate) fn take(&self, priority: Priority) -> bool {
        let limits = Limits {
            // Which head goes first is not asked here.
            ratio: 0,
            slots: self.limit(),
            high_priority: true,
        };
        self.pool
            .change(|pool| Some(Pool::from_bits(pool).take(priority, &limits)?.bits()))
    }

    /// Gives back a slot that was taken.
    pub(crate) fn put(&self, priority: Priority) {
        self.pool.sub(Pool::one(priority).bits());
    }

    /// Marks partition `index` as pending.
    pub(crate) fn set_pending(&self, index: u16) {
        self.waiting.insert(index);
    }

    /// Partition `index` has nothing queued. Called with its lock held.
    pub(crate) fn clear_pending(&self, index: u16) {
        self.waiting.remove(index);
    }

    /// Marks target `index` as one with parked requests. Called with its lock held.
    pub(crate) fn set_parked(&self, index: u16) {
        self.parked.insert(index);
        self.waiting.insert(ANY_PARKED);
    }

    /// Target `index` has nothing parked. Called with its lock held.
    pub(crate) fn clear_parked(&self, index: u16) {
        self.parked.remove(index);
        if self.parked.members() == 0 {
            self.waiting.remove(ANY_PARKED);
            // One that was marked in between must not be forgotten.
            if self.parked.members() != 0 {
                self.waiting.insert(ANY_PARKED);
            }
        }
    }

    /// Whether nobody waits for a slot.
    pub(crate) fn is_calm(&self) -> bool {
        self.waiting.members() == 0
    }

    /// Targets with parked requests, as bits.
    pub(crate) fn parked(&self) -> u64 {
        self.parked.members()
    }

    /// Takes a slot and a place on `target` for a request that goes down at once.
    pub(crate) fn take_both(&self, priority: Priority, target: &Target) -> bool {
        if !target.take() {
            return false;
        }
        if self.take(priority) {
            return true;
        }
        target.put();
        false
    }

    /// The partition whose turn it is among those pending.
    ///
    /// They take turns, whichever partition's request freed the slot: with own-first a partition that is
    /// always busy would keep all slots to itself.
    pub(crate) fn next_pending(&self) -> Option<u32> {
        let pending = self.waiting.members() & !1u64.wrapping_shl(ANY_PARKED.into());
        let next = next_member(pending, self.turn.get() as u32)?;
        self.turn.set(u64::from(next.wrapping_add(1) & 63));
        Some(next)
    }

    /// Target `index`.
    pub(crate) fn target(&self, index: u16) -> Option<&Arc<Target>> {
        self.targets.get(usize::from(index))?.as_ref()
    }

    /// All targets the service ever had.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &Arc<Target>> {
        self.targets.iter().map_while(|target| target.as_ref())
    }

    /// Whether the target in use is no device, but programs that serve by themselves.
    pub(crate) fn serves_programs(&self) -> bool {
        self.targets()
            .any(|target| target.users() > 0 && target.number() == 0)
    }

    /// The target for device `number`: the one there is, one that nobody uses any more, or a new one.
    ///
    /// To be called by one task at a time.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: the service has [`TARGETS_MAX`] targets in use; `ENOMEM`.
    pub(crate) fn attach(&self, number: u32, depth: u32) -> Result<Arc<Target>> {
        let known = |target: &&Arc<Target>| target.users() > 0 && target.number() == number;
        let idle = |target: &&Arc<Target>| target.users() == 0;
        let target = match self.targets().find(known).or(self.targets().find(idle)) {
            Some(target) => target,
            None => {
                let index = self.targets().count();
                let place = self.targets.get(index).ok_or(ENOSPC)?;
                place.populate(Target::new(u16::try_from(index).map_err(|_| ENOSPC)?)?);
                place.as_ref().ok_or(ENOSPC)?
            }
        };
        target.attach(number, depth);
        self.set_slots(self.slots());
        Ok(target.clone())
    }

    /// Ends one use of `target`. To be called by one task at a time.
    pub(crate) fn detach(&self, target: &Target) {
        target.detach();
        self.set_slots(self.slots());
    }
}
