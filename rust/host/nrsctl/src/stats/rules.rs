// SPDX-License-Identifier: GPL-2.0-only

//! Rules of tbf in their order, with their number of classes.

use nrs_sched::rules::{Name, RuleLimits, RuleList};
use serde::Serialize;

use super::{read, HIGH, REGULAR};
use crate::configuration::running;
use crate::failure::{Failure, FailureKind, Result};
use crate::kernel::Kernel;

/// A rule of a head.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ListedRule {
    /// Head: `regular` or `high`.
    pub head: String,
    /// Name of the rule.
    pub name: String,
    /// Match expression.
    #[serde(rename = "match")]
    pub conditions: String,
    /// Maximum rate of each class.
    pub rate: String,
    /// Further settings as written in the rule: `minrate=5 borrow=1`; may be empty.
    pub limits: String,
    /// Number of classes of the rule on all partitions.
    pub classes: u64,
}

/// Returns the rules of tbf on the heads of `service`.
///
/// # Errors
///
/// [`FailureKind::NotFound`]: tbf is not started. As for [`running::read`] and [`read`].
pub fn list(kernel: &dyn Kernel, service: &str) -> Result<Vec<ListedRule>> {
    let state = running::read(kernel, service)?;
    let shown = read(kernel, service)?;
    let mut listed = Vec::new();
    for (head, rules) in [REGULAR, HIGH].into_iter().zip(state.rules()) {
        let Some(rules) = rules else { continue };
        listed.extend(rules.rules().map(|rule| {
            let name = rule.name.to_string();
            let mut counted = shown.rules.iter();
            let counted = counted.find(|other| other.head == head && other.name == name);
            ListedRule {
                head: head.into(),
                conditions: match rule.name == Name::DEFAULT {
                    true => "*".into(),
                    false => rule.conditions.to_string(),
                },
                rate: rule.limits.rate.to_string(),
                limits: words(rules, &rule.limits),
                classes: counted.map_or(0, |rule| rule.counter("classes")),
                name,
            }
        }));
    }
    if listed.is_empty() {
        let failure = Failure::new(
            FailureKind::NotFound,
            format!("{service}: tbf is not started"),
        );
        return Err(failure.hint(format!("nrsctl policy set {service} tbf")));
    }
    Ok(listed)
}

/// Returns the settings beside the rate, as written in a rule of `rules`.
fn words(rules: &RuleList, limits: &RuleLimits) -> String {
    let mut words = Vec::new();
    words.extend(limits.minrate.map(|rate| format!("minrate={rate}")));
    words.extend(limits.realtime.then(|| "realtime=1".to_owned()));
    words.extend(limits.borrow.then(|| "borrow=1".to_owned()));
    let ids = limits.also.ids();
    let named = |id: &u32| rules.rules().find(|rule| rule.id == *id);
    let also: Vec<String> = ids
        .iter()
        .filter_map(named)
        .map(|rule| rule.name.to_string())
        .collect();
    if !also.is_empty() {
        words.push(format!("also={}", also.join("+")));
    }
    words.join(" ")
}
