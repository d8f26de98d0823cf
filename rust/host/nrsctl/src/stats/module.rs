// SPDX-License-Identifier: GPL-2.0-only

//! The parameter `snapshot`: what a service shows, as JSON.
//!
//! The object has a member for each parameter that shows a structured text, with the keys of that
//! text. Most members become parts of a [`Snapshot`] as they are; entities, rules and groups are
//! read key by key ([`Record`]). Unknown keys of newer modules are ignored, and what an older
//! module lacks has its default.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;

use nrs_sched::policy::tbf::{class::ClassCounts, stats::RuleCounts};
use nrs_sched::policy::Kind;
use nrs_sched::statistics::{ServiceCounts, Stats};
use serde::de::{DeserializeOwned, Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{
    numbers, Bandwidth, Client, Counters, Entity, Group, Head, Rule, Snapshot, Target, BOTH, HIGH,
    REGULAR,
};

/// A map that is read key by key into a value.
struct Record<T>(T);

/// Value that a map is read into.
trait FromFields: Default {
    /// Takes one key and its value.
    fn field(&mut self, key: &str, value: Value) -> serde_json::Result<()>;
}

impl<'de, T: FromFields> Deserialize<'de> for Record<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);
        impl<'de, T: FromFields> Visitor<'de> for Fields<T> {
            type Value = Record<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Record<T>, M::Error> {
                let mut record = T::default();
                while let Some(key) = map.next_key::<Key<'de>>()? {
                    let done = record.field(&key.0, map.next_value()?);
                    done.map_err(|error| M::Error::custom(format!("{}: {error}", key.0)))?;
                }
                Ok(Record(record))
            }
        }
        from.deserialize_map(Fields(PhantomData))
    }
}

/// Key of a map, without a copy.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

/// Reads `value`.
fn get<T: DeserializeOwned>(value: Value) -> serde_json::Result<T> {
    serde_json::from_value(value)
}

/// All members of the object.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ModuleSnapshot {
    clients: Clients,
    health: Health,
    nrs_policies: Vec<Head>,
    #[serde(deserialize_with = "numbers")]
    at_stats: Counters,
    #[serde(deserialize_with = "numbers")]
    nrs_concurrency: Counters,
    nrs_fairshare_stats: Vec<Record<FairshareEntity>>,
    nrs_tbf_stats: Tbf,
    nrs_qbm_status: Vec<Record<QbmGroup>>,
    nrs_qbm_stats: Vec<Record<QbmGroup>>,
}

#[derive(Deserialize)]
#[serde(default)]
struct Health {
    healthy: bool,
    progress: String,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            healthy: true,
            progress: String::new(),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Clients {
    #[serde(deserialize_with = "numbers")]
    service: Counters,
    clients: Vec<Counted>,
    targets: Vec<Counted>,
}

/// A client or a target.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Counted {
    #[serde(alias = "client", alias = "target")]
    name: String,
    counters: StateCounters,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StateCounters {
    state: String,
    #[serde(flatten, deserialize_with = "numbers")]
    numbers: Counters,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Tbf {
    rules: Vec<Record<Rule>>,
    classes: Vec<Record<TbfClass>>,
}

/// Returns the name of a head for its name in a text.
fn head(value: Value) -> serde_json::Result<String> {
    let name = match &*get::<String>(value)? {
        "reg" | "regular" => REGULAR,
        "hp" | "high_priority" => HIGH,
        _ => return Err(Error::custom("expected a head")),
    };
    Ok(name.into())
}

/// Entity of fairshare.
struct FairshareEntity(Entity);

impl Default for FairshareEntity {
    fn default() -> Self {
        Self(Entity {
            head: REGULAR.into(),
            unit: "pages".into(),
            ..Entity::new("fairshare", String::new())
        })
    }
}

impl FromFields for FairshareEntity {
    fn field(&mut self, key: &str, value: Value) -> serde_json::Result<()> {
        let entity = &mut self.0;
        match key {
            "entity" => entity.name = get(value)?,
            "active" => entity.busy = get(value)?,
            "cost_pages" => entity.set("cost", get(value)?),
            "fairness_debt" => entity.debt_pages = Some(get(value)?),
            "queue_depth" => entity.queued = get(value)?,
            "queue" => entity.head = head(value)?,
            "weight" => entity.weight = Some(get(value)?),
            "factor" => entity.factor = Some(get(value)?),
            "share_wanted" => entity.share_wanted = Some(get(value)?),
            "share_1s" => entity.share_1s = Some(get(value)?),
            "share_60s" => entity.share_60s = Some(get(value)?),
            "borrowed" => entity.share_borrowed = Some(get(value)?),
            "wait_us" => entity.wait_us = get(value)?,
            _ => entity.count(key, value)?,
        }
        Ok(())
    }
}

/// Class of tbf.
struct TbfClass(Entity);

impl Default for TbfClass {
    fn default() -> Self {
        Self(Entity::new("tbf", String::new()))
    }
}

impl FromFields for TbfClass {
    fn field(&mut self, key: &str, value: Value) -> serde_json::Result<()> {
        let class = &mut self.0;
        match key {
            "class" => class.name = get(value)?,
            "head" => class.head = head(value)?,
            "rule" => class.within = Some(get(value)?),
            "rate" => class.limit = Some(get(value)?),
            "unit" => class.unit = get(value)?,
            "queued" => class.queued = get(value)?,
            "active" => class.active = get(value)?,
            _ => class.count(key, value)?,
        }
        Ok(())
    }
}

impl FromFields for Rule {
    fn field(&mut self, key: &str, value: Value) -> serde_json::Result<()> {
        match key {
            "rule" => self.name = get(value)?,
            "head" => self.head = head(value)?,
            "rate" => self.rate = get(value)?,
            "unit" => self.unit = get(value)?,
            _ => {
                let mut rows = RuleCounts::ROWS.iter().chain(ClassCounts::ROWS);
                if let Some(row) = rows.find(|row| row.name == key) {
                    self.counters.insert(row.name.into(), get(value)?);
                }
            }
        }
        Ok(())
    }
}

/// Group of qbm with its clients.
#[derive(Default)]
struct QbmGroup {
    group: Group,
    clients: Vec<Record<QbmClient>>,
}

impl FromFields for QbmGroup {
    fn field(&mut self, key: &str, value: Value) -> serde_json::Result<()> {
        let Group {
            name,
            strategy,
            counters,
        } = &mut self.group;
        match key {
            "group" => *name = get(value)?,
            "strategy" => *strategy = get(value)?,
            "clients" => self.clients = get(value)?,
            "reserves" => {
                let reserves = numbers(value)?.into_iter();
                counters.extend(reserves.map(|(class, n)| (format!("reserve_{class}").into(), n)));
            }
            _ => {
                let number = value.as_u64();
                counters.extend(number.map(|number| (key.to_string().into(), number)));
            }
        }
        Ok(())
    }
}

/// Client of qbm.
struct QbmClient(Entity);

impl Default for QbmClient {
    fn default() -> Self {
        Self(Entity {
            head: BOTH.into(),
            unit: "bytes".into(),
            bandwidth: Some(Bandwidth::default()),
            ..Entity::new("qbm", String::new())
        })
    }
}

impl FromFields for QbmClient {
    fn field(&mut self, key: &str, value: Value) -> serde_json::Result<()> {
        let client = &mut self.0;
        let given = client.bandwidth.get_or_insert_default();
        match key {
            "client" => client.name = get(value)?,
            "class" => given.class = get(value)?,
            "min" => given.min = get(value)?,
            "max" => given.max = get(value)?,
            "allocated" => {
                // A word says that the client is not regulated.
                given.allocated = value.as_u64();
                client.limit = given.allocated.map(|rate| rate.to_string());
            }
            "unmet" => given.unmet = get(value)?,
            "used_fast" => given.used_fast = get(value)?,
            "used_slow" => given.used_slow = get(value)?,
            "requests" => client.set("dispatched", get(value)?),
            "read_bytes" | "written_bytes" => {
                let cost = client.counter("cost");
                client.set("cost", cost.saturating_add(get(value)?));
            }
            "sleeps" => client.set("limit_hits", get(value)?),
            _ => {}
        }
        Ok(())
    }
}

impl Entity {
    /// Takes a number that is a counter; ignores others.
    fn count(&mut self, key: &str, value: Value) -> serde_json::Result<()> {
        if let Some(counter) = self.counters.get_mut(key) {
            *counter = get(value)?;
        }
        Ok(())
    }
}

/// Returns the groups of qbm, and the clients of all groups, with the counters of `counted`. Groups
/// and clients that were added or removed between the two are left as they are.
fn qbm(status: Vec<Record<QbmGroup>>, counted: Vec<Record<QbmGroup>>) -> (Vec<Group>, Vec<Entity>) {
    let (mut groups, mut clients) = (Vec::new(), Vec::new());
    let mut places = HashMap::new();
    for Record(QbmGroup {
        group,
        clients: own,
    }) in status
    {
        for Record(QbmClient(mut client)) in own {
            client.within = Some(group.name.clone());
            places.insert((group.name.clone(), client.name.clone()), clients.len());
            // The number since the client registered; that since the last reset follows.
            client.set("limit_hits", 0);
            clients.push(client);
        }
        groups.push(group);
    }
    for Record(QbmGroup {
        group,
        clients: own,
    }) in counted
    {
        for Record(QbmClient(client)) in own {
            let place = places.get(&(group.name.clone(), client.name));
            if let Some(known) = place.and_then(|place| clients.get_mut(*place)) {
                known.counters = client.counters;
            }
        }
        let known = groups
            .iter_mut()
            .find(|known: &&mut Group| known.name == group.name);
        if let Some(known) = known {
            known.counters.extend(group.counters);
        }
    }
    (groups, clients)
}

/// Reads `text` as the snapshot of a service.
///
/// # Errors
///
/// `text` is not the JSON of a module.
pub fn read(text: &str) -> serde_json::Result<Snapshot> {
    let module: ModuleSnapshot = serde_json::from_str(text)?;
    let counted = |one: Counted| (one.name, one.counters);
    let clients = module.clients.clients.into_iter().map(counted);
    let targets = module.clients.targets.into_iter().map(counted);
    let is_row = |name: &str| ServiceCounts::ROWS.iter().any(|row| row.name == name);
    let mut counters = module.clients.service;
    counters.retain(|name, _| is_row(name));
    let mut heads = module.nrs_policies;
    for policy in heads.iter_mut().flat_map(|head| &mut head.policies) {
        let counts = Kind::from_name(&policy.name).map_or(&[][..], Kind::counts);
        let is_row = |name: &str| counts.iter().any(|row| row.name == name);
        policy.counters.retain(|name, _| is_row(name));
    }
    let (groups, qbm_clients) = qbm(module.nrs_qbm_status, module.nrs_qbm_stats);
    let entities = module.nrs_fairshare_stats.into_iter();
    let entities = entities.map(|Record(FairshareEntity(entity))| entity);
    let classes = module.nrs_tbf_stats.classes.into_iter();
    let classes = classes.map(|Record(TbfClass(class))| class);
    let health = module.health;
    Ok(Snapshot {
        counters,
        unhealthy: (!health.healthy).then(|| health.progress.clone()),
        progress: health.progress,
        heads,
        clients: clients
            .map(|(name, counters)| Client {
                name,
                lost: counters.state == "lost",
                counters: counters.numbers,
            })
            .collect(),
        targets: targets
            .map(|(name, counters)| Target {
                name,
                counters: counters.numbers,
            })
            .collect(),
        entities: entities.chain(classes).chain(qbm_clients).collect(),
        rules: module
            .nrs_tbf_stats
            .rules
            .into_iter()
            .map(|rule| rule.0)
            .collect(),
        groups,
        timeouts: module.at_stats,
        concurrency: module.nrs_concurrency,
        ..Snapshot::default()
    })
}
