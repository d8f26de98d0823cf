// SPDX-License-Identifier: GPL-2.0-only

//! Parameters of the policies; the type of each parameter holds only valid values.

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
    /// Largest number of requests of one object or target in a batch.
    Quantum, "quantum": "requests, ", 1..=65_535 = 256
}

choice! {
    /// Sort key of requests.
    OffsetType, "offset_type":
    /// Offset on the device.
    #[default]
    Physical = "physical",
    /// Offset in the file.
    Logical = "logical",
}

choice! {
    /// Directions of the requests that are sorted; other requests are declined.
    Supported, "supported":
    /// Reads.
    #[default]
    Reads = "reads",
    /// Writes.
    Writes = "writes",
    /// Reads and writes.
    Both = "reads_and_writes",
}

impl Supported {
    /// Returns true if requests in this direction are sorted.
    pub fn has(self, direction: Direction) -> bool {
        match direction {
            Direction::Read => self != Self::Writes,
            Direction::Write => self != Self::Reads,
            Direction::Other => false,
        }
    }
}

/// Parameters of `orr` and `trr`, kept across stops and starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Tunables {
    /// Largest number of requests in a batch.
    pub quantum: PerHead<Quantum>,
    /// Sort key of requests.
    pub offset_type: PerHead<OffsetType>,
    /// Directions of the requests that are sorted.
    pub supported: PerHead<Supported>,
    /// Largest number of classes in the table.
    pub classes_max: ClassesMax,
    /// Largest number of sorted requests.
    pub buffer_max: BufferMax,
}

/// Sorting of requests on one head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sorting {
    /// Sort key of requests.
    pub offset_type: OffsetType,
    /// Directions of the requests that are sorted.
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
