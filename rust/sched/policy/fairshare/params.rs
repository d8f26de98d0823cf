// SPDX-License-Identifier: GPL-2.0-only

//! Parameters of the policy; the type of each parameter holds only valid values.

use super::{entity_table, limits, mode::Mode};
use crate::sched::{
    parameters::schema::parameters,
    policy::{params::ClassesMax, Tuning, Upkeep},
};

parameters! {
    /// Parameters of the policy, kept across stops and starts.
    pub struct Tunables of |values| values.policies.fairshare, "fairshare.md", "EAGAIN, ENOMEM" {
        /// Period of computing shares, sizes and parts of partitions.
        "nrs_fairshare_delta_ms" delta_ms: [number DeltaMs, "ms, ", 10..=1000 = 100],
        /// Queue depth below which requests are dispatched in FIFO order.
        "nrs_fairshare_opp_threshold" opp_threshold: [number OppThreshold,
            "queued requests, ", 0..=256 = 0],
        /// Unit of service: pages of data, requests or device time.
        "nrs_fairshare_cost_model" cost_model: [choice CostModel,
            /// Pages of bulk data, at least one per request.
            #[default]
            Pages = "pages",
            /// Requests.
            Rpcs = "rpcs",
            /// Device time of requests, divided among the requests in flight.
            Time = "time",
        ],
        /// Selection of the next entity.
        "nrs_fairshare_select" select: [choice Select,
            /// Eligible earliest virtual deadline first; surplus expires, sparse entities have a
            /// boost.
            #[default]
            Deadline = "deadline",
            /// Draw over the published ranges; the oldest request if the entity drawn has no
            /// request.
            Paper = "paper",
        ] errors "EBUSY, EAGAIN, ENOMEM",
        /// 1 dispatches requests of one entity in a row, sorted by offset.
        "nrs_fairshare_locality" locality: [choice Locality,
            /// Order of arrival.
            #[default]
            Off = "0",
            /// Order of object and offset.
            On = "1",
        ],
        /// With locality, amount of data that an entity dispatches in a row.
        "nrs_fairshare_slice_kib" slice_kib: [number SliceKib, "KiB, ", 4..=65536 = 1024],
        /// Scope of shares: 1 all partitions together, 0 each partition.
        "nrs_fairshare_cross_cpt" cross_cpt: [choice CrossCpt,
            /// Shares apply to each partition.
            Off = "0",
            /// Shares apply to all partitions together.
            #[default]
            On = "1",
        ],
        /// Time that slots may be kept free for the next requests of entities that send one at a
        /// time; 0: none.
        "nrs_fairshare_hold_permille" hold_permille: [number HoldPermille,
            "thousandths of the time of all slots, ", 0..=1000 = 20],
        /// Longest time for which a slot is kept free for a request.
        "nrs_fairshare_hold_us" hold_us: [number HoldUs, "us, ", 50..=100000 = 2000],
        /// Slots that are kept free for a request.
        "nrs_fairshare_hold" hold: [choice HoldSlots,
            /// One slot for each request: others use the rest.
            #[default]
            One = "one",
            /// All slots: the device is idle.
            All = "all",
        ],
        /// Latency that 99 of 100 requests of entities that send one at a time should not exceed;
        /// 0: none.
        "nrs_fairshare_latency_us" latency_us: [number LatencyUs, "us, ", 0..=10000000 = 0],
        /// Source of job sizes not set in the table.
        "nrs_fairshare_size_source" size_source: [choice SizeSource,
            /// Number of clients of the job ([`super::job_size::JobSizes`]).
            #[default]
            Nids = "nids",
            /// Number at the end of the job's name ([`super::job_size::suffix`]), 1 without a
            /// number.
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
        /// Largest number of classes in the table.
        classes_max: ClassesMax,
    }
    texts {
        /// Mode when nrs_policies names none.
        "nrs_fairshare_mode" Both
            "LEVEL[_then_LEVEL...]_fair [weight=ITEM,...], \
             levels gid uid jobid projid nid nodemap cgroup opcode ioprio size",
            "jobid_fair", "ENOENT, ENOSPC, EAGAIN, ENOMEM", Some(entity_table::check_mode);
        /// Entity weights; unlisted entities have weight 1.
        "nrs_fairshare_weights" Both
            "items FIELD:VALUE:WEIGHT with WEIGHT 1 to 10000, -FIELD:VALUE, clear",
            "", "ENOENT, ENOSPC, ENOMEM", Some(entity_table::check::<u32>);
        /// Limits of entities; unlisted entities have none.
        "nrs_fairshare_limits" Both
            "items FIELD:VALUE:LIMITS with LIMITS max=RATE, min=RATE, burst=BURST, \
             class=CLASS joined by +, -FIELD:VALUE, clear",
            "", "ENOENT, ENOSPC, EBUSY, ENOMEM",
            Some(entity_table::check::<limits::EntityLimits>);
        /// Shares and counters of entities.
        "nrs_fairshare_stats" Read "YAML, a mapping per entity", "", "ENOMEM", None;
        /// Resets the counters of nrs_fairshare_stats.
        "nrs_fairshare_stats_reset" Write "any text", "", "", None;
    }
}

impl Tunables {
    /// Returns true if slots may be kept free. That needs a scheduler that chooses among leaves at
    /// each decision.
    pub(super) fn has_holds(&self) -> bool {
        self.hold_permille.get() > 0
            && self.select == Select::Deadline
            && self.locality == Locality::Off
            && self.opp_threshold.get() == 0
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
