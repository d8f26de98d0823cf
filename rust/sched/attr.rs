// SPDX-License-Identifier: GPL-2.0-only

//! Attributes of a request.

pub mod cgroup;
mod io_priority;
mod opcode;
mod stream;

use crate::sched::{jobid::JobId, nid::Nid};

/// Maximum size of a job, nodes.
pub const SIZE_MAX: u32 = 4096;

pub use cgroup::CgroupPath;
pub use io_priority::{IoClass, IoPriority};
pub use opcode::Opcode;
pub use stream::Stream;

/// Numeric identity that may be absent; absent differs from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(u32);

impl Id {
    /// Absent identity: Lustre's 0xffffffff.
    pub const ABSENT: Self = Self(u32::MAX);

    /// Creates an identity; 0xffffffff counts as absent.
    pub const fn new(id: u32) -> Self {
        Self(id)
    }

    /// Returns the number; `None` if the identity is absent.
    pub const fn get(self) -> Option<u32> {
        if self.0 == u32::MAX {
            None
        } else {
            Some(self.0)
        }
    }
}

/// Head that serves a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Regular head.
    Regular,
    /// High-priority head.
    High,
}

impl Priority {
    /// Heads of a partition, in display order.
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
    /// Cgroup on the unified hierarchy.
    pub cgroup: CgroupPath,
    /// Cgroup that stands for absent identities, because no task is known.
    pub owner: CgroupPath,
    /// Operation, or [`Opcode::NONE`].
    pub opcode: Opcode,
    /// I/O priority, or [`IoPriority::NONE`].
    pub io_priority: IoPriority,
    /// Number of the front end's client in its service; 0: unknown.
    pub client: u32,
    /// Backing device, `major << 20 | minor`, or target of a distributed server as numbered by a
    /// program.
    pub target: u32,
    /// Offset stream of the request, as a hint; 0: unknown.
    pub stream: u64,
    /// File of the range if known; else the backing device's index in its service.
    pub object: u64,
    /// First byte of the range.
    pub offset: u64,
    /// Bytes of the range.
    pub length: u64,
    /// Number of nodes of the job, as reported by the front end; 0: unknown.
    pub size: u32,
    /// Head that serves the request.
    pub priority: Priority,
}

impl Attrs {
    /// Attributes of an empty read without identities, as a base where little is known.
    pub const UNKNOWN: Self = Self {
        nid: None,
        jobid: JobId::ABSENT,
        uid: Id::ABSENT,
        gid: Id::ABSENT,
        projid: Id::ABSENT,
        nodemap: Id::ABSENT,
        cgroup: CgroupPath::ABSENT,
        owner: CgroupPath::ABSENT,
        opcode: Opcode::OST_READ,
        io_priority: IoPriority::NONE,
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
