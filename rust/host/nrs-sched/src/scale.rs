// SPDX-License-Identifier: GPL-2.0-only

//! A part with the load of a large server: thousands of clients with several requests each.

use crate::{
    arena::{self, feed, hand_gates, lone_part, view, walk, Number, Request},
    backlog::{member, rate, Case},
    class::ClassId,
    item::{ByteRange, Direction, Item},
    policy::{AnyPart, Decision, Grant, Kind, Part},
    rng::Rng,
};

/// Returns every policy, and `fairshare` with three levels.
pub fn cases() -> Vec<Case> {
    let case = |&kind: &Kind| Case::new(kind.name(), kind);
    let mut all: Vec<Case> = Kind::ALL.iter().map(case).collect();
    let deep = Case::new("fairshare3", Kind::Fairshare);
    all.push(deep.levels(3));
    all
}

/// A part with many queued requests.
pub struct Scale {
    /// The part.
    pub part: AnyPart<Request>,
    classes: Vec<ClassId>,
    places: Vec<Option<Number>>,
    rng: Rng,
    now: u64,
    last: u64,
    force: bool,
}

impl Scale {
    /// Creates a part of `case` with `clients` clients that have `depth` requests queued each. If
    /// `found` is true, requests can be removed.
    ///
    /// # Panics
    ///
    /// The allocation failed, or the policy declines a request.
    pub fn new(case: &Case, clients: u32, depth: u32, found: bool) -> Self {
        let config = case.config(clients);
        let count = (clients * depth) as usize;
        arena::reserve(count + 64).expect("memory");
        let mut part = lone_part(&config, 1).expect("memory");
        let bytes = 16 * 4096 * u64::from(rate(clients));
        hand_gates(&mut part, clients, Some(bytes)).expect("memory");
        let classes = (0..clients)
            .map(|i| {
                let class = part.classify(&member(i, clients, case.levels), 0);
                feed(&mut part);
                class
            })
            .collect();
        walk(&mut part, 0);
        let mut scale = Self {
            classes,
            places: (0..count).map(|_| None).collect(),
            part,
            rng: Rng::new(1),
            now: 0,
            last: 0,
            // Delayed requests would not be served at all otherwise.
            force: case.kind == Kind::Delay,
        };
        // One request of each client in turn, as requests arrive from a network.
        for id in 0..count as u64 {
            let owner = id as u32 % clients;
            let mut request = Request {
                owner,
                id,
                direction: Direction::Read,
                ..Request::default()
            };
            if found {
                scale.places[id as usize] = Some(request.register());
            }
            scale.enqueue(request);
        }
        assert_eq!(scale.part.len() as usize, count);
        scale
    }

    /// Enqueues the next request of `request`'s client in place of `request`.
    ///
    /// # Panics
    ///
    /// The policy declines the request.
    pub fn enqueue(&mut self, mut request: Request) {
        self.now += 500;
        let owner = request.owner;
        request.arrival = self.now;
        request.pages = 1 + self.rng.below(16) as u32;
        request.mark = 0;
        let object = 1_000 + u64::from(owner);
        request.range = ByteRange::new(object, self.rng.below(1 << 30) << 12, 4096);
        let class = self.classes[owner as usize];
        assert!(self.part.enqueue(request, class, self.now).is_ok());
    }

    /// Dispatches the next request.
    ///
    /// # Panics
    ///
    /// No request is eligible.
    pub fn get(&mut self) -> (Request, Grant) {
        self.now += 500;
        match self.part.get(&view(self.now, self.force)) {
            Decision::Item(found) => found,
            other => panic!("{other:?}"),
        }
    }

    /// Ends a request.
    pub fn stop(&mut self, request: &Request, grant: &Grant) {
        self.part.stop(grant, request.cost(), self.now);
    }

    /// Removes one of the queued requests; [`Scale::enqueue`] puts it back. Requests are chosen in
    /// an order without a pattern, each once if their number is a power of two.
    ///
    /// # Panics
    ///
    /// The request is not queued.
    pub fn dequeue(&mut self) -> Request {
        self.last = (self.last + 40_503) % self.places.len() as u64;
        let id = self.last;
        let place = self.places[id as usize].as_ref().expect("registered");
        let class = self.classes[id as usize % self.classes.len()];
        let taken = self.part.dequeue(class, place, self.now);
        taken.expect("it is queued")
    }
}
