// SPDX-License-Identifier: GPL-2.0-only

//! Tracepoints.
//!
//! C header: `include/linux/tracepoint.h`. `events.h` has a row per field, of which `trace.h` makes
//! the tracepoints, and bindgen the structures. `Documentation/tracing.md` describes the fields.
//!
//! # Vocabulary
//!
//! - *Event*: one of the structures below; it is composed only if its tracepoint is enabled.
//! - *Followed*: at least one event of a request's life is enabled.
//! - *Request trace*: number and times of a request that identify its events ([`RequestTrace`]).
//!
//! A disabled event costs a no-op instruction: each has a static branch, like tracepoints in C. The
//! kernel crate's `declare_trace!` finds tracepoints only in the crate's own bindings, so its
//! expansion is repeated here. Kernels without tracepoints have no events.
//!
//! # Context
//!
//! Any; tracing programs run under locks and with interrupts disabled.

use core::fmt::{Display, Write};

use kernel::{
    str::Formatter,
    sync::atomic::{ordering, Atomic},
};

use super::raw;
use crate::sched::attr::Priority;

/// Returns true if requests are followed.
#[inline(always)]
pub(crate) fn follows() -> bool {
    Enqueue::is_on() || Dispatch::is_on() || Complete::is_on()
}

/// Data of a request for its events; empty if requests were not followed when it arrived.
///
/// Packed, because it is part of every request and fills a hole there.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
pub(crate) struct RequestTrace {
    /// Time of dispatch, monotonic ns; 0: not recorded.
    dispatched: u64,
    /// Number of the request; 0: it has none, and no events.
    id: u32,
}

/// Last number given to a request.
static LAST: Atomic<u32> = Atomic::new(0);

impl RequestTrace {
    /// Value for a request that is not followed.
    pub(crate) const NONE: Self = Self {
        dispatched: 0,
        id: 0,
    };

    /// Creates the data of an arriving request; its number is unique among 2^32 - 1 requests.
    pub(crate) fn begin() -> Self {
        let mut id = 0;
        while id == 0 {
            id = LAST.fetch_add(1, ordering::Relaxed).wrapping_add(1);
        }
        Self { dispatched: 0, id }
    }

    /// Returns the number of the request, if it is followed.
    pub(crate) const fn id(&self) -> Option<u64> {
        match self.id {
            0 => None,
            id => Some(id as u64),
        }
    }

    /// Records the dispatch of the request at `now`, monotonic ns.
    pub(crate) fn dispatched(&mut self, now: u64) {
        self.dispatched = now;
    }

    /// Returns the time from the dispatch to `now`, ns; `None` if the dispatch was not recorded.
    pub(crate) const fn since(&self, now: u64) -> Option<u64> {
        match self.dispatched {
            0 => None,
            at => Some(now.saturating_sub(at)),
        }
    }
}

/// Returns `value` as a text of an event, truncated to the size of the field.
#[cold]
pub(crate) fn text<const SIZE: usize>(value: Option<&dyn Display>) -> [u8; SIZE] {
    let mut text = [0; SIZE];
    if let (Some(value), Some((_, room))) = (value, text.split_last_mut()) {
        // Truncation is not an error.
        let _ = write!(Formatter::new(room), "{value}");
    }
    text
}

/// Returns the field `high` of an event.
pub(crate) fn is_high(priority: Priority) -> u8 {
    (priority == Priority::High).into()
}

/// Defines events: the name, the C structure, the tracepoint, and the function that emits it.
macro_rules! events {
    ($($Event:ident: $raw:ident, $point:ident, $do_trace:ident;)+) => {$(
        #[doc = concat!("`", stringify!($raw), "` of `events.h`.")]
        pub(crate) type $Event = raw::$raw;

        impl $Event {
            /// Returns true if the event is enabled.
            #[inline(always)]
            pub(crate) fn is_on() -> bool {
                #[cfg(CONFIG_TRACEPOINTS)]
                {
                    #[allow(
                        improper_ctypes,
                        reason = "depends on what the kernel has in a tracepoint"
                    )]
                    extern "C" {
                        static $point: kernel::bindings::tracepoint;
                    }
                    // SAFETY: The static key of a tracepoint that C code defines.
                    return unsafe {
                        kernel::jump_label::static_branch_unlikely!(
                            $point,
                            kernel::bindings::tracepoint,
                            key
                        )
                    };
                }
                #[cfg(not(CONFIG_TRACEPOINTS))]
                return false;
            }

            /// Emits the event.
            #[cold]
            #[inline(never)]
            pub(crate) fn emit(&self) {
                #[cfg(CONFIG_TRACEPOINTS)]
                {
                    extern "C" {
                        fn $do_trace(event: *const $Event);
                    }
                    // SAFETY: The event is complete, and valid during the call.
                    unsafe { $do_trace(self) };
                }
            }
        }
    )+};
}

events! {
    Enqueue: nrs_event_enqueue, __tracepoint_nrs_enqueue, rust_do_trace_nrs_enqueue;
    Dispatch: nrs_event_dispatch, __tracepoint_nrs_dispatch, rust_do_trace_nrs_dispatch;
    Complete: nrs_event_complete, __tracepoint_nrs_complete, rust_do_trace_nrs_complete;
    Throttle: nrs_event_throttle, __tracepoint_nrs_throttle, rust_do_trace_nrs_throttle;
    Policy: nrs_event_policy, __tracepoint_nrs_policy, rust_do_trace_nrs_policy;
    Factors: nrs_event_factors, __tracepoint_nrs_factors, rust_do_trace_nrs_factors;
    Shares: nrs_event_shares, __tracepoint_nrs_shares, rust_do_trace_nrs_shares;
}
