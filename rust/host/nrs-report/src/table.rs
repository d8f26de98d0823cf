// SPDX-License-Identifier: GPL-2.0-only

//! Tables in Markdown, padded so that they are readable as plain text.

use serde::Serialize;

/// Table with a head and rows.
///
/// # Invariants
///
/// All rows have as many cells as the head.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// Returns true if a cell is right-aligned: a number, possibly after a sign, or a mark for a
/// missing value.
fn number(cell: &str) -> bool {
    let first = cell.trim_start_matches(['+', '-', '−', '±', '<', '>', '≤', '≥', '~', ' ']);
    first.starts_with(|c: char| c.is_ascii_digit()) || ["", "-", "—", "–", "n/a"].contains(&cell)
}

impl Table {
    /// Creates an empty table with the given head.
    pub fn new<S: AsRef<str>>(head: &[S]) -> Self {
        Self {
            head: head.iter().map(|cell| clean(cell.as_ref())).collect(),
            rows: Vec::new(),
        }
    }

    /// Creates an empty table; `head` contains the columns, separated by `|`.
    pub fn headed(head: &str) -> Self {
        let cells: Vec<&str> = head.split('|').map(str::trim).collect();
        Self::new(&cells)
    }

    /// Adds a row; missing cells are empty, excess cells are dropped.
    pub fn row<S: AsRef<str>>(&mut self, cells: &[S]) -> &mut Self {
        let mut row: Vec<String> = cells.iter().map(|cell| clean(cell.as_ref())).collect();
        row.resize(self.head.len(), String::new());
        self.rows.push(row);
        self
    }

    /// Returns true if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the table as Markdown; columns with numbers only are right-aligned.
    pub fn markdown(&self) -> String {
        let mut lines = vec!["|".to_string(); self.rows.len() + 2];
        for (n, head) in self.head.iter().enumerate() {
            let cells = || self.rows.iter().map(|row| &row[n]);
            let widths = cells().chain([head]).map(|cell| cell.chars().count());
            let width = widths.fold(3, usize::max);
            let numbers = cells().all(|cell| number(cell)) && cells().any(|cell| !cell.is_empty());
            let end = if numbers { ':' } else { '-' };
            lines[1] += &format!(" {:-<1$}{end} |", "", width - 1);
            for (line, cell) in [0]
                .into_iter()
                .chain(2..)
                .zip([head].into_iter().chain(cells()))
            {
                lines[line] += &match numbers {
                    true => format!(" {cell:>width$} |"),
                    false => format!(" {cell:<width$} |"),
                };
            }
        }
        lines.join("\n") + "\n"
    }
}

/// Formats `number` with thousands separators.
pub fn commas(number: u32) -> String {
    match number {
        0..1_000 => number.to_string(),
        _ => format!("{},{:03}", commas(number / 1_000), number % 1_000),
    }
}

/// Cleans the text of a cell: escapes bars, and replaces line breaks.
fn clean(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands() {
        assert_eq!(
            [999, 1_000, 1_234_567].map(commas),
            ["999", "1,000", "1,234,567"]
        );
    }

    #[test]
    fn markdown() {
        let mut table = Table::new(&["name", "IOPS", "note"]);
        table.row(&["a", "12 (1–20)", "x|y"]);
        table
            .row(&["long name", "-", ""])
            .row(&["é", "5", "z", "too many"]);
        assert_eq!(
            table.markdown(),
            "| name      |      IOPS | note |\n\
             | --------- | --------: | ---- |\n\
             | a         | 12 (1–20) | x\\|y |\n\
             | long name |         - |      |\n\
             | é         |         5 | z    |\n"
        );
        assert_eq!(Table::new(&["a"]).markdown(), "| a   |\n| --- |\n");
    }
}
