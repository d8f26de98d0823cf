// SPDX-License-Identifier: GPL-2.0-only

//! What users set: each parameter has its own type, which cannot hold a wrong value.

use crate::sched::policy::params::{choice, number, ClassesMax};

number! {
    /// Rate of the default rule, and of rules that are started without one; per second.
    Rate, 1..=10_000_000 = 10_000, "rate is not a number from 1 to 10000000"
}

number! {
    /// Tokens that a class can save up while it is idle; requests, or pages of 4 KiB.
    Depth, 1..=1_000_000 = 3, "depth is not a number from 1 to 1000000"
}

choice! {
    /// What a rate without a unit counts.
    CostModel, "unknown cost model, expected rpcs or pages":
    /// Requests.
    #[default]
    Rpcs = "rpcs",
    /// Pages of bulk data, at least one per request.
    Pages = "pages",
}

choice! {
    /// Whether a rate holds for all partitions of a service together.
    GlobalRate, "global_rate is not 0 or 1":
    /// Each partition grants the rate.
    Off = "0",
    /// All partitions share it.
    #[default]
    On = "1",
}

number! {
    /// Idle classes of one head, at most.
    CacheSize, 1..=1_048_576 = 8_192, "cache size is not a number from 1 to 1048576"
}

number! {
    /// Rules of one head, at most.
    RulesMax, 1..=65_536 = 4_096, "rules_max is not a number from 1 to 65536"
}

/// What users can set; it survives stops and starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Tunables {
    /// Rate of rules without one.
    pub rate: Rate,
    /// What a class saves up while idle.
    pub depth: Depth,
    /// What a rate without a unit counts.
    pub cost_model: CostModel,
    /// Whether partitions share rates.
    pub global_rate: GlobalRate,
    /// Bound of the class table.
    pub classes_max: ClassesMax,
    /// Bound of the idle classes in it.
    pub cache_size: CacheSize,
    /// Bound of the rules.
    pub rules_max: RulesMax,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The module parameters of the original were not checked: 0 meant starvation or a division by zero.
    #[test]
    fn what_would_starve_or_divide_by_zero_is_refused() {
        for text in ["0", "-1", "", "10000001", "1e3", "0x10", " 5"] {
            assert!(Rate::parse(text).is_err(), "{text}");
        }
        for text in ["0", "-3", "1000001"] {
            assert!(Depth::parse(text).is_err(), "{text}");
        }
        assert!(CacheSize::parse("0").is_err() && RulesMax::parse("0").is_err());
        assert!(GlobalRate::parse("2").is_err() && CostModel::parse("bytes").is_err());
    }

    #[test]
    fn defaults() {
        let shown = |tunables: Tunables| {
            format!(
                "{} {} {} {} {} {} {}",
                tunables.rate,
                tunables.depth,
                tunables.cost_model,
                tunables.global_rate,
                tunables.classes_max,
                tunables.cache_size,
                tunables.rules_max,
            )
        };
        assert_eq!(shown(Tunables::default()), "10000 3 rpcs 1 16384 8192 4096");
        assert_eq!(GlobalRate::parse("0\n"), Ok(GlobalRate::Off));
        assert_eq!(Rate::parse("10000000").map(Rate::get), Ok(10_000_000));
    }
}
