// SPDX-License-Identifier: GPL-2.0-only

//! Reading of files: every key is looked up in the table of keys, every value is checked by the
//! module's own parser, and all faults are collected.

mod draft;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;

use nrs_sched::attr::SIZE_MAX;
use nrs_sched::parameters::{self, AccessMode};
use nrs_sched::partition::slot_pool::CPTS_MAX;
use nrs_sched::policy::Kind;
use nrs_sched::text::{Heads, PolicyCommand};

use crate::accounts::Accounts;
use crate::kernel::Device;
use crate::names::{is_service, near};
use crate::refusal;

use super::devices::{self, refused};
use super::document::{self, TableEntry, TomlValue, ValueNode};
use super::fault::{Fault, FilePosition};
use super::keys::{Table, MODULE};
use super::reader::{at, FileReader};
use super::state::{self, HeadPolicy, ServiceState, Setting};
use super::{bandwidth, weights};

/// Configuration that files define.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Services, by name.
    pub services: BTreeMap<String, Section>,
    /// Disks to be scheduled by nrs, by name or path.
    pub disks: DeviceSections,
    /// Devices of type nrs, by name.
    pub devices: DeviceSections,
    /// Parameters of the module.
    pub module: BTreeMap<&'static str, String>,
}

/// Devices or disks, with the places of their definitions.
pub type DeviceSections = BTreeMap<String, (FilePosition, Device)>;

/// Wanted state of a service.
#[derive(Clone, Debug)]
pub struct Section {
    /// Place of the definition.
    pub place: FilePosition,
    /// State that the section defines.
    pub state: ServiceState,
}

/// Reads `files`, pairs of name and text, and returns their configuration and all faults. Names of
/// users and groups are resolved by `accounts`.
pub fn read<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
    accounts: &Accounts,
) -> (Wanted, Vec<Fault>) {
    let mut reader = FileReader {
        accounts,
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
    // Faults are in the order of the files, and of their places.
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

/// Reads files with the users and groups of the mock, for tests.
#[cfg(test)]
pub fn read_for_mock<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> (Wanted, Vec<Fault>) {
    let module = crate::mock::Mock::with(&[]);
    read(files, crate::kernel::Kernel::accounts(&module))
}

/// Reads a text with one service, and returns its section or the first fault, for tests.
#[cfg(test)]
pub fn parse_one(text: &str) -> Result<Section, String> {
    let (wanted, faults) = read_for_mock([("f", text)]);
    match faults.first() {
        Some(fault) => Err(fault.to_string()),
        None => Ok(wanted.services.into_values().next().unwrap()),
    }
}

impl FileReader<'_> {
    fn file(
        &mut self,
        node: &ValueNode,
        wanted: &mut Wanted,
        module: &mut BTreeMap<&'static str, (FilePosition, String)>,
    ) {
        let Some(entries) = self.table("", node, Table::Top) else {
            return;
        };
        if let Some(entry) = at(entries, "module") {
            self.module(&entry.node, module);
        }
        for (table, wanted) in [
            (Table::Disk, &mut wanted.disks),
            (Table::Device, &mut wanted.devices),
        ] {
            if let Some(entry) = at(entries, table.key()) {
                self.devices(table, &entry.node, wanted);
            }
        }
        let Some(entry) = at(entries, "service") else {
            return;
        };
        for entry in self.free("service", &entry.node).unwrap_or_default() {
            let path = format!("service.{}", entry.key);
            if !is_service(&entry.key) {
                let reason = "invalid service name: \
                              expected 1 to 31 letters, digits and _ - . :, no leading dot";
                self.add(&entry.place, &path, reason);
                continue;
            }
            if let Some(other) = wanted.services.get(&entry.key) {
                let reason = format!("already defined in {}", other.place);
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

    /// Reads devices or disks, according to `table`.
    fn devices(&mut self, table: Table, node: &ValueNode, wanted: &mut DeviceSections) {
        let scheduled = table == Table::Disk;
        for entry in self.free(table.key(), node).unwrap_or_default() {
            let path = format!("{}.{}", table.key(), entry.key);
            if let Some((other, _)) = wanted.get(&entry.key) {
                let reason = format!("already defined in {other}");
                self.add(&entry.place, &path, reason);
                continue;
            }
            if let Some(reason) = refused("name", &entry.key).filter(|_| !scheduled) {
                self.add(&entry.place, &path, reason);
            }
            let mut device = Device {
                name: entry.key.clone(),
                scheduled,
                ..Device::default()
            };
            if scheduled {
                let default = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
                device.options = devices::DEFAULTS.map(default).into();
            }
            let keys = self.table(&path, &entry.node, table);
            let known = |key: &&TableEntry| table.names().any(|name| name == key.key);
            for key in keys.unwrap_or_default().iter().filter(known) {
                self.of_device(&format!("{path}.{}", key.key), key, &mut device);
            }
            if !scheduled {
                device = devices::plain(device);
            }
            let mut others = wanted.iter().filter(|_| !device.target.is_empty());
            let double = others.find(|(_, (_, other))| devices::overlap(&device, other));
            if let Some((name, (other, _))) = double {
                let reason = format!("overlaps {}.{name} in {other}", table.key());
                self.add(&entry.place, &path, reason);
            }
            let found = (entry.place.clone(), device);
            wanted.insert(entry.key.clone(), found);
        }
    }

    /// Reads a key of a device or a disk.
    fn of_device(&mut self, path: &str, key: &TableEntry, device: &mut Device) {
        let sectors = match &key.key[..] {
            "offset" => Some((0, &mut device.offset)),
            "sectors" => Some((1, &mut device.sectors)),
            _ => None,
        };
        if let Some((low, place)) = sectors {
            *place = self
                .number(path, &key.node, low, devices::SECTOR_MAX)
                .unwrap_or(low);
            return;
        }
        let text = match &key.key[..] {
            "size" => self
                .number(path, &key.node, 1, u64::from(SIZE_MAX))
                .map(|size| size.to_string()),
            _ => self.text(path, &key.node).map(str::to_owned),
        };
        let Some(text) = text else {
            return;
        };
        if let Some(reason) = refused(&key.key, &text) {
            self.add(&key.node.place, path, reason);
            return;
        }
        match &key.key[..] {
            "service" => device.service = text,
            "device" => device.target = text,
            name => _ = device.options.insert(name.to_owned(), text),
        }
    }

    fn module(
        &mut self,
        node: &ValueNode,
        module: &mut BTreeMap<&'static str, (FilePosition, String)>,
    ) {
        for entry in self
            .table("module", node, Table::Module)
            .unwrap_or_default()
        {
            let path = format!("module.{}", entry.key);
            let Some((name, low, high, default)) =
                MODULE.into_iter().find(|(name, ..)| *name == entry.key)
            else {
                continue;
            };
            if let Some((place, _)) = module.get(name) {
                let reason = format!("already set in {place}");
                self.add(&entry.place, &path, reason);
                continue;
            }
            let value = match &entry.node.value {
                TomlValue::Text(text, _) if text == default && default.parse::<u64>().is_err() => {
                    Some(text.clone())
                }
                _ => self
                    .number(&path, &entry.node, low, high)
                    .map(|number| number.to_string()),
            };
            if let Some(value) = value {
                module.insert(name, (entry.place.clone(), value));
            }
        }
    }

    fn service(&mut self, path: &str, node: &ValueNode) -> ServiceState {
        let mut state = ServiceState::new();
        let Some(entries) = self.table(path, node, Table::Service) else {
            return state;
        };
        if let Some(entry) = at(entries, "cpts") {
            let cpts = self.number(&format!("{path}.cpts"), &entry.node, 1, CPTS_MAX.into());
            state.cpts = cpts.and_then(|cpts| u32::try_from(cpts).ok());
        }
        let said = self.settings(path, entries, &mut state);
        if let Some(reason) = state::contradiction(&state.settings) {
            // The fault is at the first parameter of the reason that the file sets.
            let place = |word| said.iter().find(|(name, _)| *name == word);
            if let Some((_, (place, path))) = reason.split(' ').find_map(place) {
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

    /// Reads the parameters from all keys that set them, and returns their names and places.
    fn settings(
        &mut self,
        path: &str,
        entries: &[TableEntry],
        state: &mut ServiceState,
    ) -> Vec<(&'static str, (FilePosition, String))> {
        let mut all: Vec<(String, String, &TableEntry)> = Vec::new();
        if let Some(entry) = at(entries, "slots") {
            all.push(("slots".into(), format!("{path}.slots"), entry));
        }
        if let Some(entry) = at(entries, "high_priority") {
            // The caller reports a value that is not a table.
            if let TomlValue::Table(entries) = &entry.node.value {
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
        let mut said: Vec<(&'static str, (FilePosition, String))> = Vec::new();
        for (name, path, entry) in all {
            let Some(parameter) = self.parameter(&name, &path, entry) else {
                continue;
            };
            let name = parameter.name();
            if let Some((_, (place, _))) = said.iter().find(|(other, _)| *other == name) {
                let reason = format!("already set in line {}", place.line);
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

    /// Returns the parameter `name` if a file can set it here.
    fn parameter(
        &mut self,
        name: &str,
        path: &str,
        entry: &TableEntry,
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
            ("nrs_policies", _) => "set the key `policy` instead",
            ("nrs_fairshare_weights", _) => "set the table `weights` instead",
            ("nrs_tbf_rule", _) => "set tables [[service.NAME.rule]] instead",
            ("nrs_qbm_config", _) => "set the table `qbm` instead",
            ("config", _) => "set the keys of the service instead",
            (_, AccessMode::Read) => "the parameter is read-only",
            (_, AccessMode::Write) => "the parameter is write-only and has no value to configure",
            (_, AccessMode::Both) => return Some(parameter),
        };
        self.add(&entry.place, path, reason);
        None
    }

    fn setting(
        &mut self,
        parameter: &parameters::Parameter,
        path: &str,
        node: &ValueNode,
    ) -> Option<Setting> {
        let text = match &node.value {
            TomlValue::Table(_) if parameter.heads => {
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
        let takes = |reason| format!("{reason}; valid values: {}", refusal::takes(parameter));
        let setting = state::normal(parameter, &text).map_err(takes);
        self.take(&node.place, path, setting)
    }

    fn policy(&mut self, path: &str, node: &ValueNode) -> Option<HeadPolicy> {
        let text = self.text(path, node)?;
        let command = PolicyCommand::parse(text).map_err(|error| error.reason);
        let command = self.take(&node.place, path, command)?;
        if command.heads != Heads::All {
            let reason = "names a head: use `policy` for both heads, \
                          `high_priority.policy` for the high-priority head";
            self.add(&node.place, path, reason);
            return None;
        }
        let Ok(kind) = Kind::from_name(command.policy) else {
            let names = Kind::ALL.iter().map(|kind| kind.name());
            let other = near(command.policy, names.clone()).first().copied();
            let known = names.collect::<Vec<_>>().join(", ");
            let hint = other.map_or(format!(": {known}"), |other| {
                format!("; did you mean `{other}`?")
            });
            let reason = format!("unknown policy `{}`{hint}", command.policy);
            self.add(&node.place, path, reason);
            return None;
        };
        let policy = HeadPolicy::new(kind, command.argument);
        self.take(&node.place, path, policy)
    }

    fn weights(&mut self, path: &str, node: &ValueNode) -> String {
        let mut items: Vec<String> = Vec::new();
        for entry in self.free(path, node).unwrap_or_default() {
            let path = format!("{path}.\"{}\"", entry.key);
            let Some(weight) = self.scalar(&path, &entry.node) else {
                continue;
            };
            let item = format!("{}:{weight}", entry.key);
            let item = self.numbers(&entry.place, &path, "nrs_fairshare_weights", &item);
            let Some(item) = item.map(Cow::into_owned) else {
                continue;
            };
            // An item with the form of another statement would be parsed as that statement.
            let one = weights::normal([item.as_str()]).and_then(|lines| {
                let one = lines.lines().count() == 1;
                one.then_some(item).ok_or("expected FIELD:VALUE")
            });
            items.extend(self.take(&entry.place, &path, one));
        }
        let lines = weights::normal(items.iter().map(String::as_str));
        let lines = self.take(&node.place, path, lines).unwrap_or_default();
        if !lines.is_empty() && lines.lines().count() < items.len() {
            self.add(&node.place, path, "duplicate name");
        }
        lines
    }
}
