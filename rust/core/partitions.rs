// SPDX-License-Identifier: GPL-2.0-only

//! All partitions of a service, and what is done with them together.
//!
//! Nothing here keeps a lock for longer than one partition, or holds two.

use core::ops::Deref;

use kernel::{prelude::*, sync::Arc};

use super::{
    dispatch::Dispatch,
    partition::{KernelPart, Kicks, Partition, BATCH},
};
use crate::{sched::attr::Priority, sys::timer::Timed};

/// The partitions of a service, by index.
pub(crate) struct Partitions {
    list: KVec<Arc<Timed<Partition>>>,
    dispatch: Arc<Dispatch>,
}

impl Deref for Partitions {
    type Target = [Arc<Timed<Partition>>];

    fn deref(&self) -> &Self::Target {
        &self.list
    }
}

impl Partitions {
    /// Those of `list`, whose slots and targets are in `dispatch`.
    pub(crate) fn new(list: KVec<Arc<Timed<Partition>>>, dispatch: Arc<Dispatch>) -> Self {
        Self { list, dispatch }
    }

    /// Partition `index`.
    pub(crate) fn at(&self, index: u32) -> Option<&Arc<Timed<Partition>>> {
        self.get(usize::try_from(index).ok()?)
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

    /// Uses what is free: partitions decide in turn, but for those that were `asked` (bits) and decided all
    /// that they could; parked requests go on, then all kicks go out.
    pub(crate) fn pass_on(&self, mut kicks: Kicks, mut asked: u64) {
        let mut left = BATCH;
        while let Some(next) = self.dispatch.next(asked).filter(|_| left > 0) {
            let most = if next.alone { left } else { 1 };
            let decided = match self.at(next.index) {
                Some(partition) => partition.decide_more(most, &mut kicks),
                None => 0,
            };
            if next.alone || decided == 0 {
                asked |= next.bit();
            }
            left = left.saturating_sub(decided);
        }
        kicks = kicks.and(self.unpark(false));
        kicks.kick(&self.dispatch);
    }

    /// Lets requests that are parked at targets go on.
    pub(crate) fn unpark(&self, force: bool) -> Kicks {
        let mut kicks = Kicks::none();
        let parked = self.dispatch.parked();
        if parked == 0 {
            return kicks;
        }
        let first = self.dispatch.first_parked(parked);
        let mut left = parked.rotate_right(first);
        while left != 0 {
            let index = (left.trailing_zeros().wrapping_add(first) & 63) as u16;
            left &= left.wrapping_sub(1);
            if let Some(target) = self.dispatch.target(index) {
                if target.unpark(&self.dispatch, force) {
                    kicks.add(index);
                }
            }
        }
        kicks
    }

    /// Sends down everything that is queued, whether or not slots are free; it takes none.
    pub(crate) fn drain(&self) {
        for partition in self.iter() {
            partition.drain();
        }
        self.unpark(true).kick(&self.dispatch);
    }

    /// Decides requests of all partitions that wait: slots, policies, rules or rates are others now.
    pub(crate) fn run_all(&self) {
        for partition in self.iter() {
            partition.reconsider();
        }
        self.pass_on(Kicks::none(), 0);
    }
}
