// SPDX-License-Identifier: GPL-2.0-only

//! Reading of files: every key is looked up in the table of keys, every value is checked by the
//! module's own parser, and all faults are collected.

mod service;
#[cfg(test)]
pub mod tests;

use std::collections::BTreeMap;

use nrs_agent::toml::{Fault, FilePosition, TomlNode, TomlValue};
use nrs_sched::attr::SIZE_MAX;

use crate::accounts::Accounts;
use crate::kernel::Device;
use crate::names::{is_service, near};

use super::devices::{self, refused};
use super::keys::{Table, MODULE};
use super::state::ServiceState;

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
    let faults = Vec::new();
    let mut reader = FileReader { accounts, faults };
    let mut wanted = Wanted::default();
    let mut module = BTreeMap::new();
    let mut order = Vec::new();
    for (file, text) in files {
        order.push(file);
        let file = TomlNode::parse(file, text);
        if let Some(file) = reader.take(file) {
            reader.file(&file, &mut wanted, &mut module);
        }
    }
    // Faults are in the order of the files, and of their places.
    reader.faults.sort_by_key(|fault| {
        let place = &fault.place;
        let file = order.iter().position(|file| *file == &*place.file);
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

/// Values of module parameters, with the places of their keys.
type ModuleValues = BTreeMap<&'static str, (FilePosition, String)>;

/// Reader that collects faults.
struct FileReader<'r> {
    /// Users and groups of the machine.
    accounts: &'r Accounts,
    /// Faults, without duplicates.
    faults: Vec<Fault>,
}

impl FileReader<'_> {
    /// Adds a fault.
    fn add(&mut self, fault: Fault) {
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    /// Returns the value of `found`; a fault is added.
    fn take<T>(&mut self, found: Result<T, Fault>) -> Option<T> {
        found.map_err(|fault| self.add(fault)).ok()
    }

    /// Adds the fault that `entry` at `path` is not one of the keys `known`.
    fn unknown<'a>(
        &mut self,
        path: &str,
        entry: &TomlNode,
        known: impl IntoIterator<Item = &'a str>,
    ) {
        let reason = match near(&entry.key, known).first() {
            Some(other) => format!("unknown key; did you mean `{other}`?"),
            None => "unknown key".to_string(),
        };
        self.add(Fault::new(&entry.key_place, path, reason));
    }

    /// Returns the entries of a table; keys that are not in `table` are faults.
    fn table<'a>(&mut self, node: &'a TomlNode, table: Table) -> Option<&'a [TomlNode]> {
        let entries = self.take(node.entries())?;
        for entry in entries {
            if !table.names().any(|name| name == entry.key) {
                let top = if table == Table::Top { "the file." } else { "" };
                self.unknown(&format!("{top}{}", entry.path), entry, table.names());
            }
        }
        let mut required = table.required().iter();
        if let Some(key) = required.find(|key| node.get(key).is_none()) {
            self.add(node.fault(format!("missing key `{key}`")));
            return None;
        }
        Some(entries)
    }

    /// Returns the entries of the table `key` of `node`, except those that `there` knows already.
    fn sections<'a>(
        &mut self,
        node: &'a TomlNode,
        key: &str,
        there: impl Fn(&str) -> Option<FilePosition>,
    ) -> Vec<&'a TomlNode> {
        let entries = node.get(key).map(TomlNode::entries);
        let entries = entries.and_then(|entries| self.take(entries));
        let new = |entry: &&TomlNode| {
            let other = there(&entry.key);
            if let Some(other) = &other {
                self.add(entry.key_fault(format!("already defined in {other}")));
            }
            other.is_none()
        };
        entries.unwrap_or_default().iter().filter(new).collect()
    }

    fn file(&mut self, node: &TomlNode, wanted: &mut Wanted, module: &mut ModuleValues) {
        if self.table(node, Table::Top).is_none() {
            return;
        }
        if let Some(node) = node.get("module") {
            self.module(node, module);
        }
        for (table, wanted) in [
            (Table::Disk, &mut wanted.disks),
            (Table::Device, &mut wanted.devices),
        ] {
            self.devices(table, node, wanted);
        }
        let services = &mut wanted.services;
        let there = |name: &str| services.get(name).map(|section| section.place.clone());
        for entry in self.sections(node, "service", there) {
            if !is_service(&entry.key) {
                let reason = "invalid service name: \
                              expected 1 to 31 letters, digits and _ - . :, no leading dot";
                self.add(entry.key_fault(reason));
                continue;
            }
            let state = self.service(entry);
            // Of a wrong section, only the place counts.
            if let Some(state) = state.or_else(|| ServiceState::parse("").ok()) {
                let place = entry.key_place.clone();
                services.insert(entry.key.clone(), Section { place, state });
            }
        }
    }

    /// Reads devices or disks of `node`, according to `table`.
    fn devices(&mut self, table: Table, node: &TomlNode, wanted: &mut DeviceSections) {
        let scheduled = table == Table::Disk;
        let there = |name: &str| wanted.get(name).map(|(place, _)| place.clone());
        for entry in self.sections(node, table.key(), there) {
            if let Some(reason) = refused("name", &entry.key).filter(|_| !scheduled) {
                self.add(entry.key_fault(reason));
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
            let keys = self.table(entry, table).unwrap_or_default().iter();
            for key in keys.filter(|key| table.names().any(|name| name == key.key)) {
                let done = of_device(key, &mut device);
                self.take(done);
            }
            if !scheduled {
                device = devices::plain(device);
            }
            let mut others = wanted.iter().filter(|_| !device.target.is_empty());
            let double = others.find(|(_, (_, other))| devices::overlap(&device, other));
            if let Some((name, (other, _))) = double {
                let reason = format!("overlaps {}.{name} in {other}", table.key());
                self.add(entry.key_fault(reason));
            }
            let found = (entry.key_place.clone(), device);
            wanted.insert(entry.key.clone(), found);
        }
    }

    fn module(&mut self, node: &TomlNode, module: &mut ModuleValues) {
        for entry in self.table(node, Table::Module).unwrap_or_default() {
            let Some((name, low, high, default)) =
                MODULE.into_iter().find(|(name, ..)| *name == entry.key)
            else {
                continue;
            };
            if let Some((place, _)) = module.get(name) {
                self.add(entry.key_fault(format!("already set in {place}")));
                continue;
            }
            let value = match &entry.value {
                TomlValue::Text(text, _) if text == default && default.parse::<u64>().is_err() => {
                    Ok(text.clone())
                }
                _ => entry.number(low..=high).map(|number| number.to_string()),
            };
            if let Some(value) = self.take(value) {
                module.insert(name, (entry.key_place.clone(), value));
            }
        }
    }
}

/// Reads a key of a device or a disk.
fn of_device(node: &TomlNode, device: &mut Device) -> Result<(), Fault> {
    let text = match &node.key[..] {
        "offset" => {
            device.offset = node.number(0..=devices::SECTOR_MAX)?;
            return Ok(());
        }
        "sectors" => {
            // Until the number is read, the device overlaps as little as possible.
            device.sectors = 1;
            device.sectors = node.number(1..=devices::SECTOR_MAX)?;
            return Ok(());
        }
        "size" => node.number(1..=u64::from(SIZE_MAX))?.to_string(),
        _ => node.text()?.to_owned(),
    };
    if let Some(reason) = refused(&node.key, &text) {
        return Err(node.fault(reason));
    }
    match &node.key[..] {
        "service" => device.service = text,
        "device" => device.target = text,
        name => _ = device.options.insert(name.to_owned(), text),
    }
    Ok(())
}
