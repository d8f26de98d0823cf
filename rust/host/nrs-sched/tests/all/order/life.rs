// SPDX-License-Identifier: GPL-2.0-only

//! Individual situations: ordering, promotion, forced dispatch, and requests without a record.

use nrs_sched::{
    arena::Request,
    attr::{Attrs, Priority},
    item::{ByteRange, Direction},
    order::{Forced, Order, OrderAction, OrderOutcome, Relation, PREDECESSORS_MAX},
    policy::{
        tbf::params::{Depth, Rate},
        Config, Kind, Tunables,
    },
    server::{Relate, RequestPhase},
    watched::{Arrival, Watched, PLAIN},
};

const HIGH: Arrival = Arrival {
    high: true,
    ..PLAIN
};

const FORCED: Arrival = Arrival {
    forced: true,
    ..PLAIN
};

fn fifo() -> Config {
    Config::parse(Kind::Fifo, None, &Tunables::default()).expect("valid")
}

/// Returns a policy with one request/s for each user, and without saved tokens.
fn slow() -> Config {
    let mut tunables = Tunables::default();
    tunables.tbf.depth = Depth::parse("1").expect("valid");
    tunables.tbf.rate = Rate::parse("1").expect("valid");
    Config::parse(Kind::Tbf, Some("uid"), &tunables).expect("valid")
}

fn io(direction: Direction, block: u64) -> Request {
    Request {
        pages: 1,
        range: ByteRange::new(0, block * 4096, 4096),
        direction,
        ..Request::default()
    }
}

fn read(block: u64) -> Request {
    io(Direction::Read, block)
}

fn write(block: u64) -> Request {
    io(Direction::Write, block)
}

/// Submits a request that is ordered by its range.
fn arrive(watched: &mut Watched, request: Request, how: Arrival) -> u64 {
    let id = watched.arrive(request, Relate::Range(0), how);
    id.expect("it is taken")
}

#[test]
fn only_a_write_orders() {
    for (first, second, ordered) in [
        (read(1), read(1), false),
        (read(1), write(1), true),
        (write(1), read(1), true),
        (write(1), write(1), true),
        // For example a discard.
        (read(1), io(Direction::Other, 1), true),
        (write(1), write(2), false),
        (write(1), write(0), false),
    ] {
        let mut watched = Watched::new(&fifo(), 8, 100);
        arrive(&mut watched, first, PLAIN);
        let id = arrive(&mut watched, second, PLAIN);
        let phase = if ordered {
            RequestPhase::Blocked
        } else {
            RequestPhase::Started
        };
        assert_eq!(
            watched.server.phase(id),
            Some(phase),
            "{first:?} {second:?}"
        );
        watched.drain(|| 0);
    }
    // In another domain.
    let mut watched = Watched::new(&fifo(), 8, 100);
    arrive(&mut watched, write(1), PLAIN);
    let id = watched
        .arrive(write(1), Relate::Range(1), PLAIN)
        .expect("taken");
    assert_eq!(watched.server.phase(id), Some(RequestPhase::Started));
    watched.drain(|| 0);
}

/// Checks that a promoted request also promotes its predecessors, ahead of earlier requests.
#[test]
fn a_promoted_request_promotes_its_predecessors() {
    let mut watched = Watched::new(&fifo(), 2, 100);
    arrive(&mut watched, write(9), HIGH);
    watched.complete(0);
    // One slot is reserved for high priority: request 1 has the other one.
    for block in [0, 1, 2, 3, 2, 4, 2] {
        arrive(&mut watched, write(block), PLAIN);
    }
    assert_eq!(watched.log, [0, 1]);
    assert_eq!(watched.server.phase(7), Some(RequestPhase::Blocked));
    watched.promote(7);
    watched.check_urgent();
    assert_eq!(watched.log, [0, 1, 3]);
    for next in [5, 7] {
        let last = watched.running.iter().position(|id| *id != 1);
        watched.complete(last.expect("one is high"));
        assert_eq!(watched.log.last(), Some(&next));
    }
    watched.drain(|| 0);
    assert_eq!(watched.log, [0, 1, 3, 5, 7, 2, 4, 6]);
}

/// Checks a forced request whose latest predecessor takes too long to find. The request is blocked
/// by other predecessors first; in the end all predecessors are forced, too.
#[test]
fn a_forced_request_takes_down_what_is_hard_to_find() {
    const N: u64 = 1000;
    let mut watched = Watched::new(&slow(), 2, 4096);
    // Long old ranges overlap short new ranges that end before the searched range.
    for i in 0..N {
        let range = ByteRange::new(0, 2 * (i * 13 % N), 1 << 40);
        arrive(&mut watched, Request { range, ..read(0) }, PLAIN);
        watched.feed();
    }
    for i in 0..N {
        let range = ByteRange::new(0, 2 * (i * 7 % N) + 1, 1);
        arrive(&mut watched, Request { range, ..read(0) }, PLAIN);
        watched.feed();
    }
    let started = watched.log.len();
    let range = ByteRange::new(0, 1 << 30, 4096);
    let id = arrive(&mut watched, Request { range, ..write(0) }, FORCED);
    let (now, told) = (watched.server.now, watched.log.len() - started);
    assert!(
        told < N as usize - 1,
        "the search is never given up: {told}"
    );
    while watched.server.phase(id) != Some(RequestPhase::Started) {
        assert!(watched.complete(0), "nothing else can help");
    }
    assert_eq!(watched.server.now, now);
    watched.force_all();
    watched.drain(|| 0);
}

/// Checks that requests without a record are served in the order of arrival, and are not lost.
#[test]
fn without_records_they_wait_in_a_row() {
    let mut watched = Watched::new(&fifo(), 8, 3);
    for block in [0, 0, 1, 2, 3, 0] {
        arrive(&mut watched, write(block), PLAIN);
    }
    assert_eq!(watched.log, [0, 2]);
    assert_eq!(watched.server.phase(1), Some(RequestPhase::Blocked));
    for id in 3..6 {
        assert_eq!(watched.server.phase(id), Some(RequestPhase::Overflowed));
    }
    assert_eq!(watched.server.order().overflowed(), 3);
    // A request whose front-end can retry is refused. A request without a relation needs no record.
    let stream = Relate::As(Relation::sequence(9));
    assert_eq!(watched.arrive(write(9), stream, PLAIN), None);
    assert_eq!(
        watched.arrive(write(9), Relate::As(Relation::Free), PLAIN),
        None
    );
    assert!(watched.arrive(write(9), Relate::Not, PLAIN).is_some());
    let second = watched.running.iter().position(|id| *id == 2);
    watched.complete(second.expect("it is running"));
    assert_eq!(watched.log, [0, 2, 6, 3]);
    watched.drain(|| 0);
    assert_eq!(watched.server.order().overflows(), 3);
}

/// Checks that an overflowed request is served in its original class, although its attributes are
/// not stored.
#[test]
fn a_request_that_overflowed_keeps_its_class() {
    let mut watched = Watched::new(&slow(), 8, 1);
    let owner = |owner| Arrival { owner, ..PLAIN };
    // The second request of user 2 is throttled for a second, and has the only record.
    for who in [1, 2, 2, 3] {
        arrive(&mut watched, write(0), owner(who));
    }
    while watched.complete(0) {}
    assert_eq!(watched.log, [0, 1]);
    assert_eq!(
        watched.server.phase(2),
        Some(RequestPhase::Queued(Priority::Regular))
    );
    watched.drain(|| 0);
}

#[test]
fn names_that_are_gone_mean_nothing() {
    let mut order: Order<Request> = Order::new(10, 1).expect("memory");
    let OrderOutcome::Free(first) = order.enter(Relation::sequence(1), false) else {
        panic!("the table is not empty");
    };
    assert!(order.running(first).is_none() && order.is_live(first));
    let OrderOutcome::Blocked(second) = order.enter(Relation::sequence(1), true) else {
        panic!("the first has not ended");
    };
    // The request ends before it is blocked.
    order.finish(second);
    assert!(!order.is_live(second));
    while order.next().is_some() {}
    order.finish(first);
    order.finish(first);
    order.promote(first);
    assert!(order.next().is_none() && !order.is_busy());
    assert_eq!((order.live(), order.blocked()), (0, 0));
    let after = Relation::After([
        Some(first),
        Some(second),
        None,
        None,
        None,
        None,
        None,
        None,
    ]);
    assert!(matches!(order.enter(after, false), OrderOutcome::Free(_)));
}

/// Checks that a request is never ordered after itself. A replaced table reuses record ids, so an
/// old id may equal that of the request.
#[test]
fn a_request_does_not_wait_for_itself() {
    let table = || Order::<Request>::new(10, 1).expect("memory");
    let OrderOutcome::Free(name) = table().enter(Relation::sequence(1), false) else {
        panic!("the table is not empty");
    };
    let mut after = [None; PREDECESSORS_MAX];
    after[0] = Some(name);
    let entered = table().enter(Relation::After(after), false);
    assert!(matches!(entered, OrderOutcome::Free(id) if id == name));
}

/// Checks that a request without a record is still dispatched at once when it gets one.
#[test]
fn an_overflowed_request_stays_forced_at_once() {
    for forced in [Forced::InTurn, Forced::AtOnce] {
        let mut order: Order<Request> = Order::new(1, 1).expect("memory");
        let OrderOutcome::Free(first) = order.enter(Relation::Free, false) else {
            panic!("there is room");
        };
        order.overflow(write(0), 5, false, forced);
        assert!(order.next().is_none());
        order.finish(first);
        let Some(OrderAction::Release {
            id, forced: how, ..
        }) = order.next()
        else {
            panic!("there is room");
        };
        assert_eq!(how, forced);
        order.finish(id);
    }
}

/// Checks that an urgent request urges no later request that has the id of a predecessor from a
/// replaced table.
#[test]
fn an_old_name_urges_no_later_request() {
    let mut old = Order::<Request>::new(10, 1).expect("memory");
    let mut ids = (0..3).map(|_| match old.enter(Relation::Free, false) {
        OrderOutcome::Free(id) => id,
        _ => panic!("there is room"),
    });
    let stale = ids.nth(2);
    let mut order = Order::<Request>::new(10, 1).expect("memory");
    let OrderOutcome::Free(first) = order.enter(Relation::sequence(1), false) else {
        panic!("the table is empty");
    };
    let mut after = [None; PREDECESSORS_MAX];
    (after[0], after[1]) = (Some(first), stale);
    let OrderOutcome::Blocked(second) = order.enter(Relation::After(after), false) else {
        panic!("the first has not ended");
    };
    order.block(second, write(0), Attrs::UNKNOWN, Forced::No);
    let OrderOutcome::Blocked(third) = order.enter(Relation::sequence(1), false) else {
        panic!("the first has not ended");
    };
    assert_eq!(Some(third), stale);
    order.block(third, write(1), Attrs::UNKNOWN, Forced::No);
    order.promote(second);
    while order.next().is_some() {}
    order.finish(first);
    let mut released = Vec::new();
    while let Some(action) = order.next() {
        if let OrderAction::Release { id, priority, .. } = action {
            released.push((id, priority));
            order.finish(id);
        }
    }
    released.sort_by_key(|(id, _)| *id == third);
    let want = [(second, Priority::High), (third, Priority::Regular)];
    assert_eq!(released, want);
}

#[test]
fn the_bound_can_change() {
    let mut order: Order<Request> = Order::new(100, 1).expect("memory");
    order.set_max(1);
    let OrderOutcome::Free(first) = order.enter(Relation::Free, false) else {
        panic!("there is room");
    };
    assert_eq!(order.enter(Relation::Free, false), OrderOutcome::Full);
    assert_eq!(
        order.enter(Relation::sequence(1), false),
        OrderOutcome::Full
    );
    order.overflow(write(0), 5, true, Forced::No);
    assert!(order.next().is_none());
    order.set_max(2);
    // Not ahead of the overflowed request.
    assert_eq!(
        order.enter(Relation::sequence(1), false),
        OrderOutcome::Full
    );
    let Some(OrderAction::Release {
        id,
        item,
        attrs,
        priority,
        forced,
    }) = order.next()
    else {
        panic!("there is room");
    };
    assert_eq!(
        (item.mark, priority, forced),
        (0, Priority::High, Forced::No)
    );
    assert!(attrs.is_none());
    assert!(order.running(id).is_none());
    order.finish(id);
    order.finish(first);
    assert_eq!(order.live(), 0);
}
