// SPDX-License-Identifier: GPL-2.0-only

//! Who the requests of a session are for.
//!
//! A *peer* is a network identifier; requests without one have a peer of their own together. There is a node
//! for each peer with requests, so requests bound them.

use kernel::rbtree::{RBTree, RBTreeNode, RBTreeNodeReservation};

use super::table::Entry;
use crate::sched::nid::Nid;

/// Who a request is for.
pub(super) type PeerId = Option<Nid>;

/// What a peer has.
pub(super) struct Peer {
    /// Requests that are queued, or owe something.
    requests: u32,
    /// Of these, those that were moved to high priority.
    urgent: u32,
}

/// A node that a peer may become.
pub(super) type PeerSpare = RBTreeNodeReservation<PeerId, Peer>;

/// What became of a request that was added to its peer.
pub(super) struct Joined {
    /// It is the peer's only one.
    pub(super) first: bool,
    /// Requests of the peer.
    pub(super) requests: u32,
    /// Others wait for one of these.
    pub(super) urgent: bool,
}

/// Peers with requests.
pub(super) struct Peers {
    tree: RBTree<PeerId, Peer>,
    len: u32,
}

impl Peers {
    /// None.
    pub(super) fn new() -> Self {
        Self {
            tree: RBTree::new(),
            len: 0,
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Whether `peer` has requests.
    pub(super) fn has(&self, peer: &PeerId) -> bool {
        self.tree.get(peer).is_some()
    }

    /// Whether others wait for a request of `peer`.
    pub(super) fn is_urgent(&self, peer: &PeerId) -> bool {
        self.tree.get(peer).is_some_and(|peer| peer.urgent > 0)
    }

    /// Adds a request to `peer`, which becomes `spare` if it had none.
    pub(super) fn join(&mut self, peer: PeerId, spare: &mut Option<PeerSpare>) -> Joined {
        if let Some(known) = self.tree.get_mut(&peer) {
            known.requests = known.requests.wrapping_add(1);
            return Joined {
                first: false,
                requests: known.requests,
                urgent: known.urgent > 0,
            };
        }
        let first = Peer {
            requests: 1,
            urgent: 0,
        };
        if let Some(spare) = spare.take() {
            self.tree.insert(spare.into_node(peer, first));
            self.len = self.len.wrapping_add(1);
        }
        Joined {
            first: true,
            requests: 1,
            urgent: false,
        }
    }

    /// A request of `peer` was moved to high priority.
    pub(super) fn promote(&mut self, peer: &PeerId) {
        if let Some(peer) = self.tree.get_mut(peer) {
            peer.urgent = peer.urgent.wrapping_add(1);
        }
    }

    /// Takes a request off its peer; returns the peer's node if that was its last one.
    pub(super) fn leave(&mut self, entry: &Entry) -> Option<RBTreeNode<PeerId, Peer>> {
        let peer = self.tree.get_mut(&entry.peer)?;
        peer.requests = peer.requests.wrapping_sub(1);
        if entry.promoted {
            peer.urgent = peer.urgent.wrapping_sub(1);
        }
        if peer.requests != 0 {
            return None;
        }
        self.len = self.len.wrapping_sub(1);
        self.tree.remove_node(&entry.peer)
    }
}
