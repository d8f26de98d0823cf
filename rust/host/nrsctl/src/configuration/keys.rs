// SPDX-License-Identifier: GPL-2.0-only

//! The keys of configuration files: what each takes and means. Files are read by this table, and the reference
//! in Documentation/configuration.md is printed from it.

/// A table of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// The file itself.
    Top,
    /// `[module]`
    Module,
    /// `[service.NAME]`
    Service,
    /// `high_priority` of a service.
    HighPriority,
    /// `[[service.NAME.rule]]`
    Rule,
    /// `[service.NAME.qbm]`
    Qbm,
    /// `default` of `qbm`.
    Default,
    /// `[[service.NAME.qbm.group]]`
    Group,
    /// `[[service.NAME.qbm.client]]`
    Client,
    /// `tune` of `qbm`.
    Tune,
    /// A value for each head.
    Heads,
}

impl Table {
    /// Those with keys of their own, in the order of the reference.
    pub const ALL: [Self; 11] = [
        Self::Top,
        Self::Module,
        Self::Service,
        Self::HighPriority,
        Self::Rule,
        Self::Qbm,
        Self::Default,
        Self::Group,
        Self::Client,
        Self::Tune,
        Self::Heads,
    ];

    /// How it is written.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Top => "the file",
            Self::Module => "[module]",
            Self::Service => "[service.NAME]",
            Self::HighPriority => "[service.NAME.high_priority]",
            Self::Rule => "[[service.NAME.rule]]",
            Self::Qbm => "[service.NAME.qbm]",
            Self::Default => "[service.NAME.qbm.default]",
            Self::Group => "[[service.NAME.qbm.group]]",
            Self::Client => "[[service.NAME.qbm.client]]",
            Self::Tune => "[service.NAME.qbm.tune]",
            Self::Heads => "a value for each head",
        }
    }

    /// Its keys.
    pub fn keys(self) -> impl Iterator<Item = &'static Key> {
        KEYS.iter().filter(move |key| key.table == self)
    }
}

/// A key.
#[derive(Debug)]
pub struct Key {
    /// Where it is.
    pub table: Table,
    /// Its name.
    pub name: &'static str,
    /// What it takes.
    pub takes: &'static str,
    /// What counts without it; `required` if it has to be there.
    pub default: &'static str,
    /// What it means.
    pub about: &'static str,
}

/// A line of the table.
const fn key(
    table: Table,
    name: &'static str,
    takes: &'static str,
    default: &'static str,
    about: &'static str,
) -> Key {
    Key {
        table,
        name,
        takes,
        default,
        about,
    }
}

/// The default of a key that has to be there.
pub const REQUIRED: &str = "required";

use Table::{Client, Default, Group, Heads, HighPriority, Module, Qbm, Rule, Service, Top, Tune};

/// All keys.
#[rustfmt::skip]
static KEYS: [Key; 63] = [
    key(Top, "service", "tables", "none", "services by name: 1 to 31 letters, digits and `_ - . :`, not starting with a dot"),
    key(Top, "module", "a table", "none", "parameters of the module"),
    key(Module, "default_slots", "1 to 65535", "left alone", "`slots` of services without that key, and of new services"),
    key(Module, "user_requests_max", "64 to 1048576", "left alone", "requests of one open file of /dev/nrs"),
    key(Module, "classes_max", "64 to 1048576", "left alone", "entities and classes per head of a partition, for new services"),
    key(Service, "cpts", "1 to 64", "left alone", "partitions, of a service made in configfs without clients"),
    key(Service, "slots", "1 to 65535", "`default_slots` of the module", "requests in flight on each device"),
    key(Service, "policy", "`POLICY [ARGUMENT]`", "`fifo`", "policy of both heads"),
    key(Service, "high_priority", "a table", "none", "settings of the high-priority head"),
    key(Service, "parameters", "a table", "none", "[parameters of the service](reference.md#parameters-of-a-service) by name"),
    key(Service, "timeouts", "a table", "none", "the same, for `at_*` and `obd_timeout`"),
    key(Service, "weights", "a table: `\"FIELD:VALUE\" = 1` to `10000`", "none", "weights of `fairshare`; patterns count in order"),
    key(Service, "rule", "tables", "none", "rules of `tbf`; the first match counts"),
    key(Service, "qbm", "a table", "none", "the configuration of `qbm`"),
    key(HighPriority, "policy", "`POLICY [ARGUMENT]`", "`policy` of the service", "policy of the high-priority head"),
    key(HighPriority, "ratio", "0 to 4294967295", "10", "parameter `high_priority_ratio`"),
    key(HighPriority, "sources", "some of `realtime meta prio`, or `none`", "`realtime`", "parameter `high_priority_sources`"),
    key(Rule, "name", "1 to 15 letters, digits and `_`", REQUIRED, "name; rule `default` is for classes without a rule"),
    key(Rule, "match", "conditions, as in `nrs_tbf_rule`", REQUIRED, "match expression; not with `default`"),
    key(Rule, "rate", "a number, or `\"5000iops\"`, `\"10MB/s\"`", "`nrs_tbf_rate`", "maximum rate of a class, per second"),
    key(Rule, "minrate", "as `rate`, or 0", "0: none", "guaranteed minimum rate"),
    key(Rule, "realtime", "`true`, `false`", "`false`", "catch up after delays"),
    key(Rule, "borrow", "`true`, `false`", "`false`", "use the rate that other rules leave unused"),
    key(Rule, "also", "up to three names", "none", "further rules to charge"),
    key(Rule, "head", "`reg`, `hp`, `all`", "`all`", "head of the rule; `all`: each head that runs `tbf`"),
    key(Qbm, "by", "`nid`, `jobid`, `uid`, `device`", "`nid`", "identity of a client"),
    key(Qbm, "tune", "a table", "none", "tuning"),
    key(Qbm, "default", "a table", "none", "terms of other clients"),
    key(Qbm, "group", "tables", "none", "groups, each with a capacity"),
    key(Qbm, "client", "tables", "none", "clients and patterns; the first match counts"),
    key(Default, "class", "`first_come`, `fair_share`, `low_share`, `mover`", "`fair_share`", "allocation class"),
    key(Default, "min", "a size or percent", "`max`", "guaranteed bandwidth"),
    key(Default, "max", "a size or percent", "the capacity", "maximum bandwidth"),
    key(Group, "name", "1 to 63 letters, digits and `_ . : @ -`, no dot in front", REQUIRED, "the group"),
    key(Group, "capacity", "a size", REQUIRED, "bandwidth to share, per second"),
    key(Group, "target", "`MAJOR:MINOR` or a number", "every target of no other group", "device"),
    key(Group, "strategy", "`classes`, `mover`", "`classes`", "`mover`: measures clients; movers get the rest"),
    key(Group, "class", "as of `default`", "that of `default`", "terms of clients without a table"),
    key(Group, "min", "a size or percent", "that of `default`", "the same"),
    key(Group, "max", "a size or percent", "that of `default`", "the same"),
    key(Group, "reserve_first_come", "a size or percent", "0", "reserve of the class"),
    key(Group, "reserve_fair_share", "a size or percent", "0", "reserve of the class"),
    key(Group, "reserve_low_share", "a size or percent", "0", "reserve of the class"),
    key(Group, "reserve_mover", "a size or percent", "0", "reserve of the class"),
    key(Client, "name", "a name or pattern, of what `by` says", REQUIRED, "client"),
    key(Client, "class", "as of `default`", REQUIRED, "allocation class"),
    key(Client, "min", "a size or percent", REQUIRED, "guaranteed bandwidth"),
    key(Client, "max", "a size or percent", "the capacity", "maximum bandwidth"),
    key(Client, "group", "the name of a group", "all groups", "scope of the terms"),
    key(Tune, "period", "`\"1ms\"` to `\"1s\"`", "`40ms`", "bucket depth, as time"),
    key(Tune, "fast", "`\"100ms\"` to `\"60s\"`", "`1s`", "interval of measuring sleep"),
    key(Tune, "slow", "`\"1s\"` to `\"3600s\"`", "`30s`", "interval of raising or lowering an allocation"),
    key(Tune, "idle", "`\"100ms\"` to `\"3600s\"`", "`1s`", "idle time before a client leaves"),
    key(Tune, "floor", "`\"1KiB/s\"` to `\"1GiB/s\"`", "`32KiB/s`", "minimum allocation of each client"),
    key(Tune, "grant", "`\"1KiB/s\"` to `\"1GiB/s\"`", "`256KiB/s`", "least free bandwidth for allocations beyond a minimum"),
    key(Tune, "sleep", "`\"1%\"` to `\"100%\"`", "`50%`", "sleeping periods before a client reclaims bandwidth"),
    key(Tune, "high", "`\"1%\"` to `\"100%\"`", "`80%`", "utilization that raises an allocation"),
    key(Tune, "low", "`\"0%\"` to `\"99%\"`", "`60%`", "utilization that lowers an allocation"),
    key(Tune, "raise", "`\"1%\"` to `\"1000%\"`", "`30%`", "size of a raise"),
    key(Tune, "lower", "`\"0%\"` to `\"90%\"`", "`10%`", "size of a reduction"),
    key(Tune, "headroom", "`\"0%\"` to `\"50%\"`", "`2%`", "bandwidth that movers leave free"),
    key(Heads, "reg", "a value", "the parameter's default", "value of the regular head"),
    key(Heads, "hp", "a value", "the parameter's default", "value of the high-priority head"),
];

/// The parameters of the module that can be configured: name, least, most and default.
pub const MODULE: [(&str, u64, u64, &str); 3] = [
    ("default_slots", 1, 65_535, "64"),
    ("user_requests_max", 64, 1_048_576, "65536"),
    ("classes_max", 64, 1_048_576, "16384"),
];

/// The reference of all keys, in Markdown.
pub fn reference() -> String {
    let mut out = String::new();
    for table in Table::ALL {
        out.push_str(&format!("\n### `{}`\n\n", table.title()));
        out.push_str("| key | takes | without it | meaning |\n|---|---|---|---|\n");
        for key in table.keys() {
            out.push_str(&format!(
                "| `{}` | {} | {} | {} |\n",
                key.name, key.takes, key.default, key.about
            ));
        }
    }
    out
}

/// `page` with the reference between its two marks; none if it has none.
pub fn replace(page: &str) -> Option<String> {
    let (before, rest) = page.split_once("<!-- keys -->\n")?;
    let (_, after) = rest.split_once("<!-- end of keys -->")?;
    let keys = reference();
    Some(format!(
        "{before}<!-- keys -->\n{keys}\n<!-- end of keys -->{after}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_whole() {
        for (index, key) in KEYS.iter().enumerate() {
            let others = KEYS.iter().skip(index + 1);
            let twice = |other: &&Key| other.table == key.table && other.name == key.name;
            assert_eq!(others.filter(twice).count(), 0, "{}", key.name);
            assert!(!key.takes.contains('|') && !key.about.contains('|'));
        }
        for (name, ..) in MODULE {
            assert!(Table::Module.keys().any(|key| key.name == name));
        }
    }
}
