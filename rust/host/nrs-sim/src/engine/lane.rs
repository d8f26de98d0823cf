// SPDX-License-Identifier: GPL-2.0-only

//! One partition of a server: its head, and which classes its requests had lately.
//!
//! # Vocabulary
//!
//! - *Head*: that of the kernel, with `fifo` as its fallback and the policy as its primary.
//! - *Until*: the head withholds all that it has until then.
//! - *Cache*: the classes of those who asked lately, so that most requests are not classified. The kernel has
//!   one of 16 places; here there are enough for the nodes of the scenario, as a miss costs no simulated time.
//!
//! No request of a scenario has high priority, so there is no high-priority head, and no slot is kept for it.

use super::item::{Item, Record};
use nrs_sched::units::NSEC_PER_SEC as SECOND;
use nrs_sched::{
    attr::Attrs,
    head::{Head, Ticket},
    item::Item as _,
    mem::Need,
    policy::{AnyPart, AnyShared, Config, Get, Kind, Part, Passed, Tunables, View, Way},
    ranges::Table,
    rng::avalanche,
};

/// How often one run of the worker has a part forget what is idle, at most.
const AGE_ROUNDS: u32 = 64;

/// Classes that are looked at in one go.
const ROWS: u32 = nrs_sched::policy::ROWS as u32;

/// Who asked, and which class that was.
#[derive(Clone, Copy)]
struct Cached {
    ident: u64,
    ticket: Ticket,
}

/// A head and its cache.
pub struct Lane {
    head: Head<Item, AnyPart<Item>, Config>,
    /// Nothing may be served before, ns; 0: whenever.
    until: u64,
    /// When the timer expires, ns; 0: it does not.
    pub armed: u64,
    cache: Vec<Option<Cached>>,
    /// The file makes the class, too.
    by_object: bool,
    /// How long a client counts for the size of its job, ns; 0: it does not.
    window: u64,
    forgotten: u64,
}

impl Lane {
    /// A head that serves with `part`, which was started with `config`, and a cache for `clients` clients.
    ///
    /// # Panics
    ///
    /// There is no memory.
    pub fn new(config: Config, part: AnyPart<Item>, clients: usize) -> Self {
        let fifo = Config::parse(Kind::Fifo, None, &Tunables::default()).expect("no argument");
        let shared = AnyShared::new(&fifo, 0, 1).expect("memory");
        let fallback = AnyPart::new(&fifo, 0, &shared).expect("memory");
        let mut head = Head::new(fallback, fifo);
        if config.kind() != Kind::Fifo {
            assert!(head.install(part, config).is_ok(), "all places are free");
        }
        let window = match &config {
            Config::Fairshare(config) if config.mode().has_size() => {
                u64::from(config.tunables().size_window_s.get()) * SECOND
            }
            _ => 0,
        };
        let places = (4 * clients).next_power_of_two().clamp(16, 1 << 14);
        Self {
            head,
            until: 0,
            armed: 0,
            cache: vec![None; places],
            by_object: config.kind() == Kind::Orr,
            window,
            forgotten: 0,
        }
    }

    /// Requests queued.
    pub fn queued(&self) -> u32 {
        self.head.queued()
    }

    /// Whether it has requests that may be served at `now`, as far as is known.
    pub fn has_work(&self, now: u64) -> bool {
        self.until <= now && self.head.queued() > 0
    }

    /// When it may serve again, if it withholds what it has.
    pub fn expiry(&self, now: u64) -> Option<u64> {
        (self.head.queued() > 0 && self.until > now).then_some(self.until)
    }

    /// Whoever serves is asked again.
    pub fn reconsider(&mut self) {
        self.until = 0;
    }

    /// The part that serves.
    pub fn part(&mut self) -> &mut AnyPart<Item> {
        let (_, part) = self.head.parts_mut().last().expect("there is a fallback");
        part
    }

    /// Whether the part wants memory.
    pub fn is_hungry(&mut self) -> bool {
        !self.part().need().is_empty()
    }

    fn ident(&self, record: &Record) -> u64 {
        let ident = (u64::from(record.node) << 2) | record.op as u64;
        if self.by_object {
            avalanche(ident) ^ record.object
        } else {
            ident
        }
    }

    /// The class of `record`, and whether it was made now.
    fn ticket(
        &mut self,
        record: &Record,
        attrs: impl FnOnce() -> Attrs,
        now: u64,
    ) -> (Ticket, bool) {
        let ident = self.ident(record);
        let place = avalanche(ident) as usize & (self.cache.len() - 1);
        if let Some(cached) = self.cache[place].filter(|cached| cached.ident == ident) {
            if self.head.is_live(&cached.ticket) {
                return (cached.ticket, false);
            }
        }
        let ticket = self.head.classify(&attrs(), now);
        let keep = self.head.is_live(&ticket);
        self.cache[place] = keep.then_some(Cached { ident, ticket });
        (ticket, true)
    }

    /// Whether a request goes down without queueing, and whether its class was asked for.
    pub fn pass(
        &mut self,
        record: &Record,
        attrs: impl FnOnce() -> Attrs,
        now: u64,
    ) -> (bool, bool) {
        let (ticket, asked) = self.ticket(record, attrs, now);
        let passed = self
            .head
            .pass(&ticket, record.cost(), Way::Opportunity, || now);
        (passed != Passed::Refused, asked)
    }

    /// Queues a request; whether its class was asked for.
    pub fn enqueue(
        &mut self,
        item: Item,
        record: &Record,
        attrs: impl Fn() -> Attrs,
        now: u64,
    ) -> bool {
        let (ticket, asked) = self.ticket(record, &attrs, now);
        let queued = self.head.enqueue(item, ticket, attrs, now);
        assert!(queued.is_ok(), "the fallback takes everything");
        self.until = 0;
        asked
    }

    /// Decides which request is next.
    pub fn get(&mut self, table: Option<&Table>, now: u64) -> Option<(Item, Ticket)> {
        let view = View {
            now,
            force: false,
            table,
        };
        match self.head.get(&view) {
            Get::Item(found) => {
                self.until = 0;
                Some(found)
            }
            Get::Empty => None,
            Get::Throttled { until } => {
                self.until = until;
                None
            }
        }
    }

    /// A request ends.
    pub fn stop(&mut self, ticket: &Ticket, record: &Record, now: u64) {
        self.head.stop(ticket, record.cost(), now);
    }

    /// What the worker does for a part: forgets what is idle and brings memory.
    ///
    /// # Panics
    ///
    /// There is no memory.
    pub fn maintain(&mut self, now: u64) {
        for (_, part) in self.head.parts_mut() {
            for _ in 0..AGE_ROUNDS {
                if !part.age(now, ROWS) {
                    break;
                }
            }
            let need = part.need();
            if !need.is_empty() {
                drop(part.grow(need.allocate().expect("memory")));
            }
        }
    }

    /// Has all classes follow what was told or counted.
    pub fn refresh(&mut self, now: u64) {
        let part = self.part();
        let mut from = Some(0);
        while let Some(slot) = from {
            from = part.refresh(slot, ROWS, now);
        }
    }

    /// Forgets who asked lately four times in the time for which a client counts, if that is counted: whoever is
    /// classified anew is seen as a client. Has weights follow what was counted.
    pub fn count_clients(&mut self, now: u64) {
        if self.window == 0 {
            return;
        }
        if now.saturating_sub(self.forgotten) >= self.window / 4 {
            self.forgotten = now;
            self.cache.fill(None);
        }
        self.refresh(now);
    }
}

/// So that a request and its item are made from one place.
impl Record {
    /// The item of the request, which is in `slot`.
    pub fn item(&self, slot: u32) -> Item {
        let item = Item::new(slot, self);
        debug_assert_eq!(item.arrival(), self.arrived);
        item
    }
}
