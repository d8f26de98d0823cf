// SPDX-License-Identifier: GPL-2.0-only

//! Rules of tbf in their order, with their number of classes.

use serde::Serialize;

use super::{read, HIGH, REGULAR};
use crate::configuration::rules::{Limits, DEFAULT};
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
    for (head, rules) in [REGULAR, HIGH].into_iter().zip(&state.rules) {
        let Some(rules) = rules else { continue };
        let all = rules.list.iter();
        let mut all: Vec<_> = all
            .map(|rule| (&*rule.name, &*rule.conditions, &rule.limits))
            .collect();
        let place = all.len().saturating_sub(rules.behind);
        all.insert(place, (DEFAULT, "*", &rules.default));
        listed.extend(all.into_iter().map(|(name, conditions, limits)| {
            let mut counted = shown.rules.iter();
            let counted = counted.find(|rule| rule.head == head && rule.name == name);
            ListedRule {
                head: head.into(),
                name: name.into(),
                conditions: conditions.into(),
                rate: limits.rate.clone(),
                limits: words(limits),
                classes: counted.map_or(0, |rule| rule.counter("classes")),
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

/// Returns the settings beside the rate, as written in a rule.
fn words(limits: &Limits) -> String {
    let mut words = Vec::new();
    words.extend(
        limits
            .minrate
            .as_ref()
            .map(|rate| format!("minrate={rate}")),
    );
    words.extend(limits.realtime.then(|| "realtime=1".to_owned()));
    words.extend(limits.borrow.then(|| "borrow=1".to_owned()));
    if !limits.also.is_empty() {
        words.push(format!("also={}", limits.also.join("+")));
    }
    words.join(" ")
}
