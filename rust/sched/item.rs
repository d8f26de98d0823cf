// SPDX-License-Identifier: GPL-2.0-only

//! Requests inside policies.
//!
//! A queued item is found by its handle ([`ItemHandle`]). The mark of an item is a number that the
//! policy stores in it.
//!
//! ```text
//!             register                                          unregister
//!   anonymous ─────────▶ registered: can be dequeued by handle ──────────▶ anonymous: can start
//! ```

/// Direction of the bulk transfer of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// From server to client.
    Read,
    /// From client to server.
    Write,
    /// No transfer, or unknown.
    #[default]
    Other,
}

/// Cost of a request.
///
/// # Examples
///
/// ```
/// use nrs_sched::{bucket::rate::RateUnit, item::Cost};
///
/// // Pages are rounded up; a request without data costs a page, and no bytes.
/// assert_eq!([0, 1, 4096, 4097].map(|bytes| Cost::of_bytes(bytes).pages), [1, 1, 1, 2]);
/// assert_eq!(Cost::of_bytes(0).bytes, 0);
/// // Of a request in pieces, all bytes count, but only the last piece counts as a request.
/// let piece = Cost { is_piece: true, ..Cost::of_bytes(1 << 20) };
/// assert_eq!(RateUnit::Requests.of(piece), 0);
/// assert_eq!(RateUnit::Bytes.of(piece), 1 << 20);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Pages of the bulk transfer, at least 1.
    pub pages: u32,
    /// Bytes of the bulk transfer; 0 if there is none.
    pub bytes: u64,
    /// Direction of the transfer.
    pub direction: Direction,
    /// True for a piece of a larger request, unless it is the last one: only that counts as a
    /// request.
    pub is_piece: bool,
}

impl Cost {
    /// Returns the cost of a transfer of `bytes` in unknown direction.
    pub const fn of_bytes(bytes: u64) -> Self {
        Self::new(Direction::Other, bytes)
    }

    /// Returns the cost of a transfer of `bytes`; pages of 4096 bytes are rounded up, at least one.
    pub const fn new(direction: Direction, bytes: u64) -> Self {
        let last = bytes.saturating_sub(1) / 4096;
        let pages = if last >= u32::MAX as u64 {
            u32::MAX
        } else {
            (last as u32).wrapping_add(1)
        };
        Self {
            pages,
            bytes,
            direction,
            is_piece: false,
        }
    }
}

/// Range of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteRange {
    /// Object that contains the range: a target of the service, or as reported by a program in user
    /// space.
    pub object: u64,
    /// First byte of the range on the device.
    pub offset: u64,
    /// First byte of the range in its file; `offset` if unknown.
    pub logical: u64,
    /// Length of the range, bytes.
    pub length: u64,
}

impl ByteRange {
    /// Creates a range of a device in an unknown file.
    pub const fn new(object: u64, offset: u64, length: u64) -> Self {
        Self {
            object,
            offset,
            logical: offset,
            length,
        }
    }
}

/// Request from a front end.
///
/// An item is owned by exactly one container at a time and leaves the scheduler exactly once.
/// Dropping a queued item would lose the request, so queues return all items.
pub trait Item: Sized {
    /// Queue that links items through their own memory.
    type Fifo: Fifo<Item = Self>;

    /// Reference by which a queued item is found.
    type Handle: ItemHandle;

    /// Returns the cost of the request.
    fn cost(&self) -> Cost;

    /// Returns the arrival time, monotonic ns.
    fn arrival(&self) -> u64;

    /// Returns the range of the request.
    fn byte_range(&self) -> ByteRange;

    /// Returns the mark that the policy stored last; 0 on arrival.
    fn mark(&self) -> u64;

    /// Stores `mark`.
    fn set_mark(&mut self, mark: u64);

    /// Creates the handle by which the item is found while queued. The item must not be dispatched
    /// before [`Item::unregister`].
    #[must_use]
    fn register(&mut self) -> Self::Handle;

    /// Takes back the handle that [`Item::register`] created.
    fn unregister(&mut self, handle: Self::Handle);
}

/// Reference by which a queued item is found; exists exactly for registered items.
pub trait ItemHandle {
    /// Returns the mark that the policy stored last.
    fn mark(&self) -> u64;
}

/// FIFO queue whose `push` never allocates.
pub trait Fifo {
    /// Type of queued items.
    type Item: Item;

    /// Creates an empty queue.
    fn new() -> Self;

    /// Appends `item`.
    fn push(&mut self, item: Self::Item);

    /// Removes the oldest item.
    fn pop(&mut self) -> Option<Self::Item>;

    /// Removes the item at `handle`, O(1); `None` if it is not in this queue.
    fn remove(&mut self, handle: &<Self::Item as Item>::Handle) -> Option<Self::Item>;

    /// Returns the oldest item.
    fn front(&self) -> Option<&Self::Item>;

    /// Returns the number of items.
    fn len(&self) -> u32;

    /// Returns true if the queue is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
