// SPDX-License-Identifier: GPL-2.0-only

//! Changes of a service: all or nothing, whatever fails, and the same result in any order.

use nrs_sched::{
    arena::{self, attrs, view, Request},
    attr::Priority,
    error::Code,
    mem::fail_after,
    policy::{Decision, Kind},
    rules::Name,
    service::{upkeep, ServiceHost, ServiceSettings},
    service_world::ServiceWorld,
    text::{Heads, PolicyCommand},
};
use proptest::prelude::*;

/// Settings of an administrator; each is valid after some of the others, or never.
const COMMANDS: [(&str, &str); 61] = [
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
    ("nrs_owners", "/a=1:2 /b/*=3:4"),
    ("nrs_owners", "-/a"),
    ("nrs_owners", "/=1:2"),
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
        "-/a",
        "/=1:2",
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

/// Applies `commands`, of which some may be refused.
fn world_with(commands: &[usize]) -> ServiceWorld {
    let world = ServiceWorld::new(1, 2);
    for at in commands {
        let (name, text) = COMMANDS[*at];
        let _ = world.set(name, text);
    }
    world
}

proptest! {
    /// The text of one service makes any other service equal to it; a text that is refused changes
    /// nothing, and the text of the service itself restarts nothing.
    #[test]
    fn a_text_makes_services_equal(
        wanted in prop::collection::vec(0..COMMANDS.len(), 1..20),
        present in prop::collection::vec(0..COMMANDS.len(), 1..20),
        broken in 0..COMMANDS.len(),
    ) {
        let (one, other) = (world_with(&wanted), world_with(&present));
        let text = one.text();
        let (before, own) = (other.show(), other.text());
        let (name, value) = COMMANDS[broken];
        let value = value.replace('\n', "; ");
        for wrong in [format!("{text}{name} {value} }}\n"), format!("{text}nrs_none 1\n")] {
            if let Err(error) = other.set("config", &wrong) {
                prop_assert_eq!(error.line() as usize, text.lines().count() + 1, "{}", wrong);
                prop_assert_eq!(other.show(), before.clone());
            } else {
                other.set("config", &own).expect("its own text");
            }
        }
        let changes = other.primaries_changed.get();
        other.set("config", &own).expect("its own text");
        prop_assert_eq!(other.primaries_changed.get(), changes);
        prop_assert_eq!(other.show(), before);
        other.set("config", &text).expect("the text of a service");
        prop_assert_eq!(other.text(), text.clone());
        prop_assert_eq!(other.show(), one.show());
        check_applied(&other);
        // An empty text is a new service.
        other.set("config", "# nothing\n\n").expect("an empty text");
        prop_assert_eq!(other.show(), ServiceWorld::new(1, 2).show());
    }

    /// A text does what its lines do one after another.
    #[test]
    fn a_text_does_what_its_lines_do(
        commands in prop::collection::vec(0..COMMANDS.len(), 1..20),
    ) {
        let (one, other) = (ServiceWorld::new(1, 2), ServiceWorld::new(1, 2));
        let accepted = commands.into_iter().filter(|at| {
            let (name, text) = COMMANDS[*at];
            one.set(name, text).is_ok()
        });
        let line = |at| {
            let (name, text): (&str, &str) = COMMANDS[at];
            format!("{name} {}\n", text.replace('\n', "; "))
        };
        let text: String = accepted.map(line).collect();
        other.set("config", &text).expect("accepted before");
        prop_assert_eq!(other.show(), one.show(), "{}", text);
        prop_assert_eq!(other.text(), one.text());
    }

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

/// Text with every kind of line.
const TEXT: &str = "# all kinds
slots 16
buffer_max 512
nrs_fairshare_delta_ms 20
nrs_fairshare_mode gid_then_uid_fair
nrs_policies tbf reg uid
nrs_policies fairshare hp
nrs_fairshare_weights uid:1:3,gid:4:9
nrs_qbm_config by uid; group a capacity=1MB/s; client 5 class=first_come min=50%
nrs_tbf_rule reg start b uid={2} rate=40 minrate=4 realtime=1
nrs_tbf_rule reg start a uid={1} rate=10MB/s
nrs_tbf_rule reg change default rate=7iops rank=b
nrs_tbf_rule reg change a also=b
";

#[test]
fn a_text_has_every_kind_of_line() {
    let world = ServiceWorld::new(1, 2);
    world.set("config", TEXT).expect("valid");
    let ordered = |text: &str| {
        let mut lines: Vec<String> = text.lines().skip(1).map(str::to_string).collect();
        lines.sort();
        lines
    };
    let text = world.text();
    assert_eq!(ordered(&format!("#\n{text}")), ordered(TEXT), "{text}");
}

#[test]
fn a_text_without_memory_changes_nothing() {
    let world = ServiceWorld::new(2, 2);
    world.set("nrs_policies", "qbm").expect("valid");
    let before = world.show();
    for allocation in 0.. {
        fail_after(allocation);
        let done = world.set("config", TEXT);
        fail_after(u32::MAX);
        check_applied(&world);
        let Err(error) = done else {
            assert!(allocation > 100, "{allocation} allocations");
            return;
        };
        assert_eq!(error.code, Code::NoMemory);
        assert_eq!(world.show(), before);
    }
}

/// A service whose policies a framework drives takes its own text, and others with these policies.
#[test]
fn a_text_keeps_the_policies_of_a_framework() {
    for (policy, name, value) in [
        ("qbm", "nrs_qbm_config", "by uid; group a capacity=1M"),
        ("tbf uid", "nrs_tbf_rate", "5000"),
        ("orr", "buffer_max", "512"),
    ] {
        let world = ServiceWorld::new(1, 1);
        world.set("nrs_policies", policy).expect("a policy");
        world.set(name, value).expect("valid");
        world.driven.set(true);
        let (text, before) = (world.text(), world.show());
        world.set("config", &text).expect("its own text");
        assert_eq!(world.show(), before);
        // Without the other line.
        let text = format!("nrs_policies {policy}\n");
        world.set("config", &text).expect("its policy");
        assert_eq!(world.text(), text);
    }
}

#[test]
fn the_longest_mode_is_read_back() {
    let world = ServiceWorld::new(1, 1);
    let mode = "gid+uid+jobid+projid+nid+nodemap+cgroup";
    world
        .set("nrs_policies", &format!("fairshare {mode}"))
        .expect("a policy");
    let (text, before) = (world.text(), world.show());
    ServiceWorld::new(1, 1)
        .set("config", &text)
        .expect("the text of a service");
    world.set("config", &text).expect("its own text");
    assert_eq!(world.show(), before);
}

/// Rules that a text keeps have the same identifiers, by which classes know their rule; others have
/// identifiers that no rule had before.
#[test]
fn rules_that_a_text_keeps_keep_their_identifiers() {
    let world = ServiceWorld::new(1, 1);
    let id = |name: &str| {
        let name = Name::new(name).expect("a name");
        let kept = world.settings(|settings| settings.parameters().kept.tbf.clone());
        let rule_list = kept.rule_list_with(&name, Heads::Regular).expect("rules");
        let id = rule_list.get(&name).expect("a rule").id;
        id
    };
    world.set("nrs_policies", "tbf uid").expect("a policy");
    for rule in ["start a uid={1} rate=1", "start b uid={2} rate=1"] {
        world.set("nrs_tbf_rule", rule).expect("a rule");
    }
    let (a, b) = (id("a"), id("b"));
    let rate = world.text().replace("uid={2} rate=1", "uid={2} rate=9");
    let text = format!("{rate}nrs_tbf_rule start c uid={{3}} rate=5\n");
    world.set("config", &text).expect("another rule");
    let c = id("c");
    assert_eq!((id("a"), id("b")), (a, b));
    assert!(c > a.max(b));
    // The same name with other conditions is another rule.
    let text = "nrs_policies tbf uid\nnrs_tbf_rule start a uid={1 3} rate=1\n";
    world.set("config", text).expect("another rule");
    assert!(id("a") > c);
}

#[test]
fn a_text_is_refused_with_the_place_of_the_fault() {
    let world = ServiceWorld::new(1, 1);
    for (text, code, shown) in [
        ("slots 16\nslots x", Code::Invalid, "line 2: "),
        (
            "\n#\nnrs_none 1",
            Code::NoEntry,
            "line 3: no parameter of this name can be set",
        ),
        (
            "drain 1",
            Code::NoEntry,
            "line 1: no parameter of this name can be set",
        ),
        (
            "config x",
            Code::NoEntry,
            "line 1: no parameter of this name can be set",
        ),
        (
            "nrs_policies tbf uid\nnrs_tbf_rule start a uid={1} rate=x",
            Code::Invalid,
            "line 2: column 35: expected a rate",
        ),
        (
            "nrs_policies tbf uid\n  nrs_tbf_rule   start a uid={1} rate=x",
            Code::Invalid,
            "line 2: column 39: expected a rate",
        ),
        (
            "nrs_tbf_rule start a uid={1} rate=1",
            Code::Invalid,
            "line 1: ",
        ),
        ("at_min 500\nat_max 400", Code::Invalid, ""),
    ] {
        let error = world.set("config", text).expect_err("refused");
        assert_eq!(error.code, code, "{text}");
        assert!(error.to_string().starts_with(shown), "{text}: {error}");
    }
    world.driven.set(true);
    let busy = world
        .set("config", "nrs_policies crrn")
        .map_err(|error| error.code);
    assert_eq!(busy, Err(Code::Busy));
}

/// A text without the policies of a framework is refused, and one with them keeps their rules.
#[test]
fn a_text_does_not_stop_the_policies_of_a_framework() {
    let world = ServiceWorld::new(1, 1);
    world.set("nrs_tbf_rate", "500").expect("valid");
    world.set("nrs_policies", "tbf uid").expect("a policy");
    world.driven.set(true);
    let text = world.text();
    world.set("config", &text).expect("its own text");
    assert_eq!(world.text(), text, "the rule default keeps its rate");
    let rule = "start a uid={1} rate=5";
    world.set("nrs_tbf_rule", rule).expect("a rule");
    let before = world.show();
    for text in ["", "slots 5", "nrs_policies fifo", "nrs_policies tbf gid"] {
        let refused = world.set("config", text).map_err(|error| error.code);
        assert_eq!(refused, Err(Code::Busy), "{text}");
        assert_eq!(world.show(), before);
    }
    // The framework joins while the text is read.
    world.driven.set(false);
    let draft = world.settings(|settings| settings.draft()).expect("memory");
    draft.write("nrs_policies crrn").expect("a policy");
    world.driven.set(true);
    let refused = world.settings(|settings| settings.apply(&world, draft));
    assert_eq!(refused.map_err(|error| error.code), Err(Code::Busy));
    assert_eq!(world.show(), before);
}

/// A rule of the longest command is read back, though its text is longer.
#[test]
fn the_longest_rule_is_read_back() {
    let world = ServiceWorld::new(1, 1);
    world.set("nrs_policies", "tbf reg uid").expect("a policy");
    let mut rule = String::from("start a {1");
    while rule.len() < 4090 {
        rule.push_str(" 1");
    }
    rule.push('}');
    world.set("nrs_tbf_rule", &rule).expect("a rule");
    let text = world.text();
    assert!(text
        .lines()
        .any(|line| line.len() > "nrs_tbf_rule ".len() + 4095));
    world.set("config", &text).expect("its own text");
    assert_eq!(world.text(), text);
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
fn new_target_gets_the_policies_of_existing_targets() {
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
