// SPDX-License-Identifier: GPL-2.0-only

//! Arbitrary network input: parsed messages equal the written ones, and factors stay within their
//! limits.

use nrs_agent::{
    message::{parse, write, Header, Record},
    Account, Exchange, Terms,
};
use nrs_sched::{
    agent::FactorPairs,
    policy::fairshare::factors::{Factors, ONE},
};
use proptest::prelude::*;

const DELTA: u64 = 100_000_000;

/// Smallest factor of the entity with the lightest weight.
const FLOOR: u32 = ONE >> 12;

fn terms() -> Terms {
    Terms {
        realm: 1,
        grain: 1,
        hold: 4,
        servers_max: 4,
        entities_max: 8,
        records_max: 20,
        ..Terms::default()
    }
}

/// Returns the account of a backlogged leaf.
fn account(id: u64, weight: u32, service: u64) -> Account {
    Account {
        id,
        parent: 0,
        weight: weight * 4096,
        leaf: true,
        service,
        active: true,
        waiting: true,
    }
}

fn header() -> impl Strategy<Value = Header> {
    let numbers = (
        1u64..6,
        any::<u64>(),
        any::<u32>(),
        any::<u64>(),
        any::<u64>(),
    );
    let parts = (0u16..3, 1u16..5);
    (numbers, parts).prop_map(
        |((server, epoch, seq, time_us, capacity), (part, more))| Header {
            realm: 1,
            server,
            epoch,
            seq,
            part,
            parts: part + more,
            time_us,
            capacity,
            bye: false,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Compares written messages with the parsed ones.
    #[test]
    fn messages_round_trip(
        header in header(),
        records in prop::collection::btree_map(
            1u64..u64::MAX,
            (0u64..1 << 26, 0u32..1 << 19, any::<bool>()),
            0..60,
        ),
    ) {
        let records: Vec<Record> = records
            .into_iter()
            .map(|(id, (rate, weight, active))| Record { id, rate, weight, active })
            .collect();
        let (again, read) = parse(&write(&header, &records)).unwrap();
        prop_assert_eq!(again, header);
        prop_assert_eq!(read, records);
    }

    /// Checks with weights of 1 to 10,000 and any rates that each backlogged entity keeps at least
    /// a 4096th of the lightest weight.
    #[test]
    fn weights_never_vanish(
        jobs in prop::collection::vec((1u32..=10_000, 0u64..1 << 30), 1..8),
        deltas in 2u64..40,
    ) {
        let mut exchange = Exchange::new(5, 1, terms());
        for delta in 1..=deltas {
            for (id, (weight, rate)) in (1u64..).zip(&jobs) {
                exchange.record(&account(id, *weight, rate * delta));
            }
            exchange.step(delta * DELTA);
            let factors = exchange.factors();
            prop_assert!(factors.iter().any(|(_, factor)| *factor == ONE));
            let pairs = FactorPairs::of(factors).unwrap();
            let factors = Factors::new(pairs, None).unwrap();
            let lightest = jobs.iter().map(|(weight, _)| *weight).min().unwrap_or(1);
            for (id, (weight, _)) in (1u64..).zip(&jobs) {
                let scaled = factors.scale(id, weight * 4096);
                // Rounded down.
                prop_assert!(scaled >= (lightest * 4 / 5).max(1) && scaled <= weight * 4096);
            }
        }
    }
}

/// Simulates a malicious server that claims the maximum service to an entity. The claim lowers the
/// factor of this entity, by at most four octaves per step and not below the floor. The factors of
/// other entities are unchanged.
#[test]
fn a_liar_is_bounded() {
    let mut exchange = Exchange::new(1, 1, terms());
    let mut before = ONE;
    for delta in 1..=60u64 {
        let now = delta * DELTA;
        for id in 1..=3u64 {
            exchange.record(&account(id, 1, delta * 1000));
        }
        exchange.step(now);
        let factors = exchange.factors();
        let [(1, one), (2, two), (3, three)] = factors[..] else {
            panic!("{factors:?}");
        };
        assert!(two >= FLOOR.max(before / 17), "{delta}");
        before = two;
        assert_eq!(one.max(three), ONE);
        if delta < 10 {
            continue;
        }
        let header = Header {
            realm: 1,
            server: 2,
            epoch: 1,
            seq: delta as u32,
            part: 0,
            parts: 1,
            time_us: now / 1000,
            capacity: u64::MAX,
            bye: false,
        };
        let lie = Record {
            id: 2,
            rate: u64::MAX,
            weight: 1,
            active: true,
        };
        exchange.receive(2, &write(&header, &[lie]), now).unwrap();
    }
    assert_eq!(before, FLOOR);
}
