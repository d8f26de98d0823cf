// SPDX-License-Identifier: GPL-2.0-only

//! Limits of entities under `fairshare`: maximums, minimums, bursts, classes, on one device whose
//! requests take equal time.

use nrs_sched::{
    arena::{feed, refresh, view, Number, Request},
    attr::{Attrs, CgroupPath, Id, IoPriority, Opcode},
    capacity::Capacity,
    class::ClassId,
    item::Item,
    jobid::JobId,
    mem::Shared,
    policy::{
        fairshare::{
            entity_table::Weights,
            limits::{LimitPlan, Limits},
            params::{CostModel, Locality, OppThreshold},
            Config, Shared as PartShared, State, Tunables, Update,
        },
        BypassOutcome, BypassReason, Configuration, Decision, Grant, Part, COUNTS_MAX,
    },
    rng::Rng,
    units::NSEC_PER_SEC as SECOND,
};
use std::collections::BTreeMap;

/// Clients that keep several requests queued, parts that share buckets, and one device.
struct Disk {
    parts: Vec<State<Request>>,
    plan: Option<Shared<LimitPlan>>,
    /// Number of entities for which there are buckets.
    classes: usize,
    capacity: Shared<Capacity>,
    weights: Shared<Weights>,
    tunables: Tunables,
    now: u64,
    /// Time that the device takes for a request, ns.
    service: u64,
    /// Requests and pages served, by user.
    served: BTreeMap<u32, (u64, u64)>,
    /// Users, their groups, and the pages of their requests. Users from 1,000 on write, and those
    /// from 2,000 on have an I/O priority: thousands are its class, hundreds its level, and the
    /// rest is the user.
    users: BTreeMap<u32, (u32, u32)>,
    id: u64,
}

impl Disk {
    fn new(mode: &str, parts: u32, per_second: u64) -> Self {
        Self::with(Tunables::default(), mode, parts, per_second)
    }

    fn with(tunables: Tunables, mode: &str, parts: u32, per_second: u64) -> Self {
        let config = Config::parse(Some(mode), &tunables).expect("valid");
        let shared = PartShared::new(&config, 7, parts).expect("memory");
        let shared = Shared::new(shared).expect("memory");
        let make = |seed| State::new(&config, u64::from(seed), &shared).expect("memory");
        Self {
            parts: (0..parts).map(make).collect(),
            plan: None,
            classes: 1024,
            capacity: Shared::new(Capacity::new()).expect("memory"),
            weights: Shared::new(Weights::new()).expect("memory"),
            tunables,
            now: 86_400 * SECOND,
            service: SECOND / per_second,
            served: BTreeMap::new(),
            users: BTreeMap::new(),
            id: 0,
        }
    }

    /// Creates users in groups, with requests of `pages`.
    fn with_users(mut self, users: &[(u32, u32)], pages: u32) -> Self {
        for (uid, gid) in users {
            self.users.insert(*uid, (*gid, pages));
        }
        self
    }

    /// Changes weights and limits; returns the update of the parts.
    fn change(&mut self, weights: &str, limits: &str) -> Update {
        self.weights = Shared::new(self.weights.apply(weights).expect(weights)).expect("memory");
        let before = self.plan.as_deref();
        let next = match before {
            Some(plan) => plan.limits().apply(limits),
            None => Limits::new().apply(limits),
        };
        let next = Shared::new(next.expect(limits)).expect("memory");
        let plan = LimitPlan::new(next, before, self.classes, &self.capacity).expect("memory");
        self.plan = Some(Shared::new(plan).expect("memory"));
        let in_force = self.plan.clone().filter(|plan| !plan.limits().is_empty());
        Update::new(self.weights.clone(), &self.tunables).with_limits(in_force)
    }

    /// Changes weights and limits of all parts.
    fn set(&mut self, weights: &str, limits: &str) {
        let update = self.change(weights, limits);
        for part in &mut self.parts {
            part.update(update.clone(), self.now);
            refresh(part, 2, self.now);
        }
    }

    fn attrs(uid: u32, gid: u32) -> Attrs {
        let (class, level) = ((uid / 1_000) as u16, (uid / 100 % 10) as u16);
        Attrs {
            uid: Id::new(uid % 100),
            gid: Id::new(gid),
            opcode: match class {
                0 => Opcode::OST_READ,
                _ => Opcode::OST_WRITE,
            },
            io_priority: IoPriority::from_kernel(((class.saturating_sub(1)) << 13) | level),
            ..Attrs::UNKNOWN
        }
    }

    fn push(&mut self, part: usize, uid: u32) {
        let (gid, pages) = self.users[&uid];
        self.id += 1;
        let request = Request::new(uid, self.id, pages, self.now);
        let part = &mut self.parts[part];
        feed(part);
        let class = part.classify(&Self::attrs(uid, gid), self.now);
        part.enqueue(request, class, self.now).expect("queued");
    }

    /// Queues `depth` requests of each user in each part.
    fn fill(&mut self, depth: u32) {
        let users: Vec<u32> = self.users.keys().copied().collect();
        for part in 0..self.parts.len() {
            for uid in users.iter().flat_map(|uid| vec![*uid; depth as usize]) {
                self.push(part, uid);
            }
        }
    }

    /// Changes limits part by part; each dispatches meanwhile.
    fn set_by_parts(&mut self, limits: &str) {
        let update = self.change("", limits);
        for part in 0..self.parts.len() {
            self.parts[part].update(update.clone(), self.now);
            refresh(&mut self.parts[part], 2, self.now);
            if let Decision::Item((request, grant)) = self.parts[part].get(&view(self.now, false)) {
                self.parts[part].stop(&grant, request.cost(), self.now);
                self.push(part, request.owner);
            }
        }
    }

    /// Serves for `seconds`; each user queues a request for each that ends.
    fn run(&mut self, seconds: u64) -> BTreeMap<u32, (u64, u64)> {
        let end = self.now + seconds * SECOND;
        self.served.clear();
        let mut turn = 0;
        while self.now < end {
            let mut until = end;
            let mut served = None;
            for _ in 0..self.parts.len() {
                turn = (turn + 1) % self.parts.len();
                let part = &mut self.parts[turn];
                match part.get(&view(self.now, false)) {
                    Decision::Item((request, grant)) => {
                        served = Some((request, grant));
                        break;
                    }
                    Decision::Throttled { until: at } => until = until.min(at.max(self.now + 1)),
                    Decision::Empty => {}
                }
            }
            let Some((request, grant)) = served else {
                self.now = until;
                continue;
            };
            let cost = request.cost();
            let uid = request.owner;
            self.parts[turn].stop(&grant, cost, self.now);
            let sums = self.served.entry(uid).or_default();
            *sums = (sums.0 + 1, sums.1 + u64::from(cost.pages));
            self.push(turn, uid);
            self.now += self.service;
        }
        self.served.clone()
    }

    /// Serves for `seconds`, and returns the requests/s of each user.
    fn rates(&mut self, seconds: u64) -> Vec<f64> {
        let served = self.run(seconds);
        let rate = |uid: &u32| served.get(uid).map_or(0.0, |sums| sums.0 as f64);
        self.users
            .keys()
            .map(|uid| rate(uid) / seconds as f64)
            .collect()
    }
}

/// Checks that each of `got` is within `percent` of `want`.
fn assert_near(got: &[f64], want: &[f64], percent: f64) {
    let near = got.iter().zip(want);
    let mut near = near.map(|(got, want)| (got - want).abs() <= want * percent / 100.0 + 1e-9);
    assert!(
        got.len() == want.len() && near.all(|near| near),
        "{got:?}, expected {want:?}"
    );
}

#[test]
fn the_rest_of_a_limited_user_is_shared() {
    for parts in [1, 2] {
        let mut disk = Disk::new("uid_fair", parts, 240).with_users(&[(1, 0), (2, 0), (3, 0)], 1);
        disk.set("", "uid:3:max=20");
        disk.fill(4);
        disk.run(2);
        assert_near(&disk.rates(20), &[110.0, 110.0, 20.0], 1.0);
        // Alone it still has its maximum, and all again without.
        disk.set("", "uid:1:max=1 uid:2:max=1");
        disk.run(2);
        assert_near(&disk.rates(20), &[1.0, 1.0, 20.0], 1.0);
        disk.set("", "clear");
        disk.run(2);
        assert_near(&disk.rates(20), &[80.0, 80.0, 80.0], 1.0);
    }
}

#[test]
fn maximums_are_exact_at_any_rate() {
    for rate in [1, 7, 100, 9_999, 100_000, 1_000_000] {
        let mut disk = Disk::new("uid_fair", 1, 4_000_000).with_users(&[(1, 0), (2, 0)], 1);
        disk.set("", &format!("uid:1:max={rate}"));
        // Larger requests of the other user make the first wait.
        disk.users.insert(2, (0, 8));
        disk.fill(3);
        let seconds = if rate < 100 { 100 } else { 2 };
        disk.service = if rate < 100 {
            SECOND / 400
        } else {
            disk.service
        };
        disk.run(1);
        let got = disk.rates(seconds);
        assert_near(&got[..1], &[rate as f64], 1.0);
    }
}

#[test]
fn requests_and_bytes_are_limited_at_once() {
    // Each user has its own buckets: 80 requests/s of 4 KiB, or 100 of 4 KiB by bytes.
    let mut disk = Disk::new("uid_fair", 1, 1000).with_users(&[(1, 0), (2, 0), (3, 0)], 1);
    disk.users.insert(3, (0, 16));
    disk.set("", "uid:*:max=80+400KiB/s uid:2:max=unlimited");
    disk.fill(4);
    disk.run(2);
    // 16 pages are 64 KiB, 6.25 a second.
    assert_near(&disk.rates(40)[..1], &[80.0], 1.0);
    assert_near(&disk.rates(40)[2..], &[6.25], 1.0);
}

#[test]
fn a_burst_is_spent_at_the_speed_of_the_device() {
    let mut disk = Disk::new("uid_fair", 1, 1000).with_users(&[(1, 0)], 1);
    disk.set("", "uid:1:max=20+burst=10s");
    disk.fill(4);
    let start = disk.now;
    let served = disk.run(1)[&1].0;
    assert!((200..=225).contains(&served), "{served}");
    assert!(disk.now >= start);
    assert_near(&disk.rates(10), &[20.0], 1.0);
}

/// Verifies that a maximum is exact over many partitions, from the first request on: each partition
/// takes tokens ahead of time, and dispatches when they exist.
#[test]
fn a_maximum_holds_over_all_partitions() {
    for parts in [1, 3, 8] {
        let mut disk = Disk::new("gid_then_uid_fair", parts, 100_000).with_users(&[(1, 1)], 1);
        disk.set("", "uid:1:max=400 gid:1:max=200");
        disk.fill(4);
        for seconds in 1..=5 {
            let served = disk.run(1)[&1].0;
            let first = if seconds == 1 { 3 } else { 0 };
            assert!((199..=201 + first).contains(&served), "{parts}: {served}");
        }
    }
}

/// Verifies parts of the capacity, for requests of one size and of several; without a known
/// capacity nothing is limited, and a change of the capacity takes effect at once.
#[test]
fn percents_of_the_capacity() {
    let mut disk = Disk::new("uid_fair", 2, 400).with_users(&[(1, 0), (2, 0)], 4);
    disk.set("", "uid:1:max=20%");
    disk.fill(4);
    assert_near(&disk.rates(10), &[200.0, 200.0], 1.0);
    disk.capacity.set([400, 400 * 4 * 4096]);
    disk.run(2);
    assert_near(&disk.rates(10), &[80.0, 320.0], 1.0);
    disk.set("", "uid:1:max=20%+burst=10s uid:2:max=50%");
    disk.run(2);
    assert_near(&disk.rates(10), &[80.0, 200.0], 1.0);
    disk.capacity.set([200, 200 * 4 * 4096]);
    disk.run(2);
    assert_near(&disk.rates(10), &[40.0, 100.0], 1.0);
    // A minimum beside a weight.
    disk.capacity.set([400, 400 * 4 * 4096]);
    disk.set("uid:2:9", "clear uid:1:min=25%");
    disk.run(2);
    assert_near(&disk.rates(10), &[100.0, 300.0], 2.0);
    // Small requests take their part of the requests/s, large ones of the bytes/s.
    disk.capacity.set([800, 400 * 4 * 4096]);
    disk.set("clear", "clear uid:*:max=25%");
    disk.users.insert(1, (0, 1));
    disk.run(2);
    assert_near(&disk.rates(10), &[200.0, 100.0], 2.0);
    // A change of the percentage applies to debt, too: 6.4 MiB at 1 %, 100 s.
    disk.set("", "clear uid:1:max=1%");
    disk.users.insert(1, (0, 1_638));
    disk.fill(1);
    disk.run(1);
    disk.users.insert(1, (0, 4));
    disk.set("", "uid:1:max=100%");
    disk.run(60);
    assert_near(&disk.rates(10), &[200.0, 200.0], 2.0);
}

/// Verifies that reads and writes of a user have limits apart, and do not wait for each other.
#[test]
fn reads_and_writes_apart() {
    let users = [(1, 0), (1_001, 0), (2, 0), (1_002, 0)];
    for parts in [1, 2] {
        let mut disk = Disk::new("uid_then_opcode_fair", parts, 400).with_users(&users, 1);
        disk.set("", "uid:1&opcode:ost_write:max=20");
        disk.fill(4);
        disk.run(2);
        // The user's reads take what the writes leave of the user's half.
        assert_near(&disk.rates(20), &[180.0, 100.0, 20.0, 100.0], 1.0);
        // All users' writes, each user's at the limit; a maximum of the user holds over both.
        disk.set("", "clear uid:*&opcode:ost_write:max=10 uid:2:max=100");
        disk.run(2);
        assert_near(&disk.rates(20), &[290.0, 90.0, 10.0, 10.0], 1.0);
        disk.set("opcode:ost_read:3", "clear");
        disk.run(2);
        assert_near(&disk.rates(20), &[150.0, 150.0, 50.0, 50.0], 1.0);
    }
}

/// Verifies that I/O priorities divide what a user has, by level and class, and not what others
/// have.
#[test]
fn io_priorities() {
    // User 1 with be-0, be-4 and be-7, user 2 idle, and user 3 without a priority.
    let users = [(3_001, 0), (3_401, 0), (3_701, 0), (4_002, 0), (3, 0)];
    let mut disk = Disk::new("uid_then_ioprio_fair", 1, 390).with_users(&users, 1);
    disk.fill(16);
    disk.run(2);
    assert_near(&disk.rates(40), &[130.0, 80.0, 40.0, 10.0, 130.0], 1.0);
    // Idle requests get what others leave, and real-time ones nearly all.
    let users = [(3_401, 0), (4_001, 0)];
    let mut disk = Disk::new("ioprio_then_uid_fair", 1, 400).with_users(&users, 1);
    disk.set("", "ioprio:idle:class=normal");
    disk.fill(4);
    assert_near(&disk.rates(20), &[320.0, 80.0], 1.0);
    let users = [(3_401, 0), (4_001, 0), (4_002, 0), (2_002, 0)];
    let mut disk = Disk::new("ioprio_then_uid_fair", 1, 400).with_users(&users, 1);
    disk.fill(16);
    disk.run(2);
    let got = disk.rates(20);
    assert_near(&got[..1], &[400.0 * 800.0 / 804.0], 1.0);
    assert!(got[1] > 1.0 && got[2] + got[3] < 1.0, "{got:?}");
}

/// Verifies that tokens reserved under one limit neither delay nor speed up requests under another
/// one.
#[test]
fn reservations_follow_changes_of_limits() {
    let make = |parts| {
        let disk = Disk::new("uid_fair", parts, 1000);
        let mut disk = disk.with_users(&[(1, 0), (2, 0)], 256);
        disk.set("", "uid:1:max=10KB/s uid:2:max=1000");
        disk.fill(4);
        disk.run(1);
        disk
    };
    // In another unit, at once.
    let mut disk = make(1);
    disk.set("", "-uid:1");
    disk.run(1);
    disk.set("", "uid:1:max=100");
    assert_near(&disk.rates(5)[..1], &[100.0], 2.0);
    // At a faster rate of the one of two that determined the time.
    let mut disk = Disk::new("uid_fair", 1, 1000).with_users(&[(1, 0)], 16_384);
    disk.set("", "uid:1:max=100iops+1MB/s");
    disk.fill(1);
    disk.users.insert(1, (0, 1));
    disk.run(1);
    disk.set("", "uid:1:max=100iops+1000MB/s");
    disk.run(1);
    assert_near(&disk.rates(5), &[100.0], 2.0);
    // Another rate beside it is no second price.
    let mut disk = Disk::new("uid_fair", 8, 1000).with_users(&[(1, 0)], 1);
    disk.set("", "uid:1:max=1");
    disk.fill(4);
    disk.run(5);
    disk.set("", "uid:1:max=1+100MB/s");
    let first = disk.rates(20)[0] * 20.0;
    assert!((19.0..=21.0).contains(&first), "{first}");
    // At a faster rate in the same unit: 1 MiB each.
    let mut disk = make(8);
    disk.set("", "uid:1:max=100MiB/s");
    assert_near(&disk.rates(5)[..1], &[100.0], 2.0);
    // Without limits for a moment, while the others keep theirs.
    let mut disk = make(8);
    disk.set("", "-uid:1");
    disk.set("", "uid:1:max=1MiB/s");
    let first = disk.rates(20)[0] * 20.0;
    assert!((18.0..=22.0).contains(&first), "{first}");
}

/// Verifies that a change of another limit, which reaches the partitions one after the other while
/// they dispatch, does not make requests of an entity wait and then go at once.
#[test]
fn reservations_keep_their_turns() {
    for (before, change, rate) in [
        ("uid:1:max=1", "uid:9:max=5", 1),
        ("uid:1:max=20", "uid:1:max=1", 1),
        ("uid:1:max=1", "uid:1:max=20", 20),
    ] {
        let mut disk = Disk::new("uid_fair", 8, 1000).with_users(&[(1, 0)], 1);
        disk.set("", before);
        disk.fill(4);
        disk.run(5);
        disk.set_by_parts(change);
        disk.run(1);
        for second in 0..16 {
            let served = disk.run(1).get(&1).map_or(0, |sums| sums.0);
            let near = (rate - 1..=rate + 1).contains(&served);
            assert!(near, "{change}, second {second}: {served}");
        }
    }
}

/// Verifies that a removed request returns its reserved tokens.
#[test]
fn removed_requests_return_tokens() {
    let mut disk = Disk::new("gid_then_uid_fair", 2, 1000).with_users(&[(1, 1)], 1);
    disk.set("", "uid:1:max=1 gid:1:max=2");
    // Returns the time until the next request of a part may be dispatched; uses the credit first.
    let wait = |disk: &mut Disk, part: usize| loop {
        match disk.parts[part].get(&view(disk.now, false)) {
            Decision::Item(_) => disk.push(part, 1),
            Decision::Throttled { until } => return until,
            Decision::Empty => disk.push(part, 1),
        }
    };
    let first = wait(&mut disk, 0);
    // The second of two requests is the one in the queue.
    let class = disk.parts[0].classify(&Disk::attrs(1, 1), disk.now);
    let mut request = Request::new(1, 1_000, 1, disk.now);
    let place = request.register();
    let part = &mut disk.parts[0];
    part.enqueue(request, class, disk.now).expect("queued");
    while let Decision::Item(_) = part.get(&view(first, false)) {}
    let second = part.throttled(first).expect("throttled");
    assert!(second > first);
    part.dequeue(class, &place, first).expect("queued");
    // The other partition gets the turn.
    disk.now = first;
    assert_eq!(wait(&mut disk, 1), second);
}

#[test]
fn requests_without_a_bucket_are_counted() {
    let users: Vec<(u32, u32)> = (1..=400).map(|uid| (uid, 0)).collect();
    let mut disk = Disk::new("uid_fair", 1, 4_000).with_users(&users, 1);
    disk.classes = 1;
    disk.set("", "uid:*:max=1+1MB/s");
    disk.fill(2);
    disk.run(1);
    let mut counts = [0; COUNTS_MAX];
    disk.parts[0].add_counts(&mut counts);
    assert!(counts.iter().any(|count| *count > 1_000), "{counts:?}");
}

#[test]
fn a_group_divides_its_maximum_by_weights() {
    let users = [(1, 10), (2, 10), (3, 10), (4, 20)];
    let mut disk = Disk::new("gid_then_uid_fair", 1, 1000).with_users(&users, 1);
    disk.set("uid:2:2 uid:3:3", "gid:10:max=120");
    disk.fill(4);
    disk.run(2);
    assert_near(&disk.rates(20), &[20.0, 40.0, 60.0, 880.0], 1.0);
    // A user within the group, too; the rest of the group takes what it leaves.
    disk.set("", "uid:3:max=30");
    disk.run(2);
    assert_near(&disk.rates(20), &[30.0, 60.0, 30.0, 880.0], 1.0);
}

#[test]
fn a_minimum_holds_beside_many() {
    let users: Vec<(u32, u32)> = (1..=33).map(|uid| (uid, 0)).collect();
    let mut disk = Disk::new("uid_fair", 1, 240).with_users(&users, 1);
    disk.set("", "uid:1:min=60");
    disk.fill(2);
    disk.run(5);
    let got = disk.rates(30);
    assert_near(&got[..1], &[60.0], 2.0);
    assert_near(&got[1..], &[180.0 / 32.0; 32], 4.0);
    // Minimums above the capacity are scaled, and others are served.
    disk.set("", "uid:1:min=300 uid:2:min=300");
    disk.run(5);
    let got = disk.rates(30);
    assert!(got[0] > 100.0 && got[1] > 100.0, "{got:?}");
    assert!(got[2..].iter().all(|rate| *rate > 0.5), "{got:?}");
}

#[test]
fn classes_of_importance() {
    let mut disk = Disk::new("uid_fair", 1, 240).with_users(&[(1, 0), (2, 0), (3, 0)], 1);
    disk.set("", "uid:3:class=idle");
    disk.fill(4);
    disk.run(1);
    let got = disk.rates(20);
    assert_near(&got[..2], &[120.0, 120.0], 1.0);
    assert!(got[2] < 1.0, "{got:?}");
    disk.set("", "uid:2:class=realtime");
    disk.run(1);
    let got = disk.rates(20);
    assert!(got[1] > 230.0 && got[0] > 1.0, "{got:?}");
}

/// Verifies that changes grant no tokens: a limit that changes many times a second has the rate.
#[test]
fn changes_grant_nothing() {
    let mut disk = Disk::new("gid_then_uid_fair", 1, 1000).with_users(&[(1, 1), (2, 2)], 1);
    disk.fill(4);
    let mut served = 0;
    for round in 0..200 {
        let limit = match round % 4 {
            0 => "uid:1:max=20",
            1 => "uid:1:max=20+class=idle",
            2 => "uid:1:max=20+burst=3s gid:1:max=500",
            _ => "clear uid:1:max=20+1GB/s",
        };
        disk.set("", limit);
        let end = disk.now + SECOND / 20;
        while disk.now < end {
            match disk.parts[0].get(&view(disk.now, false)) {
                Decision::Item((request, grant)) => {
                    disk.parts[0].stop(&grant, request.cost(), disk.now);
                    served += u64::from(request.owner == 1);
                    disk.push(0, request.owner);
                    disk.now += disk.service;
                }
                Decision::Throttled { until } => disk.now = until.max(disk.now + 1),
                Decision::Empty => panic!("requests are queued"),
            }
        }
    }
    // Ten seconds at 20/s, and a first credit.
    assert!((190..=215).contains(&served), "{served}");
}

/// Verifies that requests that need no queue take tokens, and are refused without.
#[test]
fn passing_requests_are_limited() {
    let mut disk = Disk::new("gid_then_uid_fair", 1, 1000).with_users(&[(1, 1), (2, 1)], 1);
    disk.set("", "gid:1:max=10");
    let cost = Request::new(1, 0, 1, 0).cost();
    let part = &mut disk.parts[0];
    feed(part);
    let classes = [1, 2].map(|uid| part.classify(&Disk::attrs(uid, 1), disk.now));
    let mut passed = 0;
    for step in 0..1000u64 {
        let now = disk.now + step * SECOND / 100;
        let class = classes[step as usize % 2];
        match part.pass(class, cost, BypassReason::Opportunity, || now) {
            BypassOutcome::Counted => passed += 1,
            BypassOutcome::Refused => {}
            BypassOutcome::Stale => panic!("the class exists"),
        }
    }
    assert!((100..=104).contains(&passed), "{passed}");
    assert!(!part.passes_freely());
}

/// Verifies that a forced decision finds throttled requests, and that nothing else does.
#[test]
fn forced_requests_leave_their_place() {
    let mut disk = Disk::new("gid_then_uid_fair", 1, 1000).with_users(&[(1, 1), (2, 1)], 1);
    disk.set("", "gid:1:max=1");
    disk.fill(20);
    let mut forced = 0;
    loop {
        let part = &mut disk.parts[0];
        match part.get(&view(disk.now, true)) {
            Decision::Item((request, grant)) => {
                part.stop(&grant, request.cost(), disk.now);
            }
            Decision::Throttled { .. } => panic!("forced"),
            Decision::Empty => break,
        }
        forced += 1;
        if forced % 3 == 0 {
            let _ = part.get(&view(disk.now, false));
        }
    }
    assert!(forced >= 36, "{forced}");
    disk.fill(1);
    let next = disk.parts[0].get(&view(disk.now, false));
    let Decision::Throttled { until } = next else {
        panic!("the debt is not repaid");
    };
    assert!(until <= disk.now + 11 * SECOND);
    assert_eq!(disk.parts[0].throttled(disk.now), Some(until));
}

/// Verifies that a minimum holds for a user that was alone before.
#[test]
fn a_minimum_is_not_used_up_by_spare_service() {
    let mut disk = Disk::new("uid_fair", 1, 240).with_users(&[(1, 0)], 1);
    disk.set("", "uid:1:min=60");
    disk.fill(2);
    disk.run(60);
    let users: Vec<(u32, u32)> = (2..=33).map(|uid| (uid, 0)).collect();
    disk = disk.with_users(&users, 1);
    for uid in 2..=33 {
        disk.push(0, uid);
        disk.push(0, uid);
    }
    disk.run(1);
    let got = disk.rates(10);
    assert_near(&got[..1], &[60.0], 3.0);
}

/// Verifies that a part that always asks first leaves tokens to the others.
#[test]
fn parts_share_a_maximum() {
    for limits in ["uid:1:max=20", "gid:1:max=20"] {
        let users = [(1, 1)];
        let mut disk = Disk::new("gid_then_uid_fair", 3, 1000).with_users(&users, 1);
        disk.set("", limits);
        disk.fill(4);
        let end = disk.now + 20 * SECOND;
        let mut served = [0; 3];
        while disk.now < end {
            let mut until = end;
            for (part, served) in served.iter_mut().enumerate() {
                match disk.parts[part].get(&view(disk.now, false)) {
                    Decision::Item((request, grant)) => {
                        disk.parts[part].stop(&grant, request.cost(), disk.now);
                        disk.push(part, request.owner);
                        *served += 1;
                        until = disk.now;
                    }
                    Decision::Throttled { until: at } => until = until.min(at),
                    Decision::Empty => panic!("requests are queued"),
                }
            }
            disk.now = until.max(disk.now + 1);
        }
        assert!(
            (398..=404).contains(&served.iter().sum::<i32>()),
            "{served:?}"
        );
        assert!(
            served.iter().all(|served| *served > 100),
            "{limits}: {served:?}"
        );
    }
}

/// Verifies that tokens of a request that ended unprocessed are available at once.
#[test]
fn refunded_tokens_can_be_used() {
    let mut disk = Disk::new("gid_then_uid_fair", 1, 1000).with_users(&[(1, 1)], 1);
    disk.set("", "gid:1:max=1+min=1");
    disk.fill(20);
    loop {
        let part = &mut disk.parts[0];
        let Decision::Item((request, grant)) = part.get(&view(disk.now, false)) else {
            break;
        };
        part.stop(&grant, request.cost(), disk.now);
    }
    let part = &mut disk.parts[0];
    let class = part.classify(&Disk::attrs(1, 1), disk.now);
    part.refund(class, Request::new(1, 0, 1, 0).cost(), disk.now);
    let next = part.get(&view(disk.now, false));
    assert!(matches!(next, Decision::Item(_)), "{next:?}");
}

/// Verifies that a forced decision finds a request behind many classes without requests.
#[test]
fn forced_decisions_find_the_last_request() {
    let users: Vec<(u32, u32)> = (1..=200).map(|uid| (uid, uid)).collect();
    let mut disk = Disk::new("gid_then_uid_fair", 1, 1000).with_users(&users, 1);
    disk.set("", "gid:*:max=1");
    let mut places = Vec::new();
    for (uid, gid) in users {
        for id in 0..5 {
            let mut request = Request::new(uid, id, 1, disk.now);
            let place = request.register();
            let part = &mut disk.parts[0];
            feed(part);
            let class = part.classify(&Disk::attrs(uid, gid), disk.now);
            part.enqueue(request, class, disk.now).expect("queued");
            places.push((class, place));
        }
    }
    let part = &mut disk.parts[0];
    let mut asked = 0;
    while part.throttled(disk.now).is_none() {
        if let Decision::Item((request, grant)) = part.get(&view(disk.now, false)) {
            part.stop(&grant, request.cost(), disk.now);
        }
        asked += 1;
        assert!(asked < 5000);
    }
    // All but the last one.
    places.pop();
    for (class, place) in &places {
        part.dequeue(*class, place, disk.now);
    }
    if part.len() > 0 {
        let next = part.get(&view(disk.now, true));
        assert!(matches!(next, Decision::Item(_)), "{next:?}");
    }
}

/// Verifies that limits end even if an upkeep overlaps with the change.
#[test]
fn limits_end_during_an_upkeep() {
    let users: Vec<(u32, u32)> = (1..=8).map(|uid| (uid, 0)).collect();
    let mut disk = Disk::new("uid_fair", 1, 1000).with_users(&users, 1);
    disk.set("", "uid:*:max=1");
    disk.fill(8);
    disk.run(1);
    let part = &mut disk.parts[0];
    // The upkeep has refreshed the first classes.
    let upkeep = part.refresh(0, 6, disk.now).expect("more");
    while let Decision::Item(_) = part.get(&view(disk.now, false)) {}
    part.update(Update::new(disk.weights.clone(), &disk.tunables), disk.now);
    assert_eq!(part.refresh(upkeep, 1000, disk.now), None);
    assert_eq!(part.refresh(0, 1000, disk.now), None);
    while part.len() > 0 {
        let next = part.get(&view(disk.now, false));
        assert!(matches!(next, Decision::Item(_)), "{next:?}");
    }
}

/// Verifies that there are buckets for all entities with all kinds of limits.
#[test]
fn each_entity_has_its_buckets() {
    let users: Vec<(u32, u32)> = (1..=1000).map(|uid| (uid, 0)).collect();
    let mut disk = Disk::new("uid_fair", 1, 1_000_000).with_users(&users, 1);
    disk.set("", "uid:*:max=1+8KiB/s+min=1+4KiB/s");
    disk.fill(20);
    disk.run(1);
    let got = disk.run(5);
    let above = got.values().filter(|served| served.0 > 7).count();
    // Few blocks of a table that is half full are full.
    assert!(above < 40, "{above}");
}

/// Verifies that a cgroup whose path is unknown does not get the limits of another one.
#[test]
fn an_unknown_cgroup_has_no_limits_of_another() {
    let mut disk = Disk::new("cgroup_fair", 1, 1000);
    let attrs = Attrs {
        cgroup: CgroupPath::parse(b"/limits/never/seen").expect("a path"),
        ..Attrs::UNKNOWN
    };
    let push = |disk: &mut Disk| {
        let part = &mut disk.parts[0];
        feed(part);
        let class = part.classify(&attrs, disk.now);
        let request = Request::new(1, 0, 1, disk.now);
        part.enqueue(request, class, disk.now).expect("queued");
    };
    disk.set("", "cgroup:/limits/never/seen:max=1");
    for _ in 0..20 {
        push(&mut disk);
    }
    let taken = |disk: &mut Disk| {
        let part = &mut disk.parts[0];
        let items = (0..20).map(|_| part.get(&view(disk.now, false)));
        items
            .filter(|next| matches!(next, Decision::Item(_)))
            .count()
    };
    assert_eq!(taken(&mut disk), 3);
    disk.set(
        "",
        "clear cgroup:/limits/other*:max=2,cgroup:/limits/else:max=1",
    );
    assert_eq!(taken(&mut disk), 17);
}

/// A request that is queued.
struct Queued {
    part: usize,
    class: ClassId,
    place: Number,
    id: u64,
}

/// Mixes all operations on parts that share buckets.
///
/// Verifies that no request is lost or dispatched twice, that forced decisions find a request, that
/// throttled parts name a time at which they go on, and that a maximum of all holds.
fn storm(mode: &str, parts: u32, seed: u64) {
    const LIMITS: &[&str] = &[
        "uid:*:max=50",
        "uid:1:max=5 uid:2:max=1000+1MB/s+min=20 gid:1:max=100",
        "gid:*:max=40+min=10 uid:3:class=idle jobid:*:max=30",
        "clear",
        "clear uid:*:min=100 gid:0:class=realtime",
        "gid:1:max=10+burst=3s uid:*:max=1GB/s",
        "jobid:a:max=2 gid:2:min=1GB/s",
    ];
    let mut rng = Rng::new(seed);
    let mut draw = |below: u64| rng.next_u64() % below;
    let mut tunables = Tunables::default();
    if draw(2) == 0 {
        tunables.cost_model = CostModel::Time;
    }
    if draw(2) == 0 {
        tunables.locality = Locality::On;
    }
    tunables.opp_threshold = OppThreshold::new(draw(2) as u32 * 4).expect("within limits");
    let mut disk = Disk::with(tunables, mode, parts, 1000);
    let mut queued: Vec<Queued> = Vec::new();
    let mut active = Vec::new();
    let (mut id, mut refreshes) = (0, vec![None; parts as usize]);
    for step in 0..4000 {
        let at = draw(parts.into()) as usize;
        disk.now += [0, 1000, 100_000, 3_000_000][draw(4) as usize];
        let now = disk.now;
        match draw(40) {
            0 => {
                let text = LIMITS[draw(LIMITS.len() as u64) as usize];
                let weights = format!("uid:{}:{}", draw(6), 1 + draw(9));
                let update = disk.change(&weights, text);
                for (part, refresh) in disk.parts.iter_mut().zip(&mut refreshes) {
                    part.update(update.clone(), now);
                    *refresh = Some(0);
                }
            }
            1..=3 => {
                if let Some(from) = refreshes[at] {
                    refreshes[at] = disk.parts[at].refresh(from, 1 + draw(8) as u32, now);
                }
            }
            4 => {
                // An upkeep.
                disk.parts[at].refresh(0, 3, now);
            }
            5 => {
                disk.now += draw(2) * 11 * SECOND;
                disk.parts[at].age(disk.now, 4);
            }
            6..=20 => {
                let part = &mut disk.parts[at];
                feed(part);
                let mut request = Request::new(0, id, 1 + draw(20) as u32, now);
                id += 1;
                let place = request.register();
                let attrs = Attrs {
                    uid: Id::new(draw(6) as u32),
                    gid: Id::new(draw(3) as u32),
                    jobid: JobId::new([b"a", b"b"][draw(2) as usize]),
                    ..Attrs::UNKNOWN
                };
                let class = part.classify(&attrs, now);
                let way = match draw(8) {
                    0 => Some(BypassReason::Opportunity),
                    1 => Some(BypassReason::Forced {
                        contended: draw(2) == 0,
                    }),
                    2 => Some(BypassReason::Merged),
                    _ => None,
                };
                let passed = way.map(|way| part.pass(class, request.cost(), way, || now));
                if matches!(passed, None | Some(BypassOutcome::Refused)) {
                    part.enqueue(request, class, now).expect("queued");
                    let id = request.id;
                    queued.push(Queued {
                        part: at,
                        class,
                        place,
                        id,
                    });
                }
            }
            21..=25 if !queued.is_empty() => {
                let one = queued.swap_remove(draw(queued.len() as u64) as usize);
                let part = &mut disk.parts[one.part];
                let item = part.dequeue(one.class, &one.place, now).expect("queued");
                assert_eq!(item.id, one.id);
            }
            26..=28 if !active.is_empty() => {
                let at = draw(active.len() as u64) as usize;
                let (part, request, grant): (usize, Request, Grant) = active.swap_remove(at);
                if draw(3) == 0 {
                    disk.parts[part].refund(grant.class, request.cost(), now);
                }
                disk.parts[part].stop(&grant, request.cost(), now);
            }
            _ => {
                let force = draw(12) == 0;
                let part = &mut disk.parts[at];
                match part.get(&view(now, force)) {
                    Decision::Item((request, grant)) => {
                        let found = queued.iter().position(|one| one.id == request.id);
                        let one = queued.swap_remove(found.expect("queued once"));
                        assert_eq!(one.part, at);
                        active.push((at, request, grant));
                    }
                    Decision::Throttled { until } => {
                        assert!(!force && until > now, "{step}");
                        assert!(queued.iter().any(|one| one.part == at));
                    }
                    Decision::Empty => assert!(queued.iter().all(|one| one.part != at)),
                }
            }
        }
    }
    // All requests are dispatched at the times that the parts name.
    let mut turns = 0;
    while !queued.is_empty() {
        let mut until = u64::MAX;
        for part in &mut disk.parts {
            match part.get(&view(disk.now, false)) {
                Decision::Item((request, _)) => {
                    queued.retain(|one| one.id != request.id);
                    until = disk.now;
                }
                Decision::Throttled { until: at } => until = until.min(at),
                Decision::Empty => {}
            }
        }
        assert!(until < disk.now + 4000 * SECOND, "{until}");
        disk.now = until.max(disk.now);
        turns += 1;
        assert!(turns < 100_000, "{} queued", queued.len());
    }
    assert!(disk.parts.iter().all(Part::is_empty));
}

#[test]
fn storms() {
    let modes = [
        "uid_fair",
        "gid_then_uid_fair",
        "gid_then_uid_then_jobid_fair",
    ];
    for seed in 0..30 {
        for mode in modes {
            storm(mode, 1 + (seed % 3) as u32, seed);
        }
    }
}
