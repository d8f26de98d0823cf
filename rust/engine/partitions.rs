// SPDX-License-Identifier: GPL-2.0-only

//! All partitions of a service, and the operations on them together.
//!
//! # Terms
//!
//! - *Target partitions*: the partitions of one target, one for each CPT. Requests for one target
//!   are never queued behind requests for another target.
//!
//! No function here holds a lock for longer than one partition needs, or holds two locks.

use core::{ops::Deref, slice};

use kernel::{
    prelude::*,
    sync::{Arc, SetOnce},
};

use super::{
    cpt::{cpt_of, target_of},
    partition::{KernelHead, Partition, PublishedShares},
    target::{PendingSubmission, Target},
};
use crate::{
    sched::{
        attr::Priority,
        item::Cost,
        partition::{decide::Decided, round, slot_pool::SlotPool},
        service::HeadAccess,
        slots::SlotLimits,
    },
    sys::{
        misc::{self, bug},
        node::{Held, NodeAccount},
        timer::WithTimer,
    },
};

/// Maximum number of targets of one service.
pub(crate) const TARGETS_MAX: usize = 64;

/// The partitions of one target, by CPT.
pub(crate) struct TargetPartitions {
    target: Arc<Target>,
    published: Arc<PublishedShares>,
    list: KVec<Arc<WithTimer<Partition>>>,
}

impl Deref for TargetPartitions {
    type Target = [Arc<WithTimer<Partition>>];

    fn deref(&self) -> &Self::Target {
        &self.list
    }
}

impl TargetPartitions {
    /// Creates the set of the partitions `list`, which dispatch to `target` and read `published`.
    pub(crate) fn new(
        target: Arc<Target>,
        published: Arc<PublishedShares>,
        list: KVec<Arc<WithTimer<Partition>>>,
    ) -> Self {
        Self {
            target,
            published,
            list,
        }
    }

    /// Returns the heads of the partitions.
    pub(crate) fn heads(&self) -> TargetHeads<'_> {
        TargetHeads {
            partitions: self.list.iter(),
            high: None,
        }
    }

    /// Returns the target of the requests.
    pub(crate) fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// Returns the shares that the worker publishes for these partitions.
    pub(crate) fn published(&self) -> &PublishedShares {
        &self.published
    }

    /// Returns true if no request is queued in a policy, and every request that a policy dispatched
    /// has ended.
    pub(crate) fn are_idle(&self) -> bool {
        self.iter().all(|partition| {
            partition.with(|inner| {
                Priority::ALL
                    .iter()
                    .all(|priority| inner.head(*priority).is_idle())
            })
        })
    }

    /// Returns the partition of `cpt`, which must exist.
    pub(crate) fn at(&self, cpt: u16) -> Option<&Arc<WithTimer<Partition>>> {
        let partition = self.get(usize::from(cpt));
        bug!(partition.is_none());
        partition
    }

    /// Dispatches requests while slots are free, then submits them and the requests of `kick`.
    pub(crate) fn pass_on(&self, kick: PendingSubmission) {
        let mut turns = TargetTurns {
            partitions: self,
            kick,
        };
        round::pass_on(&mut turns, 0);
        self.target.kick(turns.kick);
    }

    /// Dispatches a request that the device pulls, if one may be dispatched.
    #[cfg(feature = "elevator")]
    pub(crate) fn pull(&self) -> Option<Held> {
        let mut turns = PullTurns {
            partitions: self,
            pulled: None,
        };
        self.target.gate().pull(&mut turns);
        turns.pulled
    }

    /// Counts the end of a request in the partition of `cpt`, if that partition tracks the request,
    /// then dispatches while slots are free. Returns true if an order table has work left.
    pub(crate) fn ended(&self, cpt: Option<u16>, account: &NodeAccount, cost: Cost) -> bool {
        let mut turns = TargetTurns {
            partitions: self,
            kick: PendingSubmission::none(),
        };
        let mut busy = false;
        round::ended(&mut turns, cpt, |turns, cpt, most| {
            if let Some(partition) = self.at(cpt) {
                busy = partition.end(account, cost, most, &mut turns.kick);
            }
        });
        self.target.kick(turns.kick);
        busy
    }

    /// Dispatches requests while slots are free after an arrival, if `others` says that other
    /// partitions are next. Then submits them and the requests of `kick`.
    #[inline(always)]
    pub(crate) fn arrived(&self, others: bool, kick: PendingSubmission) {
        let mut turns = TargetTurns {
            partitions: self,
            kick,
        };
        round::arrived(&mut turns, others);
        self.target.kick(turns.kick);
    }

    /// Completes the pending work of the order tables, then dispatches while slots are free.
    pub(crate) fn apply_pending(&self) {
        for partition in self.iter() {
            partition.complete_order_work();
        }
        self.pass_on(PendingSubmission::none());
    }

    /// Dispatches requests that made no progress for `stall` ns; returns true if there were any.
    pub(crate) fn unstall(&self, stall: u64) -> bool {
        let (stalled, kick) = self.target.unstall(stall);
        self.target.kick(kick);
        self.iter()
            .fold(stalled, |any, partition| any | partition.unstall(stall))
    }

    /// Dispatches all queued requests without taking slots; returns true if there were any.
    pub(crate) fn drain(&self) -> bool {
        let any = self
            .iter()
            .fold(false, |any, partition| any | partition.drain());
        self.target.admit_all_bypass();
        // Cached slots may have been returned.
        self.pass_on(PendingSubmission::none());
        any
    }
}

/// One head of a partition.
pub(crate) struct PartitionHead<'a> {
    partition: &'a WithTimer<Partition>,
    priority: Priority,
}

impl<'a> PartitionHead<'a> {
    /// Returns the head of `priority` of `partition`.
    pub(crate) const fn new(partition: &'a WithTimer<Partition>, priority: Priority) -> Self {
        Self {
            partition,
            priority,
        }
    }
}

impl HeadAccess for PartitionHead<'_> {
    type Item = Held;

    fn target(&self) -> u16 {
        target_of(self.partition.home())
    }

    fn cpt(&self) -> u16 {
        self.partition.cpt()
    }

    fn priority(&self) -> Priority {
        self.priority
    }

    fn with<R>(&self, f: impl FnOnce(&mut KernelHead) -> R) -> R {
        let done = self.partition.with(|inner| f(inner.head(self.priority)));
        misc::cond_resched();
        done
    }
}

/// The heads of the partitions of a target, by CPT.
pub(crate) struct TargetHeads<'a> {
    partitions: slice::Iter<'a, Arc<WithTimer<Partition>>>,
    /// Partition whose high-priority head is next.
    high: Option<&'a WithTimer<Partition>>,
}

impl<'a> Iterator for TargetHeads<'a> {
    type Item = PartitionHead<'a>;

    fn next(&mut self) -> Option<PartitionHead<'a>> {
        if let Some(partition) = self.high.take() {
            return Some(PartitionHead::new(partition, Priority::High));
        }
        let partition = self.partitions.next()?;
        self.high = Some(partition);
        Some(PartitionHead::new(partition, Priority::Regular))
    }
}

/// The heads of all partitions of a service, in the order of targets.
pub(crate) struct Heads<'a> {
    /// Targets after the current one.
    targets: slice::Iter<'a, SetOnce<TargetPartitions>>,
    /// Heads of the current target.
    heads: TargetHeads<'a>,
}

impl<'a> Iterator for Heads<'a> {
    type Item = PartitionHead<'a>;

    fn next(&mut self) -> Option<PartitionHead<'a>> {
        loop {
            if let Some(head) = self.heads.next() {
                return Some(head);
            }
            self.heads = self.targets.next()?.as_ref()?.heads();
        }
    }
}

/// The partitions of one target during one round of dispatching.
struct TargetTurns<'a> {
    partitions: &'a TargetPartitions,
    /// Requests that the target received in this round.
    kick: PendingSubmission,
}

impl round::RoundPartitions for TargetTurns<'_> {
    fn slot_pool(&self) -> &SlotPool {
        self.partitions.target.slot_pool()
    }

    fn limits(&self) -> SlotLimits {
        self.partitions.target.limits()
    }

    fn decide(&mut self, cpt: u16, most: u32) -> Decided {
        match self.partitions.at(cpt) {
            Some(partition) => partition.decide_more(most, &mut self.kick),
            None => Decided::default(),
        }
    }

    #[inline]
    fn batch(&self) -> Option<u32> {
        self.partitions.target.batch()
    }
}

/// The partitions of a target while its device pulls.
#[cfg(feature = "elevator")]
struct PullTurns<'a> {
    partitions: &'a TargetPartitions,
    pulled: Option<Held>,
}

#[cfg(feature = "elevator")]
impl round::RoundPartitions for PullTurns<'_> {
    #[inline]
    fn slot_pool(&self) -> &SlotPool {
        self.partitions.target.slot_pool()
    }

    #[inline]
    fn limits(&self) -> SlotLimits {
        self.partitions.target.limits()
    }

    #[inline]
    fn decide(&mut self, cpt: u16, most: u32) -> Decided {
        match self.partitions.at(cpt) {
            Some(partition) => partition.pull(most, &mut self.pulled),
            None => Decided::default(),
        }
    }
}

/// The partitions of a service.
pub(crate) struct Partitions {
    /// Target partitions by target index, [`TARGETS_MAX`] entries.
    by_target: KVec<SetOnce<TargetPartitions>>,
}

impl Partitions {
    /// Creates the table of partitions, without any partition.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let mut by_target = KVec::with_capacity(TARGETS_MAX, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..TARGETS_MAX {
            by_target.push(SetOnce::new(), GFP_KERNEL_ACCOUNT)?;
        }
        Ok(Arc::new(Self { by_target }, GFP_KERNEL_ACCOUNT)?)
    }

    /// Adds `partitions`, whose target has the next index. Calls must be serialised.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: the service has [`TARGETS_MAX`] targets.
    pub(crate) fn add(&self, partitions: TargetPartitions) -> Result<&TargetPartitions> {
        let index = usize::from(partitions.target.index());
        let place = self.by_target.get(index).ok_or(ENOSPC)?;
        bug!(!place.populate(partitions));
        place.as_ref().ok_or(ENOSPC)
    }

    /// Returns the partitions of each target that the service ever had.
    pub(crate) fn all_targets(&self) -> impl Iterator<Item = &TargetPartitions> {
        self.by_target
            .iter()
            .map_while(|partitions| partitions.as_ref())
    }

    /// Returns the partitions of the targets that have users.
    pub(crate) fn used(&self) -> impl Iterator<Item = &TargetPartitions> {
        self.all_targets()
            .filter(|partitions| partitions.target().users() > 0)
    }

    /// Returns the targets that have users.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &Arc<Target>> {
        self.used().map(TargetPartitions::target)
    }

    /// Returns the partitions of target `index`, which must exist.
    pub(crate) fn of(&self, index: u16) -> Option<&TargetPartitions> {
        let partitions = self.by_target.get(usize::from(index));
        let partitions = partitions.and_then(|partitions| partitions.as_ref());
        bug!(partitions.is_none());
        partitions
    }

    /// Returns the partition that `home` identifies, and the partitions of its target.
    pub(crate) fn at(&self, home: u16) -> Option<(&TargetPartitions, &Arc<WithTimer<Partition>>)> {
        let partitions = self.of(target_of(home))?;
        Some((partitions, partitions.at(cpt_of(home))?))
    }

    /// Returns all partitions.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<WithTimer<Partition>>> {
        self.all_targets().flat_map(|partitions| partitions.iter())
    }

    /// Returns the heads of all partitions, in the order of targets.
    pub(crate) fn heads(&self) -> Heads<'_> {
        Heads {
            targets: self.by_target.iter(),
            heads: TargetHeads {
                partitions: [].iter(),
                high: None,
            },
        }
    }

    /// Dispatches all queued requests without taking slots.
    pub(crate) fn drain(&self) {
        for partitions in self.all_targets() {
            partitions.drain();
        }
    }

    /// Retries the decisions of all partitions after a change of slots, policies, rules or rates.
    pub(crate) fn run_all(&self) {
        for partitions in self.all_targets() {
            for partition in partitions.iter() {
                partition.reconsider();
            }
            partitions.pass_on(PendingSubmission::none());
            partitions.target().call_framework();
        }
    }
}
