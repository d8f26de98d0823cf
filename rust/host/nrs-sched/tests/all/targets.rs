// SPDX-License-Identifier: GPL-2.0-only

//! What a service promises on each of its targets: shares, order, high priority, and that a device
//! is as busy as it would be alone.
//!
//! Each target is a server of its own here, and they share nothing but the time: what targets of a
//! service do to each other, `tests/vm/devices.sh` looks at.

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

/// What a device does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// A request takes so long, ns; as many at a time as there are slots.
    Takes(u64),
    /// Nothing ever ends.
    Hangs,
}

/// A target with its users.
struct Target {
    server: Server,
    pace: Pace,
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
    fn new(mode: &str, weights: &str, pace: Pace, users: &[User]) -> Self {
        let config = Config::parse(Kind::Fairshare, Some(mode), &Tunables::default());
        let mut server = Server::new(&config.expect("a mode"), SLOTS, 64, 7).expect("memory");
        let weights = Weights::new().apply(weights).expect("weights");
        let update = Update::new(Shared::new(weights).expect("memory"), true);
        server.update(&AnyUpdate::Fairshare(update));
        let mut target = Self {
            server,
            pace,
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
            if let Pace::Takes(ns) = self.pace {
                self.busy.push(Reverse((self.server.now + ns, id)));
            }
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
        let Pace::Takes(ns) = self.pace else {
            return 0.0;
        };
        let most = u64::from(SLOTS) * (TIME / ns);
        self.ended.iter().sum::<u64>() as f64 / most as f64
    }

    /// Requests of each class go down in the order of arrival.
    fn check_order(&self) {
        for order in &self.order {
            assert!(order.is_sorted(), "of one class");
        }
    }
}

/// Lets time go on for all `targets`, event by event.
fn run(targets: &mut [Target]) {
    let end = targets[0].server.now + TIME;
    loop {
        let times = targets.iter().map(Target::next);
        let next = times
            .enumerate()
            .filter_map(|(place, at)| Some((at?, place)))
            .min();
        let Some((at, place)) = next.filter(|(at, _)| *at <= end) else {
            return;
        };
        targets[place].go(at);
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

/// Alone, beside another target of each kind, and beside seven.
#[test]
fn shares_hold_on_each_target() {
    let takes = Pace::Takes(SERVICE);
    for (mode, weights, users, due) in CASES {
        let other = |kind: usize| match kind % 4 {
            // Idle, slow, full of one user's requests, hung.
            0 => Target::new(mode, weights, takes, &[]),
            1 => Target::new(mode, weights, Pace::Takes(10 * SERVICE), users),
            2 => Target::new(
                mode,
                weights,
                takes,
                &[User {
                    depth: 500,
                    ..users[0]
                }],
            ),
            _ => Target::new(mode, weights, Pace::Hangs, users),
        };
        let mut sets: Vec<Vec<usize>> = vec![vec![]];
        sets.extend((0..4).map(|kind| vec![kind]));
        sets.push((0..7).collect());
        for others in sets {
            let mut targets = vec![Target::new(mode, weights, takes, users)];
            targets.extend(others.iter().map(|kind| other(*kind)));
            run(&mut targets);
            let what = format!("{mode} {weights} beside {others:?}");
            for target in &targets {
                target.check_order();
                let busy = !target.users.is_empty() && target.pace != Pace::Hangs;
                if busy {
                    let used = target.use_of_time();
                    assert!(used >= 0.98, "{what}: {used}");
                }
                if busy && target.users.len() > 1 {
                    assert_shares(&target.ended, due, 5.0, &what);
                }
            }
        }
    }
}

/// A user with few requests beside one with many: on no target have they slots by the length of
/// their queues.
#[test]
fn an_idle_target_does_not_make_shares_those_of_queues() {
    let takes = Pace::Takes(SERVICE);
    let users = [
        User {
            depth: 32,
            ..User::new(1, 1)
        },
        User {
            depth: 8,
            ..User::new(2, 1)
        },
    ];
    for others in [0, 1, 7] {
        let mut targets = vec![Target::new("uid_fair", "", takes, &users)];
        targets.extend((0..others).map(|_| {
            let now_and_then = User {
                depth: 1,
                ..User::new(3, 1)
            };
            Target::new("uid_fair", "", takes, &[now_and_then])
        }));
        run(&mut targets);
        assert_shares(
            &targets[0].ended,
            &[1.0, 1.0],
            5.0,
            &format!("{others} others"),
        );
    }
}

/// Beside regular requests without end, one of high priority waits for one of them at most.
#[test]
fn high_priority_takes_two_service_times() {
    let takes = Pace::Takes(SERVICE);
    let users = [
        User::new(1, 1),
        User::new(2, 1),
        User {
            depth: 1,
            priority: Priority::High,
            ..User::new(3, 1)
        },
    ];
    for others in [0, 1, 7] {
        let mut targets = vec![Target::new("uid_fair", "", takes, &users)];
        targets.extend((0..others).map(|other| {
            let pace = [takes, Pace::Takes(10 * SERVICE), Pace::Hangs][other % 3];
            Target::new("uid_fair", "", pace, &users)
        }));
        run(&mut targets);
        let took = &mut targets[0].took;
        took.sort_unstable();
        let p99 = took[took.len() * 99 / 100];
        assert!(p99 <= 2 * SERVICE, "{p99} ns beside {others}");
        assert!(took.len() > 1_000);
    }
}
