// SPDX-License-Identifier: GPL-2.0-only

//! Parser of Prometheus' text format for tests. It rejects pages that a scrape would reject;
//! `tests/exporter.sh` checks the rest with promtool.

use std::collections::{BTreeMap, HashMap};

/// Name and labels of a sample.
type SampleName = (String, BTreeMap<String, String>);

/// A parsed page.
#[derive(Debug, Default)]
pub struct Page(HashMap<SampleName, f64>);

impl Page {
    /// Returns all samples.
    pub fn samples(&self) -> impl Iterator<Item = &SampleName> {
        self.0.keys()
    }

    /// Returns the value of the sample with this name and exactly these labels, in any order.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels = labels.iter().map(|(l, v)| (l.to_string(), v.to_string()));
        self.0.get(&(name.into(), labels.collect())).copied()
    }

    /// Parses all of `text`: each family has a help text, a type, and then samples without
    /// duplicates.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut page = Self::default();
        let mut kinds: HashMap<&str, &str> = HashMap::new();
        let mut family = "";
        for line in text.lines() {
            let wrong = |what: &str| format!("{what}: {line}");
            if let Some(help) = line.strip_prefix("# HELP ") {
                (family, _) = help.split_once(' ').ok_or(wrong("no help"))?;
                if kinds.insert(family, "").is_some() {
                    return Err(wrong("a family twice"));
                }
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').ok_or(wrong("no type"))?;
                if name != family || kinds.insert(family, kind) != Some("") {
                    return Err(wrong("a type of another family, or a second one"));
                }
            } else {
                let (name, labels, value) = sample(line).ok_or(wrong("no sample"))?;
                let kind = kinds.get(name).copied().unwrap_or_default();
                let counter = name.ends_with("_total");
                if name != family || kind.is_empty() || counter != (kind == "counter") {
                    return Err(wrong("not of the family before it"));
                }
                if page.0.insert((name.into(), labels), value).is_some() {
                    return Err(wrong("a sample twice"));
                }
            }
        }
        match text.is_empty() || text.ends_with('\n') {
            true => Ok(page),
            false => Err("the last line has no end".into()),
        }
    }
}

/// Parses a line `NAME{LABEL="VALUE",...} VALUE`.
fn sample(line: &str) -> Option<(&str, BTreeMap<String, String>, f64)> {
    let (name, mut rest) = line.split_at(line.find(['{', ' '])?);
    let mut labels = BTreeMap::new();
    while !rest.starts_with([' ', '}']) {
        let (label, value) = rest.get(1..)?.split_once("=\"")?;
        let mut text = String::new();
        let mut chars = value.char_indices();
        let end = loop {
            match chars.next()? {
                (at, '"') => break at,
                (_, '\\') => text.push(match chars.next()?.1 {
                    'n' => '\n',
                    special @ ('"' | '\\') => special,
                    _ => return None,
                }),
                (_, c) => text.push(c),
            }
        };
        let old = labels.insert(label.to_string(), text);
        old.is_none().then_some(())?;
        rest = &value[end + 1..];
    }
    let value = rest.trim_start_matches('}').strip_prefix(' ')?;
    Some((name, labels, value.parse().ok()?))
}

#[test]
fn what_is_wrong_is_found() {
    let good = "# HELP a_total About.\n# TYPE a_total counter\na_total{l=\"x\\n\",m=\"\"} 1.5\n";
    let labels = [("l", "x\n"), ("m", "")];
    assert_eq!(
        Page::parse(good).unwrap().value("a_total", &labels),
        Some(1.5)
    );
    for (from, to) in [
        ("1.5\n", "1.5"),
        ("# HELP a_total About.\n", ""),
        ("# TYPE a_total counter\n", ""),
        ("TYPE a_total", "TYPE b_total"),
        ("_total{", "{"),
        ("} 1.5", "} x"),
        ("\\n", "\\q"),
        ("{l=", "{m=\"y\",l="),
        ("1.5\n", "1.5\na_total{m=\"\",l=\"x\\n\"} 2\n"),
        ("1.5\n", "1.5\nb 2\n"),
        ("counter", "gauge"),
    ] {
        let bad = good.replacen(from, to, 1);
        assert!(Page::parse(&bad).is_err(), "{bad}");
    }
}
