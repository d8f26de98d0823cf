// SPDX-License-Identifier: GPL-2.0-only

//! How results are shown: plain tables and JSON.

use std::io::{self, Write};

use serde::Serialize;

use crate::failure::{Failure, Kind, Result};

/// Writes `value` as JSON.
///
/// # Errors
///
/// What `out` refuses.
pub fn json(out: &mut dyn Write, value: &impl Serialize) -> Result {
    let text = serde_json::to_string_pretty(value);
    let text = text.map_err(|error| Failure::new(Kind::Other, error.to_string()))?;
    Ok(writeln!(out, "{text}")?)
}

/// Writes `all` as JSON, or in columns below `head`, a row of each; a column of numbers is set flush right.
///
/// # Errors
///
/// What `out` refuses.
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

/// The output of a command that changes something: what cannot be written does not stop it, and is a failure at its end.
pub struct Report<'a> {
    out: &'a mut dyn Write,
    failed: Option<io::Error>,
}

impl<'a> Report<'a> {
    /// One that writes to `out`.
    pub fn new(out: &'a mut dyn Write) -> Self {
        Self { out, failed: None }
    }

    /// Why it could not be written, if it could not.
    pub fn failed(self) -> Option<io::Error> {
        self.failed
    }

    /// Ends a command of which `failures` have come.
    ///
    /// # Errors
    ///
    /// [`Failure::of`] of `failures`, and of the one that something was done and not shown.
    pub fn end(self, mut failures: Vec<Failure>) -> Result {
        failures.extend(self.failed.map(|error| {
            let message = format!("standard output: {error}; not all that was done is shown");
            Failure::new(Kind::Other, message)
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

/// An output that nobody reads.
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
