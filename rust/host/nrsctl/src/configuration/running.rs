// SPDX-License-Identifier: GPL-2.0-only

//! Reading of the running state from the texts of the module.

use nrs_sched::policy::Kind;

use super::rules::{ConfiguredRule, Limits, Rules, DEFAULT};
use super::state::{normal, normal_rate, settable, HeadPolicy, ServiceState};
use crate::failure::{Failure, FailureKind as Trouble, Result};
use crate::kernel::{is_gone, Kernel};
use crate::stats::{self, rules::ListedRule, Head, HIGH};

/// Reads the state of `service`.
///
/// # Errors
///
/// - [`Trouble::Other`]: a text of the module is malformed.
/// - Errors of [`Kernel::get`].
pub fn read(kernel: &dyn Kernel, service: &str) -> Result<ServiceState> {
    let mut state = ServiceState::new();
    for parameter in settable() {
        let name = parameter.name();
        let text = match kernel.get(service, name) {
            // An older module lacks the parameter, and behaves as with its default.
            Err(failure)
                if failure.kind == Trouble::NotFound && !is_gone(kernel, service, &failure)? =>
            {
                continue
            }
            text => text?,
        };
        let setting = normal(parameter, &text).map_err(|_| strange(service, name, text.trim()))?;
        state.settings.insert(name, setting);
    }
    let heads = stats::heads(kernel, service)?;
    state.policies = policies(&heads).map_err(|name| strange(service, "nrs_policies", &name))?;
    state.weights = kernel.get(service, "nrs_fairshare_weights")?;
    state.plan = kernel.get(service, "nrs_qbm_config")?;
    if state.policies.iter().any(|policy| policy.kind == Kind::Tbf) {
        let listed = stats::rules(kernel, service)?;
        state.rules = rules(&listed).map_err(|name| strange(service, "nrs_tbf_rule", &name))?;
    }
    if kernel.is_made(service)? {
        state.cpts = Some(kernel.cpts(service)?);
    }
    Ok(state)
}

/// Returns the failure that the module shows an unexpected text.
fn strange(service: &str, name: &str, text: &str) -> Failure {
    let message = format!("{service}: cannot parse {name}: {text}");
    Failure::new(Trouble::Other, message).hint("compare nrsctl --version and modinfo nrs")
}

/// Returns the policy of each head.
///
/// # Errors
///
/// The name of an unknown policy.
fn policies(heads: &[Head]) -> std::result::Result<[HeadPolicy; 2], String> {
    let mut found = [HeadPolicy::FIFO, HeadPolicy::FIFO];
    for head in heads {
        let started = |policy: &&stats::Policy| policy.state == "started";
        let mut primary = head.policies.iter().filter(started);
        let Some(policy) = primary.find(|policy| !policy.fallback) else {
            continue;
        };
        let known = Kind::from_name(&policy.name)
            .ok()
            .and_then(|kind| HeadPolicy::new(kind, policy.argument.as_deref()).ok());
        *of(&mut found, &head.name) = known.ok_or_else(|| policy.full())?;
    }
    Ok(found)
}

/// Returns the rules of each head that has rules.
///
/// # Errors
///
/// The name of a rule with an unknown limit.
fn rules(listed: &[ListedRule]) -> std::result::Result<[Option<Rules>; 2], String> {
    let mut found = [None, None];
    for one in listed {
        let rules = of(&mut found, &one.head).get_or_insert_with(|| Rules::new(""));
        let limits = limits(one).ok_or_else(|| one.name.clone())?;
        if one.name == DEFAULT {
            rules.default = limits;
            continue;
        }
        rules.behind += usize::from(!rules.default.rate.is_empty());
        rules.list.push(ConfiguredRule {
            name: one.name.clone(),
            conditions: one.conditions.clone(),
            limits,
        });
    }
    Ok(found)
}

/// Returns the element of the head `name`.
fn of<'a, T>(heads: &'a mut [T; 2], name: &str) -> &'a mut T {
    let [regular, high] = heads;
    match name {
        HIGH => high,
        _ => regular,
    }
}

/// Returns the limits of a rule; `None` if one is unknown.
fn limits(rule: &ListedRule) -> Option<Limits> {
    let mut limits = Limits::new(normal_rate(&rule.rate)?);
    for word in rule.limits.split_ascii_whitespace() {
        let (key, value) = word.split_once('=')?;
        match key {
            "minrate" => limits.minrate = Some(normal_rate(value)?),
            "realtime" => limits.realtime = value == "1",
            "borrow" => limits.borrow = value == "1",
            "also" => limits.also = value.split('+').map(str::to_string).collect(),
            _ => return None,
        }
    }
    Some(limits)
}

#[cfg(test)]
mod tests {
    use nrs_sched::parameters;

    use super::*;
    use crate::mock::Mock;

    /// Verifies that an older module's state is read: what it lacks has its default.
    #[test]
    fn older_modules() {
        const LACKING: &str = "at_early_margin";
        let of_all = Mock::of(&["san"]);
        let known = parameters::all().filter_map(|parameter| {
            let text = of_all.get("san", parameter.name()).ok()?;
            (parameter.name() != LACKING).then_some((parameter.name(), text))
        });
        let known: Vec<(&str, String)> = known.collect();
        let texts: Vec<(&str, &str)> = known.iter().map(|(k, v)| (*k, &v[..])).collect();
        let older = Mock::with(&[("san", &texts)]);
        assert!(of_all.get("san", LACKING).is_ok() && older.get("san", LACKING).is_err());
        let mut want = read(&of_all, "san").unwrap();
        want.cpts = None;
        assert_eq!(read(&older, "san").unwrap(), want);
    }

    #[test]
    fn policies_of_the_heads() {
        let row = |name: &str, state: &str, fallback: &str| {
            format!("  - name: {name}\n    state: {state}\n    fallback: {fallback}\n\n")
        };
        let text = [
            "\nregular_requests:\n".into(),
            row("fifo", "started", "yes"),
            row("fairshare uid_fair", "stopping", "no"),
            row("fairshare gid_then_uid_fair", "started", "no"),
            "high_priority_requests:\n".into(),
            row("fifo", "started", "yes"),
            row("tbf", "stopped", "no"),
        ];
        let heads = stats::policies::read(&text.concat()).unwrap();
        let found = policies(&heads).unwrap().map(|policy| policy.to_string());
        assert_eq!(found, ["fairshare gid_then_uid_fair", "fifo"]);
        let text = format!("regular_requests:\n{}", row("new", "started", "no"));
        let heads = stats::policies::read(&text).unwrap();
        assert_eq!(policies(&heads).unwrap_err(), "new");
    }

    #[test]
    fn rules_of_the_heads() {
        let text = "regular_requests:\nCPT 0:\n\
            a uid={1  2},  jobid={a* b, ref 7}&uid={0x10} 100 minrate=5 realtime=1 borrow=1 \
            also=b+c, ref 0\n\
            default * 10000 minrate=7, ref 0\nc uid={1} 7iops, ref 1\n\
            CPT 1:\na uid={9} 1, ref 0\ndefault * 10000, ref 0\nhigh_priority_requests:\n";
        let listed = stats::rules::read(text).unwrap();
        let [Some(found), None] = rules(&listed).unwrap() else {
            panic!();
        };
        assert_eq!(
            (found.list.len(), &*found.list[1].name, found.behind),
            (2, "c", 1)
        );
        assert_eq!(found.default.minrate.as_deref(), Some("7"));
        let first = &found.list[0];
        assert_eq!(
            first.conditions,
            "uid={1  2},  jobid={a* b, ref 7}&uid={0x10}"
        );
        let limits = Limits {
            minrate: Some("5".into()),
            realtime: true,
            borrow: true,
            also: vec!["b".into(), "c".into()],
            ..Limits::new("100")
        };
        assert_eq!(first.limits, limits);
        for limits in ["5 x=1", "5 minrate=x", "x", "5 borrow"] {
            let text = format!("regular_requests:\nCPT 0:\na uid={{1}} {limits}, ref 1\n");
            let listed = stats::rules::read(&text).unwrap();
            assert_eq!(rules(&listed).unwrap_err(), "a", "{limits}");
        }
    }
}
