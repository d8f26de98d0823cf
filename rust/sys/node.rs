// SPDX-License-Identifier: GPL-2.0-only

//! Requests linked through the memory of the front-end that brought them.
//!
//! # Vocabulary
//!
//! - *Node*: the part of a front-end's per-request memory that the core and the policies use.
//! - *Held*: the one owner of a node between arrival and submission.
//! - *Ops*: how a front-end gets its request back.
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
//! Nothing here allocates: a queue is a singly linked list through the nodes, so a queued request costs
//! no memory beyond what its front-end already has.

use core::{
    marker::PhantomData,
    mem::ManuallyDrop,
    ptr::{self, NonNull},
};

use crate::sched::{
    attr::Priority,
    head::Ticket,
    item::{Cost, Fifo, Item, Spot},
};

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
}

/// Where a request is accounted: what its completion must give back.
#[derive(Clone, Copy)]
pub(crate) struct Account {
    /// Instance and class; only for a request that was queued.
    pub(crate) ticket: Option<Ticket>,
    /// Index of the partition that decided.
    pub(crate) home: u16,
    /// Index of the target in its service.
    pub(crate) target: u16,
    /// Head that the request went through.
    pub(crate) priority: Priority,
    /// Whether it holds a slot of the service.
    pub(crate) slot: bool,
    /// Whether it is counted at its target.
    pub(crate) placed: bool,
}

/// The part of a front-end's memory that belongs to the core.
///
/// # Invariants
///
/// While a [`Held`] for it exists, nothing else reads or writes the node. `next` is null or owns the
/// next node of the queue that the node is in.
#[repr(C)]
pub(crate) struct Node {
    next: *mut Node,
    ops: &'static Ops,
    /// Since when it is held, monotonic ns.
    arrival: u64,
    cost: Cost,
    spot: Spot,
    account: Account,
}

impl Node {
    /// A node for a request that costs `cost` and whose range starts at `spot`.
    pub(crate) fn new(ops: &'static Ops, cost: Cost, spot: Spot, account: Account) -> Self {
        Self {
            next: ptr::null_mut(),
            ops,
            arrival: 0,
            cost,
            spot,
            account,
        }
    }

    /// Where the request is accounted.
    pub(crate) fn account(&self) -> Account {
        self.account
    }

    /// What the request costs.
    pub(crate) fn cost(&self) -> Cost {
        self.cost
    }

    /// Since when it was held, monotonic ns; 0: it was not.
    pub(crate) fn arrival(&self) -> u64 {
        self.arrival
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

    /// Gives the node back to its front-end without submitting it.
    pub(crate) fn into_raw(self) -> NonNull<Node> {
        ManuallyDrop::new(self).0
    }

    fn node(&self) -> &Node {
        // SAFETY: By the type invariant the pointer is valid and not written by others.
        unsafe { self.0.as_ref() }
    }

    fn node_mut(&mut self) -> &mut Node {
        // SAFETY: By the type invariant the pointer is valid and not used by others.
        unsafe { self.0.as_mut() }
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
        let node = self.into_raw();
        // SAFETY: The node is initialised and was ours by the type invariant; `self` is gone, so this
        // happens once.
        unsafe { submit(node) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A lost request is a hung task somewhere: say so loudly.
        kernel::warn_on!(true);
    }
}

impl Item for Held {
    type Fifo = NodeFifo;

    fn cost(&self) -> Cost {
        self.node().cost
    }

    fn arrival(&self) -> u64 {
        self.node().arrival
    }

    fn spot(&self) -> Spot {
        self.node().spot
    }
}

/// A first-in first-out queue of requests, linked through their nodes.
///
/// # Invariants
///
/// `first` and `last` are both null or both point to nodes that this queue owns; following `next` from
/// `first` visits `len` nodes and ends with `last`, whose `next` is null. The first node is handed out
/// as [`Held`] by reference only.
pub(crate) struct NodeFifo {
    first: Option<Held>,
    last: *mut Node,
    len: u32,
    _owns: PhantomData<Node>,
}

// SAFETY: The queue owns its nodes, which may move between tasks (see `Held`).
unsafe impl Send for NodeFifo {}
// SAFETY: `&NodeFifo` only gives out `&Held`.
unsafe impl Sync for NodeFifo {}

impl NodeFifo {
    /// Appends all of `other`, in order.
    pub(crate) fn append(&mut self, other: &mut Self) {
        let Some(first) = other.first.take() else {
            return;
        };
        let (last, len) = (other.last, other.len);
        other.last = ptr::null_mut();
        other.len = 0;
        self.link(first, last, len);
    }

    /// Appends the chain of `len` nodes from `first` to `last`.
    fn link(&mut self, first: Held, last: *mut Node, len: u32) {
        if self.first.is_none() {
            self.first = Some(first);
        } else {
            // SAFETY: The queue is not empty, so `last` is valid and ours by the type invariant; it may
            // be the node behind `self.first`, of which no reference is alive here.
            unsafe { (*self.last).next = first.into_raw().as_ptr() };
        }
        // INVARIANT: `last` ends the chain that was just linked.
        self.last = last;
        self.len = self.len.wrapping_add(len);
    }
}

impl Fifo for NodeFifo {
    type Item = Held;

    fn new() -> Self {
        // INVARIANT: Empty.
        Self {
            first: None,
            last: ptr::null_mut(),
            len: 0,
            _owns: PhantomData,
        }
    }

    fn push(&mut self, mut item: Held) {
        item.node_mut().next = ptr::null_mut();
        let last = item.0.as_ptr();
        self.link(item, last, 1);
    }

    fn pop(&mut self) -> Option<Held> {
        let mut first = self.first.take()?;
        let next = core::mem::replace(&mut first.node_mut().next, ptr::null_mut());
        // SAFETY: By the type invariant `next` is null or owned by this queue, and no `Held` for it
        // exists yet.
        self.first = NonNull::new(next).map(|node| unsafe { Held::from_raw(node) });
        if self.first.is_none() {
            self.last = ptr::null_mut();
        }
        self.len = self.len.wrapping_sub(1);
        Some(first)
    }

    fn front(&self) -> Option<&Held> {
        self.first.as_ref()
    }

    fn len(&self) -> u32 {
        self.len
    }
}

#[cfg(CONFIG_KUNIT = "y")]
pub(crate) mod fake;

#[kernel::prelude::kunit_tests(nrs_node)]
mod tests {
    use super::{fake, *};
    use kernel::prelude::*;

    use crate::sched::attr::Priority;

    fn arrivals(fifo: &mut NodeFifo) -> [u64; 4] {
        let mut seen = [0; 4];
        for place in &mut seen {
            if let Some(held) = fifo.pop() {
                *place = held.arrival();
                fake::discard(held);
            }
        }
        seen
    }

    #[test]
    fn fifo_keeps_order() -> Result {
        let probe = fake::Probe::new()?;
        let mut fifo = NodeFifo::new();
        for arrival in 1..=3 {
            fifo.push(fake::request(&probe, arrival, 4096, Priority::Regular)?);
        }
        let (len, front) = (fifo.len(), fifo.front().map(Item::arrival));
        let seen = arrivals(&mut fifo);
        assert!(len == 3 && front == Some(1));
        assert!(seen == [1, 2, 3, 0]);
        assert!(fifo.is_empty() && fifo.front().is_none());
        Ok(())
    }

    #[test]
    fn fifo_is_usable_after_it_ran_empty() -> Result {
        let probe = fake::Probe::new()?;
        let mut fifo = NodeFifo::new();
        fifo.push(fake::request(&probe, 1, 0, Priority::Regular)?);
        let first = arrivals(&mut fifo);
        fifo.push(fake::request(&probe, 2, 0, Priority::Regular)?);
        fifo.push(fake::request(&probe, 3, 0, Priority::Regular)?);
        let second = arrivals(&mut fifo);
        assert!(first == [1, 0, 0, 0] && second == [2, 3, 0, 0]);
        Ok(())
    }

    #[test]
    fn append_moves_everything() -> Result {
        let probe = fake::Probe::new()?;
        let (mut a, mut b) = (NodeFifo::new(), NodeFifo::new());
        a.append(&mut b);
        let nothing = a.is_empty();
        a.push(fake::request(&probe, 1, 0, Priority::Regular)?);
        b.push(fake::request(&probe, 2, 0, Priority::Regular)?);
        b.push(fake::request(&probe, 3, 0, Priority::Regular)?);
        a.append(&mut b);
        a.push(fake::request(&probe, 4, 0, Priority::Regular)?);
        let lens = (a.len(), b.len());
        let seen = arrivals(&mut a);
        assert!(nothing && lens == (4, 0));
        assert!(seen == [1, 2, 3, 4]);
        Ok(())
    }

    #[test]
    fn submit_consumes_the_request() -> Result {
        let probe = fake::Probe::new()?;
        fake::request(&probe, 1, 0, Priority::Regular)?.submit();
        let seen = probe.submitted();
        assert!(seen == 1);
        Ok(())
    }
}
