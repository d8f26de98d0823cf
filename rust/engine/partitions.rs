// SPDX-License-Identifier: GPL-2.0-only

//! All partitions of a service, and what is done with them together.
//!
//! # Vocabulary
//!
//! - *Lanes*: the partitions of one target, one for each CPT. Requests for one target never wait behind those for
//!   another.
//! - *Home*: names a partition in its service: target and CPT ([`home`]).
//!
//! Nothing here keeps a lock for longer than one partition, or holds two.

use core::ops::Deref;

use kernel::{
    prelude::*,
    sync::{Arc, SetOnce},
};

use super::{
    cpt::CPTS_MAX,
    partition::{KernelPart, Partition, Published},
    target::{Kick, Target},
};
use crate::{
    sched::{
        attr::Priority,
        item::Cost,
        partition::{
            decide::Decided,
            line::{Line, PARTITIONS_MAX},
            round,
        },
        slots::Limits,
    },
    sys::{misc::bug, node::Account, timer::Timed},
};

/// Targets of one service, at most.
pub(crate) const TARGETS_MAX: usize = 64;

/// Bits of a home that are the CPT.
const CPT_BITS: u32 = 6;

const _: () = assert!(CPTS_MAX <= 1 << CPT_BITS && CPTS_MAX as usize <= PARTITIONS_MAX);

/// The name of the partition of `cpt` at target `target`.
pub(crate) const fn home(target: u16, cpt: u16) -> u16 {
    target << CPT_BITS | cpt
}

/// The CPT of the partition that is called `home`.
pub(crate) const fn cpt_of(home: u16) -> u16 {
    home & ((1 << CPT_BITS) - 1)
}

/// The partitions of one target, by CPT.
pub(crate) struct Lanes {
    target: Arc<Target>,
    published: Arc<Published>,
    list: KVec<Arc<Timed<Partition>>>,
}

impl Deref for Lanes {
    type Target = [Arc<Timed<Partition>>];

    fn deref(&self) -> &Self::Target {
        &self.list
    }
}

impl Lanes {
    /// `list`, whose requests go to `target` and who look at `published`.
    pub(crate) fn new(
        target: Arc<Target>,
        published: Arc<Published>,
        list: KVec<Arc<Timed<Partition>>>,
    ) -> Self {
        Self {
            target,
            published,
            list,
        }
    }

    /// Where their requests go.
    pub(crate) fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// What they are told of shares.
    pub(crate) fn published(&self) -> &Published {
        &self.published
    }

    /// Whether no request is in a policy, or was taken out of a policy and has not ended.
    pub(crate) fn are_idle(&self) -> bool {
        self.iter().all(|partition| {
            partition.with(|inner| {
                Priority::ALL
                    .iter()
                    .all(|priority| inner.head(*priority).is_idle())
            })
        })
    }

    /// The partition of `cpt`, which exists.
    pub(crate) fn at(&self, cpt: u16) -> Option<&Arc<Timed<Partition>>> {
        let partition = self.get(usize::from(cpt));
        bug!(partition.is_none());
        partition
    }

    /// Uses what slots are free; then what was decided, and `kick`, go out.
    pub(crate) fn pass_on(&self, kick: Kick) {
        let mut turns = Turns { lanes: self, kick };
        round::pass_on(&mut turns, 0);
        self.target.kick(turns.kick);
    }

    /// Has the partition of `cpt`, if that has to know, count the end of a request; then uses what slots are free.
    /// Returns whether an order table has something left to do.
    pub(crate) fn ended(&self, cpt: Option<u16>, account: &Account, cost: Cost) -> bool {
        let mut turns = Turns {
            lanes: self,
            kick: Kick::none(),
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

    /// Uses what slots are free after an arrival, if it is the turn of `others`; then what was decided, and `kick`, go
    /// out.
    #[inline(always)]
    pub(crate) fn arrived(&self, others: bool, kick: Kick) {
        let mut turns = Turns { lanes: self, kick };
        round::arrived(&mut turns, others);
        self.target.kick(turns.kick);
    }

    /// Does what is left of what order tables have to have done, and uses what slots are free.
    pub(crate) fn settle(&self) {
        for partition in self.iter() {
            partition.settle_all();
        }
        self.pass_on(Kick::none());
    }

    /// Sends down what has waited for `stall` (ns) without progress; whether something has.
    pub(crate) fn unstall(&self, stall: u64) -> bool {
        let (stalled, kick) = self.target.unstall(stall);
        self.target.kick(kick);
        self.iter()
            .fold(stalled, |any, partition| any | partition.unstall(stall))
    }

    /// Sends down everything that is queued, whether or not slots are free; it takes none. Whether something was.
    pub(crate) fn drain(&self) -> bool {
        let any = self
            .iter()
            .fold(false, |any, partition| any | partition.drain());
        self.target.let_all_through();
        // Slots of stocks may have been given back.
        self.pass_on(Kick::none());
        any
    }
}

/// The partitions of one target while they take turns.
struct Turns<'a> {
    lanes: &'a Lanes,
    /// What the target got.
    kick: Kick,
}

impl round::Partitions for Turns<'_> {
    fn line(&self) -> &Line {
        self.lanes.target.line()
    }

    fn limits(&self) -> Limits {
        self.lanes.target.limits()
    }

    fn decide(&mut self, cpt: u16, most: u32) -> Decided {
        match self.lanes.at(cpt) {
            Some(partition) => partition.decide_more(most, &mut self.kick),
            None => Decided::default(),
        }
    }
}

/// The partitions of a service.
pub(crate) struct Partitions {
    /// [`TARGETS_MAX`] places.
    lanes: KVec<SetOnce<Lanes>>,
}

impl Partitions {
    /// None yet.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let mut lanes = KVec::with_capacity(TARGETS_MAX, GFP_KERNEL)?;
        for _ in 0..TARGETS_MAX {
            lanes.push(SetOnce::new(), GFP_KERNEL)?;
        }
        Ok(Arc::new(Self { lanes }, GFP_KERNEL)?)
    }

    /// Adds `lanes`, whose target has the next index. To be called by one task at a time.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: there are [`TARGETS_MAX`].
    pub(crate) fn add(&self, lanes: Lanes) -> Result<&Lanes> {
        let index = usize::from(lanes.target.index());
        let place = self.lanes.get(index).ok_or(ENOSPC)?;
        bug!(!place.populate(lanes));
        place.as_ref().ok_or(ENOSPC)
    }

    /// Those of each target that the service ever had.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = &Lanes> {
        self.lanes.iter().map_while(|lanes| lanes.as_ref())
    }

    /// Those of targets that have users.
    pub(crate) fn used(&self) -> impl Iterator<Item = &Lanes> {
        self.lanes().filter(|lanes| lanes.target().users() > 0)
    }

    /// The targets that have users.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &Arc<Target>> {
        self.used().map(Lanes::target)
    }

    /// Those of target `index`, which exists.
    pub(crate) fn of(&self, index: u16) -> Option<&Lanes> {
        let lanes = self.lanes.get(usize::from(index));
        let lanes = lanes.and_then(|lanes| lanes.as_ref());
        bug!(lanes.is_none());
        lanes
    }

    /// The partition called `home`, and those of its target.
    pub(crate) fn at(&self, home: u16) -> Option<(&Lanes, &Arc<Timed<Partition>>)> {
        let lanes = self.of(home >> CPT_BITS)?;
        Some((lanes, lanes.at(cpt_of(home))?))
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Timed<Partition>>> {
        self.lanes().flat_map(|lanes| lanes.iter())
    }

    /// Runs `f` on each part of each head, letting go of the lock in between.
    pub(crate) fn each_part(&self, mut f: impl FnMut(&mut KernelPart, u32) -> Option<u32>) {
        for partition in self.iter() {
            for priority in Priority::ALL {
                for id in partition.instances(priority) {
                    partition.sweep(|inner, from| f(inner.head(priority).part_mut(id)?, from));
                }
            }
        }
    }

    /// Sends down everything that is queued, whether or not slots are free; it takes none.
    pub(crate) fn drain(&self) {
        for lanes in self.lanes() {
            lanes.drain();
        }
    }

    /// Decides requests of all partitions that wait: slots, policies, rules or rates are others now.
    pub(crate) fn run_all(&self) {
        for lanes in self.lanes() {
            for partition in lanes.iter() {
                partition.reconsider();
            }
            lanes.pass_on(Kick::none());
            lanes.target().call_framework();
        }
    }
}
