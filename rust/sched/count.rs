// SPDX-License-Identifier: GPL-2.0-only

//! Counters.

/// A number that counts events, and stays at its maximum.
pub trait Count {
    /// Counts `more` events.
    fn count(&mut self, more: Self);
}

macro_rules! counters {
    ($($number:ty),+) => {
        $(impl Count for $number {
            #[inline(always)]
            fn count(&mut self, more: Self) {
                *self = self.saturating_add(more);
            }
        })+
    };
}

counters!(u8, u16, u32, u64, usize);
