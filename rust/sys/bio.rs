// SPDX-License-Identifier: GPL-2.0-only

//! Attributes of a bio, for every front-end that receives bios.

use kernel::bindings;

use super::raw;
use crate::sched::{attr::IoClass, item::ByteRange, priority_sources::PrioritySources};

/// Bytes of a sector.
pub(crate) const SECTOR: u64 = 512;

/// Stream of a bio as set by its submitter.
#[derive(Clone, Copy)]
pub(crate) struct WriteStream {
    stream: u8,
    hint: bindings::rw_hint,
}

impl WriteStream {
    /// Returns the write stream, else 256 plus the write hint; 0 if the bio has neither.
    pub(crate) fn number(self) -> u64 {
        match self.stream {
            0 if self.hint > bindings::rw_hint_WRITE_LIFE_NONE => 256 + u64::from(self.hint),
            stream => stream.into(),
        }
    }
}

/// A read-only view of a bio.
///
/// # Invariants
///
/// The bio is valid and not changed while the view exists.
#[derive(Clone, Copy)]
pub(crate) struct BioView<'a>(&'a bindings::bio);

impl<'a> BioView<'a> {
    /// Returns the view of `bio`.
    ///
    /// # Safety
    ///
    /// `bio` is valid and not changed for `'a`.
    pub(super) unsafe fn new(bio: *const bindings::bio) -> Self {
        // INVARIANT, SAFETY: By the safety requirements of this function.
        Self(unsafe { &*bio })
    }

    /// Returns the bio as a pointer, for kernel functions that only read the bio.
    pub(super) fn as_ptr(self) -> *mut bindings::bio {
        core::ptr::from_ref(self.0).cast_mut()
    }

    fn has(self, bit: u32) -> bool {
        self.0.bi_opf & (1 << bit) != 0
    }

    /// Returns the operation: one of `REQ_OP_*`.
    fn op(self) -> u32 {
        self.0.bi_opf & 0xff
    }

    /// Returns true if the bio is a read.
    pub(crate) fn is_read(self) -> bool {
        self.op() == bindings::req_op_REQ_OP_READ
    }

    /// Returns true for a write of data.
    pub(crate) fn is_write(self) -> bool {
        self.op() == bindings::req_op_REQ_OP_WRITE
    }

    /// Returns true for a read or a write of data.
    pub(crate) fn has_data(self) -> bool {
        self.is_read() || self.is_write()
    }

    /// Returns true for a write that must not be split.
    pub(crate) fn is_atomic(self) -> bool {
        self.has(bindings::req_flag_bits___REQ_ATOMIC)
    }

    /// Returns true for a discard, secure erase or write of zeroes: a range without data.
    pub(crate) fn is_punch(self) -> bool {
        matches!(
            self.op(),
            bindings::req_op_REQ_OP_DISCARD
                | bindings::req_op_REQ_OP_SECURE_ERASE
                | bindings::req_op_REQ_OP_WRITE_ZEROES
        )
    }

    /// Returns true if a file system needs the bio to make progress: metadata or priority.
    pub(crate) fn is_urgent(self) -> bool {
        self.is_meta() || self.is_prio()
    }

    /// Returns true if the bio writes memory out to reclaim it.
    pub(crate) fn is_swap(self) -> bool {
        self.has(bindings::req_flag_bits___REQ_SWAP)
    }

    /// Returns true if the submitter polls for the end of the bio.
    #[cfg(feature = "elevator")]
    pub(crate) fn is_polled(self) -> bool {
        self.has(bindings::req_flag_bits___REQ_POLLED)
    }

    /// Returns true if the file system marked the bio as metadata.
    fn is_meta(self) -> bool {
        self.has(bindings::req_flag_bits___REQ_META)
    }

    /// Returns true for a change of a zoned disk, in which writes of a zone keep their order.
    #[cfg(feature = "elevator")]
    pub(crate) fn is_zoned_write(self) -> bool {
        // SAFETY: By the type invariant; a submitted bio has a device.
        !self.is_read() && unsafe { raw::nrs_bdev_is_zoned(self.0.bi_bdev) }
    }

    /// Returns true if the submitter must not sleep.
    pub(crate) fn is_nowait(self) -> bool {
        self.has(bindings::req_flag_bits___REQ_NOWAIT)
    }

    /// Returns true if the submitter set `REQ_PRIO`.
    fn is_prio(self) -> bool {
        self.has(bindings::req_flag_bits___REQ_PRIO)
    }

    /// Returns true if the I/O priority of the bio is of the real-time class.
    pub(crate) fn is_realtime(self) -> bool {
        self.0.bi_ioprio >> 13 == IoClass::Realtime as u16
    }

    /// Returns `bi_ioprio`, what the submitter set, else the priority of the task, for
    /// [`crate::sched::attr::IoPriority::from_kernel`].
    pub(crate) fn ioprio(self) -> u16 {
        self.0.bi_ioprio
    }

    /// Returns the reasons for which the bio may have high priority.
    pub(crate) fn reasons(self) -> PrioritySources {
        let mut reasons = PrioritySources::from_bits(0);
        for (is, reason) in [
            (self.is_realtime(), PrioritySources::REALTIME),
            (self.is_meta(), PrioritySources::META),
            (self.is_prio(), PrioritySources::PRIO),
        ] {
            if is {
                reasons = reasons.and(reason);
            }
        }
        reasons
    }

    /// Returns the stream of the bio, as set by the submitter.
    pub(crate) fn stream(self) -> WriteStream {
        WriteStream {
            stream: self.0.bi_write_stream,
            hint: self.0.bi_write_hint,
        }
    }

    /// Returns the length of the bio, bytes.
    pub(crate) fn bytes(self) -> u64 {
        u64::from(self.0.bi_iter.bi_size)
    }

    /// Returns the first sector of the bio on its device.
    pub(crate) fn sector(self) -> u64 {
        self.0.bi_iter.bi_sector
    }

    /// Records in `range` the file of the bio and the offset in that file, if they are known.
    #[inline(never)]
    pub(crate) fn find_file(self, range: &mut ByteRange) {
        let (mut file, mut offset) = (0, 0);
        // SAFETY: By the type invariant; the numbers are valid for writes.
        if unsafe { raw::nrs_bio_file(self.as_ptr(), &mut file, &mut offset) } {
            range.object = file;
            range.logical = offset;
        }
    }
}
