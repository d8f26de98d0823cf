// SPDX-License-Identifier: GPL-2.0-only

//! Who is whose child, from who is whose parent.
//!
//! # Vocabulary
//!
//! - *Number*: nodes are numbered from 1; [`ROOT`] is above all.
//! - *Kids*: the children of one node, side by side.

use crate::sched::mem::{List, NoMemory};

/// The number of the root.
pub const ROOT: u32 = 0;

/// The children of all nodes.
///
/// # Context
///
/// Made and used where sleeping is allowed.
pub struct Forest {
    /// For each node, and the root, the end of its children in `kids`.
    ends: List<u32>,
    kids: List<u32>,
    /// Who has children, parents before children.
    parents: List<u32>,
}

impl Forest {
    /// No nodes; does not allocate.
    pub const fn new() -> Self {
        Self {
            ends: List::new(),
            kids: List::new(),
            parents: List::new(),
        }
    }

    /// Takes over the nodes 1 to `count`, whose parents are `up`; who has none is left out. O(n), sleeps.
    ///
    /// Siblings are in the order of their numbers. Nodes that are not below the root, because they are in
    /// circles, are children, but not [`Forest::parents`].
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn plant(&mut self, count: u32, up: impl Fn(u32) -> Option<u32>) -> Result<(), NoMemory> {
        self.ends.truncate(0);
        self.kids.truncate(0);
        self.parents.truncate(0);
        for _ in 0..=count {
            self.ends.push(0)?;
        }
        let pairs = || (1..=count).filter_map(|node| Some((node, up(node)?)));
        let ends = self.ends.as_mut_slice();
        for (_, up) in pairs() {
            self.kids.push(0)?;
            if let Some(end) = ends.get_mut(up as usize) {
                *end = end.wrapping_add(1);
            }
        }
        // From how many to where they start; each child then moves that on, up to the end.
        let mut sum = 0u32;
        for end in ends.iter_mut() {
            let count = core::mem::replace(end, sum);
            sum = sum.wrapping_add(count);
        }
        for (node, up) in pairs() {
            let Some(end) = ends.get_mut(up as usize) else {
                continue;
            };
            if let Some(kid) = self.kids.as_mut_slice().get_mut(*end as usize) {
                *kid = node;
            }
            *end = end.wrapping_add(1);
        }
        self.parents.push(ROOT)?;
        let mut next = 0usize;
        while let Some(&parent) = self.parents.as_slice().get(next) {
            next = next.wrapping_add(1);
            let (from, to) = self.span(parent);
            for place in from..to {
                let Some(&kid) = self.kids.as_slice().get(place) else {
                    break;
                };
                let (from, to) = self.span(kid);
                if from < to {
                    self.parents.push(kid)?;
                }
            }
        }
        Ok(())
    }

    /// Where the children of `parent` are.
    fn span(&self, parent: u32) -> (usize, usize) {
        let end_at = |place: usize| {
            self.ends
                .as_slice()
                .get(place)
                .map_or(0, |end| *end as usize)
        };
        let from = (parent as usize).checked_sub(1).map_or(0, end_at);
        (from, end_at(parent as usize))
    }

    /// The children of `parent`.
    pub fn kids(&self, parent: u32) -> &[u32] {
        let (from, to) = self.span(parent);
        self.kids.as_slice().get(from..to).unwrap_or_default()
    }

    /// The same, to be brought into another order.
    pub fn kids_mut(&mut self, parent: u32) -> &mut [u32] {
        let (from, to) = self.span(parent);
        let kids = self.kids.as_mut_slice().get_mut(from..to);
        kids.unwrap_or_default()
    }

    /// The root and who has children, each after its own parent.
    pub fn parents(&self) -> &[u32] {
        self.parents.as_slice()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_side_by_side() {
        // 1 and 4 below the root, 2 and 5 below 1, 3 below 2, 6 left out, 7 and 8 in a circle.
        let ups = [
            Some(0),
            Some(1),
            Some(2),
            Some(0),
            Some(1),
            None,
            Some(8),
            Some(7),
        ];
        let mut forest = Forest::new();
        for _ in 0..2 {
            forest.plant(8, |node| ups[node as usize - 1]).unwrap();
            let want: [&[u32]; 9] = [&[1, 4], &[2, 5], &[3], &[], &[], &[], &[], &[8], &[7]];
            for (parent, kids) in (0..).zip(want) {
                assert_eq!(forest.kids(parent), kids);
                assert_eq!(forest.kids_mut(parent), kids);
            }
            assert_eq!(forest.parents(), [0, 1, 2]);
        }
        forest.plant(0, |_| None).unwrap();
        assert_eq!((forest.parents(), forest.kids(0)), (&[0][..], &[][..]));
        assert!(forest.kids(9).is_empty());
    }
}
