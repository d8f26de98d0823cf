// SPDX-License-Identifier: GPL-2.0-only

//! Commands and their effects on books.

use super::*;
use crate::sched::{
    attr::{CgroupPath, Id, IoPriority, Opcode},
    error::Code::{Busy, Exists, Invalid, NameTooLong, NoEntry, NoSpace, Permission},
    jobid::JobId,
    key::Field,
    nid::Nid,
    text::Heads,
};

const DEFAULT_RATE: u64 = 10_000;

fn rule_list(fields: &str) -> RuleList {
    let rate = Rate::new(DEFAULT_RATE, Unit::Plain).unwrap();
    RuleList::new(Fields::parse(fields).unwrap(), rate, 8).unwrap()
}

fn apply(rule_list: &RuleList, text: &str) -> Result<RuleList, RuleError> {
    rule_list.apply(&RuleCommand::parse(text)?)
}

fn with(fields: &str, commands: &[&str]) -> RuleList {
    commands
        .iter()
        .fold(rule_list(fields), |rule_list, command| {
            apply(&rule_list, command).unwrap_or_else(|error| panic!("{command}: {error}"))
        })
}

fn lines(rule_list: &RuleList) -> String {
    let mut out = String::new();
    rule_list.write(&mut out, |id| u64::from(id) * 10).unwrap();
    out
}

fn names(rule_list: &RuleList) -> Vec<String> {
    rule_list
        .rules()
        .map(|rule| rule.name.to_string())
        .collect()
}

/// Returns the subject written as conditions are.
fn subject(text: &str) -> Subject {
    let mut subject = Subject::NONE;
    for pair in text.split(' ').filter(|pair| !pair.is_empty()) {
        let (field, value) = pair.split_once('=').unwrap();
        let id = || Id::new(value.parse().unwrap());
        match Field::parse(field).unwrap() {
            Field::Nid => subject.nid = Some(Nid::parse(value).unwrap()),
            Field::Jobid => subject.jobid = JobId::new(value.as_bytes()),
            Field::Opcode => subject.opcode = Opcode::parse(value).unwrap(),
            Field::IoPriority => subject.io_priority = IoPriority::parse(value).unwrap(),
            Field::Uid => subject.uid = id(),
            Field::Gid => subject.gid = id(),
            Field::Projid => subject.projid = id(),
            Field::Nodemap => subject.nodemap = id(),
            Field::Cgroup => subject.cgroup = CgroupPath::intern(value.as_bytes()).unwrap(),
        }
    }
    subject
}

/// Returns the name of the rule for a subject; compares the compiled lookup with a linear search.
fn rule_for(rule_list: &RuleList, text: &str) -> String {
    let subject = subject(text);
    let set = rule_list.compile(7).unwrap();
    assert_eq!((set.generation(), set.len() as usize), (7, rule_list.len()));
    let found = &set.rule(set.find(&subject)).unwrap().name;
    let mut rules = rule_list.rules();
    let walked = rules.find(|rule| rule.conditions.matches(&subject));
    let walked = walked.map_or(&Name::DEFAULT, |rule| &rule.name);
    assert_eq!(found, walked, "{text}");
    found.to_string()
}

#[test]
fn refused_by_the_grammar() {
    let long = "a".repeat(4278);
    for (text, code, column, word) in [
        ("", Invalid, 1, "start"),
        (" \t\n", Invalid, 1, "start"),
        ("start", Invalid, 6, "name"),
        ("abc a", Invalid, 1, "start"),
        ("reg reg stop a", Invalid, 5, "start"),
        (&long, Invalid, 4096, "4095"),
        ("stop a\0", Invalid, 7, "printable"),
        ("stop \u{e9}", Invalid, 6, "printable"),
        // Names.
        ("start a", Invalid, 8, "a field"),
        ("start sixteen_letters_ uid={1}", NameTooLong, 7, "15"),
        ("stop sixteen_letters-", Invalid, 6, "name"),
        ("start uid={1} rate=1", Invalid, 7, "name"),
        ("change a rate=1 rank=sixteen_letters_", Invalid, 22, "name"),
        // Conditions.
        ("start a uid", Invalid, 12, "'='"),
        ("start a uid=", Invalid, 13, "'{'"),
        ("start a uid={1", Invalid, 15, "'}'"),
        ("start a uid={}", Invalid, 14, "at least one"),
        ("start a uid={{1}}", Invalid, 14, "value"),
        ("start a uid={1}}", Invalid, 16, "blank"),
        ("start a uid={1}rate=5", Invalid, 16, "blank"),
        ("start a uid={1}&", Invalid, 17, "a field"),
        ("start a &uid={1}", Invalid, 9, "a field"),
        ("start a {1}&uid={1}", Invalid, 12, "blank"),
        ("start a abc={1}", Invalid, 9, "a field"),
        ("start a uid={x}", Invalid, 14, "a number"),
        ("start a uid={+1}", Invalid, 14, "a number"),
        ("start a uid={4294967296}", Invalid, 14, "a number"),
        ("start a uid={08}", Invalid, 14, "a number"),
        ("start a uid={0x+1}", Invalid, 14, "a number"),
        ("start a uid={1 2,3}", Invalid, 16, "a number"),
        ("start a uid={1} gid={2}", Invalid, 17, "rate="),
        ("start a opcode={ost_raed}", Invalid, 17, "ost_read"),
        ("start a nid={10.0.0.1}", Invalid, 22, "'@'"),
        (
            "start a nid={0@lo 10.0.0.[1-9/0]@tcp}",
            Invalid,
            31,
            "stride",
        ),
        (
            "start a jobid={a12345678901234567890123456789ab}",
            Invalid,
            16,
            "31",
        ),
        // Pairs.
        ("start a uid={1} rate", Invalid, 17, "rate="),
        ("start a uid={1} rate=", Invalid, 22, "a rate"),
        ("start a uid={1} rate=0", Invalid, 22, "a rate"),
        (
            "start a uid={1} rate=18446744073709551617",
            Invalid,
            22,
            "a rate",
        ),
        ("start a uid={1} 5MiB/h", Invalid, 17, "rate="),
        ("start a uid={1} realtime=yes", Invalid, 26, "number"),
        ("start a uid={1} borrow=2", Invalid, 24, "0 or 1"),
        ("start a uid={1} rank=", Invalid, 22, "name"),
        ("start a uid={1} minrate=x", Invalid, 25, "a rate"),
        ("start a uid={1} burst=x", Invalid, 23, "a burst"),
        ("start a uid={1} burst=0s", Invalid, 23, "a burst"),
        ("start a uid={1} burst=3601s", Invalid, 23, "a burst"),
        ("start a uid={1} burst=+5s", Invalid, 23, "a burst"),
        ("start a uid={1} burst=5iops", Invalid, 23, "a burst"),
        ("start a uid={1} burst=5MB/s", Invalid, 23, "a burst"),
        ("start a uid={1} also=b+c+d+e", Invalid, 28, "limit: 3"),
        ("start a uid={1} also=b+", Invalid, 24, "name"),
        ("change a", Invalid, 9, "rate="),
        ("stop a rate=1", Invalid, 8, "nothing"),
    ] {
        let error = RuleCommand::parse(text).map(|_| ()).unwrap_err();
        assert_eq!(
            (error.code, error.column),
            (code, column),
            "{text:.40}: {error}"
        );
        assert!(error.reason.contains(word), "{text:.40}: {error}");
        let expected = if error.is_syntax { "expected " } else { "" };
        assert_eq!(
            error.to_string(),
            format!("column {column}: {expected}{}", error.reason)
        );
    }
}

#[test]
fn the_wrong_word_is_shown() {
    for (text, word) in [
        ("start a opcode={ost_raed}", "ost_raed}"),
        ("start a uid={1} rate=0 rank=b", "0"),
        ("start a uid={", ""),
        ("stop a\0b", ""),
        (
            "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx a",
            "xxxxxxxxxxxxxxxxxxxxxxxx",
        ),
    ] {
        let error = RuleCommand::parse(text).map(|_| ()).unwrap_err();
        assert_eq!(error.found(text), word);
    }
}

#[test]
fn parts_of_commands() {
    for (text, heads, name) in [
        ("stop a", Heads::All, "a"),
        ("reg stop a\n", Heads::Regular, "a"),
        (
            "  hp\tstop   fifteen_letters  \r\n",
            Heads::High,
            "fifteen_letters",
        ),
        ("stop hp", Heads::All, "hp"),
        ("hp start start uid={1}", Heads::High, "start"),
        ("change default rate=1", Heads::All, "default"),
    ] {
        let command = RuleCommand::parse(text).unwrap();
        assert_eq!((command.heads, command.name.1.as_str()), (heads, name));
    }
    let padded = format!("stop a{}", " ".repeat(4089));
    assert!(padded.len() == COMMAND_MAX && RuleCommand::parse(&padded).is_ok());

    let rate = |text| Rate::parse(text).unwrap();
    let text =
        "change a rate=1 5 rate=7iops minrate=3iops rank=b realtime=1 borrow=1 also=c+default \
         burst=20";
    let RuleAction::Change(pairs) = RuleCommand::parse(text).unwrap().action else {
        panic!("{text}");
    };
    let want = RulePairs {
        rate: Some((23, rate("7iops"))),
        minrate: Some((37, Some(rate("3iops")))),
        burst: Some((91, Some(Burst::Amount(rate("20"))))),
        rank: Some((48, Name::new("b").unwrap())),
        realtime: Some(true),
        borrow: Some(true),
        also: Some([
            Some((75, Name::new("c").unwrap())),
            Some((77, Name::DEFAULT)),
            None,
        ]),
    };
    assert_eq!(pairs, want);
    let text = "change a minrate=0 also= realtime=0 borrow=0 burst=0";
    let RuleAction::Change(pairs) = RuleCommand::parse(text).unwrap().action else {
        panic!("{text}");
    };
    let want = RulePairs {
        minrate: Some((17, None)),
        burst: Some((51, None)),
        realtime: Some(false),
        borrow: Some(false),
        also: Some([None; 3]),
        ..RulePairs::default()
    };
    assert_eq!(pairs, want);
}

#[test]
fn conditions_and_who_they_are_for() {
    for (fields, conditions, yes, no) in [
        ("uid", "uid={500}", &["uid=500"][..], &["uid=501", ""][..]),
        (
            "uid",
            " uid = {\t500  0x1f5 0764 } ",
            &["uid=500", "uid=501"],
            &["uid=502", "uid=764"],
        ),
        ("uid", "uid={0}", &["uid=0"], &["", "uid=1"]),
        ("uid", "uid={4294967295}", &[""], &["uid=0"]),
        ("uid", "{7 8}", &["uid=8"], &["uid=9"]),
        (
            "generic",
            "uid={1}&gid={2},projid={3}",
            &["uid=1 gid=2", "projid=3", "uid=1 gid=3 projid=3"],
            &["uid=1", "gid=2", "uid=1 gid=3", ""],
        ),
        (
            "generic",
            "uid={1} & opcode={ost_read ost_write} , nodemap={5}",
            &["uid=1 opcode=ost_write", "nodemap=5"],
            &["uid=1 opcode=ost_punch", "uid=1"],
        ),
        (
            "nid",
            "{192.168.1.[1-128]@tcp 2001:db8::/32@tcp 10.0.0.0/8@tcp}",
            &[
                "nid=192.168.1.128@tcp",
                "nid=2001:db8::9@tcp",
                "nid=10.9.9.9@tcp",
            ],
            &["nid=192.168.1.129@tcp", "nid=11.0.0.1@tcp"],
        ),
        ("jobid", "jobid={*}", &["", "jobid=x"], &[]),
        (
            "jobid",
            "jobid={a,b c&d e=f}",
            &["jobid=a,b", "jobid=c&d", "jobid=e=f"],
            &["jobid=a", "jobid=b"],
        ),
        (
            "opcode",
            "{ldlm_enqueue obd_ping lfsck_query}",
            &["opcode=ldlm_enqueue", "opcode=lfsck_query"],
            &["opcode=ost_read", ""],
        ),
        // Never true, but not an error.
        ("uid", "uid={1}&uid={2}", &[], &["uid=1", "uid=2"]),
    ] {
        let rule_list = with(fields, &[&format!("start a {conditions}")]);
        for text in yes {
            assert_eq!(rule_for(&rule_list, text), "a", "{conditions}: {text}");
        }
        for text in no {
            assert_eq!(
                rule_for(&rule_list, text),
                "default",
                "{conditions}: {text}"
            );
        }
    }
}

#[test]
fn fields_of_the_policy() {
    for (fields, conditions, column) in [
        ("jobid+opcode", "projid={1}", 9),
        ("jobid+opcode", "jobid={a}&uid={1}", 19),
        ("jobid+opcode", "opcode={ost_read},nid={0@lo}", 27),
        ("jobid+opcode", "{a}", 9),
        ("generic", "{1}", 9),
        ("nid", "{1}", 11),
        ("uid", "{ost_read}", 10),
        ("opcode", "{1}", 10),
    ] {
        let error = apply(&rule_list(fields), &format!("start a {conditions}"))
            .map(|_| ())
            .unwrap_err();
        assert_eq!(
            (error.code, error.column),
            (Invalid, column),
            "{conditions}: {error}"
        );
    }
}

/// Compares the error codes of each command with Lustre's.
#[test]
fn codes_of_commands() {
    let rule_list = with(
        "uid",
        &[
            "start a uid={1} rate=5",
            "start b uid={2} rate=6 also=a",
            "start c uid={3} rate=10MiB/s",
        ],
    );
    for (text, code) in [
        ("start a uid={9} rate=1", Exists),
        ("start default uid={9} rate=1", Exists),
        ("start a gid={9} rate=1", Invalid),
        ("start d uid={9} rate=1 rank=x", NoEntry),
        ("start d uid={9} rate=1 rank=d", NoEntry),
        ("start d uid={9} rate=1 also=x", NoEntry),
        ("start d uid={9} rate=1 also=d", NoEntry),
        ("start d uid={9} rate=5 minrate=6", Invalid),
        ("start d uid={9} rate=5 minrate=5iops", Invalid),
        ("start d uid={9} minrate=10001", Invalid),
        ("change x rate=1", NoEntry),
        ("change a rate=1 rank=x", NoEntry),
        ("change a also=x", NoEntry),
        ("change a also=a", Invalid),
        ("change default also=default", Invalid),
        ("change a minrate=6", Invalid),
        ("change c rate=5 minrate=1MiB/s", Invalid),
        ("change c minrate=11MiB/s", Invalid),
        ("change c burst=100", Invalid),
        ("change a burst=1MiB", Invalid),
        ("stop default", Permission),
        ("stop a", Busy),
    ] {
        let error = apply(&rule_list, text).map(|_| ()).unwrap_err();
        assert_eq!(error.code, code, "{text}: {error}");
    }
    let before = lines(&rule_list);
    for text in [
        "stop x",
        "stop c",
        "change a rate=1",
        "change default rate=7 rank=a",
        "change a realtime=1",
        "change b also=",
        "change b also=default+a+c rank=b",
        "change c minrate=1MiB/s",
        "change c rate=5 minrate=5",
        "change c rate=5 burst=100",
        "change c burst=3600s",
        "start d {9}",
        "start d {9} 77",
        "start d uid={9} minrate=10000",
        "reg start d uid={9} also=a+a+b rank=default",
    ] {
        assert!(apply(&rule_list, text).is_ok(), "{text}");
        assert_eq!(lines(&rule_list), before, "{text}");
    }
    assert_eq!(lines(&apply(&rule_list, "stop x").unwrap()), before);
    let freed = with(
        "uid",
        &[
            "start a {1}",
            "start b {2} also=a",
            "change b also=",
            "stop a",
        ],
    );
    assert_eq!(names(&freed), ["b", "default"]);
}

#[test]
fn rules_are_limited() {
    let full = (0..8).fold(rule_list("uid"), |rule_list, i| {
        apply(&rule_list, &format!("start r{i} {{{i}}}")).unwrap()
    });
    let error = apply(&full, "start r8 {8}").map(|_| ()).unwrap_err();
    assert_eq!((error.code, error.column), (NoSpace, 7));
    let less = apply(&full, "stop r3").unwrap();
    let again = apply(&less, "start r8 {8}").unwrap();
    assert_eq!(again.len(), 9);
    // Identifiers are not reused.
    let mut ids: Vec<u32> = full
        .rules()
        .chain(again.rules())
        .map(|rule| rule.id)
        .collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 10);
}

#[test]
fn shown_like_lustre() {
    let rule_list = with(
        "generic",
        &[
            "start a uid={1}  & gid={ 2 3 },jobid={x*} rate=5",
            "start bytes nid={0@lo} rate=1024KiB/s realtime=1",
            "start ios opcode={ost_read}\trate=300iops",
            "start last uid = {9} rank=default",
        ],
    );
    assert_eq!(
        lines(&rule_list),
        "ios opcode={ost_read} 300iops, ref 30\n\
         bytes nid={0@lo} 1MiB/s realtime=1, ref 20\n\
         a uid={1}  & gid={ 2 3 },jobid={x*} 5, ref 10\n\
         last uid = {9} 10000, ref 40\n\
         default * 10000, ref 0\n"
    );
    let bare = with("nid", &["start a {0@lo\t1.2.3.4@tcp} 7"]);
    assert_eq!(
        lines(&bare),
        "a nid={0@lo 1.2.3.4@tcp} 7, ref 10\ndefault * 10000, ref 0\n"
    );
}

/// Shows all limits of a rule in the form in which they are written.
#[test]
fn all_limits_are_shown() {
    let rule_list = with(
        "uid",
        &[
            "start a {1} rate=5",
            "start b {2} rate=1MB/s minrate=10KB/s realtime=1 borrow=1 also=a",
            "start c {3} rate=7iops also=b+a burst=90s",
            "start d {4} rate=7MB burst=3MiB",
            "start e {5} rate=7iops burst=600 realtime=1",
            "change default minrate=3 also=c",
        ],
    );
    assert_eq!(
        lines(&rule_list),
        "e uid={5} 7iops burst=600 realtime=1, ref 50\n\
         d uid={4} 7MB/s burst=3MiB, ref 40\n\
         c uid={3} 7iops burst=90s also=b+a, ref 30\n\
         b uid={2} 1MB/s minrate=10KB/s realtime=1 borrow=1 also=a, ref 20\n\
         a uid={1} 5, ref 10\n\
         default * 10000 minrate=3 also=c, ref 0\n"
    );
}

#[test]
fn order_and_rank() {
    let start = ["start target uid={1}", "start before uid={1}"];
    let mut rule_list = with("uid", &start);
    assert_eq!(names(&rule_list), ["before", "target", "default"]);
    for (command, order) in [
        (
            "start after uid={1} rank=default",
            "before target after default",
        ),
        ("change target rank=after", "before target after default"),
        ("change target rank=target", "before target after default"),
        ("change target rank=before", "target before after default"),
        ("change target rank=default", "before after target default"),
        ("change before rank=target", "after before target default"),
        ("change default rank=after", "default after before target"),
        ("start new uid={1}", "new default after before target"),
        (
            "start mid uid={1} rank=before",
            "new default after mid before target",
        ),
        ("stop default2", "new default after mid before target"),
        ("stop new", "default after mid before target"),
    ] {
        rule_list = apply(&rule_list, command).unwrap();
        assert_eq!(names(&rule_list).join(" "), order, "{command}");
        let first = rule_list.rules().find(|rule| rule.name != Name::DEFAULT);
        let want = first.unwrap().name.to_string();
        assert_eq!(rule_for(&rule_list, "uid=1"), want, "{command}");
        assert_eq!(rule_for(&rule_list, "uid=2"), "default");
    }
}

#[test]
fn changes_keep_identifiers() {
    let old = with(
        "uid",
        &["start a {1} rate=5 minrate=2", "start b {2} rate=6"],
    );
    let get = |rule_list: &RuleList, name: &str| {
        let rule = rule_list.get(&Name::new(name).unwrap()).unwrap();
        (rule.id, rule.limits)
    };
    let (id, limits) = get(&old, "a");
    assert_eq!(id, 1);
    let moved = apply(&old, "change a rank=b").unwrap();
    assert_eq!(get(&moved, "a"), (id, limits));
    let same = apply(&old, "change a rate=5").unwrap();
    assert_eq!(get(&same, "a"), (id, limits));
    let text = "change a rate=2MiB/s minrate=0 realtime=1 borrow=1 also=b";
    let new = apply(&old, text).unwrap();
    let before = limits;
    let (id, limits) = get(&new, "a");
    assert_eq!(id, 1);
    assert_eq!(limits.rate, Rate::parse("2MiB/s").unwrap());
    assert!(limits.realtime && limits.borrow && limits.minrate.is_none());
    assert_eq!(limits.also.ids(), [2]);
    assert_eq!(get(&old, "a").1, before);
    let set = new.compile(1).unwrap();
    let index = set.find(&subject("uid=1"));
    assert_eq!(set.rule(index).unwrap().name.as_str(), "a");
    let [other] = set.also(index) else {
        panic!("one other rule");
    };
    assert_eq!(set.rule(*other).unwrap().name.as_str(), "b");
    assert!(set.also(set.default_index()).is_empty() && set.also(99).is_empty());
    assert!(set.rule(99).is_none());
}

/// Verifies that known defects of other implementations of rules do not occur.
#[test]
fn known_traps() {
    // Operations far beyond the number of known operations.
    let rule_list = with(
        "opcode",
        &["start a {lfsck_query out_update fld_read sec_ctx_fini obd_ping}"],
    );
    assert_eq!(rule_for(&rule_list, "opcode=lfsck_query"), "a");
    let mut high = Subject::NONE;
    high.opcode = Opcode::new(u32::MAX - 1);
    let set = rule_list.compile(1).unwrap();
    assert_eq!(set.find(&high), set.default_index());
    // Rates above 65535 and 999999.
    let rule_list = with("uid", &["start a {1} rate=65536", "change a rate=1000000"]);
    assert!(lines(&rule_list).starts_with("a uid={1} 1000000,"));
    // Rank of adjacent rules.
    let rule_list = with(
        "nid",
        &[
            "start a {*@tcp}",
            "start b {*@tcp}",
            "change a rank=b",
            "stop a",
        ],
    );
    assert_eq!(names(&rule_list), ["b", "default"]);
    // As many values as fit into a command.
    let ids: Vec<String> = (0..815).map(|i| (1000 + i).to_string()).collect();
    let text = format!("start a uid={{{}}}", ids.join(" "));
    assert!(text.len() > 4080 && text.len() <= COMMAND_MAX);
    let rule_list = with("uid", &[&text]);
    assert_eq!(rule_for(&rule_list, "uid=1814"), "a");
    assert_eq!(rule_for(&rule_list, "uid=1815"), "default");
}

/// Verifies that a path names a cgroup and what is below it, except what another path names, and
/// that each is the same subject as the cgroup named.
#[test]
fn cgroups_by_path() {
    let rules = with(
        "cgroup",
        &[
            "start slices cgroup={/system.slice/* /machine.slice} rate=1",
            "start one cgroup={/system.slice/a.service} rate=2 rank=slices",
            "start many cgroup={/machine.slice/b-?.scope /deep/*/x} rate=3 rank=slices",
        ],
    );
    for (path, rule, named) in [
        ("/system.slice/a.service", "one", "/system.slice/a.service"),
        (
            "/system.slice/a.service/b/c",
            "one",
            "/system.slice/a.service",
        ),
        (
            "/system.slice/b.service",
            "slices",
            "/system.slice/b.service",
        ),
        (
            "/system.slice/b.service/x",
            "slices",
            "/system.slice/b.service",
        ),
        ("/system.slice", "default", "/system.slice"),
        ("/machine.slice/c/d", "slices", "/machine.slice"),
        (
            "/machine.slice/b-1.scope/d",
            "many",
            "/machine.slice/b-1.scope",
        ),
        ("/deep/a/x/y", "many", "/deep/a/x"),
        ("/deep/a/y/x", "default", "/deep/a/y/x"),
    ] {
        let subject = subject(&format!("cgroup={path}"));
        let set = rules.compile(1).unwrap();
        let found = &set.rule(set.find(&subject)).unwrap().name;
        assert_eq!(found.to_string(), rule, "{path}");
        let shown = set.class_of(subject).to_string();
        assert_eq!(shown, format!("cgroup:{named}"));
    }
    for wrong in [
        "7",
        "a/b",
        "/a/",
        "/a//b",
        "/a/../b",
        &format!("/{}", "x".repeat(256)),
    ] {
        let text = format!("start r cgroup={{{wrong}}} rate=1");
        let error = apply(&rule_list("cgroup"), &text).err().unwrap();
        assert_eq!((error.column, error.is_syntax), (17, true), "{wrong}");
    }
}

/// Verifies that a cgroup counts as the named one also in rules with other conditions.
#[test]
fn cgroups_beside_other_conditions() {
    let rules = with(
        "uid+cgroup",
        &[
            "start r uid={5}&cgroup={/a/*} rate=1",
            "start s cgroup={/b} rate=2 rank=r",
            "start t uid={5}&cgroup={/b/d/*} rate=2 rank=r",
        ],
    );
    for (text, rule) in [
        ("uid=5 cgroup=/a/b/c", "r"),
        ("uid=6 cgroup=/a/b/c", "default"),
        ("uid=5 cgroup=/b/c", "s"),
        // A rule that does not hold leaves the cgroup to the rule above.
        ("uid=5 cgroup=/b/d/e", "t"),
        ("uid=6 cgroup=/b/d/e", "s"),
        ("uid=5 cgroup=/a", "default"),
    ] {
        let set = rules.compile(1).unwrap();
        let found = &set.rule(set.find(&subject(text))).unwrap().name;
        assert_eq!(found.to_string(), rule, "{text}");
    }
}
