// SPDX-License-Identifier: GPL-2.0-only

//! Help screen.

use ratatui::style::Style;

use super::ScreenPage;
use crate::top::row::Column;

/// Keys and their functions.
const KEYS: [(&str, &str); 10] = [
    ("Up Down PgUp PgDn", "rows, pages"),
    ("Home End", "first, last row"),
    ("s > Right", "sort by next column"),
    ("< Left", "by the one before"),
    ("r", "the other way round"),
    ("/", "filter names; Esc ends"),
    ("Tab", "next service"),
    ("p", "pause"),
    ("+ -", "longer, shorter time"),
    ("h ? q", "help; quit, also ^C"),
];

/// Column where the explanations of the table's columns begin.
const RIGHT: u16 = 42;

impl ScreenPage<'_> {
    /// Writes the keys on the left and the columns on the right, above line `bottom`.
    pub(super) fn help(&mut self, bottom: u16) {
        self.line("", Style::new());
        for n in 0..KEYS.len().max(Column::all().len()) {
            if self.at.y >= bottom {
                break;
            }
            if let Some((keys, what)) = KEYS.get(n) {
                self.put(0, &format!("{keys:<18} {what}"), RIGHT, Style::new());
            }
            if let Some(column) = Column::all().get(n) {
                let text = format!("{:<6} {}", column.heading(), column.meaning());
                self.put(RIGHT, &text, u16::MAX, Style::new());
            }
            self.at.y += 1;
        }
        if self.at.y < bottom {
            self.line("", Style::new());
        }
        let notes = "Rates are of the time since the table before. Waits are since the counters were \
            reset. - is not known: no counter, or it began anew. GOT is red where requests wait and less \
            than nine tenths of WANT was had; LIMIT is yellow where it was met.";
        self.wrapped(notes, Style::new(), bottom);
    }
}
