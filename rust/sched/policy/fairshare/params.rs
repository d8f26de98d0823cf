// SPDX-License-Identifier: GPL-2.0-only

//! What users set: each parameter has its own type, which cannot hold a wrong value.

use super::mode::Mode;
use crate::sched::{
    parameters::{items, mode, schema::parameters},
    policy::{params::ClassesMax, Tuning, Upkeep},
};

parameters! {
    /// What users can set; it survives stops and starts.
    pub struct Tunables of |values| values.policies.fairshare, "fairshare.md", "EAGAIN, ENOMEM" {
        /// Period of computing shares, sizes and parts of partitions.
        "nrs_fairshare_delta_ms" delta_ms: [number DeltaMs, "ms, ", 10..=1000 = 100],
        /// Queue depth below which requests are dispatched in FIFO order.
        "nrs_fairshare_opp_threshold" opp_threshold: [number OppThreshold,
            "queued requests, ", 0..=256 = 0],
        /// Resource shared out.
        "nrs_fairshare_cost_model" cost_model: [choice CostModel,
            /// Pages of bulk data, at least one per request.
            #[default]
            Pages = "pages",
            /// Requests.
            Rpcs = "rpcs",
            /// Time of the device: what a request took, divided among those in service.
            Time = "time",
        ],
        /// Selection of the next entity.
        "nrs_fairshare_select" select: [choice Select,
            /// Eligible earliest virtual deadline first; surplus expires, sparse entities go first.
            #[default]
            Deadline = "deadline",
            /// A draw over the published ranges, with the oldest request if the entity drawn has none.
            Paper = "paper",
        ],
        /// 1 dispatches requests of one entity in a row, sorted by offset.
        "nrs_fairshare_locality" locality: [choice Locality,
            /// In the order of arrival.
            #[default]
            Off = "0",
            /// In the order of object and offset.
            On = "1",
        ],
        /// With locality, data that an entity has dispatched in a row.
        "nrs_fairshare_slice_kib" slice_kib: [number SliceKib, "KiB, ", 4..=65536 = 1024],
        /// Scope of shares: 1 all partitions together, 0 each partition.
        "nrs_fairshare_cross_cpt" cross_cpt: [choice CrossCpt,
            /// Each partition is fair by itself.
            Off = "0",
            /// All partitions are fair together.
            #[default]
            On = "1",
        ],
        /// Source of job sizes not set in the table.
        "nrs_fairshare_size_source" size_source: [choice SizeSource,
            /// The number of its clients ([`super::size::Sizes`]).
            #[default]
            Nids = "nids",
            /// The end of its name ([`super::size::suffix`]), where there is one, else 1.
            Suffix = "suffix",
        ],
        /// Window in which the clients of a job are counted.
        "nrs_fairshare_size_window_s" size_window_s: [number SizeWindowS, "s, ", 2..=600 = 10],
        /// Largest job size.
        "nrs_fairshare_size_max" size_max: [number SizeMax, "clients, ", 1..=4096 = 4096],
    }
    also {
        /// Mode of a start without argument.
        mode: Mode,
        /// Bound of the class table.
        classes_max: ClassesMax,
    }
    texts {
        /// Mode when nrs_policies names none.
        "nrs_fairshare_mode" Both
            "LEVEL[_then_LEVEL...]_fair [weight=ITEM,...], levels gid uid jobid projid nid nodemap cgroup size",
            "jobid_fair", "ENOENT, ENOSPC, EAGAIN, ENOMEM", Some(mode);
        /// Entity weights; unlisted entities have weight 1.
        "nrs_fairshare_weights" Both
            "items FIELD:VALUE:WEIGHT with WEIGHT 1 to 10000, -FIELD:VALUE, clear",
            "", "ENOENT, ENOSPC, ENOMEM", Some(items);
        /// Shares and counters of entities.
        "nrs_fairshare_stats" Read "YAML, a mapping per entity", "", "ENOMEM", None;
        /// Resets the counters of nrs_fairshare_stats.
        "nrs_fairshare_stats_reset" Write "anything", "", "", None;
    }
}

impl Tuning for Tunables {
    fn set_classes_max(&mut self, max: ClassesMax) {
        self.classes_max = max;
    }

    fn upkeep(&self) -> Option<Upkeep> {
        Some(Upkeep {
            delta_ms: self.delta_ms.get(),
            by_shares: self.cross_cpt == CrossCpt::On,
        })
    }
}
