// SPDX-License-Identifier: GPL-2.0-only

//! Requests of a front-end that has no memory of its own for them: each in a box.
//!
//! # Vocabulary
//!
//! - *Boxed*: a request that its front-end owns ([`Boxed`]); it becomes a [`Held`] for the core.
//! - *Queue*: requests that the front-end owns, linked through their boxes ([`BoxFifo`]).
//!
//! ```text
//!   Boxed::new ──▶ Boxed::into_held ──▶ core, policy, target ──▶ Held::submit ──▶ Submit::submitted
//!                                                                                    │
//!                               freed ◀── Boxed ◀── BoxFifo::pop ◀── BoxFifo::push ◀─┘
//! ```

use core::{marker::PhantomData, mem::ManuallyDrop, ptr::NonNull};

use kernel::{alloc::Flags, prelude::*};

use crate::{
    sched::item::{Cost, Fifo, Spot},
    sys::{
        misc::bug,
        node::{Account, Held, Node, NodeFifo, Ops},
    },
};

/// What a front-end keeps of a request.
pub(crate) trait Submit: Send + Sync + Sized + 'static {
    /// The request is to be served now. In a context that may sleep.
    fn submitted(this: Boxed<Self>);
}

/// A node and what the front-end keeps beside it.
#[repr(C)]
struct Holder<T> {
    node: Node,
    value: T,
}

/// A request that its front-end owns.
///
/// # Invariants
///
/// The pointer is from a `KBox<Holder<T>>`, and nothing else uses what it points to.
pub(crate) struct Boxed<T: Submit>(NonNull<Holder<T>>);

// SAFETY: It owns a node, which is plain data, and a `T`, which is `Send`.
unsafe impl<T: Submit> Send for Boxed<T> {}
// SAFETY: `&Boxed` gives out copies of plain data and `&T`, which is `Sync`.
unsafe impl<T: Submit> Sync for Boxed<T> {}

impl<T: Submit> Boxed<T> {
    const OPS: &'static Ops = &Ops {
        hold: Self::hold,
        submit: Self::submit,
        // Programs end their requests themselves, never in an interrupt.
        count_end: |_| bug!(),
        end: |_| bug!(),
    };

    /// A request that costs `cost` and whose range starts at `spot`.
    pub(crate) fn new(
        value: T,
        cost: Cost,
        spot: Spot,
        account: Account,
        flags: Flags,
    ) -> Result<Self> {
        let node = Node::new(Self::OPS, cost, spot, account);
        let holder = KBox::into_raw(KBox::new(Holder { node, value }, flags)?);
        // INVARIANT: From a box, and not shared.
        // SAFETY: Boxes are never null.
        Ok(Self(unsafe { NonNull::new_unchecked(holder) }))
    }

    fn holder(&self) -> &Holder<T> {
        // SAFETY: By the type invariant.
        unsafe { self.0.as_ref() }
    }

    /// What the front-end keeps.
    pub(crate) fn value(&self) -> &T {
        &self.holder().value
    }

    /// Where the request is accounted.
    pub(crate) fn account(&self) -> Account {
        *self.holder().node.account()
    }

    /// What it costs.
    pub(crate) fn cost(&self) -> Cost {
        self.holder().node.cost()
    }

    /// Since when it was held, monotonic ns; 0: it was not.
    pub(crate) fn arrival(&self) -> u64 {
        self.holder().node.arrival()
    }

    /// Hands it to the core, which hands it to [`Submit::submitted`].
    pub(crate) fn into_held(self) -> Held {
        let holder = ManuallyDrop::new(self).0;
        // SAFETY: The node is the first field of the `repr(C)` holder, is initialised, and by the type
        // invariant nobody else uses it; the box stays until `submit` or `from_held` takes it back.
        unsafe { Held::from_raw(holder.cast()) }
    }

    /// Takes back a request that the core did not take; `None`, and a loud one, if it is another
    /// front-end's.
    pub(crate) fn from_held(held: Held) -> Option<Self> {
        if !held.has_ops(Self::OPS) {
            return None;
        }
        let node = held.into_raw()?;
        // SAFETY: Only `into_held` of this very type makes requests with these ops, and this one is given
        // up by its owner.
        Some(unsafe { Self::from_node(node) })
    }

    /// Takes a request back from the core.
    ///
    /// # Safety
    ///
    /// `node` was given away by [`Self::into_held`] of this very type and is not used any more.
    unsafe fn from_node(node: NonNull<Node>) -> Self {
        // INVARIANT: The node is the first field of a box that this type made, and ours again.
        Self(node.cast())
    }

    /// Nothing to prepare.
    ///
    /// # Safety
    ///
    /// As [`Ops::hold`] says.
    unsafe fn hold(_node: NonNull<Node>) {}

    /// Gives the request back to its front-end.
    ///
    /// # Safety
    ///
    /// As [`Ops::submit`] says.
    unsafe fn submit(node: NonNull<Node>) {
        // SAFETY: Only `into_held` makes requests with these ops, and this one is given up by its owner.
        T::submitted(unsafe { Self::from_node(node) });
    }
}

impl<T: Submit> Drop for Boxed<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        drop(unsafe { KBox::from_raw(self.0.as_ptr()) });
    }
}

/// A first-in first-out queue of requests that their front-end owns; it never allocates.
///
/// # Invariants
///
/// Everything in it came from [`Boxed::into_held`] of the same `T`.
pub(crate) struct BoxFifo<T: Submit> {
    held: NodeFifo,
    _boxes: PhantomData<Boxed<T>>,
}

impl<T: Submit> BoxFifo<T> {
    /// An empty queue.
    pub(crate) fn new() -> Self {
        // INVARIANT: Empty.
        Self {
            held: NodeFifo::new(),
            _boxes: PhantomData,
        }
    }

    /// Appends `boxed`.
    pub(crate) fn push(&mut self, boxed: Boxed<T>) {
        // INVARIANT: From `into_held`.
        self.held.push(boxed.into_held());
    }

    /// Takes the oldest.
    pub(crate) fn pop(&mut self) -> Option<Boxed<T>> {
        let node = self.held.pop()?.into_raw()?;
        // SAFETY: By the type invariant.
        Some(unsafe { Boxed::from_node(node) })
    }

    /// Appends all of `other`, in order.
    pub(crate) fn append(&mut self, other: &mut Self) {
        // INVARIANT: Those of `other` are of the same kind.
        self.held.append(&mut other.held);
    }

    /// Requests in it.
    pub(crate) fn len(&self) -> u32 {
        self.held.len()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

impl<T: Submit> Drop for BoxFifo<T> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}
