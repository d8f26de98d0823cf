// SPDX-License-Identifier: GPL-2.0-only

//! What users set: each parameter has its own type, which cannot hold a wrong value.

use super::{Bounds, Tuned};
use crate::sched::{
    attr::Priority,
    item::Direction,
    policy::{
        params::{choice, heads::PerHead, number, BufferMax, ClassesMax},
        Tuning,
    },
};

number! {
    /// Requests of one object or target that are served together, at most.
    Quantum, "quantum": "requests, ", 1..=65_535 = 256
}

choice! {
    /// By which offsets requests are sorted.
    OffsetType, "offset_type":
    /// Those on the device.
    #[default]
    Physical = "physical",
    /// Those in the file.
    Logical = "logical",
}

choice! {
    /// Which requests are sorted; the others are declined.
    Supported, "supported":
    /// Those that read.
    #[default]
    Reads = "reads",
    /// Those that write.
    Writes = "writes",
    /// Both.
    Both = "reads_and_writes",
}

impl Supported {
    /// Whether a request that goes this way is one of them.
    pub fn has(self, direction: Direction) -> bool {
        match direction {
            Direction::Read => self != Self::Writes,
            Direction::Write => self != Self::Reads,
            Direction::Other => false,
        }
    }
}

/// What users can set of `orr` and `trr`; it survives stops and starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Tunables {
    /// Length of a batch.
    pub quantum: PerHead<Quantum>,
    /// What is sorted by.
    pub offset_type: PerHead<OffsetType>,
    /// What is sorted.
    pub supported: PerHead<Supported>,
    /// Bound of the class table.
    pub classes_max: ClassesMax,
    /// Bound of the requests that are sorted.
    pub buffer_max: BufferMax,
}

/// How requests are sorted on one head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sorting {
    /// By which offsets.
    pub offset_type: OffsetType,
    /// Which requests.
    pub supported: Supported,
}

impl Tuning for Tunables {
    fn set_classes_max(&mut self, max: ClassesMax) {
        self.classes_max = max;
    }

    fn set_buffer_max(&mut self, max: BufferMax) {
        self.buffer_max = max;
    }
}

impl Tuned for Tunables {
    type Setting = Sorting;

    fn quantum(&self, priority: Priority) -> u32 {
        self.quantum.of(priority).get()
    }

    fn setting(&self, priority: Priority) -> Sorting {
        Sorting {
            offset_type: self.offset_type.of(priority),
            supported: self.supported.of(priority),
        }
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            classes: self.classes_max.get(),
            requests: self.buffer_max.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supported() {
        for (supported, read, write) in [
            (Supported::Reads, true, false),
            (Supported::Writes, false, true),
            (Supported::Both, true, true),
        ] {
            let got = [Direction::Read, Direction::Write, Direction::Other];
            let got = got.map(|direction| supported.has(direction));
            assert_eq!(got, [read, write, false]);
        }
    }
}
