// SPDX-License-Identifier: GPL-2.0-only

//! `Documentation/grafana-nrs.json` is a dashboard that asks for metrics that there are.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use nrsctl::exporter::families::{Family, FAMILIES};
use serde_json::{json, Value};

/// Columns of a dashboard.
const COLUMNS: u64 = 24;

fn dashboard() -> Value {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../Documentation/grafana-nrs.json");
    let text = fs::read_to_string(path).expect("a dashboard");
    serde_json::from_str(&text).expect("JSON")
}

/// The values of an array.
fn all(value: &Value) -> &[Value] {
    value.as_array().expect("an array")
}

/// A text that is not empty.
fn text(value: &Value) -> &str {
    let text = value.as_str().filter(|text| !text.is_empty());
    text.expect("a text")
}

/// The panels that are not rows.
fn graphs(dashboard: &Value) -> impl Iterator<Item = &Value> {
    let panels = all(&dashboard["panels"]).iter();
    panels.filter(|panel| panel["type"] != "row")
}

/// The metrics that an expression names, each with the labels that it asks for there.
fn metrics(expr: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for (place, _) in expr.match_indices("nrs_") {
        if expr[..place].ends_with(word) {
            continue;
        }
        let rest = &expr[place..];
        let end = rest.find(|c: char| !word(c)).unwrap_or(rest.len());
        let labels = rest[end..]
            .strip_prefix('{')
            .and_then(|inside| inside.split_once('}'))
            .map_or("", |pair| pair.0);
        let labels = labels.split(',').filter(|label| !label.is_empty());
        let labels = labels.map(|label| label.chars().take_while(|c| word(*c)).collect());
        found.push((rest[..end].to_string(), labels.collect()));
    }
    found
}

fn family(name: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.name == name)
}

/// The family that a variable takes its values from.
fn family_of_values(query: &str) -> Option<&'static Family> {
    let inside = query.strip_prefix("label_values(")?.strip_suffix(')')?;
    let (name, label) = inside.split_once(", ")?;
    family(name).filter(|family| family.of.labels().contains(&label))
}

/// Wherever it is imported, the data source is asked for.
#[test]
fn its_data_source_is_a_variable() {
    let dashboard = dashboard();
    let variables = all(&dashboard["templating"]["list"]);
    let named = variables
        .iter()
        .map(|v| (text(&v["name"]), text(&v["type"])));
    let named: Vec<_> = named.collect();
    assert_eq!(named, [("datasource", "datasource"), ("service", "query")]);
    assert_eq!(variables[0]["query"], "prometheus");
    assert!(family_of_values(text(&variables[1]["query"]["query"])).is_some());
    let source = json!({ "type": "prometheus", "uid": "${datasource}" });
    assert_eq!(variables[1]["datasource"], source);
    for graph in graphs(&dashboard) {
        assert_eq!(graph["datasource"], source, "{}", graph["title"]);
        for target in all(&graph["targets"]) {
            assert_eq!(target["datasource"], source, "{}", graph["title"]);
        }
    }
}

#[test]
fn panels_have_their_places() {
    let dashboard = dashboard();
    let panels = all(&dashboard["panels"]);
    let mut ids = HashSet::new();
    let mut cells = HashSet::new();
    for panel in panels {
        let title = text(&panel["title"]);
        assert!(ids.insert(panel["id"].as_u64()), "{title}: an id twice");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
        assert!(w > 0 && h > 0 && x + w <= COLUMNS, "{title}");
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(cells.insert(cell), "{title} is over another");
        }
    }
}

#[test]
fn expressions_ask_for_what_there_is() {
    let dashboard = dashboard();
    let mut asked = HashSet::new();
    for graph in graphs(&dashboard) {
        let title = &graph["title"];
        text(&graph["description"]);
        text(&graph["fieldConfig"]["defaults"]["unit"]);
        assert!(!all(&graph["targets"]).is_empty());
        let mut refs = HashSet::new();
        for target in all(&graph["targets"]) {
            assert!(refs.insert(text(&target["refId"])), "{title}: twice");
            text(&target["legendFormat"]);
            let expr = text(&target["expr"]);
            let open = expr.matches('(').count();
            assert_eq!(open, expr.matches(')').count(), "{expr}");
            let metrics = metrics(expr);
            assert!(!metrics.is_empty(), "{expr}");
            for (name, labels) in metrics {
                let family = family(&name).unwrap_or_else(|| panic!("{title}: no metric {name}"));
                for label in labels {
                    let known = family.of.labels().contains(&label.as_str())
                        || family.more.contains(&label.as_str());
                    assert!(known, "{title}: {name} has no label {label}");
                }
                // Counters are asked for as rates, and nothing else is.
                let counter = name.ends_with("_total");
                let rate = expr.contains(&format!("rate({name}"))
                    || expr.contains(&format!("increase({name}"));
                assert_eq!(counter, rate, "{expr}");
                asked.insert(name);
            }
        }
    }
    for name in [
        "nrs_entity_share_ratio",
        "nrs_entity_served_bytes_total",
        "nrs_entity_wait_seconds",
        "nrs_rule_limit_hits_total",
        "nrs_service_slots_used",
        "nrs_timeout_requests_total",
        "nrs_service_healthy",
    ] {
        assert!(asked.contains(name), "nothing shows {name}");
    }
}

#[test]
fn what_is_wrong_would_be_found() {
    assert_eq!(
        metrics("rate(nrs_a_total{service=~\"$s\",x=\"1\"}[5m]) / xnrs_b + nrs_c"),
        [
            (
                "nrs_a_total".to_string(),
                vec!["service".to_string(), "x".to_string()]
            ),
            ("nrs_c".to_string(), Vec::new()),
        ]
    );
    assert!(family("nrs_missing").is_none());
}
