// SPDX-License-Identifier: GPL-2.0-only

//! Plans that differ in one thing.

use super::*;

fn settings(pairs: &[(&str, &str)]) -> Settings {
    let mut settings = Settings::default();
    for (name, value) in pairs {
        settings.set(Setting::parse(name).unwrap(), value).unwrap();
    }
    settings
}

fn promise(class: &str, min: &str) -> Promise {
    let mut promise = Promise::NONE;
    promise.set(Setting::Class, class).unwrap();
    promise.set(Setting::Min, min).unwrap();
    promise
}

#[test]
fn edits() {
    let mut plan = Plan::none().unwrap();
    let mut step = |next: Result<Plan, PlanError>, want: &str| {
        plan = next.unwrap();
        assert_eq!(text(&plan), want);
        plan.unchanged().unwrap()
    };
    let plan = step(
        Plan::none()
            .unwrap()
            .with_group("a", &settings(&[("capacity", "10MB"), ("target", "1")])),
        "group a capacity=10MB/s target=1\n",
    );
    let plan = step(
        plan.with_group("b", &settings(&[("capacity", "20MB")])),
        "group a capacity=10MB/s target=1\ngroup b capacity=20MB/s\n",
    );
    let plan = step(
        plan.with_client("b", "*@tcp", &promise("fs", "10%")),
        "group a capacity=10MB/s target=1\ngroup b capacity=20MB/s\nclient *@tcp class=fair_share min=10% group=b\n",
    );
    // One client is told before patterns, a pattern after everybody.
    let plan = step(
        plan.with_client("b", "0@lo", &promise("fc", "1MB")),
        "group a capacity=10MB/s target=1\ngroup b capacity=20MB/s\nclient 0@lo class=first_come min=1MB/s group=b\nclient *@tcp class=fair_share min=10% group=b\n",
    );
    let plan = step(
        plan.with_client("a", "*@o2ib", &promise("ls", "1MB")),
        "group a capacity=10MB/s target=1\ngroup b capacity=20MB/s\nclient 0@lo class=first_come min=1MB/s group=b\nclient *@tcp class=fair_share min=10% group=b\nclient *@o2ib class=low_share min=1MB/s group=a\n",
    );
    assert_eq!(
        (plan.group_named("b"), plan.group_named("c")),
        (Some(1), None)
    );
    assert_eq!(plan.client_named(Some(1), "*@tcp"), Some(1));
    assert_eq!(plan.client_named(Some(0), "*@tcp"), None);
    assert_eq!(plan.client_named(None, "*@tcp"), None);
    let code = |plan: Result<Plan, PlanError>| {
        let error = plan.err().expect("refused");
        assert_eq!(error.line, 0);
        assert_eq!(error.to_string(), error.reason);
        error.code
    };
    for (refused, want) in [
        (plan.with_by(By::Uid), Code::Busy),
        (plan.with_group("c", &Settings::default()), Code::Invalid),
        (
            plan.with_group("c", &settings(&[("capacity", "1MB")])),
            Code::Exists,
        ),
        (
            plan.with_group("c", &settings(&[("capacity", "1MB"), ("target", "1")])),
            Code::Exists,
        ),
        (
            plan.with_group("..", &settings(&[("capacity", "1MB"), ("target", "2")])),
            Code::Invalid,
        ),
        (
            plan.with_group(&"c".repeat(64), &settings(&[("capacity", "1MB")])),
            Code::NameTooLong,
        ),
        // Its client has 1 MB.
        (
            plan.with_group("b", &settings(&[("capacity", "900KB")])),
            Code::Invalid,
        ),
        (plan.without_group("c"), Code::NoEntry),
        (
            plan.with_client("c", "0@lo", &promise("fc", "1MB")),
            Code::NoEntry,
        ),
        (
            plan.with_client("b", "lo", &promise("fc", "1MB")),
            Code::Invalid,
        ),
        (
            plan.with_client("b", "", &promise("fc", "1MB")),
            Code::Invalid,
        ),
        (
            plan.with_client("b", "0@lo", &promise("fc", "21MB")),
            Code::Invalid,
        ),
        (plan.with_client("b", "0@lo", &Promise::NONE), Code::Invalid),
        (
            plan.with_client("b", &"j".repeat(256), &promise("fc", "1MB")),
            Code::NameTooLong,
        ),
        (plan.without_client("b", "*@o2ib"), Code::NoEntry),
        (plan.without_client("c", "*@o2ib"), Code::NoEntry),
    ] {
        assert_eq!(code(refused), want);
    }
    let plan = step(
        plan.with_client("b", "0@lo", &promise("mover", "2MB")),
        "group a capacity=10MB/s target=1\ngroup b capacity=20MB/s\nclient 0@lo class=mover min=2MB/s group=b\nclient *@tcp class=fair_share min=10% group=b\nclient *@o2ib class=low_share min=1MB/s group=a\n",
    );
    let plan = step(
        plan.without_client("b", "0@lo"),
        "group a capacity=10MB/s target=1\ngroup b capacity=20MB/s\nclient *@tcp class=fair_share min=10% group=b\nclient *@o2ib class=low_share min=1MB/s group=a\n",
    );
    // Clients of the groups behind it follow.
    let plan = step(
        plan.without_group("a"),
        "group b capacity=20MB/s\nclient *@tcp class=fair_share min=10% group=b\n",
    );
    let plan = step(plan.without_group("b"), "");
    step(plan.with_by(By::Device), "by device\n");
}

#[test]
fn names() {
    let plan = plan("by jobid");
    for (name, want) in [
        ("j", None),
        ("dd.*", None),
        ("", Some(Code::Invalid)),
        ("a b", Some(Code::Invalid)),
        ("a;b", Some(Code::Invalid)),
        ("#a", Some(Code::Invalid)),
        ("a\n", Some(Code::Invalid)),
        (&"j".repeat(32), Some(Code::Invalid)),
        (&"j".repeat(256), Some(Code::NameTooLong)),
    ] {
        let checked = plan.check_client_name(name);
        assert_eq!(checked.err().map(|error| error.code), want, "{name:?}");
    }
    assert!(Plan::none().unwrap().check_client_name("j").is_err());
    for (name, want) in [
        ("8:0", None),
        ("a/b", Some(Code::Invalid)),
        (&"g".repeat(64), Some(Code::NameTooLong)),
    ] {
        let checked = Group::check_name(name);
        assert_eq!(checked.err().map(|error| error.code), want, "{name:?}");
    }
}

/// Lines for all groups stay when a group goes, and are checked against one that comes.
#[test]
fn lines_for_all_groups() {
    let plan = plan("group a capacity=10MB target=1\nclient 0@lo class=fs min=5MB");
    assert!(plan
        .with_group("b", &settings(&[("capacity", "4MB")]))
        .is_err());
    assert_eq!(
        text(&plan.without_group("a").unwrap()),
        "client 0@lo class=fair_share min=5MB/s\n"
    );
}

#[test]
fn values_of_settings() {
    let mut group = settings(&[
        ("capacity", "1000KB"),
        ("strategy", "mover"),
        ("reserve_mover", "5%"),
    ]);
    let shown = |group: &Settings| -> Vec<String> {
        Setting::ALL
            .map(|setting| Value(group, setting).to_string())
            .into()
    };
    assert_eq!(
        shown(&group),
        ["1MB/s", "", "mover", "", "", "", "", "", "", "5%"]
    );
    for setting in Setting::ALL {
        group.set(setting, "").unwrap();
        assert_eq!(Setting::parse(setting.name()), Some(setting));
    }
    assert_eq!(group, Settings::default());
    assert_eq!(shown(&group)[2], "classes");
    let mut promise = promise("fc", "5%");
    assert!(promise.is_complete() && promise.set(Setting::Capacity, "1MB").is_err());
    for setting in Setting::OF_CLIENT {
        promise.set(setting, "").unwrap();
    }
    assert!(promise == Promise::NONE && !promise.is_complete());
}
