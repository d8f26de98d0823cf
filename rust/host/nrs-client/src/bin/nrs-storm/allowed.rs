// SPDX-License-Identifier: GPL-2.0-only

//! Which errno each kind of call may end with: what `Documentation/user-guide.md`, `tbf.md`, `qbm.md`, `order.md` and
//! `dev-nrs.md` say. Anything else is a finding.

use libc::{
    E2BIG, EACCES, EAGAIN, EALREADY, EBUSY, EEXIST, EFAULT, EINVAL, EIO, ELOOP, ENAMETOOLONG,
    ENODEV, ENOENT, ENOMEM, ENOSPC, ENOTCONN, ENOTEMPTY, ENOTTY, ENXIO, EPERM, EPROTONOSUPPORT,
};

/// Names of the errnos that occur.
const NAMES: &[(i32, &str)] = &[
    (-1, "unsaid"),
    (0, "ok"),
    (E2BIG, "E2BIG"),
    (EACCES, "EACCES"),
    (EAGAIN, "EAGAIN"),
    (EALREADY, "EALREADY"),
    (EBUSY, "EBUSY"),
    (EEXIST, "EEXIST"),
    (EFAULT, "EFAULT"),
    (EINVAL, "EINVAL"),
    (EIO, "EIO"),
    (ELOOP, "ELOOP"),
    (ENAMETOOLONG, "ENAMETOOLONG"),
    (ENODEV, "ENODEV"),
    (ENOENT, "ENOENT"),
    (ENOMEM, "ENOMEM"),
    (ENOSPC, "ENOSPC"),
    (ENOTCONN, "ENOTCONN"),
    (ENOTEMPTY, "ENOTEMPTY"),
    (ENOTTY, "ENOTTY"),
    (ENXIO, "ENXIO"),
    (EPERM, "EPERM"),
    (EPROTONOSUPPORT, "EPROTONOSUPPORT"),
];

/// The name of `errno`, or its number.
pub fn name(errno: i32) -> String {
    let known = NAMES.iter().find(|(number, _)| *number == errno);
    known.map_or_else(|| errno.to_string(), |(_, name)| (*name).to_owned())
}

/// What the C library calls the errno in messages, of those that `dmsetup` may report.
pub fn of_text(text: &str) -> Option<i32> {
    let said = |errno: i32| {
        // "Invalid argument (os error 22)"
        let said = std::io::Error::from_raw_os_error(errno).to_string();
        said.split(" (os").next().unwrap_or_default().to_owned()
    };
    // "No such device or address" is not "No such device".
    NAMES
        .iter()
        .map(|(errno, _)| *errno)
        .filter(|errno| *errno > 0 && text.contains(&said(*errno)))
        .max_by_key(|errno| said(*errno).len())
}

/// Of a write to the control file `file` of a service in debugfs.
///
/// `valid`: the value was one that the file takes.
pub fn write(file: &str, valid: bool) -> Vec<i32> {
    // Nobody promises memory; a service that goes away takes its files with it, and debugfs answers for them.
    let mut all = vec![ENOMEM];
    if !valid {
        all.extend([EINVAL, E2BIG]);
    }
    all.extend_from_slice(match file {
        "nrs_policies" if valid => &[EAGAIN],
        "nrs_policies" => &[ENOENT, EAGAIN],
        "nrs_fairshare_weights" => &[ENOENT, ENOSPC],
        "nrs_fairshare_mode" => &[EAGAIN, ENOENT, ENOSPC],
        "nrs_tbf_rule" => &[
            EINVAL,
            ENODEV,
            EEXIST,
            ENOENT,
            EPERM,
            EBUSY,
            ENAMETOOLONG,
            ENOSPC,
        ],
        "nrs_qbm_config" if !valid => &[E2BIG, ENOSPC, EAGAIN, EEXIST, ENOENT, ENAMETOOLONG],
        "nrs_qbm_config" => &[E2BIG, ENOSPC, EAGAIN],
        "buffer_max" => &[EBUSY, EAGAIN],
        // Each must fit the others.
        "at_min" | "at_max" | "at_extra" | "at_early_margin" => &[EINVAL],
        "nrs_delay_min" | "nrs_delay_max" => &[EINVAL],
        _ if file.starts_with("nrs_fairshare_") && !file.ends_with("_reset") => &[EAGAIN],
        _ if file.starts_with("nrs_tbf_") && !file.ends_with("_reset") => &[EAGAIN],
        "nrs_qbm_clients_max" => &[EAGAIN],
        _ => &[],
    });
    all
}

/// Of a read of the control file `file`.
pub fn read(file: &str) -> &'static [i32] {
    match file {
        "nrs_tbf_rule" | "nrs_qbm_status" | "nrs_qbm_stats" | "nrs_tbf_stats" => &[ENOMEM, ENODEV],
        _ => &[ENOMEM],
    }
}

/// Of any call on a file of a service that comes and goes meanwhile.
pub const GONE: &[i32] = &[ENOENT, ENODEV, EIO];

/// Of a write to an attribute in configfs.
pub const ATTRIBUTE: &[i32] = &[
    EINVAL,
    ENOENT,
    EBUSY,
    EEXIST,
    ENOSPC,
    ENODEV,
    EPERM,
    ENAMETOOLONG,
    EAGAIN,
    ENOMEM,
    E2BIG,
];

/// Of a read of one.
pub const SHOWN: &[i32] = &[ENOENT, ENODEV, ENOMEM];

/// Of `mkdir` and `rmdir` in configfs.
pub const MKDIR: &[i32] = &[EINVAL, EEXIST, ENAMETOOLONG, ENOSPC, EPERM, ENOENT, ENOMEM];
/// See there.
pub const RMDIR: &[i32] = &[EBUSY, ENOTEMPTY, ENOENT, EPERM, ENOMEM];

/// Of a message beside those of the parameter, and of a table line.
pub const MESSAGE: &[i32] = &[EINVAL, ENOENT, EACCES, ENXIO, ENOMEM];
/// See there.
pub const TABLE: &[i32] = &[
    EINVAL,
    ELOOP,
    ENOSPC,
    ENOMEM,
    ENOENT,
    ENODEV,
    EBUSY,
    ENXIO,
    ENAMETOOLONG,
];

/// Of ioctls, reads and writes of `/dev/nrs`.
pub const IOCTL: &[i32] = &[
    EINVAL,
    E2BIG,
    EPROTONOSUPPORT,
    EALREADY,
    EBUSY,
    ENOSPC,
    ENOTTY,
    ENOTCONN,
    ENOMEM,
    EFAULT,
    EAGAIN,
];
/// See there.
pub const RECORDS: &[i32] = &[EINVAL, EEXIST, ENOENT, EAGAIN, ENOMEM, ENOTCONN];
/// See there.
pub const RELEASED: &[i32] = &[EINVAL, EAGAIN, ENOTCONN, ENOMEM];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errnos_have_names() {
        assert_eq!(name(EINVAL), "EINVAL");
        assert_eq!(name(0), "ok");
        assert_eq!(name(131), "131");
        assert_eq!(
            of_text("Command failed: Device or resource busy"),
            Some(EBUSY)
        );
        assert_eq!(of_text("No such device or address"), Some(ENXIO));
        assert_eq!(of_text("No such device"), Some(ENODEV));
        assert_eq!(of_text("nothing"), None);
    }

    #[test]
    fn valid_values_are_not_invalid() {
        assert!(!write("slots", true).contains(&EINVAL));
        assert!(write("slots", false).contains(&EINVAL));
        assert!(write("nrs_tbf_rate", true).contains(&EAGAIN));
        assert!(!write("nrs_tbf_stats_reset", true).contains(&EAGAIN));
    }
}
