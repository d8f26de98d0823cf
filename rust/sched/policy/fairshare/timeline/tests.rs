// SPDX-License-Identifier: GPL-2.0-only

//! Compares timelines with a list, and counts the nodes that a decision reads.

use super::*;
use crate::sched::{mem::Need, rng::Rng};
use std::cell::Cell;

thread_local! {
    static LOOKS: Cell<u64> = const { Cell::new(0) };
}

/// Counts an access to a node.
pub(super) fn count() {
    LOOKS.set(LOOKS.get() + 1);
}

/// Returns the number of accesses to nodes by this thread.
pub(in super::super) fn looks() -> u64 {
    LOOKS.get()
}

fn timelines(max: usize) -> Timelines {
    let mut timelines = Timelines::new(max, 7).unwrap();
    timelines.feed(timelines.wants(max).allocate().unwrap());
    timelines.create(max as u32 - 1);
    timelines
}

/// Checks the subtree at `at` below `parent`; appends its indices in order to `indices`, and
/// returns its least tag.
fn check(timelines: &Timelines, at: u32, parent: u32, indices: &mut Vec<u32>) -> Option<u64> {
    let point = timelines.points.get(at as usize)?;
    assert_eq!(point.parent, parent);
    for child in [point.left, point.right] {
        let child = timelines.points.get(child as usize);
        assert!(child.is_none_or(|child| child.priority <= point.priority));
    }
    let left = check(timelines, point.left, at, indices);
    indices.push(at);
    let right = check(timelines, point.right, at, indices);
    let least = [left, right]
        .iter()
        .flatten()
        .fold(point.tag, |a, b| earlier(a, *b));
    assert_eq!(point.least, least);
    Some(least)
}

/// Compares two timelines in one table with lists, with numbers around the wrap and many equal
/// numbers.
#[test]
fn against_a_list() {
    const ENTRIES: u64 = 60;
    let base = u64::MAX - 30;
    let mut timelines = timelines(ENTRIES as usize);
    let mut timeline = [Timeline::EMPTY; 2];
    let mut model = [const { Vec::<(u64, u32, u64)>::new() }; 2];
    let mut rng = Rng::new(1);
    for _ in 0..40_000 {
        let idx = rng.below(ENTRIES) as u32;
        let side = idx as usize % 2;
        let (timeline, model) = (&mut timeline[side], &mut model[side]);
        let tag = rng.below(100);
        let deadline = tag + rng.below(50);
        let (told, due) = (base.wrapping_add(tag), base.wrapping_add(deadline));
        match model.iter().position(|entry| entry.1 == idx) {
            None => {
                timelines.add(timeline, idx, told, due);
                model.push((deadline, idx, tag));
            }
            Some(at) if rng.below(3) == 0 => {
                timelines.remove(timeline, idx);
                model.swap_remove(at);
            }
            Some(at) => {
                timelines.set(timeline, idx, told, due);
                model[at] = (deadline, idx, tag);
            }
        }
        model.sort_unstable();
        let mut indices = Vec::new();
        check(&timelines, timeline.0, NONE, &mut indices);
        assert!(indices.iter().eq(model.iter().map(|entry| &entry.1)));
        let now = rng.below(120);
        let first = model.iter().find(|entry| entry.2 <= now);
        let found = timelines.eligible(*timeline, base.wrapping_add(now));
        assert_eq!(found, first.map(|entry| entry.1));
        let least = model.iter().min_by_key(|entry| (entry.2, entry.0, entry.1));
        let least = least.map(|entry| (entry.1, base.wrapping_add(entry.2)));
        assert_eq!(timelines.least(*timeline), least);
    }
}

/// Verifies that a node without memory is reported, because its requests would never be
/// dispatched.
#[test]
#[should_panic = "impossible state"]
fn an_index_without_memory_is_reported() {
    let mut timeline = Timeline::EMPTY;
    Timelines::new(9, 1).unwrap().add(&mut timeline, 0, 0, 0);
}
