// SPDX-License-Identifier: GPL-2.0-only

//! The text `nrs_tbf_stats`: the rules that have classes, and the classes.

use super::lines::{lines, Line, Result};
use super::{Entity, Rule, HIGH, REGULAR};

/// The rules and the classes of `text`.
///
/// # Errors
///
/// A line that is not as expected.
pub fn read(text: &str) -> Result<(Vec<Rule>, Vec<Entity>)> {
    let mut rules: Vec<Rule> = Vec::new();
    let mut classes: Vec<Entity> = Vec::new();
    for line in lines(text) {
        let line = line?;
        match (line.item, line.key) {
            (false, "rules" | "classes") if line.depth == 0 => {}
            (true, "rule") => rules.push(Rule {
                name: line.text()?,
                ..Rule::default()
            }),
            (true, "class") => classes.push(Entity {
                policy: "tbf".into(),
                name: line.text()?,
                ..Entity::default()
            }),
            _ => match (classes.last_mut(), rules.last_mut()) {
                (Some(class), _) => class_field(class, &line)?,
                (None, Some(rule)) => rule_field(rule, &line)?,
                (None, None) => return Err(line.unexpected("- rule: NAME or - class: NAME")),
            },
        }
    }
    Ok((rules, classes))
}

/// The head that commands call by that word.
fn head(line: &Line<'_>) -> Result<String> {
    match &*line.text()? {
        "reg" => Ok(REGULAR.into()),
        "hp" => Ok(HIGH.into()),
        _ => Err(line.unexpected("reg or hp")),
    }
}

fn rule_field(rule: &mut Rule, line: &Line<'_>) -> Result {
    match line.key {
        "head" => rule.head = head(line)?,
        "rate" => rule.rate = line.text()?,
        "unit" => rule.unit = line.text()?,
        "classes" | "queued" | "dispatched" | "cost" | "throttled_ns" | "limit_hits" | "forced"
        | "borrowed" => {
            rule.counters.insert(line.key.into(), line.number()?);
        }
        _ => {}
    }
    Ok(())
}

fn class_field(class: &mut Entity, line: &Line<'_>) -> Result {
    match line.key {
        "head" => class.head = head(line)?,
        "rule" => class.within = Some(line.text()?),
        "rate" => class.limit = Some(line.text()?),
        "unit" => class.unit = line.text()?,
        "queued" => class.queued = line.number()?,
        "active" => class.active = line.number()?,
        "dispatched" => class.dispatched = line.number()?,
        "cost" => class.cost = line.number()?,
        "throttled_ns" => class.throttled_ns = line.number()?,
        "limit_hits" => class.limit_hits = line.number()?,
        "forced" => class.forced = line.number()?,
        "borrowed" => class.borrowed = line.number()?,
        _ => {}
    }
    Ok(())
}
