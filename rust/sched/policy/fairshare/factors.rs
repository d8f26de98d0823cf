// SPDX-License-Identifier: GPL-2.0-only

//! Shares over several servers: what a part tells of its nodes, and what it is told to multiply their weights by.
//!
//! See `Documentation/global-fairness.md` for how factors are made from the accounts of all servers.

use crate::sched::{
    mem::{Block, List, NoMemory},
    policy::ROWS,
};

/// A factor of one, in Q31.
pub const ONE: u32 = 1 << 31;

/// A buffer for [`super::State::accounts`].
pub type AccountBuf = Block<Account, ROWS>;

/// What one part tells about one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// The node's path, hashed; neither 0 nor 2^64 - 1.
    pub id: u64,
    /// The path of the node above it; 0 for the root.
    pub parent: u64,
    /// Its weight among its siblings without any factor; 0 counts as 1.
    pub weight: u32,
    /// Whether it is a leaf; what follows is not looked at for others.
    pub leaf: bool,
    /// Service since the part made the node, units of cost, wrapping.
    pub service: u64,
    /// Whether it has requests, queued or in service.
    pub active: bool,
    /// Whether it has requests that wait: it would take more service.
    pub waiting: bool,
}

/// The factors of one server; never changed, but replaced as a whole.
///
/// # Invariants
///
/// `list` is sorted by id, without an id twice; no factor is 0 or above [`ONE`].
pub struct Factors {
    list: List<(u64, u32)>,
}

impl Factors {
    /// The factors `pairs` of ids and factors, in the order of the ids; an id that is not above the one before it is left
    /// out, and a factor of 0 counts as the smallest. Sleeps.
    pub fn new(pairs: impl IntoIterator<Item = (u64, u32)>) -> Result<Self, NoMemory> {
        let mut list = List::<(u64, u32)>::new();
        for (id, factor) in pairs {
            if list.as_slice().last().is_none_or(|last| last.0 < id) {
                list.push((id, factor.clamp(1, ONE)))?;
            }
        }
        // INVARIANT: each id is above the one before it; the factors are within their limits.
        Ok(Self { list })
    }

    /// `weight`, below 2^31, of the entity `id` times its factor, which is [`ONE`] for an entity that has none; not below
    /// 1. O(log n); does not sleep.
    pub fn scale(&self, id: u64, weight: u32) -> u32 {
        let list = self.list.as_slice();
        let found = list.binary_search_by(|(other, _)| other.cmp(&id)).ok();
        let factor = found
            .and_then(|at| list.get(at))
            .map_or(ONE, |(_, factor)| *factor);
        let product = u64::from(weight).wrapping_mul(u64::from(factor));
        ((product >> 31) as u32).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_those_it_knows_and_never_to_nothing() {
        let pairs = [(3, ONE / 2), (7, 0), (5, 9), (9, u32::MAX)];
        let factors = Factors::new(pairs).unwrap();
        assert_eq!(factors.list.as_slice(), [(3, ONE / 2), (7, 1), (9, ONE)]);
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
