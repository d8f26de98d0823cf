// SPDX-License-Identifier: GPL-2.0-only

//! Parser of `nrs_policies`: the policies of the heads, in Lustre's layout.

use nrs_sched::policy::Kind;

use super::lines::{lines, LinesResult};
use super::{Head, Policy, HIGH, REGULAR};

impl Policy {
    /// Returns name and argument in the format of `nrs_policies`.
    pub fn full(&self) -> String {
        match &self.argument {
            Some(argument) => format!("{} {argument}", self.name),
            None => self.name.clone(),
        }
    }
}

impl Head {
    /// Returns the serving policy: the started policy that is not the fallback, otherwise the
    /// fallback.
    pub fn serving(&self) -> Option<&Policy> {
        let mut started = self
            .policies
            .iter()
            .filter(|policy| policy.state == "started");
        let primary = started.clone().find(|policy| !policy.fallback);
        primary.or_else(|| started.next())
    }
}

/// Returns the heads of `text`, regular first.
///
/// # Errors
///
/// An invalid line.
pub fn read(text: &str) -> LinesResult<Vec<Head>> {
    let mut heads: Vec<Head> = Vec::new();
    for line in lines(text) {
        let line = line?;
        let name = match line.key {
            "regular_requests" => Some(REGULAR),
            "high_priority_requests" => Some(HIGH),
            _ => None,
        };
        if let Some(name) = name {
            heads.push(Head {
                name: name.into(),
                policies: Vec::new(),
            });
            continue;
        }
        let Some(head) = heads.last_mut() else {
            return Err(line.unexpected("regular_requests:"));
        };
        if line.item && line.key == "name" {
            let text = line.text()?;
            let (name, argument) = match text.split_once(' ') {
                Some((name, argument)) => (name.into(), Some(argument.into())),
                None => (text, None),
            };
            head.policies.push(Policy {
                name,
                argument,
                ..Policy::default()
            });
            continue;
        }
        let Some(policy) = head.policies.last_mut() else {
            return Err(line.unexpected("- name: POLICY"));
        };
        match line.key {
            "state" => policy.state = line.text()?,
            "fallback" => policy.fallback = line.text()? == "yes",
            "queued" => policy.queued = line.number()?,
            "active" => policy.active = line.number()?,
            _ => {
                let counts = Kind::from_name(&policy.name).map_or(&[][..], Kind::counts);
                if let Some(stat) = counts.iter().find(|stat| stat.name == line.key) {
                    policy.counters.insert(stat.name.into(), line.number()?);
                }
            }
        }
    }
    Ok(heads)
}
