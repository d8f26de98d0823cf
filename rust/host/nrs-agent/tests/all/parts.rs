// SPDX-License-Identifier: GPL-2.0-only

//! Parts of fairshare on several servers that share jobs.

use nrs_agent::{Exchange, Terms};
use nrs_sched::{
    arena::{feed, Request},
    attr::{Attrs, Id},
    item::Direction,
    mem,
    policy::{
        fairshare::{
            factors::{AccountBuf, Factors},
            weights::Weights,
            Update,
        },
        AnyPart, AnyShared, AnyUpdate, Config, Get, Kind, Part, Tunables, View,
    },
};

/// Nanoseconds of a delta.
const DELTA: u64 = 100_000_000;
/// Seed of the ids; the same on all servers.
const SECRET: u64 = 77;

/// A server that dispatches a number of requests per delta, and who has requests there: group and user.
struct Server {
    part: AnyPart<Request>,
    _shared: AnyShared,
    exchange: Exchange,
    capacity: u32,
    users: Vec<(u32, u32)>,
    served: Vec<u64>,
}

fn attrs((gid, uid): (u32, u32)) -> Attrs {
    Attrs {
        uid: Id::new(uid),
        gid: Id::new(gid),
        ..Attrs::UNKNOWN
    }
}

impl Server {
    fn new(number: u64, mode: &str, capacity: u32, users: &[(u32, u32)]) -> Self {
        let config = Config::parse(Kind::Fairshare, Some(mode), &Tunables::default()).unwrap();
        let shared = AnyShared::new(&config, SECRET, 1).unwrap();
        let terms = Terms {
            grain: 1,
            ..Terms::default()
        };
        Self {
            part: AnyPart::new(&config, number, &shared).unwrap(),
            _shared: shared,
            exchange: Exchange::new(number, 1, terms),
            capacity,
            users: users.to_vec(),
            served: vec![0; users.len()],
        }
    }

    /// All users keep four requests queued; as many are served as there is capacity for.
    fn serve(&mut self, now: u64) {
        self.served.fill(0);
        let depth = |part: &mut AnyPart<Request>, user: usize, users: &[(u32, u32)]| {
            feed(part);
            let class = part.classify(&attrs(users[user]), now);
            let request = Request {
                owner: user as u32,
                pages: 1,
                arrival: now,
                direction: Direction::Other,
                ..Request::default()
            };
            assert!(part.enqueue(request, class, now).is_ok());
        };
        // What is left from before stays queued.
        let left = self.part.len();
        if left == 0 {
            for user in 0..self.users.len() {
                for _ in 0..4 {
                    depth(&mut self.part, user, &self.users);
                }
            }
        }
        for _ in 0..self.capacity {
            let view = View {
                now,
                force: false,
                table: None,
            };
            let Get::Item((request, grant)) = self.part.get(&view) else {
                panic!("nothing is queued");
            };
            let user = request.owner as usize;
            self.part
                .stop(&grant, nrs_sched::item::Item::cost(&request), now);
            self.served[user] += 1;
            depth(&mut self.part, user, &self.users);
        }
    }

    /// A delta's end: what it tells the others.
    fn share(&mut self, now: u64) -> Vec<Vec<u8>> {
        let mut buf = AccountBuf::new().unwrap();
        let state = self.part.fairshare().unwrap();
        let mut from = Some(0);
        while let Some(slot) = from {
            buf.clear();
            from = state.accounts(slot, &mut buf);
            for account in buf.iter() {
                self.exchange.note(account);
            }
        }
        self.exchange.step(now);
        let factors = Factors::new(self.exchange.factors()).unwrap();
        self.tell(Some(factors), now);
        self.exchange.say(now)
    }

    fn tell(&mut self, factors: Option<Factors>, now: u64) {
        let factors = factors.map(|factors| mem::Shared::new(factors).unwrap());
        let weights = mem::Shared::new(Weights::new()).unwrap();
        let update = Update::new(weights, true).with_factors(factors);
        drop(self.part.update(AnyUpdate::Fairshare(update), now));
        let _ = self.part.wants_refresh();
        let mut from = Some(0);
        while let Some(slot) = from {
            from = self.part.refresh(slot, 64, now);
        }
    }
}

/// Requests per delta of each (gid, uid), the mean of the last 20 of `deltas`.
fn run(servers: &mut [Server], deltas: u64, exchange: bool) -> Vec<((u32, u32), f64)> {
    let mut sums = std::collections::BTreeMap::new();
    for delta in 1..=deltas {
        let now = (1000 + delta) * DELTA;
        for server in servers.iter_mut() {
            server.serve(now);
            if delta + 20 > deltas {
                for (user, served) in server.users.iter().zip(&server.served) {
                    *sums.entry(*user).or_insert(0.0) += *served as f64 / 20.0;
                }
            }
        }
        if !exchange {
            continue;
        }
        let said: Vec<Vec<Vec<u8>>> = servers.iter_mut().map(|server| server.share(now)).collect();
        for (from, datagrams) in said.iter().enumerate() {
            for (to, server) in servers.iter_mut().enumerate() {
                if from != to {
                    for bytes in datagrams {
                        server.exchange.hear(bytes, now + 1000).unwrap();
                    }
                }
            }
        }
    }
    sums.into_iter().collect()
}

fn assert_shares(got: &[((u32, u32), f64)], expected: &[f64], off: f64) {
    for ((user, got), expected) in got.iter().zip(expected) {
        let error = (got / expected - 1.0).abs();
        assert!(error <= off, "{user:?}: {got} instead of {expected}");
    }
}

/// User 1 is on both servers, user 2 on the first and user 3 on the second one: a third of both for each.
#[test]
fn a_user_on_two_servers_gets_one_share() {
    let servers = || {
        [
            Server::new(1, "uid_fair", 3000, &[(0, 1), (0, 2)]),
            Server::new(2, "uid_fair", 3000, &[(0, 1), (0, 3)]),
        ]
    };
    let alone = run(&mut servers(), 40, false);
    assert_shares(&alone, &[3000.0, 1500.0, 1500.0], 0.01);
    let together = run(&mut servers(), 40, true);
    assert_shares(&together, &[2000.0, 2000.0, 2000.0], 0.02);
}

/// Three servers of different sizes; user 1 alone on the first has more than its share already.
#[test]
fn who_has_enough_elsewhere_makes_room() {
    let mut servers = [
        Server::new(1, "uid_fair", 6000, &[(0, 1)]),
        Server::new(2, "uid_fair", 2000, &[(0, 1), (0, 2), (0, 3)]),
        Server::new(3, "uid_fair", 1000, &[(0, 2), (0, 3), (0, 4)]),
    ];
    let got = run(&mut servers, 60, true);
    // The last thousand is for user 4 alone: a thousand for everybody else.
    assert_shares(&got, &[6000.0, 1000.0, 1000.0, 1000.0], 0.03);
}

/// Groups share first, then the users of each.
#[test]
fn groups_are_fair_over_servers_and_users_within_them() {
    let users = [
        vec![(1, 10), (1, 11), (2, 20)],
        vec![(1, 10), (2, 20), (2, 21)],
    ];
    let mut servers = [
        Server::new(1, "gid_then_uid_fair", 4000, &users[0]),
        Server::new(2, "gid_then_uid_fair", 4000, &users[1]),
    ];
    let got = run(&mut servers, 80, true);
    let group = |gid: u32| -> f64 {
        let of = got.iter().filter(|((other, _), _)| *other == gid);
        of.map(|(_, rate)| rate).sum()
    };
    assert!((group(1) / 4000.0 - 1.0).abs() < 0.02, "{got:?}");
    // Each user of a group is on a server where the group can give it half.
    assert_shares(&got, &[2000.0, 2000.0, 2000.0, 2000.0], 0.05);
}

/// Without factors weights are what they were.
#[test]
fn factors_come_and_go() {
    let mut server = Server::new(1, "uid_fair", 3000, &[(0, 1), (0, 2)]);
    server.serve(DELTA);
    let state = server.part.fairshare().unwrap();
    assert!(!state.wants_refresh());
    let mut buf = AccountBuf::new().unwrap();
    assert_eq!(state.accounts(0, &mut buf), None);
    let ids: Vec<u64> = buf.iter().map(|account| account.id).collect();
    assert_eq!(ids.len(), 2);
    let low = *ids.iter().min().unwrap();
    let factors = Factors::new([(low, 1 << 29)]).unwrap();
    server.tell(Some(factors), DELTA);
    server.serve(2 * DELTA);
    let mut served = server.served.clone();
    served.sort();
    assert_eq!(served, [600, 2400]);
    // What is told does not have the factor in it.
    buf.clear();
    let state = server.part.fairshare().unwrap();
    assert!(state.wants_refresh());
    state.accounts(0, &mut buf);
    assert!(buf.iter().all(|account| account.weight == 4096));
    server.tell(None, 2 * DELTA);
    server.serve(3 * DELTA);
    assert_eq!(server.served, [1500, 1500]);
}
