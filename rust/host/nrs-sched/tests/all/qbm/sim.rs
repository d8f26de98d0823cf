// SPDX-License-Identifier: GPL-2.0-only

//! Bandwidth management in simulated time: a part of `qbm`, a manager, and users of a device that
//! serves one request at a time.

use nrs_sched::{
    arena::{attrs, feed, refresh, reserve, view, Request},
    attr::Attrs,
    item::{Direction, Item},
    jobid::JobId,
    key::Key,
    managed::{plan, yaml},
    mem::{Need, Shared},
    policy::{
        params::ClassesMax,
        qbm::{Config, State, Tunables},
        Configuration, Decision, Grant, Nothing, Part,
    },
    qbm::{gate::Gates, manager::BandwidthManager, plan::ClientKey},
    script::{check, list, number, steps, time},
    units::{NSEC_PER_MSEC as MS, NSEC_PER_SEC as SECOND},
};
use std::collections::{BTreeMap, VecDeque};

pub const MB: u64 = 1_000_000;

/// Time between two ticks of the worker, ns.
pub const WALK: u64 = 200 * MS;

/// Delay between the wake-up of the worker and its run, ns.
const CALL: u64 = 50_000;

/// Number of queued requests at which a client with a rate stops submitting.
const PATIENCE: u32 = 64;

/// Demand of a client.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    Off,
    /// Number of requests in flight.
    Greedy(u32),
    /// Rate, bytes/s.
    Rate(u64),
}

pub const GREEDY: Load = Load::Greedy(8);

struct QbmUser {
    load: Load,
    target: u32,
    pages: u32,
    queued: u32,
    /// Time of the next request at a rate, ns.
    next: u64,
    /// Service, bytes.
    served: u64,
    /// Number of other names that the user's requests have in turn; 0 for the user's own name.
    names: u32,
    /// Times from arrival to end, ns.
    waits: Vec<u64>,
}

/// Returns the job of `user`.
fn job(user: u32) -> JobId {
    JobId::new(format!("j{user}").as_bytes())
}

/// A service whose clients are users.
pub struct QbmSim {
    pub now: u64,
    pub manager: BandwidthManager,
    gates: Shared<Gates>,
    /// Maximum number of requests in flight.
    pub slots: usize,
    /// Bandwidth of the device, bytes/s.
    bandwidth: u64,
    part: State<Request>,
    users: BTreeMap<u32, QbmUser>,
    /// Requests in flight, with the times at which they end, ns.
    device: VecDeque<(u64, Request, Grant)>,
    submitted: u64,
    wake: u64,
    worker: u64,
    tick: u64,
    /// Plan of the script, and whether it is in effect.
    plan: (String, bool),
}

impl QbmSim {
    /// Creates a service with the plan `text`, which contains `by uid`, a device of `mb` MB/s, and
    /// `gates_max` gates.
    pub fn new(text: &str, mb: u64, gates_max: u32) -> Self {
        let plan = plan(text);
        let gates = Shared::new(Gates::new(gates_max, 7).expect("memory")).expect("memory");
        let manager = BandwidthManager::new(plan.clone(), gates.clone()).expect("memory");
        let tunables = Tunables {
            by: plan.by(),
            classes_max: ClassesMax::new((gates_max * 4).clamp(64, 16_384)).expect("within limits"),
            ..Tunables::default()
        };
        let config = Config::parse(None, &tunables).expect("no argument");
        let shared = Shared::new(Nothing).expect("memory");
        let mut part = State::new(&config, 1, &shared).expect("memory");
        let now = 86_400 * SECOND;
        part.update(Some((gates.clone(), plan)), now);
        reserve(1 << 12).expect("memory");
        Self {
            now,
            manager,
            gates,
            slots: 4,
            bandwidth: mb * MB,
            part,
            users: BTreeMap::new(),
            device: VecDeque::new(),
            submitted: 0,
            wake: u64::MAX,
            worker: now,
            tick: now,
            plan: (String::new(), true),
        }
    }

    /// Replaces the plan.
    pub fn configure(&mut self, text: &str) {
        let plan = plan(text);
        let configured = self.manager.configure(plan.clone(), &Nothing, self.now);
        configured.expect("memory");
        self.part.update(Some((self.gates.clone(), plan)), self.now);
        self.call();
    }

    fn user(&mut self, user: u32) -> &mut QbmUser {
        self.users.entry(user).or_insert(QbmUser {
            load: Load::Off,
            target: 0,
            pages: 64,
            queued: 0,
            next: u64::MAX,
            served: 0,
            names: 0,
            waits: Vec::new(),
        })
    }

    /// Sets the size of the requests of `user`, 4096-byte pages, and their target.
    pub fn shape(&mut self, user: u32, pages: u32, target: u32) {
        let user = self.user(user);
        (user.pages, user.target) = (pages, target);
    }

    /// Assigns requests of `user` to `names` other names, in turn.
    pub fn rename(&mut self, user: u32, names: u32) {
        self.user(user).names = names;
    }

    /// Returns the 99th percentile of the latency of requests of `user` since the last call, ns.
    pub fn p99(&mut self, user: u32) -> u64 {
        let mut waits = std::mem::take(&mut self.user(user).waits);
        waits.sort_unstable();
        waits[waits.len() * 99 / 100]
    }

    /// Sets the demand of `user`.
    pub fn load(&mut self, user: u32, load: Load) {
        let now = self.now;
        let known = self.user(user);
        known.load = load;
        known.next = match load {
            Load::Rate(_) => now,
            _ => u64::MAX,
        };
        if let Load::Greedy(depth) = load {
            (known.queued..depth).for_each(|_| self.submit(user));
        }
    }

    /// Returns the allocation of `user`, bytes/s; `None` if the user is not registered.
    pub fn allocated(&self, user: u32) -> Option<u64> {
        let mut found = None;
        self.manager.each(|party, target, rate| {
            let is_user = [Key::Uid(user), Key::Jobid(job(user))]
                .map(ClientKey::Key)
                .contains(party);
            let here = is_user && target == self.users[&user].target;
            found = found.or(here.then_some(rate));
        });
        found
    }

    /// Runs for `ns`; returns the service of `users` in this time, MB/s.
    pub fn rates<const N: usize>(&mut self, ns: u64, users: [u32; N]) -> [f64; N] {
        let served = |sim: &mut Self| users.map(|user| sim.user(user).served);
        let before = served(self);
        self.run(ns);
        let after = served(self);
        std::array::from_fn(|i| (after[i] - before[i]) as f64 * 1e3 / ns as f64)
    }

    /// Runs for `ns`.
    pub fn run(&mut self, ns: u64) {
        let end = self.now + ns;
        loop {
            self.dispatch();
            let done = self.device.front().map_or(u64::MAX, |front| front.0);
            let arrival = self.users.values().map(|user| user.next).min();
            let next = done.min(self.wake).min(self.worker);
            let next = next.min(arrival.unwrap_or(u64::MAX));
            if next > end {
                break;
            }
            self.now = next;
            if done <= next {
                self.done();
            }
            if self.worker <= next {
                self.work();
            }
            self.arrive();
        }
        self.now = end;
    }

    fn arrive(&mut self) {
        let now = self.now;
        let mut due = Vec::new();
        for (uid, user) in &mut self.users {
            if let (Load::Rate(rate), true) = (user.load, user.next <= now) {
                user.next = now + u64::from(user.pages) * 4096 * SECOND / rate;
                if user.queued < PATIENCE {
                    due.push(*uid);
                }
            }
        }
        due.into_iter().for_each(|uid| self.submit(uid));
    }

    fn submit(&mut self, uid: u32) {
        let now = self.now;
        self.submitted += 1;
        let id = self.submitted;
        let user = self.user(uid);
        user.queued += 1;
        let turn = (id as u32).checked_rem(user.names);
        let name = turn.map_or(uid, |turn| 1_000_000 + turn);
        let attrs = Attrs {
            target: user.target,
            jobid: job(name),
            ..attrs(name)
        };
        let request = Request {
            owner: uid,
            id,
            pages: user.pages,
            arrival: now,
            direction: Direction::Read,
            ..Request::default()
        };
        let class = self.part.classify(&attrs, now);
        assert!(self.part.enqueue(request, class, now).is_ok());
        if !self.part.need().is_empty() {
            self.call();
        }
    }

    fn call(&mut self) {
        self.worker = self.worker.min(self.now + CALL);
    }

    /// Dispatches while slots are free.
    fn dispatch(&mut self) {
        self.wake = u64::MAX;
        while self.device.len() < self.slots {
            match self.part.get(&view(self.now, false)) {
                Decision::Item((request, grant)) => {
                    let begin = self.device.back().map_or(self.now, |last| last.0);
                    let time = request.cost().bytes * SECOND / self.bandwidth;
                    self.device.push_back((begin + time, request, grant));
                }
                Decision::Throttled { until } => {
                    self.wake = until.max(self.now + 1);
                    return;
                }
                Decision::Empty => return,
            }
        }
    }

    fn done(&mut self) {
        let (_, request, grant) = self.device.pop_front().expect("a request");
        let now = self.now;
        self.part.stop(&grant, request.cost(), now);
        let user = self.user(request.owner);
        user.queued -= 1;
        user.served += request.cost().bytes;
        user.waits.push(now - request.arrival);
        if matches!(user.load, Load::Greedy(depth) if user.queued < depth) {
            self.submit(request.owner);
        }
    }

    fn work(&mut self) {
        feed(&mut self.part);
        let due = self.now >= self.tick;
        if due {
            self.tick = self.now + WALK;
        }
        self.worker = self.tick;
        for due in [due, false] {
            self.manager.poll(&Nothing, due, self.now).expect("memory");
            if !self.manager.has_changed() {
                break;
            }
            refresh(&mut self.part, 64, self.now);
        }
        self.part.age(self.now, 64);
    }

    /// Returns `nrs_qbm_status`.
    pub fn status(&self) -> String {
        yaml(|report| self.manager.report_status(report, &Nothing, self.now))
    }

    /// Returns `nrs_qbm_stats`.
    pub fn stats(&self) -> String {
        yaml(|report| self.manager.report_stats(report, &Nothing))
    }

    /// Plays statements, separated by line ends or semicolons; `Nx` in front of a line repeats it.
    ///
    /// | statement | |
    /// |---|---|
    /// | `disk MB GATES` | creates another service |
    /// | `by uid…`, and lines of a plan | replaces the plan; takes the whole line |
    /// | `again` | reloads the plan |
    /// | `shape USERS PAGES [TARGET]` | sets the requests of users |
    /// | `load USERS LOAD` | sets the demand: `off`, `greedy[=DEPTH]`, or MB/s |
    /// | `run TIME` | runs |
    /// | `in TIME: USER=MB…` | runs, and checks rates |
    /// | `has USER=MB…` | checks allocations; `none` if the user is not registered |
    /// | `stats NAME: VALUE` | checks a line of the statistics |
    /// | `reset` | resets the statistics, and checks that all are 0 |
    ///
    /// Numbers are as in [`nrs_sched::script`].
    pub fn play(&mut self, text: &str) {
        for line in text.lines().map(str::trim) {
            if ["by ", "default ", "group ", "client "]
                .iter()
                .any(|of| line.starts_with(of))
            {
                if line.starts_with("by ") {
                    self.plan.0.clear();
                }
                self.plan.0 += line;
                self.plan.0.push('\n');
                self.plan.1 = false;
                continue;
            }
            steps(line, |step| self.step(step));
        }
    }

    fn step(&mut self, step: &str) {
        if !std::mem::replace(&mut self.plan.1, true) {
            self.configure(&self.plan.0.clone());
        }
        let words: Vec<&str> = step.split_whitespace().collect();
        let pair = |check: &'_ str| {
            let (user, want) = check.split_once('=').expect("USER=MB");
            (number(user) as u32, want.to_owned())
        };
        match *words {
            ["disk", mb, gates] => *self = Self::new("by uid", time(mb), time(gates) as u32),
            ["again"] => self.configure(&self.plan.0.clone()),
            ["shape", users, pages, ref target @ ..] => {
                let target = target.first().map_or(0, |target| number(target) as u32);
                let pages = number(pages) as u32;
                list(users)
                    .into_iter()
                    .for_each(|user| self.shape(user, pages, target));
            }
            ["load", users, load] => {
                let load = match load.split_once('=') {
                    Some((_, depth)) => Load::Greedy(number(depth) as u32),
                    None if load == "off" => Load::Off,
                    None if load == "greedy" => GREEDY,
                    None => Load::Rate((number(load) * MB as f64) as u64),
                };
                list(users)
                    .into_iter()
                    .for_each(|user| self.load(user, load));
            }
            ["run", ns] => self.run(time(ns)),
            ["in", ns, ref checks @ ..] => {
                let served = |sim: &Self, user| sim.users[&user].served as f64;
                let checks = checks.iter().map(|check| pair(check));
                let checks: Vec<_> = checks
                    .map(|(user, want)| (user, want, served(self, user)))
                    .collect();
                let ns = time(ns.trim_end_matches(':'));
                self.run(ns);
                for (user, want, before) in checks {
                    let rate = (served(self, user) - before) * 1e3 / ns as f64;
                    check(&format!("rate of {user}"), rate, &want);
                }
            }
            ["has", ref checks @ ..] => {
                for (user, want) in checks.iter().map(|check| pair(check)) {
                    let have = self.allocated(user).map(|rate| rate as f64 / MB as f64);
                    match have {
                        Some(rate) => check(&format!("allocation of {user}"), rate, &want),
                        None => assert_eq!(want, "none", "allocation of {user}"),
                    }
                }
            }
            ["reset"] => {
                self.manager.reset_stats();
                let stats = self.stats();
                let numbers = stats.lines().filter_map(|line| line.split_once(": "));
                let counted = numbers.filter(|(_, value)| !value.starts_with('"') && *value != "0");
                assert_eq!(counted.count(), 0, "{stats}");
            }
            ["stats", ..] => {
                let stats = self.stats();
                assert!(stats.contains(&format!("\n  {}\n", &step[6..])), "{stats}");
            }
            _ => panic!("unknown statement {step}"),
        }
    }
}

/// Plays cases ([`nrs_sched::script`]) of [`QbmSim::play`], each with a disk of 100 MB/s.
pub fn play(text: &str) {
    let service = || QbmSim::new("by uid", 100, 64);
    nrs_sched::script::play(text, service, QbmSim::play);
}
