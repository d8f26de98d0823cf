// SPDX-License-Identifier: GPL-2.0-only

//! Keys of configuration files, with their values and meanings. Files are parsed by this table, and
//! the reference in Documentation/configuration.md is generated from it.

use nrs_agent::toml::TomlKey;

/// Table of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Top level of the file.
    Top,
    /// `[module]`
    Module,
    /// `[disk.NAME]`
    Disk,
    /// `[device.NAME]`
    Device,
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
    /// Table with a value for each head.
    Heads,
}

impl Table {
    /// Tables of the reference in order, with their headings.
    const SHOWN: [(Self, &'static str); 9] = [
        (Self::Top, "the file"),
        (Self::Module, "[module]"),
        (Self::Disk, "[disk.NAME]"),
        (Self::Device, "[device.NAME]"),
        (Self::Service, "[service.NAME]"),
        (Self::HighPriority, "[service.NAME.high_priority]"),
        (Self::Rule, "[[service.NAME.rule]]"),
        (Self::Qbm, "[service.NAME.qbm]"),
        (Self::Heads, "a value for each head"),
    ];

    /// Returns the keys of a statement of `qbm`, which `Documentation/qbm.md` describes.
    const fn statement(self) -> &'static [&'static str] {
        match self {
            Self::Default => &["class", "min", "max"],
            Self::Group => &[
                "name",
                "capacity",
                "target",
                "strategy",
                "class",
                "min",
                "max",
                "reserve_first_come",
                "reserve_fair_share",
                "reserve_low_share",
                "reserve_mover",
            ],
            Self::Client => &["name", "class", "min", "max", "group"],
            Self::Tune => &[
                "period", "fast", "slow", "idle", "floor", "grant", "sleep", "high", "low",
                "raise", "lower", "headroom",
            ],
            _ => &[],
        }
    }

    /// Returns the table of `device`.
    pub fn of(device: &crate::kernel::Device) -> Self {
        match device.scheduled {
            true => Self::Disk,
            false => Self::Device,
        }
    }

    /// Returns the key of the file that has tables of this kind, by name.
    pub fn key(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Device => "device",
            Self::Module => "module",
            _ => "service",
        }
    }

    /// Returns the keys that have no default; the readers of rules and plans report other missing
    /// keys.
    pub fn required(self) -> &'static [&'static str] {
        match self {
            Self::Rule | Self::Group | Self::Client => &["name"],
            Self::Disk => &["service"],
            Self::Device => &["device", "service"],
            _ => &[],
        }
    }

    /// Returns the keys of the table.
    fn keys(self) -> impl Iterator<Item = &'static ConfigKey> {
        KEYS.iter().filter(move |key| key.table == self)
    }

    /// Returns the names of all keys of the table.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let names = self.keys().map(|key| key.name);
        names.chain(self.statement().iter().copied())
    }
}

/// Key of a table.
type ConfigKey = TomlKey<Table>;

/// Creates a row of the table.
const fn key(
    table: Table,
    name: &'static str,
    takes: &'static str,
    default: &'static str,
    about: &'static str,
) -> ConfigKey {
    TomlKey {
        table,
        name,
        takes,
        default,
        about,
        set: (),
    }
}

use Table::{Device as Mapped, Disk, Heads, HighPriority, Module, Qbm, Rule, Service, Top};

/// All keys.
#[rustfmt::skip]
static KEYS: [ConfigKey; 52] = [
    key(Top, "service", "tables", "none",
        "services by name: 1 to 31 letters, digits and `_ - . :`, not starting with a dot"),
    key(Top, "disk", "tables", "none",
        "disks with nrs as [I/O scheduler](iosched.md), by name or path: `sda`, \
         `/dev/disk/by-id/…`"),
    key(Top, "device", "tables", "none",
        "[device-mapper devices](dm-nrs.md#the-table-line) of type nrs, by name in `/dev/mapper`"),
    key(Top, "module", "a table", "none", "parameters of the module"),
    key(Module, "default_slots", "1 to 65535, `\"auto\"`", "left alone",
        "`slots` of services without that key, and of new services"),
    key(Module, "user_requests_max", "64 to 1048576", "left alone",
        "requests of one open file of /dev/nrs"),
    key(Module, "direct_run", "0 to 1", "left alone",
        "1: tasks dispatch the requests that they insert into a disk"),
    key(Module, "classes_max", "64 to 1048576", "left alone",
        "entities and classes per head of a partition, for new services"),
    key(Disk, "service", "a name", "required", "service of the disk; created if it does not exist"),
    key(Disk, "jobid_name", "up to 63 bytes without blanks", "`%e.%u`",
        "format of job identifiers"),
    key(Disk, "stream", "`hint`, `cgroup`, `none`", "`hint`",
        "source of offset streams, for `orr`"),
    key(Mapped, "device", "a path, `\"MAJOR:MINOR\"`", "required",
        "the target; use a path that names the same disk after a reboot: `/dev/disk/by-id/…`"),
    key(Mapped, "service", "a name", "required",
        "service of the device; created if it does not exist"),
    key(Mapped, "offset", "a number of sectors", "0",
        "start on the target, in sectors of 512 bytes"),
    key(Mapped, "sectors", "a number of sectors", "the rest",
        "length; without it the device grows with the target"),
    key(Mapped, "nid", "`ADDRESS@NETWORK`", "absent; that of NFS clients",
        "network identifier of all requests"),
    key(Mapped, "jobid", "1 to 31 bytes without blanks", "by `jobid_name`",
        "job identifier of all requests"),
    key(Mapped, "jobid_name", "up to 63 bytes without blanks", "`%e.%u`",
        "format of job identifiers"),
    key(Mapped, "size", "1 to 4096", "absent", "job size, for level `size` of `fairshare`"),
    key(Mapped, "opportunity", "`on`, `off`", "`on`",
        "`off`: the policy sees every request, even with free slots"),
    key(Mapped, "stream", "`hint`, `cgroup`, `none`", "`hint`",
        "source of offset streams, for `orr`"),
    key(Mapped, "on_timeout", "`fail`, `wait`", "`wait`",
        "lost device: fail requests with a timeout, or wait"),
    key(Service, "cpts", "1 to 63", "left alone",
        "partitions, of a service made in configfs without clients"),
    key(Service, "slots", "1 to 65535, `\"auto\"`", "`default_slots` of the module",
        "requests in flight on each device"),
    key(Service, "policy", "`POLICY [ARGUMENT]`", "`fifo`", "policy of both heads"),
    key(Service, "high_priority", "a table", "none", "settings of the high-priority head"),
    key(Service, "parameters", "a table", "none",
        "[parameters of the service](reference.md#parameters-of-a-service) by name"),
    key(Service, "timeouts", "a table", "none", "the same, for `at_*` and `obd_timeout`"),
    key(Service, "weights", "a table: `\"FIELD:VALUE\" = 1` to `10000`", "none",
        "weights of `fairshare`; patterns count in order"),
    key(Service, "limits", "a table: `\"FIELD:VALUE\" = \"max=RATE+burst=10s\"`", "none",
        "[limits](fairshare.md#limits) of `fairshare`; patterns count in order"),
    key(Service, "owners", "a table: `\"/PATH\" = \"USER:GROUP\"`", "none",
        "[owners of cgroups](servers.md#the-map-of-cgroups)"),
    key(Service, "rule", "tables", "none", "rules of `tbf`; the first match counts"),
    key(Service, "qbm", "a table", "none", "the configuration of `qbm`"),
    key(HighPriority, "policy", "`POLICY [ARGUMENT]`", "`policy` of the service",
        "policy of the high-priority head"),
    key(HighPriority, "ratio", "0 to 4294967295", "10", "parameter `high_priority_ratio`"),
    key(HighPriority, "sources", "some of `realtime meta prio`, or `none`", "`realtime`",
        "parameter `high_priority_sources`"),
    key(Rule, "name", "1 to 15 letters, digits and `_`", "required",
        "name; rule `default` is for classes without a rule"),
    key(Rule, "match", "conditions, as in `nrs_tbf_rule`", "required",
        "match expression; not with `default`"),
    key(Rule, "rate", "a number, or `\"5000iops\"`, `\"10MB/s\"`", "`nrs_tbf_rate`",
        "maximum rate of a class, per second"),
    key(Rule, "minrate", "as `rate`, or 0", "0: none", "guaranteed minimum rate"),
    key(Rule, "burst", "`\"10s\"`, a number, or `\"64MiB\"`", "0: `nrs_tbf_depth`",
        "credit that a class saves while it uses less than its rate"),
    key(Rule, "realtime", "`true`, `false`", "`false`", "catch up after delays"),
    key(Rule, "borrow", "`true`, `false`", "`false`", "use the rate that other rules leave unused"),
    key(Rule, "also", "up to three names", "none", "further rules to charge"),
    key(Rule, "head", "`reg`, `hp`, `all`", "`all`",
        "head of the rule; `all`: each head that runs `tbf`"),
    key(Qbm, "by", "`nid`, `jobid`, `uid`, `device`", "`nid`", "identity of a client"),
    key(Qbm, "tune", "a table", "none", "tuning, as [`tune`](qbm.md)"),
    key(Qbm, "default", "a table", "none", "terms of other clients, as [`default`](qbm.md)"),
    key(Qbm, "group", "tables", "none", "groups, as [`group`](qbm.md)"),
    key(Qbm, "client", "tables", "none",
        "clients and patterns, as [`client`](qbm.md); the first match counts"),
    key(Heads, "reg", "a value", "the parameter's default", "value of the regular head"),
    key(Heads, "hp", "a value", "the parameter's default", "value of the high-priority head"),
];

/// Configurable parameters of the module: name, minimum, maximum and default. A default that is a
/// word is also a valid value.
pub const MODULE: [(&str, u64, u64, &str); 4] = [
    ("default_slots", 1, 65_535, "auto"),
    ("user_requests_max", 64, 1_048_576, "65536"),
    ("direct_run", 0, 1, "1"),
    ("classes_max", 64, 1_048_576, "16384"),
];

/// Returns the reference of all keys, in Markdown.
pub fn reference() -> String {
    TomlKey::reference(&KEYS, &Table::SHOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_whole() {
        assert_eq!(TomlKey::wrong(&KEYS), None);
        for (name, ..) in MODULE {
            assert!(Table::Module.keys().any(|key| key.name == name));
        }
    }
}
