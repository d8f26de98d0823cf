// SPDX-License-Identifier: GPL-2.0-only

//! State of the display: changed by snapshots and keys, drawn by [`view`](super::view).

use std::ops::Range;
use std::time::Duration;

use nrs_agent::status::ServiceStatus;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::rates::{rates, Rates};
use super::row::{Column, Row};
use super::source::Source;
use crate::failure::{failure, Failure};
use crate::stats::Snapshot;

/// Intervals for `+` and `-`, ms.
const INTERVALS: [u64; 9] = [100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000];

/// Action requested by a key, in addition to a change of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Redraw only.
    Draw,
    /// Take a snapshot immediately.
    Refresh,
    /// Quit the program.
    Quit,
}

/// State of the display.
#[derive(Debug, Default)]
pub struct TopState {
    services: Vec<String>,
    service: Option<String>,
    /// Last snapshot of the service.
    now: Option<Snapshot>,
    /// Agent's status of the service.
    pub agent: Option<ServiceStatus>,
    /// Rates of the entities of `now`.
    rates: Vec<Rates>,
    /// Indices of the displayed entities in the order of the rows.
    order: Vec<usize>,
    /// Reason why there is no table.
    pub failure: Option<Failure>,
    /// True if there are no more snapshots.
    pub ended: bool,
    /// Column by which rows are sorted.
    pub sort: Column,
    /// True if the order is reversed.
    pub reverse: bool,
    /// Text that the name, policy or rule of a displayed row contains.
    pub filter: String,
    /// True while the filter is edited.
    pub editing: bool,
    /// True if the help is displayed.
    pub help: bool,
    /// True if no snapshots are taken.
    pub paused: bool,
    /// Time between snapshots.
    pub interval: Duration,
    first: usize,
    page: usize,
    /// True if colours are used.
    pub colours: bool,
}

impl TopState {
    /// Creates the state for `service`, or for the first service.
    pub fn new(service: Option<String>, interval: Duration, sort: Column, filter: &str) -> Self {
        Self {
            service,
            sort,
            filter: filter.into(),
            interval,
            page: 1,
            ..Self::default()
        }
    }

    /// Takes a snapshot from the source.
    pub fn refresh(&mut self, source: &mut dyn Source) {
        let services = source.services().and_then(|services| {
            self.services = services;
            let first = || self.services.first().cloned();
            let Some(name) = self.service.clone().or_else(first) else {
                return Err(failure!(NotFound: "no services exist";
                    "a service is created with its first client; see nrsctl device --help"));
            };
            let snapshot = source.snapshot(&name);
            self.service = Some(name);
            snapshot
        });
        match services {
            Ok(Some(snapshot)) => {
                self.agent = source.agent(&snapshot.service);
                self.take(snapshot);
            }
            Ok(None) => self.ended = true,
            Err(failure) => self.fail(failure),
        }
    }

    /// Displays a snapshot.
    pub fn take(&mut self, snapshot: Snapshot) {
        self.rates = rates(self.now.as_ref(), &snapshot);
        self.service = Some(snapshot.service.clone());
        self.now = Some(snapshot);
        self.failure = None;
        self.ended = false;
        self.arrange();
    }

    /// Displays a failure instead of the table. The last snapshot is kept for the rates of the next
    /// snapshot.
    pub fn fail(&mut self, failure: Failure) {
        self.failure = Some(failure);
        self.order.clear();
        self.first = 0;
    }

    /// Selects and sorts the rows.
    fn arrange(&mut self) {
        let text = self.filter.to_lowercase();
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        if let (Some(now), None) = (&self.now, &self.failure) {
            let row = |n: usize| Row {
                entity: &now.entities[n],
                rates: &self.rates[n],
            };
            order.extend((0..now.entities.len()).filter(|n| text.is_empty() || row(*n).has(&text)));
            order.sort_by(|a, b| row(*a).order(&row(*b), self.sort, self.reverse));
        }
        self.order = order;
        self.scroll(0);
    }

    /// Sets the number of visible rows.
    pub fn set_page(&mut self, rows: usize) {
        self.page = rows;
        self.scroll(0);
    }

    /// Moves the visible range down by `rows` rows; the last page is full if there are enough rows.
    fn scroll(&mut self, rows: isize) {
        let last = self.order.len().saturating_sub(self.page.max(1));
        self.first = self.first.saturating_add_signed(rows).min(last);
    }

    /// Handles a key.
    pub fn key(&mut self, key: KeyEvent) -> Act {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Act::Quit,
                _ => Act::Draw,
            };
        }
        if self.editing {
            self.edit(key.code);
            return Act::Draw;
        }
        if self.help {
            self.help = false;
            // These keys only hide the help; other keys have their usual function.
            if matches!(key.code, KeyCode::Char('h' | '?' | 'q') | KeyCode::Esc) {
                return Act::Draw;
            }
        }
        let page = isize::try_from(self.page.max(1)).unwrap_or(isize::MAX);
        match key.code {
            KeyCode::Char('q') => return Act::Quit,
            KeyCode::Char('h' | '?') => self.help = true,
            KeyCode::Up => self.scroll(-1),
            KeyCode::Down => self.scroll(1),
            KeyCode::PageUp => self.scroll(-page),
            KeyCode::PageDown | KeyCode::Char(' ') => self.scroll(page),
            KeyCode::Home => self.scroll(isize::MIN),
            KeyCode::End => self.scroll(isize::MAX),
            KeyCode::Char('s' | '>') | KeyCode::Right => self.sort_by(self.sort.beside(true)),
            KeyCode::Char('<') | KeyCode::Left => self.sort_by(self.sort.beside(false)),
            KeyCode::Char('r') => {
                self.reverse = !self.reverse;
                self.arrange();
            }
            KeyCode::Char('/') => self.editing = true,
            KeyCode::Esc => {
                self.filter.clear();
                self.arrange();
            }
            KeyCode::Char('p') => {
                self.paused = !self.paused;
                return if self.paused { Act::Draw } else { Act::Refresh };
            }
            KeyCode::Char('+') => self.change_interval(true),
            KeyCode::Char('-') => self.change_interval(false),
            KeyCode::Tab => return self.next_service(true),
            KeyCode::BackTab => return self.next_service(false),
            _ => {}
        }
        Act::Draw
    }

    /// Handles a key while the filter is edited.
    fn edit(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.editing = false,
            KeyCode::Esc => {
                self.editing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(c) if !c.is_control() => self.filter.push(c),
            _ => {}
        }
        self.arrange();
    }

    fn sort_by(&mut self, column: Column) {
        self.sort = column;
        self.reverse = false;
        self.arrange();
    }

    fn change_interval(&mut self, longer: bool) {
        let now = self.interval;
        let mut all = INTERVALS.map(Duration::from_millis).into_iter();
        let found = match longer {
            true => all.find(|one| *one > now),
            false => all.rfind(|one| *one < now),
        };
        self.interval = found.unwrap_or(now);
    }

    /// Switches to the next or the previous service.
    fn next_service(&mut self, forwards: bool) -> Act {
        let Some(last) = self.services.len().checked_sub(1) else {
            return Act::Refresh;
        };
        let mut names = self.services.iter();
        let next = match names.position(|name| Some(name) == self.service.as_ref()) {
            None => 0,
            Some(at) if forwards => (at + 1) % (last + 1),
            Some(at) => at.checked_sub(1).unwrap_or(last),
        };
        let name = self.services.get(next).cloned();
        if name != self.service {
            self.service = name;
            self.now = None;
            self.agent = None;
            self.failure = None;
            self.first = 0;
            self.arrange();
        }
        Act::Refresh
    }

    /// Returns the displayed service, its index, and the number of services.
    pub fn service(&self) -> Option<(&str, Option<usize>, usize)> {
        let name = self.service.as_deref()?;
        let at = self.services.iter().position(|one| one == name);
        Some((name, at, self.services.len()))
    }

    /// Returns the last snapshot if it is displayed.
    pub fn snapshot(&self) -> Option<&Snapshot> {
        self.now.as_ref().filter(|_| self.failure.is_none())
    }

    /// Returns the number of rows, visible or not.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns the range of visible rows.
    pub fn visible(&self) -> Range<usize> {
        self.first..self.order.len().min(self.first.saturating_add(self.page))
    }

    /// Returns row `n`.
    pub fn row(&self, n: usize) -> Option<Row<'_>> {
        let entity = *self.order.get(n)?;
        Some(Row {
            entity: self.now.as_ref()?.entities.get(entity)?,
            rates: self.rates.get(entity)?,
        })
    }
}

#[cfg(test)]
mod tests;
