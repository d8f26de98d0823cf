// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl reset`

use std::io::Write;

use clap::ValueEnum;

use crate::failure::{Failure, Result};
use crate::kernel::Kernel;
use crate::names;

/// Statistics whose counters can be reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ResetTarget {
    /// Entities of fairshare.
    Fairshare,
    /// Rules and classes of tbf.
    Tbf,
    /// Groups and clients of qbm.
    Qbm,
    /// Timeouts and deadlines.
    Timeouts,
}

impl ResetTarget {
    /// Returns the parameter whose write resets the counters.
    const fn parameter(self) -> &'static str {
        match self {
            ResetTarget::Fairshare => "nrs_fairshare_stats_reset",
            ResetTarget::Tbf => "nrs_tbf_stats_reset",
            ResetTarget::Qbm => "nrs_qbm_stats_reset",
            ResetTarget::Timeouts => "at_stats_reset",
        }
    }
}

/// Arguments of `nrsctl reset`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Name or pattern of services, with * ? [...] {a,b}.
    pub service: String,
    /// Statistics to reset (default: all).
    #[arg(value_enum)]
    pub what: Vec<ResetTarget>,
}

/// Resets counters of statistics.
///
/// # Errors
///
/// - [`FailureKind::NotFound`](crate::failure::FailureKind): the service does not exist.
/// - Errors of [`Kernel::set`].
pub fn run(args: &Args, kernel: &dyn Kernel, _out: &mut dyn Write) -> Result {
    let there = kernel.services()?;
    let services = names::services(&args.service, &there)?;
    if services.is_empty() {
        return Err(names::no_service(&args.service, &there));
    }
    let what = match args.what.as_slice() {
        [] => ResetTarget::value_variants(),
        what => what,
    };
    let mut failures = Vec::new();
    for service in services {
        for one in what {
            let done = kernel.set(&service.name, one.parameter(), "1");
            failures.extend(done.err());
        }
    }
    Failure::of(failures)
}
