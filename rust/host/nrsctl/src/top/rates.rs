// SPDX-License-Identifier: GPL-2.0-only

//! Rates: differences of counters between two snapshots of a service, per second.
//!
//! Counters restart at 0 when they are reset, when a policy is started, and when an evicted entity
//! is created again. After a decrease of a counter the increase since the last snapshot is unknown;
//! the rates are then `None`.

use std::collections::HashMap;

use crate::stats::{self, Entity, Snapshot};

/// Rates of an entity between two snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Dispatched requests per second.
    pub requests: Option<f64>,
    /// Dispatched bytes per second; `None` unless the policy counts bytes or pages.
    pub bytes: Option<f64>,
    /// Times per second that requests were throttled by the rate limit.
    pub hits: Option<f64>,
    /// Share of the throughput, 0 to 1: as reported by the policy, otherwise among the entities of
    /// this policy and head.
    pub share: Option<f64>,
}

/// Key of an entity within a service.
type EntityKey<'a> = (&'a str, &'a str, &'a str, Option<&'a str>);

fn key(entity: &Entity) -> EntityKey<'_> {
    let Entity {
        policy,
        head,
        name,
        within,
        ..
    } = entity;
    (policy, head, name, within.as_deref())
}

/// Returns the rates of the entities of `now` in their order; unknown values are `None`.
pub fn rates(before: Option<&Snapshot>, now: &Snapshot) -> Vec<Rates> {
    let elapsed = before
        .filter(|before| before.service == now.service)
        .and_then(|before| now.at_ns.checked_sub(before.at_ns))
        .filter(|ns| *ns > 0)
        .map(|ns| ns as f64 / 1e9);
    let mut known: HashMap<EntityKey<'_>, Option<&Entity>> = HashMap::new();
    if let (Some(before), Some(_)) = (before, elapsed) {
        for entity in &before.entities {
            // Entities with the same key cannot be distinguished.
            known
                .entry(key(entity))
                .and_modify(|there| *there = None)
                .or_insert(Some(entity));
        }
    }
    let mut all: Vec<Rates> = now
        .entities
        .iter()
        .map(|entity| {
            let before = known.get(&key(entity)).copied().flatten();
            match (before, elapsed) {
                (Some(before), Some(elapsed)) => between(before, entity, elapsed),
                _ => Rates::default(),
            }
        })
        .collect();
    shares(now, &mut all);
    all
}

/// Returns the rates of an entity; all `None` if a counter has decreased.
fn between(before: &Entity, now: &Entity, elapsed: f64) -> Rates {
    let difference = |name| now.counter(name).checked_sub(before.counter(name));
    let (Some(requests), Some(cost), Some(hits), Some(_)) = (
        difference("dispatched"),
        difference("cost"),
        difference("limit_hits"),
        difference("throttled_ns"),
    ) else {
        return Rates::default();
    };
    let bytes = match now.unit == before.unit {
        true => stats::in_bytes(&now.unit, cost),
        false => None,
    };
    Rates {
        requests: Some(requests as f64 / elapsed),
        bytes: bytes.map(|bytes| bytes as f64 / elapsed),
        hits: Some(hits as f64 / elapsed),
        share: None,
    }
}

/// Sets the shares.
fn shares(now: &Snapshot, all: &mut [Rates]) {
    /// Total of the entities of a policy and head; `bytes` is `None` if an active entity has no
    /// bytes.
    struct Sum {
        requests: f64,
        bytes: Option<f64>,
    }
    let mut sums: HashMap<(&str, &str), Sum> = HashMap::new();
    for (entity, rates) in now.entities.iter().zip(&*all) {
        let Some(requests) = rates.requests else {
            continue;
        };
        let sum = sums.entry((&entity.policy, &entity.head)).or_insert(Sum {
            requests: 0.0,
            bytes: Some(0.0),
        });
        sum.requests += requests;
        if requests > 0.0 {
            sum.bytes = sum.bytes.zip(rates.bytes).map(|(all, one)| all + one);
        }
    }
    for (entity, rates) in now.entities.iter().zip(all) {
        let own = || {
            let sum = sums.get(&(entity.policy.as_str(), entity.head.as_str()))?;
            match (sum.bytes, rates.bytes) {
                (Some(all), bytes) if all > 0.0 => Some(bytes.unwrap_or(0.0) / all),
                _ if sum.requests > 0.0 => Some(rates.requests? / sum.requests),
                _ => None,
            }
        };
        rates.share = entity.share_1s.or_else(own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::samples;

    #[test]
    fn differences_per_second() {
        let all = rates(Some(&samples::fairshare(3)), &samples::fairshare(5));
        let want = Rates {
            requests: Some(400.0),
            bytes: Some(400.0 * 65536.0),
            hits: Some(0.0),
            share: Some(0.504),
        };
        assert_eq!((all[0], all[2].requests), (want, Some(200.0)));
        let all = rates(Some(&samples::tbf(0)), &samples::tbf(2));
        assert_eq!(
            (all[1].hits, all[1].bytes),
            (Some(150.0), Some(9_999_360.0))
        );
        // The first entity counts requests, so shares are computed from requests.
        assert_eq!((all[0].bytes, all[0].share), (None, Some(0.5)));
        // Both entities count bytes.
        let with = |n: u64| {
            let mut snapshot = samples::tbf(n);
            snapshot.entities[0].unit = "bytes".into();
            snapshot.entities[0].set("cost", 3 * 9_999_360 * n);
            snapshot
        };
        let all = rates(Some(&with(0)), &with(1));
        assert_eq!((all[0].share, all[1].share), (Some(0.75), Some(0.25)));
        // No requests were dispatched.
        let mut later = with(1);
        later.at_ns += 1;
        assert_eq!(rates(Some(&with(1)), &later)[0].share, None);
    }

    #[test]
    fn what_cannot_be_known_is_not_given() {
        let (before, now) = (samples::tbf(3), samples::tbf(5));
        let mut other = before.clone();
        other.service = "other".into();
        let mut twice = before.clone();
        twice.entities[0] = twice.entities[1].clone();
        // No snapshot; equal or decreasing times; another service; two entities with the same name.
        for (before, now) in [
            (None, &now),
            (Some(&now), &now),
            (Some(&now), &before),
            (Some(&other), &now),
            (Some(&twice), &now),
        ] {
            assert_eq!(rates(before, now), [Rates::default(); 2]);
        }
        // An entity that is not in the first snapshot.
        let mut fewer = before.clone();
        fewer.entities.remove(0);
        let all = rates(Some(&fewer), &now);
        assert_eq!((all[0].requests, all[1].requests), (None, Some(650.0)));
        // A reset of counters.
        for counter in ["dispatched", "cost", "limit_hits", "throttled_ns"] {
            let mut reset = now.clone();
            reset.entities[1].set(counter, 0);
            assert_eq!(rates(Some(&before), &reset)[1], Rates::default());
        }
        // Another unit: only the bytes are unknown.
        let mut unit = now.clone();
        unit.entities[1].unit = "requests".into();
        let all = rates(Some(&before), &unit);
        assert_eq!((all[1].bytes, all[1].requests), (None, Some(650.0)));
    }

    #[test]
    fn the_greatest_numbers_do_no_harm() {
        let (mut before, mut now) = (samples::tbf(0), samples::tbf(1));
        for (entity, to) in [
            (&mut before.entities[1], 0),
            (&mut now.entities[1], u64::MAX),
        ] {
            entity.unit = "pages".into();
            for counter in ["dispatched", "cost", "limit_hits", "throttled_ns"] {
                entity.set(counter, to);
            }
        }
        for rates in rates(Some(&before), &now) {
            let all = [rates.requests, rates.bytes, rates.hits, rates.share];
            assert!(all.iter().flatten().all(|v| v.is_finite() && *v >= 0.0));
        }
    }
}
