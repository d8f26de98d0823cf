// SPDX-License-Identifier: GPL-2.0-only

//! Conversion of a state to a configuration without defaults.

use std::collections::BTreeMap;

use nrs_sched::rules::{Name, Rate, Rule, RuleLimits, RuleList};

use super::bandwidth;
use super::devices;
use super::keys::Table;
use super::state::{ServiceState, HEADS};
use crate::items::{ItemList, LIMITS, OWNERS, WEIGHTS};
use crate::kernel::Device;

/// Returns `text` as a TOML string.
pub fn quote(text: &str) -> String {
    let plain = |c: char| c != '\\' && c != '"' && !c.is_control();
    if text.chars().all(plain) {
        return format!("\"{text}\"");
    }
    if !text.contains('\'') && !text.chars().any(char::is_control) {
        return format!("'{text}'");
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out + "\""
}

/// Returns `text` as a number if it is one, else as a string.
pub fn value(text: &str) -> String {
    match text.parse::<u32>() {
        Ok(number) if number.to_string() == text => text.to_string(),
        _ => quote(text),
    }
}

/// Returns a name as a part of a key path.
fn part(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match name.chars().all(bare) {
        true => name.to_string(),
        false => quote(name),
    }
}

/// Renders the service `name` in `state`; `slots` is the value that is omitted.
pub fn service(name: &str, state: &ServiceState, slots: &str) -> String {
    let path = format!("service.{}", part(name));
    let mut out = format!("[{path}]\n");
    if let Some(cpts) = state.cpts {
        out.push_str(&format!("cpts = {cpts}\n"));
    }
    if let Some(given) = state.slots.as_ref().filter(|given| *given != slots) {
        out.push_str(&format!("slots = {}\n", value(given)));
    }
    let mut tables: BTreeMap<&str, Vec<(&str, String)>> = BTreeMap::new();
    for (name, values) in state.settings() {
        let (table, key) = table_and_key(name);
        let value = match &values[..] {
            [regular, high] if regular != high => {
                format!("{{ reg = {}, hp = {} }}", value(regular), value(high))
            }
            values => value(values.first().map_or("", String::as_str)),
        };
        tables.entry(table).or_default().push((key, value));
    }
    let mut lines = |table: &str| tables.remove(table).unwrap_or_default();
    let [regular, high] = state.policies();
    out.push_str(&format!("policy = {}\n", quote(&regular)));
    let mut of_high = lines("high_priority");
    if high != regular {
        of_high.insert(0, ("policy", quote(&high)));
    }
    let weights = items(&state.weights, &WEIGHTS, str::to_owned);
    let limits = items(&state.limits, &LIMITS, quote);
    let owners = items(&state.owners, &OWNERS, quote);
    for (table, lines) in [
        ("high_priority", of_high),
        ("parameters", lines("parameters")),
        ("timeouts", lines("timeouts")),
        ("weights", weights),
        ("limits", limits),
        ("owners", owners),
    ] {
        if !lines.is_empty() {
            out.push_str(&format!("\n[{path}.{table}]\n"));
        }
        for (key, value) in lines {
            out.push_str(&format!("{} = {value}\n", part(key)));
        }
    }
    let plain = Rate::parse(&state.rate()).map(RuleLimits::new);
    let of_head = |list: Option<&RuleList>, head| {
        let rules = list.into_iter().flat_map(|list| {
            let rules = list.rules().filter(|rule| rule.name != Name::DEFAULT);
            let default = list.get(&Name::DEFAULT);
            let default = default.filter(|rule| Some(rule.limits) != plain);
            rules.chain(default).map(move |rule| (list, rule))
        });
        let rules = rules.map(|(list, rule)| of_rule(&path, list, rule, head));
        rules.collect::<String>()
    };
    let [regular, high] = state.rules();
    let (one, other) = (of_head(regular, None), of_head(high, None));
    out.push_str(&match (regular, high) {
        (Some(_), Some(_)) if one != other => {
            of_head(regular, Some(HEADS[0])) + &of_head(high, Some(HEADS[1]))
        }
        (None, _) => other,
        _ => one,
    });
    if !state.plan.is_empty() {
        out.push_str(&bandwidth::render(&path, &state.plan));
    }
    out
}

/// Returns the table of a parameter, and its key there.
fn table_and_key(name: &str) -> (&str, &str) {
    match name {
        "high_priority_ratio" => ("high_priority", "ratio"),
        "high_priority_sources" => ("high_priority", "sources"),
        "obd_timeout" => ("timeouts", name),
        _ if name.starts_with("at_") => ("timeouts", name),
        _ => ("parameters", name),
    }
}

/// Renders `rule` of `list`, with its head if it must be given.
fn of_rule(path: &str, list: &RuleList, rule: &Rule, head: Option<&str>) -> String {
    let limits = &rule.limits;
    let mut out = format!("\n[[{path}.rule]]\nname = {}\n", quote(rule.name.as_str()));
    let mut line = |key: &str, value: String| out.push_str(&format!("{key} = {value}\n"));
    if let Some(head) = head {
        line("head", quote(head));
    }
    if rule.name != Name::DEFAULT {
        line("match", quote(rule.conditions.as_str()));
    }
    line("rate", value(&limits.rate.to_string()));
    if let Some(minrate) = &limits.minrate {
        line("minrate", value(&minrate.to_string()));
    }
    if let Some(burst) = &limits.burst {
        line("burst", value(&burst.to_string()));
    }
    for (key, set) in [("realtime", limits.realtime), ("borrow", limits.borrow)] {
        if set {
            line(key, "true".into());
        }
    }
    let also = limits.also.ids().iter();
    let also = also.filter_map(|id| list.rules().find(|rule| rule.id == *id));
    let also: Vec<String> = also.map(|rule| quote(rule.name.as_str())).collect();
    if !also.is_empty() {
        line("also", format!("[{}]", also.join(", ")));
    }
    out
}

/// Returns the keys of a device or disk with their values, without defaults.
pub fn keys(device: &Device) -> Vec<(&str, String)> {
    let mut keys = Vec::new();
    if !device.scheduled {
        keys.push(("device", quote(&device.target)));
    }
    keys.push(("service", quote(&device.service)));
    for (name, sectors) in [("offset", device.offset), ("sectors", device.sectors)] {
        if !device.scheduled && sectors != 0 {
            keys.push((name, sectors.to_string()));
        }
    }
    let options = device.options.iter();
    let options = options.filter(|(name, value)| !devices::is_default(name, value));
    keys.extend(options.map(|(name, text)| match &name[..] {
        "size" => ("size", value(text)),
        name => (name, quote(text)),
    }));
    keys
}

/// Renders a device or disk as a section.
pub fn device(device: &Device) -> String {
    let mut out = format!("[{}.{}]\n", Table::of(device).key(), part(&device.name));
    for (key, value) in keys(device) {
        out.push_str(&format!("{key} = {value}\n"));
    }
    out
}

/// Renders the parameters of the module that differ from their defaults.
pub fn module(values: &BTreeMap<&'static str, String>) -> String {
    let default = |name: &str| {
        let found = super::keys::MODULE
            .iter()
            .find(|(other, ..)| *other == name);
        found.map(|(.., default)| *default)
    };
    let changed = values
        .iter()
        .filter(|(name, value)| default(name) != Some(value.as_str()));
    let lines: Vec<String> = changed
        .map(|(name, value)| format!("{name} = {value}\n"))
        .collect();
    match lines.is_empty() {
        true => String::new(),
        false => format!("[module]\n{}", lines.concat()),
    }
}

/// Returns the names of the items of `list` in `text`, one per line, and their values by `shown`.
fn items<'a>(
    text: &'a str,
    list: &ItemList,
    shown: impl Fn(&str) -> String,
) -> Vec<(&'a str, String)> {
    let items = text.lines().filter_map(|line| list.split(line));
    items.map(|(name, value)| (name, shown(value))).collect()
}
