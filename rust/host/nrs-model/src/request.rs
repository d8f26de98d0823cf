// SPDX-License-Identifier: GPL-2.0-only

//! Requests of the model.

use crate::partition::{Placement, Scheduled};
use nrs_sched::item::{self, ByteRange, Cost};
use std::collections::VecDeque;

/// A request of the model.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// Unique number of the request.
    pub id: u64,
    mark: u64,
    placement: Placement,
}

impl Request {
    /// Creates request `id`, with `placement`.
    pub const fn new(id: u64, placement: Placement) -> Self {
        Self {
            id,
            mark: 0,
            placement,
        }
    }
}

/// Reference to a queued request by id.
pub struct RequestHandle(u64);

impl item::ItemHandle for RequestHandle {
    fn mark(&self) -> u64 {
        0
    }
}

impl item::Item for Request {
    type Fifo = Fifo;
    type Handle = RequestHandle;

    fn cost(&self) -> Cost {
        Cost::of_bytes(4096)
    }

    fn arrival(&self) -> u64 {
        self.id
    }

    fn byte_range(&self) -> ByteRange {
        ByteRange::default()
    }

    fn mark(&self) -> u64 {
        self.mark
    }

    fn set_mark(&mut self, mark: u64) {
        self.mark = mark;
    }

    fn register(&mut self) -> RequestHandle {
        RequestHandle(self.id)
    }

    fn unregister(&mut self, handle: RequestHandle) {
        assert_eq!(handle.0, self.id);
    }
}

impl Scheduled for Request {
    fn placement(&self) -> &Placement {
        &self.placement
    }

    fn placement_mut(&mut self) -> &mut Placement {
        &mut self.placement
    }
}

/// A queue of requests.
pub struct Fifo(VecDeque<Request>);

impl item::Fifo for Fifo {
    type Item = Request;

    fn new() -> Self {
        Self(VecDeque::new())
    }

    fn push(&mut self, item: Request) {
        self.0.push_back(item);
    }

    fn pop(&mut self) -> Option<Request> {
        self.0.pop_front()
    }

    fn remove(&mut self, handle: &RequestHandle) -> Option<Request> {
        let at = self.0.iter().position(|request| request.id == handle.0)?;
        self.0.remove(at)
    }

    fn front(&self) -> Option<&Request> {
        self.0.front()
    }

    fn len(&self) -> u32 {
        self.0.len() as u32
    }
}
