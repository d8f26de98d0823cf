// SPDX-License-Identifier: GPL-2.0-only

//! Clients without any attribute (name, address, object) beside clients with all attributes. Under
//! every policy, mode and type they get best effort.

use crate::settings::{self, Setting};
use nrs_sched::{
    arena::{feed, hand_gates, lone_part, view, walk, Request},
    attr::{Attrs, Id, Opcode},
    item::{ByteRange, Cost, Direction, Item},
    jobid::JobId,
    nid::Nid,
    policy::{
        robin::params::Supported, AnyPart, BypassOutcome, BypassReason, Config, Decision, Kind,
        Part, Tunables,
    },
    sim::SECOND,
};

const START: u64 = 86_400 * SECOND;

/// Number of requests that each client keeps queued.
const DEPTH: u32 = 8;

/// Attributes of a request of which nothing is known.
const NOBODY: Attrs = Attrs {
    opcode: Opcode::NONE,
    ..Attrs::UNKNOWN
};

/// Returns client `i` with all attributes set.
fn aware(i: u32) -> Attrs {
    Attrs {
        nid: Nid::parse(&format!("10.0.0.{}@tcp", i + 1)).ok(),
        jobid: JobId::new(format!("job.{i}").as_bytes()),
        uid: Id::new(1_000 + i),
        gid: Id::new(100 + i / 2),
        projid: Id::new(i),
        nodemap: Id::new(i),
        client: i + 1,
        target: i % 2,
        stream: u64::from(i) + 1,
        object: 7 + u64::from(i),
        length: 4096,
        ..Attrs::UNKNOWN
    }
}

/// Returns all policies, with every mode of `fairshare`.
fn settings() -> Vec<Setting> {
    let modes = [
        "jobid_fair",
        "uid_fair",
        "gid_fair",
        "projid_fair",
        "nid_fair",
        "nodemap_fair",
        "size_fair",
        "gid_then_uid_fair",
        "uid_then_jobid_fair",
        "gid_then_uid_then_jobid_fair",
        "nodemap_then_nid_fair",
    ];
    settings::all(&modes)
}

/// A part with 4 clients with all attributes and one without, all backlogged.
struct UnawareBench {
    name: String,
    part: AnyPart<Request>,
    now: u64,
    next: u64,
    /// Direction of the unaware client's requests.
    direction: Direction,
    /// Number of the unaware client's last served request.
    last: u64,
    /// True if requests of a class are served in the order of their arrival.
    in_order: bool,
    /// Number of requests queued and served by client, the unaware one last.
    queued: [u32; 5],
    served: [u64; 5],
    /// Declined requests. The fallback serves them: one for each request that the policy serves.
    fallback: Vec<Request>,
    /// Longest time that the unaware client was backlogged without service, in requests of other
    /// clients.
    longest: u64,
    since: u64,
}

impl UnawareBench {
    fn new(kind: Kind, argument: Option<&str>, tunables: &Tunables) -> Self {
        let config = Config::parse(kind, argument, tunables);
        let config = config.unwrap_or_else(|error| panic!("{argument:?}: {error:?}"));
        let mut part = lone_part(&config, 1).expect("memory");
        // The same bandwidth for all clients.
        hand_gates(&mut part, 64, Some(50_000_000)).expect("memory");
        Self {
            name: format!(
                "{} {argument:?} by {} {} locality {}",
                kind.name(),
                tunables.qbm.by,
                tunables.fairshare.select,
                tunables.fairshare.locality
            ),
            part,
            now: START,
            next: 0,
            queued: [0; 5],
            served: [0; 5],
            direction: match tunables.orr.supported.regular {
                Supported::Both => Direction::Write,
                _ => Direction::Other,
            },
            last: 0,
            in_order: kind != Kind::Delay,
            fallback: Vec::new(),
            longest: 0,
            since: 0,
        }
    }

    fn fill(&mut self) {
        for client in 0..5 {
            let attrs = match client {
                4 => NOBODY,
                i => aware(i as u32),
            };
            while self.queued[client] < DEPTH {
                let class = self.part.classify(&attrs, self.now);
                feed(&mut self.part);
                walk(&mut self.part, self.now);
                let range = match client {
                    4 => ByteRange::default(),
                    _ => ByteRange::new(attrs.object, self.next << 12, 4096),
                };
                let request = Request {
                    owner: client as u32,
                    id: self.next,
                    pages: 1,
                    arrival: self.now,
                    range,
                    direction: match client {
                        4 => self.direction,
                        _ => Direction::Read,
                    },
                    ..Request::default()
                };
                self.next += 1;
                self.queued[client] += 1;
                if let Err(request) = self.part.enqueue(request, class, self.now) {
                    self.fallback.push(request);
                }
            }
        }
    }

    fn count(&mut self, request: Request) {
        let client = request.owner as usize;
        self.queued[client] -= 1;
        self.served[client] += 1;
        let all: u64 = self.served.iter().sum();
        if client == 4 {
            assert!(!self.in_order || request.id >= self.last, "{}", self.name);
            (self.since, self.last) = (all, request.id);
        } else if self.queued[4] > 0 {
            self.longest = self.longest.max(all - self.since);
        }
    }

    /// Serves a request of the part, and one of the fallback if it has any; returns false if both
    /// are empty.
    fn serve(&mut self) -> bool {
        let mut any = false;
        if !self.fallback.is_empty() {
            let request = self.fallback.remove(0);
            self.count(request);
            any = true;
        }
        loop {
            match self.part.get(&view(self.now, false)) {
                Decision::Item((request, grant)) => {
                    self.now += 40_000;
                    self.part.stop(&grant, request.cost(), self.now);
                    self.count(request);
                    return true;
                }
                Decision::Throttled { until } if !any => self.now = until,
                _ => return any,
            }
        }
    }
}

/// Checks that one client without attributes gets its share beside four with all attributes, and
/// waits for no more than their turns.
#[test]
fn beside_aware_ones() {
    for (kind, argument, tunables) in settings() {
        // Only these policies decline requests that neither read nor write.
        let may_decline = matches!(kind, Kind::Orr | Kind::Trr | Kind::Delay);
        let mut bench = UnawareBench::new(kind, argument, &tunables);
        for _ in 0..6_000 {
            bench.fill();
            assert!(may_decline || bench.fallback.is_empty(), "{}", bench.name);
            assert!(bench.serve(), "{}", bench.name);
        }
        let all: u64 = bench.served.iter().sum();
        let fifth = bench.served[4] as f64 / all as f64;
        // The client has a class of its own beside one to four others, or shares a common class.
        assert!(fifth > 0.10, "{}: {:?}", bench.name, bench.served);
        // Batches of at most 256 requests of each of the other clients.
        assert!(
            bench.longest <= 4 * 256 + 64,
            "{}: {}",
            bench.name,
            bench.longest
        );
        // All queued requests are served in the end.
        while bench.serve() {}
        assert_eq!(bench.queued, [0; 5], "{}", bench.name);
        assert_eq!(
            bench.served.iter().sum::<u64>(),
            bench.next,
            "{}",
            bench.name
        );
    }
}

/// Checks that requests without attributes pass like others when the service is under-loaded, and
/// always when they must.
#[test]
fn past_the_queues() {
    for (kind, argument, tunables) in settings() {
        let mut bench = UnawareBench::new(kind, argument, &tunables);
        let cost = Cost::of_bytes(0);
        for way in [
            BypassReason::Opportunity,
            BypassReason::Forced { contended: true },
            BypassReason::Merged,
        ] {
            let class = bench.part.classify(&NOBODY, START);
            let other = bench.part.classify(&aware(1), START);
            walk(&mut bench.part, START);
            let passed = bench.part.pass(class, cost, way, || START);
            assert_eq!(
                passed,
                bench.part.pass(other, cost, way, || START),
                "{}",
                bench.name
            );
            if way != BypassReason::Opportunity {
                assert_eq!(passed, BypassOutcome::Counted, "{}", bench.name);
            }
        }
    }
}

/// Checks that one known field identifies a class if the mode uses the field; no other field is
/// required.
#[test]
fn a_single_field() {
    let known = aware(1);
    type SetField = fn(&mut Attrs, &Attrs);
    let fields: [(&str, SetField); 5] = [
        ("jobid_fair", |attrs, known| attrs.jobid = known.jobid),
        ("uid_fair", |attrs, known| attrs.uid = known.uid),
        ("gid_fair", |attrs, known| attrs.gid = known.gid),
        ("nid_fair", |attrs, known| attrs.nid = known.nid),
        ("gid_then_uid_fair", |attrs, known| attrs.uid = known.uid),
    ];
    for (mode, set) in fields {
        let mut attrs = NOBODY;
        set(&mut attrs, &known);
        let config =
            Config::parse(Kind::Fairshare, Some(mode), &Tunables::default()).expect("valid");
        let mut part = lone_part::<Request>(&config, 1).expect("memory");
        let (one, nobody) = (part.classify(&attrs, START), part.classify(&NOBODY, START));
        assert_ne!(one, nobody, "{mode}");
        assert!(part.is_live(one) && part.is_live(nobody), "{mode}");
    }
}
