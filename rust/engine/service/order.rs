// SPDX-License-Identifier: GPL-2.0-only

//! The order of requests, and of how many there are records.

use core::fmt::Write;

use kernel::prelude::*;

use super::Service;
use crate::{
    engine::{
        arrival::Record,
        partitions,
        target::{Kick, Target},
    },
    sched::{
        key::Hasher,
        order::{Order, RecordId},
        statistics::{OrderCounts, Stats},
    },
    sys::node::Held,
};

/// Records of the partition of each of `cpts` CPTs, if those of a target may have `max` together.
pub(super) fn records_each(max: u32, cpts: u32) -> u32 {
    max.div_ceil(cpts.max(1))
}

impl Service {
    /// Makes room for `max` records in all partitions together, or leaves no more than that.
    ///
    /// # Errors
    ///
    /// As for [`Partition::set_records`](super::partition::Partition::set_records).
    pub(super) fn set_records(&self, max: u32) -> Result {
        let each = records_each(max, self.cpts());
        let mut all = self.partitions.iter();
        all.try_for_each(|partition| partition.set_records(each))
    }

    /// Moves a request that waits, and what it waits for, to high priority; nothing if it waits no more.
    pub(crate) fn promote(&self, record: Record) {
        self.reorder(record, |order, id| order.promote(id));
    }

    /// Sends a request that waits, and what it waits for, on its way as soon as that may be.
    pub(crate) fn force(&self, record: Record) {
        self.reorder(record, |order, id| order.force(id));
    }

    /// The request is over for those that wait for its end. Its completion did without the record.
    pub(crate) fn finish(&self, record: Record) {
        self.reorder(record, |order, id| order.finish(id));
    }

    fn reorder(&self, record: Record, change: impl FnOnce(&mut Order<Held>, RecordId)) {
        if let Some((lanes, partition)) = self.partitions.at(record.home) {
            let mut kick = Kick::none();
            let busy = partition.reorder(|order| change(order, record.id), &mut kick);
            if busy {
                self.ticker.worker().keeper().call();
            }
            lanes.pass_on(kick);
        }
    }

    /// Brings the order tables the memory that they want; whether there was something to bring. May sleep.
    pub(crate) fn feed_order(&self) -> Result<bool> {
        let mut some = false;
        for partition in self.partitions.iter() {
            some |= partition.feed_order()?;
        }
        Ok(some)
    }

    /// The domain of a stream that client `serial` calls `stream`. Nobody can choose a number that makes it another
    /// client's.
    pub(crate) fn domain_of(&self, serial: u32, stream: u64) -> u64 {
        let hasher = Hasher::new(self.seed);
        hasher.mix(hasher.word(serial.into()), stream)
    }

    /// The partition where those of `domain` meet that are for `target`.
    pub(crate) fn home(&self, target: &Target, domain: u64) -> u16 {
        let cpt = domain.checked_rem(self.cpts().into()).unwrap_or(0);
        partitions::home(target.index(), cpt as u16)
    }

    /// Writes how many clients there are and what each may have, and how requests wait for each other.
    pub(crate) fn write_concurrency(&self, out: &mut dyn Write) -> Result {
        self.concurrency.write(out).map_err(|_| ENOSPC)?;
        let mut counts = OrderCounts::ZERO;
        for partition in self.partitions.iter() {
            partition.with(|inner| {
                let order = inner.order();
                counts.merge(&OrderCounts {
                    records: order.live().into(),
                    blocked: order.blocked().into(),
                    overflowed: order.overflowed().into(),
                    overflows: order.overflows(),
                });
            });
        }
        counts.write_lines(out, "", &[]).map_err(|_| ENOSPC)
    }
}
