// SPDX-License-Identifier: GPL-2.0-only

//! Bios of a target, and the memory that device-mapper allocates with each bio.

use core::ptr::{self, NonNull};

use kernel::{bindings, ffi::c_uint, page::PAGE_SIZE, prelude::*};

use super::{
    super::{
        bio::{BioView, SECTOR},
        node::{Held, Node, NodeAccount},
    },
    raw, DmTarget, TargetInstance,
};
use crate::sched::item::{ByteRange, Cost};

/// Result of mapping a bio.
pub(crate) struct MapOutcome(pub(super) c_uint);

impl MapOutcome {
    /// Lets device-mapper dispatch the request now.
    pub(crate) fn passed(held: Held) -> Self {
        match held.into_raw() {
            Some(_) => Self(raw::DM_MAPIO_REMAPPED),
            None => Self::submitted(),
        }
    }

    /// Returns the result for a request that was queued and is submitted later. Its [`Held`] must
    /// have been given away; the bio must not be accessed any more.
    pub(crate) fn submitted() -> Self {
        Self(raw::DM_MAPIO_SUBMITTED)
    }
}

/// Per-bio area. Device-mapper recycles the memory without initialising it.
#[repr(C)]
pub(super) struct PerBio {
    /// Target of an accounted bio; null: the bio is not accounted, and `node` is not initialised.
    pub(super) target: *mut raw::dm_target,
    pub(super) node: Node,
}

// Device-mapper places the area directly before a structure of its own.
const _: () = assert!(size_of::<PerBio>() % 8 == 0 && align_of::<PerBio>() <= 8);

impl PerBio {
    /// Returns the area of `bio`.
    ///
    /// # Safety
    ///
    /// `bio` is a clone that device-mapper passed to a target whose per-bio size is that of this
    /// type.
    pub(super) unsafe fn of(bio: *mut bindings::bio) -> *mut Self {
        // SAFETY: By the safety requirements of this function.
        unsafe { raw::dm_per_bio_data(bio, size_of::<Self>()) }.cast()
    }

    /// Returns the bio of `area`.
    ///
    /// # Safety
    ///
    /// [`Self::of`] returned `area` for a bio that has not ended.
    pub(super) unsafe fn bio(area: *mut Self) -> *mut bindings::bio {
        // SAFETY: By the safety requirements of this function.
        unsafe { raw::dm_bio_from_per_bio_data(area.cast(), size_of::<Self>()) }
    }

    /// Returns the area that contains `node`.
    ///
    /// # Safety
    ///
    /// `node` is in a per-bio area.
    pub(super) unsafe fn around(node: NonNull<Node>) -> *mut Self {
        // SAFETY: By the safety requirements of this function, so the result stays in the same
        // allocation.
        unsafe {
            node.as_ptr()
                .byte_sub(core::mem::offset_of!(Self, node))
                .cast()
        }
    }
}

/// A bio from above, owned until [`DmTarget::map`] returns.
///
/// # Invariants
///
/// `bio` is a clone that device-mapper passed to `map` of the target `ti`, and no other code uses
/// it.
pub(crate) struct Bio<'a, T: DmTarget> {
    pub(super) bio: *mut bindings::bio,
    pub(super) ti: *mut raw::dm_target,
    pub(super) instance: &'a TargetInstance<T>,
}

impl<T: DmTarget> Bio<'_, T> {
    /// Returns a view of the bio's attributes.
    pub(crate) fn view(&self) -> BioView<'_> {
        // SAFETY: By the type invariant.
        unsafe { BioView::new(self.bio) }
    }

    /// Returns the first byte, relative to the start of the target.
    pub(crate) fn offset(&self) -> u64 {
        // SAFETY: `ti` is valid while `map` runs.
        let begin = unsafe { (*self.ti).begin };
        // An empty flush has sector 0, independent of `begin`.
        self.view()
            .sector()
            .wrapping_sub(begin)
            .wrapping_mul(SECTOR)
    }

    /// Splits the bio at the next multiple of `bytes`, or before that at the largest size of a
    /// request of the device; device-mapper passes the rest as a bio of its own. Does not split
    /// pages, atomic writes, and ranges without data. Returns true if it was split.
    pub(crate) fn split(&mut self, bytes: u32) -> bool {
        let view = self.view();
        // The largest size of a request is no less than a page.
        if view.bytes() <= PAGE_SIZE as u64 || !view.has_data() || view.is_atomic() {
            return false;
        }
        let left = bytes - (self.offset() % u64::from(bytes)) as u32;
        // SAFETY: By the type invariant; device-mapper passes no duplicates of bios with data.
        unsafe { raw::nrs_bio_split(self.bio, left) }
    }

    /// Points the bio to the lower device.
    fn redirect(&mut self) {
        // SAFETY: By the type invariant `self` owns the bio; `ti` is valid while `map` runs, and
        // the lower device is open while the instance exists.
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

    /// Dispatches the bio without accounting it.
    pub(crate) fn bypass(mut self) -> MapOutcome {
        self.redirect();
        // SAFETY: The per-bio area of this target's bio; plain data.
        unsafe { (*PerBio::of(self.bio)).target = ptr::null_mut() };
        MapOutcome(raw::DM_MAPIO_REMAPPED)
    }

    /// Makes the device flush its cache before the bio, a write of data.
    pub(crate) fn flush_first(&mut self) {
        // SAFETY: By the type invariant `self` owns the bio.
        unsafe { (*self.bio).bi_opf |= 1 << bindings::req_flag_bits___REQ_PREFLUSH };
    }

    /// Ends the bio with `ETIMEDOUT`, without dispatching or accounting it.
    pub(crate) fn time_out(self) -> MapOutcome {
        // SAFETY: The per-bio area of this target's bio; plain data. `self` owns the bio by the
        // type invariant; it was not submitted, and is not used after this.
        unsafe {
            (*PerBio::of(self.bio)).target = ptr::null_mut();
            raw::nrs_bio_end(self.bio, ETIMEDOUT.to_errno());
        }
        MapOutcome::submitted()
    }

    /// Converts the bio to a [`Held`]. The request's range is in the device `target`, or in a file
    /// if a file is `wanted` and known.
    pub(crate) fn into_held(
        mut self,
        cost: Cost,
        target: u16,
        wanted: bool,
        account: NodeAccount,
    ) -> Held {
        self.redirect();
        let view = self.view();
        let offset = view.sector().wrapping_mul(SECTOR);
        let mut range = ByteRange::new(target.into(), offset, view.bytes());
        if wanted {
            view.find_file(&mut range);
        }
        // SAFETY: The per-bio area of this target's bio, valid until its `end_io` has returned.
        unsafe {
            let area = PerBio::of(self.bio);
            area.write(PerBio {
                target: self.ti,
                node: Node::new(TargetInstance::<T>::OPS, cost, range, account),
            });
            // `self` owns the bio by the type invariant and is consumed, so this is the only
            // `Held`.
            Held::from_raw(NonNull::new_unchecked(&raw mut (*area).node))
        }
    }
}
