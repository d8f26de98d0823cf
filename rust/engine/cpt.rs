// SPDX-License-Identifier: GPL-2.0-only

//! CPU partitions (CPTs): the sets of CPUs that share a partition.

use kernel::{cpu::nr_cpu_ids, prelude::*};

use crate::sys::misc;

/// Maximum number of partitions of a service for one target.
pub(crate) const CPTS_MAX: u32 = 63;

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
    let mut map = KVec::with_capacity(cpus as usize, GFP_KERNEL)?;
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
                map.push(run as u16, GFP_KERNEL)?;
            }
            cpts
        }
        None => {
            let mut count = 1;
            for cpu in 0..cpus {
                let node = misc::cpu_node(cpu).min(CPTS_MAX.wrapping_sub(1));
                count = count.max(node.wrapping_add(1));
                map.push(node as u16, GFP_KERNEL)?;
            }
            count
        }
    };
    Ok((map, count as u16))
}
