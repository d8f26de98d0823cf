// SPDX-License-Identifier: GPL-2.0-only

//! Who is shown, and what all others come to.
//!
//! What is shown of the others as counters only goes up, whoever is shown and whoever is not: what each entity has
//! counted since it was last seen is added when it is one of the others. So an exporter keeps what it saw of each
//! entity of the module; without that memory the counters of the others are not shown.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::hash_map::{Entry, HashMap};
use std::iter;

use crate::stats::{merge, Entity, Snapshot, KEYS};

/// The name of all entities that are not shown.
pub const OTHERS: &str = "others";

/// The counters of an entity in the order of [`KEYS`], its cost in bytes.
type Counts = Vec<u64>;

fn counts(entity: &Entity) -> Counts {
    let number = |key: &&str| match *key {
        "cost" => entity.bytes().unwrap_or(0),
        key => entity.counter(key),
    };
    KEYS.iter().map(number).collect()
}

/// The entities of a policy on a head; names are told apart with the rule or group that they are in.
#[derive(Debug, Default)]
struct Past {
    /// What was seen of each last time.
    seen: HashMap<String, Counts>,
    /// What the others have come to.
    sum: Counts,
    /// When it was last asked for.
    round: u64,
}

/// What was seen of all entities last time.
#[derive(Debug, Default)]
pub struct Memory {
    past: HashMap<(String, String, String), Past>,
    round: u64,
}

impl Memory {
    /// Nothing was seen.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a page.
    pub fn begin(&mut self) {
        self.round = self.round.wrapping_add(1);
    }

    /// Ends a page: what was not asked for since its begin is forgotten.
    pub fn end(&mut self) {
        let round = self.round;
        self.past.retain(|_, past| past.round == round);
    }

    /// Adds to what the others came to what `others` counted since last time; remembers all of `shown` and `others`.
    fn count(
        &mut self,
        key: (String, String, String),
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
                    // Less than before: it was forgotten and has come back, or somebody reset the statistics. One
                    // counter says nothing of another: that of bytes begins anew with the unit of costs.
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

/// What tells an entity apart within its policy and head.
fn identity(entity: &Entity) -> String {
    match &entity.within {
        Some(within) if entity.policy == "qbm" => format!("{within}/{}", entity.name),
        _ => entity.name.clone(),
    }
}

/// Adds what is told of an entity of the same name: classes of jobs whose names differ in what does not print only.
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

/// The same of what does not only grow.
fn add_gauges(to: &mut Entity, other: &Entity) {
    to.queued = to.queued.saturating_add(other.queued);
    to.active = to.active.saturating_add(other.active);
    let shares = |entity: &Entity| [entity.share_wanted, entity.share_1s, entity.share_60s];
    let sums = [0, 1, 2].map(|i| sum_of(shares(to)[i], shares(other)[i]));
    [to.share_wanted, to.share_1s, to.share_60s] = sums;
}

/// The sum of two shares, in thousandths as the module shows them; none if there are none.
fn sum_of(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    let sum = match (one, other) {
        (Some(one), Some(other)) => one + other,
        (one, other) => return one.or(other),
    };
    Some((sum * 1000.0).round() / 1000.0)
}

/// All of `all`, where those of the same key are one that `add` made of them: a page must not tell twice of the same.
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

/// Those of a snapshot whose metrics are shown.
#[derive(Debug)]
pub struct Shown<'a> {
    /// The entities that were served most, of each policy and head.
    pub entities: Vec<Cow<'a, Entity>>,
    /// One for all others of each policy and head that has others.
    pub others: Vec<Entity>,
    /// Whether the counters of the others may be shown.
    pub counted: bool,
}

/// Returns the entities of each policy on each head; none of the lists is empty.
pub fn crowds(all: &[Entity]) -> Vec<Vec<&Entity>> {
    // Those of a policy on a head stand together, in most cases.
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

/// Who of `snapshot` is shown if at most `top` of each policy and head may be.
pub fn choose<'a>(
    snapshot: &'a Snapshot,
    top: usize,
    mut memory: Option<&mut Memory>,
) -> Shown<'a> {
    let mut shown = Shown {
        entities: Vec::with_capacity(top.min(snapshot.entities.len())),
        others: Vec::new(),
        counted: memory.is_some(),
    };
    for crowd in crowds(&snapshot.entities) {
        let (policy, head) = (crowd[0].policy.clone(), crowd[0].head.clone());
        let mut crowd = unite(crowd, identity, add);
        if crowd.len() > top {
            let most = |e: &Cow<'_, Entity>| (Reverse(e.counter("dispatched")), e.name.clone());
            crowd.sort_by_cached_key(most);
        }
        let rest = crowd.split_off(top.min(crowd.len()));
        let counts = memory.as_deref_mut().map(|memory| {
            let key = (snapshot.service.clone(), policy.clone(), head.clone());
            memory.count(key, &crowd, &rest)
        });
        shown.entities.append(&mut crowd);
        if !rest.is_empty() {
            let mut sum = sum(&rest, &policy, head);
            for (key, count) in KEYS.iter().zip(counts.unwrap_or_default()) {
                sum.set(key, count);
            }
            sum.unit = "bytes".into();
            shown.others.push(sum);
        }
    }
    shown
}

/// What `rest` come to, without what was counted.
fn sum(rest: &[Cow<'_, Entity>], policy: &str, head: String) -> Entity {
    let mut sum = Entity {
        head,
        ..Entity::new(policy, OTHERS.into())
    };
    for entity in rest {
        add_gauges(&mut sum, entity);
    }
    sum
}
