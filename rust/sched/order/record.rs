// SPDX-License-Identifier: GPL-2.0-only

//! Record of a request from its arrival to its end.

use super::{Forced, RecordId, PREDECESSORS_MAX};
use crate::sched::{
    attr::{Attrs, Priority},
    head::HeadTicket,
    item::Item,
    order::tree::Extent,
    slab::{Linked, Links, SlabList, NONE},
};

/// Ordering constraints of a record.
pub(super) enum StandsFor {
    /// No constraints.
    Free,
    /// Range of bytes.
    Range {
        /// Range and access.
        extent: Extent,
        /// Index of the range in the tree.
        node: u32,
    },
    /// Explicit predecessors.
    After([Option<RecordId>; PREDECESSORS_MAX]),
}

/// State of a request.
pub(super) enum OrderState<I: Item> {
    /// The owner handles the request.
    Held,
    /// Blocked until the predecessors have ended.
    Blocked(I),
    /// Queued in a head.
    Queued {
        handle: I::Handle,
        ticket: HeadTicket,
        priority: Priority,
    },
    /// Dispatched.
    Running,
    /// Ended; the requests that were blocked by it are being checked.
    Ended,
}

/// Urgency of a request; inherited from the requests that wait for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Urgency {
    /// True if the request belongs in the high-priority head.
    pub(super) high: bool,
    /// Forced dispatch.
    pub(super) forced: Forced,
}

impl Urgency {
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            high: self.high || other.high,
            forced: self.forced.max(other.forced),
        }
    }

    pub(super) fn is_none(self) -> bool {
        self == Self::default()
    }

    pub(super) const fn priority(self) -> Priority {
        if self.high {
            Priority::High
        } else {
            Priority::Regular
        }
    }
}

/// Progress of propagating urgency to the predecessors of a request.
///
/// # Invariants
///
/// Predecessors with serials from `before` on, or outside of `start..end`, have inherited the
/// urgency, or will inherit it from predecessors that have.
#[derive(Clone, Copy)]
pub(super) struct Propagation {
    pub(super) before: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    /// True if the record is in the list of records with unfinished propagations; `next` is the
    /// next one in the list.
    pub(super) listed: bool,
    pub(super) next: u32,
}

impl Propagation {
    pub(super) const NOT: Self = Self {
        before: 0,
        start: 0,
        end: 0,
        listed: false,
        next: NONE,
    };

    /// Excludes the range of a write that has inherited the urgency, because earlier requests in
    /// conflict with the write inherit the urgency from it.
    pub(super) fn leave_out(&mut self, extent: &Extent) {
        if !extent.writes {
            return;
        }
        if extent.start <= self.start {
            self.start = self.start.max(extent.end);
        } else if extent.end >= self.end {
            self.end = self.end.min(extent.start);
        }
    }
}

/// Record of one request.
///
/// # Invariants
///
/// - `waits` is the index of an unfinished record with a smaller serial exactly if this record is
///   in that record's `waiters`.
/// - `links` are in the `waiters` of another record, or, after the end, in the list of ended
///   records.
pub struct OrderRecord<I: Item> {
    /// Number of the record in the order of arrival.
    pub(super) serial: u64,
    pub(super) ties: StandsFor,
    pub(super) state: OrderState<I>,
    pub(super) attrs: Option<Attrs>,
    pub(super) urgency: Urgency,
    /// Index of the record that this record waits for.
    pub(super) waits: u32,
    /// Records that wait for this record.
    pub(super) waiters: SlabList,
    pub(super) links: Links,
    pub(super) propagation: Propagation,
}

impl<I: Item> OrderRecord<I> {
    pub(super) const fn new(serial: u64, ties: StandsFor) -> Self {
        Self {
            serial,
            ties,
            state: OrderState::Held,
            attrs: None,
            urgency: Urgency {
                high: false,
                forced: Forced::No,
            },
            waits: NONE,
            waiters: SlabList::new(),
            links: Links::new(),
            propagation: Propagation::NOT,
        }
    }

    pub(super) const fn has_ended(&self) -> bool {
        matches!(self.state, OrderState::Ended)
    }

    /// Starts propagating the urgency to the predecessors.
    pub(super) fn start_chase(&mut self) {
        self.propagation.before = self.serial;
        if let StandsFor::Range { extent, .. } = &self.ties {
            self.propagation.start = extent.start;
            self.propagation.end = extent.end;
        }
    }
}

impl<I: Item> Linked for OrderRecord<I> {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_writes_cover_is_left_out() {
        for (start, end, writes, left) in [
            (0, 10, false, (10, 20)),
            (0, 5, true, (10, 20)),
            (0, 12, true, (12, 20)),
            (10, 12, true, (12, 20)),
            (12, 14, true, (10, 20)),
            (15, 20, true, (10, 15)),
            (15, 99, true, (10, 15)),
            (10, 20, true, (20, 20)),
            (0, 99, true, (99, 20)),
        ] {
            let mut propagation = Propagation {
                start: 10,
                end: 20,
                ..Propagation::NOT
            };
            propagation.leave_out(&Extent {
                domain: 0,
                start,
                end,
                writes,
            });
            assert_eq!((propagation.start, propagation.end), left, "{start}..{end}");
        }
    }
}
