// SPDX-License-Identifier: GPL-2.0-only

//! Parts of the kernel crate of 7.3 that are missing in 7.2.

use core::{
    mem::{align_of, size_of, transmute, ManuallyDrop, MaybeUninit},
    num::NonZeroI32,
    ops::Deref,
    pin::Pin,
};

use kernel::{
    alloc::AllocError,
    bindings,
    ffi::c_char,
    prelude::*,
    sync::{
        lock::{Backend, Lock},
        poll::PollCondVar,
        LockClassKey,
    },
    types::Opaque,
    ThisModule,
};

use crate::sys::raw;

/// Return value of a timer callback that does not restart the timer.
pub(crate) const NO_RESTART: bindings::hrtimer_restart =
    bindings::hrtimer_restart_HRTIMER_NORESTART;

/// Handle of this module.
pub(crate) const THIS_MODULE: &ThisModule = &crate::THIS_MODULE;

/// Defines errors by their names in C.
macro_rules! errors {
    ($($name:ident)*) => {
        $(pub(crate) const $name: Error = error(bindings::$name);)*
    };
}

errors! { EALREADY ELOOP ENAMETOOLONG ENOLINK ENOTCONN EPROTONOSUPPORT ESTALE }

/// Returns the error for a positive errno. The kernel crate has no such constructor for constants.
const fn error(errno: u32) -> Error {
    const { assert!(size_of::<Error>() == size_of::<NonZeroI32>()) };
    assert!(0 < errno && errno <= bindings::MAX_ERRNO);
    // SAFETY: `Error` is a structure around one `NonZeroI32`, which by its size is its only
    // content, and the value is between -`MAX_ERRNO` and -1.
    unsafe { transmute::<i32, Error>(-(errno as i32)) }
}

/// Waits until all queued RCU callbacks have run.
pub(crate) fn rcu_barrier() {
    // SAFETY: Callers may sleep, which is the only requirement.
    unsafe { bindings::rcu_barrier() };
}

/// Waits for an RCU grace period.
pub(crate) fn synchronize_rcu() {
    // SAFETY: As above.
    unsafe { bindings::synchronize_rcu() };
}

/// A spinlock that disables the interrupts of the current CPU. Guards may be dropped in any order.
pub(crate) type SpinLockIrq<T> = Lock<T, SpinLockIrqBackend>;

/// Initialises a [`SpinLockIrq`] with its own lock class.
macro_rules! new_spinlock_irq {
    ($inner:expr, $name:literal $(,)?) => {
        $crate::sys::series::SpinLockIrq::new(
            $inner,
            ::kernel::optional_name!($name),
            ::kernel::static_lock_class!(),
        )
    };
}
pub(crate) use new_spinlock_irq;

/// Operations of a [`SpinLockIrq`].
pub(crate) struct SpinLockIrqBackend;

// SAFETY: The functions of `shim.c` lock and unlock a `spinlock_t`, which one CPU owns at a time.
// `relock` is the default implementation.
unsafe impl Backend for SpinLockIrqBackend {
    type State = bindings::spinlock_t;
    type GuardState = ();

    unsafe fn init(ptr: *mut Self::State, name: *const c_char, key: *mut bindings::lock_class_key) {
        // SAFETY: By the caller's contract `ptr` is valid for writes, and `name` and `key` are
        // static.
        unsafe { bindings::__spin_lock_init(ptr, name, key) }
    }

    unsafe fn lock(ptr: *mut Self::State) {
        // SAFETY: By the caller's contract the lock was initialised.
        unsafe { raw::nrs_irq_lock(ptr) }
    }

    unsafe fn try_lock(ptr: *mut Self::State) -> Option<()> {
        // SAFETY: As above.
        unsafe { raw::nrs_irq_try_lock(ptr) }.then_some(())
    }

    unsafe fn unlock(ptr: *mut Self::State, (): &()) {
        // SAFETY: By the caller's contract the caller owns the lock.
        unsafe { raw::nrs_irq_unlock(ptr) }
    }

    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // SAFETY: As for `lock`.
        unsafe { bindings::spin_assert_is_held(ptr) }
    }
}

/// Allocation of a [`PollCondVarBox`].
#[pin_data]
#[repr(C)]
struct PollMemory {
    head: Opaque<bindings::callback_head>,
    #[pin]
    condvar: PollCondVar,
}

// SAFETY: A `PollCondVar` can be sent, and `head` is used only when the allocation is freed.
unsafe impl Send for PollMemory {}
// SAFETY: As above.
unsafe impl Sync for PollMemory {}

/// A [`PollCondVar`] that is freed by an RCU callback: dropping it does not sleep.
pub(crate) struct PollCondVarBox(ManuallyDrop<Pin<KBox<PollMemory>>>);

impl PollCondVarBox {
    /// Creates a condition variable.
    ///
    /// # Errors
    ///
    /// The allocation failed.
    pub(crate) fn new(
        name: &'static CStr,
        key: Pin<&'static LockClassKey>,
    ) -> Result<Self, AllocError> {
        let boxed = pin_init!(PollMemory {
            head: Opaque::uninit(),
            condvar <- PollCondVar::new(name, key),
        });
        let boxed = KBox::pin_init(boxed, GFP_KERNEL).map_err(|_| AllocError)?;
        Ok(Self(ManuallyDrop::new(boxed)))
    }

    /// Frees the memory.
    ///
    /// # Safety
    ///
    /// Called by RCU only, with the `head` that [`PollCondVarBox::drop`] gave it.
    unsafe extern "C" fn free(head: *mut bindings::callback_head) {
        // SAFETY: `head` is the first field of a `repr(C)` structure that came from
        // `KBox::into_raw`, and the grace period is over. `MaybeUninit` drops nothing: the drop
        // below did the work of the destructor of `PollCondVar`.
        drop(unsafe { KBox::from_raw(head.cast::<MaybeUninit<PollMemory>>()) });
    }
}

impl Deref for PollCondVarBox {
    type Target = PollCondVar;

    fn deref(&self) -> &PollCondVar {
        &self.0.condvar
    }
}

impl Drop for PollCondVarBox {
    fn drop(&mut self) {
        const {
            assert!(size_of::<PollCondVar>() == size_of::<bindings::wait_queue_head>());
            assert!(align_of::<PollCondVar>() == align_of::<bindings::wait_queue_head>());
        }
        // SAFETY: Taken once, here, and not moved in memory.
        let boxed = unsafe { Pin::into_inner_unchecked(ManuallyDrop::take(&mut self.0)) };
        let boxed = KBox::into_raw(boxed);
        // SAFETY: `boxed` is valid. A `PollCondVar` is a wait queue, which by its size is its only
        // content.
        unsafe { bindings::__wake_up_pollfree((&raw mut (*boxed).condvar).cast()) };
        // SAFETY: `boxed` is valid, and only the callback uses `head`. The module waits for
        // callbacks before it is unloaded.
        unsafe { bindings::call_rcu((*boxed).head.get(), Some(Self::free)) };
    }
}
