// SPDX-License-Identifier: GPL-2.0-only

//! Requests of the kernel's size: a pointer, in queues of two pointers, a length and a number.
//! Parts with these requests have the kernel's size, so that their memory can be measured on the
//! host.
//!
//! The front-end's data of each request, which the pointer refers to, is stored elsewhere and not
//! counted.

use nrs_sched::item::{ByteRange, Cost, Direction, Fifo, Item, ItemHandle};
use std::{cell::RefCell, num::NonZeroU64};

/// The front-end's data of a request.
#[derive(Clone, Copy)]
struct LeanNode {
    range: ByteRange,
    mark: u64,
    next: Option<NonZeroU64>,
}

thread_local! {
    static NODES: RefCell<Vec<LeanNode>> = const { RefCell::new(Vec::new()) };
}

/// A request of one page; contains the number of the request's node, from 1.
#[derive(Debug)]
pub struct Lean(NonZeroU64);

/// Reference to a queued [`Lean`] request.
#[derive(Debug)]
pub struct LeanHandle(NonZeroU64);

/// A queue of [`Lean`] requests.
pub struct LeanFifo {
    first: Option<Lean>,
    last: u64,
    len: u32,
    _number: u64,
}

const _: () = assert!(size_of::<Option<Lean>>() == 8 && size_of::<LeanFifo>() == 32);

/// Calls `f` with the node `number`.
fn with<T>(number: NonZeroU64, f: impl FnOnce(&mut LeanNode) -> T) -> T {
    NODES.with_borrow_mut(|nodes| {
        let at = usize::try_from(number.get() - 1).expect("made from one");
        f(nodes.get_mut(at).expect("nodes stay"))
    })
}

impl Lean {
    /// Creates a request of one page at `range`; the node exists until the thread ends.
    pub fn new(range: ByteRange) -> Self {
        NODES.with_borrow_mut(|nodes| {
            nodes.push(LeanNode {
                range,
                mark: 0,
                next: None,
            });
            Self(NonZeroU64::new(nodes.len() as u64).expect("one was pushed"))
        })
    }
}

impl ItemHandle for LeanHandle {
    fn mark(&self) -> u64 {
        with(self.0, |node| node.mark)
    }
}

impl Item for Lean {
    type Fifo = LeanFifo;
    type Handle = LeanHandle;

    fn cost(&self) -> Cost {
        Cost::new(Direction::Read, 4096)
    }

    fn arrival(&self) -> u64 {
        0
    }

    fn byte_range(&self) -> ByteRange {
        with(self.0, |node| node.range)
    }

    fn mark(&self) -> u64 {
        with(self.0, |node| node.mark)
    }

    fn set_mark(&mut self, mark: u64) {
        with(self.0, |node| node.mark = mark);
    }

    fn register(&mut self) -> LeanHandle {
        LeanHandle(self.0)
    }

    fn unregister(&mut self, handle: LeanHandle) {
        assert_eq!(self.0, handle.0, "another request's handle");
    }
}

/// Requests are never removed from the middle.
impl Fifo for LeanFifo {
    type Item = Lean;

    fn new() -> Self {
        Self {
            first: None,
            last: 0,
            len: 0,
            _number: 0,
        }
    }

    fn push(&mut self, item: Lean) {
        let number = item.0;
        match NonZeroU64::new(self.last) {
            Some(last) if self.first.is_some() => with(last, |node| node.next = Some(number)),
            _ => self.first = Some(item),
        }
        self.last = number.get();
        self.len += 1;
    }

    fn pop(&mut self) -> Option<Lean> {
        let first = self.first.take()?;
        self.first = with(first.0, |node| node.next.take()).map(Lean);
        self.len -= 1;
        Some(first)
    }

    fn remove(&mut self, _place: &LeanHandle) -> Option<Lean> {
        None
    }

    fn front(&self) -> Option<&Lean> {
        self.first.as_ref()
    }

    fn len(&self) -> u32 {
        self.len
    }
}
