// SPDX-License-Identifier: GPL-2.0-only

//! Documented plans of `qbm`.

use nrs_sched::qbm::plan::Plan;

/// Checks that the documented plans are valid.
#[test]
fn documented() {
    let page = include_str!("../../../../../Documentation/qbm.md");
    // Every second piece between fences is a block; the first line may name a language.
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
