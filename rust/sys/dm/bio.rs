// SPDX-License-Identifier: GPL-2.0-only

//! Bios on their way through a target, and the memory that device-mapper gives with each.

use core::ptr::{self, NonNull};

use kernel::{bindings, ffi::c_uint, prelude::*};

use super::{
    super::{
        bio::{View, SECTOR},
        node::{Account, Held, Node},
    },
    raw, Instance, Target,
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
    /// Returns what the bio says of itself.
    pub(crate) fn view(&self) -> View<'_> {
        // SAFETY: By the type invariant.
        unsafe { View::new(self.bio) }
    }

    /// First byte, counted from the start of the target.
    pub(crate) fn offset(&self) -> u64 {
        // SAFETY: `ti` is valid while `map` runs.
        let begin = unsafe { (*self.ti).begin };
        // An empty flush has sector 0 whatever the target's begin is.
        self.view()
            .sector()
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
        let view = self.view();
        let offset = view.sector().wrapping_mul(SECTOR);
        let mut spot = Spot::new(target.into(), offset, view.bytes());
        if wanted {
            view.find_file(&mut spot);
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
