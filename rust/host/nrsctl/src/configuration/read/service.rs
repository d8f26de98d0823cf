// SPDX-License-Identifier: GPL-2.0-only

//! Reading of the section of a service: its keys become commands to the module's own
//! [`ServiceDraft`](nrs_sched::service::draft::ServiceDraft), whose errors are faults of the keys.

use nrs_agent::toml::{Fault, TomlNode, TomlValue};
use nrs_sched::error::{Error, ErrorPosition};
use nrs_sched::parameters::{self, AccessMode, Parameter, Values};
use nrs_sched::partition::slot_pool::CPTS_MAX;
use nrs_sched::policy::Kind;
use nrs_sched::rules::{
    Burst, Name, Rate, RuleAction, RuleCommand, RuleError, RulePairs, ALSO_MAX,
};
use nrs_sched::text::{Heads, PolicyCommand};

use super::FileReader;
use crate::configuration::keys::Table;
use crate::configuration::state::{self, Draft, ServiceState, HEADS};
use crate::items::{ItemList, LIMITS, OWNERS, WEIGHTS};
use crate::names::near;
use crate::refusal;

/// Statements of `qbm` in order, with their tables; `by` has none.
const STATEMENTS: [(&str, Option<Table>); 5] = [
    ("by", None),
    ("tune", Some(Table::Tune)),
    ("default", Some(Table::Default)),
    ("group", Some(Table::Group)),
    ("client", Some(Table::Client)),
];

/// Text for the module, and the keys that it is made of.
struct KeyedText<'a> {
    /// Text of one line.
    text: String,
    /// Table of the keys.
    node: &'a TomlNode,
    /// Keys, with the offsets in the text at which they begin.
    parts: Vec<(usize, &'a TomlNode)>,
}

impl<'a> KeyedText<'a> {
    /// Creates the text `text`, which no key of `node` has caused.
    fn new(text: impl Into<String>, node: &'a TomlNode) -> Self {
        let (text, parts) = (text.into(), Vec::new());
        Self { text, node, parts }
    }

    /// Appends a blank and `text`, which is due to `node`.
    fn push(&mut self, node: &'a TomlNode, text: &str) {
        self.text.push(' ');
        self.parts.push((self.text.len(), node));
        self.text.push_str(text);
    }

    /// Returns the fault at the key that `error` begins with or whose text has its column, else at
    /// the whole table.
    fn fault(&self, error: &Error, reason: &str) -> Fault {
        let column = usize::from(error.column()).checked_sub(1);
        let first = error.reason.split(' ').next();
        let mut parts = self.parts.iter().rev();
        let named = parts.clone().find(|(_, node)| Some(&*node.key) == first);
        let at = named.or_else(|| parts.find(|(from, _)| Some(*from) <= column));
        let Some((from, node)) = at else {
            return self.node.fault(reason);
        };
        let mut fault = node.fault(reason);
        let inside = column.and_then(|column| column.checked_sub(*from));
        // Columns are valid only if the characters of the file are those of the text.
        if let (TomlValue::Text(text, true), Some(inside)) = (&node.value, inside) {
            if node.key == "match" && self.text[*from..].starts_with(text.trim()) {
                // The offset includes the quote and the blanks that were trimmed.
                let cut = text.len() - text.trim_start().len();
                fault.place = fault.place.behind(1 + cut + inside);
            }
        }
        fault
    }
}

/// Rule of the file.
struct FileRule<'a> {
    node: &'a TomlNode,
    name: &'a TomlNode,
    /// Name of the rule.
    text: &'a str,
    /// Match expression, except of `default`.
    conditions: Option<(&'a TomlNode, String)>,
    /// Limits, as `KEY=VALUE`.
    pairs: Vec<(&'a TomlNode, String)>,
    /// Key and names of other rules.
    also: Option<(&'a TomlNode, Vec<String>)>,
    /// Indices of the heads of the rule.
    heads: Vec<usize>,
}

impl<'a> FileRule<'a> {
    /// Returns the command that starts the rule on the head `head`, or changes `default`; `None` if
    /// it would have no effect.
    fn start(&self, head: &str) -> Result<Option<KeyedText<'a>>, Fault> {
        let verb = self.conditions.as_ref().map_or("change", |_| "start");
        let mut command = KeyedText::new(format!("{head} {verb}"), self.node);
        command.push(self.name, self.text);
        if let Some((node, conditions)) = &self.conditions {
            command.push(node, conditions);
            // Limits would be accepted after the conditions.
            match RuleCommand::parse(&command.text).map(|command| command.action) {
                Ok(RuleAction::Start(_, pairs)) if pairs != RulePairs::default() => {
                    let reason = "unexpected text after the conditions: limits have separate keys";
                    return Err(node.fault(reason));
                }
                Ok(_) => {}
                Err(error) => return Err(refused(&command, &error.into())),
            }
        } else if self.pairs.is_empty() {
            return Ok(None);
        }
        for (node, pair) in &self.pairs {
            command.push(node, pair);
        }
        Ok(Some(command))
    }

    /// Returns the command that sets the other rules to charge.
    fn change(&self, head: &str) -> Option<KeyedText<'a>> {
        let (node, also) = self.also.as_ref()?;
        let mut command = KeyedText::new(format!("{head} change {}", self.text), self.node);
        command.push(node, &format!("also={}", also.join("+")));
        Some(command)
    }
}

/// Returns the fault of a command for rules that is refused.
fn refused(command: &KeyedText<'_>, error: &Error) -> Fault {
    let reason = error.reason;
    let is_syntax = matches!(error.place, ErrorPosition::Expected(_));
    let column = usize::from(error.column()).checked_sub(1);
    let found = column.map(|at| RuleError::invalid(at, reason).found(&command.text));
    let reason = match (is_syntax, found.unwrap_or_default()) {
        (true, "") => format!("expected {reason}"),
        (true, found) => format!("expected {reason}, found `{found}`"),
        (false, "") => reason.to_owned(),
        (false, found) => format!("{reason}: `{found}`"),
    };
    command.fault(error, &reason)
}

impl FileReader<'_> {
    /// Reads the section of a service; `None` if it is wrong.
    pub(super) fn service(&mut self, node: &TomlNode) -> Option<ServiceState> {
        let draft = Draft::new(Values::default());
        let draft = self.take(draft.map_err(|error| node.fault(error.reason)))?;
        self.table(node, Table::Service)?;
        let found = self.faults.len();
        let cpts = node
            .get("cpts")
            .map(|node| node.number(1..=CPTS_MAX.into()));
        let cpts = cpts.and_then(|cpts| self.take(cpts));
        let set = self.settings(node, &draft);
        if let Some(weights) = node.get("weights") {
            self.items(weights, &draft, &WEIGHTS);
        }
        if let Some(limits) = node.get("limits") {
            self.items(limits, &draft, &LIMITS);
        }
        if let Some(owners) = node.get("owners") {
            self.items(owners, &draft, &OWNERS);
        }
        if let Some(plan) = node.get("qbm") {
            self.plan(plan, &draft);
        }
        let tbf = self.policies(node, &draft);
        if let Some(rules) = node.get("rule") {
            self.rules(rules, tbf, &draft);
        }
        let has_slots = set.iter().any(|(name, _)| *name == "slots");
        match ServiceState::of(draft, has_slots) {
            Ok(mut state) => {
                state.cpts = cpts.and_then(|cpts| u32::try_from(cpts).ok());
                return Some(state);
            }
            Err(error) => {
                // The fault is at the first parameter of the reason that the file sets.
                let named = |word| set.iter().find(|(name, _)| *name == word);
                match error.reason.split(' ').find_map(named) {
                    Some((_, node)) => self.add(node.fault(error.reason)),
                    // A draft with faults may contradict itself.
                    None if self.faults.len() > found => {}
                    None => self.add(node.fault(error.reason)),
                }
            }
        }
        None
    }

    /// Sets the parameters of all keys, and returns their names and keys.
    fn settings<'a>(
        &mut self,
        section: &'a TomlNode,
        draft: &Draft,
    ) -> Vec<(&'static str, &'a TomlNode)> {
        let mut all = Vec::new();
        let slots = section.get("slots");
        all.extend(slots.map(|node| ("slots".to_owned(), node)));
        // The reader of policies reports a value that is not a table.
        for key in ["ratio", "sources"] {
            let node = section.get("high_priority").and_then(|high| high.get(key));
            all.extend(node.map(|node| (format!("high_priority_{key}"), node)));
        }
        for table in ["parameters", "timeouts"] {
            let entries = section.get(table).map(TomlNode::entries);
            let entries = entries.and_then(|entries| self.take(entries));
            let entries = entries.unwrap_or_default().iter();
            all.extend(entries.map(|entry| (entry.key.clone(), entry)));
        }
        let mut set: Vec<(&'static str, &TomlNode)> = Vec::new();
        for (name, node) in all {
            let Some(parameter) = self.parameter(&name, node) else {
                continue;
            };
            let name = parameter.name();
            if let Some((_, other)) = set.iter().find(|(other, _)| *other == name) {
                let reason = format!("already set in line {}", other.place.line);
                self.add(node.key_fault(reason));
                continue;
            }
            set.push((name, node));
            let Some(text) = self.setting(parameter, node) else {
                continue;
            };
            let done = draft.execute(name, &text).map_err(|error| error.reason);
            // The mode may be followed by weights.
            let done = done.and_then(|()| match text.contains("weight=") {
                true => Err("set weights in the table `weights`"),
                false => Ok(()),
            });
            self.take(done.map_err(|reason| {
                let reason = refusal::bare(parameter, reason);
                let takes = refusal::takes(parameter);
                node.fault(format!("{reason}; valid values: {takes}"))
            }));
        }
        set
    }

    /// Returns the parameter `name` if a file can set it here.
    fn parameter(&mut self, name: &str, node: &TomlNode) -> Option<&'static Parameter> {
        let Some(parameter) = parameters::named(name) else {
            let known = state::settable().map(|parameter| parameter.name());
            self.unknown(&node.path, node, known);
            return None;
        };
        let reason = match (name, parameter.access) {
            ("nrs_policies", _) => "set the key `policy` instead",
            ("nrs_fairshare_weights", _) => "set the table `weights` instead",
            ("nrs_fairshare_limits", _) => "set the table `limits` instead",
            ("nrs_owners", _) => "set the table `owners` instead",
            ("nrs_tbf_rule", _) => "set tables [[service.NAME.rule]] instead",
            ("nrs_qbm_config", _) => "set the table `qbm` instead",
            ("config", _) => "set the keys of the service instead",
            (_, AccessMode::Read) => "the parameter is read-only",
            (_, AccessMode::Write) => "the parameter is write-only and has no value to configure",
            (_, AccessMode::Both) => return Some(parameter),
        };
        self.add(node.key_fault(reason));
        None
    }

    /// Returns the text of a parameter.
    fn setting(&mut self, parameter: &Parameter, node: &TomlNode) -> Option<String> {
        if !matches!(node.value, TomlValue::Table(_)) || !parameter.heads {
            return self.take(node.scalar());
        }
        let found = self.faults.len();
        let part = state::part(parameter.name());
        let mut values = Vec::new();
        for entry in self.table(node, Table::Heads)? {
            let value = self.take(entry.scalar())?;
            values.push(format!("{}_{part}:{value}", entry.key));
        }
        (self.faults.len() == found).then(|| values.join(" "))
    }

    /// Selects the policies, and returns for each head true if it runs `tbf`.
    fn policies(&mut self, section: &TomlNode, draft: &Draft) -> [bool; 2] {
        let regular = section.get("policy");
        let high = section.get("high_priority").and_then(|high| {
            self.table(high, Table::HighPriority);
            high.get("policy")
        });
        let mut runs = [false; 2];
        for ((node, head), tbf) in [regular, high.or(regular)]
            .into_iter()
            .zip(HEADS)
            .zip(&mut runs)
        {
            let kind = node.map(|node| select(node, head, draft));
            *tbf = kind.and_then(|kind| self.take(kind)) == Some(Kind::Tbf);
        }
        runs
    }

    /// Sets the items of a table.
    fn items(&mut self, node: &TomlNode, draft: &Draft, list: &ItemList) {
        let parameter = list.parameter;
        let mut items: Vec<String> = Vec::new();
        for entry in self.take(node.entries()).unwrap_or_default() {
            let path = format!("{}.\"{}\"", node.path, entry.key);
            let scalar = entry.scalar().map_err(|fault| Fault {
                key: path.clone(),
                ..fault
            });
            let Some(value) = self.take(scalar) else {
                continue;
            };
            let item = format!("{}{}{value}", entry.key, list.separator);
            let item = self.accounts.numbers(parameter, &item);
            let item = item.map_err(|failure| failure.message).and_then(|item| {
                // An item with the form of another statement would be parsed as that statement.
                match (list.count)(&item) {
                    Ok(1) => Ok(item.into_owned()),
                    Ok(_) => Err(format!("expected {}", list.form)),
                    Err(error) => Err(error.reason.to_owned()),
                }
            });
            let item = item.map_err(|reason| Fault::new(&entry.key_place, path, reason));
            items.extend(self.take(item));
        }
        let done = draft.execute(parameter, &items.join(" "));
        let shown = done.and_then(|()| draft.show(parameter));
        let reason = match shown {
            Ok(shown) if shown.lines().count() < items.len() => "duplicate name",
            Ok(_) => return,
            Err(error) => error.reason,
        };
        self.add(node.fault(reason));
    }

    /// Sets the configuration of `qbm`.
    fn plan(&mut self, node: &TomlNode, draft: &Draft) {
        let Some(entries) = self.table(node, Table::Qbm) else {
            return;
        };
        let found = self.faults.len();
        let mut lines = Vec::new();
        for (key, table) in STATEMENTS {
            let Some(node) = entries.iter().find(|entry| entry.key == key) else {
                continue;
            };
            let nodes = match table {
                Some(Table::Group | Table::Client) => self.take(node.tables()).unwrap_or_default(),
                _ => std::slice::from_ref(node),
            };
            for node in nodes {
                lines.extend(self.statement(node, key, table));
            }
        }
        if self.faults.len() > found {
            return;
        }
        let text: Vec<&str> = lines.iter().map(|line| &*line.text).collect();
        let text = text.join("\n");
        let text = self.accounts.numbers("nrs_qbm_config", &text);
        let text = text.map_err(|failure| node.fault(failure.message));
        let done = text.and_then(|text| {
            draft.execute("nrs_qbm_config", &text).map_err(|error| {
                let line = usize::try_from(error.line()).ok();
                let line = line.and_then(|line| lines.get(line.checked_sub(1)?));
                match line {
                    // The fault is at a key only if the reason begins with it.
                    Some(line) => line.fault(&error.at(ErrorPosition::Anywhere), error.reason),
                    None => node.fault(error.reason),
                }
            })
        });
        self.take(done);
    }

    /// Returns the statement `verb [NAME] KEY=VALUE…` of the `table` at `node`, or the statement
    /// `verb VALUE`; `None` if the table is empty.
    fn statement<'a>(
        &mut self,
        node: &'a TomlNode,
        verb: &str,
        table: Option<Table>,
    ) -> Option<KeyedText<'a>> {
        let mut line = KeyedText::new(verb, node);
        let Some(table) = table else {
            line.push(node, &self.take(word(node))?);
            return Some(line);
        };
        let entries = self.table(node, table)?.iter();
        let (names, pairs): (Vec<_>, Vec<_>) = entries.partition(|entry| entry.key == "name");
        for entry in names {
            line.push(entry, &self.take(word(entry))?);
        }
        for entry in pairs {
            let word = self.take(word(entry))?;
            line.push(entry, &format!("{}={word}", entry.key));
        }
        (line.text != verb).then_some(line)
    }

    /// Starts the rules of `node` on the heads that run `tbf`.
    fn rules(&mut self, node: &TomlNode, tbf: [bool; 2], draft: &Draft) {
        let nodes = self.take(node.tables()).unwrap_or_default();
        let rules = nodes.iter().filter_map(|node| {
            self.table(node, Table::Rule)?;
            let rule = self.rule(node, tbf);
            self.take(rule)
        });
        let rules: Vec<FileRule<'_>> = rules.collect();
        for (index, head) in HEADS.into_iter().enumerate() {
            let mut own: Vec<&FileRule<'_>> = Vec::new();
            let mut faults = Vec::new();
            for rule in rules.iter().filter(|rule| rule.heads.contains(&index)) {
                match own.iter().any(|other| other.text == rule.text) {
                    true => {
                        let reason = format!("duplicate rule {} on this head", rule.text);
                        faults.push(rule.name.fault(reason));
                    }
                    false => own.push(rule),
                }
            }
            let also = own
                .iter()
                .filter_map(|rule| Some((rule.text, rule.also.as_ref()?)));
            for (name, (node, also)) in also {
                let has = |other: &String| own.iter().any(|rule| rule.text == other);
                for other in also.iter().filter(|other| *other != Name::DEFAULT.as_str()) {
                    if other == name {
                        faults.push(node.fault("a rule cannot name itself in also="));
                    } else if !has(other) {
                        // The rule may exist on the other head.
                        let on = match rules.iter().any(|rule| rule.text == other) {
                            true => format!(" on the head {head}"),
                            false => String::new(),
                        };
                        faults.push(node.fault(format!("no rule {other}{on}")));
                    }
                }
            }
            let run = |command: KeyedText<'_>| {
                let done = draft.execute("nrs_tbf_rule", &command.text);
                done.map_err(|error| refused(&command, &error))
            };
            // Each new rule becomes the first one.
            for rule in own.iter().rev() {
                let done = rule.start(head).and_then(|start| start.map_or(Ok(()), run));
                faults.extend(done.err());
                // The other rules would be too many, too.
                let last = faults.last();
                if last.is_some_and(|fault| fault.reason.starts_with("too many rules (")) {
                    break;
                }
            }
            if faults.is_empty() {
                let changes = own.iter().filter_map(|rule| rule.change(head));
                faults.extend(changes.filter_map(|change| run(change).err()));
            }
            faults.into_iter().for_each(|fault| self.add(fault));
        }
    }

    /// Reads the rule `node`, without checks that need the other rules.
    fn rule<'a>(&mut self, node: &'a TomlNode, tbf: [bool; 2]) -> Result<FileRule<'a>, Fault> {
        let name = node
            .get("name")
            .ok_or_else(|| node.fault("missing key `name`"))?;
        let text = name.text()?;
        if Name::new(text).is_none() {
            let reason = "invalid rule name: expected 1 to 15 letters, digits and _";
            return Err(name.fault(reason));
        }
        let is_default = text == Name::DEFAULT.as_str();
        let conditions = match node.get("match") {
            Some(node) if is_default => {
                let reason = "not allowed with `default`, the rule of classes without a rule";
                return Err(node.key_fault(reason));
            }
            Some(node) => {
                let text = self.accounts.numbers("nrs_tbf_rule", node.text()?.trim());
                let text = text.map_err(|failure| node.fault(failure.message))?;
                Some((node, text.into_owned()))
            }
            None if is_default => None,
            None => return Err(node.fault("missing key `match`")),
        };
        let heads = heads(node, tbf)?;
        let mut pairs = Vec::new();
        for entry in node.entries()? {
            let value = match &*entry.key {
                "minrate" | "burst" if matches!(entry.value, TomlValue::Number(0)) => {
                    "0".to_owned()
                }
                "rate" | "minrate" => {
                    let rate = Rate::parse(&entry.scalar()?).map(|rate| rate.to_string());
                    rate.ok_or_else(|| entry.fault(format!("expected {}", Rate::EXPECTED)))?
                }
                "burst" => {
                    let burst = Burst::parse(&entry.scalar()?).map(|burst| burst.to_string());
                    burst.ok_or_else(|| entry.fault(format!("expected {}", Burst::EXPECTED)))?
                }
                "realtime" | "borrow" => u8::from(entry.truth()?).to_string(),
                _ => continue,
            };
            pairs.push((entry, format!("{}={value}", entry.key)));
        }
        let also = node.get("also").map(|node| Ok((node, also(node)?)));
        Ok(FileRule {
            node,
            name,
            text,
            conditions,
            pairs,
            also: also.transpose()?,
            heads,
        })
    }
}

/// Selects the policy `node` for `head`.
fn select(node: &TomlNode, head: &str, draft: &Draft) -> Result<Kind, Fault> {
    let command = PolicyCommand::parse(node.text()?).map_err(|error| node.fault(error.reason))?;
    let policy = command.policy;
    if command.heads != Heads::All {
        let reason = "names a head: use `policy` for both heads, \
                      `high_priority.policy` for the high-priority head";
        return Err(node.fault(reason));
    }
    let kind = Kind::from_name(policy).map_err(|_| {
        let names = Kind::ALL.iter().map(|kind| kind.name());
        let known = names.clone().collect::<Vec<_>>().join(", ");
        node.fault(match near(policy, names).first() {
            Some(other) => format!("unknown policy `{policy}`; did you mean `{other}`?"),
            None => format!("unknown policy `{policy}`: {known}"),
        })
    })?;
    let argument = command.argument.unwrap_or_default();
    let done = draft.execute("nrs_policies", &format!("{policy} {head} {argument}"));
    done.map_err(|error| node.fault(error.reason))?;
    Ok(kind)
}

/// Returns a value that is one word of a text.
fn word(node: &TomlNode) -> Result<String, Fault> {
    let text = node.scalar()?;
    let wrong = |c: &char| c.is_whitespace() || c.is_control() || *c == ';' || !c.is_ascii();
    match text.chars().find(wrong) {
        _ if text.is_empty() => Err(node.fault("is empty")),
        _ if text.starts_with('#') => Err(node.fault("begins with #")),
        Some(c) => Err(node.fault(format!("has the invalid character {c:?}"))),
        None => Ok(text),
    }
}

/// Returns the indices of the heads of the rule `node`.
fn heads(node: &TomlNode, tbf: [bool; 2]) -> Result<Vec<usize>, Fault> {
    let mut heads: Vec<usize> = (0..2).filter(|head| tbf[*head]).collect();
    if let Some(node) = node.get("head") {
        let word = node.text()?;
        if word != "all" {
            let head = HEADS.into_iter().position(|head| head == word);
            let head = head.ok_or_else(|| node.fault("is not reg, hp or all"))?;
            heads.retain(|other| *other == head);
            if heads.is_empty() {
                return Err(node.fault("this head does not run tbf"));
            }
        }
    }
    match heads.is_empty() {
        true => Err(node.fault("rules require policy = \"tbf ...\" on at least one head")),
        false => Ok(heads),
    }
}

/// Returns the names of other rules: a list, or a string joined by `+`.
fn also(node: &TomlNode) -> Result<Vec<String>, Fault> {
    let names = match &node.value {
        TomlValue::List(items) => {
            let text = |item: &TomlNode| {
                let key = node.path.clone();
                item.text()
                    .map(str::to_owned)
                    .map_err(|fault| Fault { key, ..fault })
            };
            items.iter().map(text).collect::<Result<Vec<_>, _>>()?
        }
        _ => node.text()?.split('+').map(str::to_owned).collect(),
    };
    let mut unique: Vec<String> = Vec::new();
    for name in names {
        if !name.is_empty() && !unique.contains(&name) {
            unique.push(name);
        }
    }
    if unique.len() > ALSO_MAX {
        return Err(node.fault(format!("too many rules in also= (limit: {ALSO_MAX})")));
    }
    Ok(unique)
}
