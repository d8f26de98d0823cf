// SPDX-License-Identifier: GPL-2.0-only

//! Comparison of the compiled rule set with a search of all rules, on random rules and subjects.

use crate::fuzz_rules as harness;
use nrs_sched::{
    attr::{CgroupPath, Id, IoPriority, Opcode},
    jobid::JobId,
    key::Field,
    nid::Nid,
    rules::{Fields, Rate, RuleCommand, RuleList, Subject, Unit},
};
use proptest::prelude::*;

/// Identifiers of clients, and items of conditions.
const NIDS: [&str; 6] = [
    "0@lo",
    "10.0.0.1@tcp",
    "10.0.0.2@tcp",
    "10.0.7.2@tcp1",
    "fe80::1@tcp",
    "5@gni",
];
const NID_ITEMS: [&str; 12] = [
    "0@lo",
    "10.0.0.1@tcp",
    "fe80::1@tcp",
    "5@gni",
    "*@tcp",
    "*.*.*.*@tcp",
    "10.0.0.[1,3-9]@tcp",
    "10.0.[0-8].[2-8/2]@tcp1",
    "10.0.0.0/30@tcp",
    "fe80::/10@tcp",
    "[1-9/4]@gni",
    "[0-4,6]@gni",
];

const JOBS: [&str; 6] = ["", "dd.0", "dd.1", "fio.0", "x", "aXbXc"];
const JOB_ITEMS: [&str; 10] = [
    "dd.0", "x", "none", "*", "dd.*", "*.0", "*X*X*", "a*b**c", "*dd*", "f*.1",
];

const CGROUP_ITEMS: [&str; 6] = ["/0", "/1", "/7", "/*", "/?", "/1*"];

const OPCODES: [Opcode; 4] = [
    Opcode::NONE,
    Opcode::OST_READ,
    Opcode::OST_WRITE,
    Opcode::LFSCK_QUERY,
];

/// Generates subjects; ids of 0 are absent.
fn who() -> impl Strategy<Value = Subject> {
    let ids = proptest::array::uniform6(0u32..4);
    let attrs = (0..NIDS.len() + 1, 0..JOBS.len(), 0..OPCODES.len(), ids);
    attrs.prop_map(|(nid, job, opcode, ids)| {
        let id = |i: usize| match ids[i] {
            0 => Id::ABSENT,
            id => Id::new(id - 1),
        };
        Subject {
            nid: NIDS.get(nid).map(|nid| Nid::parse(nid).unwrap()),
            jobid: JobId::new(JOBS[job].as_bytes()),
            opcode: OPCODES[opcode],
            io_priority: match ids[5] {
                0 => IoPriority::NONE,
                level => IoPriority::from_kernel((level - 1) as u16 | (2 << 13)),
            },
            uid: id(0),
            gid: id(1),
            projid: id(2),
            nodemap: id(3),
            cgroup: match ids[4] {
                0 => CgroupPath::ABSENT,
                id => CgroupPath::intern(format!("/{}", id - 1).as_bytes()).unwrap(),
            },
        }
    })
}

/// Generates a condition: a field, and some of its values.
fn condition() -> impl Strategy<Value = String> {
    let field = proptest::sample::select(&Field::ALL[..]);
    let items = proptest::collection::vec(0..12usize, 1..4);
    (field, items).prop_map(|(field, items)| {
        let items = items.iter().map(|&item| match field {
            Field::Nid => NID_ITEMS[item].into(),
            Field::Jobid => JOB_ITEMS[item % JOB_ITEMS.len()].into(),
            Field::Opcode => OPCODES[1 + item % 3].to_string(),
            Field::Cgroup => CGROUP_ITEMS[item % CGROUP_ITEMS.len()].into(),
            Field::IoPriority => format!("be-{}", item % 3),
            _ => (item % 3).to_string(),
        });
        let items: Vec<String> = items.collect();
        format!("{}={{{}}}", field.name(), items.join(" "))
    })
}

fn conditions() -> impl Strategy<Value = String> {
    let conjunction = proptest::collection::vec(condition(), 1..4).prop_map(|all| all.join("&"));
    proptest::collection::vec(conjunction, 1..4).prop_map(|all| all.join(","))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Compares the look-up with the search of all rules, and with the look-up in rules that were
    /// entered from the shown text.
    #[test]
    fn look_ups_agree_with_a_walk(
        rules in proptest::collection::vec(conditions(), 1..30),
        subjects in proptest::collection::vec(who(), 40),
    ) {
        let default = Rate::new(10_000, Unit::Plain).unwrap();
        let mut rule_list = RuleList::new(Fields::ALL, default, 100).unwrap();
        for (number, conditions) in rules.iter().enumerate() {
            let command = format!("start r{number} {conditions} rate=7");
            rule_list = rule_list.apply(&RuleCommand::parse(&command).unwrap()).unwrap();
        }
        let again = harness::enter_again(&rule_list, default, 100);
        let (set, again) = (rule_list.compile(1).unwrap(), again.compile(2).unwrap());
        for subject in subjects {
            let want = harness::walk(&rule_list, &subject);
            prop_assert_eq!(harness::find(&set, &subject), want, "{}", subject);
            prop_assert_eq!(harness::find(&again, &subject), want, "{}", subject);
        }
    }
}
