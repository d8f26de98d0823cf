// SPDX-License-Identifier: GPL-2.0-only

//! Shares over several servers: what a part is told to multiply the weights of its nodes by.
//!
//! See `Documentation/global-fairness.md` for how factors are made from the accounts of all servers, and
//! [`crate::sched::agent`] for how an agent reads accounts and sets factors.

use crate::sched::{
    agent::{faded, scaled, Lease, Pairs},
    mem::{List, NoMemory, Shared},
};

pub use crate::sched::agent::ONE;

/// The factors of one server; never changed, but replaced as a whole.
///
/// # Invariants
///
/// - `list` is sorted by id, without an id twice; no factor is 0 or above [`ONE`].
/// - `starts` has the index of the first id of each bucket, which is named by the first `bits` bits of ids, and the length.
pub struct Factors {
    list: List<(u64, u32)>,
    /// Ids are hashes: a bucket has one or two.
    starts: List<u32>,
    bits: u32,
    /// How long they are in force; `None`: until they are replaced.
    lease: Option<Shared<Lease>>,
}

impl Factors {
    /// The factors `pairs`, in force while `lease` lasts; without a lease until they are replaced. Sleeps.
    pub fn new(pairs: Pairs, lease: Option<Shared<Lease>>) -> Result<Self, NoMemory> {
        // INVARIANT: that of the pairs is the same.
        let list = pairs.into_list();
        let ids = list.as_slice();
        let bits = ids.len().checked_ilog2().unwrap_or(0);
        let buckets = 1usize << bits;
        let mut starts = List::with_capacity(buckets.saturating_add(1))?;
        for (index, (id, _)) in (0u32..).zip(ids) {
            // INVARIANT: buckets up to that of this id begin here, unless they began before.
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

    /// The lease, if they have one.
    pub(super) fn lease(&self) -> Option<&Shared<Lease>> {
        self.lease.as_ref()
    }

    /// Steps of their return to one that are due at `now`, ns.
    pub(super) fn steps(&self, now: u64) -> u32 {
        self.lease.as_ref().map_or(0, |lease| lease.steps(now))
    }

    /// The factor of the entity `id` after `steps` steps of its return to one; [`ONE`] for an entity that has none.
    /// O(log n); does not sleep.
    pub(super) fn of(&self, id: u64, steps: u32) -> u32 {
        let found = self.find(id);
        found.map_or(ONE, |factor| faded(factor, steps))
    }

    /// The factor of `id`, if it has one.
    fn find(&self, id: u64) -> Option<u32> {
        let mut starts = self.starts.as_slice().iter().skip(bucket(id, self.bits));
        let (from, to) = (*starts.next()? as usize, *starts.next()? as usize);
        let some = self.list.as_slice().get(from..to)?;
        let found = some.binary_search_by(|(other, _)| other.cmp(&id)).ok()?;
        some.get(found).map(|(_, factor)| *factor)
    }

    /// `weight`, below 2^31, of the entity `id` times its factor; not below 1.
    pub fn scale(&self, id: u64, weight: u32) -> u32 {
        scaled(weight, self.of(id, 0))
    }
}

/// The bucket of `id` where `bits` bits name buckets.
fn bucket(id: u64, bits: u32) -> usize {
    id.checked_shr(u64::BITS.saturating_sub(bits)).unwrap_or(0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::units::NSEC_PER_MSEC as MS;

    #[test]
    fn scales_those_it_knows_and_never_to_nothing() {
        let pairs = Pairs::of([(3, ONE / 2), (7, 1), (9, ONE)]).unwrap();
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

    /// However many there are, and wherever ids are.
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
                let list = Pairs::of(pairs.iter().copied()).unwrap();
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
        let pairs = Pairs::of([(3, ONE / 4)]).unwrap();
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
