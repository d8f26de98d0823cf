// SPDX-License-Identifier: GPL-2.0-only

use super::*;

const DELTA: u64 = 100_000_000;

fn terms() -> Terms {
    Terms {
        realm: 5,
        grain: 1,
        datagram_max: (message::HEADER + 2 * message::RECORD) as u32,
        ..Terms::default()
    }
}

/// Returns the account of an active leaf without queued requests.
fn account(id: u64, service: u64) -> Account {
    Account {
        id,
        parent: 0,
        weight: 4096,
        leaf: true,
        service,
        active: true,
        waiting: false,
    }
}

fn record(exchange: &mut Exchange, id: u64, service: u64) {
    exchange.record(&account(id, service));
}

#[test]
fn a_message_is_cut_into_datagrams_that_stand_alone() {
    let mut one = Exchange::new(1, 1, terms());
    let mut two = Exchange::new(2, 1, terms());
    for delta in 1..=3u64 {
        for id in 1..=5 {
            record(&mut one, id, delta * id * 1000);
        }
        one.step(delta * DELTA);
        let said = one.encode(delta * DELTA);
        // Rates are unknown before the second step.
        assert_eq!(said.len(), if delta > 1 { 3 } else { 0 });
        assert!(said.iter().all(|bytes| bytes.len() <= 88));
        // In reverse order; in the last round one datagram is lost.
        for bytes in said.iter().rev().take(if delta == 3 { 2 } else { 3 }) {
            two.receive(1, bytes, delta * DELTA + 1).unwrap();
        }
    }
    for id in 1..=5 {
        record(&mut two, id, 0);
    }
    two.step(4 * DELTA);
    for id in 1..=5u64 {
        assert_eq!(two.elsewhere(id), Some((id * 10_000) << 12));
    }
    let counts = one.counts();
    assert_eq!((counts.said, counts.said_bytes), (6, 2 * (3 * 56 + 5 * 16)));
    assert_eq!(two.counts().heard, 5);
}

/// Makes the required steps and returns a message of `exchange`.
fn message(exchange: &mut Exchange) -> Vec<u8> {
    exchange.step(DELTA);
    exchange.step(2 * DELTA);
    exchange.encode(2 * DELTA).remove(0)
}

#[test]
fn what_is_refused_is_counted() {
    let mut one = Exchange::new(1, 1, terms());
    record(&mut one, 3, 1);
    let bytes = message(&mut one);
    assert_eq!(one.receive(1, &bytes, DELTA), Err(Refusal::Own));
    let other = Terms {
        realm: 6,
        ..terms()
    };
    let mut foreign = Exchange::new(2, 1, other);
    assert_eq!(foreign.receive(1, &bytes, DELTA), Err(Refusal::Foreign));
    assert_eq!(foreign.receive(1, &[], DELTA), Err(Refusal::Malformed));
    let mut two = Exchange::new(2, 1, terms());
    // A datagram of another server in the name of the first one does not block the datagrams of the
    // first one.
    assert_eq!(two.receive(7, &bytes, DELTA), Err(Refusal::Forged));
    assert_eq!(two.receive(1, &bytes, DELTA), Ok(()));
    assert_eq!(two.receive(1, &bytes, DELTA), Err(Refusal::Duplicate));
    let counts = two.counts();
    assert_eq!((counts.heard, counts.stale, counts.foreign), (1, 1, 1));
    let counts = foreign.counts();
    assert_eq!((counts.heard, counts.foreign, counts.malformed), (0, 1, 1));
}

#[test]
fn server_without_entities_sends_datagrams() {
    let mut one = Exchange::new(1, 1, terms());
    let mut two = Exchange::new(2, 1, terms());
    let bytes = message(&mut one);
    two.receive(1, &bytes, DELTA).unwrap();
    assert_eq!(two.servers(), 1);
}

/// Simulates two ideal servers of the same capacity with a common entity, whose weights are
/// `weights`, and an entity of weight 1 of their own. Returns the final service of the common
/// entity and of each of the others, units per delta.
fn split(weights: [u32; 2]) -> [u64; 3] {
    let mut servers = [1, 2].map(|server| Exchange::new(server, 1, terms()));
    let mut totals = [[0u64; 2]; 2];
    let mut got = [[0u64; 2]; 2];
    for delta in 1..=200u64 {
        let now = delta * DELTA;
        let mut said = Vec::new();
        for (at, exchange) in servers.iter_mut().enumerate() {
            let (both, alone) = (1, 2 + at as u64);
            let factors: std::collections::BTreeMap<_, _> =
                exchange.factors().into_iter().collect();
            let weight = |id, weight: u32| {
                let factor = factors.get(&id).copied().unwrap_or(1 << 31);
                (u64::from(weight * 4096) * u64::from(factor)) >> 31
            };
            let (one, other) = (weight(both, weights[at]), weight(alone, 1));
            got[at] = [1000 * one / (one + other), 1000 * other / (one + other)];
            for (which, (id, weight)) in [(both, weights[at]), (alone, 1)].into_iter().enumerate() {
                totals[at][which] += got[at][which];
                exchange.record(&Account {
                    weight: weight * 4096,
                    waiting: true,
                    ..account(id, totals[at][which])
                });
            }
            exchange.step(now);
            said.extend(exchange.encode(now).into_iter().map(|bytes| (at, bytes)));
        }
        for (at, bytes) in said {
            let _ = servers[1 - at].receive(at as u64 + 1, &bytes, now + 1);
        }
    }
    [got[0][0] + got[1][0], got[0][1], got[1][1]]
}

#[test]
fn the_largest_weight_of_an_entity_counts_everywhere() {
    // With a weight of 2 on both servers the common entity has 1000 of 2000 units, each of the
    // others 500.
    for weights in [[2, 2], [1, 2], [2, 1]] {
        let got = split(weights);
        for (got, want) in got.into_iter().zip([1000, 500, 500]) {
            assert!(u64::abs_diff(got, want) <= 10, "{weights:?}: {got} {want}");
        }
    }
}

#[test]
fn what_was_saved_is_where_a_server_begins() {
    let waits = |id, service| Account {
        waiting: true,
        ..account(id, service)
    };
    let mut before = Exchange::new(1, 1, terms());
    for delta in 1..=3 {
        // Entity 3 gets more service.
        before.record(&waits(3, delta * 3000));
        before.record(&waits(4, delta * 1000));
        before.step(delta * DELTA);
    }
    let factors = before.factors();
    assert!(factors[0].1 < factors[1].1 / 8 * 7, "{factors:?}");
    let saved = before.save();
    let mut after = Exchange::new(1, 2, terms());
    assert!(!after.restore(&saved, SAVED_NS + 1));
    assert!(!after.restore(&saved[..saved.len() - 1], 0));
    assert!(!after.restore(&[], 0));
    assert!(after.restore(&saved, SAVED_NS));
    after.record(&waits(3, 7));
    after.record(&waits(4, 7));
    after.record(&waits(5, 7));
    after.step(DELTA);
    assert_eq!(after.factors()[..2], factors);
    assert_eq!(after.factors()[2], (5, 1 << 31));
}
