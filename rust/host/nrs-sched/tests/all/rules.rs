// SPDX-License-Identifier: GPL-2.0-only

//! Comparison of the compiled rule set with a simple model, on random rules and subjects.

use crate::fuzz_rules as harness;
use nrs_sched::{
    attr::{CgroupPath, Id, Opcode},
    jobid::JobId,
    key::Field,
    nid::Nid,
    rules::{Fields, Rate, RuleCommand, RuleList, Subject, Unit},
};
use proptest::prelude::*;

/// Identifiers of clients, and patterns with the clients that each of them matches.
const NIDS: [&str; 6] = [
    "0@lo",
    "10.0.0.1@tcp",
    "10.0.0.2@tcp",
    "10.0.7.2@tcp1",
    "fe80::1@tcp",
    "5@gni",
];
const NID_ITEMS: [(&str, &[usize]); 12] = [
    ("0@lo", &[0]),
    ("10.0.0.1@tcp", &[1]),
    ("fe80::1@tcp", &[4]),
    ("5@gni", &[5]),
    ("*@tcp", &[1, 2, 4]),
    ("*.*.*.*@tcp", &[1, 2]),
    ("10.0.0.[1,3-9]@tcp", &[1]),
    ("10.0.[0-8].[2-8/2]@tcp1", &[3]),
    ("10.0.0.0/30@tcp", &[1, 2]),
    ("fe80::/10@tcp", &[4]),
    ("[1-9/4]@gni", &[5]),
    ("[0-4,6]@gni", &[]),
];

const JOBS: [&str; 6] = ["", "dd.0", "dd.1", "fio.0", "x", "aXbXc"];
const JOB_ITEMS: [(&str, &[usize]); 10] = [
    ("dd.0", &[1]),
    ("x", &[4]),
    ("none", &[]),
    ("*", &[0, 1, 2, 3, 4, 5]),
    ("dd.*", &[1, 2]),
    ("*.0", &[1, 3]),
    ("*X*X*", &[5]),
    ("a*b**c", &[5]),
    ("*dd*", &[1, 2]),
    ("f*.1", &[]),
];

/// Items of `cgroup`, and the cgroups that they match: 0 none, else `/` and the number less one.
const CGROUP_ITEMS: [(&str, &[u32]); 6] = [
    ("/0", &[1]),
    ("/1", &[2]),
    ("/7", &[]),
    ("/*", &[1, 2, 3]),
    ("/?", &[1, 2, 3]),
    ("/1*", &[2]),
];

const OPCODES: [Opcode; 4] = [
    Opcode::NONE,
    Opcode::OST_READ,
    Opcode::OST_WRITE,
    Opcode::LFSCK_QUERY,
];

/// A subject by the indexes of its values; ids of 0 are absent.
#[derive(Clone, Copy, Debug)]
struct Who {
    nid: usize,
    job: usize,
    opcode: usize,
    ids: [u32; 5],
}

impl Who {
    fn subject(self) -> Subject {
        let id = |i: usize| match self.ids[i] {
            0 => Id::ABSENT,
            id => Id::new(id - 1),
        };
        Subject {
            nid: NIDS.get(self.nid).map(|nid| Nid::parse(nid).unwrap()),
            jobid: JobId::new(JOBS[self.job].as_bytes()),
            opcode: OPCODES[self.opcode],
            uid: id(0),
            gid: id(1),
            projid: id(2),
            nodemap: id(3),
            cgroup: match self.ids[4] {
                0 => CgroupPath::ABSENT,
                id => CgroupPath::intern(format!("/{}", id - 1).as_bytes()).unwrap(),
            },
        }
    }
}

fn who() -> impl Strategy<Value = Who> {
    (
        0..NIDS.len() + 1,
        0..JOBS.len(),
        0..OPCODES.len(),
        proptest::array::uniform5(0u32..4),
    )
        .prop_map(|(nid, job, opcode, ids)| Who {
            nid,
            job,
            opcode,
            ids,
        })
}

/// A condition: its field, and indexes or values of its items.
#[derive(Clone, Debug)]
struct Asks {
    field: Field,
    items: Vec<usize>,
}

impl Asks {
    fn text(&self) -> String {
        let items: Vec<String> = self
            .items
            .iter()
            .map(|&item| match self.field {
                Field::Nid => NID_ITEMS[item % NID_ITEMS.len()].0.into(),
                Field::Jobid => JOB_ITEMS[item % JOB_ITEMS.len()].0.into(),
                Field::Opcode => OPCODES[1 + item % 3].to_string(),
                Field::Cgroup => CGROUP_ITEMS[item % CGROUP_ITEMS.len()].0.into(),
                _ => (item % 3).to_string(),
            })
            .collect();
        format!("{}={{{}}}", self.field.name(), items.join(" "))
    }

    fn holds(&self, who: Who) -> bool {
        let id = |i: usize, item: usize| who.ids[i] as usize == item % 3 + 1;
        self.items.iter().any(|&item| match self.field {
            Field::Nid => NID_ITEMS[item % NID_ITEMS.len()].1.contains(&who.nid),
            Field::Jobid => JOB_ITEMS[item % JOB_ITEMS.len()].1.contains(&who.job),
            Field::Opcode => 1 + item % 3 == who.opcode,
            Field::Uid => id(0, item),
            Field::Gid => id(1, item),
            Field::Projid => id(2, item),
            Field::Nodemap => id(3, item),
            Field::Cgroup => {
                let of = CGROUP_ITEMS[item % CGROUP_ITEMS.len()].1;
                of.contains(&who.ids[4])
            }
        })
    }
}

type Conditions = Vec<Vec<Asks>>;

fn conditions() -> impl Strategy<Value = Conditions> {
    let asks = (
        proptest::sample::select(&Field::ALL[..]),
        proptest::collection::vec(0..12usize, 1..4),
    )
        .prop_map(|(field, items)| Asks { field, items });
    let conjunction = proptest::collection::vec(asks, 1..4);
    proptest::collection::vec(conjunction, 1..4)
}

fn text(conditions: &Conditions) -> String {
    let conjunction = |asks: &Vec<Asks>| {
        let texts: Vec<String> = asks.iter().map(Asks::text).collect();
        texts.join("&")
    };
    let texts: Vec<String> = conditions.iter().map(conjunction).collect();
    texts.join(",")
}

fn holds(conditions: &Conditions, who: Who) -> bool {
    conditions
        .iter()
        .any(|asks| asks.iter().all(|asks| asks.holds(who)))
}

/// A command on the rules; rules are named by numbers.
#[derive(Clone, Debug)]
enum RuleOp {
    Start(usize, Conditions, Option<usize>),
    Rank(usize, usize),
    Rate(usize, u32),
    Stop(usize),
}

const NAMES: usize = 30;

fn op() -> impl Strategy<Value = RuleOp> {
    let name = 0..NAMES;
    prop_oneof![
        6 => (name.clone(), conditions(), proptest::option::of(name.clone()))
            .prop_map(|(name, conditions, rank)| RuleOp::Start(name, conditions, rank)),
        2 => (name.clone(), name.clone()).prop_map(|(name, rank)| RuleOp::Rank(name, rank)),
        1 => (name.clone(), 1u32..1000).prop_map(|(name, rate)| RuleOp::Rate(name, rate)),
        1 => name.prop_map(RuleOp::Stop),
    ]
}

/// The rules in order, without the default rule.
#[derive(Default)]
struct RulesModel {
    rules: Vec<(usize, Conditions, u32)>,
}

impl RulesModel {
    fn place(&self, name: usize) -> Option<usize> {
        self.rules.iter().position(|rule| rule.0 == name)
    }

    /// Applies `op` to the model; returns the command, and true if it succeeds.
    fn apply(&mut self, op: &RuleOp) -> (String, bool) {
        match op {
            RuleOp::Start(name, conditions, rank) => {
                let mut command = format!("start r{name} {} rate=7", text(conditions));
                let mut before = Some(0);
                if let Some(rank) = rank {
                    command += &format!(" rank=r{rank}");
                    before = self.place(*rank);
                }
                let (Some(at), None) = (before, self.place(*name)) else {
                    return (command, false);
                };
                self.rules.insert(at, (*name, conditions.clone(), 7));
                (command, true)
            }
            RuleOp::Rank(name, rank) => {
                let command = format!("change r{name} rank=r{rank}");
                let (Some(from), Some(_)) = (self.place(*name), self.place(*rank)) else {
                    return (command, false);
                };
                if name != rank {
                    let rule = self.rules.remove(from);
                    let to = self.place(*rank).unwrap();
                    self.rules.insert(to, rule);
                }
                (command, true)
            }
            RuleOp::Rate(name, rate) => {
                let place = self.place(*name);
                if let Some(place) = place {
                    self.rules[place].2 = *rate;
                }
                (format!("change r{name} rate={rate}"), place.is_some())
            }
            RuleOp::Stop(name) => {
                self.rules.retain(|rule| rule.0 != *name);
                (format!("stop r{name}"), true)
            }
        }
    }

    fn lines(&self) -> String {
        let line = |(name, conditions, rate): &(usize, Conditions, u32)| {
            format!("r{name} {} {rate}", text(conditions))
        };
        let mut lines: Vec<String> = self.rules.iter().map(line).collect();
        lines.push("default * 10000".into());
        lines.join("\n")
    }

    fn find(&self, who: Who) -> String {
        let mut rules = self.rules.iter();
        let found = rules.find(|(_, conditions, _)| holds(conditions, who));
        found.map_or("default".into(), |(name, ..)| format!("r{name}"))
    }
}

fn default_rate() -> Rate {
    Rate::new(10_000, Unit::Plain).unwrap()
}

fn without_refs(rule_list: &RuleList) -> String {
    let all = harness::lines(rule_list);
    let lines: Vec<&str> = all
        .lines()
        .map(|line| line.rsplit_once(", ref ").unwrap().0)
        .collect();
    lines.join("\n")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Compares order, conditions and lookup with the model after any commands. A command leaves
    /// the rule list that it was applied to unchanged.
    #[test]
    fn rules_agree_with_the_model(
        ops in proptest::collection::vec(op(), 1..60),
        subjects in proptest::collection::vec(who(), 40),
    ) {
        let mut model = RulesModel::default();
        let mut rule_list = RuleList::new(Fields::ALL, default_rate(), 100).unwrap();
        for op in &ops {
            let before = harness::lines(&rule_list);
            let old = rule_list.compile(1).unwrap();
            let (command, fits) = model.apply(op);
            let new = rule_list.apply(&RuleCommand::parse(&command).unwrap());
            prop_assert_eq!(new.is_ok(), fits, "{}", command);
            prop_assert_eq!(&harness::lines(&rule_list), &before);
            let who = subjects[0].subject();
            prop_assert_eq!(harness::find(&old, &who), harness::walk(&rule_list, &who));
            if let Ok(new) = new {
                rule_list = new;
            }
            prop_assert_eq!(without_refs(&rule_list), model.lines());
        }
        let set = rule_list.compile(2).unwrap();
        let again = harness::enter_again(&rule_list, default_rate(), 100);
        prop_assert_eq!(without_refs(&again), model.lines());
        let again = again.compile(3).unwrap();
        for who in subjects {
            let subject = who.subject();
            let want = model.find(who);
            prop_assert_eq!(harness::find(&set, &subject).to_string(), &want[..], "{}", subject);
            prop_assert_eq!(harness::walk(&rule_list, &subject).to_string(), &want[..]);
            prop_assert_eq!(harness::find(&again, &subject).to_string(), &want[..]);
        }
    }
}
