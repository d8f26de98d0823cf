// SPDX-License-Identifier: GPL-2.0-only

use super::*;

fn made(text: &str) -> Weights {
    Weights::new().apply(text).unwrap()
}

fn shown(weights: &Weights) -> String {
    let mut out = String::new();
    weights.write(&mut out).unwrap();
    out
}

fn job(name: &str) -> Key {
    Key::Jobid(JobId::new(name.as_bytes()))
}

fn nid(text: &str) -> Key {
    Key::Nid(Nid::parse(text).unwrap())
}

#[test]
fn items() {
    for (text, want) in [
        ("", ""),
        (" ,\n\t, ", ""),
        ("uid:1000:2", "uid:1000:2\n"),
        ("uid:1000:2,uid:1001:3\n", "uid:1000:2\nuid:1001:3\n"),
        ("uid:1001:3 uid:1000:2", "uid:1000:2\nuid:1001:3\n"),
        (",gid:0:1,,projid:7:10000", "gid:0:1\nprojid:7:10000\n"),
        ("uid:1:2 uid:1:3", "uid:1:3\n"),
        ("uid:1:2 -uid:1", ""),
        ("uid:1:2 gid:1:2 clear nodemap:3:4", "nodemap:3:4\n"),
        ("clear", ""),
        ("uid:4294967295:5", "uid:4294967295:5\n"),
        ("nid:10.0.0.1@tcp:2", "nid:10.0.0.1@tcp:2\n"),
        ("nid:fe80::1@o2ib1:2", "nid:fe80::1@o2ib1:2\n"),
        ("nid:fe80::1@o2ib1:2 -nid:fe80::1@o2ib1", ""),
        ("nid:0@lo:9", "nid:0@lo:9\n"),
        ("ioprio:idle:2 opcode:*:3", "ioprio:idle:2\nopcode:*:3\n"),
        ("gid:2&uid:1:3 uid:1&gid:2:4", "uid:1&gid:2:4\n"),
        ("gid:2&uid:*:3 uid:1:1 -uid:*&gid:2", "uid:1:1\n"),
        ("gid:2&uid:*:3 clear", ""),
        ("jobid:R&D.0:5", "jobid:\"R&D.0\":5\n"),
        ("jobid:R&D&uid:1:5 -jobid:R&D&uid:1", ""),
        (
            "cgroup:\"/a&b\"&jobid:\"x&gid:1\":3",
            "jobid:\"x&gid:1\"&cgroup:\"/a&b\":3\n",
        ),
        ("jobid:dd.0:2", "jobid:dd.0:2\n"),
        ("jobid:a:b:2", "jobid:a:b:2\n"),
        ("jobid:a:b:2 -jobid:a:b", ""),
        (r"jobid:a\b:2", "jobid:\"a\\\\b\":2\n"),
        (r#"jobid:"dd.0":2"#, "jobid:dd.0:2\n"),
        (r#"jobid:"a, b":2"#, "jobid:\"a, b\":2\n"),
        (
            r#"jobid:"a\"b\\":2 uid:1:1"#,
            "jobid:\"a\\\"b\\\\\":2\nuid:1:1\n",
        ),
        (r#"jobid:"\x0a\xFF":2"#, "jobid:\"\\x0a\\xff\":2\n"),
        (r#"jobid:"a b":2,-jobid:"a b""#, ""),
        (r#"jobid:"":2"#, "jobid:\"\":2\n"),
        (r#"jobid:"a*,":2"#, "jobid:\"a*,\":2\n"),
        ("cgroup:/a/b:c.scope:2", "cgroup:/a/b:c.scope:2\n"),
        ("cgroup:/a:2 cgroup:/a:3", "cgroup:/a:3\n"),
        ("cgroup:/a/*:2 -cgroup:/a/*", ""),
        ("cgroup:*:9 cgroup:/a:2", "cgroup:/a:2\ncgroup:*:9\n"),
        ("cgroup:*:9 -cgroup:*", ""),
        (r#"cgroup:"/a b,*":2"#, "cgroup:\"/a b,*\":2\n"),
        (r"cgroup:/a\x2db:2", "cgroup:\"/a\\\\x2db\":2\n"),
        (r#"cgroup:"":2 cgroup:/:4"#, "cgroup:\"\":2\ncgroup:/:4\n"),
        (
            "jobid:b*:2 uid:5:1 jobid:a?:3 jobid:zz:4",
            "jobid:zz:4\nuid:5:1\njobid:b*:2\njobid:a?:3\n",
        ),
        (
            "jobid:b*:2 jobid:a*:3 jobid:b*:4",
            "jobid:b*:4\njobid:a*:3\n",
        ),
        ("jobid:b*:2 jobid:a*:3 -jobid:b*", "jobid:a*:3\n"),
        (
            "jobid:1234567890123456789012345678901:2",
            "jobid:1234567890123456789012345678901:2\n",
        ),
    ] {
        let weights = made(text);
        assert_eq!(shown(&weights), want, "{text:?}");
        assert_eq!(weights.len(), want.lines().count());
        assert_eq!(weights.is_empty(), want.is_empty());
        assert_eq!(shown(&made(&shown(&weights))), want, "{text:?} again");
    }
}

#[test]
fn look_ups() {
    let weights = made(
        "uid:1000:2 uid:4294967295:3 gid:1000:4 projid:1000:5 nodemap:1000:6 nid:10.0.0.1@tcp:7 \
         jobid:dd.500:8 jobid:dd.*:9 jobid:*.500:10 jobid:a?c:11 jobid:\"x y*\":12",
    );
    for (key, want) in [
        (Key::Uid(1000), 2),
        (Key::Uid(1001), 1),
        (Key::Absent(Field::Uid), 3),
        (Key::Absent(Field::Gid), 1),
        (Key::Gid(1000), 4),
        (Key::Projid(1000), 5),
        (Key::Nodemap(1000), 6),
        (nid("10.0.0.1@tcp"), 7),
        (nid("10.0.0.1@tcp1"), 1),
        (nid("10.0.0.2@tcp"), 1),
        (job("dd.500"), 8),
        (job("dd.501"), 9),
        (job("fio.500"), 10),
        (job("dd"), 1),
        (job("abc"), 11),
        (job("abbc"), 1),
        (job("x y.0"), 12),
        (job("dd.*"), 9),
        (Key::Absent(Field::Jobid), 1),
        (Key::Default, 1),
    ] {
        assert_eq!(weights.of(&key), want, "{key}");
    }
    assert_eq!(Weights::new().of(&Key::Uid(0)), 1);
    let weights = made("jobid:*:3");
    assert_eq!(weights.of(&Key::Absent(Field::Jobid)), 3);
    assert_eq!(weights.of(&Key::Absent(Field::Uid)), 1);
    let weights = made("jobid:*:3 jobid:\"\":5");
    assert_eq!(weights.of(&Key::Absent(Field::Jobid)), 5);
    assert_eq!(weights.of(&job("x")), 3);
}

#[test]
fn refused() {
    let start = made("uid:1:2 jobid:a*:2");
    for (text, words) in [
        ("uid", "FIELD:VALUE:WEIGHT"),
        ("-", "FIELD:VALUE:WEIGHT"),
        ("uid=1:2", "unknown field"),
        ("opcodes:ost_read:2", "unknown field"),
        ("opcode:read:2", "an operation"),
        ("ioprio:be:2", "I/O priority"),
        ("uid:1&gid:2&jobid:a:2", "more than two"),
        ("uid:1&uid:2:2", "same field"),
        ("uid:*&uid:2:2", "same field"),
        ("uid:1&", "decimal number"),
        ("uid:1&:2", "decimal number"),
        ("uid:1&gid:2", "no weight"),
        ("uid:1:5&gid:2:2", "decimal number"),
        ("jobid:\"a\":7&uid:1:5", "FIELD:VALUE:WEIGHT"),
        ("cgroup:\"/a\":5&uid:1:10", "FIELD:VALUE:WEIGHT"),
        ("-jobid:\"a\":7&uid:1", "FIELD:VALUE:WEIGHT"),
        ("jobid:\"a\"&gid:b:2", "decimal number"),
        ("-uid:1&gid:2", "to remove"),
        ("-uid:1&gid:2:3", "decimal number"),
        (":1:2", "unknown field"),
        ("uid:1000", "no weight"),
        ("jobid:\"dd.0\"", "no weight"),
        ("uid:1:0", "1 to 10000"),
        ("uid:1:10001", "1 to 10000"),
        ("uid:1:", "1 to 10000"),
        ("uid:1:02", "1 to 10000"),
        ("uid:1:99999999999", "1 to 10000"),
        ("uid:1:2:3", "decimal number"),
        ("uid:1:2 uid:2:0", "1 to 10000"),
        ("nid:fe80::1@tcp", "'@'"),
        ("uid::2", "decimal number"),
        ("gid:0x10:2", "decimal number"),
        ("gid:010:2", "decimal number"),
        ("projid:4294967296:2", "decimal number"),
        ("uid:\"1\":2", "decimal number"),
        ("-uid:1:2", "decimal number"),
        ("nid:10.0.0.1:2", "'@'"),
        ("nid:10.0.0@tcp:2", "bad address"),
        ("nid:1@eth:2", "unknown network"),
        ("jobid::2", "empty name"),
        ("jobid:a\"b\":2", "needs quotes"),
        ("jobid:\u{e9}:2", "needs quotes"),
        ("jobid:12345678901234567890123456789012:2", "31 bytes"),
        ("jobid:\"12345678901234567890123456789012\":2", "31 bytes"),
        ("jobid:\"a:2", "closing quote"),
        ("jobid:\"a\\", "closing quote"),
        ("jobid:\"\\n\":2", "escape"),
        ("jobid:\"\\x0\":2", "escape"),
        ("jobid:\"\\xg0\":2", "escape"),
        ("jobid:\"\\x00\":2", "escape"),
        ("jobid:\"a\nb\":2", "unprintable"),
        ("jobid:\"a\"2", "colon"),
        ("cgroup:7:2", "not a path"),
        ("cgroup:a/b:2", "not a path"),
        ("cgroup:/a/:2", "not a path"),
        ("cgroup:\"/a/../b\":2", "not a path"),
        ("cgroup::2", "empty name"),
        ("-cgroup:/a", "to remove"),
        ("-jobid:\"a*\":2", "takes no weight"),
        ("-uid:2", "to remove"),
        ("-jobid:a", "to remove"),
        ("-jobid:a*:2", "to remove"),
        ("clear -uid:1", "to remove"),
    ] {
        let Err(error) = start.apply(text) else {
            panic!("{text:?} was accepted");
        };
        let code = match words {
            "to remove" => Code::NoEntry,
            _ => Code::Invalid,
        };
        assert_eq!(error.code, code, "{text:?}: {}", error.reason);
        assert!(error.reason.contains(words), "{text:?}: {}", error.reason);
        assert!(!error.reason.contains('\n'));
    }
}

#[test]
fn bounds() {
    // In descending order, so that each item is inserted before all others.
    let items = (0..4096).rev().map(|i| format!("uid:{i}:{}\n", i + 1));
    let text = items.collect::<Vec<_>>().concat();
    let full = made(&text);
    assert_eq!(full.len(), ITEMS_MAX);
    for i in 0..4096 {
        assert_eq!(full.of(&Key::Uid(i)), i + 1);
    }
    assert_eq!(full.of(&Key::Uid(4096)), 1);
    for text in ["uid:4096:1", "jobid:x*:1"] {
        assert_eq!(full.apply(text).err().map(|e| e.code), Some(Code::NoSpace));
    }
    let same = full.apply("uid:5:77 -uid:6 uid:4096:1").unwrap();
    assert_eq!(
        (same.len(), same.of(&Key::Uid(5)), same.of(&Key::Uid(6))),
        (4096, 77, 1)
    );

    let items = (0..64).map(|i| format!("jobid:{i}.*:{} ", i + 1));
    let text = items.collect::<Vec<_>>().concat();
    let wild = made(&text);
    assert_eq!(wild.of(&job("63.x")), 64);
    assert_eq!(
        wild.apply("jobid:z*:1").err().map(|e| e.code),
        Some(Code::NoSpace)
    );
    assert_eq!(
        wild.apply("-jobid:0.* jobid:z*:5").unwrap().of(&job("zoo")),
        5
    );
    assert_eq!(wild.apply("jobid:z:1 jobid:3.*:2").unwrap().len(), 65);
}

#[test]
fn modes_with_weights() {
    for (text, mode, weights) in [
        ("uid_fair", "uid_fair", None),
        (" uid_fair \n", "uid_fair", None),
        (
            "uid_fair weight=uid:1000:2,uid:1001:3",
            "uid_fair",
            Some("uid:1000:2,uid:1001:3"),
        ),
        (
            "gid_then_uid_fair\t  weight=gid:1:2 uid:3:4\n",
            "gid_then_uid_fair",
            Some("gid:1:2 uid:3:4"),
        ),
    ] {
        let (got, rest) = split(text).unwrap();
        assert_eq!(
            (got.to_string().as_str(), rest),
            (mode, weights),
            "{text:?}"
        );
    }
    for (text, words) in [
        ("", "_fair"),
        ("weight=uid:1:2", "_fair"),
        ("uid_fair,weight=uid:1:2", "_fair"),
        ("uid_fair weights=uid:1:2", "weight="),
        ("uid_fair gid_fair", "weight="),
        ("uid_fair weight=", "empty"),
        ("uid_fair weight= ", "empty"),
    ] {
        let error = split(text).unwrap_err();
        assert_eq!(error.code, Code::Invalid);
        assert!(error.reason.contains(words), "{text:?}: {}", error.reason);
    }
}

/// Verifies that a cgroup has the weight of the nearest cgroup that has one, and that texts stay
/// with the items.
#[test]
fn weights_of_cgroups() {
    let path = |text: &str| CgroupPath::intern(text.as_bytes()).unwrap();
    let weights = made(
        "cgroup:/system.slice/a.service:2 cgroup:/system.slice/*:3 cgroup:/machine.slice:4 \
         cgroup:/machine.slice/b-*.scope:5 -cgroup:/machine.slice cgroup:/machine.slice:6",
    );
    for (text, named, weight) in [
        ("/system.slice/a.service", "/system.slice/a.service", 2),
        ("/system.slice/a.service/x/y", "/system.slice/a.service", 2),
        ("/system.slice/c.service/x", "/system.slice/c.service", 3),
        ("/system.slice", "/system.slice", 1),
        ("/machine.slice/c.scope/x", "/machine.slice", 6),
        ("/machine.slice/b-1.scope/x", "/machine.slice/b-1.scope", 5),
        ("/user.slice/x", "/user.slice/x", 1),
    ] {
        let found = weights.named_cgroup(path(text));
        assert_eq!(found, path(named), "{text}");
        assert_eq!(weights.of(&Key::Cgroup(found)), weight, "{text}");
    }
    // `*` gives cgroups that no path stands for a weight, but merges none.
    let all = made("cgroup:*:9 cgroup:/a/*:2 cgroup:/b:3");
    for (text, named, weight) in [
        ("/a/x/y", "/a/x", 2),
        ("/b/x", "/b", 3),
        ("/c/x", "/c/x", 9),
        ("/c", "/c", 9),
    ] {
        let found = all.named_cgroup(path(text));
        assert_eq!(found, path(named), "{text}");
        assert_eq!(all.of(&Key::Cgroup(found)), weight, "{text}");
    }
    let at = |key, field| all.find(&key, field, &|_| None).unwrap();
    assert_eq!(at(Key::Absent(Field::Cgroup), Field::Cgroup), 1);
    assert_eq!(at(Key::Default, Field::Cgroup), 9);
    assert_eq!(at(Key::Default, Field::Uid), 1);
    // A cgroup that stands for a user.
    assert_eq!(at(Key::Cgroup(path("/b")), Field::Uid), 1);
    assert_eq!(at(Key::Cgroup(path("/b")), Field::Cgroup), 3);
    let fewer = weights.apply("-cgroup:/system.slice/*").unwrap();
    let more = fewer.apply("uid:1:2").unwrap();
    assert_eq!(more.paths.as_slice().len(), 3);
    assert_eq!(shown(&made(&shown(&more))), shown(&more));
    assert!(shown(&more).contains("cgroup:/machine.slice/b-*.scope:5\n"));
}

/// Verifies that a pair stands for the entities of the one below those of the other, in whatever
/// order the levels are, and precedes other items.
#[test]
fn pairs() {
    let weights = made(
        "uid:1:2 uid:*:3 uid:1&opcode:ost_write:7 uid:*&jobid:b*:8 uid:1&gid:5:9 gid:6&uid:*:10 \
         cgroup:/a.slice/*&ioprio:idle:11",
    );
    let write = Key::Opcode(Opcode::OST_WRITE);
    let path = CgroupPath::intern(b"/a.slice/x").unwrap();
    assert_eq!(weights.named_cgroup(path), path);
    for (key, above, want) in [
        (Key::Uid(1), vec![], 2),
        (Key::Uid(2), vec![Key::Gid(5)], 3),
        (Key::Uid(1), vec![Key::Gid(5)], 9),
        (Key::Gid(5), vec![Key::Uid(1)], 9),
        (Key::Uid(7), vec![Key::Gid(6)], 10),
        (Key::Default, vec![Key::Gid(6)], 10),
        (Key::Default, vec![Key::Gid(7)], 3),
        (write, vec![], 1),
        (write, vec![Key::Gid(5), Key::Uid(1)], 7),
        (write, vec![Key::Uid(2)], 1),
        (Key::Opcode(Opcode::OST_READ), vec![Key::Uid(1)], 1),
        (job("bb"), vec![Key::Uid(4)], 8),
        (job("ab"), vec![Key::Uid(4)], 1),
        (job("bb"), vec![Key::Absent(Field::Uid)], 1),
        (
            Key::IoPriority(IoPriority::from_kernel(3 << 13)),
            vec![Key::Cgroup(path)],
            11,
        ),
        (Key::IoPriority(IoPriority::from_kernel(3 << 13)), vec![], 1),
        (
            Key::IoPriority(IoPriority::from_kernel((2 << 13) | 6)),
            vec![],
            2,
        ),
        (Key::Absent(Field::IoPriority), vec![], 4),
    ] {
        let field = match key {
            Key::Default => Field::Uid,
            key => key.field().unwrap(),
        };
        let find = |field| {
            let mut above = above.iter();
            above.find(|key: &&Key| key.field() == Some(field)).copied()
        };
        let got = weights.find(&key, field, &find);
        assert_eq!(got, Some(want), "{key} below {above:?}");
    }
    // Above a cgroup whose text is not known, an entity has its own item.
    let unknown = made("uid:2:5 cgroup:/a/*&uid:2:7");
    let above = |field| (field == Field::Cgroup).then(|| Key::Cgroup(CgroupPath::from_number(99)));
    assert_eq!(unknown.find(&Key::Uid(2), Field::Uid, &above), Some(5));
    let fewer = weights.apply("-uid:1&opcode:ost_write").unwrap();
    assert_eq!((weights.len(), fewer.len()), (7, 6));
    assert_eq!(shown(&made(&shown(&fewer))), shown(&fewer));
    let full: Vec<String> = (0..PAIRS_MAX).map(|i| format!("uid:{i}&gid:1:2")).collect();
    let full = made(&full.join(" "));
    assert_eq!(
        full.apply("uid:100&gid:1:2").err().unwrap().code,
        Code::NoSpace
    );
    assert!(full.apply("uid:1&gid:1:3 uid:100:2").is_ok());
}
