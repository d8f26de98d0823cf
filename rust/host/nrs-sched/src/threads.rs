// SPDX-License-Identifier: GPL-2.0-only

//! A partition with its target that several threads use concurrently. The scheduling code is locked
//! as in the kernel; the time does not advance.

use crate::{
    arena::{attrs, config_of, lone_part, Request},
    attr::{Attrs, Priority},
    item::Item,
    mem::{NoMemory, Owned, Shared},
    order::{Forced, Order},
    partition::{
        admit::{AdmissionOutcome, ArrivalTerms},
        decide::Decided,
        fast_path::FastPath,
        head_cache::HeadCache,
        ident::Ident,
        round,
        slot_cache::SlotCaches,
        slot_pool::{SlotPool, SlotSearch},
        Admission, Env, PartitionMachine,
    },
    policy::{AnyPart, Config, Kind},
    ranges::RangeTable,
    slots::SlotLimits,
};
use std::sync::{Mutex, PoisonError};

/// The time, ns.
const NOW: u64 = 86_400_000_000_000;

/// State that the lock protects.
pub type Decider = PartitionMachine<Request, AnyPart<Request>, Config>;

/// A partition that is the only one of its target.
pub struct Threads {
    /// Slots of the target.
    pub slot_pool: SlotPool,
    fast_path: Shared<FastPath>,
    machine: Mutex<Decider>,
}

/// A CPU that uses the partition.
struct User<'a> {
    threads: &'a Threads,
    cpu: u32,
    sent: Vec<Request>,
}

impl Env<Request, Config> for User<'_> {
    fn slot_pool(&self) -> &SlotPool {
        &self.threads.slot_pool
    }

    fn index(&self) -> u16 {
        0
    }

    fn cpu(&self) -> u32 {
        self.cpu
    }

    fn now(&self) -> u64 {
        NOW
    }

    fn millis(&self) -> u64 {
        NOW / 1_000_000
    }

    fn ratio(&self) -> u32 {
        2
    }

    fn arm(&mut self, _at: u64) {}

    fn with_table<R>(&self, _priority: Priority, f: impl FnOnce(Option<&RangeTable>) -> R) -> R {
        f(None)
    }

    fn send(&mut self, request: Request) {
        self.sent.push(request);
    }

    fn admit_over(&mut self) -> Admission {
        Admission::Over
    }

    fn admit(&mut self) -> Option<Admission> {
        Some(Admission::Over)
    }

    fn bypass(&mut self, mut request: Request) {
        request.placement.admission = Admission::Over;
        self.send(request);
    }

    fn begin_queueing(&mut self, _request: &mut Request, _now: u64) {}
}

impl round::RoundPartitions for User<'_> {
    fn slot_pool(&self) -> &SlotPool {
        &self.threads.slot_pool
    }

    fn limits(&self) -> SlotLimits {
        self.threads.limits()
    }

    fn decide(&mut self, _index: u16, most: u32) -> Decided {
        let threads = self.threads;
        threads.with(|machine| machine.decide_more(self, NOW, most))
    }
}

impl Threads {
    /// Creates a partition with a policy started with `config`, a target with `slots` slots, and
    /// slot caches and fast-path rows for `cpus` CPUs.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocation failed.
    pub fn new(config: &Config, slots: u32, cpus: u32) -> Result<Self, NoMemory> {
        let fifo = config_of("fifo");
        let head_cache = || HeadCache::new(lone_part(&fifo, 1)?, fifo);
        let fast_path = FastPath::new(cpus)?;
        let mut regular = head_cache()?;
        regular.set_fast_path(fast_path.clone())?;
        let order = Owned::new(Order::new(16, 1)?)?;
        let mut machine = PartitionMachine::new(regular, head_cache()?, order, 16, NOW);
        if config.kind() != Kind::Fifo {
            let part = lone_part(config, 1)?;
            drop(machine.head(Priority::Regular).install(part, *config));
        }
        Ok(Self {
            slot_pool: SlotPool::with_caches(1, slots, SlotCaches::new(cpus)?),
            fast_path,
            machine: Mutex::new(machine),
        })
    }

    /// Runs `f` under the lock.
    pub fn with<R>(&self, f: impl FnOnce(&mut Decider) -> R) -> R {
        f(&mut self.machine.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn limits(&self) -> SlotLimits {
        self.slot_pool.limits(2, NOW / 1_000_000)
    }

    /// Tries to pass `request` on `cpu` without the lock; `slot` of the result is true if it
    /// passed.
    #[inline]
    pub fn pass(&self, cpu: u32, request: &mut Request) -> SlotSearch {
        let (slot_pool, pages) = (&self.slot_pool, request.cost().pages);
        let ident = ident(request.owner);
        let found = self
            .fast_path
            .pass(slot_pool, cpu, ident.as_ref(), pages, || self.limits());
        if found.slot {
            request.placement.admission = Admission::Slot;
        }
        found
    }

    /// Handles the arrival of `request` on `cpu`; the request's owner is a user id. Returns the
    /// request that is dispatched, if any.
    #[inline]
    pub fn arrive(&self, cpu: u32, mut request: Request) -> Option<Request> {
        let found = self.pass(cpu, &mut request);
        if found.slot && !found.others {
            return Some(request);
        }
        let mut user = self.user(cpu);
        if found.slot {
            user.sent.push(request);
        } else {
            self.enter(&mut user, request);
        }
        round::arrived(&mut user, found.others);
        user.sent.pop()
    }

    /// Handles the arrival of `request` like `arrive`, but always under the lock.
    pub fn arrive_locked(&self, cpu: u32, request: Request) -> Option<Request> {
        let mut user = self.user(cpu);
        self.enter(&mut user, request);
        user.sent.pop()
    }

    #[inline(never)]
    fn enter(&self, user: &mut User<'_>, request: Request) {
        let ident = ident(request.owner);
        let terms = ArrivalTerms {
            ident: ident.as_ref(),
            forced: Forced::No,
            may_pass: true,
            relation: None,
            may_overflow: true,
        };
        let who = attrs(request.owner);
        let attrs = || Attrs { ..who };
        let arrived = self.with(|machine| machine.arrive(user, request, &terms, &attrs));
        if let AdmissionOutcome::Passed(request) = arrived.went {
            user.sent.push(request);
        }
        round::arrived(user, arrived.others);
    }

    /// Ends `request` on `cpu`; returns the requests that are dispatched then.
    #[inline]
    pub fn end(&self, cpu: u32, request: &Request) -> Vec<Request> {
        let placement = &request.placement;
        if placement.admission == Admission::Slot {
            self.slot_pool.put_on(cpu, placement.priority);
        }
        let mut user = self.user(cpu);
        let home = placement.ticket.map(|_| 0);
        if home.is_some() || !self.slot_pool.is_uncontended() {
            round::ended(&mut user, home, |user, _, most| {
                self.with(|machine| machine.end(user, NOW, placement, request.cost(), most));
            });
        }
        user.sent
    }

    const fn user(&self, cpu: u32) -> User<'_> {
        User {
            threads: self,
            cpu,
            sent: Vec::new(),
        }
    }
}

/// Returns everything that the class of a request of `owner` depends on; `None` if `owner` is 0.
fn ident(owner: u32) -> Option<Ident> {
    (owner != 0).then(|| [owner.into(), 0, 0, 0, 0])
}
