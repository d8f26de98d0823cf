// SPDX-License-Identifier: GPL-2.0-only

//! Parameters of the policy.

use crate::sched::{
    parameters::schema::parameters,
    policy::{params::ClassesMax, Tuning},
    qbm::plan::{By, Plan},
};

parameters! {
    /// Parameters of the policy, which users set; they are kept when the policy stops and starts.
    pub struct Tunables of |values| values.policies.qbm, "qbm.md", "EAGAIN, ENOMEM" {
        /// Maximum number of clients.
        "nrs_qbm_clients_max" clients_max: [number ClientsMax, "clients, ", 16..=16_384 = 1_024],
    }
    also {
        /// Attribute that identifies a client; set by the plan.
        by: By,
        /// Maximum number of classes in the class table.
        classes_max: ClassesMax,
    }
    texts {
        /// The whole configuration.
        "nrs_qbm_config" Both "lines by, tune, default, group and client; 256 KiB at most",
            "no group",
            "E2BIG, ENOENT, EEXIST, ENAMETOOLONG, ENOSPC, EAGAIN, ENOMEM",
            Some(|text| Plan::parse(text).map(drop));
        /// Error of the last configuration.
        "nrs_qbm_config_error" Read "line and reason; empty if there was no error", "", "", None;
        /// Allocation and use of groups and clients.
        "nrs_qbm_status" Read "YAML, groups and clients", "", "ENODEV, ENOMEM", None;
        /// Counters of groups and clients.
        "nrs_qbm_stats" Read "YAML, groups and clients", "", "ENODEV, ENOMEM", None;
        /// Resets the counters of nrs_qbm_stats.
        "nrs_qbm_stats_reset" Write "any text", "", "", None;
    }
}

impl Tuning for Tunables {
    fn set_classes_max(&mut self, max: ClassesMax) {
        self.classes_max = max;
    }
}
