// SPDX-License-Identifier: GPL-2.0-only

//! What the module shows of policies, rules and clients, as values.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Kind, Result};

/// A policy of a head, as `nrs_policies` shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Policy {
    /// `regular` or `high`.
    pub head: String,
    /// `fifo`, `tbf`, ...
    pub name: String,
    /// Its argument: the mode of fairshare, the fields of tbf.
    pub argument: Option<String>,
    /// `started`, `stopping`, `stopped`.
    pub state: String,
    /// Whether it takes what no other one does.
    pub fallback: bool,
    /// Requests queued in it.
    pub queued: u64,
    /// Requests of it in service.
    pub active: u64,
}

impl Policy {
    /// Name and argument, as `nrs_policies` takes them.
    pub fn full(&self) -> String {
        match &self.argument {
            Some(argument) => format!("{} {argument}", self.name),
            None => self.name.clone(),
        }
    }
}

/// A rule of tbf on a head, as `nrs_tbf_rule` shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// `regular` or `high`.
    pub head: String,
    /// Its name.
    pub name: String,
    /// Whom it is for.
    #[serde(rename = "match")]
    pub conditions: String,
    /// What each of them gets, at most.
    pub rate: String,
    /// What else it sets, as it is written: `minrate=5 borrow=1`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub limits: String,
    /// How many classes are under it, on all partitions.
    pub classes: u64,
}

/// A client, as `clients` shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Client {
    /// Its name.
    #[serde(rename(deserialize = "client", serialize = "name"))]
    pub name: String,
    /// Its counters, and its state.
    pub counters: BTreeMap<String, serde_json::Value>,
}

/// What `clients` shows.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Clients {
    /// `slots`, `limit`, `active`, ...
    pub service: BTreeMap<String, u64>,
    /// The clients.
    #[serde(default)]
    pub clients: Option<Vec<Client>>,
}

/// That a text of the module is not as expected, with its first lines.
fn unexpected(parameter: &str, text: &str) -> Failure {
    let lines: Vec<&str> = text.lines().take(3).collect();
    let message = format!(
        "{parameter} shows what is not expected: {}",
        lines.join(" | ")
    );
    Failure::new(Kind::Other, message).hint("are nrsctl and the module of the same version?")
}

/// The head that a line begins, if it does.
fn head(line: &str) -> Option<&'static str> {
    match line.trim_end() {
        "regular_requests:" => Some("regular"),
        "high_priority_requests:" => Some("high"),
        _ => None,
    }
}

/// The policies that `nrs_policies` shows.
///
/// # Errors
///
/// [`Kind::Other`]: another text.
pub fn policies(text: &str) -> Result<Vec<Policy>> {
    let wrong = || unexpected("nrs_policies", text);
    let mut on = None;
    let mut policies: Vec<Policy> = Vec::new();
    for line in text.lines() {
        if let Some(head) = head(line) {
            on = Some(head);
            continue;
        }
        let line = line.trim_start_matches(' ').trim_end();
        let Some((key, value)) = line.split_once(": ") else {
            match line.is_empty() {
                true => continue,
                false => return Err(wrong()),
            }
        };
        if key == "- name" {
            let (name, argument) = match value.split_once(' ') {
                Some((name, argument)) => (name, Some(argument.to_owned())),
                None => (value, None),
            };
            policies.push(Policy {
                head: on.ok_or_else(wrong)?.into(),
                name: name.into(),
                argument,
                ..Policy::default()
            });
            continue;
        }
        let policy = policies.last_mut().ok_or_else(wrong)?;
        let number = || value.parse().map_err(|_| wrong());
        match key {
            "state" => policy.state = value.into(),
            "fallback" => policy.fallback = value == "yes",
            "queued" => policy.queued = number()?,
            "active" => policy.active = number()?,
            // A newer module may tell more.
            _ => {}
        }
    }
    match policies.is_empty() {
        true => Err(wrong()),
        false => Ok(policies),
    }
}

/// The policy that serves a head: the started one that is not the fallback, else that.
pub fn serving<'a>(policies: &'a [Policy], head: &str) -> Option<&'a Policy> {
    let mut of = policies
        .iter()
        .filter(|policy| policy.head == head && policy.state == "started");
    of.clone()
        .find(|policy| !policy.fallback)
        .or_else(|| of.next())
}

/// The rules that `nrs_tbf_rule` shows, in order, those of each head once.
///
/// # Errors
///
/// [`Kind::Other`]: another text.
pub fn rules(text: &str) -> Result<Vec<Rule>> {
    let wrong = || unexpected("nrs_tbf_rule", text);
    let mut on = None;
    let mut rules: Vec<Rule> = Vec::new();
    for line in text.lines() {
        if let Some(head) = head(line) {
            on = Some(head);
            continue;
        }
        if line.starts_with("CPT ") && line.ends_with(':') {
            continue;
        }
        // NAME CONDITIONS RATE[ KEY=VALUE...], ref N
        let parts = line.rsplit_once(", ref ").and_then(|(rule, refs)| {
            let (name, rest) = rule.split_once(' ')?;
            // Conditions end in a brace, but for those of `default`; no value has one in it.
            let end = rest
                .rfind('}')
                .map_or_else(|| rest.find(' '), |at| Some(at + 1))?;
            let (conditions, limits) = rest.split_at_checked(end)?;
            let (rate, limits) = match limits.trim_start().split_once(' ') {
                Some(pair) => pair,
                None => (limits.trim_start(), ""),
            };
            let classes = refs.trim().parse::<u64>().ok()?;
            Some((name, conditions, rate, limits, classes))
        });
        let (name, conditions, rate, limits, classes) = parts.ok_or_else(wrong)?;
        let head = on.ok_or_else(wrong)?;
        // Each partition shows all of them.
        let same = rules
            .iter_mut()
            .find(|rule| rule.head == head && rule.name == name);
        match same {
            Some(rule) => rule.classes += classes,
            None => rules.push(Rule {
                head: head.into(),
                name: name.into(),
                conditions: conditions.into(),
                rate: rate.into(),
                limits: limits.into(),
                classes,
            }),
        }
    }
    Ok(rules)
}

/// What `clients` shows.
///
/// # Errors
///
/// [`Kind::Other`]: another text.
pub fn clients(text: &str) -> Result<Clients> {
    serde_yaml_ng::from_str(text).map_err(|_| unexpected("clients", text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICIES: &str = "
regular_requests:
  - name: fifo
    state: started
    fallback: yes
    queued: 0                   
    active: 3                   

  - name: fairshare gid_then_uid_fair
    state: stopping
    fallback: no
    queued: 18446744073709551615
    active: 0                   

  - name: tbf uid
    state: started
    fallback: no
    queued: 7                   
    active: 0                   

high_priority_requests:
  - name: fifo
    state: started
    fallback: yes
    queued: 0                   
    active: 0                   

";

    #[test]
    fn policies_of_both_heads() {
        let all = policies(POLICIES).unwrap();
        assert_eq!(all.len(), 4);
        assert_eq!(all[1].full(), "fairshare gid_then_uid_fair");
        assert_eq!((all[1].queued, &all[1].state[..]), (u64::MAX, "stopping"));
        assert!(all[0].fallback && !all[2].fallback);
        assert_eq!((all[2].queued, all[0].active), (7, 3));
        assert_eq!(serving(&all, "regular").unwrap().full(), "tbf uid");
        assert_eq!(serving(&all, "high").unwrap().full(), "fifo");
        assert!(serving(&all, "none").is_none());
        for wrong in [
            "",
            "something",
            "  - name: fifo\n",
            "regular_requests:\n  - name: a\n    queued: x\n",
        ] {
            assert_eq!(policies(wrong).unwrap_err().kind, Kind::Other, "{wrong:?}");
        }
    }

    #[test]
    fn rules_of_all_partitions() {
        let text = "regular_requests:\nCPT 0:\nb uid={1 2} & gid={5} 10MB/s, ref 1\ndefault * 10000, ref 2\n\
                    CPT 1:\nb uid={1 2} & gid={5} 10MB/s, ref 3\ndefault * 10000, ref 0\nhigh_priority_requests:\n";
        let all = rules(text).unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(
            (&all[0].name[..], &all[0].conditions[..]),
            ("b", "uid={1 2} & gid={5}")
        );
        assert_eq!((&all[0].rate[..], all[0].classes), ("10MB/s", 4));
        assert_eq!((&all[1].conditions[..], all[1].classes), ("*", 2));
        let text = "regular_requests:\nCPT 0:\na uid={1} 5 minrate=2 also=b+c, ref 0\ndefault * 7 borrow=1, ref 0\n";
        let all = rules(text).unwrap();
        assert_eq!(
            (&all[0].rate[..], &all[0].limits[..]),
            ("5", "minrate=2 also=b+c")
        );
        assert_eq!((&all[1].rate[..], &all[1].limits[..]), ("7", "borrow=1"));
        for wrong in [
            "x",
            "default * 10, ref 0\n",
            "regular_requests:\na b\n",
            "regular_requests:\na b c, ref x\n",
        ] {
            assert!(rules(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn clients_of_a_service() {
        let text = "service: { slots: 64, limit: 64, active: 0, overflow: 0, no_memory: 0, stalls: 0 }\nclients:\n\
                    - client: \"files\"\n  counters: { passed: 1, queued: 0, state: live }\ntargets:\n\
                    - target: \"8:16\"\n  counters: { users: 1, limit: 64, active: 0 }\n";
        let all = clients(text).unwrap();
        assert_eq!(all.service["slots"], 64);
        let first = &all.clients.unwrap()[0];
        assert_eq!(
            (&first.name[..], first.counters["passed"].as_u64()),
            ("files", Some(1))
        );
        let none = clients("service: { slots: 1 }\nclients:\ntargets:\n").unwrap();
        assert!(none.clients.unwrap_or_default().is_empty());
        assert!(clients("clients: 5").is_err());
    }
}
