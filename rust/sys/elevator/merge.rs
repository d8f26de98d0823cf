// SPDX-License-Identifier: GPL-2.0-only

//! Merging of bios into queued requests.
//!
//! Bios may be merged into a request from when it is queued until it is dispatched. During that
//! time the request is in the hash of its queue, by the sector at which it ends. A merge changes
//! only the block layer's request, not the node: the policy keeps the initial cost, and merged bios
//! are charged separately. From its dispatch on the node has the total cost.
//!
//! Only bios of the request's submitter ([`SubmitterId`](super::super::task::SubmitterId)) and of
//! the same kind are merged. The block layer itself compares operation, I/O priority, stream and
//! cgroup of the bios.
//!
//! ```text
//!            prepare_queued                dispatch_request
//!   arrived ───────────────▶ queued, hashed ───────────────▶ not hashed: owned by the driver
//!                             ▲     │
//!                             └─────┘ bio_merge
//! ```
//!
//! Lock order: the lock of a partition, then `growing`. No partition is locked under `growing`.

use core::ptr::{self, NonNull};

use kernel::{bindings, ffi::c_uint};

use super::{instance::SchedulerInstance, request_table::RequestEntry, Scheduler};
use crate::sys::{
    bio::BioView,
    misc::bug,
    node::{Node, Ops},
    raw,
    task::{self, Submitter},
};

/// Returns true if `bio`, submitted by `who`, may be merged or be merged into: it may be delayed,
/// and nothing polls for its end, as only the first bio of a request can be polled.
fn may_queue(bio: BioView<'_>, who: &Submitter<'_>) -> bool {
    !bio.is_urgent() && !bio.is_swap() && !bio.is_polled() && !who.reclaims()
}

impl<T: Scheduler> SchedulerInstance<T> {
    /// Operations of a request that its queue pulls: only `prepare_queued` is ever called.
    pub(super) const OPS: &'static Ops = &Ops {
        prepare_queued: Self::prepare_queued,
        submit: unused,
        count_end: unused,
        end: unused,
    };

    /// Makes a request a candidate for merges. Called by the task that inserts it, before it is
    /// queued.
    ///
    /// # Safety
    ///
    /// As for [`Ops::prepare_queued`].
    unsafe fn prepare_queued(node: NonNull<Node>) {
        // SAFETY: The node is in the entry of a request that is being inserted and still owned by
        // the inserter; the request keeps the queue and its scheduler.
        unsafe {
            let entry = RequestEntry::around(node);
            let rq = (*entry).rq;
            let bio = BioView::new((*rq).bio);
            let who = task::submitter().of_bio(bio);
            // Nothing can be merged into a request without data.
            if (*entry).node.cost().bytes == 0 || !may_queue(bio, &who) {
                return;
            }
            (&raw mut (*entry).whose).write(who.whose(true, true));
            let this = Self::of((*rq).q);
            let _growing = this.growing.lock();
            raw::elv_rqhash_add((*rq).q, rq);
        }
    }

    /// Excludes a queued request from merges, because it is dispatched.
    ///
    /// # Safety
    ///
    /// `entry` is the entry of a request of this queue which was pulled.
    pub(super) unsafe fn grown(&self, entry: *mut RequestEntry) {
        // SAFETY: By the safety requirements of this function. Only the holder of the lock uses the
        // hash and `last_merge` or changes a hashed request.
        unsafe {
            let rq = (*entry).rq;
            let q = (*rq).q;
            let growing = self.growing.lock();
            raw::elv_rqhash_del(q, rq);
            if (*q).last_merge == rq {
                (*q).last_merge = ptr::null_mut();
            }
            drop(growing);
            if (*entry).node.cost().bytes != 0 {
                (*entry).node.set_bytes((*rq).__data_len.into());
            }
        }
    }

    /// Merges `bio` into a queued request, if one matches; returns true if it was merged.
    ///
    /// # Safety
    ///
    /// As for [`Self::bio_merge`].
    pub(super) unsafe fn merge(
        q: *mut bindings::request_queue,
        bio: *mut bindings::bio,
        segments: c_uint,
    ) -> bool {
        // SAFETY: The caller's reference keeps the queue and its scheduler. The submitter owns the
        // bio until it is part of a request, and it stays valid while that request is hashed.
        unsafe {
            let this = Self::of(q);
            let scheduler = this.scheduler();
            if !scheduler.may_grow() || !may_queue(BioView::new(bio), &task::submitter()) {
                return false;
            }
            let mut over = ptr::null_mut();
            let growing = this.growing.lock();
            let growth = raw::blk_mq_sched_try_merge(q, bio, segments, &raw mut over)
                .then(|| scheduler.growth(BioView::new(bio)));
            drop(growing);
            // Two requests are never merged: the scheduler has no `next_request`.
            bug!(!over.is_null());
            growth.inspect(|growth| scheduler.charge(growth)).is_some()
        }
    }

    /// Returns true if `bio` may be merged into `rq`, which is hashed.
    ///
    /// # Safety
    ///
    /// Called by the block layer only, within [`Self::bio_merge`].
    pub(super) unsafe extern "C" fn allow_merge(
        _: *mut bindings::request_queue,
        rq: *mut bindings::request,
        bio: *mut bindings::bio,
    ) -> bool {
        // SAFETY: A hashed request has its entry, in which `prepare_queued` wrote `whose`; the
        // block layer passes a valid bio.
        unsafe {
            let entry = (*rq).elv.priv_[0].cast::<RequestEntry>();
            let who = task::submitter().of_bio(BioView::new(bio));
            (*entry).whose == who.whose(true, true)
        }
    }
}

/// Reports a bug: an operation that is never called.
///
/// # Safety
///
/// None; never called.
unsafe fn unused(_: NonNull<Node>) {
    bug!();
}
