// SPDX-License-Identifier: GPL-2.0-only

//! What it means that the module, configfs or device-mapper refused something.

use std::io;

use nrs_sched::parameters;

use super::dmsetup::Broken;
use super::transport::Refused;
use super::Live;
use crate::errno;
use crate::failure::{Failure, Kind};
use crate::kernel::{Device, Kernel as _};
use crate::names::{near, no_service};
use crate::refusal;

impl Live {
    /// What it means that no way leads there.
    pub(super) fn absent(&self, denied: bool, to: &str) -> Failure {
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
    pub(super) fn why(
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

    /// Why the last text was refused, as a parameter keeps it.
    fn kept(&self, service: &str, parameter: &str) -> Option<String> {
        let text = self.by(|way| way.get(service, parameter)).ok()?;
        text.lines().next().map(str::to_owned)
    }

    /// What it means that configfs refused something.
    pub(super) fn configured(&self, error: io::Error, service: &str, what: &str) -> Failure {
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
    pub(super) fn mapped(&self, broken: Broken, device: &Device, what: &str) -> Failure {
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
    pub(super) fn unmapped(&self, refused: Refused) -> Failure {
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

    /// What it means that a parameter of the module was refused.
    pub(super) fn of_module(&self, error: io::Error, name: &str) -> Failure {
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

/// That the module is not loaded.
pub(super) fn not_loaded() -> Failure {
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
