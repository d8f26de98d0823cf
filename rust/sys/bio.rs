// SPDX-License-Identifier: GPL-2.0-only

//! What a bio says of itself, for every front-end that gets bios.

use kernel::bindings;

use super::raw;
use crate::sched::{item::Spot, sources::Sources};

/// Bytes of a sector.
pub(crate) const SECTOR: u64 = 512;

/// Stream of a bio as its submitter gave it.
#[derive(Clone, Copy)]
pub(crate) struct WriteStream {
    stream: u8,
    hint: bindings::rw_hint,
}

impl WriteStream {
    /// Returns the write stream, or else a number that stands for the write hint; 0: none.
    pub(crate) fn number(self) -> u64 {
        match self.stream {
            0 if self.hint > bindings::rw_hint_WRITE_LIFE_NONE => 256 + u64::from(self.hint),
            stream => stream.into(),
        }
    }
}

/// A bio, to be read.
///
/// # Invariants
///
/// The bio is valid and not changed while the view exists.
#[derive(Clone, Copy)]
pub(crate) struct View<'a>(&'a bindings::bio);

impl<'a> View<'a> {
    /// Returns the view of `bio`.
    ///
    /// # Safety
    ///
    /// `bio` is valid and not changed for `'a`.
    pub(super) unsafe fn new(bio: *const bindings::bio) -> Self {
        // INVARIANT: The caller promises it.
        // SAFETY: As above.
        Self(unsafe { &*bio })
    }

    /// Returns the bio, for functions of the kernel that only read it.
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

    /// Returns whether it reads.
    pub(crate) fn is_read(self) -> bool {
        self.op() == bindings::req_op_REQ_OP_READ
    }

    /// Returns whether it discards, erases or writes zeroes: it names a range and carries no data.
    pub(crate) fn is_punch(self) -> bool {
        matches!(
            self.op(),
            bindings::req_op_REQ_OP_DISCARD
                | bindings::req_op_REQ_OP_SECURE_ERASE
                | bindings::req_op_REQ_OP_WRITE_ZEROES
        )
    }

    /// Returns whether a file system needs it to make progress: metadata or priority.
    pub(crate) fn is_urgent(self) -> bool {
        self.is_meta() || self.is_prio()
    }

    /// Returns whether it writes memory out, to have it free.
    pub(crate) fn is_swap(self) -> bool {
        self.has(bindings::req_flag_bits___REQ_SWAP)
    }

    /// Returns whether its file system calls it metadata.
    fn is_meta(self) -> bool {
        self.has(bindings::req_flag_bits___REQ_META)
    }

    /// Returns whether its submitter must not sleep.
    pub(crate) fn is_nowait(self) -> bool {
        self.has(bindings::req_flag_bits___REQ_NOWAIT)
    }

    /// Returns whether its submitter marked it as one to prefer.
    fn is_prio(self) -> bool {
        self.has(bindings::req_flag_bits___REQ_PRIO)
    }

    /// Returns whether its I/O priority is of the real-time class.
    pub(crate) fn is_realtime(self) -> bool {
        const CLASS_SHIFT: u32 = 13;
        const CLASS_RT: u32 = 1;
        u32::from(self.0.bi_ioprio) >> CLASS_SHIFT == CLASS_RT
    }

    /// Returns why the bio might have high priority.
    pub(crate) fn reasons(self) -> Sources {
        let mut reasons = Sources::from_bits(0);
        for (is, reason) in [
            (self.is_realtime(), Sources::REALTIME),
            (self.is_meta(), Sources::META),
            (self.is_prio(), Sources::PRIO),
        ] {
            if is {
                reasons = reasons.and(reason);
            }
        }
        reasons
    }

    /// Returns the stream that it belongs to, as its submitter says.
    pub(crate) fn stream(self) -> WriteStream {
        WriteStream {
            stream: self.0.bi_write_stream,
            hint: self.0.bi_write_hint,
        }
    }

    /// Returns its bytes.
    pub(crate) fn bytes(self) -> u64 {
        u64::from(self.0.bi_iter.bi_size)
    }

    /// Returns its first sector on the device that it is for.
    pub(crate) fn sector(self) -> u64 {
        self.0.bi_iter.bi_sector
    }

    /// Notes in `spot` which file it is for, and where in that it starts, if that is known.
    #[inline(never)]
    pub(crate) fn find_file(self, spot: &mut Spot) {
        let (mut file, mut offset) = (0, 0);
        // SAFETY: By the type invariant; the numbers are valid for writes.
        if unsafe { raw::nrs_bio_file(self.as_ptr(), &mut file, &mut offset) } {
            spot.object = file;
            spot.logical = offset;
        }
    }
}
