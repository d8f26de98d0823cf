// SPDX-License-Identifier: GPL-2.0-only

//! The module's own workqueues.
//!
//! - *Dispatch*: sends requests down. Its work neither allocates nor waits for work that does.
//! - *Progress*: finds requests that may go on. Its work neither allocates nor sends anything down.
//! - *Upkeep*: everything that allocates.
//! - *Calls*: tells other modules what they asked for. What they do there, only they know.
//!
//! All are part of writeback, so each has a rescuer (`WQ_MEM_RECLAIM`): with one for all, what is to free memory would
//! wait for what waits for memory. While no worker thread can be made, one rescuer sends down for all devices, and one that
//! hangs holds up the others.
//!
//! There is one of each for the whole module: an owner of work items may then be dropped by its own work without waiting
//! for itself, and destroying the queues at unload waits for everything that is still queued.

use core::ptr;

use kernel::{
    bindings,
    prelude::*,
    sync::atomic::{ordering, Atomic},
    workqueue::Queue,
};

use super::misc::bug;

/// A queue that [`WorkQueues`] made, or null.
type Place = Atomic<*mut bindings::workqueue_struct>;

static DISPATCH: Place = Atomic::new(ptr::null_mut());
static PROGRESS: Place = Atomic::new(ptr::null_mut());
static UPKEEP: Place = Atomic::new(ptr::null_mut());
static CALLS: Place = Atomic::new(ptr::null_mut());

/// The owner of one queue; dropping it waits for all queued work.
struct Owner(&'static Place);

impl Owner {
    /// Makes the queue at `place`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EBUSY` if there is one already.
    fn new(place: &'static Place, name: &CStr, flags: bindings::wq_flags) -> Result<Self> {
        // SAFETY: `name` is printed as it is, by a format without further conversions, and the name is copied.
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
            // SAFETY: Made above and not shared.
            unsafe { bindings::destroy_workqueue(queue) };
            return Err(EBUSY);
        }
        Ok(Self(place))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let queue = self.0.xchg(ptr::null_mut(), ordering::Full);
        if !queue.is_null() {
            // SAFETY: The queue is ours, and whoever could queue more work is gone: the owner is
            // dropped after all front-ends and services.
            unsafe { bindings::destroy_workqueue(queue) };
        }
    }
}

/// The owner of the module's workqueues. They end in an order in which none is used by one that is left.
pub(crate) struct WorkQueues {
    _calls: Owner,
    _upkeep: Owner,
    _progress: Owner,
    _dispatch: Owner,
}

impl WorkQueues {
    /// Makes the queues.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EBUSY` if there are some already.
    pub(crate) fn new() -> Result<Self> {
        let dispatch = Owner::new(&DISPATCH, c"nrs", bindings::wq_flags_WQ_HIGHPRI)?;
        let progress = Owner::new(&PROGRESS, c"nrs_progress", bindings::wq_flags_WQ_HIGHPRI)?;
        let upkeep = Owner::new(&UPKEEP, c"nrs_upkeep", 0)?;
        let calls = Owner::new(&CALLS, c"nrs_calls", bindings::wq_flags_WQ_HIGHPRI)?;
        Ok(Self {
            _calls: calls,
            _upkeep: upkeep,
            _progress: progress,
            _dispatch: dispatch,
        })
    }
}

/// The queue at `place`.
///
/// Falls back to a system queue when the module's own is not there, which happens only while the module
/// goes.
fn at(place: &'static Place) -> &'static Queue {
    let queue = place.load(ordering::Acquire);
    if queue.is_null() {
        bug!();
        return kernel::workqueue::system_unbound();
    }
    // SAFETY: The queue lives until its owner is dropped, after everybody who may call this.
    unsafe { Queue::from_raw(queue) }
}

/// For work that sends requests down.
pub(crate) fn dispatch() -> &'static Queue {
    at(&DISPATCH)
}

/// For work that finds requests which may go on.
pub(crate) fn progress() -> &'static Queue {
    at(&PROGRESS)
}

/// For work that allocates.
pub(crate) fn upkeep() -> &'static Queue {
    at(&UPKEEP)
}

/// For work that calls other modules.
pub(crate) fn calls() -> &'static Queue {
    at(&CALLS)
}
