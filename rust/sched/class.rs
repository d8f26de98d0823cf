// SPDX-License-Identifier: GPL-2.0-only

//! Table of the classes of one part.
//!
//! A class is the set of requests with the same key; the policy stores a record for each class in a
//! [`ClassTable`]. The policy defines the key. Classes are found by key in a [`Table`]. A class is
//! busy while its requests are queued or in service, else idle. Idle classes form a list, least
//! recently used first; the policy can limit the length of the list.
//!
//! ```text
//!             classify              busy
//!  (nothing) ──────────► idle ◄───────────► busy
//!      ▲                  │      idle
//!      └──────────────────┘ idle for IDLE_NS (age), or least recently used and a limit is reached
//! ```
//!
//! An owner is a party whose classes count together, because the party can create any number of
//! classes. For example, a user creates classes by job names, and a client by addresses that a rule
//! matches. A shared class serves the requests of an owner for which no separate class could be
//! created. The default class, at index 0, serves requests for which not even a shared class
//! exists.
//!
//! # Full table
//!
//! No owner may exhaust the table. When three quarters of the table are used, the table is crowded.
//! The capacity is then divided equally among all owners plus one future owner. An owner at or
//! above its share gets a new class only by evicting one of its own idle classes. Idle classes of
//! an owner above its share are evicted by [`ClassTable::age`].
//!
//! The last entries of the table are reserved for shared classes, inner nodes and classes that the
//! policy guarantees, few for each owner. The last vacant entries that have memory are reserved in
//! the same way. Therefore a new owner always gets at least its shared class, and classes of its
//! own as classes of other owners become idle.

use crate::sched::{
    count::Count,
    key::Hashed,
    mem::{Bulk, Need, NoMemory},
    rng::avalanche,
    slab::{Handle, Linked, Links, SlabList},
    table::{Table, TableNeed, TableSpare},
};

/// Handle of a class; becomes stale when the class is evicted.
pub type ClassId = Handle;

/// Minimum number of classes that can be created without new memory, as long as the worker keeps
/// up.
pub const RESERVE: usize = 64;

/// Maximum number of vacant entries with memory. The number of classes that arrive before the
/// worker adds memory does not depend on the size of the table.
const RESERVE_MAX: usize = 256;

/// Number of entries with memory that are reserved for shared classes, inner nodes and guaranteed
/// classes.
const KEPT_ENTRIES: usize = 8;

/// Number of counters of owners, a power of two; owners with equal hashes share a counter.
const OWNERS: u64 = 1 << 10;

/// One entry in this many is reserved in a table whose classes have owners.
pub const KEPT: u32 = 16;

/// Maximum number of classes that one search for a class to evict examines.
const SCAN_MAX: u32 = 8;

/// Time for which a class stays idle before it may be evicted: 10 s, ns.
pub const IDLE_NS: u64 = 10_000_000_000;

/// Index of the default class.
pub const DEFAULT: u32 = 0;

/// Handle of the default class, which is never evicted.
pub const DEFAULT_ID: ClassId = ClassId::new(DEFAULT, 1);

/// Entries of the table that a class may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassQuota {
    /// All entries but the reserved ones.
    Free,
    /// As `Free`; in a crowded table each owner gets an equal share. The value is the index of the
    /// owner's counter.
    Owned(u16),
    /// All entries; for a shared class.
    Shared,
    /// All entries; for an inner node, or a class that the policy guarantees.
    Promised,
}

impl ClassQuota {
    const fn is_reserved(self) -> bool {
        matches!(self, Self::Shared | Self::Promised)
    }

    /// Returns the place of the classes of the owner with `hash`.
    pub const fn owned(hash: u64) -> Self {
        Self::Owned((avalanche(hash) & (OWNERS - 1)) as u16)
    }

    /// Returns the index of the owner's counter.
    pub const fn owner(self) -> Option<usize> {
        match self {
            Self::Owned(owner) => Some(owner as usize),
            _ => None,
        }
    }
}

/// Availability of an entry for another class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassRoom {
    /// An entry is available.
    Free,
    /// An entry is available once the idle class at this index is evicted.
    After(u32),
    /// No entry is available.
    No,
}

/// Class with the record of the policy.
pub struct ClassRow<R> {
    record: R,
    links: Links,
    idle: bool,
    /// True if the class was used since it became the most recently used idle class.
    used: bool,
    /// True for the default class, which is not found by key.
    default: bool,
    /// Entries that the class may use.
    place: ClassQuota,
    seen: u64,
}

impl<R> Linked for ClassRow<R> {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

/// Memory requirement of a [`ClassTable`].
pub type ClassNeed<K, R> = TableNeed<K, ClassRow<R>>;

/// Memory for a [`ClassTable`].
pub type ClassSpare<K, R> = TableSpare<K, ClassRow<R>>;

/// Owners with equal hashes.
struct ClassOwner {
    /// Number of classes of the owners.
    classes: u32,
    /// Index at which the next search for an idle class of the owners starts, if an idle class is
    /// there; otherwise the search starts at the least recently used class.
    look_at: u32,
}

impl ClassOwner {
    const NONE: Self = Self {
        classes: 0,
        look_at: DEFAULT,
    };
}

/// Classes by key and by index.
///
/// # Invariants
///
/// - The default class is at index 0 and in no list.
/// - Every other class is in the list of idle classes exactly if it is marked idle.
/// - `idle_len` is the length of the list of idle classes.
/// - `owners` contains the number of classes of each owner. `owning` is the number of entries of
///   `owners` that have classes.
pub struct ClassTable<K, R> {
    classes: Table<K, ClassRow<R>>,
    idle: SlabList,
    idle_len: usize,
    max: usize,
    /// Number of reserved entries.
    kept: usize,
    owners: Bulk<ClassOwner>,
    owning: usize,
    overflow: u64,
}

impl<K: Copy + Eq + Hashed, R> ClassTable<K, R> {
    /// Creates a table of at most `max` classes beside the default class, with its first reserve;
    /// may sleep. One entry in `kept` is reserved; 0: none.
    ///
    /// The default class is displayed with `key` and has the record `default`; a request with that
    /// key gets a class of its own. Not inlined, so that the caller's stack does not contain a
    /// second record.
    #[inline(never)]
    pub fn new(max: u32, kept: u32, seed: u64, key: K, default: R) -> Result<Self, NoMemory> {
        let mut table = Self {
            classes: Table::new((max as usize).saturating_add(1), seed)?,
            idle: SlabList::new(),
            idle_len: 0,
            max: max as usize,
            kept: max.checked_div(kept).unwrap_or(0) as usize,
            owners: Bulk::filled(if kept > 0 { OWNERS as usize } else { 0 }, || {
                ClassOwner::NONE
            })?,
            owning: 0,
            overflow: 0,
        };
        let class = ClassRow {
            record: default,
            links: Links::new(),
            idle: false,
            used: false,
            default: true,
            place: ClassQuota::Shared,
            seen: 0,
        };
        let spare = table.need().allocate()?;
        table.grow(spare);
        // INVARIANT: the first index of an empty table is 0.
        table.classes.insert(key, class).map_err(|_| NoMemory)?;
        // The default class has used an entry of the reserve.
        let spare = table.need().allocate()?;
        table.grow(spare);
        Ok(table)
    }

    /// Returns the number of entries that the table should have memory for: the existing classes
    /// plus a quarter as reserve, from [`RESERVE`] to [`RESERVE_MAX`] vacant entries. The result is
    /// never below the current number of entries, and at most the bound of the table.
    pub fn target(&self) -> usize {
        let live = self.classes.len() as usize;
        let reserve = (live / 4).clamp(RESERVE, RESERVE_MAX);
        let target = live
            .saturating_add(reserve)
            .max(self.entry_count() as usize);
        target.min(self.max.saturating_add(1))
    }

    /// Returns the memory requirement.
    pub fn need(&self) -> ClassNeed<K, R> {
        self.classes.wants(self.target())
    }

    /// Adds memory to the table; returns the memory that the table cannot use.
    pub fn grow(&mut self, spare: ClassSpare<K, R>) -> ClassSpare<K, R> {
        self.classes.grow(spare)
    }

    /// Returns the handle of the class at index `idx`; that of the default class if there is no
    /// class.
    pub fn id(&self, idx: u32) -> ClassId {
        self.classes.handle(idx).unwrap_or(DEFAULT_ID)
    }

    /// Returns the number of requests that had no class of their own.
    pub const fn overflow(&self) -> u64 {
        self.overflow
    }

    /// Returns the number of entries, vacant or used.
    pub fn entry_count(&self) -> u32 {
        self.classes.entry_count()
    }

    /// Returns the number of classes without the default class.
    pub fn len(&self) -> usize {
        (self.classes.len() as usize).saturating_sub(1)
    }

    /// Returns true if `id` is not stale.
    pub fn is_live(&self, id: ClassId) -> bool {
        self.classes.get(id).is_some()
    }

    /// Returns the record of `id`; `None` if `id` is stale.
    #[inline]
    pub fn get(&self, id: ClassId) -> Option<&R> {
        self.classes.get(id).map(|class| &class.record)
    }

    /// Returns the index of `id`; that of the default class if `id` is stale.
    #[inline]
    pub fn resolve(&self, id: ClassId) -> u32 {
        match self.classes.get(id) {
            Some(_) => id.idx(),
            None => DEFAULT,
        }
    }

    /// Returns the mutable record of `id`; `None` if `id` is stale.
    #[inline]
    pub fn get_mut(&mut self, id: ClassId) -> Option<&mut R> {
        self.classes.get_mut(id).map(|class| &mut class.record)
    }

    /// Returns the record at index `idx`.
    #[inline]
    pub fn at(&self, idx: u32) -> Option<&R> {
        self.classes.at(idx).map(|class| &class.record)
    }

    /// Returns the mutable record at index `idx`.
    #[inline]
    pub fn at_mut(&mut self, idx: u32) -> Option<&mut R> {
        self.classes.at_mut(idx).map(|class| &mut class.record)
    }

    /// Returns the handle and the mutable record of the class at index `idx`.
    #[inline]
    pub fn named_mut(&mut self, idx: u32) -> Option<(ClassId, &mut R)> {
        let (id, class) = self.classes.named_mut(idx)?;
        Some((id, &mut class.record))
    }

    /// Returns the key of the class at index `idx`.
    pub fn key(&self, idx: u32) -> Option<&K> {
        self.classes.key(idx)
    }

    /// Returns the index of the class with `key`.
    pub fn find(&self, key: &K) -> Option<u32> {
        self.classes.find(key, |class| !class.default)
    }

    /// Returns the class with `key`, if it exists, and marks the class as used at `now`.
    pub fn lookup(&mut self, key: &K, now: u64) -> Option<ClassId> {
        let idx = self.find(key)?;
        self.touch(idx, now);
        Some(self.id(idx))
    }

    /// Returns the availability of an entry for a new class in `place`; the policy has memory for
    /// `limit` entries.
    pub fn room(&mut self, place: ClassQuota, limit: usize, now: u64) -> ClassRoom {
        let (count, most) = self.owner_usage(place);
        let room = if count >= most {
            self.after_own(place, now)
        } else if place.is_reserved() && self.len() >= self.max {
            self.after(now, |_| true)
        } else if !place.is_reserved() && self.len() >= self.max.saturating_sub(self.kept) {
            self.after(now, |other| !other.is_reserved())
        } else {
            ClassRoom::Free
        };
        let limit = limit.min(self.classes.capacity());
        let fed = limit.saturating_sub(self.entry_count() as usize);
        let vacant = self.classes.vacant().saturating_add(fed);
        let least = if place.is_reserved() || self.kept == 0 {
            0
        } else {
            KEPT_ENTRIES
        };
        match room {
            ClassRoom::Free if vacant <= least => ClassRoom::No,
            room => room,
        }
    }

    /// Returns the place of the classes of the owner with `key`.
    pub fn owned_by(&self, key: &K) -> ClassQuota {
        ClassQuota::owned(self.classes.hash(key))
    }

    /// Returns true if the table is so full that each owner is limited to an equal share.
    fn is_crowded(&self) -> bool {
        self.len() >= (self.max / 4).saturating_mul(3)
    }

    /// Returns the maximum number of classes of an owner that has classes; `None`: unlimited.
    fn most(&self) -> Option<usize> {
        // One share is for the next owner.
        let parts = self.owning.saturating_add(1);
        let places = self.max.saturating_sub(self.kept);
        let most = places.checked_div(parts).unwrap_or(0).max(1);
        self.is_crowded().then_some(most)
    }

    /// Returns the number of classes of the owner of `place`, and the maximum number of its
    /// classes.
    fn owner_usage(&self, place: ClassQuota) -> (usize, usize) {
        let owner = place.owner().and_then(|owner| self.owners.get(owner));
        match owner.map(|owner| owner.classes).zip(self.most()) {
            // A new owner increases the number of shares, but each owner may have at least one
            // class.
            Some((0, _)) => (0, 1),
            Some((count, most)) => (count as usize, most),
            None => (0, usize::MAX),
        }
    }

    /// Returns the room that evicting the least recently used idle class whose place `fits` would
    /// make.
    fn after(&mut self, now: u64, fits: impl Fn(ClassQuota) -> bool) -> ClassRoom {
        let first = self.idle.first();
        let (oldest, _) = self.oldest(first, now, fits);
        oldest.map_or(ClassRoom::No, ClassRoom::After)
    }

    /// Returns the room that evicting an idle class of the owner of `place` would make. The search
    /// resumes where the last one for this owner ended, so that idle classes of other owners delay
    /// it only for a bounded time.
    fn after_own(&mut self, place: ClassQuota, now: u64) -> ClassRoom {
        let look_at = place.owner().and_then(|owner| self.owners.get(owner));
        let idle = |idx: &u32| self.classes.at(*idx).is_some_and(|class| class.idle);
        let from = look_at.map(|owner| owner.look_at).filter(idle);
        let (own, next) = self.oldest(from.or(self.idle.first()), now, |other| {
            other.owner() == place.owner()
        });
        if let Some(owner) = place.owner().and_then(|owner| self.owners.get_mut(owner)) {
            owner.look_at = next.unwrap_or(DEFAULT);
        }
        own.map_or(ClassRoom::No, ClassRoom::After)
    }

    /// Creates the class with `key`, which must not exist, with the record from `make`, if
    /// [`ClassTable::room`] allows a class in `place`. Evicts an idle class if necessary.
    pub fn create(
        &mut self,
        key: K,
        place: ClassQuota,
        limit: usize,
        now: u64,
        make: impl FnOnce() -> R,
    ) -> Option<ClassId> {
        match self.room(place, limit, now) {
            ClassRoom::Free => {}
            ClassRoom::After(idx) => {
                self.forget(idx);
            }
            ClassRoom::No => return None,
        }
        self.make(key, place, now, make)
    }

    /// Creates the idle class with `key`, which must not exist, with the record from `make`.
    /// Returns `None` without memory. The caller must have checked [`ClassTable::room`].
    pub fn make(
        &mut self,
        key: K,
        place: ClassQuota,
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
        self.push_idle(id.idx());
        self.count(place, 1);
        Some(id)
    }

    /// Adds `change` to the number of classes of the owner of `place`.
    fn count(&mut self, place: ClassQuota, change: i32) {
        let Some(owner) = place.owner().and_then(|owner| self.owners.get_mut(owner)) else {
            return;
        };
        let before = owner.classes;
        owner.classes = before.saturating_add_signed(change);
        // INVARIANT: counts entries that become nonzero or zero.
        match (before, owner.classes) {
            (0, 1..) => self.owning = self.owning.saturating_add(1),
            (1.., 0) => self.owning = self.owning.saturating_sub(1),
            _ => {}
        }
    }

    /// Counts a request that has no class of its own.
    pub fn overflowed(&mut self) {
        self.overflow.count(1);
    }

    /// Returns true if further requests like those of the class `id` will belong to the same class.
    /// Returns false if the class is a substitute for a class that may be created later.
    pub fn is_permanent(&self, id: ClassId) -> bool {
        self.classes.get(id).is_some_and(|class| match class.place {
            ClassQuota::Shared => !class.default && self.is_crowded(),
            _ => true,
        })
    }

    /// Returns the mutable record of `id` for a use that does not prevent eviction; gives the class
    /// a second chance.
    #[inline]
    pub fn use_mut(&mut self, id: ClassId) -> Option<&mut R> {
        let class = self.classes.get_mut(id)?;
        class.used = true;
        Some(&mut class.record)
    }

    /// Marks the class at index `idx` as busy: its requests are queued or in service.
    pub fn busy(&mut self, idx: u32) {
        if let Some(class) = self.classes.at_mut(idx) {
            if class.idle {
                class.idle = false;
                self.remove_idle(idx);
            }
        }
    }

    /// Marks the class at index `idx` as idle: none of its requests is queued or in service.
    pub fn idle(&mut self, idx: u32, now: u64) {
        if idx == DEFAULT {
            return;
        }
        if let Some(class) = self.classes.at_mut(idx) {
            class.seen = now;
            if !class.idle {
                class.idle = true;
                self.push_idle(idx);
            }
        }
    }

    /// Protects an idle class at index `idx` from eviction as if the class was used at `until`.
    /// The information in its record is needed until then.
    pub fn keep(&mut self, idx: u32, until: u64) {
        if let Some(class) = self.classes.at_mut(idx).filter(|class| class.idle) {
            class.seen = class.seen.max(until);
        }
    }

    /// Evicts the least recently used idle class if more than `limit` classes are idle.
    pub fn trim(&mut self, now: u64, limit: usize) {
        if self.idle_len > limit {
            let (oldest, _) = self.oldest(self.idle.first(), now, |_| true);
            oldest.and_then(|oldest| self.forget(oldest));
        }
    }

    /// Appends the class at index `idx`, which must not be in the list of idle classes, as the
    /// most recently used one.
    fn push_idle(&mut self, idx: u32) {
        self.classes.push(&mut self.idle, idx);
        self.idle_len.count(1);
    }

    /// Removes the class at index `idx` from the list of idle classes, which must contain it.
    fn remove_idle(&mut self, idx: u32) {
        self.classes.unlist(&mut self.idle, idx);
        self.idle_len = self.idle_len.saturating_sub(1);
    }

    /// Evicts at most `max` classes found by [`ClassTable::expired`]; returns true if more may
    /// exist.
    pub fn age(&mut self, now: u64, max: u32) -> bool {
        for _ in 0..max {
            match self.expired(now) {
                Some(idx) => self.forget(idx),
                None => return false,
            };
        }
        true
    }

    /// Returns the index of a class that was idle for [`IDLE_NS`], or whose owner has more than its
    /// share of a crowded table; `None` if no such class was found.
    pub fn expired(&mut self, now: u64) -> Option<u32> {
        let (oldest, _) = self.oldest(self.idle.first(), now, |_| true);
        let idx = oldest?;
        let seen = self.classes.at(idx)?.seen;
        if now.saturating_sub(seen) >= IDLE_NS {
            return Some(idx);
        }
        let most = self.most()?;
        let above = |owner| {
            self.owners
                .get(owner)
                .is_some_and(|owner| owner.classes as usize > most)
        };
        let mut next = self.idle.first();
        for _ in 0..SCAN_MAX {
            let class = self.classes.at(next?)?;
            if class.seen <= now && class.place.owner().is_some_and(above) {
                return next;
            }
            next = class.links.after();
        }
        None
    }

    /// Returns the least recently used idle class whose place `fits`, and the index at which the
    /// search ended. Classes that were used in the meantime become the most recently used ones.
    /// Examines at most [`SCAN_MAX`] classes, starting at index `next`.
    fn oldest(
        &mut self,
        mut next: Option<u32>,
        now: u64,
        fits: impl Fn(ClassQuota) -> bool,
    ) -> (Option<u32>, Option<u32>) {
        let mut oldest = None;
        for _ in 0..SCAN_MAX {
            let Some((idx, class)) = next.and_then(|idx| Some((idx, self.classes.at_mut(idx)?)))
            else {
                break;
            };
            next = class.links.after();
            if !fits(class.place) {
                continue;
            }
            let kept = class.seen > now;
            if !kept {
                oldest = oldest.or(Some(idx));
            }
            if !core::mem::replace(&mut class.used, false) && !kept {
                return (Some(idx), next);
            }
            self.touch(idx, now);
        }
        (oldest, next)
    }

    /// Makes an idle class the most recently used one.
    fn touch(&mut self, idx: u32, now: u64) {
        if let Some(class) = self.classes.at_mut(idx) {
            class.seen = class.seen.max(now);
            if class.idle {
                self.classes.unlist(&mut self.idle, idx);
                self.classes.push(&mut self.idle, idx);
            }
        }
    }

    /// Evicts the class at index `idx` and returns its record; `None` if the class is not idle.
    pub fn forget(&mut self, idx: u32) -> Option<R> {
        self.classes.at(idx).filter(|class| class.idle)?;
        self.remove_idle(idx);
        let class = self.classes.remove(idx)?;
        self.count(class.place, -1);
        Some(class.record)
    }
}
