// SPDX-License-Identifier: GPL-2.0-only

//! The module's own workqueue.
//!
//! Dispatching is part of writeback, so the queue has a rescuer (`WQ_MEM_RECLAIM`). There is one queue
//! for the whole module: an owner of work items may then be dropped by its own work without waiting for
//! itself, and destroying the queue at unload waits for everything that is still queued.

use core::ptr;

use kernel::{
    bindings,
    prelude::*,
    sync::atomic::{ordering, Atomic},
    workqueue::Queue,
};

/// The queue that [`WorkQueue`] made, or null.
static QUEUE: Atomic<*mut bindings::workqueue_struct> = Atomic::new(ptr::null_mut());

/// The owner of the module's workqueue; dropping it waits for all queued work.
pub(crate) struct WorkQueue(());

impl WorkQueue {
    /// Makes the queue.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EBUSY` if there is one already.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: The name is a C string without conversions, so no further arguments are read.
        let queue = unsafe {
            bindings::alloc_workqueue_noprof(
                c"nrs".as_char_ptr(),
                bindings::wq_flags_WQ_UNBOUND
                    | bindings::wq_flags_WQ_MEM_RECLAIM
                    | bindings::wq_flags_WQ_HIGHPRI,
                0,
            )
        };
        if queue.is_null() {
            return Err(ENOMEM);
        }
        if QUEUE
            .cmpxchg(ptr::null_mut(), queue, ordering::Full)
            .is_err()
        {
            // SAFETY: Made above and not shared.
            unsafe { bindings::destroy_workqueue(queue) };
            return Err(EBUSY);
        }
        Ok(Self(()))
    }
}

impl Drop for WorkQueue {
    fn drop(&mut self) {
        let queue = QUEUE.xchg(ptr::null_mut(), ordering::Full);
        if !queue.is_null() {
            // SAFETY: The queue is ours, and whoever could queue more work is gone: the owner is
            // dropped after all front-ends and services.
            unsafe { bindings::destroy_workqueue(queue) };
        }
    }
}

/// The module's workqueue.
///
/// Falls back to a system queue when the module's own is not there, which happens only while the module
/// goes.
pub(crate) fn queue() -> &'static Queue {
    let queue = QUEUE.load(ordering::Acquire);
    if queue.is_null() {
        kernel::warn_on!(true);
        return kernel::workqueue::system_unbound();
    }
    // SAFETY: The queue lives until its owner is dropped, after everybody who may call this.
    unsafe { Queue::from_raw(queue) }
}
