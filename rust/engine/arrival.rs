// SPDX-License-Identifier: GPL-2.0-only

//! Requests as front-ends bring them to a service.

use super::{client::Client, target::Target};
use crate::{
    sched::{
        order::{Forced, RecordId, Relation},
        partition::{arrive::Went, lane::Ident},
    },
    sys::node::Held,
};

/// What a front-end says about a request beside its attributes.
pub(crate) struct Arrival<'a> {
    /// Everything that its class may depend on; `None`: it takes more than fits, so that requests are
    /// classified one by one.
    pub(crate) ident: Option<Ident>,
    /// Who brings it.
    pub(crate) client: &'a Client,
    /// Where it goes.
    pub(crate) target: &'a Target,
    /// It must not be withheld.
    pub(crate) must_pass: bool,
    /// It frees memory: if it must not be withheld, then by no others like it either.
    pub(crate) reclaims: bool,
    /// Whoever brings it may sleep, but may start no I/O.
    pub(crate) may_sleep: bool,
    /// It may go down at once when nobody waits.
    pub(crate) may_pass: bool,
    /// Whether the client is being drained. `None`: it never is.
    pub(crate) draining: Option<&'a dyn Fn() -> bool>,
    /// What has to end before it; `None`: its order is nobody's business, and it needs no record.
    pub(crate) relation: Option<&'a Relation>,
    /// It may wait for a record; else it is refused if there is none.
    pub(crate) may_overflow: bool,
    /// Those of a domain meet in one partition; `None`: in that of the CPU.
    pub(crate) domain: Option<u64>,
}

/// Names a request in the order table of its partition.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    /// Index of the partition.
    pub(crate) home: u16,
    /// The name there.
    pub(crate) id: RecordId,
}

/// What became of a request that arrived.
pub(crate) struct Arrived {
    /// Where it is.
    pub(crate) went: Went<Held>,
    /// By which it is found, if it is to be.
    pub(crate) record: Option<Record>,
}

impl Arrival<'_> {
    /// Whether the client is being drained.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.is_some_and(|draining| draining())
    }

    /// Whether it may be withheld, now or once nothing has to end before it any more, if the client is `draining`.
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
