// SPDX-License-Identifier: GPL-2.0-only

//! One partition of a service in simulated time: an order table, two heads and their slots, put together as the
//! kernel part does it.
//!
//! # Vocabulary
//!
//! - *Account*: what the front-end keeps beside a request for as long as it is here ([`Account`]).
//! - *Relate*: what the front-end says of a request's predecessors ([`Relate`]).
//! - *Started*: it went down, to the device.
//!
//! ```text
//!   arrive ─▶ order.enter ──── Free ──▶ go on ─┬─ forced, or a slot is free ─────────▶ started ─▶ complete
//!                  │                      ▲    └─▶ queued in a head ─▶ decided ──────────▲    order.finish
//!                  ├─ Blocked ─▶ block ─┐ │ Release            │  Force                  │
//!                  └─ Full ─▶ overflow ─┴─┴── order.next ◀─────┴─────────────────────────┘
//! ```

use crate::{
    arena::{feed, lone_part, view, walk, Request},
    attr::{Attrs, Priority},
    head::{Head, Ticket},
    item::Item,
    mem::NoMemory,
    order::{Act, Entered, Forced, Order, RecordId, Relation},
    policy::{AnyPart, AnyUpdate, Config, Get, Kind, Part, Passed, Tunables, Way},
    slots::{Limits, Pending, Pool, Turn},
};
use std::collections::{BTreeMap, HashMap};

/// How a request is related to earlier ones, as its front-end sees it.
#[derive(Clone, Copy, Debug)]
pub enum Relate {
    /// It has no part in the order, not even a record.
    Not,
    /// By its own range in a domain.
    Range(u64),
    /// As said; whoever brings it can come back if there is no record.
    As(Relation),
}

/// What is kept beside a request.
struct Account {
    record: Option<RecordId>,
    /// Made when it arrived, for one that overflows; then that of its head.
    ticket: Option<Ticket>,
    priority: Priority,
    /// It has a slot.
    slot: bool,
    /// Where it is, for those who look.
    stage: Stage,
}

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It waits for others.
    Blocked,
    /// It waits for a record.
    Overflowed,
    /// It is in the head of this priority.
    Queued(Priority),
    /// It is at the device.
    Started,
}

struct Lane {
    head: Head<Request, AnyPart<Request>, Config>,
    until: u64,
}

impl Lane {
    fn new(config: &Config, seed: u64) -> Result<Self, NoMemory> {
        let fifo = Config::parse(Kind::Fifo, None, &Tunables::default()).map_err(|_| NoMemory)?;
        let mut lane = Self {
            head: Head::new(lone_part(&fifo, seed)?, fifo),
            until: 0,
        };
        lane.install(config, seed)?;
        Ok(lane)
    }

    /// Starts a policy; the one before it is drained, if there is a place for both.
    fn install(&mut self, config: &Config, seed: u64) -> Result<(), NoMemory> {
        drop(self.head.reap());
        if config.kind() == Kind::Fifo {
            self.head.drop_primary();
        } else {
            // Without a place, the one before it goes on.
            drop(self.head.install(lone_part(config, seed)?, *config));
        }
        self.until = 0;
        Ok(())
    }

    fn has_work(&self, now: u64) -> bool {
        self.until <= now && self.head.queued() > 0
    }
}

/// A partition with its front-end and its device.
pub struct Server {
    /// The order table.
    pub order: Order<Request>,
    /// Monotonic ns.
    pub now: u64,
    /// Requests that went down, in this order, since somebody took the list.
    pub started: Vec<u64>,
    /// Queued requests that were not found in their heads.
    pub missed: u64,
    regular: Lane,
    high: Lane,
    turn: Turn,
    pool: Pool,
    limits: Limits,
    accounts: BTreeMap<u64, Account>,
    /// Requests at the device.
    device: HashMap<u64, Request>,
}

impl Server {
    /// A server with `slots` slots, heads with a policy started with `config`, and an order table of at most
    /// `records` records.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn new(config: &Config, slots: u32, records: u32, seed: u64) -> Result<Self, NoMemory> {
        Ok(Self {
            order: Order::new(records, seed)?,
            now: 86_400_000_000_000,
            started: Vec::new(),
            missed: 0,
            regular: Lane::new(&config.on(Priority::Regular), seed)?,
            high: Lane::new(&config.on(Priority::High), seed)?,
            turn: Turn::new(),
            pool: Pool::EMPTY,
            limits: Limits {
                slots,
                high_priority: true,
                ratio: 10,
            },
            accounts: BTreeMap::new(),
            device: HashMap::new(),
        })
    }

    /// Takes a request; hands it back if there is no record for it and its front-end can come back.
    ///
    /// # Errors
    ///
    /// The request.
    pub fn arrive(
        &mut self,
        request: Request,
        attrs: &Attrs,
        relate: Relate,
        forced: bool,
    ) -> Result<(), Request> {
        let priority = attrs.priority;
        let high = priority == Priority::High;
        let entered = match relate {
            Relate::Not => None,
            Relate::Range(domain) => {
                let relation = Relation::overlap(domain, &request.spot(), request.direction);
                Some((self.order.enter(relation, high), relation, Some(domain)))
            }
            Relate::As(relation) => Some((self.order.enter(relation, high), relation, None)),
        };
        let mut account = Account {
            record: None,
            ticket: None,
            priority,
            slot: false,
            stage: Stage::Blocked,
        };
        match entered {
            None => self.go_on(request, account, Some(*attrs), forced),
            Some((Entered::Free(id), ..)) => {
                account.record = Some(id);
                self.go_on(request, account, Some(*attrs), forced);
            }
            Some((Entered::Blocked(id), ..)) => {
                account.record = Some(id);
                self.accounts.insert(request.id, account);
                let forced = match forced {
                    true => Forced::InTurn,
                    false => Forced::No,
                };
                self.order.block(id, request, *attrs, forced);
            }
            Some((Entered::Full, Relation::Free, Some(_))) => {
                self.go_on(request, account, Some(*attrs), forced);
            }
            Some((Entered::Full, _, Some(domain))) => {
                let now = self.now;
                account.ticket = Some(self.lane(priority).head.classify(attrs, now));
                account.stage = Stage::Overflowed;
                self.accounts.insert(request.id, account);
                self.order.overflow(request, domain, high, forced);
            }
            Some((Entered::Full, _, None)) => return Err(request),
        }
        self.act();
        self.pump();
        Ok(())
    }

    /// The device has done with a request; returns it.
    pub fn complete(&mut self, id: u64) -> Option<Request> {
        let request = self.device.remove(&id)?;
        let account = self.accounts.remove(&id)?;
        if account.slot {
            self.pool = self.pool.put(account.priority);
        }
        let now = self.now;
        if let Some(ticket) = account.ticket {
            let head = &mut self.lane(account.priority).head;
            head.stop(&ticket, request.cost(), now);
        }
        if let Some(record) = account.record {
            self.order.finish(record);
        }
        self.act();
        self.pump();
        Some(request)
    }

    /// Asks for high priority for a request; `false` if it is not here any more, or was not promised.
    pub fn promote(&mut self, id: u64) -> bool {
        let Some(record) = self.record(id) else {
            return false;
        };
        self.order.promote(record);
        self.act();
        self.pump();
        true
    }

    /// Sends everything down that is here.
    pub fn force_all(&mut self) {
        self.order.force_all();
        self.act();
        self.pump();
    }

    /// Gives the order table the memory that it wants, as the service's worker does.
    ///
    /// # Panics
    ///
    /// There is none.
    pub fn feed(&mut self) {
        while !self.order.need().is_empty() {
            let spare = self.order.need().allocate().expect("memory");
            self.order.grow(spare);
        }
        self.act();
        self.pump();
    }

    /// Starts another policy on both heads.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn install(&mut self, config: &Config, seed: u64) -> Result<(), NoMemory> {
        for priority in Priority::ALL {
            let config = config.on(priority);
            self.lane(priority).install(&config, seed)?;
        }
        self.pump();
        Ok(())
    }

    /// Whether the last slot is kept for high priority; a new server keeps it.
    pub fn keep_slot(&mut self, keep: bool) {
        self.limits.high_priority = keep;
        self.pump();
    }

    /// Tells the primaries of both heads something.
    pub fn update(&mut self, update: &AnyUpdate) {
        let now = self.now;
        for priority in Priority::ALL {
            if let Some(part) = self.lane(priority).head.primary_mut() {
                drop(part.update(update.clone(), now));
            }
        }
    }

    /// Lets time go on by `ns`.
    pub fn wait(&mut self, ns: u64) {
        self.now = self.now.saturating_add(ns);
        for priority in Priority::ALL {
            let now = self.now;
            for (_, part) in self.lane(priority).head.parts_mut() {
                part.age(now, 64);
            }
        }
        self.pump();
    }

    /// When a head that withholds may serve again, if one does.
    pub fn next_expiry(&self) -> Option<u64> {
        let lanes = [&self.regular, &self.high].into_iter();
        let waiting = lanes.filter(|lane| lane.head.queued() > 0);
        waiting.map(|lane| lane.until).min()
    }

    /// Requests that are here.
    pub fn len(&self) -> usize {
        self.accounts.len()
    }

    /// Where a request is.
    pub fn stage(&self, id: u64) -> Option<Stage> {
        self.accounts.get(&id).map(|account| account.stage)
    }

    /// Its record, if it has one.
    pub fn record(&self, id: u64) -> Option<RecordId> {
        self.accounts.get(&id)?.record
    }

    fn lane(&mut self, priority: Priority) -> &mut Lane {
        match priority {
            Priority::Regular => &mut self.regular,
            Priority::High => &mut self.high,
        }
    }

    /// Does what the order table asks for.
    fn act(&mut self) {
        while let Some(act) = self.order.next() {
            match act {
                Act::Release {
                    id,
                    item,
                    attrs,
                    priority,
                    forced,
                } => {
                    let Some(mut account) = self.accounts.remove(&item.id) else {
                        unreachable!("released but not here");
                    };
                    account.record = Some(id);
                    if core::mem::replace(&mut account.priority, priority) != priority {
                        // Of another head.
                        account.ticket = None;
                    }
                    self.go_on(item, account, attrs, forced != Forced::No);
                }
                Act::Move {
                    id,
                    place,
                    ticket,
                    attrs,
                } => {
                    let now = self.now;
                    match self.regular.head.dequeue(&ticket, &place, now) {
                        Some(mut request) => {
                            request.unregister(place);
                            let Some(mut account) = self.accounts.remove(&request.id) else {
                                unreachable!("queued but not here");
                            };
                            account.priority = Priority::High;
                            account.ticket = None;
                            self.enqueue(request, account, attrs);
                        }
                        None => self.put_back(id, place, ticket, Priority::Regular),
                    }
                }
                Act::Force {
                    id,
                    place,
                    ticket,
                    priority,
                    ..
                } => {
                    let now = self.now;
                    let head = &mut self.lane(priority).head;
                    match head.dequeue(&ticket, &place, now) {
                        Some(mut request) => {
                            request.unregister(place);
                            // Its class owes for it.
                            let _ = head.pass(&ticket, request.cost(), Way::Forced, || now);
                            let Some(mut account) = self.accounts.remove(&request.id) else {
                                unreachable!("queued but not here");
                            };
                            account.ticket = None;
                            self.start(request, account);
                        }
                        None => self.put_back(id, place, ticket, priority),
                    }
                }
                Act::Again => {}
            }
        }
    }

    /// It was not found where it is queued, so it stays there.
    fn put_back(
        &mut self,
        id: RecordId,
        place: <Request as Item>::Place,
        ticket: Ticket,
        priority: Priority,
    ) {
        self.missed += 1;
        let attrs = || Attrs::UNKNOWN;
        self.order.queued(id, place, ticket, priority, attrs);
    }

    /// A request that waits for nobody goes down, if it must or may, or into its head.
    fn go_on(
        &mut self,
        request: Request,
        mut account: Account,
        attrs: Option<Attrs>,
        forced: bool,
    ) {
        let (priority, now) = (account.priority, self.now);
        let calm = self.regular.head.queued() == 0 && self.high.head.queued() == 0;
        let slot = if calm && !forced {
            self.pool.take(priority, &self.limits)
        } else {
            None
        };
        if forced || slot.is_some() {
            let way = if forced {
                Way::Forced
            } else {
                Way::Opportunity
            };
            let ticket = self.classify(&account, attrs);
            let head = &mut self.lane(priority).head;
            let passed = head.pass(&ticket, request.cost(), way, || now);
            if forced || passed != Passed::Refused {
                account.ticket = None;
                account.slot = slot.is_some();
                self.pool = slot.unwrap_or(self.pool);
                self.start(request, account);
                return;
            }
        }
        self.enqueue(request, account, attrs);
    }

    /// Where a request belongs.
    fn classify(&mut self, account: &Account, attrs: Option<Attrs>) -> Ticket {
        let now = self.now;
        let head = &mut self.lane(account.priority).head;
        for (_, part) in head.parts_mut() {
            feed(part);
            walk(part, now);
        }
        // One that overflowed has the ticket of its arrival, and nothing else.
        let kept = account.ticket.filter(|ticket| head.is_live(ticket));
        kept.unwrap_or_else(|| head.classify(&attrs.unwrap_or(Attrs::UNKNOWN), now))
    }

    /// A request waits in the head of its priority.
    fn enqueue(&mut self, mut request: Request, mut account: Account, attrs: Option<Attrs>) {
        let (id, now) = (request.id, self.now);
        let ticket = self.classify(&account, attrs);
        let attrs = || attrs.unwrap_or(Attrs::UNKNOWN);
        let place = account.record.map(|record| (record, request.register()));
        let lane = self.lane(account.priority);
        let queued = lane.head.enqueue(request, ticket, attrs, now);
        let Ok(ticket) = queued else {
            unreachable!("the fallback takes everything");
        };
        lane.until = 0;
        if let Some((record, place)) = place {
            let priority = account.priority;
            self.order.queued(record, place, ticket, priority, attrs);
        }
        account.ticket = None;
        account.stage = Stage::Queued(account.priority);
        self.accounts.insert(id, account);
    }

    /// A request goes down.
    fn start(&mut self, mut request: Request, mut account: Account) {
        if let Some(record) = account.record {
            if let Some(place) = self.order.running(record) {
                request.unregister(place);
            }
        }
        account.stage = Stage::Started;
        self.started.push(request.id);
        self.accounts.insert(request.id, account);
        self.device.insert(request.id, request);
    }

    /// Decides requests while slots are free.
    fn pump(&mut self) {
        let now = self.now;
        let mut pending = Pending {
            high: self.high.has_work(now),
            regular: self.regular.has_work(now),
        };
        while let Some(priority) = self.turn.first(pending, self.pool, &self.limits) {
            let Some(pool) = self.pool.take(priority, &self.limits) else {
                break;
            };
            let lane = self.lane(priority);
            match lane.head.get(&view(now, false)) {
                Get::Item((request, ticket)) => {
                    lane.until = 0;
                    self.turn.served(priority);
                    self.pool = pool;
                    let Some(mut account) = self.accounts.remove(&request.id) else {
                        unreachable!("decided but not here");
                    };
                    account.ticket = Some(ticket);
                    account.slot = true;
                    self.start(request, account);
                    if !self.lane(priority).has_work(now) {
                        pending = pending.without(priority);
                    }
                }
                Get::Throttled { until } => {
                    lane.until = until;
                    pending = pending.without(priority);
                }
                Get::Empty => pending = pending.without(priority),
            }
        }
    }
}
