// SPDX-License-Identifier: GPL-2.0-only

//! Whatever comes over the network: nothing panics, memory is bounded, and factors stay in their limits.

use nrs_agent::{
    message::{parse, write, Header, Record},
    Account, Exchange, Relay, Terms,
};
use nrs_sched::policy::fairshare::factors::{Factors, ONE};
use proptest::prelude::*;

const DELTA: u64 = 100_000_000;

/// Smallest factor.
const FLOOR: u32 = ONE >> 10;

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

fn any_number() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0u64..12,
        2 => any::<u64>(),
        1 => Just(u64::MAX),
        1 => Just(1 << 47),
        2 => 0u64..10_000_000,
    ]
}

fn header() -> impl Strategy<Value = Header> {
    (
        0u64..6,
        0u64..4,
        any_number(),
        0u16..3,
        0u16..4,
        any_number(),
        any_number(),
    )
        .prop_map(
            |(server, epoch, seq, part, parts, time_us, capacity)| Header {
                realm: 1,
                server,
                epoch,
                seq: seq as u32,
                part,
                parts,
                time_us,
                capacity,
            },
        )
}

/// A datagram that is well formed, or nearly.
fn near() -> impl Strategy<Value = Vec<u8>> {
    let record = (any_number(), any_number(), any::<u16>());
    let change = prop::option::weighted(0.2, (any::<prop::sample::Index>(), any::<u8>()));
    (
        header(),
        prop::collection::btree_map(0u64..14, record, 0..14),
        change,
    )
        .prop_map(|(header, records, change)| {
            let records: Vec<Record> = records
                .into_iter()
                .map(|(id, (_, counter, presence))| Record {
                    id,
                    counter,
                    presence,
                })
                .collect();
            let mut out = write(&header, &records);
            if let Some((at, byte)) = change {
                let at = at.index(out.len());
                out[at] = byte;
            }
            out
        })
}

#[derive(Clone, Debug)]
enum Event {
    Hear(Vec<u8>),
    Step(u64, Vec<(u64, u64, u32, u64, u8)>),
}

fn event() -> impl Strategy<Value = Event> {
    let account = (
        any_number(),
        0u64..4,
        any::<u32>(),
        any_number(),
        any::<u8>(),
    );
    prop_oneof![
        4 => near().prop_map(Event::Hear),
        1 => prop::collection::vec(any::<u8>(), 0..200).prop_map(Event::Hear),
        3 => (any_number(), prop::collection::vec(account, 0..12))
            .prop_map(|(after, accounts)| Event::Step(after, accounts)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// No bytes, counters, weights, times or trees panic or leave the limits.
    #[test]
    fn nothing_panics_and_limits_hold(events in prop::collection::vec(event(), 1..60)) {
        let mut exchange = Exchange::new(5, 1, terms());
        let mut relay = Relay::new(9, 1, terms());
        let mut now = 0u64;
        for event in events {
            match event {
                Event::Hear(bytes) => {
                    let _ = exchange.hear(&bytes, now);
                    let _ = relay.hear(&bytes, now);
                }
                Event::Step(after, accounts) => {
                    now = now.saturating_add(after);
                    for (id, parent, weight, service, bits) in accounts {
                        let account = Account {
                            id,
                            parent,
                            weight,
                            leaf: bits & 1 > 0,
                            service,
                            active: bits & 2 > 0,
                            waiting: bits & 4 > 0,
                        };
                        exchange.note(&account);
                    }
                    exchange.step(now);
                    relay.step(now);
                    let mut said = exchange.say(now);
                    for to in relay.servers(now).collect::<Vec<_>>() {
                        said.extend(relay.say(to, now));
                    }
                    for bytes in said {
                        prop_assert!(parse(&bytes).is_ok());
                    }
                }
            }
            prop_assert!(exchange.servers() <= 4);
            prop_assert!(exchange.entities() <= 8);
            for (_, factor) in exchange.factors() {
                prop_assert!((FLOOR..=ONE).contains(&factor));
            }
        }
    }

    /// What is written is read again.
    #[test]
    fn messages_round_trip(
        header in header(),
        records in prop::collection::btree_map(1u64..u64::MAX, (0u64..1 << 48, any::<u16>()), 0..60),
    ) {
        let header = Header { server: header.server + 1, parts: header.part + 1, ..header };
        let records: Vec<Record> = records
            .into_iter()
            .map(|(id, (counter, presence))| Record { id, counter, presence })
            .collect();
        let (again, read) = parse(&write(&header, &records)).unwrap();
        prop_assert_eq!(again, header);
        prop_assert_eq!(read, records);
    }

    /// Weights of 1 to 10,000 and any rates: whoever waits has a weight, and siblings stay within their limits.
    #[test]
    fn weights_never_vanish(
        jobs in prop::collection::vec((1u32..=10_000, 0u64..1 << 30), 1..8),
        deltas in 2u64..40,
    ) {
        let mut exchange = Exchange::new(5, 1, terms());
        for delta in 1..=deltas {
            for (id, (weight, rate)) in (1u64..).zip(&jobs) {
                let account = Account {
                    id,
                    parent: 0,
                    weight: weight * 4096,
                    leaf: true,
                    service: rate * delta,
                    active: true,
                    waiting: true,
                };
                exchange.note(&account);
            }
            exchange.step(delta * DELTA);
            let factors = exchange.factors();
            prop_assert!(factors.iter().any(|(_, factor)| *factor == ONE));
            let factors = Factors::new(factors).unwrap();
            for (id, (weight, _)) in (1u64..).zip(&jobs) {
                let scaled = factors.scale(id, weight * 4096);
                prop_assert!(scaled >= weight * 4 && scaled <= weight * 4096);
            }
        }
    }
}

/// One liar that claims to serve an entity as much as it can pushes its factor down, by three octaves per step and
/// not to nothing; the others keep theirs.
#[test]
fn a_liar_is_bounded() {
    let mut exchange = Exchange::new(1, 1, terms());
    let mut before = ONE;
    for delta in 1..=60u64 {
        let now = delta * DELTA;
        for id in 1..=3u64 {
            let account = Account {
                id,
                parent: 0,
                weight: 4096,
                leaf: true,
                service: delta * 1000,
                active: true,
                waiting: true,
            };
            exchange.note(&account);
        }
        exchange.step(now);
        let factors = exchange.factors();
        let [(1, one), (2, two), (3, three)] = factors[..] else {
            panic!("{factors:?}");
        };
        assert!(two >= FLOOR.max(before / 9), "{delta}");
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
        };
        let lie = Record {
            id: 2,
            counter: delta << 40,
            presence: u16::MAX,
        };
        exchange.hear(&write(&header, &[lie]), now).unwrap();
    }
    assert_eq!(before, FLOOR);
}
