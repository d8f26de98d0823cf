// SPDX-License-Identifier: GPL-2.0-only

//! Changes of a service: all or nothing, whatever fails, and the same result in any order.

use nrs_sched::{
    arena::{self, attrs, view, Request},
    attr::Priority,
    error::Code,
    mem::fail_after,
    policy::{Decision, Kind},
    service::{upkeep, ServiceHost, ServiceSettings},
    service_world::ServiceWorld,
    text::PolicyCommand,
};
use proptest::prelude::*;

/// Settings of an administrator; each is valid after some of the others, or never.
const COMMANDS: [(&str, &str); 58] = [
    ("nrs_policies", "fifo"),
    ("nrs_policies", "crrn"),
    ("nrs_policies", "orr"),
    ("nrs_policies", "trr reg"),
    ("nrs_policies", "delay"),
    ("nrs_policies", "tbf uid"),
    ("nrs_policies", "tbf nid"),
    ("nrs_policies", "tbf hp uid+gid"),
    ("nrs_policies", "tbf uid_"),
    ("nrs_policies", "fairshare uid_fair"),
    ("nrs_policies", "fairshare gid_then_uid_fair"),
    ("nrs_policies", "fairshare hp jobid_fair"),
    ("nrs_policies", "fairshare unfair"),
    ("nrs_policies", "qbm"),
    ("nrs_policies", "qbm reg"),
    ("nrs_policies", "fair"),
    ("nrs_tbf_rule", "start a uid={1} rate=50"),
    ("nrs_tbf_rule", "start b uid={2} rate=40 rank=a"),
    ("nrs_tbf_rule", "start c nid={10.0.0.*@tcp} rate=9"),
    ("nrs_tbf_rule", "change a rate=7"),
    ("nrs_tbf_rule", "reg stop a"),
    ("nrs_tbf_rule", "stop b"),
    ("nrs_tbf_rule", "start d uid={1 rate=50"),
    ("nrs_tbf_rate", "20"),
    ("nrs_tbf_global_rate", "0"),
    ("nrs_tbf_global_rate", "1"),
    ("nrs_tbf_depth", "6"),
    ("nrs_fairshare_weights", "uid:1:2"),
    ("nrs_fairshare_weights", "gid:4:9,uid:1:3"),
    ("nrs_fairshare_weights", "-uid:1"),
    ("nrs_fairshare_weights", "clear"),
    ("nrs_fairshare_mode", "gid_fair"),
    ("nrs_fairshare_mode", "size_fair"),
    ("nrs_fairshare_mode", "uid_fair weight=-gid:7"),
    ("nrs_fairshare_slice_kib", "512"),
    ("nrs_fairshare_locality", "1"),
    ("nrs_fairshare_select", "paper"),
    ("nrs_fairshare_select", "deadline"),
    ("nrs_fairshare_cross_cpt", "1"),
    ("nrs_fairshare_delta_ms", "10"),
    ("nrs_fairshare_delta_ms", "0"),
    (
        "nrs_qbm_config",
        "by uid\ngroup a capacity=1M\nclient 5 class=fc min=50%",
    ),
    (
        "nrs_qbm_config",
        "by uid\ngroup a capacity=1M\nclient 5 class=fc min=500%",
    ),
    ("nrs_qbm_config", "by uid"),
    ("nrs_crrn_quantum", "16"),
    ("nrs_crrn_quantum", "reg_quantum:3"),
    ("nrs_orr_quantum", "hp_quantum:8"),
    ("nrs_orr_offset_type", "logical"),
    ("nrs_trr_supported", "reg_supported:writes"),
    ("nrs_delay_min", "1"),
    ("nrs_delay_max", "700"),
    ("nrs_delay_pct", "101"),
    ("buffer_max", "256"),
    ("buffer_max", "70000"),
    ("buffer_max", "1"),
    ("slots", "7"),
    ("slots", "many"),
    ("at_min", "5"),
];

/// Checks that the host has what the settings say.
fn check_applied(world: &ServiceWorld) {
    let values = world.settings(|settings| settings.parameters().values);
    assert_eq!(world.records.get(), values.service.buffer_max.get());
    assert!(world.values.get() == values, "values that were not applied");
}

#[test]
fn every_command_is_valid_or_never_is() {
    let never = [
        "tbf uid_",
        "fairshare unfair",
        "fair",
        "start d uid={1 rate=50",
        "-uid:1",
        "uid_fair weight=-gid:7",
        "0",
        "by uid\ngroup a capacity=1M\nclient 5 class=fc min=500%",
        "101",
        "1",
        "many",
    ];
    for (name, text) in COMMANDS {
        let world = ServiceWorld::new(1, 2);
        let prepare: &[(&str, &str)] = match (name, text) {
            ("nrs_tbf_rule", text) if text.contains("nid") => &[("nrs_policies", "tbf nid")],
            ("nrs_tbf_rule", text) if text.starts_with("start a") => &[("nrs_policies", "tbf uid")],
            ("nrs_tbf_rule", _) => &[
                ("nrs_policies", "tbf uid"),
                ("nrs_tbf_rule", "start a uid={1} rate=50"),
            ],
            _ => &[],
        };
        for (name, text) in prepare {
            world.set(name, text).expect("valid");
        }
        let done = world.set(name, text);
        // Switches, and a delta that is out of range.
        let switch = name != "nrs_fairshare_delta_ms" && name != "buffer_max";
        let impossible = never.contains(&text) && !(switch && ["0", "1"].contains(&text));
        assert_eq!(done.is_err(), impossible, "{name} {text}: {done:?}");
    }
}

proptest! {
    /// A refused command changes nothing; an accepted one is applied.
    #[test]
    fn a_refused_command_changes_nothing(
        commands in prop::collection::vec(0..COMMANDS.len(), 1..20),
        targets in 1..3u16,
        cpts in 1..3u16,
    ) {
        let world = ServiceWorld::new(targets, cpts);
        for at in commands {
            let (name, text) = COMMANDS[at];
            let before = world.show();
            let (changes, retries) = (world.primaries_changed.get(), world.retries.get());
            if let Err(error) = world.set(name, text) {
                prop_assert!(!error.reason.is_empty());
                prop_assert_eq!(world.show(), before, "{} {}", name, text);
                prop_assert_eq!(world.primaries_changed.get(), changes);
                prop_assert_eq!(world.retries.get(), retries);
            }
            check_applied(&world);
        }
    }

    /// Values that are set before a policy starts give the same service as values set after it.
    #[test]
    fn values_and_policies_in_any_order(
        values in prop::collection::vec(23..COMMANDS.len(), 1..6),
        policy in 0..16usize,
    ) {
        let (before, after) = (ServiceWorld::new(1, 2), ServiceWorld::new(1, 2));
        let (start, line) = COMMANDS[policy];
        // A command that the policy refuses later is not compared.
        let started = before.set(start, line);
        let values = values.into_iter().map(|at| COMMANDS[at]);
        // Rules, weights and plans depend on the policy that runs. A new rate is for new rules.
        let depend = [
            "nrs_fairshare_weights",
            "nrs_fairshare_mode",
            "nrs_qbm_config",
            "nrs_tbf_rate",
        ];
        let values = values.filter(|(name, _)| !depend.contains(name));
        for (name, text) in values {
            prop_assert_eq!(before.set(name, text).is_ok(), after.set(name, text).is_ok());
        }
        prop_assert_eq!(started, after.set(start, line));
        prop_assert_eq!(before.show(), after.show());
    }
}

/// Checks each command with each of its allocations failing, on a service with all kinds of state.
#[test]
fn a_command_without_memory_changes_nothing() {
    let world = ServiceWorld::new(2, 2);
    let mut failures = 0;
    let tours = [
        "tbf uid",
        "fairshare gid_then_uid_fair",
        "qbm",
        "orr",
        "crrn",
        "delay",
        "fifo",
    ];
    for policy in tours {
        let commands = [("nrs_policies", policy)].into_iter().chain(COMMANDS);
        for (name, text) in commands {
            let before = world.show();
            for allocation in 0.. {
                fail_after(allocation);
                let done = world.set(name, text);
                fail_after(u32::MAX);
                check_applied(&world);
                match done {
                    Err(error) if error.code == Code::NoMemory => {
                        assert_eq!(world.show(), before, "{name} {text}: {allocation}");
                        failures += 1;
                    }
                    Err(_) => {
                        assert_eq!(world.show(), before, "{name} {text}");
                        break;
                    }
                    Ok(()) => break,
                }
            }
        }
    }
    assert!(failures > 1000, "{failures} failures");
}

/// Queues a request on the regular head of the first partition.
fn queue(world: &ServiceWorld, id: u64) {
    world.head((0, 0, Priority::Regular), |head| {
        let attrs = attrs(1);
        let ticket = head.classify(&attrs, 0);
        let queued = head.enqueue(Request::new(1, id, 1, 0), ticket, || attrs, 0);
        assert!(queued.is_ok());
    });
}

#[test]
fn policies_that_are_still_stopping_refuse_another() {
    arena::reserve(8).expect("memory");
    let world = ServiceWorld::new(1, 2);
    for (id, policy) in (1..).zip(["crrn", "tbf uid", "fairshare uid_fair"]) {
        world.set("nrs_policies", policy).expect("a policy");
        queue(&world, id);
    }
    let before = world.show();
    for (name, text) in [
        ("nrs_policies", "crrn"),
        ("nrs_fairshare_mode", "gid_fair"),
        ("buffer_max", "70000"),
    ] {
        match world.set(name, text) {
            Err(error) => assert_eq!(error.code, Code::Again, "{name}"),
            // A change that needs no new parts.
            Ok(()) => assert_eq!(name, "buffer_max"),
        }
    }
    world.set("buffer_max", "65536").expect("memory");
    assert_eq!(world.show(), before);
    assert!(!world.settings(|settings| settings.can_restart(&world, Kind::Fairshare)));
    // The oldest request leaves.
    world.head((0, 0, Priority::Regular), |head| {
        let Decision::Item((request, ticket)) = head.get(&view(0, false), || false) else {
            panic!("no request");
        };
        head.stop(&ticket, nrs_sched::item::Item::cost(&request), 0);
    });
    world.set("nrs_policies", "crrn").expect("a free place");
}

#[test]
fn a_service_that_a_framework_drives_keeps_its_policies() {
    let world = ServiceWorld::new(1, 1);
    world.driven.set(true);
    let refused = world
        .set("nrs_policies", "crrn")
        .map_err(|error| error.code);
    assert_eq!(refused, Err(Code::Busy));
    let command = PolicyCommand::parse("crrn").expect("a command");
    let started = world.settings(|settings| settings.start_policy(&world, &command, true));
    assert!(started.is_ok());
    world
        .set("nrs_crrn_quantum", "3")
        .expect("parameters can be set");
}

#[test]
fn more_records_are_refused_while_ordered_requests_exist() {
    let world = ServiceWorld::new(1, 1);
    world.set("nrs_policies", "orr").expect("a policy");
    world.ordered.set(true);
    let before = world.show();
    let refused = world.set("buffer_max", "70000").map_err(|error| error.code);
    assert_eq!(refused, Err(Code::Busy));
    assert_eq!(world.show(), before);
    world.set("buffer_max", "512").expect("fewer records");
    check_applied(&world);
}

#[test]
fn a_replaced_service_refuses_changes_and_passes_on_its_parameters() {
    let (old, new) = (ServiceWorld::new(1, 1), ServiceWorld::new(1, 2));
    for (name, text) in [
        ("slots", "5"),
        ("buffer_max", "70000"),
        ("nrs_policies", "tbf uid"),
    ] {
        old.set(name, text).expect("valid");
    }
    old.set("nrs_tbf_rule", "start a uid={1} rate=50")
        .expect("a rule");
    let parameters = old.settings(ServiceSettings::give_up);
    new.settings(|settings| settings.adopt(&new, parameters));
    check_applied(&new);
    let values = |world: &ServiceWorld| world.settings(|settings| settings.parameters().values);
    assert!(values(&old) == values(&new));
    for (name, text) in COMMANDS {
        let refused = old.set(name, text).map_err(|error| error.code);
        assert!(refused.is_err(), "{name} {text}");
    }
    // Rules belong to the policy that ran.
    let refused = new
        .set("nrs_tbf_rule", "stop a")
        .map_err(|error| error.code);
    assert_eq!(refused, Err(Code::NoDevice));
}

#[test]
fn a_new_target_gets_the_policies_of_the_others() {
    let mut world = ServiceWorld::new(1, 2);
    world.set("nrs_policies", "tbf uid").expect("a policy");
    world
        .set("nrs_tbf_rule", "start a uid={1} rate=1")
        .expect("a rule");
    world.add_target().expect("memory");
    arena::reserve(16).expect("memory");
    for target in 0..2 {
        upkeep::maintain(&world).expect("memory");
        let served = world.head((target, 1, Priority::Regular), |head| {
            for id in 1..=8 {
                let attrs = attrs(1);
                let ticket = head.classify(&attrs, 0);
                let request = Request::new(1, u64::from(target) * 8 + id, 1, 0);
                assert!(head.enqueue(request, ticket, || attrs, 0).is_ok());
            }
            let get = || match head.get(&view(0, false), || true) {
                Decision::Item((_, ticket)) => Some(ticket),
                Decision::Throttled { .. } | Decision::Empty => None,
            };
            std::iter::from_fn(get).count()
        });
        // All targets share the rate of the rule.
        let burst = if target == 0 { 3 } else { 0 };
        assert_eq!(served, burst, "target {target}");
    }
}
