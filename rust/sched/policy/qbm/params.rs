// SPDX-License-Identifier: GPL-2.0-only

//! What users set.

use crate::sched::{
    parameters::{plan, schema::parameters},
    policy::{params::ClassesMax, Tuning},
    qbm::plan::By,
};

parameters! {
    /// What users can set; it survives stops and starts.
    pub struct Tunables of |values| values.policies.qbm, "qbm.md", "EAGAIN, ENOMEM" {
        /// How many clients qbm tells apart.
        "nrs_qbm_clients_max" clients_max: [number ClientsMax, "clients, ", 16..=16_384 = 1_024],
    }
    also {
        /// What makes a client; the plan says it.
        by: By,
        /// Bound of the class table.
        classes_max: ClassesMax,
    }
    texts {
        /// The configuration of qbm, as a whole.
        "nrs_qbm_config" Both "lines by, tune, default, group and client, up to 256 KiB", "no group",
            "E2BIG, ENOENT, EEXIST, ENAMETOOLONG, ENOSPC, EAGAIN, ENOMEM", Some(plan);
        /// Why the last configuration of qbm was refused.
        "nrs_qbm_config_error" Read "line and reason; else nothing", "", "", None;
        /// What groups and clients of qbm have and use.
        "nrs_qbm_status" Read "YAML, groups and clients", "", "ENODEV, ENOMEM", None;
        /// What was counted of groups and clients of qbm.
        "nrs_qbm_stats" Read "YAML, groups and clients", "", "ENODEV, ENOMEM", None;
        /// Sets the counters of nrs_qbm_stats to zero.
        "nrs_qbm_stats_reset" Write "anything", "", "", None;
    }
}

impl Tuning for Tunables {
    fn set_classes_max(&mut self, max: ClassesMax) {
        self.classes_max = max;
    }
}
