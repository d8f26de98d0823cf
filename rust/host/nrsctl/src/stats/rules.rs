// SPDX-License-Identifier: GPL-2.0-only

//! Rules of tbf in their order, with their number of classes.

use serde::Serialize;

use super::{read, HIGH, REGULAR};
use crate::configuration::running;
use crate::configuration::state::ServiceState;
use crate::failure::{failure, Result};
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
/// `NotFound`: tbf is not started. As for [`running::read`] and [`read`].
pub fn list(kernel: &dyn Kernel, service: &str) -> Result<Vec<ListedRule>> {
    list_of(kernel, service, &running::read(kernel, service)?)
}

/// Returns the rules as [`list`] does; `state` is that of the service.
///
/// # Errors
///
/// As for [`list`].
pub fn list_of(
    kernel: &dyn Kernel,
    service: &str,
    state: &ServiceState,
) -> Result<Vec<ListedRule>> {
    let shown = read(kernel, service)?;
    let mut listed = Vec::new();
    for (head, rules) in [REGULAR, HIGH].into_iter().zip(state.rules()) {
        let Some(rules) = rules else { continue };
        let write_limits = rules.limits_writer();
        listed.extend(rules.rules().map(|rule| {
            let name = rule.name.to_string();
            let mut counted = shown.rules.iter();
            let counted = counted.find(|other| other.head == head && other.name == name);
            let mut limits = String::new();
            // Writing to a string does not fail.
            let _ = write_limits(&rule.limits, &mut limits);
            ListedRule {
                head: head.into(),
                conditions: rule.conditions.to_string(),
                rate: rule.limits.rate.to_string(),
                limits: limits.trim_start().into(),
                classes: counted.map_or(0, |rule| rule.counter("classes")),
                name,
            }
        }));
    }
    if listed.is_empty() {
        let failure = failure!(NotFound: "{service}: tbf is not started");
        return Err(failure.hint(format!("nrsctl policy set {service} tbf")));
    }
    Ok(listed)
}
