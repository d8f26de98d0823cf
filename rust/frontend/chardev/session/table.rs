// SPDX-License-Identifier: GPL-2.0-only

//! The requests of a session: one table, by cookie.
//!
//! # Vocabulary
//!
//! - *Row*: what is known of a request ([`Row`]); it has a state ([`State`]).
//! - *Peer*: the client a request is for ([`Peer`]): a network identifier; requests without one have one peer together.
//! - *Window*: how many completions are remembered; what was completed earlier is not known any more.
//!
//! ```text
//!   enter ──▶ queued ──▶ released ──▶ removed, or ended: remembered within the window
//!                            │           ▲
//!                            └──▶ late ──┘
//! ```
//!
//! Deadlines, leases and the window hold slots of the table, so a request needs no memory but its row. The
//! table keeps its memory until the file is closed; the writer whose request needs more brings it.

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

/// Leases that one lock hold ends, at most.
pub(super) const LEASES: usize = 12;

/// What a released request must give back.
#[derive(Clone, Copy)]
pub(super) struct Owed {
    pub(super) account: Account,
    pub(super) cost: Cost,
}

/// How a request was released.
#[derive(Clone, Copy)]
pub(super) struct Served {
    /// The CPT that decided.
    pub(super) cpt: u16,
    /// For how long a policy kept it on purpose, ms.
    pub(super) withheld: u32,
    /// The server knows of it.
    pub(super) read: bool,
}

/// Where a request is.
#[derive(Clone, Copy)]
pub(super) enum State {
    /// With the engine.
    Queued,
    /// The policy has decided; it owes a slot.
    Released(Owed, Served),
    /// Its lease is over, so it owes nothing.
    Late(Served),
    /// It was completed, and is remembered.
    Ended,
}

/// What is known of a request.
pub(super) struct Row {
    pub(super) state: State,
    /// The engine's record of it, as long as that is the session's to use.
    pub(super) record: Option<Record>,
    /// When it arrived, ms.
    pub(super) arrival: u64,
    pub(super) watch: Watch,
    /// Its deadline passed.
    pub(super) expired: bool,
    /// The client it is for.
    peer: Handle,
    /// It goes through the high-priority head, or is on the way there.
    high: bool,
    /// It was moved there, so that its peer is urgent.
    promoted: bool,
    /// It is to be moved there once its record is known.
    asked: bool,
    /// In the list of those that are remembered.
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

    /// How it was released, if it is released and not completed.
    pub(super) fn served(&self) -> Option<&Served> {
        match &self.state {
            State::Released(_, served) | State::Late(served) => Some(served),
            State::Queued | State::Ended => None,
        }
    }

    /// As [`Self::served`], for writing.
    pub(super) fn served_mut(&mut self) -> Option<&mut Served> {
        match &mut self.state {
            State::Released(_, served) | State::Late(served) => Some(served),
            State::Queued | State::Ended => None,
        }
    }
}

/// What a peer has.
pub(super) struct Peer {
    /// Requests that are queued, or owe something.
    requests: u32,
    /// Of these, those that were moved to high priority.
    urgent: u32,
}

/// What became of a request that was entered.
pub(super) struct Joined {
    pub(super) handle: Handle,
    /// It is the only one of its peer.
    pub(super) first: bool,
    /// Requests of the peer.
    pub(super) requests: u32,
    /// Others wait for one of these.
    pub(super) urgent: bool,
}

/// What is to be counted of a request that was taken out.
#[derive(Clone, Copy)]
pub(super) struct Gone {
    /// Its deadline passed, and that was not noticed.
    pub(super) expired: bool,
    /// The last request of its peer has ended.
    pub(super) peer_idle: bool,
}

/// A request that was released, and was taken out.
pub(super) struct Finished {
    /// What it owes; `None`: it was late.
    pub(super) owed: Option<Owed>,
    pub(super) record: Option<Record>,
    pub(super) arrival: u64,
    pub(super) served: Served,
    pub(super) gone: Gone,
}

/// What moving a request to high priority takes.
pub(super) enum Move {
    /// Nothing: it is released, or moved already.
    Nothing,
    /// This record is to be moved.
    Record(Record),
    /// Its record is not known yet; whoever learns it moves it.
    Later,
}

/// What the predecessors of a request come to.
pub(super) enum Before {
    /// The relation that the engine is told.
    Known(Relation),
    /// One of them has no record in the partition: only its end can be waited for.
    Unrecorded,
    /// One of them is not known.
    Unknown,
}

/// What closing a session does with the request in one slot.
pub(super) enum Rest {
    Nothing,
    /// It was released.
    End(Finished),
    /// It is queued.
    Force(Record),
}

/// What the table wants for one more request.
pub(super) type Need = (
    (TableNeed<u64, Row>, TableNeed<Key, Peer>),
    (Chunks<Knot>, Chunks<Knot>),
);

/// Memory for the table.
pub(super) type Spare = <Need as mem::Need>::Spare;

/// When the session has something to do by itself.
#[derive(Clone, Copy)]
pub(super) struct Due {
    /// A deadline, or the end of a recovery, ms.
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

/// What the lock protects.
///
/// # Invariants
///
/// One row of a cookie at most is not `Ended`; one at most is. `live` is the number of rows that are not, `running` that
/// of those that were read; each request in `ready` has a row that is released and was not read. A row is in
/// `waiting` or `told` as its watch says, in `oldest` if it is `Released` and there are leases, and in `past` if it is
/// `Ended`. `peers` counts the requests that are queued or owe something.
pub(super) struct Inner {
    pub(super) rows: Table<u64, Row>,
    pub(super) peers: Table<Key, Peer>,
    pub(super) watches: Forest,
    /// Deadlines to look at, by when.
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
    /// How clients come back.
    pub(super) window: Window,
    /// What the timer is armed for; not later than what is due.
    pub(super) armed: Due,
    /// The timer rests until then, monotonic ns.
    pub(super) rest: u64,
    pub(super) live: u32,
    pub(super) running: u32,
    /// Writers that wait for any completion.
    pub(super) impatient: u32,
    /// Somebody waits for the end of all requests.
    pub(super) draining: bool,
    pub(super) closing: bool,
}

impl Inner {
    /// A table for `limit` requests with leases of `lease_ns` (0: none), that remembers `window_max` completions. Its
    /// memory is charged to the control group of the caller, who decides its size.
    ///
    /// # Errors
    ///
    /// [`NoMemory`]: the allocator had none, or the group may have no more.
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

    /// What memory is wanted for one more request.
    pub(super) fn need(&self) -> Need {
        let slots = (self.rows.slots() as usize).saturating_add(1);
        (
            (self.rows.need(), self.peers.need()),
            (self.watches.wants(slots), self.leases.wants(slots)),
        )
    }

    /// Takes memory and hands back what there is no use for.
    pub(super) fn grow(&mut self, ((rows, peers), (watches, leases)): Spare) -> Spare {
        (
            (self.rows.grow(rows), self.peers.grow(peers)),
            (self.watches.feed(watches), self.leases.feed(leases)),
        )
    }

    /// The slot of the request with this cookie that is not completed.
    pub(super) fn find(&self, cookie: &u64) -> Option<u32> {
        self.rows.find(cookie, Row::is_live)
    }

    /// Whether others wait for a request of the peer of the request in `slot`.
    pub(super) fn is_urgent(&mut self, slot: u32) -> bool {
        let peer = self.rows.at(slot).map(|row| row.peer);
        let peer = peer.and_then(|peer| self.peers.get_mut(peer));
        peer.is_some_and(|peer| peer.urgent > 0)
    }

    /// Enters a request that has memory, for `peer`; `None`: it has none. No live row has its cookie.
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

    /// Notes that a queued request was released at `now` (ns).
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

    /// Notes the record of a request; returns it if the request is to be moved to high priority.
    pub(super) fn learn(&mut self, handle: Handle, record: Record) -> Option<Record> {
        let row = self.rows.get_mut(handle)?;
        if !matches!(row.state, State::Queued) {
            return None;
        }
        row.record = Some(record);
        core::mem::replace(&mut row.asked, false).then_some(record)
    }

    /// Notes that a request is to have high priority. `None`: there is no such request.
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

    /// What comes before request `cookie` with `predecessors` (0: none), for the partition `home`.
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

    /// Takes a request off its peer; whether that was its last one.
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

    /// Takes out a queued request; it stays counted in `live`.
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

    /// Takes out a request that was read; `remember`: it may be named as a predecessor.
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
        // A request that is late owes nothing, and was taken off its peer then.
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

    /// Remembers the completion in `slot` instead of the `earlier` one of its cookie, or of the oldest one.
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

    /// Has the lease of a request begin at `from` (ns) if that is later.
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

    /// Ends leases that are over at `now`; returns what those requests owed, and whether they were the last ones of their
    /// peers.
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
            // What comes after it waits for its completion all the same.
            owed.account.placement.record = None;
            let (peer, promoted) = (row.peer, row.promoted);
            *place = Some((owed, self.leave(peer, promoted)));
        }
        over
    }

    /// When there is something to do next.
    pub(super) fn due(&self) -> Due {
        let front = |root| self.watches.top(root).map(|(_, at)| at);
        let looks = [front(self.waiting), front(self.told), self.window.ends()];
        Due {
            look: looks.into_iter().flatten().min().unwrap_or(u64::MAX),
            lease: self.leases.top(self.oldest).map_or(u64::MAX, |(_, at)| at),
        }
    }

    /// Whether something is due at `now` (ns).
    pub(super) fn is_due(&self, now: u64) -> bool {
        let due = self.due();
        due.look <= early::now() || due.lease <= now
    }

    /// Puts the watch of a request where it belongs; whether that is the first early reply to be read.
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

    /// Whether there is something to read.
    pub(super) fn is_readable(&self) -> bool {
        !self.ready.is_empty() || self.told != Root::EMPTY || self.window.is_readable()
    }

    /// The record of the request in `slot`, if it is queued.
    pub(super) fn queued(&self, slot: u32) -> Option<Record> {
        let queued = |row: &&Row| matches!(row.state, State::Queued);
        self.rows.at(slot).filter(queued)?.record
    }

    /// What is to be done with the request in `slot` as the session is closed.
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
