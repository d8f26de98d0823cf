// SPDX-License-Identifier: GPL-2.0-only

//! Settings of a service, wanted or running: what the module's own [`ServiceDraft`] makes of the
//! text of the parameter `config`.
//!
//! ```text
//!   file ──commands──▶ ServiceDraft ──▶ ServiceState ──text()──▶ config (set) ──▶ service
//!   file ◀──────────── render ◀──────── ServiceState ◀──parse()── config (get) ◀──┘
//! ```

use std::fmt;

use nrs_sched::arena::Request;
use nrs_sched::attr::Priority;
use nrs_sched::error::Error;
use nrs_sched::parameters::{self, AccessMode, Parameter, Values};
use nrs_sched::policy::control::Parameters;
use nrs_sched::policy::Kind;
use nrs_sched::rules::RuleList;
use nrs_sched::service::{draft::ServiceDraft, Primaries};

use super::render;

/// Settings that are being written.
pub type Draft = ServiceDraft<Request>;

/// Names of the heads, regular first.
pub const HEADS: [&str; 2] = ["reg", "hp"];

/// Parameters with several values, which have own keys, or are all settings.
const WHOLE: [&str; 7] = [
    "config",
    "nrs_policies",
    "nrs_fairshare_weights",
    "nrs_fairshare_limits",
    "nrs_owners",
    "nrs_tbf_rule",
    "nrs_qbm_config",
];

/// Settings of a service.
///
/// States are equal if they are saved as the same section; the place of the rule `default`, which
/// has no effect, is not saved.
#[derive(Clone)]
pub struct ServiceState {
    /// Number of partitions; `None` if unknown, or if any number is accepted.
    pub cpts: Option<u32>,
    /// `slots`; `None` for the current default of the module.
    pub slots: Option<String>,
    /// Weights of `fairshare`, one per line, as the module shows them.
    pub weights: String,
    /// Limits of `fairshare`, one per line, as the module shows them.
    pub limits: String,
    /// Owners of cgroups, one per line, as the module shows them.
    pub owners: String,
    /// Configuration of `qbm`, as the module shows it.
    pub plan: String,
    /// All other settings, as the module writes them.
    text: String,
    parameters: Parameters,
    primaries: Primaries,
}

impl ServiceState {
    /// Parses the text `config` of a service. `cpts` is unknown, and `slots` is missing if the text
    /// lacks it.
    ///
    /// # Errors
    ///
    /// The first line that is wrong, and the reason.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let draft = Draft::new(Values::default())?;
        draft.write(text)?;
        Self::of(draft, text.lines().any(is_slots))
    }

    /// Returns the settings in `draft`, with `slots` if `has_slots`.
    ///
    /// # Errors
    ///
    /// The settings contradict each other.
    pub fn of(draft: Draft, has_slots: bool) -> Result<Self, Error> {
        let all = draft.text();
        let lines = all.split_inclusive('\n');
        let text = lines.filter(|line| !is_slots(line)).collect();
        let weights = draft.show("nrs_fairshare_weights")?;
        let limits = draft.show("nrs_fairshare_limits")?;
        let owners = draft.show("nrs_owners")?;
        let plan = draft.show("nrs_qbm_config")?;
        let (parameters, primaries) = draft.into_settings()?;
        let slots = parameters::named("slots").filter(|_| has_slots);
        let slots = slots.and_then(|slots| values(slots, &parameters.values).pop());
        Ok(Self {
            cpts: None,
            slots,
            weights,
            limits,
            owners,
            plan,
            text,
            parameters,
            primaries,
        })
    }

    /// Returns the state, with `slots` if it has none.
    pub fn with_slots(mut self, slots: &str) -> Self {
        self.slots.get_or_insert_with(|| slots.to_owned());
        self
    }

    /// Returns the state as the text `config` of a service: all settings that differ from their
    /// defaults, and `slots`, whose default depends on the module.
    pub fn text(&self) -> String {
        let slots = self.slots.iter().map(|slots| format!("slots {slots}\n"));
        slots.chain([self.text.clone()]).collect()
    }

    /// Returns true if the state is that of `wanted`, which may leave `cpts` open.
    pub fn is(&self, wanted: &Self) -> bool {
        let mut wanted = wanted.clone();
        wanted.cpts = wanted.cpts.or(self.cpts);
        *self == wanted
    }

    /// Returns the parameters that differ from their defaults, except `slots`, with their values:
    /// one, or one for each head.
    pub fn settings(&self) -> Vec<(&'static str, Vec<String>)> {
        let values = |parameter: &'static Parameter| {
            let value = values(parameter, &self.parameters.values);
            let changed = value != self::values(parameter, &Values::default());
            changed.then_some((parameter.name(), value))
        };
        let mut settings: Vec<_> = settable().filter_map(values).collect();
        settings.retain(|(name, _)| *name != "slots");
        settings.sort_unstable();
        settings
    }

    /// Returns the policy of each head: `NAME`, or `NAME ARGUMENT`.
    pub fn policies(&self) -> [String; 2] {
        self.primaries.each_ref().map(|config| {
            let argument = config.as_ref().and_then(|config| config.argument());
            let name = config
                .as_ref()
                .map_or(Kind::FALLBACK, |config| config.kind());
            match argument {
                Some(argument) => format!("{} {argument}", name.name()),
                None => name.name().to_owned(),
            }
        })
    }

    /// Returns the rate of rules that are started without a rate.
    pub fn rate(&self) -> String {
        let rate = parameters::named("nrs_tbf_rate");
        let rate = rate.and_then(|rate| values(rate, &self.parameters.values).pop());
        rate.unwrap_or_default()
    }

    /// Returns the rules of each head that runs `tbf`.
    pub fn rules(&self) -> [Option<&RuleList>; 2] {
        let tbf = &self.parameters.kept.tbf;
        Priority::ALL.map(|priority| tbf.rule_list(priority).map(|rule_list| &**rule_list))
    }
}

impl PartialEq for ServiceState {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

/// Formats as a section.
impl fmt::Display for ServiceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&render::service("", self, ""))
    }
}

impl fmt::Debug for ServiceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns true if `line` of a text sets `slots`.
fn is_slots(line: &str) -> bool {
    line.starts_with("slots ")
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

/// Returns the values of `parameter` in `values`: one, or one for each head.
fn values(parameter: &Parameter, values: &Values) -> Vec<String> {
    let Some(stored) = &parameter.value else {
        // The only text with a single value.
        return vec![values.policies.fairshare.mode.to_string()];
    };
    let mut shown = String::new();
    // Writing to a string does not fail.
    let _ = (stored.show)(values, &mut shown);
    if !parameter.heads {
        return vec![shown.trim_end().to_owned()];
    }
    let of_head = |line: &str| {
        let value = line.split_once(':').map(|(_, value)| value);
        value.unwrap_or_default().trim().to_owned()
    };
    shown.lines().map(of_head).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_one_form() {
        for (line, want) in [
            ("at_min  007", "at_min 7\n"),
            ("nrs_fairshare_select paper", "nrs_fairshare_select paper\n"),
            (
                "high_priority_sources prio realtime",
                "high_priority_sources realtime prio\n",
            ),
            (
                "nrs_crrn_quantum 04",
                "nrs_crrn_quantum reg_quantum:4 hp_quantum:4\n",
            ),
            (
                "nrs_crrn_quantum hp_quantum:4",
                "nrs_crrn_quantum reg_quantum:8 hp_quantum:4\n",
            ),
            ("nrs_fairshare_mode jobid_fair", ""),
            ("slots 007", "slots 7\n"),
        ] {
            let state = ServiceState::parse(&format!("{line}\n")).unwrap();
            assert_eq!(state.text(), want, "{line:?}");
            assert_eq!(ServiceState::parse(want).unwrap(), state, "{line:?}");
        }
    }

    /// Verifies that no setting of a new service differs from its default, and that the values of
    /// the only text without accessors are known.
    #[test]
    fn new_services_have_defaults() {
        let new = ServiceState::parse("").unwrap();
        assert_eq!((new.text(), new.settings()), (String::new(), Vec::new()));
        let texts = settable().filter(|parameter| parameter.value.is_none());
        let texts: Vec<&str> = texts.map(Parameter::name).collect();
        assert_eq!(texts, ["nrs_fairshare_mode"]);
    }

    /// A user moved `default` to the front: the rules behind it stay where they are.
    #[test]
    fn rules_behind_default() {
        let rules = "nrs_policies tbf uid\nnrs_tbf_rule start b uid={2} rate=5\n\
                     nrs_tbf_rule start a uid={1} rate=5\n";
        let state = ServiceState::parse(rules).unwrap();
        for rank in ["a", "b"] {
            let moved = format!("{rules}nrs_tbf_rule change default rank={rank}\n");
            let moved = ServiceState::parse(&moved).unwrap();
            assert_eq!(moved, state);
            assert!(
                moved.text().contains(&format!(" rank={rank}\n")),
                "{}",
                moved.text()
            );
            assert_eq!(
                ServiceState::parse(&moved.text()).unwrap().text(),
                moved.text()
            );
        }
    }
}
