// SPDX-License-Identifier: GPL-2.0-only

//! Conversion of a state to a configuration without defaults.

use std::collections::BTreeMap;

use super::bandwidth;
use super::devices;
use super::document::{quote, value};
use super::keys::Table;
use super::rules::{ConfiguredRule, Limits, Rules, DEFAULT};
use super::state::{ServiceState, Setting, HEADS};
use super::weights;
use crate::kernel::Device;

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
    let defaults = ServiceState::new().settings;
    let changed = |(name, setting): &(&&'static str, &Setting)| match **name {
        "slots" => **setting != Setting::One(slots.to_string()),
        name => defaults.get(name) != Some(*setting),
    };
    let mut tables: BTreeMap<&str, Vec<(&str, String)>> = BTreeMap::new();
    for (name, setting) in state.settings.iter().filter(changed) {
        let (table, key) = place(name);
        tables
            .entry(table)
            .or_default()
            .push((key, of_setting(setting)));
    }
    let mut lines = |table: &str| tables.remove(table).unwrap_or_default();
    for (key, value) in lines("") {
        out.push_str(&format!("{key} = {value}\n"));
    }
    let [regular, high] = &state.policies;
    out.push_str(&format!("policy = {}\n", quote(&regular.to_string())));
    let mut of_high = lines("high_priority");
    if high != regular {
        of_high.insert(0, ("policy", quote(&high.to_string())));
    }
    for (table, lines) in [
        ("high_priority", of_high),
        ("parameters", lines("parameters")),
        ("timeouts", lines("timeouts")),
        ("weights", of_weights(&state.weights)),
    ] {
        if !lines.is_empty() {
            out.push_str(&format!("\n[{path}.{table}]\n"));
        }
        for (key, value) in lines {
            out.push_str(&format!("{} = {value}\n", part(key)));
        }
    }
    out.push_str(&of_rules(&path, state));
    if !state.plan.is_empty() {
        out.push_str(&bandwidth::render(&path, &state.plan));
    }
    out
}

/// Returns the table of a parameter, and its key there.
fn place(name: &str) -> (&str, &str) {
    match name {
        "slots" => ("", name),
        "high_priority_ratio" => ("high_priority", "ratio"),
        "high_priority_sources" => ("high_priority", "sources"),
        "obd_timeout" => ("timeouts", name),
        _ if name.starts_with("at_") => ("timeouts", name),
        _ => ("parameters", name),
    }
}

fn of_setting(setting: &Setting) -> String {
    match setting {
        Setting::One(text) => value(text),
        Setting::Heads([regular, high]) if regular == high => value(regular),
        Setting::Heads([regular, high]) => {
            format!("{{ reg = {}, hp = {} }}", value(regular), value(high))
        }
    }
}

fn of_weights(text: &str) -> Vec<(&str, String)> {
    let lines = text.lines().map(weights::parts);
    lines
        .map(|(name, weight)| (name, weight.to_string()))
        .collect()
}

/// Head if it must be given, name, conditions and limits of a rule.
type Headed<'a> = (Option<&'static str>, &'a str, Option<&'a str>, &'a Limits);

fn of_rules(path: &str, state: &ServiceState) -> String {
    let [regular, high] = &state.rules;
    let mut list: Vec<Headed<'_>> = Vec::new();
    let plain = Limits::new(state.rate());
    match (regular, high) {
        (Some(a), Some(b)) if a == b => push(&mut list, None, a, &plain),
        (Some(a), Some(b)) => {
            push(&mut list, Some(HEADS[0]), a, &plain);
            push(&mut list, Some(HEADS[1]), b, &plain);
        }
        (Some(rules), None) | (None, Some(rules)) => push(&mut list, None, rules, &plain),
        (None, None) => {}
    }
    list.into_iter().map(|rule| of_rule(path, rule)).collect()
}

fn push<'a>(
    list: &mut Vec<Headed<'a>>,
    head: Option<&'static str>,
    rules: &'a Rules,
    plain: &Limits,
) {
    let one = |rule: &'a ConfiguredRule| {
        let conditions = Some(rule.conditions.as_str());
        (head, rule.name.as_str(), conditions, &rule.limits)
    };
    list.extend(rules.list.iter().map(one));
    if rules.default != *plain {
        list.push((head, DEFAULT, None, &rules.default));
    }
}

fn of_rule(path: &str, (head, name, conditions, limits): Headed<'_>) -> String {
    let mut out = format!("\n[[{path}.rule]]\nname = {}\n", quote(name));
    let mut line = |key: &str, value: String| out.push_str(&format!("{key} = {value}\n"));
    if let Some(head) = head {
        line("head", quote(head));
    }
    if let Some(conditions) = conditions {
        line("match", quote(conditions));
    }
    line("rate", value(&limits.rate));
    if let Some(minrate) = &limits.minrate {
        line("minrate", value(minrate));
    }
    for (key, set) in [("realtime", limits.realtime), ("borrow", limits.borrow)] {
        if set {
            line(key, "true".into());
        }
    }
    if !limits.also.is_empty() {
        let names: Vec<String> = limits.also.iter().map(|name| quote(name)).collect();
        line("also", format!("[{}]", names.join(", ")));
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
