// SPDX-License-Identifier: GPL-2.0-only

//! A policy on one to three partitions. The first bytes are its configuration; each byte after them
//! is an operation, followed by its operands.
//!
//! ```text
//!  arrive ──▶ queued ──▶ running ──▶ ended
//!                │  get        stop
//!                └─ dequeue ──▶ removed
//! ```

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use nrs_sched::{
    arena::{feed, hand_gates, walk, Number, Request},
    attr::{Attrs, CgroupPath, Id},
    class::ClassId,
    item::{ByteRange, Direction, Item},
    jobid::JobId,
    mem::Shared,
    nid::Nid,
    parameters::{all, Values},
    policy::{
        delay::{Setting as DelaySetting, Update as DelayUpdate},
        fairshare::{
            entity_table::Weights,
            params::{CrossCpt, Locality},
            Update as Shares,
        },
        params::{BufferMax, ClassesMax},
        tbf, AnyPart, AnyShared, AnyUpdate, BypassOutcome, BypassReason, Config, Decision, Grant,
        Kind, Part, PartView, Tuning,
    },
    qbm::plan::By,
    ranges::{NodeReports, RangeBuilder, RangeTable},
    rules::RuleCommand,
    units::NSEC_PER_MSEC as MS,
};

/// Arguments of `fairshare` and of `tbf`.
const FAIR: &str = "uid_fair size_fair jobid_fair gid_then_uid_fair gid_then_uid_then_jobid_fair \
                    nid_then_projid_then_nodemap_then_size_fair";
const FIELDS: &str = "uid nid jobid+opcode generic";

/// Sets of rules of `tbf`, one per line; each update selects one.
const RULES: [&str; 5] = [
    "start a uid={0 1 2} rate=7",
    "start a uid={3} rate=1000 minrate=10
start b jobid={j*}&uid={1 2} rate=10MiB/s
start c nid={10.0.0.[1-3]@tcp} rate=50 realtime=1",
    "change default rate=3
start x gid={0 1} rate=400 borrow=1",
    "start a uid={1 2 3} rate=100
start b uid={3 4} rate=1MiB/s minrate=64KiB/s
start c uid={5 6 7} rate=50 borrow=1
start d uid={1 5 8} rate=3 also=a+b
start e uid={2 6 9} rate=5 also=a realtime=1 borrow=1
stop c
change a rate=10000000",
    "start a uid={1 2 3} rate=7 minrate=2
start b uid={3 4} rate=1B/s
start d uid={1 5 8} rate=3 also=a+b
change d also=",
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
fn who(owner: u8) -> Attrs {
    let id = u32::from(owner);
    let nid = Nid::parse(&format!("10.0.0.{}@tcp", owner % 5)).ok();
    Attrs {
        nid: nid.filter(|_| owner % 7 > 0),
        uid: [Id::new(id), Id::ABSENT][usize::from(owner % 11 == 10)],
        gid: Id::new(id / 4),
        projid: Id::new(id % 3),
        nodemap: Id::new(id % 2),
        cgroup: CgroupPath::intern(format!("/{}", id % 5).as_bytes()).unwrap(),
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
}

/// Returns a policy, and values of all parameters of the policy, selected by the next bytes.
pub(crate) fn config(bytes: &mut Unstructured<'_>) -> Result<Config> {
    let kind = *bytes.choose(Kind::ALL)?;
    let prefix = format!("nrs_{}_", kind.name());
    let mut values = Values::default();
    for parameter in all().filter(|parameter| parameter.name().starts_with(&prefix)) {
        if let Some(stored) = &parameter.value {
            // The limits of a number or the words of a choice, and other numbers.
            let takes = parameter.takes.split([' ', ',']);
            let texts: Vec<&str> = takes
                .chain(["1", "2", "3", "8", "10", "50", "256", "1000"])
                .collect();
            // Refused: the value remains.
            let _ = values.set(stored, bytes.choose(&texts)?);
        }
    }
    values.set_buffer_max(BufferMax::new(256).expect("within limits"));
    let mut tunables = values.policies;
    tunables.set_classes_max(ClassesMax::new(64).expect("within limits"));
    let argument = match kind {
        Kind::Fairshare => FAIR.split(' ').cycle().nth(bytes.arbitrary::<u8>()?.into()),
        Kind::Tbf => FIELDS
            .split(' ')
            .cycle()
            .nth(bytes.arbitrary::<u8>()?.into()),
        Kind::Qbm => {
            tunables.qbm.by = *bytes.choose(By::ALL)?;
            None
        }
        _ => None,
    };
    Ok(Config::parse(kind, argument, &tunables).expect("valid"))
}

impl Model {
    fn new(bytes: &mut Unstructured<'_>) -> Result<Self> {
        let config = config(bytes)?;
        let count = 1 + u32::from(bytes.arbitrary::<u8>()? % 3);
        let shared = AnyShared::new(&config, 7, count).expect("memory");
        let part = |seed| {
            let mut part = AnyPart::new(&config, seed, &shared).expect("memory");
            hand_gates(&mut part, 16, None).expect("memory");
            part
        };
        Ok(Self {
            parts: (0..count).map(|seed| part(seed.into())).collect(),
            config,
            queued: Vec::new(),
            running: Vec::new(),
            table: None,
            now: 86_400_000 * MS,
            next: 0,
        })
    }

    /// Returns the number of requests queued on part `home`.
    fn count(&self, home: usize) -> usize {
        let here = |queued: &&Queued| queued.home == home;
        self.queued.iter().filter(here).count()
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
    fn arrive(&mut self, home: usize, (owner, size): (u8, u8), fed: bool) {
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
                let mut all = self.queued.iter();
                let at = all.position(|queued| queued.id == request.id);
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
        let Some(at) = usize::from(at).checked_rem(self.running.len()) else {
            return;
        };
        let (home, request, grant) = self.running.swap_remove(at);
        self.parts[home].stop(&grant, request.cost(), self.now);
    }

    /// Removes a queued request.
    fn dequeue(&mut self, at: u8) {
        let Some(at) = usize::from(at).checked_rem(self.queued.len()) else {
            return;
        };
        let queued = self.queued.swap_remove(at);
        let (part, place) = (&mut self.parts[queued.home], queued.place);
        let found = part.dequeue(queued.class, &place, self.now);
        let mut request = found.expect("it is queued");
        assert_eq!(request.id, queued.id);
        assert!(part.dequeue(queued.class, &place, self.now).is_none());
        request.unregister(place);
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
                for rule in RULES[usize::from(which) % RULES.len()].lines() {
                    // Some fields are not fields of the policy.
                    let command = RuleCommand::parse(rule).expect(rule);
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
                match self.get(home, home % 2 == 1) {
                    // A request is eligible at the time that the part returned.
                    Some(until) => (self.now, waits) = (until, waits + 1),
                    None => waits = 0,
                }
                assert!(waits < 64, "always later: {:?}", self.config);
            }
        }
        while !self.running.is_empty() {
            self.stop(0);
        }
        self.check();
    }
}

/// Interprets the bytes as a configuration and operations.
fn run(bytes: &mut Unstructured<'_>) -> Result<()> {
    let mut model = Model::new(bytes)?;
    for _ in 0..OPERATIONS {
        if bytes.is_empty() {
            break;
        }
        let operation: u8 = bytes.arbitrary()?;
        let home = usize::from(operation / 16) % model.parts.len();
        match operation % 16 {
            0..=4 => model.arrive(home, bytes.arbitrary()?, operation % 16 < 4),
            5..=7 => drop(model.get(home, false)),
            8 => drop(model.get(home, true)),
            9 | 10 => model.stop(bytes.arbitrary()?),
            11 => model.dequeue(bytes.arbitrary()?),
            12 => {
                // Up to two minutes, in steps of at least a nanosecond.
                let step: u8 = bytes.arbitrary()?;
                model.now += (u64::from(step % 16) + 1) << (step / 16 * 2).min(33);
            }
            13 => {
                let ways = [
                    BypassReason::Opportunity,
                    BypassReason::Forced { contended: true },
                    BypassReason::Merged,
                ];
                let way = ways[usize::from(operation / 64) % ways.len()];
                model.pass(home, bytes.arbitrary()?, way);
            }
            14 => match bytes.arbitrary()? {
                which @ 0..=127 => model.update(which),
                128..=191 => model.publish(),
                _ => walk(&mut model.parts[home], model.now),
            },
            _ => model.sweep(home, bytes.arbitrary()?),
        }
        model.check();
    }
    model.drain();
    Ok(())
}

/// Interprets the bytes as a configuration and operations.
pub(crate) fn part(data: &[u8]) {
    run(&mut Unstructured::new(data)).expect("zeros follow the last byte");
}
