// SPDX-License-Identifier: GPL-2.0-only

//! Settings of all policies, for tests of common properties.

use nrs_sched::{
    parameters::Values,
    policy::{
        fairshare::params::{Locality, Select},
        params::heads::PerHead,
        robin::params::{OffsetType, Supported},
        tbf, Config, Kind, Tunables,
    },
    qbm::plan::By,
};

/// A policy, its argument, and its parameters.
pub type Setting = (Kind, Option<&'static str>, Tunables);

/// Returns every policy with default parameters. Adds `fairshare` with each of `modes`, every
/// selection, with and without locality; and `tbf` by every field. Adds `orr` and `trr` for reads
/// and writes with both types of offsets, and `qbm` by every attribute.
pub fn all(modes: &[&'static str]) -> Vec<Setting> {
    let default = Tunables::default();
    let kinds = Kind::ALL.iter();
    let mut all: Vec<Setting> = kinds.map(|&kind| (kind, None, default)).collect();
    for &mode in modes {
        for &select in Select::ALL {
            for &locality in Locality::ALL {
                let mut tunables = default;
                tunables.fairshare.select = select;
                tunables.fairshare.locality = locality;
                all.push((Kind::Fairshare, Some(mode), tunables));
            }
        }
    }
    for fields in [
        "jobid",
        "uid",
        "gid",
        "projid",
        "nid",
        "opcode",
        "nodemap",
        "uid+gid",
        "uid+nid+jobid",
    ] {
        all.push((Kind::Tbf, Some(fields), default));
    }
    for &offset_type in OffsetType::ALL {
        let mut tunables = default;
        for of in [&mut tunables.orr, &mut tunables.trr] {
            of.offset_type = PerHead::both(offset_type);
            of.supported = PerHead::both(Supported::Both);
        }
        all.extend([Kind::Orr, Kind::Trr].map(|kind| (kind, None, tunables)));
    }
    for &by in By::ALL {
        let mut tunables = default;
        tunables.qbm.by = by;
        all.push((Kind::Qbm, None, tunables));
    }
    all
}

/// Returns every policy by [`all`], with delays of 1 to 3 s and 5 requests/s for each class of
/// `tbf`.
pub fn limited() -> Vec<Config> {
    let mut values = Values::default();
    for (name, text) in [
        ("nrs_delay_min", "1"),
        ("nrs_delay_max", "3"),
        ("nrs_delay_pct", "80"),
        ("buffer_max", "256"),
    ] {
        values.set_named(name, text).expect("valid");
    }
    let with = |tunables: &Tunables| Tunables {
        delay: values.policies.delay,
        tbf: tbf::Tunables {
            rate: tbf::params::Rate::parse("5").expect("a rate"),
            ..tunables.tbf
        },
        ..*tunables
    };
    all(&["uid_fair", "gid_then_uid_fair"])
        .iter()
        .map(|(kind, mode, tunables)| Config::parse(*kind, *mode, &with(tunables)).expect("valid"))
        .collect()
}
