// SPDX-License-Identifier: GPL-2.0-only

//! Bios that become part of requests that are withheld.
//!
//! A request may grow from when it is held until it is dispatched. Meanwhile it is in the hash of its queue, by the sector at which
//! it ends. A bio changes the block layer's request only, not the node: the policy keeps the cost that the request came with, and
//! what it grows by is charged apart. From its dispatch on the node has the whole cost.
//!
//! A request only grows by bios of its submitter ([`Whose`](crate::sys::task::Whose)), of the same kind. The block layer compares
//! operation, I/O priority, stream and cgroup of bios by itself.
//!
//! ```text
//!             hold                     dispatch_request
//!   arrived ───────▶ withheld, hashed ──────────────────▶ not hashed: belongs to the driver
//!                     ▲     │
//!                     └─────┘ bio_merge
//! ```
//!
//! The lock is taken with that of a partition held: where it is held, no partition is locked.

use core::ptr::{self, NonNull};

use kernel::{bindings, ffi::c_uint};

use super::{instance::Instance, nodes::PerRequest, Scheduler};
use crate::sys::{
    bio::View,
    misc::bug,
    node::{Node, Ops},
    raw,
    task::{self, Submitter},
};

/// Returns whether `bio`, by `who`, may grow, or be what a request grows by: it may be withheld.
fn may_wait(bio: View<'_>, who: &Submitter<'_>) -> bool {
    !bio.is_urgent() && !bio.is_swap() && !who.reclaims()
}

impl<T: Scheduler> Instance<T> {
    /// A request is pulled by its queue, so nothing else is ever done to it from here.
    pub(super) const OPS: &'static Ops = &Ops {
        hold: Self::hold,
        submit: unused,
        count_end: unused,
        end: unused,
    };

    /// A request is about to be withheld, by the task that inserts it: it may grow from now on.
    ///
    /// # Safety
    ///
    /// As for [`Ops::hold`].
    unsafe fn hold(node: NonNull<Node>) {
        // SAFETY: The node is in the slot of a request that is being inserted and is still the inserter's; it holds the queue
        // and its scheduler.
        unsafe {
            let slot = PerRequest::around(node);
            let rq = (*slot).rq;
            let bio = View::new((*rq).bio);
            let who = task::submitter().of_bio(bio);
            // What transfers nothing does not grow.
            if (*slot).node.cost().bytes == 0 || !may_wait(bio, &who) {
                return;
            }
            (&raw mut (*slot).whose).write(who.whose(true, true));
            let this = Self::of((*rq).q);
            let _growing = this.growing.lock();
            raw::elv_rqhash_add((*rq).q, rq);
        }
    }

    /// A request that was withheld is dispatched: it does not grow any more.
    ///
    /// # Safety
    ///
    /// `slot` is that of a request of this queue which was pulled.
    pub(super) unsafe fn grown(&self, slot: *mut PerRequest) {
        // SAFETY: The caller promises it. Only who has the lock uses the hash and `last_merge`, and changes a hashed request.
        unsafe {
            let rq = (*slot).rq;
            let q = (*rq).q;
            let growing = self.growing.lock();
            raw::elv_rqhash_del(q, rq);
            if (*q).last_merge == rq {
                (*q).last_merge = ptr::null_mut();
            }
            drop(growing);
            if (*slot).node.cost().bytes != 0 {
                (*slot).node.set_bytes((*rq).__data_len.into());
            }
        }
    }

    /// Makes `bio` part of a request that is withheld, if there is one for it; returns whether it is.
    ///
    /// # Safety
    ///
    /// As for [`Self::bio_merge`].
    pub(super) unsafe fn merge(
        q: *mut bindings::request_queue,
        bio: *mut bindings::bio,
        segments: c_uint,
    ) -> bool {
        // SAFETY: The queue is held, and with it its scheduler. The bio is its submitter's until it is part of a request, and
        // stays while that is hashed.
        unsafe {
            let this = Self::of(q);
            let scheduler = this.scheduler();
            if !scheduler.may_grow() || !may_wait(View::new(bio), &task::submitter()) {
                return false;
            }
            let mut over = ptr::null_mut();
            let growing = this.growing.lock();
            let growth = raw::blk_mq_sched_try_merge(q, bio, segments, &raw mut over)
                .then(|| scheduler.growth(View::new(bio)));
            drop(growing);
            // No two requests become one: there is no `next_request`.
            bug!(!over.is_null());
            growth.inspect(|growth| scheduler.charge(growth)).is_some()
        }
    }

    /// Returns whether `rq`, which is hashed, may grow by `bio`.
    ///
    /// # Safety
    ///
    /// Called by the block layer only, within [`Self::bio_merge`].
    pub(super) unsafe extern "C" fn allow_merge(
        _: *mut bindings::request_queue,
        rq: *mut bindings::request,
        bio: *mut bindings::bio,
    ) -> bool {
        // SAFETY: A hashed request has its slot, where `hold` has noted whose it is.
        unsafe {
            let slot = (*rq).elv.priv_[0].cast::<PerRequest>();
            let who = task::submitter().of_bio(View::new(bio));
            (*slot).whose == who.whose(true, true)
        }
    }
}

/// # Safety
///
/// None; never called.
unsafe fn unused(_: NonNull<Node>) {
    bug!();
}
