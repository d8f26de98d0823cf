// SPDX-License-Identifier: GPL-2.0-only

//! The module's interface for agents, `/dev/nrs-control`, as the agent's library sees it.

use std::{io, time::Duration};

use nrs_agent::kernel::{Kernel, Node, NodeName, Reading, STALE};
use nrs_client::agent::{Account, Agent, Name, Refused};

/// A service that is bound.
pub struct Device(Agent);

/// Binds `service`.
///
/// # Errors
///
/// Those of [`Agent::bind`].
pub fn bind(service: &str) -> io::Result<Device> {
    Agent::bind(service).map(Device)
}

/// Returns `account` as the library takes it.
fn node(account: Account) -> Node {
    Node {
        id: account.id,
        parent: account.parent,
        service: account.service,
        weight: account.weight,
        level: account.level,
        leaf: account.leaf,
        active: account.active,
        waiting: account.waiting,
        gone: account.gone,
    }
}

impl Kernel for Device {
    fn read(&mut self, all: bool) -> io::Result<Reading> {
        let accounts = self.0.accounts(all)?;
        Ok(Reading {
            instance: accounts.instance,
            time_ns: accounts.time_ns,
            terms: accounts.terms,
            nodes: accounts.list.into_iter().map(node).collect(),
        })
    }

    fn names(&mut self, ids: &[u64]) -> io::Result<Vec<NodeName>> {
        let name = |Name { id, level, key }| NodeName { id, level, key };
        Ok(self.0.names(ids)?.into_iter().map(name).collect())
    }

    fn write(&mut self, instance: u64, lease: Duration, factors: &[(u64, u32)]) -> io::Result<()> {
        self.0.factors(instance, lease, factors).map_err(|error| {
            let source = error.get_ref();
            let refused = source.and_then(|source| source.downcast_ref::<Refused>());
            match refused {
                Some(refused) if refused.errno == STALE => io::Error::from_raw_os_error(STALE),
                _ => error,
            }
        })
    }
}
