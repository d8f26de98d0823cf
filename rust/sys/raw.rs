// SPDX-License-Identifier: GPL-2.0-only

//! What bindgen makes of `dm_helper.h`; everything else comes from the kernel crate's bindings.

#![allow(
    clippy::all,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    clippy::as_ptr_cast_mut,
    clippy::as_underscore,
    clippy::cast_lossless,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks
)]

use kernel::{bindings::*, ffi};

include!("dm_bindings.rs");
