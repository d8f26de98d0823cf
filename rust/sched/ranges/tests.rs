// SPDX-License-Identifier: GPL-2.0-only

//! Comparison of ranges with exact shares, computed with 128 bits.

use super::*;
use crate::sched::rng::Rng;

/// Maximum weight of an entity.
const WEIGHT_MAX: u32 = (1 << 31) - 1;

fn leaf(id: u64, parent: u64, weight: u32) -> NodeReport {
    NodeReport {
        id,
        parent,
        weight,
        leaf: true,
        active: true,
        part: 0,
    }
}

fn inner(id: u64, parent: u64, weight: u32) -> NodeReport {
    NodeReport {
        leaf: false,
        active: false,
        ..leaf(id, parent, weight)
    }
}

fn build(reports: &[NodeReport]) -> PublishedRanges {
    let mut builder = RangeBuilder::new();
    builder.extend(reports).unwrap();
    builder.build().unwrap()
}

/// Returns the length of the range of each leaf of `reports`, after checking that ranges cover
/// everything, nest, and are found at both ends.
fn lengths(reports: &[NodeReport]) -> Vec<u64> {
    let published = build(reports);
    let table = &published.table;
    let mut ranges: Vec<LeafRange> = Vec::new();
    let leaves = reports.iter().filter(|report| report.leaf);
    let lengths = leaves
        .map(|report| {
            let Some(range) = table.range_of(report.id) else {
                assert!(!report.active, "{report:?} has no range");
                return 0;
            };
            assert!(report.active && range.len() > 0);
            assert_eq!(table.find(range.lo), Some(report.id));
            assert_eq!(table.find((range.end - 1) as u32), Some(report.id));
            ranges.push(range);
            range.len()
        })
        .collect();
    ranges.sort_by_key(|range| range.lo);
    let mut from = 0;
    for range in &ranges {
        assert_eq!(u64::from(range.lo), from);
        from = range.end;
    }
    assert_eq!(table.len(), ranges.len());
    assert_eq!(from, if table.is_empty() { 0 } else { WHOLE });
    assert_eq!(published.by_part.iter().sum::<u64>(), from);
    lengths
}

#[test]
fn known_shares_of_one_level() {
    const THIRD: u64 = WHOLE / 3;
    for (weights, want) in [
        (&[][..], &[][..]),
        (&[5], &[WHOLE]),
        (&[1, 1], &[WHOLE / 2, WHOLE / 2]),
        (&[1, 3], &[WHOLE / 4, WHOLE / 4 * 3]),
        // Boundaries at 1/3 and 2/3, rounded down.
        (&[1, 1, 1], &[THIRD, THIRD, THIRD + 1]),
        // Weight 0 counts as 1.
        (&[0, 1], &[WHOLE / 2, WHOLE / 2]),
        // Exactly one number.
        (&[1, u32::MAX], &[1, WHOLE - 1]),
        // Less than one number: one for each leaf first, then the rest by weight.
        (&[1, u32::MAX, u32::MAX], &[1, WHOLE / 2 - 1, WHOLE / 2]),
    ] {
        let reports: Vec<NodeReport> = (1..).zip(weights).map(|(id, w)| leaf(id, 0, *w)).collect();
        assert_eq!(lengths(&reports), want, "{weights:?}");
    }
}

/// Checks that idle leaves have no range, and that a group with only idle leaves gets no share.
#[test]
fn only_who_is_active_counts() {
    let idle = |report: NodeReport| NodeReport {
        active: false,
        ..report
    };
    let reports = [
        inner(9, 0, 1),
        idle(leaf(91, 9, 1)),
        inner(8, 0, 1),
        leaf(81, 8, 1),
        idle(leaf(82, 8, 100)),
        leaf(83, 8, 1),
        // A group without members, and a group with only an empty group.
        inner(7, 0, 100),
        inner(6, 0, 100),
        inner(61, 6, 100),
        leaf(5, 0, 3),
    ];
    assert_eq!(
        lengths(&reports),
        [0, WHOLE / 8, 0, WHOLE / 8, WHOLE / 4 * 3]
    );
    assert_eq!(lengths(&reports[..2]), [0]);
    assert_eq!(build(&reports[..2]).table.find(0), None);
}

/// Merges reports of the same node from many partitions, in any order.
#[test]
fn briefs_of_one_node_are_merged() {
    let on = |part, active, report| NodeReport {
        part,
        active,
        ..report
    };
    let mut reports = vec![
        on(0, true, leaf(81, 8, 2)),
        on(1, false, leaf(81, 8, 3)),
        on(2, true, leaf(81, 8, 1)),
        on(63, true, leaf(82, 8, 1)),
        on(700, true, leaf(82, 8, 1)),
        on(2, true, leaf(82, 8, 1)),
        inner(8, 0, 1),
        inner(8, 0, 2),
        on(1, true, leaf(9, 0, 2)),
    ];
    let mut builder = RangeBuilder::new();
    for round in 0..12 {
        builder.clear();
        builder.extend(&reports).unwrap();
        let PublishedRanges { table, by_part } = builder.build().unwrap();
        let length = |id| table.range_of(id).map(|range| range.len());
        let eighth = WHOLE / 8;
        assert_eq!(table.len(), 3);
        assert_eq!(length(81), Some(3 * eighth));
        assert_eq!(length(82), Some(eighth));
        assert_eq!(length(9), Some(4 * eighth));
        assert_eq!((length(8), length(0), length(u64::MAX)), (None, None, None));
        let mut want = [0; PARTITIONS_MAX];
        want[0] = 3 * eighth / 2;
        want[1] = 4 * eighth;
        want[2] = 3 * eighth / 2 + eighth / 2;
        want[63] = eighth / 2;
        assert_eq!(by_part, want);
        // A second build gives the same result.
        assert_eq!(builder.build().unwrap().by_part, want);
        reports.rotate_left(5);
        let last = reports.len() - 1;
        reports.swap(round % last, last);
    }
}

/// Checks that active leaves get ranges, even if reports contradict each other.
#[test]
fn orphans_and_contradictions() {
    // The parent is unknown, or is a leaf: children of the root.
    let reports = [leaf(1, 77, 1), leaf(2, 1, 1), leaf(3, 0, 2)];
    assert_eq!(lengths(&reports), [WHOLE / 4, WHOLE / 4, WHOLE / 2]);
    // A node reported as a leaf and as an inner node is an inner node; without live leaves below it
    // is idle.
    let reports = [leaf(1, 0, 1), inner(1, 0, 1), leaf(2, 1, 1), leaf(3, 0, 1)];
    let table = build(&reports).table;
    assert_eq!(table.len(), 2);
    assert_eq!(table.range_of(2).map(|range| range.len()), Some(WHOLE / 2));
    // Cycles, and the id of the root, terminate.
    let reports = [
        inner(1, 2, 1),
        inner(2, 1, 1),
        inner(3, 3, 1),
        leaf(4, 3, 1),
        leaf(5, 2, 1),
        leaf(6, 0, 1),
    ];
    assert_eq!(build(&reports).table.len(), 1);
    let reports = [leaf(0, 0, 1), inner(0, 5, 1), leaf(6, 0, 1)];
    assert_eq!(build(&reports).table.len(), 1);
}

/// Tree in the form of node reports, and its exact shares.
struct TreeModel {
    reports: Vec<NodeReport>,
    /// Children of each report.
    kids: Vec<Vec<usize>>,
    roots: Vec<usize>,
}

impl TreeModel {
    /// Creates a random tree with `leaves` leaves, all of them `depth` levels below the root.
    fn new(rng: &mut Rng, depth: usize, leaves: usize, weight: &dyn Fn(&mut Rng) -> u32) -> Self {
        let mut model = Self {
            reports: Vec::new(),
            kids: Vec::new(),
            roots: Vec::new(),
        };
        // Random fan-out: few children in some trees, many in others.
        let fan = 1 + rng.below(leaves as u64 / depth as u64 + 1);
        for _ in 0..leaves {
            let mut above = None;
            for level in 1..=depth {
                let siblings = match above {
                    None => &model.roots,
                    Some(above) => &model.kids[above],
                };
                let chosen = rng.below(fan) as usize;
                let index = match siblings.get(chosen) {
                    Some(&index) if level < depth => index,
                    _ => model.add(rng.next_u64() | 1, above, weight(rng), level == depth),
                };
                above = Some(index);
            }
        }
        model
    }

    fn add(&mut self, id: u64, above: Option<usize>, weight: u32, is_leaf: bool) -> usize {
        let index = self.reports.len();
        let parent = above.map_or(0, |above| self.reports[above].id);
        self.reports.push(if is_leaf {
            leaf(id, parent, weight)
        } else {
            inner(id, parent, weight)
        });
        self.kids.push(Vec::new());
        match above {
            None => self.roots.push(index),
            Some(above) => self.kids[above].push(index),
        }
        index
    }

    /// Returns the exact length of each report in units of 2^-64 numbers, rounded down.
    fn exact(&self) -> Vec<u128> {
        let mut exact = vec![0; self.reports.len()];
        let mut todo = vec![(&self.roots, u128::from(WHOLE) << 64)];
        while let Some((siblings, whole)) = todo.pop() {
            let weight = |&index: &usize| u128::from(self.reports[index].weight);
            let total: u128 = siblings.iter().map(weight).sum();
            for &index in siblings {
                // At most 2^96 times 2^31.
                exact[index] = whole * weight(&index) / total;
                todo.push((&self.kids[index], exact[index]));
            }
        }
        exact
    }

    /// Returns the lengths by a direct implementation of the rule: products of running sums.
    fn rounded(&self) -> Vec<u64> {
        let mut leaves = vec![0; self.reports.len()];
        // Children come after their parents.
        for index in (0..self.reports.len()).rev() {
            let below: u64 = self.kids[index].iter().map(|&kid| leaves[kid]).sum();
            leaves[index] = below + u64::from(self.reports[index].leaf);
        }
        let mut lengths = vec![0; self.reports.len()];
        let mut todo = vec![(&self.roots, WHOLE)];
        while let Some((siblings, whole)) = todo.pop() {
            let mut order = siblings.clone();
            order.sort_by_key(|&index| self.reports[index].id);
            let weight = |&index: &usize| u128::from(self.reports[index].weight);
            let total: u128 = order.iter().map(weight).sum();
            for each in [0, 1] {
                let whole = whole - order.iter().map(|&index| leaves[index] * each).sum::<u64>();
                let (mut sum, mut before) = (0, 0);
                for index in &order {
                    sum += weight(index);
                    let after = (u128::from(whole) * sum / total) as u64;
                    lengths[*index] = after - before + leaves[*index] * each;
                    before = after;
                }
                if siblings
                    .iter()
                    .all(|&index| lengths[index] >= leaves[index])
                {
                    break;
                }
            }
            for &index in siblings {
                todo.push((&self.kids[index], lengths[index]));
            }
        }
        lengths
    }
}

/// Compares random trees with 128-bit arithmetic: sums, and the deviation of each leaf from its
/// exact range.
#[test]
fn products_against_exact_ones() {
    let mut rng = Rng::new(11);
    let any = |rng: &mut Rng| 1 + rng.below(WEIGHT_MAX.into()) as u32;
    let steep = |rng: &mut Rng| 1 << rng.below(31);
    let even = |_: &mut Rng| 4096;
    let largest = |_: &mut Rng| WEIGHT_MAX;
    let kinds: [&dyn Fn(&mut Rng) -> u32; 4] = [&any, &steep, &even, &largest];
    let mut near = 0;
    for round in 0..180 {
        let depth = 1 + round % 6;
        let most = [3, 40, 2000][round / 6 % 3];
        let leaves = 1 + rng.below(most) as usize;
        let model = TreeModel::new(&mut rng, depth, leaves, kinds[round % 4]);
        let lengths = lengths(&model.reports);
        let (exact, rounded) = (model.exact(), model.rounded());
        let leaves: Vec<usize> = (0..model.reports.len())
            .filter(|&index| model.reports[index].leaf)
            .collect();
        // Leaves with less than two exact numbers may have been raised, at the cost of the others.
        let lifted = leaves.iter().any(|&index| exact[index] < 2 << 64);
        let bound = (depth + if lifted { leaves.len() } else { 0 }) as u128;
        near += u32::from(!lifted);
        for (&index, &length) in leaves.iter().zip(&lengths) {
            assert_eq!(length, rounded[index]);
            let error = (u128::from(length) << 64).abs_diff(exact[index]);
            assert!(error <= bound << 64, "{depth}: {error} {bound}");
        }
    }
    assert!(near > 60, "only {near} trees were compared closely");
}

/// Builds tables of very many leaves with the largest and the smallest weights.
#[test]
fn ends_of_the_numbers() {
    let count = 1 << 18;
    for weight in [&(|_| u32::MAX) as &dyn Fn(u64) -> u32, &|_| 1, &|id| {
        if id % 2 == 0 {
            1
        } else {
            u32::MAX
        }
    }] {
        let reports: Vec<NodeReport> = (1..=count).map(|id| leaf(id, 0, weight(id))).collect();
        let lengths = lengths(&reports);
        let (least, most) = (lengths.iter().min(), lengths.iter().max());
        if weight(2) == weight(3) {
            assert_eq!((least, most), (Some(&(1 << 14)), Some(&(1 << 14))));
        } else {
            assert_eq!(least, Some(&1));
        }
    }
}
