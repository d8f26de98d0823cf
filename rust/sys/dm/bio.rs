// SPDX-License-Identifier: GPL-2.0-only

//! Bios on their way through a target, and the memory that device-mapper gives with each.

use core::ptr::{self, NonNull};

use kernel::{bindings, ffi::c_uint, prelude::*};

use super::{
    super::node::{Account, Held, Node},
    raw, Instance, Target, SECTOR,
};
use crate::sched::item::{Cost, Spot};

/// What becomes of a bio.
pub(crate) struct Map(pub(super) c_uint);

impl Map {
    /// The request goes down now.
    pub(crate) fn passed(held: Held) -> Self {
        match held.into_raw() {
            Some(_) => Self(raw::DM_MAPIO_REMAPPED),
            None => Self::submitted(),
        }
    }

    /// Somebody holds the request and submits it later. Only to be used when its [`Held`] was given
    /// away; the bio must not be touched any more.
    pub(crate) fn submitted() -> Self {
        Self(raw::DM_MAPIO_SUBMITTED)
    }
}

/// The per-bio area. Device-mapper recycles it without initialising it.
#[repr(C)]
pub(super) struct PerBio {
    /// Null: the bio is not accounted, and there is nothing but this.
    pub(super) target: *mut raw::dm_target,
    pub(super) node: Node,
}

// Device-mapper places the area directly before a structure of its own.
const _: () = assert!(size_of::<PerBio>() % 8 == 0 && align_of::<PerBio>() <= 8);

impl PerBio {
    /// # Safety
    ///
    /// `bio` is a clone that device-mapper handed to a target whose per-bio size is that of this type.
    pub(super) unsafe fn of(bio: *mut bindings::bio) -> *mut Self {
        // SAFETY: The caller promises it.
        unsafe { raw::dm_per_bio_data(bio, size_of::<Self>()) }.cast()
    }

    /// # Safety
    ///
    /// `area` is what [`Self::of`] returned of a bio that has not ended.
    pub(super) unsafe fn bio(area: *mut Self) -> *mut bindings::bio {
        // SAFETY: The caller promises it.
        unsafe { raw::dm_bio_from_per_bio_data(area.cast(), size_of::<Self>()) }
    }

    /// # Safety
    ///
    /// `node` is in a per-bio area.
    pub(super) unsafe fn around(node: NonNull<Node>) -> *mut Self {
        // SAFETY: The caller promises it, so the result stays in the same allocation.
        unsafe {
            node.as_ptr()
                .byte_sub(core::mem::offset_of!(Self, node))
                .cast()
        }
    }
}

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

/// A request from above, owned until [`Target::map`] says what becomes of it.
///
/// # Invariants
///
/// `bio` is a clone that device-mapper handed to `map` of the target behind `ti`, and nobody else uses
/// it.
pub(crate) struct Bio<'a, T: Target> {
    pub(super) bio: *mut bindings::bio,
    pub(super) ti: *mut raw::dm_target,
    pub(super) instance: &'a Instance<T>,
}

impl<T: Target> Bio<'_, T> {
    fn bio(&self) -> &bindings::bio {
        // SAFETY: By the type invariant.
        unsafe { &*self.bio }
    }

    fn has(&self, bit: u32) -> bool {
        self.bio().bi_opf & (1 << bit) != 0
    }

    /// Operation: one of `REQ_OP_*`.
    fn op(&self) -> u32 {
        self.bio().bi_opf & 0xff
    }

    /// Whether it reads.
    pub(crate) fn is_read(&self) -> bool {
        self.op() == bindings::req_op_REQ_OP_READ
    }

    /// Whether it discards, erases or writes zeroes: it names a range and carries no data.
    pub(crate) fn is_punch(&self) -> bool {
        matches!(
            self.op(),
            bindings::req_op_REQ_OP_DISCARD
                | bindings::req_op_REQ_OP_SECURE_ERASE
                | bindings::req_op_REQ_OP_WRITE_ZEROES
        )
    }

    /// Whether it is a flush without data.
    pub(crate) fn is_empty_flush(&self) -> bool {
        self.bytes() == 0
    }

    /// Whether a file system needs it to make progress: metadata or priority.
    pub(crate) fn is_urgent(&self) -> bool {
        self.is_meta() || self.is_prio()
    }

    /// Whether it writes memory out, to have it free.
    pub(crate) fn is_swap(&self) -> bool {
        self.has(bindings::req_flag_bits___REQ_SWAP)
    }

    /// Whether its file system calls it metadata.
    pub(crate) fn is_meta(&self) -> bool {
        self.has(bindings::req_flag_bits___REQ_META)
    }

    /// Whether its submitter must not sleep.
    pub(crate) fn is_nowait(&self) -> bool {
        self.has(bindings::req_flag_bits___REQ_NOWAIT)
    }

    /// Whether its submitter marked it as one to prefer.
    pub(crate) fn is_prio(&self) -> bool {
        self.has(bindings::req_flag_bits___REQ_PRIO)
    }

    /// The stream that it belongs to, as its submitter says.
    pub(crate) fn stream(&self) -> WriteStream {
        WriteStream {
            stream: self.bio().bi_write_stream,
            hint: self.bio().bi_write_hint,
        }
    }

    /// Notes in `spot` which file it is for, and where in that it starts, if that is known.
    #[inline(never)]
    fn find_file(&self, spot: &mut Spot) {
        let (mut file, mut offset) = (0, 0);
        // SAFETY: By the type invariant; the numbers are valid for writes.
        if unsafe { raw::nrs_bio_file(self.bio, &mut file, &mut offset) } {
            spot.object = file;
            spot.logical = offset;
        }
    }

    /// Whether its I/O priority is of the real-time class.
    pub(crate) fn is_realtime(&self) -> bool {
        const CLASS_SHIFT: u32 = 13;
        const CLASS_RT: u32 = 1;
        u32::from(self.bio().bi_ioprio) >> CLASS_SHIFT == CLASS_RT
    }

    /// Bytes.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.bio().bi_iter.bi_size)
    }

    /// First byte, counted from the start of the target.
    pub(crate) fn offset(&self) -> u64 {
        // SAFETY: `ti` is valid while `map` runs.
        let begin = unsafe { (*self.ti).begin };
        // An empty flush has sector 0 whatever the target's begin is.
        self.bio()
            .bi_iter
            .bi_sector
            .wrapping_sub(begin)
            .wrapping_mul(SECTOR)
    }

    /// Points the bio to its place on the lower device.
    fn redirect(&mut self) {
        // SAFETY: By the type invariant the bio is ours; `ti` is valid while `map` runs, and the lower
        // device is open while the instance lives.
        unsafe {
            raw::nrs_bio_set_dev(self.bio, (*self.instance.lower).bdev);
            let iter = &mut (*self.bio).bi_iter;
            if iter.bi_size != 0 {
                iter.bi_sector = iter
                    .bi_sector
                    .wrapping_sub((*self.ti).begin)
                    .wrapping_add(self.instance.offset);
            }
        }
    }

    /// Sends the bio down without accounting it.
    pub(crate) fn bypass(mut self) -> Map {
        self.redirect();
        // SAFETY: The per-bio area of this target's bio; plain data.
        unsafe { (*PerBio::of(self.bio)).target = ptr::null_mut() };
        Map(raw::DM_MAPIO_REMAPPED)
    }

    /// Ends the bio with a timeout, without sending it down or accounting it.
    pub(crate) fn time_out(self) -> Map {
        // SAFETY: The per-bio area of this target's bio; plain data. The bio is ours by the type invariant, was
        // not submitted, and is not used after this.
        unsafe {
            (*PerBio::of(self.bio)).target = ptr::null_mut();
            raw::nrs_bio_end(self.bio, ETIMEDOUT.to_errno());
        }
        Map::submitted()
    }

    /// Takes the bio into the scheduler's hands. Its range is in the device, called `target`, or in a file if that is
    /// `wanted` and known.
    pub(crate) fn into_held(
        mut self,
        cost: Cost,
        target: u16,
        wanted: bool,
        account: Account,
    ) -> Held {
        self.redirect();
        let offset = self.bio().bi_iter.bi_sector.wrapping_mul(SECTOR);
        let mut spot = Spot::new(target.into(), offset, self.bytes());
        if wanted {
            self.find_file(&mut spot);
        }
        // SAFETY: The per-bio area of this target's bio, valid until its `end_io` has returned.
        unsafe {
            let area = PerBio::of(self.bio);
            area.write(PerBio {
                target: self.ti,
                node: Node::new(Instance::<T>::OPS, cost, spot, account),
            });
            // The bio is ours by the type invariant and `self` goes, so this is the only `Held`.
            Held::from_raw(NonNull::new_unchecked(&raw mut (*area).node))
        }
    }
}
