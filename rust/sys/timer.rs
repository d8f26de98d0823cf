// SPDX-License-Identifier: GPL-2.0-only

//! A high-resolution timer that is cancelled before its owner is freed.
//!
//! The kernel crate's handle cancels the timer when it is replaced, so an owner that re-arms from
//! several places would lose wake-ups. This timer wraps its owner: it can be armed through a shared
//! reference, the latest call determines the expiry, and dropping the whole cancels the timer
//! before the owner's fields are dropped.
//!
//! C header: [`include/linux/hrtimer.h`](srctree/include/linux/hrtimer.h)

use core::{ops::Deref, pin::Pin};

use kernel::{bindings, prelude::*, types::Opaque};

use super::series::NO_RESTART;

/// Callback of a timer's owner; runs in hard interrupt context.
pub(crate) trait TimerCallback: Send + Sync + Sized + 'static {
    /// Handles the expiry of the timer.
    fn expired(timed: &WithTimer<Self>);
}

/// An owner with a timer.
///
/// # Invariants
///
/// `raw` was initialised in place, and its callback computes the address of this structure from it.
#[repr(C)]
#[pin_data(PinnedDrop)]
pub(crate) struct WithTimer<T: TimerCallback> {
    #[pin]
    raw: Opaque<bindings::hrtimer>,
    #[pin]
    owner: T,
}

// SAFETY: The C timer may be started and cancelled from any context; `T` is `Send`.
unsafe impl<T: TimerCallback> Send for WithTimer<T> {}
// SAFETY: All operations on the C timer are serialised by its base lock; `T` is `Sync`.
unsafe impl<T: TimerCallback> Sync for WithTimer<T> {}

impl<T: TimerCallback> WithTimer<T> {
    /// Wraps the owner that `owner` initialises.
    pub(crate) fn new<E>(owner: impl PinInit<T, E>) -> impl PinInit<Self, Error>
    where
        Error: From<E>,
    {
        try_pin_init!(Self {
            // INVARIANT: Initialised at its final address.
            raw <- Opaque::ffi_init(|timer: *mut bindings::hrtimer| {
                // SAFETY: `timer` is valid for writes and pinned from now on.
                unsafe {
                    bindings::hrtimer_setup(
                        timer,
                        Some(Self::run),
                        bindings::CLOCK_MONOTONIC as i32,
                        bindings::hrtimer_mode_HRTIMER_MODE_ABS,
                    )
                }
            }),
            owner <- owner,
        }? Error)
    }

    /// Arms the timer for `at`, monotonic ns; replaces the earlier expiry time.
    pub(crate) fn arm(&self, at: u64) {
        // SAFETY: By the type invariant the timer is initialised, and it exists until drop cancels
        // it.
        unsafe {
            bindings::hrtimer_start_range_ns(
                self.raw.get(),
                i64::try_from(at).unwrap_or(i64::MAX),
                0,
                bindings::hrtimer_mode_HRTIMER_MODE_ABS,
            )
        }
    }

    /// Cancels the timer and waits for a running callback.
    ///
    /// Must not be called from the callback, nor under a lock that the callback takes.
    pub(crate) fn cancel(&self) {
        // SAFETY: By the type invariant the timer is initialised.
        unsafe { bindings::hrtimer_cancel(self.raw.get()) };
    }

    /// Calls [`TimerCallback::expired`] of the timer's owner.
    ///
    /// # Safety
    ///
    /// Called by the timer core only, with the timer of a `WithTimer<T>`.
    unsafe extern "C" fn run(timer: *mut bindings::hrtimer) -> bindings::hrtimer_restart {
        // SAFETY: `raw` is the first field of this `repr(C)` structure and `Opaque` is transparent;
        // the structure is alive because its drop waits for this callback.
        let timed = unsafe { &*timer.cast::<Self>() };
        T::expired(timed);
        NO_RESTART
    }
}

impl<T: TimerCallback> Deref for WithTimer<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.owner
    }
}

#[pinned_drop]
impl<T: TimerCallback> PinnedDrop for WithTimer<T> {
    fn drop(self: Pin<&mut Self>) {
        self.cancel();
    }
}

#[kernel::prelude::kunit_tests(nrs_timer)]
mod tests {
    use super::*;
    use kernel::sync::{
        atomic::{ordering, Atomic},
        Arc, Completion,
    };

    use crate::{
        sched::units::{NSEC_PER_MSEC, NSEC_PER_SEC},
        sys::misc,
    };

    /// An owner that counts expiries and re-arms the timer until `left` is 0.
    #[pin_data]
    struct TestTimer {
        count: Atomic<u64>,
        left: Atomic<u64>,
        #[pin]
        done: Completion,
    }

    impl TimerCallback for TestTimer {
        fn expired(timed: &WithTimer<Self>) {
            timed.count.fetch_add(1, ordering::Relaxed);
            if timed.left.fetch_sub(1, ordering::Relaxed) > 1 {
                timed.arm(misc::now() + 100_000);
            } else {
                timed.done.complete_all();
            }
        }
    }

    fn owner(left: u64) -> Result<Arc<WithTimer<TestTimer>>> {
        Arc::pin_init(
            WithTimer::new(pin_init!(TestTimer {
                count: Atomic::new(0),
                left: Atomic::new(left),
                done <- Completion::new(),
            })),
            GFP_KERNEL,
        )
    }

    #[test]
    fn a_later_arming_replaces_an_earlier_one() -> Result {
        let timed = owner(1)?;
        timed.arm(misc::now() + 3600 * NSEC_PER_SEC);
        timed.arm(misc::now() + NSEC_PER_MSEC);
        timed.done.wait_for_completion();
        let count = timed.count.load(ordering::Relaxed);
        drop(timed);
        assert!(count == 1);
        Ok(())
    }

    #[test]
    fn the_callback_may_arm_again() -> Result {
        let timed = owner(5)?;
        timed.arm(0);
        timed.done.wait_for_completion();
        let count = timed.count.load(ordering::Relaxed);
        // Dropping cancels the timer.
        timed.arm(misc::now() + 3600 * NSEC_PER_SEC);
        drop(timed);
        assert!(count == 5);
        Ok(())
    }
}
