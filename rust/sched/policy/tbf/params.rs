// SPDX-License-Identifier: GPL-2.0-only

//! What users set: each parameter has its own type, which cannot hold a wrong value.

use crate::sched::{
    parameters::{rule, schema::parameters},
    policy::{params::ClassesMax, Tuning},
};

parameters! {
    /// What users can set; it survives stops and starts.
    pub struct Tunables of |values| values.policies.tbf, "tbf.md", "EAGAIN, ENOMEM" {
        /// Rate of new rules without a rate, and of rule default.
        "nrs_tbf_rate" rate: [number Rate, "per second, ", 1..=10_000_000 = 10_000],
        /// Bucket depth.
        "nrs_tbf_depth" depth: [number Depth, "requests or pages of 4 KiB, ", 1..=1_000_000 = 3],
        /// Unit of a rate without unit.
        "nrs_tbf_cost_model" cost_model: [choice CostModel,
            /// Requests.
            #[default]
            Rpcs = "rpcs",
            /// Pages of bulk data, at least one per request.
            Pages = "pages",
        ],
        /// Scope of a rate: 1 all partitions together, 0 each partition.
        "nrs_tbf_global_rate" global_rate: [choice GlobalRate,
            /// Each partition grants the rate.
            Off = "0",
            /// All partitions share it.
            #[default]
            On = "1",
        ],
        /// Order of classes that have tokens while the device cannot serve all rates.
        "nrs_tbf_overload" overload: [choice Overload,
            /// Higher rates have an advantage: by the time of the last request and a part of the time of a token.
            #[default]
            Rate = "rate",
            /// Classes take turns.
            Equal = "equal",
        ],
        /// Requests of rules with minrate in a row before one of another rule.
        "nrs_tbf_floor_ratio" floor_ratio: [number FloorRatio, "requests, ", 1..=1_000_000 = 10],
        /// Rules per head beside default.
        "nrs_tbf_rules_max" rules_max: [number RulesMax, "rules, ", 1..=65_536 = 4_096] errors "EBUSY, EAGAIN, ENOMEM",
        /// Idle classes kept per partition.
        "nrs_tbf_cache_size" cache_size: [number CacheSize, "classes, ", 1..=1_048_576 = 8_192],
    }
    also {
        /// Bound of the class table.
        classes_max: ClassesMax,
    }
    texts {
        /// Rules; a write is one command.
        "nrs_tbf_rule" Both "[reg|hp] start|change|stop NAME ...", "default only",
            "ENODEV, EEXIST, ENOENT, EPERM, EBUSY, ENAMETOOLONG, ENOSPC, ENOMEM", Some(rule);
        /// Error of the last command.
        "nrs_tbf_rule_error" Read "column and what was expected there; else nothing", "", "", None;
        /// Counters of rules and classes.
        "nrs_tbf_stats" Read "YAML, rules and classes", "", "ENOMEM", None;
        /// Resets the counters of nrs_tbf_stats.
        "nrs_tbf_stats_reset" Write "anything", "", "", None;
    }
}

impl Tuning for Tunables {
    fn set_classes_max(&mut self, max: ClassesMax) {
        self.classes_max = max;
    }
}
