// SPDX-License-Identifier: GPL-2.0-only

//! Heads: the policies of one priority on one partition.
//!
//! # Vocabulary
//!
//! - *Instance*: one part of a policy on a head, from start to stop; an [`InstanceId`] names it.
//! - *Fallback*: the instance that takes what nobody else takes; there is exactly one, it is always
//!   started.
//! - *Primary*: the instance that was selected; there is at most one. With no primary, the fallback serves
//!   all.
//! - *Ticket*: where a request belongs, its instance and class ([`Ticket`]).
//!
//! # States of a policy
//!
//! ```text
//!              caller builds the part,         Head::install
//!              without the lock                (start before stop)
//!   stopped ───────────────────▶ starting ───────────────────▶ started
//!      ▲                                                           │
//!      │   Head::reap: nothing queued,                             │ another Head::install,
//!      │   nothing active                                          │ Head::drop_primary
//!      └──────────────────────────────── stopping ◀────────────────┘
//! ```
//!
//! A head holds instances that are started or stopping. The new part exists before the old one stops, so
//! that a policy that cannot start changes nothing, and there is no moment without a policy. Of one policy
//! several instances can stop at a time; [`MAX_INSTANCES`] bounds them all. How they are drained is in
//! [`decide`].
//!
//! # Life of a request
//!
//! ```text
//!               Head::classify         Head::enqueue        Head::get          Head::stop
//!   (arrived) ───────────────▶ classified ─────────▶ queued ─────────▶ started ─────────▶ ended
//!                                  │                  │                                     ▲
//!                                  │                  └ Head::dequeue: goes to another head │
//!                                  └── Head::pass: served at once, never queued ────────────┘
//! ```
//!
//! An instance that has queued or started requests is not reaped; a classified or passed request does not
//! hold it, its ticket goes stale instead.
//!
//! # Context
//!
//! All but [`Head::new`] run under the partition's lock: nothing here allocates, sleeps or drops a part.
//! [`Head::reap`] hands parts out so that they are dropped outside the lock.

use crate::sched::{
    attr::Attrs,
    class::ClassId,
    error::{Code, Error, Result},
    item::{Cost, Item},
    policy::{Get, Grant, Part, Passed, View, Way},
};
use core::marker::PhantomData;

pub mod decide;
pub mod drive;

/// Instances on a head, at most, the fallback included.
pub const MAX_INSTANCES: usize = 4;

/// Instances beside the fallback.
const OTHERS: usize = MAX_INSTANCES - 1;

/// State of a policy on a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not there.
    Stopped,
    /// Its part is being built.
    Starting,
    /// Takes new requests.
    Started,
    /// Takes no new requests, its queue is drained.
    Stopping,
}

impl State {
    /// The word that control files show.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Starting => "starting",
            Self::Started => "started",
            Self::Stopping => "stopping",
        }
    }
}

/// Name of an instance; never names another one, after its instance left it names none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstanceId {
    serial: u32,
    place: u8,
}

/// Where a request belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    grant: Grant,
    serial: u32,
    place: u8,
    /// The request is counted in its instance's `active`: [`Head::get`] handed it out.
    started: bool,
}

impl Ticket {
    /// The class in the instance.
    pub const fn class(&self) -> ClassId {
        self.grant.class
    }

    /// What the instance's policy noted with it.
    pub const fn grant(&self) -> &Grant {
        &self.grant
    }

    /// The instance.
    pub const fn instance(&self) -> InstanceId {
        InstanceId {
            serial: self.serial,
            place: self.place,
        }
    }
}

/// One instance as control files show it.
#[derive(Debug)]
pub struct Status<'a, P, T> {
    /// Its name.
    pub id: InstanceId,
    /// Started or stopping.
    pub state: State,
    /// Whether it is the fallback.
    pub fallback: bool,
    /// What was installed with it.
    pub tag: &'a T,
    /// The part.
    pub part: &'a P,
    /// Requests queued.
    pub queued: u32,
    /// Requests handed out and not ended.
    pub active: u32,
}

impl<P, T> Status<'_, P, T> {
    /// Whether it is the primary.
    pub fn is_primary(&self) -> bool {
        !self.fallback && self.state == State::Started
    }
}

/// A part with its counts.
///
/// # Invariants
///
/// `queued` requests are in `part`; `active` tickets with `started` are outside.
struct Instance<P, T> {
    part: P,
    tag: T,
    id: InstanceId,
    stopping: bool,
    /// Time at which a request is forced, if the stopping instance is not served before, ns; 0: not set yet.
    due: u64,
    queued: u32,
    active: u32,
}

impl<P, T> Instance<P, T> {
    fn new(part: P, tag: T, id: InstanceId) -> Self {
        Self {
            part,
            tag,
            id,
            stopping: false,
            due: 0,
            queued: 0,
            active: 0,
        }
    }

    fn ticket(&self, grant: Grant, started: bool) -> Ticket {
        Ticket {
            grant,
            serial: self.id.serial,
            place: self.id.place,
            started,
        }
    }

    fn enqueue<I: Item>(
        &mut self,
        item: I,
        class: ClassId,
        now: u64,
    ) -> core::result::Result<Ticket, I>
    where
        P: Part<I>,
    {
        self.part.enqueue(item, class, now)?;
        self.queued = self.queued.saturating_add(1);
        Ok(self.ticket(Grant::of(class), false))
    }

    /// Takes a request out; lowers `until` to the part's if the part throttles all that it has.
    fn get<I: Item>(&mut self, view: &View<'_>, until: &mut Option<u64>) -> Option<(I, Ticket)>
    where
        P: Part<I>,
    {
        if self.queued == 0 {
            return None;
        }
        match self.part.get(view) {
            Get::Item((item, grant)) => {
                // INVARIANT: one request went from inside to outside.
                self.queued = self.queued.saturating_sub(1);
                self.active = self.active.saturating_add(1);
                Some((item, self.ticket(grant, true)))
            }
            Get::Throttled { until: at } => {
                *until = Some(until.map_or(at, |other| other.min(at)));
                None
            }
            Get::Empty => None,
        }
    }

    fn dequeue<I: Item>(&mut self, class: ClassId, place: &I::Place, now: u64) -> Option<I>
    where
        P: Part<I>,
    {
        let item = self.part.dequeue(class, place, now)?;
        // INVARIANT: one request went from inside to outside, without being served.
        self.queued = self.queued.saturating_sub(1);
        Some(item)
    }

    fn is_idle(&self) -> bool {
        self.queued == 0 && self.active == 0
    }
}

/// The policies of one priority on one partition.
///
/// `T` is what the caller wants to know of an instance again, for example the policy's name and argument.
///
/// # Invariants
///
/// - The fallback has place 0 and is never stopping; `others` has places 1 and up, in order.
/// - `primary` is the place of the one instance in `others` that is not stopping, 0 if there is none.
/// - `stopping` instances in `others` are stopping.
/// - `queued` requests are queued on all instances, but for those that a framework drives ([`drive`]).
/// - Serials grow in the order of installation, which is the order of stopping, too.
pub struct Head<I, P, T> {
    fallback: Instance<P, T>,
    others: [Option<Instance<P, T>>; OTHERS],
    primary: u8,
    stopping: u8,
    queued: u32,
    /// The serial that was given last.
    serial: u32,
    /// Of primary and fallback, the fallback was served last.
    fallback_last: bool,
    /// A stopping instance was served last.
    stopping_last: bool,
    item: PhantomData<fn() -> I>,
}

impl<I: Item, P: Part<I>, T> Head<I, P, T> {
    /// A head with its fallback, started.
    pub fn new(fallback: P, tag: T) -> Self {
        let id = InstanceId {
            serial: 0,
            place: 0,
        };
        Self {
            fallback: Instance::new(fallback, tag, id),
            others: [const { None }; OTHERS],
            primary: 0,
            stopping: 0,
            queued: 0,
            serial: 0,
            fallback_last: true,
            stopping_last: false,
            item: PhantomData,
        }
    }

    /// Whether there is a place for another instance.
    /// `EAGAIN`: all places are taken by instances that are still draining.
    pub fn can_install(&self) -> Result {
        if self.others.iter().any(Option::is_none) {
            Ok(())
        } else {
            Err(Error::new(
                Code::Again,
                "earlier policies are still stopping",
            ))
        }
    }

    /// Makes `part` the primary; the primary before it is stopping from now on.
    /// Hands the part back if [`Head::can_install`] would fail, without a change.
    pub fn install(&mut self, part: P, tag: T) -> core::result::Result<InstanceId, P> {
        let Some(index) = self.others.iter().position(Option::is_none) else {
            return Err(part);
        };
        self.drop_primary();
        let id = InstanceId {
            serial: self.serial.wrapping_add(1),
            // At most OTHERS.
            place: (index as u8).wrapping_add(1),
        };
        if let Some(other) = self.others.get_mut(index) {
            *other = Some(Instance::new(part, tag, id));
        }
        // INVARIANT: the former primary is stopping, the new instance is not.
        self.primary = id.place;
        self.serial = id.serial;
        Ok(id)
    }

    /// Makes the fallback serve all new requests; the primary, if any, is stopping from now on.
    pub fn drop_primary(&mut self) {
        if let Some(primary) = other_mut(&mut self.others, self.primary) {
            primary.stopping = true;
            self.stopping = self.stopping.saturating_add(1);
        }
        // INVARIANT: nothing in `others` is left that is not stopping.
        self.primary = 0;
    }

    /// Takes out one instance that finished stopping, to be dropped outside the lock.
    pub fn reap(&mut self) -> Option<P> {
        if self.stopping == 0 {
            return None;
        }
        let done = |i: &Instance<P, T>| i.stopping && i.is_idle() && i.part.len() == 0;
        let other = self
            .others
            .iter_mut()
            .find(|other| other.as_ref().is_some_and(done))?;
        self.stopping = self.stopping.saturating_sub(1);
        other.take().map(|instance| instance.part)
    }

    /// Where a request with `attrs` belongs: a class of the primary, or of the fallback without one.
    pub fn classify(&mut self, attrs: &Attrs, now: u64) -> Ticket {
        let instance = self.current_mut();
        let class = instance.part.classify(attrs, now);
        instance.ticket(Grant::of(class), false)
    }

    /// The ticket of all requests, if the instance that takes them has only one class.
    pub fn only_ticket(&mut self) -> Option<Ticket> {
        let instance = self.current_mut();
        let class = instance.part.only_class()?;
        Some(instance.ticket(Grant::of(class), false))
    }

    /// Notes what a request that [`Head::classify`] gave `ticket` for says beside its class.
    pub fn note(&mut self, ticket: &Ticket, attrs: &Attrs, now: u64) {
        if let Some(instance) = self.find_mut(ticket.instance()) {
            instance.part.note(ticket.class(), attrs, now);
        }
    }

    /// Returns whether the instance that takes new requests lets them pass freely.
    pub fn passes_freely(&self) -> bool {
        let instance = match usize::from(self.primary).checked_sub(1) {
            Some(index) => self.others.get(index).and_then(Option::as_ref),
            None => Some(&self.fallback),
        };
        instance.is_some_and(|instance| instance.part.passes_freely())
    }

    /// Counts `requests` requests of `pages` in all that passed freely with the class of `ticket`.
    pub fn count_passed(&mut self, ticket: &Ticket, requests: u32, pages: u64) {
        if let Some(instance) = self.find_mut(ticket.instance()) {
            instance.part.count_passed(ticket.class(), requests, pages);
        }
    }

    /// Whether a ticket of [`Head::classify`] that a caller kept still says where a request belongs; if not,
    /// the caller classifies again.
    pub fn is_live(&self, ticket: &Ticket) -> bool {
        ticket.place == self.primary
            && self
                .find(ticket.instance())
                .is_some_and(|instance| instance.part.is_live(ticket.class()))
    }

    /// Queues a request; returns where it went.
    ///
    /// The ticket is one that [`Head::classify`] made, or that [`Head::is_live`] agreed to, since the lock
    /// was taken. Should its instance not be the one that takes new requests, it is made anew from `attrs`.
    /// What the primary declines, the fallback takes.
    ///
    /// # Errors
    ///
    /// Hands the item back if the fallback declines, too. A fallback must not; the caller ends the request
    /// with an error.
    pub fn enqueue(
        &mut self,
        item: I,
        ticket: Ticket,
        attrs: impl Fn() -> Attrs,
        now: u64,
    ) -> core::result::Result<Ticket, I> {
        let instance = self.current_mut();
        let class = if instance.id == ticket.instance() {
            ticket.class()
        } else {
            instance.part.classify(&attrs(), now)
        };
        let fallback = instance.id.place == 0;
        let ticket = match instance.enqueue(item, class, now) {
            Err(item) if !fallback => {
                let class = self.fallback.part.classify(&attrs(), now);
                self.fallback.enqueue(item, class, now)
            }
            done => done,
        }?;
        // INVARIANT: one more is queued.
        self.queued = self.queued.saturating_add(1);
        Ok(ticket)
    }

    /// Takes a request out that [`Head::enqueue`] gave `ticket` for: it goes elsewhere. `None` if it is not
    /// queued.
    pub fn dequeue(&mut self, ticket: &Ticket, place: &I::Place, now: u64) -> Option<I> {
        let class = ticket.class();
        let item = self
            .find_mut(ticket.instance())?
            .dequeue(class, place, now)?;
        // INVARIANT: one is queued no more.
        self.queued = self.queued.saturating_sub(1);
        Some(item)
    }

    /// Notes that the instances whose tag is `old` go by `new` from now on.
    pub fn retag(&mut self, old: &T, new: &T)
    where
        T: PartialEq + Clone,
    {
        for instance in self.others.iter_mut().flatten() {
            if !instance.stopping && instance.tag == *old {
                instance.tag = new.clone();
            }
        }
    }

    /// Counts a request that is served at once, without queueing; it does not hold its instance. A ticket
    /// that does not say any more where a request belongs is stale.
    ///
    /// `now` is asked only if the policy needs the time (monotonic ns).
    pub fn pass(
        &mut self,
        ticket: &Ticket,
        cost: Cost,
        way: Way,
        now: impl FnOnce() -> u64,
    ) -> Passed {
        if ticket.place != self.primary {
            return Passed::Stale;
        }
        match self.find_mut(ticket.instance()) {
            Some(instance) => instance.part.pass(ticket.class(), cost, way, now),
            None => Passed::Stale,
        }
    }

    /// Does the same if the instance that takes new requests has only one class.
    #[inline]
    pub fn pass_only(&mut self, cost: Cost, way: Way, now: impl FnOnce() -> u64) -> Option<Passed> {
        let part = &mut self.current_mut().part;
        let class = part.only_class()?;
        Some(part.pass(class, cost, way, now))
    }

    /// Counts the end of a request, once, with the ticket that [`Head::get`] gave out or that
    /// [`Head::pass`] was told; stale tickets are treated as there.
    pub fn stop(&mut self, ticket: &Ticket, cost: Cost, now: u64) {
        if let Some(instance) = self.find_mut(ticket.instance()) {
            if ticket.started {
                instance.active = instance.active.saturating_sub(1);
            }
            instance.part.stop(&ticket.grant, cost, now);
        }
    }

    /// Requests queued on all instances, but for those that a framework drives ([`drive`]).
    pub const fn queued(&self) -> u32 {
        self.queued
    }

    /// Requests of all instances that were handed out and have not ended.
    pub fn active(&self) -> u32 {
        self.iter().fold(0, |sum, i| sum.saturating_add(i.active))
    }

    /// Returns whether no instance has requests that are queued or not ended.
    pub fn is_idle(&self) -> bool {
        self.iter().all(Instance::is_idle)
    }

    /// The instances, the fallback first.
    pub fn instances(&self) -> impl Iterator<Item = Status<'_, P, T>> {
        self.iter().map(|i| Status {
            id: i.id,
            state: if i.stopping {
                State::Stopping
            } else {
                State::Started
            },
            fallback: i.id.place == 0,
            tag: &i.tag,
            part: &i.part,
            queued: i.queued,
            active: i.active,
        })
    }

    /// The parts, the fallback's first, for work on all of them.
    pub fn parts_mut(&mut self) -> impl Iterator<Item = (InstanceId, &mut P)> {
        self.iter_mut().map(|i| (i.id, &mut i.part))
    }

    /// The part of an instance, if it is still there: for work that lets go of the lock in between.
    pub fn part_mut(&mut self, id: InstanceId) -> Option<&mut P> {
        self.find_mut(id).map(|instance| &mut instance.part)
    }

    /// The primary's part.
    pub fn primary_mut(&mut self) -> Option<&mut P> {
        other_mut(&mut self.others, self.primary).map(|instance| &mut instance.part)
    }

    fn iter(&self) -> impl Iterator<Item = &Instance<P, T>> {
        core::iter::once(&self.fallback).chain(self.others.iter().flatten())
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Instance<P, T>> {
        core::iter::once(&mut self.fallback).chain(self.others.iter_mut().flatten())
    }

    /// The instance that takes new requests.
    fn current_mut(&mut self) -> &mut Instance<P, T> {
        match other_mut(&mut self.others, self.primary) {
            Some(primary) => primary,
            None => &mut self.fallback,
        }
    }

    fn find(&self, id: InstanceId) -> Option<&Instance<P, T>> {
        let instance = match usize::from(id.place).checked_sub(1) {
            Some(index) => self.others.get(index)?.as_ref()?,
            None => &self.fallback,
        };
        (instance.id == id).then_some(instance)
    }

    fn find_mut(&mut self, id: InstanceId) -> Option<&mut Instance<P, T>> {
        let instance = match id.place {
            0 => &mut self.fallback,
            place => other_mut(&mut self.others, place)?,
        };
        (instance.id == id).then_some(instance)
    }
}

/// The instance at `place`, if that is not the fallback's place and not free.
fn other_mut<P, T>(
    others: &mut [Option<Instance<P, T>>; OTHERS],
    place: u8,
) -> Option<&mut Instance<P, T>> {
    let index = usize::from(place).checked_sub(1)?;
    others.get_mut(index)?.as_mut()
}

#[cfg(test)]
mod tests;
