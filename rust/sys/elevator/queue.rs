// SPDX-License-Identifier: GPL-2.0-only

//! The request queue of a disk.

use core::ffi::CStr;

use kernel::{bindings, prelude::*, sync::Arc};

use crate::sys::{disk::Disk, misc, raw};

/// A request queue that has a disk.
///
/// # Invariants
///
/// `q` is valid while `disk`, its disk, is referenced.
pub(crate) struct RequestQueue {
    q: *mut bindings::request_queue,
    disk: Disk,
}

// SAFETY: Any task may call the functions used.
unsafe impl Send for RequestQueue {}
// SAFETY: As above.
unsafe impl Sync for RequestQueue {}

impl RequestQueue {
    /// Returns a reference to the queue and its disk.
    ///
    /// # Errors
    ///
    /// `ENODEV`: the queue has no disk.
    ///
    /// # Safety
    ///
    /// `q` is valid.
    pub(super) unsafe fn new(q: *mut bindings::request_queue) -> Result<Arc<Self>> {
        // SAFETY: By the safety requirements of this function; the disk exists while its scheduler
        // changes.
        let disk = unsafe { Disk::of_queue(q) }.ok_or(ENODEV)?;
        // INVARIANT: A disk keeps its queue.
        Ok(Arc::new(Self { q, disk }, GFP_KERNEL)?)
    }

    pub(super) fn as_ptr(&self) -> *mut bindings::request_queue {
        self.q
    }

    /// Runs all hardware queues asynchronously, to dispatch ready requests. Any context; the queue
    /// has a scheduler.
    pub(crate) fn run(&self) {
        // SAFETY: By the type invariant. The tag set exists while the queue has a scheduler.
        unsafe { bindings::blk_mq_run_hw_queues(self.q, true) };
    }

    /// Enables writeback throttling, which the start of the scheduler has disabled. The queue is
    /// frozen; may sleep.
    pub(super) fn throttle_writeback(&self) {
        // SAFETY: By the type invariant.
        unsafe { raw::nrs_queue_throttle_writeback(self.q, true) };
    }

    /// Returns true if the queue is frozen, or about to be: no request may be queued.
    pub(crate) fn is_dying(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { raw::nrs_queue_is_dying(self.q) }
    }

    /// Returns true if io.latency or io.cost control the disk.
    pub(crate) fn is_controlled(&self) -> bool {
        // SAFETY: By the type invariant. The list changes only while the queue is frozen, and the
        // caller submits to the queue.
        unsafe { raw::nrs_queue_is_controlled(self.q) }
    }

    /// Returns the disk, to send events about it.
    pub(crate) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Returns the name of the disk.
    pub(crate) fn name(&self) -> &CStr {
        // SAFETY: By the type invariant the queue has a disk, whose name does not change.
        unsafe { CStr::from_char_ptr((&raw const (*(*self.q).disk).disk_name).cast()) }
    }

    /// Returns the device number of the disk.
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: By the type invariant the queue has a disk, which has its whole device.
        unsafe { (*(*(*self.q).disk).part0).bd_dev }
    }

    /// Returns the number of requests that a hardware queue may have.
    pub(crate) fn tags(&self) -> u32 {
        // SAFETY: By the type invariant. The number changes only while the queue is frozen.
        unsafe { (*self.q).nr_requests }
    }

    /// Returns the number of requests that the device keeps in flight. That of a SCSI disk is less
    /// than that of its host.
    pub(crate) fn depth(&self) -> u32 {
        // SAFETY: By the type invariant; a queue with a scheduler has its tag set.
        unsafe {
            let set = (*self.q).tag_set;
            let queues = if raw::nrs_queue_shares_tags(self.q) {
                1
            } else {
                // Only default queues count: separate queues for reads or polled requests are
                // ignored.
                let [default, ..] = (*set).map;
                default.nr_queues
            };
            let all = (*set).queue_depth.saturating_mul(queues);
            match (*self.q).queue_depth {
                0 => all,
                own => own.min(all),
            }
        }
    }

    /// Returns true while the number of hardware queues changes, and sometimes at other times.
    pub(super) fn may_regroup(&self) -> bool {
        // SAFETY: By the type invariant; a queue that had a scheduler has its tag set.
        unsafe { raw::nrs_queue_may_regroup(self.q) }
    }

    /// Runs `f` while the queue is frozen and quiesced: it has no requests, and the scheduler is
    /// not called.
    pub(super) fn while_frozen<R>(&self, f: impl FnOnce() -> R) -> R {
        misc::without_io(|| {
            // SAFETY: By the type invariant; process context. Undone below, by the same task.
            unsafe {
                bindings::blk_mq_freeze_queue_nomemsave(self.q);
                bindings::blk_mq_quiesce_queue(self.q);
            }
            let done = f();
            // SAFETY: Done above.
            unsafe {
                bindings::blk_mq_unquiesce_queue(self.q);
                bindings::blk_mq_unfreeze_queue_nomemrestore(self.q);
            }
            done
        })
    }
}
