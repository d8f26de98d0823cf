// SPDX-License-Identifier: GPL-2.0-only

//! Dependencies between records.

use super::{
    record::{OrderRecord, OrderState, StandsFor, Urgency},
    relation::Relation,
    tree::ExtentSearch,
    Order, RecordId,
};
use crate::sched::{
    item::Item,
    slab::{Slab, SlabList, NONE},
};

impl<I: Item> Order<I> {
    /// Creates a record without predecessors; `None` if no record is available.
    pub(super) fn make(&mut self, relation: &Relation) -> Option<u32> {
        if self.records.live() as usize >= self.max {
            return None;
        }
        let ties = match (relation, relation.extent()) {
            (_, Some(extent)) => StandsFor::Range { extent, node: NONE },
            (Relation::After(those), _) => StandsFor::After(*those),
            _ => StandsFor::Free,
        };
        let serial = self.serial;
        let idx = self
            .records
            .insert(OrderRecord::new(serial, ties))
            .ok()?
            .idx();
        if let Some(extent) = relation.extent() {
            let Some(name) = self.tree.insert(extent, serial, idx) else {
                self.records.remove(idx);
                return None;
            };
            if let Some(OrderRecord {
                ties: StandsFor::Range { node, .. },
                ..
            }) = self.records.at_mut(idx)
            {
                *node = name;
            }
        }
        self.serial = serial.wrapping_add(1);
        Some(idx)
    }

    /// Determines the predecessor of a new record; returns true if there is none.
    pub(super) fn find_predecessor(&mut self, idx: u32, urgency: Urgency) -> bool {
        if let Some(record) = self.records.at_mut(idx) {
            record.urgency = urgency;
        }
        match self.predecessor(idx) {
            Some(other) => {
                self.wait(idx, other);
                if !urgency.is_none() {
                    self.list(idx);
                }
                false
            }
            None => true,
        }
    }

    /// Returns the latest predecessor that has not ended, or another earlier record if the search
    /// was stopped.
    pub(super) fn predecessor(&mut self, idx: u32) -> Option<u32> {
        let record = self.records.at(idx)?;
        match &record.ties {
            StandsFor::Free => None,
            StandsFor::Range { extent, .. } => match self.tree.latest(*extent, record.serial) {
                ExtentSearch::Nothing => None,
                ExtentSearch::Conflict(hit) | ExtentSearch::StandIn(hit) => Some(hit.owner),
            },
            StandsFor::After(those) => {
                let mut latest_first = those.iter().rev().flatten();
                let earlier = |id: &&RecordId| self.is_earlier(**id, record.serial);
                latest_first.find(earlier).map(|id| id.idx())
            }
        }
    }

    /// Returns true if `id` is a request before the one with `serial`, and has not ended. A handle
    /// from a replaced table may match a later record here, even that one.
    pub(super) fn is_earlier(&self, id: RecordId, serial: u64) -> bool {
        let other = self.records.get(id);
        other.is_some_and(|other| !other.has_ended() && other.serial < serial)
    }

    /// Makes the record at index `idx` wait for the one at `other`, which inherits the urgency.
    pub(super) fn wait(&mut self, idx: u32, other: u32) {
        let Some(record) = self.records.at_mut(idx) else {
            bug!();
            return;
        };
        record.waits = other;
        let urgency = record.urgency;
        self.waiters(other, |records, waiters| waiters.push(records, idx));
        self.urge(other, urgency);
    }

    /// Removes the record at index `idx` from the waiters of its predecessor.
    pub(super) fn stop_waiting(&mut self, idx: u32) {
        let Some(record) = self.records.at_mut(idx) else {
            bug!();
            return;
        };
        let other = core::mem::replace(&mut record.waits, NONE);
        self.waiters(other, |records, waiters| waiters.remove(records, idx));
    }

    /// Calls `f` with the waiters of the record at index `idx`.
    fn waiters(&mut self, idx: u32, f: impl FnOnce(&mut Slab<OrderRecord<I>>, &mut SlabList)) {
        let Some(record) = self.records.at_mut(idx) else {
            bug!();
            return;
        };
        let mut waiters = core::mem::replace(&mut record.waiters, SlabList::new());
        f(&mut self.records, &mut waiters);
        if let Some(record) = self.records.at_mut(idx) {
            record.waiters = waiters;
        }
    }

    /// Blocks the record at index `idx`.
    pub(super) fn keep(&mut self, idx: u32, item: I) {
        if let Some(record) = self.records.at_mut(idx) {
            record.state = OrderState::Blocked(item);
            self.blocked = self.blocked.wrapping_add(1);
        }
    }

    /// Increases the urgency of a record and propagates an increase to its predecessors.
    pub(super) fn urge(&mut self, idx: u32, urgency: Urgency) {
        let Some(record) = self.records.at_mut(idx) else {
            bug!();
            return;
        };
        let sum = record.urgency.and(urgency);
        if sum != record.urgency {
            record.urgency = sum;
            self.list(idx);
        }
    }

    /// Lists the record to propagate its urgency, from its first predecessor on.
    fn list(&mut self, idx: u32) {
        let first = self.propagation;
        if let Some(record) = self.records.at_mut(idx) {
            record.start_chase();
            if !core::mem::replace(&mut record.propagation.listed, true) {
                record.propagation.next = first;
                self.propagation = idx;
            }
        }
    }

    /// Forces all records.
    pub(super) fn force_records(&mut self) {
        self.forced_before = self.serial;
        self.sweep = 0;
    }

    /// Frees the record of an ended request, unless waiters or a propagation still refer to it.
    pub(super) fn forget(&mut self, idx: u32) {
        let done = |record: &OrderRecord<I>| {
            record.has_ended() && record.waiters.first().is_none() && !record.propagation.listed
        };
        if self.records.at(idx).is_some_and(done) {
            self.records.remove(idx);
        }
    }
}
