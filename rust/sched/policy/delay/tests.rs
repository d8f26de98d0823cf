// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use crate::{
    arena::{feed, view, Request},
    sched::{
        attr::Priority,
        error::{Code, Result},
        parameters::Values,
        policy::{
            params::{heads::PerHead, BufferMax},
            Configuration,
        },
        units::NSEC_PER_SEC as SECOND,
    },
};
use params::{Max, Min, Pct};

const START: u64 = 86_400 * SECOND;

fn tunables(min: u32, max: u32, pct: u32) -> Tunables {
    Tunables {
        min: PerHead::both(Min::new(min).unwrap()),
        max: PerHead::both(Max::new(max).unwrap()),
        pct: PerHead::both(Pct::new(pct).unwrap()),
        ..Tunables::default()
    }
}

fn config(min: u32, max: u32, pct: u32) -> Config {
    Config::parse(None, &tunables(min, max, pct)).unwrap()
}

fn part(config: &Config, seed: u64) -> State<Request> {
    let shared = mem::Shared::new(Shared::new(config, seed, 1).unwrap()).unwrap();
    State::new(config, seed, &shared).unwrap()
}

fn request(id: u64, now: u64) -> Request {
    Request {
        id,
        arrival: now,
        ..Request::default()
    }
}

fn until(part: &mut State<Request>, now: u64) -> u64 {
    match part.get(&view(now, false)) {
        Decision::Throttled { until } => until,
        other => panic!("{other:?}"),
    }
}

fn id(got: Decision<(Request, Grant)>) -> Option<u64> {
    match got {
        Decision::Item((request, _)) => Some(request.id),
        _ => None,
    }
}

/// Sets parameter `nrs_delay_NAME` to `text`.
fn set(tunables: &mut Tunables, name: &str, text: &str) -> Result {
    let mut values = Values::default();
    values.policies.delay = *tunables;
    values.set_named(&format!("nrs_delay_{name}"), text)?;
    *tunables = values.policies.delay;
    Ok(())
}

/// Draws the delays of `count` requests; `None` for requests that are declined.
fn draws(min: u32, max: u32, pct: u32, seed: u64, count: u64) -> Vec<Option<u64>> {
    let setting = Setting::new(min, max, pct);
    let mut rng = Rng::new(seed);
    (0..count).map(|_| setting.draw(&mut rng)).collect()
}

/// Verifies that no request is dispatched before the shortest delay or queued beyond the longest.
#[test]
fn within_bounds() {
    for (min, max) in [
        (0, 0),
        (0, 1),
        (5, 300),
        (7, 7),
        (65_535, 65_535),
        (0, 65_535),
    ] {
        let mut part = part(&config(min, max, 100), 1);
        let (first, last) = (u64::from(min) * SECOND, u64::from(max) * SECOND);
        for id in 0..1_000 {
            feed(&mut part);
            let now = START + id;
            part.enqueue(request(id, now), CLASS, now).unwrap();
        }
        let mut now = START + 1_000;
        let mut order = Vec::new();
        loop {
            match part.get(&view(now, false)) {
                Decision::Item((request, _)) => {
                    let waited = now - request.arrival;
                    assert!(waited >= first && waited <= last.max(1_000), "{waited}");
                    order.push(request.id);
                }
                Decision::Throttled { until } => {
                    assert!(until > now && until <= START + 1_000 + last);
                    now = until;
                }
                Decision::Empty => break,
            }
        }
        assert_eq!(order.len(), 1_000);
        // With equal delays the order is that of arrival.
        assert_eq!(order.is_sorted(), min == max, "{min} to {max}");
    }
}

/// Verifies that delays are exact, to the nanosecond, if the limits are equal, at any time of day.
#[test]
fn equal_bounds_are_exact() {
    for (seconds, now) in [(0, 1), (1, START + 7), (4, 999_999_999), (65_535, 3)] {
        let mut part = part(&config(seconds, seconds, 100), 9);
        part.enqueue(request(1, now), CLASS, now).unwrap();
        let due = now + u64::from(seconds) * SECOND;
        if seconds > 0 {
            assert_eq!(until(&mut part, now), due);
            assert_eq!(until(&mut part, due - 1), due);
        }
        assert_eq!(id(part.get(&view(due, false))), Some(1));
        assert!(matches!(part.get(&view(due, false)), Decision::Empty));
    }
}

/// Verifies that delays are evenly distributed: chi-square over 64 bins, and finer than a second.
#[test]
fn even_over_the_range() {
    for (min, max, seed) in [(0, 1, 1), (5, 300, 2), (1_000, 65_535, 3)] {
        let count = 64_000u64;
        let (low, span) = (u64::from(min) * SECOND, u64::from(max - min) * SECOND);
        let mut bins = [0u64; 64];
        let mut odd = 0;
        for delay in draws(min, max, 100, seed, count) {
            let more = delay.unwrap() - low;
            assert!(more <= span);
            bins[(u128::from(more) * 64 / u128::from(span + 1)) as usize] += 1;
            odd += more & 1;
        }
        let mean = count as f64 / 64.0;
        let chi: f64 = bins.iter().map(|&n| (n as f64 - mean).powi(2) / mean).sum();
        // 63 degrees of freedom: mean 63, deviation 11.2; five deviations.
        assert!((7.0..119.0).contains(&chi), "{min} to {max}: {chi}");
        // Nanoseconds, not seconds: 5 deviations of 126.
        assert!(odd.abs_diff(count / 2) < 633, "{odd}");
    }
}

/// Compares the percentage of delayed requests with the parameter, within 5 deviations.
#[test]
fn percentage_is_unbiased() {
    let count = 1_000_000u64;
    for (pct, seed) in [(0, 1), (1, 2), (2, 3), (50, 4), (98, 5), (99, 6), (100, 7)] {
        let delayed = draws(1, 2, pct, seed, count).iter().flatten().count() as f64;
        let p = f64::from(pct) / 100.0;
        let mean = count as f64 * p;
        let bound = 5.0 * (count as f64 * p * (1.0 - p)).sqrt();
        assert!((delayed - mean).abs() <= bound, "{pct}: {delayed}");
    }
}

/// Verifies that declined requests are returned at once and not queued.
#[test]
fn declined_requests_come_back() {
    let mut none = part(&config(5, 300, 0), 3);
    for id in 0..1_000 {
        assert_eq!(
            none.enqueue(request(id, START), CLASS, START)
                .unwrap_err()
                .id,
            id
        );
    }
    assert!(none.is_empty());
    let mut some = part(&config(5, 300, 40), 3);
    let mut declined = 0;
    for id in 0..10_000 {
        feed(&mut some);
        declined += u32::from(some.enqueue(request(id, START), CLASS, START).is_err());
    }
    assert_eq!(some.len() + declined, 10_000);
    assert!((5_755..6_245).contains(&declined), "{declined}");
}

/// Verifies that only forced requests are dispatched without queueing while any request may be
/// delayed.
#[test]
fn passing() {
    let cost = Cost::of_bytes(0);
    for (pct, way, want) in [
        (0, BypassReason::Opportunity, BypassOutcome::Counted),
        (
            0,
            BypassReason::Forced { contended: true },
            BypassOutcome::Counted,
        ),
        (1, BypassReason::Opportunity, BypassOutcome::Refused),
        (
            1,
            BypassReason::Forced { contended: true },
            BypassOutcome::Counted,
        ),
        (100, BypassReason::Opportunity, BypassOutcome::Refused),
        (
            100,
            BypassReason::Forced { contended: true },
            BypassOutcome::Counted,
        ),
    ] {
        let mut part = part(&config(5, 300, pct), 3);
        let class = part.classify(&Attrs::UNKNOWN, START);
        assert!(part.is_live(class));
        assert_eq!(part.pass(class, cost, way, || START), want, "{pct} {way:?}");
        let other = ClassId::new(0, 3);
        assert_eq!(part.pass(other, cost, way, || START), BypassOutcome::Stale);
    }
}

/// Verifies that a part that is drained dispatches at once, by due time.
#[test]
fn force_serves_at_once() {
    let mut part = part(&config(5, 300, 100), 4);
    for id in 0..100 {
        part.enqueue(request(id, START), CLASS, START).unwrap();
    }
    let mut last = 0;
    for _ in 0..100 {
        let due = until(&mut part, START);
        assert!(due >= last && due > START);
        last = due;
        assert!(id(part.get(&view(START, true))).is_some());
    }
    assert!(matches!(part.get(&view(START, true)), Decision::Empty));
}

/// Verifies that changes apply to later requests.
#[test]
fn update_in_place() {
    let (old, new) = (config(10, 10, 100), config(2, 2, 100));
    let mut part = part(&old, 4);
    part.enqueue(request(1, START), CLASS, START).unwrap();
    let update = old.update_to(&new).unwrap();
    assert_eq!(
        part.update(update, START),
        Update(old.tunables.setting(Priority::Regular))
    );
    part.enqueue(request(2, START), CLASS, START).unwrap();
    assert_eq!(until(&mut part, START), START + 2 * SECOND);
    assert_eq!(id(part.get(&view(START + 2 * SECOND, false))), Some(2));
    assert_eq!(until(&mut part, START + 2 * SECOND), START + 10 * SECOND);
    part.update(new.update_to(&config(0, 300, 0)).unwrap(), START);
    assert!(part.enqueue(request(3, START), CLASS, START).is_err());
    assert_eq!(id(part.get(&view(START + 10 * SECOND, false))), Some(1));
    // Another bound of records needs a new part.
    let more = Tunables {
        buffer_max: BufferMax::new(256).unwrap(),
        ..Tunables::default()
    };
    assert!(config(5, 300, 100).update_to(&old.with(&more)).is_none());
}

#[test]
fn heads_have_their_own_setting() {
    let mut tunables = Tunables::default();
    set(&mut tunables, "min", "hp_delay_min:1").unwrap();
    set(&mut tunables, "pct", "reg_delay_pct:7").unwrap();
    let config = Config::parse(None, &tunables).unwrap();
    assert_eq!(
        config.tunables.setting(Priority::Regular),
        Setting::new(5, 300, 7)
    );
    let high = Setting::new(1, 300, 100);
    assert_eq!(config.tunables.setting(Priority::High), high);
    let other = config.on(Priority::High).with(&Tunables::default());
    assert_eq!(other.priority, Priority::High);
    assert!(Config::parse(Some("5"), &tunables).is_err());
    assert!(config.argument().is_none());
}

/// Verifies that requests beyond the bound join the line, and are dispatched when due unless
/// requests before them are late.
#[test]
fn bounded_records() {
    let few = Tunables {
        buffer_max: BufferMax::new(256).unwrap(),
        ..tunables(1, 1, 100)
    };
    let config = Config::parse(None, &few).unwrap();
    let mut part = part(&config, 5);
    for id in 0..1_000 {
        feed(&mut part);
        let now = START + id;
        part.enqueue(request(id, now), CLASS, now).unwrap();
        assert!(part.records.live() <= 256);
        assert!(part.line.is_empty() || part.records.live() == 256);
    }
    assert_eq!(
        (part.len(), part.line.len(), part.overflow()),
        (1_000, 744, 744)
    );
    assert_eq!(until(&mut part, START), START + SECOND);
    for want in 0..1_000 {
        // The line stores even times, so a request is late by a nanosecond at most.
        let now = START + SECOND + want + 1;
        assert_eq!(id(part.get(&view(now, false))), Some(want));
        assert!(part.line.is_empty() || part.records.live() == 256);
    }
    assert!(part.is_empty());
}

/// Verifies that without memory all requests join the line, and are dispatched when due.
#[test]
fn without_memory() {
    let config = config(1, 1, 100);
    let mut part = State::<Request>::without_memory(&config, 1).unwrap();
    for id in 0..10 {
        part.enqueue(request(id, START), CLASS, START).unwrap();
    }
    assert_eq!((part.len(), part.records.live()), (10, 0));
    let due = until(&mut part, START);
    assert!((START + SECOND..=START + SECOND + 1).contains(&due));
    assert_eq!(id(part.get(&view(due, false))), Some(0));
    assert_eq!(id(part.get(&view(START, true))), Some(1));
    // With memory the requests move from the line to records.
    feed(&mut part);
    assert_eq!(
        (part.len(), part.records.live(), part.line.len()),
        (8, 8, 0)
    );
    assert_eq!(id(part.get(&view(due, false))), Some(2));
}

/// Verifies that on each head the shortest delay is at most the longest one, and that a refused
/// text changes nothing.
#[test]
fn parameters() {
    for (name, text, taken) in [
        ("min", "300", true),
        ("min", "301", false),
        ("min", "hp_delay_min:7 reg_delay_min:300", true),
        ("min", "hp_delay_min:7 reg_delay_min:301", false),
        ("max", "5", true),
        ("max", "4", false),
        ("max", "hp_delay_max:4", false),
        ("max", "65535", true),
        ("max", "65536", false),
        ("pct", "0", true),
        ("pct", "101", false),
    ] {
        let mut t = Tunables::default();
        let done = set(&mut t, name, text).map_err(|error| error.code);
        let want = if taken { Ok(()) } else { Err(Code::Invalid) };
        assert_eq!(done, want, "{name} {text}");
        assert_eq!(t != Tunables::default(), taken, "{name} {text}");
    }
}
