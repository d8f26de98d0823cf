// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use nrs_sched::policy::fairshare::factors::ONE;

const DELTA: u64 = 100_000_000;

fn terms() -> Terms {
    Terms {
        grain: 1,
        hold: 8,
        entities_max: 6,
        ..Terms::default()
    }
}

fn leaf(id: u64, parent: u64, service: u64) -> Account {
    Account {
        id,
        parent,
        weight: 4096,
        leaf: true,
        service,
        active: true,
        waiting: true,
    }
}

fn inner(id: u64, parent: u64) -> Account {
    Account {
        leaf: false,
        active: false,
        waiting: false,
        ..leaf(id, parent, 0)
    }
}

fn step(table: &mut Table, delta: u64, accounts: &[Account]) -> u64 {
    for account in accounts {
        table.record(account);
    }
    table.step(&Peers::default(), &terms(), delta * DELTA)
}

/// Returns the counted service of each entity in the last step.
fn counted(table: &Table) -> Vec<(u64, u64)> {
    let entries = table.entries.iter();
    entries
        .map(|(id, entry)| (*id, entry.member.counted))
        .collect()
}

#[test]
fn service_of_all_parts_is_added_and_climbs() {
    let mut table = Table::default();
    let at = |service| {
        [
            inner(9, 0),
            leaf(3, 9, service),
            leaf(5, 9, 10 * service),
            // The same node in another part.
            leaf(3, 9, 100 * service),
            leaf(4, 0, 0),
        ]
    };
    step(&mut table, 1, &at(1000));
    assert_eq!(counted(&table), [(3, 0), (4, 0), (5, 0), (9, 0)]);
    step(&mut table, 2, &at(1001));
    assert_eq!(counted(&table), [(3, 101), (4, 0), (5, 10), (9, 111)]);
    assert_eq!(table.capacity(), 1110);
}

#[test]
fn what_a_group_got_itself_is_its_own() {
    let mut table = Table::default();
    let at = |service| {
        let group = |id, parent, service| Account {
            service,
            ..inner(id, parent)
        };
        [
            leaf(3, 9, service),
            group(8, 0, 0),
            group(9, 8, 10 * service),
        ]
    };
    step(&mut table, 1, &at(1000));
    step(&mut table, 2, &at(1001));
    assert_eq!(counted(&table), [(3, 1), (8, 11), (9, 11)]);
    assert_eq!(table.capacity(), 110);
}

#[test]
fn a_part_that_starts_a_node_again_takes_nothing_back() {
    let mut table = Table::default();
    let mut all = 0;
    // Counters of parts wrap.
    for (delta, service) in [
        (1, 500),
        (2, 600),
        (3, 20),
        (4, 30),
        (5, u64::MAX - 4),
        (6, 5),
    ] {
        step(&mut table, delta, &[leaf(3, 0, service)]);
        all += counted(&table)[0].1;
    }
    assert_eq!(all, 100 + 10 + 10);
}

#[test]
fn what_is_taken_back_counts_once() {
    let mut table = Table::default();
    // Up to four requests of one unit may be taken back; a part that evicted the node takes back
    // more.
    for (delta, service, counts) in [
        (1, 500, 0),
        (2, 510, 10),
        (3, 507, 0),
        (4, 507, 0),
        (5, 506, 0),
        (6, 512, 2),
        (7, 100, 0),
        (8, 103, 3),
        (9, 103, 0),
    ] {
        step(&mut table, delta, &[leaf(3, 0, service)]);
        assert_eq!(counted(&table)[0].1, counts, "{delta}");
    }
}

#[test]
fn a_node_that_appears_was_served_since_the_last_step() {
    let mut table = Table::default();
    for delta in 1..4 {
        step(&mut table, delta, &[leaf(3, 0, delta * 100)]);
    }
    // The large service of node 5 is older than this step and is not counted.
    step(
        &mut table,
        4,
        &[leaf(3, 0, 350), leaf(4, 0, 50), leaf(5, 0, 9000)],
    );
    assert_eq!(counted(&table), [(3, 50), (4, 50), (5, 0)]);
}

#[test]
fn a_tree_that_is_none_does_no_harm() {
    let mut table = Table::default();
    let round = |service| {
        [
            inner(1, 2),
            inner(2, 1),
            leaf(3, 1, service),
            leaf(4, 4, service),
            leaf(5, 77, service),
            leaf(0, 0, 1),
            leaf(u64::MAX, 0, 1),
        ]
    };
    for delta in 1..30 {
        step(&mut table, delta, &round(delta * 100));
    }
    assert_eq!(table.len(), 5);
    assert_eq!(table.factors().len(), 5);
}

#[test]
fn there_is_room_for_so_many_and_the_idle_make_some() {
    let mut table = Table::default();
    let all: Vec<Account> = (1..=8).map(|id| leaf(id, 0, 0)).collect();
    assert_eq!(step(&mut table, 1, &all), 2);
    assert_eq!(table.len(), 6);
    for delta in 2..70 {
        step(&mut table, delta, &all[..2]);
    }
    assert_eq!(table.len(), 2);
    assert_eq!(step(&mut table, 70, &all[4..8]), 0);
    assert_eq!(table.len(), 6);
}

#[test]
fn alone_all_factors_stay_one() {
    let mut table = Table::default();
    for delta in 1..200u64 {
        let accounts: Vec<Account> = (1..=5)
            .map(|id| Account {
                weight: id as u32 * 4096,
                ..leaf(id, 0, delta * id * 500)
            })
            .collect();
        step(&mut table, delta, &accounts);
    }
    for (id, factor) in table.factors() {
        assert!(factor > ONE / 100 * 99, "{id} {factor}");
    }
}

#[test]
fn idle_entities_are_sent_for_32_steps() {
    let mut table = Table::default();
    step(&mut table, 1, &[leaf(3, 0, 1)]);
    let idle = Account {
        active: false,
        waiting: false,
        ..leaf(3, 0, 1)
    };
    for delta in 2..=33 {
        step(&mut table, delta, &[idle]);
        assert!(!table.records()[0].active);
    }
    step(&mut table, 34, &[idle]);
    assert_eq!(table.records(), []);
}

#[test]
fn served_entities_are_reported_without_queued_requests() {
    let mut table = Table::default();
    for delta in 1..200 {
        let quick = Account {
            active: false,
            waiting: false,
            ..leaf(3, 0, delta * 100)
        };
        step(&mut table, delta, &[quick]);
    }
    assert!(table.records()[0].active);
}
