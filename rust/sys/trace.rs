// SPDX-License-Identifier: GPL-2.0-only

//! Tracepoints.
//!
//! C header: `include/linux/tracepoint.h`; the events are defined in `trace.h`, what their fields mean is in
//! `Documentation/tracing.md`.
//!
//! # Vocabulary
//!
//! - *Event*: one of the structures below; what it is made of is asked for only if somebody looks.
//! - *Followed*: somebody looks at one of the events of a request's life.
//! - *Life*: what a request keeps so that its events can be told from those of others ([`Life`]).
//!
//! An event that nobody looks at costs an instruction that does nothing: each has a static branch, as those in
//! C have. The kernel crate's `declare_trace!` looks for tracepoints among the crate's own bindings only, so
//! what it makes is made here. On kernels without tracepoints there is nothing.
//!
//! # Context
//!
//! Any; those who look get along with locks and with interrupts that are off.

use core::fmt::{Display, Write};

use kernel::sync::atomic::{ordering, Atomic};

use super::raw;
use crate::sched::attr::{Id, Opcode, Priority};

/// Whether requests are followed.
#[inline(always)]
pub(crate) fn follows() -> bool {
    Enqueue::is_on() || Dispatch::is_on() || Complete::is_on()
}

/// What a request keeps for its events; nothing if requests were not followed when it arrived.
///
/// Packed, as it is part of what every request has and fills a hole there.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
pub(crate) struct Life {
    /// When it was dispatched, monotonic ns.
    dispatched: u64,
    /// Its number; 0: it has none, and no events.
    id: u32,
}

/// The number given last.
static LAST: Atomic<u32> = Atomic::new(0);

impl Life {
    /// That of a request that is not followed.
    pub(crate) const NONE: Self = Self {
        dispatched: 0,
        id: 0,
    };

    /// That of a request which arrives; its number is that of no other until 2^32 - 1 more have come.
    pub(crate) fn begin() -> Self {
        let mut id = 0;
        while id == 0 {
            id = LAST.fetch_add(1, ordering::Relaxed).wrapping_add(1);
        }
        Self { dispatched: 0, id }
    }

    /// Its number, if it is followed.
    pub(crate) const fn id(&self) -> Option<u64> {
        match self.id {
            0 => None,
            id => Some(id as u64),
        }
    }

    /// Notes that it is dispatched at `now`, monotonic ns.
    pub(crate) fn dispatched(&mut self, now: u64) {
        self.dispatched = now;
    }

    /// Time since it was dispatched until `now`, monotonic ns; none if nobody looked then.
    pub(crate) const fn since(&self, now: u64) -> Option<u64> {
        match self.dispatched {
            0 => None,
            at => Some(now.saturating_sub(at)),
        }
    }
}

/// Bytes of a text that is made for an event, at most.
const SHOWN_MAX: usize = 64;

/// A text that is made for an event; what does not fit is left out.
pub(crate) struct Shown {
    bytes: [u8; SHOWN_MAX],
    len: usize,
}

impl Shown {
    /// What `value` shows.
    pub(crate) fn of(value: Option<&dyn Display>) -> Self {
        let mut shown = Self {
            bytes: [0; SHOWN_MAX],
            len: 0,
        };
        if let Some(value) = value {
            // What does not fit is left out.
            let _ = write!(shown, "{value}");
        }
        shown
    }
}

impl Write for Shown {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let room = self.bytes.get_mut(self.len..).unwrap_or(&mut []);
        for (to, from) in room.iter_mut().zip(text.bytes()) {
            *to = from;
        }
        self.len = self.len.saturating_add(text.len()).min(SHOWN_MAX);
        Ok(())
    }
}

/// A value as C has it.
trait Value {
    type Raw;

    fn raw(&self) -> Self::Raw;
}

macro_rules! value {
    ($($type:ty => $raw:ty: |$value:ident| $made:expr;)+) => {
        $(impl Value for $type {
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
    // 1 for the high-priority head.
    Priority => u8: |priority| (*priority == Priority::High).into();
    &str => raw::nrs_text: |text| bytes(text.as_bytes());
    Shown => raw::nrs_text: |shown| bytes(shown.bytes.get(..shown.len).unwrap_or(&[]));
    Head<'_> => raw::nrs_event_head: |head| raw::nrs_event_head {
        service: head.service.raw(),
        policy: head.policy.raw(),
        cpt: head.cpt,
        high: head.priority.raw(),
    };
}

/// `text` as C has it.
fn bytes(text: &[u8]) -> raw::nrs_text {
    raw::nrs_text {
        start: text.as_ptr().cast(),
        length: u32::try_from(text.len()).unwrap_or(0),
    }
}

/// The head that an event is of.
#[derive(Clone, Copy)]
pub(crate) struct Head<'a> {
    /// Name of the service.
    pub(crate) service: &'a str,
    /// Name of the policy; empty: none has to do with it.
    pub(crate) policy: &'a str,
    /// Index of the partition.
    pub(crate) cpt: u16,
    /// Which of its heads.
    pub(crate) priority: Priority,
}

/// Defines an event: its tracepoint, the function that shows it to those who look, what C calls it; then its fields.
macro_rules! event {
    ($(#[$doc:meta])* $Event:ident: $point:ident, $do_trace:ident, $raw:ident {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)+
    }) => {
        $(#[$doc])*
        pub(crate) struct $Event<'a> {
            $($(#[$field_doc])* pub(crate) $field: $type,)+
        }

        impl $Event<'_> {
            /// Whether somebody looks at this event.
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

            /// Shows the event to those who look.
            #[cold]
            #[inline(never)]
            pub(crate) fn tell(&self) {
                let _event = raw::$raw {
                    $($field: self.$field.raw(),)+
                };
                #[cfg(CONFIG_TRACEPOINTS)]
                {
                    extern "C" {
                        fn $do_trace(event: *const raw::$raw);
                    }
                    // SAFETY: The event is complete, and what it points to is there during the call.
                    unsafe { $do_trace(&_event) };
                }
            }
        }
    };
}

event! {
    /// A request has arrived.
    Enqueue: __tracepoint_nrs_enqueue, rust_do_trace_nrs_enqueue, nrs_event_enqueue {
        /// The head it is for, and the policy that takes new requests there.
        head: Head<'a>,
        /// Its job. A program may give any bytes.
        jobid: Shown,
        /// Network identifier of who asks.
        nid: Shown,
        /// Its number.
        id: u64,
        /// Bytes that it transfers.
        bytes: u64,
        /// First byte of its range.
        offset: u64,
        /// Who asks.
        uid: Id,
        /// Who asks.
        gid: Id,
        /// What is asked for.
        opcode: Opcode,
        /// It waits; else it goes down at once.
        queued: bool,
    }
}

event! {
    /// A request is to be served.
    Dispatch: __tracepoint_nrs_dispatch, rust_do_trace_nrs_dispatch, nrs_event_dispatch {
        /// The head it went through, and the policy that decided.
        head: Head<'a>,
        /// Its number.
        id: u64,
        /// Bytes that it transfers.
        bytes: u64,
        /// For how long it waited, ns.
        waited_ns: u64,
        /// Slots of the target that are in use, with its own.
        slots: u32,
        /// Slots of the target in effect.
        limit: u32,
        /// It had to wait; else it went down at once.
        queued: bool,
        /// It has a slot.
        slot: bool,
    }
}

event! {
    /// A request has ended.
    Complete: __tracepoint_nrs_complete, rust_do_trace_nrs_complete, nrs_event_complete {
        /// The head it went through, without a policy.
        head: Head<'a>,
        /// Its number.
        id: u64,
        /// Bytes that it transferred.
        bytes: u64,
        /// Time since it was dispatched, ns.
        service_ns: u64,
        /// 0, or how it failed.
        error: i32,
    }
}

event! {
    /// A policy withholds all that a head has.
    Throttle: __tracepoint_nrs_throttle, rust_do_trace_nrs_throttle, nrs_event_throttle {
        /// The head, and the policy that takes new requests there.
        head: Head<'a>,
        /// Until when, monotonic ns.
        until_ns: u64,
        /// For how long from now on, ns.
        delay_ns: u64,
        /// Requests that are queued on the head.
        queued: u32,
    }
}

event! {
    /// A head has another policy, or the same with other parameters.
    Policy: __tracepoint_nrs_policy, rust_do_trace_nrs_policy, nrs_event_policy {
        /// Name of the service.
        service: &'a str,
        /// Name of the policy before.
        old: &'a str,
        /// Name of the policy from now on.
        new_: &'a str,
        /// The argument that it was started with.
        argument: Shown,
        /// Which head, of all partitions.
        high: Priority,
    }
}

event! {
    /// Factors of an agent are in force, or a step nearer to one.
    Factors: __tracepoint_nrs_factors, rust_do_trace_nrs_factors, nrs_event_factors {
        /// Name of the service.
        service: &'a str,
        /// Of which instance their ids are.
        instance: u64,
        /// How many there are.
        factors: u64,
        /// Their lease, ms.
        lease_ms: u64,
        /// 0: they were set; else steps of their return to one.
        step: u32,
    }
}

event! {
    /// Shares were computed, and are in effect.
    Shares: __tracepoint_nrs_shares, rust_do_trace_nrs_shares, nrs_event_shares {
        /// Name of the service.
        service: &'a str,
        /// Entities that have one.
        entities: u64,
        /// Number of the computation.
        generation: u64,
        /// Time since the one before, ms.
        delta_ms: u64,
        /// How long it took, ns.
        took_ns: u64,
        /// For which heads.
        high: Priority,
    }
}
