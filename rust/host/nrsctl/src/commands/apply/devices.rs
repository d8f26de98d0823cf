// SPDX-License-Identifier: GPL-2.0-only

//! Devices and disks: comparison of the files with the running state.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nrs_agent::toml::FilePosition;

use super::Output;
use crate::configuration::carry_out::PAUSE;
use crate::configuration::devices::{alone, defined, in_words, plain};
use crate::configuration::keys::Table;
use crate::configuration::read::Wanted;
use crate::configuration::render;
use crate::failure::{failure, Failure, FailureKind, Result};
use crate::kernel::{Device, Kernel};

/// Device or disk that the files define.
struct Item<'a> {
    /// Name of the section.
    key: &'a str,
    place: &'a FilePosition,
    wanted: &'a Device,
}

/// Device or disk that differs from its section.
struct DeviceChange {
    /// Running state in the form of the file; `None` if the device does not exist.
    from: Option<Device>,
    /// Section of the file.
    to: Device,
    /// Section, resolved on this machine.
    located: Device,
}

/// Devices and disks to be changed.
pub struct DeviceChanges<'a> {
    changes: Vec<DeviceChange>,
    /// Items whose device or underlying device is missing.
    late: Vec<Item<'a>>,
    /// Places of the sections of the disks that were found, by disk name.
    places: BTreeMap<String, &'a FilePosition>,
    /// Devices to be removed, in the form of a section.
    pub extra: Vec<Device>,
}

impl DeviceChange {
    /// Shows the difference.
    fn show(&self, output: &mut Output<'_>) -> Result {
        let old = self.from.as_ref().map_or(String::new(), render::device);
        output.difference(&self.to.name, &old, &render::device(&self.to))
    }

    /// Creates or changes the device, and returns a description of the change.
    ///
    /// # Errors
    ///
    /// Errors of the kernel; the device is unchanged then.
    fn carry_out(&self, kernel: &dyn Kernel) -> Result<String> {
        let (name, to) = (&self.to.name, &self.to);
        Ok(match &self.from {
            _ if to.scheduled => {
                kernel.schedule(&self.located)?;
                format!("{name}: scheduled by {}", to.service)
            }
            None => {
                kernel.add_device(&self.located)?;
                format!("{name}: created on {}", to.target)
            }
            Some(_) => {
                kernel.change_device(&self.located)?;
                format!("{name}: changed")
            }
        })
    }
}

impl<'a> DeviceChanges<'a> {
    /// Returns the changes for `wanted`, and with `prune` the devices to be removed. Failures of
    /// devices that cannot be changed are added to `failures`.
    ///
    /// # Errors
    ///
    /// Errors of reading the running state.
    pub fn new(
        kernel: &dyn Kernel,
        wanted: &'a Wanted,
        prune: bool,
        failures: &mut Vec<Failure>,
    ) -> Result<Self> {
        let running = kernel.devices()?;
        let mut devices = Self {
            changes: Vec::new(),
            late: Vec::new(),
            places: BTreeMap::new(),
            extra: Vec::new(),
        };
        for (key, (place, wanted)) in wanted.disks.iter().chain(&wanted.devices) {
            let item = Item { key, place, wanted };
            match devices.change_of(kernel, &item, &running) {
                Ok(change) => devices.changes.extend(change),
                Err(failure) if failure.kind == FailureKind::NotFound => devices.late.push(item),
                Err(failure) => failures.push(failure),
            }
        }
        let is_extra = |device: &&Device| {
            let named = wanted.devices.contains_key(&device.name);
            prune && !named && !device.scheduled && !device.partial
        };
        for device in running.iter().filter(is_extra) {
            match kernel.in_use(&device.name) {
                Ok(true) => {}
                Ok(false) => {
                    let shown = defined(kernel, device).unwrap_or_else(|_| plain(device.clone()));
                    devices.extra.push(shown);
                }
                Err(failure) => failures.push(failure),
            }
        }
        Ok(devices)
    }

    /// Returns the change that `item` needs, if any.
    ///
    /// # Errors
    ///
    /// - [`FailureKind::NotFound`]: the device or its underlying device is missing.
    /// - [`FailureKind::Refused`]: another section defines the device, another device overlaps its
    ///   sectors, or a file cannot define it.
    /// - [`FailureKind::Busy`]: the device is in use, or its name is taken.
    fn change_of(
        &mut self,
        kernel: &dyn Kernel,
        item: &Item<'a>,
        running: &[Device],
    ) -> Result<Option<DeviceChange>> {
        let wanted = item.wanted;
        let section = format!("{}: {}.{}", item.place, Table::of(wanted).key(), item.key);
        let named = |name: &str| {
            let same =
                |device: &&Device| (&device.name[..], device.scheduled) == (name, wanted.scheduled);
            running.iter().find(same)
        };
        if wanted.scheduled {
            let name = kernel.disk(item.key)?;
            if let Some(other) = self.places.insert(name.clone(), item.place) {
                return Err(failure!(Refused: "{section}: {name} is already defined in {other}"));
            }
            let from = named(&name).cloned();
            let to = Device {
                name,
                ..wanted.clone()
            };
            let differs = from
                .as_ref()
                .is_none_or(|from| !from.has_same_settings(&to));
            return Ok(differs.then(|| DeviceChange {
                from,
                located: to.clone(),
                to,
            }));
        }
        let placed = |failure: Failure| failure.prefixed(&section);
        let located = kernel.locate(wanted).map_err(placed)?;
        let from = match named(&wanted.name) {
            None => {
                kernel.vacant(&wanted.name)?;
                None
            }
            Some(device) if device.partial => {
                return Err(
                    failure!(Refused: "{section}: the device has several targets";
                    "sections define devices with one target: remove the device, or the section"),
                );
            }
            Some(device) => {
                let from = in_words(device, wanted, &located);
                if from == *wanted {
                    return Ok(None);
                }
                let stays = device.target == located.target
                    && device.offset == located.offset
                    && device.sectors <= located.sectors;
                if !stays && kernel.in_use(&device.name)? {
                    return Err(
                        failure!(Busy: "{section}: the device is in use and can only grow";
                        "unmount it first"),
                    );
                }
                Some(from)
            }
        };
        let changed = self.changes.iter().map(|change| &change.located);
        alone(&located, running.iter().chain(changed)).map_err(placed)?;
        Ok(Some(DeviceChange {
            from,
            to: wanted.clone(),
            located,
        }))
    }

    /// Returns true if nothing is to be changed.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.late.is_empty() && self.extra.is_empty()
    }

    /// Shows the differences of all devices that are not missing.
    pub fn show(&self, output: &mut Output<'_>) -> Result {
        for change in &self.changes {
            change.show(output)?;
        }
        for device in &self.extra {
            output.difference(&device.name, &render::device(device), "")?;
        }
        Ok(())
    }

    /// Adds a failure to `failures` for each device that is missing.
    pub fn missing(&mut self, kernel: &dyn Kernel, failures: &mut Vec<Failure>) {
        for item in std::mem::take(&mut self.late) {
            failures.extend(self.change_of(kernel, &item, &[]).err());
        }
    }

    /// Creates and changes all devices; missing devices are waited for up to `patience`, as at
    /// boot. If `told` is set, the names of the devices not yet processed are added to `left`.
    ///
    /// # Errors
    ///
    /// Errors of writing.
    pub fn carry_out(
        &mut self,
        kernel: &dyn Kernel,
        patience: Duration,
        told: &AtomicBool,
        output: &mut Output<'_>,
        failures: &mut Vec<Failure>,
        left: &mut Vec<String>,
    ) -> Result {
        for change in std::mem::take(&mut self.changes) {
            if told.load(Ordering::Relaxed) {
                left.push(change.to.name);
                continue;
            }
            match change.carry_out(kernel) {
                Ok(done) => output.done(done)?,
                Err(failure) => failures.push(failure),
            }
        }
        let end = Instant::now() + patience;
        while !self.late.is_empty() {
            if told.load(Ordering::Relaxed) {
                left.extend(self.late.drain(..).map(|item| item.key.to_owned()));
                break;
            }
            let last = Instant::now() >= end;
            for item in std::mem::take(&mut self.late) {
                let change = kernel
                    .devices()
                    .and_then(|running| self.change_of(kernel, &item, &running));
                let done = match change {
                    Ok(None) => continue,
                    Ok(Some(change)) => {
                        change.show(output)?;
                        change.carry_out(kernel)
                    }
                    Err(failure) => Err(failure),
                };
                match done {
                    Ok(done) => output.done(done)?,
                    Err(failure) if failure.kind == FailureKind::NotFound && !last => {
                        self.late.push(item)
                    }
                    Err(failure) => failures.push(failure),
                }
            }
            if !self.late.is_empty() {
                sleep(PAUSE);
            }
        }
        Ok(())
    }
}
