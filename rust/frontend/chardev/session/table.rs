// SPDX-License-Identifier: GPL-2.0-only

//! Table of the requests of a session, by cookie.
//!
//! # Terms
//!
//! - *Row*: state of a request ([`RequestRow`], [`RequestState`]).
//! - *Peer*: the client of a request ([`PeerCounts`]): a network identifier; all requests without
//!   one share one peer.
//! - *Window*: number of completions that are remembered; earlier completed requests are unknown.
//!
//! ```text
//!   enter ──▶ queued ──▶ released ──▶ removed, or ended: remembered within the window
//!                            │           ▲
//!                            └──▶ late ──┘
//! ```
//!
//! Deadlines, leases and the window refer to rows by index, so a request needs no memory but its
//! row. The table keeps its memory until the file is closed; a writer allocates the memory that its
//! request needs.

use super::{
    recovery::RecoveryWindow,
    watch::{DeadlineWatch, WatchQueue},
    SessionRequest,
};
use crate::{
    engine::arrival::OrderHandle,
    sched::{
        item::Cost,
        key::Key,
        leftist_heap::{HeapRoot, LeftistForest, LeftistNode},
        mem::{self, Chunks, Grow, NoMemory},
        order::{Relation, PREDECESSORS_MAX},
        slab::{Handle, Linked, Links, SlabList},
        table::{Table, TableNeed},
    },
    sys::{
        chardev::boxed::BoxFifo,
        misc::{self, bug},
        node::NodeAccount,
    },
};

/// Maximum number of leases that one lock hold ends.
pub(super) const LEASES: usize = 12;

/// Resources that a released request must give back.
#[derive(Clone, Copy)]
pub(super) struct RequestResources {
    pub(super) account: NodeAccount,
    pub(super) cost: Cost,
}

/// Circumstances of the release of a request.
#[derive(Clone, Copy)]
pub(super) struct ReleaseKind {
    /// CPT that dispatched the request.
    pub(super) cpt: u16,
    /// Time for which a policy throttled the request, ms.
    pub(super) withheld: u32,
    /// True if the server has read the request.
    pub(super) read: bool,
}

/// State of a request.
#[derive(Clone, Copy)]
pub(super) enum RequestState {
    /// The engine owns the request.
    Queued,
    /// The policy has dispatched the request, which owes a slot.
    Released(RequestResources, ReleaseKind),
    /// The lease has expired, so the request owes nothing.
    Late(ReleaseKind),
    /// The request was completed, and is remembered.
    Ended,
}

/// State of a request and its deadline.
pub(super) struct RequestRow {
    pub(super) state: RequestState,
    /// The engine's record of the request, as long as the session may use it.
    pub(super) record: Option<OrderHandle>,
    /// Time of the arrival, ms.
    pub(super) arrival: u64,
    pub(super) watch: DeadlineWatch,
    /// True if the deadline has passed.
    pub(super) expired: bool,
    /// Client of the request.
    peer: Handle,
    /// True if the request uses the high-priority head, or is being moved there.
    high: bool,
    /// True if the request was moved to high priority, so that its peer is urgent.
    promoted: bool,
    /// True if the request is to be moved to high priority when its record is known.
    asked: bool,
    /// Position in the list of remembered requests.
    links: Links,
}

impl Linked for RequestRow {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl RequestRow {
    pub(super) fn is_live(&self) -> bool {
        !matches!(self.state, RequestState::Ended)
    }

    /// Returns the circumstances of the release, if the request is released and not completed.
    pub(super) fn served(&self) -> Option<&ReleaseKind> {
        match &self.state {
            RequestState::Released(_, served) | RequestState::Late(served) => Some(served),
            RequestState::Queued | RequestState::Ended => None,
        }
    }

    /// Returns the same as [`Self::served`], mutable.
    pub(super) fn served_mut(&mut self) -> Option<&mut ReleaseKind> {
        match &mut self.state {
            RequestState::Released(_, served) | RequestState::Late(served) => Some(served),
            RequestState::Queued | RequestState::Ended => None,
        }
    }
}

/// Numbers of requests of a peer.
pub(super) struct PeerCounts {
    /// Requests that are queued, or owe something.
    requests: u32,
    /// Of these, requests that were moved to high priority.
    urgent: u32,
}

/// Result of entering a request.
pub(super) struct JoinOutcome {
    pub(super) handle: Handle,
    /// True if this is the only request of its peer.
    pub(super) first: bool,
    /// Number of requests of the peer.
    pub(super) requests: u32,
    /// True if requests depend on one of these.
    pub(super) urgent: bool,
}

/// Events to be counted for a removed request.
#[derive(Clone, Copy)]
pub(super) struct RemovalEvents {
    /// True if the deadline has passed unnoticed.
    pub(super) expired: bool,
    /// True if the last request of the peer has ended.
    pub(super) peer_idle: bool,
}

/// A released request that was removed from the table.
pub(super) struct FinishedRequest {
    /// Resources to give back; `None`: the request was late.
    pub(super) owed: Option<RequestResources>,
    pub(super) record: Option<OrderHandle>,
    pub(super) arrival: u64,
    pub(super) served: ReleaseKind,
    pub(super) gone: RemovalEvents,
}

/// Action needed to move a request to high priority.
pub(super) enum PromoteAction {
    /// No action: the request is released, or moved already.
    Nothing,
    /// Move this record.
    Record(OrderHandle),
    /// The record is not known yet; the writer moves the request when it learns the record.
    Later,
}

/// Result of resolving the predecessors of a request.
pub(super) enum PredecessorCheck {
    /// Relation for the engine.
    Known(Relation),
    /// A predecessor has no record in the partition: the writer must wait for its end.
    Unrecorded,
    /// A predecessor is unknown.
    Unknown,
}

/// Action for a request when its session is closed.
pub(super) enum CloseAction {
    Nothing,
    /// The request was released: end it.
    End(FinishedRequest),
    /// The request is queued: force it.
    Force(OrderHandle),
}

/// Memory that the table needs for one more request.
pub(super) type RequestTableNeed = (
    (TableNeed<u64, RequestRow>, TableNeed<Key, PeerCounts>),
    (Chunks<LeftistNode>, Chunks<LeftistNode>),
);

/// Memory for the table.
pub(super) type RequestTableSpare = <RequestTableNeed as mem::Need>::Spare;

/// Times of the next events of a session.
#[derive(Clone, Copy)]
pub(super) struct DueTimes {
    /// A look at a deadline, or the end of a recovery, ms.
    pub(super) look: u64,
    /// The end of a lease, monotonic ns.
    pub(super) lease: u64,
}

impl DueTimes {
    pub(super) const NEVER: Self = Self {
        look: u64::MAX,
        lease: u64::MAX,
    };
}

/// State under the lock.
///
/// # Invariants
///
/// At most one row of a cookie is not `Ended`; at most one is. `live` is the number of rows that
/// are not, `running` the number of those rows that were read. Each request in `ready` has a row
/// that is released and was not read. A row is in `waiting` or `reported` according to its
/// watch, and in `completed` if it is `Ended`. A `Released` row is in `oldest` if there are leases.
/// `peers` counts the requests that are queued or owe something.
pub(super) struct TableState {
    pub(super) rows: Table<u64, RequestRow>,
    pub(super) peers: Table<Key, PeerCounts>,
    pub(super) watches: LeftistForest,
    /// Deadlines to check, by time of the look.
    pub(super) waiting: HeapRoot,
    /// Early replies to be read, by the deadline that they move.
    pub(super) reported: HeapRoot,
    leases: LeftistForest,
    /// Released requests by the end of their lease.
    oldest: HeapRoot,
    lease_ns: u64,
    completed: SlabList,
    remembered: u32,
    window_max: u32,
    pub(super) ready: BoxFifo<SessionRequest>,
    /// Recovery of clients.
    pub(super) window: RecoveryWindow,
    /// Times for which the timer is armed; not later than the due times.
    pub(super) armed: DueTimes,
    /// Earliest next expiry of the timer, monotonic ns.
    pub(super) rest: u64,
    pub(super) live: u32,
    pub(super) running: u32,
    /// Number of writers that wait for any completion.
    pub(super) impatient: u32,
    /// True if a task waits for the end of all requests.
    pub(super) draining: bool,
    pub(super) closing: bool,
}

impl TableState {
    /// Creates a table for `limit` requests with leases of `lease_ns` (0: none) that remembers
    /// `window_max` completions. Its memory is charged to the control group of the caller, because
    /// the caller chooses the size.
    ///
    /// # Errors
    ///
    /// [`NoMemory`]: the allocation failed, or exceeds the limit of the group.
    pub(super) fn new(
        limit: u32,
        lease_ns: u64,
        window_max: u32,
        seed: u64,
    ) -> Result<Self, NoMemory> {
        let (limit, completed) = (limit as usize, window_max as usize);
        let rows = limit.saturating_add(completed).saturating_add(1);
        let leases = if lease_ns == 0 { 0 } else { rows };
        // INVARIANT: All are empty.
        Ok(Self {
            rows: Table::new(rows, seed)?,
            peers: Table::new(limit, seed)?,
            watches: LeftistForest::new(rows)?,
            waiting: HeapRoot::EMPTY,
            reported: HeapRoot::EMPTY,
            leases: LeftistForest::new(leases)?,
            oldest: HeapRoot::EMPTY,
            lease_ns,
            completed: SlabList::new(),
            remembered: 0,
            window_max,
            ready: BoxFifo::new(),
            window: RecoveryWindow::new(),
            armed: DueTimes::NEVER,
            rest: 0,
            live: 0,
            running: 0,
            impatient: 0,
            draining: false,
            closing: false,
        })
    }

    /// Returns the memory that is needed for one more request.
    pub(super) fn need(&self) -> RequestTableNeed {
        let entries = (self.rows.entry_count() as usize).saturating_add(1);
        (
            (self.rows.need(), self.peers.need()),
            (self.watches.wants(entries), self.leases.wants(entries)),
        )
    }

    /// Adds memory, and returns what is not needed.
    pub(super) fn grow(
        &mut self,
        ((rows, peers), (watches, leases)): RequestTableSpare,
    ) -> RequestTableSpare {
        (
            (self.rows.grow(rows), self.peers.grow(peers)),
            (self.watches.feed(watches), self.leases.feed(leases)),
        )
    }

    /// Returns the index of the request with this cookie that is not completed.
    pub(super) fn find(&self, cookie: &u64) -> Option<u32> {
        self.rows.find(cookie, RequestRow::is_live)
    }

    /// Returns true if requests depend on a request of the peer of the request at `idx`.
    pub(super) fn is_urgent(&mut self, idx: u32) -> bool {
        let peer = self.rows.at(idx).map(|row| row.peer);
        let peer = peer.and_then(|peer| self.peers.get_mut(peer));
        peer.is_some_and(|peer| peer.urgent > 0)
    }

    /// Enters a request for `peer`; `None`: there is no memory. No live row may have its cookie.
    pub(super) fn enter(&mut self, cookie: u64, peer: Key, high: bool) -> Option<JoinOutcome> {
        let known = self.peers.find(&peer, |_| true);
        let first = known.is_none();
        let peer = match known {
            Some(idx) => self.peers.handle(idx)?,
            None => {
                let none = PeerCounts {
                    requests: 0,
                    urgent: 0,
                };
                self.peers.insert(peer, none).ok()?
            }
        };
        let known = self.peers.get_mut(peer)?;
        known.requests = known.requests.wrapping_add(1);
        let (requests, urgent) = (known.requests, known.urgent > 0);
        let row = RequestRow {
            state: RequestState::Queued,
            record: None,
            arrival: 0,
            watch: DeadlineWatch::NONE,
            expired: false,
            peer,
            high,
            promoted: false,
            asked: false,
            links: Links::new(),
        };
        // INVARIANT: The only live row of its cookie, and in no queue.
        let handle = self.rows.insert(cookie, row).ok()?;
        self.watches.create(handle.idx());
        if self.lease_ns != 0 {
            self.leases.create(handle.idx());
        }
        self.live = self.live.wrapping_add(1);
        Some(JoinOutcome {
            handle,
            first,
            requests,
            urgent,
        })
    }

    /// Marks a queued request as released at `now` (ns).
    pub(super) fn release(
        &mut self,
        handle: Handle,
        owed: RequestResources,
        served: ReleaseKind,
        now: u64,
    ) {
        let Some(row) = self.rows.get_mut(handle) else {
            bug!();
            return;
        };
        row.state = RequestState::Released(owed, served);
        if let Some(id) = owed.account.placement.record {
            let home = owed.account.home;
            row.record = Some(OrderHandle { home, id });
        }
        if self.lease_ns != 0 {
            let end = now.saturating_add(self.lease_ns);
            self.leases.push(&mut self.oldest, end, handle.idx());
        }
    }

    /// Stores the record of a request; returns it if the request is to be moved to high priority.
    pub(super) fn learn(&mut self, handle: Handle, record: OrderHandle) -> Option<OrderHandle> {
        let row = self.rows.get_mut(handle)?;
        if !matches!(row.state, RequestState::Queued) {
            return None;
        }
        row.record = Some(record);
        core::mem::replace(&mut row.asked, false).then_some(record)
    }

    /// Marks a request as one of high priority. `None`: there is no such request.
    pub(super) fn promote(&mut self, cookie: &u64) -> Option<PromoteAction> {
        let idx = self.find(cookie)?;
        let row = self.rows.at_mut(idx)?;
        if row.high || !matches!(row.state, RequestState::Queued) {
            return Some(PromoteAction::Nothing);
        }
        (row.high, row.promoted) = (true, true);
        row.asked = row.record.is_none();
        let wanted = row
            .record
            .map_or(PromoteAction::Later, PromoteAction::Record);
        let peer = row.peer;
        if let Some(peer) = self.peers.get_mut(peer) {
            peer.urgent = peer.urgent.wrapping_add(1);
        }
        Some(wanted)
    }

    /// Resolves the `predecessors` (0: none) of request `cookie` for the partition `home`.
    pub(super) fn before(
        &self,
        cookie: u64,
        predecessors: &[u64; PREDECESSORS_MAX],
        home: u16,
    ) -> PredecessorCheck {
        let mut records = [None; PREDECESSORS_MAX];
        let mut related = false;
        for (named, place) in predecessors.iter().zip(&mut records) {
            if *named == 0 {
                continue;
            }
            if *named == cookie {
                return PredecessorCheck::Unknown;
            }
            let Some(row) = self.find(named).and_then(|idx| self.rows.at(idx)) else {
                if self.rows.find(named, |_| true).is_some() {
                    continue;
                }
                return PredecessorCheck::Unknown;
            };
            match row.record {
                Some(record) if record.home == home => *place = Some(record.id),
                _ => return PredecessorCheck::Unrecorded,
            }
            related = true;
        }
        PredecessorCheck::Known(if related {
            Relation::After(records)
        } else {
            Relation::Free
        })
    }

    /// Removes a request from its peer; returns true if it was the last one.
    fn leave(&mut self, peer: Handle, promoted: bool) -> bool {
        let Some(known) = self.peers.get_mut(peer) else {
            bug!();
            return false;
        };
        known.requests = known.requests.wrapping_sub(1);
        known.urgent = known.urgent.wrapping_sub(promoted.into());
        let idle = known.requests == 0;
        if idle {
            self.peers.remove(peer.idx());
        }
        idle
    }

    /// Removes a queued request, which stays counted in `live`.
    pub(super) fn take_out_queued(&mut self, handle: Handle) -> Option<RemovalEvents> {
        let row = self.rows.get_mut(handle);
        bug!(row.is_none());
        let row = row?;
        let (peer, promoted) = (row.peer, row.promoted);
        let expired = self.unwatch(handle.idx());
        self.rows.remove(handle.idx());
        Some(RemovalEvents {
            expired,
            peer_idle: self.leave(peer, promoted),
        })
    }

    /// Removes a request that was read; `remember`: it may be named as a predecessor.
    pub(super) fn finish(&mut self, cookie: &u64, remember: bool) -> Option<FinishedRequest> {
        let idx = self.find(cookie)?;
        let read = self.rows.at(idx)?.served()?.read;
        if !read {
            return None;
        }
        let earlier = self.rows.find(cookie, |row| !row.is_live());
        let finished = self.take_out(idx)?;
        if remember {
            self.remember(idx, earlier);
        } else {
            self.rows.remove(idx);
        }
        Some(finished)
    }

    /// Ends a released request, whose row is still to be removed or remembered.
    fn take_out(&mut self, idx: u32) -> Option<FinishedRequest> {
        let expired = self.unwatch(idx);
        let row = self.rows.at_mut(idx)?;
        let served = *row.served()?;
        let owed = match core::mem::replace(&mut row.state, RequestState::Ended) {
            RequestState::Released(owed, _) => Some(owed),
            _ => None,
        };
        let (record, arrival) = (row.record, row.arrival);
        let (peer, promoted) = (row.peer, row.promoted);
        let mut peer_idle = false;
        // A late request owes nothing, and was removed from its peer when its lease expired.
        if owed.is_some() {
            peer_idle = self.leave(peer, promoted);
            if self.lease_ns != 0 {
                self.leases.remove(&mut self.oldest, idx);
            }
        }
        self.live = self.live.wrapping_sub(1);
        if served.read {
            self.running = self.running.wrapping_sub(1);
        }
        Some(FinishedRequest {
            owed,
            record,
            arrival,
            served,
            gone: RemovalEvents { expired, peer_idle },
        })
    }

    /// Remembers the completion at `idx`, and drops the `earlier` one of its cookie, or else the
    /// oldest.
    fn remember(&mut self, idx: u32, earlier: Option<u32>) {
        self.rows.push(&mut self.completed, idx);
        self.remembered = self.remembered.wrapping_add(1);
        let old = match earlier {
            None if self.remembered > self.window_max => self.completed.first(),
            earlier => earlier,
        };
        if let Some(old) = old {
            self.rows.unlist(&mut self.completed, old);
            self.rows.remove(old);
            self.remembered = self.remembered.wrapping_sub(1);
        }
    }

    /// Extends the lease of a request to one that begins at `from` (ns), if that ends later.
    pub(super) fn extend(&mut self, idx: u32, from: u64) {
        let owes = self
            .rows
            .at(idx)
            .is_some_and(|row| matches!(row.state, RequestState::Released(..)));
        let end = from.saturating_add(self.lease_ns);
        if owes && self.leases.key(idx).is_some_and(|old| old < end) {
            self.leases.update(&mut self.oldest, end, idx);
        }
    }

    /// Ends leases that have expired at `now`. Returns what the requests owed, and true for the
    /// last request of a peer.
    pub(super) fn end_leases(&mut self, now: u64) -> [Option<(RequestResources, bool)>; LEASES] {
        let mut over = [None; LEASES];
        for place in &mut over {
            let Some((idx, end)) = self.leases.top(self.oldest) else {
                break;
            };
            if end > now {
                break;
            }
            self.leases.remove(&mut self.oldest, idx);
            let row = self.rows.at_mut(idx);
            let state = row.as_ref().map(|row| row.state);
            let (Some(row), Some(RequestState::Released(mut owed, served))) = (row, state) else {
                bug!();
                break;
            };
            row.state = RequestState::Late(served);
            // Successors still wait for the completion.
            owed.account.placement.record = None;
            let (peer, promoted) = (row.peer, row.promoted);
            *place = Some((owed, self.leave(peer, promoted)));
        }
        over
    }

    /// Returns the times of the next events.
    pub(super) fn due(&self) -> DueTimes {
        let front = |root| self.watches.top(root).map(|(_, at)| at);
        let looks = [
            front(self.waiting),
            front(self.reported),
            self.window.ends(),
        ];
        DueTimes {
            look: looks.into_iter().flatten().min().unwrap_or(u64::MAX),
            lease: self.leases.top(self.oldest).map_or(u64::MAX, |(_, at)| at),
        }
    }

    /// Returns true if an event is due at `now` (ns).
    pub(super) fn is_due(&self, now: u64) -> bool {
        let due = self.due();
        due.look <= misc::millis() || due.lease <= now
    }

    /// Moves the watch of a request to a queue; returns true if it is the first early reply to be
    /// read.
    pub(super) fn move_watch(&mut self, idx: u32, place: WatchQueue) -> bool {
        let Some(row) = self.rows.at_mut(idx) else {
            bug!();
            return false;
        };
        let deadline = row.watch.deadline;
        match core::mem::replace(&mut row.watch.place, place) {
            WatchQueue::None => {}
            WatchQueue::Waiting(_) => self.watches.remove(&mut self.waiting, idx),
            WatchQueue::Reported => self.watches.remove(&mut self.reported, idx),
        }
        match place {
            WatchQueue::None => false,
            WatchQueue::Waiting(look) => {
                self.watches.push(&mut self.waiting, look, idx);
                false
            }
            WatchQueue::Reported => {
                let first = self.reported == HeapRoot::EMPTY;
                self.watches.push(&mut self.reported, deadline, idx);
                first
            }
        }
    }

    /// Removes the watch of a request that ends; returns true if its deadline has passed unnoticed.
    fn unwatch(&mut self, idx: u32) -> bool {
        let watch = self
            .rows
            .at(idx)
            .map_or(DeadlineWatch::NONE, |row| row.watch);
        self.move_watch(idx, WatchQueue::None);
        watch.place != WatchQueue::None && watch.deadline <= misc::millis()
    }

    /// Returns true if there is something to read.
    pub(super) fn is_readable(&self) -> bool {
        !self.ready.is_empty() || self.reported != HeapRoot::EMPTY || self.window.is_readable()
    }

    /// Returns the record of the request at `idx`, if it is queued.
    pub(super) fn queued(&self, idx: u32) -> Option<OrderHandle> {
        let queued = |row: &&RequestRow| matches!(row.state, RequestState::Queued);
        self.rows.at(idx).filter(queued)?.record
    }

    /// Returns the action for the request at `idx` when the session is closed.
    pub(super) fn close(&mut self, idx: u32) -> CloseAction {
        if let Some(record) = self.queued(idx) {
            return CloseAction::Force(record);
        }
        match self.rows.at(idx).map(|row| &row.state) {
            Some(RequestState::Released(..) | RequestState::Late(_)) => match self.take_out(idx) {
                Some(finished) => {
                    self.rows.remove(idx);
                    CloseAction::End(finished)
                }
                None => CloseAction::Nothing,
            },
            _ => CloseAction::Nothing,
        }
    }
}
