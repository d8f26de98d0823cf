// SPDX-License-Identifier: GPL-2.0-only

//! Tests of stopping instances while other instances have queued requests.

use super::*;
use crate::sched::units::{NSEC_PER_MSEC as MS, NSEC_PER_SEC as SECOND};

/// Time between two requests of a part with 10 requests/s, ns.
const TENTH: u64 = 100 * MS;

/// Creates a head whose primary serves one request each `every` ns and has `count` queued requests,
/// numbered from 1,000.
fn limited(every: u64, count: u64) -> TestHead {
    let mut head = TestHead::new(Mock::plain(), 0);
    let manner = MockBehaviour {
        until: every,
        every,
        ..MockBehaviour::default()
    };
    head.install(Mock::new(manner), 1).ok().unwrap();
    for number in 1000..1000 + count {
        add(&mut head, number);
    }
    head
}

/// Dispatches a request at `now`; returns its number.
fn next(head: &mut TestHead, now: u64) -> Option<u64> {
    let Decision::Item((item, ticket)) = head.get(&view(now), || false) else {
        return None;
    };
    head.stop(&ticket, COST, now);
    Some(item.id)
}

/// Dispatches one request each ms from `from` to `to` while the running instance is always
/// backlogged. Returns the times at which requests of other instances were dispatched.
fn dispatch_backlogged(head: &mut TestHead, from: u64, to: u64) -> Vec<u64> {
    let mut times = vec![];
    for now in (from..to).step_by(MS as usize) {
        add(head, 1);
        if next(head, now).unwrap() >= 1000 {
            times.push(now);
            // The request of the running instance is still queued.
            assert_eq!(next(head, now), Some(1));
        }
    }
    times
}

/// Checks that a change of the policy does not dispatch the backlog of a limited user before
/// requests of other users.
#[test]
fn policy_change_dispatches_no_backlog_first() {
    for fallback in [false, true] {
        let mut head = limited(TENTH, 10_000);
        if fallback {
            head.drop_primary();
        } else {
            head.install(Mock::plain(), 2).ok().unwrap();
        }
        add(&mut head, 1);
        let first: Vec<_> = (0..2).filter_map(|_| next(&mut head, 0)).collect();
        assert!(first.contains(&1), "{first:?}");
        // While others are backlogged, the old instance keeps its 10 requests/s.
        let times = dispatch_backlogged(&mut head, MS, 10 * SECOND);
        assert!((98..=101).contains(&times.len()), "{}", times.len());
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= TENTH));
        // Otherwise it is drained at once.
        let left = head.queued() as usize;
        assert_eq!(drain(&mut head, 10 * SECOND).len(), left);
        assert!(head.reap().is_some() && head.reap().is_none());
    }
}

/// Checks that old and new requests take turns without limits.
#[test]
fn stopping_instances_take_turns() {
    let mut head = limited(0, 4);
    head.install(Mock::plain(), 2).ok().unwrap();
    for number in 1..=3 {
        add(&mut head, number);
    }
    assert_eq!(drain(&mut head, 0), [1000, 1, 1001, 2, 1002, 3, 1003]);
}

/// Checks that an instance throttled forever is drained, with other instances and an older stopping
/// one.
#[test]
fn each_drain_ends() {
    let mut head = limited(0, 5_000);
    head.install(Mock::plain(), 2).ok().unwrap();
    let never = MockBehaviour {
        until: u64::MAX,
        ..MockBehaviour::default()
    };
    head.primary_mut().unwrap().manner = never;
    for number in 1..=3 {
        add(&mut head, number);
    }
    head.drop_primary();
    let mut times = vec![];
    for now in (0..5 * SECOND).step_by(2 * MS as usize) {
        add(&mut head, 4);
        if next(&mut head, now).is_some_and(|number| number < 4) {
            times.push(now);
        }
        if next(&mut head, now).is_some_and(|number| number < 4) {
            times.push(now);
        }
    }
    assert_eq!(times, [SECOND, 2 * SECOND, 3 * SECOND]);
    assert_eq!(head.reap().map(|part| part.inside), Some(3));
}

/// Checks that with the maximum number of instances the one that can end first is drained in its
/// turns. Another change is then possible soon.
#[test]
fn a_place_is_free_soon() {
    let mut head = limited(TENTH, 10_000);
    for tag in 2..=3 {
        let manner = MockBehaviour {
            until: TENTH,
            every: TENTH,
            ..MockBehaviour::default()
        };
        head.install(Mock::new(manner), tag).ok().unwrap();
        for number in 100..110 {
            add(&mut head, number);
        }
    }
    head.primary_mut().unwrap().manner = MockBehaviour::default();
    for number in 0..100 {
        add(&mut head, number);
    }
    assert!(head.can_install().is_err());
    let order: Vec<_> = (0..20).filter_map(|_| next(&mut head, 0)).collect();
    let old = order.iter().step_by(2).copied();
    assert!(old.eq(100..110), "{order:?}");
    assert!(order.iter().skip(1).step_by(2).all(|number| *number < 110));
    assert!(head.reap().is_some() && head.can_install().is_ok());
    // The limits of the other instance apply again.
    assert!((0..50).all(|_| next(&mut head, 0).unwrap() < 1000));
}

/// Checks that limits apply while another head has eligible requests, and that the head is queried
/// again soon.
#[test]
fn limits_hold_beside_another_head() {
    for (every, times) in [(5 * MS, 10), (TENTH, 10), (3 * SECOND, 1)] {
        let mut head = limited(every, 20);
        head.drop_primary();
        let (mut now, mut last) = (0, 0);
        for _ in 0..times {
            while now - last < every.min(SECOND) {
                let Decision::Throttled { until } = head.get(&view(now), || true) else {
                    panic!("no limit at {now}");
                };
                assert!(until > now && until - now <= 10 * MS);
                now = until;
            }
            assert!(matches!(head.get(&view(now), || true), Decision::Item(_)));
            last = now;
        }
        assert_eq!(drain(&mut head, now).len(), 20 - times);
    }
}

/// Checks that a forced drain serves the oldest instance first.
#[test]
fn a_drain_by_force_takes_no_turns() {
    let mut head = limited(TENTH, 3);
    head.install(Mock::plain(), 2).ok().unwrap();
    for number in 1..=3 {
        add(&mut head, number);
    }
    let force = PartView {
        force: true,
        ..view(0)
    };
    let mut order = vec![];
    while let Decision::Item((item, _)) = head.get(&force, || false) {
        order.push(item.id);
    }
    assert_eq!(order, [1000, 1001, 1002, 1, 2, 3]);
}
