// SPDX-License-Identifier: GPL-2.0-only

//! The module that runs in this machine's kernel.
//!
//! # Vocabulary
//!
//! - *Way*: a transport to the parameters of services ([`transport::Transport`]): the control node, debugfs, messages of
//!   device-mapper; the first that leads there is taken.
//! - *Root*: the directory under which `/dev`, `/sys` and `/run` are; tests have one of plain files.

mod configfs;
mod debugfs;
mod dmsetup;
mod message;
mod node;
mod transport;

#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nrs_sched::parameters;

use crate::errno;
use crate::failure::{Failure, Kind, Result};
use crate::kernel::{Device, Kernel};
use crate::names::{near, no_client, no_service};
use crate::refusal;

use configfs::Configfs;
use debugfs::Debugfs;
use dmsetup::{escape, Broken, Dmsetup};
use message::Message;
use node::Node;
use transport::{Refused, Transport};

/// Bytes of a sector.
const SECTOR: u64 = 512;

/// The running module.
#[derive(Debug)]
pub struct Live {
    root: PathBuf,
    configfs: Configfs,
    dmsetup: Dmsetup,
}

impl Default for Live {
    fn default() -> Self {
        Self::new()
    }
}

impl Live {
    /// The one of this machine.
    pub fn new() -> Self {
        Self::at(Path::new("/"))
    }

    /// The one of the system at `root`.
    pub fn at(root: &Path) -> Self {
        Self {
            root: root.into(),
            configfs: Configfs::new(root),
            dmsetup: Dmsetup::new(root),
        }
    }

    /// Does something by the first way that leads there.
    fn by<T>(&self, act: impl Fn(&dyn Transport) -> transport::Result<T>) -> transport::Result<T> {
        let mut denied = false;
        let ways: [&dyn Transport; 3] = [
            &Node::new(&self.root),
            &Debugfs::new(&self.root),
            &Message(&self.dmsetup),
        ];
        for way in ways {
            match act(way) {
                Err(Refused::Absent { denied: here }) => denied |= here,
                done => return done,
            }
        }
        Err(Refused::Absent { denied })
    }

    /// Whether the module is loaded.
    fn is_loaded(&self) -> bool {
        self.root.join("sys/module/nrs").is_dir()
    }

    /// Whether this process has the rights of root.
    fn is_root(&self) -> bool {
        fs::metadata("/proc/self").is_ok_and(|data| data.uid() == 0)
    }

    /// What it means that no way leads there.
    fn absent(&self, denied: bool, to: &str) -> Failure {
        if !self.is_loaded() {
            return not_loaded();
        }
        let hint = if denied && !self.is_root() {
            "run it as root"
        } else if denied {
            "the kernel is locked down: writable files of debugfs are refused then; load a module with /dev/nrs-control, or add a client: nrsctl client add"
        } else {
            "mount debugfs: mount -t debugfs debugfs /sys/kernel/debug; or add a client: nrsctl client add"
        };
        Failure::new(Kind::Permission, format!("no way leads to {to}")).hint(hint)
    }

    /// Why `parameter` of `service` was not read, or not set to `value`.
    fn why(
        &self,
        refused: Refused,
        service: &str,
        parameter: &str,
        value: Option<&str>,
    ) -> Failure {
        let full = format!("{service}.{parameter}");
        let (errno, reason) = match refused {
            Refused::Absent { .. } if self.configfs.has(service) && !self.is_root() => {
                return self.absent(true, &full)
            }
            Refused::Absent { denied } if self.has_service(service) => {
                return self.absent(denied, &full)
            }
            Refused::Absent { .. } if !self.is_loaded() => return not_loaded(),
            Refused::Absent { denied: true } => return self.absent(true, &full),
            Refused::Absent { .. } | Refused::NoService => {
                return no_service(service, &self.services().unwrap_or_default())
            }
            Refused::Errno(errno, reason) => (errno, reason),
        };
        let known = parameters::named(parameter);
        let said = known
            .zip(value)
            .and_then(|(known, value)| refusal::reason(known, value));
        if let (Some((kind, reason)), Some(known)) = (said, known) {
            return Failure::new(kind, format!("{full}: {reason}")).hint(refusal::hint(known));
        }
        let kept = || match (parameter, value) {
            ("nrs_tbf_rule", Some(_)) => self.kept(service, "nrs_tbf_rule_error"),
            ("nrs_qbm_config", Some(_)) => self.kept(service, "nrs_qbm_config_error"),
            _ => None,
        };
        let reason = reason.filter(|reason| !reason.is_empty()).or_else(kept);
        let words = reason.unwrap_or_else(|| words_of(errno, parameter, value.is_some()));
        let failure = Failure::new(kind_of(errno, parameter), format!("{full}: {words}"));
        match next(errno, service, parameter, value.is_some()) {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }

    /// Whether there is a service of that name, as far as that can be told.
    fn has_service(&self, service: &str) -> bool {
        self.services()
            .is_ok_and(|names| names.iter().any(|name| name == service))
    }

    /// Why the last text was refused, as a parameter keeps it.
    fn kept(&self, service: &str, parameter: &str) -> Option<String> {
        let text = self.by(|way| way.get(service, parameter)).ok()?;
        text.lines().next().map(str::to_owned)
    }

    /// What it means that configfs refused something.
    fn configured(&self, error: io::Error, service: &str, what: &str) -> Failure {
        if !self.is_loaded() {
            return not_loaded();
        }
        if !self.configfs.is_there() {
            return match errno::of(&error) {
                errno::EACCES | errno::EPERM => {
                    Failure::new(Kind::Permission, "configfs is not for this user")
                        .hint("run it as root")
                }
                _ => Failure::new(Kind::NotFound, "configfs is not mounted")
                    .hint("mount -t configfs configfs /sys/kernel/config"),
            };
        }
        let (kind, words, hint) = match (errno::of(&error), what) {
            (errno::EEXIST, _) => (
                Kind::Refused,
                "there is a service of this name",
                "see: nrsctl service list",
            ),
            (errno::EINVAL, "make") => (
                Kind::Refused,
                "not a name for a service",
                "1 to 31 letters, digits and _ - . : not starting with a dot",
            ),
            (errno::EINVAL, "cpts") => (
                Kind::Refused,
                "not a number of partitions",
                "1 to the number of CPUs, at most 64",
            ),
            (errno::ENOENT, _) => (
                Kind::NotFound,
                "no service of this name was made with 'service add'",
                "one that a client brought up goes with its last client",
            ),
            (errno::EBUSY, "remove") => (
                Kind::Busy,
                "the service has clients",
                "remove them first: nrsctl client list",
            ),
            (errno::EBUSY, _) => (
                Kind::Busy,
                "the service is in use",
                "it can only be changed while it has no client",
            ),
            (errno::ENOTEMPTY, _) => (
                Kind::Busy,
                "there are directories of rules or groups in it",
                "rmdir those in /sys/kernel/config/nrs first",
            ),
            (errno::ENOSPC, _) => (Kind::Refused, "there are 1024 services", "remove one"),
            (errno::EACCES | errno::EPERM, _) => {
                (Kind::Permission, "not for this user", "run it as root")
            }
            (errno, _) => {
                return Failure::new(Kind::Other, format!("{service}: {}", errno::words(errno)))
            }
        };
        Failure::new(kind, format!("{service}: {words}")).hint(hint)
    }

    /// What it means that device-mapper refused a client.
    fn mapped(&self, broken: Broken, device: &Device, what: &str) -> Failure {
        let name = &device.name;
        let (kind, words, hint) = match (broken.errno, what) {
            (errno::ELOOP, _) => (
                Kind::Refused,
                "its device is itself a client of this service",
                "take the device below that",
            ),
            (errno::EBUSY, "add") => (
                Kind::Busy,
                "it exists already, or its device is in use",
                "see: dmsetup ls; nrsctl client list",
            ),
            (errno::EBUSY, _) => (
                Kind::Busy,
                "it is in use",
                "unmount it first; see: lsof, or: dmsetup info -c",
            ),
            (errno::EINVAL, _) => (
                Kind::Refused,
                "device-mapper refused the table",
                "the kernel log says which word was wrong: dmesg | tail",
            ),
            (errno::ENOSPC, _) => (
                Kind::Refused,
                "the service has 64 targets, or there are 1024 services",
                "remove a client that is not needed",
            ),
            (errno::ENOENT | errno::ENXIO | errno::ENODEV, "add") => {
                (Kind::NotFound, "there is no such device", "see: lsblk")
            }
            (errno::EACCES | errno::EPERM, _) => {
                (Kind::Permission, "not for this user", "run it as root")
            }
            _ => return Failure::new(Kind::Other, format!("{name}: {}", broken.said)),
        };
        Failure::new(kind, format!("{name}: {words}")).hint(hint)
    }

    /// What it means that `dmsetup` could not be run.
    fn unmapped(&self, refused: Refused) -> Failure {
        match refused {
            Refused::Absent { denied: true } => {
                Failure::new(Kind::Permission, "device-mapper is not for this user")
                    .hint("run it as root")
            }
            Refused::Absent { .. } => Failure::new(Kind::NotFound, "there is no program 'dmsetup'")
                .hint("apt install dmsetup"),
            Refused::Errno(errno, _) => {
                Failure::new(Kind::Other, format!("dmsetup: {}", errno::words(errno)))
                    .hint("is device-mapper there? modprobe dm-mod")
            }
            Refused::NoService => Failure::new(Kind::Other, "dmsetup failed"),
        }
    }

    /// The sectors of the block device or file `path`.
    fn sectors(&self, path: &str) -> Result<u64> {
        let missing = |error: io::Error| {
            let (kind, hint) = match Kind::of_file(&error) {
                Kind::Permission => (Kind::Permission, "run it as root"),
                _ => (Kind::NotFound, "see: lsblk"),
            };
            Failure::new(kind, format!("{path}: {}", errno::words(errno::of(&error)))).hint(hint)
        };
        let mut file = File::open(path).map_err(missing)?;
        Ok(file.seek(SeekFrom::End(0)).map_err(missing)? / SECTOR)
    }
}

/// That the module is not loaded.
fn not_loaded() -> Failure {
    Failure::new(Kind::NotLoaded, "the module nrs is not loaded").hint("load it: modprobe nrs")
}

/// What kind of failure `errno` of `parameter` is.
fn kind_of(errno: i32, parameter: &str) -> Kind {
    match errno {
        errno::ENOENT | errno::ENODEV => Kind::NotFound,
        errno::EAGAIN | errno::EBUSY => Kind::Busy,
        // Of the rule `default`.
        errno::EPERM if parameter == "nrs_tbf_rule" => Kind::Refused,
        errno::EPERM | errno::EROFS => Kind::Permission,
        errno::ENOMEM | errno::EIO => Kind::Other,
        _ => Kind::Refused,
    }
}

/// What `errno` of `parameter` means, where no reason is told.
fn words_of(errno: i32, parameter: &str, writes: bool) -> String {
    let policy = parameter.split('_').nth(1).unwrap_or_default();
    match errno {
        errno::ENODEV if parameter.starts_with("nrs_") => format!("{policy} is not started"),
        errno::ENOENT if parameters::named(parameter).is_none() => {
            "there is no such parameter".into()
        }
        errno::EACCES if writes => "it can only be read".into(),
        errno::EACCES => "it can only be written".into(),
        errno::EAGAIN => "earlier policies are still stopping".into(),
        errno::E2BIG => "the value is too long".into(),
        _ => errno::words(errno).to_lowercase(),
    }
}

/// What to do after `errno`.
fn next(errno: i32, service: &str, parameter: &str, writes: bool) -> Option<String> {
    let policy = parameter.split('_').nth(1).unwrap_or_default();
    match errno {
        errno::EAGAIN => Some("what is queued in them goes first; try again".into()),
        errno::ENODEV if parameter.starts_with("nrs_") => {
            Some(format!("start it: nrsctl policy set {service} {policy}"))
        }
        errno::ENOENT if parameters::named(parameter).is_none() => {
            let names = near(
                parameter,
                parameters::PARAMETERS.iter().map(|one| one.name()),
            );
            match names.is_empty() {
                true => Some(format!("see: nrsctl list_param -R {service}")),
                false => Some(format!("did you mean: {}", names.join(", "))),
            }
        }
        errno::EINVAL | errno::ENOENT | errno::EEXIST if parameter == "nrs_tbf_rule" => {
            Some(format!("see: nrsctl rule list {service}"))
        }
        errno::EBUSY if parameter == "buffer_max" => {
            Some("it can be raised only while no request is in order".into())
        }
        _ if writes => parameters::named(parameter).map(refusal::hint),
        _ => None,
    }
}

impl Kernel for Live {
    fn services(&self) -> Result<Vec<String>> {
        if !self.is_loaded() {
            return Err(not_loaded());
        }
        let found = self.by(|way| way.services());
        let made = self.configfs.services();
        let mut names = match found {
            Ok(names) => names,
            // Those that were made are known at least.
            Err(Refused::Absent { denied }) => match &made {
                Ok(made) if !denied => made.clone(),
                _ => return Err(self.absent(denied, "the services")),
            },
            Err(refused) => return Err(self.unmapped(refused)),
        };
        names.extend(made.unwrap_or_default());
        names.sort();
        names.dedup();
        Ok(names)
    }

    fn get(&self, service: &str, parameter: &str) -> Result<String> {
        if let Some(known) = parameters::named(parameter).filter(|known| !known.access.reads()) {
            let message = format!("{service}.{}: it can only be written", known.name());
            return Err(Failure::new(Kind::Refused, message));
        }
        let got = self.by(|way| way.get(service, parameter));
        got.map_err(|refused| self.why(refused, service, parameter, None))
    }

    fn set(&self, service: &str, parameter: &str, value: &str) -> Result {
        if let Some(known) = parameters::named(parameter).filter(|known| !known.access.writes()) {
            let message = format!("{service}.{}: it can only be read", known.name());
            return Err(Failure::new(Kind::Refused, message));
        }
        let done = self.by(|way| way.set(service, parameter, value));
        done.map_err(|refused| self.why(refused, service, parameter, Some(value)))
    }

    fn make(&self, service: &str) -> Result {
        let done = self.configfs.make(service);
        done.map_err(|error| self.configured(error, service, "make"))
    }

    fn remove(&self, service: &str) -> Result {
        if !self.configfs.has(service) && self.has_service(service) {
            let message = format!("{service}: it was not made with 'service add'");
            return Err(Failure::new(Kind::Busy, message)
                .hint("it goes with its last client: nrsctl client remove"));
        }
        let done = self.configfs.remove(service);
        done.map_err(|error| self.configured(error, service, "remove"))
    }

    fn is_made(&self, service: &str) -> Result<bool> {
        Ok(self.configfs.has(service))
    }

    fn cpts(&self, service: &str) -> Result<u32> {
        let text = self.configfs.get(service, "cpts");
        let text = text.map_err(|error| self.configured(error, service, "cpts"))?;
        let wrong = |_| Failure::new(Kind::Other, format!("{service}: cpts shows '{text}'"));
        text.parse().map_err(wrong)
    }

    fn set_cpts(&self, service: &str, cpts: u32) -> Result {
        let done = self.configfs.set(service, "cpts", &cpts.to_string());
        done.map_err(|error| self.configured(error, service, "cpts"))
    }

    fn module_parameter(&self, name: &str) -> Result<String> {
        let path = self.root.join("sys/module/nrs/parameters").join(name);
        let text = fs::read_to_string(path).map_err(|error| self.of_module(error, name))?;
        Ok(text.trim_end().to_owned())
    }

    fn set_module_parameter(&self, name: &str, value: &str) -> Result {
        let path = self.root.join("sys/module/nrs/parameters").join(name);
        let file = fs::OpenOptions::new().write(true).truncate(true).open(path);
        let done = file
            .and_then(|mut file| io::Write::write_all(&mut file, format!("{value}\n").as_bytes()));
        done.map_err(|error| self.of_module(error, name))
    }

    fn devices(&self) -> Result<Vec<Device>> {
        if !self.is_loaded() {
            return Err(not_loaded());
        }
        let devices = self.dmsetup.devices();
        let mut devices = devices.map_err(|refused| self.unmapped(refused))?;
        devices.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(devices)
    }

    fn add_device(&self, device: &Device) -> Result {
        if !self.is_loaded() {
            return Err(not_loaded());
        }
        let sectors = match device.sectors {
            0 => {
                let all = self.sectors(&device.target)?;
                all.checked_sub(device.offset)
                    .filter(|left| *left > 0)
                    .ok_or_else(|| {
                        let message = format!(
                            "{} has {all} sectors, which end before the offset {}",
                            device.target, device.offset
                        );
                        Failure::new(Kind::Refused, message)
                    })?
            }
            sectors => sectors,
        };
        let Device {
            service,
            target,
            offset,
            options,
            ..
        } = device;
        let target = escape(target);
        let mut table = format!("0 {sectors} nrs {target} {offset} {service}");
        if !options.is_empty() {
            table += &format!(" {}", options.len() * 2);
            for (name, value) in options {
                table += &format!(" {name} {}", escape(value));
            }
        }
        let done = self.dmsetup.create(&device.name, &table);
        let done = done.map_err(|refused| self.unmapped(refused))?;
        done.map_err(|broken| self.mapped(broken, device, "add"))
    }

    fn remove_device(&self, name: &str) -> Result {
        let devices = self.devices()?;
        let Some(device) = devices.iter().find(|device| device.name == name) else {
            let names = devices.iter().map(|device| &device.name[..]);
            return Err(no_client(name, names));
        };
        let done = self
            .dmsetup
            .remove(name)
            .map_err(|refused| self.unmapped(refused))?;
        done.map_err(|broken| self.mapped(broken, device, "remove"))
    }
}

impl Live {
    /// What it means that a parameter of the module was refused.
    fn of_module(&self, error: io::Error, name: &str) -> Failure {
        if !self.is_loaded() {
            return not_loaded();
        }
        let errno = errno::of(&error);
        let message = format!(
            "module parameter {name}: {}",
            errno::words(errno).to_lowercase()
        );
        match errno {
            errno::ENOENT => {
                Failure::new(Kind::NotFound, message).hint("see: ls /sys/module/nrs/parameters")
            }
            errno::EACCES | errno::EPERM => {
                Failure::new(Kind::Permission, message).hint("run it as root")
            }
            errno::EINVAL => {
                Failure::new(Kind::Refused, message).hint("see user-guide.md, Module parameters")
            }
            _ => Failure::new(Kind::Other, message),
        }
    }
}
