// SPDX-License-Identifier: GPL-2.0-only

//! Requests that are inserted.

use core::{marker::PhantomData, ptr::NonNull};

use kernel::bindings;

use super::nodes::PerRequest;
use crate::{
    sched::item::{Cost, Spot},
    sys::{
        bio::{View, SECTOR},
        node::{Account, Held, Node, Ops},
        raw,
    },
};

/// A CPU on which requests are made.
pub(crate) struct Cpu(u32);

impl Cpu {
    /// Returns whether it is about to go: nobody might dispatch for its hardware queue later.
    pub(crate) fn is_leaving(&self) -> bool {
        // SAFETY: It is a possible CPU.
        unsafe { !raw::nrs_cpu_is_active(self.0) }
    }
}

/// A request that was inserted.
///
/// # Invariants
///
/// `rq` is a request of the file system that its inserter handed over, with a bio; nothing else uses `slot`. `ops` are those of
/// its scheduler.
pub(crate) struct Request<'a> {
    pub(super) rq: *mut bindings::request,
    pub(super) slot: *mut PerRequest,
    pub(super) ops: &'static Ops,
    pub(super) _rq: PhantomData<&'a mut bindings::request>,
}

impl<'a> Request<'a> {
    /// Returns what the first bio says of itself.
    pub(crate) fn view(&self) -> View<'a> {
        // SAFETY: By the type invariant. Bios are added to a request only where its owner allows that.
        unsafe { View::new((*self.rq).bio) }
    }

    /// Returns the bytes of all its bios.
    pub(crate) fn bytes(&self) -> u64 {
        // SAFETY: By the type invariant.
        unsafe { (*self.rq).__data_len.into() }
    }

    /// Returns the first byte on the disk.
    pub(crate) fn offset(&self) -> u64 {
        // SAFETY: By the type invariant.
        unsafe { (*self.rq).__sector }.wrapping_mul(SECTOR)
    }

    /// Returns the CPU on which it was made, whose hardware queue it is in.
    pub(crate) fn cpu(&self) -> Cpu {
        // SAFETY: By the type invariant.
        Cpu(unsafe { raw::nrs_request_cpu(self.rq) })
    }

    /// Takes the request into the scheduler's hands. Its range is in the device, called `target`, or in a file if that is
    /// `wanted` and known.
    pub(crate) fn into_held(self, cost: Cost, target: u16, wanted: bool, account: Account) -> Held {
        let mut spot = Spot::new(target.into(), self.offset(), self.bytes());
        if wanted {
            self.view().find_file(&mut spot);
        }
        // SAFETY: The slot is this request's by the type invariant and stays until the request has ended; `self` goes, so
        // this is the only `Held`.
        unsafe {
            (&raw mut (*self.slot).rq).write(self.rq);
            (&raw mut (*self.slot).node).write(Node::new(self.ops, cost, spot, account));
            (*self.rq).elv.priv_[0] = self.slot.cast();
            Held::from_raw(NonNull::new_unchecked(&raw mut (*self.slot).node))
        }
    }
}
