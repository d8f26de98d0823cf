// SPDX-License-Identifier: GPL-2.0-only

//! Requests of a front-end without memory of its own for requests: each is allocated in a box.
//!
//! # Vocabulary
//!
//! - *Boxed*: a request owned by its front-end ([`BoxedRequest`]); it becomes a [`Held`] for the
//!   core.
//! - *Queue*: requests owned by the front-end, linked through their boxes ([`BoxFifo`]).
//!
//! ```text
//!   BoxedRequest::new ─▶ into_held ─▶ core, policy, target ─▶ Held::submit ─▶ Submit::submitted
//!                                                                               │
//!                   freed ◀── BoxedRequest ◀── BoxFifo::pop ◀── BoxFifo::push ◀─┘
//! ```

use core::{marker::PhantomData, mem::ManuallyDrop, ptr::NonNull};

use kernel::{alloc::Flags, prelude::*};

use crate::{
    sched::item::{ByteRange, Cost, Fifo},
    sys::{
        misc::bug,
        node::{Held, Node, NodeAccount, NodeFifo, Ops},
    },
};

/// Data that the front-end keeps for a request.
pub(crate) trait Submit: Send + Sync + Sized + 'static {
    /// Takes a dispatched request. Called in a context that may sleep.
    fn submitted(this: BoxedRequest<Self>);
}

/// A node and the data of the front-end.
#[repr(C)]
struct Holder<T> {
    node: Node,
    value: T,
}

/// A request owned by its front-end.
///
/// # Invariants
///
/// The pointer is from a `KBox<Holder<T>>`, and only this `BoxedRequest` uses that allocation.
pub(crate) struct BoxedRequest<T: Submit>(NonNull<Holder<T>>);

// SAFETY: The box owns a node, which is plain data, and a `T`, which is `Send`.
unsafe impl<T: Submit> Send for BoxedRequest<T> {}
// SAFETY: `&BoxedRequest` gives out copies of plain data and `&T`, which is `Sync`.
unsafe impl<T: Submit> Sync for BoxedRequest<T> {}

impl<T: Submit> BoxedRequest<T> {
    const OPS: &'static Ops = &Ops {
        prepare_queued: Self::prepare_queued,
        submit: Self::submit,
        // Programs end their requests themselves, never in an interrupt.
        count_end: |_| bug!(),
        end: |_| bug!(),
    };

    /// Allocates a request that costs `cost` and whose range starts at `range`.
    pub(crate) fn new(
        value: T,
        cost: Cost,
        range: ByteRange,
        account: NodeAccount,
        flags: Flags,
    ) -> Result<Self> {
        let node = Node::new(Self::OPS, cost, range, account);
        let holder = KBox::into_raw(KBox::new(Holder { node, value }, flags)?);
        // INVARIANT: From a box, and not shared.
        // SAFETY: Boxes are never null.
        Ok(Self(unsafe { NonNull::new_unchecked(holder) }))
    }

    fn holder(&self) -> &Holder<T> {
        // SAFETY: By the type invariant.
        unsafe { self.0.as_ref() }
    }

    /// Returns the data of the front-end.
    pub(crate) fn value(&self) -> &T {
        &self.holder().value
    }

    /// Returns the account of the request.
    pub(crate) fn account(&self) -> NodeAccount {
        *self.holder().node.account()
    }

    /// Returns the cost of the request.
    pub(crate) fn cost(&self) -> Cost {
        self.holder().node.cost()
    }

    /// Returns the time from which the request was held, monotonic ns; 0 if it was not held.
    pub(crate) fn arrival(&self) -> u64 {
        self.holder().node.arrival()
    }

    /// Converts the request to a [`Held`] for the core, which ends in [`Submit::submitted`].
    pub(crate) fn into_held(self) -> Held {
        let holder = ManuallyDrop::new(self).0;
        // SAFETY: The node is the first field of the `repr(C)` holder and initialised. By the type
        // invariant there is no other user. The box stays until `submit` or `from_held` takes it
        // back.
        unsafe { Held::from_raw(holder.cast()) }
    }

    /// Takes back a request that the core refused; warns and returns `None` if another front-end
    /// made the request.
    pub(crate) fn from_held(held: Held) -> Option<Self> {
        if !held.has_ops(Self::OPS) {
            return None;
        }
        let node = held.into_raw()?;
        // SAFETY: Only `into_held` of this type makes requests with these ops, and the owner gave
        // this request up.
        Some(unsafe { Self::from_node(node) })
    }

    /// Takes a request back from the core.
    ///
    /// # Safety
    ///
    /// [`Self::into_held`] of this type made `node`, which no other code uses after this call.
    unsafe fn from_node(node: NonNull<Node>) -> Self {
        // INVARIANT: The node is the first field of a box made by this type, and owned by the
        // caller again.
        Self(node.cast())
    }

    /// Does nothing: these requests need no preparation.
    ///
    /// # Safety
    ///
    /// As required by [`Ops::prepare_queued`].
    unsafe fn prepare_queued(_node: NonNull<Node>) {}

    /// Gives the request back to its front-end.
    ///
    /// # Safety
    ///
    /// As required by [`Ops::submit`].
    unsafe fn submit(node: NonNull<Node>) {
        // SAFETY: Only `into_held` makes requests with these ops, and the owner gave this request
        // up.
        T::submitted(unsafe { Self::from_node(node) });
    }
}

impl<T: Submit> Drop for BoxedRequest<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        drop(unsafe { KBox::from_raw(self.0.as_ptr()) });
    }
}

/// A FIFO of requests owned by their front-end; it never allocates.
///
/// # Invariants
///
/// All requests in the queue came from [`BoxedRequest::into_held`] of the same `T`.
pub(crate) struct BoxFifo<T: Submit> {
    held: NodeFifo,
    _boxes: PhantomData<BoxedRequest<T>>,
}

impl<T: Submit> BoxFifo<T> {
    /// Creates an empty queue.
    pub(crate) fn new() -> Self {
        // INVARIANT: Empty.
        Self {
            held: NodeFifo::new(),
            _boxes: PhantomData,
        }
    }

    /// Appends `boxed`.
    pub(crate) fn push(&mut self, boxed: BoxedRequest<T>) {
        // INVARIANT: From `into_held`.
        self.held.push(boxed.into_held());
    }

    /// Removes and returns the oldest request.
    pub(crate) fn pop(&mut self) -> Option<BoxedRequest<T>> {
        let node = self.held.pop()?.into_raw()?;
        // SAFETY: By the type invariant.
        Some(unsafe { BoxedRequest::from_node(node) })
    }

    /// Appends all of `other`, in order.
    pub(crate) fn append(&mut self, other: &mut Self) {
        // INVARIANT: The requests of `other` came from `into_held` of the same `T`.
        self.held.append(&mut other.held);
    }

    /// Returns the number of requests in the queue.
    pub(crate) fn len(&self) -> u32 {
        self.held.len()
    }

    /// Returns true if the queue is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

impl<T: Submit> Drop for BoxFifo<T> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}
