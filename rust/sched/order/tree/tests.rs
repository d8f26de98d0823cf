// SPDX-License-Identifier: GPL-2.0-only

//! Tests of the tree against a list, and of the cost of searches.

use super::{search::ExtentQuery, *};
use crate::sched::mem::Need;

fn tree(max: usize) -> ExtentTree {
    let mut tree = ExtentTree::new(max, 11).unwrap();
    tree.feed(tree.wants(max).allocate().unwrap());
    tree
}

const fn extent(domain: u64, start: u64, end: u64, writes: bool) -> Extent {
    Extent {
        domain,
        start,
        end,
        writes,
    }
}

/// Checks the invariants of the tree; returns the keys in order.
fn check(tree: &ExtentTree, idx: u32, parent: u32) -> Vec<(u64, u64, u64)> {
    let Some(node) = tree.nodes.at(idx) else {
        return Vec::new();
    };
    assert_eq!(node.parent, parent);
    let mut keys = check(tree, node.left, idx);
    keys.push(node.key());
    keys.extend(check(tree, node.right, idx));
    let (mut all, mut writers) = node.own();
    for child in [node.left, node.right] {
        if let Some(child) = tree.nodes.at(child) {
            assert!(child.priority <= node.priority);
            all = all.and(child.all);
            writers = writers.and(child.writers);
        }
    }
    assert_eq!((node.all, node.writers), (all, writers));
    keys
}

/// Returns the expected result from a list.
fn naive(model: &[(Extent, u64, u32)], asks: Extent, before: u64) -> Option<u64> {
    let hits = model
        .iter()
        .filter(|(extent, serial, _)| *serial < before && extent.conflicts(&asks));
    hits.map(|(_, serial, _)| *serial).max()
}

/// Compares one search with the list; returns true if the search was stopped.
fn compare(tree: &mut ExtentTree, model: &[(Extent, u64, u32)], asks: Extent, before: u64) -> bool {
    let found = tree.latest(asks, before);
    is_right(found, model, asks, before)
}

/// Checks the result of a search; returns true if the search was stopped.
fn is_right(found: ExtentSearch, model: &[(Extent, u64, u32)], asks: Extent, before: u64) -> bool {
    let want = naive(model, asks, before);
    let known = |hit: &ExtentHit| {
        let found = model.iter().find(|(_, serial, _)| *serial == hit.serial);
        assert_eq!(found.map(|(extent, ..)| *extent), Some(hit.extent));
        assert_eq!(u64::from(hit.owner), hit.serial);
        assert!(hit.serial < before && hit.extent.domain == asks.domain);
    };
    match found {
        ExtentSearch::Nothing => {
            assert_eq!(want, None);
            false
        }
        ExtentSearch::Conflict(hit) => {
            known(&hit);
            assert!(hit.extent.conflicts(&asks));
            want != Some(hit.serial)
        }
        ExtentSearch::StandIn(hit) => {
            known(&hit);
            true
        }
    }
}

#[test]
fn against_a_list() {
    let mut rng = Rng::new(3);
    let (mut searches, mut given_up, mut forced_up) = (0, 0, 0);
    // Few or many places, short or long ranges.
    for (places, length, keep) in [(8, 3, 20), (64, 8, 200), (1000, 4, 300), (1000, 900, 300)] {
        let mut tree = tree(1024);
        let mut model: Vec<(Extent, u64, u32)> = Vec::new();
        for serial in 1..4_000u64 {
            let start = rng.below(places);
            let end = start + 1 + rng.below(length);
            let one = extent(rng.below(3), start, end, rng.below(3) == 0);
            given_up += u32::from(compare(&mut tree, &model, one, serial));
            let before = rng.below(serial + 1);
            given_up += u32::from(compare(&mut tree, &model, one, before));
            searches += 2;
            // Even a search stopped early does not miss the existence of a conflict.
            for (visits, before) in [(0, serial), (1, before), (3, before)] {
                let extent = one;
                let found = tree.search(ExtentQuery { extent, before }, visits);
                forced_up += u32::from(is_right(found, &model, one, before));
            }
            let idx = tree.insert(one, serial, serial as u32).unwrap();
            model.push((one, serial, idx));
            while model.len() as u64 > rng.below(2 * keep) {
                let (.., idx) = model.swap_remove(rng.below(model.len() as u64) as usize);
                tree.remove(idx);
            }
            if serial % 16 == 0 {
                let keys = check(&tree, tree.root, NONE);
                assert_eq!(keys.len(), model.len());
                assert!(keys.is_sorted());
            }
        }
        while let Some((.., idx)) = model.pop() {
            tree.remove(idx);
        }
        assert_eq!((tree.root, tree.nodes.live()), (NONE, 0));
    }
    assert!(given_up * 100 < searches, "{given_up} of {searches}");
    assert!(forced_up * 100 > searches, "{forced_up}");
}

#[test]
fn without_memory_nothing_is_added() {
    let mut tree = ExtentTree::new(10, 1).unwrap();
    let one = extent(0, 0, 10, true);
    assert_eq!((tree.insert(one, 1, 1), tree.room()), (None, 0));
    assert_eq!(tree.latest(one, 9), ExtentSearch::Nothing);
    tree.feed(tree.wants(10).allocate().unwrap());
    assert!(tree.insert(one, 1, 1).is_some());
    assert_eq!(
        (tree.wants(10).count(), tree.latest(one, 1)),
        (0, ExtentSearch::Nothing)
    );
    assert!(matches!(tree.latest(one, 2), ExtentSearch::Conflict(hit) if hit.owner == 1));
}
