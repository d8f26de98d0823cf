// SPDX-License-Identifier: GPL-2.0-only

//! Slots and who waits for one.
//!
//! # Vocabulary
//!
//! - *Slot*: the right to have one request at a device; one pool per service.
//! - *Waiting*: a partition that has queued requests.
//! - *Ready*: a waiting partition with requests that may be served now; they take turns ([`line`]).
//! - *Parked*: a target with decided requests that wait for a place on it.
//!
//! # Why no wake-up is lost
//!
//! Who queues a request, or lets one be served that was withheld, first marks its partition waiting and
//! ready and then looks for a free slot; who frees a slot first gives it back and then looks for a ready
//! partition. All of that is in one total order ([`crate::sys::atomic`]), so at least one of them sees the
//! other. A partition's marks change under its lock, parked bits under the target's.
//!
//! # Turns
//!
//! While several partitions are ready, whoever finds a slot free gives it away instead of using it: it has
//! the partition whose turn it is decide one request, and goes on until no slot is free that one of them may
//! use, or each that may has been asked in vain ([`Dispatch::next`]). A partition that was asked in vain is
//! left out for the rest of that round only. Nothing is lost by that: it has nothing to serve before it is
//! marked ready anew, or waits for a slot of the other kind, and whoever brings about either of them goes
//! round once more, after all others' marks and slots that this round has seen.
//!
//! A partition that is ready alone, or whose timer has expired, takes what is free without asking: whoever
//! else is ready is being served by somebody, or would have been left out.

use kernel::{
    prelude::*,
    str::CString,
    sync::{Arc, SetOnce},
};

mod line;

use super::target::Target;
use crate::{
    sched::{
        attr::Priority,
        slots::{Limits, Pool, RATIO_DEFAULT, SLOTS_MAX, STALL_MS_DEFAULT},
    },
    sys::atomic::{Hint, Word},
};

use line::Line;
pub(crate) use line::Mark;

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

/// Who brings the requests of a service; its first client decides.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feed {
    /// Device-mapper targets.
    Block,
    /// Open files of `/dev/nrs`.
    User,
}

/// A partition whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Next {
    /// Its index.
    pub(crate) index: u32,
    /// Nobody else may have the slot.
    pub(crate) alone: bool,
}

impl Next {
    /// It, as a bit.
    pub(crate) const fn bit(self) -> u64 {
        1u64.wrapping_shl(self.index)
    }
}

/// The slots of a service, its targets, and who waits.
pub(crate) struct Dispatch {
    /// The name of the service, if it has one.
    label: Option<CString>,
    pool: Word,
    configured: Word,
    limit: Word,
    ratio: Word,
    stall_ms: Word,
    /// The [`Feed`].
    feed: Word,
    /// 1: a policy asks which file a request is for.
    wants_file: Hint,
    /// Partitions with queued requests, and [`ANY_PARKED`].
    waiting: Set,
    line: Line,
    /// Targets with parked requests.
    parked: Set,
    /// The one after that which went on first last time.
    unparked: Hint,
    targets: [SetOnce<Arc<Target>>; TARGETS_MAX],
}

impl Dispatch {
    /// A pool of `slots` slots for `partitions` partitions, without targets, of the service called `label`.
    pub(crate) fn new(label: Option<CString>, slots: u32, partitions: u16) -> Self {
        let slots = slots.clamp(1, SLOTS_MAX);
        Self {
            label,
            pool: Word::new(Pool::EMPTY.bits()),
            configured: Word::new(slots.into()),
            limit: Word::new(slots.into()),
            ratio: Word::new(RATIO_DEFAULT.into()),
            stall_ms: Word::new(STALL_MS_DEFAULT.into()),
            feed: Word::new(Feed::Block as u64),
            wants_file: Hint::new(0),
            waiting: Set::new(),
            line: Line::new(partitions),
            parked: Set::new(),
            unparked: Hint::new(0),
            targets: [const { SetOnce::new() }; TARGETS_MAX],
        }
    }

    /// The name of the service; empty if it has none.
    pub(crate) fn label(&self) -> &str {
        let label = self.label.as_ref();
        label.and_then(|label| label.to_str().ok()).unwrap_or("")
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

    /// Partition `index`, marked as `old`, is as `new` says from now on. Called with its lock held.
    pub(crate) fn mark(&self, index: u16, old: Mark, new: Mark) {
        match (old.waiting, new.waiting) {
            (false, true) => self.waiting.insert(index),
            (true, false) => self.waiting.remove(index),
            _ => {}
        }
        self.line.mark(index, old, new);
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

    /// The one of the targets `parked`, bits, whose requests go on first: they take turns, or the first one
    /// would have all slots.
    pub(crate) fn first_parked(&self, parked: u64) -> u32 {
        let from = self.unparked.get() as u32 & 63;
        let ahead = parked.rotate_right(from).trailing_zeros();
        let first = from.wrapping_add(ahead) & 63;
        // Two that come at a time may find the same one; that costs a turn.
        self.unparked.set(first.wrapping_add(1).into());
        first
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

    /// Partitions other than `asked` that may have a slot that is free, as bits.
    fn candidates(&self, asked: u64) -> u64 {
        let alone = self.line.is_alone();
        let ready = if alone {
            self.waiting.members() & !1u64.wrapping_shl(ANY_PARKED.into())
        } else {
            self.line.ready()
        };
        let ready = ready & !asked;
        if ready == 0 {
            return 0;
        }
        let (pool, limits) = (self.pool(), self.limits());
        if pool.allows(Priority::Regular, &limits) {
            ready
        } else if !pool.allows(Priority::High, &limits) {
            0
        } else if alone {
            ready
        } else {
            ready & self.line.urgent()
        }
    }

    /// The partition whose turn it is, other than `asked`, bits; `None` if there is no slot, or nobody to
    /// have it.
    ///
    /// They take turns, whichever partition's request freed the slot: with own-first a partition that is
    /// always busy would keep all slots to itself.
    pub(crate) fn next(&self, asked: u64) -> Option<Next> {
        let candidates = self.candidates(asked);
        if candidates.is_power_of_two() {
            return Some(Next {
                index: candidates.trailing_zeros(),
                alone: true,
            });
        }
        self.line.first(candidates).map(|index| Next {
            index,
            alone: false,
        })
    }

    /// Whether partitions other than `index` are ready.
    pub(crate) fn others_ready(&self, index: u16) -> bool {
        !self.line.is_alone() && self.line.ready() & !1u64.wrapping_shl(index.into()) != 0
    }

    /// Whether partitions take turns.
    pub(crate) fn has_turns(&self) -> bool {
        !self.line.is_alone()
    }

    /// Counts a request that partition `index` decided and that costs `cost`, in the units of its policy.
    /// Called with its lock held, if partitions take turns.
    pub(crate) fn charge(&self, index: u16, cost: u32) {
        self.line.charge(index, cost);
    }

    /// Sets the shares of the partitions, in units of 2^-32; 0: not known.
    pub(crate) fn set_shares(&self, shares: &[u64]) {
        self.line.set_shares(shares);
    }

    /// Target `index`.
    pub(crate) fn target(&self, index: u16) -> Option<&Arc<Target>> {
        self.targets.get(usize::from(index))?.as_ref()
    }

    /// All targets the service ever had.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &Arc<Target>> {
        self.targets.iter().map_while(|target| target.as_ref())
    }

    /// Whether the clients are of kind `feed`, or were when there were any.
    pub(crate) fn is_fed_by(&self, feed: Feed) -> bool {
        self.feed.get() == feed as u64
    }

    /// Whether a policy asks which file a request is for.
    pub(crate) fn wants_file(&self) -> bool {
        self.wants_file.get() != 0
    }

    /// Says whether a policy asks which file a request is for.
    pub(crate) fn set_wants_file(&self, wanted: bool) {
        self.wants_file.set(wanted.into());
    }

    /// Says of which kind the clients are.
    pub(crate) fn set_feed(&self, feed: Feed) {
        self.feed.set(feed as u64);
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
