// SPDX-License-Identifier: GPL-2.0-only

//! Heads: the policies of one priority on one partition.
//!
//! - Instance: one part of a policy on a head, from start to stop; identified by an [`InstanceId`].
//! - Fallback: the instance that takes the requests that the primary does not take. It always
//!   exists and is always started.
//! - Primary: the instance of the selected policy; at most one. Without a primary, the fallback
//!   serves all requests.
//! - Ticket: instance and class of a request ([`HeadTicket`]).
//!
//! # States of a policy
//!
//! ```text
//!              caller builds the part,         Head::install
//!              without the lock                (start before stop)
//!   stopped ───────────────────▶  built   ───────────────────▶ started
//!      ▲                                                           │
//!      │   Head::reap: nothing queued,                             │ another Head::install,
//!      │   nothing active                                          │ Head::drop_primary
//!      └──────────────────────────────── stopping ◀────────────────┘
//! ```
//!
//! A head contains started and stopping instances. The new part is created before the old one
//! stops. Therefore a policy that fails to start changes nothing, and a policy is active at all
//! times. Several instances of one policy can be stopping at the same time; [`MAX_INSTANCES`]
//! limits their number. [`decide`] describes how instances are drained.
//!
//! # States of a request
//!
//! ```text
//!               Head::classify         Head::enqueue        Head::get          Head::stop
//!   (arrived) ───────────────▶ classified ─────────▶ queued ─────────▶ started ─────────▶ ended
//!                                  │                  │                                     ▲
//!                                  │                  └ Head::dequeue: moves to another head│
//!                                  └── Head::pass: served at once, never queued ────────────┘
//! ```
//!
//! An instance with queued or started requests is not reaped. Classified and passed requests do not
//! prevent that; their tickets become stale instead.
//!
//! # Context
//!
//! The caller of all functions but [`Head::new`] must hold the partition's lock. They do not
//! allocate, sleep or drop a part. [`Head::reap`] returns parts so that the caller drops them
//! without the lock.

use crate::sched::{
    attr::Attrs,
    class::ClassId,
    count::Count,
    error::{Code, Error, Result},
    item::{Cost, Item},
    policy::{BypassOutcome, BypassReason, Decision, FreeSlots, Grant, Hold, Part, PartView},
    text::PolicyState,
};
use core::marker::PhantomData;

pub mod decide;
pub mod drive;

/// Maximum number of instances on a head, including the fallback.
pub const MAX_INSTANCES: usize = 4;

/// Maximum number of instances without the fallback.
const OTHERS: usize = MAX_INSTANCES - 1;

/// Identity of an instance; never reused for another instance, and stale after the instance was
/// removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstanceId {
    serial: u32,
    place: u8,
}

/// Instance and class of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadTicket {
    grant: Grant,
    serial: u32,
    place: u8,
    /// True if the request is counted in its instance's `active`: [`Head::get`] has dispatched the
    /// request.
    started: bool,
}

impl HeadTicket {
    /// Returns the class in the instance.
    pub const fn class(&self) -> ClassId {
        self.grant.class
    }

    /// Returns the grant, with the data that the instance's policy stored in it.
    pub const fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Returns the identity of the instance.
    pub const fn instance(&self) -> InstanceId {
        InstanceId {
            serial: self.serial,
            place: self.place,
        }
    }
}

/// Status of one instance for control files.
#[derive(Debug)]
pub struct Status<'a, P, T> {
    /// Identity of the instance.
    pub id: InstanceId,
    /// State of the instance: started or stopping.
    pub state: PolicyState,
    /// True if the instance is the fallback.
    pub fallback: bool,
    /// Tag from [`Head::install`].
    pub tag: &'a T,
    /// Part of the instance.
    pub part: &'a P,
    /// Number of queued requests.
    pub queued: u32,
    /// Number of requests dispatched and not ended.
    pub active: u32,
}

impl<P, T> Status<'_, P, T> {
    /// Returns true if the instance is the primary.
    pub fn is_primary(&self) -> bool {
        !self.fallback && self.state == PolicyState::Started
    }
}

/// Part with the numbers of its requests.
///
/// # Invariants
///
/// `part` contains `queued` requests. `active` tickets with `started` belong to dispatched
/// requests.
struct PolicyInstance<P, T> {
    part: P,
    tag: T,
    id: InstanceId,
    stopping: bool,
    /// Time, ns, at which a request is forced if no request of the stopping instance was dispatched
    /// before; 0: not set yet.
    due: u64,
    queued: u32,
    active: u32,
}

impl<P, T> PolicyInstance<P, T> {
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

    fn ticket(&self, grant: Grant, started: bool) -> HeadTicket {
        HeadTicket {
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
    ) -> core::result::Result<HeadTicket, I>
    where
        P: Part<I>,
    {
        self.part.enqueue(item, class, now)?;
        self.queued.count(1);
        Ok(self.ticket(Grant::of(class), false))
    }

    /// Dispatches a request. If the part throttles all its requests, lowers `until` to the part's
    /// time.
    fn get<I: Item>(
        &mut self,
        view: &PartView<'_>,
        until: &mut Option<u64>,
    ) -> Option<(I, HeadTicket)>
    where
        P: Part<I>,
    {
        if self.queued == 0 {
            return None;
        }
        match self.part.get(view) {
            Decision::Item((item, grant)) => {
                // INVARIANT: one request moved from `queued` to `active`.
                self.queued = self.queued.saturating_sub(1);
                self.active.count(1);
                Some((item, self.ticket(grant, true)))
            }
            Decision::Throttled { until: at } => {
                *until = Some(until.map_or(at, |other| other.min(at)));
                None
            }
            Decision::Empty => None,
        }
    }

    fn dequeue<I: Item>(&mut self, class: ClassId, handle: &I::Handle, now: u64) -> Option<I>
    where
        P: Part<I>,
    {
        let item = self.part.dequeue(class, handle, now)?;
        // INVARIANT: one request left `queued` without dispatch.
        self.queued = self.queued.saturating_sub(1);
        Some(item)
    }

    fn is_idle(&self) -> bool {
        self.queued == 0 && self.active == 0
    }
}

/// The policies of one priority on one partition.
///
/// `T` is data of the caller about an instance, for example the policy's name and argument.
///
/// # Invariants
///
/// - The fallback is at index 0 and is never stopping; `others` has indices 1 and up, in order.
/// - `primary` is the index of the only instance in `others` that is not stopping; 0 without one.
/// - `stopping` is the number of stopping instances in `others`.
/// - `queued` is the number of requests queued on all instances, without those driven by a
///   framework ([`drive`]).
/// - Serial numbers grow in the order of installation, which is also the order of stopping.
///
/// # Examples
///
/// ```
/// use nrs_sched::arena::{attrs, fair_update, part_of, view, Request};
/// use nrs_sched::{head::Head, policy::{Decision, Part, Tunables}};
///
/// let (mut head, mut part) = (Head::new(part_of("fifo"), ()), part_of("fairshare uid_fair"));
/// part.update(fair_update(&Tunables::default().fairshare, "uid:1:3", "", 0), 0);
/// assert!(head.install(part, ()).is_ok());
/// for owner in [2, 2, 2, 1, 1, 1, 1, 1, 1, 1] {
///     let ticket = head.classify(&attrs(owner), 0);
///     head.enqueue(Request::new(owner, 0, 1, 0), ticket, || attrs(owner), 0).unwrap();
/// }
/// // User 1 has weight 3, and is dispatched first although its requests arrived last.
/// let order = [(); 10].map(|()| match head.get(&view(0, false), || false) {
///     Decision::Item((request, _)) => request.owner,
///     _ => unreachable!(),
/// });
/// assert_eq!(order, [1, 2, 1, 1, 1, 2, 1, 1, 1, 2]);
/// ```
pub struct Head<I, P, T> {
    fallback: PolicyInstance<P, T>,
    others: [Option<PolicyInstance<P, T>>; OTHERS],
    primary: u8,
    stopping: u8,
    queued: u32,
    /// Serial number of the last installation.
    serial: u32,
    /// True if of primary and fallback, the fallback was served last.
    fallback_last: bool,
    /// True if a stopping instance was served last.
    stopping_last: bool,
    item: PhantomData<fn() -> I>,
}

impl<I: Item, P: Part<I>, T> Head<I, P, T> {
    /// Creates a head with its fallback, started.
    pub fn new(fallback: P, tag: T) -> Self {
        let id = InstanceId {
            serial: 0,
            place: 0,
        };
        Self {
            fallback: PolicyInstance::new(fallback, tag, id),
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

    /// Checks that another instance can be installed.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: the maximum number of instances is reached; some are still draining.
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

    /// Makes `part` the primary; the previous primary starts stopping.
    ///
    /// # Errors
    ///
    /// Returns the part, without any change, if [`Head::can_install`] would fail.
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
            *other = Some(PolicyInstance::new(part, tag, id));
        }
        // INVARIANT: the former primary is stopping, the new instance is not.
        self.primary = id.place;
        self.serial = id.serial;
        Ok(id)
    }

    /// Makes the fallback serve all new requests; the primary, if any, starts stopping.
    pub fn drop_primary(&mut self) {
        if let Some(primary) = other_mut(&mut self.others, self.primary) {
            primary.stopping = true;
            self.stopping.count(1);
        }
        // INVARIANT: all instances in `others` are stopping.
        self.primary = 0;
    }

    /// Removes one instance that finished stopping. The caller drops the part without the lock.
    pub fn reap(&mut self) -> Option<P> {
        if self.stopping == 0 {
            return None;
        }
        let done = |i: &PolicyInstance<P, T>| i.stopping && i.is_idle() && i.part.len() == 0;
        let other = self
            .others
            .iter_mut()
            .find(|other| other.as_ref().is_some_and(done))?;
        self.stopping = self.stopping.saturating_sub(1);
        other.take().map(|instance| instance.part)
    }

    /// Classifies a request with `attrs`: returns a ticket for the primary, or for the fallback
    /// without a primary.
    pub fn classify(&mut self, attrs: &Attrs, now: u64) -> HeadTicket {
        let instance = self.current_mut();
        let class = instance.part.classify(attrs, now);
        instance.ticket(Grant::of(class), false)
    }

    /// Returns the ticket of all requests, if the instance that takes new requests has only one
    /// class.
    pub fn only_ticket(&mut self) -> Option<HeadTicket> {
        let instance = self.current_mut();
        let class = instance.part.only_class()?;
        Some(instance.ticket(Grant::of(class), false))
    }

    /// Records attributes of a request with `ticket` from [`Head::classify`] that do not determine
    /// its class.
    pub fn record_attrs(&mut self, ticket: &HeadTicket, attrs: &Attrs, now: u64) {
        if let Some(instance) = self.find_mut(ticket.instance()) {
            instance.part.record_attrs(ticket.class(), attrs, now);
        }
    }

    /// Returns true if the instance that takes new requests lets requests pass freely.
    pub fn passes_freely(&self) -> bool {
        let instance = match usize::from(self.primary).checked_sub(1) {
            Some(index) => self.others.get(index).and_then(Option::as_ref),
            None => Some(&self.fallback),
        };
        instance.is_some_and(|instance| instance.part.passes_freely())
    }

    /// Counts `requests` requests with a total of `pages` pages that passed freely in the class of
    /// `ticket`.
    pub fn count_passed(&mut self, ticket: &HeadTicket, requests: u32, pages: u64) {
        if let Some(instance) = self.find_mut(ticket.instance()) {
            instance.part.count_passed(ticket.class(), requests, pages);
        }
    }

    /// Returns true if a cached ticket from [`Head::classify`] is still valid; otherwise the caller
    /// classifies the request again.
    pub fn is_live(&self, ticket: &HeadTicket) -> bool {
        ticket.place == self.primary
            && self
                .find(ticket.instance())
                .is_some_and(|instance| instance.part.is_live(ticket.class()))
    }

    /// Queues a request; returns the ticket of the instance that queued the request.
    ///
    /// `ticket` must come from [`Head::classify`], or [`Head::is_live`] must have returned true for
    /// it, since the lock was taken. If its instance does not take new requests, the request is
    /// classified again by `attrs`. If the primary declines the request, the fallback takes it.
    ///
    /// # Errors
    ///
    /// Returns the item if the fallback declines, too. A fallback must not decline; the caller ends
    /// the request with an error.
    pub fn enqueue(
        &mut self,
        item: I,
        ticket: HeadTicket,
        attrs: impl Fn() -> Attrs,
        now: u64,
    ) -> core::result::Result<HeadTicket, I> {
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
        self.queued.count(1);
        Ok(ticket)
    }

    /// Removes a queued request with `ticket` from [`Head::enqueue`], to move it elsewhere. Returns
    /// `None` if the request is not queued.
    pub fn dequeue(&mut self, ticket: &HeadTicket, handle: &I::Handle, now: u64) -> Option<I> {
        let class = ticket.class();
        let item = self
            .find_mut(ticket.instance())?
            .dequeue(class, handle, now)?;
        // INVARIANT: one fewer is queued.
        self.queued = self.queued.saturating_sub(1);
        Some(item)
    }

    /// Replaces the tag `old` by `new` in the instances that are not stopping.
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

    /// Counts a request that is served at once without queueing; the request does not prevent that
    /// its instance is reaped. Returns `Stale` if the ticket is no longer valid.
    ///
    /// `now` (monotonic ns) is called only if the policy needs the time.
    pub fn pass(
        &mut self,
        ticket: &HeadTicket,
        cost: Cost,
        way: BypassReason,
        now: impl FnOnce() -> u64,
    ) -> BypassOutcome {
        if ticket.place != self.primary {
            return BypassOutcome::Stale;
        }
        match self.find_mut(ticket.instance()) {
            Some(instance) => instance.part.pass(ticket.class(), cost, way, now),
            None => BypassOutcome::Stale,
        }
    }

    /// Counts a request like [`Head::pass`], if the instance that takes new requests has only one
    /// class.
    #[inline]
    pub fn pass_only(
        &mut self,
        cost: Cost,
        way: BypassReason,
        now: impl FnOnce() -> u64,
    ) -> Option<BypassOutcome> {
        let part = &mut self.current_mut().part;
        let class = part.only_class()?;
        Some(part.pass(class, cost, way, now))
    }

    /// Returns what a request with `ticket` from [`Head::get`] was charged, see [`Part::refund`].
    pub fn refund(&mut self, ticket: &HeadTicket, cost: Cost, now: u64) {
        if let Some(instance) = self.find_mut(ticket.instance()) {
            instance.part.refund(ticket.class(), cost, now);
        }
    }

    /// Counts the end of a request once, with the ticket from [`Head::get`] or of [`Head::pass`].
    /// Does nothing if the instance was removed. Returns true if the head may keep slots free from
    /// now on ([`Head::hold`]).
    pub fn stop(&mut self, ticket: &HeadTicket, cost: Cost, now: u64) -> bool {
        let Some(instance) = self.find_mut(ticket.instance()) else {
            return false;
        };
        if ticket.started {
            instance.active = instance.active.saturating_sub(1);
        }
        instance.part.stop(&ticket.grant, cost, now)
    }

    /// Returns the slots that the head keeps free at `now`, ns, see [`Part::hold`]. A head with
    /// stopping instances keeps none, because the requests of those are not to wait.
    pub fn hold(&mut self, slots: &FreeSlots, now: u64) -> Option<Hold> {
        if self.stopping > 0 {
            return None;
        }
        self.primary_mut()?.hold(slots, now)
    }

    /// Returns the number of requests queued on all instances, without those driven by a framework
    /// ([`drive`]).
    pub const fn queued(&self) -> u32 {
        self.queued
    }

    /// Returns the number of requests of all instances that were dispatched and have not ended.
    #[cfg(test)]
    pub fn active(&self) -> u32 {
        self.iter().fold(0, |sum, i| sum.saturating_add(i.active))
    }

    /// Returns true if no instance has queued or active requests.
    pub fn is_idle(&self) -> bool {
        self.iter().all(PolicyInstance::is_idle)
    }

    /// Returns the identity of each instance, for work that releases the lock in between.
    pub fn ids(&self) -> [Option<InstanceId>; MAX_INSTANCES] {
        let mut ids = [None; MAX_INSTANCES];
        for (id, instance) in ids.iter_mut().zip(self.iter()) {
            *id = Some(instance.id);
        }
        ids
    }

    /// Returns the status of each instance, the fallback first.
    pub fn instances(&self) -> impl Iterator<Item = Status<'_, P, T>> {
        self.iter().map(|i| Status {
            id: i.id,
            state: if i.stopping {
                PolicyState::Stopping
            } else {
                PolicyState::Started
            },
            fallback: i.id.place == 0,
            tag: &i.tag,
            part: &i.part,
            queued: i.queued,
            active: i.active,
        })
    }

    /// Returns the parts of all instances, the fallback's first.
    #[cfg(not(MODULE))]
    pub fn parts_mut(&mut self) -> impl Iterator<Item = (InstanceId, &mut P)> {
        self.iter_mut().map(|i| (i.id, &mut i.part))
    }

    /// Returns the part of an instance, if the instance still exists, for work that releases the
    /// lock in between.
    pub fn part_mut(&mut self, id: InstanceId) -> Option<&mut P> {
        self.find_mut(id).map(|instance| &mut instance.part)
    }

    /// Returns the primary's part.
    pub fn primary_mut(&mut self) -> Option<&mut P> {
        other_mut(&mut self.others, self.primary).map(|instance| &mut instance.part)
    }

    fn iter(&self) -> impl Iterator<Item = &PolicyInstance<P, T>> {
        core::iter::once(&self.fallback).chain(self.others.iter().flatten())
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut PolicyInstance<P, T>> {
        core::iter::once(&mut self.fallback).chain(self.others.iter_mut().flatten())
    }

    /// Returns the instance that takes new requests.
    fn current_mut(&mut self) -> &mut PolicyInstance<P, T> {
        match other_mut(&mut self.others, self.primary) {
            Some(primary) => primary,
            None => &mut self.fallback,
        }
    }

    fn find(&self, id: InstanceId) -> Option<&PolicyInstance<P, T>> {
        let instance = match usize::from(id.place).checked_sub(1) {
            Some(index) => self.others.get(index)?.as_ref()?,
            None => &self.fallback,
        };
        (instance.id == id).then_some(instance)
    }

    fn find_mut(&mut self, id: InstanceId) -> Option<&mut PolicyInstance<P, T>> {
        let instance = match id.place {
            0 => &mut self.fallback,
            place => other_mut(&mut self.others, place)?,
        };
        (instance.id == id).then_some(instance)
    }
}

/// Returns the instance at index `place`; `None` for the fallback's index and for a free index.
fn other_mut<P, T>(
    others: &mut [Option<PolicyInstance<P, T>>; OTHERS],
    place: u8,
) -> Option<&mut PolicyInstance<P, T>> {
    let index = usize::from(place).checked_sub(1)?;
    others.get_mut(index)?.as_mut()
}

#[cfg(test)]
mod tests;
