// SPDX-License-Identifier: GPL-2.0-only

//! First in, first out: one class, one queue.
//!
//! The policy of a head that nothing else was started on, and the one that serves what another policy
//! declines. It takes no argument and has nothing to tune.

use crate::sched::{
    attr::Attrs,
    class::ClassId,
    error::{Error, Result},
    item::{Cost, Fifo, Item},
    key::Key,
    mem::{self, NoMemory},
    policy::{Get, Part, RowBuf, View},
    stats::Row,
};
use core::fmt;

/// Nothing to tune.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tunables;

/// Nothing to configure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config;

impl Config {
    /// The configuration.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: there is an argument.
    pub fn parse(arg: Option<&str>, _tunables: &Tunables) -> Result<Self> {
        match arg {
            None => Ok(Self),
            Some(_) => Err(Error::invalid("fifo takes no argument")),
        }
    }

    /// The same.
    pub const fn with(&self, _tunables: &Tunables) -> Self {
        Self
    }

    /// There is never an argument.
    pub const fn argument(&self) -> Option<&dyn fmt::Display> {
        None
    }
}

/// No memory is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Need;

/// No memory.
pub struct Spare;

impl mem::Need for Need {
    type Spare = Spare;

    fn is_empty(&self) -> bool {
        true
    }

    fn allocate(&self) -> core::result::Result<Spare, NoMemory> {
        Ok(Spare)
    }
}

/// The only class.
const CLASS: ClassId = ClassId::new(0, 1);

/// The queue of one head.
pub struct State<I: Item> {
    fifo: I::Fifo,
    row: Row,
}

impl<I: Item> State<I> {
    /// An empty queue.
    ///
    /// # Errors
    ///
    /// None.
    pub fn new(_config: &Config, _seed: u64) -> core::result::Result<Self, NoMemory> {
        Ok(Self {
            fifo: I::Fifo::new(),
            row: Row::new(Key::Default, 0),
        })
    }

    fn count(&mut self, cost: Cost) {
        self.row.dispatched = self.row.dispatched.saturating_add(1);
        self.row.cost_pages = self.row.cost_pages.saturating_add(u64::from(cost.pages));
    }
}

impl<I: Item> Part<I> for State<I> {
    type Need = Need;
    type Spare = Spare;

    fn classify(&mut self, _attrs: &Attrs, _now: u64) -> ClassId {
        CLASS
    }

    fn is_live(&self, class: ClassId) -> bool {
        class == CLASS
    }

    fn enqueue(&mut self, item: I, _class: ClassId, _now: u64) -> core::result::Result<(), I> {
        self.fifo.push(item);
        Ok(())
    }

    fn get(&mut self, _view: &View<'_>) -> Get<(I, ClassId)> {
        match self.fifo.pop() {
            Some(item) => {
                self.count(item.cost());
                self.row.requests = self.row.requests.saturating_add(1);
                Get::Item((item, CLASS))
            }
            None => Get::Empty,
        }
    }

    fn pass(&mut self, class: ClassId, cost: Cost) -> bool {
        if class == CLASS {
            self.count(cost);
            self.row.opportunity = self.row.opportunity.saturating_add(1);
        }
        class == CLASS
    }

    fn stop(&mut self, class: ClassId, _cost: Cost, _now: u64) {
        if class == CLASS {
            self.row.requests = self.row.requests.saturating_sub(1);
        }
    }

    fn len(&self) -> u32 {
        self.fifo.len()
    }

    fn need(&self) -> Need {
        Need
    }

    fn grow(&mut self, spare: Spare) -> Spare {
        spare
    }

    fn age(&mut self, _now: u64, _max: u32) {}

    fn rows(&self, from: u32, out: &mut RowBuf) -> Option<u32> {
        if from > 0 {
            return None;
        }
        let queue_depth = self.fifo.len();
        let row = Row {
            active: queue_depth > 0 || self.row.requests > 0,
            queue_depth,
            ..self.row
        };
        match out.push(row) {
            Ok(()) => None,
            Err(_) => Some(0),
        }
    }

    fn reset(&mut self, _from: u32, _max: u32) -> Option<u32> {
        self.row = Row {
            requests: self.row.requests,
            ..Row::new(Key::Default, 0)
        };
        None
    }

    fn overflow(&self) -> u64 {
        0
    }
}
