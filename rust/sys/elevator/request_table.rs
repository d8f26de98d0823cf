// SPDX-License-Identifier: GPL-2.0-only

//! Memory for the requests of a queue, indexed by their tags.
//!
//! A request of a queue with a scheduler has the tag `internal_tag` of its hardware queue, which is
//! unique until the request has ended. If tags are shared, it is unique in the whole queue.

use core::{cell::UnsafeCell, mem::offset_of, ptr::NonNull};

use kernel::{bindings, prelude::*};

use crate::sys::{node::Node, raw, task::SubmitterId};

/// Entry of one request.
pub(super) struct RequestEntry {
    pub(super) rq: *mut bindings::request,
    /// Submitter and kind of the request; written before bios may be merged into it.
    pub(super) whose: SubmitterId,
    pub(super) node: Node,
}

impl RequestEntry {
    /// Returns the entry that contains `node`.
    ///
    /// # Safety
    ///
    /// `node` is the node of a [`RequestEntry`].
    pub(super) unsafe fn around(node: NonNull<Node>) -> *mut Self {
        // SAFETY: By the safety requirements of this function, so the result stays in the same
        // allocation.
        unsafe { node.as_ptr().byte_sub(offset_of!(Self, node)).cast() }
    }
}

/// Entries for all requests that a queue may have.
///
/// They are in the spare capacity of a vector: the owner of a tag initialises its entry, and an
/// entry needs no drop.
pub(super) struct RequestTable {
    entries: KVVec<UnsafeCell<RequestEntry>>,
    /// Number of entries of each hardware queue.
    each: usize,
    /// True if all hardware queues share one set of tags.
    shared: bool,
}

impl RequestTable {
    /// Table without entries.
    pub(super) const NONE: Self = Self {
        entries: KVVec::new(),
        each: 0,
        shared: false,
    };

    /// Creates entries for all requests that `q` may have.
    ///
    /// # Safety
    ///
    /// `q` is valid and frozen.
    pub(super) unsafe fn new(q: *mut bindings::request_queue) -> Result<Self> {
        // SAFETY: By the safety requirements of this function.
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
            entries: KVVec::with_capacity(count, GFP_KERNEL)?,
            each,
            shared,
        })
    }

    /// Returns the entry of `rq`, if there is one.
    ///
    /// # Safety
    ///
    /// `rq` has a tag of the queue.
    pub(super) unsafe fn of(&self, rq: *mut bindings::request) -> Option<*mut RequestEntry> {
        // SAFETY: By the safety requirements of this function.
        let (tag, queue) = unsafe { ((*rq).internal_tag, (*(*rq).mq_hctx).queue_num as usize) };
        let tag = usize::try_from(tag).ok().filter(|tag| *tag < self.each)?;
        let first = if self.shared {
            0
        } else {
            queue.checked_mul(self.each)?
        };
        let index = first.checked_add(tag)?;
        (index < self.entries.capacity())
            // SAFETY: Within the vector's memory. No reference is created, because other tasks use
            // their entries.
            .then(|| unsafe { UnsafeCell::raw_get(self.entries.as_ptr().add(index)) })
    }
}
