// SPDX-License-Identifier: GPL-2.0-only

//! Files as what they want: every key is looked up in the table of keys, every value goes through the module's
//! own parser, and all that is wrong is collected.

use std::collections::BTreeMap;

use nrs_sched::parameters::{self, Access};
use nrs_sched::policy::Kind;
use nrs_sched::rules::{Action, Command as RuleCommand, Fields, Name, Pairs, ALSO_MAX};
use nrs_sched::text::{Command, Heads};

use super::document::{self, Entry, Node, Value};
use super::fault::{nearest, Fault, Place};
use super::keys::{Table, MODULE, REQUIRED};
use super::rules::{Limits, Rule, Rules, DEFAULT};
use super::state::{self, normal_rate, Policy, Setting, State, HEADS};
use super::{bandwidth, weights};

/// What files want.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The services by name.
    pub services: BTreeMap<String, Section>,
    /// Parameters of the module.
    pub module: BTreeMap<&'static str, String>,
}

/// What is wanted of a service.
#[derive(Clone, Debug)]
pub struct Section {
    /// Where it is defined.
    pub place: Place,
    /// What it is to be.
    pub state: State,
}

/// What the files, each a name and a text, want together, and all that is wrong with them.
pub fn read<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> (Wanted, Vec<Fault>) {
    let mut reader = Reader {
        faults: Vec::new(),
        found: 0,
    };
    let mut wanted = Wanted::default();
    let mut module = BTreeMap::new();
    for (file, text) in files {
        match document::parse(file, text) {
            Ok(node) => reader.file(&node, &mut wanted, &mut module),
            Err(fault) => reader.faults.push(fault),
        }
    }
    // In the order of the files, and of what stands in them.
    let mut order: Vec<std::rc::Rc<str>> = Vec::new();
    for fault in &reader.faults {
        if !order.contains(&fault.place.file) {
            order.push(fault.place.file.clone());
        }
    }
    reader.faults.sort_by_key(|fault| {
        let place = &fault.place;
        let file = order.iter().position(|file| *file == place.file);
        (file, place.line, place.column)
    });
    wanted.module = module
        .into_iter()
        .map(|(name, (_, value))| (name, value))
        .collect();
    (wanted, reader.faults)
}

/// The service of a text with one service, or what is wrong, for tests.
#[cfg(test)]
pub fn parse_one(text: &str) -> Result<Section, String> {
    let (wanted, faults) = read([("f", text)]);
    match faults.first() {
        Some(fault) => Err(fault.to_string()),
        None => Ok(wanted.services.into_values().next().unwrap()),
    }
}

/// Whether `name` may name a service.
pub fn is_service(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte);
    (1..=31).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(fits)
}

/// The value of `key`.
fn at<'a>(entries: &'a [Entry], key: &str) -> Option<&'a Entry> {
    entries.iter().find(|entry| entry.key == key)
}

/// Collects what is wrong.
pub struct Reader {
    /// All of it, each once.
    pub faults: Vec<Fault>,
    /// How often something was found, be it known already.
    pub found: usize,
}

/// A rule of the file.
struct Draft<'a> {
    path: String,
    node: &'a Node,
    entries: &'a [Entry],
    /// Indices of the heads that it is for.
    heads: Vec<usize>,
    rule: Rule,
}

impl Draft<'_> {
    /// The place of what `key` says, else of the rule, and its path.
    fn place(&self, key: &str) -> (Place, String) {
        match at(self.entries, key) {
            Some(entry) => (entry.node.place.clone(), format!("{}.{key}", self.path)),
            None => (self.node.place.clone(), self.path.clone()),
        }
    }
}

impl Reader {
    /// Notes a fault.
    pub fn add(&mut self, place: &Place, key: &str, reason: impl Into<String>) {
        self.found += 1;
        let fault = Fault::new(place.clone(), key, reason);
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    /// Notes that `entry` at `path` is no key, where `known` are.
    fn unknown<'a>(&mut self, path: &str, entry: &Entry, known: impl IntoIterator<Item = &'a str>) {
        let reason = match nearest(&entry.key, known) {
            Some(other) => format!("there is no such key; was `{other}` meant?"),
            None => "there is no such key".to_string(),
        };
        self.add(&entry.place, &format!("{path}.{}", entry.key), reason);
    }

    /// The entries of a table with the keys of `table`.
    pub fn table<'a>(&mut self, path: &str, node: &'a Node, table: Table) -> Option<&'a [Entry]> {
        let entries = self.free(path, node)?;
        for entry in entries {
            if !table.keys().any(|key| key.name == entry.key) {
                let path = if path.is_empty() { "the file" } else { path };
                self.unknown(path, entry, table.keys().map(|key| key.name));
            }
        }
        for key in table.keys().filter(|key| key.default == REQUIRED) {
            // What is missing in a plan, the plan's parser says better; `default` has no conditions.
            let other = matches!(table, Table::Group | Table::Client) && key.name != "name";
            if !other && key.name != "match" && at(entries, key.name).is_none() {
                self.add(&node.place, path, format!("`{}` is missing", key.name));
                return None;
            }
        }
        Some(entries)
    }

    /// The entries of a table with any keys.
    fn free<'a>(&mut self, path: &str, node: &'a Node) -> Option<&'a [Entry]> {
        match &node.value {
            Value::Table(entries) => Some(entries),
            other => {
                self.add(
                    &node.place,
                    path,
                    format!("is {}, not a table", other.kind()),
                );
                None
            }
        }
    }

    /// The elements of a list of tables.
    pub fn list<'a>(&mut self, path: &str, node: &'a Node) -> &'a [Node] {
        match &node.value {
            Value::List(nodes) => nodes,
            other => {
                let kind = other.kind();
                let reason = format!("is {kind}, not a list of tables: write [[{path}]]");
                self.add(&node.place, path, reason);
                &[]
            }
        }
    }

    /// A value as the text that the module takes: a string, a number, or 1 and 0 for true and false.
    pub fn scalar(&mut self, path: &str, node: &Node) -> Option<String> {
        match &node.value {
            Value::Text(text, _) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Truth(truth) => Some(u8::from(*truth).to_string()),
            other => {
                let reason = format!("is {}, not a string or a number", other.kind());
                self.add(&node.place, path, reason);
                None
            }
        }
    }

    /// A string.
    fn text<'a>(&mut self, path: &str, node: &'a Node) -> Option<&'a str> {
        match &node.value {
            Value::Text(text, _) => Some(text),
            other => {
                self.add(
                    &node.place,
                    path,
                    format!("is {}, not a string", other.kind()),
                );
                None
            }
        }
    }

    /// `true` or `false`; 1 and 0 are taken, too.
    fn truth(&mut self, path: &str, node: &Node) -> Option<bool> {
        match node.value {
            Value::Truth(truth) => Some(truth),
            Value::Number(0) => Some(false),
            Value::Number(1) => Some(true),
            _ => {
                self.add(&node.place, path, "is not true or false");
                None
            }
        }
    }

    /// A number from `low` to `high`.
    fn number(&mut self, path: &str, node: &Node, low: u64, high: u64) -> Option<u64> {
        let Value::Number(number) = node.value else {
            let kind = node.value.kind();
            self.add(&node.place, path, format!("is {kind}, not a number"));
            return None;
        };
        let found = u64::try_from(number)
            .ok()
            .filter(|number| (low..=high).contains(number));
        if found.is_none() {
            self.add(
                &node.place,
                path,
                format!("is {number}; allowed: {low} to {high}"),
            );
        }
        found
    }

    fn file(
        &mut self,
        node: &Node,
        wanted: &mut Wanted,
        module: &mut BTreeMap<&'static str, (Place, String)>,
    ) {
        let Some(entries) = self.table("", node, Table::Top) else {
            return;
        };
        if let Some(entry) = at(entries, "module") {
            self.module(&entry.node, module);
        }
        let Some(entry) = at(entries, "service") else {
            return;
        };
        for entry in self.free("service", &entry.node).unwrap_or_default() {
            let path = format!("service.{}", entry.key);
            if !is_service(&entry.key) {
                let reason =
                    "is no name of a service: 1 to 31 letters, digits and _ - . :, no dot in front";
                self.add(&entry.place, &path, reason);
                continue;
            }
            if let Some(other) = wanted.services.get(&entry.key) {
                let reason = format!("is defined in {} already", other.place);
                self.add(&entry.place, &path, reason);
                continue;
            }
            let state = self.service(&path, &entry.node);
            let place = entry.place.clone();
            wanted
                .services
                .insert(entry.key.clone(), Section { place, state });
        }
    }

    fn module(&mut self, node: &Node, module: &mut BTreeMap<&'static str, (Place, String)>) {
        for entry in self
            .table("module", node, Table::Module)
            .unwrap_or_default()
        {
            let path = format!("module.{}", entry.key);
            let Some((name, low, high, _)) =
                MODULE.into_iter().find(|(name, ..)| *name == entry.key)
            else {
                continue;
            };
            if let Some((place, _)) = module.get(name) {
                let reason = format!("is set in {place} already");
                self.add(&entry.place, &path, reason);
                continue;
            }
            if let Some(number) = self.number(&path, &entry.node, low, high) {
                module.insert(name, (entry.place.clone(), number.to_string()));
            }
        }
    }

    fn service(&mut self, path: &str, node: &Node) -> State {
        let mut state = State::new();
        let Some(entries) = self.table(path, node, Table::Service) else {
            return state;
        };
        if let Some(entry) = at(entries, "cpts") {
            let cpts = self.number(&format!("{path}.cpts"), &entry.node, 1, 64);
            state.cpts = cpts.and_then(|cpts| u32::try_from(cpts).ok());
        }
        let said = self.settings(path, entries, &mut state);
        if let Some((name, reason)) = state::contradiction(&state.settings) {
            // The one that is said, be it the other of the two.
            let other = said
                .iter()
                .find(|(said, _)| *said == name)
                .or(said.iter().find(|(said, _)| reason.contains(*said)));
            if let Some((name, (place, path))) = other {
                let reason = if reason.starts_with(*name) || name.starts_with("at_") {
                    reason
                } else {
                    format!("{name}: {reason}")
                };
                self.add(place, path, reason);
            }
        }
        if let Some(entry) = at(entries, "policy") {
            let path = format!("{path}.policy");
            if let Some(policy) = self.policy(&path, &entry.node) {
                state.policies = [policy.clone(), policy];
            }
        }
        if let Some(entry) = at(entries, "high_priority") {
            let path = format!("{path}.high_priority");
            let entries = self.table(&path, &entry.node, Table::HighPriority);
            if let Some(entry) = at(entries.unwrap_or_default(), "policy") {
                if let Some(policy) = self.policy(&format!("{path}.policy"), &entry.node) {
                    state.policies[1] = policy;
                }
            }
        }
        if let Some(entry) = at(entries, "weights") {
            state.weights = self.weights(&format!("{path}.weights"), &entry.node);
        }
        self.rules(path, at(entries, "rule"), &mut state);
        if let Some(entry) = at(entries, "qbm") {
            state.plan = bandwidth::read(self, &format!("{path}.qbm"), &entry.node);
        }
        state
    }

    /// Parameters, wherever they are said; answers which are, and where.
    fn settings(
        &mut self,
        path: &str,
        entries: &[Entry],
        state: &mut State,
    ) -> Vec<(&'static str, (Place, String))> {
        let mut all: Vec<(String, String, &Entry)> = Vec::new();
        if let Some(entry) = at(entries, "slots") {
            all.push(("slots".into(), format!("{path}.slots"), entry));
        }
        if let Some(entry) = at(entries, "high_priority") {
            // Said to be no table by the caller.
            if let Value::Table(entries) = &entry.node.value {
                for key in ["ratio", "sources"] {
                    let path = format!("{path}.high_priority.{key}");
                    let entry = at(entries, key);
                    all.extend(entry.map(|entry| (format!("high_priority_{key}"), path, entry)));
                }
            }
        }
        for table in ["parameters", "timeouts"] {
            let Some(entry) = at(entries, table) else {
                continue;
            };
            let path = format!("{path}.{table}");
            for entry in self.free(&path, &entry.node).unwrap_or_default() {
                all.push((entry.key.clone(), format!("{path}.{}", entry.key), entry));
            }
        }
        let mut said: Vec<(&'static str, (Place, String))> = Vec::new();
        for (name, path, entry) in all {
            let Some(parameter) = self.parameter(&name, &path, entry) else {
                continue;
            };
            let name = parameter.name();
            if let Some((_, (place, _))) = said.iter().find(|(other, _)| *other == name) {
                let reason = format!("is set in line {} already", place.line);
                self.add(&entry.place, &path, reason);
                continue;
            }
            said.push((name, (entry.node.place.clone(), path.clone())));
            if let Some(setting) = self.setting(parameter, &path, &entry.node) {
                state.settings.insert(name, setting);
            }
        }
        said
    }

    /// The parameter called `name`, if it is one that can be set here.
    fn parameter(
        &mut self,
        name: &str,
        path: &str,
        entry: &Entry,
    ) -> Option<&'static parameters::Parameter> {
        let Some(parameter) = parameters::named(name) else {
            let table = path.strip_suffix(&format!(".{name}")).unwrap_or(path);
            self.unknown(
                table,
                entry,
                state::settable().map(|parameter| parameter.name()),
            );
            return None;
        };
        let reason = match (name, parameter.access) {
            ("nrs_policies", _) => "has a key of its own: `policy`",
            ("nrs_fairshare_weights", _) => "has a table of its own: `weights`",
            ("nrs_tbf_rule", _) => "has tables of its own: [[service.NAME.rule]]",
            ("nrs_qbm_config", _) => "has a table of its own: `qbm`",
            (_, Access::Read) => "can only be read",
            (_, Access::Write) => {
                "does something when it is written: there is nothing to configure"
            }
            (_, Access::Both) => return Some(parameter),
        };
        self.add(&entry.place, path, reason);
        None
    }

    fn setting(
        &mut self,
        parameter: &parameters::Parameter,
        path: &str,
        node: &Node,
    ) -> Option<Setting> {
        let text = match &node.value {
            Value::Table(_) if state::has_heads(parameter) => {
                let found = self.found;
                let mut values = Vec::new();
                for entry in self.table(path, node, Table::Heads)? {
                    let value = self.scalar(&format!("{path}.{}", entry.key), &entry.node)?;
                    values.push(format!(
                        "{}_{}:{value}",
                        entry.key,
                        state::part(parameter.name())
                    ));
                }
                if self.found > found {
                    return None;
                }
                values.join(" ")
            }
            _ => self.scalar(path, node)?,
        };
        match state::normal(parameter, &text) {
            Ok(setting) => Some(setting),
            Err(reason) => {
                let own = format!("{}: ", parameter.name());
                let reason = reason.strip_prefix(&own).unwrap_or(&reason);
                let reason = format!("{reason}; it takes {}", parameter.takes);
                self.add(&node.place, path, reason);
                None
            }
        }
    }

    fn policy(&mut self, path: &str, node: &Node) -> Option<Policy> {
        let text = self.text(path, node)?;
        let command = match Command::parse(text) {
            Ok(command) => command,
            Err(error) => {
                self.add(&node.place, path, error.reason);
                return None;
            }
        };
        if command.heads != Heads::All {
            let reason = "names a head: `policy` is for both, `high_priority.policy` for requests of high priority";
            self.add(&node.place, path, reason);
            return None;
        }
        let Ok(kind) = Kind::from_name(command.policy) else {
            let names = Kind::ALL.iter().map(|kind| kind.name());
            let reason = match nearest(command.policy, names.clone()) {
                Some(other) => format!(
                    "there is no policy `{}`; was `{other}` meant?",
                    command.policy
                ),
                None => {
                    let names: Vec<&str> = names.collect();
                    format!(
                        "there is no policy `{}`: {}",
                        command.policy,
                        names.join(", ")
                    )
                }
            };
            self.add(&node.place, path, reason);
            return None;
        };
        match Policy::new(kind, command.argument) {
            Ok(policy) => Some(policy),
            Err(reason) => {
                self.add(&node.place, path, reason);
                None
            }
        }
    }

    fn weights(&mut self, path: &str, node: &Node) -> String {
        let mut items: Vec<String> = Vec::new();
        for entry in self.free(path, node).unwrap_or_default() {
            let path = format!("{path}.\"{}\"", entry.key);
            let Some(weight) = self.scalar(&path, &entry.node) else {
                continue;
            };
            let item = format!("{}:{weight}", entry.key);
            // An item of the form of something else would be taken for that.
            let reason = match weights::normal([item.as_str()]) {
                Ok(lines) if lines.lines().count() == 1 => None,
                Ok(_) => Some("is not one item FIELD:VALUE"),
                Err(reason) => Some(reason),
            };
            match reason {
                Some(reason) => self.add(&entry.place, &path, reason),
                None => items.push(item),
            }
        }
        match weights::normal(items.iter().map(String::as_str)) {
            Ok(lines) => {
                if lines.lines().count() < items.len() {
                    self.add(&node.place, path, "names somebody twice");
                }
                lines
            }
            Err(reason) => {
                self.add(&node.place, path, reason);
                String::new()
            }
        }
    }

    fn rules(&mut self, path: &str, entry: Option<&Entry>, state: &mut State) {
        let rate = state.rate();
        let fields = state.policies.each_ref().map(Policy::fields);
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

    /// The rule `node`, as far as it can be told without the others.
    fn draft<'a>(
        &mut self,
        path: String,
        node: &'a Node,
        rate: &str,
        fields: &[Option<Fields>; 2],
    ) -> Option<Draft<'a>> {
        let entries = self.table(&path, node, Table::Rule)?;
        let key = |key: &str| format!("{path}.{key}");
        let name = at(entries, "name")?;
        let place = &name.node.place;
        let name = self.text(&key("name"), &name.node)?;
        if Name::new(name).is_none() {
            self.add(
                place,
                &key("name"),
                "is no name of a rule: 1 to 15 letters, digits and _",
            );
            return None;
        }
        let conditions = match (at(entries, "match"), name) {
            (Some(entry), DEFAULT) => {
                self.add(
                    &entry.place,
                    &key("match"),
                    "`default` is for whom no other rule is for",
                );
                return None;
            }
            (None, DEFAULT) => "",
            (Some(entry), _) => self.text(&key("match"), &entry.node)?.trim(),
            (None, _) => {
                self.add(&node.place, &path, "`match` is missing");
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
                    let none = matches!(entry.node.value, Value::Number(0));
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
            rule: Rule {
                name: name.to_string(),
                conditions: conditions.to_string(),
                limits,
            },
            path,
            node,
            entries,
            heads,
        })
    }

    /// The heads that a rule is for.
    fn heads(
        &mut self,
        path: &str,
        node: &Node,
        entry: Option<&Entry>,
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
                    self.add(
                        &entry.node.place,
                        &path,
                        "tbf is not the policy of this head",
                    );
                    return None;
                }
            }
        }
        if heads.is_empty() {
            let reason =
                "rules are of the policy tbf, which is that of no head: set policy = \"tbf ...\"";
            self.add(&node.place, path, reason);
            return None;
        }
        Some(heads)
    }

    fn rate(&mut self, path: &str, node: &Node) -> Option<String> {
        let text = self.scalar(path, node)?;
        let rate = normal_rate(&text);
        if rate.is_none() {
            let expected = nrs_sched::rules::Rate::EXPECTED;
            self.add(&node.place, path, format!("expected {expected}"));
        }
        rate
    }

    /// Names of other rules: a list, or a string with `+` between them.
    fn also(&mut self, path: &str, node: &Node) -> Option<Vec<String>> {
        let mut names = Vec::new();
        match &node.value {
            Value::List(nodes) => {
                for node in nodes {
                    names.push(self.text(path, node)?.to_string());
                }
            }
            _ => names.extend(self.text(path, node)?.split('+').map(str::to_string)),
        }
        names.retain(|name| !name.is_empty());
        let mut unique: Vec<String> = Vec::new();
        for name in names {
            if !unique.contains(&name) {
                unique.push(name);
            }
        }
        if unique.len() > ALSO_MAX {
            self.add(&node.place, path, "three rules at most");
            return None;
        }
        Some(unique)
    }

    /// The rules of a head, of `all` those that are for it.
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
        let mut defaults = 0;
        for (index, draft) in drafts.iter().enumerate() {
            let name = &draft.rule.name;
            if drafts[..index].iter().any(|other| other.rule.name == *name) {
                let (place, path) = draft.place("name");
                self.add(
                    &place,
                    &path,
                    format!("there is a rule {name} on this head already"),
                );
                continue;
            }
            for other in &draft.rule.limits.also {
                let there = drafts.iter().any(|draft| draft.rule.name == *other);
                let (place, path) = draft.place("also");
                if other == name {
                    self.add(&place, &path, "expected another rule than this one");
                } else if !there && other != DEFAULT {
                    // On the other head there may be one.
                    let on = match all.iter().any(|draft| draft.rule.name == *other) {
                        true => format!(" on the head {head}"),
                        false => String::new(),
                    };
                    self.add(&place, &path, format!("there is no rule {other}{on}"));
                }
            }
            self.alone(draft, fields, rate);
            if name == DEFAULT {
                rules.default = draft.rule.limits.clone();
                defaults += 1;
            } else {
                rules.list.push(draft.rule.clone());
            }
        }
        if self.found > found {
            return Some(Rules::new(rate));
        }
        debug_assert!(defaults <= 1);
        match rules.book(fields, rate, max) {
            // Conditions in the form in which they are shown.
            Ok(book) => Some(Rules::of(&book)),
            Err(refusal) => {
                let draft = drafts.iter().find(|draft| draft.rule.name == refusal.name);
                if let Some(draft) = draft {
                    let (place, path) = draft.place("name");
                    self.add(&place, &path, refusal.to_string());
                }
                Some(Rules::new(rate))
            }
        }
    }

    /// Whether the module takes a rule, whatever others there are.
    fn alone(&mut self, draft: &Draft<'_>, fields: Fields, rate: &str) {
        let start = format!("start {} {}", draft.rule.name, draft.rule.conditions);
        if let Ok(RuleCommand {
            action: Action::Start(_, pairs),
            ..
        }) = RuleCommand::parse(&start)
        {
            if pairs != Pairs::default() {
                let (place, path) = draft.place("match");
                self.add(
                    &place,
                    &path,
                    "has more behind the conditions: limits have keys of their own",
                );
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
            _ => rules.list.push(Rule {
                limits,
                ..draft.rule.clone()
            }),
        }
        let Err(refusal) = rules.book(fields, rate, u32::MAX) else {
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
        if let Some(Value::Text(text, true)) = entry.map(|entry| &entry.node.value) {
            // Behind the quote, and what was cut off in front.
            let cut = text.len() - text.trim_start().len();
            place = place.behind(1 + cut + inside);
        }
        let rest = draft.rule.conditions.get(inside..).unwrap_or_default();
        let found: String = rest
            .chars()
            .take_while(char::is_ascii_graphic)
            .take(24)
            .collect();
        let reason = match found.is_empty() {
            true => format!("expected {}", refusal.error.expected),
            false => format!("expected {}, found `{found}`", refusal.error.expected),
        };
        self.add(&place, &path, reason);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        let (_, faults) = read([("f", text)]);
        faults.iter().map(Fault::to_string).collect()
    }

    #[test]
    fn everything_at_once() {
        let section = parse_one(
            "[service.ost_io]\ncpts = 2\nslots = 16\npolicy = \"tbf uid\"\nhigh_priority.policy = \"fairshare uid_fair\"\n\
             high_priority.ratio = 5\nparameters = { nrs_fairshare_delta_ms = 50, at_min = 7, nrs_crrn_quantum = { hp = 4 }, nrs_pop = 'overlap' }\n\
             weights = { 'uid:1000' = 2, 'jobid:\"a b\"' = '3' }\ntimeouts.at_max = 500\n\
             [[service.ost_io.rule]]\nname = 'a'\nmatch = ' {1} '\nrate = '10MB/s'\nminrate = 0\nalso = ['b']\n\
             [[service.ost_io.rule]]\nname = 'b'\nmatch = 'uid={2}'\nborrow = true\nrealtime = 1\n\
             [[service.ost_io.rule]]\nname = 'default'\nrate = 77\n",
        )
        .unwrap();
        let state = section.state;
        assert_eq!(section.place.to_string(), "f:1:10");
        assert_eq!(state.cpts, Some(2));
        for (name, text) in [
            ("slots", "16"),
            ("high_priority_ratio", "5"),
            ("nrs_fairshare_delta_ms", "50"),
            ("at_min", "7"),
            ("at_max", "500"),
            ("nrs_pop", "overlap"),
            ("nrs_crrn_quantum", "reg_quantum:8 hp_quantum:4"),
        ] {
            assert_eq!(state.settings[name].text(name), text);
        }
        assert_eq!(state.weights, "jobid:\"a b\":3\nuid:1000:2\n");
        let policies = state.policies.map(|policy| policy.to_string());
        assert_eq!(policies, ["tbf uid", "fairshare uid_fair"]);
        let [Some(rules), None] = state.rules else {
            panic!("{:?}", state.rules);
        };
        assert_eq!(rules.default, Limits::new("77"));
        assert_eq!(rules.list[0].conditions, "uid={1}");
        assert_eq!(rules.list[0].limits.rate, "10MB/s");
        assert_eq!(rules.list[0].limits.also, ["b"]);
        assert_eq!(rules.list[1].limits.rate, "10000");
        assert!(rules.list[1].limits.borrow && rules.list[1].limits.realtime);
    }

    #[test]
    fn rules_of_each_head() {
        let rule = |name: &str, head: &str| {
            format!("[[service.s.rule]]\nname = '{name}'\nmatch = 'uid={{1}}'\nhead = '{head}'\n")
        };
        let text = "[service.s]\npolicy = 'tbf uid'\nhigh_priority.policy = 'tbf uid+gid'\n";
        let text = [text, &rule("a", "reg"), &rule("a", "hp"), &rule("b", "all")].concat();
        let state = parse_one(&text).unwrap().state;
        let names = state.rules.map(|rules| {
            let list = rules.unwrap().list.into_iter();
            list.map(|rule| rule.name).collect::<Vec<_>>()
        });
        assert_eq!(names, [["a", "b"], ["a", "b"]]);
    }

    #[test]
    fn a_service_is_defined_once() {
        let (wanted, faults) = read([
            (
                "a.toml",
                "[service.s]\nslots = 1\n[module]\ndefault_slots = 7\n",
            ),
            (
                "b.toml",
                "[module]\ndefault_slots = 7\n\n[service.s]\nslots = 2\n",
            ),
        ]);
        let faults: Vec<String> = faults.iter().map(Fault::to_string).collect();
        assert_eq!(
            faults,
            [
                "b.toml:2:1: module.default_slots: is set in a.toml:4:1 already",
                "b.toml:4:10: service.s: is defined in a.toml:1:10 already",
            ]
        );
        assert_eq!(wanted.services["s"].state.one("slots"), "1");
        assert_eq!(wanted.module["default_slots"], "7");
    }

    /// Each of these is one fault.
    #[test]
    fn what_is_refused() {
        for (text, want) in [
            ("x = 1\n", "1:1: the file.x: there is no such key"),
            (
                "servce.a = {}\n",
                "1:1: the file.servce: there is no such key; was `service` meant?",
            ),
            ("service = 1\n", "1:11: service: is a number, not a table"),
            (
                "service.a = 1.5\n",
                "1:13: service.a: is a number with a fraction, not a table",
            ),
            (
                "[service.\".a\"]\n",
                "1:10: service..a: is no name of a service",
            ),
            ("[service.\"\"]\n", "1:10: service.: is no name"),
            (
                "module.default_slots = 0\n",
                "1:24: module.default_slots: is 0; allowed: 1 to 65535",
            ),
            (
                "module.default_slots = '9'\n",
                "1:24: module.default_slots: is a string, not a number",
            ),
            (
                "module.classes = 9\n",
                "1:8: module.classes: there is no such key",
            ),
            (
                "[service.s]\nslot = 1\n",
                "2:1: service.s.slot: there is no such key; was `slots` meant?",
            ),
            (
                "[service.s]\ncpts = 65\n",
                "2:8: service.s.cpts: is 65; allowed: 1 to 64",
            ),
            (
                "[service.s]\nslots = 0\n",
                "2:9: service.s.slots: expected a number, 1 to 65535",
            ),
            (
                "[service.s]\nslots = -1\n",
                "2:9: service.s.slots: expected",
            ),
            (
                "[service.s]\nslots = []\n",
                "2:9: service.s.slots: is a list, not a string or a number",
            ),
            (
                "[service.s]\nslots = 1\nparameters.slots = 2\n",
                "3:12: service.s.parameters.slots: is set in line 2 already",
            ),
            (
                "[service.s]\nparameters.stal_ms = 1\n",
                "2:12: service.s.parameters.stal_ms: there is no such key; was `stall_ms` meant?",
            ),
            (
                "[service.s]\nparameters.nrs_policies = 1\n",
                "2:12: service.s.parameters.nrs_policies: has a key of its own: `policy`",
            ),
            (
                "[service.s]\nparameters.nrs_fairshare_weights = 1\n",
                "2:12: service.s.parameters.nrs_fairshare_weights: has a table of its own",
            ),
            (
                "[service.s]\nparameters.nrs_tbf_rule = 1\n",
                "2:12: service.s.parameters.nrs_tbf_rule: has tables of its own",
            ),
            (
                "[service.s]\nparameters.nrs_qbm_config = 1\n",
                "2:12: service.s.parameters.nrs_qbm_config: has a table of its own",
            ),
            (
                "[service.s]\nparameters.clients = 1\n",
                "2:12: service.s.parameters.clients: can only be read",
            ),
            (
                "[service.s]\nparameters.at_stats_reset = 1\n",
                "2:12: service.s.parameters.at_stats_reset: does something when it is written",
            ),
            (
                "[service.s]\nparameters = 1\n",
                "2:14: service.s.parameters: is a number, not a table",
            ),
            (
                "[service.s]\nparameters.nrs_crrn_quantum = { x = 1 }\n",
                "2:33: service.s.parameters.nrs_crrn_quantum.x: there is no such key",
            ),
            (
                "[service.s]\nparameters.nrs_crrn_quantum = 0\n",
                "2:31: service.s.parameters.nrs_crrn_quantum: ",
            ),
            (
                "[service.s]\nparameters.at_min = { reg = 1 }\n",
                "2:21: service.s.parameters.at_min: is a table, not a string or a number",
            ),
            (
                "[service.s]\nparameters.nrs_fairshare_mode = 'uid_fair weight=uid:5:2'\n",
                "2:33: service.s.parameters.nrs_fairshare_mode: weights belong into the table",
            ),
            (
                "[service.s]\ntimeouts.at_min = 700\n",
                "2:19: service.s.timeouts.at_min: at_min would be above at_max",
            ),
            (
                "[service.s]\ntimeouts.at_max = 4\n",
                "2:19: service.s.timeouts.at_max: at_min would be above at_max",
            ),
            (
                "[service.s]\nparameters.nrs_delay_max = 4\n",
                "2:28: service.s.parameters.nrs_delay_max: ",
            ),
            (
                "[service.s]\nhigh_priority = 4\n",
                "2:17: service.s.high_priority: is a number, not a table",
            ),
            (
                "[service.s]\nhigh_priority.sources = 'all'\n",
                "2:25: service.s.high_priority.sources: realtime, meta",
            ),
            (
                "[service.s]\npolicy = 5\n",
                "2:10: service.s.policy: is a number, not a string",
            ),
            (
                "[service.s]\npolicy = ''\n",
                "2:10: service.s.policy: command is empty, expected a policy",
            ),
            (
                "[service.s]\npolicy = 'fifo hp'\n",
                "2:10: service.s.policy: names a head",
            ),
            (
                "[service.s]\npolicy = 'fairshar'\n",
                "2:10: service.s.policy: there is no policy `fairshar`; was `fairshare` meant?",
            ),
            (
                "[service.s]\npolicy = 'elevator'\n",
                "2:10: service.s.policy: there is no policy `elevator`: ",
            ),
            (
                "[service.s]\npolicy = 'fairshare uid'\n",
                "2:10: service.s.policy: mode does not end in _fair",
            ),
            (
                "[service.s]\npolicy = 'fifo x'\n",
                "2:10: service.s.policy: ",
            ),
            (
                "[service.s]\nhigh_priority.policy = 'tbf size'\n",
                "2:24: service.s.high_priority.policy: expected fields joined by '+'",
            ),
            (
                "[service.s]\nweights = 5\n",
                "2:11: service.s.weights: is a number, not a table",
            ),
            (
                "[service.s]\nweights.'uid:x' = 5\n",
                "2:9: service.s.weights.\"uid:x\": ",
            ),
            (
                "[service.s]\nweights.'uid:1' = 0\n",
                "2:9: service.s.weights.\"uid:1\": ",
            ),
            (
                "[service.s]\nweights.'uid:1 uid:2' = 3\n",
                "2:9: service.s.weights.\"uid:1 uid:2\": ",
            ),
            (
                "[service.s]\nweights.'uid:1:3,uid:2' = 3\n",
                "2:9: service.s.weights.\"uid:1:3,uid:2\": is not one item",
            ),
            (
                "[service.s]\nweights = { 'nid:1.2.3.4@tcp' = 3, 'nid:1.2.3.4@tcp0' = 4 }\n",
                "2:11: service.s.weights: names somebody twice",
            ),
            (
                "[service.s]\nrule = 5\n",
                "2:8: service.s.rule: is a number, not a list of tables: write [[service.s.rule]]",
            ),
        ] {
            let found = faults(text);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            let want = format!("f:{want}");
            assert!(found[0].starts_with(&want), "{text}: {}", found[0]);
        }
    }

    #[test]
    fn rules_refused() {
        let head =
            "[service.s]\npolicy = 'tbf uid'\n[[service.s.rule]]\nname = 'a'\nmatch = 'uid={1}'\n";
        let more = "[[service.s.rule]]\n";
        for (text, want) in [
            ("rate = 0\n".to_string(), "6:8: service.s.rule[0].rate: expected a rate: 1 to 10000000"),
            ("rate = true\nborrow = 2\n".into(), "7:10: service.s.rule[0].borrow: is not true or false"),
            ("rate = 5\nminrate = 6\n".into(), "7:11: service.s.rule[0].minrate: expected minrate= of the unit of rate="),
            ("minrate = '6MB/s'\n".into(), "6:11: service.s.rule[0].minrate: expected minrate= of the unit"),
            ("rank = 'b'\n".into(), "6:1: service.s.rule[0].rank: there is no such key"),
            ("also = ['b']\n".into(), "6:8: service.s.rule[0].also: there is no rule b"),
            ("also = ['a']\n".into(), "6:8: service.s.rule[0].also: expected another rule than this one"),
            ("also = 'b+c+d+e'\n".into(), "6:8: service.s.rule[0].also: three rules at most"),
            ("also = [5]\n".into(), "6:9: service.s.rule[0].also: is a number, not a string"),
            ("head = 'high'\n".into(), "6:8: service.s.rule[0].head: is not reg, hp or all"),
            (more.into(), "6:1: service.s.rule[1]: `name` is missing"),
            (format!("{more}name = 'b'\n"), "6:1: service.s.rule[1]: `match` is missing"),
            (format!("{more}name = 'b-c'\nmatch = ''\n"), "7:8: service.s.rule[1].name: is no name of a rule"),
            (format!("{more}name = 'a'\nmatch = 'uid={{2}}'\n"), "7:8: service.s.rule[1].name: there is a rule a on this head already"),
            (format!("{more}name = 'b'\nmatch = 'uid={{2 x}}'\n"), "8:17: service.s.rule[1].match: expected a number, 0 to 4294967295, found `x}`"),
            (format!("{more}name = 'b'\nmatch = '  gid={{2}}'\n"), "8:12: service.s.rule[1].match: expected"),
            (format!("{more}name = 'b'\nmatch = 'uid={{2}} rate=5'\n"), "8:9: service.s.rule[1].match: has more behind the conditions"),
            (format!("{more}name = 'b'\nmatch = 7\n"), "8:9: service.s.rule[1].match: is a number, not a string"),
            (format!("{more}name = 'default'\nmatch = '*'\n"), "8:1: service.s.rule[1].match: `default` is for whom"),
            (format!("{more}name = 'default'\nrate = 5\nminrate = 9\n"), "9:11: service.s.rule[1].minrate: expected minrate="),
            ("[service.s.parameters]\nnrs_tbf_rules_max = 1\n[[service.s.rule]]\nname = 'b'\nmatch = '{1}'\n".into(), "4:8: service.s.rule[0].name: expected fewer rules"),
        ] {
            let text = format!("{head}{text}");
            let found = faults(&text);
            let first = found.first().map_or("", String::as_str);
            let want = format!("f:{want}");
            assert!(first.starts_with(&want), "{text}: {found:?}");
        }
        for (text, want) in [
            ("[service.s]\n[[service.s.rule]]\nname = 'a'\nmatch = '{1}'\n", "f:2:1: service.s.rule[0]: rules are of the policy tbf"),
            ("[service.s]\npolicy = 'tbf uid'\nhigh_priority.policy = 'fifo'\n[[service.s.rule]]\nname = 'a'\nmatch = '{1}'\nhead = 'hp'\n", "f:7:8: service.s.rule[0].head: tbf is not the policy of this head"),
            ("[service.s]\npolicy = 'tbf uid+gid'\n[[service.s.rule]]\nname = 'a'\nmatch = '{1}'\n", "f:5:10: service.s.rule[0].match: "),
        ] {
            let found = faults(text);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with(want), "{found:?}");
        }
    }
}
