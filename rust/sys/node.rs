// SPDX-License-Identifier: GPL-2.0-only

//! Requests linked through the memory of the front-end that brought them.
//!
//! # Vocabulary
//!
//! - *Node*: the part of a front-end's per-request memory that the core and the policies use.
//! - *Held*: the one owner of a node between arrival and submission.
//! - *Ops*: how a front-end gets its request back.
//! - *Place*: by which a registered request is found in the queue that it is in ([`Place`]).
//!
//! ```text
//!   front-end memory          Held::new             queue, policy, target list
//!   (uninitialised)  ───────────────────────▶  Held  ───────────────────────────▶  Held
//!                                               │                                    │
//!                             passed straight   │                      Held::submit  │
//!                             through           ▼                                    ▼
//!                                          front-end submits                 Ops::submit
//! ```
//!
//! Nothing here allocates: a queue is a list through the nodes, so a queued request costs no memory beyond
//! what its front-end already has.
//!
//! # Why a place is always good
//!
//! There is a [`Place`] exactly while its node is registered, and a registered node is never given back to its
//! front-end: who tries leaks the request, with a warning. So the node of a place is there. Which queue it
//! is in, the node says itself, by a number that no two queues ever have.

use core::{
    mem::ManuallyDrop,
    ptr::{self, NonNull},
};

use super::{atomic::Hint, misc::bug, trace::Life};
use crate::sched::{
    attr::Priority,
    item::{self, Cost, Item, Spot},
    partition::{Admission, Placement, Scheduled},
    timeouts::in_flight::Submitted,
    units::NSEC_PER_MSEC,
};

#[cfg(CONFIG_KUNIT = "y")]
pub(crate) mod fake;
mod fifo;

pub(crate) use fifo::NodeFifo;

/// How a front-end gets a request back.
pub(crate) struct Ops {
    /// Prepares the request for being held: it may now be submitted from another task.
    ///
    /// # Safety
    ///
    /// The node is initialised, not shared, and belongs to the front-end that made these ops.
    pub(crate) hold: unsafe fn(NonNull<Node>),

    /// Submits the request to its device; the node may be gone when this returns.
    ///
    /// # Safety
    ///
    /// As for `hold`; called once per node, in a context that may sleep.
    pub(crate) submit: unsafe fn(NonNull<Node>),

    /// Counts the end of the request, which has been submitted and has come back.
    ///
    /// # Safety
    ///
    /// As for `hold`; called once per node.
    pub(crate) count_end: unsafe fn(NonNull<Node>),

    /// Ends the request, whose end was counted; the node may be gone when this returns.
    ///
    /// # Safety
    ///
    /// As for `count_end`, after that.
    pub(crate) end: unsafe fn(NonNull<Node>),
}

/// Where a request is accounted: what its completion must give back.
#[derive(Clone, Copy)]
pub(crate) struct Account {
    /// What its partition notes.
    pub(crate) placement: Placement,
    /// Name of the partition that decided.
    pub(crate) home: u16,
    /// CPU on which it arrived: where it is counted.
    pub(crate) cpu: u16,
    /// It ended without being submitted.
    pub(crate) refused: bool,
    /// It is a discard, a secure erase or a write of zeroes.
    pub(crate) lengthy: bool,
    /// Number of its submitter, where these are counted.
    pub(crate) submitter: u8,
    /// For how long it was queued, ms; once it is submitted, what of that is service time.
    pub(crate) waited: u32,
    /// When it was submitted, if it has a deadline.
    pub(crate) submitted: Submitted,
    /// What its tracepoints need.
    pub(crate) life: Life,
}

impl Account {
    /// Number of no submitter.
    pub(crate) const NOBODY: u8 = u8::MAX;

    /// Whether it holds a slot of its target.
    pub(crate) fn has_slot(&self) -> bool {
        self.placement.admission == Admission::Slot
    }

    /// Of a request that arrives on `cpu` and goes through the head of `priority`.
    pub(crate) const fn new(priority: Priority, cpu: u16) -> Self {
        Self {
            placement: Placement::new(priority),
            home: 0,
            cpu,
            refused: false,
            lengthy: false,
            submitter: Self::NOBODY,
            waited: 0,
            submitted: Submitted::NONE,
            life: Life::NONE,
        }
    }
}

/// What only the owner of a node looks at.
///
/// # Invariants
///
/// `next` is null or owns the next node of the queue that the node is in; `prev` is null or points to the one
/// before it there.
struct Body {
    next: *mut Node,
    prev: *mut Node,
    ops: &'static Ops,
    /// Since when it is held, monotonic ns.
    arrival: u64,
    cost: Cost,
    spot: Spot,
    account: Account,
}

/// What a [`Place`] looks at, too.
struct Tag {
    /// What the policy noted.
    mark: Hint,
    /// Number of the queue that the node is in, if it was registered when it was queued; else 0.
    queue: Hint,
    /// 1: there is a place for it.
    registered: Hint,
}

/// The part of a front-end's memory that belongs to the core.
///
/// # Invariants
///
/// While a [`Held`] for it exists, nothing else reads or writes the body. While a [`Place`] for it exists, it is
/// registered and valid.
#[repr(C)]
pub(crate) struct Node {
    body: Body,
    tag: Tag,
}

impl Node {
    /// A node for a request that costs `cost` and whose range is `spot`.
    pub(crate) fn new(ops: &'static Ops, cost: Cost, spot: Spot, account: Account) -> Self {
        Self {
            body: Body {
                next: ptr::null_mut(),
                prev: ptr::null_mut(),
                ops,
                arrival: 0,
                cost,
                spot,
                account,
            },
            tag: Tag {
                mark: Hint::new(0),
                queue: Hint::new(0),
                registered: Hint::new(0),
            },
        }
    }

    /// Where the request is accounted.
    pub(crate) fn account(&self) -> &Account {
        &self.body.account
    }

    /// Changes where the request is accounted.
    pub(crate) fn account_mut(&mut self) -> &mut Account {
        &mut self.body.account
    }

    /// What the request costs.
    pub(crate) fn cost(&self) -> Cost {
        self.body.cost
    }

    /// Says that the request transfers `bytes`.
    #[cfg(feature = "elevator")]
    pub(crate) fn set_bytes(&mut self, bytes: u64) {
        self.body.cost = Cost::new(self.body.cost.direction, bytes);
    }

    /// Since when it was held, monotonic ns; 0: it was not.
    pub(crate) fn arrival(&self) -> u64 {
        self.body.arrival
    }
}

/// The owner of a request between its arrival and its submission.
///
/// # Invariants
///
/// The pointer is valid and nothing else uses the node until [`Held::submit`] or [`Held::into_raw`].
#[must_use = "dropping it loses the request"]
pub(crate) struct Held(NonNull<Node>);

// SAFETY: A node is plain data of the front-end's request and `Held` is its only user, so it may move
// between tasks.
unsafe impl Send for Held {}
// SAFETY: `&Held` only gives out copies of plain data.
unsafe impl Sync for Held {}

impl Held {
    /// Takes ownership of a request.
    ///
    /// # Safety
    ///
    /// - `node` points to an initialised node that stays valid until its `submit` runs or
    ///   [`Held::into_raw`] gives it back.
    /// - Nothing else uses the node until then.
    pub(crate) unsafe fn from_raw(node: NonNull<Node>) -> Self {
        // INVARIANT: The caller promises it.
        Self(node)
    }

    /// Gives the node back to its front-end without submitting it; `None`: it is registered, and lost.
    pub(crate) fn into_raw(self) -> Option<NonNull<Node>> {
        let registered = self.is_registered();
        let node = self.into_node();
        if registered {
            bug!();
            return None;
        }
        Some(node)
    }

    /// The node, which stays this one's.
    pub(super) fn as_ptr(&self) -> NonNull<Node> {
        self.0
    }

    /// The node, for whoever keeps the promises of its owner.
    fn into_node(self) -> NonNull<Node> {
        ManuallyDrop::new(self).0
    }

    fn node(&self) -> &Body {
        // SAFETY: By the type invariant the pointer is valid and the body not written by others.
        unsafe { &(*self.0.as_ptr()).body }
    }

    fn node_mut(&mut self) -> &mut Body {
        // SAFETY: By the type invariant the pointer is valid and the body not used by others.
        unsafe { &mut (*self.0.as_ptr()).body }
    }

    fn tag(&self) -> &Tag {
        // SAFETY: By the type invariant the pointer is valid; all users of the tag share it.
        unsafe { &(*self.0.as_ptr()).tag }
    }

    /// Whether the front-end that brought it gave it `ops`.
    pub(crate) fn has_ops(&self, ops: &'static Ops) -> bool {
        ptr::eq(self.node().ops, ops)
    }

    /// Whether there is a place for it.
    fn is_registered(&self) -> bool {
        self.tag().registered.get() != 0
    }

    /// Where the request is accounted.
    pub(crate) fn account(&self) -> Account {
        self.node().account
    }

    /// Changes where the request is accounted.
    pub(crate) fn account_mut(&mut self) -> &mut Account {
        &mut self.node_mut().account
    }

    /// Prepares the request for being submitted from another task; it is held from `now` (monotonic ns)
    /// on.
    pub(crate) fn hold(&mut self, now: u64) {
        self.node_mut().arrival = now;
        let hold = self.node().ops.hold;
        // SAFETY: The node is initialised and ours by the type invariant.
        unsafe { hold(self.0) }
    }

    /// Submits the request to its device. May sleep.
    pub(crate) fn submit(self) {
        let submit = self.node().ops.submit;
        let Some(node) = self.into_raw() else {
            return;
        };
        // SAFETY: The node is initialised and was ours by the type invariant; `self` is gone, so this
        // happens once; there is no place that would find it later.
        unsafe { submit(node) }
    }

    /// Counts the end of a request that has come back from its device.
    pub(crate) fn count_end(&mut self) {
        let count_end = self.node().ops.count_end;
        // SAFETY: The node is initialised and ours by the type invariant.
        unsafe { count_end(self.0) }
    }

    /// Ends a request whose end was counted.
    pub(crate) fn end(self) {
        let end = self.node().ops.end;
        let Some(node) = self.into_raw() else {
            return;
        };
        // SAFETY: As in `submit`; the caller has had the end counted.
        unsafe { end(node) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A lost request is a hung task somewhere: say so loudly.
        bug!();
    }
}

/// By which a registered request is found in the queue that it is in.
///
/// # Invariants
///
/// The pointer is valid and its node registered; no other place has it.
#[must_use = "a request whose place is lost can never be served"]
pub(crate) struct Place(NonNull<Node>);

// SAFETY: It only gives access to what is shared by means of atomics.
unsafe impl Send for Place {}
// SAFETY: As above.
unsafe impl Sync for Place {}

impl Place {
    fn tag(&self) -> &Tag {
        // SAFETY: By the type invariant the pointer is valid; all users of the tag share it.
        unsafe { &(*self.0.as_ptr()).tag }
    }
}

impl item::Place for Place {
    fn mark(&self) -> u64 {
        self.tag().mark.get()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Its node stays registered, so its request can never be served: say so loudly.
        bug!();
    }
}

impl Scheduled for Held {
    fn placement(&self) -> &Placement {
        &self.node().account.placement
    }

    fn placement_mut(&mut self) -> &mut Placement {
        &mut self.node_mut().account.placement
    }

    fn note_wait(&mut self, now: u64) {
        let waited = now.saturating_sub(self.node().arrival) / NSEC_PER_MSEC;
        self.account_mut().waited = u32::try_from(waited).unwrap_or(u32::MAX);
    }
}

impl Item for Held {
    type Fifo = NodeFifo;
    type Place = Place;

    fn cost(&self) -> Cost {
        self.node().cost
    }

    fn arrival(&self) -> u64 {
        self.node().arrival
    }

    fn spot(&self) -> Spot {
        self.node().spot
    }

    fn mark(&self) -> u64 {
        self.tag().mark.get()
    }

    fn set_mark(&mut self, mark: u64) {
        self.tag().mark.set(mark);
    }

    fn register(&mut self) -> Place {
        // A second place for it would be a bug; the node is never given back then, so both stay good.
        bug!(self.is_registered());
        self.tag().registered.set(1);
        // INVARIANT: It is registered and ours, so it stays valid until it is not registered any more.
        Place(self.0)
    }

    fn unregister(&mut self, place: Place) {
        let same = place.0 == self.0;
        bug!(!same);
        core::mem::forget(place);
        if same {
            // The place is gone.
            self.tag().registered.set(0);
        }
    }
}
