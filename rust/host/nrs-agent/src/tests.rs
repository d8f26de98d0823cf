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

fn note(exchange: &mut Exchange, id: u64, service: u64) {
    let account = Account {
        id,
        parent: 0,
        weight: 4096,
        leaf: true,
        service,
        active: true,
        waiting: true,
    };
    exchange.note(&account);
}

#[test]
fn a_message_is_cut_into_datagrams_that_stand_alone() {
    let mut one = Exchange::new(1, 1, terms());
    let mut two = Exchange::new(2, 1, terms());
    for delta in 1..=3u64 {
        for id in 1..=5 {
            note(&mut one, id, delta * id * 1000);
        }
        one.step(delta * DELTA);
        let said = one.say(delta * DELTA);
        assert_eq!(said.len(), 3);
        assert!(said.iter().all(|bytes| bytes.len() <= 88));
        // In any order; one of them is lost in the end.
        for bytes in said.iter().rev().take(if delta == 3 { 2 } else { 3 }) {
            two.hear(bytes, delta * DELTA + 1).unwrap();
        }
    }
    for id in 1..=5 {
        note(&mut two, id, 0);
    }
    two.step(4 * DELTA);
    for id in 1..=5u64 {
        assert_eq!(two.elsewhere(id), Some(id * 10_000 * 16));
    }
    let counts = one.counts();
    assert_eq!((counts.said, counts.said_bytes), (9, 3 * (3 * 56 + 5 * 16)));
    assert_eq!(two.counts().heard, 8);
}

#[test]
fn what_is_refused_is_counted() {
    let mut one = Exchange::new(1, 1, terms());
    note(&mut one, 3, 1);
    one.step(DELTA);
    let bytes = one.say(DELTA).remove(0);
    assert_eq!(one.hear(&bytes, DELTA), Err(Refusal::Own));
    let other = Terms {
        realm: 6,
        ..terms()
    };
    let mut foreign = Exchange::new(2, 1, other);
    assert_eq!(foreign.hear(&bytes, DELTA), Err(Refusal::Foreign));
    assert_eq!(foreign.hear(&[], DELTA), Err(Refusal::Malformed));
    let mut two = Exchange::new(2, 1, terms());
    assert_eq!(two.hear(&bytes, DELTA), Ok(()));
    assert_eq!(two.hear(&bytes, DELTA), Err(Refusal::Duplicate));
    let counts = two.counts();
    assert_eq!((counts.heard, counts.stale, counts.malformed), (1, 1, 0));
    let counts = foreign.counts();
    assert_eq!((counts.heard, counts.foreign, counts.malformed), (0, 1, 1));
}

#[test]
fn a_server_without_entities_still_says_that_it_is_there() {
    let mut one = Exchange::new(1, 1, terms());
    let mut two = Exchange::new(2, 1, terms());
    one.step(DELTA);
    let said = one.say(DELTA);
    assert_eq!(said.len(), 1);
    two.hear(&said[0], DELTA).unwrap();
    assert_eq!(two.servers(), 1);
}

#[test]
fn a_relay_tells_each_what_the_others_served() {
    let mut relay = Relay::new(100, 1, terms());
    let mut servers: Vec<Exchange> = (1..=3)
        .map(|server| Exchange::new(server, 1, terms()))
        .collect();
    for delta in 1..=8u64 {
        let now = delta * DELTA;
        for (index, server) in servers.iter_mut().enumerate() {
            for id in 1..=4 {
                // The last server does not have the last one.
                if (index, id) != (2, 4) {
                    note(server, id, delta * id * 1000 * (index as u64 + 1));
                }
            }
            server.step(now);
            for bytes in server.say(now) {
                relay.hear(&bytes, now).unwrap();
            }
        }
        relay.step(now + 1000);
        let known: Vec<u64> = relay.servers(now).collect();
        assert_eq!(known, [1, 2, 3]);
        for to in known {
            let server = &mut servers[to as usize - 1];
            for bytes in relay.say(to, now + 1000) {
                server.hear(&bytes, now + 1000).unwrap();
            }
        }
    }
    for (index, server) in servers.iter().enumerate() {
        for id in 1..=4u64 {
            let all = if id == 4 { 3 } else { 6 };
            let others = (all - (index as u64 + 1)) * id * 10_000 * 16;
            match server.elsewhere(id) {
                None => assert_eq!((index, id), (2, 4)),
                Some(told) => assert!(
                    told.abs_diff(others) <= others / 1000 + 200,
                    "{index} {id}: {told} {others}"
                ),
            }
        }
        assert_eq!(server.servers(), 1);
    }
}
