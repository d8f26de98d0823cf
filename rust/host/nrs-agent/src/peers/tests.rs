// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use crate::message::{parse, write};
use nrs_sched::units::NSEC_PER_SEC;

fn terms() -> Terms {
    Terms {
        hold: 4,
        servers_max: 2,
        entities_max: 3,
        records_max: 5,
        ..Terms::default()
    }
}

/// Returns a datagram of server 5 with `records` (id, rate in units per second).
fn datagram(epoch: u64, seq: u32, records: &[(u64, u64)]) -> Vec<u8> {
    from(5, epoch, seq, records)
}

fn header(server: u64, epoch: u64, seq: u32) -> Header {
    Header {
        realm: 0,
        server,
        epoch,
        seq,
        part: 0,
        parts: 1,
        time_us: 0,
        capacity: 1000,
        bye: false,
    }
}

fn from(server: u64, epoch: u64, seq: u32, records: &[(u64, u64)]) -> Vec<u8> {
    let records: Vec<Record> = records
        .iter()
        .map(|&(id, rate)| Record {
            id,
            rate: rate << RATE_BITS,
            weight: 4096,
            active: true,
        })
        .collect();
    write(&header(server, epoch, seq), &records)
}

fn receive(peers: &mut Peers, bytes: &[u8], now: u64) -> Result<(), Refusal> {
    let (header, records) = parse(bytes).unwrap();
    peers.receive(&header, &records, &terms(), 0, now)
}

/// Returns the rates of all peers, units per second.
fn rates(peers: &Peers, now: u64) -> Vec<(u64, u64)> {
    let terms = terms();
    let records = peers.iter().flat_map(|(_, peer)| &peer.records);
    records
        .map(|(&id, known)| (id, known.rate(&terms, now) >> RATE_BITS))
        .collect()
}

#[test]
fn old_and_doubled_messages_change_nothing() {
    let mut peers = Peers::default();
    let first = datagram(1, 7, &[(3, 100)]);
    receive(&mut peers, &first, 0).unwrap();
    assert_eq!(receive(&mut peers, &first, 1), Err(Refusal::Duplicate));
    receive(&mut peers, &datagram(1, 8, &[(3, 200)]), 2).unwrap();
    assert_eq!(receive(&mut peers, &first, 3), Err(Refusal::Old));
    let before = datagram(0, 9, &[(3, 9000)]);
    assert_eq!(receive(&mut peers, &before, 3), Err(Refusal::Old));
    assert_eq!(rates(&peers, 3), [(3, 200)]);
    // Message numbers wrap.
    let later = 8u32.wrapping_add(1 << 30);
    receive(&mut peers, &datagram(1, later, &[]), 4).unwrap();
    receive(&mut peers, &datagram(1, 1 << 31, &[]), 4).unwrap();
    receive(&mut peers, &datagram(1, 3, &[]), 4).unwrap_err();
    // A restart resets the message numbers.
    receive(&mut peers, &datagram(2, 1, &[(3, 50)]), 5).unwrap();
    assert_eq!(rates(&peers, 5), [(3, 50)]);
}

#[test]
fn the_silent_fade_and_are_forgotten() {
    let mut peers = Peers::default();
    let terms = terms();
    let hold = terms.hold_ns();
    assert_eq!(hold, 4 * NSEC_PER_SEC / 10);
    receive(&mut peers, &datagram(1, 8, &[(3, 1 << 20)]), 0).unwrap();
    for (holds, rate) in [(1, 1 << 20), (2, 1 << 19), (3, 1 << 18), (8, 1 << 13)] {
        assert_eq!(rates(&peers, holds * hold), [(3, rate)], "{holds}");
    }
    let (half, least) = (rates(&peers, hold * 3 / 2), 741_455);
    assert!(half[0].1.abs_diff(least) < 100, "{half:?}");
    peers.forget(&terms, 8 * hold);
    assert_eq!(peers.len(), 1);
    peers.forget(&terms, 8 * hold + 1);
    assert_eq!(peers.len(), 0);
    // After the eviction even an older epoch is accepted.
    receive(&mut peers, &datagram(0, 1, &[(3, 100)]), 8 * hold + 2).unwrap();
}

#[test]
fn farewell_removes_the_records_of_a_server() {
    let mut peers = Peers::default();
    receive(&mut peers, &datagram(1, 7, &[(3, 100)]), 0).unwrap();
    let bye = Header {
        bye: true,
        ..header(5, 1, 8)
    };
    receive(&mut peers, &write(&bye, &[]), 1).unwrap();
    assert_eq!(rates(&peers, 1), []);
    assert_eq!(peers.peers[&5].capacity, 0);
    // A message sent before the farewell is refused; a message after a restart is accepted.
    receive(&mut peers, &datagram(1, 7, &[(3, 100)]), 2).unwrap_err();
    receive(&mut peers, &datagram(2, 1, &[(3, 100)]), 3).unwrap();
    assert_eq!(rates(&peers, 3), [(3, 100)]);
}

#[test]
fn unreported_entities_are_evicted() {
    let mut peers = Peers::default();
    let gone = terms().eviction_ns();
    receive(&mut peers, &datagram(1, 1, &[(3, 1), (4, 1)]), 0).unwrap();
    for seq in 2..20 {
        let now = u64::from(seq) * gone / 4;
        receive(&mut peers, &datagram(1, seq, &[(4, 1)]), now).unwrap();
    }
    assert_eq!(peers.records(), 1);
}

#[test]
fn peers_and_records_are_limited() {
    let mut peers = Peers::default();
    let all = [(1, 1), (2, 1), (3, 1), (4, 1)];
    let crowded = Err(Refusal::Crowded);
    assert_eq!(receive(&mut peers, &from(1, 1, 1, &all), 0), crowded);
    assert_eq!(peers.records(), 3, "entities of one server");
    assert_eq!(receive(&mut peers, &from(2, 1, 1, &all), 0), crowded);
    assert_eq!(peers.records(), 5, "records of all");
    assert_eq!(receive(&mut peers, &from(3, 1, 1, &all), 0), crowded);
    assert_eq!(peers.len(), 2, "servers");
    // Known peers and records are still updated.
    receive(&mut peers, &from(1, 1, 2, &[(2, 10)]), 0).unwrap();
    assert!(rates(&peers, 0).contains(&(2, 10)));
}

#[test]
fn rates_do_not_overflow() {
    for (service, us, expected) in [
        (0, 1, 0),
        (1, 0, 0),
        (3, 1_000_000, 3),
        (u64::MAX, 1, RATE_MAX),
        (u64::MAX, u64::MAX, 1_000_000),
        (1 << 48, 1_000_000, 1 << 48),
    ] {
        assert_eq!(rate(service, us), expected, "{service} {us}");
    }
}

#[test]
fn gaps_are_counted() {
    let mut peers = Peers::default();
    let half = |epoch, seq, part| {
        let header = Header {
            part,
            parts: 2,
            ..header(5, epoch, seq)
        };
        write(&header, &[])
    };
    // One of two datagrams of the first message is missing, and the whole next message.
    for (epoch, seq, part, lost) in [
        (1, 7, 1, 0),
        (1, 9, 1, 3),
        (1, 9, 0, 3),
        (1, 10, 0, 3),
        // Gaps over a restart are not counted as losses.
        (2, 5, 0, 3),
        (2, 6, 0, 4),
    ] {
        receive(&mut peers, &half(epoch, seq, part), 0).unwrap();
        assert_eq!(peers.peers[&5].lost, lost, "{epoch} {seq} {part}");
    }
    assert_eq!(peers.peers[&5].datagrams, 6);
}
