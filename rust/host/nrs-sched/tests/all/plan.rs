// SPDX-License-Identifier: GPL-2.0-only

//! The plans of `qbm`: random ones against a model that is easy to believe, anything that can be written, and
//! how long clients take to be found.

use crate::fuzz_plan::{self as harness, Nine};
use nrs_sched::{
    jobid::JobId,
    key::Key,
    nid::Nid,
    qbm::{
        plan::{Party, Plan, Who, TEXT_MAX},
        terms::{Class, Terms},
    },
};
use proptest::prelude::*;
use std::fmt::Write as _;

/// Clients, some patterns, and which of the clients each of them is for.
const NIDS: [&str; 5] = [
    "0@lo",
    "10.0.0.1@tcp",
    "10.0.0.2@tcp",
    "10.0.7.2@tcp1",
    "fe80::1@tcp",
];
const NID_ITEMS: [(&str, &[usize]); 9] = [
    ("0@lo", &[0]),
    ("10.0.0.1@tcp", &[1]),
    ("10.0.0.2@tcp", &[2]),
    ("fe80::1@tcp", &[4]),
    ("*@tcp", &[1, 2, 4]),
    ("10.0.0.[1,3-9]@tcp", &[1]),
    ("10.0.[0-8].[2-8/2]@tcp1", &[3]),
    ("10.0.0.0/30@tcp", &[1, 2]),
    ("[1-9/4]@gni", &[]),
];
const JOBS: [&str; 5] = ["dd.0", "dd.1", "fio.0", "x", "aXbXc"];
const JOB_ITEMS: [(&str, &[usize]); 9] = [
    ("dd.0", &[0]),
    ("x", &[3]),
    ("fio.0", &[2]),
    ("none", &[]),
    ("*", &[0, 1, 2, 3, 4]),
    ("dd.?", &[0, 1]),
    ("*.0", &[0, 2]),
    ("*X*X*", &[4]),
    ("f*.1", &[]),
];

/// A line: its item, its group, class, minimum and maximum; of the latter, bytes/s or percent.
#[derive(Clone, Debug)]
struct Line {
    item: usize,
    group: Option<usize>,
    class: Class,
    min: Size,
    max: Option<Size>,
}

/// Parts of a plan.
#[derive(Clone, Debug)]
struct Model {
    nids: bool,
    /// Capacities in MB/s.
    groups: Vec<u64>,
    default: (Class, Size),
    lines: Vec<Line>,
}

const MB: u64 = 1_000_000;

#[derive(Clone, Copy, Debug)]
enum Size {
    Megabytes(u64),
    Percent(u64),
}

impl Size {
    fn text(self) -> String {
        match self {
            Self::Megabytes(n) => format!("{n}MB/s"),
            Self::Percent(n) => format!("{n}%"),
        }
    }

    fn of(self, capacity: u64) -> u64 {
        match self {
            Self::Megabytes(n) => n * MB,
            Self::Percent(n) => capacity * n / 100,
        }
    }
}

fn size() -> impl Strategy<Value = Size> {
    prop_oneof![
        (1u64..12).prop_map(Size::Megabytes),
        (4u64..101).prop_map(Size::Percent),
    ]
}

fn class() -> impl Strategy<Value = Class> {
    proptest::sample::select(&Class::ALL[..])
}

fn model() -> impl Strategy<Value = Model> {
    let line = (
        0..9usize,
        proptest::option::of(0..3usize),
        class(),
        size(),
        proptest::option::of(size()),
    );
    let line = line.prop_map(|(item, group, class, min, max)| Line {
        item,
        group,
        class,
        min,
        max,
    });
    (
        any::<bool>(),
        proptest::collection::vec(10..100u64, 1..4),
        (class(), size()),
        proptest::collection::vec(line, 0..9),
    )
        .prop_map(|(nids, groups, default, lines)| Model {
            nids,
            groups,
            default,
            lines,
        })
}

impl Model {
    fn item(&self, line: &Line) -> (&'static str, &'static [usize]) {
        if self.nids {
            NID_ITEMS[line.item]
        } else {
            JOB_ITEMS[line.item]
        }
    }

    fn text(&self) -> String {
        let (class, min) = self.default;
        let mut out = format!(
            "by {}\ndefault min={} class={}\n",
            if self.nids { "nid" } else { "jobid" },
            min.text(),
            class.name()
        );
        for (i, capacity) in self.groups.iter().enumerate() {
            out += &format!("group g{i} capacity={capacity}MB/s target={i}\n");
        }
        for line in &self.lines {
            let (name, _) = self.item(line);
            out += &format!(
                "client {name} class={} min={}",
                line.class.name(),
                line.min.text()
            );
            if let Some(max) = line.max {
                out += &format!(" max={}", max.text());
            }
            if let Some(group) = line.group {
                out += &format!(" group=g{group}");
            }
            out += "\n";
        }
        out
    }

    fn capacity(&self, group: usize) -> u64 {
        self.groups[group] * MB
    }

    /// What is wrong with it.
    fn is_wrong(&self) -> bool {
        let fits = |min: u64, max: u64, capacity| min <= max && max <= capacity && min >= 32_768;
        let default = (0..self.groups.len()).all(|group| {
            let capacity = self.capacity(group);
            fits(self.default.1.of(capacity), capacity, capacity)
        });
        let lines = self.lines.iter().all(|line| {
            let straight = match (line.min, line.max) {
                (Size::Percent(min), Some(Size::Percent(max))) => min <= max,
                (Size::Megabytes(min), Some(Size::Megabytes(max))) => min <= max,
                _ => true,
            };
            let there = line.group.is_none_or(|group| group < self.groups.len());
            straight
                && there
                && (0..self.groups.len()).all(|group| {
                    let capacity = self.capacity(group);
                    let max = line.max.map_or(capacity, |max| max.of(capacity));
                    line.group.is_some_and(|own| own != group)
                        || fits(line.min.of(capacity), max, capacity)
                })
        });
        let twice = self.lines.iter().enumerate().any(|(i, line)| {
            let same = |other: &Line| (other.item, other.group) == (line.item, line.group);
            self.lines[..i].iter().any(same)
        });
        !default || !lines || twice
    }

    fn terms(&self, group: usize, client: usize) -> Terms {
        let capacity = self.capacity(group);
        let line = self.lines.iter().find(|line| {
            let (_, clients) = self.item(line);
            line.group.is_none_or(|own| own == group) && clients.contains(&client)
        });
        match line {
            Some(line) => Terms {
                class: line.class,
                min: line.min.of(capacity),
                max: line.max.map_or(capacity, |max| max.of(capacity)),
            },
            None => Terms {
                class: self.default.0,
                min: self.default.1.of(capacity),
                max: capacity,
            },
        }
    }

    fn party(&self, client: usize) -> Party {
        Party::Key(if self.nids {
            Key::Nid(Nid::parse(NIDS[client]).unwrap())
        } else {
            Key::Jobid(JobId::new(JOBS[client].as_bytes()))
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn plans_say_what_the_model_says(model in model()) {
        let text = model.text();
        let plan = match Plan::parse(&text) {
            Ok(plan) => plan,
            Err(error) => {
                prop_assert!(model.is_wrong(), "{}\n{}", error, text);
                return Ok(());
            }
        };
        prop_assert!(!model.is_wrong(), "{}", text);
        for group in 0..model.groups.len() {
            prop_assert_eq!(plan.group_of(group as u64), Some(group as u32));
            for client in 0..5 {
                let terms = plan.terms(group as u32, &model.party(client), &Nine);
                prop_assert_eq!(terms, Some(model.terms(group, client)), "{} {}\n{}", group, client, text);
            }
        }
        harness::check(&plan);
    }
}

/// Statements, wrong ones too, and pieces of them.
fn soup() -> impl Strategy<Value = String> {
    let words: &[&str] = &[
        "by nid\n",
        "by jobid\n",
        "by uid\n",
        "by device\n",
        "by",
        "tune",
        " period=40ms",
        " fast=1s",
        " floor=64Ki",
        " low=50%",
        " high=40%",
        "default",
        "group a",
        "group b",
        " capacity=100MB/s",
        " capacity=1Gi",
        " target=8:0",
        " target=7",
        " strategy=mover",
        " class=fc",
        " class=fs",
        " class=mover",
        " min=1MB",
        " min=5%",
        " max=50%",
        " max=1G",
        " reserve_first_come=10%",
        " reserve_mover=95%",
        "client 0@lo",
        "client *@tcp",
        "client 10.0.[0-9].*@tcp",
        "client dd.*",
        "client d?",
        "client d1",
        "client 1000",
        "client 0",
        " group=a",
        " group=b",
        "\n",
        "\n",
        "\n",
        ";",
        "# x",
        " ",
        "=",
        "%",
        "\0",
        "\u{e9}",
        "\ngroup a capacity=100MB/s\n",
        "\ngroup b capacity=1GB/s target=5\n",
        "\nclient 0@lo class=fs min=1MB\n",
        "\nclient *@tcp class=fs min=10% group=a\n",
    ];
    proptest::collection::vec(proptest::sample::select(words), 0..30)
        .prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn plans_stand_any_words(text in soup()) {
        harness::run(text.as_bytes());
    }

    #[test]
    fn plans_stand_any_bytes(data in proptest::collection::vec(any::<u8>(), 0..300)) {
        harness::run(&data);
        harness::run(String::from_utf8_lossy(&data).as_bytes());
        for start in ["group a capacity=", "client ", "tune period=", "by uid\nclient "] {
            let text = start.to_owned() + &String::from_utf8_lossy(&data);
            harness::run(text.as_bytes());
        }
    }
}

/// Parses a plan as large as there can be, and counts which of 10,000 clients it finds.
fn find_all(by: &str, line: impl Fn(u32) -> String, party: impl Fn(u32) -> Party) -> u32 {
    let mut text = format!("by {by}\ngroup a capacity=10GB/s\n");
    for i in 0..4096 {
        writeln!(text, "client {} class=fs min=1MB", line(i)).unwrap();
    }
    assert!(text.len() <= TEXT_MAX);
    let plan = Plan::parse(&text).unwrap();
    let found = (0..10_000u32).filter(|i| plan.line_for(0, &party(*i), &Nine).is_some());
    found.count() as u32
}

#[test]
fn many_lines_and_many_clients() {
    let address = |i: u32| format!("10.{}.{}.1@tcp", i / 256, i % 256);
    let nid = |i: u32| Party::Key(Key::Nid(Nid::parse(&address(i)).unwrap()));
    let job = |i: u32| Party::Key(Key::Jobid(JobId::new(format!("job.{i}").as_bytes())));
    for (by, found, want) in [
        ("nid", find_all("nid", address, nid), 4096),
        (
            "nid",
            find_all(
                "nid",
                |i| format!("10.{}.{}.[1-9]@tcp", i / 256, i % 256),
                nid,
            ),
            4096,
        ),
        (
            "jobid",
            find_all("jobid", |i| format!("job.{i}"), job),
            4096,
        ),
        ("jobid", find_all("jobid", |i| format!("job.{i}.*"), job), 0),
        ("jobid", find_all("jobid", |i| format!("*b.{i}"), job), 4096),
        (
            "uid",
            find_all("uid", |i| i.to_string(), |i| Party::Key(Key::Uid(i))),
            4096,
        ),
    ] {
        assert_eq!(found, want, "{by}");
    }
    assert!(size_of::<Who>() <= 48);
}

/// What the documentation shows is what can be written.
#[test]
fn documented() {
    let page = include_str!("../../../../../Documentation/qbm.md");
    // Every other piece between fences is a block; the first line may name a language.
    let blocks = page.split("\n```").skip(1).step_by(2);
    let texts: Vec<&str> = blocks
        .filter_map(|block| {
            let start = block.find("\nby ")?;
            let text = &block[start + 1..];
            Some(text.split("\nEND").next().unwrap())
        })
        .collect();
    assert_eq!(texts.len(), 5, "{texts:#?}");
    for text in texts {
        let plan = Plan::parse(text).unwrap_or_else(|error| panic!("{error} of\n{text}"));
        assert!(!plan.groups().is_empty());
    }
}
