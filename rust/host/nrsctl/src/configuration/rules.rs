// SPDX-License-Identifier: GPL-2.0-only

//! Rules of `tbf`: wanted rules, running rules, and the commands that lead from one set to the
//! other.
//!
//! All rules are checked by the module's own [`RuleList`]. Wanted rules are built in a list, and
//! the commands of a change are applied to a list while they are computed.

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

/// Commands, and the rules after them.
struct Script {
    rule_list: RuleList,
    commands: Vec<String>,
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
        Ok(Self {
            rule_list,
            commands: Vec::new(),
        })
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
        self.commands.push(command);
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        let rules = self.rule_list.rules();
        rules.map(|rule| rule.name.to_string()).collect()
    }

    fn has(&self, name: &str) -> bool {
        Name::new(name).is_some_and(|name| self.rule_list.get(&name).is_some())
    }

    /// Returns the current limits of the rule `name`.
    fn limits(&self, name: &str) -> Option<Limits> {
        let rule = self.rule_list.get(&Name::new(name)?)?;
        Some(Limits::of(&self.rule_list, &rule.limits))
    }

    /// Stops the rules `names`, and removes them from `also` of the other rules.
    fn stop(&mut self, names: &[String]) -> Result<(), Refusal> {
        for name in self.names() {
            let also = self.limits(&name).map_or(Vec::new(), |limits| limits.also);
            let stays = |other: &String| !names.contains(other);
            if also.iter().all(stays) {
                continue;
            }
            let also: Vec<String> = also.into_iter().filter(stays).collect();
            let command = format!("change {name} also={}", also.join("+"));
            self.run(&name, command)?;
        }
        for name in names {
            self.run(name, format!("stop {name}"))?;
        }
        Ok(())
    }
}

/// Returns the commands that lead from `from` to `to`, keeping the classes of unchanged rules.
/// `tbf` runs with `fields` on the head; `rate` is for rules without a rate, `max` limits the
/// number of rules.
///
/// # Errors
///
/// A command that the module would refuse.
pub fn commands(
    from: &Rules,
    to: &Rules,
    fields: Fields,
    rate: &str,
    max: u32,
) -> Result<Vec<String>, Refusal> {
    if from == to {
        return Ok(Vec::new());
    }
    let mut script = Script::new(fields, rate, u32::MAX)?;
    script.rule_list = from.rule_list(fields, rate, u32::MAX)?;
    script.rule_list = script
        .rule_list
        .with_defaults(parse(rate), max)
        .map_err(|error| Refusal {
            name: DEFAULT.into(),
            command: String::new(),
            error: error.into(),
        })?;
    let same = |rule: &ConfiguredRule| {
        let wanted = to.get(&rule.name);
        wanted.is_some_and(|wanted| wanted.conditions == rule.conditions)
    };
    let gone: Vec<String> = from
        .list
        .iter()
        .filter(|rule| !same(rule))
        .map(|rule| rule.name.clone())
        .collect();
    script.stop(&gone)?;
    let stay = longest_ordered_subsequence(&script.names(), to);
    let mut next = DEFAULT;
    for rule in to.list.iter().rev() {
        let name = rule.name.as_str();
        if !script.has(name) {
            let there = rule.limits.also.iter().all(|other| script.has(other));
            let also = if there { &rule.limits.also[..] } else { &[] };
            let pairs = rule.limits.pairs(also);
            let command = format!("start {name} {} {pairs} rank={next}", rule.conditions);
            script.run(name, command)?;
        } else if !stay.contains(&rule.name) {
            script.run(name, format!("change {name} rank={next}"))?;
        }
        next = name;
    }
    let wanted = to
        .list
        .iter()
        .map(|rule| (rule.name.as_str(), &rule.limits));
    for (name, limits) in wanted.chain([(DEFAULT, &to.default)]) {
        if script.limits(name).as_ref() != Some(limits) {
            let pairs = limits.pairs(&limits.also);
            script.run(name, format!("change {name} {pairs}"))?;
        }
    }
    Ok(script.commands)
}

/// Parses a rate that was checked before.
fn parse(rate: &str) -> Rate {
    Rate::parse(rate).unwrap_or_else(|| unreachable!("a rate that was checked"))
}

/// Returns the longest subsequence of `names` before `default` whose rules are in the order of
/// `to`, so need not be moved.
fn longest_ordered_subsequence(names: &[String], to: &Rules) -> Vec<String> {
    let before = names.iter().take_while(|name| *name != DEFAULT);
    let place = |name: &String| to.list.iter().position(|rule| rule.name == *name);
    let there: Vec<(usize, &String)> = before
        .filter_map(|name| Some((place(name)?, name)))
        .collect();
    // For each rule, the length of the longest subsequence that ends with it, and its predecessor
    // there.
    let mut rows: Vec<(usize, Option<usize>)> = Vec::new();
    for (i, (place, _)) in there.iter().enumerate() {
        let before = (0..i).filter(|&j| there[j].0 < *place);
        let best = before.max_by_key(|&j| rows[j].0);
        rows.push((best.map_or(1, |j| rows[j].0 + 1), best));
    }
    let mut last = (0..rows.len()).max_by_key(|&i| rows[i].0);
    let mut stay = Vec::new();
    while let Some(i) = last {
        stay.push(there[i].1.clone());
        last = rows[i].1;
    }
    stay
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

    #[track_caller]
    fn change(from: &Rules, to: &Rules) -> Vec<String> {
        let commands = commands(from, to, fields(), "10000", 4).unwrap();
        let mut rule_list = from.rule_list(fields(), "10000", 4).unwrap();
        for command in &commands {
            rule_list = rule_list
                .apply(&RuleCommand::parse(command).unwrap())
                .unwrap();
        }
        assert_eq!(&Rules::of(&rule_list), to, "{commands:?}");
        commands
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

    #[test]
    fn only_what_differs_is_changed() {
        let pairs = "rate=5 minrate=0 realtime=0 borrow=0 also=";
        for (from, to, want) in [
            ("a 1 5", "a 1 5", ""),
            ("", "a 1 5", "start a uid={1} PAIRS rank=default"),
            ("a 1 5", "", "stop a"),
            ("a 1 6", "a 1 5", "change a PAIRS"),
            (
                "a 2 5",
                "a 1 5",
                "stop a; start a uid={1} PAIRS rank=default",
            ),
            ("a 1 5; b 2 5", "b 2 5; a 1 5", "change a rank=default"),
            (
                "a 1 5; b 2 5; c 3 5",
                "c 3 5; a 1 5; b 2 5",
                "change c rank=a",
            ),
            ("a 1 5 b; b 2 5", "a 1 5", "change a also=; stop b"),
            (
                "a 1 5 b; b 2 5 a",
                "",
                "change a also=; change b also=; stop a; stop b",
            ),
            (
                "",
                "a 1 5 b; b 2 5",
                "start b uid={2} PAIRS rank=default; start a uid={1} PAIRSb rank=b",
            ),
        ] {
            let lines = |text: &'static str| text.split("; ").filter(|line| !line.is_empty());
            let of = |text| rules(&lines(text).collect::<Vec<_>>());
            let found = change(&of(from), &of(to)).join("; ");
            assert_eq!(found, want.replace("PAIRS", pairs));
        }
    }

    #[test]
    fn default_is_changed_like_others() {
        let mut to = rules(&["a 1 5"]);
        to.default = Limits {
            minrate: Some("3".into()),
            also: vec!["a".into()],
            ..Limits::new("7")
        };
        let commands = change(&rules(&["a 1 5"]), &to);
        assert_eq!(
            commands,
            ["change default rate=7 minrate=3 realtime=0 borrow=0 also=a"]
        );
    }

    /// Moves rules that are after `default`, because a user moved `default` to the front.
    #[test]
    fn rules_behind_default_are_moved() {
        for (rank, behind) in [("a", 2), ("b", 1)] {
            let from = rules(&["a 1 5", "b 2 5"]);
            let rule_list = from.rule_list(fields(), "10000", 4).unwrap();
            let command = format!("change default rank={rank}");
            let rule_list = rule_list
                .apply(&RuleCommand::parse(&command).unwrap())
                .unwrap();
            let moved = Rules::of(&rule_list);
            assert_eq!((moved.behind, &moved), (behind, &from));
            assert!(change(&moved, &from).is_empty());
            change(&moved, &rules(&["b 2 5", "a 1 5"]));
            change(&moved, &rules(&["a 1 5", "c 3 5", "b 2 5"]));
        }
    }
}
