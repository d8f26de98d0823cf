// SPDX-License-Identifier: GPL-2.0-only

//! The table of gates: how classes of all partitions come by the gate of their client, without a lock.
//!
//! # Vocabulary
//!
//! - *Place*: the index of a gate. The first [`GROUPS_MAX`] are the shared gates of groups, by their places in the
//!   plan; the others are in blocks of 8, and the hash of a client names two of them.
//! - *Tag*: 40 bits of the hash of a client and its group, never 0, and a *stamp* of 8 bits, which differs from claim
//!   to claim; the gate that has the tag is the client's.
//! - *Users*: classes that have requests queued for the gate.
//! - *Seat*: a place and the tag that was there ([`Seat`]); a class looks before each use whether it still is.
//!
//! ```text
//!               claim: CAS 0 to tag                  the manager meets it
//!   free gate ───────────────────────► claimed gate ──────────────────────► client's gate
//!       ▲                               at the rate that its group starts with       │
//!       └────── the manager closes it, if it has no users, and frees it ─────────────┘
//! ```
//!
//! Up to half of the gates are kept for clients that the plan lists ([`Gates::keep`]), so that others cannot take them
//! all. Whoever finds none shares the gate of the group of its own target, at the terms of clients without a line and
//! after all ranks.
//!
//! Classes claim gates under the locks of their partitions; the manager alone frees them.
//!
//! # Two claims for one client
//!
//! Two partitions can claim two places while a third one is freed. The manager, which meets each claimed gate, frees
//! the later one; its class finds the tag gone and claims the earlier one ([`Gates::is_double`]).
//!
//! # Announcements
//!
//! Gates with clients for the manager to meet are in a list, which is linked through the gates: it takes no memory, and a
//! gate is in it once at most. A class announces a gate after it has claimed or joined it ([`Gates::announce`]): it marks
//! the gate as listed, then puts it in front. The manager takes the list as a whole ([`Gates::take_news`]), and unmarks a
//! gate before it looks at it.
//!
//! No announcement is lost. A class that marks the gate puts it into the list before it releases its partition's lock;
//! the worker is woken then or with the next request that is classified, or comes with the next tick. A class that finds the gate marked has joined it before, and the
//! manager still has to unmark it, so the look that follows sees what the class did. Two things are left to the next
//! tick, which looks at all gates: a request that is not queued is counted after its announcement, and a class may join
//! a gate while its client is being retired.
//!
//! # What is not exact
//!
//! Between a look at the tag and the take a gate can be freed if it has no users. One request is then charged to a
//! gate that nobody or somebody else has. Two clients with the same tag share a gate; the hash is keyed,
//! and that takes more than 40 equal bits.

use super::{party, Gate, Gates};
use crate::sched::{
    key::Key,
    qbm::{
        plan::{Party, Who, GROUPS_MAX},
        terms::{LAST, UNREGULATED},
    },
};
use core::{
    hint, iter,
    sync::atomic::{
        AtomicU32, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
};

/// Places of a block.
pub const BLOCK: usize = 8;

/// Bits of a state that count users; the tag is above.
const USERS_BITS: u32 = 16;

/// Bits of a tag that are its stamp, the lowest ones.
const STAMP_BITS: u32 = 8;

/// The number of users of a gate that is being made.
const MAKING: u64 = (1 << USERS_BITS) - 1;

/// The state of a gate that nobody has and nobody may claim.
const CLOSED: u64 = MAKING;

/// How often a claim starts again because others were faster.
const TRIES: u32 = 64;

/// The place of no gate.
const NOWHERE: u32 = u32::MAX;

/// The end of the list of announced gates.
pub(super) const END: u32 = u32::MAX;

/// What a gate that is not in that list has for the gate before it.
pub(super) const UNLISTED: u32 = END - 1;

/// The target of a group that is for all targets without one.
const ALL_TARGETS: u64 = 1 << 32;

/// The target of no group.
const NO_TARGET: u64 = u64::MAX;

/// A class's right to a gate; see [`Gates::holds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    place: u32,
    /// Which groups there were.
    epoch: u32,
    tag: u64,
}

impl Seat {
    /// No gate: nobody regulates the class.
    pub const NONE: Self = Self {
        place: NOWHERE,
        epoch: 0,
        tag: 0,
    };

    /// The place of the gate.
    pub const fn place(&self) -> u32 {
        self.place
    }

    /// Whether the gate is one that clients without a gate of their own share.
    #[inline]
    pub const fn is_shared(&self) -> bool {
        is_shared(self.place)
    }

    /// Whether both are the same gate.
    pub fn is(&self, other: &Self) -> bool {
        (self.place, self.tag) == (other.place, other.tag)
    }
}

/// Whose gate one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The client; [`Who::NOBODY`]'s party for a shared gate. The target is that of the class that claimed it.
    pub who: Who,
    /// The number of the group.
    pub group: u32,
}

/// What claims have to know of a group.
pub struct Door {
    target: AtomicU64,
    number: AtomicU32,
    rank: AtomicU32,
    /// What a client has until the manager meets it, bytes/s.
    rate: AtomicU64,
    /// Classes that found no gate of their own.
    full: AtomicU64,
}

impl Door {
    /// That of no group.
    pub fn shut() -> Self {
        Self {
            target: AtomicU64::new(NO_TARGET),
            number: AtomicU32::new(0),
            rank: AtomicU32::new(0),
            rate: AtomicU64::new(UNREGULATED),
            full: AtomicU64::new(0),
        }
    }
}

/// Whether the gate at `place` is the shared one of a group.
#[inline]
pub const fn is_shared(place: u32) -> bool {
    (place as usize) < GROUPS_MAX
}

/// The tag that a state holds.
const fn tag_of(state: u64) -> u64 {
    state >> USERS_BITS
}

/// The tag without its stamp: the same for all claims of a client.
const fn key_of(state: u64) -> u64 {
    state >> (USERS_BITS + STAMP_BITS)
}

/// The number of users in a state.
const fn users_of(state: u64) -> u64 {
    state & MAKING
}

impl Gate {
    /// Classes with requests queued for it.
    pub fn users(&self) -> u64 {
        users_of(self.state.load(SeqCst))
    }

    /// Adds a user, if the gate is that of `seat`; whether it is, and has room.
    pub fn join(&self, seat: &Seat) -> bool {
        let more = |state: u64| {
            let fits = tag_of(state) == seat.tag && users_of(state).saturating_add(1) < MAKING;
            fits.then_some(state.wrapping_add(1))
        };
        self.state.fetch_update(SeqCst, SeqCst, more).is_ok()
    }

    /// Removes a user, if the gate still is that of `seat`.
    pub fn leave(&self, seat: &Seat) {
        let less = |state: u64| {
            let there = tag_of(state) == seat.tag && users_of(state) > 0;
            there.then(|| state.wrapping_sub(1))
        };
        // A gate that was taken away has forgotten its users.
        let _ = self.state.fetch_update(SeqCst, SeqCst, less);
    }

    /// Makes it the gate of `owner`, full and with no client yet. The gate is being made.
    fn begin(&self, owner: &Owner, rate: u64, rank: u8, now: u64) {
        self.known.store(0, SeqCst);
        self.group.store(owner.group, Relaxed);
        self.target.store(owner.who.target, Relaxed);
        for (word, value) in self.party.iter().zip(party::words(&owner.who.party)) {
            word.store(value, Relaxed);
        }
        self.set(rate, rank, now);
        self.clear(now);
    }

    /// Notes whether the gate has a client that is registered.
    pub fn set_known(&self, known: bool) {
        self.known.store(known.into(), SeqCst);
    }

    /// Whether the gate has a client that is registered.
    #[inline]
    pub fn is_known(&self) -> bool {
        self.known.load(SeqCst) != 0
    }
}

impl Gates {
    /// Which groups there are; changes with each plan.
    #[inline]
    fn epoch(&self) -> u32 {
        self.epoch.load(SeqCst)
    }

    /// Whether `seat` still is the right one for the class that has it.
    #[inline]
    pub fn holds(&self, seat: &Seat) -> bool {
        seat.epoch == self.epoch() && self.has(seat)
    }

    /// Whether the gate of `seat` still has the tag.
    #[inline]
    pub fn has(&self, seat: &Seat) -> bool {
        let gate = self.get(seat.place);
        gate.is_none_or(|gate| tag_of(gate.state.load(SeqCst)) == seat.tag)
    }

    /// The group of `target`, by its place.
    fn door_of(&self, target: u32) -> Option<usize> {
        let mut all = None;
        for place in 0..self.doors.len() {
            match self.doors.get(place)?.target.load(Relaxed) {
                NO_TARGET => break,
                ALL_TARGETS => all = Some(place),
                other if other == u64::from(target) => return Some(place),
                _ => {}
            }
        }
        all
    }

    /// The gate of `who`, whose class had `before`: its own, or that of its group if none is free, or none if no
    /// group is for the target. `listed` says whether the plan has a line for it; it is asked only if few gates are free.
    /// Takes a bounded number of steps.
    pub fn claim(&self, who: &Who, before: &Seat, listed: impl Fn() -> bool, now: u64) -> Seat {
        let epoch = self.epoch();
        let none = Seat {
            epoch,
            ..Seat::NONE
        };
        let Some(place) = self.door_of(who.target) else {
            return none;
        };
        let Some(door) = self.doors.get(place) else {
            return none;
        };
        if let Some((place, tag)) = self.find(who, door, listed, now) {
            return Seat { place, epoch, tag };
        }
        if !before.is_shared() && who.party != Who::NOBODY.party {
            door.full.fetch_add(1, Relaxed);
        }
        let place = place as u32;
        let state = self.get(place).map(|gate| gate.state.load(SeqCst));
        state.map_or(none, |state| Seat {
            place,
            epoch,
            tag: tag_of(state),
        })
    }

    /// The place of `who` behind `door`, claimed if there is none, and its tag; none if its blocks are full or as
    /// many gates are claimed as may be.
    fn find(
        &self,
        who: &Who,
        door: &Door,
        listed: impl Fn() -> bool,
        now: u64,
    ) -> Option<(u32, u64)> {
        if who.party == Party::Key(Key::Default) {
            return None;
        }
        let group = door.number.load(Relaxed);
        let key = Who {
            target: group,
            ..*who
        };
        let hash = self.hasher.wide(&key);
        let wanted = key_of(hash).max(1);
        for _ in 0..TRIES {
            let mut free = None;
            let mut making = false;
            for (index, gate) in self.places(wanted) {
                let state = gate.state.load(SeqCst);
                if key_of(state) == wanted {
                    if users_of(state) != MAKING {
                        return Some((index, tag_of(state)));
                    }
                    making = true;
                    break;
                }
                if state == 0 && free.is_none() {
                    free = Some((index, gate));
                }
            }
            if making {
                hint::spin_loop();
                continue;
            }
            let (index, gate) = free?;
            let used = self.used.fetch_add(1, SeqCst);
            if used >= self.max || (used >= self.unlisted_max() && !listed()) {
                self.used.fetch_sub(1, SeqCst);
                return None;
            }
            let stamp = self.stamps.fetch_add(1, Relaxed) & ((1 << STAMP_BITS) - 1);
            let tag = (wanted << STAMP_BITS) | u64::from(stamp);
            let making = (tag << USERS_BITS) | MAKING;
            if gate
                .state
                .compare_exchange(0, making, SeqCst, SeqCst)
                .is_err()
            {
                self.used.fetch_sub(1, SeqCst);
                continue;
            }
            let owner = Owner { who: *who, group };
            let rank = door.rank.load(Relaxed) as u8;
            gate.begin(&owner, door.rate.load(Relaxed), rank, now);
            gate.state.store(tag << USERS_BITS, SeqCst);
            self.announce(index);
            return Some((index, tag));
        }
        None
    }

    /// The places where a client with `key` can be, in the order in which they are looked at.
    fn places(&self, key: u64) -> impl Iterator<Item = (u32, &Gate)> {
        [key, key >> 20].into_iter().flat_map(|bits| {
            let base = (bits as usize).wrapping_mul(BLOCK) & self.mask;
            let base = base.saturating_add(GROUPS_MAX);
            (base as u32..).zip(self.gates.run(base, BLOCK))
        })
    }

    /// Tells the manager to look at the gate at `place`; returns whether no other gate was announced since the manager
    /// took the list, so that the worker has to be woken.
    #[inline]
    pub fn announce(&self, place: u32) -> bool {
        let Some(gate) = self.get(place) else {
            return false;
        };
        let listed = gate.news.compare_exchange(UNLISTED, END, SeqCst, SeqCst);
        if listed.is_err() {
            return false;
        }
        let mut last = self.news.load(SeqCst);
        loop {
            gate.news.store(last, SeqCst);
            match self.news.compare_exchange_weak(last, place, SeqCst, SeqCst) {
                Ok(_) => return last == END,
                Err(other) => last = other,
            }
        }
    }

    /// Whether gates are announced.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.news.load(SeqCst) != END
    }

    /// Takes the places that were announced, in their order; all of them have to be looked at. For the manager only.
    pub fn take_news(&self) -> impl Iterator<Item = u32> + '_ {
        let mut last = self.news.swap(END, SeqCst);
        let mut first = END;
        while let Some(gate) = self.get(last) {
            let before = gate.news.swap(first, SeqCst);
            (first, last) = (last, before);
        }
        iter::from_fn(move || {
            let place = first;
            first = self.get(place)?.news.swap(UNLISTED, SeqCst);
            Some(place)
        })
    }

    /// Whose gate the one at `place` is; none if it is free or being made.
    pub fn owner(&self, place: u32) -> Option<Owner> {
        let gate = self.get(place)?;
        let state = gate.state.load(SeqCst);
        if state == 0 || users_of(state) == MAKING {
            return None;
        }
        let mut words = [0; party::WORDS];
        for (word, value) in words.iter_mut().zip(&gate.party) {
            *word = value.load(Relaxed);
        }
        let party = if is_shared(place) {
            Who::NOBODY.party
        } else {
            party::read(&words)?
        };
        let target = gate.target.load(Relaxed);
        let group = gate.group.load(Relaxed);
        Some(Owner {
            who: Who { party, target },
            group,
        })
    }

    /// Whether an earlier place is of the client that has the gate at `place`, too.
    pub fn is_double(&self, place: u32) -> bool {
        let Some(gate) = self.get(place).filter(|_| !is_shared(place)) else {
            return false;
        };
        let key = key_of(gate.state.load(SeqCst));
        let mut places = self.places(key);
        let first = places.find(|(_, gate)| key_of(gate.state.load(SeqCst)) == key);
        first.is_some_and(|(first, _)| first != place)
    }

    /// Closes the gate at `place` if it has no users; whether it did. Nobody claims it until it is freed.
    pub fn close(&self, place: u32) -> bool {
        let Some(gate) = self.get(place) else {
            return false;
        };
        let state = gate.state.load(SeqCst);
        let unused = state != 0 && users_of(state) == 0 && !is_shared(place);
        let close = || gate.state.compare_exchange(state, CLOSED, SeqCst, SeqCst);
        unused && close().is_ok()
    }

    /// Frees the gate at `place`, whoever uses it.
    pub fn revoke(&self, place: u32) {
        if let Some(gate) = self.get(place) {
            if gate.state.swap(0, SeqCst) != 0 && !is_shared(place) {
                self.used.fetch_sub(1, SeqCst);
            }
        }
    }

    /// Keeps `count` gates for clients that the plan lists, at most half of them.
    pub fn keep(&self, count: u32) {
        self.kept.store(count.min(self.max / 2), Relaxed);
    }

    /// Gates that clients without a line may claim.
    fn unlisted_max(&self) -> u32 {
        self.max.saturating_sub(self.kept.load(Relaxed))
    }

    /// Whether half of the gates for clients without a line are claimed.
    pub fn are_scarce(&self) -> bool {
        self.used.load(Relaxed) >= self.unlisted_max() / 2
    }

    /// Opens the group `number` at `place` in the plan for `target`, or for all targets that no other one is for, with
    /// what clients have there until the manager meets them ([`Gates::set_start`]).
    pub fn open(
        &self,
        place: u32,
        (number, target): (u32, Option<u32>),
        start: (u64, u8),
        now: u64,
    ) {
        // Whoever finds the group finds its rate.
        self.set_start(place, start, now);
        if let (Some(door), Some(gate)) = (self.doors.get(place as usize), self.get(place)) {
            door.number.store(number, Relaxed);
            gate.group.store(number, Relaxed);
            gate.target.store(target.unwrap_or(u32::MAX), Relaxed);
            let tag = u64::from(number).saturating_add(1) << STAMP_BITS;
            if tag_of(gate.state.load(SeqCst)) != tag {
                gate.state.store(tag << USERS_BITS, SeqCst);
            }
            let target = target.map_or(ALL_TARGETS, u64::from);
            door.target.store(target, Relaxed);
        }
    }

    /// Shuts the groups from `place` in the plan on, and has all classes look for their groups again.
    pub fn opened(&self, place: u32) {
        for place in place as usize..self.doors.len() {
            if let Some(door) = self.doors.get(place) {
                door.target.store(NO_TARGET, Relaxed);
            }
            self.revoke(place as u32);
        }
        self.epoch.fetch_add(1, SeqCst);
    }

    /// Sets rate, bytes/s, and rank that clients of the group at `place` have until the manager meets them; for the
    /// manager only.
    pub fn set_start(&self, place: u32, (rate, rank): (u64, u8), now: u64) {
        if let (Some(door), Some(gate)) = (self.doors.get(place as usize), self.get(place)) {
            door.rate.store(rate, Relaxed);
            door.rank.store(rank.into(), Relaxed);
            if !gate.is_known() {
                gate.set(rate, LAST, now);
            }
        }
    }

    /// How many classes of the group at `place` found no gate of their own since the last call.
    pub fn take_full(&self, place: u32) -> u64 {
        let door = self.doors.get(place as usize);
        door.map_or(0, |door| door.full.swap(0, Relaxed))
    }
}
