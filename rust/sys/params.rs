// SPDX-License-Identifier: GPL-2.0-only

//! Module parameters, as `/sys/module/nrs/parameters` shows them.
//!
//! C counterpart: `params.c`, which defines them and refuses what is out of range. Each may change at any
//! time; a reader takes the value once and keeps it.

use kernel::{
    prelude::*,
    sync::atomic::{ordering, Atomic},
};

macro_rules! params {
    ($($(#[$doc:meta])* $name:ident: $param:ident,)+) => {
        extern "C" {
            $(static mut $param: c_uint;)+
        }

        $(
            $(#[$doc])*
            pub(crate) fn $name() -> u32 {
                // SAFETY: `params.c` defines this aligned object of static duration; C writes it with one plain
                // store of its full width, which does not tear.
                unsafe { Atomic::from_ptr(&raw mut $param) }.load(ordering::Relaxed)
            }
        )+
    };
}

params! {
    /// Slots of a service that was not told how many, 1 to 65,535; 0: `auto`.
    default_slots: nrs_param_default_slots,
    /// Requests that an open file of `/dev/nrs` that is attached now may have, 64 to 1,048,576.
    user_requests_max: nrs_param_user_requests_max,
    /// 1: a task that inserts a request into a disk's scheduler runs the queue itself.
    direct_run: nrs_param_direct_run,
    /// Classes that a policy keeps on one partition of a service that is made now, 64 to 1,048,576.
    classes_max: nrs_param_classes_max,
}
