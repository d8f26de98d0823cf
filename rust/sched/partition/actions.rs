// SPDX-License-Identifier: GPL-2.0-only

//! Execution of the actions that the order table of a partition requires for blocked requests.
//!
//! ```text
//!              no predecessors                      dispatched
//!   arrived ─────────────────────▶ queued in a head ─────────▶ running ──▶ ended
//!      │                             ▲    │    ▲                             │
//!      │ predecessors in flight      │    └────┘ Move: to the other head     │
//!      ▼                             │                                       │
//!   blocked ─────────────────────────┴── Release ◀───────────────────────────┘
//! ```
//!
//! A request that must not be throttled, and its predecessors, are dispatched without slots instead
//! of being queued.

use super::{ident::Ident, Env, PartitionMachine, Scheduled};
use crate::sched::{
    attr::{Attrs, Priority},
    head::HeadTicket,
    order::{Forced, OrderAction, OrderOutcome, RecordId, Relation},
    policy::{BypassReason, Part},
};

/// Maximum actions per lock hold.
const STEPS: u32 = 64;

impl<I: Scheduled, P: Part<I>, T> PartitionMachine<I, P, T> {
    /// Enters a request into the order table and searches its predecessors. Out of line, because
    /// most requests have no predecessors.
    #[inline(never)]
    pub(super) fn enter(&mut self, relation: &Relation, priority: Priority) -> OrderOutcome {
        self.order.enter(*relation, priority == Priority::High)
    }

    /// Records that the request of record `id` is dispatched and no longer queued.
    pub(super) fn go(&mut self, id: RecordId, item: &mut I) {
        if let Some(handle) = self.order.running(id) {
            item.unregister(handle);
        }
    }

    /// Queues a request in its head; returns true if the part needs memory. Returns the request as
    /// the error if the head refuses it.
    pub(super) fn queue(
        &mut self,
        mut item: I,
        record: Option<RecordId>,
        ident: Option<&Ident>,
        attrs: &impl Fn() -> Attrs,
        now: u64,
    ) -> Result<bool, I> {
        let priority = item.placement().priority;
        let handle = record.map(|id| (id, item.register()));
        let (queued, needs_memory) =
            match self.head_cache(priority).enqueue(item, ident, attrs, now) {
                Ok((ticket, needs_memory)) => (Ok(ticket), needs_memory),
                Err(item) => (Err(item), false),
            };
        self.record_queued(handle, queued, priority, now, attrs)?;
        Ok(needs_memory)
    }

    /// Records the ticket of a request that is `queued`, and its handle for removal. Returns the
    /// request as the error if the head refused it.
    fn record_queued(
        &mut self,
        handle: Option<(RecordId, I::Handle)>,
        queued: Result<HeadTicket, I>,
        priority: Priority,
        now: u64,
        attrs: &impl Fn() -> Attrs,
    ) -> Result<(), I> {
        match (queued, handle) {
            (Ok(ticket), Some((id, handle))) => {
                self.order.queued(id, handle, ticket, priority, attrs);
            }
            (Ok(_), None) => {}
            (Err(mut item), handle) => {
                if let Some((_, handle)) = handle {
                    item.unregister(handle);
                }
                return Err(item);
            }
        }
        if self.queued() == 1 {
            self.moved = now;
            if !self.stalled {
                self.progress = now;
            }
        }
        Ok(())
    }

    /// Executes up to [`STEPS`] actions of the order table; returns true if there were any.
    #[inline]
    pub(super) fn run_actions(&mut self, env: &mut impl Env<I, T>, now: u64) -> bool {
        self.order.is_busy() && self.settle_busy(env, now)
    }

    #[inline(never)]
    fn settle_busy(&mut self, env: &mut impl Env<I, T>, now: u64) -> bool {
        for _ in 0..STEPS {
            let Some(act) = self.order.next() else {
                break;
            };
            self.carry_out(env, act, now);
        }
        true
    }

    /// Executes up to [`STEPS`] actions of the order table and updates the mark; returns true if
    /// actions are left.
    pub fn run_some_actions(&mut self, env: &mut impl Env<I, T>, now: u64) -> bool {
        if self.run_actions(env, now) {
            self.publish_mark(env, now);
        }
        self.order.is_busy()
    }

    fn carry_out(&mut self, env: &mut impl Env<I, T>, act: OrderAction<I>, now: u64) {
        match act {
            OrderAction::Again => {}
            OrderAction::Release {
                id,
                mut item,
                attrs,
                priority,
                forced,
            } => {
                let placement = item.placement_mut();
                // A ticket of the other head is not valid here.
                let kept = placement
                    .ticket
                    .take()
                    .filter(|_| placement.priority == priority);
                placement.priority = priority;
                placement.record = Some(id);
                if forced == Forced::No {
                    return self.release(env, item, attrs, kept, now);
                }
                let way = BypassReason::Forced {
                    contended: !env.slot_pool().is_uncontended(),
                };
                let head_cache = self.head_cache(priority);
                // The policy cannot refuse.
                let _ = match (attrs, kept) {
                    (None, Some(ticket)) => head_cache.head.pass(&ticket, item.cost(), way, || now),
                    (attrs, _) => {
                        let (attrs, cost) = (attrs.unwrap_or(Attrs::UNKNOWN), item.cost());
                        head_cache
                            .classify_and_pass(None, &attrs, cost, way, || now)
                            .0
                    }
                };
                self.send(env, item, forced);
            }
            OrderAction::Move {
                id,
                handle,
                ticket,
                attrs,
            } => {
                let attrs = || attrs.unwrap_or(Attrs::UNKNOWN);
                match self.regular.dequeue(&ticket, &handle, now) {
                    Some(mut item) => {
                        item.unregister(handle);
                        item.placement_mut().priority = Priority::High;
                        self.release(env, item, Some(attrs()), None, now);
                    }
                    None => {
                        bug!();
                        self.order
                            .queued(id, handle, ticket, Priority::Regular, attrs);
                    }
                }
            }
            OrderAction::Force {
                id,
                handle,
                ticket,
                priority,
                forced,
            } => match self.head_cache(priority).dequeue(&ticket, &handle, now) {
                Some(mut item) => {
                    item.unregister(handle);
                    self.send(env, item, forced);
                }
                None => {
                    bug!();
                    // The attributes are known already.
                    self.order
                        .queued(id, handle, ticket, priority, || Attrs::UNKNOWN);
                }
            },
        }
    }

    /// Queues a request whose predecessors have ended; `kept` is its ticket if its attributes are
    /// unknown.
    fn release(
        &mut self,
        env: &mut impl Env<I, T>,
        mut item: I,
        attrs: Option<Attrs>,
        kept: Option<HeadTicket>,
        now: u64,
    ) {
        let attrs = || attrs.unwrap_or(Attrs::UNKNOWN);
        let (priority, record) = (item.placement().priority, item.placement().record);
        env.note_queued(&item);
        let head_cache = self.head_cache(priority);
        let queued = match kept.filter(|ticket| head_cache.head.is_live(ticket)) {
            Some(ticket) => {
                let handle = record.map(|id| (id, item.register()));
                let ticket = head_cache.enqueue_as(item, ticket, &attrs, now);
                self.record_queued(handle, ticket, priority, now, &attrs)
            }
            None => self.queue(item, record, None, &attrs, now).map(drop),
        };
        if let Err(item) = queued {
            // Heads never refuse; if one does, the request is dispatched.
            bug!();
            self.send(env, item, Forced::AtOnce);
        }
    }

    /// Submits a request without a slot, immediately or through [`Env::bypass`] as `forced`
    /// requires.
    fn send(&mut self, env: &mut impl Env<I, T>, mut item: I, forced: Forced) {
        if let Some(id) = item.placement().record {
            self.go(id, &mut item);
        }
        if env.is_traced() {
            env.trace_dispatch(&mut item, None, env.now(), true, false);
        }
        if forced == Forced::AtOnce {
            item.placement_mut().admission = env.admit_over();
            env.send(item);
        } else {
            env.bypass(item);
        }
    }
}
