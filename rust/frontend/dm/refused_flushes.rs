// SPDX-License-Identifier: GPL-2.0-only

//! Flushes that ended with a timeout because their device was lost.
//!
//! Device-mapper maps a write with `REQ_PREFLUSH` as a flush, then the data. It drops the error of
//! the flush (`__dm_io_complete()` in dm.c of Linux 7.3), so the data may be mapped when the device
//! is found again, and be durable before earlier writes. Therefore, after a refused flush, each
//! write flushes the cache of the device first, until one of them has succeeded.

use crate::sys::atomic::AtomicWord;

/// Refused flushes of a device.
pub(super) struct RefusedFlushes {
    /// Number of refused flushes, at most [`u32::MAX`].
    refused: AtomicWord,
    /// Number of refused flushes after which a write has flushed the cache.
    made_up: AtomicWord,
}

impl RefusedFlushes {
    pub(super) fn new() -> Self {
        Self {
            refused: AtomicWord::new(0),
            made_up: AtomicWord::new(0),
        }
    }

    /// Counts a refused flush. Called before the flush ends.
    pub(super) fn refuse(&self) {
        let more = |count: u64| (count < u32::MAX.into()).then(|| count.wrapping_add(1));
        // At the maximum, every write flushes the cache.
        let _ = self.refused.change(more);
    }

    /// Returns the number of refused flushes that a write makes up for by flushing the cache; 0:
    /// none.
    #[inline]
    pub(super) fn owed(&self) -> u32 {
        let refused = self.refused.get();
        if refused == self.made_up.get() {
            return 0;
        }
        refused as u32
    }

    /// Records that a write has made up for `flushes` refused flushes.
    #[cold]
    pub(super) fn repay(&self, flushes: u32) {
        if flushes == u32::MAX {
            return;
        }
        let flushes = u64::from(flushes);
        let _ = self
            .made_up
            .change(|made_up| (made_up < flushes).then_some(flushes));
    }
}
