// SPDX-License-Identifier: GPL-2.0-only

//! Disks whose I/O scheduler is nrs: the options that they have.

use nrs_sched::attr::Stream;
use nrs_sched::jobid::Template;

/// Sources of offset streams, each with its help.
pub const STREAMS: [(&str, &str); 3] = [
    (
        "hint",
        "write stream or write hint of the request (default)",
    ),
    ("cgroup", "cgroup of the submitter"),
    ("none", "no streams"),
];

/// The options of a disk, files in `queue/iosched`, and their defaults.
pub const DEFAULTS: [(&str, &str); 2] = [("jobid_name", "%e.%u"), ("stream", "hint")];

/// Whether `text` has printable bytes without blanks only.
pub fn is_word(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Returns why `format` is not one of job identifiers, if it is not.
pub fn refused_format(format: &str) -> Option<&'static str> {
    if let Err(error) = Template::parse(format) {
        return Some(error.reason);
    }
    (!is_word(format)).then_some("printable bytes without blanks")
}

/// Returns why `value` is not one of the option `name`, if it is not.
pub fn refused(name: &str, value: &str) -> Option<&'static str> {
    match name {
        "stream" if Stream::from_word(value).is_some() => None,
        "stream" => Some("is not hint, cgroup or none"),
        "jobid_name" => refused_format(value),
        // A key that does not exist is another fault.
        _ => None,
    }
}
