// SPDX-License-Identifier: GPL-2.0-only

//! Statistics of the module.
//!
//! [`read`] takes a [`Snapshot`] of a service from the module's parameter `snapshot`. All commands
//! that show statistics (`status`, `top`, `record`, `exporter`) use snapshots.
//!
//! The module writes the parts one after the other while requests are processed, so their numbers
//! are from slightly different times.
//!
//! # Vocabulary
//!
//! - *Entity*: unit of scheduling of a policy: an entity of `fairshare`, a class of `tbf`, a client
//!   of `qbm`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::{LazyLock, OnceLock};
use std::time::Instant;

use nrs_sched::policy::fairshare::entity_stats::EntityCounts;
use nrs_sched::policy::tbf::class::ClassCounts;
use nrs_sched::rules::{Rate, Unit};
use nrs_sched::statistics::{BandwidthCounts, Stat, Stats};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use crate::failure::{failure, Result};
use crate::kernel::Kernel;

pub mod module;
pub mod rules;
pub mod words;

/// Name of the head for regular requests.
pub const REGULAR: &str = "regular";

/// Name of the head for urgent requests.
pub const HIGH: &str = "high";

/// Name for policies that do not distinguish the heads.
pub const BOTH: &str = "both";

/// Statistics of a service at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// Name of the service.
    pub service: String,
    /// Time since boot, ns; monotonic.
    pub at_ns: u64,
    /// Counters: `slots`, `limit`, `active`, … (`ServiceCounts`).
    #[serde(flatten, deserialize_with = "numbers")]
    pub counters: Counters,
    /// Reason why the service is not healthy; `None` if it is healthy.
    pub unhealthy: Option<String>,
    /// Details of the health, also of a healthy service: number of queued requests and duration.
    pub progress: String,
    /// True if fairshare has weights other than 1.
    pub weighted: bool,
    /// Heads, regular first.
    pub heads: Vec<Head>,
    /// Clients.
    pub clients: Vec<Client>,
    /// Target devices of the clients.
    pub targets: Vec<Target>,
    /// Entities of fairshare, classes of tbf, clients of qbm.
    pub entities: Vec<Entity>,
    /// Rules of tbf that have classes.
    pub rules: Vec<Rule>,
    /// Groups of qbm.
    pub groups: Vec<Group>,
    /// Counters of timeouts (`at_stats`).
    pub timeouts: Counters,
    /// Numbers of `nrs_concurrency`.
    pub concurrency: Counters,
}

/// A head: the policies of one priority.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Head {
    /// Name: `regular` or `high`.
    pub name: String,
    /// Policies in the order of `nrs_policies`.
    pub policies: Vec<Policy>,
}

/// A policy of a head.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// Name: `fifo`, `tbf`, …
    pub name: String,
    /// Argument: the mode of fairshare, the fields of tbf.
    pub argument: Option<String>,
    /// State: `started`, `stopping`, `stopped`.
    pub state: String,
    /// True for the fallback policy, which takes the requests that no other policy takes.
    pub fallback: bool,
    /// Number of queued requests.
    pub queued: u64,
    /// Number of requests in flight.
    pub active: u64,
    /// Counters of the policy as a whole (`FailureKind::counts`).
    #[serde(flatten, deserialize_with = "numbers")]
    pub counters: Counters,
}

/// A client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Client {
    /// Name of the client.
    pub name: String,
    /// Counters: `passed`, `queued`, `held`, …
    pub counters: Counters,
    /// True if the client is lost: its device did not respond within the timeout, and no request
    /// has completed since.
    pub lost: bool,
}

/// A target device of a client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Target {
    /// Name: `MAJOR:MINOR`.
    pub name: String,
    /// Counters (`TargetCounts`).
    pub counters: Counters,
}

/// An entity: unit of scheduling of a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Entity {
    /// Policy: `fairshare`, `tbf`, `qbm`.
    pub policy: String,
    /// Head: `regular` or `high`; `both` for qbm, which does not distinguish the heads.
    pub head: String,
    /// Name, such as `uid:1000` or `gid:5/uid:1000`.
    pub name: String,
    /// Rule of tbf or group of qbm to which the entity belongs.
    pub within: Option<String>,
    /// Effective weight (fairshare).
    pub weight: Option<f64>,
    /// Factor in the weight, set by an agent (fairshare).
    pub factor: Option<f64>,
    /// Target share, 0 to 1 (fairshare).
    pub share_wanted: Option<f64>,
    /// Share of the last second, 0 to 1 (fairshare).
    pub share_1s: Option<f64>,
    /// Share of the last minute, 0 to 1 (fairshare).
    pub share_60s: Option<f64>,
    /// Share of the last minute beyond the entitlement if all entities are backlogged, 0 to 1
    /// (fairshare).
    pub share_borrowed: Option<f64>,
    /// Lag: service owed to the entity, pages; negative if it is ahead of its share (fairshare).
    pub debt_pages: Option<f64>,
    /// True if the entity has queued requests or requests in flight (fairshare).
    pub busy: bool,
    /// Rate limit in the format of the rule (`10MB/s`, `1000`), or allocation of qbm, bytes/s.
    pub limit: Option<String>,
    /// Number of queued requests.
    pub queued: u64,
    /// Number of requests in flight; 0 for fairshare and qbm, which do not report it.
    pub active: u64,
    /// Unit of `cost`: `bytes`, `pages`, `requests`, `us`.
    pub unit: String,
    /// Counters: `dispatched`, `cost`, … (the rows of [`POLICIES`]); counters of other policies are
    /// 0.
    #[serde(flatten, deserialize_with = "numbers")]
    pub counters: Counters,
    /// Bandwidth allocated by qbm.
    pub bandwidth: Option<Bandwidth>,
    /// Percentiles of the queueing time, us: `p50`, `p90`, `p99`, `max`.
    pub wait_us: Counters,
}

/// Bandwidth of a client of qbm, bytes/s.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bandwidth {
    /// Class: `first_come`, `fair_share`, `low_share`, `mover`, `unregulated`.
    pub class: String,
    /// Guaranteed minimum.
    pub min: u64,
    /// Maximum.
    pub max: u64,
    /// Current allocation; `None` if the client is not regulated.
    pub allocated: Option<u64>,
    /// Average use over a short time.
    pub used_fast: u64,
    /// Average use over a longer time.
    pub used_slow: u64,
    /// True if the allocation is below the guaranteed minimum.
    pub unmet: bool,
}

/// A rule of tbf.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rule {
    /// Name of the rule.
    pub name: String,
    /// Head: `regular` or `high`.
    pub head: String,
    /// Rate as written in the rule.
    pub rate: String,
    /// Unit of `cost`: `bytes`, `pages`, `requests`.
    pub unit: String,
    /// Counters: `classes`, `queued`, `dispatched`, `cost`, `throttled_ns`, `limit_hits`, `forced`,
    /// `borrowed`.
    pub counters: Counters,
}

/// A group of qbm.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Group {
    /// Name of the group.
    pub name: String,
    /// Strategy of the group.
    pub strategy: String,
    /// Numbers: `capacity`, `free`, `oversubscribed`, …, bytes/s.
    pub counters: Counters,
}

/// Numbers by name.
pub type Counters = BTreeMap<Cow<'static, str>, u64>;

/// Counters of entities by policy, for the policies that have entities.
pub static POLICIES: [(&str, &[Stat]); 3] = [
    ("tbf", ClassCounts::ROWS),
    ("fairshare", EntityCounts::ROWS),
    ("qbm", BandwidthCounts::ROWS),
];

/// Keys of all counters of entities, without duplicates.
pub static KEYS: LazyLock<BTreeSet<&str>> = LazyLock::new(|| {
    let rows = POLICIES.iter().flat_map(|(_, rows)| *rows);
    rows.map(Stat::key).collect()
});

/// Reads the numbers among the remaining fields of a recording.
fn numbers<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Counters, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Value {
        Number(u64),
        Other(IgnoredAny),
    }
    let all = BTreeMap::<String, Value>::deserialize(from)?.into_iter();
    let numbers = all.filter_map(|(name, value)| match value {
        Value::Number(number) => Some((name.into(), number)),
        Value::Other(_) => None,
    });
    Ok(numbers.collect())
}

/// Returns the counter `name` of `counters`; 0 if it does not exist.
fn number(counters: &Counters, name: &str) -> u64 {
    counters.get(name).copied().unwrap_or(0)
}

/// Implements the access to the counters of parts of snapshots.
macro_rules! counted {
    ($($part:ty)*) => {
        $(impl $part {
            /// Returns the counter `name`; 0 if it does not exist.
            pub fn counter(&self, name: &str) -> u64 {
                number(&self.counters, name)
            }
        })*
    };
}
counted! { Snapshot Client Target Entity Rule Group }

/// Adds each counter of `other` to the counter of the same name.
pub fn merge(to: &mut Counters, other: &Counters) {
    for (name, more) in other {
        match to.get_mut(name) {
            Some(sum) => *sum = sum.saturating_add(*more),
            None => {
                to.insert(name.clone(), *more);
            }
        }
    }
}

impl Entity {
    /// Creates an entity of `policy` with all counters 0.
    pub fn new(policy: &str, name: String) -> Self {
        static ZERO: LazyLock<Counters> =
            LazyLock::new(|| KEYS.iter().map(|key| ((*key).into(), 0)).collect());
        Self {
            policy: policy.into(),
            name,
            counters: ZERO.clone(),
            ..Self::default()
        }
    }

    /// Sets the counter `name`.
    pub fn set(&mut self, name: &'static str, value: u64) {
        self.counters.insert(name.into(), value);
    }

    /// Returns the dispatched bytes; `None` if costs are counted in requests or time.
    pub fn bytes(&self) -> Option<u64> {
        in_bytes(&self.unit, self.counter("cost"))
    }
}

impl Rule {
    /// Returns the limit per second, and true if its unit is bytes, false if requests; `None` if
    /// the rate is invalid.
    pub fn limit(&self) -> Option<(u64, bool)> {
        let rate = Rate::parse(&self.rate)?;
        Some(match rate.unit() {
            Unit::Plain if self.unit == "pages" => (rate.per_second() * PAGE, true),
            unit => (rate.per_second(), unit == Unit::Bytes),
        })
    }
}

/// Size of a page in costs, bytes.
pub const PAGE: u64 = 4096;

/// Converts `cost` in `unit` to bytes; `None` if the unit has no size.
pub fn in_bytes(unit: &str, cost: u64) -> Option<u64> {
    match unit {
        "bytes" => Some(cost),
        "pages" => Some(cost.saturating_mul(PAGE)),
        _ => None,
    }
}

/// Takes a snapshot of `service`.
///
/// # Errors
///
/// The failures of [`Kernel::get`]; `Other` with the place, if the snapshot of the
/// module is invalid.
pub fn read(kernel: &dyn Kernel, service: &str) -> Result<Snapshot> {
    let mut snapshot = parse(kernel, service, "snapshot")?;
    if snapshot.runs("fairshare") {
        let weights = kernel.get(service, "nrs_fairshare_weights")?;
        snapshot.weighted = !weights.trim().is_empty();
    }
    Ok(snapshot)
}

/// Takes a partial snapshot of `service`: slots, clients, target devices, policies and health.
///
/// # Errors
///
/// As for [`read`].
pub fn summary(kernel: &dyn Kernel, service: &str) -> Result<Snapshot> {
    parse(kernel, service, "summary")
}

/// Reads the snapshot that the parameter `name` shows.
fn parse(kernel: &dyn Kernel, service: &str, name: &str) -> Result<Snapshot> {
    let at_ns = now();
    let text = kernel.get(service, name)?;
    let mut snapshot = module::read(&text).map_err(|error| {
        failure!(Other: "{name} of service '{service}': {error}";
            "nrsctl and the module may have different versions: \
             compare nrsctl --version and modinfo nrs")
    })?;
    (snapshot.service, snapshot.at_ns) = (service.into(), at_ns);
    Ok(snapshot)
}

/// Returns the heads of `service` and their policies, regular first.
///
/// # Errors
///
/// As for [`read`].
pub fn heads(kernel: &dyn Kernel, service: &str) -> Result<Vec<Head>> {
    summary(kernel, service).map(|snapshot| snapshot.heads)
}

/// Returns the number of requests queued in the policies of `heads`.
pub fn queued(heads: &[Head]) -> u64 {
    let policies = heads.iter().flat_map(|head| &head.policies);
    policies.fold(0, |sum, policy| sum.saturating_add(policy.queued))
}

impl Snapshot {
    /// Returns the words for the health of the service.
    pub fn health(&self) -> &'static str {
        match self.unhealthy {
            None => "healthy",
            Some(_) => "NOT HEALTHY",
        }
    }

    /// Returns true if `policy` is started on a head, or still has requests there.
    pub fn runs(&self, policy: &str) -> bool {
        let mut policies = self.heads.iter().flat_map(|head| &head.policies);
        policies.any(|other| other.name == policy && other.state != "stopped")
    }
}

impl Policy {
    /// Returns name and argument in the format of `nrs_policies`.
    pub fn full(&self) -> String {
        match &self.argument {
            Some(argument) => format!("{} {argument}", self.name),
            None => self.name.clone(),
        }
    }
}

impl Head {
    /// Returns the serving policy: the started policy that is not the fallback, otherwise the
    /// fallback.
    pub fn serving(&self) -> Option<&Policy> {
        let mut started = self
            .policies
            .iter()
            .filter(|policy| policy.state == "started");
        let primary = started.clone().find(|policy| !policy.fallback);
        primary.or_else(|| started.next())
    }
}

/// Returns the time since boot, ns; since the first call if `/proc/uptime` cannot be read.
fn now() -> u64 {
    static START: OnceLock<(Instant, u64)> = OnceLock::new();
    let (start, base) = START.get_or_init(|| {
        let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
        let seconds = text.split_whitespace().next();
        let seconds = seconds.and_then(|seconds| seconds.parse::<f64>().ok());
        (Instant::now(), (seconds.unwrap_or(0.0) * 1e9) as u64)
    });
    let since = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    base.saturating_add(since)
}
