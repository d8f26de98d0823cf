// SPDX-License-Identifier: GPL-2.0-only

//! How requests come in.
//!
//! ```text
//!              something has to end first
//!   arrived ───┬──────────────────────────▶ blocked ([`super::order`])
//!              │  must pass, or may pass and nobody waits
//!              ├──────────────────────────▶ passed: goes down at once; if too many that must are at the device
//!              │                            already, by its turn among those
//!              └──────────────────────────▶ queued in a head
//! ```

use kernel::sync::lock::{Backend, Guard};

use super::{watch::By, Inner, Partition};
use crate::{
    core::{
        service::Arrival,
        target::{Kick, BATCH},
    },
    sched::{
        attr::{Attrs, Priority},
        item::Item,
        order::{Entered, Forced, RecordId, Relation},
        policy::{Passed, Way},
    },
    sys::{
        misc,
        node::{Admission, Held},
        timer::Timed,
        trace,
    },
};

/// Where a request that arrived is.
pub(crate) enum Went {
    /// It goes down at once.
    Passed(Held),
    /// It is queued.
    Queued,
    /// It waits for the end of others, or for a record.
    Blocked,
    /// There is no record by which its order could be kept.
    Refused(Held),
}

/// What [`Timed::arrive`] answers.
pub(crate) struct Arrived {
    /// Where the request is.
    pub(crate) went: Went,
    /// Its record in the order table.
    pub(crate) record: Option<RecordId>,
    /// What the target got.
    pub(crate) kick: Kick,
    /// A part wants memory for new classes.
    pub(crate) hungry: bool,
    /// Others may have what is free: it is their turn, or a slot was taken and given back.
    pub(crate) others: bool,
}

impl Arrived {
    /// It went somewhere, and nothing else happened.
    const fn just(went: Went, record: Option<RecordId>) -> Self {
        Self {
            went,
            record,
            kick: Kick::none(),
            hungry: false,
            others: false,
        }
    }
}

impl Timed<Partition> {
    /// Takes a request: it goes down at once if it must, or if it may and nobody waits; else it is
    /// queued.
    pub(crate) fn arrive(
        &self,
        mut held: Held,
        arrival: &Arrival<'_>,
        attrs: &impl Fn() -> Attrs,
    ) -> Arrived {
        let cost = held.cost();
        let priority = held.account().priority;
        held.account_mut().home = self.home();

        let mut inner = self.inner.lock();
        // Read under the lock: whoever drains has set it before it took the lock.
        let ident = arrival.ident.as_ref();
        let forced = arrival.must_pass || arrival.is_draining();
        if priority == Priority::High && !forced {
            self.target.note_urgent();
        }
        let mut record = None;
        if let Some(relation) = arrival.relation {
            match inner.enter(relation, priority) {
                Entered::Free(id) => record = Some(id),
                Entered::Blocked(id) => return self.block(inner, held, id, arrival, attrs),
                Entered::Full => match relation {
                    Relation::Free if arrival.may_overflow => {}
                    Relation::Overlap { domain, .. } if arrival.may_overflow => {
                        return self.overflow(inner, held, *domain, arrival, attrs, forced)
                    }
                    _ => return Arrived::just(Went::Refused(held), None),
                },
            }
            held.account_mut().record = record;
        }
        let lane = inner.lane(priority);
        let slot =
            !forced && arrival.may_pass && self.target.is_calm() && self.target.take(priority);
        let mut hungry = false;
        if slot || forced {
            let way = if forced {
                Way::Forced
            } else {
                Way::Opportunity
            };
            let passed;
            (passed, hungry) = lane.pass(ident, attrs, cost, way);
            if forced || passed != Passed::Refused {
                if let Some(id) = record {
                    inner.go(id, &mut held);
                    hungry |= !inner.order.need().is_empty();
                }
                let admission = if slot {
                    Some(Admission::Slot)
                } else if arrival.is_draining() {
                    Some(self.target.admit_any())
                } else {
                    self.target.admit(arrival.reclaims)
                };
                let mut arrived = if let Some(admission) = admission {
                    held.account_mut().admission = admission;
                    self.watch_passed(&mut inner, &mut held, attrs, slot);
                    Arrived::just(Went::Passed(held), record)
                } else {
                    // No slot: what must not wait takes none from those that may.
                    held.hold(misc::now());
                    arrival.client.count_queued();
                    self.watch_passed(&mut inner, &mut held, attrs, false);
                    Arrived {
                        kick: self.target.bypass(held),
                        ..Arrived::just(Went::Queued, record)
                    }
                };
                drop(inner);
                if forced {
                    arrival.client.count_forced();
                }
                arrived.hungry = hungry;
                return arrived;
            }
            self.target.put(priority);
        }

        let now = misc::now();
        held.hold(now);
        arrival.client.count_queued();
        if trace::follows() {
            self.watch_arrival(&mut inner, &mut held, &attrs(), By::Current, true);
        }
        let mut kick = Kick::none();
        match inner.queue(held, record, ident, attrs, now) {
            Ok(more) => {
                hungry |= more || (record.is_some() && !inner.order.need().is_empty());
            }
            Err(held) => {
                // The fallback takes everything, so this does not happen; should it, the request goes
                // down.
                kernel::warn_on!(true);
                kick.add(self.target.send(held, self.target.admit_any()));
            }
        }
        self.tell(&mut inner, now);
        let mut others = self.target.others_ready(self.cpt);
        if !others {
            others = self.pump(&mut inner, now, BATCH, &mut kick).vain;
        }
        Arrived {
            went: Went::Queued,
            record,
            kick,
            hungry,
            others: others || slot,
        }
    }

    /// Tells tracepoints of a request that does not queue, with its `slot` or without one.
    #[inline]
    fn watch_passed(
        &self,
        inner: &mut Inner,
        held: &mut Held,
        attrs: &impl Fn() -> Attrs,
        slot: bool,
    ) {
        if trace::follows() {
            self.watch_arrival(inner, held, &attrs(), By::Current, false);
            self.watch_dispatch(inner, held, misc::now(), By::Current, false, slot);
        }
    }

    /// Keeps a request until what it waits for has ended.
    #[cold]
    fn block<B: Backend>(
        &self,
        mut inner: Guard<'_, Inner, B>,
        mut held: Held,
        id: RecordId,
        arrival: &Arrival<'_>,
        attrs: &impl Fn() -> Attrs,
    ) -> Arrived {
        let forced = arrival.forced();
        held.account_mut().record = Some(id);
        held.hold(misc::now());
        arrival.client.count_queued();
        if forced != Forced::No {
            arrival.client.count_forced();
        }
        let attrs = attrs();
        if trace::follows() {
            self.watch_arrival(&mut inner, &mut held, &attrs, By::Nobody, true);
        }
        inner.order.block(id, held, attrs, forced);
        self.waits(inner, Some(id))
    }

    /// Keeps a request for which there is no record now, behind all that came before it.
    #[cold]
    fn overflow<B: Backend>(
        &self,
        mut inner: Guard<'_, Inner, B>,
        mut held: Held,
        domain: u64,
        arrival: &Arrival<'_>,
        attrs: &impl Fn() -> Attrs,
        forced: bool,
    ) -> Arrived {
        let priority = held.account().priority;
        let ident = arrival.ident.as_ref();
        let attrs = attrs();
        let (ticket, _) = inner.lane(priority).classify(ident, &attrs);
        // Its attributes are not kept; this is what they came to.
        held.account_mut().ticket = Some(ticket);
        held.hold(misc::now());
        arrival.client.count_queued();
        if forced {
            arrival.client.count_forced();
        }
        if trace::follows() {
            self.watch_arrival(&mut inner, &mut held, &attrs, By::Nobody, true);
        }
        let high = priority == Priority::High;
        inner.order.overflow(held, domain, high, forced);
        self.waits(inner, None)
    }

    /// What is to be said of a request that has to wait; carries out what follows for others.
    fn waits<B: Backend>(
        &self,
        mut inner: Guard<'_, Inner, B>,
        record: Option<RecordId>,
    ) -> Arrived {
        let now = misc::now();
        let mut kick = Kick::none();
        let settled = self.settle(&mut inner, now, &mut kick);
        if settled {
            self.tell(&mut inner, now);
        }
        Arrived {
            kick,
            hungry: !inner.order.need().is_empty() || inner.order.is_busy(),
            // What was moved may be served before what others have.
            others: settled,
            ..Arrived::just(Went::Blocked, record)
        }
    }
}
