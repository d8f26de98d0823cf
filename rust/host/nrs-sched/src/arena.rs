// SPDX-License-Identifier: GPL-2.0-only

//! Requests for tests and benchmarks: records in a thread-local arena, queued as index lists.

use crate::{
    attr::{Attrs, Id},
    capacity::Capacity,
    class::ClassId,
    item::{ByteRange, Cost, Direction, Fifo, Item, ItemHandle},
    mem::{Need, NoMemory, Shared},
    partition::{Placement, Scheduled},
    policy::{
        fairshare::{
            self,
            entity_table::Weights,
            limits::{LimitPlan, Limits},
            stats::NodeRow,
            NodeRowBuf, Update,
        },
        AnyPart, AnyShared, AnyUpdate, BypassOutcome, BypassReason, Config, Kind, Part, PartView,
        Tunables, ROWS,
    },
    qbm::{gate::Gates, plan::Plan, terms::UNREGULATED},
    slab::{Handle, Linked, Links, Slab, SlabList, SlabPile},
    text::PolicyCommand,
};
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
};

struct Record {
    request: Request,
    links: Links,
    /// Number of the queue that contains the record.
    queue: u64,
}

/// State of a registered request.
#[derive(Clone, Copy, Default)]
struct ArenaRequest {
    /// Index in the arena while the request is queued.
    idx: Option<u32>,
    mark: u64,
}

impl Linked for Record {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

thread_local! {
    static ARENA: RefCell<Slab<Record>> =
        RefCell::new(Slab::new(1 << 24).expect("memory for the arena"));
    static KNOWN: RefCell<HashMap<u64, ArenaRequest>> = RefCell::new(HashMap::new());
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// Returns a number that this thread has not used yet.
fn number() -> u64 {
    NUMBER.set(NUMBER.get() + 1);
    NUMBER.get()
}

/// Applies `change` to the state of the request registered as `number`; does nothing if it does not
/// exist.
fn update_registered(number: u64, change: impl FnOnce(&mut ArenaRequest)) {
    if number == 0 {
        return;
    }
    KNOWN.with_borrow_mut(|known| known.get_mut(&number).map(change));
}

/// Reference to a registered request. It may be dropped unused, because tests end with requests
/// queued.
#[derive(Debug)]
pub struct Number(u64);

impl ItemHandle for Number {
    fn mark(&self) -> u64 {
        KNOWN.with_borrow(|known| known.get(&self.0).map_or(0, |known| known.mark))
    }
}

/// A request; plain data, so that tests can compare requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Owner; its meaning depends on the test.
    pub owner: u32,
    /// Number of the request within the test.
    pub id: u64,
    /// Cost, pages.
    pub pages: u32,
    /// Arrival time, ns.
    pub arrival: u64,
    /// Range that the request accesses.
    pub range: ByteRange,
    /// Direction of the transfer.
    pub direction: Direction,
    /// Mark that the policy stored with the request.
    pub mark: u64,
    /// Number under which the request is registered; 0 if unregistered.
    pub registered: u64,
    /// Data of the request's partition.
    pub placement: Placement,
}

impl Request {
    /// Creates request `id` of `owner` that arrives `now`.
    pub fn new(owner: u32, id: u64, pages: u32, now: u64) -> Self {
        Self {
            owner,
            id,
            pages,
            arrival: now,
            ..Self::default()
        }
    }
}

impl Scheduled for Request {
    fn placement(&self) -> &Placement {
        &self.placement
    }

    fn placement_mut(&mut self) -> &mut Placement {
        &mut self.placement
    }
}

impl Item for Request {
    type Fifo = IndexFifo;
    type Handle = Number;

    fn cost(&self) -> Cost {
        Cost::new(self.direction, u64::from(self.pages) * 4096)
    }

    fn arrival(&self) -> u64 {
        self.arrival
    }

    fn byte_range(&self) -> ByteRange {
        self.range
    }

    fn mark(&self) -> u64 {
        self.mark
    }

    fn set_mark(&mut self, mark: u64) {
        self.mark = mark;
        update_registered(self.registered, |known| known.mark = mark);
    }

    fn register(&mut self) -> Number {
        assert_eq!(self.registered, 0, "registered twice");
        self.registered = number();
        let known = ArenaRequest {
            idx: None,
            mark: self.mark,
        };
        KNOWN.with_borrow_mut(|all| all.insert(self.registered, known));
        Number(self.registered)
    }

    fn unregister(&mut self, handle: Number) {
        assert_eq!(self.registered, handle.0, "another request's handle");
        KNOWN.with_borrow_mut(|known| known.remove(&handle.0));
        self.registered = 0;
    }
}

/// A queue of requests in the thread's arena.
///
/// The queue holds a copy of the oldest request, as the kernel holds a pointer to it.
pub struct IndexFifo {
    number: u64,
    list: SlabList,
    front: Option<Request>,
    len: u32,
}

impl IndexFifo {
    /// Removes the record at index `idx`.
    fn take(&mut self, arena: &mut Slab<Record>, idx: u32) -> Option<Request> {
        self.list.remove(arena, idx);
        self.len -= 1;
        let next = self.list.first().and_then(|next| arena.at(next));
        self.front = next.map(|record| record.request);
        let request = arena.remove(idx)?.request;
        update_registered(request.registered, |known| known.idx = None);
        Some(request)
    }
}

/// Reserves memory for `extra` more queued requests in the arena of this thread.
///
/// # Errors
///
/// - [`NoMemory`]: the allocation failed.
pub fn reserve(extra: usize) -> Result<(), NoMemory> {
    ARENA.with_borrow_mut(|arena| {
        let pile = arena.wants(extra).allocate()?;
        arena.feed(pile);
        Ok(())
    })
}

impl Fifo for IndexFifo {
    type Item = Request;

    fn new() -> Self {
        Self {
            number: number(),
            list: SlabList::new(),
            front: None,
            len: 0,
        }
    }

    fn push(&mut self, request: Request) {
        let record = Record {
            request,
            links: Links::new(),
            queue: self.number,
        };
        ARENA.with_borrow_mut(|arena| {
            let idx = insert(arena, record).idx();
            self.list.push(arena, idx);
            update_registered(request.registered, |known| known.idx = Some(idx));
        });
        self.front = self.front.or(Some(request));
        self.len += 1;
    }

    fn pop(&mut self) -> Option<Request> {
        ARENA.with_borrow_mut(|arena| {
            let idx = self.list.first()?;
            self.take(arena, idx)
        })
    }

    fn remove(&mut self, handle: &Number) -> Option<Request> {
        let idx = KNOWN.with_borrow(|known| known.get(&handle.0)?.idx)?;
        ARENA.with_borrow_mut(|arena| {
            let here = arena.at(idx)?.queue == self.number;
            here.then(|| self.take(arena, idx)).flatten()
        })
    }

    fn front(&self) -> Option<&Request> {
        self.front.as_ref()
    }

    fn len(&self) -> u32 {
        self.len
    }
}

impl Drop for IndexFifo {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

/// Inserts `record`; allocates memory first if the arena is full.
fn insert(arena: &mut Slab<Record>, record: Record) -> Handle {
    arena.insert(record).unwrap_or_else(|record| {
        arena.feed(SlabPile::allocate(64).expect("memory for requests"));
        let inserted = arena.insert(record);
        inserted.unwrap_or_else(|_| panic!("more than 2^24 requests"))
    })
}

/// Initial rate of new `qbm` clients if [`walk`] is to set different rates, bytes/s.
const MIXED: u64 = 4096 * 99;

/// Returns the configuration that `command`, a write to `nrs_policies`, starts with default
/// parameters.
///
/// # Panics
///
/// The command is invalid.
pub fn config_of(command: &str) -> Config {
    let start = |command: PolicyCommand<'_>| {
        let kind = Kind::from_name(command.policy)?;
        Config::parse(kind, command.argument, &Tunables::default())
    };
    let config = PolicyCommand::parse(command).and_then(start);
    config.expect(command)
}

/// Creates a part by [`config_of`] that shares no state with another part, with memory for classes.
///
/// # Panics
///
/// The command is invalid, or the allocation failed.
pub fn part_of(command: &str) -> AnyPart<Request> {
    let mut part = lone_part(&config_of(command), 1).expect("memory");
    feed(&mut part);
    part
}

/// Creates a part with `config` that shares no state with another part. A `qbm` part gets gates of
/// all ranks; their rates are from 100 one-page requests/s to unlimited.
///
/// # Errors
///
/// - [`NoMemory`]: the allocation failed.
pub fn lone_part<I: Item>(config: &Config, seed: u64) -> Result<AnyPart<I>, NoMemory> {
    let mut part = AnyPart::new(config, seed, &AnyShared::new(config, seed, 1)?)?;
    hand_gates(&mut part, 64, None)?;
    Ok(part)
}

/// Installs gates for `count` clients in a `qbm` part, each with `rate`, bytes/s. If `rate` is
/// `None`, rates and ranks differ. Does nothing for other policies.
///
/// # Errors
///
/// - [`NoMemory`]: the allocation failed.
pub fn hand_gates<I: Item>(
    part: &mut AnyPart<I>,
    count: u32,
    rate: Option<u64>,
) -> Result<(), NoMemory> {
    if part.qbm().is_some() {
        let gates = Gates::new(count, 1)?;
        gates.open(0, (1, None), (rate.unwrap_or(MIXED), 1), 0);
        gates.opened(1);
        let told = (Shared::new(gates)?, Shared::new(Plan::none())?);
        part.update(AnyUpdate::Qbm(Some(told)), 0);
    }
    Ok(())
}

/// Sets up the gates of new clients in a `qbm` part, as the service's worker does when it is woken.
/// Does nothing for other policies.
pub fn walk<I: Item>(part: &mut AnyPart<I>, now: u64) {
    let rates = [4096 * 100, UNREGULATED, 4096 * 1_000, 4096 * 100_000];
    let Some(gates) = part.qbm().and_then(|part| part.gates()) else {
        return;
    };
    for place in gates.take_pending() {
        let gate = gates.get(place).expect("there");
        if gates.owner(place).is_none() || gate.is_known() {
            continue;
        }
        if gate.rate() == MIXED {
            gate.set(rates[place as usize % 4], (place / 4 % 4) as u8, now);
        }
        gate.set_known(true);
    }
}

/// Allocates the memory that `part` needs, at most eight times, as the service's worker does.
///
/// # Panics
///
/// The allocation failed.
pub fn feed<I: Item>(part: &mut impl Part<I>) {
    for _ in 0..8 {
        if part.need().is_empty() {
            return;
        }
        let spare = part.need().allocate().expect("memory");
        part.grow(spare);
    }
}

/// Applies the last update to all classes of `part`, `max` at a time, as the service's worker does.
pub fn refresh<I: Item>(part: &mut impl Part<I>, max: u32, now: u64) {
    let mut from = Some(0);
    while let Some(idx) = from {
        from = part.refresh(idx, max, now);
    }
}

/// Returns the update of a `fairshare` part with `tunables` to the items `weights` and `limits`.
/// There are buckets for `classes` entities.
///
/// # Panics
///
/// The items are malformed, or the allocation failed.
pub fn fair_update(
    tunables: &fairshare::Tunables,
    weights: &str,
    limits: &str,
    classes: usize,
) -> AnyUpdate {
    let weights = Weights::new().apply(weights).expect(weights);
    let plan = (!limits.is_empty()).then(|| {
        let limits = Shared::new(Limits::new().apply(limits).expect(limits)).expect("memory");
        let capacity = Shared::new(Capacity::new()).expect("memory");
        let plan = LimitPlan::new(limits, None, classes, &capacity).expect("memory");
        Shared::new(plan).expect("memory")
    });
    let update = Update::new(Shared::new(weights).expect("memory"), tunables);
    AnyUpdate::Fairshare(update.with_limits(plan))
}

/// Returns all rows of a `fairshare` part, read with as many calls as necessary.
///
/// # Panics
///
/// The allocation failed, or the part is of another policy.
pub fn rows(part: &AnyPart<Request>) -> Vec<NodeRow> {
    let state = part.fairshare().expect("fairshare");
    let mut buf = NodeRowBuf::new().expect("memory");
    let (mut all, mut from) = (Vec::new(), Some(0));
    while let Some(idx) = from {
        buf.clear();
        from = state.rows(idx, &mut buf);
        assert!(from.is_none() || buf.as_slice().len() == ROWS);
        all.extend_from_slice(buf.as_slice());
    }
    all
}

/// Returns a view without published shares.
pub fn view(now: u64, force: bool) -> PartView<'static> {
    PartView {
        now,
        force,
        table: None,
    }
}

/// Returns attributes with a user id only.
pub fn attrs(uid: u32) -> Attrs {
    Attrs {
        uid: Id::new(uid),
        ..Attrs::UNKNOWN
    }
}

/// Passes a request of `class` without queueing; panics if the part reads the time.
pub fn pass(part: &mut impl Part<Request>, class: ClassId, cost: Cost) -> BypassOutcome {
    part.pass(class, cost, BypassReason::Opportunity, || {
        unreachable!("the part read the time")
    })
}
