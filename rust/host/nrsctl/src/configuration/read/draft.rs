// SPDX-License-Identifier: GPL-2.0-only

//! Rules of a service, which are checked together.

use nrs_sched::rules::{Fields, Name, RuleAction, RuleCommand, RulePairs, ALSO_MAX};

use crate::configuration::document::{TableEntry, TomlValue, ValueNode};
use crate::configuration::fault::FilePosition;
use crate::configuration::keys::Table;
use crate::configuration::reader::{at, FileReader};
use crate::configuration::rules::{ConfiguredRule, Limits, Rules, DEFAULT};
use crate::configuration::state::{normal_rate, HeadPolicy, ServiceState, HEADS};

/// Rule of the file.
struct Draft<'a> {
    path: String,
    node: &'a ValueNode,
    entries: &'a [TableEntry],
    /// Indices of the heads of the rule.
    heads: Vec<usize>,
    rule: ConfiguredRule,
}

impl Draft<'_> {
    /// Returns place and path of the value of `key`, or else of the rule.
    fn place(&self, key: &str) -> (FilePosition, String) {
        match at(self.entries, key) {
            Some(entry) => (entry.node.place.clone(), format!("{}.{key}", self.path)),
            None => (self.node.place.clone(), self.path.clone()),
        }
    }
}

impl FileReader<'_> {
    /// Reads the rules in `entry` into `state`, for each head that takes rules.
    pub(super) fn rules(
        &mut self,
        path: &str,
        entry: Option<&TableEntry>,
        state: &mut ServiceState,
    ) {
        let rate = state.rate();
        let fields = state.policies.each_ref().map(HeadPolicy::fields);
        for (rules, fields) in state.rules.iter_mut().zip(&fields) {
            *rules = fields.is_some().then(|| Rules::new(&rate));
        }
        let Some(entry) = entry else {
            return;
        };
        let path = format!("{path}.rule");
        let mut drafts = Vec::new();
        for (index, node) in self.list(&path, &entry.node).iter().enumerate() {
            let path = format!("{path}[{index}]");
            drafts.extend(self.draft(path, node, &rate, &fields));
        }
        for (index, fields) in fields.into_iter().enumerate() {
            let Some(fields) = fields else {
                continue;
            };
            let own: Vec<&Draft<'_>> = drafts
                .iter()
                .filter(|draft| draft.heads.contains(&index))
                .collect();
            state.rules[index] = self.head(
                &drafts,
                &own,
                HEADS[index],
                fields,
                &rate,
                state.rules_max(),
            );
        }
    }

    /// Reads the rule `node`, without checks that need the other rules.
    fn draft<'a>(
        &mut self,
        path: String,
        node: &'a ValueNode,
        rate: &str,
        fields: &[Option<Fields>; 2],
    ) -> Option<Draft<'a>> {
        let entries = self.table(&path, node, Table::Rule)?;
        let key = |key: &str| format!("{path}.{key}");
        let name = at(entries, "name")?;
        let place = &name.node.place;
        let name = self.text(&key("name"), &name.node)?;
        if Name::new(name).is_none() {
            let reason = "invalid rule name: expected 1 to 15 letters, digits and _";
            self.add(place, &key("name"), reason);
            return None;
        }
        let conditions = match (at(entries, "match"), name) {
            (Some(entry), DEFAULT) => {
                let reason = "not allowed with `default`, the rule of classes without a rule";
                self.add(&entry.place, &key("match"), reason);
                return None;
            }
            (None, DEFAULT) => "".into(),
            (Some(entry), _) => {
                let path = key("match");
                let text = self.text(&path, &entry.node)?.trim();
                self.numbers(&entry.node.place, &path, "nrs_tbf_rule", text)?
            }
            (None, _) => {
                self.add(&node.place, &path, "missing key `match`");
                return None;
            }
        };
        let heads = self.heads(&path, node, at(entries, "head"), fields)?;
        let mut limits = Limits::new(rate);
        for entry in entries {
            let key = key(&entry.key);
            match entry.key.as_str() {
                "rate" => limits.rate = self.rate(&key, &entry.node)?,
                "minrate" => {
                    let none = matches!(entry.node.value, TomlValue::Number(0));
                    limits.minrate = match none {
                        true => None,
                        false => Some(self.rate(&key, &entry.node)?),
                    };
                }
                "realtime" => limits.realtime = self.truth(&key, &entry.node)?,
                "borrow" => limits.borrow = self.truth(&key, &entry.node)?,
                "also" => limits.also = self.also(&key, &entry.node)?,
                _ => {}
            }
        }
        Some(Draft {
            rule: ConfiguredRule {
                name: name.to_string(),
                conditions: conditions.into_owned(),
                limits,
            },
            path,
            node,
            entries,
            heads,
        })
    }

    /// Returns the heads of a rule.
    fn heads(
        &mut self,
        path: &str,
        node: &ValueNode,
        entry: Option<&TableEntry>,
        fields: &[Option<Fields>; 2],
    ) -> Option<Vec<usize>> {
        let mut heads: Vec<usize> = (0..2).filter(|head| fields[*head].is_some()).collect();
        if let Some(entry) = entry {
            let path = format!("{path}.head");
            let word = self.text(&path, &entry.node)?;
            if word != "all" {
                let Some(head) = HEADS.into_iter().position(|head| head == word) else {
                    self.add(&entry.node.place, &path, "is not reg, hp or all");
                    return None;
                };
                heads.retain(|other| *other == head);
                if heads.is_empty() {
                    let reason = "this head does not run tbf";
                    self.add(&entry.node.place, &path, reason);
                    return None;
                }
            }
        }
        if heads.is_empty() {
            let reason = "rules require policy = \"tbf ...\" on at least one head";
            self.add(&node.place, path, reason);
            return None;
        }
        Some(heads)
    }

    fn rate(&mut self, path: &str, node: &ValueNode) -> Option<String> {
        let text = self.scalar(path, node)?;
        let expected = || format!("expected {}", nrs_sched::rules::Rate::EXPECTED);
        let rate = normal_rate(&text).ok_or_else(expected);
        self.take(&node.place, path, rate)
    }

    /// Returns the names of other rules: a list, or a string joined by `+`.
    fn also(&mut self, path: &str, node: &ValueNode) -> Option<Vec<String>> {
        let mut names = Vec::new();
        match &node.value {
            TomlValue::List(nodes) => {
                for node in nodes {
                    names.push(self.text(path, node)?.to_string());
                }
            }
            _ => names.extend(self.text(path, node)?.split('+').map(str::to_string)),
        }
        let mut unique: Vec<String> = Vec::new();
        for name in names {
            if !name.is_empty() && !unique.contains(&name) {
                unique.push(name);
            }
        }
        if unique.len() > ALSO_MAX {
            self.add(
                &node.place,
                path,
                format!("too many rules in also= (limit: {ALSO_MAX})"),
            );
            return None;
        }
        Some(unique)
    }

    /// Returns the rules of the head `head`, which are `drafts`; `all` are the rules of both heads.
    #[allow(clippy::too_many_arguments)]
    fn head(
        &mut self,
        all: &[Draft<'_>],
        drafts: &[&Draft<'_>],
        head: &str,
        fields: Fields,
        rate: &str,
        max: u32,
    ) -> Option<Rules> {
        let found = self.found;
        let mut rules = Rules::new(rate);
        for (index, draft) in drafts.iter().enumerate() {
            let name = &draft.rule.name;
            if drafts[..index].iter().any(|other| other.rule.name == *name) {
                let (place, path) = draft.place("name");
                let reason = format!("duplicate rule {name} on this head");
                self.add(&place, &path, reason);
                continue;
            }
            for other in &draft.rule.limits.also {
                let there = drafts.iter().any(|draft| draft.rule.name == *other);
                let (place, path) = draft.place("also");
                if other == name {
                    self.add(&place, &path, "a rule cannot name itself in also=");
                } else if !there && other != DEFAULT {
                    // The rule may exist on the other head.
                    let on = match all.iter().any(|draft| draft.rule.name == *other) {
                        true => format!(" on the head {head}"),
                        false => String::new(),
                    };
                    self.add(&place, &path, format!("no rule {other}{on}"));
                }
            }
            self.alone(draft, fields, rate);
            if name == DEFAULT {
                rules.default = draft.rule.limits.clone();
            } else {
                rules.list.push(draft.rule.clone());
            }
        }
        if self.found > found {
            return Some(Rules::new(rate));
        }
        match rules.rule_list(fields, rate, max) {
            // The rules have conditions in the form that the module shows.
            Ok(rule_list) => Some(Rules::of(&rule_list)),
            Err(refusal) => {
                let draft = drafts.iter().find(|draft| draft.rule.name == refusal.name);
                if let Some((place, path)) = draft.map(|draft| draft.place("name")) {
                    self.add(&place, &path, refusal.to_string());
                }
                Some(Rules::new(rate))
            }
        }
    }

    /// Checks that the module accepts the rule, independently of other rules.
    fn alone(&mut self, draft: &Draft<'_>, fields: Fields, rate: &str) {
        let start = format!("start {} {}", draft.rule.name, draft.rule.conditions);
        if let Ok(RuleCommand {
            action: RuleAction::Start(_, pairs),
            ..
        }) = RuleCommand::parse(&start)
        {
            if pairs != RulePairs::default() {
                let (place, path) = draft.place("match");
                let reason = "unexpected text after the conditions: limits have separate keys";
                self.add(&place, &path, reason);
                return;
            }
        }
        let mut rules = Rules::new(rate);
        let limits = Limits {
            also: Vec::new(),
            ..draft.rule.limits.clone()
        };
        match draft.rule.name.as_str() {
            DEFAULT => rules.default = limits,
            _ => rules.list.push(ConfiguredRule {
                limits,
                ..draft.rule.clone()
            }),
        }
        let Err(refusal) = rules.rule_list(fields, rate, u32::MAX) else {
            return;
        };
        // `start NAME CONDITIONS …`
        let from = "start ".len() + draft.rule.name.len() + 1;
        let column = usize::from(refusal.error.column).saturating_sub(1);
        let inside = column.checked_sub(from);
        let inside = inside.filter(|inside| *inside <= draft.rule.conditions.len());
        let Some(inside) = inside.filter(|_| draft.rule.name != DEFAULT) else {
            let (place, path) = draft.place("minrate");
            self.add(&place, &path, refusal.to_string());
            return;
        };
        let (mut place, path) = draft.place("match");
        let entry = at(draft.entries, "match");
        match entry.map(|entry| &entry.node.value) {
            // Columns are valid only if no name was replaced by a number.
            Some(TomlValue::Text(text, true)) if text.trim() == draft.rule.conditions => {
                // The offset includes the quote and the blanks that were trimmed.
                let cut = text.len() - text.trim_start().len();
                place = place.behind(1 + cut + inside);
            }
            _ => {}
        }
        self.add(&place, &path, refusal.to_string());
    }
}
