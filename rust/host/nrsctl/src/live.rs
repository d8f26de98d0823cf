// SPDX-License-Identifier: GPL-2.0-only

//! Access to the module in this machine's kernel.
//!
//! # Vocabulary
//!
//! - *Root*: the directory above `/dev`, `/sys` and `/run`; in tests a directory with plain files.
//!
//! ```text
//!   Live ──▶ node (parameters) │ configfs (services) │ dmsetup, disks (clients) │ /sys/module/nrs
//! ```

mod disks;
mod dmsetup;
mod errno;
mod failures;
mod node;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nrs_agent::{socket, status::Status};
use nrs_sched::parameters;
use rustix::fs::{flock, FlockOperation};
use rustix::io::Errno;

use crate::accounts::Accounts;
use crate::configuration::devices;
use crate::failure::{failure, Failure, FailureKind, Result};
use crate::kernel::{Device, Exclusion, Kernel};
use crate::names::{is_service, no_client};

pub use disks::HidingLayer;
use disks::{names, read, Disks, Layer};
use dmsetup::{is_parity, Dmsetup, DmsetupError};
use failures::not_loaded;
use node::{ModuleNode, Refused};

/// The running module.
#[derive(Debug)]
pub struct Live {
    root: PathBuf,
    node: ModuleNode,
    dmsetup: Dmsetup,
    disks: Disks,
    accounts: Accounts,
    /// Function that returns the device number `MAJOR:MINOR` of a path.
    number: fn(&Path) -> io::Result<String>,
}

impl Default for Live {
    fn default() -> Self {
        Self::new()
    }
}

impl Live {
    /// Creates the access to this machine's module.
    pub fn new() -> Self {
        Self::at(Path::new("/"))
    }

    /// Creates the access to the module of the system at `root`.
    pub fn at(root: &Path) -> Self {
        Self {
            root: root.into(),
            node: ModuleNode::new(root, node::open),
            dmsetup: Dmsetup::new(root),
            disks: Disks::new(root, put),
            accounts: Accounts::at(root),
            number,
        }
    }

    /// Returns true if the module is loaded and is not being unloaded.
    fn is_loaded(&self) -> bool {
        let module = self.root.join("sys/module/nrs");
        module.is_dir() && !read(&module.join("initstate")).is_ok_and(|state| state == "going")
    }

    /// Returns the configfs directory with a subdirectory for each created service.
    fn configfs(&self) -> PathBuf {
        self.root.join("sys/kernel/config/nrs")
    }

    /// Returns the directory of the cgroup `path`.
    fn cgroup(&self, path: &str) -> PathBuf {
        let below = path.trim_start_matches('/');
        self.root.join("sys/fs/cgroup").join(below)
    }

    /// Returns the configfs directory of `service`, which may not exist.
    ///
    /// # Errors
    ///
    /// `ENOENT`: `service` is not a valid name, so the path could lead anywhere.
    fn made(&self, service: &str) -> io::Result<PathBuf> {
        match is_service(service) {
            true => Ok(self.configfs().join(service)),
            false => Err(io::Error::from_raw_os_error(libc::ENOENT)),
        }
    }

    /// Returns the block device `target` as `MAJOR:MINOR`.
    ///
    /// # Errors
    ///
    /// `NotFound`: `target` does not exist; `Permission`; `Refused`: another error, such as a file
    /// that is not a block device.
    fn number_of(&self, target: &str) -> Result<String> {
        if devices::is_number(target) {
            return Ok(target.to_owned());
        }
        (self.number)(Path::new(target)).map_err(|error| {
            let (kind, hint) = match error.kind() {
                io::ErrorKind::PermissionDenied => (FailureKind::Permission, "run it as root"),
                io::ErrorKind::NotFound => (FailureKind::NotFound, "see: lsblk"),
                _ => (FailureKind::Refused, "see: lsblk"),
            };
            let message = format!("{target}: {}", errno::words(errno::of(&error)));
            Failure::new(kind, message).hint(hint)
        })
    }

    /// Returns true if there are device-mapper devices.
    fn has_mapped(&self) -> bool {
        let block = self.root.join("sys/block");
        names(&block).any(|disk| block.join(disk).join("dm").exists())
    }

    /// Returns the sysfs directory of the block device `MAJOR:MINOR`.
    fn block(&self, number: &str) -> PathBuf {
        self.root.join("sys/dev/block").join(number)
    }

    /// Returns the table line of `device`, a result of [`Kernel::locate`].
    fn table(device: &Device) -> String {
        let Device {
            service,
            target,
            offset,
            sectors,
            options,
            ..
        } = device;
        let mut table = format!("0 {sectors} nrs {target} {offset} {service}");
        if !options.is_empty() {
            table += &format!(" {}", options.len() * 2);
            for (name, value) in options {
                table += &format!(" {name} {value}");
            }
        }
        table
    }
}

/// Returns the block device `path` as `MAJOR:MINOR`.
fn number(path: &Path) -> io::Result<String> {
    let file = fs::metadata(path)?;
    match file.file_type().is_block_device() {
        true => Ok(format!(
            "{}:{}",
            libc::major(file.rdev()),
            libc::minor(file.rdev())
        )),
        false => Err(io::Error::from_raw_os_error(libc::ENOTBLK)),
    }
}

/// Writes `text` to an existing file.
///
/// # Errors
///
/// The kernel's error.
fn put(path: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(path)?;
    io::Write::write_all(&mut file, format!("{text}\n").as_bytes())
}

impl Kernel for Live {
    fn services(&self) -> Result<Vec<String>> {
        let answer = self.node.ask("services");
        let answer = answer.map_err(|refused| match refused {
            Refused::Unopened(errno) => self.open_failure(errno),
            Refused::Command(errno, _) => {
                failure!(Other: "/dev/nrs-control: {}", errno::words(errno))
            }
        })?;
        let mut names: Vec<String> = answer.lines().map(str::to_owned).collect();
        names.sort();
        Ok(names)
    }

    fn get(&self, service: &str, parameter: &str) -> Result<String> {
        if let Some(known) = parameters::named(parameter).filter(|known| !known.access.reads()) {
            return Err(failure!(Refused: "{service}.{}: write-only parameter", known.name()));
        }
        let got = self.node.ask(&format!("get {service} {parameter}"));
        got.map_err(|refused| self.why(refused, service, parameter, None))
    }

    fn set(&self, service: &str, parameter: &str, value: &str) -> Result {
        if let Some(known) = parameters::named(parameter).filter(|known| !known.access.writes()) {
            return Err(failure!(Refused: "{service}.{}: read-only parameter", known.name()));
        }
        let done = self.node.ask(&format!("set {service} {parameter} {value}"));
        done.map_err(|refused| self.why(refused, service, parameter, Some(value)))?;
        Ok(())
    }

    fn make(&self, service: &str) -> Result {
        let invalid = |_| io::Error::from_raw_os_error(libc::EINVAL);
        let done = self.made(service).map_err(invalid);
        let done = done.and_then(fs::create_dir);
        done.map_err(|error| self.configured(error, service, "make"))
    }

    fn remove(&self, service: &str) -> Result {
        let exists = |names: Vec<String>| names.iter().any(|name| name == service);
        if !self.is_made(service)? && self.services().is_ok_and(exists) {
            return Err(failure!(Busy: "{service}: not created with 'service add'";
                "the service is removed with its last client: nrsctl device remove"));
        }
        let done = self.made(service).and_then(fs::remove_dir);
        done.map_err(|error| self.configured(error, service, "remove"))
    }

    fn is_made(&self, service: &str) -> Result<bool> {
        Ok(self.made(service).is_ok_and(|path| path.is_dir()))
    }

    fn cpts(&self, service: &str) -> Result<u32> {
        let text = self.made(service).and_then(|path| read(&path.join("cpts")));
        let text = text.map_err(|error| self.configured(error, service, "cpts"))?;
        let wrong =
            |_| failure!(Other: "{service}: invalid number of partitions in cpts: '{text}'");
        text.parse().map_err(wrong)
    }

    fn set_cpts(&self, service: &str, cpts: u32) -> Result {
        let done = self.made(service);
        let done = done.and_then(|path| fs::write(path.join("cpts"), format!("{cpts}\n")));
        done.map_err(|error| self.configured(error, service, "cpts"))
    }

    fn module_parameter(&self, name: &str) -> Result<String> {
        let path = self.root.join("sys/module/nrs/parameters").join(name);
        read(&path).map_err(|error| self.of_module(error, name))
    }

    fn set_module_parameter(&self, name: &str, value: &str) -> Result {
        let path = self.root.join("sys/module/nrs/parameters").join(name);
        put(&path, value).map_err(|error| self.of_module(error, name))
    }

    fn devices(&self) -> Result<Vec<Device>> {
        if !self.is_loaded() {
            return Err(not_loaded());
        }
        let mut devices = match self.dmsetup.devices() {
            // Disks do not need device-mapper.
            Err(DmsetupError::Unstarted(error))
                if error.kind() == io::ErrorKind::NotFound && !self.has_mapped() =>
            {
                Vec::new()
            }
            devices => devices.map_err(|broken| self.dm_list_failure(broken))?,
        };
        devices.extend(self.disks.devices());
        devices.sort_by(|a, b| (&a.name, a.scheduled).cmp(&(&b.name, b.scheduled)));
        Ok(devices)
    }

    fn locate(&self, device: &Device) -> Result<Device> {
        if !self.is_loaded() {
            return Err(not_loaded());
        }
        let target = self.number_of(&device.target)?;
        let size = read(&self.block(&target).join("size"));
        let size = size.ok().and_then(|text| text.parse().ok());
        let wrong = |what| failure!(NotFound: "{}: {what}", device.target; "see: lsblk");
        let all: u64 = match size {
            None => return Err(wrong("no such block device")),
            Some(0) => return Err(wrong("block device of length 0")),
            Some(all) => all,
        };
        let left = all.saturating_sub(device.offset);
        let sectors = match device.sectors {
            0 => left,
            sectors => sectors,
        };
        if left == 0 || sectors > left {
            let (wanted, offset) = (device.sectors.max(1), device.offset);
            return Err(failure!(Refused:
                "{}: {wanted} sectors from {offset} exceed the device (size: {all} sectors)",
                device.target));
        }
        Ok(Device {
            target,
            sectors,
            ..device.clone()
        })
    }

    fn path(&self, target: &str) -> Result<String> {
        let device = self.block(target);
        if let Ok(name) = read(&device.join("dm/name")) {
            return Ok(format!("/dev/mapper/{name}"));
        }
        let name = fs::canonicalize(&device).ok();
        let name = name.as_deref().and_then(Path::file_name);
        let Some(name) = name.map(|name| name.to_string_lossy().replace('!', "/")) else {
            return Err(failure!(NotFound: "{target}: no such block device"));
        };
        let node = self.root.join("dev").join(&name);
        // A disk without a serial number has only the name of its place.
        let links = ["by-id", "by-path"].into_iter().find_map(|kind| {
            let directory = Path::new("dev/disk").join(kind);
            let links = self.root.join(&directory);
            let same = |link: &String| {
                let leads = fs::canonicalize(links.join(link)).ok();
                leads.is_some() && leads == fs::canonicalize(&node).ok()
            };
            let names = names(&links)
                .filter(same)
                // Label stored on the disk; a device of type nrs above shows the same label.
                .filter(|id| !id.starts_with("lvm-pv-uuid-"));
            // Names of the hardware are preferred to names of the bus.
            let id = names.min_by_key(|id| (!id.starts_with("wwn-"), id.clone()))?;
            Some(format!("/{}/{id}", directory.display()))
        });
        Ok(links.unwrap_or_else(|| format!("/dev/{name}")))
    }

    fn whole(&self, number: &str) -> String {
        let device = self.block(number);
        let disk = match device.join("partition").exists() {
            // The directory of a partition is in the directory of its disk.
            true => read(&device.join("../dev")).ok(),
            false => None,
        };
        disk.unwrap_or_else(|| number.into())
    }

    fn vacant(&self, name: &str) -> Result {
        let block = self.root.join("sys/block");
        let has = |disk| read(&block.join(disk).join("dm/name")).is_ok_and(|found| found == name);
        if !names(&block).any(has) {
            return Ok(());
        }
        Err(
            failure!(Busy: "{name}: a device-mapper device with this name exists";
            "see: dmsetup table {name}"),
        )
    }

    fn add_device(&self, device: &Device) -> Result {
        if !self.is_loaded() {
            return Err(not_loaded());
        }
        self.vacant(&device.name)?;
        let done = self.dmsetup.create(&device.name, &Self::table(device));
        done.map_err(|broken| self.mapped(broken, device, "add"))
    }

    fn change_device(&self, device: &Device) -> Result {
        let done = self.dmsetup.reload(&device.name, &Self::table(device));
        done.map_err(|broken| self.mapped(broken, device, "change"))
    }

    fn in_use(&self, name: &str) -> Result<bool> {
        let open = self.dmsetup.is_open(name);
        open.map_err(|broken| self.dm_list_failure(broken))
    }

    fn remove_device(&self, name: &str) -> Result {
        let devices = self.devices()?;
        let Some(device) = devices.iter().find(|device| device.name == name) else {
            let names = devices.iter().map(|device| &device.name[..]);
            return Err(no_client(name, names));
        };
        if device.scheduled {
            let failure = failure!(Refused:
                "{name}: is a disk, not a device-mapper device of type nrs");
            return Err(failure.hint(format!("nrsctl device unschedule {name}")));
        }
        let done = self.dmsetup.remove(name);
        done.map_err(|broken| self.mapped(broken, device, "remove"))
    }

    fn disks(&self) -> Result<Vec<Device>> {
        Ok(self.disks.devices())
    }

    fn disk(&self, path: &str) -> Result<String> {
        let name = self.disks.name(path);
        if let Some(disk) = self.disks.of_partition(&name) {
            return Err(failure!(Refused:
                "{path}: is a partition; set the scheduler of its disk, {disk}";
                "use {disk}"));
        }
        match self.disks.exists(&name) {
            true => Ok(name),
            false => {
                let failure = failure!(NotFound: "disk '{path}' does not exist");
                Err(failure.hint("see: lsblk -d"))
            }
        }
    }

    fn schedule(&self, disk: &Device) -> Result {
        let done = self.disks.schedule(disk);
        done.map_err(|broken| self.scheduler_failure(broken, &disk.name, disks::NRS, &disk.service))
    }

    fn hiding_layers(&self, disk: &str) -> Vec<HidingLayer> {
        let layers = self.disks.layers(disk);
        let mapped = match layers.iter().any(|layer| layer.mapped.is_some()) {
            true => self.dmsetup.hiding().unwrap_or_default(),
            false => BTreeMap::new(),
        };
        let hiding = |layer: Layer| {
            let level = layer.level.filter(|level| is_parity(level));
            let (path, kind) = match layer.mapped {
                Some(name) => (format!("/dev/mapper/{name}"), mapped.get(&name).cloned()),
                None => (format!("/dev/{}", layer.name), level),
            };
            Some(HidingLayer { path, kind: kind? })
        };
        layers.into_iter().filter_map(hiding).collect()
    }

    fn unschedule(&self, disk: &str, scheduler: &str) -> Result {
        let done = self.disks.unschedule(disk, scheduler);
        done.map_err(|broken| self.scheduler_failure(broken, disk, scheduler, ""))
    }

    fn try_exclude(&self) -> Option<Exclusion> {
        let mut options = fs::OpenOptions::new();
        let options = options.create(true).truncate(false).write(true).mode(0o600);
        let Ok(file) = options.open(self.root.join("run/nrsctl.lock")) else {
            // Only root changes the module and its files; other users may save to a file.
            return Some(Exclusion::none());
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => None,
            _ => Some(Exclusion::of(file)),
        }
    }

    fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    fn cgroups(&self, path: &str) -> Vec<String> {
        let directory = self.cgroup(path);
        let is_cgroup = |name: &String| directory.join(name).is_dir();
        names(&directory).filter(is_cgroup).collect()
    }

    fn cgroup_weight(&self, path: &str) -> Option<u32> {
        let directory = self.cgroup(path);
        let text = |name: &str| fs::read_to_string(directory.join(name)).ok();
        let text = text("io.weight").or_else(|| text("io.bfq.weight"))?;
        let mut lines = text
            .lines()
            .filter_map(|line| line.strip_prefix("default "));
        lines.next()?.trim().parse().ok()
    }

    fn agent(&self, socket: &Path) -> Result<Option<Status>> {
        let path = match socket.strip_prefix("/") {
            Ok(below) => self.root.join(below),
            Err(_) => socket.into(),
        };
        socket::read(&path).map_err(|error| {
            let failure = Failure::of_file(&path, &error);
            match failure.kind {
                FailureKind::Permission => failure.hint("run it as root"),
                _ => failure,
            }
        })
    }
}
