// SPDX-License-Identifier: GPL-2.0-only

//! Effect of a user with many names on others: their shares, rates and latencies do not change.

use nrs_sched::{
    arena::{feed, reserve, view, Request},
    attr::{Attrs, Id},
    item::Item,
    jobid::JobId,
    mem::Need,
    nid::Nid,
    policy::{params::ClassesMax, AnyPart, AnyShared, Config, Decision, Kind, Part, Tunables},
    rng::Rng,
    units::{NSEC_PER_MSEC as MS, NSEC_PER_SEC as SECOND},
};

/// Number of requests served before the measurement.
const SETTLED: u64 = 1_000;

/// Size of the class table.
const CLASSES: u32 = 64;

fn job(uid: u32, name: &str) -> Attrs {
    Attrs {
        uid: Id::new(uid),
        gid: Id::new(uid),
        jobid: JobId::new(name.as_bytes()),
        ..Attrs::UNKNOWN
    }
}

/// Function that returns the attributes of each request of a storm.
type Storm = fn(u64) -> Attrs;

/// Returns a new job name: a thread of user 1 renames itself, or each of its programs runs in a new
/// cgroup.
fn names(i: u64) -> Attrs {
    job(1, &format!("job{i}.1"))
}

/// Returns a random job identifier of user 1.
fn random(i: u64) -> Attrs {
    job(1, &format!("{:016x}", Rng::new(i).next_u64()))
}

/// Returns a client of user 1 with a new address.
fn addresses(i: u64) -> Attrs {
    let nid = format!("10.{}.{}.{}@tcp", (i >> 16) & 255, (i >> 8) & 255, i & 255);
    Attrs {
        nid: Nid::parse(&nid).ok(),
        ..job(1, "job")
    }
}

/// Returns a new user of group 1.
fn users(i: u64) -> Attrs {
    Attrs {
        gid: Id::new(1),
        ..job(1_000 + i as u32, &format!("job{i}"))
    }
}

/// Returns the only job of user 1.
fn alone(_: u64) -> Attrs {
    job(1, "job")
}

/// Service of the victim.
#[derive(Debug)]
struct Got {
    /// Fraction of all requests served.
    share: f64,
    /// Smallest service of a job divided by the largest.
    evenness: f64,
    /// 99th percentile of waits, in requests served meanwhile.
    p99: u64,
}

/// A head with requests of user 2 (the victim) and of a storm.
struct StormBench {
    part: AnyPart<Request>,
    now: u64,
    id: u64,
    stormed: u64,
    storm: Storm,
}

impl StormBench {
    fn new(mode: &str, storm: Storm) -> Self {
        let mut tunables = Tunables::default();
        tunables.fairshare.classes_max = ClassesMax::new(CLASSES).expect("within limits");
        let config = Config::parse(Kind::Fairshare, Some(mode), &tunables).expect("valid");
        let shared = AnyShared::new(&config, 9, 1).expect("memory");
        reserve(1 << 14).expect("memory");
        Self {
            part: AnyPart::new(&config, 5, &shared).expect("memory"),
            now: 86_400 * SECOND,
            id: 0,
            stormed: 0,
            storm,
        }
    }

    /// Enqueues a request; then the part gets the memory that it needs, as in the kernel.
    fn bring(&mut self, owner: u32, attrs: &Attrs) {
        let class = self.part.classify(attrs, self.now);
        self.id += 1;
        let request = Request::new(owner, self.id, 1, self.now);
        assert!(self.part.enqueue(request, class, self.now).is_ok());
        if !self.part.need().is_empty() {
            feed(&mut self.part);
        }
    }

    fn storm(&mut self) {
        self.stormed += 1;
        self.bring(0, &(self.storm)(self.stormed));
    }

    /// Serves a request; returns its owner and its arrival time, ns.
    fn serve(&mut self) -> (u32, u64) {
        self.now += MS;
        let Decision::Item((request, grant)) = self.part.get(&view(self.now, false)) else {
            panic!("nothing is held back");
        };
        self.part.stop(&grant, request.cost(), self.now);
        if self.id % 1_000 == 0 {
            self.part.age(self.now, 64);
        }
        (request.owner, request.arrival)
    }

    /// Runs a storm that keeps `backlog` requests queued, each with another name. Once the storm
    /// has filled the table, each of `jobs` keeps eight requests queued.
    fn run(&mut self, backlog: u64, jobs: &[Attrs]) -> Got {
        (0..backlog).for_each(|_| self.storm());
        for (owner, attrs) in (1..).zip(jobs) {
            (0..8).for_each(|_| self.bring(owner, attrs));
        }
        let mut served = vec![0u64; jobs.len() + 1];
        let mut waits = Vec::new();
        for step in 0..11_000 {
            let (owner, arrival) = self.serve();
            if step >= SETTLED {
                served[owner as usize] += 1;
            }
            if owner == 0 {
                self.storm();
                continue;
            }
            if step >= SETTLED {
                waits.push((self.now - arrival) / MS);
            }
            self.bring(owner, &jobs[owner as usize - 1]);
        }
        waits.sort_unstable();
        let (all, victim) = (served.iter().sum::<u64>(), &served[1..]);
        let least = *victim.iter().min().expect("a job") as f64;
        Got {
            share: victim.iter().sum::<u64>() as f64 / all as f64,
            evenness: least / *victim.iter().max().expect("a job") as f64,
            p99: waits[waits.len() * 99 / 100],
        }
    }
}

/// Checks that a user with a new name per request gets only its share, and does not delay others.
#[test]
fn names_take_nothing_from_other_users() {
    let jobs = [job(2, "a"), job(2, "b")];
    for (mode, storm) in [
        ("uid_then_jobid_fair", names as Storm),
        ("uid_then_jobid_fair", random),
        ("uid_then_nid_fair", addresses),
        ("gid_then_uid_then_jobid_fair", names),
        ("gid_then_uid_then_jobid_fair", users),
        ("gid_then_uid_fair", users),
    ] {
        let alone_result = StormBench::new(mode, alone).run(1_000, &jobs);
        let got = StormBench::new(mode, storm).run(1_000, &jobs);
        assert!((got.share - 0.5).abs() <= 0.025, "{mode}: {got:?}");
        assert!(
            got.p99 <= 2 * alone_result.p99,
            "{mode}: {got:?}, alone {alone_result:?}"
        );
    }
}

/// Checks several users that arrive at a full table filled by one user's many jobs: they get equal
/// shares.
#[test]
fn full_table_admits_new_users() {
    let mut bench = StormBench::new("uid_then_jobid_fair", names);
    (0..1_000).for_each(|_| bench.storm());
    let overflow = bench.part.overflow();
    assert!(overflow > 900, "{overflow}");
    let jobs: Vec<Attrs> = (2..5).map(|uid| job(uid, "job")).collect();
    let got = bench.run(0, &jobs);
    assert!((got.share - 0.75).abs() <= 0.0375, "{got:?}");
    assert!(got.evenness >= 0.95, "{got:?}");
}

/// Checks that a thousand new jobs between two runs of the worker have classes of their own: the
/// submitters allocate memory.
#[test]
fn a_burst_has_classes() {
    for mode in ["jobid_fair", "uid_then_jobid_fair"] {
        let mut bench = StormBench::new(mode, names);
        let mut tunables = Tunables::default();
        tunables.fairshare.classes_max = ClassesMax::new(16_384).expect("within limits");
        let config = Config::parse(Kind::Fairshare, Some(mode), &tunables).expect("valid");
        let shared = AnyShared::new(&config, 9, 1).expect("memory");
        bench.part = AnyPart::new(&config, 5, &shared).expect("memory");
        (0..1_000).for_each(|_| bench.storm());
        assert_eq!(bench.part.overflow(), 0, "{mode}");
    }
}
