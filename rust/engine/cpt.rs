// SPDX-License-Identifier: GPL-2.0-only

//! CPU partitions (CPTs): the sets of CPUs that share a partition.
//!
//! # Terms
//!
//! - *Home*: identifies a partition in its service by target and CPT ([`home`]).

use kernel::{cpu::nr_cpu_ids, prelude::*};

use crate::{
    sched::partition::slot_pool::{CPTS_MAX, PARTITIONS_MAX},
    sys::misc,
};

/// Number of bits of a home that hold the CPT.
const CPT_BITS: u32 = 6;

const _: () = assert!(CPTS_MAX <= 1 << CPT_BITS && CPTS_MAX as usize <= PARTITIONS_MAX);

/// Returns the identifier of the partition of `cpt` at target `target`.
pub(crate) const fn home(target: u16, cpt: u16) -> u16 {
    target << CPT_BITS | cpt
}

/// Returns the target of the partition that `home` identifies.
pub(crate) const fn target_of(home: u16) -> u16 {
    home >> CPT_BITS
}

/// Returns the CPT of the partition that `home` identifies.
pub(crate) const fn cpt_of(home: u16) -> u16 {
    home & ((1 << CPT_BITS) - 1)
}

/// Returns the partition of each CPU id, and the number of partitions.
///
/// With `cpts`, the CPUs are divided into runs of equal length; without, each NUMA node has a
/// partition.
///
/// # Errors
///
/// - `EINVAL`: `cpts` is 0, more than the CPU ids, or more than [`CPTS_MAX`].
/// - `ENOMEM`.
pub(crate) fn partition_of_cpus(cpts: Option<u32>) -> Result<(KVec<u16>, u16)> {
    let cpus = nr_cpu_ids().max(1);
    let mut map = KVec::with_capacity(cpus as usize, GFP_KERNEL_ACCOUNT)?;
    let count = match cpts {
        Some(cpts) => {
            if cpts == 0 || cpts > cpus.min(CPTS_MAX) {
                return Err(EINVAL);
            }
            for cpu in 0..cpus {
                let run = u64::from(cpu)
                    .saturating_mul(cpts.into())
                    .checked_div(cpus.into())
                    .unwrap_or(0);
                map.push(run as u16, GFP_KERNEL_ACCOUNT)?;
            }
            cpts
        }
        None => {
            let mut count = 1;
            for cpu in 0..cpus {
                let node = misc::cpu_node(cpu).min(CPTS_MAX.wrapping_sub(1));
                count = count.max(node.wrapping_add(1));
                map.push(node as u16, GFP_KERNEL_ACCOUNT)?;
            }
            count
        }
    };
    Ok((map, count as u16))
}
