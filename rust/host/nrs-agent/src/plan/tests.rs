// SPDX-License-Identifier: GPL-2.0-only

use super::*;

const US: u64 = 100_000;

fn member(weight: u32) -> Member {
    Member {
        here: weight * 4096,
        waiting: true,
        ..Member::default()
    }
}

/// Measures a delta with `counted` units for each member of `group`.
fn delta(group: &mut [Member], counted: &[u64]) {
    for (member, counted) in group.iter_mut().zip(counted) {
        member.counted = *counted;
    }
    let mut members: Vec<&mut Member> = group.iter_mut().collect();
    measure(&mut members, US, 1);
    foresee(&mut members);
}

/// Returns the rate of `member`, units per second.
fn own(member: &Member) -> f64 {
    member.own as f64 / f64::from(1 << RATE_BITS)
}

#[test]
fn an_entity_with_few_requests_is_measured_without_their_noise() {
    // Weights of 10,000 and 1: one light request in ten deltas.
    let mut group = [member(10_000), member(1)];
    for round in 0..100 {
        let light = u64::from(round % 10 == 3);
        // The heavy member deviates from its plan by up to one unit as well.
        delta(&mut group, &[1000, light]);
        let want = 10_000.0 / 10_001.0;
        assert!((own(&group[1]) - want).abs() < 0.01, "{}", own(&group[1]));
        assert!(!group[1].behind);
    }
}

#[test]
fn measured_service_equals_counted_service() {
    // The first member gets half of its plan, in bursts: the sum is exact, and the member is marked
    // as behind.
    let mut group = [member(1), member(1)];
    let (mut reported, mut served) = (0.0, 0);
    for round in 0..200u64 {
        let little = if round % 4 == 0 { 200 } else { 20 };
        delta(&mut group, &[little, 1000 - little]);
        reported += own(&group[0]) / 10.0;
        served += little;
        assert!(
            (reported - served as f64).abs() <= 4.1,
            "{reported} {served}"
        );
        if round > 0 {
            assert!(group[0].behind && !group[1].behind);
        }
    }
}

#[test]
fn a_change_of_weights_is_sent_before_it_was_counted() {
    let mut group = [member(1), member(1)];
    delta(&mut group, &[500, 500]);
    group[0].theta = 0;
    group[1].theta = -2 << 16;
    let mut members: Vec<&mut Member> = group.iter_mut().collect();
    foresee(&mut members);
    let next = group.map(|member| (member.next >> RATE_BITS) as f64 / 1e4);
    assert!(
        (next[0] - 0.8).abs() < 0.001 && (next[1] - 0.2).abs() < 0.001,
        "{next:?}"
    );
    // A second prediction with unchanged thetas changes nothing.
    assert_eq!(group[0].moved[2..], [0; 6]);
    assert!(group[0].moved[0] > group[0].moved[1] && group[1].moved[0] < group[1].moved[1]);
}

#[test]
fn who_does_not_wait_is_counted() {
    let mut group = [member(1), member(1)];
    group[0].waiting = false;
    for counted in [0, 77, 5] {
        delta(&mut group, &[counted, 1000]);
        assert_eq!(own(&group[0]), counted as f64 * 10.0);
        assert_eq!(own(&group[1]), 10_000.0);
    }
}
