// SPDX-License-Identifier: GPL-2.0-only

//! All that can be set of a service, in one form for what a file wants and for what runs.
//!
//! Equal states are equal values: numbers have no zeros in front, words are in the module's order, what nobody
//! mentioned has its default.

use std::collections::BTreeMap;

use nrs_sched::parameters::{self, Access, Parameter, Values};
use nrs_sched::policy::fairshare::mode::Mode;
use nrs_sched::policy::{Config, Kind, Tunables};
use nrs_sched::rules::{Fields, Rate};

use crate::refusal;

use super::rules::Rules;

/// What the heads are called: regular first.
pub const HEADS: [&str; 2] = ["reg", "hp"];

/// Parameters that are more than one value, and have parts of the state to themselves.
const WHOLE: [&str; 4] = [
    "nrs_policies",
    "nrs_fairshare_weights",
    "nrs_tbf_rule",
    "nrs_qbm_config",
];

/// What a parameter is set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// One value.
    One(String),
    /// A value for each head, regular first.
    Heads([String; 2]),
}

impl Setting {
    /// The text that sets it.
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

/// The policy of a head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Which one.
    pub kind: Kind,
    /// What it was started with, in the module's own form.
    pub argument: Option<String>,
}

impl Policy {
    /// What runs when nobody asked for anything.
    pub const FIFO: Self = Self {
        kind: Kind::Fifo,
        argument: None,
    };

    /// The policy of `kind` that is started with `argument`.
    ///
    /// # Errors
    ///
    /// Why the policy does not take the argument.
    pub fn new(kind: Kind, argument: Option<&str>) -> Result<Self, &'static str> {
        let config = Config::parse(kind, argument, &Tunables::default());
        let config = config.map_err(|error| error.reason)?;
        Ok(Self {
            kind,
            argument: config.argument().map(|argument| argument.to_string()),
        })
    }

    /// What tells classes of `tbf` apart; none for another policy.
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

/// `NAME`, or `NAME ARGUMENT`.
impl std::fmt::Display for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.kind.name())?;
        match &self.argument {
            Some(argument) => write!(f, " {argument}"),
            None => Ok(()),
        }
    }
}

/// All that can be set of a service.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// Number of partitions; none: it is not known, or nobody cares.
    pub cpts: Option<u32>,
    /// Parameters by name, but for those that are more than one value. `slots` may be missing: it has the
    /// default that the module has then.
    pub settings: BTreeMap<&'static str, Setting>,
    /// Weights of `fairshare`, a line each, as the module shows them.
    pub weights: String,
    /// The configuration of `qbm`, as the module shows it.
    pub plan: String,
    /// The policy of each head.
    pub policies: [Policy; 2],
    /// The rules of each head that `tbf` runs on.
    pub rules: [Option<Rules>; 2],
}

impl State {
    /// All defaults.
    pub fn new() -> Self {
        let settings = settable().filter(|parameter| parameter.name() != "slots");
        let setting = |parameter: &'static Parameter| {
            let default = refusal::default(parameter);
            // A test says that defaults are taken.
            let setting = normal(parameter, &default).unwrap_or(Setting::One(default));
            (parameter.name(), setting)
        };
        Self {
            cpts: None,
            settings: settings.map(setting).collect(),
            weights: String::new(),
            plan: String::new(),
            policies: [Policy::FIFO, Policy::FIFO],
            rules: [None, None],
        }
    }

    /// The same with `slots` if it has none.
    pub fn with_slots(mut self, slots: &str) -> Self {
        let slots = Setting::One(slots.to_string());
        self.settings.entry("slots").or_insert(slots);
        self
    }

    /// The parameter `name`, if it is one value; empty if it is not known.
    pub fn one(&self, name: &str) -> &str {
        match self.settings.get(name) {
            Some(Setting::One(value)) => value,
            _ => "",
        }
    }

    /// The rate of rules that are started without one.
    pub fn rate(&self) -> String {
        self.one("nrs_tbf_rate").to_string()
    }

    /// How many rules a head can have.
    pub fn rules_max(&self) -> u32 {
        self.one("nrs_tbf_rules_max").parse().unwrap_or(u32::MAX)
    }
}

/// The parameters that are one value, or one for each head.
pub fn settable() -> impl Iterator<Item = &'static Parameter> {
    let one = |parameter: &&Parameter| {
        parameter.access == Access::Both && !WHOLE.contains(&parameter.name())
    };
    parameters::all().filter(one)
}

/// The policy whose parameter `name` is, if it is one of a policy's.
pub fn policy_of(name: &str) -> Option<Kind> {
    let word = name.strip_prefix("nrs_")?.split('_').next()?;
    Kind::from_name(word).ok()
}

/// What stands behind `reg_` and `hp_` in the text of a parameter with a value for each head.
pub fn part(name: &str) -> &str {
    let name = name.strip_prefix("nrs_").unwrap_or(name);
    match name.split_once('_') {
        Some(("delay", _)) | None => name,
        Some((_, rest)) => rest,
    }
}

/// Returns `text` as the setting of `parameter`; heads that it does not name have their default.
///
/// # Errors
///
/// Why the parameter does not take it.
pub fn normal(parameter: &Parameter, text: &str) -> Result<Setting, String> {
    // What is shown for each head is padded, and longer than what may be written.
    let words = text.split_ascii_whitespace().collect::<Vec<_>>();
    let text = words.join(" ").replace(": ", ":");
    let mut values = Values::default();
    let stored = match &parameter.value {
        Some(stored) => stored,
        // The mode of fairshare is a text: weights may stand behind it.
        None => return mode(parameter, &text).map(Setting::One),
    };
    let done = (stored.set)(&mut values, &text);
    done.map_err(|error| refusal::bare(parameter, error.reason).to_string())?;
    let mut shown = String::new();
    // Writing to a string does not fail.
    let _ = (stored.show)(&values, &mut shown);
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

fn mode(parameter: &Parameter, text: &str) -> Result<String, String> {
    let check = parameter.check.map_or(Ok(()), |check| check(text));
    check.map_err(|error| refusal::bare(parameter, error.reason).to_string())?;
    let mode = Mode::parse(text).map(|mode| mode.to_string());
    mode.map_err(|_| "weights belong into the table `weights`".to_string())
}

/// The rate `text` as the module shows it.
pub fn normal_rate(text: &str) -> Option<String> {
    Rate::parse(text).map(|rate| rate.to_string())
}

/// Says why these settings do not go together.
pub fn contradiction(settings: &BTreeMap<&'static str, Setting>) -> Option<&'static str> {
    let mut values = Values::default();
    for (name, setting) in settings {
        let stored = parameters::named(name).and_then(|parameter| parameter.value.as_ref());
        if let Some(stored) = stored {
            // Each has been checked by itself.
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
                "belong into the table",
            ),
        ] {
            let error = set(name, text).unwrap_err();
            assert!(error.contains(reason), "{name} {text:?}: {error}");
        }
    }

    /// Each default has one form and stays what it is.
    #[test]
    fn defaults_are_what_they_set() {
        for (name, setting) in State::new().settings {
            let text = setting.text(name);
            assert_eq!(set(name, &text), Ok(text), "{name}");
        }
        assert_eq!(State::new().settings.len() + 1, settable().count());
    }

    #[test]
    fn policies_of_parameters() {
        assert_eq!(policy_of("nrs_fairshare_delta_ms"), Some(Kind::Fairshare));
        assert_eq!(policy_of("nrs_qbm_clients_max"), Some(Kind::Qbm));
        assert_eq!(["nrs_pop", "slots", "at_min"].map(policy_of), [None; 3]);
    }
}
