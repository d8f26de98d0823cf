// SPDX-License-Identifier: GPL-2.0-only

//! A list of all requests that checks a [`Server`] and panics on any violation. No request is lost,
//! and the order of dispatches is a linear extension of the required order. Urgent requests do not
//! wait for requests that are not urgent.

use crate::{
    arena::Request,
    attr::{Attrs, Id, Priority},
    order::{Relation, PREDECESSORS_MAX},
    policy::Config,
    server::{Relate, RequestPhase, Server},
};
use std::collections::BTreeSet;

/// State of a request; the request's number is its index in the list.
struct WatchedRequest {
    /// Requests that must end before this request starts.
    before: Vec<u64>,
    relation: Option<Relation>,
    started: bool,
    ended: bool,
    /// True if the request was promoted.
    high: bool,
    forced: bool,
}

/// Properties of an arriving request.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The client.
    pub owner: u32,
    /// True for high priority.
    pub high: bool,
    /// True if the request must not be throttled.
    pub forced: bool,
}

/// A request of a regular client.
pub const PLAIN: Arrival = Arrival {
    owner: 0,
    high: false,
    forced: false,
};

/// A server whose dispatches are checked.
pub struct Watched {
    /// The server.
    pub server: Server,
    all: Vec<WatchedRequest>,
    /// Requests in flight.
    pub running: Vec<u64>,
    /// Requests in the order of their dispatch.
    pub log: Vec<u64>,
    /// Number of rejected requests.
    pub refused: u64,
}

impl Watched {
    /// Creates a server with a policy, `slots` slots and an order table of `records` records.
    pub fn new(config: &Config, slots: u32, records: u32) -> Self {
        Self {
            server: Server::new(config, slots, records, 77).expect("memory"),
            all: Vec::new(),
            running: Vec::new(),
            log: Vec::new(),
            refused: 0,
        }
    }

    /// Returns the number of requests that were accepted.
    pub fn len(&self) -> u64 {
        self.all.len() as u64
    }

    /// Submits a request; returns its number if it is accepted.
    pub fn arrive(&mut self, request: Request, relate: Relate, how: Arrival) -> Option<u64> {
        let id = self.len();
        let range = request.range;
        let request = Request {
            owner: how.owner,
            id,
            arrival: self.server.now,
            ..request
        };
        let attrs = Attrs {
            uid: Id::new(how.owner),
            gid: Id::new(how.owner % 3),
            client: how.owner + 1,
            target: how.owner % 2,
            stream: u64::from(how.owner % 4),
            object: range.object,
            offset: range.offset,
            length: range.length,
            priority: if how.high {
                Priority::High
            } else {
                Priority::Regular
            },
            ..Attrs::UNKNOWN
        };
        let relation = match relate {
            Relate::Not => None,
            Relate::Range(domain) => Some(Relation::overlap(domain, &range, request.direction)),
            Relate::As(relation) => Some(relation),
        };
        let before = self.before(relation.as_ref());
        self.all.push(WatchedRequest {
            before,
            relation,
            started: false,
            ended: false,
            high: how.high,
            forced: how.forced,
        });
        let taken = self.server.arrive(request, &attrs, relate, how.forced);
        if !taken {
            self.refused += 1;
            self.all.pop();
        }
        self.watch();
        taken.then_some(id)
    }

    /// Returns a relation after the requests `ids`; requests without a record are left out.
    pub fn after(&self, ids: &[u64]) -> Relate {
        let mut named = [None; PREDECESSORS_MAX];
        for (name, id) in named.iter_mut().zip(ids) {
            *name = self.server.record(*id);
        }
        Relate::As(Relation::After(named))
    }

    /// Returns the requests that must end before a request with `relation` that arrives now.
    fn before(&self, relation: Option<&Relation>) -> Vec<u64> {
        let open = (0..self.len()).filter(|&id| !self.all[id as usize].ended);
        let comes_before = |id: &u64| match (relation, &self.all[*id as usize].relation) {
            (Some(Relation::After(those)), _) => {
                let record = self.server.record(*id);
                record.is_some() && those.contains(&record)
            }
            (
                Some(&Relation::Overlap {
                    domain,
                    start,
                    end,
                    writes,
                }),
                &Some(Relation::Overlap {
                    domain: other_domain,
                    start: other_start,
                    end: other_end,
                    writes: other_writes,
                }),
            ) => {
                domain == other_domain
                    && start < other_end
                    && other_start < end
                    && (writes || other_writes)
            }
            _ => false,
        };
        open.filter(comes_before).collect()
    }

    /// Completes a request in flight, chosen by `which`; returns `false` if there is none.
    pub fn complete(&mut self, which: usize) -> bool {
        if self.running.is_empty() {
            return false;
        }
        let id = self.running.swap_remove(which % self.running.len());
        let known = &mut self.all[id as usize];
        assert!(known.started && !known.ended);
        // Set before the server is informed, because the server dispatches more requests at once.
        known.ended = true;
        assert!(self.server.complete(id).is_some());
        self.watch();
        true
    }

    /// Promotes a request to high priority.
    pub fn promote(&mut self, id: u64) {
        if self.server.promote(id) {
            self.all[id as usize].high = true;
        }
        self.watch();
    }

    /// Forces the dispatch of all requests in the order table.
    pub fn force_all(&mut self) {
        let server = &self.server;
        for (id, known) in (0..).zip(&mut self.all) {
            let here = !matches!(server.phase(id), None | Some(RequestPhase::Started));
            // The table contains only requests with a record and overflowed requests.
            let known_there =
                server.record(id).is_some() || server.phase(id) == Some(RequestPhase::Overflowed);
            known.forced |= here && known_there;
        }
        self.server.force_all();
        self.watch();
    }

    /// Allocates the memory that the order table needs.
    pub fn feed(&mut self) {
        self.server.feed();
        self.watch();
    }

    /// Installs another policy.
    pub fn install(&mut self, config: &Config) {
        self.server.install(config, self.len()).expect("memory");
        self.watch();
    }

    /// Advances the time by `ns`.
    pub fn wait(&mut self, ns: u64) {
        self.server.wait(ns);
        self.watch();
    }

    /// Checks the requests that have started.
    fn watch(&mut self) {
        for id in std::mem::take(&mut self.server.started) {
            for before in &self.all[id as usize].before {
                assert!(self.all[*before as usize].ended, "{id} before {before}");
            }
            let known = &mut self.all[id as usize];
            assert!(!known.started, "{id} twice");
            known.started = true;
            self.running.push(id);
            self.log.push(id);
        }
        let open = self.all.iter().filter(|known| !known.ended).count();
        assert_eq!(open, self.server.len(), "nothing is lost");
    }

    /// Returns all requests that must end before `id` and have not ended.
    pub fn all_before(&self, id: u64) -> BTreeSet<u64> {
        let (mut seen, mut look) = (BTreeSet::new(), vec![id]);
        while let Some(id) = look.pop() {
            for &before in &self.all[id as usize].before {
                if !self.all[before as usize].ended && seen.insert(before) {
                    look.push(before);
                }
            }
        }
        seen
    }

    /// Checks that no urgent request is delayed by a request that is not urgent.
    pub fn check_urgent(&self) {
        for (id, known) in (0..).zip(&self.all) {
            let here = !matches!(self.server.phase(id), None | Some(RequestPhase::Started));
            if !here || (!known.high && !known.forced) {
                continue;
            }
            let overflowed = self.server.phase(id) == Some(RequestPhase::Overflowed);
            for before in self.all_before(id) {
                let Some(RequestPhase::Queued(priority)) = self.server.phase(before) else {
                    continue;
                };
                assert!(!known.forced, "{before} is queued, {id} is forced");
                let high = priority == Priority::High;
                assert!(overflowed || high, "{before} is not promoted, {id} is");
            }
        }
    }

    /// Completes all requests.
    pub fn drain(&mut self, mut which: impl FnMut() -> usize) {
        for _ in 0..100 * (self.len() + 10) {
            if self.server.len() == 0 {
                break;
            }
            if self.complete(which()) {
                continue;
            }
            self.feed();
            if self.running.is_empty() {
                // All remaining requests are throttled.
                let until = self
                    .server
                    .next_expiry()
                    .expect("throttled requests have a time");
                let now = self.server.now;
                assert!(until > now, "stalled: the timer does not advance");
                self.wait(until - now);
            }
        }
        assert_eq!(self.server.len(), 0, "everything ends");
        assert_eq!(self.log.len() as u64, self.len());
        let order = self.server.order();
        assert_eq!(
            (order.live(), order.blocked(), order.overflowed()),
            (0, 0, 0)
        );
        assert!(!order.is_busy());
    }
}
