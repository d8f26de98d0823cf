// SPDX-License-Identifier: GPL-2.0-only

//! Lock-free table of gates, in which request classes of all partitions find and claim the gate of
//! their client.
//!
//! - The first [`GROUPS_MAX`] gates are the shared gates of groups, in the order of the plan. The
//!   other gates form blocks ([`crate::sched::tagged_table`]); the hash of a client selects two
//!   blocks.
//! - A *tag* consists of 40 bits of the hash of client and group, never 0, and a *stamp* of 8 bits
//!   that differs between claims. The gate with the tag belongs to the client.
//! - The *users* of a gate are the request classes with requests queued for the gate.
//! - A *claim* is the index of a gate and the tag found there ([`GateClaim`]); a class verifies the
//!   tag before each use.
//!
//! ```text
//!              claim: CAS 0 to tag                the manager registers the client
//!   free gate ─────────────────────► claimed gate ────────────────────────────────► client's gate
//!       ▲                      start rate of the group                                    │
//!       └────────── the manager closes the gate, if there are no users, and frees it ─────┘
//! ```
//!
//! Up to half of the gates are reserved for clients that the plan lists ([`Gates::keep`]), so that
//! unlisted clients cannot take all of them. A client without a gate uses the shared gate of the
//! group, with the terms of unlisted clients and the lowest rank.
//!
//! Classes claim gates under the locks of their partitions; only the manager frees gates.
//!
//! # Two claims for one client
//!
//! Two partitions can claim two gates for one client while a third gate is freed. The manager,
//! which examines each claimed gate, frees the later gate of the two. Its class finds the tag
//! removed and claims the earlier gate ([`Gates::has_earlier_duplicate`]).
//!
//! # Announcements
//!
//! Gates with clients to be registered are in a list that is linked through the gates. The list
//! needs no memory and holds each gate at most once. A class announces a gate after claiming or
//! joining it ([`Gates::announce`]): the class marks the gate as listed and pushes it to the front.
//! The manager takes the whole list ([`Gates::take_pending`]), and unmarks each gate before
//! examining it.
//!
//! No announcement is lost. A class that marks the gate pushes it before releasing the partition's
//! lock. The worker is woken then or by the next classified request, or runs at the next tick. If a
//! class finds the gate marked, the class has already joined and the manager has yet to unmark the
//! gate. The manager therefore sees the effect of the join. Two cases are left to the next tick,
//! which examines all gates. A request that is not queued is counted after the announcement, and a
//! class may join a gate while the client is being retired.
//!
//! # Inaccuracies
//!
//! A gate without users can be freed between verification of the tag and the charge. One request is
//! then charged to a gate that is free or belongs to another client. Two clients with equal tags
//! share a gate; the hash is keyed, and a collision needs 40 equal bits.

use super::{client_key, Gate, Gates};
use crate::sched::{
    atomic::{Counter, RelaxedWord, RelaxedWord32},
    key::Key,
    qbm::{
        plan::{ClientKey, RequestOwner, GROUPS_MAX},
        terms::{LAST, UNREGULATED},
    },
    tagged_table::search,
};
use core::{hint, iter};

/// Bits of a state that count users; the tag is in the bits above.
const USERS_BITS: u32 = 16;

/// Bits of a tag that hold the stamp, the lowest bits.
const STAMP_BITS: u32 = 8;

/// Number of users that marks a gate under construction.
const MAKING: u64 = (1 << USERS_BITS) - 1;

/// State of a closed gate, which has no owner and cannot be claimed.
const CLOSED: u64 = MAKING;

/// Maximum number of attempts of a claim that races with other claims.
const TRIES: u32 = 64;

/// Index of no gate.
const NOWHERE: u32 = u32::MAX;

/// End of the list of announced gates.
pub(super) const END: u32 = u32::MAX;

/// Link of a gate that is not in the list of announced gates.
pub(super) const UNLISTED: u32 = END - 1;

/// Target of a group that serves all targets without a group of their own.
const ALL_TARGETS: u64 = 1 << 32;

/// Target of an unused entry.
const NO_TARGET: u64 = u64::MAX;

/// Claim of a request class on a gate; see [`Gates::holds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateClaim {
    idx: u32,
    /// Generation of the set of groups at the claim.
    epoch: u32,
    tag: u64,
}

impl GateClaim {
    /// No gate: the class is not regulated.
    pub const NONE: Self = Self {
        idx: NOWHERE,
        epoch: 0,
        tag: 0,
    };

    /// Returns the index of the gate.
    pub const fn idx(&self) -> u32 {
        self.idx
    }

    /// Returns true if the gate is the shared gate of a group.
    #[inline]
    pub const fn is_shared(&self) -> bool {
        is_shared(self.idx)
    }

    /// Returns true if both are for the same claim of a gate.
    pub fn is(&self, other: &Self) -> bool {
        (self.idx, self.tag) == (other.idx, other.tag)
    }
}

/// Owner of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateOwner {
    /// Client; the key of [`RequestOwner::SHARED`] for a shared gate. The target is the target of
    /// the class that claimed the gate.
    pub who: RequestOwner,
    /// Number of the group.
    pub group: u32,
}

/// Data of a group that claims need.
pub struct GroupEntry {
    target: RelaxedWord,
    number: RelaxedWord32,
    rank: RelaxedWord32,
    /// Rate of a client until the manager registers the client, bytes/s.
    rate: RelaxedWord,
    /// Number of classes that found no gate of their own.
    full: Counter,
}

impl GroupEntry {
    /// Creates an unused entry.
    pub fn shut() -> Self {
        Self {
            target: RelaxedWord::new(NO_TARGET),
            number: RelaxedWord32::new(0),
            rank: RelaxedWord32::new(0),
            rate: RelaxedWord::new(UNREGULATED),
            full: Counter::new(),
        }
    }
}

/// Returns true if the gate at `idx` is the shared gate of a group.
#[inline]
pub const fn is_shared(idx: u32) -> bool {
    (idx as usize) < GROUPS_MAX
}

/// Returns the tag in `state`.
const fn tag_of(state: u64) -> u64 {
    state >> USERS_BITS
}

/// Returns the tag without the stamp, which is the same for all claims of a client.
const fn key_of(state: u64) -> u64 {
    state >> (USERS_BITS + STAMP_BITS)
}

/// Returns the number of users in `state`.
const fn users_of(state: u64) -> u64 {
    state & MAKING
}

impl Gate {
    /// Returns the number of classes with requests queued for the gate.
    pub fn users(&self) -> u64 {
        users_of(self.state.get())
    }

    /// Adds a user if the gate still belongs to `claim` and the user count has room; returns true
    /// if added.
    pub fn join(&self, claim: &GateClaim) -> bool {
        let more = |state: u64| {
            let fits = tag_of(state) == claim.tag && users_of(state).saturating_add(1) < MAKING;
            fits.then_some(state.wrapping_add(1))
        };
        self.state.change(more)
    }

    /// Removes a user if the gate still belongs to `claim`.
    pub fn leave(&self, claim: &GateClaim) {
        let less = |state: u64| {
            let there = tag_of(state) == claim.tag && users_of(state) > 0;
            there.then(|| state.wrapping_sub(1))
        };
        // A revoked gate has lost the user count.
        self.state.change(less);
    }

    /// Initialises a gate under construction for `owner`: full, without a registered client.
    fn begin(&self, owner: &GateOwner, rate: u64, rank: u8, now: u64) {
        self.known.set(0);
        self.group.set(owner.group);
        self.target.set(owner.who.target);
        for (word, value) in self.party.iter().zip(client_key::words(&owner.who.party)) {
            word.set(value);
        }
        self.set(rate, rank, now);
        self.clear(now);
    }

    /// Sets whether the client of the gate is registered.
    pub fn set_known(&self, known: bool) {
        self.known.set(known.into());
    }

    /// Returns true if the client of the gate is registered.
    #[inline]
    pub fn is_known(&self) -> bool {
        self.known.get() != 0
    }
}

impl Gates {
    /// Returns the generation of the set of groups, which changes with each plan.
    #[inline]
    fn epoch(&self) -> u32 {
        self.epoch.get()
    }

    /// Returns true if `claim` is still valid for the class.
    #[inline]
    pub fn holds(&self, claim: &GateClaim) -> bool {
        claim.epoch == self.epoch() && self.has(claim)
    }

    /// Returns true if the gate of `claim` still has the tag.
    #[inline]
    pub fn has(&self, claim: &GateClaim) -> bool {
        let gate = self.get(claim.idx);
        gate.is_none_or(|gate| tag_of(gate.state.get()) == claim.tag)
    }

    /// Finds the index of the group of `target`.
    fn group_of_target(&self, target: u32) -> Option<usize> {
        let mut all = None;
        for idx in 0..self.entries.len() {
            match self.entries.get(idx)?.target.get() {
                NO_TARGET => break,
                ALL_TARGETS => all = Some(idx),
                other if other == u64::from(target) => return Some(idx),
                _ => {}
            }
        }
        all
    }

    /// Claims the gate of `who`, whose class held `before`. Returns the shared gate of the group if
    /// no gate is free, and [`GateClaim::NONE`] if no group is for the target. `listed` returns
    /// true if the plan has a line for `who`; it is called only if the reserved gates alone are
    /// left. The number of steps is bounded.
    pub fn claim(
        &self,
        who: &RequestOwner,
        before: &GateClaim,
        listed: impl Fn() -> bool,
        now: u64,
    ) -> GateClaim {
        let epoch = self.epoch();
        let none = GateClaim {
            epoch,
            ..GateClaim::NONE
        };
        let Some(idx) = self.group_of_target(who.target) else {
            return none;
        };
        let Some(entry) = self.entries.get(idx) else {
            return none;
        };
        if let Some((idx, tag)) = self.find(who, entry, listed, now) {
            return GateClaim { idx, epoch, tag };
        }
        if !before.is_shared() && who.party != RequestOwner::SHARED.party {
            entry.full.count(1);
        }
        let idx = idx as u32;
        let state = self.get(idx).map(|gate| gate.state.get());
        state.map_or(none, |state| GateClaim {
            idx,
            epoch,
            tag: tag_of(state),
        })
    }

    /// Finds or claims the gate of `who` in the group of `entry`; returns index and tag. Returns
    /// `None` if both blocks are full, the limit of claimed gates is reached or all attempts
    /// failed.
    fn find(
        &self,
        who: &RequestOwner,
        entry: &GroupEntry,
        listed: impl Fn() -> bool,
        now: u64,
    ) -> Option<(u32, u64)> {
        if who.party == ClientKey::Key(Key::Default) {
            return None;
        }
        let group = entry.number.get();
        let key = RequestOwner {
            target: group,
            ..*who
        };
        let hash = self.hasher.wide(&key);
        let wanted = key_of(hash).max(1);
        for _ in 0..TRIES {
            let places = self.places(wanted);
            let is_wanted = |state| key_of(state) == wanted;
            let (index, gate, _) =
                match search(places, |gate| gate.state.get(), is_wanted, |_, _| false) {
                    Ok((.., state)) if users_of(state) == MAKING => {
                        hint::spin_loop();
                        continue;
                    }
                    Ok((index, _, state)) => return Some((index, tag_of(state))),
                    Err(free) => free?,
                };
            let used = self.used.add(1);
            if used >= self.max || (used >= self.unlisted_max() && !listed()) {
                self.used.sub(1);
                return None;
            }
            let stamp = self.stamps.add(1) & ((1 << STAMP_BITS) - 1);
            let tag = (wanted << STAMP_BITS) | u64::from(stamp);
            let making = (tag << USERS_BITS) | MAKING;
            if !gate.state.replace(0, making) {
                self.used.sub(1);
                continue;
            }
            let owner = GateOwner { who: *who, group };
            let rank = entry.rank.get() as u8;
            gate.begin(&owner, entry.rate.get(), rank, now);
            gate.state.set(tag << USERS_BITS);
            self.announce(index);
            return Some((index, tag));
        }
        None
    }

    /// Iterates over the possible gates of a client with `key`, in search order.
    fn places(&self, key: u64) -> impl Iterator<Item = (u32, &Gate)> {
        let blocks = [key, key >> 20].into_iter();
        blocks.flat_map(|number| self.gates.places(number))
    }

    /// Adds the gate at `idx` to the list of announced gates. Returns true if the list was empty,
    /// so that the caller has to wake the worker.
    #[inline]
    pub fn announce(&self, idx: u32) -> bool {
        let Some(gate) = self.get(idx) else {
            return false;
        };
        if !gate.news.replace(UNLISTED, END) {
            return false;
        }
        let last = self.news.update(|last| {
            gate.news.set(last);
            Some(idx)
        });
        last == Ok(END)
    }

    /// Returns true if gates are announced.
    #[inline]
    pub fn has_pending(&self) -> bool {
        self.news.get() != END
    }

    /// Takes the list of announced gates, oldest first; the caller must examine all of them. For
    /// the manager only.
    pub fn take_pending(&self) -> impl Iterator<Item = u32> + '_ {
        let mut last = self.news.swap(END);
        let mut first = END;
        while let Some(gate) = self.get(last) {
            let before = gate.news.swap(first);
            (first, last) = (last, before);
        }
        iter::from_fn(move || {
            let idx = first;
            first = self.get(idx)?.news.swap(UNLISTED);
            Some(idx)
        })
    }

    /// Returns the owner of the gate at `idx`; `None` if the gate is free or under construction.
    pub fn owner(&self, idx: u32) -> Option<GateOwner> {
        let gate = self.get(idx)?;
        let state = gate.state.get();
        if state == 0 || users_of(state) == MAKING {
            return None;
        }
        let mut words = [0; client_key::WORDS];
        for (word, value) in words.iter_mut().zip(&gate.party) {
            *word = value.get();
        }
        let party = if is_shared(idx) {
            RequestOwner::SHARED.party
        } else {
            client_key::read(&words)?
        };
        let target = gate.target.get();
        let group = gate.group.get();
        Some(GateOwner {
            who: RequestOwner { party, target },
            group,
        })
    }

    /// Returns true if the client of the gate at `idx` has another gate earlier in the search
    /// order.
    pub fn has_earlier_duplicate(&self, idx: u32) -> bool {
        let Some(gate) = self.get(idx).filter(|_| !is_shared(idx)) else {
            return false;
        };
        let key = key_of(gate.state.get());
        let mut places = self.places(key);
        let first = places.find(|(_, gate)| key_of(gate.state.get()) == key);
        first.is_some_and(|(first, _)| first != idx)
    }

    /// Closes the gate at `idx` if there are no users; returns true if closed. A closed gate
    /// cannot be claimed until it is freed.
    pub fn close(&self, idx: u32) -> bool {
        let Some(gate) = self.get(idx) else {
            return false;
        };
        let state = gate.state.get();
        let unused = state != 0 && users_of(state) == 0 && !is_shared(idx);
        unused && gate.state.replace(state, CLOSED)
    }

    /// Frees the gate at `idx`, even if there are users.
    pub fn revoke(&self, idx: u32) {
        if let Some(gate) = self.get(idx) {
            if gate.state.swap(0) != 0 && !is_shared(idx) {
                self.used.sub(1);
            }
        }
    }

    /// Reserves `count` gates for clients that the plan lists, at most half of all gates.
    pub fn keep(&self, count: u32) {
        self.kept.set(count.min(self.max / 2));
    }

    /// Returns the number of gates that clients without a line may claim.
    fn unlisted_max(&self) -> u32 {
        self.max.saturating_sub(self.kept.get())
    }

    /// Returns true if half of the gates for clients without a line are claimed.
    pub fn are_scarce(&self) -> bool {
        self.used.get_relaxed() >= self.unlisted_max() / 2
    }

    /// Opens the group `number`, at index `idx` of the plan, for `target`. `None` stands for all
    /// targets without a group of their own. `start` is the initial rate and rank of clients
    /// ([`Gates::set_start`]).
    pub fn open(&self, idx: u32, (number, target): (u32, Option<u32>), start: (u64, u8), now: u64) {
        // The rate is set before the target, so that a claim that finds the group finds the rate.
        self.set_start(idx, start, now);
        if let (Some(entry), Some(gate)) = (self.entries.get(idx as usize), self.get(idx)) {
            entry.number.set(number);
            gate.group.set(number);
            gate.target.set(target.unwrap_or(u32::MAX));
            let tag = u64::from(number).saturating_add(1) << STAMP_BITS;
            if tag_of(gate.state.get()) != tag {
                gate.state.set(tag << USERS_BITS);
            }
            let target = target.map_or(ALL_TARGETS, u64::from);
            entry.target.set(target);
        }
    }

    /// Closes the groups from index `idx` on, and makes all classes look up their groups again.
    pub fn opened(&self, idx: u32) {
        for idx in idx as usize..self.entries.len() {
            if let Some(entry) = self.entries.get(idx) {
                entry.target.set(NO_TARGET);
            }
            self.revoke(idx as u32);
        }
        self.epoch.add(1);
    }

    /// Sets the rate, bytes/s, and the rank of clients of the group at `idx` until the manager
    /// registers them. For the manager only.
    pub fn set_start(&self, idx: u32, (rate, rank): (u64, u8), now: u64) {
        if let (Some(entry), Some(gate)) = (self.entries.get(idx as usize), self.get(idx)) {
            entry.rate.set(rate);
            entry.rank.set(rank.into());
            if !gate.is_known() {
                gate.set(rate, LAST, now);
            }
        }
    }

    /// Returns the number of classes of the group at `idx` that found no gate of their own since
    /// the last call.
    pub fn take_full(&self, idx: u32) -> u64 {
        let entry = self.entries.get(idx as usize);
        entry.map_or(0, |entry| entry.full.take())
    }
}
