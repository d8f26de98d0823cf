// SPDX-License-Identifier: GPL-2.0-only

//! Numbers that the kernel refuses with.

use std::io;

pub const EPERM: i32 = 1;
pub const ENOENT: i32 = 2;
pub const EIO: i32 = 5;
pub const ENXIO: i32 = 6;
pub const E2BIG: i32 = 7;
pub const EAGAIN: i32 = 11;
pub const ENOMEM: i32 = 12;
pub const EACCES: i32 = 13;
pub const EBUSY: i32 = 16;
pub const EEXIST: i32 = 17;
pub const ENODEV: i32 = 19;
pub const EINVAL: i32 = 22;
pub const ENOSPC: i32 = 28;
pub const EROFS: i32 = 30;
pub const ENOTEMPTY: i32 = 39;
pub const ELOOP: i32 = 40;

/// The largest one.
const LAST: i32 = 133;

/// `errno` in words.
pub fn words(errno: i32) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    let end = text.rfind(" (os error").unwrap_or(text.len());
    text[..end].to_owned()
}

/// The one that `text` ends with in words, as programs print it.
pub fn said(text: &str) -> Option<i32> {
    let text = text.trim_end().trim_end_matches('.');
    (1..=LAST).find(|errno| text.ends_with(&words(*errno)))
}

/// The one of `error`; `EIO` if it has none.
pub fn of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(EIO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        assert_eq!(words(EINVAL), "Invalid argument");
        for errno in [
            EPERM, ENOENT, EIO, ENXIO, E2BIG, EAGAIN, ENOMEM, EACCES, EBUSY, EEXIST, ENODEV,
            EINVAL, ENOSPC, EROFS, ENOTEMPTY, ELOOP,
        ] {
            let line = format!("message ioctl on files  failed: {}\n", words(errno));
            assert_eq!(said(&line), Some(errno), "{line}");
        }
        assert_eq!(said("Command failed."), None);
        assert_eq!(of(&io::Error::other("x")), EIO);
    }
}
