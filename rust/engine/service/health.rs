// SPDX-License-Identifier: GPL-2.0-only

//! Whether a service makes progress.

use core::fmt::Write;

use kernel::prelude::*;

use super::Service;
use crate::{
    sched::{
        health::{self, Limits},
        parameters::service::Service as Values,
    },
    sys::{atomic::Hint, misc},
};

/// How long is too long.
pub(super) struct Patience {
    factor: Hint,
}

impl Patience {
    /// What `values` say.
    pub(super) fn new(values: &Values) -> Self {
        Self {
            factor: Hint::new(values.unhealthy_factor.get().into()),
        }
    }

    /// Follows `values`.
    pub(super) fn follow(&self, values: &Values) {
        self.factor.set(values.unhealthy_factor.get().into());
    }
}

impl Service {
    /// Writes whether the service makes progress, and what that is judged by.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: what `out` cannot take.
    pub(crate) fn write_health(&self, out: &mut dyn Write) -> Result {
        let seen = self.partitions.iter().map(|partition| partition.seen());
        let limits = Limits::new(self.timeouts.terms().max, self.patience.factor.get() as u32);
        write!(out, "{}", health::judge(seen, limits, misc::now())).map_err(|_| ENOSPC)
    }
}
