// SPDX-License-Identifier: GPL-2.0-only

//! Tracepoints.
//!
//! C header: `include/linux/tracepoint.h`. `trace.h` defines the events, `Documentation/tracing.md`
//! describes their fields.
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

use kernel::sync::atomic::{ordering, Atomic};

use super::raw;
use crate::sched::attr::{Id, Opcode, Priority};

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

/// Largest text of an event, bytes.
const SHOWN_MAX: usize = 64;

/// A text generated for an event, truncated at `SHOWN_MAX` bytes.
pub(crate) struct EventText {
    bytes: [u8; SHOWN_MAX],
    len: usize,
}

impl EventText {
    /// Returns the text of `value`.
    pub(crate) fn of(value: Option<&dyn Display>) -> Self {
        let mut shown = Self {
            bytes: [0; SHOWN_MAX],
            len: 0,
        };
        if let Some(value) = value {
            // Truncation is not an error.
            let _ = write!(shown, "{value}");
        }
        shown
    }
}

impl Write for EventText {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let room = self.bytes.get_mut(self.len..).unwrap_or(&mut []);
        for (to, from) in room.iter_mut().zip(text.bytes()) {
            *to = from;
        }
        self.len = self.len.saturating_add(text.len()).min(SHOWN_MAX);
        Ok(())
    }
}

/// A value that can be converted to its C representation.
trait TraceValue {
    type Raw;

    fn raw(&self) -> Self::Raw;
}

macro_rules! value {
    ($($type:ty => $raw:ty: |$value:ident| $made:expr;)+) => {
        $(impl TraceValue for $type {
            type Raw = $raw;

            fn raw(&self) -> $raw {
                let $value = self;
                $made
            }
        })+
    };
}

value! {
    i32 => i32: |number| *number;
    u32 => u32: |number| *number;
    u64 => u64: |number| *number;
    bool => u8: |is| (*is).into();
    Id => u32: |id| id.get().unwrap_or(u32::MAX);
    Opcode => u32: |opcode| opcode.number();
    // 1 is the high-priority head.
    Priority => u8: |priority| (*priority == Priority::High).into();
    &str => raw::nrs_text: |text| bytes(text.as_bytes());
    EventText => raw::nrs_text: |shown| bytes(shown.bytes.get(..shown.len).unwrap_or(&[]));
    TraceHead<'_> => raw::nrs_event_head: |head| raw::nrs_event_head {
        service: head.service.raw(),
        policy: head.policy.raw(),
        cpt: head.cpt,
        high: head.priority.raw(),
    };
}

/// Returns the C representation of `text`.
fn bytes(text: &[u8]) -> raw::nrs_text {
    raw::nrs_text {
        start: text.as_ptr().cast(),
        length: u32::try_from(text.len()).unwrap_or(0),
    }
}

/// Head to which an event belongs.
#[derive(Clone, Copy)]
pub(crate) struct TraceHead<'a> {
    /// Name of the service.
    pub(crate) service: &'a str,
    /// Name of the policy; empty if no policy is involved.
    pub(crate) policy: &'a str,
    /// Index of the partition.
    pub(crate) cpt: u16,
    /// Head of the partition.
    pub(crate) priority: Priority,
}

/// Defines an event by its tracepoint, the function that emits it, the C structure, and the fields.
macro_rules! event {
    ($(#[$doc:meta])* $Event:ident: $point:ident, $do_trace:ident, $raw:ident {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)+
    }) => {
        $(#[$doc])*
        pub(crate) struct $Event<'a> {
            $($(#[$field_doc])* pub(crate) $field: $type,)+
        }

        impl $Event<'_> {
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
                let _event = raw::$raw {
                    $($field: self.$field.raw(),)+
                };
                #[cfg(CONFIG_TRACEPOINTS)]
                {
                    extern "C" {
                        fn $do_trace(event: *const raw::$raw);
                    }
                    // SAFETY: The event is complete, and the texts in it are valid during the call.
                    unsafe { $do_trace(&_event) };
                }
            }
        }
    };
}

event! {
    /// Arrival of a request.
    Enqueue: __tracepoint_nrs_enqueue, rust_do_trace_nrs_enqueue, nrs_event_enqueue {
        /// Head of the request, and the policy that takes new requests there.
        head: TraceHead<'a>,
        /// Job id. A program may supply any bytes.
        jobid: EventText,
        /// Network identifier of the client.
        nid: EventText,
        /// Number of the request.
        id: u64,
        /// Length of the request, bytes.
        bytes: u64,
        /// First byte of the range.
        offset: u64,
        /// User id of the client.
        uid: Id,
        /// Group id of the client.
        gid: Id,
        /// Operation code.
        opcode: Opcode,
        /// True if the request is queued, false if it is dispatched immediately.
        queued: bool,
    }
}

event! {
    /// Dispatch of a request.
    Dispatch: __tracepoint_nrs_dispatch, rust_do_trace_nrs_dispatch, nrs_event_dispatch {
        /// Head of the request, and the policy that selected it.
        head: TraceHead<'a>,
        /// Number of the request.
        id: u64,
        /// Length of the request, bytes.
        bytes: u64,
        /// Time in the queue, ns.
        waited_ns: u64,
        /// Slots of the target in use, including that of this request.
        slots: u32,
        /// Slot limit of the target in effect.
        limit: u32,
        /// True if the request was queued, false if it was dispatched immediately.
        queued: bool,
        /// True if the request has a slot.
        slot: bool,
    }
}

event! {
    /// End of a request.
    Complete: __tracepoint_nrs_complete, rust_do_trace_nrs_complete, nrs_event_complete {
        /// Head of the request, without a policy.
        head: TraceHead<'a>,
        /// Number of the request.
        id: u64,
        /// Length of the request, bytes.
        bytes: u64,
        /// Time since the dispatch, ns.
        service_ns: u64,
        /// Errno, or 0 on success.
        error: i32,
    }
}

event! {
    /// Throttling of all requests of a head by its policy.
    Throttle: __tracepoint_nrs_throttle, rust_do_trace_nrs_throttle, nrs_event_throttle {
        /// Head, and the policy that takes new requests there.
        head: TraceHead<'a>,
        /// Time until which requests are throttled, monotonic ns.
        until_ns: u64,
        /// Remaining time, ns.
        delay_ns: u64,
        /// Requests queued on the head.
        queued: u32,
    }
}

event! {
    /// Change of the policy of a head, or of the policy's parameters.
    Policy: __tracepoint_nrs_policy, rust_do_trace_nrs_policy, nrs_event_policy {
        /// Name of the service.
        service: &'a str,
        /// Name of the old policy.
        old: &'a str,
        /// Name of the new policy.
        new_: &'a str,
        /// Argument with which the policy was started.
        argument: EventText,
        /// Head, in all partitions.
        high: Priority,
    }
}

event! {
    /// Factors of an agent are set, or have moved one step towards 1.
    Factors: __tracepoint_nrs_factors, rust_do_trace_nrs_factors, nrs_event_factors {
        /// Name of the service.
        service: &'a str,
        /// Instance to which the ids belong.
        instance: u64,
        /// Number of factors.
        factors: u64,
        /// Lease of the factors, ms.
        lease_ms: u64,
        /// 0: the factors were set; else the number of steps of their return to one.
        step: u32,
    }
}

event! {
    /// Computation of shares, which are in effect.
    Shares: __tracepoint_nrs_shares, rust_do_trace_nrs_shares, nrs_event_shares {
        /// Name of the service.
        service: &'a str,
        /// Entities that have a share.
        entities: u64,
        /// Number of the computation.
        generation: u64,
        /// Time since the previous computation, ms.
        delta_ms: u64,
        /// Duration of the computation, ns.
        took_ns: u64,
        /// Head, in all partitions.
        high: Priority,
    }
}
