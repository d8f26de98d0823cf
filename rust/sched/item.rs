// SPDX-License-Identifier: GPL-2.0-only

//! Requests as they travel through policies.
//!
//! A queued item is found again by its place ([`Place`]); its mark is a number that the policy holding it notes.
//!
//! ```text
//!             register                                 unregister
//!   anonymous ─────────▶ registered: can be taken out ───────────▶ anonymous: may go
//! ```

/// Which way the bulk transfer of a request goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// To the client.
    Read,
    /// From the client.
    Write,
    /// Nowhere, or nobody said.
    #[default]
    Other,
}

/// What a request costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Pages of the bulk transfer, at least 1.
    pub pages: u32,
    /// Bytes of the bulk transfer; 0 if there is none.
    pub bytes: u64,
    /// Which way they go.
    pub direction: Direction,
}

impl Cost {
    /// The cost of a transfer of `bytes`, nobody knows which way.
    pub const fn of_bytes(bytes: u64) -> Self {
        Self::new(Direction::Other, bytes)
    }

    /// The cost of a transfer of `bytes`, with pages of 4096 bytes rounded up, at least one.
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
        }
    }
}

/// The range of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    /// What the range is in: a target of the service, or what a program in user space says.
    pub object: u64,
    /// First byte of the range on the device.
    pub offset: u64,
    /// First byte of the range in the file that it belongs to; `offset` where nobody knows.
    pub logical: u64,
    /// Bytes of the range.
    pub length: u64,
}

impl Spot {
    /// A range of a device, of nobody knows which file.
    pub const fn new(object: u64, offset: u64, length: u64) -> Self {
        Self {
            object,
            offset,
            logical: offset,
            length,
        }
    }
}

/// A request that a front-end handed over.
///
/// It is owned: it is in one place at a time and leaves exactly once. Dropping an item that is still
/// queued would lose a request, so queues hand everything back.
pub trait Item: Sized {
    /// The queue that links items through their own memory.
    type Fifo: Fifo<Item = Self>;

    /// By which a queued item is found again.
    type Place: Place;

    /// What the request costs.
    fn cost(&self) -> Cost;

    /// When it arrived, monotonic nanoseconds.
    fn arrival(&self) -> u64;

    /// Its range.
    fn spot(&self) -> Spot;

    /// What the policy that holds it noted last; 0 on arrival.
    fn mark(&self) -> u64;

    /// Notes `mark`.
    fn set_mark(&mut self, mark: u64);

    /// Makes the place by which it is found while it is queued. Until [`Item::unregister`] it cannot be
    /// served.
    #[must_use]
    fn register(&mut self) -> Self::Place;

    /// Takes the place back that [`Item::register`] made.
    fn unregister(&mut self, place: Self::Place);
}

/// By which a queued item is found again: there is one for a registered item, and none for another.
pub trait Place {
    /// What the policy that holds the item noted last.
    fn mark(&self) -> u64;
}

/// A first-in first-out queue that never allocates on `push`.
pub trait Fifo {
    /// What is queued.
    type Item: Item;

    /// An empty queue.
    fn new() -> Self;

    /// Appends `item`.
    fn push(&mut self, item: Self::Item);

    /// Takes the oldest item.
    fn pop(&mut self) -> Option<Self::Item>;

    /// Takes the item at `place` out, O(1); `None` if it is not in this queue.
    fn remove(&mut self, place: &<Self::Item as Item>::Place) -> Option<Self::Item>;

    /// The oldest item.
    fn front(&self) -> Option<&Self::Item>;

    /// Number of items.
    fn len(&self) -> u32;

    /// Whether nothing is queued.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
