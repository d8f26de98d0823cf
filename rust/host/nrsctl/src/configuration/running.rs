// SPDX-License-Identifier: GPL-2.0-only

//! What runs: the texts that the module shows, as a state.

use nrs_sched::policy::Kind;

use super::rules::{Limits, Rule, Rules, DEFAULT};
use super::state::{normal, settable, Policy, State};
use crate::failure::{Failure, Kind as Trouble, Result};
use crate::kernel::Kernel;

/// Reads the state of `service`.
///
/// # Errors
///
/// What [`Kernel::get`] returns; [`Trouble::Other`] for a text of the module that is not as expected.
pub fn read(kernel: &dyn Kernel, service: &str) -> Result<State> {
    let mut state = State::new();
    for parameter in settable() {
        let name = parameter.name();
        let text = kernel.get(service, name)?;
        let setting = normal(parameter, &text).map_err(|_| strange(service, name, text.trim()))?;
        state.settings.insert(name, setting);
    }
    let text = kernel.get(service, "nrs_policies")?;
    state.policies = policies(&text).map_err(|line| strange(service, "nrs_policies", line))?;
    state.weights = kernel.get(service, "nrs_fairshare_weights")?;
    state.plan = kernel.get(service, "nrs_qbm_config")?;
    if state.policies.iter().any(|policy| policy.kind == Kind::Tbf) {
        let text = kernel.get(service, "nrs_tbf_rule")?;
        state.rules = rules(&text).map_err(|line| strange(service, "nrs_tbf_rule", line))?;
    }
    if kernel.is_made(service)? {
        state.cpts = Some(kernel.cpts(service)?);
    }
    Ok(state)
}

/// A text that the module should not show.
fn strange(service: &str, name: &str, text: &str) -> Failure {
    let message = format!("{service}: {name} shows what is not understood: {text}");
    Failure::new(Trouble::Other, message).hint("the module is of another version than this program")
}

/// The policy of each head as `nrs_policies` shows them.
///
/// # Errors
///
/// The line that is not understood.
pub fn policies(text: &str) -> std::result::Result<[Policy; 2], &str> {
    let mut found = [Policy::FIFO, Policy::FIFO];
    let (mut head, mut name, mut started) = (None, "", false);
    for line in text.lines() {
        match line.trim().split_once(':') {
            None if line.trim().is_empty() => {}
            Some(("regular_requests", "")) => head = Some(0),
            Some(("high_priority_requests", "")) => head = Some(1),
            Some(("- name", rest)) => name = rest.trim(),
            Some(("state", rest)) => started = matches!(rest.trim(), "started" | "starting"),
            Some(("fallback", rest)) if started && rest.trim() == "no" => {
                let place = head
                    .and_then(|head: usize| found.get_mut(head))
                    .ok_or(line)?;
                let (word, argument) = match name.split_once(' ') {
                    Some((word, argument)) => (word, Some(argument)),
                    None => (name, None),
                };
                let kind = Kind::from_name(word).map_err(|_| line)?;
                *place = Policy::new(kind, argument).map_err(|_| line)?;
            }
            Some(("fallback" | "queued" | "active", _)) => {}
            _ => return Err(line),
        }
    }
    Ok(found)
}

/// The rules of each head as `nrs_tbf_rule` shows them: those of the first partition, for all have the same.
///
/// # Errors
///
/// The line that is not understood.
pub fn rules(text: &str) -> std::result::Result<[Option<Rules>; 2], &str> {
    let mut found = [None, None];
    let (mut head, mut first) = (None, false);
    for line in text.lines() {
        match line {
            "" => {}
            "regular_requests:" => head = Some(0),
            "high_priority_requests:" => head = Some(1),
            _ if line.starts_with("CPT ") && line.ends_with(':') => {
                first = line == "CPT 0:";
                if let (true, Some(place)) =
                    (first, head.and_then(|head: usize| found.get_mut(head)))
                {
                    *place = Some(Rules::new(""));
                }
            }
            _ => {
                let rules = head
                    .and_then(|head| found.get_mut(head))
                    .and_then(Option::as_mut);
                let (rules, rule) = (rules.ok_or(line)?, rule(line).ok_or(line)?);
                match (first, rule.name == DEFAULT) {
                    (true, false) => {
                        rules.behind += usize::from(!rules.default.rate.is_empty());
                        rules.list.push(rule);
                    }
                    (true, true) => rules.default = rule.limits,
                    (false, _) => {}
                }
            }
        }
    }
    Ok(found)
}

/// A rule of the form `NAME CONDITIONS RATE[ KEY=VALUE…], ref N`.
fn rule(line: &str) -> Option<Rule> {
    let (rest, refs) = line.rsplit_once(", ref ")?;
    refs.parse::<u64>().ok()?;
    let (name, rest) = rest.split_once(' ')?;
    let (conditions, words) = match name {
        DEFAULT => rest.split_once(' ')?,
        // No value has a brace in it.
        _ => rest.split_at_checked(rest.rfind('}')? + 1)?,
    };
    let mut words = words.split_ascii_whitespace();
    let mut limits = Limits::new(super::state::normal_rate(words.next()?)?);
    for word in words {
        let (key, value) = word.split_once('=')?;
        match key {
            "minrate" => limits.minrate = Some(super::state::normal_rate(value)?),
            "realtime" => limits.realtime = value == "1",
            "borrow" => limits.borrow = value == "1",
            "also" => limits.also = value.split('+').map(str::to_string).collect(),
            _ => return None,
        }
    }
    Some(Rule {
        name: name.into(),
        conditions: conditions.into(),
        limits,
    })
}

/// Whether `clients` shows a client.
pub fn has_clients(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("- client:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, state: &str, fallback: &str) -> String {
        format!("  - name: {name}\n    state: {state}\n    fallback: {fallback}\n    queued: 3                   \n    active: 0                   \n\n")
    }

    #[test]
    fn policies_of_the_heads() {
        let text = [
            "\nregular_requests:\n".into(),
            row("fifo", "started", "yes"),
            row("fairshare uid_fair", "stopping", "no"),
            row("fairshare gid_then_uid_fair", "started", "no"),
            row("tbf uid", "stopped", "no"),
            "high_priority_requests:\n".into(),
            row("fifo", "started", "yes"),
            row("tbf", "stopped", "no"),
        ]
        .concat();
        let found = policies(&text).unwrap().map(|policy| policy.to_string());
        assert_eq!(found, ["fairshare gid_then_uid_fair", "fifo"]);
        for (text, line) in [
            ("x\n", "x"),
            ("\nregular_requests:\n  - nam: x\n", "  - nam: x"),
            (&row("tbf", "started", "no"), "    fallback: no"),
            (
                &format!("regular_requests:\n{}", row("new", "started", "no")),
                "    fallback: no",
            ),
        ] {
            assert_eq!(policies(text), Err(line), "{text}");
        }
    }

    #[test]
    fn rules_of_the_heads() {
        let text = "regular_requests:\nCPT 0:\n\
            a uid={1  2},  jobid={a* b, ref 7}&uid={0x10} 100 minrate=5 realtime=1 borrow=1 also=b+c, ref 0\n\
            b nid={[1-3]@gni} 5MB/s, ref 12\ndefault * 10000 minrate=7, ref 0\nc uid={1} 7iops, ref 1\n\
            CPT 1:\na uid={9} 1, ref 0\ndefault * 10000, ref 0\nhigh_priority_requests:\n";
        let [Some(found), None] = rules(text).unwrap() else {
            panic!();
        };
        let names: Vec<&str> = found.list.iter().map(|rule| rule.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(found.behind, 1);
        assert_eq!(found.default.minrate.as_deref(), Some("7"));
        let first = &found.list[0];
        assert_eq!(
            first.conditions,
            "uid={1  2},  jobid={a* b, ref 7}&uid={0x10}"
        );
        assert_eq!(
            first.limits,
            Limits {
                rate: "100".into(),
                minrate: Some("5".into()),
                realtime: true,
                borrow: true,
                also: vec!["b".into(), "c".into()],
            }
        );
        assert_eq!(found.list[1].limits, Limits::new("5MB/s"));
        for line in [
            "a uid={1} 5",
            "a uid={1} 5, ref x",
            "a uid={1}, ref 1",
            "a uid={1} 5 x=1, ref 1",
            "a 5, ref 1",
            "a uid={1} 5 minrate=x, ref 1",
        ] {
            let text = format!("regular_requests:\nCPT 0:\n{line}\n");
            assert_eq!(rules(&text), Err(line));
        }
        assert_eq!(rules("a uid={1} 5, ref 1\n"), Err("a uid={1} 5, ref 1"));
    }

    #[test]
    fn clients() {
        assert!(has_clients(
            "service: { }\nclients:\n- client: \"a\"\n  counters: { }\ntargets:\n"
        ));
        assert!(!has_clients("service: { }\nclients:\ntargets:\n"));
    }
}
