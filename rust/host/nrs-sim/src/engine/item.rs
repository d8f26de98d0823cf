// SPDX-License-Identifier: GPL-2.0-only

//! Requests: their records in the engine, and their representation in policies.
//!
//! - *Record*: the state of a request from sending to the answer ([`Record`]).
//! - *Item*: the request as policies queue it, with the index of its record ([`Item`]).

use nrs_sched::{
    head::HeadTicket,
    item::{self, ByteRange, Cost, Direction},
    partition::{Placement, Scheduled},
    rng::avalanche,
};
use std::collections::VecDeque;

/// Size of a disk, bytes.
pub const DISK: u64 = 1 << 42;

/// Operation of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Op {
    /// Read of data.
    #[default]
    Read,
    /// Write of data.
    Write,
    /// Operation on names or attributes.
    Metadata,
}

/// Request, from sending to the answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Record {
    /// Index of the job.
    pub job: u32,
    /// Index of the node that sent the request.
    pub node: u32,
    /// Index of the process that sent the request; an open loop has one process per node.
    pub proc: u32,
    /// Index of the server.
    pub server: u32,
    /// Operation of the request.
    pub op: Op,
    /// Bytes that the request moves.
    pub bytes: u64,
    /// Number of the file.
    pub object: u64,
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Time of sending by the client, ns.
    pub sent: u64,
    /// Time of arrival at the server, ns.
    pub arrived: u64,
    /// Time of dispatch to the device, ns.
    pub started: u64,
    /// Service time at the device, ns.
    pub device_ns: u64,
    /// Ticket of the head; `None` if the request was never queued.
    pub ticket: Option<HeadTicket>,
}

impl Record {
    /// Returns the cost of the request.
    pub fn cost(&self) -> Cost {
        let direction = match self.op {
            Op::Read => Direction::Read,
            Op::Write => Direction::Write,
            Op::Metadata => Direction::Other,
        };
        Cost::new(direction, self.bytes)
    }

    /// Returns the position of the data on a disk, bytes.
    pub fn disk_offset(&self) -> u64 {
        avalanche(self.object).wrapping_add(self.offset) % DISK
    }
}

/// Request as policies queue it.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// Index of its record.
    pub idx: u32,
    cost: Cost,
    arrival: u64,
    /// Position on the disk.
    range: ByteRange,
    mark: u64,
    placement: Placement,
}

impl Item {
    /// Creates the item of `record`, which is at index `idx` and arrives at its server now.
    pub fn new(idx: u32, record: &Record) -> Self {
        Self {
            idx,
            cost: record.cost(),
            arrival: record.arrived,
            range: ByteRange::new(record.object, record.disk_offset(), record.bytes),
            mark: 0,
            placement: Placement::default(),
        }
    }
}

/// Uninhabited handle type: the engine never looks up queued requests.
pub enum Nowhere {}

impl item::ItemHandle for Nowhere {
    fn mark(&self) -> u64 {
        match *self {}
    }
}

impl item::Item for Item {
    type Fifo = Fifo;
    type Handle = Nowhere;

    fn cost(&self) -> Cost {
        self.cost
    }

    fn arrival(&self) -> u64 {
        self.arrival
    }

    fn byte_range(&self) -> ByteRange {
        self.range
    }

    fn mark(&self) -> u64 {
        self.mark
    }

    fn set_mark(&mut self, mark: u64) {
        self.mark = mark;
    }

    /// Panics: only an order table calls this function, and the engine has none.
    fn register(&mut self) -> Nowhere {
        unreachable!("no order table")
    }

    fn unregister(&mut self, handle: Nowhere) {
        match handle {}
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

/// Queue of requests; keeps its memory when requests leave.
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

    fn remove(&mut self, handle: &Nowhere) -> Option<Item> {
        match *handle {}
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

    /// Verifies that metadata operations cost a page and move nothing.
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
