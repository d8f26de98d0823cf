// SPDX-License-Identifier: GPL-2.0-only

//! Module parameters, as `/sys/module/nrs/parameters` shows them.
//!
//! C counterpart: `params.c`, which defines them and refuses what is out of range. Each may change at any
//! time; a reader takes the value once and keeps it.

use kernel::{
    prelude::*,
    sync::atomic::{ordering, Atomic},
};

extern "C" {
    static mut nrs_param_default_slots: c_uint;
    static mut nrs_param_classes_max: c_uint;
    static mut nrs_param_user_requests_max: c_uint;
}

/// Slots of a service that was not told how many, 1 to 65,535.
pub(crate) fn default_slots() -> u32 {
    // SAFETY: `params.c` defines this aligned object of static duration; C writes it with one plain
    // store of its full width, which does not tear.
    unsafe { Atomic::from_ptr(&raw mut nrs_param_default_slots) }.load(ordering::Relaxed)
}

/// Requests that an open file of `/dev/nrs` that is attached now may have, 64 to 1,048,576.
pub(crate) fn user_requests_max() -> u32 {
    // SAFETY: As in `default_slots`.
    unsafe { Atomic::from_ptr(&raw mut nrs_param_user_requests_max) }.load(ordering::Relaxed)
}

/// Classes that a policy keeps on one partition of a service that is made now, 64 to 1,048,576.
pub(crate) fn classes_max() -> u32 {
    // SAFETY: As in `default_slots`.
    unsafe { Atomic::from_ptr(&raw mut nrs_param_classes_max) }.load(ordering::Relaxed)
}
