// SPDX-License-Identifier: GPL-2.0-only

//! Steps that lead from one state to another, in an order in which the module accepts each step.
//!
//! | order | step | reason |
//! |---|---|---|
//! | 1 | `cpts` | resets the policy to `fifo` |
//! | 2 | parameters | a policy starts with them; parameters of a stopping policy follow its stop |
//! | 3 | weights, the configuration of `qbm` | their policy starts with them |
//! | 4 | policies | rules need a running policy |
//! | 5 | rules | |
//! | 6 | a lower limit of the number of rules | the rules to be removed are stopped |

use nrs_sched::policy::Kind;

use super::rules::{commands, Refusal, Rules};
use super::state::{contradiction, policy_of, ServiceState, HEADS};
use super::weights;

/// Step of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sets the number of partitions.
    Cpts(u32),
    /// Writes a parameter.
    Set(&'static str, String),
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cpts(cpts) => write!(f, "cpts = {cpts}"),
            Self::Set(name, value) => {
                let mut lines = value.lines();
                write!(f, "{name} = {}", lines.next().unwrap_or_default())?;
                match lines.count() {
                    0 => Ok(()),
                    more => write!(f, " ... ({more} more lines)"),
                }
            }
        }
    }
}

/// Returns the steps from `from` to `to`, none if the states are equal. `cpts` and `slots` that
/// `to` does not have are left unchanged.
///
/// # Errors
///
/// A rule that the module would refuse.
pub fn steps(from: &ServiceState, to: &ServiceState) -> Result<Vec<Step>, Refusal> {
    let mut now = from.clone();
    let mut steps = Vec::new();
    if let Some(cpts) = to.cpts.filter(|cpts| now.cpts != Some(*cpts)) {
        steps.push(Step::Cpts(cpts));
        let fifo = ServiceState::new();
        (now.policies, now.rules) = (fifo.policies, fifo.rules);
    }
    let runs = |state: &ServiceState, kind| state.policies.iter().any(|policy| policy.kind == kind);
    let leaves =
        |name: &str| policy_of(name).is_some_and(|kind| runs(&now, kind) && !runs(to, kind));
    let changed = to
        .settings
        .iter()
        .filter(|(name, value)| now.settings.get(*name) != Some(*value));
    let changed: Vec<&'static str> = changed.map(|(name, _)| *name).collect();
    let lower = to.rules_max() < now.rules_max();
    let (last, changed): (Vec<_>, Vec<_>) = changed
        .into_iter()
        .partition(|name| lower && *name == "nrs_tbf_rules_max");
    let (late, early): (Vec<_>, Vec<_>) = changed.into_iter().partition(|name| leaves(name));
    settings(&mut now, to, early, &mut steps);
    if now.weights != to.weights {
        let writes = weights::commands(&now.weights, &to.weights).into_iter();
        steps.extend(writes.map(|write| Step::Set("nrs_fairshare_weights", write)));
    }
    if now.plan != to.plan {
        steps.push(Step::Set("nrs_qbm_config", to.plan.clone()));
    }
    policies(&mut now, to, &mut steps);
    settings(&mut now, to, late, &mut steps);
    rules(&now, to, &mut steps)?;
    settings(&mut now, to, last, &mut steps);
    Ok(steps)
}

/// Sets the parameters `names`, in an order in which no value contradicts another.
fn settings(
    now: &mut ServiceState,
    to: &ServiceState,
    names: Vec<&'static str>,
    steps: &mut Vec<Step>,
) {
    let mut left = names;
    while !left.is_empty() {
        let fits = |name: &&'static str| {
            let mut settings = now.settings.clone();
            let value = to.settings.get(name).cloned();
            settings.extend(value.map(|value| (*name, value)));
            contradiction(&settings).is_none()
        };
        // If all contradict, the module reports the reason.
        let name = left.remove(left.iter().position(fits).unwrap_or(0));
        if let Some(value) = to.settings.get(name) {
            steps.push(Step::Set(name, value.text(name)));
            now.settings.insert(name, value.clone());
        }
    }
}

/// Starts the policies of `to`; rules of a head persist if the fields of `tbf` stay the same.
fn policies(now: &mut ServiceState, to: &ServiceState, steps: &mut Vec<Step>) {
    let differs = |index: usize| now.policies[index] != to.policies[index];
    let set = |command: String| Step::Set("nrs_policies", command);
    let [regular, high] = &to.policies;
    if differs(0) && differs(1) && regular == high {
        steps.push(set(regular.to_string()));
    } else {
        for index in (0..2).filter(|index| differs(*index)) {
            let policy = &to.policies[index];
            let argument = policy
                .argument
                .as_ref()
                .map(|argument| format!(" {argument}"));
            let (name, head) = (policy.kind.name(), HEADS[index]);
            steps.push(set(format!(
                "{name} {head}{}",
                argument.unwrap_or_default()
            )));
        }
    }
    for index in 0..2 {
        let (old, new) = (now.policies[index].fields(), to.policies[index].fields());
        if new.is_none() {
            now.rules[index] = None;
        } else if old != new || now.rules[index].is_none() {
            now.rules[index] = Some(Rules::new(&to.rate()));
        }
        now.policies[index] = to.policies[index].clone();
    }
}

/// Starts, changes, moves and stops rules.
fn rules(now: &ServiceState, to: &ServiceState, steps: &mut Vec<Step>) -> Result<(), Refusal> {
    let mut of_heads: [Vec<String>; 2] = [Vec::new(), Vec::new()];
    for (index, found) in of_heads.iter_mut().enumerate() {
        let (old, new) = (&now.rules[index], &to.rules[index]);
        let fields = to.policies[index].fields();
        if let (Some(old), Some(new), Some(fields)) = (old, new, fields) {
            *found = commands(old, new, fields, &to.rate(), to.rules_max())?;
        }
    }
    let both = to.policies.iter().all(|policy| policy.kind == Kind::Tbf);
    let [regular, high] = of_heads;
    let set = |command: String| Step::Set("nrs_tbf_rule", command);
    if both && regular == high {
        steps.extend(regular.into_iter().map(set));
        return Ok(());
    }
    for (head, commands) in HEADS.into_iter().zip([regular, high]) {
        steps.extend(
            commands
                .into_iter()
                .map(|command| set(format!("{head} {command}"))),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::read::parse_one;
    use super::*;

    fn state(text: &str) -> ServiceState {
        let section = parse_one(&format!("[service.s]\n{text}")).unwrap();
        section.state.with_slots("64")
    }

    /// Compares the steps of each case: from, to, steps separated by `; `.
    #[test]
    fn one_thing_after_the_other() {
        let rule = "[[service.s.rule]]\nname = 'a'\nmatch = 'uid={1}'\nrate = 5\n";
        let start = "nrs_tbf_rule = start a uid={1} rate=5 minrate=0 realtime=0 \
                     borrow=0 also= rank=default";
        let tbf = "policy = 'tbf uid'\n";
        for (from, to, want) in [
            ("", "", ""),
            ("slots = 5", "slots = 5", ""),
            ("", "policy = 'tbf uid'", "nrs_policies = tbf uid"),
            ("policy = 'tbf uid'", "", "nrs_policies = fifo"),
            (
                "TBF",
                "TBFhigh_priority.policy = 'fifo'",
                "nrs_policies = fifo hp",
            ),
            (
                "",
                "TBFhigh_priority.policy = 'fairshare uid_fair'",
                "nrs_policies = tbf reg uid; nrs_policies = fairshare hp uid_fair",
            ),
            (
                "",
                "cpts = 2\nslots = 5\nTBFweights.'uid:1' = 2\nRULE",
                "cpts = 2; slots = 5; nrs_fairshare_weights = uid:1:2; nrs_policies = tbf uid; \
                 START",
            ),
            // New partitions: policy and rules are reset.
            (
                "cpts = 1\nTBFRULE",
                "cpts = 2\nTBFRULE",
                "cpts = 2; nrs_policies = tbf uid; START",
            ),
            // Other fields: the rules are removed.
            (
                "TBFRULE",
                "policy = 'tbf uid+gid'\nRULE",
                "nrs_policies = tbf uid+gid; START",
            ),
            // Rules on one of two heads.
            ("TBFRULE", "TBFRULEhead = 'hp'", "nrs_tbf_rule = reg stop a"),
            // Parameters of a policy that stops are set afterwards.
            (
                "policy = 'fairshare'",
                "TBFparameters = { nrs_fairshare_delta_ms = 50, nrs_tbf_depth = 5 }",
                "nrs_tbf_depth = 5; nrs_policies = tbf uid; nrs_fairshare_delta_ms = 50",
            ),
            // The limit allows all rules at each step.
            (
                "TBFparameters.nrs_tbf_rules_max = 9\nRULE",
                "TBFparameters.nrs_tbf_rules_max = 8",
                "nrs_tbf_rule = stop a; nrs_tbf_rules_max = 8",
            ),
            // A rule without a rate has the rate of the parameter, even if the parameter is set
            // later.
            (
                "TBF",
                "TBFparameters.nrs_tbf_rate = 7",
                "nrs_tbf_rate = 7; \
                 nrs_tbf_rule = change default rate=7 minrate=0 realtime=0 borrow=0 also=",
            ),
            (
                "",
                "parameters = { nrs_delay_min = 400, nrs_delay_max = 500 }",
                "nrs_delay_max = reg_delay_max:500 hp_delay_max:500; \
                 nrs_delay_min = reg_delay_min:400 hp_delay_min:400",
            ),
        ] {
            let long = |text: &str| text.replace("TBF", tbf).replace("RULE", rule);
            let steps = steps(&state(&long(from)), &state(&long(to))).unwrap();
            let steps: Vec<String> = steps.iter().map(Step::to_string).collect();
            let want = want.replace("START", start);
            assert_eq!(steps.join("; "), want, "from {from} to {to}");
        }
    }

    #[test]
    fn what_goes_together_at_each_step() {
        let other = "timeouts = { at_max = 4, at_min = 3, at_extra = 2, at_early_margin = 1 }\n";
        for (from, to) in [("", other), (other, "")] {
            let mut now = state(from);
            let steps = steps(&now, &state(to)).unwrap();
            assert_eq!(steps.len(), 4);
            for step in steps {
                if let Step::Set(name, value) = step {
                    now.settings
                        .insert(name, super::super::state::Setting::One(value));
                    assert_eq!(contradiction(&now.settings), None, "{name}");
                }
            }
        }
    }
}
