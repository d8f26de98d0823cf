// SPDX-License-Identifier: GPL-2.0-only

//! Time for which policies report to have throttled requests: due to a rate or a delay, and not for
//! lack of a slot.

use nrs_sched::{
    arena::{attrs, feed, lone_part, view, Request},
    parameters::Values,
    policy::{tbf, AnyPart, Config, Decision, Kind, Part, Tunables},
    sim::SECOND,
};

const START: u64 = 86_400 * SECOND;
const MS: u64 = SECOND / 1000;

/// Creates a part with `count` requests of one user that arrived at [`START`].
fn queued(config: &Config, count: u64) -> AnyPart<Request> {
    let mut part = lone_part(config, 1).expect("memory");
    feed(&mut part);
    let class = part.classify(&attrs(7), START);
    for id in 0..count {
        let request = Request::new(7, id, 1, START);
        // The delay policy may decline requests, which are then not queued.
        let _ = part.enqueue(request, class, START);
    }
    part
}

/// Dispatches the next request at `now` or as soon as it is eligible. Returns the time, ns, and the
/// time for which the request was throttled, ms.
fn next(part: &mut AnyPart<Request>, mut now: u64) -> (u64, u32) {
    loop {
        match part.get(&view(now, false)) {
            Decision::Item((_, grant)) => return (now, grant.withheld),
            Decision::Throttled { until } => now = until,
            Decision::Empty => panic!("nothing is left"),
        }
    }
}

fn rate(text: &str) -> Config {
    let mut tunables = Tunables::default();
    tunables.tbf.rate = tbf::params::Rate::parse(text).expect("a rate");
    tunables.tbf.depth = tbf::params::Depth::parse("1").expect("a depth");
    Config::parse(Kind::Tbf, Some("uid"), &tunables).expect("valid")
}

/// Checks that a queue at its rate limit counts as throttled all the time, also for requests behind
/// others.
#[test]
fn for_a_rate() {
    let mut part = queued(&rate("1"), 20);
    let mut now = START;
    for n in 0u32..20 {
        let (at, withheld) = next(&mut part, now);
        now = at;
        assert!(
            withheld.abs_diff(n * 1000) <= 20,
            "request {n}: {withheld} ms"
        );
    }
}

/// Checks that a queue that waits for slots does not count as throttled, although its policy has a
/// rate.
#[test]
fn not_for_a_slot() {
    let mut part = queued(&rate("10000"), 20);
    for n in 0u64..20 {
        let (_, withheld) = next(&mut part, START + n * 700 * MS);
        assert!(withheld <= 2, "request {n}: {withheld} ms");
    }
}

#[test]
fn for_a_delay() {
    let mut values = Values::default();
    for (name, text) in [("min", "3"), ("max", "3"), ("pct", "100")] {
        values
            .set_named(&format!("nrs_delay_{name}"), text)
            .expect("valid");
    }
    let config = Config::parse(Kind::Delay, None, &values.policies).expect("valid");
    let mut part = queued(&config, 3);
    // On time, two seconds late, and while the part is drained.
    assert_eq!(next(&mut part, START), (START + 3 * SECOND, 3000));
    assert_eq!(
        next(&mut part, START + 5 * SECOND),
        (START + 5 * SECOND, 3000)
    );
    let mut part = queued(&config, 1);
    match part.get(&view(START + SECOND, true)) {
        Decision::Item((_, grant)) => assert_eq!(grant.withheld, 1000),
        other => panic!("{other:?}"),
    }
}

/// Checks that policies without rates report no throttling, regardless of the waiting time.
#[test]
fn by_no_other_policy() {
    for (kind, argument) in [
        (Kind::Fifo, None),
        (Kind::Crrn, None),
        (Kind::Fairshare, Some("uid_fair")),
        (Kind::Qbm, None),
    ] {
        let config = Config::parse(kind, argument, &Tunables::default()).expect("valid");
        let mut part = queued(&config, 5);
        for n in 1u64..=5 {
            // Longer than a class without a gate waits for a gate.
            let (_, withheld) = next(&mut part, START + n * 10 * SECOND);
            assert!(withheld <= 1000, "{kind:?}: {withheld} ms");
        }
    }
}
