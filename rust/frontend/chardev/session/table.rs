// SPDX-License-Identifier: GPL-2.0-only

//! Table of the requests of a session, by cookie.
//!
//! # Terms
//!
//! - *Row*: state of a request ([`Row`], [`State`]).
//! - *Peer*: the client of a request ([`Peer`]): a network identifier; all requests without one
//!   share one peer.
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
    early::{self, Place, Watch},
    recovery::Window,
    Queued,
};
use crate::{
    engine::arrival::Record,
    sched::{
        item::Cost,
        key::Key,
        leftist::{Forest, Knot, Root},
        mem::{self, Chunks, Grow, NoMemory},
        order::{Relation, PREDECESSORS_MAX},
        slab::{Handle, Linked, Links, List},
        table::{Table, TableNeed},
    },
    sys::{chardev::boxed::BoxFifo, misc::bug, node::Account},
};

/// Maximum number of leases that one lock hold ends.
pub(super) const LEASES: usize = 12;

/// Resources that a released request must give back.
#[derive(Clone, Copy)]
pub(super) struct Owed {
    pub(super) account: Account,
    pub(super) cost: Cost,
}

/// Circumstances of the release of a request.
#[derive(Clone, Copy)]
pub(super) struct Served {
    /// CPT that dispatched the request.
    pub(super) cpt: u16,
    /// Time for which a policy throttled the request, ms.
    pub(super) withheld: u32,
    /// True if the server has read the request.
    pub(super) read: bool,
}

/// State of a request.
#[derive(Clone, Copy)]
pub(super) enum State {
    /// The engine owns the request.
    Queued,
    /// The policy has dispatched the request, which owes a slot.
    Released(Owed, Served),
    /// The lease has expired, so the request owes nothing.
    Late(Served),
    /// The request was completed, and is remembered.
    Ended,
}

/// State of a request and its deadline.
pub(super) struct Row {
    pub(super) state: State,
    /// The engine's record of the request, as long as the session may use it.
    pub(super) record: Option<Record>,
    /// Time of the arrival, ms.
    pub(super) arrival: u64,
    pub(super) watch: Watch,
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

impl Linked for Row {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl Row {
    pub(super) fn is_live(&self) -> bool {
        !matches!(self.state, State::Ended)
    }

    /// Returns the circumstances of the release, if the request is released and not completed.
    pub(super) fn served(&self) -> Option<&Served> {
        match &self.state {
            State::Released(_, served) | State::Late(served) => Some(served),
            State::Queued | State::Ended => None,
        }
    }

    /// Returns the same as [`Self::served`], mutable.
    pub(super) fn served_mut(&mut self) -> Option<&mut Served> {
        match &mut self.state {
            State::Released(_, served) | State::Late(served) => Some(served),
            State::Queued | State::Ended => None,
        }
    }
}

/// Numbers of requests of a peer.
pub(super) struct Peer {
    /// Requests that are queued, or owe something.
    requests: u32,
    /// Of these, requests that were moved to high priority.
    urgent: u32,
}

/// Result of entering a request.
pub(super) struct Joined {
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
pub(super) struct Gone {
    /// True if the deadline has passed unnoticed.
    pub(super) expired: bool,
    /// True if the last request of the peer has ended.
    pub(super) peer_idle: bool,
}

/// A released request that was removed from the table.
pub(super) struct Finished {
    /// Resources to give back; `None`: the request was late.
    pub(super) owed: Option<Owed>,
    pub(super) record: Option<Record>,
    pub(super) arrival: u64,
    pub(super) served: Served,
    pub(super) gone: Gone,
}

/// Action needed to move a request to high priority.
pub(super) enum Move {
    /// No action: the request is released, or moved already.
    Nothing,
    /// Move this record.
    Record(Record),
    /// The record is not known yet; the writer moves the request when it learns the record.
    Later,
}

/// Result of resolving the predecessors of a request.
pub(super) enum Before {
    /// Relation for the engine.
    Known(Relation),
    /// A predecessor has no record in the partition: the writer must wait for its end.
    Unrecorded,
    /// A predecessor is unknown.
    Unknown,
}

/// Action for a request when its session is closed.
pub(super) enum Rest {
    Nothing,
    /// The request was released: end it.
    End(Finished),
    /// The request is queued: force it.
    Force(Record),
}

/// Memory that the table needs for one more request.
pub(super) type Need = (
    (TableNeed<u64, Row>, TableNeed<Key, Peer>),
    (Chunks<Knot>, Chunks<Knot>),
);

/// Memory for the table.
pub(super) type Spare = <Need as mem::Need>::Spare;

/// Times of the next events of a session.
#[derive(Clone, Copy)]
pub(super) struct Due {
    /// A look at a deadline, or the end of a recovery, ms.
    pub(super) look: u64,
    /// The end of a lease, monotonic ns.
    pub(super) lease: u64,
}

impl Due {
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
/// that is released and was not read. A row is in `waiting` or `told` according to its watch, and
/// in `past` if it is `Ended`. A `Released` row is in `oldest` if there are leases. `peers` counts
/// the requests that are queued or owe something.
pub(super) struct Inner {
    pub(super) rows: Table<u64, Row>,
    pub(super) peers: Table<Key, Peer>,
    pub(super) watches: Forest,
    /// Deadlines to check, by time of the look.
    pub(super) waiting: Root,
    /// Early replies to be read, by the deadline that they move.
    pub(super) told: Root,
    leases: Forest,
    /// Released requests by the end of their lease.
    oldest: Root,
    lease_ns: u64,
    past: List,
    remembered: u32,
    window_max: u32,
    pub(super) ready: BoxFifo<Queued>,
    /// Recovery of clients.
    pub(super) window: Window,
    /// Times for which the timer is armed; not later than the due times.
    pub(super) armed: Due,
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

impl Inner {
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
        let (limit, past) = (limit as usize, window_max as usize);
        let rows = limit.saturating_add(past).saturating_add(1);
        let leases = if lease_ns == 0 { 0 } else { rows };
        // INVARIANT: All are empty.
        Ok(Self {
            rows: Table::new(rows, seed, true)?,
            peers: Table::new(limit, seed, true)?,
            watches: Forest::with(rows, true)?,
            waiting: Root::EMPTY,
            told: Root::EMPTY,
            leases: Forest::with(leases, true)?,
            oldest: Root::EMPTY,
            lease_ns,
            past: List::new(),
            remembered: 0,
            window_max,
            ready: BoxFifo::new(),
            window: Window::new(),
            armed: Due::NEVER,
            rest: 0,
            live: 0,
            running: 0,
            impatient: 0,
            draining: false,
            closing: false,
        })
    }

    /// Returns the memory that is needed for one more request.
    pub(super) fn need(&self) -> Need {
        let slots = (self.rows.slots() as usize).saturating_add(1);
        (
            (self.rows.need(), self.peers.need()),
            (self.watches.wants(slots), self.leases.wants(slots)),
        )
    }

    /// Adds memory, and returns what is not needed.
    pub(super) fn grow(&mut self, ((rows, peers), (watches, leases)): Spare) -> Spare {
        (
            (self.rows.grow(rows), self.peers.grow(peers)),
            (self.watches.feed(watches), self.leases.feed(leases)),
        )
    }

    /// Returns the index of the request with this cookie that is not completed.
    pub(super) fn find(&self, cookie: &u64) -> Option<u32> {
        self.rows.find(cookie, Row::is_live)
    }

    /// Returns true if requests depend on a request of the peer of the request in `slot`.
    pub(super) fn is_urgent(&mut self, slot: u32) -> bool {
        let peer = self.rows.at(slot).map(|row| row.peer);
        let peer = peer.and_then(|peer| self.peers.get_mut(peer));
        peer.is_some_and(|peer| peer.urgent > 0)
    }

    /// Enters a request for `peer`; `None`: there is no memory. No live row may have its cookie.
    pub(super) fn enter(&mut self, cookie: u64, peer: Key, high: bool) -> Option<Joined> {
        let known = self.peers.find(&peer, |_| true);
        let first = known.is_none();
        let peer = match known {
            Some(slot) => self.peers.handle(slot)?,
            None => {
                let none = Peer {
                    requests: 0,
                    urgent: 0,
                };
                self.peers.insert(peer, none).ok()?
            }
        };
        let known = self.peers.get_mut(peer)?;
        known.requests = known.requests.wrapping_add(1);
        let (requests, urgent) = (known.requests, known.urgent > 0);
        let row = Row {
            state: State::Queued,
            record: None,
            arrival: 0,
            watch: Watch::NONE,
            expired: false,
            peer,
            high,
            promoted: false,
            asked: false,
            links: Links::new(),
        };
        // INVARIANT: The only live row of its cookie, and in no queue.
        let handle = self.rows.insert(cookie, row).ok()?;
        self.watches.create(handle.slot());
        if self.lease_ns != 0 {
            self.leases.create(handle.slot());
        }
        self.live = self.live.wrapping_add(1);
        Some(Joined {
            handle,
            first,
            requests,
            urgent,
        })
    }

    /// Marks a queued request as released at `now` (ns).
    pub(super) fn release(&mut self, handle: Handle, owed: Owed, served: Served, now: u64) {
        let Some(row) = self.rows.get_mut(handle) else {
            bug!();
            return;
        };
        row.state = State::Released(owed, served);
        if let Some(id) = owed.account.placement.record {
            let home = owed.account.home;
            row.record = Some(Record { home, id });
        }
        if self.lease_ns != 0 {
            let end = now.saturating_add(self.lease_ns);
            self.leases.push(&mut self.oldest, end, handle.slot());
        }
    }

    /// Stores the record of a request; returns it if the request is to be moved to high priority.
    pub(super) fn learn(&mut self, handle: Handle, record: Record) -> Option<Record> {
        let row = self.rows.get_mut(handle)?;
        if !matches!(row.state, State::Queued) {
            return None;
        }
        row.record = Some(record);
        core::mem::replace(&mut row.asked, false).then_some(record)
    }

    /// Marks a request as one of high priority. `None`: there is no such request.
    pub(super) fn promote(&mut self, cookie: &u64) -> Option<Move> {
        let slot = self.find(cookie)?;
        let row = self.rows.at_mut(slot)?;
        if row.high || !matches!(row.state, State::Queued) {
            return Some(Move::Nothing);
        }
        (row.high, row.promoted) = (true, true);
        row.asked = row.record.is_none();
        let wanted = row.record.map_or(Move::Later, Move::Record);
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
            let Some(row) = self.find(named).and_then(|slot| self.rows.at(slot)) else {
                if self.rows.find(named, |_| true).is_some() {
                    continue;
                }
                return Before::Unknown;
            };
            match row.record {
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
            self.peers.remove(peer.slot());
        }
        idle
    }

    /// Removes a queued request, which stays counted in `live`.
    pub(super) fn take_out_queued(&mut self, handle: Handle) -> Option<Gone> {
        let row = self.rows.get_mut(handle);
        bug!(row.is_none());
        let row = row?;
        let (peer, promoted) = (row.peer, row.promoted);
        let expired = self.unwatch(handle.slot());
        self.rows.remove(handle.slot());
        Some(Gone {
            expired,
            peer_idle: self.leave(peer, promoted),
        })
    }

    /// Removes a request that was read; `remember`: it may be named as a predecessor.
    pub(super) fn finish(&mut self, cookie: &u64, remember: bool) -> Option<Finished> {
        let slot = self.find(cookie)?;
        let read = self.rows.at(slot)?.served()?.read;
        if !read {
            return None;
        }
        let earlier = self.rows.find(cookie, |row| !row.is_live());
        let finished = self.take_out(slot)?;
        if remember {
            self.remember(slot, earlier);
        } else {
            self.rows.remove(slot);
        }
        Some(finished)
    }

    /// Ends a released request, whose row is still to be removed or remembered.
    fn take_out(&mut self, slot: u32) -> Option<Finished> {
        let expired = self.unwatch(slot);
        let row = self.rows.at_mut(slot)?;
        let served = *row.served()?;
        let owed = match core::mem::replace(&mut row.state, State::Ended) {
            State::Released(owed, _) => Some(owed),
            _ => None,
        };
        let (record, arrival) = (row.record, row.arrival);
        let (peer, promoted) = (row.peer, row.promoted);
        let mut peer_idle = false;
        // A late request owes nothing, and was removed from its peer when its lease expired.
        if owed.is_some() {
            peer_idle = self.leave(peer, promoted);
            if self.lease_ns != 0 {
                self.leases.remove(&mut self.oldest, slot);
            }
        }
        self.live = self.live.wrapping_sub(1);
        if served.read {
            self.running = self.running.wrapping_sub(1);
        }
        Some(Finished {
            owed,
            record,
            arrival,
            served,
            gone: Gone { expired, peer_idle },
        })
    }

    /// Remembers the completion in `slot`, and drops the `earlier` one of its cookie, or else the
    /// oldest.
    fn remember(&mut self, slot: u32, earlier: Option<u32>) {
        self.rows.push(&mut self.past, slot);
        self.remembered = self.remembered.wrapping_add(1);
        let old = match earlier {
            None if self.remembered > self.window_max => self.past.first(),
            earlier => earlier,
        };
        if let Some(old) = old {
            self.rows.unlist(&mut self.past, old);
            self.rows.remove(old);
            self.remembered = self.remembered.wrapping_sub(1);
        }
    }

    /// Extends the lease of a request to one that begins at `from` (ns), if that ends later.
    pub(super) fn extend(&mut self, slot: u32, from: u64) {
        let owes = self
            .rows
            .at(slot)
            .is_some_and(|row| matches!(row.state, State::Released(..)));
        let end = from.saturating_add(self.lease_ns);
        if owes && self.leases.key(slot).is_some_and(|old| old < end) {
            self.leases.update(&mut self.oldest, end, slot);
        }
    }

    /// Ends leases that have expired at `now`. Returns what the requests owed, and true for the
    /// last request of a peer.
    pub(super) fn end_leases(&mut self, now: u64) -> [Option<(Owed, bool)>; LEASES] {
        let mut over = [None; LEASES];
        for place in &mut over {
            let Some((slot, end)) = self.leases.top(self.oldest) else {
                break;
            };
            if end > now {
                break;
            }
            self.leases.remove(&mut self.oldest, slot);
            let row = self.rows.at_mut(slot);
            let state = row.as_ref().map(|row| row.state);
            let (Some(row), Some(State::Released(mut owed, served))) = (row, state) else {
                bug!();
                break;
            };
            row.state = State::Late(served);
            // Successors still wait for the completion.
            owed.account.placement.record = None;
            let (peer, promoted) = (row.peer, row.promoted);
            *place = Some((owed, self.leave(peer, promoted)));
        }
        over
    }

    /// Returns the times of the next events.
    pub(super) fn due(&self) -> Due {
        let front = |root| self.watches.top(root).map(|(_, at)| at);
        let looks = [front(self.waiting), front(self.told), self.window.ends()];
        Due {
            look: looks.into_iter().flatten().min().unwrap_or(u64::MAX),
            lease: self.leases.top(self.oldest).map_or(u64::MAX, |(_, at)| at),
        }
    }

    /// Returns true if an event is due at `now` (ns).
    pub(super) fn is_due(&self, now: u64) -> bool {
        let due = self.due();
        due.look <= early::now() || due.lease <= now
    }

    /// Moves the watch of a request to a queue; returns true if it is the first early reply to be
    /// read.
    pub(super) fn place(&mut self, slot: u32, place: Place) -> bool {
        let Some(row) = self.rows.at_mut(slot) else {
            bug!();
            return false;
        };
        let deadline = row.watch.deadline;
        match core::mem::replace(&mut row.watch.place, place) {
            Place::None => {}
            Place::Waiting(_) => self.watches.remove(&mut self.waiting, slot),
            Place::Told => self.watches.remove(&mut self.told, slot),
        }
        match place {
            Place::None => false,
            Place::Waiting(look) => {
                self.watches.push(&mut self.waiting, look, slot);
                false
            }
            Place::Told => {
                let first = self.told == Root::EMPTY;
                self.watches.push(&mut self.told, deadline, slot);
                first
            }
        }
    }

    /// Returns true if there is something to read.
    pub(super) fn is_readable(&self) -> bool {
        !self.ready.is_empty() || self.told != Root::EMPTY || self.window.is_readable()
    }

    /// Returns the record of the request in `slot`, if it is queued.
    pub(super) fn queued(&self, slot: u32) -> Option<Record> {
        let queued = |row: &&Row| matches!(row.state, State::Queued);
        self.rows.at(slot).filter(queued)?.record
    }

    /// Returns the action for the request in `slot` when the session is closed.
    pub(super) fn close(&mut self, slot: u32) -> Rest {
        if let Some(record) = self.queued(slot) {
            return Rest::Force(record);
        }
        match self.rows.at(slot).map(|row| &row.state) {
            Some(State::Released(..) | State::Late(_)) => match self.take_out(slot) {
                Some(finished) => {
                    self.rows.remove(slot);
                    Rest::End(finished)
                }
                None => Rest::Nothing,
            },
            _ => Rest::Nothing,
        }
    }
}
