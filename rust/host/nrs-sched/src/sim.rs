// SPDX-License-Identifier: GPL-2.0-only

//! A server of fairshare in simulated time, for tests and figures.
//!
//! # Vocabulary
//!
//! - *Source*: a client that keeps a number of requests queued while it is on ([`Source`]).
//! - *Dispatch*: a request that is served. Here it ends at once; devices are simulated elsewhere.
//! - *Turn*: the chance of a part to dispatch one request ([`Turns`]).
//! - *Ideal*: what each leaf would have had if service could be divided at will ([`Ideal`]).

mod ideal;

pub use ideal::{Ideal, Outcome};

use crate::{
    arena::{self, feed, Request},
    attr::Attrs,
    class::ClassId,
    item::{Direction, Item, Spot},
    mem,
    partition::line::{Line, Mark},
    policy::{
        fairshare::{
            self,
            params::{CrossCpt, Select},
            stats::Row,
            weights::Weights,
            Update,
        },
        AnyPart, AnyShared, AnyUpdate, Config, Configuration as _, Get, Grant, Kind, Part,
        Tunables, View,
    },
    ranges::{Brief, BriefBuf, Outline, Table},
    rng::Rng,
    units::NSEC_PER_MSEC,
};

pub use crate::units::NSEC_PER_SEC as SECOND;

/// Worst deviation of `got` from `wanted` parts of the whole, percent.
pub fn worst_error(got: &[u64], wanted: &[f64]) -> f64 {
    assert_eq!(got.len(), wanted.len());
    let (all, whole) = (got.iter().sum::<u64>() as f64, wanted.iter().sum::<f64>());
    let errors = got.iter().zip(wanted);
    let errors = errors.map(|(got, wanted)| (*got as f64 * whole / (all * wanted) - 1.0).abs());
    errors.fold(0.0, f64::max) * 100.0
}

/// Asserts that `got` are `wanted` parts of the whole, within so many `percent`.
#[track_caller]
pub fn assert_shares(got: &[u64], wanted: &[f64], percent: f64, what: &str) {
    let error = worst_error(got, wanted);
    assert!(
        error <= percent + 1e-9,
        "{what}: {error:.3} % off, {got:?} for {wanted:?}"
    );
}

/// When the simulation starts, ns: a day after the clock did.
const START: u64 = 86_400 * SECOND;

/// A client.
#[derive(Clone, Debug)]
pub struct Source {
    /// Who it is.
    pub attrs: Attrs,
    /// The part it brings its requests to.
    pub part: usize,
    /// Sizes of its requests, pages; each request draws one.
    pub pages: Vec<u32>,
    /// Which way its requests go.
    pub direction: Direction,
    /// Requests that it keeps queued.
    pub depth: u32,
    /// Whether it brings any.
    pub on: bool,
    /// Requests queued now.
    pub queued: u32,
    /// Requests served.
    pub requests: u64,
    /// Pages served.
    pub served: u64,
    class: Option<ClassId>,
}

impl Source {
    /// Keeps eight requests of a page queued at the first part.
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

    /// The same with requests of `pages`.
    pub fn of(self, pages: &[u32]) -> Self {
        let pages = pages.to_vec();
        Self { pages, ..self }
    }

    /// The same at `part`.
    pub fn at(self, part: usize) -> Self {
        Self { part, ..self }
    }

    /// The same with requests that go in `direction`.
    pub fn going(self, direction: Direction) -> Self {
        Self { direction, ..self }
    }

    /// The same, but it brings nothing by itself.
    pub fn off(self) -> Self {
        Self { on: false, ..self }
    }
}

/// Who dispatches next, of several parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turns {
    /// One after the other, a request each.
    Equal,
    /// By the shares of those who compete there, as published last.
    Shares,
}

/// What a simulation starts with.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// Mode, for example `uid_fair`.
    pub mode: &'a str,
    /// Everything else of the policy.
    pub tunables: Tunables,
    /// Number of parts.
    pub parts: usize,
    /// Draws sizes, and the order in which sources come first.
    pub seed: u64,
}

impl<'a> Setup<'a> {
    /// One part, parameters as they come.
    pub fn new(mode: &'a str) -> Self {
        Self {
            mode,
            tunables: Tunables::default(),
            parts: 1,
            seed: 1,
        }
    }

    /// The same with another selection.
    pub fn select(mut self, select: Select) -> Self {
        self.tunables.fairshare.select = select;
        self
    }

    /// The same with another seed.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The same with other parts.
    pub fn parts(self, parts: usize) -> Self {
        Self { parts, ..self }
    }
}

/// A part, and whether it has requests.
struct Lane {
    part: AnyPart<Request>,
    mark: Mark,
}

/// Sources and parts.
pub struct Sim {
    /// The clients.
    pub sources: Vec<Source>,
    /// What the outcome is compared with.
    pub ideal: Ideal,
    /// Monotonic time, ns.
    pub now: u64,
    /// What a dispatch takes, ns.
    pub step: u64,
    /// Dispatches from one table of shares to the next; 0: none is published.
    pub delta: u64,
    /// Sources are classified for each request, as if nobody remembered their class.
    pub forgetful: bool,
    /// How parts take turns.
    pub turns: Turns,
    /// For whatever the test wants to draw.
    pub rng: Rng,
    lanes: Vec<Lane>,
    weights: mem::Shared<Weights>,
    /// What the parts were told last.
    tunables: fairshare::Tunables,
    table: Option<Table>,
    line: Line,
    dispatches: u64,
    aged: u64,
    id: u64,
}

impl Sim {
    /// Parts of `setup` with nothing queued, and `sources`.
    ///
    /// # Panics
    ///
    /// The mode is none, or there is no memory.
    pub fn new(setup: &Setup<'_>, sources: Vec<Source>) -> Self {
        let config = Config::parse(Kind::Fairshare, Some(setup.mode), &setup.tunables);
        let config = config.unwrap_or_else(|error| panic!("{}: {error:?}", setup.mode));
        let shared = AnyShared::new(&config, setup.seed, setup.parts as u32).expect("memory");
        let lane = |seed| Lane {
            part: AnyPart::new(&config, seed, &shared).expect("memory"),
            mark: Mark::default(),
        };
        let lanes: Vec<Lane> = (0..setup.parts as u64)
            .map(|part| lane(setup.seed.wrapping_add(part << 32)))
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
            lanes,
            weights,
            tunables: inner.tunables,
            table: None,
            line: Line::new(setup.parts as u16, 1),
            dispatches: 0,
            aged: START,
            id: 0,
        };
        sim.fill_shuffled();
        sim
    }

    /// First requests of all sources that are on, in an order that the seed decides.
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

    /// Whoever is on brings what is missing.
    pub fn fill_all(&mut self) {
        (0..self.sources.len()).for_each(|source| self.fill(source));
    }

    /// Switches `source` on or off; what is queued stays.
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

    /// The class of `source`, made if need be.
    fn class(&mut self, source: usize) -> ClassId {
        let from = &mut self.sources[source];
        let part = &mut self.lanes[from.part].part;
        match from.class {
            Some(class) if !self.forgetful && part.is_live(class) => class,
            _ => {
                let class = part.classify(&from.attrs, self.now);
                part.note(class, &from.attrs, self.now);
                feed(part);
                from.class = Some(class);
                class
            }
        }
    }

    /// `source` brings a request; returns its number.
    ///
    /// # Panics
    ///
    /// The part declines it.
    pub fn bring(&mut self, source: usize) -> u64 {
        let draw = self.rng.below(self.sources[source].pages.len() as u64) as usize;
        let pages = self.sources[source].pages[draw];
        self.bring_at(source, pages, Spot::default())
    }

    /// `source` brings a request of `pages` at `spot`; returns its number.
    ///
    /// # Panics
    ///
    /// The part declines it.
    pub fn bring_at(&mut self, source: usize, pages: u32, spot: Spot) -> u64 {
        let class = self.class(source);
        self.now += 1;
        self.id += 1;
        let from = &mut self.sources[source];
        let request = Request {
            owner: source as u32,
            id: self.id,
            pages,
            arrival: self.now,
            spot,
            direction: from.direction,
            ..Request::default()
        };
        from.queued += 1;
        let lane = from.part;
        let queued = self.lanes[lane].part.enqueue(request, class, self.now);
        assert!(queued.is_ok());
        self.mark(lane);
        self.ideal.arrives(source);
        self.id
    }

    /// The part in `lane`.
    pub fn part(&mut self, lane: usize) -> &mut AnyPart<Request> {
        &mut self.lanes[lane].part
    }

    /// Requests queued at all parts.
    pub fn queued(&self) -> u32 {
        self.lanes.iter().map(|lane| lane.part.len()).sum()
    }

    /// The part in `lane` takes a request out; it does not end.
    pub fn get(&mut self, lane: usize) -> Option<(Request, Grant)> {
        let view = View {
            now: self.now,
            force: false,
            table: self.table.as_ref(),
        };
        let part = &mut self.lanes[lane].part;
        let Get::Item((request, grant)) = part.get(&view) else {
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

    /// `request` of the part in `lane` ends.
    pub fn stop(&mut self, lane: usize, request: &Request, grant: &Grant) {
        let part = &mut self.lanes[lane].part;
        part.stop(grant, request.cost(), self.now);
    }

    /// The part in `lane` serves a request, and its source brings what is missing. The source.
    pub fn serve(&mut self, lane: usize) -> Option<usize> {
        if self.delta > 0 && self.dispatches % self.delta == 0 {
            self.publish();
        }
        let (request, grant) = self.get(lane)?;
        self.dispatches += 1;
        self.stop(lane, &request, &grant);
        self.upkeep();
        let owner = request.owner as usize;
        self.fill(owner);
        self.line.charge(lane as u16, request.pages);
        self.mark(lane);
        Some(owner)
    }

    /// What the service's worker does every second.
    fn upkeep(&mut self) {
        if self.now - self.aged >= SECOND {
            self.aged = self.now;
            for lane in &mut self.lanes {
                lane.part.age(self.now, 1 << 20);
            }
        }
    }

    /// Whose turn it is, of the parts with requests.
    fn next_lane(&self) -> Option<usize> {
        let next = self
            .line
            .next(0, || self.line.limits(0, self.now / NSEC_PER_MSEC))?;
        Some(next.index.into())
    }

    /// Says whether the part in `lane` has requests.
    fn mark(&mut self, lane: usize) {
        let Lane { part, mark } = &mut self.lanes[lane];
        let new = Mark {
            waiting: !part.is_empty(),
            ready: !part.is_empty(),
            urgent: false,
        };
        self.line.mark(lane as u16, *mark, new);
        *mark = new;
    }

    /// Serves `count` requests, or what there is.
    pub fn run(&mut self, count: u64) {
        self.run_with(count, |_, _| ());
    }

    /// Takes `count` turns, with `before` each of them; a turn without requests goes by.
    pub fn run_with(&mut self, count: u64, mut before: impl FnMut(&mut Self, u64)) {
        for turn in 0..count {
            before(self, turn);
            match self.next_lane() {
                Some(lane) => {
                    self.serve(lane);
                }
                None => self.now += self.step,
            }
        }
    }

    /// Each part has a device of its own and serves `count` requests, turn by turn.
    pub fn run_apart(&mut self, count: u64) {
        for _ in 0..count {
            for lane in 0..self.lanes.len() {
                self.serve(lane);
            }
        }
    }

    /// Publishes the shares of those who are active, as the service's worker does every delta.
    ///
    /// # Panics
    ///
    /// There is no memory.
    pub fn publish(&mut self) {
        let mut outline = Outline::new();
        let mut buf = BriefBuf::new().expect("memory");
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            let mut from = Some(0);
            while let Some(slot) = from {
                buf.clear();
                from = lane.part.briefs(slot, self.now, &mut buf);
                let part = number as u16;
                let briefs = buf.as_slice().iter().map(|brief| Brief { part, ..*brief });
                let briefs: Vec<Brief> = briefs.collect();
                outline.extend(&briefs).expect("memory");
            }
        }
        let published = outline.build().expect("memory");
        if self.turns == Turns::Shares {
            self.line.set_shares(&published.by_part);
        }
        self.table = Some(published.table);
    }

    /// Takes `items` into the list of weights; all nodes follow.
    ///
    /// # Panics
    ///
    /// They are no items.
    pub fn weigh(&mut self, items: &str) {
        let weights = self.weights.apply(items);
        let weights = weights.unwrap_or_else(|error| panic!("{items}: {error:?}"));
        self.weights = mem::Shared::new(weights).expect("memory");
        self.tell();
        self.ideal.weigh(&self.weights);
    }

    /// Parts are fair together from now on, or each by itself.
    pub fn join_parts(&mut self, together: bool) {
        self.retune(|tunables| {
            tunables.cross_cpt = match together {
                true => CrossCpt::On,
                false => CrossCpt::Off,
            }
        });
    }

    /// Changes parameters that do not ask for new parts.
    ///
    /// # Panics
    ///
    /// They do.
    pub fn retune(&mut self, change: impl FnOnce(&mut fairshare::Tunables)) {
        let old = fairshare::Config::parse(None, &self.tunables);
        change(&mut self.tunables);
        let new = fairshare::Config::parse(None, &self.tunables);
        assert_eq!(old, new);
        self.tell();
    }

    /// All parts take over the weights and the parameters.
    fn tell(&mut self) {
        let update = Update::new(self.weights.clone(), &self.tunables);
        for lane in &mut self.lanes {
            let _ = lane
                .part
                .update(AnyUpdate::Fairshare(update.clone()), self.now);
        }
        self.refresh();
    }

    /// Gives all nodes the weights that they should have, 64 at a time.
    pub fn refresh(&mut self) {
        for lane in &mut self.lanes {
            let mut from = Some(0);
            while let Some(slot) = from {
                from = lane.part.refresh(slot, 64, self.now);
            }
        }
    }

    /// Forgets who was idle for long, a second at a time.
    pub fn idle(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += SECOND;
            self.upkeep();
        }
    }

    /// Statistics of the part in `lane`.
    pub fn rows(&self, lane: usize) -> Vec<Row> {
        arena::rows(&self.lanes[lane].part)
    }

    /// Pages that each source was served so far.
    pub fn served(&self) -> Vec<u64> {
        self.sources.iter().map(|source| source.served).collect()
    }

    /// How the outcome since the start differs from the ideal.
    pub fn outcome(&mut self) -> Outcome {
        self.ideal.outcome()
    }
}
