// SPDX-License-Identifier: GPL-2.0-only

//! Requests that a device pulls: decided one by one, when the device asks for them.
//!
//! A request that is dispatched early waits at a device that accepts none, and no later request can
//! go before it. At a target whose device pulls, an event therefore dispatches nothing. It only
//! finds out whether a request could be dispatched, and if so opens the gate:
//!
//! ```text
//!             an event finds that a request could be dispatched: notify the device
//!           ┌──────────────────────────────────────────────────────────────────────┐
//!           │                                                                      ▼
//!        closed                                                                  open
//!           ▲                                                                      │
//!           └──────────────────────────────────────────────────────────────────────┘
//!             the device pulls: decides one request; opens again if one more could be dispatched
//! ```
//!
//! A device that was notified pulls until the gate is closed. No wake-up is lost: an event returns
//! its slot, or marks its partition, before it opens the gate, and a pull closes the gate before it
//! looks for slots and partitions. These operations are in one total order
//! ([`crate::sched::atomic`]). So if the event finds the gate open, the pull that closes it later
//! finds the slot and the partition.

use super::round::{self, RoundPartitions};
use crate::sched::atomic::AtomicWord;

/// Whether a request could be dispatched to a device that pulls.
pub struct PullGate(AtomicWord);

impl PullGate {
    /// Creates a closed gate.
    pub const fn new() -> Self {
        Self(AtomicWord::new(0))
    }

    /// Returns true if a request could be dispatched.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.0.get() != 0
    }

    /// Returns the maximum number of requests that an event dispatches, as
    /// [`Env::batch`](super::Env::batch) does.
    #[inline]
    pub fn batch(&self) -> Option<u32> {
        (!self.is_open()).then_some(0)
    }

    /// Opens the gate; returns true if it was closed, so that the device must be notified.
    #[inline]
    pub fn open(&self) -> bool {
        self.0.swap(1) == 0
    }

    /// Closes the gate of a target whose partitions have no requests.
    pub fn reset(&self) {
        self.0.set(0);
    }

    /// Closes the gate and dispatches up to one request of `partitions`, whose environment opens
    /// the gate again if one more could be dispatched.
    #[inline]
    pub fn pull(&self, partitions: &mut impl RoundPartitions) {
        self.0.set(0);
        if partitions.slot_pool().has_several_partitions() {
            round::dispatch(partitions, 0, 1);
        } else {
            partitions.decide(0, 1);
        }
    }
}

impl Default for PullGate {
    fn default() -> Self {
        Self::new()
    }
}
