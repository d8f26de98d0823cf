// SPDX-License-Identifier: GPL-2.0-only

//! How results are shown: plain tables and JSON.

use std::io::Write;

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

/// Writes rows below `head`, in columns; a column of numbers is set flush right.
///
/// # Errors
///
/// What `out` refuses.
pub fn table<const N: usize>(out: &mut dyn Write, head: [&str; N], rows: &[[String; N]]) -> Result {
    let mut widths = head.map(|cell| cell.chars().count());
    let mut numbers = [!rows.is_empty(); N];
    for row in rows {
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
    for row in rows {
        line(std::array::from_fn(|index| row[index].as_str()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns() {
        let mut out = Vec::new();
        let rows = [["a", "10"], ["long", "-"]].map(|row| row.map(str::to_owned));
        table(&mut out, ["NAME", "N"], &rows).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "NAME   N\na     10\nlong   -\n");
    }

    #[test]
    fn no_rows() {
        let mut out = Vec::new();
        table(&mut out, ["NAME", "N"], &[]).unwrap();
        assert_eq!(out, b"NAME  N\n");
    }
}
