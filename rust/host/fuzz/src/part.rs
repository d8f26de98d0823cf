// SPDX-License-Identifier: GPL-2.0-only

//! A policy on one to three partitions. The first bytes are its configuration; each byte after them
//! is an operation, followed by its operands.
//!
//! ```text
//!  arrive ──▶ queued ──▶ running ──▶ ended
//!                │  get        stop
//!                └─ dequeue ──▶ removed
//! ```

use nrs_sched::{
    arena::{feed, hand_gates, walk, Number, Request},
    attr::{Attrs, Id},
    class::ClassId,
    item::{ByteRange, Direction, Item},
    jobid::JobId,
    mem::Shared,
    nid::Nid,
    policy::{
        crrn,
        delay::{
            params::{Max, Min, Pct},
            Setting as DelaySetting, Update as DelayUpdate,
        },
        fairshare::{
            params::{CostModel, CrossCpt, Locality, OppThreshold, Select, SizeSource},
            weights::Weights,
            Update as Shares,
        },
        params::{heads::PerHead, BufferMax, ClassesMax},
        robin,
        tbf::{self, params::GlobalRate},
        AnyPart, AnyShared, AnyUpdate, BypassOutcome, BypassReason, Config, Decision, Grant, Kind,
        Part, PartView, Tunables,
    },
    qbm::plan::By,
    ranges::{NodeReports, RangeBuilder, RangeTable},
    rules::RuleCommand,
};

use crate::bytes::Bytes;
use nrs_sched::units::NSEC_PER_MSEC as MS;

/// Arguments of policies that take one.
const FAIR: [&str; 6] = [
    "uid_fair",
    "size_fair",
    "jobid_fair",
    "gid_then_uid_fair",
    "gid_then_uid_then_jobid_fair",
    "nid_then_projid_then_nodemap_then_size_fair",
];
const FIELDS: [&str; 4] = ["uid", "nid", "jobid+opcode", "generic"];

/// Sets of rules of `tbf`; each update selects one.
const RULES: [&[&str]; 5] = [
    &["start a uid={0 1 2} rate=7"],
    &[
        "start a uid={3} rate=1000 minrate=10",
        "start b jobid={j*}&uid={1 2} rate=10MiB/s",
        "start c nid={10.0.0.[1-3]@tcp} rate=50 realtime=1",
    ],
    &[
        "change default rate=3",
        "start x gid={0 1} rate=400 borrow=1",
    ],
    &[
        "start a uid={1 2 3} rate=100",
        "start b uid={3 4} rate=1MiB/s minrate=64KiB/s",
        "start c uid={5 6 7} rate=50 borrow=1",
        "start d uid={1 5 8} rate=3 also=a+b",
        "start e uid={2 6 9} rate=5 also=a realtime=1 borrow=1",
        "stop c",
        "change a rate=10000000",
    ],
    &[
        "start a uid={1 2 3} rate=7 minrate=2",
        "start b uid={3 4} rate=1B/s",
        "start d uid={1 5 8} rate=3 also=a+b",
        "change d also=",
    ],
];

/// Tables of weights; each update selects one.
const WEIGHTS: [&str; 3] = [
    "",
    "uid:0:10000,uid:1:1,jobid:j*:7,gid:1:3",
    "uid:2:9,uid:3:9,nid:10.0.0.1@tcp:100,jobid:\"\":4",
];

/// Maximum number of operations.
const OPERATIONS: usize = 600;

/// Returns the attributes of `owner`.
pub(crate) fn who(owner: u8) -> Attrs {
    let id = u32::from(owner);
    Attrs {
        nid: Nid::parse(&format!("10.0.0.{}@tcp", owner % 5))
            .ok()
            .filter(|_| owner % 7 > 0),
        uid: if owner % 11 == 10 {
            Id::ABSENT
        } else {
            Id::new(id)
        },
        gid: Id::new(id / 4),
        projid: Id::new(id % 3),
        nodemap: Id::new(id % 2),
        cgroup: Id::new(id % 5),
        jobid: JobId::new(format!("j{}#{}", owner % 9, owner).as_bytes()),
        client: id,
        target: id % 3,
        object: u64::from(owner % 6),
        stream: u64::from(owner % 4),
        length: 4096,
        ..Attrs::UNKNOWN
    }
}

/// A queued request.
struct Queued {
    id: u64,
    home: usize,
    class: ClassId,
    place: Number,
}

/// Parts of a policy, and their expected contents.
struct Model {
    config: Config,
    parts: Vec<AnyPart<Request>>,
    queued: Vec<Queued>,
    running: Vec<(usize, Request, Grant)>,
    table: Option<RangeTable>,
    now: u64,
    next: u64,
    ended: u64,
    taken: u64,
}

/// Returns parameters selected by the next bytes.
fn tunables(bytes: &mut Bytes<'_>) -> Tunables {
    let mut all = Tunables::default();
    let few = ClassesMax::new(64).expect("within limits");
    let requests = BufferMax::new(256).expect("within limits");
    all.crrn.classes_max = few;
    all.crrn.quantum.regular = bytes
        .of(&[1, 2, 8, 65_535].map(crrn::Quantum::new))
        .expect("within limits");
    for sorted in [&mut all.orr, &mut all.trr] {
        sorted.classes_max = few;
        sorted.buffer_max = requests;
        sorted.quantum.regular = bytes
            .of(&[1, 3, 256].map(robin::params::Quantum::new))
            .expect("within limits");
        sorted.supported.regular = bytes.of(robin::params::Supported::ALL);
        sorted.offset_type.regular = bytes.of(robin::params::OffsetType::ALL);
    }
    all.tbf.classes_max = few;
    all.tbf.rate = bytes
        .of(&[1, 10, 1_000, 10_000_000].map(tbf::params::Rate::new))
        .expect("within limits");
    all.tbf.depth = bytes
        .of(&[1, 3, 1_000].map(tbf::params::Depth::new))
        .expect("within limits");
    all.tbf.cost_model = bytes.of(tbf::params::CostModel::ALL);
    all.tbf.global_rate = bytes.of(GlobalRate::ALL);
    all.fairshare.classes_max = few;
    all.fairshare.select = bytes.of(Select::ALL);
    all.fairshare.cost_model = bytes.of(CostModel::ALL);
    all.fairshare.locality = bytes.of(Locality::ALL);
    all.fairshare.size_source = bytes.of(SizeSource::ALL);
    all.fairshare.opp_threshold = OppThreshold::new(bytes.byte().into()).unwrap_or_default();
    all.qbm.by = bytes.of(By::ALL);
    all.qbm.classes_max = few;
    all.delay.buffer_max = requests;
    let (min, pct) = (bytes.byte() % 4, bytes.byte() % 101);
    all.delay.min = PerHead::both(Min::new(min.into()).unwrap_or_default());
    all.delay.max = PerHead::both(Max::new((min + bytes.byte() % 4).into()).unwrap_or_default());
    all.delay.pct = PerHead::both(Pct::new(pct.into()).unwrap_or_default());
    all
}

/// Returns a policy selected by the next bytes.
pub(crate) fn config(bytes: &mut Bytes<'_>) -> Config {
    let kind = bytes.of(Kind::ALL);
    let argument = match kind {
        Kind::Fairshare => Some(bytes.of(&FAIR)),
        Kind::Tbf => Some(bytes.of(&FIELDS)),
        _ => None,
    };
    Config::parse(kind, argument, &tunables(bytes)).expect("valid")
}

impl Model {
    fn new(bytes: &mut Bytes<'_>) -> Self {
        let config = config(bytes);
        let count = 1 + u32::from(bytes.byte() % 3);
        let shared = AnyShared::new(&config, 7, count).expect("memory");
        let part = |seed| {
            let mut part = AnyPart::new(&config, seed, &shared).expect("memory");
            hand_gates(&mut part, 16, None).expect("memory");
            part
        };
        Self {
            parts: (0..count).map(|seed| part(seed.into())).collect(),
            config,
            queued: Vec::new(),
            running: Vec::new(),
            table: None,
            now: 86_400_000 * MS,
            next: 0,
            ended: 0,
            taken: 0,
        }
    }

    /// Returns the number of requests queued on part `home`.
    fn count(&self, home: usize) -> usize {
        self.queued
            .iter()
            .filter(|queued| queued.home == home)
            .count()
    }

    /// Returns true if requests of a class are served in the order of their arrival.
    fn is_in_order(&self) -> bool {
        match &self.config {
            Config::Fifo(_) | Config::Tbf(_) | Config::Qbm(_) => true,
            Config::Fairshare(config) => config.tunables.locality == Locality::Off,
            _ => false,
        }
    }

    /// Checks the invariants.
    fn check(&self) {
        for (home, part) in self.parts.iter().enumerate() {
            assert_eq!(part.len() as usize, self.count(home), "{:?}", self.config);
            assert_eq!(part.is_empty(), part.len() == 0);
        }
    }

    /// Enqueues a request; if `fed` is false, memory for a new class may be missing.
    fn arrive(&mut self, home: usize, bytes: &mut Bytes<'_>, fed: bool) {
        let owner = bytes.byte();
        let size = bytes.byte();
        let part = &mut self.parts[home];
        if fed {
            feed(part);
        }
        let attrs = who(owner);
        let class = part.classify(&attrs, self.now);
        let mut request = Request {
            owner: owner.into(),
            id: self.next,
            pages: 1 + u32::from(size),
            arrival: self.now,
            range: ByteRange::new(attrs.object, u64::from(size % 16) << 20, 4096),
            direction: [Direction::Read, Direction::Write, Direction::Other][usize::from(size) % 3],
            ..Request::default()
        };
        let place = request.register();
        let id = self.next;
        self.next += 1;
        match part.enqueue(request, class, self.now) {
            Ok(()) => self.queued.push(Queued {
                id,
                home,
                class,
                place,
            }),
            Err(mut request) => {
                assert_eq!(request.id, id);
                request.unregister(place);
                self.taken += 1;
            }
        }
    }

    /// Dispatches a request, if one is eligible; returns the time until which all requests are
    /// throttled, if they are.
    fn get(&mut self, home: usize, force: bool) -> Option<u64> {
        let view = PartView {
            now: self.now,
            force,
            table: self.table.as_ref(),
        };
        let peeked = self.parts[home].peek(&view);
        let got = self.parts[home].get(&view);
        match (&peeked, &got) {
            (Decision::Item(()), Decision::Item(_)) | (Decision::Empty, Decision::Empty) => {}
            (Decision::Throttled { until }, Decision::Throttled { until: at }) if until == at => {}
            // `peek` may miss limits of the first classes, because they are checked late.
            (Decision::Item(()), Decision::Throttled { .. })
                if matches!(self.config.kind(), Kind::Tbf | Kind::Qbm) => {}
            _ => panic!("{peeked:?}, then {got:?}: {:?}", self.config),
        }
        match got {
            Decision::Item((mut request, grant)) => {
                let at = self
                    .queued
                    .iter()
                    .position(|queued| queued.id == request.id);
                let queued = self.queued.swap_remove(at.expect("it is queued once"));
                assert_eq!(queued.home, home);
                let mut behind = self.queued.iter().filter(|other| other.home == home);
                let is_first =
                    behind.all(|other| other.class != queued.class || other.id > queued.id);
                assert!(is_first || !self.is_in_order(), "{:?}", self.config);
                request.unregister(queued.place);
                self.running.push((home, request, grant));
                None
            }
            Decision::Throttled { until } => {
                assert!(until > self.now && !force, "{:?}", self.config);
                assert!(self.count(home) > 0);
                Some(until)
            }
            Decision::Empty => {
                assert_eq!(self.count(home), 0, "{:?}", self.config);
                None
            }
        }
    }

    /// Ends a running request.
    fn stop(&mut self, at: u8) {
        if self.running.is_empty() {
            return;
        }
        let at = usize::from(at) % self.running.len();
        let (home, request, grant) = self.running.swap_remove(at);
        self.parts[home].stop(&grant, request.cost(), self.now);
        self.ended += 1;
    }

    /// Removes a queued request.
    fn dequeue(&mut self, at: u8) {
        if self.queued.is_empty() {
            return;
        }
        let at = usize::from(at) % self.queued.len();
        let queued = self.queued.swap_remove(at);
        let part = &mut self.parts[queued.home];
        let found = part.dequeue(queued.class, &queued.place, self.now);
        let mut request = found.expect("it is queued");
        assert_eq!(request.id, queued.id);
        assert!(part
            .dequeue(queued.class, &queued.place, self.now)
            .is_none());
        request.unregister(queued.place);
        self.taken += 1;
    }

    /// Passes a request without queueing.
    fn pass(&mut self, home: usize, owner: u8, way: BypassReason) {
        let (part, now) = (&mut self.parts[home], self.now);
        let class = part.classify(&who(owner), now);
        let cost = Request {
            pages: 1 + u32::from(owner),
            ..Request::default()
        };
        let passed = part.pass(class, cost.cost(), way, || now);
        assert!(way == BypassReason::Opportunity || passed != BypassOutcome::Refused);
        if way == BypassReason::Opportunity
            && passed == BypassOutcome::Counted
            && self.config.kind() == Kind::Tbf
        {
            let mut queued = self.queued.iter().filter(|queued| queued.home == home);
            assert!(queued.all(|queued| queued.class != class));
        }
    }

    /// Passes an update to all parts.
    fn update(&mut self, which: u8) {
        let update = match &self.config {
            Config::Tbf(config) => {
                let mut rule_list = config.rule_list().expect("memory");
                for rule in RULES[usize::from(which) % RULES.len()] {
                    // Some fields are not fields of the policy.
                    let command =
                        RuleCommand::parse(rule).unwrap_or_else(|e| panic!("{rule}: {e}"));
                    rule_list = rule_list.apply(&command).unwrap_or(rule_list);
                }
                let rules = Shared::new(rule_list.compile(u64::from(which)).expect("memory"));
                let update = tbf::Update::new(rules.expect("memory"), config);
                AnyUpdate::Tbf(update.expect("memory"))
            }
            Config::Fairshare(config) => {
                let text = WEIGHTS[usize::from(which) % WEIGHTS.len()];
                let weights = Weights::new().apply(text).expect("valid");
                let weights = Shared::new(weights).expect("memory");
                let mut tunables = config.tunables;
                tunables.cross_cpt = CrossCpt::ALL[usize::from(which % 2)];
                AnyUpdate::Fairshare(Shares::new(weights, &tunables))
            }
            Config::Delay(_) => {
                let (min, pct) = (u32::from(which % 5), u32::from(which) % 101);
                AnyUpdate::Delay(DelayUpdate(DelaySetting::new(min, min + 1, pct)))
            }
            _ => return,
        };
        for part in &mut self.parts {
            drop(part.update(update.clone(), self.now));
        }
    }

    /// Publishes the shares, as the worker does.
    fn publish(&mut self) {
        let mut builder = RangeBuilder::new();
        let mut buf = NodeReports::new().expect("memory");
        for part in &mut self.parts {
            let mut from = Some(0);
            while let Some(idx) = from {
                buf.clear();
                from = part.node_reports(idx, self.now, &mut buf);
                builder.extend(buf.as_slice()).expect("memory");
            }
        }
        self.table = Some(builder.build().expect("memory").table);
    }

    /// Visits all classes, `max` at a time.
    fn sweep(&mut self, home: usize, which: u8) {
        let (part, max) = (&mut self.parts[home], 1 + u32::from(which / 4));
        let mut from = Some(0);
        for _ in 0..4096 {
            let Some(idx) = from else {
                return;
            };
            from = match which % 4 {
                0 => part.refresh(idx, max, self.now),
                1 => part.reset(idx, max),
                _ => part.age(self.now, max).then_some(0),
            };
        }
        // Two levels of 64 classes, one at a time, end long before.
        assert!(which % 4 > 1, "it never ends: {:?}", self.config);
    }

    /// Dispatches all queued requests, in the normal way on even parts, else by force.
    fn drain(&mut self) {
        for home in 0..self.parts.len() {
            walk(&mut self.parts[home], self.now);
            let mut waits = 0;
            while self.count(home) > 0 {
                let before = self.queued.len();
                if let Some(until) = self.get(home, home % 2 == 1) {
                    // A request is eligible at the time that the part returned.
                    self.now = until;
                    waits += 1;
                    assert!(waits < 64, "always later: {:?}", self.config);
                }
                if self.queued.len() < before {
                    waits = 0;
                }
            }
        }
        while !self.running.is_empty() {
            self.stop(0);
        }
        self.check();
        assert_eq!(self.ended + self.taken, self.next);
    }
}

/// Interprets the bytes as a configuration and operations.
pub fn run(data: &[u8]) {
    let bytes = &mut Bytes(data);
    let mut model = Model::new(bytes);
    for _ in 0..OPERATIONS {
        let Some(operation) = bytes.next() else {
            break;
        };
        let home = usize::from(operation / 16) % model.parts.len();
        match operation % 16 {
            0..=4 => model.arrive(home, bytes, operation % 16 < 4),
            5..=7 => drop(model.get(home, false)),
            8 => drop(model.get(home, true)),
            9 | 10 => model.stop(bytes.byte()),
            11 => model.dequeue(bytes.byte()),
            12 => {
                // Up to two minutes, in steps of at least a nanosecond.
                let step = bytes.byte();
                model.now += (u64::from(step % 16) + 1) << (step / 16 * 2).min(33);
            }
            13 => {
                let ways = [
                    BypassReason::Opportunity,
                    BypassReason::Forced { contended: true },
                    BypassReason::Merged,
                ];
                let way = ways[usize::from(operation / 64) % ways.len()];
                model.pass(home, bytes.byte(), way);
            }
            14 => match bytes.byte() {
                which @ 0..=127 => model.update(which),
                128..=191 => model.publish(),
                _ => walk(&mut model.parts[home], model.now),
            },
            _ => model.sweep(home, bytes.byte()),
        }
        model.check();
    }
    model.drain();
}
