// SPDX-License-Identifier: GPL-2.0-only

//! Interface to the running module.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nrs_agent::status::Status;

use crate::accounts::Accounts;
use crate::failure::{failure, Failure, FailureKind, Result};
use crate::live::HidingLayer;

/// A block device of a service: a client created with `dmsetup`, or a disk whose I/O scheduler is
/// nrs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Name in `/dev/mapper`, or name of the disk.
    pub name: String,
    /// Service of the client.
    pub service: String,
    /// Device below, or the disk: a path or `MAJOR:MINOR`.
    pub target: String,
    /// Start on the target, sectors.
    pub offset: u64,
    /// Length, sectors.
    pub sectors: u64,
    /// Further options of the table or of the disk's `queue/iosched`: `nid`, `jobid`, ...
    pub options: BTreeMap<String, String>,
    /// True for a disk whose I/O scheduler is nrs.
    pub scheduled: bool,
    /// True if the device has further targets; no configuration file can define such a device.
    pub partial: bool,
}

impl Device {
    /// Returns true if the service and the options equal those of the disk `other`.
    pub fn has_same_settings(&self, other: &Self) -> bool {
        (&self.service, &self.options) == (&other.service, &other.options)
    }
}

/// Exclusion of other commands that change the configuration, until it is dropped.
#[derive(Debug)]
pub struct Exclusion {
    /// Locked until it is closed.
    _file: Option<File>,
}

impl Exclusion {
    /// Returns the exclusion by the locked `file`.
    pub fn of(file: File) -> Self {
        Self { _file: Some(file) }
    }

    /// Returns an exclusion that excludes no command.
    pub fn none() -> Self {
        Self { _file: None }
    }
}

/// A module with services.
///
/// # Errors
///
/// All methods: [`FailureKind::NotLoaded`](crate::failure::FailureKind), `Permission`, `NotFound`
/// for what does not exist, `Refused` with the reason for an invalid value, `Busy`.
pub trait Kernel {
    /// Returns the names of all services, sorted.
    fn services(&self) -> Result<Vec<String>>;

    /// Returns the value of a parameter (`slots`, `nrs_policies`, …) as printed by the module, with
    /// line ends.
    fn get(&self, service: &str, parameter: &str) -> Result<String>;

    /// Sets a parameter.
    fn set(&self, service: &str, parameter: &str, value: &str) -> Result;

    /// Creates a service that persists without clients (a directory in configfs).
    fn make(&self, service: &str) -> Result;

    /// Removes a service created by [`Kernel::make`].
    fn remove(&self, service: &str) -> Result;

    /// Returns true if the service was created by [`Kernel::make`] (or `mkdir`) and thus persists.
    fn is_made(&self, service: &str) -> Result<bool>;

    /// Returns the number of CPU partitions of a service created by [`Kernel::make`].
    fn cpts(&self, service: &str) -> Result<u32>;

    /// Sets the number of CPU partitions; `Busy` if the service has clients.
    fn set_cpts(&self, service: &str, cpts: u32) -> Result;

    /// Returns the value of a module parameter (`default_slots`, …).
    fn module_parameter(&self, name: &str) -> Result<String>;

    /// Sets a module parameter.
    fn set_module_parameter(&self, name: &str, value: &str) -> Result;

    /// Returns the block devices of all services, sorted by name.
    fn devices(&self) -> Result<Vec<Device>>;

    /// Resolves a block device on this machine: the target as `MAJOR:MINOR`, and the length. A
    /// length of 0 becomes the rest of the target. `NotFound`: the target does not exist or has no
    /// sectors yet.
    fn locate(&self, device: &Device) -> Result<Device>;

    /// Returns a path of the target `MAJOR:MINOR` that is stable across reboots, if possible.
    fn path(&self, target: &str) -> Result<String>;

    /// Returns the disk `MAJOR:MINOR` of the partition `number`; `number` itself if it is not a
    /// partition.
    fn whole(&self, number: &str) -> String;

    /// Checks that no device-mapper device has this name; `Busy`: the name is in use.
    fn vacant(&self, name: &str) -> Result;

    /// Creates a block device from a result of [`Kernel::locate`].
    fn add_device(&self, device: &Device) -> Result;

    /// Replaces the table of a block device, all or nothing; `device` is a result of
    /// [`Kernel::locate`].
    fn change_device(&self, device: &Device) -> Result;

    /// Returns true if a block device is open: mounted, or below another device.
    fn in_use(&self, name: &str) -> Result<bool>;

    /// Removes a block device.
    fn remove_device(&self, name: &str) -> Result;

    /// Returns the disks among [`Kernel::devices`].
    fn disks(&self) -> Result<Vec<Device>>;

    /// Returns the name of the disk `path`, which may already be a name; `Refused`: a partition.
    fn disk(&self, path: &str) -> Result<String>;

    /// Makes nrs the I/O scheduler of a disk, all or nothing. An empty service and missing options
    /// are left unchanged.
    fn schedule(&self, disk: &Device) -> Result;

    /// Returns the devices above a disk that hide the owners of requests from its I/O scheduler.
    fn hiding_layers(&self, _disk: &str) -> Vec<HidingLayer> {
        Vec::new()
    }

    /// Replaces nrs by `scheduler` as the I/O scheduler of a disk.
    fn unschedule(&self, disk: &str, scheduler: &str) -> Result;

    /// Excludes other commands that change the configuration; `None`: another one does.
    fn try_exclude(&self) -> Option<Exclusion>;

    /// Returns the users and groups of the machine.
    fn accounts(&self) -> &Accounts;

    /// Returns the names of the cgroups in the cgroup `path`, such as `/system.slice`.
    fn cgroups(&self, path: &str) -> Vec<String>;

    /// Returns the weight of the cgroup `path` for block devices, 1 to 10000, from `io.weight` or
    /// `io.bfq.weight`; `None` if it has neither.
    fn cgroup_weight(&self, path: &str) -> Option<u32>;

    /// Returns the status of the agent that listens on `socket`; `None` if no agent runs there.
    fn agent(&self, socket: &Path) -> Result<Option<Status>>;
}

/// Time for which a command waits for another one, which itself may wait for disks.
const PATIENCE: Duration = Duration::from_secs(60);

/// Interval of the attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Excludes other commands that change the configuration. Waits for those that run, unless `told`
/// is set.
///
/// # Errors
///
/// [`FailureKind::Busy`]: another command takes too long.
pub fn exclude(kernel: &dyn Kernel, told: &AtomicBool) -> Result<Exclusion> {
    let started = Instant::now();
    loop {
        if let Some(exclusion) = kernel.try_exclude() {
            return Ok(exclusion);
        }
        if told.load(Ordering::Relaxed) || started.elapsed() > PATIENCE {
            return Err(failure!(Busy: "another nrsctl changes the configuration"; "retry"));
        }
        sleep(PAUSE);
    }
}

/// Sets a parameter to `value`, which may contain names of users and groups.
///
/// # Errors
///
/// [`FailureKind::NotFound`]: a name does not exist; the failures of [`Kernel::set`].
pub fn set(kernel: &dyn Kernel, service: &str, parameter: &str, value: &str) -> Result {
    let value = kernel.accounts().numbers(parameter, value)?;
    kernel.set(service, parameter, &value)
}

/// Returns true if `failure` is due to the removal of `service` after it was listed.
///
/// # Errors
///
/// The failures of [`Kernel::services`].
pub fn is_gone(kernel: &dyn Kernel, service: &str, failure: &Failure) -> Result<bool> {
    let missing = failure.kind == FailureKind::NotFound;
    Ok(missing && !kernel.services()?.iter().any(|name| name == service))
}

/// Returns the results of `read` for all services, except for services removed in the meantime.
///
/// # Errors
///
/// The failures of [`Kernel::services`] and `read`.
pub fn each<T>(kernel: &dyn Kernel, mut read: impl FnMut(&str) -> Result<T>) -> Result<Vec<T>> {
    let mut found = Vec::new();
    for service in kernel.services()? {
        match read(&service) {
            Ok(one) => found.push(one),
            Err(failure) if is_gone(kernel, &service, &failure)? => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output_of;
    use crate::mock::Mock;

    #[test]
    fn lists_omit_removed_services() {
        for line in ["status", "service list", "client list", "save"] {
            let kernel = Mock::with(&[("a", &[])]);
            *kernel.leaving.borrow_mut() = Some("a".into());
            output_of(&kernel, line).unwrap();
            assert!(kernel.services().unwrap().is_empty());
        }
    }

    #[test]
    fn removed_services_are_omitted() {
        let kernel = Mock::with(&[("a", &[]), ("b", &[])]);
        let read = |name: &str| {
            if name == "a" {
                kernel.remove("a")?;
            }
            kernel.cpts(name)
        };
        assert_eq!(each(&kernel, read), Ok(vec![2]));
        // The service exists but lacks the parameter.
        let failure = each(&kernel, |name| kernel.get(name, "slots")).unwrap_err();
        assert_eq!(failure.kind, FailureKind::NotFound);
    }
}
