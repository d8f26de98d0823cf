// SPDX-License-Identifier: GPL-2.0-only

//! Sorting in place, in a few lines.
//!
//! The language's own sort brings several kilobytes and a way to panic that the kernel's object checker
//! does not know; here an order that contradicts itself gives a wrong order and nothing worse.

use core::cmp::Ordering;

/// Sorts `slice` in the order of `compare`; equal elements in any order. A heap sort: O(n log n), no
/// memory.
pub fn sort_by<T>(slice: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    for root in (0..slice.len() / 2).rev() {
        sink(slice, root, &compare);
    }
    for end in (1..slice.len()).rev() {
        let Some(heap) = slice.get_mut(..=end) else {
            return;
        };
        // The largest goes to the end, what was there sinks.
        heap.swap(0, end);
        if let Some(heap) = heap.get_mut(..end) {
            sink(heap, 0, &compare);
        }
    }
}

/// Moves the element at `root` down until none below it is larger.
fn sink<T>(heap: &mut [T], mut root: usize, compare: &impl Fn(&T, &T) -> Ordering) {
    let less = |heap: &[T], a: usize, b: usize| match (heap.get(a), heap.get(b)) {
        (Some(a), Some(b)) => compare(a, b) == Ordering::Less,
        _ => false,
    };
    loop {
        let left = root.saturating_mul(2).saturating_add(1);
        if left >= heap.len() {
            return;
        }
        let right = left.saturating_add(1);
        let child = if less(heap, left, right) { right } else { left };
        if !less(heap, root, child) {
            return;
        }
        heap.swap(root, child);
        root = child;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::rng::Rng;

    #[test]
    fn sorts_like_the_language() {
        let mut rng = Rng::new(1);
        for len in (0..40).chain([1000, 4097]) {
            for range in [2, 10, u32::MAX] {
                let mut ours: Vec<u32> = (0..len).map(|_| rng.next_u32() % range).collect();
                let mut theirs = ours.clone();
                sort_by(&mut ours, Ord::cmp);
                theirs.sort();
                assert_eq!(ours, theirs);
            }
        }
    }

    #[test]
    fn an_order_that_contradicts_itself_keeps_all_elements() {
        let mut slice: Vec<u32> = (0..100).collect();
        sort_by(&mut slice, |_, _| Ordering::Less);
        slice.sort();
        assert_eq!(slice, (0..100).collect::<Vec<_>>());
    }
}
