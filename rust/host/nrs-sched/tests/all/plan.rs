// SPDX-License-Identifier: GPL-2.0-only

//! The plans of `qbm`: anything that can be written, and what the documentation shows.

use crate::fuzz_plan as harness;
use nrs_sched::qbm::plan::Plan;
use proptest::prelude::*;

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
