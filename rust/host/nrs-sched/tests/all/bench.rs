// SPDX-License-Identifier: GPL-2.0-only

//! A part for tests: requests are queued and served by number, each once.

use nrs_sched::{
    arena::{feed, lone_part, view, walk, Number, Request},
    attr::{Attrs, Id, Priority},
    class::ClassId,
    item::{ByteRange, Cost, Direction, Item},
    jobid::JobId,
    nid::Nid,
    policy::{AnyPart, BypassOutcome, BypassReason, Config, Decision, Grant, Kind, Part, Tunables},
};
use std::collections::BTreeMap;

/// Returns a read of one page at `offset`.
pub fn read(offset: u64) -> Request {
    Request {
        pages: 1,
        range: ByteRange::new(0, offset, 4096),
        direction: Direction::Read,
        ..Request::default()
    }
}

/// Returns attributes of number `who` in every field.
pub fn attrs(who: u32) -> Attrs {
    Attrs {
        nid: Nid::parse(&format!("10.0.{}.{}@tcp", who >> 8, who & 255)).ok(),
        uid: Id::new(who),
        gid: Id::new(who / 4),
        jobid: JobId::new(format!("job{who}").as_bytes()),
        client: who.wrapping_add(1),
        object: u64::from(who),
        target: who,
        ..Attrs::UNKNOWN
    }
}

/// A part and its queued requests.
pub struct Bench {
    pub part: AnyPart<Request>,
    pub now: u64,
    /// True if the part is drained.
    pub force: bool,
    /// Class and place of each queued request, by number.
    pub queued: BTreeMap<u64, (ClassId, Number)>,
    next: u64,
}

impl Bench {
    /// Creates a bench without queued requests.
    pub fn new(kind: Kind, tunables: &Tunables) -> Self {
        Self::on(kind, tunables, Priority::Regular)
    }

    /// Creates a bench on the head of `priority`.
    pub fn on(kind: Kind, tunables: &Tunables, priority: Priority) -> Self {
        let config = Config::parse(kind, None, tunables).expect("valid");
        Self::of(&config.on(priority))
    }

    /// Creates a bench with a part of `config`.
    pub fn of(config: &Config) -> Self {
        let mut part = lone_part(config, 7).expect("memory");
        feed(&mut part);
        Self {
            part,
            now: 0,
            force: false,
            queued: BTreeMap::new(),
            next: 0,
        }
    }

    /// Returns the number of queued requests.
    pub fn len(&self) -> usize {
        assert_eq!(self.part.len() as usize, self.queued.len());
        self.queued.len()
    }

    /// Enqueues `request` of `who`; allocates memory and a gate first.
    pub fn bring(&mut self, who: u32, request: Request) -> u64 {
        feed(&mut self.part);
        let id = self.push(&attrs(who), request).expect("taken");
        walk(&mut self.part, self.now);
        id
    }

    /// Enqueues `request`; returns its number, or `None` if it is declined.
    pub fn push(&mut self, attrs: &Attrs, request: Request) -> Option<u64> {
        let class = self.part.classify(attrs, self.now);
        self.next += 1;
        let mut request = Request {
            id: self.next,
            arrival: self.now,
            ..request
        };
        let place = request.register();
        match self.part.enqueue(request, class, self.now) {
            Ok(()) => {
                self.queued.insert(self.next, (class, place));
                Some(self.next)
            }
            Err(mut request) => {
                request.unregister(place);
                None
            }
        }
    }

    /// Passes one request without queueing.
    pub fn pass(&mut self, attrs: &Attrs, cost: Cost) {
        let class = self.part.classify(attrs, self.now);
        let now = self.now;
        let passed = self
            .part
            .pass(class, cost, BypassReason::Opportunity, || now);
        assert_eq!(passed, BypassOutcome::Counted);
    }

    /// Returns the next request, if any.
    pub fn get(&mut self) -> Option<(Request, Grant)> {
        match self.decide() {
            Decision::Item(found) => Some(found),
            _ => None,
        }
    }

    /// Returns the answer of the part.
    pub fn decide(&mut self) -> Decision<(Request, Grant)> {
        let mut got = self.part.get(&view(self.now, self.force));
        match &mut got {
            Decision::Item((request, _)) => {
                let known = self.queued.remove(&request.id);
                let (_, place) = known.expect("it was queued, and did not come out before");
                request.unregister(place);
            }
            Decision::Empty => assert_eq!(self.part.len(), 0),
            Decision::Throttled { until } => assert!(*until > self.now && !self.force),
        }
        got
    }

    /// Serves the next request, which ends at once; returns its number.
    pub fn serve(&mut self) -> Option<u64> {
        let (request, grant) = self.get()?;
        self.part.stop(&grant, request.cost(), self.now);
        Some(request.id)
    }

    /// Removes request `id` from the middle of a queue.
    pub fn take(&mut self, id: u64) {
        let (class, place) = self.queued.remove(&id).expect("it is queued");
        let found = self.part.dequeue(class, &place, self.now);
        let mut request = found.expect("it is found");
        assert_eq!(request.id, id);
        assert!(self.part.dequeue(class, &place, self.now).is_none());
        request.unregister(place);
    }

    /// Passes changed parameters to the part.
    pub fn update(&mut self, kind: Kind, before: &Tunables, after: &Tunables) {
        let before = Config::parse(kind, None, before).expect("valid");
        let update = before.update_to(&before.with(after));
        let _ = self.part.update(update.expect("in place"), self.now);
    }

    /// Serves all queued requests; returns their numbers.
    pub fn drain(&mut self) -> Vec<u64> {
        std::iter::from_fn(|| self.serve()).collect()
    }
}
