// SPDX-License-Identifier: GPL-2.0-only

//! Requests: what the engine knows of them, and what policies do.
//!
//! # Vocabulary
//!
//! - *Record*: what the engine knows of a request, from when it is sent to when it is answered ([`Record`]).
//! - *Item*: what is queued in a policy, with the slot of its record ([`Item`]).

use super::device;
use nrs_sched::{
    head::Ticket,
    item::{self, Cost, Direction, Spot},
    partition::{Placement, Scheduled},
};
use std::collections::VecDeque;

/// What a request does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Op {
    /// Reads data.
    #[default]
    Read,
    /// Writes data.
    Write,
    /// Something with names and attributes.
    Metadata,
}

/// A request, from when it is sent to when it is answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Record {
    /// Its job.
    pub job: u32,
    /// The node that sent it.
    pub node: u32,
    /// The process that sent it; in an open loop one that stands for all of the node's.
    pub proc: u32,
    /// Its server.
    pub server: u32,
    /// What it does.
    pub op: Op,
    /// Bytes that it moves.
    pub bytes: u64,
    /// The file that they are in.
    pub object: u64,
    /// Where in the file.
    pub offset: u64,
    /// When the client sent it, ns.
    pub sent: u64,
    /// When it came to its server, ns.
    pub arrived: u64,
    /// When it went to the device, ns.
    pub started: u64,
    /// What the device needs for it, ns.
    pub device_ns: u64,
    /// What its head gave out with it; none for one that was never queued.
    pub ticket: Option<Ticket>,
}

impl Record {
    /// What it costs.
    pub fn cost(&self) -> Cost {
        let direction = match self.op {
            Op::Read => Direction::Read,
            Op::Write => Direction::Write,
            Op::Metadata => Direction::Other,
        };
        Cost::new(direction, self.bytes)
    }
}

/// A request as policies see it.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// Where its record is.
    pub slot: u32,
    cost: Cost,
    arrival: u64,
    /// Where it is on a disk.
    spot: Spot,
    mark: u64,
    placement: Placement,
}

impl Item {
    /// The request of `record`, which is in `slot` and comes to its server now.
    pub fn new(slot: u32, record: &Record) -> Self {
        Self {
            slot,
            cost: record.cost(),
            arrival: record.arrived,
            spot: Spot::new(record.object, device::place(record), record.bytes),
            mark: 0,
            placement: Placement::default(),
        }
    }
}

/// Requests of the engine are never looked for while they are queued: nothing makes one of these.
pub enum Nowhere {}

impl item::Place for Nowhere {
    fn mark(&self) -> u64 {
        match *self {}
    }
}

impl item::Item for Item {
    type Fifo = Fifo;
    type Place = Nowhere;

    fn cost(&self) -> Cost {
        self.cost
    }

    fn arrival(&self) -> u64 {
        self.arrival
    }

    fn spot(&self) -> Spot {
        self.spot
    }

    fn mark(&self) -> u64 {
        self.mark
    }

    fn set_mark(&mut self, mark: u64) {
        self.mark = mark;
    }

    /// Only an order table asks for it, and there is none.
    fn register(&mut self) -> Nowhere {
        unreachable!("no order table")
    }

    fn unregister(&mut self, place: Nowhere) {
        match place {}
    }
}

impl Scheduled for Item {
    fn placement(&self) -> &Placement {
        &self.placement
    }

    fn placement_mut(&mut self) -> &mut Placement {
        &mut self.placement
    }
}

/// A queue of requests; its memory stays for the next ones.
pub struct Fifo(VecDeque<Item>);

impl item::Fifo for Fifo {
    type Item = Item;

    fn new() -> Self {
        Self(VecDeque::new())
    }

    fn push(&mut self, item: Item) {
        self.0.push_back(item);
    }

    fn pop(&mut self) -> Option<Item> {
        self.0.pop_front()
    }

    fn remove(&mut self, place: &Nowhere) -> Option<Item> {
        match *place {}
    }

    fn front(&self) -> Option<&Item> {
        self.0.front()
    }

    fn len(&self) -> u32 {
        self.0.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operations on metadata cost a page and move nothing.
    #[test]
    fn costs() {
        for (op, bytes, pages) in [
            (Op::Read, 4096, 1),
            (Op::Write, 1 << 20, 256),
            (Op::Metadata, 0, 1),
        ] {
            let record = Record {
                op,
                bytes,
                ..Record::default()
            };
            let cost = item::Item::cost(&Item::new(0, &record));
            assert_eq!((cost.pages, cost.bytes), (pages, bytes));
            assert_eq!(cost, record.cost());
        }
    }
}
