// SPDX-License-Identifier: GPL-2.0-only

//! Tests of heads with small parts that decline, throttle or reserve classes.

use super::*;
use crate::{
    arena::{IndexFifo, Number, Request},
    sched::{
        item::Fifo,
        slab::{Slab, SlabPile},
    },
};
use std::collections::VecDeque;

mod dequeue;
mod drains;
mod drive;
mod random;

/// Creates the request `name`.
fn req(name: u64) -> Request {
    Request::new(0, name, 1, name)
}

/// Behaviour of a mock part.
#[derive(Clone, Copy, Default)]
struct MockBehaviour {
    /// Declines requests whose number is a multiple of this value.
    declines: Option<u64>,
    /// Time before which nothing is served, unless forced.
    until: u64,
    /// Time for which nothing is served after each request, unless forced.
    every: u64,
    /// Serves nothing even if forced, which violates the contract of parts.
    broken: bool,
}

/// FIFO part with the class `object % 4`.
struct Mock {
    manner: MockBehaviour,
    queue: IndexFifo,
    /// Names and classes of the queued requests.
    classes: VecDeque<(u64, ClassId)>,
    alive: Slab<()>,
    passed: u32,
    stopped: u32,
    /// Grant of the last ended request.
    last: Option<Grant>,
    inside: u32,
}

impl Mock {
    fn new(manner: MockBehaviour) -> Self {
        let mut alive = Slab::new(4).unwrap();
        alive.feed(SlabPile::allocate(4).unwrap());
        for _ in 0..4 {
            alive.insert(()).unwrap();
        }
        Self {
            manner,
            queue: IndexFifo::new(),
            classes: VecDeque::new(),
            alive,
            passed: 0,
            stopped: 0,
            last: None,
            inside: 0,
        }
    }

    fn plain() -> Self {
        Self::new(MockBehaviour::default())
    }

    /// Replaces all classes by new ones at the same indices.
    fn renew(&mut self) {
        for idx in 0..4 {
            self.alive.remove(idx).unwrap();
            assert_eq!(self.alive.insert(()).unwrap().idx(), idx);
        }
    }
}

impl Part<Request> for Mock {
    type Need = ();
    type Spare = ();
    type Shared = ();
    type Update = ();

    fn classify(&mut self, attrs: &Attrs, _now: u64) -> ClassId {
        self.alive.handle((attrs.object % 4) as u32).unwrap()
    }

    fn is_live(&self, class: ClassId) -> bool {
        self.alive.get(class).is_some()
    }

    fn enqueue(
        &mut self,
        item: Request,
        class: ClassId,
        _now: u64,
    ) -> core::result::Result<(), Request> {
        assert!(self.is_live(class), "tickets are checked");
        if self.manner.declines.is_some_and(|n| item.id % n == 0) {
            return Err(item);
        }
        self.classes.push_back((item.id, class));
        self.queue.push(item);
        Ok(())
    }

    fn dequeue(&mut self, class: ClassId, place: &Number, _now: u64) -> Option<Request> {
        let item = self.queue.remove(place)?;
        self.classes.retain(|one| *one != (item.id, class));
        assert_eq!(self.classes.len() as u32, self.queue.len());
        Some(item)
    }

    fn get(&mut self, view: &PartView<'_>) -> Decision<(Request, Grant)> {
        assert!(!self.queue.is_empty(), "asked only if something is queued");
        if self.manner.broken {
            return Decision::Empty;
        }
        if view.now < self.manner.until && !view.force {
            return Decision::Throttled {
                until: self.manner.until,
            };
        }
        self.inside += 1;
        if self.manner.every > 0 {
            self.manner.until = view.now + self.manner.every;
        }
        let item = self.queue.pop().unwrap();
        let grant = Grant {
            charged: item.id as u32,
            stamp: view.now,
            ..Grant::of(self.classes.pop_front().unwrap().1)
        };
        Decision::Item((item, grant))
    }

    fn throttled(&self, now: u64) -> Option<u64> {
        (now < self.manner.until).then_some(self.manner.until)
    }

    fn pass(
        &mut self,
        class: ClassId,
        _cost: Cost,
        _way: BypassReason,
        _now: impl FnOnce() -> u64,
    ) -> BypassOutcome {
        if !self.is_live(class) {
            return BypassOutcome::Stale;
        }
        self.passed += 1;
        BypassOutcome::Counted
    }

    fn stop(&mut self, grant: &Grant, _cost: Cost, _now: u64) -> bool {
        self.stopped += u32::from(self.is_live(grant.class));
        self.last = Some(*grant);
        false
    }

    fn len(&self) -> u32 {
        self.queue.len()
    }

    fn need(&self) {}

    fn grow(&mut self, (): ()) {}

    fn age(&mut self, _now: u64, _max: u32) -> bool {
        false
    }

    fn update(&mut self, (): (), _now: u64) {}

    fn refresh(&mut self, _from: u32, _max: u32, _now: u64) -> Option<u32> {
        None
    }

    fn reset(&mut self, _from: u32, _max: u32) -> Option<u32> {
        None
    }

    fn overflow(&self) -> u64 {
        0
    }
}

type TestHead = Head<Request, Mock, u32>;

const COST: Cost = Cost::of_bytes(4096);

fn attrs(object: u64) -> Attrs {
    Attrs {
        object,
        length: 4096,
        ..Attrs::UNKNOWN
    }
}

fn pass(head: &mut TestHead, ticket: &HeadTicket) -> BypassOutcome {
    head.pass(ticket, COST, BypassReason::Opportunity, || 0)
}

fn view(now: u64) -> PartView<'static> {
    PartView {
        now,
        force: false,
        table: None,
    }
}

fn add(head: &mut TestHead, number: u64) -> HeadTicket {
    let ticket = head.classify(&attrs(number), 0);
    head.enqueue(req(number), ticket, || attrs(number), 0)
        .unwrap()
}

/// Dispatches requests at `now` until none is eligible; returns their numbers.
fn drain(head: &mut TestHead, now: u64) -> Vec<u64> {
    let mut out = vec![];
    while let Decision::Item((item, ticket)) = head.get(&view(now), || false) {
        head.stop(&ticket, COST, now);
        out.push(item.id);
    }
    out
}

/// Returns state, tag, queued and active of each instance.
fn shown(head: &TestHead) -> Vec<(&'static str, u32, u32, u32)> {
    let sum: u32 = head.instances().map(|status| status.queued).sum();
    assert_eq!(head.queued(), sum);
    head.instances()
        .map(|s| (s.state.name(), *s.tag, s.queued, s.active))
        .collect()
}

#[test]
fn a_switch_drains_the_old_ones() {
    let mut head = TestHead::new(Mock::plain(), 0);
    let throttled = MockBehaviour {
        until: 100,
        ..MockBehaviour::default()
    };
    head.install(Mock::new(throttled), 1).ok().unwrap();
    add(&mut head, 1);
    add(&mut head, 2);
    head.install(Mock::new(throttled), 2).ok().unwrap();
    add(&mut head, 3);
    head.drop_primary();
    add(&mut head, 4);
    head.install(Mock::plain(), 3).ok().unwrap();
    add(&mut head, 5);
    assert_eq!(
        shown(&head),
        [
            ("started", 0, 1, 0),
            ("stopping", 1, 2, 0),
            ("stopping", 2, 1, 0),
            ("started", 3, 1, 0)
        ]
    );
    assert_eq!(head.can_install().unwrap_err().code, Code::Again);
    let refused = head.install(Mock::plain(), 4);
    assert!(refused.is_err(), "the part comes back");
    assert_eq!(shown(&head)[3], ("started", 3, 1, 0), "nothing changed");
    // No further instance can be installed. The instance with the fewest requests is forced in its
    // turns; the other one is forced when the rest is done.
    let mut tickets = VecDeque::new();
    let mut order = vec![];
    while let Decision::Item((item, ticket)) = head.get(&view(0), || false) {
        order.push(item.id);
        tickets.push_back(ticket);
    }
    assert_eq!(order, [3, 5, 4, 1, 2]);
    assert!(head.reap().is_none(), "active requests hold it");
    head.stop(&tickets.pop_front().unwrap(), COST, 0);
    assert_eq!(head.reap().unwrap().stopped, 1);
    assert!(head.reap().is_none() && head.can_install().is_ok());
    head.stop(&tickets.pop_back().unwrap(), COST, 0);
    assert!(head.reap().is_none(), "one is still active");
    head.stop(&tickets.pop_back().unwrap(), COST, 0);
    assert_eq!(head.reap().unwrap().stopped, 2);
    assert_eq!(shown(&head), [("started", 0, 0, 1), ("started", 3, 0, 1)]);
}

#[test]
fn primary_and_fallback_take_turns() {
    let mut head = TestHead::new(Mock::plain(), 0);
    for n in 1..=3 {
        add(&mut head, n);
    }
    head.install(Mock::plain(), 1).ok().unwrap();
    for n in 11..=15 {
        add(&mut head, n);
    }
    assert_eq!(drain(&mut head, 0), [11, 1, 12, 2, 13, 3, 14, 15]);
    assert!(head.primary_mut().is_some_and(|p| p.stopped == 5));
}

#[test]
fn a_fallback_that_declines_hands_back() {
    let all = MockBehaviour {
        declines: Some(1),
        ..MockBehaviour::default()
    };
    let mut head = TestHead::new(Mock::new(all), 0);
    for primary in [false, true] {
        if primary {
            head.install(Mock::new(all), 1).ok().unwrap();
        }
        let ticket = head.classify(&attrs(7), 0);
        assert_eq!(head.enqueue(req(7), ticket, || attrs(7), 0), Err(req(7)));
        assert_eq!(head.queued(), 0);
    }
}

#[test]
fn a_throttled_request_blocks_no_other_class() {
    let manner = |until| MockBehaviour {
        until,
        declines: Some(10),
        ..MockBehaviour::default()
    };
    let fallback = MockBehaviour {
        until: 300,
        ..MockBehaviour::default()
    };
    let mut head = TestHead::new(Mock::new(fallback), 0);
    head.install(Mock::new(manner(500)), 1).ok().unwrap();
    add(&mut head, 1);
    assert!(matches!(
        head.get(&view(0), || false),
        Decision::Throttled { until: 500 }
    ));
    add(&mut head, 10);
    assert!(matches!(
        head.get(&view(0), || false),
        Decision::Throttled { until: 300 }
    ));
    assert_eq!(drain(&mut head, 300), [10]);
    assert!(matches!(
        head.get(&view(300), || false),
        Decision::Throttled { until: 500 }
    ));
    add(&mut head, 20);
    let force = PartView {
        force: true,
        ..view(0)
    };
    for want in [1, 20] {
        let Decision::Item((item, _)) = head.get(&force, || false) else {
            panic!()
        };
        assert_eq!(item, req(want));
    }
    assert!(matches!(head.get(&force, || false), Decision::Empty));
}

#[test]
fn a_broken_part_does_not_block_the_rest() {
    let broken = MockBehaviour {
        broken: true,
        ..MockBehaviour::default()
    };
    let mut head = TestHead::new(Mock::plain(), 0);
    add(&mut head, 1);
    head.install(Mock::new(broken), 1).ok().unwrap();
    add(&mut head, 2);
    head.install(Mock::plain(), 2).ok().unwrap();
    add(&mut head, 3);
    head.install(Mock::plain(), 3).ok().unwrap();
    add(&mut head, 4);
    assert_eq!(drain(&mut head, 0), [3, 4, 1]);
    assert_eq!(head.queued(), 1);
    assert!(head.reap().is_some_and(|part| part.queue.is_empty()));
    assert!(head.reap().is_none(), "never with something queued");
}

#[test]
fn tickets_go_stale() {
    let mut head = TestHead::new(Mock::plain(), 0);
    let old = head.classify(&attrs(1), 0);
    assert!(head.is_live(&old));
    head.install(Mock::plain(), 1).ok().unwrap();
    assert!(!head.is_live(&old), "the primary takes new requests");
    let primary = head.classify(&attrs(1), 0);
    // The class is removed, the instance remains.
    head.primary_mut().unwrap().renew();
    assert!(!head.is_live(&primary));
    let made = head.enqueue(req(1), old, || attrs(1), 0).unwrap();
    assert_eq!(made.class().idx(), 1, "classified again, in the primary");
    assert_eq!(made.instance(), primary.instance());
    assert_ne!(made.class(), primary.class());
    assert!(head.is_live(&made));
    assert_eq!(drain(&mut head, 0), [1]);
    // The instance is removed, another one takes its index.
    head.drop_primary();
    assert!(head.is_live(&old) && head.reap().is_some());
    let id = head.install(Mock::plain(), 2).ok().unwrap();
    head.primary_mut().unwrap().renew();
    assert!(!head.is_live(&made) && head.part_mut(made.instance()).is_none());
    assert!(head.part_mut(id).is_some());
    let queued = head.enqueue(req(2), made, || attrs(2), 0).unwrap();
    assert_eq!(queued.instance(), id);
}
