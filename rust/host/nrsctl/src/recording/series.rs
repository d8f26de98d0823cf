// SPDX-License-Identifier: GPL-2.0-only

//! What a recording says over time, a series for each entity.
//!
//! An entity keeps its series when another policy takes over, as a user is the same user for both.

use std::collections::BTreeMap;

use crate::stats::{self, Entity, Snapshot};
use crate::top::rates::{rates, Rates};
use crate::top::{numbers, view};

/// What of an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum What {
    /// What part it had of what was served.
    Share,
    /// Bytes per second; requests, if nobody's bytes are counted.
    Rate,
    /// How long 99 of 100 of its requests waited, at most.
    Wait,
    /// Requests that waited.
    Queue,
    /// How often it met its limit.
    Limit,
}

/// Points of an entity: seconds since the first snapshot, and the value.
pub type Points = Vec<(f64, f64)>;

/// An entity of a service: its head, if that is not the regular one, and name.
type Key = (String, String);

/// What is known of the entities at one time.
type Those<'a> = BTreeMap<Key, (Rates, &'a Entity)>;

/// The series of a service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// The entities, by name.
    pub entities: BTreeMap<String, Points>,
    /// When policies changed, and to what; the first one is what it began with.
    pub policies: Vec<(f64, String)>,
    /// Whether rates are bytes.
    pub bytes: bool,
}

impl Series {
    /// What snapshots of one service say; `wanted` says which entities.
    pub fn new<'a>(
        snapshots: impl Iterator<Item = &'a Snapshot>,
        what: What,
        wanted: impl Fn(&str) -> bool,
    ) -> Self {
        let snapshots: Vec<&Snapshot> = snapshots.collect();
        let mut series = Self::default();
        let Some(first) = snapshots.first() else {
            return series;
        };
        let mut values: Vec<(f64, Those<'_>)> = Vec::new();
        let mut before = None;
        for snapshot in snapshots.iter().copied() {
            let at = snapshot.at_ns.saturating_sub(first.at_ns) as f64 / 1e9;
            let policy = policies(snapshot);
            if series
                .policies
                .last()
                .is_none_or(|(_, last)| *last != policy)
            {
                series.policies.push((at, policy));
            }
            let mut those = Those::new();
            for (rates, entity) in rates(before, snapshot).into_iter().zip(&snapshot.entities) {
                if !wanted(&entity.name) {
                    continue;
                }
                // While one policy ends and another begins both know it: the one that serves it counts.
                let more = |there: &(Rates, &Entity)| rates.requests > there.0.requests;
                let key = (entity.head.clone(), entity.name.clone());
                if those.get(&key).is_none_or(more) {
                    those.insert(key, (rates, entity));
                }
            }
            values.push((at, those));
            before = Some(snapshot);
        }
        let all = || values.iter().flat_map(|(_, those)| those.values());
        series.bytes = all().any(|(rates, _)| rates.bytes.is_some_and(|bytes| bytes > 0.0));
        for (at, those) in &values {
            for ((head, name), (rates, entity)) in those {
                let value = match what {
                    What::Share => rates.share,
                    What::Rate if series.bytes => rates.bytes,
                    What::Rate => rates.requests,
                    What::Wait => entity.wait_us.get("p99").map(|us| *us as f64 / 1000.0),
                    What::Queue => Some(entity.queued as f64),
                    What::Limit => rates.hits.filter(|_| entity.limit.is_some()),
                };
                let Some(value) = value.filter(|value| value.is_finite()) else {
                    continue;
                };
                let shown = match head.as_str() {
                    stats::HIGH => format!("{name} ({head})"),
                    _ => name.clone(),
                };
                series.entities.entry(shown).or_default().push((*at, value));
            }
        }
        series
    }

    /// The `most` entities with the greatest means, the greatest first; the others' sum is a last one if `sum` says so.
    pub fn top(&self, most: usize, sum: bool) -> Vec<(String, Points)> {
        let mean = |points: &Points| points.iter().map(|p| p.1).sum::<f64>() / points.len() as f64;
        let mut all: Vec<(&String, &Points)> = self.entities.iter().collect();
        all.sort_by(|a, b| mean(b.1).total_cmp(&mean(a.1)));
        // One other is shown by its name.
        let most = if sum && all.len() == most + 1 {
            all.len()
        } else {
            most
        };
        let others = all.split_off(most.min(all.len()));
        let own = |(name, points): (&String, &Points)| (name.clone(), points.clone());
        let mut top: Vec<_> = all.into_iter().map(own).collect();
        if sum && !others.is_empty() {
            let mut sums: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
            for (at, value) in others.iter().flat_map(|(_, points)| points.iter()) {
                // Not negative, so the bits are in the order of the numbers.
                sums.entry(at.to_bits()).or_insert((*at, 0.0)).1 += value;
            }
            top.push((
                format!("{} others", others.len()),
                sums.into_values().collect(),
            ));
        }
        top
    }
}

/// What the regular head does; what all heads do, if another one does something of its own.
fn policies(snapshot: &Snapshot) -> String {
    let does: Vec<String> = snapshot.heads.iter().map(view::head_does).collect();
    match does.split_first() {
        Some((regular, others)) if others.iter().all(|one| one == regular || one == "fifo") => {
            numbers::printable(regular)
        }
        _ => view::policies(&snapshot.heads),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::samples;

    fn series(snapshots: &[Snapshot], what: What) -> Series {
        Series::new(snapshots.iter(), what, |_| true)
    }

    #[test]
    fn a_series_for_each_entity() {
        let snapshots: Vec<Snapshot> = (0..4).map(samples::fairshare).collect();
        let share = series(&snapshots, What::Share);
        assert_eq!(share.entities.len(), 3);
        assert_eq!(
            share.entities["uid:1001/jobid:small"],
            [(0.0, 0.504), (1.0, 0.504), (2.0, 0.504), (3.0, 0.504)]
        );
        assert_eq!(
            share.policies,
            [(0.0, "fairshare uid_then_jobid_fair".to_string())]
        );
        let rate = series(&snapshots, What::Rate);
        assert!(rate.bytes);
        // Nothing is known at the first one.
        assert_eq!(
            rate.entities["uid:1002/jobid:large"][0],
            (1.0, 200.0 * 65536.0)
        );
        assert_eq!(
            series(&snapshots, What::Wait).entities["uid:1001/jobid:small"][0],
            (0.0, 83.886)
        );
        assert_eq!(
            series(&snapshots, What::Queue).entities["uid:1002/jobid:large"][0],
            (0.0, 300.0)
        );
        assert!(series(&snapshots, What::Limit).entities.is_empty());
        let some = Series::new(snapshots.iter(), What::Queue, |name| {
            name.ends_with("large")
        });
        assert_eq!(some.entities.len(), 1);
        assert_eq!(series(&[], What::Share), Series::default());
    }

    #[test]
    fn an_entity_survives_a_change_of_policy() {
        let mut snapshots: Vec<Snapshot> = (0..3).map(samples::tbf).collect();
        snapshots[0] = samples::fairshare(0);
        snapshots[0].entities[0].name = "uid:1001".into();
        // In the second one both policies list it; the old one serves nobody any more.
        let mut old = snapshots[0].entities[0].clone();
        old.share_1s = Some(0.9);
        snapshots[1].entities.push(old.clone());
        snapshots[2].entities.insert(0, old);
        let share = series(&snapshots, What::Share);
        // Of the second nothing is known of tbf, and all of fairshare.
        assert_eq!(
            share.entities["uid:1001"],
            [(0.0, 0.504), (1.0, 0.9), (2.0, 0.5)]
        );
        assert_eq!(share.policies.len(), 2);
        assert_eq!(share.policies[1], (1.0, "tbf uid".to_string()));
        assert_eq!(
            series(&snapshots, What::Limit).entities["uid:1002"],
            [(2.0, 150.0)]
        );
    }

    #[test]
    fn the_greatest_and_the_others() {
        let snapshots: Vec<Snapshot> = (0..3).map(|n| samples::many(n, 20)).collect();
        let rate = series(&snapshots, What::Rate);
        let top = rate.top(3, true);
        let names: Vec<&str> = top.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["uid:19", "uid:18", "uid:17", "17 others"]);
        // 0 to 16 requests of 4 KiB.
        assert_eq!(top[3].1, [(1.0, 136.0 * 4096.0), (2.0, 136.0 * 4096.0)]);
        assert_eq!(rate.top(3, false).len(), 3);
        assert_eq!(rate.top(50, true).len(), 20);
        assert_eq!(rate.top(19, true)[19].0, "uid:0");
        assert_eq!(rate.top(19, false).len(), 19);
    }
}
