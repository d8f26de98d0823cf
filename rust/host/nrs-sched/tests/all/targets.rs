// SPDX-License-Identifier: GPL-2.0-only

//! What a service promises on a target: shares, order, high priority, and that the device is always busy. What
//! targets of a service do to each other, `tests/vm/devices.sh` looks at.

use nrs_sched::{
    arena::Request,
    attr::{Attrs, Id, Priority},
    item::{Direction, Spot},
    mem::Shared,
    policy::{
        fairshare::{weights::Weights, Update},
        AnyUpdate, Config, Kind, Tunables,
    },
    server::{Relate, Server},
    sim::assert_shares,
    units::{NSEC_PER_MSEC as MS, NSEC_PER_SEC as SECOND},
};
use std::{cmp::Reverse, collections::BinaryHeap};

const SLOTS: u32 = 8;
const SERVICE: u64 = 2 * MS;
const TIME: u64 = 10 * SECOND;

/// A user who keeps requests at a target.
#[derive(Clone, Copy)]
struct User {
    uid: u32,
    gid: u32,
    depth: u32,
    priority: Priority,
}

impl User {
    const fn new(uid: u32, gid: u32) -> Self {
        Self {
            uid,
            gid,
            depth: 16,
            priority: Priority::Regular,
        }
    }
}

/// A target with its users.
struct Target {
    server: Server,
    users: Vec<User>,
    /// User and arrival of each request.
    sent: Vec<(usize, u64)>,
    busy: BinaryHeap<Reverse<(u64, u64)>>,
    /// Requests of each user that ended.
    ended: Vec<u64>,
    /// Those of each user in the order in which they went down.
    order: Vec<Vec<u64>>,
    /// How long each of high priority took, ns.
    took: Vec<u64>,
}

impl Target {
    fn new(mode: &str, weights: &str, users: &[User]) -> Self {
        let config = Config::parse(Kind::Fairshare, Some(mode), &Tunables::default());
        let mut server = Server::new(&config.expect("a mode"), SLOTS, 64, 7).expect("memory");
        let weights = Weights::new().apply(weights).expect("weights");
        let update = Update::new(Shared::new(weights).expect("memory"), true);
        server.update(&AnyUpdate::Fairshare(update));
        let mut target = Self {
            server,
            users: users.to_vec(),
            sent: Vec::new(),
            busy: BinaryHeap::new(),
            ended: vec![0; users.len()],
            order: vec![Vec::new(); users.len()],
            took: Vec::new(),
        };
        for (user, of) in users.iter().enumerate() {
            for _ in 0..of.depth {
                target.send(user);
            }
        }
        target
    }

    /// User `user` sends a request.
    fn send(&mut self, user: usize) {
        let User {
            uid, gid, priority, ..
        } = self.users[user];
        let id = self.sent.len() as u64;
        self.sent.push((user, self.server.now));
        let request = Request {
            owner: uid,
            id,
            pages: 1,
            arrival: self.server.now,
            spot: Spot::new(0, id * 4096, 4096),
            direction: Direction::Read,
            ..Request::default()
        };
        let attrs = Attrs {
            uid: Id::new(uid),
            gid: Id::new(gid),
            priority,
            ..Attrs::UNKNOWN
        };
        assert!(self.server.arrive(request, &attrs, Relate::Not, false));
        self.start();
    }

    /// What went down is at the device.
    fn start(&mut self) {
        for id in std::mem::take(&mut self.server.started) {
            let (user, _) = self.sent[id as usize];
            self.order[user].push(id);
            self.busy.push(Reverse((self.server.now + SERVICE, id)));
        }
    }

    /// When something happens next, ns.
    fn next(&self) -> Option<u64> {
        let ends = self.busy.peek().map(|Reverse((at, _))| *at);
        let expiry = self.server.next_expiry().filter(|at| *at > self.server.now);
        ends.into_iter().chain(expiry).min()
    }

    /// Lets time go on to `at`, and what ends then be sent again.
    fn go(&mut self, at: u64) {
        self.server.wait(at - self.server.now);
        self.start();
        while let Some(Reverse((done, id))) = self.busy.peek().copied() {
            if done > at {
                break;
            }
            self.busy.pop();
            let (user, arrived) = self.sent[id as usize];
            assert!(self.server.complete(id).is_some());
            self.start();
            self.ended[user] += 1;
            if self.users[user].priority == Priority::High {
                self.took.push(at - arrived);
            }
            self.send(user);
        }
    }

    /// Requests that ended, of those that a device which is always busy ends.
    fn use_of_time(&self) -> f64 {
        let most = u64::from(SLOTS) * (TIME / SERVICE);
        self.ended.iter().sum::<u64>() as f64 / most as f64
    }

    /// Lets time go on, event by event.
    fn run(&mut self) {
        let end = self.server.now + TIME;
        while let Some(at) = self.next().filter(|at| *at <= end) {
            self.go(at);
        }
    }

    /// Requests of each class go down in the order of arrival.
    fn check_order(&self) {
        for order in &self.order {
            assert!(order.is_sorted(), "of one class");
        }
    }
}

/// Modes, weights, users, and what each user is due.
const CASES: [(&str, &str, &[User], &[f64]); 3] = [
    (
        "uid_fair",
        "",
        &[User::new(1, 1), User::new(2, 1)],
        &[1.0, 1.0],
    ),
    (
        "uid_fair",
        "uid:2:4",
        &[User::new(1, 1), User::new(2, 1)],
        &[1.0, 4.0],
    ),
    (
        "gid_then_uid_fair",
        "",
        &[User::new(1, 1), User::new(2, 2), User::new(3, 2)],
        &[2.0, 1.0, 1.0],
    ),
];

#[test]
fn shares_hold_and_the_device_is_busy() {
    for (mode, weights, users, due) in CASES {
        let mut target = Target::new(mode, weights, users);
        target.run();
        target.check_order();
        let (used, what) = (target.use_of_time(), format!("{mode} {weights}"));
        assert!(used >= 0.98, "{what}: {used}");
        assert_shares(&target.ended, due, 5.0, &what);
    }
}

/// A user with few requests beside one with many: they have not slots by the length of their queues.
#[test]
fn shares_are_not_those_of_queues() {
    let [mut many, mut few] = [User::new(1, 1), User::new(2, 1)];
    (many.depth, few.depth) = (32, 8);
    let mut target = Target::new("uid_fair", "", &[many, few]);
    target.run();
    assert_shares(&target.ended, &[1.0, 1.0], 5.0, "queues");
}

/// Beside regular requests without end, one of high priority waits for one of them at most.
#[test]
fn high_priority_takes_two_service_times() {
    let high = User {
        depth: 1,
        priority: Priority::High,
        ..User::new(3, 1)
    };
    let mut target = Target::new("uid_fair", "", &[User::new(1, 1), User::new(2, 1), high]);
    target.run();
    let took = &mut target.took;
    took.sort_unstable();
    let p99 = took[took.len() * 99 / 100];
    assert!(p99 <= 2 * SERVICE, "{p99} ns");
    assert!(took.len() > 1_000);
}
