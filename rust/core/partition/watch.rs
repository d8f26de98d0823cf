// SPDX-License-Identifier: GPL-2.0-only

//! What tracepoints are told of a partition, with its lock held.
//!
//! All of it is out of line, and called only while somebody looks.

use super::{Inner, Lane, Partition};
use crate::{
    sched::{
        attr::{Attrs, Priority},
        head::InstanceId,
        item::Item,
        policy::Kind,
    },
    sys::{
        node::Held,
        trace::{self, Life},
    },
};

impl Lane {
    /// Name of the policy that takes new requests.
    fn current(&self) -> &'static str {
        let mut name = Kind::Fifo.name();
        for status in self.head.instances() {
            if status.is_primary() {
                name = status.tag.kind().name();
            }
        }
        name
    }

    /// Name of the policy of instance `id`.
    fn policy_of(&self, id: InstanceId) -> &'static str {
        let mut instances = self.head.instances();
        let found = instances.find(|status| status.id == id);
        found.map_or("", |status| status.tag.kind().name())
    }
}

/// Whose policy it is that an event names.
pub(super) enum By {
    /// That which takes new requests.
    Current,
    /// That of an instance.
    Instance(InstanceId),
    /// Nobody's.
    Nobody,
}

impl Partition {
    fn event_head<'a>(&'a self, inner: &mut Inner, priority: Priority, by: By) -> trace::Head<'a> {
        let lane = inner.lane(priority);
        trace::Head {
            service: self.target.label(),
            policy: match by {
                By::Current => lane.current(),
                By::Instance(id) => lane.policy_of(id),
                By::Nobody => "",
            },
            cpt: self.cpt,
            priority,
        }
    }

    /// A request has arrived; with `queued` it waits, else it goes down at once.
    #[cold]
    #[inline(never)]
    pub(super) fn watch_arrival(
        &self,
        inner: &mut Inner,
        held: &mut Held,
        attrs: &Attrs,
        by: By,
        queued: bool,
    ) {
        let life = Life::begin();
        held.account_mut().life = life;
        let (Some(id), priority) = (life.id(), held.account().priority) else {
            return;
        };
        if trace::enqueue_is_on() {
            trace::enqueue(&trace::Enqueue {
                head: self.event_head(inner, priority, by),
                id,
                attrs,
                bytes: held.cost().bytes,
                offset: held.spot().offset,
                queued,
            });
        }
    }

    /// A request is to be served at `now` (ns); with `queued` it has waited, with `slot` it has a slot.
    #[cold]
    #[inline(never)]
    pub(super) fn watch_dispatch(
        &self,
        inner: &mut Inner,
        held: &mut Held,
        now: u64,
        by: By,
        queued: bool,
        slot: bool,
    ) {
        held.account_mut().life.dispatched(now);
        let account = held.account();
        let Some(id) = account.life.id() else {
            return;
        };
        if trace::dispatch_is_on() {
            trace::dispatch(&trace::Dispatch {
                head: self.event_head(inner, account.priority, by),
                id,
                bytes: held.cost().bytes,
                waited_ns: if queued {
                    now.saturating_sub(held.arrival())
                } else {
                    0
                },
                queued,
                slot,
                slots: self.target.pool().active(),
                limit: self.target.limit(),
            });
        }
    }

    /// The head of `priority` withholds all that it has from `now` until `until` (ns).
    #[cold]
    #[inline(never)]
    pub(super) fn watch_throttle(
        &self,
        inner: &mut Inner,
        priority: Priority,
        now: u64,
        until: u64,
    ) {
        trace::throttle(&trace::Throttle {
            head: self.event_head(inner, priority, By::Current),
            until_ns: until,
            delay_ns: until.saturating_sub(now),
            queued: inner.lane(priority).head.queued(),
        });
    }
}
