// SPDX-License-Identifier: GPL-2.0-only

//! Interface of the agent to the module: one service, bound through `/dev/nrs-control`.

use std::{io, time::Duration};

use nrs_client::agent::{Agent, Refused};

/// Nodes of the service as read from the module, with local ids, which are hashed with a seed of
/// the module.
pub use nrs_client::agent::{Account as Node, Accounts as Reading, Name as NodeName};

/// Error number of [`Kernel::write`] if the instance has ended (ESTALE).
pub const STALE: i32 = 116;

/// Error number if the service was removed (ENODEV).
pub const REMOVED: i32 = 19;

/// Returns the error number of a failed command.
pub fn errno(error: &io::Error) -> Option<i32> {
    let source = error.get_ref();
    let refused = source.and_then(|source| source.downcast_ref::<Refused>());
    refused.map_or(error.raw_os_error(), |refused| Some(refused.errno))
}

/// Returns true if a failed command can succeed at the next step (ENOMEM, EAGAIN, EINTR).
pub fn is_transient(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, OutOfMemory, WouldBlock};
    matches!(error.kind(), OutOfMemory | WouldBlock | Interrupted)
}

/// Binding of the agent to a service of the module; dropping it unbinds.
///
/// # Errors
///
/// All methods return the error of the module; see [`errno`]. [`REMOVED`]: the service was removed.
pub trait Kernel {
    /// Returns the nodes that changed since the last read, or all nodes if `all`; one record per
    /// node.
    fn read(&mut self, all: bool) -> io::Result<Reading>;

    /// Returns the names of the existing nodes among `ids`.
    fn names(&mut self, ids: &[u64]) -> io::Result<Vec<NodeName>>;

    /// Replaces all factors (Q31), ordered by local id, for the duration of `lease`. [`STALE`]: the
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
        self.factors(instance, lease, factors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_module_have_numbers() {
        let refused = |errno| {
            let kind = io::Error::from_raw_os_error(errno).kind();
            let reason = String::new();
            io::Error::new(kind, Refused { errno, reason })
        };
        for number in [STALE, REMOVED] {
            assert_eq!(errno(&refused(number)), Some(number));
            assert_eq!(errno(&io::Error::from_raw_os_error(number)), Some(number));
            assert!(!is_transient(&refused(number)));
        }
        // ENOMEM, EAGAIN, EINTR.
        for number in [12, 11, 4] {
            assert!(is_transient(&refused(number)));
        }
        assert_eq!(errno(&io::ErrorKind::InvalidData.into()), None);
    }
}
