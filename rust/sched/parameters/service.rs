// SPDX-License-Identifier: GPL-2.0-only

//! Parameters of a service itself, independent of policies.

use super::{
    schema::{parameters, rows},
    settable, Parameter,
};
use crate::sched::{
    error::Result,
    policy::{params::BufferMax, Config, Kind, Tunables},
    priority_sources::PrioritySources,
    slots::Slots,
    text::{for_each_setting, PolicyCommand},
};

/// Name of the parameter that is all settings.
pub const CONFIG: &str = "config";

/// Parameters that select policies.
pub const POLICIES: &[Parameter] = rows! {
    |values| values, "concepts.md", "" {} {
        /// Policy of each head; reads show all policies.
        "nrs_policies" Both "POLICY [reg|hp] [ARGUMENT]", "fifo", "ENOENT, EAGAIN, EBUSY, ENOMEM",
            Some(check_policy);
    }
};

/// Checks a value of `nrs_policies`.
fn check_policy(text: &str) -> Result {
    let command = PolicyCommand::parse(text.trim())?;
    let kind = Kind::from_name(command.policy)?;
    Config::parse(kind, command.argument, &Tunables::default()).map(|_| ())
}

/// Checks a value of `config`, each line by itself.
fn check_config(text: &str) -> Result {
    for_each_setting(text, |name, value| {
        settable(name)?.check.map_or(Ok(()), |check| check(value))
    })
}

parameters! {
    /// Values of a service, beside its policies and timeouts.
    pub struct ServiceParameters of |values| values.service, "concepts.md", "" {
        /// Order that every policy keeps.
        "nrs_pop" level: [choice Level,
            /// No order.
            #[default]
            None = "none",
            /// Overlapping requests keep their order if one of them writes.
            Overlap = "overlap",
            /// Requests of the same stream keep their order.
            Stream = "stream",
            /// Requests name their predecessors.
            Graph = "graph",
        ] page "order.md",
        /// Completed requests remembered as predecessors.
        "nrs_pop_window" pop_window: [number PopWindow,
            "requests of a file of /dev/nrs, ", 1..=65_536 = 1_024] page "order.md",
        /// Limit of sorted and ordered requests.
        "buffer_max" buffer_max: [given BufferMax] errors "EBUSY, EAGAIN, ENOMEM",
        /// Submitters to a block device at its credit limit wait (1) or continue (0).
        "nrs_enforce_credits" enforce_credits: [choice EnforceCredits,
            /// Credits are advisory.
            #[default]
            Off = "0",
            /// A submitter that may sleep waits for up to 1 s.
            On = "1",
        ],
        /// Multiple of at_max without a dispatch after which the service is unhealthy.
        "at_unhealthy_factor" unhealthy_factor: [number UnhealthyFactor,
            "", 0..=1_000 = 3, "; 0: never unhealthy"],
        /// Block requests with high priority.
        "high_priority_sources" sources: [given PrioritySources],
        /// High-priority requests in a row before a regular one.
        "high_priority_ratio" ratio: [number Ratio, "requests, ", 0..=4_294_967_295 = 10],
        /// Stall timeout: eligible requests not dispatched for this long are dispatched without
        /// slots.
        "stall_ms" stall_ms: [number StallMs,
            "ms, ", 100..=600_000 or 0 = 30_000, ", or 0 for never"],
        /// Limit of requests in flight on each target.
        "slots" slots: [given Slots]
            default "module parameter default_slots",
    }
    also {}
    texts {
        /// All settings; a write replaces them all, or changes nothing.
        "config" Both "lines NAME VALUE", "",
            "ENOENT, ENODEV, EBUSY, EAGAIN, EEXIST, EPERM, ENAMETOOLONG, ENOSPC, E2BIG, ENOMEM",
            Some(check_config);
        /// Active clients, credits and waits.
        "nrs_concurrency" Read "a number per line", "", "", None;
        /// All that the service shows in YAML, and `health`, as one JSON object by parameter.
        "snapshot" Read "JSON", "", "", None;
        /// The same of `clients`, `nrs_policies` and `health` only.
        "summary" Read "JSON", "", "", None;
        /// Health of the service.
        "health" Read "healthy or NOT HEALTHY, and a line with the reason", "", "", None;
        /// Effective slots, counters of clients, state of targets.
        "clients" Read "YAML", "", "", None;
        /// Dispatches all queued requests without slots; limits become debt.
        "drain" Write "any text", "", "", None;
    }
}
