// SPDX-License-Identifier: GPL-2.0-only

//! Servers that share jobs: the scenarios of clusters come out fair, and are not without the exchange.

use nrs_sim::{engine, outcome::Outcome, scenario::Scenario, study::cluster::Layout};

/// GB/s of the jobs `wide`, `left` and `right` from the settle time on, with keys of the exchange overridden.
fn rates(exchange: bool, set: &[(&str, &str)]) -> ([f64; 3], Outcome) {
    let text = include_str!("../../scenarios/cluster-wide.toml");
    let set: Vec<_> = set
        .iter()
        .map(|(key, value)| (format!("exchange.{key}"), value.to_string()))
        .collect();
    let mut scenario = Scenario::parse("cluster", text, &set).expect("a scenario");
    if !exchange {
        scenario.exchange = None;
    }
    let outcome = engine::run(&scenario).expect("a run");
    let rate = |job: &str| {
        let stripes = outcome.jobs.iter().enumerate();
        let stripes = stripes.filter(|(_, stripe)| stripe.name.starts_with(job));
        let rate = |(index, _)| outcome.rate(index, outcome.settle_ns, outcome.duration_ns);
        stripes.map(rate).sum::<f64>() / 1e9
    };
    (["wide", "left", "right"].map(rate), outcome)
}

fn assert_fair(rates: [f64; 3]) {
    for rate in rates {
        assert!((rate / (3.2 / 3.0) - 1.0).abs() < 0.05, "{rates:?}");
    }
}

#[test]
fn a_wide_job_gets_a_third() {
    let (alone, _) = rates(false, &[]);
    assert!(alone[0] > 1.5, "{alone:?}");
    let (shared, outcome) = rates(true, &[]);
    assert_fair(shared);
    let exchange = outcome.exchange.expect("an exchange");
    // Four servers say 3 messages each, 10 times a second for 12 s.
    assert!(
        (4 * 3 * 110..=4 * 3 * 120).contains(&exchange.messages),
        "{exchange:?}"
    );
    assert_eq!((exchange.lost, exchange.refused), (0, 0));
}

#[test]
fn a_relay_makes_it_as_fair_for_fewer_messages() {
    let (shared, outcome) = rates(true, &[("topology", "relay")]);
    assert_fair(shared);
    let exchange = outcome.exchange.expect("an exchange");
    assert!(exchange.messages <= 2 * 4 * 120, "{exchange:?}");
}

#[test]
fn who_is_cut_off_is_held() {
    let cut = "[{ server = \"fast0\", from = \"7s\", to = \"9s\" }]";
    let (shared, outcome) = rates(true, &[("loss", "0.1"), ("cut", cut)]);
    assert_fair(shared);
    assert!(outcome.exchange.expect("an exchange").lost > 100);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let layout = Layout::random(4, 6, 9);
    let exchange = "delta = \"100ms\"\nlatency = \"1ms\"\njitter = \"1ms\"\nloss = 0.2";
    let run = || {
        let scenario = layout.scenario("twice", 3, exchange).expect("a scenario");
        let outcome = engine::run(&scenario).expect("a run");
        (outcome.events, outcome.exchange, outcome.jobs)
    };
    assert_eq!(run(), run());
}
