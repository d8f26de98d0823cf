// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use nrs_sched::{policy::fairshare::factors::ONE, rng::Rng};

fn member(weight: u32, own: u64, service: u64) -> Member {
    Member {
        id: 0,
        weight,
        own,
        service,
        home: 1 << 16,
        waiting: true,
        fresh: true,
        starts: false,
        theta: 0,
        run: 0,
    }
}

#[test]
fn equal_levels_are_a_fixed_point() {
    for scale in [1000u64, 7001, 123_457] {
        // Twice the weight, twice the service.
        let mut group: Vec<Member> = [1u32, 2, 10_000, 37]
            .iter()
            .map(|&weight| {
                let service = u64::from(weight) * scale * 16;
                member(weight * 4096, service, service)
            })
            .collect();
        for _ in 0..20 {
            step(&mut group, &Gains::default());
        }
        // Less than what a logarithm may be off, each time.
        for member in &group {
            assert!(member.theta > -20 * 32, "{scale} {}", member.theta);
        }
    }
}

#[test]
fn who_got_more_goes_down_and_not_below_the_floor() {
    let mut group = [member(4096, 1000, 64_000), member(4096, 1000, 1000)];
    step(&mut group, &Gains::default());
    assert_eq!(group[1].theta, 0);
    assert!(group[0].theta < -Q16);
    for _ in 0..100 {
        step(&mut group, &Gains::default());
        assert!(group
            .iter()
            .all(|member| (FLOOR..=0).contains(&member.theta)));
    }
    assert_eq!(group[0].theta, FLOOR);
    assert!(power(group[0].theta) >= ONE >> 10);
}

#[test]
fn who_is_idle_keeps_its_distance() {
    let mut idle = member(4096, 0, 0);
    idle.waiting = false;
    idle.theta = -Q16;
    let mut group = [idle, member(4096, 500, 500), member(4096, 500, 500)];
    for _ in 0..50 {
        step(&mut group, &Gains::default());
    }
    assert_eq!(group[0].theta, -Q16);
}

#[test]
fn who_wants_little_is_not_raised() {
    // Served all it asks for, far less than what its weight stands for, and yet something waits.
    let theta = |content| {
        let mut group = [
            member(4096, 100, 100),
            member(4096, 1000, 4000),
            member(4096, 1000, 4000),
        ];
        group[0].theta = -Q16;
        let gains = Gains {
            content,
            ..Gains::default()
        };
        step(&mut group, &gains);
        group[0].theta
    };
    assert!(theta(true) < -Q16 / 2, "{}", theta(true));
    assert!(theta(false) > theta(true) + Q16 / 4, "{}", theta(false));
}

#[test]
fn a_group_without_anybody_who_waits_stays() {
    let mut group = [member(4096, 1, 9), member(4096, 5, 5)];
    for member in &mut group {
        member.waiting = false;
        member.theta = -3 * Q16;
    }
    step(&mut group, &Gains::default());
    assert!(group.iter().all(|member| member.theta == -3 * Q16));
    step(&mut [], &Gains::default());
}

#[test]
fn nothing_overflows_and_somebody_has_the_whole_weight() {
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
            patience: any(u64::from(u32::MAX)) as u32,
            content: round % 2 == 0,
        };
        let mut group: Vec<Member> = (0..1 + round % 40)
            .map(|_| Member {
                weight: any((1 << 31) - 1).max(1) as u32,
                own: any(1 << 40),
                service: any(1 << 41),
                home: any(1 << 16) as u32,
                waiting: any(2) > 0,
                fresh: any(2) > 0,
                starts: any(8) == 1,
                theta: -(any(10 << 16) as i32),
                run: any(255) as u8 as i8,
                id: 0,
            })
            .collect();
        step(&mut group, &gains);
        let waiting = group.iter().any(|member| member.waiting);
        for member in &group {
            assert!((FLOOR..=0).contains(&member.theta));
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
    for (own, service, home, run, times) in [
        // All of its service is here.
        (1000, 1000, 1 << 16, 0, 1),
        // Half of what it would get at home.
        (250, 1000, 1 << 15, 0, 1),
        (125, 1000, 1 << 15, 0, 2),
        // Nothing here, and yet not more than so much.
        (0, 1000, 1 << 15, 0, gains.boost),
        (1000, 1000, 1 << 16, 8, 1),
        (1000, 1000, 1 << 16, -12, 2),
        (1000, 1000, 1 << 16, -128, gains.patience),
    ] {
        let member = Member {
            home,
            run,
            ..member(1, own, service)
        };
        let gain = gains.integral * times;
        assert_eq!(member.gain(&gains), gain, "{own} {service} {home} {run}");
    }
}
