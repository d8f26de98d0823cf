// SPDX-License-Identifier: GPL-2.0-only

//! Conversion of errors of the module, configfs and device-mapper to failures.

use std::io;

use nrs_sched::parameters::{self, service::CONFIG};

use super::disks::{self, NRS, SCHEDULER};
use super::dmsetup::DmsetupError;
use super::errno;
use super::node::Refused;
use super::Live;
use crate::failure::{Failure, FailureKind};
use crate::kernel::{Device, Kernel as _};
use crate::names::{no_service, NAME};
use crate::refusal;

impl Live {
    /// Returns the failure for an error of opening the node.
    pub(super) fn open_failure(&self, errno: i32) -> Failure {
        if !self.is_loaded() {
            return not_loaded();
        }
        let message = format!("/dev/nrs-control: {}", errno::words(errno));
        match errno {
            libc::EACCES | libc::EPERM => Failure::new(FailureKind::Permission, message)
                .hint("run it as root, outside of containers"),
            _ => Failure::new(FailureKind::NotLoaded, message).hint(
                "if the loaded module is older than nrsctl, reload it: \
                     rmmod nrs && modprobe nrs",
            ),
        }
    }

    /// Returns the failure of reading `parameter` of `service`, or of setting it to `value`.
    pub(super) fn why(
        &self,
        refused: Refused,
        service: &str,
        parameter: &str,
        value: Option<&str>,
    ) -> Failure {
        let (errno, reason) = match refused {
            Refused::Unopened(errno) => return self.open_failure(errno),
            Refused::Command(errno, reason) => (errno, reason),
        };
        if errno == libc::ENODEV {
            // ENODEV is also returned for a policy that is not started.
            match self.services() {
                Ok(names) if names.iter().any(|name| name == service) => {}
                Ok(names) => return no_service(service, &names),
                Err(failure) => return failure,
            }
        }
        let full = format!("{service}.{parameter}");
        let known = parameters::named(parameter);
        let said = known
            .zip(value)
            .and_then(|(known, value)| refusal::reason(known, value));
        if let (Some((kind, reason)), Some(known)) = (said, known) {
            return Failure::new(kind, format!("{full}: {reason}")).hint(refusal::hint(known));
        }
        let words = reason.unwrap_or_else(|| words_of(errno, parameter));
        let failure = Failure::new(kind_of(errno, parameter), format!("{full}: {words}"));
        match next(errno, service, parameter, value.is_some()) {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }

    /// Returns the failure for `error` of configfs in the operation `what` on `service`.
    pub(super) fn configured(&self, error: io::Error, service: &str, what: &str) -> Failure {
        if !self.is_loaded() {
            return not_loaded();
        }
        if !self.configfs().is_dir() {
            return match errno::of(&error) {
                libc::EACCES | libc::EPERM => {
                    Failure::new(FailureKind::Permission, "no permission to access configfs")
                        .hint("run it as root")
                }
                _ => Failure::new(FailureKind::NotFound, "configfs is not mounted")
                    .hint("mount -t configfs configfs /sys/kernel/config"),
            };
        }
        let errno = errno::of(&error);
        let (kind, words, hint) = match (errno, what) {
            (libc::EEXIST, _) => (
                FailureKind::Refused,
                "a service with this name exists",
                "see: nrsctl service list",
            ),
            (libc::EINVAL, "make") => (FailureKind::Refused, "invalid service name", NAME),
            (libc::EINVAL, "cpts") => (
                FailureKind::Refused,
                "invalid number of partitions",
                "range: 1 to the number of CPUs (limit: 63)",
            ),
            (libc::ENOENT, _) => (
                FailureKind::NotFound,
                "no service with this name was created with 'service add'",
                "a service created by a client is removed with its last client",
            ),
            (libc::EBUSY, "remove") => (
                FailureKind::Busy,
                "the service has clients",
                "remove them first: nrsctl device list",
            ),
            (libc::EBUSY, _) => (
                FailureKind::Busy,
                "the service is in use",
                "cpts can only be changed while the service has no clients",
            ),
            (libc::ENOTEMPTY, _) => (
                FailureKind::Busy,
                "the service has directories of rules",
                "remove them first: rmdir /sys/kernel/config/nrs/SERVICE/rules/*",
            ),
            (libc::ENOSPC, _) => (
                FailureKind::Refused,
                "too many services (limit: 1024)",
                "remove an unused service",
            ),
            (libc::EACCES | libc::EPERM, _) => (
                FailureKind::Permission,
                "permission denied",
                "run it as root",
            ),
            _ => {
                return Failure::new(
                    FailureKind::Other,
                    format!("{service}: {}", errno::words(errno)),
                )
            }
        };
        Failure::new(kind, format!("{service}: {words}")).hint(hint)
    }

    /// Returns the failure of device-mapper in the operation `what` on the client `device`.
    pub(super) fn mapped(&self, broken: DmsetupError, device: &Device, what: &str) -> Failure {
        let name = &device.name;
        let (errno, said) = match broken {
            DmsetupError::Unstarted(_) => return self.dm_list_failure(broken),
            DmsetupError::Failed(errno, said) => (errno, said),
        };
        let (kind, words, hint) = match (errno, what) {
            (libc::ELOOP, _) => (
                FailureKind::Refused,
                "the target is a client of the same service",
                "use the device below the target",
            ),
            (libc::EBUSY, "add" | "change") => (
                FailureKind::Busy,
                "the target is in use, or the service serves programs or kernel modules",
                "see: lsblk; nrsctl service list",
            ),
            (libc::EBUSY, _) => (
                FailureKind::Busy,
                "the device is in use",
                "unmount it first; see: lsof, or: dmsetup info -c",
            ),
            (libc::EINVAL, _) => (
                FailureKind::Refused,
                "device-mapper refused the table",
                "see the kernel log for the invalid argument: dmesg | tail",
            ),
            (libc::ENOSPC, _) => (
                FailureKind::Refused,
                "too many targets of the service (limit: 64) or services (limit: 1024)",
                "remove an unused client",
            ),
            (libc::ENOENT | libc::ENXIO | libc::ENODEV, "add" | "change") => (
                FailureKind::NotFound,
                "the target does not exist",
                "see: lsblk",
            ),
            (libc::EACCES | libc::EPERM, _) => (
                FailureKind::Permission,
                "permission denied",
                "run it as root",
            ),
            _ => return Failure::new(FailureKind::Other, format!("{name}: {said}")),
        };
        Failure::new(kind, format!("{name}: {words}")).hint(hint)
    }

    /// Returns the failure of changing the scheduler of `disk` to `scheduler`, or its service to
    /// `service`.
    pub(super) fn scheduler_failure(
        &self,
        broken: disks::RefusedWrite,
        disk: &str,
        scheduler: &str,
        service: &str,
    ) -> Failure {
        let disks::RefusedWrite { file, errno, undo } = broken;
        let (kind, words, hint) = match (errno, file) {
            (libc::EACCES | libc::EPERM, _) => (
                FailureKind::Permission,
                "permission denied".into(),
                "run it as root".into(),
            ),
            (libc::ESRCH, _) => (
                FailureKind::NotFound,
                "nrs is not the I/O scheduler of the disk".into(),
                "see: nrsctl device list".into(),
            ),
            (libc::ENOENT, SCHEDULER) => (
                FailureKind::Refused,
                "the disk does not support I/O schedulers".into(),
                "create a device-mapper device on the disk: nrsctl device add".into(),
            ),
            (libc::EBUSY, SCHEDULER) | (libc::EAGAIN, _) => (
                FailureKind::Busy,
                "another change of the disk's queue is in progress".into(),
                "retry".into(),
            ),
            (libc::ETIMEDOUT, _) => (
                FailureKind::Busy,
                format!("{file}: requests in flight did not complete within 1 s"),
                "retry when the disk is less busy".into(),
            ),
            (libc::EINVAL, SCHEDULER) if scheduler == NRS && !self.is_loaded() => {
                let Failure {
                    kind,
                    message,
                    hint,
                } = not_loaded();
                (kind, message, hint.unwrap_or_default())
            }
            (libc::EINVAL, SCHEDULER) => {
                let known = self.disks.schedulers(disk).unwrap_or_default();
                let words = format!("unknown I/O scheduler '{scheduler}'");
                (FailureKind::Refused, words, format!("available: {known}"))
            }
            (libc::EINVAL, "service") => (
                FailureKind::Refused,
                "invalid service name".into(),
                NAME.into(),
            ),
            (libc::EBUSY, "service") => (
                FailureKind::Busy,
                format!("service {service} serves programs or kernel modules"),
                "use another service; see: nrsctl service list".into(),
            ),
            (libc::ELOOP, "service") => (
                FailureKind::Refused,
                format!("a device of type nrs on the disk is a client of service {service}"),
                "use another service; see: nrsctl device list".into(),
            ),
            (libc::ENOSPC, _) => (
                FailureKind::Refused,
                "too many services, or clients or targets of the service".into(),
                "remove an unused client".into(),
            ),
            _ => (
                FailureKind::Other,
                format!("{file}: {}", errno::words(errno).to_lowercase()),
                "see: iosched.md; dmesg | tail".into(),
            ),
        };
        let undone = match undo {
            Some(errno) => {
                let reason = errno::words(errno);
                format!("; restoring the old settings failed, too: {reason}")
            }
            None => String::new(),
        };
        Failure::new(kind, format!("{disk}: {words}{undone}")).hint(hint)
    }

    /// Returns the failure of `dmsetup` in listing the clients.
    pub(super) fn dm_list_failure(&self, broken: DmsetupError) -> Failure {
        match broken {
            DmsetupError::Unstarted(error) => {
                let message = format!("dmsetup: {}", errno::words(errno::of(&error)));
                Failure::new(FailureKind::of_file(&error), message).hint("apt install dmsetup")
            }
            DmsetupError::Failed(libc::EACCES | libc::EPERM, _) => Failure::new(
                FailureKind::Permission,
                "no permission to use device-mapper",
            )
            .hint("run it as root"),
            DmsetupError::Failed(_, said) => {
                Failure::new(FailureKind::Other, format!("dmsetup: {said}"))
                    .hint("load device-mapper: modprobe dm-mod")
            }
        }
    }

    /// Returns the failure for `error` of the module parameter `name`.
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
            libc::ENOENT => Failure::new(FailureKind::NotFound, message)
                .hint("see: ls /sys/module/nrs/parameters"),
            libc::EACCES | libc::EPERM => {
                Failure::new(FailureKind::Permission, message).hint("run it as root")
            }
            libc::EINVAL => Failure::new(FailureKind::Refused, message)
                .hint("see reference.md, Module parameters"),
            _ => Failure::new(FailureKind::Other, message),
        }
    }
}

/// Returns the failure for a module that is not loaded.
pub(super) fn not_loaded() -> Failure {
    Failure::new(FailureKind::NotLoaded, "the module nrs is not loaded")
        .hint("load it: modprobe nrs")
}

/// Returns the kind of failure for `errno` of `parameter`.
fn kind_of(errno: i32, parameter: &str) -> FailureKind {
    match errno {
        libc::ENOENT | libc::ENODEV => FailureKind::NotFound,
        libc::EAGAIN | libc::EBUSY => FailureKind::Busy,
        // From the rule `default`.
        libc::EPERM if ["nrs_tbf_rule", CONFIG].contains(&parameter) => FailureKind::Refused,
        libc::EPERM => FailureKind::Permission,
        libc::ENOMEM | libc::EIO => FailureKind::Other,
        _ => FailureKind::Refused,
    }
}

/// Returns the description of `errno` of `parameter`, for errors without a reason from the module.
fn words_of(errno: i32, parameter: &str) -> String {
    let policy = parameter.split('_').nth(1).unwrap_or_default();
    match errno {
        libc::ENODEV if parameter.starts_with("nrs_") => format!("{policy} is not started"),
        libc::EAGAIN => "earlier policies are still stopping".into(),
        _ => errno::words(errno).to_lowercase(),
    }
}

/// Returns the hint for `errno`.
fn next(errno: i32, service: &str, parameter: &str, writes: bool) -> Option<String> {
    let policy = parameter.split('_').nth(1).unwrap_or_default();
    match errno {
        libc::EAGAIN => Some("retry after their queued requests are dispatched".into()),
        libc::ENODEV if parameter.starts_with("nrs_") => {
            Some(format!("start it: nrsctl policy set {service} {policy}"))
        }
        libc::EINVAL | libc::ENOENT | libc::EEXIST if parameter == "nrs_tbf_rule" => {
            Some(format!("see: nrsctl rule list {service}"))
        }
        libc::EBUSY if parameter == "buffer_max" => {
            Some("buffer_max can be raised only while no ordered requests exist".into())
        }
        libc::ENOENT if !writes && parameters::named(parameter).is_some() => {
            let hint = "the loaded module is older than nrsctl: reload it, or restart the machine";
            Some(hint.into())
        }
        _ if writes => parameters::named(parameter).map(refusal::hint),
        _ => None,
    }
}
