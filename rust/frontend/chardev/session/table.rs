// SPDX-License-Identifier: GPL-2.0-only

//! The requests of a session by their cookies.

use kernel::rbtree::{RBTree, RBTreeNode};

use super::{
    early::{Deadlines, Place, WatchNode},
    past::Past,
    peers::{Peer, PeerId, Peers},
    Queued, CHUNK,
};
use crate::{
    engine::service::Record,
    sched::item::Cost,
    sys::{chardev::boxed::BoxFifo, node::Account},
};

/// Leases that one lock hold ends, at most.
pub(super) const LEASES: usize = 12;

/// What a released request must give back.
#[derive(Clone, Copy)]
pub(super) struct Owed {
    pub(super) account: Account,
    pub(super) cost: Cost,
}

/// What is known of a request.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) owed: Option<Owed>,
    /// When it was released, monotonic ns.
    pub(super) since: u64,
    /// Which one of the file's requests it is; once it is completed, which one of the completions that was.
    pub(super) number: u64,
    /// The core's record of it, as long as that is the session's to use.
    pub(super) record: Option<Record>,
    /// When it arrived, ms.
    pub(super) arrival: u64,
    /// Where the watch of its deadline is.
    pub(super) place: Place,
    /// For how long a policy kept it on purpose, ms.
    pub(super) withheld: u32,
    /// The CPT that decided.
    pub(super) cpt: u16,
    /// Its deadline passed.
    pub(super) expired: bool,
    /// Who it is for.
    pub(super) peer: PeerId,
    /// The server knows that it is released.
    pub(super) read: bool,
    /// It goes through the high-priority head, or is on the way there.
    pub(super) high: bool,
    /// It was moved there, so that its peer is urgent.
    pub(super) promoted: bool,
    /// It is to be moved there once its record is known.
    pub(super) asked: bool,
}

impl Entry {
    /// Request `number` of the file, for `peer`; it is queued.
    pub(super) const fn new(number: u64, peer: PeerId, high: bool) -> Self {
        Self {
            owed: None,
            since: 0,
            number,
            record: None,
            arrival: 0,
            place: Place::None,
            withheld: 0,
            cpt: 0,
            expired: false,
            peer,
            read: false,
            high,
            promoted: false,
            asked: false,
        }
    }
}

/// Requests by cookie.
pub(super) type Tree = RBTree<u64, Entry>;

/// Nodes that were taken out, to be freed without the lock.
pub(super) struct Gone {
    _entry: Option<RBTreeNode<u64, Entry>>,
    _forgotten: [Option<RBTreeNode<u64, Entry>>; 2],
    _watch: Option<WatchNode>,
    peer: Option<RBTreeNode<PeerId, Peer>>,
    expired: bool,
}

impl Gone {
    /// Whether the deadline of the request passed, and nobody had noticed.
    pub(super) fn is_expired(&self) -> bool {
        self.expired
    }

    /// Whether the last request of a peer has ended.
    pub(super) fn is_peer_idle(&self) -> bool {
        self.peer.is_some()
    }
}

/// A request whose lease is over: what it owed, and its peer if that was its last one.
pub(super) type Over = (Owed, Option<RBTreeNode<PeerId, Peer>>);

/// What moving a request to high priority takes.
pub(super) enum Move {
    /// Nothing: it is released, or moved already.
    Nothing,
    /// This record is to be moved.
    Record(Record),
    /// Its record is not known yet; whoever learns it moves it.
    Later,
}

/// What the lock protects.
///
/// # Invariants
///
/// A cookie is in at most one of the trees; `past` may remember an earlier request that had it. `live` is the number of nodes
/// in all three, `running` that of those that were read; each request in `ready` has a node in `released`
/// or `late` that was not read. The watch in `deadlines` of a request in one of the three is where its entry says. `peers` counts the requests that are queued or owe something.
pub(super) struct Inner {
    pub(super) queued: Tree,
    pub(super) released: Tree,
    pub(super) late: Tree,
    pub(super) ready: BoxFifo<Queued>,
    pub(super) peers: Peers,
    pub(super) past: Past,
    pub(super) deadlines: Deadlines,
    /// Requests that were ever entered.
    pub(super) entered: u64,
    pub(super) live: u32,
    pub(super) running: u32,
    /// Writers that wait for any completion.
    pub(super) impatient: u32,
    pub(super) closing: bool,
}

impl Inner {
    /// No request; `past` is what was before.
    pub(super) fn new(past: Past) -> Self {
        // INVARIANT: All are empty.
        Self {
            queued: RBTree::new(),
            released: RBTree::new(),
            late: RBTree::new(),
            ready: BoxFifo::new(),
            peers: Peers::new(),
            past,
            deadlines: Deadlines::new(),
            entered: 0,
            live: 0,
            running: 0,
            impatient: 0,
            closing: false,
        }
    }

    /// What is known of the request with this cookie that has not been completed.
    pub(super) fn find(&self, cookie: &u64) -> Option<&Entry> {
        [&self.queued, &self.released, &self.late]
            .into_iter()
            .find_map(|tree| tree.get(cookie))
    }

    /// The node of a request that is released, late or not.
    pub(super) fn released_mut(&mut self, cookie: &u64) -> Option<&mut Entry> {
        match self.released.get_mut(cookie) {
            Some(entry) => Some(entry),
            None => self.late.get_mut(cookie),
        }
    }

    /// Notes `record` of request `number`; returns it if the request is to be moved to high priority.
    pub(super) fn learn(&mut self, cookie: &u64, number: u64, record: Record) -> Option<Record> {
        let entry = match self.queued.get_mut(cookie) {
            Some(entry) => entry,
            None => self.released.get_mut(cookie)?,
        };
        if entry.number != number {
            return None;
        }
        entry.record = Some(record);
        let asked = core::mem::replace(&mut entry.asked, false);
        asked.then_some(record)
    }

    /// Notes that a request is to have high priority. `None`: there is no such request.
    pub(super) fn promote(&mut self, cookie: &u64) -> Option<Move> {
        let Some(entry) = self.queued.get_mut(cookie) else {
            return self.released_mut(cookie).map(|_| Move::Nothing);
        };
        if entry.high {
            return Some(Move::Nothing);
        }
        (entry.high, entry.promoted) = (true, true);
        let wanted = match entry.record {
            Some(record) => Move::Record(record),
            None => {
                entry.asked = true;
                Move::Later
            }
        };
        let peer = entry.peer;
        self.peers.promote(&peer);
        Some(wanted)
    }

    /// Takes out the node of a request that was read; `remember`: it may be named as a predecessor.
    pub(super) fn finish(&mut self, cookie: &u64, remember: bool) -> Option<(Entry, Gone)> {
        let entry = *self.released_mut(cookie)?;
        if !entry.read {
            return None;
        }
        self.take_out(cookie, &entry, remember)
    }

    /// Takes out the node of any released request.
    pub(super) fn finish_any(&mut self) -> Option<(Entry, Gone)> {
        let (cookie, entry) = [&self.released, &self.late].into_iter().find_map(|tree| {
            tree.cursor_front()
                .map(|at| (*at.current().0, *at.current().1))
        })?;
        self.take_out(&cookie, &entry, false)
    }

    /// Takes out the node of a released request.
    fn take_out(&mut self, cookie: &u64, entry: &Entry, remember: bool) -> Option<(Entry, Gone)> {
        let completion = self.past.next();
        let (watch, expired) = self.unwatch(entry);
        let known = self.released_mut(cookie)?;
        known.place = Place::None;
        if remember {
            known.number = completion;
        }
        let node = match self.released.remove_node(cookie) {
            Some(node) => node,
            None => self.late.remove_node(cookie)?,
        };
        self.live = self.live.wrapping_sub(1);
        if entry.read {
            self.running = self.running.wrapping_sub(1);
        }
        // Whoever is late owes nothing, and was taken off its peer then.
        let peer = match entry.owed {
            Some(_) => self.peers.leave(entry),
            None => None,
        };
        let (node, forgotten) = if remember {
            (None, self.past.remember(*cookie, node))
        } else {
            (Some(node), [None, None])
        };
        let gone = Gone {
            _entry: node,
            _forgotten: forgotten,
            _watch: watch,
            peer,
            expired,
        };
        Some((*entry, gone))
    }

    /// Takes out the node of a queued request; it stays counted in `live`.
    pub(super) fn take_out_queued(&mut self, cookie: &u64) -> Option<Gone> {
        let entry = *self.queued.get(cookie)?;
        let (watch, expired) = self.unwatch(&entry);
        let node = self.queued.remove_node(cookie);
        Some(Gone {
            _entry: node,
            _forgotten: [None, None],
            _watch: watch,
            peer: self.peers.leave(&entry),
            expired,
        })
    }

    /// Records of up to [`LEASES`] queued requests from cookie `from` on, and the cookie to go on from, or `None` at the
    /// end.
    pub(super) fn queued_from(&mut self, from: u64) -> (Option<u64>, [Option<Record>; LEASES]) {
        let mut records = [None; LEASES];
        let mut cursor = self.queued.cursor_lower_bound_mut(&from);
        for place in &mut records {
            let Some(at) = cursor else {
                break;
            };
            *place = at.current().1.record;
            cursor = at.move_next();
        }
        (cursor.map(|at| *at.current().0), records)
    }

    /// Ends leases of `lease` ns that are over at `now`, of the requests from cookie `from` on; returns the
    /// cookie to go on from, or `None` at the end, and what those requests owed.
    pub(super) fn end_leases(
        &mut self,
        from: u64,
        now: u64,
        lease: u64,
    ) -> (Option<u64>, [Option<Over>; LEASES]) {
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
            let entry = self.late.get_mut(&cookie)?;
            let was = *entry;
            let mut owed = entry.owed.take()?;
            // What comes after it waits for its completion all the same.
            let home = owed.account.home;
            let id = owed.account.placement.record.take();
            entry.record = id.map(|id| Record { home, id });
            Some((owed, self.peers.leave(&was)))
        });
        (next, owed)
    }
}
