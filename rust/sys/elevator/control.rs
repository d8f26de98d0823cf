// SPDX-License-Identifier: GPL-2.0-only

//! The files of `queue/iosched/`, and the changes that they ask for.
//!
//! Who sets a file waits for a work item, which makes another scheduler and puts it in the place of the old one. The file's lock
//! may not be held for that: the task that ends a scheduler takes it with the queue frozen, so nothing that may wait for memory
//! may be done with it held.

use core::fmt::Write;

use kernel::{
    ffi::c_char,
    page::PAGE_SIZE,
    prelude::*,
    sync::{Arc, ArcBorrow, CondVarTimeoutResult},
    time::msecs_to_jiffies,
    workqueue::WorkItem,
};

use super::{instance::Instance, Scheduler};
use crate::sys::{misc, queue, raw, text::Reply};

/// How long who sets a file waits until the change is made, ms. The file's lock is held meanwhile: whoever ends the scheduler
/// waits for that with the queue frozen, and the change may wait for memory that the queue has to free.
const PATIENCE_MS: u32 = 1000;

/// What is set, and what runs.
pub(super) struct Control<T: Scheduler> {
    pub(super) settings: T::Settings,
    pub(super) current: Arc<T>,
    /// Changes that were asked for.
    pub(super) asked: u64,
    /// Of these, the ones that were made or failed; and how the last one failed.
    pub(super) made: u64,
    pub(super) failure: Result,
    /// The queue has another scheduler by now.
    pub(super) gone: bool,
}

impl<T: Scheduler> Instance<T> {
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
        // SAFETY: Files are there while the scheduler is; the page has its size.
        let (this, mut reply) = unsafe {
            (
                ArcBorrow::from_raw((*elevator).elevator_data.cast::<Self>()),
                Reply::new(page, PAGE_SIZE),
            )
        };
        let current = this.control.lock().current.clone();
        let shown = (file.show)(&current, &mut reply).and_then(|()| reply.write_char('\n'));
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
        // SAFETY: Files are there while the scheduler is; the block layer passes the bytes.
        let (this, bytes) = unsafe {
            (
                ArcBorrow::from_raw((*elevator).elevator_data.cast::<Self>()),
                core::slice::from_raw_parts(page.cast::<u8>(), count),
            )
        };
        let done = misc::without_io(|| Self::set(this, INDEX, bytes));
        misc::size(done.map(|()| count))
    }

    /// Sets file `index`, and waits until that is done.
    ///
    /// # Errors
    ///
    /// What the file refuses, or [`Scheduler::create`]; nothing has changed then. `ETIMEDOUT`: the change takes longer than
    /// [`PATIENCE_MS`]; it may still be made.
    fn set(this: ArcBorrow<'_, Self>, index: usize, bytes: &[u8]) -> Result {
        let store = T::FILES.get(index).and_then(|file| file.store);
        let text = core::str::from_utf8(bytes).map_err(|_| EINVAL)?;
        let mut control = this.control.lock();
        let mut settings = control.settings.clone();
        store.ok_or(EINVAL)?(&mut settings, text.trim_end_matches('\n'))?;
        control.settings = settings;
        control.asked = control.asked.wrapping_add(1);
        // If it is queued already, that run serves.
        let _ = queue::upkeep().enqueue::<_, 0>(Arc::from(this));
        let mut left = msecs_to_jiffies(PATIENCE_MS);
        while control.made != control.asked {
            match this.changed.wait_interruptible_timeout(&mut control, left) {
                CondVarTimeoutResult::Woken { jiffies } => left = jiffies,
                CondVarTimeoutResult::Timeout => return Err(ETIMEDOUT),
                CondVarTimeoutResult::Signal { .. } => return Err(EINTR),
            }
        }
        control.failure
    }

    /// Puts a scheduler with the settings in the place of the current one, and tells who waits.
    fn change(&self) {
        let (asked, settings, before) = {
            let control = self.control.lock();
            if control.gone {
                return;
            }
            (
                control.asked,
                control.settings.clone(),
                control.current.clone(),
            )
        };
        let new = T::create(&self.queue, settings, Some(&before));
        let failure = new.map(|new| self.replace(new));
        let settings = before.settings().clone();
        // The old scheduler leaves its service before who waits is told.
        drop(before);
        self.wait_for_drain();
        let mut control = self.control.lock();
        if failure.is_err() && control.asked == asked {
            control.settings = settings;
        }
        control.failure = failure;
        control.made = asked;
        drop(control);
        self.changed.notify_all();
    }

    /// Puts `new` in the place of the current scheduler.
    fn replace(&self, mut new: Arc<T>) {
        self.queue.while_frozen(|| {
            let mut control = self.control.lock();
            if !control.gone {
                core::mem::swap(&mut control.current, &mut new);
                // INVARIANT: The queue is frozen and quiesced.
                // SAFETY: Nobody reads it meanwhile.
                unsafe { *self.current.get() = Arc::as_ptr(&control.current) };
            }
        });
        // The other one goes without the lock.
    }
}

impl<T: Scheduler> WorkItem<0> for Instance<T> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.change();
    }
}

impl<T: Scheduler> WorkItem<1> for Instance<T> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let current = this.control.lock().current.clone();
        current.drain();
    }
}
