// SPDX-License-Identifier: GPL-2.0-only

//! How the requests of classes are kept.

use super::{Bounds, Tag, Turn};
use crate::sched::{
    item::{Cost, Item},
    mem::{Grow, NoMemory},
};

/// The class that a bin belongs to.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// Its slot.
    pub slot: u32,
    /// What breaks its ties, if they are broken by key.
    pub key: [u64; 2],
    /// Number of classes with queued requests, this one included.
    pub busy: u32,
}

impl At {
    /// The turn of the class in `round`, with ties broken by key.
    pub const fn turn(&self, round: u64) -> Turn {
        Turn {
            round,
            tie: self.key,
        }
    }
}

/// What the requests of all classes of a part are kept in.
///
/// # Invariants
///
/// A request comes out of the bin that it was pushed into, once; tags of one bin never go back.
pub trait Store<I: Item>: Grow {
    /// What it can be told while it runs.
    type Setting: Copy + PartialEq;

    /// The queued requests of a class, in the order in which they are served.
    type Bin;

    /// A store for classes and requests within `bounds`; sleeps.
    fn new(bounds: Bounds, setting: Self::Setting) -> Result<Self, NoMemory>
    where
        Self: Sized;

    /// Treats requests that come from now on as `setting` says; returns what it was told before.
    fn set(&mut self, setting: Self::Setting) -> Self::Setting;

    /// Whether a request of `cost` is one to be kept here; if not, it is declined.
    fn takes(&self, cost: Cost) -> bool;

    /// An empty bin.
    fn bin() -> Self::Bin;

    /// Adds a request with `tag`.
    fn push(&mut self, at: At, bin: &mut Self::Bin, item: I, tag: Tag);

    /// The tag of the request that [`Store::pop`] takes next.
    fn front(&self, bin: &Self::Bin) -> Option<Tag>;

    /// Takes the request out that is served next, with its tag.
    fn pop(&mut self, at: At, bin: &mut Self::Bin) -> Option<(I, Tag)>;

    /// Takes the request at `place` out, with its tag; `None` if it is not in the bin.
    fn remove(&mut self, at: At, bin: &mut Self::Bin, place: &I::Place) -> Option<(I, Tag)>;

    /// Slot of the class that [`Store::draw`] is to be called for, if there is any.
    fn refill(&self) -> Option<u32>;

    /// Gives a request of the bin what it had to do without when it came; its front keeps its tag.
    fn draw(&mut self, at: At, bin: &mut Self::Bin);
}
