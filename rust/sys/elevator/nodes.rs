// SPDX-License-Identifier: GPL-2.0-only

//! Memory for the requests of a queue, by their tags.
//!
//! A request of a queue with a scheduler has a tag of its hardware queue, `internal_tag`, that no
//! other request has until it has ended. With shared tags no request of the whole queue has it.

use core::{cell::UnsafeCell, mem::offset_of, ptr::NonNull};

use kernel::{bindings, prelude::*};

use crate::sys::{node::Node, raw, task::Whose};

/// What is kept for a request.
pub(super) struct PerRequest {
    pub(super) rq: *mut bindings::request,
    /// Whose it is; written when it may begin to grow.
    pub(super) whose: Whose,
    pub(super) node: Node,
}

impl PerRequest {
    /// # Safety
    ///
    /// `node` is that of a [`PerRequest`].
    pub(super) unsafe fn around(node: NonNull<Node>) -> *mut Self {
        // SAFETY: The caller promises it, so the result stays in the same allocation.
        unsafe { node.as_ptr().byte_sub(offset_of!(Self, node)).cast() }
    }
}

/// Slots for all requests that a queue may have.
///
/// They are in the spare room of a vector: a slot is initialised by who has the tag, and dropping
/// it needs nothing.
pub(super) struct Nodes {
    slots: KVVec<UnsafeCell<PerRequest>>,
    /// Slots of each hardware queue.
    each: usize,
    /// Hardware queues have the same tags.
    shared: bool,
}

impl Nodes {
    /// No slots.
    pub(super) const NONE: Self = Self {
        slots: KVVec::new(),
        each: 0,
        shared: false,
    };

    /// Creates slots for all requests that `q` may have.
    ///
    /// # Safety
    ///
    /// `q` is valid and frozen.
    pub(super) unsafe fn new(q: *mut bindings::request_queue) -> Result<Self> {
        // SAFETY: The caller promises it.
        let (each, queues, shared) = unsafe {
            (
                (*q).nr_requests as usize,
                (*q).nr_hw_queues as usize,
                raw::nrs_queue_shares_tags(q),
            )
        };
        let count = if shared {
            each
        } else {
            each.checked_mul(queues).ok_or(ENOMEM)?
        };
        Ok(Self {
            slots: KVVec::with_capacity(count, GFP_KERNEL)?,
            each,
            shared,
        })
    }

    /// Returns the slot of `rq`, if there is one.
    ///
    /// # Safety
    ///
    /// `rq` has a tag of the queue.
    pub(super) unsafe fn of(&self, rq: *mut bindings::request) -> Option<*mut PerRequest> {
        // SAFETY: The caller promises it.
        let (tag, queue) = unsafe { ((*rq).internal_tag, (*(*rq).mq_hctx).queue_num as usize) };
        let tag = usize::try_from(tag).ok().filter(|tag| *tag < self.each)?;
        let first = if self.shared {
            0
        } else {
            queue.checked_mul(self.each)?
        };
        let index = first.checked_add(tag)?;
        (index < self.slots.capacity())
            // SAFETY: Within the vector's memory. No reference is made: others use their slots.
            .then(|| unsafe { UnsafeCell::raw_get(self.slots.as_ptr().add(index)) })
    }
}
