// SPDX-License-Identifier: GPL-2.0-only

//! A strict reader of Prometheus' text format, of as much of it as pages here have: gauges, counters, summaries.

use std::collections::HashSet;

/// A sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its name.
    pub name: String,
    /// Its labels, in their order.
    pub labels: Vec<(String, String)>,
    /// Its value.
    pub value: f64,
}

impl Sample {
    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        let label = self.labels.iter().find(|(label, _)| label == name);
        label.map(|(_, value)| value.as_str())
    }
}

/// A page.
#[derive(Debug, Default)]
pub struct Page {
    samples: Vec<Sample>,
}

/// The family that is being read.
#[derive(Debug, Default)]
struct Family {
    name: String,
    kind: Option<String>,
    samples: usize,
}

impl Page {
    /// All samples.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter()
    }

    /// The value of the sample that has this name and exactly these labels, in any order.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let same = |sample: &&Sample| {
            let has = |(label, value): &(&str, &str)| sample.label(label) == Some(value);
            sample.name == name && sample.labels.len() == labels.len() && labels.iter().all(has)
        };
        let mut found = self.samples.iter().filter(same);
        let value = found.next().map(|sample| sample.value);
        assert!(found.next().is_none(), "{name} {labels:?} twice");
        value
    }

    /// Reads `text`, all of it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !text.is_empty() && !text.ends_with('\n') {
            return Err("the last line has no end".into());
        }
        let mut page = Self::default();
        let mut names = HashSet::new();
        let mut series = HashSet::new();
        let mut family = Family::default();
        for (number, line) in (1..).zip(text.lines()) {
            let wrong = |what: &str| Err(format!("line {number}: {what}: {line}"));
            if let Some(comment) = line.strip_prefix("# ") {
                let mut words = comment.splitn(3, ' ');
                let (Some(word), Some(name), text) =
                    (words.next(), words.next(), words.next().unwrap_or_default())
                else {
                    return wrong("no name");
                };
                match word {
                    // It comes first here.
                    "HELP" => {
                        if !names.insert(name.to_string()) {
                            return wrong("the family was there before");
                        }
                        if family.samples == 0 && !family.name.is_empty() {
                            return wrong("the family before has no samples");
                        }
                        if text.is_empty() {
                            return wrong("no help");
                        }
                        family = Family {
                            name: name.into(),
                            ..Family::default()
                        };
                    }
                    "TYPE" if name != family.name || family.samples > 0 => {
                        return wrong("not of this family")
                    }
                    "TYPE" if family.kind.is_some() => return wrong("a second type"),
                    "TYPE" if !matches!(text, "gauge" | "counter" | "summary") => {
                        return wrong("no such type")
                    }
                    "TYPE" => family.kind = Some(text.into()),
                    _ => return wrong("no such word"),
                }
                continue;
            }
            let sample = match sample(line) {
                Ok(sample) => sample,
                Err(what) => return wrong(what),
            };
            let Some(kind) = family.kind.as_deref() else {
                return wrong("no type");
            };
            if sample.name != family.name {
                return wrong("not of the family before it");
            }
            if (kind == "counter") != sample.name.ends_with("_total") {
                return wrong("the names of counters, and only they, end in _total");
            }
            if kind == "counter" && (sample.value.is_nan() || sample.value < 0.0) {
                return wrong("a counter below zero");
            }
            if sample.name.ends_with("_info") && sample.value != 1.0 {
                return wrong("an information is 1");
            }
            if (kind == "summary") != sample.label("quantile").is_some() {
                return wrong("summaries, and only they, have quantiles");
            }
            let mut labels = sample.labels.clone();
            labels.sort();
            if labels.windows(2).any(|pair| pair[0].0 == pair[1].0) {
                return wrong("a label twice");
            }
            if !series.insert((sample.name.clone(), labels)) {
                return wrong("the same sample twice");
            }
            family.samples += 1;
            page.samples.push(sample);
        }
        Ok(page)
    }
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes
        .next()
        .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Reads `NAME{LABEL="VALUE",...} VALUE`.
fn sample(line: &str) -> Result<Sample, &'static str> {
    let end = line.find(['{', ' ']).ok_or("no value")?;
    let (name, mut rest) = line.split_at(end);
    if !is_name(name) {
        return Err("no name");
    }
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, value) = rest.split_once("=\"").ok_or("no label")?;
            if !is_name(label) {
                return Err("no name of a label");
            }
            let mut text = String::new();
            let mut chars = value.char_indices();
            let end = loop {
                match chars.next() {
                    Some((place, '"')) => break place,
                    Some((_, '\\')) => text.push(match chars.next() {
                        Some((_, 'n')) => '\n',
                        Some((_, char @ ('"' | '\\'))) => char,
                        _ => return Err("no such escape"),
                    }),
                    Some((_, char)) => text.push(char),
                    None => return Err("no end of a label"),
                }
            };
            if text.is_empty() {
                return Err("an empty label");
            }
            labels.push((label.to_string(), text));
            rest = &value[end + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').ok_or("no end of the labels")?;
    }
    let value = rest.strip_prefix(' ').ok_or("no blank before the value")?;
    let known = matches!(value, "NaN" | "+Inf" | "-Inf");
    let digits = value
        .bytes()
        .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+' | b'e'));
    let value = value
        .parse()
        .ok()
        .filter(|_| known || digits)
        .ok_or("no value")?;
    Ok(Sample {
        name: name.into(),
        labels,
        value,
    })
}

#[test]
fn what_is_wrong_is_found() {
    let good = "# HELP a_total About.\n# TYPE a_total counter\na_total{l=\"x\\n\"} 1.5\n";
    assert!(Page::parse(good).is_ok());
    for (from, to) in [
        ("1.5\n", "1.5"),
        (" About.", ""),
        ("# HELP a_total About.\n", ""),
        ("# TYPE a_total counter\n", ""),
        ("TYPE a_total", "TYPE b_total"),
        ("# TYPE", "# TYPE a_total counter\n# TYPE"),
        ("_total{", "{"),
        ("} 1.5", "} -1"),
        ("} 1.5", "} x"),
        ("} 1.5", "}  1"),
        ("\\n", "\\q"),
        ("{l=", "{l=\"y\",l="),
        ("1.5\n", "1.5\n# HELP a_total About.\n"),
        ("1.5\n", "1.5\na_total{l=\"x\\n\"} 2\n"),
        ("1.5\n", "1.5\nb 2\n"),
        ("counter", "number"),
        ("counter", "gauge"),
        ("{l=\"x\\n\"}", "{}"),
        ("{l=\"x\\n\"}", "{quantile=\"1\"}"),
    ] {
        let bad = good.replacen(from, to, 1);
        assert!(Page::parse(&bad).is_err(), "{bad}");
    }
}
