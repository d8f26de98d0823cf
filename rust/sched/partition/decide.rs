// SPDX-License-Identifier: GPL-2.0-only

//! Which request of a partition is dispatched next, and when.
//!
//! A partition that is ready alone, or whose timer has expired, takes the slots that are free. A
//! request that arrives meanwhile may see no slot though the partition has nothing eligible after
//! all, or see only the slot that is kept and is lent when the timer expires: what the owner does
//! then is in [`super::round`].

use super::{earlier, Admission, Env, Machine, Placement, Scheduled, BATCH};
use crate::sched::{
    attr::Priority,
    item::Cost,
    order::Order,
    policy::{Get, Part, View},
    units::NSEC_PER_MSEC,
};

/// Time between two expiries of the timer of a partition, at least, ns.
const PAUSE: u64 = 20_000;

/// What a partition did with the slots that were free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decided {
    /// Requests that were dispatched.
    pub count: u32,
    /// A slot was taken and given back: who looked for one meanwhile may have seen none.
    pub vain: bool,
}

/// How a request leaves its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// With a slot.
    Slot,
    /// Without a slot, if its policy finds it eligible.
    Over,
    /// Without a slot, eligible or not.
    Forced,
}

impl<I: Scheduled, P: Part<I>, T> Machine<I, P, T> {
    /// Counts the end of a request that was queued or recorded here and dispatches up to `most`;
    /// returns whether [`Self::settle_some`] has something left.
    #[inline]
    pub fn end(
        &mut self,
        env: &mut impl Env<I, T>,
        now: u64,
        placement: &Placement,
        cost: Cost,
        most: u32,
    ) -> bool {
        self.count_end(placement, cost, now);
        self.decide_more(env, now, most);
        self.order.is_busy()
    }

    /// Makes a change in the order table, and carries out what follows; returns like [`Self::end`].
    pub fn reorder(
        &mut self,
        env: &mut impl Env<I, T>,
        now: u64,
        change: impl FnOnce(&mut Order<I>),
    ) -> bool {
        change(&mut self.order);
        self.decide_more(env, now, 0);
        self.order.is_busy()
    }

    /// Dispatches what is eligible again, as the timer has expired.
    pub fn expired(&mut self, env: &mut impl Env<I, T>, now: u64) {
        self.armed = 0;
        env.line().stop_lending(env.index());
        self.decide_more(env, now, BATCH);
    }

    /// Dispatches up to `most` requests while slots are free.
    #[inline]
    pub fn decide_more(&mut self, env: &mut impl Env<I, T>, now: u64, most: u32) -> Decided {
        let settled = self.settle(env, now);
        if most == 0 {
            if settled {
                self.tell(env, now);
            }
            return Decided::default();
        }
        // What was throttled may be eligible by now: others learn of it before slots are looked
        // for.
        self.tell(env, now);
        self.pump(env, now, most)
    }

    /// Dispatches a batch without slots if eligible requests have been queued for `stall`, ns,
    /// without a dispatch; returns whether they have. Requests that are throttled stay.
    pub fn unstall(&mut self, env: &mut impl Env<I, T>, now: u64, stall: u64) -> bool {
        let stalled = !self.pending(now).is_none() && now.saturating_sub(self.moved) >= stall;
        if stalled {
            let moved = self.moved;
            self.send_down(env, now, BATCH, Leave::Over);
            // Nothing moved by itself.
            self.moved = moved;
            self.stalled = true;
        }
        stalled
    }

    /// Dispatches up to `most` requests, with `leave`.
    pub fn send_down(&mut self, env: &mut impl Env<I, T>, now: u64, most: u32, leave: Leave) {
        for _ in 0..most {
            if !self.decide(env, Priority::High, now, leave)
                && !self.decide(env, Priority::Regular, now, leave)
            {
                break;
            }
        }
        self.tell(env, now);
    }

    /// Dispatches up to `most` requests while slots are free. The mark says what there is.
    pub(super) fn pump(&mut self, env: &mut impl Env<I, T>, now: u64, most: u32) -> Decided {
        let mut decided = Decided::default();
        let (mut lent, mut asked) = (None, false);
        let mut pending = self.pending(now);
        while decided.count < most {
            let limits = env.limits();
            let first = self.turn.first(pending, env.line().pool(), &limits);
            // Another partition may have taken the slot meanwhile, so that only the kept one is left.
            let Some(priority) = first.filter(|first| env.line().take(*first, &limits)) else {
                if pending.regular && limits.high_priority {
                    lent = env.line().lent_at(&limits);
                }
                break;
            };
            asked = true;
            if self.decide(env, priority, now, Leave::Slot) {
                self.turn.served(priority);
                decided.count = decided.count.wrapping_add(1);
                if !self.lane(priority).has_work(now) {
                    pending = pending.without(priority);
                }
            } else {
                env.line().put(priority);
                decided.vain = env.line().has_turns();
                pending = pending.without(priority);
            }
        }
        if asked {
            self.tell(env, now);
        }
        // The head that is throttled for the shorter time; a head that is not waits for a slot, or
        // for the kept one.
        let lent = lent.map(|at| {
            env.line().lend(env.index());
            let wait = at.saturating_sub(env.millis()).saturating_add(1);
            now.saturating_add(wait.saturating_mul(NSEC_PER_MSEC))
        });
        if let Some(until) = earlier(self.next_expiry(now), lent) {
            let until = until.max(now.saturating_add(PAUSE));
            // A timer that expires soon enough serves.
            if self.armed < now || self.armed > until {
                self.armed = until;
                env.arm(until);
            }
        }
        decided
    }

    /// Takes one request out of the head of `priority` and sends it. With [`Leave::Slot`] the
    /// caller has taken a slot for it, which the request keeps.
    fn decide(
        &mut self,
        env: &mut impl Env<I, T>,
        priority: Priority,
        now: u64,
        leave: Leave,
    ) -> bool {
        let slot = leave == Leave::Slot;
        let (lane, other) = match priority {
            Priority::Regular => (&mut self.regular, &self.high),
            Priority::High => (&mut self.high, &self.regular),
        };
        let found = env.with_table(priority, |table| {
            let view = View {
                now,
                force: leave == Leave::Forced,
                table,
            };
            let contended = || other.has_work(now) || env.line().others_ready(env.index());
            lane.head.get(&view, contended)
        });
        let (mut item, ticket) = match found {
            Get::Item(found) => found,
            Get::Empty => return false,
            Get::Throttled { until } => {
                lane.until = until;
                let queued = lane.head.queued();
                env.trace_throttle(priority, || self.tag(priority, None), now, until, queued);
                return false;
            }
        };
        lane.until = 0;
        self.moved = now;
        if slot {
            self.progressed(now);
        }
        if let Some(id) = item.placement().record {
            self.go(id, &mut item);
        }
        if slot && env.line().has_turns() {
            let charged = match ticket.grant().charged {
                0 => item.cost().pages,
                charged => charged,
            };
            env.line().charge(env.index(), charged);
        }
        item.placement_mut().ticket = Some(ticket);
        item.note_wait(now);
        if env.is_traced() {
            let tag = self.tag(priority, Some(ticket.instance()));
            env.trace_dispatch(&mut item, tag, now, true, slot);
        }
        item.placement_mut().admission = if slot {
            Admission::Slot
        } else {
            env.admit_over()
        };
        env.send(item);
        true
    }
}
