// SPDX-License-Identifier: GPL-2.0-only

//! `Documentation/grafana-nrs.json` is a dashboard that Grafana takes, and asks for metrics that there are.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::PathBuf;

use nrsctl::exporter::families::{Family, FAMILIES};
use serde::Deserialize;
use serde_json::Value;

/// Columns of a dashboard.
const COLUMNS: u32 = 24;

/// A dashboard, as Grafana's schema has it; what is missing is an error.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Dashboard {
    title: String,
    uid: String,
    schema_version: u32,
    version: u32,
    tags: Vec<String>,
    time: BTreeMap<String, String>,
    templating: Templating,
    panels: Vec<Panel>,
}

#[derive(Debug, Deserialize)]
struct Templating {
    list: Vec<Variable>,
}

#[derive(Debug, Deserialize)]
struct Variable {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    query: Value,
    #[serde(default)]
    datasource: Option<Datasource>,
}

#[derive(Debug, Deserialize, PartialEq)]
struct Datasource {
    #[serde(rename = "type")]
    kind: String,
    uid: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Panel {
    id: u32,
    #[serde(rename = "type")]
    kind: String,
    title: String,
    grid_pos: Grid,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// What a panel has that is not a row.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Graph {
    description: String,
    datasource: Datasource,
    field_config: FieldConfig,
    #[serde(rename = "options")]
    _options: BTreeMap<String, Value>,
    targets: Vec<Target>,
}

#[derive(Debug, Deserialize)]
struct FieldConfig {
    defaults: Defaults,
    #[serde(rename = "overrides")]
    _overrides: Vec<Value>,
}

#[derive(Debug, Deserialize)]
struct Defaults {
    unit: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Grid {
    x: u32,
    y: u32,
    w: u32,
    h: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Target {
    datasource: Datasource,
    expr: String,
    legend_format: String,
    ref_id: String,
}

impl Grid {
    fn overlaps(self, other: Self) -> bool {
        let apart = |a: u32, length: u32, b: u32| a + length <= b;
        !(apart(self.x, self.w, other.x)
            || apart(other.x, other.w, self.x)
            || apart(self.y, self.h, other.y)
            || apart(other.y, other.h, self.y))
    }
}

fn dashboard() -> Dashboard {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../Documentation/grafana-nrs.json");
    let text = fs::read_to_string(path).expect("a dashboard");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}"))
}

fn graphs(dashboard: &Dashboard) -> impl Iterator<Item = (&Panel, Graph)> {
    let shown = dashboard.panels.iter().filter(|panel| panel.kind != "row");
    shown.map(|panel| {
        let rest = Value::Object(panel.rest.clone().into_iter().collect());
        let graph = serde_json::from_value(rest);
        (
            panel,
            graph.unwrap_or_else(|error| panic!("{}: {error}", panel.title)),
        )
    })
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

#[test]
fn it_is_a_dashboard() {
    let dashboard = dashboard();
    assert_eq!(
        (dashboard.title.as_str(), dashboard.uid.as_str()),
        ("nrs", "nrs")
    );
    assert!(dashboard.schema_version >= 39 && dashboard.version >= 1);
    assert!(!dashboard.tags.is_empty());
    assert!(dashboard.time.contains_key("from") && dashboard.time.contains_key("to"));
    let kinds: HashSet<&str> = dashboard
        .panels
        .iter()
        .map(|panel| panel.kind.as_str())
        .collect();
    assert!(
        kinds.is_subset(&HashSet::from(["row", "stat", "timeseries"])),
        "{kinds:?}"
    );
    // Wherever it is imported, the data source is asked for.
    let variables = &dashboard.templating.list;
    let names: Vec<(&str, &str)> = variables
        .iter()
        .map(|v| (v.name.as_str(), v.kind.as_str()))
        .collect();
    assert_eq!(names, [("datasource", "datasource"), ("service", "query")]);
    assert_eq!(variables[0].query, "prometheus");
    assert!(variables[1].query["query"]
        .as_str()
        .is_some_and(|query| family_of_values(query).is_some()));
    let source = Datasource {
        kind: "prometheus".into(),
        uid: "${datasource}".into(),
    };
    assert_eq!(variables[1].datasource.as_ref(), Some(&source));
    for (panel, graph) in graphs(&dashboard) {
        assert_eq!(graph.datasource, source, "{}", panel.title);
        assert!(
            graph
                .targets
                .iter()
                .all(|target| target.datasource == source),
            "{}",
            panel.title
        );
    }
}

/// The family that a variable takes its values from.
fn family_of_values(query: &str) -> Option<&'static Family> {
    let inside = query.strip_prefix("label_values(")?.strip_suffix(')')?;
    let (name, label) = inside.split_once(", ")?;
    family(name).filter(|family| family.of.labels().contains(&label))
}

#[test]
fn panels_have_their_places() {
    let dashboard = dashboard();
    let mut ids = HashSet::new();
    for (index, panel) in dashboard.panels.iter().enumerate() {
        assert!(panel.id > 0 && ids.insert(panel.id), "{} twice", panel.id);
        assert!(!panel.title.is_empty());
        let grid = panel.grid_pos;
        assert!(
            grid.w > 0 && grid.h > 0 && grid.x + grid.w <= COLUMNS,
            "{}: {grid:?}",
            panel.title
        );
        for other in &dashboard.panels[index + 1..] {
            assert!(
                !grid.overlaps(other.grid_pos),
                "{} and {}",
                panel.title,
                other.title
            );
        }
    }
}

#[test]
fn expressions_ask_for_what_there_is() {
    let dashboard = dashboard();
    let mut asked = HashSet::new();
    for (panel, graph) in graphs(&dashboard) {
        let mut refs = HashSet::new();
        assert!(
            !graph.targets.is_empty()
                && !graph.description.is_empty()
                && !graph.field_config.defaults.unit.is_empty()
        );
        for target in &graph.targets {
            assert!(
                refs.insert(&target.ref_id),
                "{}: {} twice",
                panel.title,
                target.ref_id
            );
            assert!(!target.legend_format.is_empty());
            let open = target.expr.matches('(').count();
            assert_eq!(open, target.expr.matches(')').count(), "{}", target.expr);
            let metrics = metrics(&target.expr);
            assert!(!metrics.is_empty(), "{}", target.expr);
            for (name, labels) in metrics {
                let family =
                    family(&name).unwrap_or_else(|| panic!("{}: no metric {name}", panel.title));
                for label in labels {
                    let known = family.of.labels().contains(&label.as_str())
                        || family.more.contains(&label.as_str());
                    assert!(known, "{}: {name} has no label {label}", panel.title);
                }
                // Counters are asked for as rates, and nothing else is.
                let counter = name.ends_with("_total");
                let rate = target.expr.contains(&format!("rate({name}"))
                    || target.expr.contains(&format!("increase({name}"));
                assert_eq!(counter, rate, "{}", target.expr);
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
    let at = |x, y| Grid { x, y, w: 12, h: 8 };
    assert!(
        at(0, 0).overlaps(at(11, 7))
            && !at(0, 0).overlaps(at(12, 0))
            && !at(0, 0).overlaps(at(0, 8))
    );
}
