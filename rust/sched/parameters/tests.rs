// SPDX-License-Identifier: GPL-2.0-only

//! Tests of the parameter tables and their checks.

use super::*;
use crate::sched::policy::Kind;

fn check(name: &str, value: &str) -> Result {
    named(name).unwrap().check.unwrap()(value)
}

/// Returns the initial value of `parameter` as a read shows it.
fn default(parameter: &Parameter) -> String {
    let mut text = String::new();
    parameter.write_default(&mut text).unwrap();
    text
}

#[test]
fn names_are_found() {
    assert_eq!(named("slots").unwrap().name(), "slots");
    for parameter in all() {
        let found = named(parameter.name()).unwrap();
        assert!(core::ptr::eq(found, parameter), "{} twice", found.name());
    }
    for wrong in ["", "slot", "slotss", "SLOTS", "nrs", "slots\0"] {
        assert!(named(wrong).is_none(), "{wrong:?}");
    }
}

#[test]
fn the_rows_are_whole() {
    for parameter in all() {
        let name = parameter.name();
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        assert!(!name.is_empty() && name.bytes().all(plain), "{name}");
        assert!(parameter.help().ends_with('.'), "{name}");
        assert!(!parameter.takes.is_empty(), "{name}");
        let for_tests = Kind::ALL.iter().filter(|kind| kind.is_for_tests());
        let mut for_tests = for_tests.map(|kind| format!("nrs_{}_", kind.name()));
        let has_page = !for_tests.any(|prefix| name.starts_with(&prefix));
        assert_eq!(parameter.page.ends_with(".md"), has_page, "{name}");
        // Written values are checked, unless every value is accepted.
        let both = parameter.access == AccessMode::Both;
        assert_eq!(parameter.check.is_some(), both, "{name}");
        assert!(
            both || parameter.default.is_empty() && parameter.value.is_none(),
            "{name}"
        );
        for errno in parameter.errors.split(", ").filter(|word| !word.is_empty()) {
            assert!(errno.starts_with('E') && errno != "EINVAL", "{name}");
        }
    }
}

/// Checks that the initial value of each parameter passes its check and reads back unchanged.
#[test]
fn defaults_are_taken() {
    let words = ["default only", "no group", "module parameter default_slots"];
    for parameter in all() {
        let (Some(check), text) = (parameter.check, default(parameter)) else {
            continue;
        };
        for line in text.lines().filter(|line| !words.contains(line)) {
            assert_eq!(check(line.trim_end()), Ok(()), "{}", parameter.name());
            let mut values = Values::default();
            let set = parameter
                .value
                .map(|stored| values.set(&stored, line.trim_end()));
            assert_eq!(set.unwrap_or(Ok(())), Ok(()));
            assert_eq!(values, Values::default(), "{}", parameter.name());
        }
    }
}

#[test]
fn what_was_set_is_shown() {
    let mut values = Values::default();
    for (name, text, want) in [
        ("nrs_fairshare_delta_ms", "250\n", "250\n"),
        (
            "nrs_crrn_quantum",
            "hp_quantum:9",
            "reg_quantum:8    \nhp_quantum:9    \n",
        ),
        (
            "nrs_orr_quantum",
            "7",
            "reg_quantum:7    \nhp_quantum:7    \n",
        ),
        (
            "nrs_trr_quantum",
            "6",
            "reg_quantum:6    \nhp_quantum:6    \n",
        ),
        (
            "nrs_orr_supported",
            "hp_supported:writes",
            "reg_supported:reads\nhp_supported:writes\n",
        ),
        ("at_min", " 7 ", "7\n"),
        ("stall_ms", "0", "0\n"),
        ("high_priority_sources", "prio  meta", "meta prio\n"),
        ("nrs_pop", "graph", "graph\n"),
    ] {
        assert_eq!(values.set_named(name, text), Ok(()), "{name}");
        let mut shown = String::new();
        (named(name).unwrap().value.unwrap().show)(&values, &mut shown).unwrap();
        assert_eq!(shown, want, "{name}");
    }
    assert_eq!(values.policies.orr.quantum.regular.get(), 7);
    assert_eq!(values.policies.trr.quantum.regular.get(), 6);
    assert_eq!(values.timeouts.min.get(), 7);
}

#[test]
fn what_is_refused_changes_nothing() {
    let mut values = Values::default();
    for (name, text, code, reason) in [
        ("at_min", "601", Code::Invalid, "at_min exceeds at_max"),
        (
            "at_min",
            "0",
            Code::Invalid,
            "at_min is not a number from 1 to 3600",
        ),
        (
            "nrs_delay_max",
            "4",
            Code::Invalid,
            "nrs_delay_min exceeds nrs_delay_max",
        ),
        (
            "stall_ms",
            "99",
            Code::Invalid,
            "stall_ms is not 0 or a number from 100 to 600000",
        ),
        (
            "slots",
            "65536",
            Code::Invalid,
            "slots is not a number from 1 to 65535, or auto",
        ),
        (
            "nrs_pop",
            "some",
            Code::Invalid,
            "nrs_pop is not none, overlap, stream or graph",
        ),
        ("nrs_tbf_rule", "stop a", Code::NoEntry, "no such parameter"),
        ("slot", "5", Code::NoEntry, "no such parameter"),
    ] {
        let refused = values.set_named(name, text).unwrap_err();
        assert_eq!((refused.code, refused.reason), (code, reason), "{name}");
        assert_eq!(values, Values::default(), "{name}");
    }
}

/// Checks that a number is accepted exactly within the limits that the help states.
#[test]
fn numbers_are_accepted_within_the_documented_limits() {
    let mut numbers = 0;
    for parameter in all() {
        let (takes, name) = (parameter.takes, parameter.name());
        // `UNIT, LOW to HIGH…`
        let Some((low, high)) = takes
            .split_once(" to ")
            .filter(|_| parameter.value.is_some())
        else {
            continue;
        };
        let digits = |c: char| !c.is_ascii_digit();
        let low: u64 = low.rsplit(digits).next().unwrap().parse().unwrap();
        let high: u64 = high.split(digits).next().unwrap().parse().unwrap();
        for taken in [low, high] {
            assert_eq!(check(name, &taken.to_string()), Ok(()), "{name} {taken}");
        }
        assert!(check(name, &(high + 1).to_string()).is_err(), "{name}");
        if let Some(below) = low.checked_sub(1) {
            assert!(check(name, &below.to_string()).is_err(), "{name}");
        }
        assert_eq!(
            check(name, "0").is_ok(),
            low == 0 || takes.contains("or 0"),
            "{name}"
        );
        for wrong in ["", "x", "-1", "+1", "1 1", "99999999999"] {
            assert!(check(name, wrong).is_err(), "{name} {wrong:?}");
        }
        numbers += 1;
    }
    assert!(numbers > 25, "{numbers}");
}

/// Checks that a choice accepts exactly the words that the help states.
#[test]
fn choices_are_the_documented_words() {
    let mut choices = 0;
    for parameter in all().filter(|parameter| parameter.value.is_some()) {
        let (name, takes) = (parameter.name(), parameter.takes);
        let Some((first, last)) = takes.split_once(" or ").filter(|_| !takes.contains(" to "))
        else {
            continue;
        };
        for word in first
            .split(", ")
            .chain([last])
            .filter(|_| !first.contains(" of "))
        {
            assert_eq!(check(name, word), Ok(()), "{name} {word}");
            choices += 1;
        }
        assert!(check(name, "something").is_err(), "{name}");
    }
    assert!(choices > 20, "{choices}");
}

/// Checks texts with the parsers of policies: some that are accepted, some that are refused.
#[test]
fn texts() {
    for (name, text, reason) in [
        ("nrs_policies", "tbf reg uid+opcode\n", None),
        ("nrs_policies", "fairshare gid_then_uid_fair", None),
        ("nrs_policies", "best", Some("no policy of this name")),
        (
            "nrs_policies",
            "",
            Some("command is empty (syntax: POLICY [reg|hp] [ARGUMENT])"),
        ),
        (
            "nrs_tbf_rule",
            "reg start a uid={1000}&nid={10.0.0.1@tcp} 10",
            None,
        ),
        // Existing rules and the type are known only to a service.
        (
            "nrs_tbf_rule",
            "start a {10.0.0.*@tcp} rate=10 also=b+c",
            None,
        ),
        ("nrs_tbf_rule", "stop a", None),
        (
            "nrs_tbf_rule",
            "start a {1000} rate=10MB/s minrate=20",
            Some("minrate must have the unit of rate and be at most rate"),
        ),
        (
            "nrs_tbf_rule",
            "start default uid={1}",
            Some("a rule of this name exists"),
        ),
        ("nrs_qbm_config", "", None),
        (
            "nrs_qbm_config",
            "by uid\ngroup all capacity=10MB/s\n",
            None,
        ),
        ("nrs_qbm_config", "group all\n", Some("capacity is missing")),
        // The existence of the weight is known only to a service.
        ("nrs_fairshare_weights", "-uid:5", None),
        ("nrs_fairshare_weights", "uid:1000:2 gid:5:3", None),
        (
            "nrs_fairshare_mode",
            "gid_then_uid_fair weight=gid:5:2",
            None,
        ),
        ("nrs_delay_min", "reg_delay_min:2 hp_delay_min:3", None),
    ] {
        let found = check(name, text).err().map(|error| error.reason);
        assert_eq!(found, reason, "{name} {text:?}");
    }
    for (name, text) in [
        ("nrs_fairshare_weights", "uid:1000:10001"),
        ("nrs_fairshare_mode", "uid_fair weight=gid"),
        ("nrs_delay_min", "reg_delay_max:2"),
    ] {
        assert!(check(name, text).is_err(), "{name} {text:?}");
    }
    assert_eq!(
        check("nrs_policies", "best").unwrap_err().code,
        Code::NoEntry
    );
}
