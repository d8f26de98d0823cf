// SPDX-License-Identifier: GPL-2.0-only

//! What users set: each parameter has its own type, which cannot hold a wrong value.

use super::mode::Mode;
use crate::sched::policy::params::{choice, number, ClassesMax};

choice! {
    /// What a share is a share of.
    CostModel, "unknown cost model, expected pages, rpcs or time":
    /// Pages of bulk data, at least one per request.
    #[default]
    Pages = "pages",
    /// Requests.
    Rpcs = "rpcs",
    /// Time of the device: what a request took, divided among those in service.
    Time = "time",
}

choice! {
    /// How the entity that is served next is chosen.
    Select, "unknown selection, expected deadline, deadline_memory, golden, random or paper":
    /// Eligible earliest virtual deadline first; surplus expires, sparse entities go first.
    #[default]
    Deadline = "deadline",
    /// The same, with surplus and debt remembered while idle.
    DeadlineMemory = "deadline_memory",
    /// Steps of the golden ratio among the entities with queued requests; who is ahead is passed over.
    Golden = "golden",
    /// A weighted draw among the entities with queued requests.
    Random = "random",
    /// A draw over the published ranges, with the oldest request if the entity drawn has none.
    Paper = "paper",
}

choice! {
    /// Whether the requests of an entity are served in the order of their places on the device.
    Locality, "locality is not 0 or 1":
    /// In the order of arrival.
    #[default]
    Off = "0",
    /// In the order of object and offset.
    On = "1",
}

choice! {
    /// Whether an entity's service on other partitions counts.
    CrossCpt, "cross_cpt is not 0 or 1":
    /// Each partition is fair by itself.
    Off = "0",
    /// All partitions are fair together.
    #[default]
    On = "1",
}

choice! {
    /// Where the size of a job comes from that did not tell it.
    SizeSource, "unknown size source, expected nids or suffix":
    /// The number of its clients ([`super::size::Sizes`]).
    #[default]
    Nids = "nids",
    /// The end of its name ([`super::size::suffix`]), where there is one, else 1.
    Suffix = "suffix",
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

number! {
    /// Below how many queued requests of a head the oldest is served, whoever sent it; requests.
    OppThreshold, 0..=256 = 0, "opp_threshold is not a number from 0 to 256"
}

number! {
    /// Time between two publications of ranges, ms.
    DeltaMs, 10..=1000 = 100, "delta_ms is not a number from 10 to 1000"
}

number! {
    /// How long a client counts for the size of a job, s.
    SizeWindowS, 2..=600 = 10, "size_window_s is not a number from 2 to 600"
}

number! {
    /// Size of a job, at most.
    SizeMax, 1..=4096 = 4096, "size_max is not a number from 1 to 4096"
}

/// What users can set; it survives stops and starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Tunables {
    /// Mode of a start without argument.
    pub mode: Mode,
    /// How the next entity is chosen.
    pub select: Select,
    /// What a share is a share of.
    pub cost_model: CostModel,
    /// When to serve without regard to shares.
    pub opp_threshold: OppThreshold,
    /// How often ranges are published.
    pub delta_ms: DeltaMs,
    /// Bound of the class table.
    pub classes_max: ClassesMax,
    /// In which order an entity's requests are served.
    pub locality: Locality,
    /// Whether partitions are fair together.
    pub cross_cpt: CrossCpt,
    /// Where sizes of jobs come from.
    pub size_source: SizeSource,
    /// How long a client counts.
    pub size_window_s: SizeWindowS,
    /// Bound of the sizes of jobs.
    pub size_max: SizeMax,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::error::Code;

    #[test]
    fn words() {
        assert_eq!(
            Select::parse("deadline_memory\n"),
            Ok(Select::DeadlineMemory)
        );
        assert_eq!(Select::parse("golden"), Ok(Select::Golden));
        assert_eq!(CostModel::parse("rpcs"), Ok(CostModel::Rpcs));
        assert_eq!(CostModel::parse("time"), Ok(CostModel::Time));
        assert_eq!(SizeSource::parse("suffix"), Ok(SizeSource::Suffix));
        assert!(Locality::parse("1\n").is_ok_and(Locality::is_on));
        assert!(CrossCpt::parse("0").is_ok_and(|value| !value.is_on()));
        for (error, word) in [
            (Select::parse("silver").unwrap_err(), "selection"),
            (Select::parse("deadline\n\n").unwrap_err(), "selection"),
            (CostModel::parse("").unwrap_err(), "cost model"),
            (CostModel::parse("bytes").unwrap_err(), "cost model"),
            (SizeSource::parse("nid").unwrap_err(), "size source"),
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
