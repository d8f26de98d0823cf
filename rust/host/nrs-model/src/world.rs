// SPDX-License-Identifier: GPL-2.0-only

//! A target with its partitions, timers and progress guard. It wraps the pure scheduling code as
//! the kernel does: each lock hold of `rust/engine/{partition,partitions,service,progress}.rs` is
//! one lock hold here.
//!
//! Time advances only with timers: a timer that expires sets the time for which it was armed.

use crate::{
    partition::{
        admit::{AdmissionOutcome, ArrivalTerms},
        decide::Decided,
        fast_path::FastPath,
        head_cache::HeadCache,
        pull::PullGate,
        round,
        slot_cache::SlotCaches,
        slot_pool::{SlotPool, SlotSearch},
        Admission, Env, PartitionMachine, Placement, Scheduled, BATCH,
    },
    request::Request,
    search::{task, Mutex},
};
use nrs_sched::{
    arena::feed,
    attr::{Attrs, Id, Priority},
    item::{ByteRange, Direction, Item},
    mem::{Owned, Shared},
    order::{Forced, Order, Relation},
    policy::{fairshare::params::HoldSlots, tbf, AnyPart, AnyShared, Config, Kind, Tunables},
    ranges::RangeTable,
    slots::SlotLimits,
    units::NSEC_PER_MSEC,
};
use std::{
    collections::VecDeque,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
        Mutex as Plain,
    },
};

/// Start of a scenario, ns.
const START: u64 = 86_400_000 * NSEC_PER_MSEC;

/// Maximum delay of a timer after a head becomes eligible, ns: the pause between two expiries.
const PAUSE: u64 = 20_000;

/// The state that a partition's lock protects.
type Decider = PartitionMachine<Request, AnyPart<Request>, Config>;

/// Properties of a request.
#[derive(Clone, Copy, Debug)]
pub struct Kindred {
    /// Index of the partition at which the request arrives.
    pub home: u16,
    /// Priority, which selects the head.
    pub priority: Priority,
    /// User id, for policies that distinguish users.
    pub uid: u32,
    /// True if the request must not be throttled.
    pub forced: bool,
    /// True if the request may be dispatched at once while no request is queued.
    pub may_pass: bool,
    /// True if the request may pass without the lock.
    pub unlocked: bool,
    /// Block that the request writes, ordered with other writes to the block.
    pub block: Option<u64>,
}

/// Policy of the heads.
#[derive(Clone, Copy, Debug)]
pub enum Primary {
    /// `fifo`.
    Fifo,
    /// `tbf` with so many requests/s of each user.
    Rate(u32),
    /// `fairshare` of users, which keeps so many slots free for an expected request.
    Hold(HoldSlots),
}

impl Primary {
    /// Returns the configuration; `None` for the fallback.
    fn config(self) -> Option<Config> {
        let mut tunables = Tunables::default();
        let (kind, argument) = match self {
            Self::Fifo => return None,
            Self::Rate(rate) => {
                tunables.tbf.rate = tbf::params::Rate::new(rate).expect("valid");
                tunables.tbf.depth = tbf::params::Depth::new(1).expect("valid");
                (Kind::Tbf, "uid")
            }
            Self::Hold(slots) => {
                tunables.fairshare.hold = slots;
                (Kind::Fairshare, "uid_fair")
            }
        };
        Some(Config::parse(kind, Some(argument), &tunables).expect("valid"))
    }
}

/// A target with its partitions.
pub struct World {
    slot_pool: SlotPool,
    partitions: Vec<Mutex<Decider>>,
    /// Rows of each partition, if requests pass without the lock.
    fast_path: Vec<Shared<FastPath>>,
    /// Expiry of the timer of each partition, ns; 0 if it is not armed.
    timers: Vec<AtomicU64>,
    now: AtomicU64,
    /// True if the progress guard was called.
    called: AtomicBool,
    /// Requests in flight.
    flight: Plain<VecDeque<Request>>,
    /// All requests ever dispatched.
    dispatched: Plain<Vec<u64>>,
    /// Number of requests that arrived.
    came: AtomicU64,
    /// Maximum number of slots so far.
    slots: AtomicU64,
    /// The gate of a device that pulls.
    gate: Option<PullGate>,
    /// True if the device was notified.
    notified: AtomicBool,
}

/// Returns the CPU of this task.
fn cpu() -> u32 {
    task() as u32
}

/// Environment of one partition.
struct PartitionEnv<'a> {
    world: &'a World,
    index: u16,
    /// True if the device pulls.
    is_pull: bool,
}

impl Env<Request, Config> for PartitionEnv<'_> {
    fn slot_pool(&self) -> &SlotPool {
        &self.world.slot_pool
    }

    fn index(&self) -> u16 {
        self.index
    }

    fn cpu(&self) -> u32 {
        cpu()
    }

    fn now(&self) -> u64 {
        self.world.now()
    }

    fn millis(&self) -> u64 {
        self.now() / NSEC_PER_MSEC
    }

    fn ratio(&self) -> u32 {
        2
    }

    fn arm(&mut self, at: u64) {
        self.world.timers[usize::from(self.index)].store(at, SeqCst);
    }

    fn with_table<R>(&self, _priority: Priority, f: impl FnOnce(Option<&RangeTable>) -> R) -> R {
        f(None)
    }

    fn send(&mut self, request: Request) {
        self.world.dispatched.lock().expect("lock").push(request.id);
        let mut flight = self.world.flight.lock().expect("lock");
        flight.push_back(request);
        let slots = |request: &&Request| request.placement().admission == Admission::Slot;
        let slots = flight.iter().filter(slots).count() as u64;
        assert!(slots <= self.world.slots.load(SeqCst), "{slots} slots");
    }

    fn batch(&self) -> Option<u32> {
        round::RoundPartitions::batch(&self.world)
    }

    fn record_more(&mut self) {
        if let Some(gate) = &self.world.gate {
            let must_notify = gate.open() && !self.is_pull;
            self.world.notified.fetch_or(must_notify, SeqCst);
        }
    }

    fn admit_over(&mut self) -> Admission {
        Admission::Over
    }

    fn admit(&mut self) -> Option<Admission> {
        Some(Admission::Over)
    }

    fn bypass(&mut self, mut request: Request) {
        request.placement_mut().admission = Admission::Over;
        self.send(request);
    }

    fn begin_queueing(&mut self, _request: &mut Request, _now: u64) {}
}

impl round::RoundPartitions for &World {
    fn slot_pool(&self) -> &SlotPool {
        &self.slot_pool
    }

    fn limits(&self) -> SlotLimits {
        self.slot_pool.limits(2, self.now() / NSEC_PER_MSEC)
    }

    fn decide(&mut self, index: u16, most: u32) -> Decided {
        self.at(index, |machine, env, now| {
            machine.decide_more(env, now, most)
        })
    }

    fn batch(&self) -> Option<u32> {
        match &self.gate {
            Some(gate) => gate.batch(),
            None => Some(BATCH),
        }
    }
}

/// The partitions while the device pulls.
struct Pull<'a>(&'a World);

impl round::RoundPartitions for Pull<'_> {
    fn slot_pool(&self) -> &SlotPool {
        &self.0.slot_pool
    }

    fn limits(&self) -> SlotLimits {
        round::RoundPartitions::limits(&self.0)
    }

    fn decide(&mut self, index: u16, most: u32) -> Decided {
        self.0.at(index, |machine, env, now| {
            env.is_pull = true;
            machine.pull(env, now, most)
        })
    }
}

impl World {
    /// Creates a target with `slots` slots and `partitions` partitions for `cpus` CPUs, whose heads
    /// have the policy `primary`. With `rows`, so many CPUs have rows with which requests pass
    /// without the lock. The device pulls if `pulls` is true.
    pub fn new(
        partitions: u16,
        slots: u32,
        cpus: u32,
        primary: Primary,
        rows: Option<u32>,
        pulls: bool,
    ) -> Self {
        let fifo = Config::parse(Kind::Fifo, None, &Tunables::default()).expect("no argument");
        let primary = primary.config();
        let shared = |config: &Config| AnyShared::new(config, 1, partitions.into());
        let shared = shared(primary.as_ref().unwrap_or(&fifo)).expect("memory");
        let fallback = || {
            let shared = AnyShared::new(&fifo, 1, 1).expect("memory");
            AnyPart::new(&fifo, 1, &shared).expect("memory")
        };
        let head_cache = || {
            let mut head_cache = HeadCache::new(fallback(), fifo).expect("memory");
            if let Some(config) = primary {
                let mut part = AnyPart::new(&config, 1, &shared).expect("memory");
                feed(&mut part);
                assert!(head_cache.head.install(part, config).is_ok());
            }
            head_cache
        };
        let fast_path =
            rows.map(|cpus| (0..partitions).map(move |_| FastPath::new(cpus).expect("memory")));
        let fast_path: Vec<_> = fast_path.into_iter().flatten().collect();
        let partition = |index: u16| {
            let order = Order::new(16, 1).and_then(Owned::new).expect("memory");
            let mut regular = head_cache();
            if let Some(fast_path) = fast_path.get(usize::from(index)) {
                regular.set_fast_path(fast_path.clone()).expect("memory");
            }
            Mutex::new(PartitionMachine::new(
                regular,
                head_cache(),
                order,
                16,
                START,
            ))
        };
        Self {
            slot_pool: SlotPool::with_caches(
                partitions,
                slots,
                SlotCaches::new(cpus).expect("memory"),
            ),
            partitions: (0..partitions).map(partition).collect(),
            fast_path,
            timers: (0..partitions).map(|_| AtomicU64::new(0)).collect(),
            now: AtomicU64::new(START),
            called: AtomicBool::new(false),
            flight: Plain::default(),
            dispatched: Plain::default(),
            came: AtomicU64::new(0),
            slots: AtomicU64::new(slots.into()),
            gate: pulls.then(PullGate::new),
            notified: AtomicBool::new(false),
        }
    }

    fn now(&self) -> u64 {
        self.now.load(SeqCst)
    }

    /// Runs `f` under the lock of the partition at `index`, with the time before the lock was
    /// taken.
    fn at<R>(
        &self,
        index: u16,
        f: impl FnOnce(&mut Decider, &mut PartitionEnv<'_>, u64) -> R,
    ) -> R {
        let now = self.now();
        let mut env = PartitionEnv {
            world: self,
            index,
            is_pull: false,
        };
        self.partitions[usize::from(index)].with(|machine| f(machine, &mut env, now))
    }

    /// Handles the arrival of request `id`.
    pub fn arrive(&self, id: usize, kindred: &Kindred) {
        let id = id as u64;
        self.came.fetch_add(1, SeqCst);
        let mut request = Request::new(id, Placement::new(kindred.priority));
        let relation = kindred.block.map(|block| {
            let range = ByteRange::new(0, block * 4096, 4096);
            Relation::overlap(0, &range, Direction::Write)
        });
        let ident = [kindred.uid.into(), 0, 0, 0, 0];
        let limits = || round::RoundPartitions::limits(&self);
        let fast_path = self.fast_path.get(usize::from(kindred.home));
        let found = match fast_path.filter(|_| kindred.unlocked) {
            Some(fast_path) => fast_path.pass(&self.slot_pool, cpu(), Some(&ident), 1, limits),
            None => SlotSearch::default(),
        };
        if found.slot {
            request.placement_mut().admission = Admission::Slot;
            self.send(kindred.home, request);
            round::arrived(&mut &*self, found.others);
            return;
        }
        let terms = ArrivalTerms {
            ident: Some(&ident),
            forced: match kindred.forced {
                true => Forced::InTurn,
                false => Forced::No,
            },
            may_pass: kindred.may_pass,
            relation: relation.as_ref(),
            may_overflow: true,
        };
        let attrs = || Attrs {
            uid: Id::new(kindred.uid),
            priority: kindred.priority,
            ..Attrs::UNKNOWN
        };
        let arrived = self.at(kindred.home, |machine, env, _| {
            let arrived = machine.arrive(env, request, &terms, &attrs);
            // The worker determines which partition it was.
            self.called
                .fetch_or(arrived.needs_memory && machine.order().is_busy(), SeqCst);
            arrived
        });
        if let AdmissionOutcome::Passed(mut request) = arrived.went {
            // A request that ends identifies its partition only by its record.
            request.placement_mut().record = arrived.record;
            self.send(kindred.home, request);
        }
        round::arrived(&mut &*self, arrived.others || found.others);
    }

    /// Submits a request that passed at the partition at `index`.
    fn send(&self, index: u16, request: Request) {
        let mut env = PartitionEnv {
            world: self,
            index,
            is_pull: false,
        };
        env.send(request);
    }

    /// Ends the oldest request in flight; `homes` are the partitions of all requests. Returns false
    /// if no request is in flight.
    pub fn complete(&self, homes: &[u16]) -> bool {
        let Some(request) = self.flight.lock().expect("lock").pop_front() else {
            return false;
        };
        let placement = *request.placement();
        if placement.admission == Admission::Slot {
            self.slot_pool.put_on(cpu(), placement.priority);
        }
        let known = placement.ticket.is_some() || placement.record.is_some();
        if known || !self.slot_pool.is_uncontended() {
            let home = known.then(|| homes[request.id as usize]);
            round::ended(&mut &*self, home, |_, index, most| {
                let busy = self.at(index, |machine, env, now| {
                    machine.end(env, now, &placement, request.cost(), most)
                });
                self.called.fetch_or(busy, SeqCst);
            });
        }
        true
    }

    /// Expires the timer of the partition at `index`; returns false if it is not armed.
    pub fn expire(&self, index: u16) -> bool {
        let at = self.timers[usize::from(index)].swap(0, SeqCst);
        if at == 0 {
            return false;
        }
        self.now.fetch_max(at, SeqCst);
        self.at(index, |machine, env, now| machine.expired(env, now));
        let limits = || round::RoundPartitions::limits(&self);
        if round::is_needed(&self.slot_pool, index, limits) {
            self.called.store(true, SeqCst);
        }
        true
    }

    /// Lets the device pull as often as it can; returns false if it was not notified.
    pub fn pull(&self) -> bool {
        if !self.notified.swap(false, SeqCst) {
            return false;
        }
        if let Some(gate) = &self.gate {
            while gate.is_open() {
                gate.pull(&mut Pull(self));
            }
        }
        true
    }

    /// Runs the progress guard; returns false if it was not called.
    pub fn attend(&self) -> bool {
        if !self.called.swap(false, SeqCst) {
            return false;
        }
        for index in 0..self.partitions.len() as u16 {
            while self.at(index, |machine, env, now| {
                machine.run_some_actions(env, now)
            }) {}
        }
        round::pass_on(&mut &*self, 0);
        true
    }

    /// Changes policies, rates and the number of slots to `slots`.
    pub fn change(&self, slots: u32) {
        self.slots.fetch_max(slots.into(), SeqCst);
        self.slot_pool.set_slots(slots);
        for index in 0..self.partitions.len() as u16 {
            self.at(index, |machine, env, now| machine.reconsider(env, now));
        }
        round::pass_on(&mut &*self, 0);
    }

    /// Dispatches all queued requests of a partition.
    pub fn drain(&self, index: u16) {
        self.at(index, |machine, _, _| machine.order().force_all());
        while self.at(index, |machine, env, now| {
            machine.run_some_actions(env, now)
        }) {}
        let mut left = self.at(index, |machine, _, _| machine.queued());
        while left > 0 {
            self.at(index, |machine, env, now| {
                let leave = crate::partition::decide::Leave::Forced;
                machine.dispatch_without_slots(env, now, BATCH, leave);
            });
            left = left.saturating_sub(BATCH);
        }
        round::pass_on(&mut &*self, 0);
    }

    /// Returns true if a slot is free although requests are queued, because a partition keeps it.
    #[cfg(test)]
    pub fn is_holding(&self) -> bool {
        let holds = |one: &Mutex<Decider>| one.with(|one| one.held() > 0);
        let is_free = self.slot_pool.used().active() < self.slot_pool.slots();
        is_free && !self.slot_pool.is_uncontended() && self.partitions.iter().any(holds)
    }

    /// Checks that no request is stalled. No task and no progress guard may be about to act.
    fn check(&self) {
        let mut limits = round::RoundPartitions::limits(&self);
        let (pool, now) = (self.slot_pool.used(), self.now());
        // Slots that are kept free may be used when the timer expires.
        let held = (0..).zip(&self.partitions).map(|(index, _)| {
            self.at(index, |machine, env, now| {
                let held = machine.held();
                machine.reorder(env, now, |_| {});
                assert_eq!(
                    machine.held(),
                    held,
                    "partition {index} holds a slot for no request"
                );
                let timer = self.timers[usize::from(index)].load(SeqCst);
                assert!(held == 0 || timer > 0, "partition {index} has no timer");
                held
            })
        });
        limits.slots = limits.all.saturating_sub(held.sum());
        let armed = |index: usize| self.timers[index].load(SeqCst);
        let mut regular = false;
        for (index, partition) in self.partitions.iter().enumerate() {
            partition.with(|machine| {
                let pending = machine.pending(now);
                regular |= pending.regular;
                for (is_pending, priority) in [
                    (pending.high, Priority::High),
                    (pending.regular, Priority::Regular),
                ] {
                    let is_held = priority == Priority::Regular && limits.slots == 0;
                    assert!(
                        !is_pending || is_held || !pool.allows(priority, &limits),
                        "{priority:?} requests of partition {index} wait beside a free slot"
                    );
                }
                if let Some(until) = machine.next_expiry(now) {
                    let armed = armed(index);
                    assert!(
                        armed > 0 && armed <= until.max(now + PAUSE),
                        "partition {index} is throttled until {until}, its timer says {armed}"
                    );
                }
            });
        }
        if let Some(lent) = self
            .slot_pool
            .reserve_expiry_ms(&limits)
            .filter(|_| regular)
        {
            let until = (lent + 1) * NSEC_PER_MSEC;
            let mut timers = (0..self.partitions.len()).map(armed);
            assert!(
                timers.any(|armed| armed > 0 && armed <= until.max(now + PAUSE)),
                "no timer lends the reserved slot to regular requests at {until}"
            );
        }
    }

    /// Ends all requests and checks at each step that no request is stalled; then checks that each
    /// request was dispatched once.
    pub fn finish(&self, homes: &[u16]) {
        let expires = |until: u64| {
            let mut due = (0..)
                .zip(&self.timers)
                .filter(|(_, timer)| timer.load(SeqCst) <= until);
            due.any(|(index, _)| self.expire(index))
        };
        for step in 0.. {
            assert!(step < 1_000, "limit of steps exceeded");
            if self.pull() || self.attend() || expires(self.now()) {
                continue;
            }
            self.check();
            if !self.complete(homes) && !expires(u64::MAX) {
                break;
            }
        }
        let mut dispatched = self.dispatched.lock().expect("lock").clone();
        dispatched.sort_unstable();
        let all: Vec<u64> = (0..self.came.load(SeqCst)).collect();
        assert_eq!(dispatched, all, "each request is dispatched once");
        assert!(self.slot_pool.is_uncontended() && self.slot_pool.used().active() == 0);
    }
}
