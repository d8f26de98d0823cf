// SPDX-License-Identifier: GPL-2.0-only

//! Tests of shared counters: single places, and concurrent claims.

use super::*;
use crate::sched::{
    rng::Rng,
    tagged_table::tests::{at_gap, interleaved},
};
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
};

/// Returns the states of all places with users.
fn used(counters: &SharedTotals) -> Vec<u64> {
    (0..counters.places.len() as u32)
        .map(|index| counters.places.get(index).unwrap().state.get())
        .filter(|&state| state != 0)
        .collect()
}

/// Returns an id with tag `tag` in block `block`.
const fn id(tag: u64, block: u64) -> u64 {
    (tag << USERS_BITS) | block
}

/// Verifies that few entities find their block full when the table has as many entities as it was
/// made for.
#[test]
fn few_are_crowded_out() {
    let count = 1 << 14;
    let counters = SharedTotals::new(count).unwrap();
    let mut rng = Rng::new(1);
    let claims = (0..count).map(|_| counters.claim(rng.next_u64()));
    let full = claims.filter(Option::is_none).count();
    assert!(full < count / 100, "{full}");
}

#[test]
fn a_full_block_and_full_places() {
    let counters = SharedTotals::new(16).unwrap();
    let claims: Vec<TotalClaim> = (1..=8)
        .map(|tag| counters.claim(id(tag, 1)).unwrap())
        .collect();
    assert_eq!(counters.claim(id(9, 1)), None);
    assert!(counters.claim(id(9, 2)).is_some());
    counters.release(claims[4]);
    assert_eq!(counters.claim(id(9, 1)), Some(claims[4]));
    // The largest number of users, and then one less.
    for _ in 1..USERS_MAX {
        assert_eq!(counters.claim(id(9, 1)), Some(claims[4]));
    }
    assert_eq!(counters.claim(id(9, 1)), None);
    counters.release(claims[4]);
    assert_eq!(counters.claim(id(9, 1)), Some(claims[4]));
    for _ in 0..USERS_MAX {
        assert_eq!(used(&counters).len(), 9);
        counters.release(claims[4]);
    }
    assert_eq!(used(&counters).len(), 8);
    // An additional release has no effect.
    counters.release(claims[4]);
    assert_eq!(used(&counters).len(), 8);
}

/// Verifies that the users of two places move to the lower place, and that its users stay.
#[test]
fn two_places_of_one_id_become_one() {
    let counters = SharedTotals::new(16).unwrap();
    let block: Vec<_> = counters.places.places(1).map(|(_, place)| place).collect();
    for (index, users) in [(2, 2), (5, 1)] {
        block[index].state.set((77 << USERS_BITS) | users);
        block[index].total.set(100 * index as u64);
    }
    let id = id(77, 1);
    assert_eq!(counters.recheck(&TotalClaim(10), id), None);
    assert_eq!(counters.recheck(&TotalClaim(13), id), Some(TotalClaim(10)));
    assert_eq!(used(&counters), [(77 << USERS_BITS) | 3]);
    // A claim of a place above a place that was claimed at the same time.
    block[5].state.set((77 << USERS_BITS) | 1);
    assert_eq!(counters.keep_lowest(TotalClaim(13), id), TotalClaim(10));
    assert_eq!(used(&counters), [(77 << USERS_BITS) | 4]);
    // No move if the lower place is full.
    block[2].state.set((77 << USERS_BITS) | USERS_MAX);
    block[5].state.set((77 << USERS_BITS) | 1);
    assert_eq!(counters.recheck(&TotalClaim(13), id), None);
    assert_eq!(used(&counters).len(), 2);

    let mut tally = TotalView {
        claim: Some(TotalClaim(13)),
        mine: 40,
        seen: 400,
    };
    block[2].state.set((77 << USERS_BITS) | 1);
    tally.upkeep(&counters, id);
    // Neither old service of other parts nor own service is returned.
    assert_eq!(
        (tally.claim, tally.elsewhere(&counters)),
        (Some(TotalClaim(10)), 0)
    );
    counters.add(&TotalClaim(10), 7);
    assert_eq!(tally.elsewhere(&counters), 7);
}

/// Verifies that the later of two claims moves to a lower place at once.
#[test]
fn a_later_claim_moves_at_once() {
    let id = id(1, 0);
    let meets = |&moment: &u32| {
        let counters = Rc::new(SharedTotals::new(4).unwrap());
        let first = counters.claim(self::id(2, 0)).unwrap();
        let shared = counters.clone();
        let other = move || {
            shared.release(first);
            shared.claim(id);
        };
        at_gap(moment, other, || {
            counters.claim(id);
            let places = used(&counters).into_iter();
            assert_eq!(places.filter(|state| tag_of(*state) == tag(id)).count(), 1);
        })
    };
    assert!((1..).take_while(meets).count() > 8);
}

#[test]
fn tallies_count_service_of_other_parts() {
    let counters = SharedTotals::new(16).unwrap();
    let id = id(5, 1);
    let mut tallies = [TotalView::default(); 3];
    let [a, b, c] = &mut tallies;
    a.add(&counters, 9);
    assert_eq!((a.elsewhere(&counters), a.claim.is_some()), (0, false));
    a.open(&counters, id);
    a.open(&counters, id);
    b.open(&counters, id);
    a.add(&counters, 10);
    // A later claim does not count old service.
    c.open(&counters, id);
    assert_eq!(a.elsewhere(&counters), 0);
    assert_eq!(b.elsewhere(&counters), 10);
    assert_eq!(b.elsewhere(&counters), 0);
    assert_eq!(c.elsewhere(&counters), 0);
    // Service taken back is subtracted from later service.
    a.add(&counters, -4);
    assert_eq!(b.elsewhere(&counters), 0);
    a.add(&counters, 3);
    assert_eq!(b.elsewhere(&counters), 0);
    b.add(&counters, 100);
    a.add(&counters, 3);
    assert_eq!(b.elsewhere(&counters), 2);
    assert_eq!(a.elsewhere(&counters), 100);
    assert_eq!(c.elsewhere(&counters), 102);
    for tally in &mut tallies {
        tally.close(&counters);
        tally.close(&counters);
        assert_eq!(
            (tally.claim.is_some(), tally.elsewhere(&counters)),
            (false, 0)
        );
    }
    assert!(used(&counters).is_empty());
}

/// Verifies that upkeep opens a view without a place when a place is free.
#[test]
fn upkeep_opens_what_was_crowded_out() {
    let counters = SharedTotals::new(4).unwrap();
    let mut tallies: Vec<TotalView> = (0..9).map(|_| TotalView::default()).collect();
    for (i, tally) in tallies.iter_mut().enumerate() {
        assert_eq!(tally.open(&counters, id(i as u64 + 1, 0)), i < 8);
    }
    tallies[3].close(&counters);
    tallies[8].upkeep(&counters, id(9, 0));
    assert!(tallies[8].claim.is_some());
    // Totals wrap.
    let claim = tallies[8].claim.unwrap();
    counters.add(&claim, i64::MAX);
    assert_eq!(tallies[8].elsewhere(&counters), i64::MAX as u64);
    counters.add(&claim, i64::MAX);
    counters.add(&claim, 5);
    assert_eq!(tallies[8].elsewhere(&counters), 0);
    assert_eq!(counters.total(&claim), 3);
}

/// Parts whose steps are interleaved.
struct StepTurns {
    counters: SharedTotals,
    claims: RefCell<Vec<(u64, TotalClaim)>>,
    rng: RefCell<Rng>,
    depth: Cell<u32>,
    moves: Cell<u32>,
}

impl StepTurns {
    fn below(&self, end: u32) -> u32 {
        self.rng.borrow_mut().next_u32() % end
    }

    /// Runs one step of some part, with steps of other parts in the middle of the step.
    fn step(&self) {
        let count = self.claims.borrow().len() as u32;
        if count == 0 || self.below(2) == 0 {
            let id = id(1 + u64::from(self.below(4)), 0);
            let claim = self.counters.claim(id);
            self.claims
                .borrow_mut()
                .extend(claim.map(|claim| (id, claim)));
            return;
        }
        let chosen = self.below(count) as usize;
        let (id, claim) = self.claims.borrow_mut().swap_remove(chosen);
        if self.below(4) == 0 {
            let claim = self.recheck(id, claim);
            self.claims.borrow_mut().push((id, claim));
        } else {
            self.counters.release(claim);
        }
    }

    fn recheck(&self, id: u64, claim: TotalClaim) -> TotalClaim {
        let moved = self.counters.recheck(&claim, id);
        self.moves
            .set(self.moves.get() + u32::from(moved.is_some()));
        moved.unwrap_or(claim)
    }

    /// Runs steps of other parts, up to three levels deep.
    fn between(&self) {
        while self.depth.get() < 3 && self.below(5) == 0 {
            self.depth.set(self.depth.get() + 1);
            self.step();
            self.depth.set(self.depth.get() - 1);
        }
    }
}

/// Runs claims interleaved at random. Claims of one id may take two places; after all users have
/// rechecked, the id has one place with all users.
#[test]
fn two_places_are_made_and_become_one() {
    let (mut moves, mut twice) = (0, 0);
    for seed in 0..10_000 {
        let turns = Rc::new(StepTurns {
            counters: SharedTotals::new(4).unwrap(),
            claims: RefCell::new(Vec::new()),
            rng: RefCell::new(Rng::new(seed)),
            depth: Cell::new(0),
            moves: Cell::new(0),
        });
        let others = turns.clone();
        interleaved(
            move || others.between(),
            || {
                for _ in 0..turns.below(60) {
                    turns.step();
                }
            },
        );
        let counters = &turns.counters;
        let places = used(counters).len();
        for (id, claim) in turns.claims.borrow_mut().iter_mut() {
            let place = counters.places.get(claim.0).unwrap();
            assert_eq!(tag_of(place.state.get()), tag(*id));
            *claim = turns.recheck(*id, *claim);
        }
        let mut users = HashMap::new();
        for (id, claim) in turns.claims.borrow().iter() {
            let (there, users) = users.entry(*id).or_insert((*claim, 0));
            assert_eq!(there, claim);
            *users += 1;
        }
        assert_eq!(used(counters).len(), users.len());
        for (id, (claim, users)) in &users {
            let place = counters.places.get(claim.0).unwrap();
            let state = place.state.get();
            assert_eq!((tag_of(state), state & USERS_MAX), (tag(*id), *users));
        }
        for (_, claim) in turns.claims.take() {
            counters.release(claim);
        }
        assert!(used(counters).is_empty());
        moves += turns.moves.get();
        twice += u32::from(places > users.len());
    }
    // Two places need three steps at particular moments, so they are rare.
    assert!(moves > 50 && twice > 20, "{moves} {twice}");
}
