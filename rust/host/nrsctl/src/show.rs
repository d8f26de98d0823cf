// SPDX-License-Identifier: GPL-2.0-only

//! Output of results as plain tables and JSON.

use std::fmt;
use std::io::{self, Write};
use std::time::SystemTime;

use serde::Serialize;

use crate::failure::{failure, Failure, FailureKind, Result};

/// Form of an output that has users and groups.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct OutputForm {
    /// Shows users and groups by number.
    #[arg(long, short)]
    pub numeric: bool,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

/// Writes `value` as JSON.
///
/// # Errors
///
/// The error of writing to `out`.
pub fn json(out: &mut dyn Write, value: &impl Serialize) -> Result {
    let text = serde_json::to_string_pretty(value);
    let text = text.map_err(|error| Failure::new(FailureKind::Other, error.to_string()))?;
    Ok(writeln!(out, "{text}")?)
}

/// Formats `time` in UTC according to RFC 3339, in whole seconds; empty after the year 9999.
pub fn time(time: SystemTime) -> String {
    let mut text = String::new();
    let time = humantime::format_rfc3339_seconds(time.max(SystemTime::UNIX_EPOCH));
    let _ = fmt::Write::write_fmt(&mut text, format_args!("{time}"));
    text
}

/// Writes `all` as JSON, or as a table with the header `head` and one row each. Columns of numbers
/// are right-aligned.
///
/// # Errors
///
/// The error of writing to `out`.
pub fn list<T: Serialize, const N: usize>(
    out: &mut dyn Write,
    as_json: bool,
    all: &[T],
    head: [&str; N],
    row: impl Fn(&T) -> [String; N],
) -> Result {
    if as_json {
        return json(out, &all);
    }
    let rows: Vec<[String; N]> = all.iter().map(row).collect();
    let mut widths = head.map(|cell| cell.chars().count());
    let mut numbers = [!rows.is_empty(); N];
    for row in &rows {
        for (index, cell) in row.iter().enumerate() {
            widths[index] = widths[index].max(cell.chars().count());
            numbers[index] &= cell
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b'-');
        }
    }
    let mut line = |cells: [&str; N]| {
        let mut text = String::new();
        for (index, cell) in cells.iter().enumerate() {
            let width = widths[index];
            text += &match numbers[index] {
                true => format!("{cell:>width$}  "),
                false => format!("{cell:<width$}  "),
            };
        }
        writeln!(out, "{}", text.trim_end())
    };
    line(head)?;
    for row in &rows {
        line(std::array::from_fn(|index| row[index].as_str()))?;
    }
    Ok(())
}

/// Output of a command that changes something. An output error does not stop the command; it is
/// reported at the end.
pub struct Report<'a> {
    out: &'a mut dyn Write,
    failed: Option<io::Error>,
}

impl<'a> Report<'a> {
    /// Creates a report that writes to `out`.
    pub fn new(out: &'a mut dyn Write) -> Self {
        Self { out, failed: None }
    }

    /// Returns the output error, if there was one.
    pub fn failed(self) -> Option<io::Error> {
        self.failed
    }

    /// Ends a command with the failures `failures`.
    ///
    /// # Errors
    ///
    /// [`Failure::of`] of `failures` and the output error.
    pub fn end(self, mut failures: Vec<Failure>) -> Result {
        failures.extend(self.failed.map(|error| {
            failure!(Other:
                "standard output: {error}; the changes were made, but not all are shown")
        }));
        Failure::of(failures)
    }
}

impl Write for Report<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failed.is_none() {
            self.failed = self.out.write_all(bytes).err();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.failed.is_none() {
            self.failed = self.out.flush().err();
        }
        Ok(())
    }
}

/// An output closed by its reader.
#[cfg(test)]
pub struct Unread;

#[cfg(test)]
impl Write for Unread {
    fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times() {
        let time = |seconds| time(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(time(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(time(253_402_300_800), "");
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(5);
        assert_eq!(super::time(before), "1970-01-01T00:00:00Z");
    }
}
