// SPDX-License-Identifier: MIT OR Apache-2.0

//! Records that are read, and the times in them.

use std::time::Duration;

use crate::{wire, Early, Nid, Reconnect, Recovered, Released};

/// Converts `time` to milliseconds, saturating.
pub(crate) fn in_ms(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

fn of_ms(time: u32) -> Duration {
    Duration::from_millis(time.into())
}

impl Released {
    /// Returns true if the deadline has passed, so that the client has given up.
    pub const fn is_expired(&self) -> bool {
        self.header.flags & wire::RELEASED_EXPIRED != 0
    }

    /// Returns the worst service time now, to be sent to the client with the reply.
    pub fn estimate(&self) -> Duration {
        of_ms(self.estimate_ms)
    }

    /// Returns the time until the deadline; `None` if there is no deadline or it has passed.
    pub fn left(&self) -> Option<Duration> {
        (self.left_ms != 0).then(|| of_ms(self.left_ms))
    }
}

impl Early {
    /// Returns the total timeout for the client, from the arrival of the request.
    pub fn timeout(&self) -> Duration {
        of_ms(self.timeout_ms)
    }

    /// Returns the worst service time now.
    pub fn estimate(&self) -> Duration {
        of_ms(self.estimate_ms)
    }
}

impl Recovered {
    /// Returns the largest timeout of the reconnected clients.
    pub fn largest(&self) -> Duration {
        of_ms(self.largest_ms)
    }
}

impl Reconnect {
    /// Reports that the client `nid`, whose requests have this `timeout`, has reconnected.
    pub fn of(nid: &Nid, timeout: Duration) -> Self {
        let (address, address_len) = nid.address();
        Self {
            net: nid.net,
            net_number: nid.number,
            address_len,
            address,
            ..Self::new(in_ms(timeout))
        }
    }
}

/// A record read from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request was dispatched and is to be served now.
    Released(Released),
    /// The client of a request should extend its timeout.
    Early(Early),
    /// All expected clients have reconnected, or will not.
    Recovered(Recovered),
}
