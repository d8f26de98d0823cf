// SPDX-License-Identifier: GPL-2.0-only

//! Generator of the list of all families in `Documentation/metrics.md`.

use super::encode::MetricKind;
use super::families::FAMILIES;

/// Formats `names` as code in Markdown.
fn code(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

/// Returns the list as Markdown.
pub fn list() -> String {
    let summaries = FAMILIES
        .iter()
        .filter(|one| one.kind == MetricKind::Summary);
    let summaries: Vec<&str> = summaries.map(|one| one.name).collect();
    let mut text = format!(
        "\nNames ending in `_total` are counters, {} is a summary; all other names are gauges.\n",
        code(&summaries)
    );
    let mut title = "";
    for family in FAMILIES.iter().filter(|family| !family.is_for_tests()) {
        if family.of.title() != title {
            title = family.of.title();
            text += &format!("\n### {title}\n\n");
            let labels = family.of.labels();
            if !labels.is_empty() {
                text += &format!("Labels: {}.\n\n", code(labels));
            }
        }
        text += &format!("* `{}`: {}.", family.name, family.help);
        let more: Vec<&str> = family.more().collect();
        if !more.is_empty() {
            text += &format!(" Also labelled {}.", code(&more));
        }
        text.push('\n');
    }
    text
}
