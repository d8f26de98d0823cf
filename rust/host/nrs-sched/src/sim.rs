// SPDX-License-Identifier: GPL-2.0-only

//! A `fairshare` server in simulated time, for tests and figures.
//!
//! A [`Source`] is a client that keeps a number of requests queued while it is on. A dispatched
//! request ends at once; devices are simulated elsewhere. Parts dispatch one request per turn
//! ([`Turns`]). Service is compared with the fluid model ([`Ideal`]).

mod ideal;

pub use ideal::{Ideal, Outcome};

use crate::{
    arena::{self, feed, Request},
    attr::Attrs,
    class::ClassId,
    item::{ByteRange, Direction, Item},
    mem,
    partition::slot_pool::{PartitionMark, SlotPool},
    policy::{
        fairshare::{
            self,
            entity_table::Weights,
            params::{CrossCpt, Select},
            stats::NodeRow,
            Update,
        },
        AnyPart, AnyShared, AnyUpdate, Config, Configuration as _, Decision, Grant, Kind, Part,
        PartView, Tunables,
    },
    ranges::{NodeReport, NodeReports, RangeBuilder, RangeTable},
    rng::Rng,
    units::NSEC_PER_MSEC,
};

pub use crate::units::NSEC_PER_SEC as SECOND;

/// Returns the largest relative deviation of `got` from `wanted` parts of the whole, percent.
pub fn worst_error(got: &[u64], wanted: &[f64]) -> f64 {
    assert_eq!(got.len(), wanted.len());
    let (all, whole) = (got.iter().sum::<u64>() as f64, wanted.iter().sum::<f64>());
    let errors = got.iter().zip(wanted);
    let errors = errors.map(|(got, wanted)| (*got as f64 * whole / (all * wanted) - 1.0).abs());
    errors.fold(0.0, f64::max) * 100.0
}

/// Asserts that `got` are `wanted` parts of the whole, within `percent`.
#[track_caller]
pub fn assert_shares(got: &[u64], wanted: &[f64], percent: f64, what: &str) {
    let error = worst_error(got, wanted);
    assert!(
        error <= percent + 1e-9,
        "{what}: {error:.3} % off, {got:?} for {wanted:?}"
    );
}

/// Start of the simulation, ns: one day after the clock started.
const START: u64 = 86_400 * SECOND;

/// A client.
#[derive(Clone, Debug)]
pub struct Source {
    /// Attributes of the client.
    pub attrs: Attrs,
    /// Part that receives the client's requests.
    pub part: usize,
    /// Possible sizes of the requests, pages; each request draws a size.
    pub pages: Vec<u32>,
    /// Direction of the requests.
    pub direction: Direction,
    /// Number of requests that the client keeps queued.
    pub depth: u32,
    /// True if the client submits requests.
    pub on: bool,
    /// Requests queued now.
    pub queued: u32,
    /// Number of requests served.
    pub requests: u64,
    /// Number of pages served.
    pub served: u64,
    class: Option<ClassId>,
}

impl Source {
    /// Creates a source that keeps eight requests of a page queued at the first part.
    pub fn new(attrs: Attrs) -> Self {
        Self {
            attrs,
            part: 0,
            pages: vec![1],
            direction: Direction::Other,
            depth: 8,
            on: true,
            queued: 0,
            requests: 0,
            served: 0,
            class: None,
        }
    }

    /// Sets the sizes of requests to `pages`.
    pub fn of(self, pages: &[u32]) -> Self {
        let pages = pages.to_vec();
        Self { pages, ..self }
    }

    /// Sets the part.
    pub fn at(self, part: usize) -> Self {
        Self { part, ..self }
    }

    /// Sets the direction of requests.
    pub fn going(self, direction: Direction) -> Self {
        Self { direction, ..self }
    }

    /// Switches the source off: it submits no requests by itself.
    pub fn off(self) -> Self {
        Self { on: false, ..self }
    }
}

/// Rule by which several parts take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turns {
    /// Round robin, one request each.
    Equal,
    /// By the last published shares of the entities that compete at each part.
    Shares,
}

/// Parameters of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// Mode, for example `uid_fair`.
    pub mode: &'a str,
    /// All other parameters of the policy.
    pub tunables: Tunables,
    /// Number of parts.
    pub parts: usize,
    /// Seed for the sizes, and for the initial order of the sources.
    pub seed: u64,
}

impl<'a> Setup<'a> {
    /// Creates a setup with one part and default parameters.
    pub fn new(mode: &'a str) -> Self {
        Self {
            mode,
            tunables: Tunables::default(),
            parts: 1,
            seed: 1,
        }
    }

    /// Sets the selection rule.
    pub fn select(mut self, select: Select) -> Self {
        self.tunables.fairshare.select = select;
        self
    }

    /// Sets the seed.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Sets the number of parts.
    pub fn parts(self, parts: usize) -> Self {
        Self { parts, ..self }
    }
}

/// A part, and its mark in the line: whether it has requests.
struct MarkedPart {
    part: AnyPart<Request>,
    mark: PartitionMark,
}

/// Sources and parts of a simulation.
pub struct Sim {
    /// The clients.
    pub sources: Vec<Source>,
    /// The fluid model that the outcome is compared with.
    pub ideal: Ideal,
    /// Monotonic time, ns.
    pub now: u64,
    /// Duration of a dispatch, ns.
    pub step: u64,
    /// Dispatches between two tables of shares; 0: none is published.
    pub delta: u64,
    /// True if sources are classified for each request, without a cached class.
    pub forgetful: bool,
    /// Rule by which parts take turns.
    pub turns: Turns,
    /// Random numbers for the test.
    pub rng: Rng,
    parts: Vec<MarkedPart>,
    weights: mem::Shared<Weights>,
    /// Parameters that the parts received last.
    tunables: fairshare::Tunables,
    table: Option<RangeTable>,
    slot_pool: SlotPool,
    dispatches: u64,
    aged: u64,
    id: u64,
}

impl Sim {
    /// Creates the parts of `setup` with the first requests of `sources` queued.
    ///
    /// # Panics
    ///
    /// The mode is invalid, or the allocation failed.
    pub fn new(setup: &Setup<'_>, sources: Vec<Source>) -> Self {
        let config = Config::parse(Kind::Fairshare, Some(setup.mode), &setup.tunables);
        let config = config.unwrap_or_else(|error| panic!("{}: {error:?}", setup.mode));
        let shared = AnyShared::new(&config, setup.seed, setup.parts as u32).expect("memory");
        let marked = |seed| MarkedPart {
            part: AnyPart::new(&config, seed, &shared).expect("memory"),
            mark: PartitionMark::default(),
        };
        let parts: Vec<MarkedPart> = (0..setup.parts as u64)
            .map(|part| marked(setup.seed.wrapping_add(part << 32)))
            .collect();
        let Config::Fairshare(inner) = &config else {
            panic!("another policy");
        };
        let weights = mem::Shared::new(Weights::new()).expect("memory");
        let drawn = inner.tunables.select == Select::Paper;
        let mut sim = Self {
            ideal: Ideal::new(&inner.mode(), &weights, &sources),
            sources,
            now: START,
            step: 40_000,
            delta: if drawn { 500 } else { 0 },
            forgetful: false,
            turns: Turns::Equal,
            rng: Rng::new(setup.seed),
            parts,
            weights,
            tunables: inner.tunables,
            table: None,
            slot_pool: SlotPool::new(setup.parts as u16, 1),
            dispatches: 0,
            aged: START,
            id: 0,
        };
        sim.fill_shuffled();
        sim
    }

    /// Fills the queues of all sources that are on, in an order that depends on the seed.
    fn fill_shuffled(&mut self) {
        let mut order: Vec<usize> = (0..self.sources.len()).collect();
        for at in (1..order.len()).rev() {
            let other = self.rng.below(at as u64 + 1) as usize;
            order.swap(at, other);
        }
        for source in order {
            self.fill(source);
        }
    }

    /// Fills the queues of all sources that are on.
    pub fn fill_all(&mut self) {
        (0..self.sources.len()).for_each(|source| self.fill(source));
    }

    /// Switches `source` on or off; queued requests remain.
    pub fn switch(&mut self, source: usize, on: bool) {
        if self.sources[source].on != on {
            self.sources[source].on = on;
            self.fill(source);
        }
    }

    fn fill(&mut self, source: usize) {
        while self.sources[source].on && self.sources[source].queued < self.sources[source].depth {
            self.bring(source);
        }
    }

    /// Returns the class of `source`; creates it if necessary.
    fn class(&mut self, source: usize) -> ClassId {
        let from = &mut self.sources[source];
        let part = &mut self.parts[from.part].part;
        match from.class {
            Some(class) if !self.forgetful && part.is_live(class) => class,
            _ => {
                let class = part.classify(&from.attrs, self.now);
                part.record_attrs(class, &from.attrs, self.now);
                feed(part);
                from.class = Some(class);
                class
            }
        }
    }

    /// Enqueues a request of `source`; returns its number.
    ///
    /// # Panics
    ///
    /// The part declines the request.
    pub fn bring(&mut self, source: usize) -> u64 {
        let draw = self.rng.below(self.sources[source].pages.len() as u64) as usize;
        let pages = self.sources[source].pages[draw];
        self.enqueue_at(source, pages, ByteRange::default())
    }

    /// Enqueues a request of `source` with `pages` pages at `range`; returns its number.
    ///
    /// # Panics
    ///
    /// The part declines the request.
    pub fn enqueue_at(&mut self, source: usize, pages: u32, range: ByteRange) -> u64 {
        let class = self.class(source);
        self.now += 1;
        self.id += 1;
        let from = &mut self.sources[source];
        let request = Request {
            owner: source as u32,
            id: self.id,
            pages,
            arrival: self.now,
            range,
            direction: from.direction,
            ..Request::default()
        };
        from.queued += 1;
        let index = from.part;
        let queued = self.parts[index].part.enqueue(request, class, self.now);
        assert!(queued.is_ok());
        self.mark(index);
        self.ideal.arrives(source);
        self.id
    }

    /// Returns the part at `index`.
    pub fn part(&mut self, index: usize) -> &mut AnyPart<Request> {
        &mut self.parts[index].part
    }

    /// Returns the number of requests queued at all parts.
    pub fn queued(&self) -> u32 {
        self.parts.iter().map(|marked| marked.part.len()).sum()
    }

    /// Takes a request from the part at `index`; the request does not end.
    pub fn get(&mut self, index: usize) -> Option<(Request, Grant)> {
        let view = PartView {
            now: self.now,
            force: false,
            table: self.table.as_ref(),
        };
        let part = &mut self.parts[index].part;
        let Decision::Item((request, grant)) = part.get(&view) else {
            return None;
        };
        let owner = request.owner as usize;
        self.ideal.serves(owner, request.pages);
        let from = &mut self.sources[owner];
        from.queued -= 1;
        from.requests += 1;
        from.served += u64::from(request.pages);
        self.now += self.step;
        Some((request, grant))
    }

    /// Ends `request` of the part at `index`.
    pub fn stop(&mut self, index: usize, request: &Request, grant: &Grant) {
        let part = &mut self.parts[index].part;
        part.stop(grant, request.cost(), self.now);
    }

    /// Serves a request of the part at `index` and refills the queue of its source; returns the
    /// source.
    pub fn serve(&mut self, index: usize) -> Option<usize> {
        if self.delta > 0 && self.dispatches % self.delta == 0 {
            self.publish();
        }
        let (request, grant) = self.get(index)?;
        self.dispatches += 1;
        self.stop(index, &request, &grant);
        self.upkeep();
        let owner = request.owner as usize;
        self.fill(owner);
        self.slot_pool.charge(index as u16, request.pages);
        self.mark(index);
        Some(owner)
    }

    /// Updates the age of all parts every second, as the service's worker does.
    fn upkeep(&mut self) {
        if self.now - self.aged >= SECOND {
            self.aged = self.now;
            for marked in &mut self.parts {
                marked.part.age(self.now, 1 << 20);
            }
        }
    }

    /// Returns the part whose turn it is, of the parts with requests.
    fn next_part(&self) -> Option<usize> {
        let next = self
            .slot_pool
            .next(0, || self.slot_pool.limits(0, self.now / NSEC_PER_MSEC))?;
        Some(next.index.into())
    }

    /// Updates the mark of the part at `index`.
    fn mark(&mut self, index: usize) {
        let MarkedPart { part, mark } = &mut self.parts[index];
        let new = PartitionMark {
            waiting: !part.is_empty(),
            ready: !part.is_empty(),
            urgent: false,
        };
        self.slot_pool.mark(index as u16, *mark, new);
        *mark = new;
    }

    /// Serves `count` requests, or all if there are fewer.
    pub fn run(&mut self, count: u64) {
        self.run_with(count, |_, _| ());
    }

    /// Takes `count` turns and calls `before` ahead of each; a turn without requests passes idle.
    pub fn run_with(&mut self, count: u64, mut before: impl FnMut(&mut Self, u64)) {
        for turn in 0..count {
            before(self, turn);
            match self.next_part() {
                Some(index) => {
                    self.serve(index);
                }
                None => self.now += self.step,
            }
        }
    }

    /// Serves `count` requests of each part, turn by turn, as if each part had its own device.
    pub fn run_apart(&mut self, count: u64) {
        for _ in 0..count {
            for index in 0..self.parts.len() {
                self.serve(index);
            }
        }
    }

    /// Publishes the shares of active entities, as the service's worker does every delta.
    ///
    /// # Panics
    ///
    /// The allocation failed.
    pub fn publish(&mut self) {
        let mut builder = RangeBuilder::new();
        let mut buf = NodeReports::new().expect("memory");
        for (number, marked) in self.parts.iter_mut().enumerate() {
            let mut from = Some(0);
            while let Some(idx) = from {
                buf.clear();
                from = marked.part.node_reports(idx, self.now, &mut buf);
                let part = number as u16;
                let reports = buf
                    .as_slice()
                    .iter()
                    .map(|report| NodeReport { part, ..*report });
                let reports: Vec<NodeReport> = reports.collect();
                builder.extend(&reports).expect("memory");
            }
        }
        let published = builder.build().expect("memory");
        if self.turns == Turns::Shares {
            self.slot_pool.set_shares(&published.by_part);
        }
        self.table = Some(published.table);
    }

    /// Applies `items` to the list of weights and to all nodes.
    ///
    /// # Panics
    ///
    /// The items are invalid.
    pub fn weigh(&mut self, items: &str) {
        let weights = self.weights.apply(items);
        let weights = weights.unwrap_or_else(|error| panic!("{items}: {error:?}"));
        self.weights = mem::Shared::new(weights).expect("memory");
        self.update_parts();
        self.ideal.weigh(&self.weights);
    }

    /// Sets whether parts are fair together or separately.
    pub fn join_parts(&mut self, together: bool) {
        self.retune(|tunables| {
            tunables.cross_cpt = match together {
                true => CrossCpt::On,
                false => CrossCpt::Off,
            }
        });
    }

    /// Changes parameters that do not require new parts.
    ///
    /// # Panics
    ///
    /// The change requires new parts.
    pub fn retune(&mut self, change: impl FnOnce(&mut fairshare::Tunables)) {
        let old = fairshare::Config::parse(None, &self.tunables);
        change(&mut self.tunables);
        let new = fairshare::Config::parse(None, &self.tunables);
        assert_eq!(old, new);
        self.update_parts();
    }

    /// Passes the weights and the parameters to all parts.
    fn update_parts(&mut self) {
        let update = Update::new(self.weights.clone(), &self.tunables);
        for marked in &mut self.parts {
            let _ = marked
                .part
                .update(AnyUpdate::Fairshare(update.clone()), self.now);
        }
        self.refresh();
    }

    /// Refreshes the weights of all nodes, 64 at a time.
    pub fn refresh(&mut self) {
        for marked in &mut self.parts {
            arena::refresh(&mut marked.part, 64, self.now);
        }
    }

    /// Advances the time by `seconds`, one second at a time, so that idle entities are evicted.
    pub fn idle(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += SECOND;
            self.upkeep();
        }
    }

    /// Returns the statistics of the part at `index`.
    pub fn rows(&self, index: usize) -> Vec<NodeRow> {
        arena::rows(&self.parts[index].part)
    }

    /// Returns the number of pages served so far, per source.
    pub fn served(&self) -> Vec<u64> {
        self.sources.iter().map(|source| source.served).collect()
    }

    /// Returns the deviation from the ideal since the start.
    pub fn outcome(&mut self) -> Outcome {
        self.ideal.outcome()
    }
}
