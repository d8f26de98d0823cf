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
//! Classes are found by key in a [`Table`].

use crate::sched::{
    key::Hashed,
    mem::{Need, NoMemory},
    slab::{Handle, Linked, Links, List},
    table::{Table, TableNeed, TableSpare},
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

/// A class with the record of the policy.
pub struct ClassRow<R> {
    record: R,
    links: Links,
    idle: bool,
    /// Used since it became the youngest idle class.
    used: bool,
    /// It is the default class, which no key finds.
    default: bool,
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

/// Classes by key and by slot.
///
/// # Invariants
///
/// - Slot 0 is taken by the default class, which is in no list.
/// - Every other class is in the list of idle classes exactly if it is marked idle.
/// - `idle_len` is the length of the list of idle classes.
pub struct ClassTable<K, R> {
    classes: Table<K, ClassRow<R>>,
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
    pub fn new(max: u32, seed: u64, key: K, default: R) -> Result<Self, NoMemory> {
        let mut table = Self {
            classes: Table::new((max as usize).saturating_add(1), seed, false)?,
            idle: List::new(),
            idle_len: 0,
            max: max as usize,
            overflow: 0,
        };
        let class = ClassRow {
            record: default,
            links: Links::new(),
            idle: false,
            used: false,
            default: true,
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
    /// quarter, at least [`RESERVE`] vacant ones, within the bound.
    pub fn target(&self) -> usize {
        let live = self.classes.len() as usize;
        let reserve = RESERVE.max(live / 4);
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

    /// Requests that the default class took because no class could be made.
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
        self.classes.key(slot)
    }

    /// The slot of the class with `key`.
    pub fn find(&self, key: &K) -> Option<u32> {
        self.classes.find(key, |class| !class.default)
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
        let room = self.classes.vacant() > 0 || (self.slots() as usize) < limit;
        if self.len() >= self.max || !room {
            return None;
        }
        let class = ClassRow {
            record: make(),
            links: Links::new(),
            idle: true,
            used: false,
            default: false,
            seen: now,
        };
        let id = self.classes.insert(key, class).ok()?;
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
        self.classes.push(&mut self.idle, slot);
        self.idle_len = self.idle_len.saturating_add(1);
    }

    /// Takes the class in `slot` out of the list of idle classes; it is there.
    fn remove_idle(&mut self, slot: u32) {
        self.classes.unlist(&mut self.idle, slot);
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
                self.classes.unlist(&mut self.idle, slot);
                self.classes.push(&mut self.idle, slot);
            }
        }
    }

    /// Forgets the class in `slot` and hands its record out; nothing if it is not idle.
    pub fn forget(&mut self, slot: u32) -> Option<R> {
        self.classes.at(slot).filter(|class| class.idle)?;
        self.remove_idle(slot);
        self.classes.remove(slot).map(|class| class.record)
    }
}
