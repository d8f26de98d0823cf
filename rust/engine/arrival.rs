// SPDX-License-Identifier: GPL-2.0-only

//! Requests as front-ends submit them to a service.

use super::{client::load::ClientLoad, target::Target};
use crate::{
    sched::{
        order::{Forced, RecordId, Relation},
        partition::{admit::AdmissionOutcome, ident::Ident},
    },
    sys::node::Held,
};

/// Properties of a request beside its attributes, set by a front-end.
pub(crate) struct Arrival<'a> {
    /// Everything that the class may depend on; `None`: it exceeds the size limit, so that requests
    /// are classified one by one.
    pub(crate) ident: Option<Ident>,
    /// Load of the client of the request.
    pub(crate) load: &'a ClientLoad,
    /// Target of the request.
    pub(crate) target: &'a Target,
    /// True if the request must not be throttled.
    pub(crate) must_pass: bool,
    /// True if the request frees memory: with `must_pass`, not even other forced requests delay it.
    pub(crate) reclaims: bool,
    /// True if the submitting task may sleep, without starting I/O.
    pub(crate) may_sleep: bool,
    /// True if the request may bypass the queue while no request is queued.
    pub(crate) may_pass: bool,
    /// Function that returns true if the client is being drained; `None`: the client is never
    /// drained.
    pub(crate) draining: Option<&'a dyn Fn() -> bool>,
    /// Ordering constraints; `None` if the request is unordered and needs no record.
    pub(crate) relation: Option<&'a Relation>,
    /// True if the request may wait for a record; else it is refused if there is none.
    pub(crate) may_overflow: bool,
    /// Domain, whose requests share one partition; `None`: the partition of the CPU.
    pub(crate) domain: Option<u64>,
}

/// Identifier of a request in the order table of its partition.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct OrderHandle {
    /// Index of the partition.
    pub(crate) home: u16,
    /// Identifier in the order table.
    pub(crate) id: RecordId,
}

/// Result of admitting a request.
pub(crate) struct ArrivalOutcome {
    /// Outcome for the request.
    pub(crate) went: AdmissionOutcome<Held>,
    /// Record of the request, if it has one.
    pub(crate) record: Option<OrderHandle>,
}

impl Arrival<'_> {
    /// Returns true if the client is being drained.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.is_some_and(|draining| draining())
    }

    /// Returns the throttling exemption of the request, also for the time after its predecessors
    /// have ended. `draining` is true if the client is being drained.
    pub(crate) fn forced(&self, draining: bool) -> Forced {
        if draining || (self.must_pass && self.reclaims) {
            Forced::AtOnce
        } else if self.must_pass {
            Forced::InTurn
        } else {
            Forced::No
        }
    }
}
