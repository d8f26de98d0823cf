// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use crate::message::{parse, write, PRESENT};
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

/// A datagram of server 5 at `time_us` with `records` (id, counter).
fn said(epoch: u64, seq: u32, time_us: u64, records: &[(u64, u64)]) -> Vec<u8> {
    from(5, epoch, seq, time_us, records)
}

fn from(server: u64, epoch: u64, seq: u32, time_us: u64, records: &[(u64, u64)]) -> Vec<u8> {
    let header = Header {
        realm: 0,
        server,
        epoch,
        seq,
        part: 0,
        parts: 1,
        time_us,
        capacity: 1000,
    };
    let records: Vec<Record> = records
        .iter()
        .map(|&(id, counter)| Record {
            id,
            counter,
            presence: PRESENT,
        })
        .collect();
    write(&header, &records)
}

fn hear(peers: &mut Peers, bytes: &[u8], now: u64) -> Result<(), Refusal> {
    let (header, records) = parse(bytes).unwrap();
    peers.hear(&header, &records, &terms(), now)
}

/// Rates of all live peers, units per second.
fn rates(peers: &Peers, now: u64) -> Vec<(u64, u64)> {
    let terms = terms();
    peers
        .live(&terms, now)
        .flat_map(|(_, peer)| &peer.records)
        .filter(|(_, known)| known.counts(&terms, now))
        .map(|(&id, known)| (id, known.rate >> RATE_BITS))
        .collect()
}

#[test]
fn a_rate_is_what_two_counters_say_whatever_was_lost_between() {
    let mut peers = Peers::default();
    hear(&mut peers, &said(1, 1, 1_000_000, &[(3, 100)]), 0).unwrap();
    assert_eq!(rates(&peers, 0), [(3, 0)]);
    hear(&mut peers, &said(1, 4, 1_300_000, &[(3, 130), (4, 7)]), 1).unwrap();
    assert_eq!(rates(&peers, 1), [(3, 100), (4, 0)]);
    // A counter wraps.
    hear(&mut peers, &said(1, 5, 2_300_000, &[(4, (1 << 48) - 3)]), 2).unwrap();
    hear(&mut peers, &said(1, 6, 3_300_000, &[(4, 7)]), 3).unwrap();
    assert_eq!(rates(&peers, 3), [(3, 100), (4, 10)]);
}

#[test]
fn old_and_doubled_messages_change_nothing() {
    let mut peers = Peers::default();
    let first = said(1, 7, 1_000_000, &[(3, 100)]);
    hear(&mut peers, &first, 0).unwrap();
    assert_eq!(hear(&mut peers, &first, 1), Err(Refusal::Duplicate));
    hear(&mut peers, &said(1, 8, 2_000_000, &[(3, 200)]), 2).unwrap();
    assert_eq!(hear(&mut peers, &first, 3), Err(Refusal::Old));
    let before = said(0, 9, 3_000_000, &[(3, 9000)]);
    assert_eq!(hear(&mut peers, &before, 3), Err(Refusal::Old));
    assert_eq!(rates(&peers, 3), [(3, 100)]);
    // Numbers wrap.
    hear(
        &mut peers,
        &said(1, 8u32.wrapping_add(1 << 30), 3_000_000, &[]),
        4,
    )
    .unwrap();
    hear(&mut peers, &said(1, 1 << 31, 3_100_000, &[]), 4).unwrap();
    hear(&mut peers, &said(1, 3, 3_200_000, &[]), 4).unwrap_err();
}

#[test]
fn a_restart_holds_rates_until_there_are_new_ones() {
    let mut peers = Peers::default();
    hear(&mut peers, &said(1, 7, 1_000_000, &[(3, 100)]), 0).unwrap();
    hear(&mut peers, &said(1, 8, 2_000_000, &[(3, 200)]), 1).unwrap();
    // Counter and clock start again.
    hear(&mut peers, &said(2, 1, 5, &[(3, 1)]), 2).unwrap();
    assert_eq!(rates(&peers, 2), [(3, 100)]);
    hear(&mut peers, &said(2, 2, 1_000_005, &[(3, 51)]), 3).unwrap();
    assert_eq!(rates(&peers, 3), [(3, 50)]);
}

#[test]
fn the_silent_are_held_then_gone_then_forgotten() {
    let mut peers = Peers::default();
    let terms = terms();
    let hold = terms.hold_ns();
    assert_eq!(hold, 4 * NSEC_PER_SEC / 10);
    hear(&mut peers, &said(1, 7, 1_000_000, &[(3, 100)]), 0).unwrap();
    hear(&mut peers, &said(1, 8, 2_000_000, &[(3, 200)]), 0).unwrap();
    assert_eq!(rates(&peers, hold), [(3, 100)]);
    assert_eq!(rates(&peers, hold + 1), []);
    peers.forget(&terms, 4 * hold);
    assert_eq!(peers.len(), 1);
    peers.forget(&terms, 4 * hold + 1);
    assert_eq!(peers.len(), 0);
    // Even an older epoch is news then.
    hear(&mut peers, &said(0, 1, 1, &[(3, 100)]), 4 * hold + 2).unwrap();
}

#[test]
fn what_is_not_told_any_more_is_forgotten() {
    let mut peers = Peers::default();
    let hold = terms().hold_ns();
    hear(&mut peers, &said(1, 1, 1, &[(3, 1), (4, 1)]), 0).unwrap();
    for seq in 2..20 {
        let now = u64::from(seq) * hold / 4;
        let bytes = said(1, seq, now / 1000, &[(4, u64::from(seq))]);
        hear(&mut peers, &bytes, now).unwrap();
    }
    assert_eq!(peers.records(), 1);
}

#[test]
fn there_is_room_for_so_much() {
    let mut peers = Peers::default();
    let all = [(1, 1), (2, 1), (3, 1), (4, 1)];
    let crowded = Err(Refusal::Crowded);
    assert_eq!(hear(&mut peers, &from(1, 1, 1, 1, &all), 0), crowded);
    assert_eq!(peers.records(), 3, "entities of one server");
    assert_eq!(hear(&mut peers, &from(2, 1, 1, 1, &all), 0), crowded);
    assert_eq!(peers.records(), 5, "records of all");
    assert_eq!(hear(&mut peers, &from(3, 1, 1, 1, &all), 0), crowded);
    assert_eq!(peers.len(), 2, "servers");
    // Those that are known go on.
    hear(&mut peers, &from(1, 1, 2, 1_000_001, &[(2, 11)]), 0).unwrap();
    assert!(rates(&peers, 0).contains(&(2, 10)));
}

#[test]
fn rates_do_not_overflow() {
    for (service, us, expected) in [
        (0, 1, 0),
        (1, 0, 0),
        (1, 1_000_000, 16),
        (u64::MAX, 1, RATE_MAX),
        (u64::MAX, u64::MAX, 0),
        (1 << 36, 1_000_000, 1 << 40),
    ] {
        assert_eq!(rate(service, us), expected, "{service} {us}");
    }
}
