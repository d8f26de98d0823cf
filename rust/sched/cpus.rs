// SPDX-License-Identifier: GPL-2.0-only

//! Values that CPUs change often, each in separate cache lines.

use crate::sched::mem::{GrowingList, NoMemory};

/// Maximum number of CPUs with a value, as in the kernel.
pub const CPUS_MAX: u32 = 8192;

/// Value in separate cache lines.
#[repr(align(64))]
pub struct CacheAligned<T>(pub T);

/// Value for each CPU.
pub struct PerCpu<T> {
    each: GrowingList<CacheAligned<T>>,
}

impl<T> PerCpu<T> {
    /// Creates an empty set of values.
    #[cfg(not(MODULE))]
    pub const fn none() -> Self {
        Self {
            each: GrowingList::new(),
        }
    }

    /// Creates a value for each of `cpus` CPUs with `make`; may sleep.
    pub fn new(cpus: u32, make: impl Fn() -> T) -> Result<Self, NoMemory> {
        let cpus = cpus.min(CPUS_MAX);
        let mut each = GrowingList::with_capacity(cpus as usize)?;
        for _ in 0..cpus {
            each.push(CacheAligned(make()))?;
        }
        Ok(Self { each })
    }

    /// Returns the value of `cpu`, if it exists.
    #[inline]
    pub fn of(&self, cpu: u32) -> Option<&T> {
        self.each.as_slice().get(cpu as usize).map(|apart| &apart.0)
    }

    /// Returns the values in the order of the CPUs.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.each.as_slice().iter().map(|apart| &apart.0)
    }

    /// Returns the number of CPUs with a value.
    pub fn len(&self) -> u32 {
        self.each.as_slice().len() as u32
    }
}
