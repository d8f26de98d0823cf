// SPDX-License-Identifier: GPL-2.0-only

//! A server in simulated time: parts that share buckets, clients, and a timer that is late.

pub use nrs_sched::units::NSEC_PER_SEC as SECOND;
use nrs_sched::{
    arena::{feed, refresh, view, Request},
    attr::{Attrs, Id},
    class::ClassId,
    item::{Cost, Item},
    mem,
    parameters::Values,
    policy::{
        params::ClassesMax,
        tbf::{stats::TbfRow, Config, Shared, State, TbfRowBuf, Tunables, Update},
        BypassOutcome, BypassReason, Configuration, Decision, Part,
    },
    rng::Rng,
    rules::{RuleCommand, RuleList},
    script::{check, list, number, steps, time},
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
            refresh(part, 64, self.now);
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
            self.update_part(part, &update);
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
    pub fn update_part(&mut self, part: usize, update: &Update) {
        self.parts[part].update(update.clone(), self.now);
        refresh(&mut self.parts[part], 64, self.now);
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

    /// Plays statements, separated by line ends or semicolons; `Nx` in front of a line repeats it.
    ///
    /// | statement | |
    /// |---|---|
    /// | `with ARGUMENT [parts=N] [NAME=VALUE]…` | creates other partitions; sets `nrs_tbf_NAME` |
    /// | `late TIME` | sets the maximum delay of the timer |
    /// | `start …`, `change …`, `stop …`, `now COMMAND` | applies a command; all classes follow |
    /// | `later COMMAND` | applies a command; classes follow when they are accessed |
    /// | `queue OWNERS COUNT [PAGES] [@PART]` | queues requests; `@*` spreads the owners |
    /// | `pass OWNERS WAY [COUNT] [OUTCOME]` | passes requests; the default is `1 counted` |
    /// | `refund OWNER` | returns a request that the device refused |
    /// | `wait TIME` | lets time pass without a decision |
    /// | `run TIME [NEXT]` | runs, with [`Next`] `one` (default), `none`, `mixed` or `large` |
    /// | `in TIME [NEXT]: SERVED…` | runs, and checks the service in this time |
    /// | `congested TIME PERIOD: SERVED…` | does so with one request every PERIOD on part 0 |
    /// | `clear`, `served: SERVED…` | clears, checks the service |
    /// | `get DECISION…`, `force DECISION` | checks decisions: OWNER, `empty`, `throttled[=TIME]` |
    /// | `burst COUNT` | checks the number of requests that are eligible now |
    /// | `drain` | dispatches all requests |
    /// | `row OWNER NAME=VALUE…` | checks the row of an owner |
    ///
    /// SERVED is `OWNERS=COUNT` with the sum, `each:OWNERS=COUNT` or `OWNERS.pages=COUNT`; `*`
    /// stands for all owners. Numbers are as in [`nrs_sched::script`].
    pub fn play(&mut self, text: &str) {
        text.lines()
            .for_each(|line| steps(line.trim(), |step| self.step(step)));
    }

    fn step(&mut self, step: &str) {
        let (what, checks) = match step.split_once(": ") {
            Some((what, checks)) => (what, checks),
            None => (step, ""),
        };
        let words: Vec<&str> = what.trim_end_matches(':').split_whitespace().collect();
        match *words {
            [] => {}
            ["with", argument, ref rest @ ..] => *self = Self::with(argument, rest),
            ["late", late] => self.late = time(late),
            ["start" | "change" | "stop", ..] => self.rule(step),
            ["now", ..] => self.rule(&step[4..]),
            ["later", ..] => self.rule_later(&step[6..]),
            ["queue", owners, count, ref rest @ ..] => self.step_queue(owners, count, rest),
            ["pass", owners, way, ref rest @ ..] => self.step_pass(owners, way, rest),
            ["refund", owner] => {
                let class = self.class(0, number(owner) as u32);
                let cost = self.request(0, 1).cost();
                self.parts[0].refund(class, cost, self.now);
            }
            ["wait", ns] => self.now += time(ns),
            ["run", ns, ref next @ ..] => self.run(self.now + time(ns), next_of(next)),
            ["in", ns, ref next @ ..] => {
                self.served.clear();
                self.run(self.now + time(ns), next_of(next));
            }
            ["congested", ns, period] => {
                self.served.clear();
                let end = self.now + time(ns);
                while self.now < end {
                    if let Decision::Item(request) = self.get(0, false) {
                        self.queue(0, request.owner, 1, request.pages);
                    }
                    self.now += time(period);
                }
            }
            ["clear"] => self.served.clear(),
            ["served"] => {}
            ["get", ref wants @ ..] => wants
                .iter()
                .for_each(|want| self.check_decision(want, false)),
            ["force", want] => self.check_decision(want, true),
            ["burst", count] => check("burst", self.burst() as f64, count),
            ["drain"] => while let Decision::Item(_) = self.get(0, true) {},
            ["row", owner, ref values @ ..] => self.check_row(number(owner) as u32, values),
            _ => panic!("unknown statement {step}"),
        }
        checks
            .split_whitespace()
            .for_each(|check| self.check_served(check));
    }

    fn with(argument: &str, settings: &[&str]) -> Self {
        let (mut parts, mut values) = (1, Values::default());
        for setting in settings {
            match setting.split_once('=').expect("NAME=VALUE") {
                ("parts", count) => parts = number(count) as u64,
                ("classes_max", max) => {
                    let max = ClassesMax::new(number(max) as u32);
                    values.policies.tbf.classes_max = max.expect("within limits");
                }
                (name, value) => {
                    let set = values.set_named(&format!("nrs_tbf_{name}"), value);
                    set.expect("valid");
                }
            }
        }
        Self::new(argument, parts, &values.policies.tbf)
    }

    fn step_queue(&mut self, owners: &str, count: &str, rest: &[&str]) {
        let part = rest.iter().find_map(|word| word.strip_prefix('@'));
        let pages = rest.iter().find_map(|word| word.parse().ok());
        for owner in list(owners) {
            let part = match part {
                Some("*") => owner as usize,
                part => part.map_or(0, |part| number(part) as usize),
            };
            let part = part % self.parts.len();
            self.queue(part, owner, number(count) as u32, pages.unwrap_or(1));
        }
    }

    fn step_pass(&mut self, owners: &str, way: &str, rest: &[&str]) {
        let way = match way {
            "forced" => BypassReason::Forced { contended: true },
            "merged" => BypassReason::Merged,
            _ => BypassReason::Opportunity,
        };
        let want = match rest.last() {
            Some(&"refused") => BypassOutcome::Refused,
            Some(count) if count.parse::<u32>().is_err() => panic!("unknown outcome {count}"),
            _ => BypassOutcome::Counted,
        };
        let count = rest.iter().find_map(|word| word.parse().ok());
        for owner in list(owners) {
            for _ in 0..count.unwrap_or(1) {
                assert_eq!(self.pass(owner, 1, way), want);
            }
        }
    }

    /// Takes all eligible requests; returns their number.
    pub fn burst(&mut self) -> u64 {
        let mut count = 0;
        while let Decision::Item(_) = self.get(0, false) {
            count += 1;
        }
        count
    }

    fn check_decision(&mut self, want: &str, force: bool) {
        match (self.get(0, force), want.split_once('=')) {
            (Decision::Item(request), _) => assert_eq!(request.owner.to_string(), want),
            (Decision::Empty, _) => assert_eq!(want, "empty"),
            (Decision::Throttled { .. }, None) => assert_eq!(want, "throttled"),
            (Decision::Throttled { until }, Some((_, want))) => {
                check("throttled for", (until - self.now) as f64, want);
            }
        }
    }

    fn check_row(&self, owner: u32, values: &[&str]) {
        let TbfRow {
            counters,
            rate,
            queued,
            debt,
            ..
        } = self.row(owner);
        for value in values {
            let (name, want) = value.split_once('=').expect("NAME=VALUE");
            let have = match name {
                "rate" => rate.per_second(),
                "queued" => queued.into(),
                "debt" => debt,
                "cost" => counters.cost,
                "borrowed" => counters.borrowed,
                "forced" => counters.forced,
                "dispatched" => counters.dispatched,
                _ => panic!("unknown field {name}"),
            };
            check(name, have as f64, want);
        }
    }

    fn check_served(&self, text: &str) {
        let (owners, want) = text.split_once('=').expect("OWNERS=COUNT");
        let of = |(count, pages): &(u64, u64)| match owners.ends_with(".pages") {
            true => *pages,
            false => *count,
        };
        let of = |owner: u32| self.served.get(&owner).map_or(0, of);
        let names = owners
            .trim_start_matches("each:")
            .trim_end_matches(".pages");
        let all = match names {
            "*" => self.served.keys().copied().collect(),
            names => list(names),
        };
        if owners.starts_with("each:") {
            let each = all.into_iter();
            each.for_each(|owner| check(&format!("owner {owner}"), of(owner) as f64, want));
        } else {
            check(owners, all.into_iter().map(of).sum::<u64>() as f64, want);
        }
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

/// Returns the function called so.
fn next_of(name: &[&str]) -> Next {
    match name {
        [] | ["one"] => one,
        ["none"] => none,
        ["mixed"] => mixed,
        ["large"] => |_| 256,
        _ => panic!("unknown function {name:?}"),
    }
}

/// Plays cases ([`nrs_sched::script`]) of [`TbfSim::play`], each in one partition by uid at first.
pub fn play(text: &str) {
    nrs_sched::script::play(text, TbfSim::by_uid, TbfSim::play);
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
