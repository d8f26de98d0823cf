// SPDX-License-Identifier: MIT OR Apache-2.0

//! What is read, and the times in it.

use std::time::Duration;

use crate::{wire, Early, Nid, Reconnect, Recovered, Released};

/// Milliseconds of `time`, at most what fits.
pub(crate) fn in_ms(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

fn of_ms(time: u32) -> Duration {
    Duration::from_millis(time.into())
}

impl Released {
    /// Whether its deadline passed, so that its client has given up.
    pub const fn is_expired(&self) -> bool {
        self.header.flags & wire::RELEASED_EXPIRED != 0
    }

    /// The worst service time now, which its client is told with the reply.
    pub fn estimate(&self) -> Duration {
        of_ms(self.estimate_ms)
    }

    /// Time until its deadline; `None`: it has none, or it passed.
    pub fn left(&self) -> Option<Duration> {
        (self.left_ms != 0).then(|| of_ms(self.left_ms))
    }
}

impl Early {
    /// How long the client is to wait in all, from the arrival of the request on.
    pub fn timeout(&self) -> Duration {
        of_ms(self.timeout_ms)
    }

    /// The worst service time now.
    pub fn estimate(&self) -> Duration {
        of_ms(self.estimate_ms)
    }
}

impl Recovered {
    /// Largest timeout of those that came back.
    pub fn largest(&self) -> Duration {
        of_ms(self.largest_ms)
    }
}

impl Reconnect {
    /// The client with this network identifier, which waits for `timeout`, is back.
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

/// What is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request is to be served now.
    Released(Released),
    /// The client of a request is to wait for longer.
    Early(Early),
    /// All clients that are to come back are back, or will not come.
    Recovered(Recovered),
}
