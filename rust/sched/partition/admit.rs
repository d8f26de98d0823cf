// SPDX-License-Identifier: GPL-2.0-only

//! Admission of requests.
//!
//! ```text
//!              predecessors have not ended
//!   arrived ───┬──────────────────────────▶ blocked ([`super::actions`])
//!              │  must not be throttled, or a slot is free and no request is queued
//!              ├──────────────────────────▶ passed: dispatched immediately; at the limit of
//!              │                            requests without slots, in turn among these
//!              └──────────────────────────▶ queued in a head
//! ```

use super::{ident::Ident, slot_pool::SlotSearch, Admission, Env, PartitionMachine, Scheduled};
use crate::sched::{
    attr::{Attrs, Priority},
    item::Cost,
    mem::Need,
    order::{Forced, OrderOutcome, RecordId, Relation},
    policy::{BypassOutcome, BypassReason, Part},
};

/// Properties of an arriving request, beside its attributes.
#[derive(Clone, Copy)]
pub struct ArrivalTerms<'a> {
    /// All inputs of classification; `None` if they do not fit, so that each request is classified.
    pub ident: Option<&'a Ident>,
    /// Constraint on throttling and queueing of the request.
    pub forced: Forced,
    /// True if the request may be dispatched immediately while no request is queued.
    pub may_pass: bool,
    /// Ordering constraints; `None` if the request is unordered and needs no record.
    pub relation: Option<&'a Relation>,
    /// True if the request may wait for a free record; otherwise it is refused if there is none.
    pub may_overflow: bool,
}

/// Outcome of admitting a request.
#[derive(Debug, PartialEq, Eq)]
pub enum AdmissionOutcome<I> {
    /// The caller dispatches the request immediately; its admission is stored.
    Passed(I),
    /// The request is queued.
    Queued,
    /// The request waits for the end of predecessors, or for a free record.
    Blocked,
    /// No record is free to order the request.
    Refused(I),
}

/// Consequences of the arrival of a request.
pub struct ArrivalEffects<I> {
    /// Outcome of the request.
    pub went: AdmissionOutcome<I>,
    /// Record in the order table.
    pub record: Option<RecordId>,
    /// True if a part or the order table needs memory, or the order table has more actions.
    pub needs_memory: bool,
    /// True if other partitions may use free slots: it is their turn, or a slot was taken and
    /// returned.
    pub others: bool,
}

impl<I> ArrivalEffects<I> {
    const fn just(went: AdmissionOutcome<I>, record: Option<RecordId>) -> Self {
        Self {
            went,
            record,
            needs_memory: false,
            others: false,
        }
    }
}

impl<I: Scheduled, P: Part<I>, T> PartitionMachine<I, P, T> {
    /// Dispatches an arriving request immediately if it is forced, or if it may pass and no request
    /// is queued; otherwise queues the request. Calls `attrs` unless the cache has the class of the
    /// ident.
    pub fn arrive(
        &mut self,
        env: &mut impl Env<I, T>,
        mut item: I,
        terms: &ArrivalTerms<'_>,
        attrs: &impl Fn() -> Attrs,
    ) -> ArrivalEffects<I> {
        let priority = item.placement().priority;
        let forced = terms.forced != Forced::No;
        if priority == Priority::High && !forced {
            env.slot_pool().note_high_priority(env.millis());
        }
        let mut record = None;
        if let Some(relation) = terms.relation {
            match self.enter(relation, priority) {
                OrderOutcome::Free(id) => record = Some(id),
                OrderOutcome::Blocked(id) => return self.block(env, item, id, terms, attrs),
                OrderOutcome::Full => match relation {
                    Relation::Free if terms.may_overflow => {}
                    Relation::Overlap { domain, .. } if terms.may_overflow => {
                        return self.overflow(env, item, *domain, terms, attrs)
                    }
                    _ => return ArrivalEffects::just(AdmissionOutcome::Refused(item), None),
                },
            }
            item.placement_mut().record = record;
        }
        let mut found = SlotSearch::default();
        if !forced && terms.may_pass && env.slot_pool().is_uncontended() {
            found = env.slot_pool().take_on(env.cpu(), priority, &env.limits());
        }
        let slot = found.slot;
        let mut needs_memory = false;
        if slot || forced {
            let way = if forced {
                BypassReason::Forced {
                    contended: !env.slot_pool().is_uncontended(),
                }
            } else {
                BypassReason::Opportunity
            };
            let (cost, head_cache) = (item.cost(), self.head_cache(priority));
            let passed;
            (passed, needs_memory) = head_cache.pass(terms.ident, attrs, cost, way, || env.now());
            if forced || passed != BypassOutcome::Refused {
                if let Some(id) = record {
                    self.go(id, &mut item);
                    needs_memory |= !self.order.need().is_empty();
                }
                if slot && record.is_none() && priority == Priority::Regular {
                    self.regular.open(env.cpu(), terms.ident);
                }
                let went = self.pass(env, item, slot, attrs);
                return ArrivalEffects {
                    needs_memory,
                    others: found.others || self.held > 0 && self.releases(env),
                    ..ArrivalEffects::just(went, record)
                };
            }
            env.slot_pool().put(priority);
        }

        let now = env.now();
        env.begin_queueing(&mut item, now);
        if env.is_traced() {
            env.trace_arrival(&mut item, self.tag(priority, None), &attrs(), true);
        }
        env.note_queued(&item);
        match self.queue(item, record, terms.ident, attrs, now) {
            Ok(more) => {
                needs_memory |= more || (record.is_some() && !self.order.need().is_empty());
            }
            // The fallback never refuses; if it does, the request is dispatched.
            Err(mut item) => {
                bug!();
                item.placement_mut().admission = env.admit_over();
                env.send(item);
            }
        }
        self.publish_mark(env, now);
        let mut others = env.slot_pool().other_ready(env.index());
        // Nothing can be dispatched before a slot is returned.
        let is_full = env.slot_pool().is_full() && !self.may_hold;
        if !others && !is_full {
            if let Some(most) = env.batch() {
                others = self.pump(env, now, most).vain;
            }
        }
        ArrivalEffects {
            went: AdmissionOutcome::Queued,
            record,
            needs_memory,
            others: others || slot || found.others,
        }
    }

    /// Returns true if a slot that was kept free may be used, because a request passed.
    #[cold]
    fn releases(&mut self, env: &mut impl Env<I, T>) -> bool {
        let now = env.now();
        self.update_held(env, now);
        self.is_released
    }

    /// Charges the class of requests with `attrs` after a merge added `cost` to one of them.
    /// Returns true if the part needs memory.
    #[cfg_attr(
        all(MODULE, not(feature = "elevator")),
        expect(dead_code, reason = "only the I/O scheduler merges")
    )]
    pub fn merge(&mut self, attrs: &Attrs, cost: Cost, now: u64) -> bool {
        let head_cache = self.head_cache(attrs.priority);
        // The policy cannot refuse.
        let way = BypassReason::Merged;
        let (_, needs_memory) = head_cache.classify_and_pass(None, attrs, cost, way, || now);
        needs_memory
    }

    /// Dispatches a request whose class is charged, with a `slot`, or without one if the request is
    /// forced.
    #[inline]
    fn pass(
        &mut self,
        env: &mut impl Env<I, T>,
        mut item: I,
        slot: bool,
        attrs: &impl Fn() -> Attrs,
    ) -> AdmissionOutcome<I> {
        let admission = if slot {
            Some(Admission::Slot)
        } else {
            env.admit()
        };
        if let Some(admission) = admission {
            item.placement_mut().admission = admission;
        } else {
            // No slot is used, so that forced requests take no slots from other requests.
            let now = env.now();
            env.begin_queueing(&mut item, now);
        }
        if env.is_traced() {
            let tag = self.tag(item.placement().priority, None);
            env.trace_arrival(&mut item, tag, &attrs(), false);
            env.trace_dispatch(&mut item, tag, env.now(), false, slot);
        }
        match admission {
            Some(_) => AdmissionOutcome::Passed(item),
            None => {
                env.bypass(item);
                AdmissionOutcome::Queued
            }
        }
    }

    /// Blocks a request until its predecessors have ended.
    #[cold]
    fn block(
        &mut self,
        env: &mut impl Env<I, T>,
        mut item: I,
        id: RecordId,
        terms: &ArrivalTerms<'_>,
        attrs: &impl Fn() -> Attrs,
    ) -> ArrivalEffects<I> {
        item.placement_mut().record = Some(id);
        let attrs = self.keep(env, &mut item, attrs);
        self.order.block(id, item, attrs, terms.forced);
        self.blocked(env, Some(id))
    }

    /// Blocks a request without a free record, behind all earlier requests.
    #[cold]
    fn overflow(
        &mut self,
        env: &mut impl Env<I, T>,
        mut item: I,
        domain: u64,
        terms: &ArrivalTerms<'_>,
        attrs: &impl Fn() -> Attrs,
    ) -> ArrivalEffects<I> {
        let priority = item.placement().priority;
        let attrs = self.keep(env, &mut item, attrs);
        let now = env.now();
        let (ticket, _) = self.head_cache(priority).classify(terms.ident, &attrs, now);
        // The attributes are not stored; the ticket names their class.
        item.placement_mut().ticket = Some(ticket);
        let high = priority == Priority::High;
        self.order.overflow(item, domain, high, terms.forced);
        self.blocked(env, None)
    }

    /// Records the hold of a request that no policy has classified; returns its attributes.
    fn keep(
        &mut self,
        env: &mut impl Env<I, T>,
        item: &mut I,
        attrs: &impl Fn() -> Attrs,
    ) -> Attrs {
        let now = env.now();
        env.begin_queueing(item, now);
        let attrs = attrs();
        if env.is_traced() {
            env.trace_arrival(item, None, &attrs, true);
        }
        attrs
    }

    /// Executes actions of the order table and returns the outcome of a blocked request.
    fn blocked(&mut self, env: &mut impl Env<I, T>, record: Option<RecordId>) -> ArrivalEffects<I> {
        let now = env.now();
        let settled = self.run_actions(env, now);
        if settled {
            self.publish_mark(env, now);
        }
        ArrivalEffects {
            needs_memory: !self.order.need().is_empty() || self.order.is_busy(),
            // Requests that the order table moved or released may be dispatched in a round.
            others: settled,
            ..ArrivalEffects::just(AdmissionOutcome::Blocked, record)
        }
    }
}
