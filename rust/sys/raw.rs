// SPDX-License-Identifier: GPL-2.0-only

//! Bindings that bindgen generates from `dm_helper.h` and `elevator_helper.h`, in addition to those
//! of the kernel crate.

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

#[cfg(feature = "elevator")]
mod elevator {
    use kernel::{bindings::*, ffi};

    include!("elevator_bindings.rs");
}
#[cfg(feature = "elevator")]
pub use elevator::{
    blk_insert_t, blk_mq_sched_try_merge, elevator_mq_ops, elevator_queue, elevator_type,
    elv_fs_entry, elv_register, elv_rqhash_add, elv_rqhash_del, elv_unregister, nrs_bio_detach,
    nrs_bio_join, nrs_bios_submit, nrs_cpu_is_active, nrs_insert_at_head, nrs_may_run,
    nrs_may_sleep, nrs_queue_disk, nrs_queue_enter, nrs_queue_is_controlled, nrs_queue_is_dying,
    nrs_queue_leave, nrs_queue_may_regroup, nrs_queue_shares_tags, nrs_queue_throttle_writeback,
    nrs_request_cpu, nrs_request_has_bios_only, nrs_request_is_in_flush, nrs_request_is_piece,
    nrs_request_pop, nrs_request_take_bios, nrs_request_trace, nrs_wait_for_tasks,
};
