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
    ("< Left", "previous column"),
    ("r", "reverse the order"),
    ("/", "filter; Esc clears it"),
    ("Tab", "next service"),
    ("p", "pause"),
    ("+ -", "change the interval"),
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
        let notes =
            "Rates cover the time since the previous table; queueing times, the time since \
            the counters were reset. - is unknown: no counter, or the counter was reset. GOT is \
            red if requests are queued and the share is below nine tenths of WANT; LIMIT is yellow \
            if requests are throttled.";
        self.wrapped(notes, Style::new(), bottom);
    }
}
