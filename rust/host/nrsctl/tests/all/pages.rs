// SPDX-License-Identifier: GPL-2.0-only

//! Tests of files that are generated from tables in the code or refer to these tables.
//!
//! With `NRSCTL_WRITE_PAGES` in the environment, the tests write the files instead of comparing
//! them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use clap::Parser as _;
use nrsctl::cli::Cli;
use nrsctl::configuration::keys;
use nrsctl::exporter::families::FAMILIES;
use nrsctl::exporter::family::Family;
use nrsctl::exporter::reference;
use nrsctl::mock::Mock;
use nrsctl::reference::page;
use serde_json::Value;

use crate::texts;

/// Returns the path of a file of the project.
pub fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../..")
        .join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Compares the file `name` with `want`.
pub fn compare(name: &str, want: &str) {
    if std::env::var_os("NRSCTL_WRITE_PAGES").is_some() {
        return fs::write(path(name), want).expect("written");
    }
    let kept = read(name);
    let differs = kept
        .lines()
        .zip(want.lines())
        .find(|(kept, want)| kept != want);
    let hint = "NRSCTL_WRITE_PAGES=1 cargo test -p nrsctl --test all";
    assert!(
        kept == want,
        "{name} differs: {differs:#?}; regenerate with: {hint}"
    );
}

#[test]
fn generated() {
    compare("Documentation/reference.md", &page());
    for (page, mark, text) in [
        ("Documentation/metrics.md", "metrics", reference::list()),
        ("Documentation/configuration.md", "keys", keys::reference()),
        (
            "Documentation/agent.md",
            "keys",
            nrs_agent::config::reference(),
        ),
    ] {
        let (begin, end) = (
            format!("<!-- {mark} -->"),
            format!("<!-- end of {mark} -->"),
        );
        let kept = read(page);
        let (before, rest) = kept.split_once(&begin).expect("a mark");
        let (_, after) = rest.split_once(&end).expect("a mark");
        compare(page, &format!("{before}{begin}\n{text}\n{end}{after}"));
    }
    let snapshots = ["fairshare", "tbf", "qbm"].map(|policy| {
        let snapshot = serde_json::to_string(&texts::snapshot(policy)).expect("JSON");
        snapshot.replacen("\"svc\"", &format!("\"{policy}\""), 1)
    });
    let snapshots = format!("[\n{}\n]\n", snapshots.join(",\n"));
    compare("rust/host/nrsctl/tests/snapshots.json", &snapshots);
    let recording = path("rust/host/nrsctl/tests/recording.jsonl");
    let cli = Cli::parse_from(["nrsctl", "plot", recording.to_str().expect("a path")]);
    let mut drawn = Vec::new();
    cli.command
        .run(&Mock::with(&[]), &mut drawn)
        .expect("a picture");
    compare(
        "Documentation/plot.svg",
        &String::from_utf8(drawn).expect("text"),
    );
}

/// Returns the metrics in an expression, each with its labels.
fn metrics(expr: &str) -> Vec<(&str, Vec<&str>)> {
    let mut found = Vec::new();
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for (place, _) in expr.match_indices("nrs_") {
        let (before, rest) = expr.split_at(place);
        if !before.ends_with(word) {
            let (name, rest) = rest.split_at(rest.find(|c| !word(c)).unwrap_or(rest.len()));
            let labels = rest
                .strip_prefix('{')
                .and_then(|labels| labels.split_once('}'));
            let labels = labels.map_or("", |(labels, _)| labels).split(',');
            let labels = labels.filter_map(|label| Some(label.split_once(['=', '!'])?.0));
            found.push((name, labels.collect()));
        }
    }
    found
}

/// Verifies that the dashboard uses existing metrics and labels, and counters only as rates.
#[test]
fn dashboard() {
    let printed = Command::new(path("scripts/grafana.py")).output();
    let printed = printed.expect("a dashboard").stdout;
    let dashboard: Value = serde_json::from_slice(&printed).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    let targets = panels
        .filter_map(|panel| panel["targets"].as_array())
        .flatten();
    let mut asked = Vec::new();
    for target in targets {
        let expr = target["expr"].as_str().expect("an expression");
        assert!(!metrics(expr).is_empty(), "{expr}");
        for (name, labels) in metrics(expr) {
            let family = FAMILIES.iter().find(|family| family.name == name);
            let family: &Family = family.unwrap_or_else(|| panic!("no metric {name}: {expr}"));
            for label in labels {
                let mut known = family.of.labels().iter().copied().chain(family.more());
                assert!(
                    known.any(|known| known == label),
                    "{name} has no label {label}"
                );
            }
            let is_rate = |rate: &str| expr.contains(&format!("{rate}({name}"));
            let rate = is_rate("rate") || is_rate("increase");
            assert_eq!(name.ends_with("_total"), rate, "{expr}");
            asked.push(name.to_owned());
        }
    }
    assert!(asked.len() > 20 && asked.contains(&"nrs_entity_share_ratio".to_owned()));
}
