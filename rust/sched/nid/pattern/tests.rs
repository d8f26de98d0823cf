// SPDX-License-Identifier: GPL-2.0-only

//! Tests of ranges of network identifiers. The fuzz target `nid` compares more texts with a naive
//! implementation.

use super::*;

fn parse(text: &str) -> Result<(Parsed, Vec<NumberRange>), RuleError> {
    // Earlier elements of the array must not matter.
    let mut ranges = vec![
        NumberRange {
            lo: 0,
            hi: 9,
            stride: 2,
        };
        3
    ];
    let parsed = Pattern::parse(text, &mut |range| {
        ranges.push(range);
        Ok(ranges.len() - 1)
    })?;
    Ok((parsed, ranges))
}

fn has(text: &str, nid: &str) -> bool {
    let nid = Nid::parse(nid).unwrap();
    match parse(text).unwrap() {
        (Parsed::One(one), _) => one == nid,
        (Parsed::Many(pattern), ranges) => {
            let has = pattern.has(&nid, &ranges);
            assert!(!has || pattern.guard(&ranges).passes(NidDigest::of(&nid)));
            has
        }
    }
}

#[test]
fn matches() {
    for (text, yes, no) in [
        (
            "10.0.0.1@tcp",
            &["10.0.0.1@tcp"][..],
            &["10.0.0.2@tcp", "10.0.0.1@tcp1", "10.0.0.1@o2ib"][..],
        ),
        (
            "*@tcp",
            &["10.0.0.1@tcp", "fe80::1@tcp"],
            &["10.0.0.1@tcp1", "0@lo", "10.0.0.1@o2ib"],
        ),
        (
            "*.*.*.*@o2ib1",
            &["10.0.0.1@o2ib1", "255.0.0.255@o2ib1"],
            &["10.0.0.1@o2ib", "fe80::1@o2ib1"],
        ),
        (
            "1.2.3.[0-8/4,100,200-201]@tcp",
            &[
                "1.2.3.0@tcp",
                "1.2.3.4@tcp",
                "1.2.3.8@tcp",
                "1.2.3.100@tcp",
                "1.2.3.201@tcp",
            ],
            &["1.2.3.2@tcp", "1.2.3.12@tcp", "1.2.3.202@tcp"],
        ),
        ("10.9.9.9/8@tcp", &["10.1.1.1@tcp"], &["11.9.9.9@tcp"]),
        (
            "0.0.0.0/0@tcp",
            &["1.2.3.4@tcp", "255.255.255.255@tcp"],
            &["::1@tcp"],
        ),
        (
            "2001:db8::/32@tcp",
            &["2001:db8:ffff::1@tcp"],
            &["2001:db9::1@tcp", "32.1.13.184@tcp"],
        ),
        (
            "fe80::/65@o2ib",
            &["fe80::7fff:0:0:1@o2ib"],
            &["fe80::8000:0:0:1@o2ib"],
        ),
        ("::/0@tcp", &["fe80::1@tcp", "::@tcp"], &["1.2.3.4@tcp"]),
        (
            "[1000-4294967295/1000]@kfi",
            &["1000@kfi", "4294967000@kfi"],
            &["1500@kfi", "0@kfi"],
        ),
        ("*@lo", &["0@lo"], &["0@gni"]),
        ("[0]@lo", &["0@lo"], &["0@ptlf"]),
    ] {
        for nid in yes {
            assert!(has(text, nid), "{text} {nid}");
        }
        for nid in no {
            assert!(!has(text, nid), "{text} {nid}");
        }
    }
}

#[test]
fn refused() {
    for (text, at, word) in [
        ("", 0, "'@'"),
        ("10.0.0.1", 8, "'@'"),
        ("10.0.0.1@", 9, "a network"),
        ("*@tcp65536", 2, "a network"),
        ("@tcp", 0, "an IP address"),
        ("10.0.0@tcp", 6, "four parts"),
        ("10.0.0.1.2@tcp", 8, "'@'"),
        ("10.0.0.256@tcp", 7, "0 to 255"),
        ("10.0.0.[]@tcp", 8, "0 to 255"),
        ("10.0.0.[1@tcp", 9, "']'"),
        ("10.0.0.[9-1]@tcp", 10, "not below"),
        ("10.0.0.[1-300]@tcp", 10, "0 to 255"),
        ("10.0.0.[1-9/0]@tcp", 12, "stride"),
        ("10.0.0.[1-9/]@tcp", 12, "stride"),
        ("10.0.0.[1;2]@tcp", 9, "','"),
        ("**@tcp", 1, "four parts"),
        ("10.0.0.0/33@tcp", 9, "0 to 32"),
        ("10.0.0.0/+8@tcp", 9, "0 to 32"),
        ("10.0.0/8@tcp", 0, "before '/'"),
        ("fe80::/129@tcp", 7, "0 to 128"),
        ("fe80::x@tcp", 0, "IPv6"),
        ("1@lo", 0, "0 or"),
        ("10.0.0.1@gni", 0, "node number"),
        ("[1-4294967296]@gni", 3, "node number"),
        ("[1]2@gni", 3, "'@'"),
        ("\u{e9}@tcp", 0, "an IP address"),
    ] {
        let error = parse(text).unwrap_err();
        assert_eq!(usize::from(error.column), at + 1, "{text}: {error}");
        assert!(error.reason.contains(word), "{text}: {error}");
    }
    let none = Pattern::parse("1.*.*.*@tcp", &mut |_| Err(NoMemory));
    assert_eq!(none, Err(RuleError::no_memory()));
}
