// SPDX-License-Identifier: GPL-2.0-only

//! Whether a service makes progress.

use core::fmt::Write;

use kernel::prelude::*;

use super::Service;
use crate::{
    sched::health::{self, Factor, Limits},
    sys::{atomic::Hint, misc},
};

/// How long is too long.
pub(super) struct Patience {
    factor: Hint,
}

impl Patience {
    /// As it is unless somebody says otherwise.
    pub(super) fn new() -> Self {
        Self {
            factor: Hint::new(Factor::default().get().into()),
        }
    }

    /// Takes over what `other` says.
    pub(super) fn adopt(&self, other: &Self) {
        self.factor.set(other.factor.get());
    }
}

impl Service {
    /// How many times as long a service may stand still before it counts as unhealthy; 0: for ever.
    pub(crate) fn unhealthy_factor(&self) -> u32 {
        self.patience.factor.get() as u32
    }

    /// Sets how many times as long a service may stand still.
    pub(crate) fn set_unhealthy_factor(&self, factor: Factor) {
        self.patience.factor.set(factor.get().into());
    }

    /// Writes whether the service makes progress, and what that is judged by.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: what `out` cannot take.
    pub(crate) fn write_health(&self, out: &mut dyn Write) -> Result {
        let seen = self.partitions.iter().map(|partition| partition.seen());
        let limits = Limits::new(self.timeouts.terms().max, self.unhealthy_factor());
        write!(out, "{}", health::judge(seen, limits, misc::now())).map_err(|_| ENOSPC)
    }
}
