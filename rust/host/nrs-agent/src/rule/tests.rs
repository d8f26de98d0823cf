// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use nrs_sched::rng::Rng;

/// Returns a backlogged member with `own` service here of `service` on all servers.
fn member(weight: u32, own: u64, service: u64) -> Member {
    Member {
        weight,
        here: weight,
        own,
        elsewhere: service - own,
        home: 1 << 16,
        waiting: true,
        ..Member::default()
    }
}

/// Makes `count` steps for `group`.
fn steps(group: &mut [Member], gains: &Gains, count: u32) {
    for _ in 0..count {
        step(&mut group.iter_mut().collect::<Vec<_>>(), gains);
    }
}

#[test]
fn equal_levels_are_a_fixed_point() {
    for scale in [1000u64, 7001, 123_457] {
        // Service is proportional to weight.
        let mut group: Vec<Member> = [1u32, 2, 10_000, 37]
            .iter()
            .map(|&weight| {
                let service = u64::from(weight) * scale * 16;
                member(weight * 4096, service, service)
            })
            .collect();
        steps(&mut group, &Gains::default(), 20);
        // Less than the error of a logarithm per step.
        for member in &group {
            assert!(member.theta > -20 * 32, "{scale} {}", member.theta);
        }
    }
}

#[test]
fn excess_service_decreases_theta_down_to_the_floor() {
    // Twelve octaves below the lightest backlogged weight, for any own weight.
    for (weight, floor) in [
        (4096, FLOOR),
        (4096 << 5, FLOOR - 5 * Q16),
        (1 << 29, FLOOR - 17 * Q16),
    ] {
        let mut group = [member(weight, 1000, 64_000 << 22), member(4096, 1000, 1000)];
        steps(&mut group, &Gains::default(), 1);
        assert_eq!(group[1].theta, 0);
        assert!(group[0].theta < -Q16 / 2);
        for _ in 0..100 {
            steps(&mut group, &Gains::default(), 1);
            assert!(group
                .iter()
                .all(|member| (floor..=0).contains(&member.theta)));
        }
        assert_eq!(group[0].theta, floor, "{weight}");
        // Without the light member the heavy one is the lightest itself.
        group[1].waiting = false;
        steps(&mut group, &Gains::default(), 1);
        assert_eq!(group[0].theta, 0);
    }
}

#[test]
fn who_is_idle_keeps_its_distance() {
    let mut idle = member(4096, 0, 0);
    idle.waiting = false;
    idle.theta = -Q16;
    let mut group = [idle, member(4096, 500, 500), member(4096, 500, 500)];
    steps(&mut group, &Gains::default(), 50);
    assert_eq!(group[0].theta, -Q16);
}

#[test]
fn who_wants_little_is_not_raised() {
    // The member is served all of its demand, far less than the others, and is backlogged
    // nevertheless.
    let theta = |behind| {
        let mut group = [
            member(4096, 100, 100),
            member(4096, 1000, 4000),
            member(4096, 1000, 4000),
        ];
        group[0].theta = -Q16;
        group[0].behind = behind;
        steps(&mut group, &Gains::default(), 1);
        group[0].theta
    };
    assert!(theta(false) > theta(true) + Q16 / 4, "{}", theta(true));
}

#[test]
fn a_group_without_backlog_keeps_its_factors() {
    let mut group = [member(4096, 1, 9), member(4096, 5, 5)];
    for member in &mut group {
        member.waiting = false;
        member.theta = -3 * Q16;
    }
    steps(&mut group, &Gains::default(), 1);
    assert!(group.iter().all(|member| member.theta == -3 * Q16));
    steps(&mut [], &Gains::default(), 1);
}

#[test]
fn no_overflow_and_one_entity_has_the_whole_weight() {
    let mut rng = Rng::new(3);
    let mut any = |most: u64| match rng.below(4) {
        0 => 0,
        1 => most,
        _ => rng.below(most),
    };
    for round in 0..3000 {
        let gains = Gains {
            integral: any(u64::from(u32::MAX)) as u32,
            boost: any(u64::from(u32::MAX)) as u32,
            momentum: any(u64::from(u32::MAX)) as u32,
        };
        let mut group: Vec<Member> = (0..1 + round % 40)
            .map(|_| Member {
                weight: any((1 << 32) - 1).max(1) as u32,
                here: any((1 << 32) - 1).max(1) as u32,
                counted: any(1 << 36),
                own: any(1 << 48),
                elsewhere: any(1 << 48),
                home: any(1 << 16) as u32,
                waiting: any(2) > 0,
                behind: any(2) > 0,
                theta: -(any(30 << 16) as i32),
                lag: any(255) as u8,
                speed: any(1 << 19) as i32 - (1 << 18),
                lead: any(1 << 40) as i64 - (1 << 39),
                ..Member::default()
            })
            .collect();
        let mut members: Vec<&mut Member> = group.iter_mut().collect();
        crate::plan::measure(&mut members, any(1 << 32), any(1 << 32) as u32);
        step(&mut members, &gains);
        crate::plan::foresee(&mut members);
        let waiting = group.iter().any(|member| member.waiting);
        for member in &group {
            assert!((DEEPEST..=0).contains(&member.theta));
        }
        let top = group.iter().filter(|member| member.waiting);
        if waiting {
            assert_eq!(top.map(|member| member.theta).max(), Some(0));
        }
    }
}

#[test]
fn gains_are_bounded() {
    let gains = Gains::default();
    for (own, service, home, lag, times, of) in [
        // The whole service is on this server.
        (1000, 1000, 1 << 16, 0, 1, 1),
        // Half of home.
        (250, 1000, 1 << 15, 0, 1, 1),
        (125, 1000, 1 << 15, 0, 2, 1),
        // No service on this server: the boost is limited.
        (0, 1000, 1 << 15, 0, gains.boost, 1),
        (0, 1000, 1 << 15, 8, gains.boost, 2),
    ] {
        let member = Member {
            home,
            lag,
            ..member(1, own, service)
        };
        let gain = gains.integral * times / of;
        assert_eq!(member.gain(&gains), gain, "{own} {service} {home} {lag}");
    }
}
