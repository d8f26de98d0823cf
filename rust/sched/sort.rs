// SPDX-License-Identifier: GPL-2.0-only

//! Sorting without panics.
//!
//! The sort of the standard library adds several kilobytes, and a panic path that the kernel's
//! objtool does not know. Here an inconsistent comparison only results in a wrong order.

use crate::sched::mem::{GrowingList, NoMemory};
use core::{cmp::Ordering, mem};

/// Sorts `slice` in the order of `compare`; the sort is not stable. Heap sort: O(n log n), no
/// memory.
pub fn sort_by<T>(slice: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    for root in (0..slice.len() / 2).rev() {
        sink(slice, root, &compare);
    }
    for end in (1..slice.len()).rev() {
        let Some(heap) = slice.get_mut(..=end) else {
            return;
        };
        // The largest element moves to the end; the element from the end sinks.
        heap.swap(0, end);
        if let Some(heap) = heap.get_mut(..end) {
            sink(heap, 0, &compare);
        }
    }
}

/// Moves the element at `root` down until no element below is larger.
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

/// Sorts `list` in the order of `compare` and merges equal elements: `add` adds the second to the
/// first, in any order. O(n log n), no memory.
pub fn merge_by<T: Copy>(
    list: &mut GrowingList<T>,
    compare: impl Fn(&T, &T) -> Ordering,
    add: impl Fn(&mut T, &T),
) {
    sort_by(list.as_mut_slice(), &compare);
    merge_sorted(list, |a, b| compare(a, b) == Ordering::Equal, add);
}

/// Merges adjacent elements of `list` that are the `same`: `add` adds the second to the first.
/// O(n), no memory.
pub fn merge_sorted<T: Copy>(
    list: &mut GrowingList<T>,
    same: impl Fn(&T, &T) -> bool,
    add: impl Fn(&mut T, &T),
) {
    let slice = list.as_mut_slice();
    let mut kept = 0usize;
    for from in 0..slice.len() {
        let Some(element) = slice.get(from).copied() else {
            break;
        };
        match kept.checked_sub(1).and_then(|last| slice.get_mut(last)) {
            Some(last) if same(last, &element) => add(last, &element),
            _ => {
                if let Some(to) = slice.get_mut(kept) {
                    *to = element;
                    kept = kept.wrapping_add(1);
                }
            }
        }
    }
    list.truncate(kept);
}

/// Bits of a digit of [`radix`].
const DIGIT: u32 = 8;

/// Sorts `list` by `key`; the sort is stable. Radix sort: at most eight passes, O(n). `spare` is
/// working memory; its content is lost. Sleeps.
pub fn radix<T: Copy>(
    list: &mut GrowingList<T>,
    spare: &mut GrowingList<T>,
    key: impl Fn(&T) -> u64,
) -> Result<(), NoMemory> {
    spare.truncate(0);
    list.as_slice()
        .iter()
        .try_for_each(|element| spare.push(*element))?;
    for shift in (0..u64::BITS).step_by(DIGIT as usize) {
        let digit = |element: &T| usize::from((key(element) >> shift) as u8);
        let mut places = [0u32; 1 << DIGIT];
        for element in list.as_slice() {
            if let Some(place) = places.get_mut(digit(element)) {
                *place = place.wrapping_add(1);
            }
        }
        let all = |count: &u32| *count as usize == list.as_slice().len();
        if places.iter().any(all) {
            // All elements have the same digit.
            continue;
        }
        let mut sum = 0u32;
        for place in &mut places {
            let count = mem::replace(place, sum);
            sum = sum.wrapping_add(count);
        }
        let to = spare.as_mut_slice();
        for element in list.as_slice() {
            let Some(place) = places.get_mut(digit(element)) else {
                continue;
            };
            if let Some(to) = to.get_mut(*place as usize) {
                *to = *element;
            }
            *place = place.wrapping_add(1);
        }
        mem::swap(list, spare);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::rng::Rng;

    fn list<T>(elements: impl IntoIterator<Item = T>) -> GrowingList<T> {
        let mut list = GrowingList::new();
        for element in elements {
            list.push(element).unwrap();
        }
        list
    }

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

    #[test]
    fn radix_is_stable() {
        let mut rng = Rng::new(2);
        let mut spare = GrowingList::new();
        for len in [0, 1, 2, 300, 4097] {
            for mask in [0, 0xff, 0x8000_0000_0000_0001, 0xff00, u64::MAX] {
                let mut theirs: Vec<(u64, u32)> =
                    (0..len).map(|i| (rng.next_u64() & mask, i)).collect();
                let mut ours = list(theirs.iter().copied());
                radix(&mut ours, &mut spare, |pair| pair.0).unwrap();
                theirs.sort();
                assert_eq!(ours.as_slice(), theirs);
            }
        }
    }

    #[test]
    fn merges_equals() {
        let add = |to: &mut (u32, u32), from: &(u32, u32)| to.1 += from.1;
        for (before, after) in [
            (&[][..], &[][..]),
            (&[(1, 1)], &[(1, 1)]),
            (&[(2, 1), (1, 5), (2, 3), (2, 4)], &[(1, 5), (2, 8)]),
            (&[(3, 1), (3, 1), (3, 1)], &[(3, 3)]),
        ] {
            let mut list = list(before.iter().copied());
            merge_by(&mut list, |a, b| a.0.cmp(&b.0), add);
            assert_eq!(list.as_slice(), after);
        }
    }
}
