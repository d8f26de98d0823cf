// SPDX-License-Identifier: GPL-2.0-only

//! What the table says and what its checks take.

use super::*;

fn check(name: &str, value: &str) -> Result {
    named(name).unwrap().check.unwrap()(value)
}

#[test]
fn names_are_found() {
    assert_eq!(named("slots").unwrap().name(), "slots");
    for (index, parameter) in PARAMETERS.iter().enumerate() {
        let found = named(parameter.name()).unwrap();
        assert!(core::ptr::eq(found, &PARAMETERS[index]), "{}", found.name());
    }
    for wrong in ["", "slot", "slotss", "SLOTS", "nrs", "slots\0"] {
        assert!(named(wrong).is_none(), "{wrong:?}");
    }
}

#[test]
fn the_table_is_whole() {
    for parameter in &PARAMETERS {
        let name = parameter.name();
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        assert!(!name.is_empty() && name.bytes().all(plain), "{name}");
        assert!(parameter.about.ends_with('.'), "{name}");
        assert!(!parameter.takes.is_empty(), "{name}");
        assert!(parameter.page.ends_with(".md"), "{name}");
        // What is written is checked, unless everything is taken.
        let both = parameter.access == Access::Both;
        assert_eq!(parameter.check.is_some(), both, "{name}");
        assert!(both || parameter.default.is_empty(), "{name}");
        for errno in parameter.errors.split(", ").filter(|word| !word.is_empty()) {
            assert!(errno.starts_with('E') && errno != "EINVAL", "{name}");
        }
    }
}

/// What a parameter is to begin with is something that it takes.
#[test]
fn defaults_are_taken() {
    let words = ["default only", "no group", "module parameter default_slots"];
    for parameter in &PARAMETERS {
        let (Some(check), text) = (parameter.check, parameter.default) else {
            continue;
        };
        if !text.is_empty() && !words.contains(&text) {
            assert_eq!(check(text), Ok(()), "{}", parameter.name());
        }
    }
}

#[test]
fn ranges_are_those_of_the_parsers() {
    for parameter in &PARAMETERS {
        let (Some(check), takes) = (parameter.check, parameter.takes) else {
            continue;
        };
        // `UNIT, LOW to HIGH…`
        let Some((low, high)) = takes.split_once(" to ") else {
            continue;
        };
        let digits = |c: char| !c.is_ascii_digit();
        let low = low.rsplit(digits).next().unwrap();
        let high = high.split(digits).next().unwrap();
        let (Ok(low), Ok(high)) = (low.parse::<u64>(), high.parse::<u64>()) else {
            continue;
        };
        if parameter.name().ends_with("weights") {
            continue;
        }
        let name = parameter.name();
        assert_eq!(check(&low.to_string()), Ok(()), "{name} {low}");
        assert_eq!(check(&high.to_string()), Ok(()), "{name} {high}");
        assert!(check(&(high + 1).to_string()).is_err(), "{name}");
        if let Some(below) = low.checked_sub(1) {
            let zero = takes.contains("or 0") && below == 0;
            assert!(zero || check(&below.to_string()).is_err(), "{name}");
        }
        for wrong in ["", "x", "-1", "1 1"] {
            assert!(check(wrong).is_err(), "{name} {wrong:?}");
        }
    }
}

#[test]
fn words_are_those_of_the_parsers() {
    for parameter in &PARAMETERS {
        let name = parameter.name();
        let takes = parameter.takes.trim_end_matches(", for each head");
        let Some((first, last)) = takes.split_once(" or ").filter(|(words, _)| {
            !words.contains("some of") && words.bytes().all(|b| b.is_ascii_graphic() || b == b' ')
        }) else {
            continue;
        };
        if takes.contains(" to ") || parameter.check.is_none() || name == "high_priority_sources" {
            continue;
        }
        for word in first.split(", ").chain([last]) {
            assert_eq!(check(name, word), Ok(()), "{name} {word}");
        }
        assert!(check(name, "something").is_err(), "{name}");
    }
}

#[test]
fn policies() {
    for (text, want) in [
        ("fifo", None),
        ("tbf nid\n", None),
        ("tbf reg uid+opcode", None),
        ("fairshare gid_then_uid_fair", None),
        ("fairshare", None),
        ("qbm", None),
        ("best", Some("no policy of this name")),
        (
            "tbf uid+",
            Some("expected fields joined by '+': nid, jobid, uid, gid, projid, nodemap, opcode"),
        ),
        ("", Some("command is empty, expected a policy")),
    ] {
        let reason = check("nrs_policies", text).err().map(|error| error.reason);
        assert_eq!(reason, want, "{text:?}");
    }
    let code = check("nrs_policies", "best").unwrap_err().code;
    assert_eq!(code, Code::NoEntry);
    for wrong in ["fairshare uid", "crrn x", "fifo x", "qbm all", "delay 5"] {
        assert!(check("nrs_policies", wrong).is_err(), "{wrong}");
    }
}

#[test]
fn rules() {
    for (text, want) in [
        ("start a uid={1000} rate=10", None),
        ("reg start a uid={1000}&nid={10.0.0.1@tcp} 10", None),
        // Which rules there are, and what the type is, is the service's.
        ("start a uid={1000} rank=b", None),
        ("start a uid={1000} also=b+c", None),
        ("start a {1000} rate=10", None),
        ("start a {10.0.0.*@tcp} rate=10", None),
        ("change a rate=10", None),
        ("stop a", None),
        ("stop default", None),
        (
            "start a uid={1000,1001} rate=10",
            Some((14, "a number, 0 to 4294967295")),
        ),
        ("start a {uid} rate=x", Some((20, Rate::EXPECTED))),
        (
            "start a uid={1} rate=10 minrate=20",
            Some((33, "minrate= of the unit of rate= and not above it")),
        ),
        (
            "start a {1000} rate=10MB/s minrate=20",
            Some((36, "minrate= of the unit of rate= and not above it")),
        ),
        (
            "start default uid={1}",
            Some((7, "a name that no rule has")),
        ),
        ("begin a", Some((1, "start, change or stop"))),
        (
            "start a user={1}",
            Some((
                9,
                "a field: nid, jobid, uid, gid, projid, nodemap or opcode",
            )),
        ),
    ] {
        let refused = check_rule(text).err();
        let got = refused.map(|error| (error.column, error.expected));
        assert_eq!(got, want, "{text:?}");
        let reason = check("nrs_tbf_rule", text).err().map(|error| error.reason);
        assert_eq!(reason, want.map(|(_, expected)| expected), "{text:?}");
    }
}

#[test]
fn plans() {
    for (text, want) in [
        ("", None),
        (
            "by uid\ngroup all capacity=10MB/s\nclient 5 class=mover min=1MB/s\n",
            None,
        ),
        ("group all\n", Some((1, "capacity is missing"))),
        ("by uid\nby uid\n", Some((2, "by occurs twice"))),
    ] {
        let refused = check_plan(text).err();
        let got = refused.map(|error| (error.line, error.reason));
        assert_eq!(
            got.map(|(line, _)| line),
            want.map(|(line, _)| line),
            "{text:?}"
        );
        assert_eq!(check("nrs_qbm_config", text).is_err(), want.is_some());
    }
}

#[test]
fn weights_and_modes() {
    for (name, text, taken) in [
        ("nrs_fairshare_weights", "uid:1000:2 gid:5:3", true),
        ("nrs_fairshare_weights", "clear", true),
        // Whether it is there is the service's.
        ("nrs_fairshare_weights", "-uid:5", true),
        ("nrs_fairshare_weights", "uid:1000", false),
        ("nrs_fairshare_weights", "uid:1000:10001", false),
        ("nrs_fairshare_mode", "uid_fair", true),
        (
            "nrs_fairshare_mode",
            "gid_then_uid_fair weight=gid:5:2",
            true,
        ),
        ("nrs_fairshare_mode", "uid_fair weight=gid", false),
        ("nrs_fairshare_mode", "uid", false),
        ("nrs_delay_min", "reg_delay_min:2 hp_delay_min:3", true),
        ("nrs_delay_min", "reg_delay_max:2", false),
        ("nrs_crrn_quantum", "reg_quantum:16 \n", true),
        ("high_priority_sources", "meta prio", true),
        ("high_priority_sources", "none meta", false),
    ] {
        assert_eq!(check(name, text).is_ok(), taken, "{name} {text:?}");
    }
}
