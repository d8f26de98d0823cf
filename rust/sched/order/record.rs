// SPDX-License-Identifier: GPL-2.0-only

//! What is kept of a request from its arrival to its end.

use super::{Forced, RecordId, PREDECESSORS_MAX};
use crate::sched::{
    attr::{Attrs, Priority},
    head::Ticket,
    item::Item,
    order::tree::Extent,
    slab::{Linked, Links, List, NONE},
};

/// What a record stands in for.
pub(super) enum Ties {
    /// Nothing.
    Free,
    /// A range.
    Range {
        /// What it is.
        extent: Extent,
        /// Its name in the tree.
        node: u32,
    },
    /// Others, by name.
    After([Option<RecordId>; PREDECESSORS_MAX]),
}

/// Where a request is.
pub(super) enum State<I: Item> {
    /// The owner has it in hand.
    Held,
    /// Here, until what it waits for has ended.
    Blocked(I),
    /// In a head.
    Queued {
        place: I::Place,
        ticket: Ticket,
        priority: Priority,
    },
    /// It was decided.
    Running,
    /// Nowhere; those that waited for it are being looked at.
    Ended,
}

/// How urgent a request is, because of itself or of one that comes after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Urgency {
    /// It belongs in the high-priority head.
    pub(super) high: bool,
    /// Whether it may be withheld.
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

/// How far the predecessors of an urgent request have been told.
///
/// # Invariants
///
/// All predecessors with serials from `before` on have been told, or will be told by others that were; and
/// those outside of `start..end`.
#[derive(Clone, Copy)]
pub(super) struct Chase {
    pub(super) before: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    /// Whether it is in the list of those that are to be told of, and who comes next in it.
    pub(super) listed: bool,
    pub(super) next: u32,
}

impl Chase {
    pub(super) const NOT: Self = Self {
        before: 0,
        start: 0,
        end: 0,
        listed: false,
        next: NONE,
    };

    /// Leaves out what comes before a write to `extent`: whoever conflicts with that is told through it.
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

/// What is kept of one request.
///
/// # Invariants
///
/// - `waits` is the slot of an unfinished record with a smaller serial exactly if the record is in that one's
///   `waiters`.
/// - `links` are those in `waiters` of another record, or, once it has ended, in the list of ended ones.
pub struct Record<I: Item> {
    /// Its number in the order of arrival.
    pub(super) serial: u64,
    pub(super) ties: Ties,
    pub(super) state: State<I>,
    pub(super) attrs: Option<Attrs>,
    pub(super) urgency: Urgency,
    /// The one it waits for.
    pub(super) waits: u32,
    /// Those that wait for it.
    pub(super) waiters: List,
    pub(super) links: Links,
    pub(super) chase: Chase,
}

impl<I: Item> Record<I> {
    pub(super) const fn new(serial: u64, ties: Ties) -> Self {
        Self {
            serial,
            ties,
            state: State::Held,
            attrs: None,
            urgency: Urgency {
                high: false,
                forced: Forced::No,
            },
            waits: NONE,
            waiters: List::new(),
            links: Links::new(),
            chase: Chase::NOT,
        }
    }

    pub(super) const fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// Begins to tell its predecessors.
    pub(super) fn start_chase(&mut self) {
        self.chase.before = self.serial;
        if let Ties::Range { extent, .. } = &self.ties {
            self.chase.start = extent.start;
            self.chase.end = extent.end;
        }
    }
}

impl<I: Item> Linked for Record<I> {
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
            let mut chase = Chase {
                start: 10,
                end: 20,
                ..Chase::NOT
            };
            chase.leave_out(&Extent {
                domain: 0,
                start,
                end,
                writes,
            });
            assert_eq!((chase.start, chase.end), left, "{start}..{end}");
        }
    }
}
