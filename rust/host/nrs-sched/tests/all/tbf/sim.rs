// SPDX-License-Identifier: GPL-2.0-only

//! A server in simulated time: parts that share buckets, clients, and a timer that is late.

pub use nrs_sched::units::NSEC_PER_SEC as SECOND;
use nrs_sched::{
    arena::{feed, view, Request},
    attr::{Attrs, Id},
    class::ClassId,
    item::{Cost, Item},
    mem,
    policy::{
        tbf::{stats::TbfRow, Config, Shared, State, TbfRowBuf, Tunables, Update},
        BypassOutcome, BypassReason, Configuration, Decision, Part,
    },
    rng::Rng,
    rules::{RuleCommand, RuleList},
};
use std::collections::BTreeMap;

/// Function that returns the pages of the request that a client submits after one of its requests
/// was served.
pub type Next = fn(&mut Rng) -> u32;

/// Clients and partitions of a simulation.
pub struct TbfSim {
    pub parts: Vec<State<Request>>,
    pub shared: mem::Shared<Shared>,
    pub config: Config,
    pub rule_list: RuleList,
    pub now: u64,
    /// Maximum delay of the timer, ns.
    pub late: u64,
    /// Requests and pages served, by owner.
    pub served: BTreeMap<u32, (u64, u64)>,
    /// Owners in the order of service, with the time; `None` if not recorded.
    pub log: Option<Vec<(u32, u64)>>,
    pub rng: Rng,
    wake: Vec<u64>,
    generation: u64,
    id: u64,
}

pub fn attrs(uid: u32) -> Attrs {
    Attrs {
        uid: Id::new(uid),
        gid: Id::new(uid / 100),
        ..Attrs::UNKNOWN
    }
}

impl TbfSim {
    /// Creates `parts` partitions with rules by `argument`, one day after the clock started.
    pub fn new(argument: &str, parts: u64, tunables: &Tunables) -> Self {
        let config = Config::parse(Some(argument), tunables).expect("valid");
        let shared = mem::Shared::new(Shared::new(&config, 42, parts as u32).expect("memory"))
            .expect("memory");
        let make = |seed| State::new(&config, seed, &shared).expect("memory");
        Self {
            parts: (0..parts).map(make).collect(),
            rule_list: config.rule_list().expect("memory"),
            shared,
            config,
            now: 86_400 * SECOND,
            late: 50_000,
            served: BTreeMap::new(),
            log: None,
            rng: Rng::new(3),
            wake: vec![0; parts as usize],
            generation: 0,
            id: 0,
        }
    }

    /// Creates one partition, by uid, with default parameters.
    pub fn by_uid() -> Self {
        Self::new("uid", 1, &Tunables::default())
    }

    /// Applies a command; all classes follow at once.
    pub fn rule(&mut self, command: &str) {
        self.rule_later(command);
        for part in &mut self.parts {
            let mut from = Some(0);
            while let Some(idx) = from {
                from = part.refresh(idx, 64, self.now);
            }
        }
    }

    /// Applies a command; classes follow when they are accessed. All parts are polled again, as
    /// after any change.
    pub fn rule_later(&mut self, command: &str) {
        let update = self.command(command);
        for part in &mut self.parts {
            part.update(update.clone(), self.now);
        }
        self.wake.fill(0);
    }

    /// Changes parameters that running parts can follow.
    pub fn tune(&mut self, tune: impl Fn(&mut Tunables)) {
        let mut tunables = self.config.tunables;
        tune(&mut tunables);
        let new = self.config.with(&tunables);
        assert!(self.config.follows(&new), "{tunables:?}");
        self.config = new;
        let update = self.update();
        for part in 0..self.parts.len() {
            self.tell(part, &update);
        }
    }

    /// Returns the update for parts after a command.
    pub fn command(&mut self, command: &str) -> Update {
        let parsed = RuleCommand::parse(command).unwrap_or_else(|e| panic!("{command}: {e}"));
        let rule_list = self.rule_list.apply(&parsed);
        self.rule_list = rule_list.unwrap_or_else(|e| panic!("{command}: {e}"));
        self.update()
    }

    fn update(&mut self) -> Update {
        self.generation += 1;
        let rules = self.rule_list.compile(self.generation).expect("memory");
        let rules = mem::Shared::new(rules).expect("memory");
        Update::new(rules, &self.config).expect("memory")
    }

    /// Passes `update` to one part; all classes of the part follow.
    pub fn tell(&mut self, part: usize, update: &Update) {
        self.parts[part].update(update.clone(), self.now);
        let mut from = Some(0);
        while let Some(idx) = from {
            from = self.parts[part].refresh(idx, 64, self.now);
        }
        self.wake[part] = 0;
    }

    pub fn class(&mut self, part: usize, owner: u32) -> ClassId {
        let class = self.parts[part].classify(&attrs(owner), self.now);
        feed(&mut self.parts[part]);
        class
    }

    fn request(&mut self, owner: u32, pages: u32) -> Request {
        self.id += 1;
        Request::new(owner, self.id, pages, self.now)
    }

    /// Enqueues `count` requests of `pages` pages.
    pub fn queue(&mut self, part: usize, owner: u32, count: u32, pages: u32) {
        for _ in 0..count {
            let class = self.class(part, owner);
            let request = self.request(owner, pages);
            assert!(self.parts[part].enqueue(request, class, self.now).is_ok());
        }
        self.wake[part] = 0;
    }

    /// Passes a request without queueing, if possible.
    pub fn pass(&mut self, owner: u32, pages: u32, way: BypassReason) -> BypassOutcome {
        let class = self.class(0, owner);
        let (cost, now) = (self.request(owner, pages).cost(), self.now);
        self.parts[0].pass(class, cost, way, || now)
    }

    /// Takes one decision of a part at the present time; the request ends at once.
    pub fn get(&mut self, part: usize, force: bool) -> Decision<Request> {
        match self.parts[part].get(&view(self.now, force)) {
            Decision::Item((request, grant)) => {
                let cost: Cost = request.cost();
                self.parts[part].stop(&grant, cost, self.now);
                let served = self.served.entry(request.owner).or_default();
                served.0 += 1;
                served.1 += u64::from(request.pages);
                if let Some(log) = &mut self.log {
                    log.push((request.owner, self.now));
                }
                Decision::Item(request)
            }
            Decision::Empty => Decision::Empty,
            Decision::Throttled { until } => Decision::Throttled { until },
        }
    }

    /// Runs until `end`. After each request, its owner enqueues another on the same part with the
    /// pages returned by `next`, or none if they are 0.
    pub fn run(&mut self, end: u64, next: Next) {
        loop {
            let (wake, part) = (0..self.parts.len())
                .map(|p| (self.wake[p], p))
                .min()
                .expect("parts");
            if wake >= end {
                break;
            }
            self.now = self.now.max(wake);
            self.wake[part] = loop {
                match self.get(part, false) {
                    Decision::Item(request) => {
                        let pages = next(&mut self.rng);
                        if pages > 0 {
                            let class = self.class(part, request.owner);
                            let request = self.request(request.owner, pages);
                            assert!(self.parts[part].enqueue(request, class, self.now).is_ok());
                        }
                    }
                    Decision::Throttled { until } => {
                        assert!(until > self.now, "{until} {}", self.now);
                        break until + self.rng.below(self.late + 1);
                    }
                    Decision::Empty => break u64::MAX,
                }
            };
        }
        self.now = end;
    }

    /// Runs for `ns` with one request served every `period` ns on the first part; each served
    /// request is replaced. Returns the service of each owner.
    pub fn congested(&mut self, ns: u64, period: u64) -> BTreeMap<u32, (u64, u64)> {
        self.served.clear();
        let end = self.now + ns;
        while self.now < end {
            if let Decision::Item(request) = self.get(0, false) {
                self.queue(0, request.owner, 1, request.pages);
            }
            self.now += period;
        }
        self.served.clone()
    }

    /// Runs for `ns`; returns the requests and pages of each owner in this time.
    pub fn measure(&mut self, ns: u64, next: Next) -> BTreeMap<u32, (u64, u64)> {
        self.served.clear();
        self.run(self.now + ns, next);
        self.served.clone()
    }

    /// Returns the number of requests of `owner` served within `ns`.
    pub fn count(&mut self, owner: u32, ns: u64, next: Next) -> u64 {
        self.measure(ns, next).get(&owner).map_or(0, |got| got.0)
    }

    /// Returns the statistics of all parts, class by class.
    pub fn rows(&self) -> Vec<TbfRow> {
        let mut all = Vec::new();
        for part in &self.parts {
            let mut from = Some(0);
            while let Some(idx) = from {
                let mut rows = TbfRowBuf::new().expect("memory");
                from = part.rows(idx, self.now, &mut rows);
                all.extend_from_slice(rows.as_slice());
            }
        }
        all
    }

    /// Returns the row of the owner's own class.
    pub fn own_row(&self, owner: u32) -> Option<TbfRow> {
        let (uid, rows) = (Id::new(owner), self.rows());
        rows.into_iter().find(|row| row.subject.uid == uid)
    }

    pub fn row(&self, owner: u32) -> TbfRow {
        self.own_row(owner).expect("row")
    }
}

/// Returns one page.
pub fn one(_: &mut Rng) -> u32 {
    1
}

/// Returns 4 KiB or 1 MiB with equal probability, in pages.
pub fn mixed(rng: &mut Rng) -> u32 {
    if rng.below(2) == 0 {
        1
    } else {
        256
    }
}

/// Returns 0: no further requests.
pub fn none(_: &mut Rng) -> u32 {
    0
}

/// Asserts that `got` is within `percent` of `want`, on both sides.
#[track_caller]
pub fn near(got: u64, want: u64, percent: f64, what: &str) {
    let off = (got as f64 - want as f64) * 100.0 / want as f64;
    assert!(
        off.abs() <= percent,
        "{what}: {got} for {want}, off by {off:.2} %"
    );
}
