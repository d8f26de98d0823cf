// SPDX-License-Identifier: GPL-2.0-only

//! What comes before a request: its predecessors among those of its file.
//!
//! # Vocabulary
//!
//! - *Window*: how many completions are remembered; what was completed earlier is not known any more.
//!
//! ```text
//!   cookie of a request ──▶ not completed ──▶ completed, within the window ──▶ not known
//!   as a predecessor:       waited for        satisfied                        EINVAL
//! ```
//!
//! What is remembered of a completed request is the node that it had, so only the cookies in the order of
//! their completions take memory: it is there from the beginning.

use kernel::{
    alloc::KVVec,
    prelude::*,
    rbtree::{RBTree, RBTreeNode},
};

use super::table::{Entry, Inner, Tree};
use crate::sched::order::{Relation, PREDECESSORS_MAX};

/// What was completed.
///
/// # Invariants
///
/// Completion `n` that is remembered is at `n % ring.len()` of the ring, and its node in `done` has that
/// number.
pub(super) struct Past {
    done: Tree,
    ring: KVVec<u64>,
    completions: u64,
}

impl Past {
    /// Nothing yet; `window` completions will be remembered.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(window: u32) -> Result<Self> {
        let window = usize::try_from(window.max(1)).unwrap_or(1);
        // INVARIANT: Nothing is remembered.
        Ok(Self {
            done: RBTree::new(),
            ring: KVVec::from_elem(0, window, GFP_KERNEL_ACCOUNT)?,
            completions: 0,
        })
    }

    /// Number of the next completion that is remembered.
    pub(super) fn next(&self) -> u64 {
        self.completions
    }

    /// Remembers `node` of request `cookie`, whose number is [`Self::next`]; returns the nodes that are
    /// forgotten for it: that of the oldest completion, and that of an earlier request with this cookie.
    pub(super) fn remember(
        &mut self,
        cookie: u64,
        node: RBTreeNode<u64, Entry>,
    ) -> [Option<RBTreeNode<u64, Entry>>; 2] {
        let window = self.ring.len() as u64;
        let completion = self.completions;
        let place = completion.checked_rem(window).unwrap_or(0) as usize;
        let Some(place) = self.ring.get_mut(place) else {
            return [Some(node), None];
        };
        let old = core::mem::replace(place, cookie);
        self.completions = completion.wrapping_add(1);
        let oldest = match self.done.get(&old) {
            // Its cookie may have been used again, and completed later.
            Some(entry) if Some(entry.number) == completion.checked_sub(window) => {
                self.done.remove_node(&old)
            }
            _ => None,
        };
        // INVARIANT: The node is at its place, and the only one of its cookie.
        [oldest, self.done.insert(node)]
    }

    /// Whether `cookie` was completed lately.
    fn remembers(&self, cookie: &u64) -> bool {
        self.done.get(cookie).is_some()
    }
}

/// What the predecessors of a request come to.
pub(super) enum Before {
    /// The relation that the core is told.
    Known(Relation),
    /// One of them has no record in the partition: nothing but its end can be waited for.
    Unrecorded,
    /// One of them is not known.
    Unknown,
}

impl Inner {
    /// What comes before request `cookie` with `predecessors` (0: none), for the partition `home`.
    pub(super) fn before(
        &self,
        cookie: u64,
        predecessors: [u64; PREDECESSORS_MAX],
        home: u16,
    ) -> Before {
        let mut records = [None; PREDECESSORS_MAX];
        let mut related = false;
        for (named, place) in predecessors.iter().zip(&mut records) {
            if *named == 0 {
                continue;
            }
            if *named == cookie {
                return Before::Unknown;
            }
            let Some(entry) = self.find(named) else {
                if self.past.remembers(named) {
                    continue;
                }
                return Before::Unknown;
            };
            match entry.record {
                Some(record) if record.home == home => *place = Some(record.id),
                _ => return Before::Unrecorded,
            }
            related = true;
        }
        Before::Known(if related {
            Relation::After(records)
        } else {
            Relation::Free
        })
    }
}
