// SPDX-License-Identifier: GPL-2.0-only

//! The table of classes of one part.
//!
//! # Vocabulary
//!
//! - *Class*: requests with the same key; the policy keeps a record for each ([`ClassTable`]). What a key
//!   is, the policy says.
//! - *Owner*: the party whose classes are counted together, because it can multiply them: a user by job names, whom
//!   a rule matches by client addresses.
//! - *Shared class*: serves the requests of an owner that no class of their own could be made for.
//! - *Default class*: slot 0; serves requests for which there is not even a shared class.
//! - *Busy*: the policy says that requests of the class are queued or in service.
//! - *Idle*: not busy; idle classes form a list, oldest first, which the policy may bound.
//!
//! ```text
//!             classify              busy
//!  (nothing) ──────────► idle ◄───────────► busy
//!      ▲                  │      idle
//!      └──────────────────┘ idle for IDLE_NS (age), or the oldest when a bound is met
//! ```
//!
//! Classes are found by key in a [`Table`].
//!
//! # When the table is full
//!
//! One owner must not take the places of all others. Once three quarters of the table are taken it is *crowded*: it is
//! divided equally among all owners and one more that may come. An owner with as much as that, or more, makes a class
//! only in place of an idle one of its own, and the idle ones of an owner with more are forgotten at the next occasion
//! ([`ClassTable::age`]). The last places are *kept* for shared classes, for inner nodes and
//! for classes that the policy has promised a place, few for each owner; the last vacant slots for which there is memory
//! are kept likewise. So whatever one owner does, the next one finds a place at least for its
//! shared class, and for classes of its own as those of the first become idle.

use crate::sched::{
    key::Hashed,
    mem::{Bulk, Need, NoMemory},
    rng::avalanche,
    slab::{Handle, Linked, Links, List},
    table::{Table, TableNeed, TableSpare},
};

/// Names a class; it goes stale when the class does.
pub type ClassId = Handle;

/// Classes that can be made without new memory, at least, as long as the worker keeps up.
pub const RESERVE: usize = 64;

/// Vacant slots with memory, at most, that are kept ready: what comes until the worker has brought more does not grow with
/// the table.
const RESERVE_MAX: usize = 256;

/// Slots with memory that only shared classes and inner nodes may take.
const KEPT_SLOTS: usize = 8;

/// Counters of owners; owners whose hashes meet have one together. A power of two.
const OWNERS: u64 = 1 << 10;

/// One place in so many is kept in a table whose classes have owners.
pub const KEPT: u32 = 16;

/// Classes that get a second chance while one to forget is looked for, at most.
const CHANCES: u32 = 8;

/// How long a class stays idle before it may be forgotten, 10 s in nanoseconds.
pub const IDLE_NS: u64 = 10_000_000_000;

/// Slot of the default class.
pub const DEFAULT: u32 = 0;

/// Name of the default class, which never goes.
pub const DEFAULT_ID: ClassId = ClassId::new(DEFAULT, 1);

/// Which places of the table a class may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// All but the kept ones.
    Free,
    /// The same, and in a crowded table an equal part for each owner; the index of its counter.
    Owned(u16),
    /// All: a shared class.
    Shared,
    /// All: an inner node, or a class that the policy has promised a place.
    Promised,
}

impl Place {
    const fn is_kept(self) -> bool {
        matches!(self, Self::Shared | Self::Promised)
    }

    /// That of the classes of an owner with this `hash`.
    pub const fn owned(hash: u64) -> Self {
        Self::Owned((avalanche(hash) & (OWNERS - 1)) as u16)
    }

    /// Index of the counter of its owner.
    pub const fn owner(self) -> Option<usize> {
        match self {
            Self::Owned(owner) => Some(owner as usize),
            _ => None,
        }
    }
}

/// Whether there is a place for another class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// There is.
    Free,
    /// Once the idle class in this slot is forgotten.
    After(u32),
    /// There is none.
    No,
}

/// A class with the record of the policy.
pub struct ClassRow<R> {
    record: R,
    links: Links,
    idle: bool,
    /// Used since it became the youngest idle class.
    used: bool,
    /// It is the default class, which no key finds.
    default: bool,
    /// What it was made for.
    place: Place,
    seen: u64,
}

impl<R> Linked for ClassRow<R> {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

/// What a [`ClassTable`] wants.
pub type ClassNeed<K, R> = TableNeed<K, ClassRow<R>>;

/// Memory for a [`ClassTable`].
pub type ClassSpare<K, R> = TableSpare<K, ClassRow<R>>;

/// Owners whose hashes meet.
struct Owner {
    /// Its classes.
    classes: u32,
    /// Where the next look for an idle one of them begins, if an idle class is there; otherwise at the oldest.
    look_at: u32,
}

impl Owner {
    const NONE: Self = Self {
        classes: 0,
        look_at: DEFAULT,
    };
}

/// Classes by key and by slot.
///
/// # Invariants
///
/// - Slot 0 is taken by the default class, which is in no list.
/// - Every other class is in the list of idle classes exactly if it is marked idle.
/// - `idle_len` is the length of the list of idle classes.
/// - `owners` has the number of classes of each owner, `owning` that of its entries with classes.
pub struct ClassTable<K, R> {
    classes: Table<K, ClassRow<R>>,
    idle: List,
    idle_len: usize,
    max: usize,
    /// Places that are kept.
    kept: usize,
    owners: Bulk<Owner>,
    owning: usize,
    overflow: u64,
}

impl<K: Copy + Eq + Hashed, R> ClassTable<K, R> {
    /// A table of at most `max` classes beside the default class, with its first reserve; sleeps. One of `kept` places is
    /// kept; 0: none.
    ///
    /// The default class is shown with `key` and holds the record `default`; a request with that key has a
    /// class of its own. Not inlined, so that the caller's stack holds no second record.
    #[inline(never)]
    pub fn new(max: u32, kept: u32, seed: u64, key: K, default: R) -> Result<Self, NoMemory> {
        let mut table = Self {
            classes: Table::new((max as usize).saturating_add(1), seed, false)?,
            idle: List::new(),
            idle_len: 0,
            max: max as usize,
            kept: max.checked_div(kept).unwrap_or(0) as usize,
            owners: Bulk::filled(if kept > 0 { OWNERS as usize } else { 0 }, || Owner::NONE)?,
            owning: 0,
            overflow: 0,
        };
        let class = ClassRow {
            record: default,
            links: Links::new(),
            idle: false,
            used: false,
            default: true,
            place: Place::Shared,
            seen: 0,
        };
        let spare = table.need().allocate()?;
        table.grow(spare);
        // INVARIANT: the first slot of an empty table is 0.
        table.classes.insert(key, class).map_err(|_| NoMemory)?;
        // The default class has taken a place of the reserve.
        let spare = table.need().allocate()?;
        table.grow(spare);
        Ok(table)
    }

    /// Number of slots that the table should have memory for: those there are and a reserve of a
    /// quarter, at least [`RESERVE`] and at most [`RESERVE_MAX`] vacant ones, within the bound.
    pub fn target(&self) -> usize {
        let live = self.classes.len() as usize;
        let reserve = (live / 4).clamp(RESERVE, RESERVE_MAX);
        let target = live.saturating_add(reserve).max(self.slots() as usize);
        target.min(self.max.saturating_add(1))
    }

    /// What memory is wanted.
    pub fn need(&self) -> ClassNeed<K, R> {
        self.classes.wants(self.target())
    }

    /// Takes memory and hands back what there is no use for.
    pub fn grow(&mut self, spare: ClassSpare<K, R>) -> ClassSpare<K, R> {
        self.classes.grow(spare)
    }

    /// The name of the class in `slot`; of the default class if there is none.
    pub fn id(&self, slot: u32) -> ClassId {
        self.classes.handle(slot).unwrap_or(DEFAULT_ID)
    }

    /// Requests that had no class of their own.
    pub const fn overflow(&self) -> u64 {
        self.overflow
    }

    /// Number of slots, vacant or taken.
    pub fn slots(&self) -> u32 {
        self.classes.slots()
    }

    /// Number of classes beside the default class.
    pub fn len(&self) -> usize {
        (self.classes.len() as usize).saturating_sub(1)
    }

    /// Whether `id` still names a class.
    pub fn is_live(&self, id: ClassId) -> bool {
        self.classes.get(id).is_some()
    }

    /// The record of `id`, if it still names a class.
    #[inline]
    pub fn get(&self, id: ClassId) -> Option<&R> {
        self.classes.get(id).map(|class| &class.record)
    }

    /// The slot of `id`, or that of the default class if it went stale.
    #[inline]
    pub fn resolve(&self, id: ClassId) -> u32 {
        match self.classes.get(id) {
            Some(_) => id.slot(),
            None => DEFAULT,
        }
    }

    /// The record of `id`, for writing, if it still names a class.
    #[inline]
    pub fn get_mut(&mut self, id: ClassId) -> Option<&mut R> {
        self.classes.get_mut(id).map(|class| &mut class.record)
    }

    /// The record in `slot`.
    #[inline]
    pub fn at(&self, slot: u32) -> Option<&R> {
        self.classes.at(slot).map(|class| &class.record)
    }

    /// The record in `slot`, for writing.
    #[inline]
    pub fn at_mut(&mut self, slot: u32) -> Option<&mut R> {
        self.classes.at_mut(slot).map(|class| &mut class.record)
    }

    /// The record in `slot`, for writing, and the name of the class.
    #[inline]
    pub fn named_mut(&mut self, slot: u32) -> Option<(ClassId, &mut R)> {
        let (id, class) = self.classes.named_mut(slot)?;
        Some((id, &mut class.record))
    }

    /// The key of the class in `slot`.
    pub fn key(&self, slot: u32) -> Option<&K> {
        self.classes.key(slot)
    }

    /// The slot of the class with `key`.
    pub fn find(&self, key: &K) -> Option<u32> {
        self.classes.find(key, |class| !class.default)
    }

    /// The class with `key`, if there is one; it is used now.
    pub fn look(&mut self, key: &K, now: u64) -> Option<ClassId> {
        let slot = self.find(key)?;
        self.touch(slot, now);
        Some(self.id(slot))
    }

    /// Whether a class can be made in `place`, given that the policy has memory for `limit` slots.
    pub fn room(&mut self, place: Place, limit: usize, now: u64) -> Room {
        let (count, most) = self.part_of(place);
        let room = if count >= most {
            self.after_own(place, now)
        } else if place.is_kept() && self.len() >= self.max {
            self.after(now, |_| true)
        } else if !place.is_kept() && self.len() >= self.max.saturating_sub(self.kept) {
            self.after(now, |other| !other.is_kept())
        } else {
            Room::Free
        };
        let limit = limit.min(self.classes.capacity());
        let fed = limit.saturating_sub(self.slots() as usize);
        let vacant = self.classes.vacant().saturating_add(fed);
        let least = if place.is_kept() || self.kept == 0 {
            0
        } else {
            KEPT_SLOTS
        };
        match room {
            Room::Free if vacant <= least => Room::No,
            room => room,
        }
    }

    /// The place of a class whose owner goes by `key`.
    pub fn owned_by(&self, key: &K) -> Place {
        Place::owned(self.classes.hash(key))
    }

    /// Whether so much of the table is taken that an owner may have but an equal part of it.
    fn is_crowded(&self) -> bool {
        self.len() >= (self.max / 4).saturating_mul(3)
    }

    /// How many classes an owner may have that has some; none: any number.
    fn most(&self) -> Option<usize> {
        // One part is for the next owner.
        let parts = self.owning.saturating_add(1);
        let places = self.max.saturating_sub(self.kept);
        let most = places.checked_div(parts).unwrap_or(0).max(1);
        self.is_crowded().then_some(most)
    }

    /// How many classes the owner of `place` has, and how many it may have.
    fn part_of(&self, place: Place) -> (usize, usize) {
        let owner = place.owner().and_then(|owner| self.owners.get(owner));
        match owner.map(|owner| owner.classes).zip(self.most()) {
            // With one that comes there are more parts, but never less than a place for each.
            Some((0, _)) => (0, 1),
            Some((count, most)) => (count as usize, most),
            None => (0, usize::MAX),
        }
    }

    /// Room in place of the oldest idle class whose place `fits`.
    fn after(&mut self, now: u64, fits: impl Fn(Place) -> bool) -> Room {
        let first = self.idle.first();
        let (oldest, _) = self.oldest(first, now, fits);
        oldest.map_or(Room::No, Room::After)
    }

    /// Room in place of an idle class of the owner of `place`. The look goes on where its last one ended, so that idle
    /// classes of others, however many, hide none for long.
    fn after_own(&mut self, place: Place, now: u64) -> Room {
        let look_at = place.owner().and_then(|owner| self.owners.get(owner));
        let idle = |slot: &u32| self.classes.at(*slot).is_some_and(|class| class.idle);
        let from = look_at.map(|owner| owner.look_at).filter(idle);
        let (own, next) = self.oldest(from.or(self.idle.first()), now, |other| {
            other.owner() == place.owner()
        });
        if let Some(owner) = place.owner().and_then(|owner| self.owners.get_mut(owner)) {
            owner.look_at = next.unwrap_or(DEFAULT);
        }
        own.map_or(Room::No, Room::After)
    }

    /// Makes the class with `key`, which is not there, with the record that `make` returns, if there is
    /// [`ClassTable::room`] in `place`; an idle class may have to go for it.
    pub fn create(
        &mut self,
        key: K,
        place: Place,
        limit: usize,
        now: u64,
        make: impl FnOnce() -> R,
    ) -> Option<ClassId> {
        match self.room(place, limit, now) {
            Room::Free => {}
            Room::After(slot) => {
                self.forget(slot);
            }
            Room::No => return None,
        }
        self.make(key, place, now, make)
    }

    /// Makes the class with `key`, which is not there, with the record that `make` returns; it is idle. None
    /// if there is no memory.
    ///
    /// There is [`ClassTable::room`] for it.
    pub fn make(
        &mut self,
        key: K,
        place: Place,
        now: u64,
        make: impl FnOnce() -> R,
    ) -> Option<ClassId> {
        let class = ClassRow {
            record: make(),
            links: Links::new(),
            idle: true,
            used: false,
            default: false,
            place,
            seen: now,
        };
        let id = self.classes.insert(key, class).ok()?;
        self.push_idle(id.slot());
        self.count(place, 1);
        Some(id)
    }

    /// Counts a class more or less of the owner of `place`.
    fn count(&mut self, place: Place, change: i32) {
        let Some(owner) = place.owner().and_then(|owner| self.owners.get_mut(owner)) else {
            return;
        };
        let before = owner.classes;
        owner.classes = before.saturating_add_signed(change);
        // INVARIANT: an entry became 0, or was 0.
        match (before, owner.classes) {
            (0, 1..) => self.owning = self.owning.saturating_add(1),
            (1.., 0) => self.owning = self.owning.saturating_sub(1),
            _ => {}
        }
    }

    /// Counts a request that has no class of its own.
    pub fn overflowed(&mut self) {
        self.overflow = self.overflow.saturating_add(1);
    }

    /// Whether a request that is like one of the class `id` will be of that class as well: not if that stands in for
    /// another one, which can be made meanwhile.
    pub fn is_settled(&self, id: ClassId) -> bool {
        self.classes.get(id).is_some_and(|class| match class.place {
            Place::Shared => !class.default && self.is_crowded(),
            _ => true,
        })
    }

    /// The record of `id`, for a use of the class that does not keep it: a second chance before it is
    /// forgotten.
    #[inline]
    pub fn use_mut(&mut self, id: ClassId) -> Option<&mut R> {
        let class = self.classes.get_mut(id)?;
        class.used = true;
        Some(&mut class.record)
    }

    /// Notes that requests of the class in `slot` are queued or in service.
    pub fn busy(&mut self, slot: u32) {
        if let Some(class) = self.classes.at_mut(slot) {
            if class.idle {
                class.idle = false;
                self.remove_idle(slot);
            }
        }
    }

    /// Notes that no request of the class in `slot` is queued or in service any more.
    pub fn idle(&mut self, slot: u32, now: u64) {
        if slot == DEFAULT {
            return;
        }
        if let Some(class) = self.classes.at_mut(slot) {
            class.seen = now;
            if !class.idle {
                class.idle = true;
                self.push_idle(slot);
            }
        }
    }

    /// Keeps the class in `slot`, if it is idle, as if it had been used at `until`: forgetting it before would lose what
    /// its record says.
    pub fn keep(&mut self, slot: u32, until: u64) {
        if let Some(class) = self.classes.at_mut(slot).filter(|class| class.idle) {
            class.seen = class.seen.max(until);
        }
    }

    /// Forgets an idle class, the one that was not used for longest, if more than `limit` are idle.
    pub fn trim(&mut self, now: u64, limit: usize) {
        if self.idle_len > limit {
            let (oldest, _) = self.oldest(self.idle.first(), now, |_| true);
            oldest.and_then(|oldest| self.forget(oldest));
        }
    }

    /// Makes the class in `slot` the youngest in the list of idle classes; it is not there.
    fn push_idle(&mut self, slot: u32) {
        self.classes.push(&mut self.idle, slot);
        self.idle_len = self.idle_len.saturating_add(1);
    }

    /// Takes the class in `slot` out of the list of idle classes; it is there.
    fn remove_idle(&mut self, slot: u32) {
        self.classes.unlist(&mut self.idle, slot);
        self.idle_len = self.idle_len.saturating_sub(1);
    }

    /// Forgets at most `max` classes that [`ClassTable::expired`] names; whether there may be more of them.
    pub fn age(&mut self, now: u64, max: u32) -> bool {
        for _ in 0..max {
            match self.expired(now) {
                Some(slot) => self.forget(slot),
                None => return false,
            };
        }
        true
    }

    /// Slot of a class that was idle for [`IDLE_NS`], or whose owner has more than its part of a crowded table, if there
    /// is one.
    pub fn expired(&mut self, now: u64) -> Option<u32> {
        let (oldest, _) = self.oldest(self.idle.first(), now, |_| true);
        let slot = oldest?;
        let seen = self.classes.at(slot)?.seen;
        if now.saturating_sub(seen) >= IDLE_NS {
            return Some(slot);
        }
        let most = self.most()?;
        let above = |owner| {
            self.owners
                .get(owner)
                .is_some_and(|owner| owner.classes as usize > most)
        };
        let mut next = self.idle.first();
        for _ in 0..CHANCES {
            let class = self.classes.at(next?)?;
            if class.seen <= now && class.place.owner().is_some_and(above) {
                return next;
            }
            next = class.links.after();
        }
        None
    }

    /// The idle class that was not used for longest of those whose places `fits`; those used meanwhile become the
    /// youngest. Looks at a few, beginning with that in slot `next`; returns also at which it ended.
    fn oldest(
        &mut self,
        mut next: Option<u32>,
        now: u64,
        fits: impl Fn(Place) -> bool,
    ) -> (Option<u32>, Option<u32>) {
        let mut oldest = None;
        for _ in 0..CHANCES {
            let Some((slot, class)) =
                next.and_then(|slot| Some((slot, self.classes.at_mut(slot)?)))
            else {
                break;
            };
            next = class.links.after();
            if !fits(class.place) {
                continue;
            }
            let kept = class.seen > now;
            if !kept {
                oldest = oldest.or(Some(slot));
            }
            if !core::mem::replace(&mut class.used, false) && !kept {
                return (Some(slot), next);
            }
            self.touch(slot, now);
        }
        (oldest, next)
    }

    /// Makes an idle class the youngest.
    fn touch(&mut self, slot: u32, now: u64) {
        if let Some(class) = self.classes.at_mut(slot) {
            class.seen = class.seen.max(now);
            if class.idle {
                self.classes.unlist(&mut self.idle, slot);
                self.classes.push(&mut self.idle, slot);
            }
        }
    }

    /// Forgets the class in `slot` and hands its record out; nothing if it is not idle.
    pub fn forget(&mut self, slot: u32) -> Option<R> {
        self.classes.at(slot).filter(|class| class.idle)?;
        self.remove_idle(slot);
        let class = self.classes.remove(slot)?;
        self.count(class.place, -1);
        Some(class.record)
    }
}
