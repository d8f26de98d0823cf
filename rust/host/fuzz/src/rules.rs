// SPDX-License-Identifier: GPL-2.0-only

//! Commands of `nrs_tbf_rule`. Look-ups agree with a walk, printed lines can be entered again, and
//! a refusal names a column of the text. The tests of nrs-sched include this file.

use nrs_sched::{
    attr::{CgroupPath, Id, IoPriority, Opcode},
    jobid::JobId,
    nid::Nid,
    rules::{Fields, Name, Rate, RuleCommand, RuleList, RuleSet, Subject, Unit},
};

/// Types of policies, selected by the first byte.
const TYPES: &str = "generic nid jobid opcode uid gid+uid jobid+opcode nid+jobid+opcode projid \
                     nodemap cgroup+uid ioprio+uid";

/// Maximum number of rules of a rule list.
const RULES_MAX: u32 = 20;

/// Returns the lines of a rule list.
pub fn lines(rule_list: &RuleList) -> String {
    let mut out = String::new();
    rule_list
        .write(&mut out, u64::from)
        .expect("strings take all");
    out
}

/// Returns subjects that rules are likely to match.
fn subjects() -> impl Iterator<Item = Subject> {
    let nids = ["0@lo", "10.0.0.1@tcp", "fe80::1@o2ib1", "7@gni"];
    let jobs = ["", "a", "dd.0", "*"];
    let paths: [&[u8]; 4] = [b"", b"/", b"/a", b"/a.slice/b"];
    let opcodes = [Opcode::OST_READ, Opcode::LDLM_ENQUEUE, Opcode::new(9999)];
    (0..13usize).map(move |i| Subject {
        nid: nids.get(i % 5).and_then(|nid| Nid::parse(nid).ok()),
        jobid: JobId::new(jobs[i % 4].as_bytes()),
        opcode: opcodes[i % 3],
        io_priority: IoPriority::from_kernel((i as u16 % 4) << 13),
        uid: Id::new(i as u32 % 3),
        gid: Id::new(i as u32 % 2),
        projid: if i % 2 == 0 { Id::ABSENT } else { Id::new(1) },
        nodemap: Id::new(i as u32),
        cgroup: CgroupPath::intern(paths[i % 4]).unwrap_or(CgroupPath::ABSENT),
    })
}

/// Returns the name of the first matching rule, found by checking every rule in order.
pub fn walk(rule_list: &RuleList, subject: &Subject) -> Name {
    let mut rules = rule_list.rules();
    let found = rules.find(|rule| rule.conditions.matches(subject));
    found.map_or(Name::DEFAULT, |rule| rule.name)
}

/// Returns the name of the matching rule, found by a look-up.
pub fn find(set: &RuleSet, subject: &Subject) -> Name {
    set.rule(set.find(subject))
        .expect("an index of the set")
        .name
}

/// Applies a command that must be valid.
fn enter(rule_list: &RuleList, command: &str) -> RuleList {
    let parsed = RuleCommand::parse(command).unwrap_or_else(|e| panic!("{command:?}: {e}"));
    rule_list
        .apply(&parsed)
        .unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

/// Enters the rules of `rule_list` again from its lines; `max` is the maximum number of rules. The
/// names of shared buckets are entered last, because they may refer to later rules.
pub fn enter_again(rule_list: &RuleList, rate: Rate, max: u32) -> RuleList {
    let mut again = RuleList::new(rule_list.fields(), rate, max).expect("memory");
    let mut links = Vec::new();
    let text = lines(rule_list);
    for (line, rule) in text.lines().zip(rule_list.rules()) {
        let (name, conditions) = (rule.name, &*rule.conditions);
        let (limits, _) = line
            .strip_prefix(&format!("{name} {conditions} "))
            .and_then(|rest| rest.split_once(", ref "))
            .expect("the form of a line");
        let (limits, also) = limits.split_once(" also=").unwrap_or((limits, ""));
        again = if name == Name::DEFAULT {
            enter(&again, &format!("change default rate={limits}"))
        } else {
            let command = format!("start {name} {conditions} rate={limits} rank=default");
            enter(&again, &command)
        };
        if !also.is_empty() {
            links.push(format!("change {name} also={also}"));
        }
    }
    links
        .iter()
        .fold(again, |rule_list, link| enter(&rule_list, link))
}

/// Returns the rules of a rule list, sorted: the position of the default rule has no meaning.
fn settings(rule_list: &RuleList) -> Vec<String> {
    let text = lines(rule_list);
    let rules = text.lines().filter_map(|line| line.rsplit_once(", ref "));
    let mut found: Vec<_> = rules.map(|(rule, _)| rule.to_owned()).collect();
    found.sort();
    found
}

/// Checks each line of `text` as a command; the first byte selects the type of the policy.
pub fn rules((first, text): (u8, &str)) {
    let kind = TYPES.split(' ').cycle().nth(first.into()).expect("endless");
    let fields = Fields::parse(kind).expect("valid");
    let rate = Rate::new(10_000, Unit::Plain).expect("within limits");
    let mut rule_list = RuleList::new(fields, rate, RULES_MAX).expect("memory");
    for text in text.split('\n') {
        let before = lines(&rule_list);
        let result = RuleCommand::parse(text).and_then(|command| rule_list.apply(&command));
        assert_eq!(lines(&rule_list), before, "the old list is left alone");
        match result {
            Ok(new) => rule_list = new,
            Err(error) => {
                assert!(!error.to_string().contains('\n'));
                assert!((1..=text.len() + 1).contains(&usize::from(error.column)));
                assert!(error.found(text).len() <= 24);
            }
        }
    }
    assert!(rule_list.len() <= RULES_MAX as usize + 1);
    let set = rule_list.compile(1).expect("memory");
    // The default rule may have been ranked; its position has no meaning, and it is last after
    // being entered again.
    let again = enter_again(&rule_list, rate, RULES_MAX);
    assert_eq!(settings(&again), settings(&rule_list));
    for subject in subjects() {
        let found = find(&set, &subject);
        assert_eq!(found, walk(&rule_list, &subject), "{subject}");
        assert_eq!(found, walk(&again, &subject), "{subject}");
    }
}
