// SPDX-License-Identifier: GPL-2.0-only

//! The module's own workqueues.
//!
//! - *Dispatch*: submits requests to devices. The work neither allocates nor waits for work that
//!   does.
//! - *Submission*: submits deferred bios to the block layer. The work may wait for requests of a
//!   device.
//! - *Progress*: finds eligible requests. The work neither allocates nor submits.
//! - *Upkeep*: all work that allocates.
//! - *Calls*: calls other modules. The module does not know what these calls do or wait for.
//!
//! All are part of writeback, so each has a rescuer (`WQ_MEM_RECLAIM`). With one rescuer for all,
//! work that frees memory would wait for work that waits for memory. While no worker thread can be
//! created, one rescuer dispatches for all devices, and a device that blocks delays the others.
//!
//! There is one of each for the whole module. An owner of work items may then be dropped by its own
//! work without waiting for itself, and destroying the queues at unload waits for all queued work.

use core::ptr;

use kernel::{
    bindings,
    prelude::*,
    sync::atomic::{ordering, Atomic},
    workqueue::Queue,
};

use super::misc::bug;

/// Pointer to a queue made by [`WorkQueues`], or null.
type QueuePointer = Atomic<*mut bindings::workqueue_struct>;

static DISPATCH: QueuePointer = Atomic::new(ptr::null_mut());
static SUBMISSION: QueuePointer = Atomic::new(ptr::null_mut());
static PROGRESS: QueuePointer = Atomic::new(ptr::null_mut());
static UPKEEP: QueuePointer = Atomic::new(ptr::null_mut());
static CALLS: QueuePointer = Atomic::new(ptr::null_mut());

/// Owner of one queue; dropping it waits for all queued work.
struct OwnedQueue(&'static QueuePointer);

impl OwnedQueue {
    /// Creates the queue at `place`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EBUSY`: the queue exists.
    fn new(place: &'static QueuePointer, name: &CStr, flags: bindings::wq_flags) -> Result<Self> {
        // SAFETY: The format has one conversion, for the C string `name`, which is copied.
        let queue = unsafe {
            bindings::alloc_workqueue_noprof(
                c"%s".as_char_ptr(),
                bindings::wq_flags_WQ_UNBOUND | bindings::wq_flags_WQ_MEM_RECLAIM | flags,
                0,
                name.as_char_ptr(),
            )
        };
        if queue.is_null() {
            return Err(ENOMEM);
        }
        if place
            .cmpxchg(ptr::null_mut(), queue, ordering::Full)
            .is_err()
        {
            // SAFETY: Created above and not shared.
            unsafe { bindings::destroy_workqueue(queue) };
            return Err(EBUSY);
        }
        Ok(Self(place))
    }
}

impl Drop for OwnedQueue {
    fn drop(&mut self) {
        let queue = self.0.xchg(ptr::null_mut(), ordering::Full);
        if !queue.is_null() {
            // SAFETY: `self` owns the queue, and no code can queue more work: the owner is dropped
            // after all front-ends and services.
            unsafe { bindings::destroy_workqueue(queue) };
        }
    }
}

/// Owner of the module's workqueues. The order of the fields ensures that no remaining queue uses a
/// destroyed one.
pub(crate) struct WorkQueues {
    _calls: OwnedQueue,
    _upkeep: OwnedQueue,
    _progress: OwnedQueue,
    _submission: OwnedQueue,
    _dispatch: OwnedQueue,
}

impl WorkQueues {
    /// Creates the queues.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EBUSY`: the queues exist.
    pub(crate) fn new() -> Result<Self> {
        let dispatch = OwnedQueue::new(&DISPATCH, c"nrs", bindings::wq_flags_WQ_HIGHPRI)?;
        let flags = bindings::wq_flags_WQ_HIGHPRI;
        let submission = OwnedQueue::new(&SUBMISSION, c"nrs_submission", flags)?;
        let progress = OwnedQueue::new(&PROGRESS, c"nrs_progress", bindings::wq_flags_WQ_HIGHPRI)?;
        let upkeep = OwnedQueue::new(&UPKEEP, c"nrs_upkeep", 0)?;
        let calls = OwnedQueue::new(&CALLS, c"nrs_calls", bindings::wq_flags_WQ_HIGHPRI)?;
        Ok(Self {
            _calls: calls,
            _upkeep: upkeep,
            _progress: progress,
            _submission: submission,
            _dispatch: dispatch,
        })
    }
}

/// Returns the queue at `place`.
///
/// If the module's own queue does not exist, which happens only during unload, returns a system
/// queue.
fn at(place: &'static QueuePointer) -> &'static Queue {
    let queue = place.load(ordering::Acquire);
    if queue.is_null() {
        bug!();
        return kernel::workqueue::system_unbound();
    }
    // SAFETY: The queue exists until its owner is dropped, which is after all callers of this
    // function.
    unsafe { Queue::from_raw(queue) }
}

/// Returns the queue for work that submits requests to devices.
pub(crate) fn dispatch() -> &'static Queue {
    at(&DISPATCH)
}

/// Returns the queue for work that submits deferred bios.
#[cfg(feature = "elevator")]
pub(crate) fn submission() -> &'static Queue {
    at(&SUBMISSION)
}

/// Returns the queue for work that finds eligible requests.
pub(crate) fn progress() -> &'static Queue {
    at(&PROGRESS)
}

/// Returns the queue for work that allocates.
pub(crate) fn upkeep() -> &'static Queue {
    at(&UPKEEP)
}

/// Returns the queue for work that calls other modules.
pub(crate) fn calls() -> &'static Queue {
    at(&CALLS)
}
