// SPDX-License-Identifier: GPL-2.0-only

//! Conversion of errors of the module, configfs and device-mapper to failures.

use std::io;

use nrs_sched::parameters::{self, service::CONFIG};

use super::disks::{self, NRS, SCHEDULER};
use super::dmsetup::DmsetupError;
use super::errno;
use super::node::Refused;
use super::Live;
use crate::failure::{failure, Failure, FailureKind};
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
                    failure!(Permission: "no permission to access configfs"; "run it as root")
                }
                _ => failure!(NotFound: "configfs is not mounted";
                    "mount -t configfs configfs /sys/kernel/config"),
            };
        }
        let failure = match (errno::of(&error), what) {
            (libc::EEXIST, _) => failure!(Refused:
                "a service with this name exists"; "see: nrsctl service list"),
            (libc::EINVAL, "make") => failure!(Refused: "invalid service name"; "{NAME}"),
            (libc::EINVAL, "cpts") => failure!(Refused:
                "invalid number of partitions"; "range: 1 to the number of CPUs (limit: 63)"),
            (libc::ENOENT, _) => failure!(NotFound:
                "no service with this name was created with 'service add'";
                "a service created by a client is removed with its last client"),
            (libc::EBUSY, "remove") => failure!(Busy:
                "the service has clients"; "remove them first: nrsctl device list"),
            (libc::EBUSY, _) => failure!(Busy: "the service is in use";
                "cpts can only be changed while the service has no clients"),
            (libc::ENOTEMPTY, _) => failure!(Busy: "the service has directories of rules";
                "remove them first: rmdir /sys/kernel/config/nrs/SERVICE/rules/*"),
            (libc::ENOSPC, _) => failure!(Refused:
                "too many services (limit: 1024)"; "remove an unused service"),
            (libc::EACCES | libc::EPERM, _) => denied(),
            (errno, _) => failure!(Other: "{}", errno::words(errno)),
        };
        failure.prefixed(service)
    }

    /// Returns the failure of device-mapper in the operation `what` on the client `device`.
    pub(super) fn mapped(&self, broken: DmsetupError, device: &Device, what: &str) -> Failure {
        let DmsetupError::Failed(errno, said) = broken else {
            return self.dm_list_failure(broken);
        };
        let failure = match (errno, what) {
            (libc::ELOOP, _) => failure!(Refused:
                "the target is a client of the same service"; "use the device below the target"),
            (libc::EBUSY, "add" | "change") => failure!(Busy:
                "the target is in use, or the service serves programs or kernel modules";
                "see: lsblk; nrsctl service list"),
            (libc::EBUSY, _) => failure!(Busy: "the device is in use";
                "unmount it first; see: lsof, or: dmsetup info -c"),
            (libc::EINVAL, _) => failure!(Refused: "device-mapper refused the table";
                "see the kernel log for the invalid argument: dmesg | tail"),
            (libc::ENOSPC, _) => failure!(Refused:
                "too many targets of the service (limit: 64) or services (limit: 1024)";
                "remove an unused client"),
            (libc::ENOENT | libc::ENXIO | libc::ENODEV, "add" | "change") => {
                failure!(NotFound: "the target does not exist"; "see: lsblk")
            }
            (libc::EACCES | libc::EPERM, _) => denied(),
            _ => failure!(Other: "{said}"),
        };
        failure.prefixed(&device.name)
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
        let mut failure = match (errno, file) {
            (libc::EACCES | libc::EPERM, _) => denied(),
            (libc::ESRCH, _) => failure!(NotFound:
                "nrs is not the I/O scheduler of the disk"; "see: nrsctl device list"),
            (libc::ENOENT, SCHEDULER) => failure!(Refused:
                "the disk does not support I/O schedulers";
                "create a device-mapper device on the disk: nrsctl device add"),
            (libc::EBUSY, SCHEDULER) | (libc::EAGAIN, _) => failure!(Busy:
                "another change of the disk's queue is in progress"; "retry"),
            (libc::ETIMEDOUT, _) => failure!(Busy:
                "{file}: requests in flight did not complete within 1 s";
                "retry when the disk is less busy"),
            (libc::EINVAL, SCHEDULER) if scheduler == NRS && !self.is_loaded() => not_loaded(),
            (libc::EINVAL, SCHEDULER) => failure!(Refused: "unknown I/O scheduler '{scheduler}'";
                "available: {}", self.disks.schedulers(disk).unwrap_or_default()),
            (libc::EINVAL, "service") => failure!(Refused: "invalid service name"; "{NAME}"),
            (libc::EBUSY, "service") => failure!(Busy:
                "service {service} serves programs or kernel modules";
                "use another service; see: nrsctl service list"),
            (libc::ELOOP, "service") => failure!(Refused:
                "a device of type nrs on the disk is a client of service {service}";
                "use another service; see: nrsctl device list"),
            (libc::ENOSPC, _) => failure!(Refused:
                "too many services, or clients or targets of the service";
                "remove an unused client"),
            _ => failure!(Other: "{file}: {}", errno::words(errno).to_lowercase();
                "see: iosched.md; dmesg | tail"),
        };
        if let Some(errno) = undo {
            let reason = errno::words(errno);
            failure.message += &format!("; restoring the old settings failed, too: {reason}");
        }
        failure.prefixed(disk)
    }

    /// Returns the failure of `dmsetup` in listing the clients.
    pub(super) fn dm_list_failure(&self, broken: DmsetupError) -> Failure {
        match broken {
            DmsetupError::Unstarted(error) => {
                let message = format!("dmsetup: {}", errno::words(errno::of(&error)));
                Failure::new(FailureKind::of_file(&error), message).hint("apt install dmsetup")
            }
            DmsetupError::Failed(libc::EACCES | libc::EPERM, _) => {
                failure!(Permission: "no permission to use device-mapper"; "run it as root")
            }
            DmsetupError::Failed(_, said) => {
                failure!(Other: "dmsetup: {said}"; "load device-mapper: modprobe dm-mod")
            }
        }
    }

    /// Returns the failure for `error` of the module parameter `name`.
    pub(super) fn of_module(&self, error: io::Error, name: &str) -> Failure {
        if !self.is_loaded() {
            return not_loaded();
        }
        let (errno, what) = (errno::of(&error), format!("module parameter {name}"));
        let mut failure = failure!(Other: "{}", errno::words(errno).to_lowercase());
        let (kind, hint) = match errno {
            libc::ENOENT => (FailureKind::NotFound, "see: ls /sys/module/nrs/parameters"),
            libc::EACCES | libc::EPERM => (FailureKind::Permission, "run it as root"),
            libc::EINVAL => (FailureKind::Refused, "see reference.md, Module parameters"),
            _ => return failure.prefixed(&what),
        };
        failure.kind = kind;
        failure.prefixed(&what).hint(hint)
    }
}

/// Returns the failure of a user without privileges.
fn denied() -> Failure {
    failure!(Permission: "permission denied"; "run it as root")
}

/// Returns the failure for a module that is not loaded.
pub(super) fn not_loaded() -> Failure {
    failure!(NotLoaded: "the module nrs is not loaded"; "load it: modprobe nrs")
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
