// SPDX-License-Identifier: GPL-2.0-only

//! Stores of the requests of classes.

use super::{BatchTag, BatchTurn, Bounds};
use crate::sched::{
    item::{Cost, Item},
    mem::{Grow, NoMemory},
};

/// Class of a bin.
#[derive(Clone, Copy, Debug)]
pub struct BinOwner {
    /// Index of the class.
    pub idx: u32,
    /// Tie-break of the class, if ties are broken by key.
    pub key: [u64; 2],
    /// Number of classes with queued requests, including this class.
    pub busy: u32,
}

impl BinOwner {
    /// Returns the turn of the class in `round`, with ties broken by key.
    pub const fn turn(&self, round: u64) -> BatchTurn {
        BatchTurn {
            round,
            tie: self.key,
        }
    }
}

/// Store of the requests of all classes of a part.
///
/// # Invariants
///
/// A request is returned once, from the bin to which it was added; tags of one bin never decrease.
pub trait BinStore<I: Item>: Grow {
    /// Setting that can change while the store is in use.
    type Setting: Copy + PartialEq;

    /// Queued requests of a class, in the order of dispatch.
    type Bin;

    /// Creates a store for classes and requests within `bounds`; may sleep.
    fn new(bounds: Bounds, setting: Self::Setting) -> Result<Self, NoMemory>
    where
        Self: Sized;

    /// Applies `setting` to later requests; returns the previous setting.
    fn set(&mut self, setting: Self::Setting) -> Self::Setting;

    /// Returns true if the store takes a request of `cost`; other requests are declined.
    fn takes(&self, cost: Cost) -> bool;

    /// Creates an empty bin.
    fn bin() -> Self::Bin;

    /// Adds a request with `tag`.
    fn push(&mut self, at: BinOwner, bin: &mut Self::Bin, item: I, tag: BatchTag);

    /// Returns the tag of the request that [`BinStore::pop`] removes next.
    fn front(&self, bin: &Self::Bin) -> Option<BatchTag>;

    /// Removes the request that is dispatched next; returns the request and its tag.
    fn pop(&mut self, at: BinOwner, bin: &mut Self::Bin) -> Option<(I, BatchTag)>;

    /// Removes the request at `handle`; returns the request and its tag, or `None` if the request
    /// is not in the bin.
    fn remove(
        &mut self,
        at: BinOwner,
        bin: &mut Self::Bin,
        handle: &I::Handle,
    ) -> Option<(I, BatchTag)>;

    /// Returns the index of the class for which [`BinStore::draw`] is to be called, if there is
    /// one.
    fn refill(&self) -> Option<u32>;

    /// Sorts the first request of the bin that was not sorted at its arrival; the tag of the bin's
    /// front stays the same.
    fn draw(&mut self, at: BinOwner, bin: &mut Self::Bin);
}
