// SPDX-License-Identifier: GPL-2.0-only

//! What a server multiplies the weights of its entities by.
//!
//! # Vocabulary
//!
//! - *Factor*: a number above 0 and at most 1, in Q31 ([`super::log2::ONE`]).

use super::log2::ONE;
use crate::sched::mem::{List, NoMemory};

/// The factors of one server; never changed, but replaced as a whole.
///
/// # Invariants
///
/// `list` is sorted by id, without an id twice; no factor is 0 or above [`ONE`].
pub struct Factors {
    list: List<(u64, u32)>,
}

impl Factors {
    /// No factors: all are 1. Does not allocate.
    pub const fn new() -> Self {
        // INVARIANT: nothing is in it.
        Self { list: List::new() }
    }

    /// No factors, with room for `count`; sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn with_capacity(count: usize) -> Result<Self, NoMemory> {
        // INVARIANT: nothing is in it.
        Ok(Self {
            list: List::with_capacity(count)?,
        })
    }

    /// Adds that of `id`, which is above all that are there; others are left out. A factor of 0 counts as the
    /// smallest. Sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn push(&mut self, id: u64, factor: u32) -> Result<(), NoMemory> {
        if self.list.as_slice().last().is_some_and(|last| last.0 >= id) {
            return Ok(());
        }
        // INVARIANT: the id is above the last one; the factor is within its limits.
        self.list.push((id, factor.clamp(1, ONE)))
    }

    /// Ids and factors (Q31), in the order of the ids.
    pub fn as_slice(&self) -> &[(u64, u32)] {
        self.list.as_slice()
    }

    /// That of `id`, Q31: [`ONE`] for an entity that nobody else serves. O(log n); does not sleep.
    pub fn of(&self, id: u64) -> u32 {
        let list = self.list.as_slice();
        let found = list.binary_search_by(|(other, _)| other.cmp(&id)).ok();
        found
            .and_then(|at| list.get(at))
            .map_or(ONE, |(_, factor)| *factor)
    }

    /// `weight`, below 2^31, of the entity `id` times its factor; not below 1.
    pub fn scale(&self, id: u64, weight: u32) -> u32 {
        let product = u64::from(weight).wrapping_mul(u64::from(self.of(id)));
        ((product >> 31) as u32).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_those_it_knows_and_never_to_nothing() {
        let mut factors = Factors::new();
        for (id, factor) in [(3, ONE / 2), (7, 0), (5, 9), (9, u32::MAX)] {
            factors.push(id, factor).unwrap();
        }
        assert_eq!(factors.as_slice(), [(3, ONE / 2), (7, 1), (9, ONE)]);
        for (id, weight, scaled) in [
            (1, 4096, 4096),
            (3, 4096, 2048),
            (7, 4096, 1),
            (7, (1 << 31) - 1, 1),
            (9, (1 << 31) - 1, (1 << 31) - 1),
            (u64::MAX, 1, 1),
        ] {
            assert_eq!(factors.scale(id, weight), scaled, "{id}");
        }
    }
}
