// SPDX-License-Identifier: GPL-2.0-only

//! Selection and positions of the columns.

use crate::stats::Snapshot;
use crate::top::numbers;
use crate::top::rates::Rates;
use crate::top::row::{Column, Row};
use crate::top::state::TopState;

/// Maximum width to which names and policies are widened, cells.
const NAME_MAX: usize = 64;

/// Position of a displayed column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownColumn {
    /// Column of the table.
    pub column: Column,
    /// First cell.
    pub left: u16,
    /// Width, cells.
    pub width: u16,
    /// True if percentages have decimals.
    pub precise: bool,
}

impl ShownColumn {
    /// Returns the first cell of `text` in the column; numbers are right-aligned.
    pub fn x(&self, text: &str) -> u16 {
        let used = numbers::width(text) as u16;
        match self.column.is_text() {
            true => self.left,
            false => self.left + self.width.saturating_sub(used),
        }
    }

    /// Truncates `text` to the width; the end of a name is kept because it is more specific.
    pub fn cut(&self, text: String) -> String {
        match self.column {
            Column::Name => numbers::tail(&text, self.width.into()),
            _ => numbers::start(&text, self.width.into()),
        }
    }
}

/// Returns the columns that have a value in at least one row of a snapshot.
fn columns(snapshot: &Snapshot) -> Vec<Column> {
    let all = &snapshot.entities;
    let used = |column: &Column| match column {
        Column::Wanted => all.iter().any(|e| e.share_wanted.is_some()),
        Column::P50 | Column::P99 => all.iter().any(|e| !e.wait_us.is_empty()),
        Column::Limit | Column::Hits => all.iter().any(|e| e.limit.is_some()),
        _ => true,
    };
    Column::all().iter().copied().filter(used).collect()
}

/// Returns the columns for a width of `cells` cells: fewer columns if narrow, full names and more
/// digits if wide.
pub fn places(state: &TopState, snapshot: &Snapshot, cells: usize) -> Vec<ShownColumn> {
    let mut columns = columns(snapshot);
    // The sort column is omitted last; the name is never omitted.
    let sort = state.sort;
    let spare = Column::OMIT_ORDER
        .into_iter()
        .chain([Column::Got])
        .filter(|c| *c != sort);
    let mut spare = spare.chain([sort]).filter(|c| *c != Column::Name);
    let least = |columns: &[Column], precise| {
        let widths = columns.iter().map(|c| c.width(precise) + 1);
        widths.sum::<usize>().saturating_sub(1)
    };
    while least(&columns, false) > cells {
        let Some(next) = spare.next() else { break };
        columns.retain(|c| *c != next);
    }

    let mut room = cells.saturating_sub(least(&columns, false));
    let (names, policies) = widest(snapshot);
    let mut wider = [0; 2];
    for (extra, (column, widest)) in wider
        .iter_mut()
        .zip([(Column::Name, names), (Column::Policy, policies)])
    {
        if columns.contains(&column) {
            *extra = room.min(widest.saturating_sub(column.width(false)));
            room -= *extra;
        }
    }
    let precise = room >= least(&columns, true) - least(&columns, false);
    let mut left = 0;
    let place = |column: Column| {
        let width = match column {
            Column::Name => (column.width(precise) + wider[0]).min(cells),
            Column::Policy => column.width(precise) + wider[1],
            _ => column.width(precise),
        };
        let place = ShownColumn {
            column,
            left: left as u16,
            width: width as u16,
            precise,
        };
        left += width + 1;
        place
    };
    columns.into_iter().map(place).collect()
}

/// Returns the widths of the widest name and policy of all rows, so that columns do not move when
/// rows are scrolled. Lengths in bytes are accurate enough.
fn widest(snapshot: &Snapshot) -> (usize, usize) {
    let rates = Rates::default();
    let rows = snapshot.entities.iter().map(|entity| Row {
        entity,
        rates: &rates,
    });
    let sizes = rows.map(|row| (row.entity.name.len(), row.policy().len()));
    let (name, policy) = sizes.fold((0, 0), |all, one| (all.0.max(one.0), all.1.max(one.1)));
    (name.min(NAME_MAX), policy.min(NAME_MAX))
}
