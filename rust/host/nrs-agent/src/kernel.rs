// SPDX-License-Identifier: GPL-2.0-only

//! The module as the agent sees it: one service, bound through `/dev/nrs-control`.

use std::{io, time::Duration};

/// Error number of [`Kernel::write`] for an instance that has ended (ESTALE).
pub const STALE: i32 = 116;

/// Accounts of one reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Instance of the policy: another one after a change of the mode or the cost model, and after a restart; not 0.
    pub instance: u64,
    /// Time of the reading by CLOCK_MONOTONIC, ns.
    pub time_ns: u64,
    /// Hash of the mode and the cost model, equal on all servers; 0: the policy has no accounts.
    pub terms: u64,
    /// Nodes; a node of several partitions has a record of each.
    pub nodes: Vec<Node>,
}

/// Record of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Local id, hashed with a seed of the module.
    pub id: u64,
    /// Local id of the node above; 0 for the root.
    pub parent: u64,
    /// Service, units of cost, wrapping.
    pub service: u64,
    /// Weight without factor.
    pub weight: u32,
    /// Level in the mode, from 0, the outermost.
    pub level: u32,
    /// Whether the node is a leaf.
    pub leaf: bool,
    /// Whether the node has requests, queued or in flight.
    pub active: bool,
    /// Whether the node has queued requests.
    pub waiting: bool,
    /// Whether the node is removed: its last record.
    pub gone: bool,
}

/// Name of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeName {
    /// Local id.
    pub id: u64,
    /// Name of its level in the mode, such as `uid`.
    pub level: String,
    /// Key as in `nrs_fairshare_stats`, such as `uid:1000`.
    pub key: String,
}

/// A service of the module to which the agent is bound, until it is dropped.
///
/// # Errors
///
/// All methods: what the module answers. The service may have been removed (ENODEV).
pub trait Kernel {
    /// Returns the nodes that changed since the last reading, or all; of a node that changed, the records of all partitions.
    fn read(&mut self, all: bool) -> io::Result<Reading>;

    /// Returns the names of those of `ids` that exist.
    fn names(&mut self, ids: &[u64]) -> io::Result<Vec<NodeName>>;

    /// Replaces all factors (Q31), which are in the order of their local ids, for the time of `lease`. [`STALE`]: the
    /// instance has ended.
    fn write(&mut self, instance: u64, lease: Duration, factors: &[(u64, u32)]) -> io::Result<()>;
}
