// SPDX-License-Identifier: GPL-2.0-only

//! What the kernel crate of 7.3 has and that of 7.2 lacks.

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

/// Answer of a timer's callback: the timer is not started again.
pub(crate) const NO_RESTART: bindings::hrtimer_restart =
    bindings::hrtimer_restart_HRTIMER_NORESTART;

/// This module.
pub(crate) const THIS_MODULE: &ThisModule = &crate::THIS_MODULE;

/// Defines errors by their names in C.
macro_rules! errors {
    ($($name:ident)*) => {
        $(pub(crate) const $name: Error = error(bindings::$name);)*
    };
}

errors! { EALREADY ELOOP ENAMETOOLONG ENOTCONN EPROTONOSUPPORT ESTALE }

/// Returns the error of a positive errno. The kernel crate has no constructor that constants may use.
const fn error(errno: u32) -> Error {
    const { assert!(size_of::<Error>() == size_of::<NonZeroI32>()) };
    assert!(0 < errno && errno <= bindings::MAX_ERRNO);
    // SAFETY: `Error` is a structure around one `NonZeroI32`, which by its size is all that is in it, and the value is
    // between -`MAX_ERRNO` and -1.
    unsafe { transmute::<i32, Error>(-(errno as i32)) }
}

/// Waits until all RCU callbacks that were queued have run.
pub(crate) fn rcu_barrier() {
    // SAFETY: Callers may sleep, which is all that it takes.
    unsafe { bindings::rcu_barrier() };
}

/// Waits for an RCU grace period.
pub(crate) fn synchronize_rcu() {
    // SAFETY: As above.
    unsafe { bindings::synchronize_rcu() };
}

/// A spinlock that disables the interrupts of this CPU. Guards may be dropped in any order.
pub(crate) type SpinLockIrq<T> = Lock<T, SpinLockIrqBackend>;

/// Initialises a [`SpinLockIrq`] with a lock class of its own.
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

// SAFETY: The functions of `shim.c` lock and unlock a `spinlock_t`, which one CPU owns at a time. `relock` is the
// default implementation.
unsafe impl Backend for SpinLockIrqBackend {
    type State = bindings::spinlock_t;
    type GuardState = ();

    unsafe fn init(ptr: *mut Self::State, name: *const c_char, key: *mut bindings::lock_class_key) {
        // SAFETY: By the caller's contract `ptr` can be written, and `name` and `key` live for ever.
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
        // SAFETY: By the caller's contract it owns the lock.
        unsafe { raw::nrs_irq_unlock(ptr) }
    }

    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // SAFETY: As of `lock`.
        unsafe { bindings::spin_assert_is_held(ptr) }
    }
}

/// Memory of a [`PollCondVarBox`].
#[pin_data]
#[repr(C)]
struct Boxed {
    head: Opaque<bindings::callback_head>,
    #[pin]
    condvar: PollCondVar,
}

// SAFETY: A `PollCondVar` can be sent, and `head` is only used when it is freed.
unsafe impl Send for Boxed {}
// SAFETY: As above.
unsafe impl Sync for Boxed {}

/// A [`PollCondVar`] that is freed by an RCU callback: dropping it does not sleep.
pub(crate) struct PollCondVarBox(ManuallyDrop<Pin<KBox<Boxed>>>);

impl PollCondVarBox {
    /// Creates one.
    ///
    /// # Errors
    ///
    /// No memory.
    pub(crate) fn new(
        name: &'static CStr,
        key: Pin<&'static LockClassKey>,
    ) -> Result<Self, AllocError> {
        let boxed = pin_init!(Boxed {
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
        // SAFETY: `head` is the first field of a `repr(C)` structure that came from `KBox::into_raw`, and the grace period
        // is over. Nothing is dropped in it: the drop below did what the destructor of `PollCondVar` does.
        drop(unsafe { KBox::from_raw(head.cast::<MaybeUninit<Boxed>>()) });
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
        // SAFETY: Taken once, here, and not moved from its place.
        let boxed = unsafe { Pin::into_inner_unchecked(ManuallyDrop::take(&mut self.0)) };
        let boxed = KBox::into_raw(boxed);
        // SAFETY: `boxed` is valid. A `PollCondVar` is a wait queue, which by its size is all that is in it.
        unsafe { bindings::__wake_up_pollfree((&raw mut (*boxed).condvar).cast()) };
        // SAFETY: `boxed` is valid, and nothing else uses `head`. The module waits for callbacks before it is unloaded.
        unsafe { bindings::call_rcu((*boxed).head.get(), Some(Self::free)) };
    }
}
