// SPDX-License-Identifier: GPL-2.0-only

//! The table of classes of one part.
//!
//! # Vocabulary
//!
//! - *Class*: requests with the same key; the policy keeps a record for each ([`ClassTable`]). What a key
//!   is, the policy says.
//! - *Default class*: slot 0; serves requests that no class could be made for.
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
//! Keys are found by linear hashing (Litwin, VLDB'80): the table has one bucket per slot ever made and
//! splits one bucket for each new one, so no insertion pays for a rehash of everything. The hash
//! function has a secret seed, see [`crate::sched::key`].

use crate::sched::{
    key::{Hashed, Hasher},
    mem::{Bulk, Chunks, Need, NoMemory},
    slab::{Handle, Linked, Links, List, Slab, SlabNeed, NONE},
};

/// Names a class; it goes stale when the class does.
pub type ClassId = Handle;

/// Classes that can be made without new memory, at least, as long as the worker keeps up.
pub const RESERVE: usize = 64;

/// Classes that get a second chance while one to forget is looked for, at most.
const CHANCES: u32 = 8;

/// How long a class stays idle before it may be forgotten, 10 s in nanoseconds.
pub const IDLE_NS: u64 = 10_000_000_000;

/// Slot of the default class.
pub const DEFAULT: u32 = 0;

/// Name of the default class, which never goes.
pub const DEFAULT_ID: ClassId = ClassId::new(DEFAULT, 1);

/// What [`ClassTable::classify`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The class was there.
    Known(ClassId),
    /// The class is new, with a new record.
    New(ClassId),
    /// No class could be made; this is the default class.
    Overflow(ClassId),
}

/// A class, its place in the table, and the record of the policy.
pub struct Class<K, R> {
    record: R,
    key: K,
    hash: u32,
    next: u32,
    links: Links,
    idle: bool,
    /// Used since it became the youngest idle class.
    used: bool,
    seen: u64,
}

impl<K, R> Linked for Class<K, R> {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

/// What a [`ClassTable`] wants.
pub type ClassNeed<K, R> = (SlabNeed<Class<K, R>>, Chunks<u32>);

/// Memory for a [`ClassTable`].
pub type ClassSpare<K, R> = <ClassNeed<K, R> as Need>::Spare;

/// Classes by key and by slot.
///
/// # Invariants
///
/// - Slot 0 is taken by the default class, which is in no bucket and in no list.
/// - Every other class is in the bucket of its hash, and in the list of idle classes exactly if it is
///   marked idle.
/// - `idle_len` is the length of the list of idle classes.
/// - There are at most as many buckets as slots, and at least one.
pub struct ClassTable<K, R> {
    classes: Slab<Class<K, R>>,
    buckets: Bulk<u32>,
    hasher: Hasher,
    idle: List,
    idle_len: usize,
    max: usize,
    overflow: u64,
}

impl<K: Copy + Eq + Hashed, R> ClassTable<K, R> {
    /// A table of at most `max` classes beside the default class, with its first reserve; sleeps.
    ///
    /// The default class is shown with `key` and holds the record `default`; a request with that key has a
    /// class of its own.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn new(max: u32, seed: u64, key: K, default: R) -> Result<Self, NoMemory> {
        let slots = (max as usize).saturating_add(1);
        let mut table = Self {
            classes: Slab::new(slots)?,
            buckets: Bulk::new(slots)?,
            hasher: Hasher::new(seed),
            idle: List::new(),
            idle_len: 0,
            max: max as usize,
            overflow: 0,
        };
        let spare = table.need().allocate()?;
        table.grow(spare);
        let class = Class {
            record: default,
            key,
            hash: 0,
            next: NONE,
            links: Links::new(),
            idle: false,
            used: false,
            seen: 0,
        };
        // INVARIANT: the first slot of an empty slab is 0.
        table.classes.insert(class).map_err(|_| NoMemory)?;
        table.buckets.push(NONE).map_err(|_| NoMemory)?;
        // The default class has taken a place of the reserve.
        let spare = table.need().allocate()?;
        table.grow(spare);
        Ok(table)
    }

    /// Number of slots that the table should have memory for: those there are and a reserve of a
    /// quarter, at least [`RESERVE`] vacant ones, within the bound.
    pub fn target(&self) -> usize {
        let live = self.classes.live() as usize;
        let reserve = RESERVE.max(live / 4);
        let target = live.saturating_add(reserve).max(self.classes.slots());
        target.min(self.max.saturating_add(1))
    }

    /// What memory is wanted.
    pub fn need(&self) -> ClassNeed<K, R> {
        let target = self.target();
        let classes = target.saturating_sub(self.classes.slots());
        (
            self.classes.wants(classes),
            self.buckets
                .wants(target.saturating_sub(self.buckets.len())),
        )
    }

    /// Takes memory and hands back what there is no use for.
    pub fn grow(&mut self, (classes, buckets): ClassSpare<K, R>) -> ClassSpare<K, R> {
        (self.classes.feed(classes), self.buckets.feed(buckets))
    }

    /// The name of the class in `slot`; of the default class if there is none.
    pub fn id(&self, slot: u32) -> ClassId {
        self.classes.handle(slot).unwrap_or(DEFAULT_ID)
    }

    /// Requests that the default class took because no class could be made.
    pub const fn overflow(&self) -> u64 {
        self.overflow
    }

    /// Number of slots, vacant or taken.
    pub fn slots(&self) -> u32 {
        self.classes.slots() as u32
    }

    /// Number of classes beside the default class.
    pub fn len(&self) -> usize {
        (self.classes.live() as usize).saturating_sub(1)
    }

    /// Whether `id` still names a class.
    pub fn is_live(&self, id: ClassId) -> bool {
        self.classes.get(id).is_some()
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

    /// The key of the class in `slot`.
    pub fn key(&self, slot: u32) -> Option<&K> {
        self.classes.at(slot).map(|class| &class.key)
    }

    /// The slot of the class with `key`.
    pub fn find(&self, key: &K) -> Option<u32> {
        let hash = self.hasher.hash(key);
        let mut slot = *self.buckets.get(self.bucket(hash))?;
        while let Some(class) = self.classes.at(slot) {
            if class.hash == hash && class.key == *key {
                return Some(slot);
            }
            slot = class.next;
        }
        None
    }

    /// The class with `key`; makes it, with the record that `make` returns, if it is not there.
    ///
    /// A new class takes a vacant slot, a new slot below `limit`, or that of the oldest idle class when
    /// the bound is met.
    pub fn classify(&mut self, key: K, now: u64, limit: usize, make: impl FnOnce() -> R) -> Found {
        if let Some(id) = self.look(&key, now) {
            return Found::Known(id);
        }
        if let Some(oldest) = self.in_the_way(now) {
            self.forget(oldest);
        }
        match self.make(key, now, limit, make) {
            Some(id) => Found::New(id),
            None => Found::Overflow(self.overflowed()),
        }
    }

    /// The class with `key`, if there is one; it is used now.
    pub fn look(&mut self, key: &K, now: u64) -> Option<ClassId> {
        let slot = self.find(key)?;
        self.touch(slot, now);
        Some(self.id(slot))
    }

    /// Slot of the idle class to forget before another one is made; none while the bound is not met.
    pub fn in_the_way(&mut self, now: u64) -> Option<u32> {
        if self.len() < self.max {
            return None;
        }
        self.oldest(now)
    }

    /// Makes the class with `key`, which is not there, with the record that `make` returns; it is idle. None
    /// if the bound is met, or if there is no vacant slot and no memory for one below `limit`.
    pub fn make(
        &mut self,
        key: K,
        now: u64,
        limit: usize,
        make: impl FnOnce() -> R,
    ) -> Option<ClassId> {
        let room = self.classes.vacant() > 0 || self.classes.slots() < limit;
        if self.len() >= self.max || !room {
            return None;
        }
        let hash = self.hasher.hash(&key);
        let class = Class {
            record: make(),
            key,
            hash,
            next: NONE,
            links: Links::new(),
            idle: true,
            used: false,
            seen: now,
        };
        let id = self.classes.insert(class).ok()?;
        self.split();
        self.link(id.slot(), hash);
        self.push_idle(id.slot());
        Some(id)
    }

    /// The default class, for a request that no class could be made for; it is counted.
    pub fn overflowed(&mut self) -> ClassId {
        self.overflow = self.overflow.saturating_add(1);
        DEFAULT_ID
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

    /// Forgets an idle class, the one that was not used for longest, if more than `limit` are idle.
    pub fn trim(&mut self, now: u64, limit: usize) {
        if self.idle_len > limit {
            self.oldest(now).and_then(|oldest| self.forget(oldest));
        }
    }

    /// Makes the class in `slot` the youngest in the list of idle classes; it is not there.
    fn push_idle(&mut self, slot: u32) {
        self.idle.push(&mut self.classes, slot);
        self.idle_len = self.idle_len.saturating_add(1);
    }

    /// Takes the class in `slot` out of the list of idle classes; it is there.
    fn remove_idle(&mut self, slot: u32) {
        self.idle.remove(&mut self.classes, slot);
        self.idle_len = self.idle_len.saturating_sub(1);
    }

    /// Forgets at most `max` classes that were idle for [`IDLE_NS`]; whether there may be more of them.
    pub fn age(&mut self, now: u64, max: u32) -> bool {
        for _ in 0..max {
            match self.expired(now) {
                Some(slot) => self.forget(slot),
                None => return false,
            };
        }
        true
    }

    /// Slot of a class that was idle for [`IDLE_NS`], if there is one.
    pub fn expired(&mut self, now: u64) -> Option<u32> {
        let slot = self.oldest(now)?;
        let class = self.classes.at(slot)?;
        (now.saturating_sub(class.seen) >= IDLE_NS).then_some(slot)
    }

    /// The idle class that was not used for longest; those used meanwhile become the youngest, a few at a
    /// time.
    fn oldest(&mut self, now: u64) -> Option<u32> {
        for _ in 0..CHANCES {
            let slot = self.idle.first()?;
            let class = self.classes.at_mut(slot)?;
            if !core::mem::replace(&mut class.used, false) {
                return Some(slot);
            }
            self.touch(slot, now);
        }
        self.idle.first()
    }

    /// Makes an idle class the youngest.
    fn touch(&mut self, slot: u32, now: u64) {
        if let Some(class) = self.classes.at_mut(slot) {
            class.seen = now;
            if class.idle {
                self.idle.remove(&mut self.classes, slot);
                self.idle.push(&mut self.classes, slot);
            }
        }
    }

    /// Forgets the class in `slot` and hands its record out; nothing if it is not idle.
    pub fn forget(&mut self, slot: u32) -> Option<R> {
        let class = self.classes.at(slot).filter(|class| class.idle)?;
        let (hash, after) = (class.hash, class.next);
        let bucket = self.bucket(hash);
        let head = self.buckets.get_mut(bucket)?;
        if *head == slot {
            *head = after;
        } else {
            let mut at = *head;
            while let Some(class) = self.classes.at_mut(at) {
                if class.next == slot {
                    class.next = after;
                    break;
                }
                at = class.next;
            }
        }
        self.remove_idle(slot);
        self.classes.remove(slot).map(|class| class.record)
    }

    /// Index of the bucket of `hash`.
    fn bucket(&self, hash: u32) -> usize {
        let len = self.buckets.len().max(1);
        let mask = len
            .checked_next_power_of_two()
            .map_or(0, |n| n.wrapping_sub(1));
        let index = hash as usize & mask;
        if index < len {
            index
        } else {
            index & (mask >> 1)
        }
    }

    /// Puts the class in `slot` at the front of its bucket.
    fn link(&mut self, slot: u32, hash: u32) {
        let bucket = self.bucket(hash);
        if let Some(head) = self.buckets.get_mut(bucket) {
            let after = core::mem::replace(head, slot);
            if let Some(class) = self.classes.at_mut(slot) {
                class.next = after;
            }
        }
    }

    /// Adds a bucket, if there are fewer than slots, and moves its classes there.
    fn split(&mut self) {
        let len = self.buckets.len();
        if len >= self.classes.slots() || self.buckets.push(NONE).is_err() {
            return;
        }
        // The classes of the new bucket were in the one that has the same bits but the highest.
        let Some(high) = len.checked_ilog2() else {
            return;
        };
        let from = len ^ (1 << high);
        let Some(head) = self.buckets.get_mut(from) else {
            return;
        };
        let mut slot = core::mem::replace(head, NONE);
        while let Some(class) = self.classes.at(slot) {
            let (hash, after) = (class.hash, class.next);
            self.link(slot, hash);
            slot = after;
        }
    }
}
