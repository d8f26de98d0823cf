// SPDX-License-Identifier: GPL-2.0-only

//! Queues of requests, linked through their nodes.

use core::{
    marker::PhantomData,
    ptr::{self, NonNull},
};

use super::{Held, Node, NodeHandle};
use crate::{sched::item::Fifo, sys::atomic::AtomicWord};

/// Last number given to a queue.
static QUEUES: AtomicWord = AtomicWord::new(0);

/// A FIFO of requests, linked through their nodes.
///
/// # Invariants
///
/// `first` and `last` are both null or both point to nodes that this queue owns. Following `next`
/// from `first` visits `len` nodes and ends with `last`, whose `next` is null; `prev` is the
/// reverse link. Code outside gets the [`Held`] of the first node by reference only. No other queue
/// has the `number`, unless it is 0; nodes with this number are in this queue.
pub(crate) struct NodeFifo {
    first: Option<Held>,
    last: *mut Node,
    len: u32,
    number: u64,
    _owns: PhantomData<Node>,
}

// SAFETY: The queue owns its nodes, which may move between tasks (see `Held`).
unsafe impl Send for NodeFifo {}
// SAFETY: `&NodeFifo` only returns `&Held`.
unsafe impl Sync for NodeFifo {}

impl NodeFifo {
    /// Appends all of `other`, in order.
    pub(crate) fn append(&mut self, other: &mut Self) {
        let Some(first) = other.first.take() else {
            return;
        };
        let (last, len) = (other.last, other.len);
        other.last = ptr::null_mut();
        other.len = 0;
        // INVARIANT: Nodes with the number are in `self` now, which has another number, so no
        // lookup finds them.
        other.number = 0;
        self.link(first, last, len);
    }

    /// Appends the chain of `len` nodes from `first` to `last`.
    fn link(&mut self, mut first: Held, last: *mut Node, len: u32) {
        first.node_mut().prev = self.last;
        if self.first.is_none() {
            self.first = Some(first);
        } else {
            // SAFETY: The queue is not empty, so by the type invariant `last` is valid and owned by
            // the queue. It may be the node behind `self.first`, to which no reference exists here.
            unsafe { (*self.last).body.next = first.into_node().as_ptr() };
        }
        // INVARIANT: `last` ends the chain linked above.
        self.last = last;
        self.len = self.len.wrapping_add(len);
    }
}

impl Fifo for NodeFifo {
    type Item = Held;

    fn new() -> Self {
        // INVARIANT: Empty.
        Self {
            first: None,
            last: ptr::null_mut(),
            len: 0,
            number: 0,
            _owns: PhantomData,
        }
    }

    fn push(&mut self, mut item: Held) {
        item.node_mut().next = ptr::null_mut();
        if item.is_registered() {
            if self.number == 0 {
                // INVARIANT: The number is unique: the counter would wrap only after 2^64 queues.
                self.number = QUEUES.add(1).wrapping_add(1);
            }
            item.tag().queue.set(self.number);
        }
        let last = item.0.as_ptr();
        self.link(item, last, 1);
    }

    fn pop(&mut self) -> Option<Held> {
        let mut first = self.first.take()?;
        let next = core::mem::replace(&mut first.node_mut().next, ptr::null_mut());
        // SAFETY: By the type invariant `next` is null or owned by this queue, and no `Held` for it
        // exists.
        self.first = NonNull::new(next).map(|node| unsafe { Held::from_raw(node) });
        match &mut self.first {
            Some(next) => next.node_mut().prev = ptr::null_mut(),
            None => self.last = ptr::null_mut(),
        }
        self.len = self.len.wrapping_sub(1);
        // INVARIANT: The node is in no queue.
        first.tag().queue.set(0);
        Some(first)
    }

    fn remove(&mut self, handle: &NodeHandle) -> Option<Held> {
        if self.number == 0 || handle.tag().queue.get() != self.number {
            return None;
        }
        if self.first.as_ref().is_some_and(|first| first.0 == handle.0) {
            return self.pop();
        }
        // SAFETY: The node has the queue's number, so by the type invariant this queue owns it. It
        // is not the first node, so there is no `Held` for it.
        let mut held = unsafe { Held::from_raw(handle.0) };
        let body = held.node_mut();
        let next = core::mem::replace(&mut body.next, ptr::null_mut());
        let prev = core::mem::replace(&mut body.prev, ptr::null_mut());
        // SAFETY: The node is not the first, so it has a predecessor, which the queue owns. No
        // reference to the predecessor's body exists, even if it is the first node.
        unsafe { (*prev).body.next = next };
        if next.is_null() {
            self.last = prev;
        } else {
            // SAFETY: The queue owns the successor, which is not the first node.
            unsafe { (*next).body.prev = prev };
        }
        self.len = self.len.wrapping_sub(1);
        // INVARIANT: The node is in no queue.
        held.tag().queue.set(0);
        Some(held)
    }

    fn front(&self) -> Option<&Held> {
        self.first.as_ref()
    }

    fn len(&self) -> u32 {
        self.len
    }
}

#[kernel::prelude::kunit_tests(nrs_node)]
mod tests {
    use super::{super::test_request, *};
    use kernel::prelude::*;

    use crate::sched::{
        attr::Priority,
        item::{self, Item},
    };

    fn arrivals(fifo: &mut NodeFifo) -> [u64; 4] {
        let mut seen = [0; 4];
        for place in &mut seen {
            if let Some(held) = fifo.pop() {
                *place = held.arrival();
                test_request::discard(held);
            }
        }
        seen
    }

    #[test]
    fn fifo_keeps_order() -> Result {
        let probe = test_request::SubmitProbe::new()?;
        let mut fifo = NodeFifo::new();
        for arrival in 1..=3 {
            fifo.push(test_request::request(
                &probe,
                arrival,
                4096,
                Priority::Regular,
            )?);
        }
        let (len, front) = (fifo.len(), fifo.front().map(Item::arrival));
        let seen = arrivals(&mut fifo);
        let none = fifo.is_empty() && fifo.front().is_none();
        // An emptied queue can be used again.
        fifo.push(test_request::request(&probe, 4, 0, Priority::Regular)?);
        let again = arrivals(&mut fifo);
        assert!(len == 3 && front == Some(1) && none);
        assert!(seen == [1, 2, 3, 0] && again == [4, 0, 0, 0]);
        Ok(())
    }

    #[test]
    fn append_moves_everything() -> Result {
        let probe = test_request::SubmitProbe::new()?;
        let (mut a, mut b) = (NodeFifo::new(), NodeFifo::new());
        a.append(&mut b);
        let nothing = a.is_empty();
        a.push(test_request::request(&probe, 1, 0, Priority::Regular)?);
        b.push(test_request::request(&probe, 2, 0, Priority::Regular)?);
        b.push(test_request::request(&probe, 3, 0, Priority::Regular)?);
        a.append(&mut b);
        a.push(test_request::request(&probe, 4, 0, Priority::Regular)?);
        let lens = (a.len(), b.len());
        let seen = arrivals(&mut a);
        assert!(nothing && lens == (4, 0));
        assert!(seen == [1, 2, 3, 4]);
        Ok(())
    }

    #[test]
    fn a_registered_request_is_found() -> Result {
        let probe = test_request::SubmitProbe::new()?;
        let (mut fifo, mut other) = (NodeFifo::new(), NodeFifo::new());
        let mut handles = [const { None }; 5];
        for (arrival, handle) in (1..=5).zip(&mut handles) {
            let mut held = test_request::request(&probe, arrival, 0, Priority::Regular)?;
            held.set_mark(arrival * 10);
            // The second request is not registered.
            *handle = (arrival != 2).then(|| held.register());
            fifo.push(held);
        }
        let mut good = true;
        // Removes from the middle, the end and the beginning.
        for index in [3, 4, 0] {
            let Some(handle) = handles.get_mut(index).and_then(Option::take) else {
                continue;
            };
            good &= item::ItemHandle::mark(&handle) == (index as u64 + 1) * 10;
            good &= other.remove(&handle).is_none();
            match fifo.remove(&handle) {
                Some(mut held) => {
                    good &= fifo.remove(&handle).is_none();
                    held.unregister(handle);
                    good &= held.arrival() == index as u64 + 1;
                    test_request::discard(held);
                }
                None => {
                    good = false;
                    core::mem::forget(handle);
                }
            }
        }
        good &= fifo.len() == 2;
        // `append` moved the request to a queue without a number, so neither queue finds it.
        other.append(&mut fifo);
        if let Some(handle) = handles.get_mut(2).and_then(Option::take) {
            good &= fifo.remove(&handle).is_none() && other.remove(&handle).is_none();
            while let Some(mut held) = other.pop() {
                if held.arrival() == 3 {
                    held.unregister(handle);
                    test_request::discard(held);
                    break;
                }
                test_request::discard(held);
            }
        }
        assert!(good && other.is_empty());
        Ok(())
    }

    #[test]
    fn submit_consumes_the_request() -> Result {
        let probe = test_request::SubmitProbe::new()?;
        test_request::request(&probe, 1, 0, Priority::Regular)?.submit();
        let seen = probe.submitted();
        assert!(seen == 1);
        Ok(())
    }
}
