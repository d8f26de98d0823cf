// SPDX-License-Identifier: GPL-2.0-only

//! Small things: the clock, CPUs, plugs, allocation scopes, names of devices.

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

/// Reports, once for each place in the code, that something has happened which cannot; with a condition, if that holds.
/// The report is a cold function, so it costs the code around it a branch.
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

/// Whether others are let in.
static LOADED: Atomic<u32> = Atomic::new(0);

/// Lets others in, once nothing can fail any more: an open file or a directory holds the module, but not if loading it
/// fails.
pub(crate) fn loaded() {
    LOADED.store(1, ordering::Release);
}

/// Whether others are let in.
pub(crate) fn is_loaded() -> bool {
    LOADED.load(ordering::Acquire) != 0
}

/// Monotonic time in nanoseconds.
pub(crate) fn now() -> u64 {
    // SAFETY: Always safe to call.
    let now = unsafe { bindings::ktime_get() };
    u64::try_from(now).unwrap_or(0)
}

/// The coarse clock: milliseconds since some time in the past. It is read, not asked, and goes on with each tick.
pub(crate) fn millis() -> u64 {
    // SAFETY: The kernel's count of ticks is there while the kernel is, and may be read at any time.
    let ticks = unsafe { (&raw const bindings::jiffies).read_volatile() };
    // What multiplies is small, and the count starts near 2^32.
    (ticks as u64).wrapping_mul(bindings::HZ_TO_MSEC_NUM.into())
        / u64::from(bindings::HZ_TO_MSEC_DEN)
}

/// The wall clock, milliseconds since the epoch.
pub(crate) fn wall_millis() -> u64 {
    // SAFETY: Always safe to call.
    let now = unsafe { bindings::ktime_get_with_offset(bindings::tk_offsets_TK_OFFS_REAL) };
    u64::try_from(now).unwrap_or(0) / NSEC_PER_MSEC
}

/// A number that nobody can guess.
pub(crate) fn random() -> u64 {
    // SAFETY: Always safe to call.
    unsafe { bindings::get_random_u64() }
}

/// Returns the number of the CPU that runs this, or did a moment ago if the task can be moved.
#[inline]
pub(crate) fn cpu() -> u16 {
    CpuId::current().as_u32() as u16
}

/// NUMA node of `cpu`.
pub(crate) fn cpu_node(cpu: u32) -> u32 {
    // SAFETY: Reads a per-CPU variable of a possible CPU.
    let node = unsafe { raw::nrs_cpu_to_node(cpu) };
    u32::try_from(node).unwrap_or(0)
}

/// Collects what is submitted while `f` runs and sends it in one go.
pub(crate) fn plugged<R>(f: impl FnOnce() -> R) -> R {
    let mut plug = MaybeUninit::<bindings::blk_plug>::zeroed();
    // SAFETY: The plug is on this stack and finished before the function returns.
    unsafe { bindings::blk_start_plug(plug.as_mut_ptr()) };
    let result = f();
    // SAFETY: Started above, by this task.
    unsafe { bindings::blk_finish_plug(plug.as_mut_ptr()) };
    result
}

/// While it exists, allocations of the running task start no I/O.
///
/// # Invariants
///
/// `saved` is what the flag of the running task was.
pub(crate) struct WithoutIo {
    saved: c_uint,
    _of_this_task: NotThreadSafe,
}

impl WithoutIo {
    /// Begins. What begins later ends earlier.
    pub(crate) fn begin() -> Self {
        // INVARIANT: It is not sent to another task.
        Self {
            // SAFETY: Sets a flag of the running task.
            saved: unsafe { raw::nrs_noio_save() },
            _of_this_task: NotThreadSafe,
        }
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

/// Lets another task run if one wants to; may sleep.
pub(crate) fn cond_resched() {
    // SAFETY: Callers are in process context with no lock held.
    unsafe { raw::nrs_cond_resched() }
}

/// Returns whether an interrupt is handled, hard or soft.
pub(crate) fn in_interrupt() -> bool {
    // SAFETY: Always safe to call.
    unsafe { raw::nrs_in_interrupt() }
}

/// Whether a message may be printed now.
pub(crate) fn may_print() -> bool {
    // SAFETY: Always safe to call.
    unsafe { raw::nrs_ratelimit() }
}

/// Returns what a system call returns whose result is a number of bytes.
pub(super) fn size(result: Result<usize>) -> isize {
    match result {
        Ok(size) => isize::try_from(size).unwrap_or(isize::MAX),
        Err(error) => error.to_errno() as isize,
    }
}
