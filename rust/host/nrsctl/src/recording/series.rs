// SPDX-License-Identifier: GPL-2.0-only

//! Time series of a recording, one for each entity.
//!
//! An entity keeps its series when the policy changes, because its name denotes the same user.

use std::collections::BTreeMap;

use crate::stats::{self, Entity, Snapshot};
use crate::top::rates::{rates, Rates};
use crate::top::{numbers, view};

/// Quantity of an entity over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SeriesKind {
    /// Share of the head's throughput.
    Share,
    /// Bytes per second; requests per second if no bytes are counted.
    Rate,
    /// 99th percentile of the queueing time, ms.
    Wait,
    /// Number of queued requests.
    Queue,
    /// Times per second that requests were throttled by the rate limit.
    Limit,
}

/// Points of an entity: seconds since the first snapshot, and the value.
pub type Points = Vec<(f64, f64)>;

/// Key of an entity of a service: head and name.
type SeriesKey = (String, String);

/// Rates and entities of one snapshot.
type Those<'a> = BTreeMap<SeriesKey, (Rates, &'a Entity)>;

/// Time series of a service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Points by entity name, with the head appended for the high-priority head.
    pub entities: BTreeMap<String, Points>,
    /// Times (s) and names of policies: the initial policies and each change.
    pub policies: Vec<(f64, String)>,
    /// True if rates are bytes per second.
    pub bytes: bool,
}

impl Series {
    /// Creates the series of `what` from snapshots of one service, for the entities that satisfy
    /// `wanted`.
    pub fn new<'a>(
        snapshots: impl Iterator<Item = &'a Snapshot>,
        what: SeriesKind,
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
                // During a change of policy, both policies may list an entity. The policy that
                // dispatches more of its requests is used.
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
                    SeriesKind::Share => rates.share,
                    SeriesKind::Rate if series.bytes => rates.bytes,
                    SeriesKind::Rate => rates.requests,
                    SeriesKind::Wait => entity.wait_us.get("p99").map(|us| *us as f64 / 1000.0),
                    SeriesKind::Queue => Some(entity.queued as f64),
                    SeriesKind::Limit => rates.hits.filter(|_| entity.limit.is_some()),
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

    /// Returns the `most` entities with the highest means in descending order; if `sum` is true,
    /// followed by the sum of all others.
    pub fn top(&self, most: usize, sum: bool) -> Vec<(String, Points)> {
        let mean = |points: &Points| points.iter().map(|p| p.1).sum::<f64>() / points.len() as f64;
        let mut all: Vec<(&String, &Points)> = self.entities.iter().collect();
        all.sort_by(|a, b| mean(b.1).total_cmp(&mean(a.1)));
        // A single remaining entity is listed by name instead of as a sum.
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
                // Times are not negative, so their bit patterns have the same order as the numbers.
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

/// Returns the policy of the regular head; of all heads if another head has a policy of its own.
fn policies(snapshot: &Snapshot) -> String {
    let does: Vec<String> = snapshot.heads.iter().map(view::head_policies).collect();
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

    fn series(snapshots: &[Snapshot], what: SeriesKind) -> Series {
        Series::new(snapshots.iter(), what, |_| true)
    }

    #[test]
    fn a_series_for_each_entity() {
        let snapshots: Vec<Snapshot> = (0..4).map(samples::fairshare).collect();
        let share = series(&snapshots, SeriesKind::Share);
        assert_eq!(share.entities.len(), 3);
        assert_eq!(
            share.entities["uid:1001/jobid:small"],
            [(0.0, 0.504), (1.0, 0.504), (2.0, 0.504), (3.0, 0.504)]
        );
        assert_eq!(
            share.policies,
            [(0.0, "fairshare uid_then_jobid_fair".to_string())]
        );
        let rate = series(&snapshots, SeriesKind::Rate);
        assert!(rate.bytes);
        // The first snapshot has no rates.
        assert_eq!(
            rate.entities["uid:1002/jobid:large"][0],
            (1.0, 200.0 * 65536.0)
        );
        assert_eq!(
            series(&snapshots, SeriesKind::Wait).entities["uid:1001/jobid:small"][0],
            (0.0, 83.886)
        );
        assert_eq!(
            series(&snapshots, SeriesKind::Queue).entities["uid:1002/jobid:large"][0],
            (0.0, 300.0)
        );
        assert!(series(&snapshots, SeriesKind::Limit).entities.is_empty());
        let some = Series::new(snapshots.iter(), SeriesKind::Queue, |name| {
            name.ends_with("large")
        });
        assert_eq!(some.entities.len(), 1);
        assert_eq!(series(&[], SeriesKind::Share), Series::default());
    }

    #[test]
    fn an_entity_survives_a_change_of_policy() {
        let mut snapshots: Vec<Snapshot> = (0..3).map(samples::tbf).collect();
        snapshots[0] = samples::fairshare(0);
        snapshots[0].entities[0].name = "uid:1001".into();
        // The second snapshot lists the entity for both policies; the old policy dispatches none of
        // its requests.
        let mut old = snapshots[0].entities[0].clone();
        old.share_1s = Some(0.9);
        snapshots[1].entities.push(old.clone());
        snapshots[2].entities.insert(0, old);
        let share = series(&snapshots, SeriesKind::Share);
        // In the second snapshot, the rates of tbf are unknown and the share of fairshare is known.
        assert_eq!(
            share.entities["uid:1001"],
            [(0.0, 0.504), (1.0, 0.9), (2.0, 0.5)]
        );
        assert_eq!(share.policies.len(), 2);
        assert_eq!(share.policies[1], (1.0, "tbf uid".to_string()));
        assert_eq!(
            series(&snapshots, SeriesKind::Limit).entities["uid:1002"],
            [(2.0, 150.0)]
        );
    }

    #[test]
    fn top_entities_and_sum_of_the_rest() {
        let snapshots: Vec<Snapshot> = (0..3).map(|n| samples::many(n, 20)).collect();
        let rate = series(&snapshots, SeriesKind::Rate);
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
