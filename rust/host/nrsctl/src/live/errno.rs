// SPDX-License-Identifier: GPL-2.0-only

//! Error numbers and their descriptions.

use std::io;

/// Largest error number.
const LAST: i32 = 133;

/// Returns the description of `errno`.
pub fn words(errno: i32) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    let end = text.rfind(" (os error").unwrap_or(text.len());
    text[..end].to_owned()
}

/// Returns the error number whose description ends `text`, as programs print it.
pub fn of_description(text: &str) -> Option<i32> {
    let text = text.trim_end().trim_end_matches('.');
    (1..=LAST).find(|errno| text.ends_with(&words(*errno)))
}

/// Returns the error number of `error`; `EIO` if it has none.
pub fn of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}
