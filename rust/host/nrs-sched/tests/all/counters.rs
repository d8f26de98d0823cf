// SPDX-License-Identifier: GPL-2.0-only

//! Counters of parts, opportunity, and class ids and memory of another part.

use nrs_sched::{
    arena::{attrs, feed, lone_part, pass, rows, view, Request},
    class::ClassId,
    item::{Cost, Item},
    key::Key,
    mem::Need,
    policy::{
        fairshare::{
            params::{OppThreshold, Select},
            stats::NodeRow,
        },
        AnyPart, BypassOutcome, Config, Decision, Grant, Kind, Part, Tunables,
    },
};

const PAGES: u32 = 4;

fn fairshare(select: Select, opp_threshold: u32) -> AnyPart<Request> {
    let mut tunables = Tunables::default();
    tunables.fairshare.select = select;
    tunables.fairshare.opp_threshold = OppThreshold::new(opp_threshold).expect("within limits");
    let config = Config::parse(Kind::Fairshare, Some("uid_fair"), &tunables).expect("valid");
    lone_part(&config, 3).expect("memory")
}

fn fifo() -> AnyPart<Request> {
    let config = Config::parse(Kind::Fifo, None, &Tunables::default()).expect("valid");
    lone_part(&config, 3).expect("memory")
}

fn bring(part: &mut AnyPart<Request>, owner: u32, arrival: u64) -> ClassId {
    let class = part.classify(&attrs(owner), arrival);
    let request = Request::new(owner, arrival, PAGES, arrival);
    assert!(part.enqueue(request, class, arrival).is_ok());
    class
}

fn serve(part: &mut AnyPart<Request>, force: bool) -> Option<(Request, Grant)> {
    match part.get(&view(0, force)) {
        Decision::Item(found) => Some(found),
        _ => None,
    }
}

/// Returns the number of requests, their pages, and the requests served without a decision.
fn counts(row: &NodeRow) -> (u64, u64, u64) {
    let stats = &row.stats;
    (
        stats.counts.dispatched,
        stats.counts.cost_pages,
        stats.counts.opportunity,
    )
}

fn row(part: &AnyPart<Request>, uid: u32) -> NodeRow {
    let found = rows(part).into_iter().find(|row| row.key == Key::Uid(uid));
    found.expect("there is a row")
}

#[test]
fn from_the_threshold_on_shares_decide() {
    let mut part = fairshare(Select::Deadline, 8);
    for arrival in 0..16 {
        bring(&mut part, u32::from(arrival >= 8), arrival);
    }
    // Nine decisions take turns, the last seven are in the order of arrival.
    let order: Vec<u32> = std::iter::from_fn(|| serve(&mut part, false))
        .map(|(request, _)| request.owner)
        .collect();
    assert_eq!(order[..9].iter().filter(|&&owner| owner == 0).count(), 5);
    assert_eq!(order[9..], [0, 0, 0, 1, 1, 1, 1]);
    let opportunity: u64 = rows(&part)
        .iter()
        .map(|row| row.stats.counts.opportunity)
        .sum();
    assert_eq!(opportunity, 7);
}

/// Checks that a part that is drained takes no shortcuts.
#[test]
fn force_is_no_opportunity() {
    let mut part = fairshare(Select::Deadline, 256);
    for arrival in 0..8 {
        bring(&mut part, u32::from(arrival >= 4), arrival);
    }
    let order: Vec<u32> = std::iter::from_fn(|| serve(&mut part, true))
        .map(|(request, _)| request.owner)
        .collect();
    assert_eq!(order, [0, 1, 0, 1, 0, 1, 0, 1]);
    assert!(rows(&part)
        .iter()
        .all(|row| row.stats.counts.opportunity == 0));
}

#[test]
fn counters() {
    let mut part = fairshare(Select::Deadline, 0);
    assert!(
        rows(&part).is_empty(),
        "a default class that never served is not shown"
    );
    for arrival in 0..8 {
        bring(&mut part, u32::from(arrival >= 4), arrival);
    }
    let class = bring(&mut part, 1, 9);
    assert_eq!(
        pass(&mut part, class, Cost::of_bytes(100)),
        BypassOutcome::Counted
    );
    let (first, second) = (serve(&mut part, false), serve(&mut part, false));
    let got = row(&part, 1);
    assert_eq!(counts(&got), (2, 5, 1));
    assert_eq!((got.queue_depth, got.requests, got.active), (4, 1, true));
    assert_eq!(got.lag_decipages, 0, "one request each: no lag");
    for (request, grant) in [first, second].into_iter().flatten() {
        part.stop(&grant, request.cost(), 0);
    }
    // After a third request, one class is ahead by the lag of the other.
    let (third, _) = serve(&mut part, false).expect("queued");
    let (ahead, behind) = (row(&part, third.owner), row(&part, 1 - third.owner));
    assert_eq!((ahead.lag_decipages, behind.lag_decipages), (-20, 20));
    let mut from = Some(0);
    while let Some(idx) = from {
        from = part.reset(idx, 1);
    }
    let got = row(&part, third.owner);
    assert_eq!(counts(&got), (0, 0, 0));
    assert_eq!(
        (got.requests, got.active, got.lag_decipages),
        (1, true, -20)
    );
}

/// Checks that rows are returned in pieces, each class once.
#[test]
fn rows_of_many_classes() {
    let mut part = fairshare(Select::Deadline, 0);
    for uid in 0..1000 {
        feed(&mut part);
        bring(&mut part, uid, 0);
    }
    let mut keys: Vec<Key> = rows(&part).iter().map(|row| row.key).collect();
    keys.sort();
    assert_eq!(keys, (0..1000).map(Key::Uid).collect::<Vec<_>>());
}

/// Checks that a stale class id changes no counter, and that a request with a stale id goes to the
/// default class.
#[test]
fn stale_ids_change_nothing() {
    let mut part = fairshare(Select::Deadline, 0);
    let stale = part.classify(&attrs(1), 0);
    part.age(u64::MAX, 64);
    let heir = part.classify(&attrs(2), 0);
    assert_eq!((stale.idx(), part.is_live(stale)), (heir.idx(), false));
    assert_eq!(
        pass(&mut part, stale, Cost::of_bytes(1)),
        BypassOutcome::Stale
    );
    part.stop(&Grant::of(stale), Cost::of_bytes(1), 0);
    let request = Request::new(1, 0, 1, 0);
    assert!(part.enqueue(request, stale, 0).is_ok());
    let keys: Vec<Key> = rows(&part).iter().map(|row| row.key).collect();
    assert_eq!(keys, [Key::Default, Key::Uid(2)]);
    let (_, grant) = serve(&mut part, false).expect("queued");
    assert_eq!(rows(&part)[0].requests, 1);
    part.stop(&grant, request.cost(), 0);
    assert_eq!(rows(&part)[0].requests, 0);
    assert_eq!(row(&part, 2).stats.counts.dispatched, 0);
}

/// Checks that a class with a request in service is not evicted, regardless of the time.
#[test]
fn service_holds_a_class() {
    let mut part = fairshare(Select::Deadline, 0);
    bring(&mut part, 1, 0);
    let (request, grant) = serve(&mut part, false).expect("queued");
    part.age(u64::MAX / 2, 64);
    assert!(part.is_live(grant.class));
    part.stop(&grant, request.cost(), u64::MAX / 2);
    part.age(u64::MAX, 64);
    assert!(!part.is_live(grant.class));
}

/// Checks that memory for a part of another policy, or in excess, is returned.
#[test]
fn memory_of_another_part_comes_back() {
    let mut part = fairshare(Select::Deadline, 0);
    let before = part.need().is_empty();
    let spare = fifo().need().allocate().expect("memory");
    drop(part.grow(spare));
    let other = fairshare(Select::Paper, 0).need().allocate();
    drop(part.grow(other.expect("memory")));
    assert_eq!(part.need().is_empty(), before);
    bring(&mut part, 1, 0);
    assert!(serve(&mut part, false).is_some());
}
