// SPDX-License-Identifier: GPL-2.0-only

//! Small wrappers: the clock, CPUs, plugs, allocation scopes.

use core::mem::MaybeUninit;

use kernel::{
    bindings,
    cpu::CpuId,
    prelude::*,
    sync::atomic::{ordering, Atomic},
    types::NotThreadSafe,
};

use super::raw;
use crate::sched::units::NSEC_PER_MSEC;

/// Reports a bug, once for each place in the code; with a condition, if the condition holds. The
/// report is a cold function, so each use costs the surrounding code only a branch.
macro_rules! bug {
    () => {{
        #[cold]
        #[inline(never)]
        fn report() {
            kernel::warn_flags!(
                file!(),
                kernel::bindings::BUGFLAG_ONCE
                    | kernel::bug::bugflag_taint(kernel::bindings::TAINT_WARN)
            );
        }
        report();
    }};
    ($cond:expr) => {
        if $cond {
            $crate::sys::misc::bug!()
        }
    };
}
pub(crate) use bug;

/// 1 once the module accepts users.
static LOADED: Atomic<u32> = Atomic::new(0);

/// Lets the module accept users, once initialisation can no longer fail: an open file or a
/// directory pins the module, but not if loading it fails.
pub(crate) fn loaded() {
    LOADED.store(1, ordering::Release);
}

/// Returns true if the module accepts users.
pub(crate) fn is_loaded() -> bool {
    LOADED.load(ordering::Acquire) != 0
}

/// Returns the monotonic time, ns.
pub(crate) fn now() -> u64 {
    // SAFETY: Always safe to call.
    let now = unsafe { bindings::ktime_get() };
    u64::try_from(now).unwrap_or(0)
}

/// Maximum lag of [`millis`], ms.
pub(crate) const MILLIS_LAG: u64 = 10;

/// Returns the coarse monotonic time, ms since an arbitrary time. Reads `jiffies`, which advances
/// with each tick.
pub(crate) fn millis() -> u64 {
    // SAFETY: The kernel's tick count always exists and may be read at any time.
    let ticks = unsafe { (&raw const bindings::jiffies).read_volatile() };
    // The factor is small, and the count starts near 2^32.
    (ticks as u64).wrapping_mul(bindings::HZ_TO_MSEC_NUM.into())
        / u64::from(bindings::HZ_TO_MSEC_DEN)
}

/// Returns the wall clock, ms since the epoch.
pub(crate) fn wall_millis() -> u64 {
    // SAFETY: Always safe to call.
    let now = unsafe { bindings::ktime_get_with_offset(bindings::tk_offsets_TK_OFFS_REAL) };
    u64::try_from(now).unwrap_or(0) / NSEC_PER_MSEC
}

/// Returns an unpredictable random number.
pub(crate) fn random() -> u64 {
    // SAFETY: Always safe to call.
    unsafe { bindings::get_random_u64() }
}

/// Returns the number of pages of RAM.
#[cfg(feature = "elevator")]
pub(crate) fn pages() -> u64 {
    let mut info = MaybeUninit::<bindings::sysinfo>::zeroed();
    // SAFETY: Valid for writes.
    unsafe { bindings::si_meminfo(info.as_mut_ptr()) };
    // SAFETY: Zeroes are a valid value.
    unsafe { info.assume_init() }.totalram as u64
}

/// Returns the current CPU, which may be outdated if the task can migrate.
#[inline]
pub(crate) fn cpu() -> u16 {
    CpuId::current().as_u32() as u16
}

/// Returns the NUMA node of `cpu`, below `nr_cpu_ids`; 0 if the CPU is not possible.
pub(crate) fn cpu_node(cpu: u32) -> u32 {
    // SAFETY: The function checks that the CPU is possible.
    let node = unsafe { raw::nrs_cpu_to_node(cpu) };
    u32::try_from(node).unwrap_or(0)
}

/// Runs `f` with a plug: the requests that `f` submits are dispatched as a batch.
pub(crate) fn plugged<R>(f: impl FnOnce() -> R) -> R {
    let mut plug = MaybeUninit::<bindings::blk_plug>::zeroed();
    // SAFETY: The plug is on this stack and finished before the function returns.
    unsafe { bindings::blk_start_plug(plug.as_mut_ptr()) };
    let result = f();
    // SAFETY: Started above, by this task.
    unsafe { bindings::blk_finish_plug(plug.as_mut_ptr()) };
    result
}

/// Scope in which allocations of the running task start no I/O.
///
/// # Invariants
///
/// `saved` is the earlier flag of the running task.
pub(crate) struct WithoutIo {
    saved: c_uint,
    _of_this_task: NotThreadSafe,
}

impl WithoutIo {
    /// Begins a scope. Scopes nest: the last one begun ends first.
    pub(crate) fn begin() -> Self {
        // INVARIANT: The scope is not sent to another task.
        Self {
            // SAFETY: Sets a flag of the running task.
            saved: unsafe { raw::nrs_noio_save() },
            _of_this_task: NotThreadSafe,
        }
    }

    /// Returns an initialiser like `init`. The scope ends when the initialiser has run or is
    /// dropped, so the memory to be initialised is allocated in the scope, too.
    pub(crate) fn around<T, E>(self, init: impl PinInit<T, E>) -> impl PinInit<T, E> {
        init.pin_chain(move |_| {
            drop(self);
            Ok(())
        })
    }
}

impl Drop for WithoutIo {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { raw::nrs_noio_restore(self.saved) };
    }
}

/// Runs `f` such that its allocations start no I/O.
pub(crate) fn without_io<R>(f: impl FnOnce() -> R) -> R {
    let _scope = WithoutIo::begin();
    f()
}

/// Calls `cond_resched()`; may sleep.
pub(crate) fn cond_resched() {
    // SAFETY: Callers are in process context with no lock held.
    unsafe { raw::nrs_cond_resched() }
}

/// Returns true in hard or soft interrupt context.
pub(crate) fn in_interrupt() -> bool {
    // SAFETY: Always safe to call.
    unsafe { raw::nrs_in_interrupt() }
}

/// Returns true if the rate limit permits a message now.
pub(crate) fn may_print() -> bool {
    // SAFETY: Always safe to call.
    unsafe { raw::nrs_ratelimit() }
}

/// Converts `result` to the return value of a system call that returns a number of bytes.
pub(super) fn size(result: Result<usize>) -> isize {
    match result {
        Ok(size) => isize::try_from(size).unwrap_or(isize::MAX),
        Err(error) => error.to_errno() as isize,
    }
}
