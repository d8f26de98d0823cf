// SPDX-License-Identifier: GPL-2.0-only

//! Values that CPUs change often, each in cache lines of its own.

use crate::sched::mem::{List, NoMemory};

/// CPUs with a value of their own, at most: as many as a kernel can have.
pub const CPUS_MAX: u32 = 8192;

/// A value in cache lines of its own.
#[repr(align(64))]
pub struct Apart<T>(pub T);

/// A value for each CPU.
pub struct PerCpu<T> {
    each: List<Apart<T>>,
}

impl<T> PerCpu<T> {
    /// Creates no values.
    pub const fn none() -> Self {
        Self { each: List::new() }
    }

    /// Creates a value for each of `cpus` CPUs with `make`; sleeps.
    pub fn new(cpus: u32, make: impl Fn() -> T) -> Result<Self, NoMemory> {
        let cpus = cpus.min(CPUS_MAX);
        let mut each = List::with_capacity(cpus as usize)?;
        for _ in 0..cpus {
            each.push(Apart(make()))?;
        }
        Ok(Self { each })
    }

    /// Returns the value of `cpu`, if there is one.
    #[inline]
    pub fn of(&self, cpu: u32) -> Option<&T> {
        self.each.as_slice().get(cpu as usize).map(|apart| &apart.0)
    }

    /// Returns the values, in the order of the CPUs.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.each.as_slice().iter().map(|apart| &apart.0)
    }

    /// Returns how many CPUs have one.
    pub fn len(&self) -> u32 {
        self.each.as_slice().len() as u32
    }
}
