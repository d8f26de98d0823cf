// SPDX-License-Identifier: GPL-2.0-only

//! Parser of `nrs_tbf_stats`: rules that have classes, and the classes.

use nrs_sched::policy::tbf::class::ClassCounts;
use nrs_sched::policy::tbf::stats::RuleCounts;
use nrs_sched::statistics::Stats;

use super::lines::{lines, KeyLine, LinesResult};
use super::{Entity, Rule, HIGH, REGULAR};

/// Returns the rules and the classes of `text`.
///
/// # Errors
///
/// An invalid line.
pub fn read(text: &str) -> LinesResult<(Vec<Rule>, Vec<Entity>)> {
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
            (true, "class") => classes.push(Entity::new("tbf", line.text()?)),
            _ => match (classes.last_mut(), rules.last_mut()) {
                (Some(class), _) => class_field(class, &line)?,
                (None, Some(rule)) => rule_field(rule, &line)?,
                (None, None) => return Err(line.unexpected("- rule: NAME or - class: NAME")),
            },
        }
    }
    Ok((rules, classes))
}

/// Returns the name of the head for its abbreviation in commands.
fn head(line: &KeyLine<'_>) -> LinesResult<String> {
    match &*line.text()? {
        "reg" => Ok(REGULAR.into()),
        "hp" => Ok(HIGH.into()),
        _ => Err(line.unexpected("reg or hp")),
    }
}

fn rule_field(rule: &mut Rule, line: &KeyLine<'_>) -> LinesResult {
    match line.key {
        "head" => rule.head = head(line)?,
        "rate" => rule.rate = line.text()?,
        "unit" => rule.unit = line.text()?,
        key => {
            let mut rows = RuleCounts::ROWS.iter().chain(ClassCounts::ROWS);
            if let Some(row) = rows.find(|row| row.name == key) {
                rule.counters.insert(row.name.into(), line.number()?);
            }
        }
    }
    Ok(())
}

fn class_field(class: &mut Entity, line: &KeyLine<'_>) -> LinesResult {
    match line.key {
        "head" => class.head = head(line)?,
        "rule" => class.within = Some(line.text()?),
        "rate" => class.limit = Some(line.text()?),
        "unit" => class.unit = line.text()?,
        "queued" => class.queued = line.number()?,
        "active" => class.active = line.number()?,
        _ => class.count(line)?,
    }
    Ok(())
}
