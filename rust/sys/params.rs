// SPDX-License-Identifier: GPL-2.0-only

//! Module parameters, as shown in `/sys/module/nrs/parameters`.
//!
//! C counterpart: `params.c`, which defines the parameters and refuses values out of range. Each
//! may change at any time; a reader loads the value once and uses the copy.

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
                // SAFETY: `params.c` defines this aligned object of static duration; C writes it
                // with one plain store of its full width, which does not tear.
                unsafe { Atomic::from_ptr(&raw mut $param) }.load(ordering::Relaxed)
            }
        )+
    };
}

params! {
    /// Returns the default number of slots of a service, 1 to 65,535; 0: `auto`.
    default_slots: nrs_param_default_slots,
    /// Returns the limit of requests of a newly attached file of `/dev/nrs`, 64 to 1,048,576.
    user_requests_max: nrs_param_user_requests_max,
    /// Returns 1 if a task that inserts a request into a disk's scheduler runs the queue itself.
    direct_run: nrs_param_direct_run,
    /// Returns the limit of classes of a policy on one partition of a new service, 64 to 1,048,576.
    classes_max: nrs_param_classes_max,
}
