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
        /// How often shares, sizes and the parts of partitions are worked out.
        "nrs_fairshare_delta_ms" delta_ms: [number DeltaMs, "ms, ", 10..=1000 = 100],
        /// Below how many queued requests the oldest one goes, whosever it is.
        "nrs_fairshare_opp_threshold" opp_threshold: [number OppThreshold,
            "queued requests, ", 0..=256 = 0],
        /// What a share is a share of.
        "nrs_fairshare_cost_model" cost_model: [choice CostModel,
            /// Pages of bulk data, at least one per request.
            #[default]
            Pages = "pages",
            /// Requests.
            Rpcs = "rpcs",
            /// Time of the device: what a request took, divided among those in service.
            Time = "time",
        ],
        /// How the entity that goes next is chosen.
        "nrs_fairshare_select" select: [choice Select,
            /// Eligible earliest virtual deadline first; surplus expires, sparse entities go first.
            #[default]
            Deadline = "deadline",
            /// A draw over the published ranges, with the oldest request if the entity drawn has none.
            Paper = "paper",
        ],
        /// Whether requests of an entity go in the order of their places on the device.
        "nrs_fairshare_locality" locality: [choice Locality,
            /// In the order of arrival.
            #[default]
            Off = "0",
            /// In the order of object and offset.
            On = "1",
        ],
        /// Whether shares hold over all partitions together.
        "nrs_fairshare_cross_cpt" cross_cpt: [choice CrossCpt,
            /// Each partition is fair by itself.
            Off = "0",
            /// All partitions are fair together.
            #[default]
            On = "1",
        ],
        /// Where the size of a job comes from that the table does not say.
        "nrs_fairshare_size_source" size_source: [choice SizeSource,
            /// The number of its clients ([`super::size::Sizes`]).
            #[default]
            Nids = "nids",
            /// The end of its name ([`super::size::suffix`]), where there is one, else 1.
            Suffix = "suffix",
        ],
        /// How far back the clients of a job are counted for its size.
        "nrs_fairshare_size_window_s" size_window_s: [number SizeWindowS, "s, ", 2..=600 = 10],
        /// Largest size of a job that counts.
        "nrs_fairshare_size_max" size_max: [number SizeMax, "clients, ", 1..=4096 = 4096],
    }
    also {
        /// Mode of a start without argument.
        mode: Mode,
        /// Bound of the class table.
        classes_max: ClassesMax,
    }
    texts {
        /// Among whom fairshare shares when nrs_policies names no mode.
        "nrs_fairshare_mode" Both
            "LEVEL[_then_LEVEL...]_fair [weight=ITEM,...], levels gid uid jobid projid nid nodemap size",
            "jobid_fair", "ENOENT, ENOSPC, EAGAIN, ENOMEM", Some(mode);
        /// Who counts more than once; all others have weight 1.
        "nrs_fairshare_weights" Both
            "items FIELD:VALUE:WEIGHT with WEIGHT 1 to 10000, -FIELD:VALUE, clear",
            "", "ENOENT, ENOSPC, ENOMEM", Some(items);
        /// What each entity was to have and had.
        "nrs_fairshare_stats" Read "YAML, a mapping per entity", "", "ENOMEM", None;
        /// Sets the counters of nrs_fairshare_stats to zero.
        "nrs_fairshare_stats_reset" Write "anything", "", "", None;
    }
}

impl Locality {
    /// Whether it is 1.
    pub const fn is_on(self) -> bool {
        matches!(self, Self::On)
    }
}

impl CrossCpt {
    /// Whether it is 1.
    pub const fn is_on(self) -> bool {
        matches!(self, Self::On)
    }
}

impl Tuning for Tunables {
    fn set_classes_max(&mut self, max: ClassesMax) {
        self.classes_max = max;
    }

    fn upkeep(&self) -> Option<Upkeep> {
        Some(Upkeep {
            delta_ms: self.delta_ms.get(),
            by_shares: self.cross_cpt.is_on(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::error::Code;

    #[test]
    fn words() {
        assert_eq!(Select::parse("deadline\n"), Ok(Select::Deadline));
        assert_eq!(Select::parse("paper"), Ok(Select::Paper));
        assert_eq!(CostModel::parse("rpcs"), Ok(CostModel::Rpcs));
        assert_eq!(CostModel::parse("time"), Ok(CostModel::Time));
        assert_eq!(SizeSource::parse("suffix"), Ok(SizeSource::Suffix));
        assert!(Locality::parse("1\n").is_ok_and(Locality::is_on));
        assert!(CrossCpt::parse("0").is_ok_and(|value| !value.is_on()));
        for (error, word) in [
            (
                Select::parse("silver").unwrap_err(),
                "select is not deadline or paper",
            ),
            (Select::parse("deadline\n\n").unwrap_err(), "paper"),
            (CostModel::parse("").unwrap_err(), "pages, rpcs or time"),
            (CostModel::parse("bytes").unwrap_err(), "cost_model"),
            (
                SizeSource::parse("nid").unwrap_err(),
                "size_source is not nids or suffix",
            ),
            (Locality::parse("yes").unwrap_err(), "locality"),
            (Locality::parse("2").unwrap_err(), "locality"),
            (CrossCpt::parse("01").unwrap_err(), "cross_cpt"),
        ] {
            assert_eq!(error.code, Code::Invalid);
            assert!(error.reason.contains(word) && !error.reason.contains('\n'));
        }
    }

    #[test]
    fn limits() {
        for (text, threshold, delta, window, size) in [
            ("0", true, false, false, false),
            ("1", true, false, false, true),
            ("2", true, false, true, true),
            ("10", true, true, true, true),
            ("256", true, true, true, true),
            ("257", false, true, true, true),
            ("600", false, true, true, true),
            ("601", false, true, false, true),
            ("1000", false, true, false, true),
            ("1001", false, false, false, true),
            ("4096", false, false, false, true),
            ("4097", false, false, false, false),
            ("-1", false, false, false, false),
        ] {
            let got = (
                OppThreshold::parse(text).is_ok(),
                DeltaMs::parse(text).is_ok(),
                SizeWindowS::parse(text).is_ok(),
                SizeMax::parse(text).is_ok(),
            );
            assert_eq!(got, (threshold, delta, window, size), "{text}");
        }
    }

    #[test]
    fn defaults() {
        let shown = |tunables: Tunables| {
            format!(
                "{} {} {} {} {} {} {} {} {} {} {}",
                tunables.mode,
                tunables.select,
                tunables.cost_model,
                tunables.opp_threshold,
                tunables.delta_ms,
                tunables.classes_max,
                tunables.locality,
                tunables.cross_cpt,
                tunables.size_source,
                tunables.size_window_s,
                tunables.size_max,
            )
        };
        assert_eq!(
            shown(Tunables::default()),
            "jobid_fair deadline pages 0 100 16384 0 1 nids 10 4096"
        );
    }
}
