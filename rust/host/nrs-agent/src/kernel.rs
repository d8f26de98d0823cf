// SPDX-License-Identifier: GPL-2.0-only

//! The module as the agent sees it: one service, bound through `/dev/nrs-control`.

use std::{io, time::Duration};

use nrs_client::agent::{Agent, Refused};

/// What is read of the service: nodes, by local ids, which are hashed with a seed of the module.
pub use nrs_client::agent::{Account as Node, Accounts as Reading, Name as NodeName};

/// Error number of [`Kernel::write`] for an instance that has ended (ESTALE).
pub const STALE: i32 = 116;

/// A service of the module to which the agent is bound, until it is dropped.
///
/// # Errors
///
/// All methods: what the module answers. The service may have been removed (ENODEV).
pub trait Kernel {
    /// Returns the nodes that changed since the last reading, or all; one record for each.
    fn read(&mut self, all: bool) -> io::Result<Reading>;

    /// Returns the names of those of `ids` that exist.
    fn names(&mut self, ids: &[u64]) -> io::Result<Vec<NodeName>>;

    /// Replaces all factors (Q31), which are in the order of their local ids, for the time of `lease`. [`STALE`]: the
    /// instance has ended.
    fn write(&mut self, instance: u64, lease: Duration, factors: &[(u64, u32)]) -> io::Result<()>;
}

impl Kernel for Agent {
    fn read(&mut self, all: bool) -> io::Result<Reading> {
        self.accounts(all)
    }

    fn names(&mut self, ids: &[u64]) -> io::Result<Vec<NodeName>> {
        Agent::names(self, ids)
    }

    fn write(&mut self, instance: u64, lease: Duration, factors: &[(u64, u32)]) -> io::Result<()> {
        self.factors(instance, lease, factors).map_err(|error| {
            let source = error.get_ref();
            let refused = source.and_then(|source| source.downcast_ref::<Refused>());
            match refused {
                Some(refused) if refused.errno == STALE => io::Error::from_raw_os_error(STALE),
                _ => error,
            }
        })
    }
}
