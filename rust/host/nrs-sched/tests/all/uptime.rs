// SPDX-License-Identifier: GPL-2.0-only

//! Long uptimes, and jumps of the clock as after a pause of a virtual machine, for every policy.

use crate::{
    bench::{attrs, read, Bench},
    settings,
};
use nrs_sched::{
    arena::{feed, walk, Request},
    item::Item,
    policy::{fairshare::params::CostModel, Config, Decision, Grant, Kind, Part, Tunables},
    rng::Rng,
    units::{NSEC_PER_MSEC as MS, NSEC_PER_SEC as SECOND},
};
use std::collections::VecDeque;

const DAY: u64 = 86_400 * SECOND;

/// Number of users, each with [`DEPTH`] requests queued.
const USERS: u64 = 12;
const DEPTH: u64 = 8;

/// Users of a device that serves a request of a page per millisecond, four at a time.
struct Users {
    bench: Bench,
    rng: Rng,
    device: VecDeque<(Request, Grant)>,
    /// Requests served, by user.
    served: [u64; USERS as usize],
}

impl Users {
    fn new(config: &Config, start: u64) -> Self {
        let mut users = Self {
            bench: Bench::of(config),
            rng: Rng::new(1),
            device: VecDeque::new(),
            served: [0; USERS as usize],
        };
        users.bench.now = start;
        for user in 0..USERS * DEPTH {
            users.submit((user % USERS) as u32);
        }
        users
    }

    /// Submits a request until the policy takes one.
    fn submit(&mut self, user: u32) {
        loop {
            feed(&mut self.bench.part);
            let request = Request {
                owner: user,
                ..read(self.rng.below(1 << 20) << 12)
            };
            let taken = self.bench.push(&attrs(user), request).is_some();
            walk(&mut self.bench.part, self.bench.now);
            if taken {
                return;
            }
        }
    }

    /// Runs for `ns`; returns the decisions, with times since `start`.
    fn run(&mut self, ns: u64, start: u64) -> Vec<u64> {
        let end = self.bench.now + ns;
        let mut decisions = Vec::new();
        while self.bench.now < end {
            match self.bench.decide() {
                Decision::Item((request, grant)) => {
                    decisions.push(request.id);
                    self.served[request.owner as usize] += 1;
                    self.submit(request.owner);
                    self.device.push_back((request, grant));
                }
                Decision::Throttled { until } => decisions.push(until - start),
                Decision::Empty => unreachable!("users keep requests queued"),
            }
            if self.device.len() == 4 {
                let (request, grant) = self.device.pop_front().expect("four");
                self.bench.part.stop(&grant, request.cost(), self.bench.now);
            }
            self.bench.now += MS;
            self.bench.part.age(self.bench.now, 64);
        }
        decisions
    }
}

/// Returns all policies, and `fairshare` by device time.
fn configs() -> Vec<Config> {
    let mut tunables = Tunables::default();
    tunables.fairshare.cost_model = CostModel::Time;
    let by_time = Config::parse(Kind::Fairshare, Some("uid_fair"), &tunables).expect("valid");
    let mut all = settings::limited();
    all.push(by_time);
    all
}

/// Checks that decisions at the start of the clock, and after one and ten years, are those after a
/// day.
#[test]
fn decisions_do_not_depend_on_the_uptime() {
    for config in configs() {
        let decisions = |start| Users::new(&config, start).run(5 * SECOND, start);
        let first = decisions(DAY);
        for days in [0, 365, 3650] {
            assert_eq!(decisions(days * DAY), first, "{config:?}: {days} days");
        }
    }
}

/// Checks that a jump of the clock by hours, with requests queued and in flight, is no burst and
/// delays no user. With the cost model `time`, users in flight owe one largest request, 131 ms.
#[test]
fn a_jump_of_the_clock_changes_no_share() {
    for config in configs() {
        let owed = match &config {
            Config::Fairshare(config) if config.tunables.cost_model == CostModel::Time => 131,
            _ => 0,
        };
        let served = |jump| {
            let mut users = Users::new(&config, DAY);
            users.run(5 * SECOND, DAY);
            users.bench.now += jump;
            users.served = [0; USERS as usize];
            users.run(20 * SECOND, DAY);
            users.served
        };
        let usual = served(0);
        for hours in [1, 5, 2000] {
            let after = served(hours * 3600 * SECOND);
            for (got, want) in after.iter().zip(usual) {
                let most = 8 + owed + want / 50;
                assert!(
                    got.abs_diff(want) <= most,
                    "{config:?}: {after:?} for {usual:?}"
                );
            }
        }
    }
}
