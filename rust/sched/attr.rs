// SPDX-License-Identifier: GPL-2.0-only

//! Attributes of a request: who asks for what.

mod opcode;
mod stream;

use crate::sched::{jobid::JobId, nid::Nid};

/// Largest size of a job, nodes.
pub const SIZE_MAX: u32 = 4096;

pub use opcode::Opcode;
pub use stream::Stream;

/// A numeric identity that may be absent; absent is distinct from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(u32);

impl Id {
    /// No identity: Lustre's 0xffffffff.
    pub const ABSENT: Self = Self(u32::MAX);

    /// Identity `id`; 0xffffffff counts as absent.
    pub const fn new(id: u32) -> Self {
        Self(id)
    }

    /// The number, if there is one.
    pub const fn get(self) -> Option<u32> {
        if self.0 == u32::MAX {
            None
        } else {
            Some(self.0)
        }
    }
}

/// Which head a request goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// The regular head.
    Regular,
    /// The high-priority head.
    High,
}

impl Priority {
    /// The heads of a partition, in the order in which they are shown.
    pub const ALL: [Self; 2] = [Self::Regular, Self::High];
}

/// Attributes of one request.
#[derive(Clone, Copy, Debug)]
pub struct Attrs {
    /// Network identifier of the client, if known.
    pub nid: Option<Nid>,
    /// Job identifier; empty if absent.
    pub jobid: JobId,
    /// User id of the submitter.
    pub uid: Id,
    /// Group id of the submitter.
    pub gid: Id,
    /// Project id.
    pub projid: Id,
    /// Node map id.
    pub nodemap: Id,
    /// Cgroup on the unified hierarchy: the low half of its id, which no two cgroups have at a time.
    pub cgroup: Id,
    /// Operation, or [`Opcode::NONE`].
    pub opcode: Opcode,
    /// Number of the front-end's client in its service; 0: unknown.
    pub client: u32,
    /// Backing device, `major << 20 | minor`, or target of a distributed server, as a program numbers it.
    pub target: u32,
    /// Which offset stream the request belongs to, as a hint; 0: none is known.
    pub stream: u64,
    /// File that the range is in, if that is known; else the backing device's index in its service.
    pub object: u64,
    /// First byte of the range.
    pub offset: u64,
    /// Bytes of the range.
    pub length: u64,
    /// Nodes of the job, as whoever brought the request says; 0: unknown.
    pub size: u32,
    /// Which head serves it.
    pub priority: Priority,
}

impl Attrs {
    /// A read of nothing by nobody: what to start from where little is known.
    pub const UNKNOWN: Self = Self {
        nid: None,
        jobid: JobId::ABSENT,
        uid: Id::ABSENT,
        gid: Id::ABSENT,
        projid: Id::ABSENT,
        nodemap: Id::ABSENT,
        cgroup: Id::ABSENT,
        opcode: Opcode::OST_READ,
        client: 0,
        target: 0,
        stream: 0,
        object: 0,
        offset: 0,
        length: 0,
        size: 0,
        priority: Priority::Regular,
    };
}
