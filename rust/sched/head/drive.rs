// SPDX-License-Identifier: GPL-2.0-only

//! Requests of a framework with heads of its own, which drives one policy at a time.
//!
//! The framework selects instances by their tag (`chosen`). A policy that was restarted has several
//! such instances: the newest one takes requests, and the older ones are drained.
//!
//! ```text
//!               drive_enqueue           drive_get            Head::stop
//!   (arrived) ────────────────▶ queued ────────────▶ started ───────────▶ ended
//!                                 │
//!                                 └ drive_dequeue: the framework removes the request
//! ```
//!
//! These requests are not counted in [`Head::queued`], so that only the framework dispatches them.
//! Instances count them, so that an instance with such requests is not reaped.

use super::{decide::none, Head, HeadTicket};
use crate::sched::{
    attr::Attrs,
    item::Item,
    mem::Need as _,
    policy::{Decision, Part, PartView},
};

impl<I: Item, P: Part<I>, T> Head<I, P, T> {
    /// Queues a request with `attrs` in the newest instance that is `chosen`; returns the ticket,
    /// and true if the part needs memory now.
    ///
    /// # Errors
    ///
    /// Returns the item if no instance is chosen, or if the part declines the request.
    pub fn drive_enqueue(
        &mut self,
        item: I,
        attrs: &Attrs,
        chosen: impl Fn(&T) -> bool,
        now: u64,
    ) -> Result<(HeadTicket, bool), I> {
        let newest = self.serial;
        let instance = self
            .iter_mut()
            .filter(|instance| chosen(&instance.tag))
            .min_by_key(|instance| newest.wrapping_sub(instance.id.serial));
        let Some(instance) = instance else {
            return Err(item);
        };
        let class = instance.part.classify(attrs, now);
        instance.part.record_attrs(class, attrs, now);
        let ticket = instance.enqueue(item, class, now)?;
        Ok((ticket, !instance.part.need().is_empty()))
    }

    /// Selects the request to dispatch next among the instances that are `chosen`, and removes it;
    /// the ticket is for [`Head::stop`]. Stopping instances are served first, but respect their
    /// limits, because the framework manages the drain.
    pub fn drive_get(
        &mut self,
        view: &PartView<'_>,
        chosen: impl Fn(&T) -> bool,
    ) -> Decision<(I, HeadTicket)> {
        let mut until = None;
        for stopping in [true, false] {
            for instance in self.iter_mut().filter(|i| i.stopping == stopping) {
                if !chosen(&instance.tag) {
                    continue;
                }
                if let Some(found) = instance.get(view, &mut until) {
                    return Decision::Item(found);
                }
            }
        }
        none(until)
    }

    /// Returns the result that [`Head::drive_get`] would return, as exactly as [`Part::peek`] does,
    /// without changes.
    pub fn drive_peek(&self, view: &PartView<'_>, chosen: impl Fn(&T) -> bool) -> Decision<()> {
        let mut until: Option<u64> = None;
        for instance in self.iter().filter(|i| i.queued != 0 && chosen(&i.tag)) {
            match instance.part.peek(view) {
                Decision::Item(()) => return Decision::Item(()),
                Decision::Throttled { until: at } => {
                    until = Some(until.map_or(at, |other| other.min(at)));
                }
                Decision::Empty => {}
            }
        }
        none(until)
    }

    /// Removes a request with `ticket` from [`Head::drive_enqueue`]; `None` if the request is not
    /// queued.
    pub fn drive_dequeue(
        &mut self,
        ticket: &HeadTicket,
        handle: &I::Handle,
        now: u64,
    ) -> Option<I> {
        let instance = self.find_mut(ticket.instance())?;
        instance.dequeue(ticket.class(), handle, now)
    }
}
