// SPDX-License-Identifier: GPL-2.0-only

//! The worst sample of the history, as Barton and Rutman, *Adaptive RPC Timeouts*, 2007, chose it.

use super::{Method, Terms};

/// The worst sample of a bin, ms; 0: none.
pub(super) struct Worst(u32);

impl Worst {
    /// The sample, ms; 0: none.
    pub(super) const fn get(&self) -> u32 {
        self.0
    }
}

impl Method for Worst {
    const EMPTY: Self = Self(0);

    fn measure(&mut self, sample: u32) {
        self.0 = self.0.max(sample);
    }

    fn judge<'a>(bins: impl Iterator<Item = &'a Self>, _: &Terms) -> Option<u32> {
        bins.map(Self::get).max().filter(|worst| *worst != 0)
    }
}
