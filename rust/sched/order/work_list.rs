// SPDX-License-Identifier: GPL-2.0-only

//! Work after a change, one step at a time.
//!
//! ```text
//!   a request became urgent ──▶ propagate to one predecessor; move or force it if queued
//!   a request ended ──────────▶ look: one of its waiters waits for another record, or is released
//!   all were forced ──────────▶ sweep: examine one record; force it if queued
//!   a record is free ─────────▶ enter: the oldest overflowed request is blocked, or released
//! ```

use super::{
    record::{OrderRecord, OrderState, StandsFor, Urgency},
    relation::OverflowMark,
    tree::{Extent, ExtentSearch},
    Forced, Order, OrderAction, RecordId, STEPS,
};
use crate::sched::{
    attr::Priority,
    head::HeadTicket,
    item::{Fifo, Item},
    slab::NONE,
};

impl<I: Item> Order<I> {
    /// Returns the next action of the owner; `None` if there is nothing to do until something
    /// changes.
    #[allow(
        clippy::should_implement_trait,
        reason = "there may be more after the end, so it is no iterator"
    )]
    pub fn next(&mut self) -> Option<OrderAction<I>> {
        for _ in 0..STEPS {
            if !self.is_busy() {
                return None;
            }
            if let Some(act) = self.step() {
                return Some(act);
            }
        }
        self.is_busy().then_some(OrderAction::Again)
    }

    /// Returns true if [`Order::next`] has something to do. An owner that stops early has to
    /// continue later.
    pub fn is_busy(&self) -> bool {
        self.propagation != NONE
            || self.ended.first().is_some()
            || self.sweep != NONE
            || (!self.overflow.is_empty() && self.has_room())
    }

    /// Returns true if a record is available for another request.
    fn has_room(&self) -> bool {
        (self.records.live() as usize) < self.max && self.records.room() > 0 && self.tree.room() > 0
    }

    fn step(&mut self) -> Option<OrderAction<I>> {
        if self.propagation != NONE {
            self.propagate()
        } else if let Some(ended) = self.ended.first() {
            self.handle_waiter(ended)
        } else if self.sweep != NONE {
            self.sweep()
        } else {
            self.enter_overflowed()
        }
    }

    /// Continues the first listed propagation.
    fn propagate(&mut self) -> Option<OrderAction<I>> {
        let idx = self.propagation;
        let (waits, urgency) = {
            let record = self.records.at(idx)?;
            (record.waits != NONE, record.urgency)
        };
        if waits {
            if !self.pass_urgency(idx) {
                self.unlist(idx);
            }
            return None;
        }
        self.unlist(idx);
        if urgency.forced != Forced::No {
            self.take_out(idx)
        } else {
            self.lift(idx)
        }
    }

    /// Removes the record at `idx`, the first of the listed propagations, from the list.
    fn unlist(&mut self, idx: u32) {
        if let Some(record) = self.records.at_mut(idx) {
            record.propagation.listed = false;
            self.propagation = core::mem::replace(&mut record.propagation.next, NONE);
        }
        self.forget(idx);
    }

    /// Passes the urgency of a blocked record to one more predecessor, or to several explicit
    /// ones; returns true if there may be more.
    fn pass_urgency(&mut self, idx: u32) -> bool {
        let Some(record) = self.records.at_mut(idx) else {
            return false;
        };
        let (mut propagation, urgency, waits) = (record.propagation, record.urgency, record.waits);
        let serial = record.serial;
        let first = propagation.before == serial;
        match record.ties {
            StandsFor::Range { extent, .. } => {
                if first {
                    self.urge(waits, urgency);
                }
                let rest = Extent {
                    start: propagation.start,
                    end: propagation.end,
                    ..extent
                };
                let found = if rest.start < rest.end && propagation.before > 0 {
                    self.tree.latest(rest, propagation.before)
                } else {
                    ExtentSearch::Nothing
                };
                if let ExtentSearch::Conflict(hit) = found {
                    self.urge(hit.owner, urgency);
                    propagation.before = hit.serial;
                    propagation.leave_out(&hit.extent);
                } else {
                    propagation.before = 0;
                }
            }
            StandsFor::After(those) if first => {
                for id in those.into_iter().flatten() {
                    if self.is_earlier(id, serial) {
                        self.urge(id.idx(), urgency);
                    }
                }
                propagation.before = 0;
            }
            _ => propagation.before = 0,
        }
        if let Some(record) = self.records.at_mut(idx) {
            record.propagation.before = propagation.before;
            record.propagation.start = propagation.start;
            record.propagation.end = propagation.end;
        }
        // Other records may have been listed before this one; it is removed when it is first again.
        propagation.before > 0 || self.propagation != idx
    }

    /// Moves a queued record to the high-priority head, if it is in the regular one.
    fn lift(&mut self, idx: u32) -> Option<OrderAction<I>> {
        let attrs = self.records.at(idx)?.attrs;
        let regular = |priority| priority == Priority::Regular;
        let (id, handle, ticket, _) = self.take_in_hand(idx, regular)?;
        Some(OrderAction::Move {
            id,
            handle,
            ticket,
            attrs,
        })
    }

    /// Forces the dispatch of a queued record.
    fn take_out(&mut self, idx: u32) -> Option<OrderAction<I>> {
        let forced = self.forced(self.records.at(idx)?);
        let (id, handle, ticket, priority) = self.take_in_hand(idx, |_| true)?;
        Some(OrderAction::Force {
            id,
            handle,
            ticket,
            priority,
            forced,
        })
    }

    /// Returns how the dispatch of the request of `record` is forced.
    fn forced(&self, record: &OrderRecord<I>) -> Forced {
        let all = if record.serial < self.drained_before {
            Forced::AtOnce
        } else if record.serial < self.forced_before {
            Forced::InTurn
        } else {
            Forced::No
        };
        all.max(record.urgency.forced)
    }

    /// Passes the state of a queued record to the owner if the record is in a head that is
    /// `wanted`.
    fn take_in_hand(
        &mut self,
        idx: u32,
        wanted: impl FnOnce(Priority) -> bool,
    ) -> Option<(RecordId, I::Handle, HeadTicket, Priority)> {
        let id = self.records.handle(idx)?;
        let record = self.records.at_mut(idx)?;
        match core::mem::replace(&mut record.state, OrderState::Held) {
            OrderState::Queued {
                handle,
                ticket,
                priority,
            } if wanted(priority) => Some((id, handle, ticket, priority)),
            other => {
                record.state = other;
                None
            }
        }
    }

    /// Handles one waiter of the record at index `ended`, which has ended.
    fn handle_waiter(&mut self, ended: u32) -> Option<OrderAction<I>> {
        let Some(waiter) = self.records.at(ended)?.waiters.first() else {
            self.ended.remove(&mut self.records, ended);
            self.forget(ended);
            return None;
        };
        self.stop_waiting(waiter);
        match self.predecessor(waiter) {
            Some(other) => {
                self.wait(waiter, other);
                None
            }
            None => self.release(waiter),
        }
    }

    /// Releases a blocked request without predecessors.
    fn release(&mut self, idx: u32) -> Option<OrderAction<I>> {
        let id = self.records.handle(idx)?;
        let forced = self.forced(self.records.at(idx)?);
        let record = self.records.at_mut(idx)?;
        match core::mem::replace(&mut record.state, OrderState::Held) {
            OrderState::Blocked(item) => {
                self.blocked = self.blocked.wrapping_sub(1);
                Some(OrderAction::Release {
                    id,
                    item,
                    attrs: record.attrs,
                    priority: record.urgency.priority(),
                    forced,
                })
            }
            other => {
                record.state = other;
                None
            }
        }
    }

    /// Examines one record while all are being forced.
    fn sweep(&mut self) -> Option<OrderAction<I>> {
        let idx = self.sweep;
        self.sweep = idx.wrapping_add(1);
        if self.sweep as usize >= self.records.entry_count() {
            self.sweep = NONE;
        }
        let record = self.records.at(idx)?;
        if record.serial >= self.forced_before {
            return None;
        }
        self.take_out(idx)
    }

    /// Creates a record for the oldest overflowed request.
    fn enter_overflowed(&mut self) -> Option<OrderAction<I>> {
        let front = self.overflow.front()?;
        let note = OverflowMark::of_mark(front.mark());
        let relation = note.relation(front);
        let idx = self.make(&relation)?;
        let mut item = self.overflow.pop()?;
        item.set_mark(0);
        let urgency = Urgency {
            high: note.high,
            forced: match self.overflow_forced {
                0 => note.forced,
                _ => note.forced.max(Forced::InTurn),
            },
        };
        self.overflow_forced = self.overflow_forced.saturating_sub(1);
        let free = self.find_predecessor(idx, urgency);
        self.keep(idx, item);
        if free {
            self.release(idx)
        } else {
            None
        }
    }
}
