// SPDX-License-Identifier: GPL-2.0-only

//! The list of all families in `Documentation/metrics.md`.

use super::encode::Kind;
use super::families::{Family, FAMILIES};

/// The line before the list.
pub const BEGIN: &str = "<!-- metrics: what follows is written by nrsctl exporter --list -->";

/// The line behind it.
pub const END: &str = "<!-- metrics: end -->";

/// The list, Markdown.
pub fn list() -> String {
    let summaries = FAMILIES.iter().filter(|one| one.kind == Kind::Summary);
    let summaries: Vec<String> = summaries.map(|one| format!("`{}`", one.name)).collect();
    let mut text = format!(
        "\nNames that end in `_total` are counters, {} is a summary, all others are gauges.\n",
        summaries.join(", ")
    );
    let mut title = "";
    for family in FAMILIES.iter().filter(|family| !family.is_for_tests()) {
        if family.of.title() != title {
            title = family.of.title();
            text.push_str(&format!("\n### {title}\n\n"));
            let labels = family.of.labels();
            if !labels.is_empty() {
                let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
                text.push_str(&format!("Labels: {}.\n\n", labels.join(", ")));
            }
        }
        text.push_str(&row(family));
    }
    text.push('\n');
    text
}

fn row(family: &Family) -> String {
    let more: Vec<String> = family
        .more
        .iter()
        .map(|label| format!("`{label}`"))
        .collect();
    let more = match more.as_slice() {
        [] => String::new(),
        labels => format!(" Also labelled {}.", labels.join(", ")),
    };
    let Family { name, help, .. } = family;
    format!("* `{name}`: {help}.{more}\n")
}

/// `page` with the list between [`BEGIN`] and [`END`] replaced by what it should be; none if it has no such lines.
pub fn replace(page: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{}{END}{after}", list()))
}
