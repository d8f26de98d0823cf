// SPDX-License-Identifier: GPL-2.0-only

//! Rules of `tbf`, wanted or running.
//!
//! All rules are checked by the module's own [`RuleList`], in which wanted rules are built.

use nrs_sched::rules::{Fields, Name, Rate, RuleCommand, RuleError, RuleLimits as Terms, RuleList};

/// Limits of a rule, in the module's normal form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum rate of a class.
    pub rate: String,
    /// Guaranteed minimum rate.
    pub minrate: Option<String>,
    /// True if a class catches up after delays.
    pub realtime: bool,
    /// True if a class may use the rate that other rules leave unused.
    pub borrow: bool,
    /// Further rules to charge.
    pub also: Vec<String>,
}

impl Limits {
    /// Creates limits with a rate only.
    pub fn new(rate: impl Into<String>) -> Self {
        Self {
            rate: rate.into(),
            minrate: None,
            realtime: false,
            borrow: false,
            also: Vec::new(),
        }
    }

    fn of(rule_list: &RuleList, limits: &Terms) -> Self {
        let name = |id: &u32| {
            let mut rules = rule_list.rules();
            let rule = rules.find(|rule| rule.id == *id);
            rule.map(|rule| rule.name.to_string())
        };
        Self {
            rate: limits.rate.to_string(),
            minrate: limits.minrate.map(|rate| rate.to_string()),
            realtime: limits.realtime,
            borrow: limits.borrow,
            also: limits.also.ids().iter().filter_map(name).collect(),
        }
    }

    /// Returns the pairs of a command that set all limits, with `also` as further rules.
    fn pairs(&self, also: &[String]) -> String {
        format!(
            "rate={} minrate={} realtime={} borrow={} also={}",
            self.rate,
            self.minrate.as_deref().unwrap_or("0"),
            u8::from(self.realtime),
            u8::from(self.borrow),
            also.join("+")
        )
    }
}

/// Rule with conditions and limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredRule {
    /// Name of the rule.
    pub name: String,
    /// Match expression.
    pub conditions: String,
    /// Limits of the rule.
    pub limits: Limits,
}

/// Rules of a head.
///
/// The position of `default` has no effect, so it is ignored in comparisons.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Rules in order, without `default`.
    pub list: Vec<ConfiguredRule>,
    /// Limits of `default`.
    pub default: Limits,
    /// Number of rules in the list after `default`.
    pub behind: usize,
}

impl PartialEq for Rules {
    fn eq(&self, other: &Self) -> bool {
        self.list == other.list && self.default == other.default
    }
}

/// Name of the rule that always exists.
pub const DEFAULT: &str = "default";

impl Rules {
    /// Creates the initial rules: `default` with `rate`.
    pub fn new(rate: &str) -> Self {
        Self {
            list: Vec::new(),
            default: Limits::new(rate),
            behind: 0,
        }
    }

    /// Creates the rules from `rule_list`.
    pub fn of(rule_list: &RuleList) -> Self {
        let mut rules = Self::new("");
        for rule in rule_list.rules() {
            let limits = Limits::of(rule_list, &rule.limits);
            if rule.name == Name::DEFAULT {
                rules.default = limits;
                rules.behind = rule_list.len() - 1 - rules.list.len();
                continue;
            }
            rules.list.push(ConfiguredRule {
                name: rule.name.to_string(),
                conditions: rule.conditions.to_string(),
                limits,
            });
        }
        rules
    }

    /// Returns the rule `name`.
    pub fn get(&self, name: &str) -> Option<&ConfiguredRule> {
        self.list.iter().find(|rule| rule.name == name)
    }

    /// Builds the list of the rules under `tbf` with `fields`; `rate` is for rules without a rate,
    /// `max` limits the number of rules.
    ///
    /// # Errors
    ///
    /// The rule and the command that is refused, with the reason.
    pub fn rule_list(&self, fields: Fields, rate: &str, max: u32) -> Result<RuleList, Refusal> {
        let mut script = Script::new(fields, rate, max)?;
        for rule in self.list.iter().rev() {
            // The rules in `also` may not exist yet.
            let pairs = rule.limits.pairs(&[]);
            let command = format!("start {} {} {pairs}", rule.name, rule.conditions);
            script.run(&rule.name, command)?;
        }
        for rule in self
            .list
            .iter()
            .rev()
            .filter(|rule| !rule.limits.also.is_empty())
        {
            let command = format!("change {} also={}", rule.name, rule.limits.also.join("+"));
            script.run(&rule.name, command)?;
        }
        let pairs = self.default.pairs(&self.default.also);
        let behind = self.list.len().saturating_sub(self.behind);
        let rank = self
            .list
            .get(behind)
            .map(|rule| format!(" rank={}", rule.name));
        let rank = rank.unwrap_or_default();
        script.run(DEFAULT, format!("change {DEFAULT} {pairs}{rank}"))?;
        Ok(script.rule_list)
    }
}

/// Refusal of a rule.
#[derive(Debug)]
pub struct Refusal {
    /// Name of the rule.
    pub name: String,
    /// Command that starts or changes the rule.
    pub command: String,
    /// Column in the command, and the reason.
    pub error: RuleError,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let reason = self.error.reason;
        match (self.error.is_syntax, self.error.found(&self.command)) {
            (true, "") => write!(f, "expected {reason}"),
            (true, found) => write!(f, "expected {reason}, found `{found}`"),
            (false, "") => f.write_str(reason),
            (false, found) => write!(f, "{reason}: `{found}`"),
        }
    }
}

/// Rules that are being built by commands.
struct Script {
    rule_list: RuleList,
}

impl Script {
    fn new(fields: Fields, rate: &str, max: u32) -> Result<Self, Refusal> {
        let refused = |error| Refusal {
            name: DEFAULT.into(),
            command: String::new(),
            error,
        };
        let rate =
            Rate::parse(rate).ok_or_else(|| refused(RuleError::invalid(0, Rate::EXPECTED)))?;
        let rule_list = RuleList::new(fields, rate, max).map_err(|error| refused(error.into()))?;
        Ok(Self { rule_list })
    }

    fn run(&mut self, name: &str, command: String) -> Result<(), Refusal> {
        let parsed = RuleCommand::parse(&command);
        match parsed.and_then(|parsed| self.rule_list.apply(&parsed)) {
            Ok(rule_list) => self.rule_list = rule_list,
            Err(error) => {
                return Err(Refusal {
                    name: name.into(),
                    command,
                    error,
                })
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields() -> Fields {
        Fields::parse("uid").unwrap()
    }

    fn rule(text: &str) -> ConfiguredRule {
        let mut words = text.split(' ');
        let mut next = || words.next().unwrap_or_default();
        let (name, uid, rate) = (next(), next(), next());
        let also = next();
        ConfiguredRule {
            name: name.into(),
            conditions: format!("uid={{{uid}}}"),
            limits: Limits {
                also: also
                    .split('+')
                    .filter(|name| !name.is_empty())
                    .map(str::to_string)
                    .collect(),
                ..Limits::new(rate)
            },
        }
    }

    fn rules(lines: &[&str]) -> Rules {
        Rules {
            list: lines.iter().map(|line| rule(line)).collect(),
            default: Limits::new("10000"),
            behind: 0,
        }
    }

    #[test]
    fn what_is_built_is_what_was_asked_for() {
        let wanted = rules(&["a 1 5 b", "b 2 6 a+c", "c 3 1MB/s"]);
        let rule_list = wanted.rule_list(fields(), "10000", 3).unwrap();
        assert_eq!(Rules::of(&rule_list), wanted);
        let refusal = wanted.rule_list(fields(), "10000", 2).err().unwrap();
        assert_eq!(refusal.name, "a");
        assert!(refusal.to_string().contains("nrs_tbf_rules_max"));
    }

    /// A user moved `default` to the front: the rules behind it stay where they are.
    #[test]
    fn rules_behind_default() {
        for (rank, behind) in [("a", 2), ("b", 1)] {
            let from = rules(&["a 1 5", "b 2 5"]);
            let rule_list = from.rule_list(fields(), "10000", 4).unwrap();
            let command = format!("change default rank={rank}");
            let rule_list = rule_list
                .apply(&RuleCommand::parse(&command).unwrap())
                .unwrap();
            let moved = Rules::of(&rule_list);
            assert_eq!((moved.behind, &moved), (behind, &from));
            let again = moved.rule_list(fields(), "10000", 4).unwrap();
            assert_eq!(Rules::of(&again).behind, behind);
        }
    }
}
