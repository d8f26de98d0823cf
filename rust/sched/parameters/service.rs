// SPDX-License-Identifier: GPL-2.0-only

//! Parameters of a service itself, whatever policy serves.

use super::{
    policy,
    schema::{parameters, rows},
    Parameter,
};
use crate::sched::{
    order::{Level, PopWindow},
    policy::params::BufferMax,
    sources::Sources,
};

/// Which policies run.
pub const POLICIES: &[Parameter] = rows! {
    |values| values, "user-guide.md", "" {} {
        /// Which policy serves each head, and what all of them hold.
        "nrs_policies" Both "POLICY [reg|hp] [ARGUMENT]", "fifo", "ENOENT, EAGAIN, ENOMEM", Some(policy);
    }
};

parameters! {
    /// What users set of a service, beside its policies and timeouts.
    pub struct Service of |values| values.service, "user-guide.md", "" {
        /// Which requests keep their order under every policy.
        "nrs_pop" level: [given Level] page "order.md",
        /// How many completed requests can still be named as predecessors.
        "nrs_pop_window" pop_window: [given PopWindow] page "order.md",
        /// How many requests are kept in an order of their own.
        "buffer_max" buffer_max: [given BufferMax] errors "EBUSY, EAGAIN, ENOMEM",
        /// For how many times at_max nothing may be decided before the service is unhealthy.
        "at_unhealthy_factor" unhealthy_factor: [number UnhealthyFactor,
            "", 0..=1_000 = 3, "; 0: never unhealthy"],
        /// Which requests of block devices go to the high-priority head.
        "high_priority_sources" sources: [given Sources],
        /// After how many requests of high priority in a row a regular one goes.
        "high_priority_ratio" ratio: [number Ratio, "requests, ", 0..=4_294_967_295 = 10],
        /// After how long without a decision requests that wait in vain are sent down.
        "stall_ms" stall_ms: [number StallMs,
            "ms, ", 100..=600_000 or 0 = 30_000, ", or 0 for never"],
        /// How many requests of the service may be at its targets.
        "slots" slots: [number Slots, "requests, ", 1..=65_535 = 64]
            default "module parameter default_slots",
    }
    also {}
    texts {
        /// Fan-out, credits and waits.
        "nrs_concurrency" Read "a number per line", "", "", None;
        /// Whether the service gets on.
        "health" Read "healthy or NOT HEALTHY, and a line with the reason", "", "", None;
        /// Slots in effect, counters of each client, state of each target.
        "clients" Read "YAML", "", "", None;
    }
}
