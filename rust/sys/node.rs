// SPDX-License-Identifier: GPL-2.0-only

//! Requests linked through memory of their front-ends.
//!
//! # Vocabulary
//!
//! - *Node*: the part of a front-end's per-request memory that the core and the policies use.
//! - *Held*: the unique owner of a node between arrival and submission.
//! - *Ops*: functions that pass a request back to its front-end.
//! - *Handle*: a reference to find a registered request in its queue ([`NodeHandle`]).
//!
//! ```text
//!   front-end memory          Held::new             queue, policy, target list
//!   (uninitialised)  ───────────────────────▶  Held  ───────────────────────────▶  Held
//!                                               │                                    │
//!                             not queued        │                      Held::submit  │
//!                                               ▼                                    ▼
//!                                          front-end submits                 Ops::submit
//! ```
//!
//! Nothing here allocates: a queue is a list through the nodes, so a queued request needs no memory
//! beyond that of its front-end.
//!
//! # Validity of handles
//!
//! A [`NodeHandle`] exists exactly while its node is registered. A registered node is never passed
//! back to its front-end: the attempt leaks the request, with a warning. Therefore the node of a
//! handle is always valid. The node contains the number of its queue, which is unique among all
//! queues.

use core::{
    mem::ManuallyDrop,
    ptr::{self, NonNull},
};

use super::{atomic::Hint, misc::bug, trace::RequestTrace};
use crate::sched::{
    attr::Priority,
    item::{self, ByteRange, Cost, Item},
    partition::{Admission, Placement, Scheduled},
    timeouts::in_flight::Submitted,
    units::NSEC_PER_MSEC,
};

mod fifo;
#[cfg(CONFIG_KUNIT = "y")]
pub(crate) mod test_request;

pub(crate) use fifo::NodeFifo;

/// Functions that pass a request back to its front-end.
pub(crate) struct Ops {
    /// Prepares the request for being held: another task may submit it later.
    ///
    /// # Safety
    ///
    /// The node is initialised, not shared, and belongs to the front-end of these ops.
    pub(crate) prepare_queued: unsafe fn(NonNull<Node>),

    /// Submits the request to its device; the node may be freed when this returns.
    ///
    /// # Safety
    ///
    /// As for `prepare_queued`; called once per node, in a context that may sleep.
    pub(crate) submit: unsafe fn(NonNull<Node>),

    /// Counts the end of the request, which has been submitted and has completed.
    ///
    /// # Safety
    ///
    /// As for `prepare_queued`; called once per node.
    pub(crate) count_end: unsafe fn(NonNull<Node>),

    /// Ends the request, whose end was counted; the node may be freed when this returns.
    ///
    /// # Safety
    ///
    /// As for `count_end`; called after it.
    pub(crate) end: unsafe fn(NonNull<Node>),
}

/// Accounting state of a request, which its completion reverts.
#[derive(Clone, Copy)]
pub(crate) struct NodeAccount {
    /// State of the request in its partition.
    pub(crate) placement: Placement,
    /// Identifier, in the service, of the partition that made the decision.
    pub(crate) home: u16,
    /// CPU on which the request arrived, in whose counters it is counted.
    pub(crate) cpu: u16,
    /// True for a discard, a secure erase or a write of zeroes.
    pub(crate) lengthy: bool,
    /// Index of the share of the tags in which the request is counted.
    pub(crate) tag_share: u16,
    /// Number of refused flushes of the device that the request, a write, makes up for; 0: none.
    pub(crate) flushes: u32,
    /// Time in the queue, ms; after submission, the part of it that counts as service time.
    pub(crate) waited: u32,
    /// Time of submission, if the request has a deadline.
    pub(crate) submitted: Submitted,
    /// Data for tracepoints.
    pub(crate) life: RequestTrace,
}

impl NodeAccount {
    /// Value of `tag_share` for a request that is not counted.
    pub(crate) const NO_SHARE: u16 = u16::MAX;

    /// Returns true if the request holds a slot of its target.
    pub(crate) fn has_slot(&self) -> bool {
        self.placement.admission == Admission::Slot
    }

    /// Creates the account of a request that arrives on `cpu` and uses the head of `priority`.
    pub(crate) const fn new(priority: Priority, cpu: u16) -> Self {
        Self {
            placement: Placement::new(priority),
            home: 0,
            cpu,
            lengthy: false,
            tag_share: Self::NO_SHARE,
            flushes: 0,
            waited: 0,
            submitted: Submitted::NONE,
            life: RequestTrace::NONE,
        }
    }
}

/// Part of a node that only the owner accesses.
///
/// # Invariants
///
/// `next` is null or owns the next node of the node's queue; `prev` is null or points to the
/// previous one there.
struct OwnedPart {
    next: *mut Node,
    prev: *mut Node,
    ops: &'static Ops,
    /// Time from which the request is held, monotonic ns.
    arrival: u64,
    cost: Cost,
    range: ByteRange,
    account: NodeAccount,
}

/// Part of a node that a [`NodeHandle`] accesses as well.
struct PlaceTag {
    /// Value recorded by the policy.
    mark: Hint,
    /// Number of the node's queue, if the node was registered when it was queued; else 0.
    queue: Hint,
    /// 1 if a handle for the node exists.
    registered: Hint,
}

/// Part of a front-end's memory that belongs to the core.
///
/// # Invariants
///
/// While a [`Held`] for it exists, no other code accesses the body. While a [`NodeHandle`] for it
/// exists, the node is registered and valid.
#[repr(C)]
pub(crate) struct Node {
    body: OwnedPart,
    tag: PlaceTag,
}

impl Node {
    /// Creates a node for a request that costs `cost` and has the range `range`.
    pub(crate) fn new(
        ops: &'static Ops,
        cost: Cost,
        range: ByteRange,
        account: NodeAccount,
    ) -> Self {
        Self {
            body: OwnedPart {
                next: ptr::null_mut(),
                prev: ptr::null_mut(),
                ops,
                arrival: 0,
                cost,
                range,
                account,
            },
            tag: PlaceTag {
                mark: Hint::new(0),
                queue: Hint::new(0),
                registered: Hint::new(0),
            },
        }
    }

    /// Returns the account of the request.
    pub(crate) fn account(&self) -> &NodeAccount {
        &self.body.account
    }

    /// Returns the account of the request, for changes.
    pub(crate) fn account_mut(&mut self) -> &mut NodeAccount {
        &mut self.body.account
    }

    /// Returns the cost of the request.
    pub(crate) fn cost(&self) -> Cost {
        self.body.cost
    }

    /// Sets the length of the request to `bytes`.
    #[cfg(feature = "elevator")]
    pub(crate) fn set_bytes(&mut self, bytes: u64) {
        let cost = &mut self.body.cost;
        *cost = Cost {
            is_piece: cost.is_piece,
            ..Cost::new(cost.direction, bytes)
        };
    }

    /// Returns the time from which the request was held, monotonic ns; 0 if it was not held.
    pub(crate) fn arrival(&self) -> u64 {
        self.body.arrival
    }
}

/// The owner of a request between its arrival and its submission.
///
/// # Invariants
///
/// The pointer is valid and no other code uses the node until [`Held::submit`] or
/// [`Held::into_raw`].
#[must_use = "dropping the owner loses the request"]
pub(crate) struct Held(NonNull<Node>);

// SAFETY: A node is plain data of the front-end's request and `Held` is its only user, so it may
// move between tasks.
unsafe impl Send for Held {}
// SAFETY: `&Held` only returns copies of plain data.
unsafe impl Sync for Held {}

impl Held {
    /// Takes ownership of a request.
    ///
    /// # Safety
    ///
    /// - `node` points to an initialised node that stays valid until its `submit` runs or
    ///   [`Held::into_raw`] returns it.
    /// - No other code uses the node until then.
    pub(crate) unsafe fn from_raw(node: NonNull<Node>) -> Self {
        // INVARIANT: By the safety requirements of this function.
        Self(node)
    }

    /// Returns the node for its front-end, without submitting it. A registered node is leaked, with
    /// a warning and `None`.
    pub(crate) fn into_raw(self) -> Option<NonNull<Node>> {
        let registered = self.is_registered();
        let node = self.into_node();
        if registered {
            bug!();
            return None;
        }
        Some(node)
    }

    /// Returns the node; `self` stays its owner.
    pub(super) fn as_ptr(&self) -> NonNull<Node> {
        self.0
    }

    /// Converts `self` to the node; the caller must keep the invariants of its owner.
    fn into_node(self) -> NonNull<Node> {
        ManuallyDrop::new(self).0
    }

    fn node(&self) -> &OwnedPart {
        // SAFETY: By the type invariant the pointer is valid and no other code writes the body.
        unsafe { &(*self.0.as_ptr()).body }
    }

    fn node_mut(&mut self) -> &mut OwnedPart {
        // SAFETY: By the type invariant the pointer is valid and no other code uses the body.
        unsafe { &mut (*self.0.as_ptr()).body }
    }

    fn tag(&self) -> &PlaceTag {
        // SAFETY: By the type invariant the pointer is valid; all users of the tag share it.
        unsafe { &(*self.0.as_ptr()).tag }
    }

    /// Returns true if the node was created with `ops`, so that their front-end made it.
    pub(crate) fn has_ops(&self, ops: &'static Ops) -> bool {
        ptr::eq(self.node().ops, ops)
    }

    /// Returns true if a handle for the node exists.
    fn is_registered(&self) -> bool {
        self.tag().registered.get() != 0
    }

    /// Returns a copy of the account of the request.
    pub(crate) fn account(&self) -> NodeAccount {
        self.node().account
    }

    /// Returns the account of the request, for changes.
    pub(crate) fn account_mut(&mut self) -> &mut NodeAccount {
        &mut self.node_mut().account
    }

    /// Prepares the request for submission by another task; the request is held from `now`,
    /// monotonic ns.
    pub(crate) fn prepare_queued(&mut self, now: u64) {
        self.node_mut().arrival = now;
        let prepare_queued = self.node().ops.prepare_queued;
        // SAFETY: By the type invariant the node is initialised and owned by `self`.
        unsafe { prepare_queued(self.0) }
    }

    /// Submits the request to its device. May sleep.
    pub(crate) fn submit(self) {
        let submit = self.node().ops.submit;
        let Some(node) = self.into_raw() else {
            return;
        };
        // SAFETY: By the type invariant the node is initialised and was owned by `self`, which is
        // consumed, so this happens once. No handle could find the node later.
        unsafe { submit(node) }
    }

    /// Counts the end of a request that its device has completed.
    pub(crate) fn count_end(&mut self) {
        let count_end = self.node().ops.count_end;
        // SAFETY: By the type invariant the node is initialised and owned by `self`.
        unsafe { count_end(self.0) }
    }

    /// Ends a request whose end was counted.
    pub(crate) fn end(self) {
        let end = self.node().ops.end;
        let Some(node) = self.into_raw() else {
            return;
        };
        // SAFETY: As in `submit`; the caller has counted the end.
        unsafe { end(node) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A lost request causes a hung task, so a warning is required.
        bug!();
    }
}

/// Handle to find a registered request in its queue.
///
/// # Invariants
///
/// The pointer is valid and its node registered; no other handle has the pointer.
#[must_use = "a request without its handle is never dispatched"]
pub(crate) struct NodeHandle(NonNull<Node>);

// SAFETY: A handle gives access only to the tag, which is shared by means of atomics.
unsafe impl Send for NodeHandle {}
// SAFETY: As above.
unsafe impl Sync for NodeHandle {}

impl NodeHandle {
    fn tag(&self) -> &PlaceTag {
        // SAFETY: By the type invariant the pointer is valid; all users of the tag share it.
        unsafe { &(*self.0.as_ptr()).tag }
    }
}

impl item::ItemHandle for NodeHandle {
    fn mark(&self) -> u64 {
        self.tag().mark.get()
    }
}

impl Drop for NodeHandle {
    fn drop(&mut self) {
        // The node stays registered, so the request can never be dispatched: a warning is required.
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
    type Handle = NodeHandle;

    fn cost(&self) -> Cost {
        self.node().cost
    }

    fn arrival(&self) -> u64 {
        self.node().arrival
    }

    fn byte_range(&self) -> ByteRange {
        self.node().range
    }

    fn mark(&self) -> u64 {
        self.tag().mark.get()
    }

    fn set_mark(&mut self, mark: u64) {
        self.tag().mark.set(mark);
    }

    fn register(&mut self) -> NodeHandle {
        // A second handle would be a bug. The node is then never passed back, so both handles stay
        // valid.
        bug!(self.is_registered());
        self.tag().registered.set(1);
        // INVARIANT: The node is registered and owned by `self`, so it stays valid while it is
        // registered.
        NodeHandle(self.0)
    }

    fn unregister(&mut self, handle: NodeHandle) {
        let same = handle.0 == self.0;
        bug!(!same);
        core::mem::forget(handle);
        if same {
            // The handle no longer exists.
            self.tag().registered.set(0);
        }
    }
}
