// SPDX-License-Identifier: GPL-2.0-only

//! The running module as the tool sees it.

use std::collections::BTreeMap;
use std::path::Path;

use nrs_agent::status::Status;

use crate::accounts::Accounts;
use crate::failure::{Failure, Kind, Result};

/// A block device of a service: a client that `dmsetup` made, or a disk whose I/O scheduler is nrs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Its name in `/dev/mapper`, or that of the disk.
    pub name: String,
    /// The service that it is a client of.
    pub service: String,
    /// The device below, or the disk: a path or `MAJOR:MINOR`.
    pub target: String,
    /// Where on that it begins, sectors.
    pub offset: u64,
    /// How long it is, sectors.
    pub sectors: u64,
    /// What else the table, or `queue/iosched` of the disk says: `nid`, `jobid`, ...
    pub options: BTreeMap<String, String>,
    /// Whether it is a disk whose I/O scheduler is nrs.
    pub scheduled: bool,
    /// Whether its device has further targets, so that no file can define it.
    pub partial: bool,
}

impl Device {
    /// Whether what can be set of the disk `other` is set in the same way.
    pub fn is_set_as(&self, other: &Self) -> bool {
        (&self.service, &self.options) == (&other.service, &other.options)
    }
}

/// A module that has services.
///
/// # Errors
///
/// All methods: [`Kind::NotLoaded`](crate::failure::Kind), `Permission`, `NotFound` for what is not there, `Refused` with the
/// reason for a value that is wrong, `Busy`.
pub trait Kernel {
    /// The names of all services, sorted.
    fn services(&self) -> Result<Vec<String>>;

    /// The value of a parameter (`slots`, `nrs_policies`, …) as the module shows it, with its line ends.
    fn get(&self, service: &str, parameter: &str) -> Result<String>;

    /// Sets a parameter.
    fn set(&self, service: &str, parameter: &str, value: &str) -> Result;

    /// Makes a service that stays without clients (a directory in configfs).
    fn make(&self, service: &str) -> Result;

    /// Removes a service that [`Kernel::make`] made.
    fn remove(&self, service: &str) -> Result;

    /// Whether a service was made by [`Kernel::make`] (or `mkdir`), and so stays.
    fn is_made(&self, service: &str) -> Result<bool>;

    /// How many partitions a service that was made has.
    fn cpts(&self, service: &str) -> Result<u32>;

    /// Sets how many partitions it has; `Busy` once it has clients.
    fn set_cpts(&self, service: &str, cpts: u32) -> Result;

    /// The value of a module parameter (`default_slots`, …).
    fn module_parameter(&self, name: &str) -> Result<String>;

    /// Sets a module parameter.
    fn set_module_parameter(&self, name: &str, value: &str) -> Result;

    /// The block devices of all services, sorted by name.
    fn devices(&self) -> Result<Vec<Device>>;

    /// What a block device is on this machine: the target as `MAJOR:MINOR`, and the length, which is the
    /// rest of the target where `sectors` is 0. `NotFound`: the target does not exist, or has no sectors yet.
    fn locate(&self, device: &Device) -> Result<Device>;

    /// A path of the target `MAJOR:MINOR` that names the same one after a reboot, as far as there is one.
    fn path(&self, target: &str) -> Result<String>;

    /// The disk `MAJOR:MINOR` that the partition `number` is on; `number` itself if it is no partition.
    fn whole(&self, number: &str) -> String;

    /// `Busy`: a device-mapper device of another type has this name.
    fn vacant(&self, name: &str) -> Result;

    /// Makes a block device that was located.
    fn add_device(&self, device: &Device) -> Result;

    /// Gives a block device another table, that of `device`, which was located: all or nothing.
    fn change_device(&self, device: &Device) -> Result;

    /// Whether a block device is open: mounted, or below another one.
    fn in_use(&self, name: &str) -> Result<bool>;

    /// Removes a block device.
    fn remove_device(&self, name: &str) -> Result;

    /// The disks among [`Kernel::devices`].
    fn disks(&self) -> Result<Vec<Device>>;

    /// The name of the disk `path`, which may be a name already; `Refused`: a partition.
    fn disk(&self, path: &str) -> Result<String>;

    /// Makes nrs the I/O scheduler of a disk: all or nothing. An empty service and options that are missing stay.
    fn schedule(&self, disk: &Device) -> Result;

    /// Makes `scheduler` that of a disk that nrs schedules.
    fn unschedule(&self, disk: &str, scheduler: &str) -> Result;

    /// The users and groups of the machine.
    fn accounts(&self) -> &Accounts;

    /// The status of the agent that answers at `socket`; none if no agent runs there.
    fn agent(&self, socket: &Path) -> Result<Option<Status>>;
}

/// Sets a parameter to `value`, which may have names of users and groups.
///
/// # Errors
///
/// [`Kind::NotFound`]: a name that does not exist; what [`Kernel::set`] returns.
pub fn set(kernel: &dyn Kernel, service: &str, parameter: &str, value: &str) -> Result {
    let value = kernel.accounts().numbers(parameter, value)?;
    kernel.set(service, parameter, &value)
}

/// Whether `failure` of `service` is that it went away after it was listed.
///
/// # Errors
///
/// What [`Kernel::services`] returns.
pub fn is_gone(kernel: &dyn Kernel, service: &str, failure: &Failure) -> Result<bool> {
    let missing = failure.kind == Kind::NotFound;
    Ok(missing && !kernel.services()?.iter().any(|name| name == service))
}

/// What `read` finds of each service that is there, and is there still when it is read.
///
/// # Errors
///
/// What [`Kernel::services`] and `read` return.
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
    use crate::cli::said;
    use crate::mock::Mock;

    #[test]
    fn lists_do_without_those_that_went_away() {
        for line in ["status", "service list", "client list", "save"] {
            let kernel = Mock::with(&[("a", &[])]);
            *kernel.leaving.borrow_mut() = Some("a".into());
            said(&kernel, line).unwrap();
            assert!(kernel.services().unwrap().is_empty());
        }
    }

    #[test]
    fn those_that_went_away_are_left_out() {
        let kernel = Mock::with(&[("a", &[]), ("b", &[])]);
        let read = |name: &str| {
            if name == "a" {
                kernel.remove("a")?;
            }
            kernel.cpts(name)
        };
        assert_eq!(each(&kernel, read), Ok(vec![2]));
        // One that is there, and has not what is asked for.
        let failure = each(&kernel, |name| kernel.get(name, "slots")).unwrap_err();
        assert_eq!(failure.kind, Kind::NotFound);
    }
}
