// SPDX-License-Identifier: GPL-2.0-only

//! What the order table of a partition says is done.
//!
//! ```text
//!              nothing before it                     decided
//!   arrived ─────────────────────▶ queued in a head ─────────▶ running ──▶ ended
//!      │                             ▲    │    ▲                             │
//!      │ others have to end first    │    └────┘ Move: to the other head     │
//!      ▼                             │                                       │
//!   blocked ─────────────────────────┴── Release ◀───────────────────────────┘
//! ```
//!
//! What must not be withheld, and what it waits for, goes down without a slot instead of being queued.

use kernel::prelude::*;

use super::{watch::By, Inner, Partition};
use crate::{
    core::target::Kick,
    sched::{
        attr::{Attrs, Priority},
        head::Ticket,
        item::Item,
        order::{Act, Entered, Forced, Order, RecordId, Relation},
        policy::Way,
    },
    sys::{
        misc,
        node::{Held, Place},
        timer::Timed,
        trace,
    },
};

use super::lane::Ident;

/// Steps in one lock hold, at most.
const STEPS: u32 = 64;

/// An order table with room for `records`.
///
/// # Errors
///
/// `ENOMEM`.
#[inline(never)]
pub(super) fn table(records: u32) -> Result<KBox<Order<Held>>> {
    let order = Order::new(records, misc::random()).map_err(|_| ENOMEM)?;
    Ok(KBox::new(order, GFP_KERNEL)?)
}

impl Inner {
    /// Looks for what has to end before a request; out of the way of those that come after nothing.
    #[inline(never)]
    pub(super) fn enter(&mut self, relation: &Relation, priority: Priority) -> Entered {
        self.order.enter(*relation, priority == Priority::High)
    }

    /// The request of record `id` is decided, or goes down at once: nobody looks for it in a queue any more.
    pub(super) fn go(&mut self, id: RecordId, held: &mut Held) {
        if let Some(place) = self.order.running(id) {
            held.unregister(place);
        }
    }

    /// Queues a request on its head; whether a part wants memory now.
    ///
    /// # Errors
    ///
    /// Hands the request back if the head does.
    pub(super) fn queue(
        &mut self,
        mut held: Held,
        record: Option<RecordId>,
        ident: Option<&Ident>,
        attrs: &impl Fn() -> Attrs,
        now: u64,
    ) -> Result<bool, Held> {
        let priority = held.account().priority;
        let place = record.map(|id| (id, held.register()));
        match self.lane(priority).enqueue(held, ident, attrs, now) {
            Ok((ticket, hungry)) => {
                self.queued_as(place, ticket, priority, now, attrs);
                Ok(hungry)
            }
            Err(mut held) => {
                if let Some((_, place)) = place {
                    held.unregister(place);
                }
                Err(held)
            }
        }
    }

    /// Notes where a request is queued.
    fn queued_as(
        &mut self,
        place: Option<(RecordId, Place)>,
        ticket: Ticket,
        priority: Priority,
        now: u64,
        attrs: &impl Fn() -> Attrs,
    ) {
        if let Some((id, place)) = place {
            self.order.queued(id, place, ticket, priority, attrs);
        }
        if self.queued() == 1 {
            self.moved = now;
            if !self.stalled {
                self.progress = now;
            }
        }
    }
}

impl Timed<Partition> {
    /// Brings the order table the memory that it wants; whether it wanted some. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn feed_order(&self) -> Result<bool> {
        let need = self.with(|inner| inner.order.need());
        if need.is_empty() {
            return Ok(false);
        }
        let spare = need.allocate().map_err(|_| ENOMEM)?;
        drop(self.with(|inner| inner.order.grow(spare)));
        Ok(true)
    }

    /// Does what the order table has to have done, at most [`STEPS`]; whether there was something.
    pub(super) fn settle(&self, inner: &mut Inner, now: u64, kick: &mut Kick) -> bool {
        if !inner.order.is_busy() {
            return false;
        }
        for _ in 0..STEPS {
            let Some(act) = inner.order.next() else {
                break;
            };
            self.carry_out(inner, act, now, kick);
        }
        true
    }

    /// Does all that the order table has to have done, letting go of the lock in between. May sleep.
    pub(crate) fn settle_all(&self) {
        let mut busy = true;
        while busy {
            let now = misc::now();
            let mut kick = Kick::none();
            {
                let mut inner = self.inner.lock();
                if self.settle(&mut inner, now, &mut kick) {
                    self.tell(&mut inner, now);
                }
                busy = inner.order.is_busy();
            }
            self.target.kick(kick);
            misc::cond_resched();
        }
    }

    fn carry_out(&self, inner: &mut Inner, act: Act<Held>, now: u64, kick: &mut Kick) {
        match act {
            Act::Again => {}
            Act::Release {
                id,
                mut item,
                attrs,
                priority,
                forced,
            } => {
                let kept = item.account_mut().ticket.take();
                item.account_mut().priority = priority;
                item.account_mut().record = Some(id);
                if forced != Forced::No {
                    let lane = inner.lane(priority);
                    // That it goes is not up to its policy.
                    let _ = match (attrs, kept) {
                        (None, Some(ticket)) => {
                            lane.head.pass(&ticket, item.cost(), Way::Forced, || now)
                        }
                        (attrs, _) => {
                            let attrs = attrs.unwrap_or(Attrs::UNKNOWN);
                            lane.pass_anew(None, &attrs, item.cost(), Way::Forced).0
                        }
                    };
                    self.send(inner, id, item, forced, kick);
                } else {
                    self.release(inner, id, item, attrs, kept, now, kick);
                }
            }
            Act::Move {
                id,
                place,
                ticket,
                attrs,
            } => {
                let attrs = || attrs.unwrap_or(Attrs::UNKNOWN);
                match inner.regular.dequeue(&ticket, &place, now) {
                    Some(mut held) => {
                        held.unregister(place);
                        held.account_mut().priority = Priority::High;
                        self.release(inner, id, held, Some(attrs()), None, now, kick);
                    }
                    None => {
                        inner
                            .order
                            .queued(id, place, ticket, Priority::Regular, attrs);
                    }
                }
            }
            Act::Force {
                id,
                place,
                ticket,
                priority,
                forced,
            } => match inner.lane(priority).dequeue(&ticket, &place, now) {
                Some(mut held) => {
                    held.unregister(place);
                    self.send(inner, id, held, forced, kick);
                }
                None => {
                    // What it was queued with is known already.
                    inner
                        .order
                        .queued(id, place, ticket, priority, || Attrs::UNKNOWN);
                }
            },
        }
    }

    /// Queues a request that nothing has to end for any more; `kept` is its ticket if its attributes are not
    /// known.
    #[allow(
        clippy::too_many_arguments,
        reason = "all there is to know of a request"
    )]
    fn release(
        &self,
        inner: &mut Inner,
        id: RecordId,
        mut held: Held,
        attrs: Option<Attrs>,
        kept: Option<Ticket>,
        now: u64,
        kick: &mut Kick,
    ) {
        let attrs = || attrs.unwrap_or(Attrs::UNKNOWN);
        let priority = held.account().priority;
        let lane = inner.lane(priority);
        let queued = match kept.filter(|ticket| lane.head.is_live(ticket)) {
            Some(ticket) => {
                let place = held.register();
                match lane.enqueue_as(held, ticket, &attrs, now) {
                    Ok(ticket) => {
                        inner.queued_as(Some((id, place)), ticket, priority, now, &attrs);
                        Ok(())
                    }
                    Err(mut held) => {
                        held.unregister(place);
                        Err(held)
                    }
                }
            }
            None => inner.queue(held, Some(id), None, &attrs, now).map(drop),
        };
        if let Err(held) = queued {
            // Heads take everything; should one not, the request goes down.
            self.send(inner, id, held, Forced::AtOnce, kick);
        }
    }

    /// Sends a request down without a slot, as it is `forced`.
    fn send(
        &self,
        inner: &mut Inner,
        id: RecordId,
        mut held: Held,
        forced: Forced,
        kick: &mut Kick,
    ) {
        inner.go(id, &mut held);
        if trace::follows() {
            let now = misc::now();
            self.watch_dispatch(inner, &mut held, now, By::Nobody, true, false);
        }
        kick.add(match forced {
            Forced::AtOnce => self.target.send(held, self.target.admit_any()),
            _ => self.target.bypass(held),
        });
    }
}
