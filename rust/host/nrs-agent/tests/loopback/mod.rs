// SPDX-License-Identifier: GPL-2.0-only

//! Addresses for tests.

use std::{
    net::{IpAddr, SocketAddr},
    process,
    sync::atomic::{AtomicU8, Ordering},
};

/// Returns an address of the loopback network that no other test of this or another process uses.
/// Its port is outside the range from which the kernel assigns ports to connections.
pub fn address() -> SocketAddr {
    static COUNT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = process::id().to_be_bytes();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    SocketAddr::new(IpAddr::from([127, high, low, count]), 7447)
}
