// SPDX-License-Identifier: MIT OR Apache-2.0

//! Constructors of records with their type and size; fields that are not given are unset.

use super::{
    Busy, Completion, Early, Header, Promotion, Reconnect, Recovered, Released, Request, WireField,
    ID_ABSENT, NET_NONE, TYPE_BUSY, TYPE_COMPLETION, TYPE_EARLY, TYPE_PROMOTE, TYPE_RECONNECT,
    TYPE_RECOVERED, TYPE_RELEASED, TYPE_REQUEST,
};

impl Header {
    const fn of(kind: u16, size: usize, flags: u32) -> Self {
        Self {
            kind,
            size: size as u16,
            flags,
        }
    }
}

impl Request {
    /// Creates a request without any attribute.
    pub const fn new(cookie: u64) -> Self {
        Self {
            header: Header::of(TYPE_REQUEST, Self::SIZE, 0),
            cookie,
            uid: ID_ABSENT,
            gid: ID_ABSENT,
            projid: ID_ABSENT,
            nodemap: ID_ABSENT,
            net: NET_NONE,
            ..Self::ZERO
        }
    }
}

impl Promotion {
    /// Creates a record that moves request `cookie` to high priority.
    pub const fn new(cookie: u64) -> Self {
        Self {
            header: Header::of(TYPE_PROMOTE, Self::SIZE, 0),
            cookie,
        }
    }
}

impl Completion {
    /// Creates the completion of request `cookie`.
    pub const fn new(cookie: u64, status: u32, bytes: u64) -> Self {
        Self {
            header: Header::of(TYPE_COMPLETION, Self::SIZE, 0),
            cookie,
            status,
            bytes,
            ..Self::ZERO
        }
    }
}

impl Released {
    /// Creates the release of request `cookie`.
    pub const fn new(cookie: u64, wait_ns: u64, flags: u32) -> Self {
        Self {
            header: Header::of(TYPE_RELEASED, Self::SIZE, flags),
            cookie,
            wait_ns,
            ..Self::ZERO
        }
    }
}

impl Early {
    /// Creates an early reply: the client of request `cookie` extends its timeout to `timeout_ms`.
    pub const fn new(cookie: u64, timeout_ms: u32, estimate_ms: u32, flags: u32) -> Self {
        Self {
            header: Header::of(TYPE_EARLY, Self::SIZE, flags),
            cookie,
            timeout_ms,
            estimate_ms,
        }
    }
}

impl Recovered {
    /// Creates the end of a recovery in which `clients` reconnected.
    pub const fn new(clients: u32, largest_ms: u32) -> Self {
        Self {
            header: Header::of(TYPE_RECOVERED, Self::SIZE, 0),
            clients,
            largest_ms,
        }
    }
}

impl Busy {
    /// Creates a report that request `cookie` takes `extra_ms` longer, from now on.
    pub const fn new(cookie: u64, extra_ms: u32) -> Self {
        Self {
            header: Header::of(TYPE_BUSY, Self::SIZE, 0),
            cookie,
            extra_ms,
            ..Self::ZERO
        }
    }
}

impl Reconnect {
    /// Creates a report that a client with timeout `timeout_ms` reconnected; its network identifier
    /// is unknown.
    pub const fn new(timeout_ms: u32) -> Self {
        Self {
            header: Header::of(TYPE_RECONNECT, Self::SIZE, 0),
            net: NET_NONE,
            timeout_ms,
            ..Self::ZERO
        }
    }
}
