// SPDX-License-Identifier: GPL-2.0-only

//! Devices of type nrs, and disks whose I/O scheduler is nrs: parameters that files and commands
//! set.

use nrs_sched::attr::Stream;
use nrs_sched::jobid::{JobId, Template, JOBID_MAX};
use nrs_sched::nid::Nid;

use crate::failure::{Failure, FailureKind, Result};
use crate::kernel::{Device, Kernel};
use crate::names::{is_service, NAME};

/// Sources of offset streams, with their help.
pub const STREAMS: [(&str, &str); 3] = [
    (
        "hint",
        "write stream or write hint of the request (default)",
    ),
    ("cgroup", "cgroup of the submitter"),
    ("none", "no streams"),
];

/// Options of a disk, which are files in `queue/iosched`, with their defaults.
pub const DEFAULTS: [(&str, &str); 2] = [("jobid_name", "%e.%u"), ("stream", "hint")];

/// Defaults of the other options of a table line, if they have one.
const OF_TABLES: [(&str, &str); 2] = [("opportunity", "on"), ("on_timeout", "wait")];

/// Largest sector number: offsets are bytes in 63 bits.
pub const SECTOR_MAX: u64 = i64::MAX as u64 / 512;

/// Maximum length of a device name, bytes.
const NAME_MAX: usize = 127;

/// Returns true if `text` consists of printable bytes without blanks.
fn is_word(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Returns the reason why `format` is not a valid format of job identifiers; `None` if it is.
fn refused_format(format: &str) -> Option<&'static str> {
    if let Err(error) = Template::parse(format) {
        return Some(error.reason);
    }
    (!is_word(format)).then_some("expected printable bytes without blanks")
}

/// Returns true if device-mapper and udev show the device name `name` without escapes.
fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"#+-.:=@_".contains(&byte);
    let special = ["", ".", "..", "control"].contains(&name) || name.starts_with('-');
    name.len() <= NAME_MAX && !special && name.bytes().all(fits)
}

/// Returns true if `text` is `MAJOR:MINOR`.
pub fn is_number(text: &str) -> bool {
    let number = |part: &str| part.parse::<u32>().is_ok_and(|n| n.to_string() == part);
    text.split_once(':')
        .is_some_and(|(major, minor)| number(major) && number(minor))
}

/// Returns the reason why `value` is not valid for `key`, which is `name` or a key of a section;
/// `None` if it is valid.
pub fn refused(key: &str, value: &str) -> Option<&'static str> {
    let unless = |fits: bool, why| (!fits).then_some(why);
    match key {
        "name" => unless(
            is_name(value),
            "expected 1 to 127 letters, digits and # + - . : = @ _, not starting with -",
        ),
        "service" => unless(is_service(value), NAME),
        "device" => unless(
            value.starts_with('/') && !value.contains('\0') || is_number(value),
            "expected a path that starts with /, or MAJOR:MINOR",
        ),
        "nid" => Nid::parse(value).err().map(|error| error.reason),
        "jobid" => {
            let whole = JobId::new(value.as_bytes()).as_bytes() == value.as_bytes();
            let fits = (1..=JOBID_MAX).contains(&value.len()) && whole && is_word(value);
            unless(fits, "expected 1 to 31 printable bytes without blanks")
        }
        "jobid_name" => refused_format(value),
        "stream" => unless(
            Stream::from_word(value).is_some(),
            "expected hint, cgroup or none",
        ),
        "opportunity" => unless(["on", "off"].contains(&value), "expected on or off"),
        "on_timeout" => unless(["wait", "fail"].contains(&value), "expected wait or fail"),
        // A key that does not exist is reported as another fault.
        _ => None,
    }
}

/// Returns true if `value` is the default of the option `name`.
pub fn is_default(name: &str, value: &str) -> bool {
    let mut defaults = DEFAULTS.into_iter().chain(OF_TABLES);
    defaults.any(|default| default == (name, value))
}

/// Returns `device` in the form of a file: without default options, and with values in normal form.
pub fn plain(mut device: Device) -> Device {
    device
        .options
        .retain(|name, value| !is_default(name, value));
    if let Some(nid) = device.options.get_mut("nid") {
        *nid = Nid::parse(nid).map_or(nid.clone(), |nid| nid.to_string());
    }
    device
}

/// Returns `running` in the form of `wanted`, which resolves to `place`: an equal underlying device
/// is named as in `wanted`, and a length equal to the rest is omitted.
pub fn in_words(running: &Device, wanted: &Device, place: &Device) -> Device {
    let mut shown = plain(running.clone());
    if running.target == place.target {
        shown.target.clone_from(&wanted.target);
    }
    if wanted.sectors == 0 && running.sectors == place.sectors {
        shown.sectors = 0;
    }
    shown
}

/// Returns true if two devices overlap. Devices whose underlying device is named differently are
/// not compared. Device-mapper itself allows overlapping devices.
pub fn overlap(one: &Device, other: &Device) -> bool {
    // A device without a length extends to the end.
    let end = |device: &Device| match device.sectors {
        0 => u64::MAX,
        sectors => device.offset.saturating_add(sectors),
    };
    let mapped = !one.scheduled && !other.scheduled;
    let same = mapped && one.target == other.target;
    same && one.offset < end(other) && other.offset < end(one)
}

/// Checks that no device of `others` except the device itself overlaps `device`. All devices are
/// located.
///
/// # Errors
///
/// [`FailureKind::Refused`]: another device overlaps.
pub fn alone<'a>(device: &Device, others: impl IntoIterator<Item = &'a Device>) -> Result {
    let double = |other: &&Device| other.name != device.name && overlap(device, other);
    let Some(other) = others.into_iter().find(double) else {
        return Ok(());
    };
    let message = format!(
        "device {} overlaps these sectors of {}",
        other.name, device.target
    );
    let hint = "remove one device, or change offset and sectors";
    Err(Failure::new(FailureKind::Refused, message).hint(hint))
}

/// Returns `device`, which resolves to `located`, in the form of a file. A given path that persists
/// over a reboot is kept; otherwise the path is the one that `save` writes.
///
/// # Errors
///
/// Errors of [`Kernel::path`].
pub fn lasting(kernel: &dyn Kernel, device: &Device, located: &Device) -> Result<Device> {
    let path = kernel.path(&located.target)?;
    let given = &device.target;
    let mapped = path.starts_with("/dev/mapper/");
    let numbered = is_number(given) || given.starts_with("/dev/dm-");
    let mut kept = plain(device.clone());
    if !given.starts_with("/dev/disk/") && (!mapped || numbered) {
        kept.target = path;
    }
    Ok(kept)
}

/// Returns `disk`, which runs, in the form of a file: its name becomes a path that persists over a
/// reboot if there is one and the name is none.
///
/// # Errors
///
/// Errors of [`Kernel::path`].
pub fn lasting_disk(kernel: &dyn Kernel, mut disk: Device) -> Result<Device> {
    let lasts = |path: &str| path.starts_with("/dev/disk/") || path.starts_with("/dev/mapper/");
    if !lasts(&disk.name) && is_number(&disk.target) {
        let path = kernel.path(&disk.target)?;
        if lasts(&path) {
            disk.name = path;
        }
    }
    Ok(disk)
}

/// Returns `running` in the form of a file: with a path that persists over a reboot, and without a
/// length that equals the rest.
///
/// # Errors
///
/// Errors of [`Kernel::locate`] and [`Kernel::path`].
pub fn defined(kernel: &dyn Kernel, running: &Device) -> Result<Device> {
    let rest = Device {
        target: kernel.path(&running.target)?,
        sectors: 0,
        ..running.clone()
    };
    let place = kernel.locate(&rest)?;
    Ok(in_words(running, &rest, &place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        let long = "x".repeat(NAME_MAX);
        for name in ["a", "vg-lv", "a.b", "#1@x=y", &long] {
            assert_eq!(refused("name", name), None, "{name}");
        }
        let longer = "x".repeat(NAME_MAX + 1);
        for name in [
            "", ".", "..", "-a", "--help", "control", "a b", "a/b", "a\\x20", "a\n", "ä", "$(a)",
            &longer,
        ] {
            assert!(refused("name", name).is_some(), "{name}");
        }
        for device in ["/dev/sdb", "/dev/s db", "8:16", "253:1048575"] {
            assert_eq!(refused("device", device), None, "{device}");
        }
        for device in [
            "", "sdb", "8:", ":1", "8:x", "+8:1", "08:1", "8:1:2", "/dev/\0",
        ] {
            assert!(refused("device", device).is_some(), "{device}");
        }
    }
}
