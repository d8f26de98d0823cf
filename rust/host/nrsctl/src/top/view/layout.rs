// SPDX-License-Identifier: GPL-2.0-only

//! Which columns there is room for, and where they are.

use crate::stats::Snapshot;
use crate::top::numbers;
use crate::top::rates::Rates;
use crate::top::row::{Column, Row};
use crate::top::state::State;

/// Cells that a name needs not exceed even where there is room.
const NAME_MAX: usize = 64;

/// A column that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which.
    pub column: Column,
    /// Where it begins.
    pub left: u16,
    /// How many cells it has.
    pub width: u16,
    /// Whether percentages have decimals.
    pub precise: bool,
}

impl Place {
    /// Where a text in it begins: numbers end on the right.
    pub fn x(&self, text: &str) -> u16 {
        let used = numbers::width(text) as u16;
        match self.column.is_text() {
            true => self.left,
            false => self.left + self.width.saturating_sub(used),
        }
    }

    /// The text, cut so that it fits: of a name the end is kept, which tells more.
    pub fn cut(&self, text: String) -> String {
        match self.column {
            Column::Name => numbers::tail(&text, self.width.into()),
            _ => numbers::start(&text, self.width.into()),
        }
    }
}

/// The columns that have something in any row of a snapshot.
pub fn columns(snapshot: &Snapshot) -> Vec<Column> {
    let all = &snapshot.entities;
    let used = |column: &Column| match column {
        Column::Wanted => all.iter().any(|e| e.share_wanted.is_some()),
        Column::P50 | Column::P99 => all.iter().any(|e| !e.wait_us.is_empty()),
        Column::Limit | Column::Hits => all.iter().any(|e| e.limit.is_some()),
        _ => true,
    };
    Column::all().iter().copied().filter(used).collect()
}

/// The columns for so many cells: fewer if it is narrow, names in full and more digits if it is wide.
pub fn places(state: &State, snapshot: &Snapshot, cells: usize) -> Vec<Place> {
    let mut columns = columns(snapshot);
    // The column that it is sorted by is the last to go but for names.
    let sort = state.sort;
    let spare = Column::SPARE
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
        let place = Place {
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

/// The widest name and policy of all rows, seen or not, so that columns stay where they are; bytes are enough of a guess.
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
