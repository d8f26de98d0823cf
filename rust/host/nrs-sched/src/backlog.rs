// SPDX-License-Identifier: GPL-2.0-only

//! Parts with many classes that are always backlogged, to measure the cost of a decision.

use crate::{
    arena::{fair_update, feed, hand_gates, lone_part, walk},
    attr::{Attrs, Id},
    class::ClassId,
    item::{ByteRange, Cost, Direction, Fifo, Item, ItemHandle},
    jobid::JobId,
    mem::Shared,
    policy::{
        fairshare::params::Select,
        params::{BufferMax, ClassesMax},
        tbf, AnyPart, AnyShared, AnyUpdate, Config, Decision, Grant, Kind, Part, PartView,
        Tunables,
    },
    qbm::plan::By,
    ranges::{NodeReports, RangeBuilder, RangeTable},
    rng::Rng,
    rules::RuleCommand,
};
use std::collections::VecDeque;

/// Number of requests that each class keeps queued.
pub const QUEUED: u32 = 8;

/// A policy with the parameters of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Name in results.
    pub name: &'static str,
    /// The policy.
    pub kind: Kind,
    /// Selection rule of `fairshare`.
    pub select: Select,
    /// Number of levels of `fairshare`, 1 to 3.
    pub levels: u32,
    /// Size of the largest requests, pages; the smallest have one page.
    pub pages: u32,
    /// Number of rules of `tbf`, with different rates.
    pub rules: u32,
    /// True if each user of `fairshare` has a maximum.
    pub is_limited: bool,
}

impl Case {
    /// Creates a case of `kind`: requests of one page, `fairshare` with one level, `tbf` without
    /// rules.
    pub const fn new(name: &'static str, kind: Kind) -> Self {
        Self {
            name,
            kind,
            select: Select::Deadline,
            levels: 1,
            pages: 1,
            rules: 0,
            is_limited: false,
        }
    }

    /// Creates a case of `fairshare` with a selection rule.
    pub const fn select(name: &'static str, select: Select) -> Self {
        let case = Self::new(name, Kind::Fairshare);
        Self { select, ..case }
    }

    /// Sets the name.
    #[must_use]
    pub const fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// Sets the number of levels, 1 to 3.
    #[must_use]
    pub const fn levels(self, levels: u32) -> Self {
        Self { levels, ..self }
    }

    /// Sets the size of requests to 1 to `pages` pages.
    #[must_use]
    pub const fn pages(self, pages: u32) -> Self {
        Self { pages, ..self }
    }

    /// Sets the number of rules with different rates.
    #[must_use]
    pub const fn rules(self, rules: u32) -> Self {
        Self { rules, ..self }
    }

    /// Gives each user a maximum.
    #[must_use]
    pub const fn limited(self) -> Self {
        Self {
            is_limited: true,
            ..self
        }
    }

    /// Returns the configuration for `classes` classes.
    pub fn config(&self, classes: u32) -> Config {
        let mut tunables = Tunables::default();
        tunables.fairshare.select = self.select;
        let most = ClassesMax::new(1 << 20).expect("within limits");
        let requests = BufferMax::new(1 << 20).expect("within limits");
        tunables.fairshare.classes_max = most;
        tunables.tbf.classes_max = most;
        tunables.crrn.classes_max = most;
        tunables.qbm.classes_max = most;
        tunables.qbm.by = By::Uid;
        tunables.delay.buffer_max = requests;
        for sorted in [&mut tunables.orr, &mut tunables.trr] {
            sorted.classes_max = most;
            sorted.buffer_max = requests;
        }
        tunables.tbf.rate = tbf::params::Rate::new(rate(classes)).expect("within limits");
        let argument = match (self.kind, self.levels) {
            (Kind::Fairshare, 1) => Some("uid_fair"),
            (Kind::Fairshare, 2) => Some("gid_then_uid_fair"),
            (Kind::Fairshare, _) => Some("gid_then_uid_then_jobid_fair"),
            (Kind::Tbf, _) if self.rules > 0 => Some("uid+gid"),
            (Kind::Tbf, _) => Some("uid"),
            _ => None,
        };
        Config::parse(self.kind, argument, &tunables).expect("valid")
    }

    /// Returns an update with rules for groups, each with another rate, or with maximums of users;
    /// `None` if the policy has neither.
    pub fn update(&self, config: &Config, classes: u32) -> Option<AnyUpdate> {
        let config = match config {
            Config::Tbf(config) => config,
            Config::Fairshare(config) if self.is_limited => {
                let text = format!("uid:*:max={}", rate(classes));
                return Some(fair_update(&config.tunables, "", &text, classes as usize));
            }
            _ => return None,
        };
        let mut rule_list = config.rule_list().expect("memory");
        for rule in 0..self.rules {
            let rate = rate(classes) + rule % 7;
            let text = format!("start r{rule} gid={{{rule}}} rate={rate} rank=default");
            let command = RuleCommand::parse(&text).expect("valid");
            rule_list = rule_list.apply(&command).expect("valid");
        }
        let rules = Shared::new(rule_list.compile(1).expect("memory"));
        let update = tbf::Update::new(rules.expect("memory"), config);
        Some(AnyUpdate::Tbf(update.expect("memory")))
    }
}

/// A request as cheap to move and to queue as a request of the kernel, which is a pointer.
struct Bare {
    arrival: u64,
    offset: u64,
    mark: u64,
    pages: u32,
}

/// A queue of [`Bare`] requests.
struct BareFifo(VecDeque<Bare>);

/// Reference to a registered request; unused, because no request is registered.
struct Unplaced;

impl ItemHandle for Unplaced {
    fn mark(&self) -> u64 {
        0
    }
}

impl Item for Bare {
    type Fifo = BareFifo;
    type Handle = Unplaced;

    fn cost(&self) -> Cost {
        Cost::new(Direction::Read, u64::from(self.pages) * 4096)
    }

    fn arrival(&self) -> u64 {
        self.arrival
    }

    fn byte_range(&self) -> ByteRange {
        ByteRange::new(0, self.offset, 4096)
    }

    fn mark(&self) -> u64 {
        self.mark
    }

    fn set_mark(&mut self, mark: u64) {
        self.mark = mark;
    }

    fn register(&mut self) -> Unplaced {
        Unplaced
    }

    fn unregister(&mut self, _place: Unplaced) {}
}

impl Fifo for BareFifo {
    type Item = Bare;

    fn new() -> Self {
        Self(VecDeque::new())
    }

    fn push(&mut self, item: Bare) {
        self.0.push_back(item);
    }

    fn pop(&mut self) -> Option<Bare> {
        self.0.pop_front()
    }

    fn remove(&mut self, _place: &Unplaced) -> Option<Bare> {
        None
    }

    fn front(&self) -> Option<&Bare> {
        self.0.front()
    }

    fn len(&self) -> u32 {
        self.0.len() as u32
    }
}

/// Returns the rate of each class, requests/s. All classes together have twice the rate of one
/// decision per microsecond, so that a class is always eligible.
pub fn rate(classes: u32) -> u32 {
    (2_000_000 / classes).max(1)
}

/// A part and its classes.
pub struct Backlog {
    part: AnyPart<Bare>,
    table: Option<RangeTable>,
    now: u64,
    members: Vec<Attrs>,
    last: usize,
}

/// Returns the attributes of member `i` of `count` in a tree of `depth` levels, whose nodes have
/// about the same number of children. Each member has a client, an object and a target of its own,
/// and one of 256 groups.
pub fn member(i: u32, count: u32, depth: u32) -> Attrs {
    let fan = f64::from(count).powf(1.0 / f64::from(depth)).ceil() as u32;
    let own = Attrs {
        client: i,
        target: i,
        object: i.into(),
        ..Attrs::UNKNOWN
    };
    match depth {
        1 => Attrs {
            uid: Id::new(i),
            gid: Id::new(i % 256),
            ..own
        },
        2 => Attrs {
            gid: Id::new(i / fan),
            uid: Id::new(i),
            ..own
        },
        _ => Attrs {
            gid: Id::new(i / fan / fan),
            uid: Id::new(i / fan),
            jobid: JobId::new(format!("job{i}").as_bytes()),
            ..own
        },
    }
}

impl Backlog {
    /// Creates a part of `case` with `classes` classes of [`QUEUED`] requests each. If all requests
    /// have one size, classes are served in the order of their memory.
    ///
    /// # Panics
    ///
    /// The allocation failed.
    pub fn new(case: &Case, classes: u32) -> Self {
        let config = case.config(classes);
        let part = lone_part(&config, 1).expect("memory");
        Self::filled(part, &config, case, classes)
    }

    /// Creates two parts of one head with the same classes, each as in [`Backlog::new`].
    ///
    /// # Panics
    ///
    /// The allocation failed.
    pub fn pair(case: &Case, classes: u32) -> [Self; 2] {
        let config = case.config(classes);
        let shared = AnyShared::new(&config, 1, 2).expect("memory");
        [1, 2].map(|seed| {
            let part = AnyPart::new(&config, seed, &shared).expect("memory");
            Self::filled(part, &config, case, classes)
        })
    }

    /// Fills `part`, created with `config`, with classes and requests.
    fn filled(mut part: AnyPart<Bare>, config: &Config, case: &Case, classes: u32) -> Self {
        let (count, bytes) = (classes.min(16_384), 4096 * u64::from(rate(classes)));
        hand_gates(&mut part, count, Some(bytes)).expect("memory");
        if let Some(update) = case.update(config, classes) {
            drop(part.update(update, 0));
        }
        let mut rng = Rng::new(1);
        let mut id = 0;
        let mut members = Vec::new();
        for owner in 0..classes {
            let attrs = member(owner, classes, case.levels);
            let class = part.classify(&attrs, 0);
            feed(&mut part);
            if owner % classes.div_ceil(1024) == 0 {
                members.push(attrs);
            }
            for _ in 0..QUEUED {
                let request = Bare {
                    pages: 1 + rng.below(case.pages.into()) as u32,
                    arrival: id,
                    offset: rng.below(1 << 40),
                    mark: 0,
                };
                assert!(part.enqueue(request, class, 0).is_ok());
                id += 1;
            }
        }
        walk(&mut part, 0);
        let mut backlog = Self {
            part,
            table: None,
            now: 0,
            members,
            last: 0,
        };
        backlog.publish();
        for _ in 0..u64::from(classes) * 2 {
            backlog.step();
        }
        backlog
    }

    /// Finds the class of a member that has a class; rotates through up to 1024 members.
    pub fn find(&mut self) -> ClassId {
        self.last = (self.last + 1) % self.members.len();
        let attrs = self.members.get(self.last).unwrap_or(&Attrs::UNKNOWN);
        self.part.classify(attrs, self.now)
    }

    /// Publishes the shares, if the policy has any.
    fn publish(&mut self) {
        let mut builder = RangeBuilder::new();
        let mut buf = NodeReports::new().expect("memory");
        let mut from = Some(0);
        while let Some(idx) = from {
            buf.clear();
            from = self.part.node_reports(idx, self.now, &mut buf);
            builder.extend(buf.as_slice()).expect("memory");
        }
        self.table = Some(builder.build().expect("memory").table);
    }

    /// Returns the next request; advances the time while the part is throttled.
    #[inline]
    fn get(&mut self) -> (Bare, Grant) {
        loop {
            let view = PartView {
                now: self.now,
                force: false,
                table: self.table.as_ref(),
            };
            match self.part.get(&view) {
                Decision::Item(found) => return found,
                Decision::Throttled { until } => self.now = until,
                Decision::Empty => panic!("all have requests"),
            }
        }
    }

    /// Dispatches and completes a request, and queues the next request of its class, 1 µs later.
    ///
    /// # Panics
    ///
    /// No request is queued.
    pub fn step(&mut self) {
        self.now += 1000;
        let (request, grant) = self.get();
        self.part.stop(&grant, request.cost(), self.now);
        assert!(self.part.enqueue(request, grant.class, self.now).is_ok());
    }
}
