// SPDX-License-Identifier: GPL-2.0-only

//! The files of `queue/iosched/` and changes of settings.
//!
//! A store waits for a work item that creates another scheduler and replaces the old one. The store
//! cannot do this itself: it would freeze the queue under the file's lock, but the task that ends a
//! scheduler takes that lock with the queue frozen.
//!
//! The block layer holds the file's lock during a store. Therefore at most one store runs at a
//! time, and none while a scheduler ends.

use core::fmt::Write;

use kernel::{
    ffi::c_char,
    page::PAGE_SIZE,
    prelude::*,
    sync::{Arc, ArcBorrow, CondVarTimeoutResult},
    time::msecs_to_jiffies,
    workqueue::WorkItem,
};

use super::{control::SchedulerChange, instance::SchedulerInstance, Scheduler};
use crate::sys::{misc, queue, raw, text::Reply};

/// Time for which a store waits for the change, ms. The store holds the file's lock, for which the
/// task that ends the scheduler waits with the queue frozen; a disk may take any time to finish its
/// requests.
const PATIENCE_MS: u32 = 1000;

impl<T: Scheduler> SchedulerInstance<T> {
    /// Shows file `INDEX`.
    ///
    /// # Safety
    ///
    /// Called by the block layer only, with a page to write to.
    pub(super) unsafe extern "C" fn show<const INDEX: usize>(
        elevator: *mut raw::elevator_queue,
        page: *mut c_char,
    ) -> isize {
        let Some(file) = T::FILES.get(INDEX) else {
            return 0;
        };
        // SAFETY: The files exist while the scheduler does; the page has `PAGE_SIZE` bytes.
        let (this, mut reply) = unsafe {
            (
                ArcBorrow::from_raw((*elevator).elevator_data.cast::<Self>()),
                Reply::new(page, PAGE_SIZE),
            )
        };
        // Locked, so that the file does not keep a scheduler that a change replaces meanwhile: the
        // last reference must not be dropped under the lock of the files.
        let control = this.control.lock();
        let shown = (file.show)(&control.current, &mut reply);
        drop(control);
        let shown = shown.and_then(|()| reply.write_char('\n'));
        misc::size(shown.map(|()| reply.used()).map_err(|_| ENOSPC))
    }

    /// Sets file `INDEX`.
    ///
    /// # Safety
    ///
    /// Called by the block layer only, with `count` bytes at `page`.
    pub(super) unsafe extern "C" fn store<const INDEX: usize>(
        elevator: *mut raw::elevator_queue,
        page: *const c_char,
        count: usize,
    ) -> isize {
        // SAFETY: The files exist while the scheduler does; the block layer passes the bytes.
        let (this, bytes) = unsafe {
            (
                ArcBorrow::from_raw((*elevator).elevator_data.cast::<Self>()),
                core::slice::from_raw_parts(page.cast::<u8>(), count),
            )
        };
        let done = misc::without_io(|| Self::set(this, INDEX, bytes));
        misc::size(done.map(|()| count))
    }

    /// Sets file `index` and waits until the change is made.
    ///
    /// # Errors
    ///
    /// - The errno of the file's `store` or of [`Scheduler::create`]; the settings do not change.
    /// - `EAGAIN`: another change is being made, or this one has not begun in time; the settings do
    ///   not change.
    /// - `ETIMEDOUT`, `EINTR`: the change has begun. It is made when the disk has finished its
    ///   requests, unless it fails.
    fn set(this: ArcBorrow<'_, Self>, index: usize, bytes: &[u8]) -> Result {
        let store = T::FILES.get(index).and_then(|file| file.store);
        let text = core::str::from_utf8(bytes).map_err(|_| EINVAL)?;
        let mut control = this.control.lock();
        if control.closed || !control.is_idle() {
            return Err(EAGAIN);
        }
        let mut settings = control.current.settings().clone();
        store.ok_or(EINVAL)?(&mut settings, text.trim_end_matches('\n'))?;
        control.change = SchedulerChange::Asked(settings);
        // If the work item is already queued, that run makes the change.
        let _ = queue::upkeep().enqueue::<_, 0>(Arc::from(this));
        let mut left = msecs_to_jiffies(PATIENCE_MS);
        while !control.is_idle() {
            let error = match this.changed.wait_interruptible_timeout(&mut control, left) {
                CondVarTimeoutResult::Woken { jiffies } => {
                    left = jiffies;
                    continue;
                }
                CondVarTimeoutResult::Timeout => ETIMEDOUT,
                CondVarTimeoutResult::Signal { .. } => EINTR,
            };
            if control.withdraw() {
                return Err(EAGAIN);
            }
            if !control.is_idle() {
                return Err(error);
            }
        }
        control.outcome
    }

    /// Waits for the change in progress and refuses further changes; returns the current scheduler.
    /// The wait is as long as that for a freeze of the queue, which the caller has to wait for
    /// anyway.
    pub(super) fn close(&self) -> Arc<T> {
        let mut control = self.control.lock();
        while !control.is_idle() {
            self.changed.wait(&mut control);
        }
        control.closed = true;
        control.current.clone()
    }

    /// Replaces the current scheduler by one with the requested settings, and wakes the store that
    /// waits.
    fn change(&self) {
        let (settings, before) = {
            let mut control = self.control.lock();
            match core::mem::replace(&mut control.change, SchedulerChange::Making) {
                SchedulerChange::Asked(settings) => (settings, control.current.clone()),
                change => {
                    // The change was withdrawn.
                    control.change = change;
                    return;
                }
            }
        };
        // The task that ends the scheduler may wait for this one with the queue frozen.
        let new = misc::without_io(|| T::create(&self.queue, settings, Some(&before)));
        let outcome = new.and_then(|new| self.replace(new));
        // The old scheduler leaves its service before the store returns.
        drop(before);
        self.wait_for_drain();
        let mut control = self.control.lock();
        control.outcome = outcome;
        control.change = SchedulerChange::Idle;
        drop(control);
        self.changed.notify_all();
    }

    /// Replaces the current scheduler by `new`.
    ///
    /// # Errors
    ///
    /// `ENODEV`: the queue has another scheduler.
    fn replace(&self, mut new: Arc<T>) -> Result {
        self.queue.while_frozen(|| {
            let mut control = self.control.lock();
            if control.closed {
                return Err(ENODEV);
            }
            core::mem::swap(&mut control.current, &mut new);
            // INVARIANT: The queue is frozen and quiesced.
            // SAFETY: By the invariant no other task reads `current` meanwhile.
            unsafe { *self.current.get() = Arc::as_ptr(&control.current) };
            Ok(())
        })
        // The old scheduler is dropped without the lock.
    }
}

impl<T: Scheduler> WorkItem<0> for SchedulerInstance<T> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.change();
    }
}

impl<T: Scheduler> WorkItem<1> for SchedulerInstance<T> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let current = this.control.lock().current.clone();
        current.drain();
    }
}
