// SPDX-License-Identifier: GPL-2.0-only

//! Plain text output of a state for scripts: all rows and columns, nothing truncated.

use std::io::{self, Write};

use super::numbers;
use super::row::Column;
use super::state::TopState;
use super::view;

/// Writes the table, or one line if there is no snapshot.
///
/// # Errors
///
/// The error of writing.
pub fn write(state: &TopState, out: &mut dyn Write) -> io::Result<()> {
    let name = state.service().map_or("", |(name, ..)| name);
    let Some(snapshot) = state.snapshot() else {
        let why = state
            .failure
            .as_ref()
            .map_or("no snapshot yet", |f| &f.message);
        return writeln!(out, "nrs {name}: {why}\n");
    };
    writeln!(
        out,
        "nrs {name}  {}  {}",
        view::policies(&snapshot.heads),
        view::usage(snapshot)
    )?;
    if let Some(agent) = &state.agent {
        writeln!(out, "{}", view::shared(agent))?;
    }
    let columns = Column::all();
    let mut table: Vec<Vec<String>> = Vec::new();
    table.push(columns.iter().map(|one| one.heading().into()).collect());
    let rows = (0..state.len()).filter_map(|n| state.row(n));
    table.extend(rows.map(|row| columns.iter().map(|one| row.cell(*one, true)).collect()));
    let mut widths = vec![0; columns.len()];
    for line in &table {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = numbers::width(cell).max(*width);
        }
    }
    for line in &table {
        let mut text = String::new();
        for ((cell, width), column) in line.iter().zip(&widths).zip(columns) {
            let blanks = " ".repeat(width - numbers::width(cell));
            match column.is_text() {
                true => text += &format!("{cell}{blanks}  "),
                false => text += &format!("{blanks}{cell}  "),
            }
        }
        writeln!(out, "{}", text.trim_end())?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::failure::failure;
    use crate::top::samples;

    #[test]
    fn tables() {
        let mut state = TopState::new(None, Duration::from_secs(1), Column::Queued, "");
        state.take(samples::fairshare(0));
        state.take(samples::fairshare(1));
        let text = |state: &TopState| {
            let mut out = Vec::new();
            write(state, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let want = "\
nrs ost_io  regular: fairshare uid_then_jobid_fair  high: fifo  slots 7 of 8 used  queued 374  \
healthy
NAME                   POLICY      WANT    GOT  REQ/S    B/S  QUEUE   P50   P99  LIMIT  HIT/S
uid:1002/jobid:large   fairshare  25.0%  25.4%    200  13.1M    300  44ms  84ms      -      0
uid:1002/jobid:medium  fairshare  25.0%  25.4%    200  13.1M     66  42ms  84ms      -      0
uid:1001/jobid:small   fairshare  50.0%  50.4%    400  26.2M      8  41ms  84ms      -      0

";
        assert_eq!(text(&state), want);
        state.fail(failure!(NotLoaded: "the module nrs is not loaded"));
        assert_eq!(text(&state), "nrs ost_io: the module nrs is not loaded\n\n");
    }
}
