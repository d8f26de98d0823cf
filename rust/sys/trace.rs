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
use crate::sched::{
    attr::{Attrs, Id, Priority},
    nid::Nid,
};

#[cfg(CONFIG_TRACEPOINTS)]
#[allow(
    improper_ctypes,
    reason = "depends on what the kernel has in a tracepoint"
)]
mod points {
    use super::raw;
    use kernel::bindings::tracepoint;

    extern "C" {
        pub(super) static __tracepoint_nrs_enqueue: tracepoint;
        pub(super) static __tracepoint_nrs_dispatch: tracepoint;
        pub(super) static __tracepoint_nrs_complete: tracepoint;
        pub(super) static __tracepoint_nrs_throttle: tracepoint;
        pub(super) static __tracepoint_nrs_policy: tracepoint;
        pub(super) static __tracepoint_nrs_shares: tracepoint;

        pub(super) fn rust_do_trace_nrs_enqueue(event: *const raw::nrs_event_enqueue);
        pub(super) fn rust_do_trace_nrs_dispatch(event: *const raw::nrs_event_dispatch);
        pub(super) fn rust_do_trace_nrs_complete(event: *const raw::nrs_event_complete);
        pub(super) fn rust_do_trace_nrs_throttle(event: *const raw::nrs_event_throttle);
        pub(super) fn rust_do_trace_nrs_policy(event: *const raw::nrs_event_policy);
        pub(super) fn rust_do_trace_nrs_shares(event: *const raw::nrs_event_shares);
    }
}

/// Defines `$is_on`, whether somebody looks at an event, and `$tell`, which shows it to them.
macro_rules! event {
    ($is_on:ident, $tell:ident, $point:ident, $do_trace:ident, $event:ident) => {
        #[doc = concat!("Whether somebody looks at [`", stringify!($event), "`].")]
        #[inline(always)]
        pub(crate) fn $is_on() -> bool {
            #[cfg(CONFIG_TRACEPOINTS)]
            // SAFETY: The static key of a tracepoint that C code defines.
            return unsafe {
                kernel::jump_label::static_branch_unlikely!(
                    points::$point,
                    kernel::bindings::tracepoint,
                    key
                )
            };
            #[cfg(not(CONFIG_TRACEPOINTS))]
            return false;
        }

        #[doc = concat!("Shows a [`", stringify!($event), "`] to those who look.")]
        #[cold]
        #[inline(never)]
        pub(crate) fn $tell(event: &$event<'_>) {
            event.with_raw(|_event| {
                #[cfg(CONFIG_TRACEPOINTS)]
                // SAFETY: The event is complete, and what it points to is there during the call.
                unsafe {
                    points::$do_trace(_event)
                };
            });
        }
    };
}

event!(
    enqueue_is_on,
    enqueue,
    __tracepoint_nrs_enqueue,
    rust_do_trace_nrs_enqueue,
    Enqueue
);
event!(
    dispatch_is_on,
    dispatch,
    __tracepoint_nrs_dispatch,
    rust_do_trace_nrs_dispatch,
    Dispatch
);
event!(
    complete_is_on,
    complete,
    __tracepoint_nrs_complete,
    rust_do_trace_nrs_complete,
    Complete
);
event!(
    throttle_is_on,
    throttle,
    __tracepoint_nrs_throttle,
    rust_do_trace_nrs_throttle,
    Throttle
);
event!(
    policy_is_on,
    policy,
    __tracepoint_nrs_policy,
    rust_do_trace_nrs_policy,
    Policy
);
event!(
    shares_is_on,
    shares,
    __tracepoint_nrs_shares,
    rust_do_trace_nrs_shares,
    Shares
);

/// Whether requests are followed.
#[inline(always)]
pub(crate) fn follows() -> bool {
    enqueue_is_on() || dispatch_is_on() || complete_is_on()
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

/// Bytes of a line that is made for an event, at most.
const LINE_MAX: usize = 64;

/// A text that is made for an event; what does not fit is left out.
struct Line {
    bytes: [u8; LINE_MAX],
    len: usize,
}

impl Line {
    /// What `value` shows.
    fn of(value: Option<&dyn Display>) -> Self {
        let mut line = Self {
            bytes: [0; LINE_MAX],
            len: 0,
        };
        if let Some(value) = value {
            // What does not fit is left out.
            let _ = write!(line, "{value}");
        }
        line
    }

    fn as_raw(&self) -> raw::nrs_text {
        bytes(self.bytes.get(..self.len).unwrap_or(&[]))
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let room = self.bytes.get_mut(self.len..).unwrap_or(&mut []);
        for (to, from) in room.iter_mut().zip(text.bytes()) {
            *to = from;
        }
        self.len = self.len.saturating_add(text.len()).min(LINE_MAX);
        Ok(())
    }
}

/// `text` as C has it.
fn bytes(text: &[u8]) -> raw::nrs_text {
    raw::nrs_text {
        start: text.as_ptr().cast(),
        length: u32::try_from(text.len()).unwrap_or(0),
    }
}

/// 1 for the high-priority head.
fn high(priority: Priority) -> u8 {
    (priority == Priority::High).into()
}

/// The number that is shown of an identity.
fn number(id: Id) -> u32 {
    id.get().unwrap_or(u32::MAX)
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

impl Head<'_> {
    fn as_raw(&self) -> raw::nrs_event_head {
        raw::nrs_event_head {
            service: bytes(self.service.as_bytes()),
            policy: bytes(self.policy.as_bytes()),
            cpt: self.cpt,
            high: high(self.priority),
        }
    }
}

/// A request has arrived.
pub(crate) struct Enqueue<'a> {
    /// The head it is for, and the policy that takes new requests there.
    pub(crate) head: Head<'a>,
    /// Its number.
    pub(crate) id: u64,
    /// Who asks.
    pub(crate) attrs: &'a Attrs,
    /// Bytes that it transfers.
    pub(crate) bytes: u64,
    /// First byte of its range.
    pub(crate) offset: u64,
    /// It waits; else it goes down at once.
    pub(crate) queued: bool,
}

impl Enqueue<'_> {
    fn with_raw(&self, f: impl FnOnce(&raw::nrs_event_enqueue)) {
        let nid: Option<&Nid> = self.attrs.nid.as_ref();
        let nid = Line::of(nid.map(|nid| nid as &dyn Display));
        // A program may give any bytes.
        let jobid = Line::of(Some(&self.attrs.jobid));
        f(&raw::nrs_event_enqueue {
            head: self.head.as_raw(),
            jobid: jobid.as_raw(),
            nid: nid.as_raw(),
            id: self.id,
            bytes: self.bytes,
            offset: self.offset,
            uid: number(self.attrs.uid),
            gid: number(self.attrs.gid),
            opcode: self.attrs.opcode.number(),
            queued: self.queued.into(),
        });
    }
}

/// A request is to be served.
pub(crate) struct Dispatch<'a> {
    /// The head it went through, and the policy that decided.
    pub(crate) head: Head<'a>,
    /// Its number.
    pub(crate) id: u64,
    /// Bytes that it transfers.
    pub(crate) bytes: u64,
    /// For how long it waited, ns.
    pub(crate) waited_ns: u64,
    /// It had to wait; else it went down at once.
    pub(crate) queued: bool,
    /// It has a slot.
    pub(crate) slot: bool,
    /// Slots of the target that are in use, with its own.
    pub(crate) slots: u32,
    /// Slots of the target in effect.
    pub(crate) limit: u32,
}

impl Dispatch<'_> {
    fn with_raw(&self, f: impl FnOnce(&raw::nrs_event_dispatch)) {
        f(&raw::nrs_event_dispatch {
            head: self.head.as_raw(),
            id: self.id,
            bytes: self.bytes,
            waited_ns: self.waited_ns,
            slots: self.slots,
            limit: self.limit,
            queued: self.queued.into(),
            slot: self.slot.into(),
        });
    }
}

/// A request has ended.
pub(crate) struct Complete<'a> {
    /// The head it went through, without a policy.
    pub(crate) head: Head<'a>,
    /// Its number.
    pub(crate) id: u64,
    /// Bytes that it transferred.
    pub(crate) bytes: u64,
    /// Time since it was dispatched, ns.
    pub(crate) service_ns: u64,
    /// 0, or how it failed.
    pub(crate) error: i32,
}

impl Complete<'_> {
    fn with_raw(&self, f: impl FnOnce(&raw::nrs_event_complete)) {
        f(&raw::nrs_event_complete {
            head: self.head.as_raw(),
            id: self.id,
            bytes: self.bytes,
            service_ns: self.service_ns,
            error: self.error,
        });
    }
}

/// A policy withholds all that a head has.
pub(crate) struct Throttle<'a> {
    /// The head, and the policy that takes new requests there.
    pub(crate) head: Head<'a>,
    /// Until when, monotonic ns.
    pub(crate) until_ns: u64,
    /// For how long from now on, ns.
    pub(crate) delay_ns: u64,
    /// Requests that are queued on the head.
    pub(crate) queued: u32,
}

impl Throttle<'_> {
    fn with_raw(&self, f: impl FnOnce(&raw::nrs_event_throttle)) {
        f(&raw::nrs_event_throttle {
            head: self.head.as_raw(),
            until_ns: self.until_ns,
            delay_ns: self.delay_ns,
            queued: self.queued,
        });
    }
}

/// A head has another policy, or the same with other parameters.
pub(crate) struct Policy<'a> {
    /// Name of the service.
    pub(crate) service: &'a str,
    /// Which head, of all partitions.
    pub(crate) priority: Priority,
    /// Name of the policy before.
    pub(crate) old: &'a str,
    /// Name of the policy from now on.
    pub(crate) new: &'a str,
    /// The argument that it was started with.
    pub(crate) argument: Option<&'a dyn Display>,
}

impl Policy<'_> {
    fn with_raw(&self, f: impl FnOnce(&raw::nrs_event_policy)) {
        let argument = Line::of(self.argument);
        f(&raw::nrs_event_policy {
            service: bytes(self.service.as_bytes()),
            old: bytes(self.old.as_bytes()),
            new_: bytes(self.new.as_bytes()),
            argument: argument.as_raw(),
            high: high(self.priority),
        });
    }
}

/// Shares were computed, and are in effect.
pub(crate) struct Shares<'a> {
    /// Name of the service.
    pub(crate) service: &'a str,
    /// For which heads.
    pub(crate) priority: Priority,
    /// Entities that have one.
    pub(crate) entities: u64,
    /// Number of the computation.
    pub(crate) generation: u64,
    /// Time since the one before, ms.
    pub(crate) delta_ms: u64,
    /// How long it took, ns.
    pub(crate) took_ns: u64,
}

impl Shares<'_> {
    fn with_raw(&self, f: impl FnOnce(&raw::nrs_event_shares)) {
        f(&raw::nrs_event_shares {
            service: bytes(self.service.as_bytes()),
            entities: self.entities,
            generation: self.generation,
            delta_ms: self.delta_ms,
            took_ns: self.took_ns,
            high: high(self.priority),
        });
    }
}
