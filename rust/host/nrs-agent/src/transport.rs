// SPDX-License-Identifier: GPL-2.0-only

//! Interfaces for datagrams between agents, and for clocks.

use std::time::Duration;

/// Event received from other agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Received datagram.
    Datagram {
        /// Name of the sender according to the transport.
        server: String,
        /// Group of services to which the datagram belongs.
        group: String,
        /// Content of the datagram.
        bytes: Vec<u8>,
    },
    /// A server joined a group.
    Joined {
        /// Name of the server.
        server: String,
        /// Name of the group.
        group: String,
    },
    /// A server left a group, or the connection to the server was lost.
    Parted {
        /// Name of the server.
        server: String,
        /// Name of the group.
        group: String,
    },
}

/// Transport of datagrams: at most once, in any order, without acknowledgements.
pub trait Transport {
    /// Sends a datagram of this server to all other servers of `group`. Never waits for a receiver:
    /// datagrams that cannot be sent are dropped.
    fn send(&mut self, group: &str, bytes: &[u8]);

    /// Returns the next event; waits for up to `timeout`.
    fn receive(&mut self, timeout: Duration) -> Option<Event>;

    /// Returns the number of received events that were dropped, for lack of room or because of
    /// their size.
    fn dropped(&self) -> u64;
}

/// Clocks, in ns.
pub trait Clock {
    /// Returns the time of CLOCK_MONOTONIC.
    fn now(&self) -> u64;

    /// Returns the time of CLOCK_REALTIME, which all servers share.
    fn shared(&self) -> u64;
}
