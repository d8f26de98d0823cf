// SPDX-License-Identifier: GPL-2.0-only

//! Cost of finding the rule of a new class, and of compiling the rules after a command.
//!
//! `sets` are rules for users, groups, clients and operations in turn; `ranges` are for ranges of
//! clients, `patterns` for job names with `*`. Only the last rule matches the subject.

use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion, Throughput};
use nrs_sched::{
    attr::{Id, Opcode},
    jobid::JobId,
    nid::Nid,
    rules::{Fields, Rate, RuleCommand, RuleList, Subject, Unit},
};
use std::{hint::black_box, time::Duration};

/// Function that returns the conditions of rule `i`.
type Make = fn(u32) -> String;

fn sets(i: u32) -> String {
    let (a, b) = (i / 256, i % 256);
    match i % 4 {
        0 => format!("uid={{{} {} {}}}", i, i + 10_000, i + 20_000),
        1 => format!("gid={{{} {}}}&opcode={{ost_read ost_write}}", i, i + 10_000),
        2 => format!("nid={{10.1.{a}.{b}@tcp 10.2.{a}.{b}@tcp}}"),
        _ => format!("opcode={{ost_write ost_punch}}&uid={{{i}}},gid={{{i}}}&nid={{*@tcp}}"),
    }
}

fn ranges(i: u32) -> String {
    format!("nid={{10.{}.{}.[1-128]@tcp}}", i / 256, i % 256)
}

fn patterns(i: u32) -> String {
    match i % 2 {
        0 => format!("jobid={{batch{i}.*}}"),
        _ => format!("jobid={{*.user{i}}}"),
    }
}

fn rule_list(rules: u32, make: Make) -> RuleList {
    let rate = Rate::new(10_000, Unit::Plain).expect("within limits");
    let rule_list = RuleList::new(Fields::ALL, rate, rules).expect("memory");
    (0..rules).fold(rule_list, |rule_list, i| {
        let text = format!("start r{i} {} rate=100 rank=default", make(i));
        let command = RuleCommand::parse(&text).expect("valid");
        rule_list.apply(&command).expect("valid")
    })
}

/// Returns a subject that only the last rule matches.
fn subject(rules: u32) -> Subject {
    let last = rules - 1;
    Subject {
        nid: Nid::parse(&format!("10.{}.{}.7@tcp", last / 256, last % 256)).ok(),
        jobid: JobId::new(format!("sim.user{last}").as_bytes()),
        opcode: Opcode::OST_WRITE,
        uid: Id::new(last),
        gid: Id::new(last),
        ..Subject::NONE
    }
}

fn find(c: &mut Criterion) {
    let mut group = c.benchmark_group("rules");
    group
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(900))
        .sample_size(20);
    let kinds: [(&str, Make); 3] = [("sets", sets), ("ranges", ranges), ("patterns", patterns)];
    for (name, make) in kinds {
        for rules in [10, 100, 1000, 4096] {
            let rule_list = rule_list(rules, make);
            let set = rule_list.compile(1).expect("memory");
            let subject = subject(rules);
            let rule = set.rule(set.find(&subject)).expect("an index of the set");
            assert_eq!(rule.name.as_str(), format!("r{}", rules - 1));
            let found = BenchmarkId::new(format!("find/{name}"), rules);
            group.throughput(Throughput::Elements(1));
            group.bench_function(found, |b| b.iter(|| set.find(black_box(&subject))));
            let compiled = BenchmarkId::new(format!("compile/{name}"), rules);
            group.bench_function(compiled, |b| {
                b.iter(|| rule_list.compile(1).map(|set| set.len()));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, find);
criterion_main!(benches);
