// SPDX-License-Identifier: GPL-2.0-only

//! Shares over several servers: what a part tells of its nodes, and what it is told to multiply their weights by.
//!
//! See `Documentation/global-fairness.md` for how factors are made from the accounts of all servers, and
//! [`crate::sched::agent`] for how an agent reads and sets them.

use crate::sched::{
    agent::{faded, scaled, Lease, Pairs},
    mem::{Block, List, NoMemory, Shared},
    policy::ROWS,
};

pub use crate::sched::agent::{Account, ONE};

/// A buffer for [`super::State::accounts`].
pub type AccountBuf = Block<Account, ROWS>;

/// The factors of one server; never changed, but replaced as a whole.
///
/// # Invariants
///
/// `list` is sorted by id, without an id twice; no factor is 0 or above [`ONE`].
pub struct Factors {
    list: List<(u64, u32)>,
    /// How long they are in force; `None`: until they are replaced.
    lease: Option<Shared<Lease>>,
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
        Ok(Self { list, lease: None })
    }

    /// The factors that an agent set, in force while `lease` lasts.
    pub(super) fn leased(pairs: Pairs, lease: &Shared<Lease>) -> Self {
        // INVARIANT: that of the pairs is the same.
        Self {
            list: pairs.into_list(),
            lease: Some(lease.clone()),
        }
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
        let list = self.list.as_slice();
        let found = list.binary_search_by(|(other, _)| other.cmp(&id)).ok();
        let found = found.and_then(|at| list.get(at));
        found.map_or(ONE, |(_, factor)| faded(*factor, steps))
    }

    /// `weight`, below 2^31, of the entity `id` times its factor; not below 1.
    pub fn scale(&self, id: u64, weight: u32) -> u32 {
        scaled(weight, self.of(id, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::units::NSEC_PER_MSEC as MS;

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

    #[test]
    fn those_of_an_agent_go_by_the_lease() {
        let mut pairs = Pairs::new(1).unwrap();
        pairs.push(3, ONE / 4).unwrap();
        let lease = Shared::new(Lease::new(0, 2000)).unwrap();
        let factors = Factors::leased(pairs, &lease);
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
