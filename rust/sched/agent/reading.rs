// SPDX-License-Identifier: GPL-2.0-only

//! Readings of the parts of a service, and what an agent receives of them.
//!
//! A [`Reading`] holds the reports of all parts at one time, one for each class; [`LastReading`] is
//! the reading that the agent has received.

use super::Report;
use crate::sched::{
    attr::Priority,
    error::Result,
    key::Key,
    mem::{GrowingList, NoMemory},
    policy::{
        control::{refresh_stale, Parts, RunningPart},
        Part, ReportBuf, ROWS,
    },
    sort::radix,
};
use core::fmt::Write;

/// Reports of all parts at one time.
///
/// # Invariants
///
/// `list` is sorted by id; ids are unique.
pub struct Reading {
    terms: u64,
    list: GrowingList<Report>,
}

impl Reading {
    /// Creates a reading without reports.
    pub const fn new() -> Self {
        Self {
            terms: 0,
            list: GrowingList::new(),
        }
    }

    /// Reads the parts of `parts` whose terms equal those of the first part on a regular head.
    /// Reads at most [`ROWS`] classes while a lock is held; may sleep. O(n log n) at most. First
    /// applies an ended lease to the parts, because the worker of an idle service does not.
    pub fn of(parts: &impl Parts) -> core::result::Result<Self, NoMemory> {
        let mut list = GrowingList::new();
        let mut buf = ReportBuf::new()?;
        let mut terms = None;
        for running in parts.running() {
            refresh_stale(&running, parts.now());
            let regular = running.priority() == Priority::Regular;
            let mut from = Some(0);
            while let Some(idx) = from {
                buf.clear();
                from = running.with(|part| {
                    // Another part may have been started since the lock was last held.
                    let own = part.terms();
                    if regular && terms.is_none() {
                        terms = Some(own);
                    }
                    (terms == Some(own)).then(|| part.reports(idx, &mut buf))?
                });
                buf.iter().try_for_each(|report| list.push(*report))?;
            }
        }
        Ok(Self {
            terms: terms.unwrap_or(0),
            list: merged(&list)?,
        })
    }

    /// Returns the hash of the settings that all servers that share weights must have in common; 0
    /// if no policy supports agents.
    pub const fn terms(&self) -> u64 {
        self.terms
    }
}

/// Returns `list` sorted by id, with the reports of equal ids merged.
fn merged(list: &GrowingList<Report>) -> core::result::Result<GrowingList<Report>, NoMemory> {
    let mut order = GrowingList::with_capacity(list.as_slice().len())?;
    for (index, report) in (0u32..).zip(list.as_slice()) {
        order.push((report.account.id, index))?;
    }
    radix(&mut order, &mut GrowingList::new(), |(id, _)| *id)?;
    let mut merged: GrowingList<Report> = GrowingList::with_capacity(order.as_slice().len())?;
    for &(id, index) in order.as_slice() {
        let Some(report) = list.as_slice().get(index as usize) else {
            bug!();
            continue;
        };
        match merged.as_mut_slice().last_mut() {
            Some(last) if last.account.id == id => last.add(report),
            _ => merged.push(*report)?,
        }
    }
    Ok(merged)
}

/// Reading that the agent received last.
pub struct LastReading {
    /// Instance of the reading; 0: the agent has received nothing.
    instance: u64,
    list: GrowingList<Report>,
}

impl LastReading {
    /// Creates the state of an agent that has received nothing.
    pub const fn new() -> Self {
        Self {
            instance: 0,
            list: GrowingList::new(),
        }
    }

    /// Returns the reports of `reading`, which belongs to `instance`, to send to the agent. If
    /// `all` is false, these are the reports that differ from the last reading and the last reports
    /// of removed classes.
    pub fn changes<'a>(&'a self, instance: u64, reading: &'a Reading, all: bool) -> Changes<'a> {
        Changes {
            old: match self.instance == instance && !all {
                true => self.list.as_slice(),
                false => &[],
            },
            new: reading.list.as_slice(),
        }
    }

    /// Records that the agent has received `reading`, which belongs to `instance`.
    pub fn record(&mut self, instance: u64, reading: Reading) {
        self.instance = instance;
        self.list = reading.list;
    }
}

/// Differences between two readings, sorted by id; each report comes with true if the class was
/// removed.
#[derive(Clone)]
pub struct Changes<'a> {
    old: &'a [Report],
    new: &'a [Report],
}

impl Iterator for Changes<'_> {
    type Item = (Report, bool);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (old, new) = (self.old.split_first(), self.new.split_first());
            let next = new.map(|(new, _)| new.account.id);
            if let Some((old, rest)) = old {
                if next.is_none_or(|id| old.account.id < id) {
                    self.old = rest;
                    return Some((old.ended(), true));
                }
            }
            let (new, rest) = new?;
            self.new = rest;
            if let Some((old, rest)) = old {
                if old.account.id == new.account.id {
                    self.old = rest;
                    if old == new {
                        continue;
                    }
                }
            }
            return Some((*new, false));
        }
    }
}

/// Writes a line `ID LEVEL KEY` for each of `ids` that a class of `parts` has. Looks up at most
/// [`ROWS`] ids while a lock is held; may sleep.
pub fn write_names(
    parts: &impl Parts,
    ids: impl Iterator<Item = u64>,
    out: &mut dyn Write,
) -> Result {
    let mut names: GrowingList<(u64, Option<(&str, Key)>)> = GrowingList::new();
    for id in ids {
        names.push((id, None))?;
    }
    for running in parts.running() {
        for some in names.as_mut_slice().chunks_mut(ROWS) {
            let named = running.with(|part| {
                for (id, name) in some {
                    *name = name.or_else(|| part.name_of(*id));
                }
                Some(())
            });
            if named.is_none() {
                break;
            }
        }
    }
    for (id, name) in names.as_slice() {
        if let Some((level, key)) = name {
            writeln!(out, "{id:016x} {level} {key}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
