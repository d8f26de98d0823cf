// SPDX-License-Identifier: GPL-2.0-only

//! Selection of the shown entities, and the sum of all others.
//!
//! Counters of the others never decrease, whichever entities are shown: an entity's counts since
//! the last page are added if it is among the others. An exporter therefore records the last counts
//! of each entity. Without this memory, counters of the others are not shown.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::hash_map::{Entry, HashMap};
use std::iter;

use crate::stats::{merge, Entity, Snapshot, KEYS};

/// Name of the sum of all entities that are not shown.
pub const OTHERS: &str = "others";

/// Counters of an entity in the order of [`KEYS`]; the cost is in bytes.
type Counts = Vec<u64>;

fn counts(entity: &Entity) -> Counts {
    let number = |key: &&str| match *key {
        "cost" => entity.bytes().unwrap_or(0),
        key => entity.counter(key),
    };
    KEYS.iter().map(number).collect()
}

/// Counts of the entities of a policy on a head; names include the rule or group.
#[derive(Debug, Default)]
struct HeadCounts {
    /// Last counts by entity.
    seen: HashMap<String, Counts>,
    /// Sum of the counts of the others.
    sum: Counts,
    /// Page on which the entry was last used.
    round: u64,
}

/// Counts of all entities on the last page, by service, policy and head.
#[derive(Debug, Default)]
pub struct Memory {
    past: HashMap<[String; 3], HeadCounts>,
    round: u64,
}

impl Memory {
    /// Creates an empty memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a page.
    pub fn begin(&mut self) {
        self.round = self.round.wrapping_add(1);
    }

    /// Ends a page: removes entries that the page did not use.
    pub fn end(&mut self) {
        let round = self.round;
        self.past.retain(|_, past| past.round == round);
    }

    /// Adds the counts of `others` since the last page to their sum, and records the counts of
    /// `shown` and `others`. Returns the sum.
    fn count(
        &mut self,
        key: [String; 3],
        shown: &[Cow<'_, Entity>],
        others: &[Cow<'_, Entity>],
    ) -> Counts {
        let round = self.round;
        let past = self.past.entry(key).or_default();
        past.round = round;
        let mut seen = HashMap::with_capacity(shown.len() + others.len());
        for (entity, other) in (shown.iter().map(|entity| (entity, false)))
            .chain(others.iter().map(|entity| (entity, true)))
        {
            let now = counts(entity);
            let name = identity(entity);
            if other {
                let before = past.seen.get(&name).map_or(&[][..], Vec::as_slice);
                let before = before.iter().chain(iter::repeat(&0));
                past.sum.resize(now.len(), 0);
                for ((sum, now), before) in past.sum.iter_mut().zip(&now).zip(before) {
                    // A lower count: the entity was evicted and created again, or the statistics
                    // were reset. Each counter is compared separately, because bytes restart at 0
                    // when the unit of costs changes.
                    let more = now.checked_sub(*before).unwrap_or(*now);
                    *sum = sum.saturating_add(more);
                }
            }
            seen.insert(name, now);
        }
        past.seen = seen;
        past.sum.clone()
    }
}

/// Returns the unique name of an entity within its policy and head.
fn identity(entity: &Entity) -> String {
    match &entity.within {
        Some(within) if entity.policy == "qbm" => format!("{within}/{}", entity.name),
        _ => entity.name.clone(),
    }
}

/// Adds the numbers of an entity of the same name. Classes of jobs can differ only in unprintable
/// characters.
fn add(to: &mut Entity, other: &Entity) {
    let mut more = Cow::Borrowed(&other.counters);
    if to.unit != other.unit {
        to.set("cost", to.bytes().unwrap_or(0));
        to.unit = "bytes".into();
        let bytes = other.bytes().unwrap_or(0);
        more.to_mut().insert("cost".into(), bytes);
    }
    merge(&mut to.counters, &more);
    add_gauges(to, other);
}

/// Adds the gauges of `other` to `to`.
fn add_gauges(to: &mut Entity, other: &Entity) {
    to.queued = to.queued.saturating_add(other.queued);
    to.active = to.active.saturating_add(other.active);
    let shares = |entity: &Entity| [entity.share_wanted, entity.share_1s, entity.share_60s];
    let sums = [0, 1, 2].map(|i| sum_of(shares(to)[i], shares(other)[i]));
    [to.share_wanted, to.share_1s, to.share_60s] = sums;
}

/// Returns the sum of two shares, rounded to thousandths as in the module; `None` if both are
/// `None`.
fn sum_of(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    let sum = match (one, other) {
        (Some(one), Some(other)) => one + other,
        (one, other) => return one.or(other),
    };
    Some((sum * 1000.0).round() / 1000.0)
}

/// Merges elements with the same key by `add`, because labels of samples on a page must be unique.
pub fn unite<'a, T: Clone>(
    all: impl IntoIterator<Item = &'a T>,
    key: impl Fn(&T) -> String,
    add: impl Fn(&mut T, &T),
) -> Vec<Cow<'a, T>> {
    let mut united: Vec<Cow<'a, T>> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for one in all {
        match places.entry(key(one)) {
            Entry::Occupied(place) => {
                let first: Option<&mut Cow<'a, T>> = united.get_mut(*place.get());
                if let Some(first) = first {
                    add(first.to_mut(), one);
                }
            }
            Entry::Vacant(place) => {
                place.insert(united.len());
                united.push(Cow::Borrowed(one));
            }
        }
    }
    united
}

/// Entities of a snapshot selected for a page.
#[derive(Debug)]
pub struct ShownEntities<'a> {
    /// Entities with the most dispatched requests, for each policy and head.
    pub entities: Vec<Cow<'a, Entity>>,
    /// Sum of the remaining entities, for each policy and head with such entities; without counters
    /// if there is no memory.
    pub others: Vec<Entity>,
}

/// Returns the entities grouped by policy and head; no group is empty.
pub fn crowds(all: &[Entity]) -> Vec<Vec<&Entity>> {
    // Entities of a policy on a head are usually adjacent.
    let mut crowds: Vec<Vec<&Entity>> = Vec::new();
    for entity in all {
        let alike = |crowd: &&mut Vec<&Entity>| {
            crowd[0].policy == entity.policy && crowd[0].head == entity.head
        };
        match crowds.iter_mut().find(alike) {
            Some(crowd) => crowd.push(entity),
            None => crowds.push(vec![entity]),
        }
    }
    crowds
}

/// Selects at most `top` entities of each policy and head of `snapshot`.
pub fn choose<'a>(
    snapshot: &'a Snapshot,
    top: usize,
    mut memory: Option<&mut Memory>,
) -> ShownEntities<'a> {
    let mut shown = ShownEntities {
        entities: Vec::with_capacity(top.min(snapshot.entities.len())),
        others: Vec::new(),
    };
    for crowd in crowds(&snapshot.entities) {
        let key = [&snapshot.service, &crowd[0].policy, &crowd[0].head].map(String::clone);
        let mut sum = Entity {
            policy: key[1].clone(),
            head: key[2].clone(),
            name: OTHERS.into(),
            unit: "bytes".into(),
            ..Entity::default()
        };
        let mut crowd = unite(crowd, identity, add);
        if crowd.len() > top {
            let most = |e: &Cow<'_, Entity>| (Reverse(e.counter("dispatched")), e.name.clone());
            crowd.sort_by_cached_key(most);
        }
        let rest = crowd.split_off(top.min(crowd.len()));
        if let Some(memory) = memory.as_deref_mut() {
            let counts = memory.count(key, &crowd, &rest);
            sum.counters = KEYS.iter().map(|key| (*key).into()).zip(counts).collect();
        }
        shown.entities.append(&mut crowd);
        if !rest.is_empty() {
            rest.iter().for_each(|entity| add_gauges(&mut sum, entity));
            shown.others.push(sum);
        }
    }
    shown
}
