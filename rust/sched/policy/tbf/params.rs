// SPDX-License-Identifier: GPL-2.0-only

//! Parameters of the policy. Each parameter has its own type, which holds valid values only.

use crate::sched::{
    parameters::schema::parameters,
    policy::{params::ClassesMax, Tuning},
    rules,
};

parameters! {
    /// Parameters of the policy, which users set; they are kept when the policy stops and starts.
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
            /// The rate applies to each partition separately.
            Off = "0",
            /// All partitions share the rate.
            #[default]
            On = "1",
        ],
        /// Order of classes with tokens while the device cannot serve all rates.
        "nrs_tbf_overload" overload: [choice Overload,
            /// By the time of the last request plus a part of the duration of a token: higher rates
            /// have an advantage.
            #[default]
            Rate = "rate",
            /// In turn.
            Equal = "equal",
        ],
        /// Number of consecutive requests under rules with minrate before a request of another
        /// rule.
        "nrs_tbf_floor_ratio" floor_ratio: [number FloorRatio, "requests, ", 1..=1_000_000 = 10],
        /// Maximum number of rules per head, without default.
        "nrs_tbf_rules_max" rules_max: [number RulesMax, "rules, ", 1..=65_536 = 4_096]
            errors "EBUSY, EAGAIN, ENOMEM",
        /// Maximum number of idle classes per partition.
        "nrs_tbf_cache_size" cache_size: [number CacheSize, "classes, ", 1..=1_048_576 = 8_192],
    }
    also {
        /// Maximum number of classes in the class table.
        classes_max: ClassesMax,
    }
    texts {
        /// Rules; a write is one command.
        "nrs_tbf_rule" Both "[reg|hp] start|change|stop NAME ...", "default only",
            "ENODEV, EEXIST, ENOENT, EPERM, EBUSY, ENAMETOOLONG, ENOSPC, ENOMEM",
            Some(|text| Ok(rules::check(text)?));
        /// Error of the last command.
        "nrs_tbf_rule_error" Read "column and reason; empty if there was no error", "", "", None;
        /// Counters of rules and classes.
        "nrs_tbf_stats" Read "YAML, rules and classes", "", "ENOMEM", None;
        /// Resets the counters of nrs_tbf_stats.
        "nrs_tbf_stats_reset" Write "any text", "", "", None;
    }
}

impl Tuning for Tunables {
    fn set_classes_max(&mut self, max: ClassesMax) {
        self.classes_max = max;
    }
}
