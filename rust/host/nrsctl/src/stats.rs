// SPDX-License-Identifier: GPL-2.0-only

//! What the module has counted.
//!
//! [`read`] takes a [`Snapshot`] of a service: each text that the module shows is parsed once, and everything that shows
//! statistics (`status`, `top`, `record`, `exporter`) works on snapshots.
//!
//! The texts are read one after the other while requests come and go, so numbers of different texts are of slightly
//! different times. What a later module shows in addition is passed over.
//!
//! # Vocabulary
//!
//! - *Text*: what the module shows of one parameter, such as `nrs_tbf_stats`.
//! - *Line*: one line of a text, with its depth, key and value ([`lines::Line`]).
//! - *Entity*: whom a policy tells apart: an entity of `fairshare`, a class of `tbf`, a client of `qbm`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::{LazyLock, OnceLock};
use std::time::Instant;

use nrs_sched::policy::fairshare::ledger::EntityCounts;
use nrs_sched::policy::tbf::record::ClassCounts;
use nrs_sched::rules::{Rate, Unit};
use nrs_sched::statistics::{BandwidthCounts, Stat, Stats};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use crate::failure::{Failure, Kind, Result};
use crate::kernel::Kernel;
use lines::{Line, Unexpected};

pub mod clients;
pub mod fairshare;
pub mod lines;
pub mod plain;
pub mod policies;
pub mod qbm;
pub mod rules;
pub mod tbf;
pub mod words;

/// The head of requests that are not urgent.
pub const REGULAR: &str = "regular";

/// The head of urgent requests.
pub const HIGH: &str = "high";

/// Where a policy makes no difference between the heads.
pub const BOTH: &str = "both";

/// What a service has counted, at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// The service.
    pub service: String,
    /// When, ns since this machine started; goes forward only.
    pub at_ns: u64,
    /// Its counters: `slots`, `limit`, `active`, … (`ServiceCounts`).
    #[serde(flatten, deserialize_with = "numbers")]
    pub counters: Counters,
    /// Whether it is healthy, and if not, why.
    pub unhealthy: Option<String>,
    /// What the judgement of its health says, healthy or not: what is queued, and since when.
    pub progress: String,
    /// Whether fairshare has weights other than 1.
    pub weighted: bool,
    /// The heads, regular first.
    pub heads: Vec<Head>,
    /// The clients.
    pub clients: Vec<Client>,
    /// The devices below.
    pub targets: Vec<Target>,
    /// Whom the policies tell apart: entities of fairshare, classes of tbf, clients of qbm.
    pub entities: Vec<Entity>,
    /// Rules of tbf that have classes.
    pub rules: Vec<Rule>,
    /// Groups of qbm.
    pub groups: Vec<Group>,
    /// The counters of timeouts (`at_stats`).
    pub timeouts: Counters,
    /// The numbers of `nrs_concurrency`.
    pub concurrency: Counters,
}

/// A head: the policies of one priority.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Head {
    /// `regular` or `high`.
    pub name: String,
    /// Its policies, as `nrs_policies` lists them.
    pub policies: Vec<Policy>,
}

/// A policy of a head.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// `fifo`, `tbf`, …
    pub name: String,
    /// Its argument: the mode of fairshare, the fields of tbf.
    pub argument: Option<String>,
    /// `started`, `stopping`, `stopped`.
    pub state: String,
    /// Whether it is the one that takes what no other does.
    pub fallback: bool,
    /// Requests queued in it.
    pub queued: u64,
    /// Requests of it in service.
    pub active: u64,
    /// The counters of the policy as a whole (`Kind::counts`).
    #[serde(flatten, deserialize_with = "numbers")]
    pub counters: Counters,
}

/// A client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Client {
    /// Its name.
    pub name: String,
    /// Its counters: `passed`, `queued`, `held`, …
    pub counters: Counters,
    /// Whether it is lost: its device gave no sign of life for the timeout, and nothing has ended since.
    pub lost: bool,
}

/// A device below.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Target {
    /// `MAJOR:MINOR`.
    pub name: String,
    /// Its counters (`TargetCounts`).
    pub counters: Counters,
}

/// Whom a policy tells apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Entity {
    /// `fairshare`, `tbf`, `qbm`.
    pub policy: String,
    /// `regular` or `high`; `both` for qbm, which makes no difference.
    pub head: String,
    /// Its name, such as `uid:1000` or `gid:5/uid:1000`.
    pub name: String,
    /// The rule of tbf or the group of qbm that it is in.
    pub within: Option<String>,
    /// Its weight in force, of fairshare.
    pub weight: Option<f64>,
    /// What an agent multiplies its weight by, of fairshare.
    pub factor: Option<f64>,
    /// What part it is to have, 0 to 1, of fairshare.
    pub share_wanted: Option<f64>,
    /// What part it had of the last second, 0 to 1, of fairshare.
    pub share_1s: Option<f64>,
    /// The same of the last minute.
    pub share_60s: Option<f64>,
    /// What it had of the last minute beyond what it is entitled to if all ask, 0 to 1, of fairshare.
    pub share_borrowed: Option<f64>,
    /// What the scheduler owes it, in pages; negative if it is ahead, of fairshare.
    pub debt_pages: Option<f64>,
    /// Whether requests of it wait or are in service, of fairshare.
    pub busy: bool,
    /// What it is limited to, as the rule says (`10MB/s`, `1000`), or qbm allocates, in bytes/s.
    pub limit: Option<String>,
    /// Requests that wait.
    pub queued: u64,
    /// Requests in service; 0 for fairshare and qbm, which do not tell.
    pub active: u64,
    /// What `cost` counts: `bytes`, `pages`, `requests`, `us`.
    pub unit: String,
    /// Its counters, those of other policies 0: `dispatched`, `cost`, … (the rows of [`POLICIES`]).
    #[serde(flatten, deserialize_with = "numbers")]
    pub counters: Counters,
    /// What qbm gives it.
    pub bandwidth: Option<Bandwidth>,
    /// How long requests waited, percentiles `p50`, `p90`, `p99`, `max`, us.
    pub wait_us: Counters,
}

/// What qbm gives a client, bytes/s.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bandwidth {
    /// `first_come`, `fair_share`, `low_share`, `mover`, `unregulated`.
    pub class: String,
    /// What it is promised.
    pub min: u64,
    /// What it may have at most.
    pub max: u64,
    /// What it has now; none if it is not regulated.
    pub allocated: Option<u64>,
    /// What it used a short while ago.
    pub used_fast: u64,
    /// What it used over a longer time.
    pub used_slow: u64,
    /// Whether it has less than it is promised.
    pub unmet: bool,
}

/// A rule of tbf.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// `regular` or `high`.
    pub head: String,
    /// As it is written.
    pub rate: String,
    /// `bytes`, `pages`, `requests`.
    pub unit: String,
    /// Counters: `classes`, `queued`, `dispatched`, `cost`, `throttled_ns`, `limit_hits`, `forced`, `borrowed`.
    pub counters: Counters,
}

/// A group of qbm.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its strategy.
    pub strategy: String,
    /// Numbers: `capacity`, `free`, `oversubscribed`, … bytes/s.
    pub counters: Counters,
}

/// Numbers by name.
pub type Counters = BTreeMap<Cow<'static, str>, u64>;

/// The counters of the entities of each policy that tells entities apart.
pub static POLICIES: [(&str, &[Stat]); 3] = [
    ("tbf", ClassCounts::ROWS),
    ("fairshare", EntityCounts::ROWS),
    ("qbm", BandwidthCounts::ROWS),
];

/// The keys of the counters of entities, each once.
pub static KEYS: LazyLock<BTreeSet<&str>> = LazyLock::new(|| {
    let rows = POLICIES.iter().flat_map(|(_, rows)| *rows);
    rows.map(Stat::key).collect()
});

/// The numbers among what a recording has beyond other fields.
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

/// Returns number `name` of `counters`, 0 if there is none.
fn number(counters: &Counters, name: &str) -> u64 {
    counters.get(name).copied().unwrap_or(0)
}

/// Adds each of `other` to the counter of that name.
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
    /// Returns an entity of `policy` for which nothing was counted.
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

    /// Returns counter `name`, 0 if there is none.
    pub fn counter(&self, name: &str) -> u64 {
        number(&self.counters, name)
    }

    /// Sets counter `name`.
    pub fn set(&mut self, name: &'static str, value: u64) {
        self.counters.insert(name.into(), value);
    }

    /// Takes a line that is a counter; passes over all others.
    fn count(&mut self, line: &Line<'_>) -> lines::Result {
        if let Some(counter) = self.counters.get_mut(line.key) {
            *counter = line.number()?;
        }
        Ok(())
    }

    /// Returns what was served of it in bytes, where that is known: costs in requests or time say nothing of it.
    pub fn bytes(&self) -> Option<u64> {
        in_bytes(&self.unit, self.counter("cost"))
    }
}

impl Snapshot {
    /// Returns counter `name` of the service, 0 if there is none.
    pub fn counter(&self, name: &str) -> u64 {
        number(&self.counters, name)
    }
}

impl Target {
    /// Returns counter `name`, 0 if there is none.
    pub fn counter(&self, name: &str) -> u64 {
        number(&self.counters, name)
    }
}

impl Rule {
    /// Returns counter `name`, 0 if there is none.
    pub fn counter(&self, name: &str) -> u64 {
        number(&self.counters, name)
    }

    /// Returns the limit per second and whether it is one of bytes, else of requests; `None` if it cannot be read.
    pub fn limit(&self) -> Option<(u64, bool)> {
        let rate = Rate::parse(&self.rate)?;
        Some(match rate.unit() {
            Unit::Plain if self.unit == "pages" => (rate.per_second() * PAGE, true),
            unit => (rate.per_second(), unit == Unit::Bytes),
        })
    }
}

/// Bytes of a page, as costs count them.
pub const PAGE: u64 = 4096;

/// What `cost` in `unit` is in bytes, if that is known.
pub fn in_bytes(unit: &str, cost: u64) -> Option<u64> {
    match unit {
        "bytes" => Some(cost),
        "pages" => Some(cost.saturating_mul(PAGE)),
        _ => None,
    }
}

/// Takes a snapshot of `service`.
///
/// Statistics of policies that are not started are not read.
///
/// # Errors
///
/// What [`Kernel::get`] returns; [`Kind::Other`] for a text of the module that is not as expected, with the line.
pub fn read(kernel: &dyn Kernel, service: &str) -> Result<Snapshot> {
    let reader = Reader { kernel, service };
    let mut snapshot = summary(kernel, service)?;
    if let Some(text) = reader.optional("at_stats")? {
        snapshot.timeouts = reader.expect("at_stats", plain::numbers(&text))?;
    }
    if let Some(text) = reader.optional("nrs_concurrency")? {
        snapshot.concurrency = reader.expect("nrs_concurrency", plain::numbers(&text))?;
    }
    if snapshot.runs("fairshare") {
        snapshot.entities = reader.parse("nrs_fairshare_stats", fairshare::read)?;
        let weights = reader.optional("nrs_fairshare_weights")?;
        snapshot.weighted = weights.is_some_and(|weights| !weights.trim().is_empty());
    }
    if snapshot.runs("tbf") {
        let (rules, mut classes) = reader.parse("nrs_tbf_stats", tbf::read)?;
        snapshot.rules = rules;
        snapshot.entities.append(&mut classes);
    }
    if snapshot.runs("qbm") {
        reader.bandwidth(&mut snapshot)?;
    }
    Ok(snapshot)
}

/// Of a snapshot of `service` only slots, clients, devices below, policies and health.
///
/// # Errors
///
/// As of [`read`].
pub fn summary(kernel: &dyn Kernel, service: &str) -> Result<Snapshot> {
    let reader = Reader { kernel, service };
    let mut snapshot = Snapshot {
        service: service.into(),
        at_ns: now(),
        ..Snapshot::default()
    };
    reader.parse("clients", |text| clients::read(text, &mut snapshot))?;
    snapshot.heads = reader.parse("nrs_policies", policies::read)?;
    if let Some(health) = reader.optional("health")? {
        (snapshot.unhealthy, snapshot.progress) = plain::health(&health);
    }
    Ok(snapshot)
}

/// The heads of `service` and their policies, regular first.
///
/// # Errors
///
/// As of [`read`].
pub fn heads(kernel: &dyn Kernel, service: &str) -> Result<Vec<Head>> {
    Reader { kernel, service }.parse("nrs_policies", policies::read)
}

/// The rules that tbf has on the heads of `service`.
///
/// # Errors
///
/// As of [`read`].
pub fn rules(kernel: &dyn Kernel, service: &str) -> Result<Vec<rules::Listed>> {
    Reader { kernel, service }.parse("nrs_tbf_rule", rules::read)
}

/// Of a snapshot of `service` only the slots, the clients and the devices below.
///
/// # Errors
///
/// As of [`read`].
pub fn clients(kernel: &dyn Kernel, service: &str) -> Result<Snapshot> {
    let mut snapshot = Snapshot::default();
    let reader = Reader { kernel, service };
    reader.parse("clients", |text| clients::read(text, &mut snapshot))?;
    Ok(snapshot)
}

/// Returns how many requests are queued in the policies of `heads`.
pub fn queued(heads: &[Head]) -> u64 {
    let policies = heads.iter().flat_map(|head| &head.policies);
    policies.fold(0, |sum, policy| sum.saturating_add(policy.queued))
}

impl Snapshot {
    /// Whether `policy` is started on a head, or still has requests there.
    pub fn runs(&self, policy: &str) -> bool {
        let mut policies = self.heads.iter().flat_map(|head| &head.policies);
        policies.any(|other| other.name == policy && other.state != "stopped")
    }
}

/// One that reads the texts of a service.
struct Reader<'a> {
    kernel: &'a dyn Kernel,
    service: &'a str,
}

impl Reader<'_> {
    fn parse<T>(&self, parameter: &str, f: impl FnOnce(&str) -> lines::Result<T>) -> Result<T> {
        let text = self.kernel.get(self.service, parameter)?;
        self.expect(parameter, f(&text))
    }

    /// A text that an older module does not have.
    fn optional(&self, parameter: &str) -> Result<Option<String>> {
        match self.kernel.get(self.service, parameter) {
            Ok(text) => Ok(Some(text)),
            Err(failure) if failure.kind == Kind::NotFound => {
                // The service may be gone, too.
                self.kernel.get(self.service, "clients").map(|_| None)
            }
            Err(failure) => Err(failure),
        }
    }

    fn expect<T>(&self, parameter: &str, result: lines::Result<T>) -> Result<T> {
        result.map_err(|Unexpected { number, line, want }| {
            let message = format!(
                "{parameter} of service '{}', line {number}: expected {want}, found '{line}'",
                self.service
            );
            Failure::new(Kind::Other, message)
                .hint("nrsctl and the module may be of different versions: compare nrsctl --version and modinfo nrs")
        })
    }

    /// Reads what qbm tells; nothing if it was stopped meanwhile.
    fn bandwidth(&self, snapshot: &mut Snapshot) -> Result {
        let texts = self.kernel.get(self.service, "nrs_qbm_status");
        let texts = texts.and_then(|status| {
            let stats = self.kernel.get(self.service, "nrs_qbm_stats")?;
            Ok((status, stats))
        });
        let (status, stats) = match texts {
            Ok(texts) => texts,
            Err(failure) => {
                snapshot.heads = self.parse("nrs_policies", policies::read)?;
                let started = snapshot.heads.iter().flat_map(|head| &head.policies);
                let mut started = started.filter(|policy| policy.state == "started");
                return match started.any(|policy| policy.name == "qbm") {
                    true => Err(failure),
                    false => Ok(()),
                };
            }
        };
        let (mut groups, mut clients) = self.expect("nrs_qbm_status", qbm::read_status(&status))?;
        let counted = qbm::read_stats(&stats, &mut groups, &mut clients);
        self.expect("nrs_qbm_stats", counted)?;
        snapshot.groups = groups;
        snapshot.entities.append(&mut clients);
        Ok(())
    }
}

/// Nanoseconds since the machine started, as far as its clock can be read; else since the first call.
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
