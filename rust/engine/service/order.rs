// SPDX-License-Identifier: GPL-2.0-only

//! Order of requests, and the number of records.

use kernel::prelude::*;

use super::Service;
use crate::{
    engine::{
        arrival::OrderHandle,
        cpt,
        target::{PendingSubmission, Target},
    },
    sched::{
        key::Hasher,
        order::{Order, RecordId},
        report::Report,
        statistics::{OrderCounts, Stats},
    },
    sys::node::Held,
};

/// Returns the records of each partition of a target, so that its `cpts` partitions have `max`
/// together.
pub(super) fn records_each(max: u32, cpts: u32) -> u32 {
    max.div_ceil(cpts.max(1))
}

impl Service {
    /// Moves a queued request and its predecessors to high priority; does nothing if the request is
    /// not queued.
    pub(crate) fn promote(&self, record: OrderHandle) {
        self.reorder(record, |order, id| order.promote(id));
    }

    /// Dispatches a queued request and its predecessors as soon as the order permits.
    pub(crate) fn force(&self, record: OrderHandle) {
        self.reorder(record, |order, id| order.force(id));
    }

    /// Ends the request for its successors. The request completed without its record.
    pub(crate) fn finish(&self, record: OrderHandle) {
        self.reorder(record, |order, id| order.finish(id));
    }

    fn reorder(&self, record: OrderHandle, change: impl FnOnce(&mut Order<Held>, RecordId)) {
        if let Some((partitions, partition)) = self.partitions.at(record.home) {
            let mut kick = PendingSubmission::none();
            let busy = partition.reorder(|order| change(order, record.id), &mut kick);
            if busy {
                self.ticker.worker().progress().call();
            }
            partitions.pass_on(kick);
        }
    }

    /// Allocates the memory that the order tables need; returns true if any was needed. May sleep.
    pub(crate) fn feed_order(&self) -> Result<bool> {
        let mut some = false;
        for partition in self.partitions.iter() {
            some |= partition.feed_order()?;
        }
        Ok(some)
    }

    /// Returns the domain of the stream that client `serial` calls `stream`. No client can choose a
    /// number that yields the domain of another client.
    pub(crate) fn domain_of(&self, serial: u32, stream: u64) -> u64 {
        let hasher = Hasher::new(self.seed);
        hasher.mix(hasher.word(serial.into()), stream)
    }

    /// Returns the partition of the requests of `domain` for `target`.
    pub(crate) fn home(&self, target: &Target, domain: u64) -> u16 {
        let cpt = domain.checked_rem(self.cpts().into()).unwrap_or(0);
        cpt::home(target.index(), cpt as u16)
    }

    /// Reports the number of clients, their credits, and the counters of ordered requests.
    pub(crate) fn report_concurrency(&self, report: &mut Report<'_>) -> Result {
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
        let written = report.map(|map| {
            map.stats(&self.concurrency.counts(), &[])?;
            map.stats(&counts, &[])
        });
        written.map_err(|_| ENOSPC)
    }
}
