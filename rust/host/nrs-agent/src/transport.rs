// SPDX-License-Identifier: GPL-2.0-only

//! The way of datagrams between agents, and time.

use std::time::Duration;

/// What comes from other agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A datagram.
    Datagram {
        /// Name of the server that the transport holds for its sender.
        server: String,
        /// Group of services that the datagram is for.
        group: String,
        /// The datagram.
        bytes: Vec<u8>,
    },
    /// A server takes part in a group from now on.
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

/// A transport of datagrams: at most once, in any order, without acknowledgements.
pub trait Transport {
    /// Sends a datagram of this server to all other servers of `group`. Never waits for a receiver: what cannot be sent is
    /// lost.
    fn send(&mut self, group: &str, bytes: &[u8]);

    /// Returns the next event; waits for an event up to `timeout`.
    fn receive(&mut self, timeout: Duration) -> Option<Event>;

    /// Returns how many received datagrams were dropped, for lack of room.
    fn dropped(&self) -> u64;
}

/// Clocks, in ns.
pub trait Clock {
    /// Returns the time of CLOCK_MONOTONIC.
    fn now(&self) -> u64;

    /// Returns the time of CLOCK_REALTIME, which all servers share.
    fn shared(&self) -> u64;
}
