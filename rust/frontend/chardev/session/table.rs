// SPDX-License-Identifier: GPL-2.0-only

//! The requests of a session by their cookies.

use kernel::rbtree::{RBTree, RBTreeNode};

use super::{Queued, CHUNK};
use crate::{
    sched::item::Cost,
    sys::{chardev::boxed::BoxFifo, node::Account},
};

/// Leases that one lock hold ends, at most.
const LEASES: usize = 16;

/// What a released request must give back.
#[derive(Clone, Copy)]
pub(super) struct Owed {
    pub(super) account: Account,
    pub(super) cost: Cost,
}

/// What is known of a request that has not been completed.
pub(super) struct Entry {
    pub(super) owed: Option<Owed>,
    /// When it was released, monotonic ns.
    pub(super) since: u64,
    /// The server knows that it is released.
    pub(super) read: bool,
}

impl Entry {
    /// Of a request that is queued.
    pub(super) const fn new() -> Self {
        Self {
            owed: None,
            since: 0,
            read: false,
        }
    }
}

/// Requests by cookie.
type Tree = RBTree<u64, Entry>;

/// What the lock protects.
///
/// # Invariants
///
/// A cookie is in at most one tree. `live` is the number of nodes in all three, `running` that of those
/// that were read; each request in `ready` has a node in `released` or `late` that was not read.
pub(super) struct Inner {
    pub(super) queued: Tree,
    pub(super) released: Tree,
    pub(super) late: Tree,
    pub(super) ready: BoxFifo<Queued>,
    pub(super) live: u32,
    pub(super) running: u32,
    pub(super) closing: bool,
}

impl Inner {
    /// No request.
    pub(super) fn new() -> Self {
        // INVARIANT: All are empty.
        Self {
            queued: RBTree::new(),
            released: RBTree::new(),
            late: RBTree::new(),
            ready: BoxFifo::new(),
            live: 0,
            running: 0,
            closing: false,
        }
    }

    /// Whether a request has this cookie.
    pub(super) fn knows(&self, cookie: &u64) -> bool {
        [&self.queued, &self.released, &self.late]
            .into_iter()
            .any(|tree| tree.get(cookie).is_some())
    }

    /// The node of a request that is released, late or not.
    pub(super) fn released_mut(&mut self, cookie: &u64) -> Option<&mut Entry> {
        match self.released.get_mut(cookie) {
            Some(entry) => Some(entry),
            None => self.late.get_mut(cookie),
        }
    }

    /// Takes out the node of a request that was read.
    pub(super) fn finish(&mut self, cookie: &u64) -> Option<RBTreeNode<u64, Entry>> {
        if !self.released_mut(cookie)?.read {
            return None;
        }
        let node = match self.released.remove_node(cookie) {
            Some(node) => node,
            None => self.late.remove_node(cookie)?,
        };
        self.live = self.live.wrapping_sub(1);
        self.running = self.running.wrapping_sub(1);
        Some(node)
    }

    /// Takes out the node of any released request.
    pub(super) fn finish_any(&mut self) -> Option<RBTreeNode<u64, Entry>> {
        let cookie = [&self.released, &self.late]
            .into_iter()
            .find_map(|tree| tree.cursor_front().map(|cursor| *cursor.current().0))?;
        if self.released_mut(&cookie)?.read {
            self.running = self.running.wrapping_sub(1);
        }
        let node = match self.released.remove_node(&cookie) {
            Some(node) => node,
            None => self.late.remove_node(&cookie)?,
        };
        self.live = self.live.wrapping_sub(1);
        Some(node)
    }

    /// Ends leases of `lease` ns that are over at `now`, of the requests from cookie `from` on; returns the
    /// cookie to go on from, or `None` at the end, and what those requests owed.
    pub(super) fn end_leases(
        &mut self,
        from: u64,
        now: u64,
        lease: u64,
    ) -> (Option<u64>, [Option<Owed>; LEASES]) {
        let mut over = [None; LEASES];
        let mut left = over.iter_mut();
        let mut next = None;
        let mut cursor = self.released.cursor_lower_bound_mut(&from);
        for _ in 0..CHUNK {
            let Some(at) = cursor else {
                break;
            };
            let (cookie, entry) = at.current();
            if now.saturating_sub(entry.since) >= lease {
                let Some(place) = left.next() else {
                    next = Some(*cookie);
                    cursor = None;
                    break;
                };
                *place = Some(*cookie);
            }
            cursor = at.move_next();
        }
        if let Some(at) = cursor {
            next = Some(*at.current().0);
        }
        let owed = over.map(|cookie| {
            let cookie = cookie?;
            let node = self.released.remove_node(&cookie)?;
            // INVARIANT: It was in `released`, so in no other tree.
            self.late.insert(node);
            self.late.get_mut(&cookie)?.owed.take()
        });
        (next, owed)
    }
}
