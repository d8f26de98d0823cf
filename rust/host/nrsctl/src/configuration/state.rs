// SPDX-License-Identifier: GPL-2.0-only

//! Settings of a service in one normal form, for the wanted and for the running state.
//!
//! Equal states are equal values: numbers have no leading zeros, words are in the module's order,
//! and missing settings have their defaults. The module reads and writes a state as the text of the
//! parameter `config`; its own [`ServiceDraft`] converts both ways.
//!
//! ```text
//!   file ──▶ ServiceState ──text()──▶ config (set) ──▶ service
//!   file ◀── ServiceState ◀──parse()── config (get) ◀──┘
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;

use nrs_sched::arena::Request;
use nrs_sched::attr::Priority;
use nrs_sched::error::Error;
use nrs_sched::parameters::{self, AccessMode, Parameter, ValueAccessors, Values};
use nrs_sched::policy::fairshare::mode::Mode;
use nrs_sched::policy::{Config, Kind, Tunables};
use nrs_sched::rules::{Fields, Rate, RuleList};
use nrs_sched::service::draft::ServiceDraft;
use nrs_sched::service::text::OneLine;

use crate::refusal;

use super::rules::{Refusal, Rules};

/// Names of the heads, regular first.
pub const HEADS: [&str; 2] = ["reg", "hp"];

/// Number of weights in a line of a text.
const WEIGHTS: usize = 16;

/// Parameters with several values, which have own fields in [`ServiceState`], or are all of it.
const WHOLE: [&str; 5] = [
    "config",
    "nrs_policies",
    "nrs_fairshare_weights",
    "nrs_tbf_rule",
    "nrs_qbm_config",
];

/// Value of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Single value.
    One(String),
    /// One value for each head, regular first.
    Heads([String; 2]),
}

impl Setting {
    /// Returns the text that sets the parameter `name`.
    pub fn text(&self, name: &str) -> String {
        match self {
            Self::One(value) => value.clone(),
            Self::Heads([regular, high]) => {
                let part = part(name);
                format!("reg_{part}:{regular} hp_{part}:{high}")
            }
        }
    }
}

/// Policy of a head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadPolicy {
    /// Kind of the policy.
    pub kind: Kind,
    /// Argument of the policy, in the module's normal form.
    pub argument: Option<String>,
}

impl HeadPolicy {
    /// Default policy of a head.
    pub const FIFO: Self = Self {
        kind: Kind::Fifo,
        argument: None,
    };

    /// Returns the policy that `config` configures.
    fn of(config: &Config) -> Self {
        Self {
            kind: config.kind(),
            argument: config.argument().map(|argument| argument.to_string()),
        }
    }

    /// Creates the policy of `kind` with `argument`.
    ///
    /// # Errors
    ///
    /// The reason why the policy does not accept the argument.
    pub fn new(kind: Kind, argument: Option<&str>) -> Result<Self, &'static str> {
        let config = Config::parse(kind, argument, &Tunables::default());
        config
            .map(|config| Self::of(&config))
            .map_err(|error| error.reason)
    }

    /// Returns the fields of `tbf` that distinguish classes; `None` for another policy.
    pub fn fields(&self) -> Option<Fields> {
        if self.kind != Kind::Tbf {
            return None;
        }
        match &self.argument {
            Some(argument) => Fields::parse(argument).ok(),
            None => Some(Fields::GENERIC),
        }
    }
}

/// Formats as `NAME`, or `NAME ARGUMENT`.
impl std::fmt::Display for HeadPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.kind.name())?;
        match &self.argument {
            Some(argument) => write!(f, " {argument}"),
            None => Ok(()),
        }
    }
}

/// Settings of a service.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceState {
    /// Number of partitions; `None` if unknown, or if any number is accepted.
    pub cpts: Option<u32>,
    /// Parameters by name, except those with several values. `slots` may be missing: it then has
    /// the current default of the module.
    pub settings: BTreeMap<&'static str, Setting>,
    /// Weights of `fairshare`, one per line, as the module shows them.
    pub weights: String,
    /// Configuration of `qbm`, as the module shows it.
    pub plan: String,
    /// Policy of each head.
    pub policies: [HeadPolicy; 2],
    /// Rules of each head that runs `tbf`.
    pub rules: [Option<Rules>; 2],
}

impl ServiceState {
    /// Creates a state with all defaults.
    pub fn new() -> Self {
        let settings = settable().filter(|parameter| parameter.name() != "slots");
        let setting = |parameter: &'static Parameter| {
            let default = refusal::default(parameter);
            // A test verifies that all defaults are accepted.
            let setting = normal(parameter, &default).unwrap_or(Setting::One(default));
            (parameter.name(), setting)
        };
        Self {
            cpts: None,
            settings: settings.map(setting).collect(),
            weights: String::new(),
            plan: String::new(),
            policies: [HeadPolicy::FIFO, HeadPolicy::FIFO],
            rules: [None, None],
        }
    }

    /// Returns the state, with `slots` if it has none.
    pub fn with_slots(mut self, slots: &str) -> Self {
        let slots = Setting::One(slots.to_string());
        self.settings.entry("slots").or_insert(slots);
        self
    }

    /// Parses the text `config` of a service. `cpts` is unknown, and `slots` is missing if the text
    /// lacks it.
    ///
    /// # Errors
    ///
    /// The first line that is wrong, and the reason.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let draft = ServiceDraft::<Request>::new(Values::default(), None)?;
        draft.write(text)?;
        let mut state = Self::new();
        state.weights = draft.show("nrs_fairshare_weights")?;
        state.plan = draft.show("nrs_qbm_config")?;
        let mode = draft.show("nrs_fairshare_mode")?;
        let (parameters, primaries) = draft.into_settings()?;
        for parameter in settable() {
            let shown = match &parameter.value {
                Some(stored) => shown(&parameters.values, stored),
                None => mode.clone(),
            };
            // What is shown is accepted.
            if let Ok(setting) = normal(parameter, &shown) {
                state.settings.insert(parameter.name(), setting);
            }
        }
        if !text.lines().any(|line| line.starts_with("slots ")) {
            state.settings.remove("slots");
        }
        let policy = |config: &Option<Config>| config.as_ref().map(HeadPolicy::of);
        state.policies = primaries
            .each_ref()
            .map(|config| policy(config).unwrap_or(HeadPolicy::FIFO));
        state.rules = Priority::ALL.map(|priority| {
            let rule_list = parameters.kept.tbf.rule_list(priority);
            rule_list.map(|rule_list| Rules::of(rule_list))
        });
        Ok(state)
    }

    /// Returns the state as the text `config` of a service: all settings that differ from their
    /// defaults, and `slots`, whose default depends on the module.
    ///
    /// # Errors
    ///
    /// The part that the module would refuse, and the reason.
    pub fn text(&self) -> Result<String, String> {
        let draft = ServiceDraft::<Request>::new(Values::default(), None);
        let draft = draft.map_err(|error| error.to_string())?;
        let (mut lines, mut slots) = (String::new(), String::new());
        for (name, setting) in &self.settings {
            let lines = match *name {
                "slots" => &mut slots,
                _ => &mut lines,
            };
            add(lines, format_args!("{name} {}\n", setting.text(name)));
        }
        let weights: Vec<&str> = self.weights.lines().collect();
        for some in weights.chunks(WEIGHTS) {
            let some = some.join(" ");
            add(&mut lines, format_args!("nrs_fairshare_weights {some}\n"));
        }
        if !self.plan.is_empty() {
            lines.push_str("nrs_qbm_config ");
            // Writing to a string does not fail.
            let _ = OneLine::new(&mut lines, "; ").write_str(&self.plan);
            lines.push('\n');
        }
        for (policy, head) in self.policies.iter().zip(HEADS) {
            let (name, argument) = (policy.kind.name(), policy.argument.as_deref());
            let argument = argument.unwrap_or_default();
            add(
                &mut lines,
                format_args!("nrs_policies {name} {head} {argument}\n"),
            );
        }
        let rule_lists = self.rule_lists();
        let rule_lists = rule_lists.map_err(|refusal| {
            let name = &refusal.name;
            format!("rule {name}: {refusal}")
        })?;
        for (rule_list, head) in rule_lists.iter().zip(HEADS) {
            if let Some(rule_list) = rule_list {
                let _ = rule_list.write_commands(&format!("{head} "), &mut lines);
            }
        }
        draft.write(&lines).map_err(|error| error.to_string())?;
        Ok(slots + &draft.text())
    }

    /// Returns the rules of each head that runs `tbf`, as the module keeps them.
    ///
    /// # Errors
    ///
    /// The rule that the module would refuse.
    pub fn rule_lists(&self) -> Result<[Option<RuleList>; 2], Refusal> {
        let (rate, max) = (self.rate(), self.rules_max());
        let of_head = |index: usize| match (&self.rules[index], self.policies[index].fields()) {
            (Some(rules), Some(fields)) => rules.rule_list(fields, &rate, max).map(Some),
            _ => Ok(None),
        };
        Ok([of_head(0)?, of_head(1)?])
    }

    /// Returns true if the state is that of `wanted`, which may leave `cpts` open.
    pub fn is(&self, wanted: &Self) -> bool {
        let mut wanted = wanted.clone();
        wanted.cpts = wanted.cpts.or(self.cpts);
        *self == wanted
    }

    /// Returns the parameter `name` if it has a single value, else an empty text.
    pub fn one(&self, name: &str) -> &str {
        match self.settings.get(name) {
            Some(Setting::One(value)) => value,
            _ => "",
        }
    }

    /// Returns the rate of rules that are started without a rate.
    pub fn rate(&self) -> String {
        self.one("nrs_tbf_rate").to_string()
    }

    /// Returns the maximum number of rules of a head.
    pub fn rules_max(&self) -> u32 {
        self.one("nrs_tbf_rules_max").parse().unwrap_or(u32::MAX)
    }
}

/// Returns the parameters with a single value, or one value for each head.
pub fn settable() -> impl Iterator<Item = &'static Parameter> {
    let one = |parameter: &&Parameter| {
        parameter.access == AccessMode::Both && !WHOLE.contains(&parameter.name())
    };
    parameters::all().filter(one)
}

/// Returns the word after `reg_` and `hp_` in the text of a parameter with a value for each head.
pub fn part(name: &str) -> &str {
    let name = name.strip_prefix("nrs_").unwrap_or(name);
    match name.split_once('_') {
        Some(("delay", _)) | None => name,
        Some((_, rest)) => rest,
    }
}

/// Returns `text` as the setting of `parameter`; heads that are not named have their default.
///
/// # Errors
///
/// The reason why the parameter does not accept the text.
pub fn normal(parameter: &Parameter, text: &str) -> Result<Setting, String> {
    // The text shown for each head is padded, and longer than the maximum length of a write.
    let words = text.split_ascii_whitespace().collect::<Vec<_>>();
    let text = words.join(" ").replace(": ", ":");
    let mut values = Values::default();
    let stored = match &parameter.value {
        Some(stored) => stored,
        // The mode of fairshare is a text that may be followed by weights.
        None => return mode(parameter, &text).map(Setting::One),
    };
    let done = (stored.set)(&mut values, &text);
    done.map_err(|error| refusal::bare(parameter, error.reason).to_string())?;
    let shown = shown(&values, stored);
    if !parameter.heads {
        return Ok(Setting::One(shown.trim_end().to_string()));
    }
    let of_head = |line: &str| {
        line.split_once(':')
            .map_or("", |(_, value)| value.trim())
            .to_string()
    };
    let mut lines = shown.lines().map(of_head);
    let mut next = || lines.next().unwrap_or_default();
    Ok(Setting::Heads([next(), next()]))
}

/// Returns the text of a value.
fn shown(values: &Values, stored: &ValueAccessors) -> String {
    let mut shown = String::new();
    // Writing to a string does not fail.
    let _ = (stored.show)(values, &mut shown);
    shown
}

/// Appends `text` to `out`, which does not fail.
fn add(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}

fn mode(parameter: &Parameter, text: &str) -> Result<String, String> {
    let check = parameter.check.map_or(Ok(()), |check| check(text));
    check.map_err(|error| refusal::bare(parameter, error.reason).to_string())?;
    let mode = Mode::parse(text).map(|mode| mode.to_string());
    mode.map_err(|_| "set weights in the table `weights`".to_string())
}

/// Returns the rate `text` as the module shows it.
pub fn normal_rate(text: &str) -> Option<String> {
    Rate::parse(text).map(|rate| rate.to_string())
}

/// Returns the reason why `settings` contradict each other; `None` if they do not.
pub fn contradiction(settings: &BTreeMap<&'static str, Setting>) -> Option<&'static str> {
    let mut values = Values::default();
    for (name, setting) in settings {
        let stored = parameters::named(name).and_then(|parameter| parameter.value.as_ref());
        if let Some(stored) = stored {
            // Each setting was checked before.
            let _ = (stored.set)(&mut values, &setting.text(name));
        }
    }
    values.check().err().map(|error| error.reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, text: &str) -> Result<String, String> {
        normal(parameters::named(name).unwrap(), text).map(|setting| setting.text(name))
    }

    #[test]
    fn values_have_one_form() {
        for (name, text, want) in [
            ("at_min", " 007\n", "7"),
            ("nrs_fairshare_select", "paper", "paper"),
            ("high_priority_sources", "prio realtime", "realtime prio"),
            ("nrs_crrn_quantum", "04", "reg_quantum:4 hp_quantum:4"),
            (
                "nrs_crrn_quantum",
                "hp_quantum:4",
                "reg_quantum:8 hp_quantum:4",
            ),
            (
                "nrs_crrn_quantum",
                "reg_quantum:16   \nhp_quantum:4    \n",
                "reg_quantum:16 hp_quantum:4",
            ),
            (
                "nrs_delay_pct",
                "hp_delay_pct: 0 reg_delay_pct: 50",
                "reg_delay_pct:50 hp_delay_pct:0",
            ),
        ] {
            assert_eq!(set(name, text).unwrap(), want, "{name} {text:?}");
        }
        for (name, text, reason) in [
            ("slots", "x", "not a number from 1 to 65535, or auto"),
            ("nrs_crrn_quantum", "hp_quanta:4", "reg_NAME:VALUE"),
            ("nrs_fairshare_mode", "uid", "does not end in _fair"),
            (
                "nrs_fairshare_mode",
                "uid_fair weight=uid:5:2",
                "set weights in the table",
            ),
        ] {
            let error = set(name, text).unwrap_err();
            assert!(error.contains(reason), "{name} {text:?}: {error}");
        }
    }

    /// Verifies that each default is in normal form.
    #[test]
    fn defaults_are_what_they_set() {
        for (name, setting) in ServiceState::new().settings {
            let text = setting.text(name);
            assert_eq!(set(name, &text), Ok(text), "{name}");
        }
        assert_eq!(ServiceState::new().settings.len() + 1, settable().count());
    }
}
