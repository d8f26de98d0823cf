// SPDX-License-Identifier: GPL-2.0-only

//! Deadlines of a session's requests, and the early replies that move them.
//!
//! # Vocabulary
//!
//! - *Deadline*: when the client of a request gives up, as far as the server was told.
//! - *Early reply*: what the server passes on to that client: a later deadline.
//! - *Granted*: the later deadline of an early reply that was not read yet; nobody knows of it.
//! - *Expired*: the deadline has passed.
//! - *Watch*: what is known of the deadline of a request ([`Watch`]).
//! - *Look*: when a watch is to be looked at: the margin before its deadline; then at the deadline.
//!
//! ```text
//!              ┌──────────── read ◀───────────┐
//!              ▼                              │
//!   taken ──▶ waiting ── margin, granted ──▶ told ── deadline ──▶ expired, late
//!     │        │    └─── margin, refused ──▶ waiting, the last time
//!     │        └──────── deadline ──▶ expired      └── deadline ──▶ expired
//!     └── its timeout is under the estimate ──▶ told
//! ```
//!
//! # Memory and time
//!
//! A request that states a timeout has one node, made before it is taken. The node is in one of two trees, by the
//! next thing that may happen to it: waiting for a look, or an early reply that waits to be read. So there
//! is never more than one of those for a request, whatever the server does not read. A timer of the session
//! looks at what is due in hard interrupt context, [`CHUNK`] nodes at a time: it depends on no task.

use kernel::{
    rbtree::{RBTree, RBTreeNode, RBTreeNodeReservation},
    sync::Arc,
};

use super::{
    recovery::Window,
    table::{Entry, Inner},
    CHUNK,
};
use crate::{
    frontend::chardev::wire,
    sched::{
        timeouts::{
            early::{self, Stated},
            terms::{Mode, Terms},
        },
        units::NSEC_PER_MSEC,
    },
    sys::{misc, timer::Timed},
};

mod clock;
mod look;

pub(in crate::frontend::chardev::session) use clock::Clock;

/// Time before the next look, at least, ns.
const PAUSE: u64 = 20_000;

/// Early replies that one lock hold hands out, at most.
pub(super) const TOLD: usize = 16;

/// Now, ms.
pub(super) fn now() -> u64 {
    misc::millis()
}

/// The time between two instants, ms; 0: `to` is not later.
pub(super) fn between(from: u64, to: u64) -> u32 {
    u32::try_from(to.saturating_sub(from)).unwrap_or(u32::MAX)
}

/// Where a watch is found: an instant, and the number of its request.
pub(super) type Key = (u64, u64);

/// What is known of the deadline of a request.
#[derive(Clone, Copy)]
pub(super) struct Watch {
    cookie: u64,
    /// When it arrived, and when its client gives up as far as the server was told.
    stated: Stated,
    /// Deadline of the early reply that waits to be read; of one that was not, 0.
    granted: u64,
    /// Until when the server said that it is busy with it; 0: it did not.
    busy: u64,
    /// Of the early reply: `EARLY_*`.
    flags: u32,
    /// There will be no other early reply.
    last: bool,
}

/// A node that a request with a timeout may need.
pub(super) type WatchSpare = RBTreeNodeReservation<Key, Watch>;

/// A node that was taken out.
pub(super) type WatchNode = RBTreeNode<Key, Watch>;

/// In which tree the watch of a request is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// It has none.
    None,
    /// Waiting, to be looked at then.
    Waiting(u64),
    /// Told of, with this deadline.
    Told(u64),
}

/// What a request states when it comes in.
#[derive(Clone, Copy)]
pub(super) struct Statement {
    /// When it arrived.
    pub(super) arrival: u64,
    /// When its client gives up; `None`: it does not say, or deadlines are off.
    pub(super) deadline: Option<u64>,
    /// It has an early reply at once, with this deadline.
    granted: Option<u64>,
    /// When it is to be looked at; at its deadline if there are no early replies.
    look: u64,
}

impl Statement {
    /// What `record`, which states no timeout, states at `now`.
    pub(super) fn none(record: &wire::Request, now: u64) -> Self {
        Self {
            arrival: now.saturating_sub(record.elapsed_ms.into()),
            deadline: None,
            granted: None,
            look: u64::MAX,
        }
    }

    /// What `record`, which states a timeout, states at `now`, under `terms` and with this estimate, ms.
    pub(super) fn of(record: &wire::Request, now: u64, terms: &Terms, estimate: u32) -> Self {
        let plain = Self::none(record, now);
        let arrival = plain.arrival;
        let mode = terms.mode();
        if mode == Mode::Off {
            return plain;
        }
        let deadline = arrival.saturating_add(record.timeout_ms.into());
        if mode == Mode::Fixed {
            // Nothing is known that could be told.
            return Self {
                deadline: Some(deadline),
                look: deadline,
                ..plain
            };
        }
        Self {
            deadline: Some(deadline),
            granted: early::on_arrival(terms, arrival, record.timeout_ms, estimate)
                .filter(|granted| *granted > deadline),
            look: early::wake(terms, deadline).clamp(arrival, deadline),
            ..plain
        }
    }

    /// Whether its client has given up at `now`.
    pub(super) fn is_over(&self, now: u64) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

/// An early reply that was taken to be read.
#[derive(Clone, Copy)]
pub(crate) struct Told {
    number: u64,
    /// The deadline before.
    deadline: u64,
    pub(crate) record: wire::Early,
}

/// Nodes that were taken out, to be freed without the lock.
pub(super) type Husks = [Option<WatchNode>; CHUNK as usize];

/// None.
pub(super) fn no_husks() -> Husks {
    [const { None }; CHUNK as usize]
}

/// What a look has found.
#[derive(Clone, Copy, Default)]
pub(super) struct Found {
    /// Early replies that would not have helped.
    pub(super) refused: u64,
    /// Early replies that were not read, or not thought of, before the deadline.
    pub(super) late: u64,
    /// Requests whose deadline passed.
    pub(super) expired: u64,
    /// What the estimator is told, ms; 0: nothing.
    feed: u32,
    /// There is something to read that was not before.
    readable: bool,
}

/// The deadlines of a session.
///
/// # Invariants
///
/// A watch is in at most one tree, and the entry of its request says where. `armed` is not later than what `clock` is
/// armed for.
pub(super) struct Deadlines {
    waiting: RBTree<Key, Watch>,
    told: RBTree<Key, Watch>,
    /// What the clock is armed for; `u64::MAX`: nothing.
    armed: u64,
    clock: Option<Arc<Timed<Clock>>>,
    pub(super) window: Window,
}

impl Deadlines {
    /// None.
    pub(super) fn new() -> Self {
        // INVARIANT: There is nothing.
        Self {
            waiting: RBTree::new(),
            told: RBTree::new(),
            armed: u64::MAX,
            clock: None,
            window: Window::new(),
        }
    }

    /// Has them looked at by `clock`, or by nothing any more; returns what they were looked at by.
    fn replace_clock(&mut self, clock: Option<Arc<Timed<Clock>>>) -> Option<Arc<Timed<Clock>>> {
        core::mem::replace(&mut self.clock, clock)
    }

    /// Whether there is something to read.
    pub(super) fn is_readable(&self) -> bool {
        !self.told.is_empty() || self.window.is_readable()
    }

    /// Has them looked at `at`, if that is not to be earlier anyway.
    pub(super) fn look_at(&mut self, at: u64) {
        if at >= self.armed {
            return;
        }
        let Some(clock) = &self.clock else {
            return;
        };
        // INVARIANT: Armed for no earlier.
        self.armed = at;
        let wait = at.saturating_sub(now()).saturating_mul(NSEC_PER_MSEC);
        clock.arm(misc::now().saturating_add(wait.max(PAUSE)));
    }

    /// When they are to be looked at next.
    fn next(&self) -> u64 {
        let front = |tree: &RBTree<Key, Watch>| tree.cursor_front().map(|at| at.current().0 .0);
        let trees = [front(&self.waiting), front(&self.told), self.window.ends()];
        trees.into_iter().flatten().min().unwrap_or(u64::MAX)
    }

    /// The watch of request `number` at `place`.
    fn get(&self, place: Place, number: u64) -> Option<&Watch> {
        match place {
            Place::None => None,
            Place::Waiting(look) => self.waiting.get(&(look, number)),
            Place::Told(deadline) => self.told.get(&(deadline, number)),
        }
    }

    /// Takes out the watch of request `number` at `place`.
    fn remove(&mut self, place: Place, number: u64) -> Option<(Watch, WatchNode)> {
        let watch = *self.get(place, number)?;
        let node = match place {
            Place::None => None,
            Place::Waiting(look) => self.waiting.remove_node(&(look, number)),
            Place::Told(deadline) => self.told.remove_node(&(deadline, number)),
        };
        Some((watch, node?))
    }

    /// Puts a watch of request `number` to `place`, which must not be none; whether it is the first to be read.
    fn put(&mut self, spare: WatchSpare, place: Place, number: u64, watch: Watch) -> bool {
        match place {
            Place::None => false,
            Place::Waiting(look) => {
                self.waiting.insert(spare.into_node((look, number), watch));
                self.look_at(look);
                false
            }
            Place::Told(deadline) => {
                let first = self.told.is_empty();
                self.told.insert(spare.into_node((deadline, number), watch));
                self.look_at(deadline);
                first
            }
        }
    }
}

impl Inner {
    /// Notes what request `number` with `entry`, which is about to be entered, states; whether it is the first to be
    /// read.
    pub(super) fn state(
        &mut self,
        cookie: u64,
        number: u64,
        entry: &mut Entry,
        statement: &Statement,
        spare: &mut Option<WatchSpare>,
    ) -> bool {
        entry.arrival = statement.arrival;
        let Some(deadline) = statement.deadline else {
            return false;
        };
        if statement.is_over(now()) {
            entry.expired = true;
            return false;
        }
        let Some(spare) = spare.take() else {
            return false;
        };
        let (place, granted, flags) = match statement.granted {
            Some(granted) => (Place::Told(deadline), granted, wire::EARLY_AT_ONCE),
            None => (Place::Waiting(statement.look), 0, 0),
        };
        entry.place = place;
        let watch = Watch {
            cookie,
            stated: Stated {
                arrival: statement.arrival,
                deadline,
            },
            granted,
            busy: 0,
            flags,
            last: statement.look >= deadline,
        };
        self.deadlines.put(spare, place, number, watch)
    }

    /// Any entry that is not completed.
    fn any_mut(&mut self, cookie: &u64) -> Option<&mut Entry> {
        if self.queued.get(cookie).is_some() {
            return self.queued.get_mut(cookie);
        }
        self.released_mut(cookie)
    }

    /// Says where the watch of a request is now.
    fn set_place(&mut self, cookie: &u64, place: Place) {
        if let Some(entry) = self.any_mut(cookie) {
            entry.place = place;
        }
    }

    /// Moves a watch to `place`; whether it is the first to be read.
    fn move_watch(&mut self, node: WatchNode, place: Place, number: u64, watch: Watch) -> bool {
        self.set_place(&watch.cookie, place);
        self.deadlines
            .put(node.into_reservation(), place, number, watch)
    }

    /// Takes out the watch of `entry`, whose request ends; also says whether its deadline passed and that was not noticed.
    pub(super) fn unwatch(&mut self, entry: &Entry) -> (Option<WatchNode>, bool) {
        match self.deadlines.remove(entry.place, entry.number) {
            Some((watch, node)) => (Some(node), watch.stated.deadline <= now()),
            None => (None, false),
        }
    }

    /// The time until the deadline of `entry`, ms; `None`: it passed. 0: there is none.
    pub(super) fn left(&self, entry: &Entry) -> Option<u32> {
        if entry.expired {
            return None;
        }
        match self.deadlines.get(entry.place, entry.number) {
            Some(watch) => Some(between(now(), watch.stated.deadline)).filter(|left| *left > 0),
            None => Some(0),
        }
    }

    /// Notes that a request expired, whose watch was taken out.
    fn expire(&mut self, watch: &Watch, found: &mut Found) {
        found.expired = found.expired.wrapping_add(1);
        if let Some(entry) = self.any_mut(&watch.cookie) {
            entry.expired = true;
            entry.place = Place::None;
        }
    }

    /// Takes the most urgent early replies, at most `max`; what is too late is left to the clock. `estimate` is what they
    /// tell of.
    pub(super) fn take_told(
        &mut self,
        max: u32,
        estimate: u32,
        terms: &Terms,
    ) -> [Option<Told>; TOLD] {
        let mut taken = [None; TOLD];
        let now = now();
        for place in taken.iter_mut().take(max as usize) {
            let front = self.deadlines.told.cursor_front();
            let Some((deadline, number)) = front.map(|at| *at.current().0) else {
                break;
            };
            if deadline <= now {
                break;
            }
            let Some((watch, node)) = self.deadlines.remove(Place::Told(deadline), number) else {
                break;
            };
            let arrival = watch.stated.arrival;
            let next = Watch {
                stated: Stated {
                    arrival,
                    deadline: watch.granted,
                },
                granted: 0,
                flags: 0,
                ..watch
            };
            let look = early::wake(terms, watch.granted).clamp(now, watch.granted);
            self.move_watch(node, Place::Waiting(look), number, next);
            let timeout = between(arrival, watch.granted);
            *place = Some(Told {
                number,
                deadline,
                record: wire::Early::new(watch.cookie, timeout, estimate, watch.flags),
            });
        }
        taken
    }

    /// Puts back an early reply: nobody was told of it.
    pub(super) fn put_back_told(&mut self, told: &Told) {
        let Some(entry) = self.any_mut(&told.record.cookie) else {
            return;
        };
        let place = entry.place;
        if entry.number != told.number || !matches!(place, Place::Waiting(_)) {
            return;
        }
        if let Some((watch, node)) = self.deadlines.remove(place, told.number) {
            let back = Watch {
                stated: Stated {
                    deadline: told.deadline,
                    ..watch.stated
                },
                granted: watch.stated.deadline,
                flags: told.record.header.flags,
                ..watch
            };
            self.move_watch(node, Place::Told(told.deadline), told.number, back);
        }
    }
}
