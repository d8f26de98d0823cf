// SPDX-License-Identifier: GPL-2.0-only

//! Dispatch decisions of a partition.
//!
//! The only ready partition, or a partition whose timer has expired, takes the free slots. A
//! request that arrives meanwhile may find no slot although the partition has nothing eligible. It
//! may also find only the reserved slot, which is lent when the timer expires. [`super::round`]
//! handles both cases.

use super::{earlier, Admission, Env, PartitionMachine, Placement, Scheduled, BATCH};
use crate::sched::{
    attr::Priority,
    item::Cost,
    order::Order,
    policy::{Decision, FreeSlots, Part, PartView},
    slots::SlotLimits,
    units::NSEC_PER_MSEC,
};

/// Minimum time between two expiries of the timer of a partition, ns.
const PAUSE: u64 = 20_000;

/// Result of a dispatch attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decided {
    /// Dispatched requests.
    pub count: u32,
    /// True if a slot was taken and returned: another CPU may have missed it.
    pub vain: bool,
    /// True if one more request could be dispatched.
    pub more: bool,
}

/// Dispatch mode of a queued request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// With a slot.
    Slot,
    /// Without a slot, if its policy considers the request eligible.
    Over,
    /// Without a slot, eligible or not.
    Forced,
}

impl<I: Scheduled, P: Part<I>, T> PartitionMachine<I, P, T> {
    /// Counts the end of a request that was queued or recorded in this partition and dispatches up
    /// to `most` requests; `None`: others are asked first. Returns true if
    /// [`Self::run_some_actions`] has more to do.
    #[inline]
    pub fn end(
        &mut self,
        env: &mut impl Env<I, T>,
        now: u64,
        placement: &Placement,
        cost: Cost,
        most: Option<u32>,
    ) -> bool {
        self.count_end(placement, cost, now);
        if placement.refused {
            // Throttled requests may be eligible now.
            self.publish_mark(env, now);
        }
        match most {
            Some(most) => _ = self.decide_more(env, now, most),
            None => self.run_actions_only(env, now),
        }
        self.order.is_busy()
    }

    /// Applies `change` to the order table and executes the resulting actions. Returns true if
    /// [`Self::run_some_actions`] has more to do.
    pub fn reorder(
        &mut self,
        env: &mut impl Env<I, T>,
        now: u64,
        change: impl FnOnce(&mut Order<I>),
    ) -> bool {
        change(&mut self.order);
        self.run_actions_only(env, now);
        self.order.is_busy()
    }

    /// Executes actions of the order table, and dispatches nothing else.
    fn run_actions_only(&mut self, env: &mut impl Env<I, T>, now: u64) {
        if self.run_actions(env, now) || self.may_hold {
            self.publish_mark(env, now);
        }
    }

    /// Dispatches requests that became eligible when the timer expired.
    pub fn expired(&mut self, env: &mut impl Env<I, T>, now: u64) {
        self.armed = 0;
        env.slot_pool().clear_reserve_timer(env.index());
        self.decide_batch(env, now);
    }

    /// Executes actions of the order table, then dispatches up to `most` requests while slots are
    /// free.
    #[inline]
    pub fn decide_more(&mut self, env: &mut impl Env<I, T>, now: u64, most: u32) -> Decided {
        self.run_actions(env, now);
        // Throttled requests may be eligible by now: the mark is published before slots are
        // searched for.
        self.publish_mark(env, now);
        self.pump(env, now, most)
    }

    /// Executes actions of the order table, then dispatches as many requests as an event does.
    pub fn decide_batch(&mut self, env: &mut impl Env<I, T>, now: u64) {
        self.run_actions(env, now);
        self.publish_mark(env, now);
        if let Some(most) = env.batch() {
            self.pump(env, now, most);
        }
    }

    /// Dispatches up to `most` requests while slots are free, because the target asks for them.
    #[inline]
    pub fn pull(&mut self, env: &mut impl Env<I, T>, now: u64, most: u32) -> Decided {
        self.run_actions(env, now);
        self.pump(env, now, most)
    }

    /// Dispatches a batch without slots if requests have been eligible for `stall`, ns, in which
    /// none was dispatched. Returns true if so. Throttled requests stay queued.
    pub fn unstall(&mut self, env: &mut impl Env<I, T>, now: u64, stall: u64) -> bool {
        let moved = self.moved;
        let since = self.eligible_since(now, moved);
        if since.is_none_or(|since| now.saturating_sub(since) < stall) {
            return false;
        }
        // The head may be throttled after all.
        let stalled = self.dispatch_without_slots(env, now, BATCH, Leave::Over);
        if stalled {
            // Forced dispatches do not count as progress.
            self.moved = moved;
            self.stalled = true;
        }
        stalled
    }

    /// Dispatches up to `most` requests in mode `leave`; returns true if any was dispatched.
    pub fn dispatch_without_slots(
        &mut self,
        env: &mut impl Env<I, T>,
        now: u64,
        most: u32,
        leave: Leave,
    ) -> bool {
        let mut any = false;
        for _ in 0..most {
            if !self.decide(env, Priority::High, now, leave)
                && !self.decide(env, Priority::Regular, now, leave)
            {
                break;
            }
            any = true;
        }
        self.publish_mark(env, now);
        any
    }

    /// Dispatches up to `most` requests while slots are free. The mark must be up to date.
    #[inline]
    pub(super) fn pump(&mut self, env: &mut impl Env<I, T>, now: u64, most: u32) -> Decided {
        if self.may_hold {
            self.pump_and_hold(env, now, most)
        } else {
            self.pump_as::<false>(env, now, most)
        }
    }

    /// Dispatches as [`Self::pump`] does, except to slots that are kept free.
    #[inline(never)]
    fn pump_and_hold(&mut self, env: &mut impl Env<I, T>, now: u64, most: u32) -> Decided {
        let decided = self.pump_as::<true>(env, now, most);
        // Another partition may use a slot that was kept free.
        let is_released = core::mem::take(&mut self.is_released);
        Decided {
            vain: decided.vain || (is_released && env.slot_pool().has_several_partitions()),
            ..decided
        }
    }

    /// Dispatches as [`Self::pump`] does; `HOLDS` is true if slots may be kept free.
    #[inline(always)]
    fn pump_as<const HOLDS: bool>(
        &mut self,
        env: &mut impl Env<I, T>,
        now: u64,
        most: u32,
    ) -> Decided {
        let mut decided = Decided::default();
        let (mut lent, mut asked) = (None, false);
        let mut pending = self.pending(now);
        if HOLDS && !pending.regular {
            self.update_held(env, now);
        }
        loop {
            if HOLDS && pending.regular && !self.update_held(env, now) {
                pending = pending.without(Priority::Regular);
            }
            let limits = if HOLDS {
                self.own_limits(env)
            } else {
                env.limits()
            };
            let first = self.turn.first(pending, env.slot_pool().pool(), &limits);
            if first.is_some() && decided.count >= most {
                decided.more = true;
                env.record_more();
                break;
            }
            // Another partition may have taken the slot meanwhile, so that only the reserved slot
            // is left.
            let Some(priority) = first.filter(|first| env.slot_pool().take(*first, &limits)) else {
                if pending.regular && limits.high_priority {
                    lent = env.slot_pool().reserve_expiry_ms(&limits);
                }
                break;
            };
            asked = true;
            if self.decide(env, priority, now, Leave::Slot) {
                self.turn.served(priority);
                decided.count = decided.count.wrapping_add(1);
                if !self.head_cache(priority).has_work(now) {
                    pending = pending.without(priority);
                }
            } else {
                env.slot_pool().put(priority);
                decided.vain = env.slot_pool().has_several_partitions();
                pending = pending.without(priority);
            }
        }
        if asked {
            self.publish_mark(env, now);
        }
        // Earliest expiry of a throttled head, or the time at which the reserved slot is lent. A
        // head that is not throttled waits for a slot.
        let lent = lent.map(|at| {
            env.slot_pool().set_reserve_timer(env.index());
            let wait = at.saturating_sub(env.millis()).saturating_add(1);
            now.saturating_add(wait.saturating_mul(NSEC_PER_MSEC))
        });
        let until = earlier(self.next_expiry(now), lent);
        self.set_timer(env, now, until);
        decided
    }

    /// Arms the timer for `until`, ns, unless it expires earlier.
    #[inline]
    fn set_timer(&mut self, env: &mut impl Env<I, T>, now: u64, until: Option<u64>) {
        let Some(until) = until else {
            return;
        };
        let until = until.max(now.saturating_add(PAUSE));
        // A timer that expires early enough is kept.
        if self.armed < now || self.armed > until {
            self.armed = until;
            env.arm(until);
        }
    }

    /// Returns the limits of the slots for this partition, which may take those that it keeps free.
    fn own_limits(&self, env: &impl Env<I, T>) -> SlotLimits {
        let limits = env.limits();
        let slots = limits.slots.saturating_add(self.held);
        SlotLimits {
            slots: slots.min(limits.all),
            ..limits
        }
    }

    /// Asks the regular head which slots to keep free, keeps them from other partitions, and arms
    /// the timer for the time at which they may be used. Returns false if regular requests may take
    /// none of the free slots because of that.
    #[inline(never)]
    pub(super) fn update_held(&mut self, env: &mut impl Env<I, T>, now: u64) -> bool {
        let slot_pool = env.slot_pool();
        let slots = FreeSlots {
            slots: slot_pool.slots(),
            free: slot_pool.pool().free(&self.own_limits(env)),
            is_shared: slot_pool.other_ready(env.index()),
        };
        let hold = self.regular.head.hold(&slots, now);
        let is_watching = hold.is_some();
        let hold = hold.unwrap_or_default();
        self.is_released |= hold.slots < self.held;
        self.may_hold = is_watching || self.is_released;
        if slot_pool.has_several_partitions() && hold.slots != self.held {
            slot_pool.change_held(self.held, hold.slots);
        }
        self.held = hold.slots;
        if hold.slots > 0 {
            self.set_timer(env, now, Some(hold.until));
        }
        hold.slots == 0 || hold.slots < slots.free
    }

    /// Dispatches one request from the head of `priority`; returns true if the head had an eligible
    /// one. With [`Leave::Slot`] the caller has taken the slot that the request keeps.
    fn decide(
        &mut self,
        env: &mut impl Env<I, T>,
        priority: Priority,
        now: u64,
        leave: Leave,
    ) -> bool {
        let slot = leave == Leave::Slot;
        let (head_cache, other) = match priority {
            Priority::Regular => (&mut self.regular, &self.high),
            Priority::High => (&mut self.high, &self.regular),
        };
        let found = env.with_table(priority, |table| {
            let view = PartView {
                now,
                force: leave == Leave::Forced,
                table,
            };
            let contended = || other.has_work(now) || env.slot_pool().other_ready(env.index());
            head_cache.head.get(&view, contended)
        });
        let (mut item, ticket) = match found {
            Decision::Item(found) => found,
            Decision::Empty => return false,
            Decision::Throttled { until } => {
                head_cache.until = until;
                let queued = head_cache.head.queued();
                env.trace_throttle(priority, || self.tag(priority, None), now, until, queued);
                return false;
            }
        };
        head_cache.until = 0;
        self.moved = now;
        if slot {
            self.progressed(now);
        }
        if let Some(id) = item.placement().record {
            self.go(id, &mut item);
        }
        if slot && env.slot_pool().has_several_partitions() {
            let charged = match ticket.grant().charged {
                0 => item.cost().pages,
                charged => charged,
            };
            env.slot_pool().charge(env.index(), charged);
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
