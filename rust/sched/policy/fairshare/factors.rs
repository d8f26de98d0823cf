// SPDX-License-Identifier: GPL-2.0-only

//! Factors of the weights of nodes, for shares over several servers.
//!
//! `Documentation/global-fairness.md` describes how factors are computed from the accounts of all
//! servers, and [`crate::sched::agent`] how an agent reads accounts and sets factors.

use crate::sched::{
    agent::{faded, FactorPairs, Lease},
    mem::{GrowingList, NoMemory, Shared},
};

pub use crate::sched::agent::ONE;

/// Factors of one server; immutable, replaced as a whole.
///
/// # Invariants
///
/// - `list` is sorted by id, without an id twice; no factor is 0 or above [`ONE`].
/// - `starts` has the index of the first id of each bucket, followed by the length of `list`. The
///   first `bits` bits of an id are the number of its bucket.
pub struct Factors {
    list: GrowingList<(u64, u32)>,
    /// Indices of first ids. Ids are hashes, so a bucket has one or two ids.
    starts: GrowingList<u32>,
    bits: u32,
    /// Time during which the factors are in force; `None`: until the factors are replaced.
    lease: Option<Shared<Lease>>,
}

impl Factors {
    /// Creates the factors `pairs`, in force while `lease` lasts, or without a lease until the
    /// factors are replaced; may sleep.
    pub fn new(pairs: FactorPairs, lease: Option<Shared<Lease>>) -> Result<Self, NoMemory> {
        // INVARIANT: pairs have the same invariant.
        let list = pairs.into_list();
        let ids = list.as_slice();
        let bits = ids.len().checked_ilog2().unwrap_or(0);
        let buckets = 1usize << bits;
        let mut starts = GrowingList::with_capacity(buckets.saturating_add(1))?;
        for (index, (id, _)) in (0u32..).zip(ids) {
            // INVARIANT: buckets up to the bucket of this id start here, unless they started
            // before.
            while starts.as_slice().len() <= bucket(*id, bits) {
                starts.push(index)?;
            }
        }
        while starts.as_slice().len() <= buckets {
            starts.push(ids.len() as u32)?;
        }
        Ok(Self {
            list,
            starts,
            bits,
            lease,
        })
    }

    /// Returns the lease of the factors, if there is one.
    pub(super) fn lease(&self) -> Option<&Shared<Lease>> {
        self.lease.as_ref()
    }

    /// Returns the number of steps towards one that the factors have taken by `now`, ns.
    pub(super) fn steps(&self, now: u64) -> u32 {
        self.lease.as_ref().map_or(0, |lease| lease.steps(now))
    }

    /// Returns the factor of the entity `id` after `steps` steps towards one; [`ONE`] for an entity
    /// without a factor. O(log n); does not sleep.
    pub(super) fn of(&self, id: u64, steps: u32) -> u32 {
        let found = self.find(id);
        found.map_or(ONE, |factor| faded(factor, steps))
    }

    /// Finds the factor of `id`.
    fn find(&self, id: u64) -> Option<u32> {
        let mut starts = self.starts.as_slice().iter().skip(bucket(id, self.bits));
        let (from, to) = (*starts.next()? as usize, *starts.next()? as usize);
        let some = self.list.as_slice().get(from..to)?;
        let found = some.binary_search_by(|(other, _)| other.cmp(&id)).ok()?;
        some.get(found).map(|(_, factor)| *factor)
    }

    /// Returns `weight` (below 2^31) of the entity `id` times the entity's factor, at least 1.
    #[cfg(not(MODULE))]
    pub fn scale(&self, id: u64, weight: u32) -> u32 {
        crate::sched::agent::scaled(weight, self.of(id, 0))
    }
}

/// Returns the bucket of `id`, whose number has `bits` bits.
fn bucket(id: u64, bits: u32) -> usize {
    id.checked_shr(u64::BITS.saturating_sub(bits)).unwrap_or(0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::units::NSEC_PER_MSEC as MS;

    #[test]
    fn scales_those_it_knows_and_never_to_nothing() {
        let pairs = FactorPairs::of([(3, ONE / 2), (7, 1), (9, ONE)]).unwrap();
        let factors = Factors::new(pairs, None).unwrap();
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

    /// Looks up all ids, and the ids next to them, in lists of several lengths and ranges of ids.
    #[test]
    fn each_is_found() {
        let mut rng = crate::sched::rng::Rng::new(1);
        for count in [0, 1, 2, 3, 64, 1000] {
            for mask in [u64::MAX, u64::MAX >> 40, u64::MAX << 40] {
                let mut pairs: Vec<(u64, u32)> = (0..count)
                    .map(|_| ((rng.next_u64() & mask).max(1), 1 + rng.next_u32() / 2))
                    .collect();
                pairs.sort_unstable();
                pairs.dedup_by_key(|pair| pair.0);
                let list = FactorPairs::of(pairs.iter().copied()).unwrap();
                let factors = Factors::new(list, None).unwrap();
                for (id, factor) in &pairs {
                    assert_eq!(factors.find(*id), Some(*factor));
                    for other in [id.wrapping_add(1), id.wrapping_sub(1)] {
                        let known = pairs.iter().find(|pair| pair.0 == other);
                        assert_eq!(factors.find(other), known.map(|pair| pair.1));
                    }
                }
                assert_eq!(factors.find(0), None);
            }
        }
    }

    #[test]
    fn those_of_an_agent_go_by_the_lease() {
        let pairs = FactorPairs::of([(3, ONE / 4)]).unwrap();
        let lease = Shared::new(Lease::new(0, 2000)).unwrap();
        let factors = Factors::new(pairs, Some(lease.clone())).unwrap();
        for (now, steps, factor) in [
            (1999, 0, ONE / 4),
            (2000, 1, ONE / 2),
            (3799, 9, faded(ONE / 4, 9)),
            (3800, 10, ONE),
        ] {
            assert_eq!(factors.steps(now * MS), steps, "{now}");
            assert_eq!(factors.of(3, steps), factor, "{now}");
            assert_eq!(factors.of(4, steps), ONE, "{now}");
        }
        lease.end(MS);
        assert_eq!(factors.steps(MS), 1);
    }
}
