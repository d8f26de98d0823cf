// SPDX-License-Identifier: GPL-2.0-only

//! Requests being inserted.

use core::{marker::PhantomData, ptr::NonNull};

use kernel::bindings;

use super::request_table::RequestEntry;
use crate::{
    sched::item::{ByteRange, Cost},
    sys::{
        bio::{BioView, SECTOR},
        node::{Held, Node, NodeAccount, Ops},
        raw,
    },
};

/// CPU on which a request was allocated.
pub(crate) struct Cpu(u32);

impl Cpu {
    /// Returns true if the CPU is about to go offline: later its hardware queue might not be run.
    pub(crate) fn is_going_offline(&self) -> bool {
        // SAFETY: The CPU is possible.
        unsafe { !raw::nrs_cpu_is_active(self.0) }
    }
}

/// A request being inserted.
///
/// # Invariants
///
/// `rq` is a request of the file system, with a bio, that its inserter handed over; nothing else
/// uses `entry`. `ops` are the operations of its scheduler.
pub(crate) struct Request<'a> {
    pub(super) rq: *mut bindings::request,
    pub(super) entry: *mut RequestEntry,
    pub(super) ops: &'static Ops,
    pub(super) _rq: PhantomData<&'a mut bindings::request>,
}

impl<'a> Request<'a> {
    /// Returns a view of the first bio.
    pub(crate) fn view(&self) -> BioView<'a> {
        // SAFETY: By the type invariant. Bios are merged into a request only where its owner allows
        // that.
        unsafe { BioView::new((*self.rq).bio) }
    }

    /// Returns true if flushes of the disk wait for the request: its data is part of a flush
    /// sequence (blk-flush.c).
    pub(crate) fn is_in_flush(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { raw::nrs_request_is_in_flush(self.rq) }
    }

    /// Returns true if the request is a piece of a larger bio, unless it is the last one.
    pub(crate) fn is_piece(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { raw::nrs_request_is_piece(self.rq) }
    }

    /// Returns the length of all its bios, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        // SAFETY: By the type invariant.
        unsafe { (*self.rq).__data_len.into() }
    }

    /// Returns the offset on the disk, bytes.
    pub(crate) fn offset(&self) -> u64 {
        // SAFETY: By the type invariant.
        unsafe { (*self.rq).__sector }.wrapping_mul(SECTOR)
    }

    /// Returns the CPU on which the request was allocated, which determines its hardware queue.
    pub(crate) fn cpu(&self) -> Cpu {
        // SAFETY: By the type invariant.
        Cpu(unsafe { raw::nrs_request_cpu(self.rq) })
    }

    /// Converts the request to a [`Held`]. The request's range is in the device `target`, or in a
    /// file if a file is `wanted` and known.
    pub(crate) fn into_held(
        self,
        cost: Cost,
        target: u16,
        wanted: bool,
        account: NodeAccount,
    ) -> Held {
        let mut range = ByteRange::new(target.into(), self.offset(), self.bytes());
        if wanted {
            self.view().find_file(&mut range);
        }
        // SAFETY: By the type invariant this request owns the entry, which is valid until the
        // request has ended; `self` is consumed, so this is the only `Held`.
        unsafe {
            raw::nrs_request_trace(self.rq);
            (&raw mut (*self.entry).rq).write(self.rq);
            (&raw mut (*self.entry).node).write(Node::new(self.ops, cost, range, account));
            (*self.rq).elv.priv_[0] = self.entry.cast();
            Held::from_raw(NonNull::new_unchecked(&raw mut (*self.entry).node))
        }
    }
}
