// SPDX-License-Identifier: GPL-2.0-only

//! Errnos with which each kind of call may fail. The errnos of parameters are in the schema; the
//! others are documented in `Documentation/order.md` and `dev-nrs.md`. Any other errno is a
//! finding.

use libc::{
    E2BIG, EACCES, EAGAIN, EALREADY, EBUSY, EEXIST, EFAULT, EINVAL, EIO, ELOOP, ENAMETOOLONG,
    ENODEV, ENOENT, ENOMEM, ENOSPC, ENOTCONN, ENOTEMPTY, ENOTTY, ENXIO, EPERM, EPROTONOSUPPORT,
};

macro_rules! names {
    ($($errno:ident)*) => { &[$(($errno, stringify!($errno))),*] };
}

/// Names of the errnos that occur.
const NAMES: &[(i32, &str)] = names! {
    E2BIG EACCES EAGAIN EALREADY EBUSY EEXIST EFAULT EINVAL EIO ELOOP ENAMETOOLONG ENODEV ENOENT
    ENOMEM ENOSPC ENOTCONN ENOTEMPTY ENOTTY ENXIO EPERM EPROTONOSUPPORT
};

/// Returns the name of `errno`: `ok` for 0, `unsaid` for -1, the number if the name is unknown.
pub fn name(errno: i32) -> String {
    let known = NAMES.iter().find(|(number, _)| *number == errno);
    match errno {
        -1 => "unsaid".into(),
        0 => "ok".into(),
        _ => known.map_or_else(|| errno.to_string(), |(_, name)| (*name).to_owned()),
    }
}

/// Returns the errno whose message of the C library occurs in `text`.
pub fn of_text(text: &str) -> Option<i32> {
    let message = |errno: i32| {
        // "Invalid argument (os error 22)"
        let message = std::io::Error::from_raw_os_error(errno).to_string();
        message.split(" (os").next().unwrap_or_default().to_owned()
    };
    // The longest match, since "No such device" is a part of "No such device or address".
    let errnos = NAMES.iter().map(|(errno, _)| *errno);
    errnos
        .filter(|errno| text.contains(&message(*errno)))
        .max_by_key(|errno| message(*errno).len())
}

/// Returns the errnos of a write to the parameter `file`; `valid` is true if the parameter accepts
/// the value.
pub fn write(file: &str, valid: bool) -> Vec<i32> {
    // Any write can fail for lack of memory.
    let mut all = vec![ENOMEM];
    let errors = nrs_sched::parameters::named(file).map_or("", |parameter| parameter.errors);
    let names = errors.split(", ");
    all.extend(names.filter_map(|name| Some(NAMES.iter().find(|(_, known)| *known == name)?.0)));
    match file {
        _ if !valid => all.extend([EINVAL, E2BIG]),
        // These errnos are about names in the value, which exist in valid values, and about
        // frameworks, which drive no service of a storm.
        "nrs_policies" | "nrs_qbm_config" => {
            all.retain(|errno| !matches!(*errno, ENOENT | EEXIST | ENAMETOOLONG | EBUSY));
        }
        // Values that must match other parameters.
        "at_min" | "at_max" | "at_extra" | "at_early_margin" | "nrs_delay_min"
        | "nrs_delay_max" | "nrs_tbf_rule" => all.push(EINVAL),
        _ => {}
    }
    all
}

/// Returns the errnos of a read of the parameter `file`.
pub fn read(file: &str) -> &'static [i32] {
    match file {
        "nrs_tbf_rule" | "nrs_qbm_status" | "nrs_qbm_stats" | "nrs_tbf_stats" => &[ENOMEM, ENODEV],
        _ => &[ENOMEM],
    }
}

/// Defines sets of errnos.
macro_rules! sets {
    ($(#[doc = $doc:literal] $name:ident: $($errno:ident)+;)+) => {
        $(#[doc = $doc] pub const $name: &[i32] = &[$($errno),+];)+
    };
}

sets! {
    /// Any call on a file of a service that is created and removed concurrently.
    GONE: ENOENT ENODEV EIO;
    /// Write to an attribute in configfs.
    ATTRIBUTE: EINVAL ENOENT EBUSY EEXIST ENOSPC ENODEV EPERM ENAMETOOLONG EAGAIN ENOMEM E2BIG;
    /// Read of an attribute in configfs.
    SHOWN: ENOENT ENODEV ENOMEM;
    /// `mkdir` in configfs.
    MKDIR: EINVAL EEXIST ENAMETOOLONG ENOSPC EPERM ENOENT ENOMEM;
    /// `rmdir` in configfs.
    RMDIR: EBUSY ENOTEMPTY ENOENT EPERM ENOMEM;
    /// Message to a device, in addition to the errnos of the parameter.
    MESSAGE: EINVAL ENOENT EACCES ENXIO ENOMEM;
    /// Table line.
    TABLE: EINVAL ELOOP ENOSPC ENOMEM ENOENT ENODEV EBUSY ENXIO ENAMETOOLONG;
    /// ioctl of `/dev/nrs`.
    IOCTL: EINVAL E2BIG EPROTONOSUPPORT EALREADY EBUSY ENOSPC ENOTTY ENOTCONN ENOMEM EFAULT EAGAIN;
    /// Write of records.
    RECORDS: EINVAL EEXIST ENOENT EAGAIN ENOMEM ENOTCONN;
    /// Read of records.
    RELEASED: EINVAL EAGAIN ENOTCONN ENOMEM;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errnos_have_names() {
        assert_eq!(name(EINVAL), "EINVAL");
        assert_eq!(name(0), "ok");
        assert_eq!(name(131), "131");
        for (text, errno) in [
            ("Command failed: Device or resource busy", Some(EBUSY)),
            ("No such device or address", Some(ENXIO)),
            ("No such device", Some(ENODEV)),
            ("nothing", None),
        ] {
            assert_eq!(of_text(text), errno);
        }
    }

    /// Checks that every errno in the schema has a name here, and the errnos of valid values.
    #[test]
    fn schema_lists_all_errors_of_writes() {
        for parameter in nrs_sched::parameters::all() {
            for name in parameter.errors.split(", ").filter(|name| !name.is_empty()) {
                assert!(NAMES.iter().any(|(_, known)| *known == name), "{name}");
            }
        }
        for (file, valid) in [
            ("slots", &[ENOMEM][..]),
            ("nrs_policies", &[ENOMEM, EAGAIN, ENOMEM]),
            ("nrs_tbf_rate", &[ENOMEM, EAGAIN, ENOMEM]),
            ("nrs_tbf_stats_reset", &[ENOMEM]),
            ("nrs_qbm_config", &[ENOMEM, E2BIG, ENOSPC, EAGAIN, ENOMEM]),
            ("at_min", &[ENOMEM, EINVAL]),
        ] {
            assert_eq!(write(file, true), valid, "{file}");
            assert!(write(file, false).contains(&EINVAL));
        }
    }
}
