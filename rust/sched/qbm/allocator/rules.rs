// SPDX-License-Identifier: GPL-2.0-only

//! Rules of allocation, in the order of application.
//!
//! Every request ends in [`Allocator::apply_rules`]: first every client gets the floor, so that no
//! other rule has to handle it. Then the missing bandwidth of clients below their goals is
//! allocated, highest class first. The rest is distributed in the order of the sinks.

use super::{
    accounts::ClassTally,
    client::{AllocatorClient, RATE_MAX},
    Allocator, ClientId,
};
use crate::sched::{mem::GrowingList, qbm::terms::BandwidthClass, sort};

/// Classes that share their bandwidth, highest first.
const SHARING: [BandwidthClass; 3] = [
    BandwidthClass::FairShare,
    BandwidthClass::LowShare,
    BandwidthClass::Mover,
];

/// Function that takes up to the given bytes/s for a client of a class and returns the amount
/// taken.
pub(super) type StealRule = fn(&mut Allocator, BandwidthClass, u64) -> u64;

/// Sources for minimums.
const MINIMUM: [StealRule; 4] = [
    Allocator::draw_reserve,
    Allocator::take_pool,
    Allocator::take_extras,
    Allocator::steal_from_lower,
];

/// Sources beyond the minimum, for a request.
pub(super) const MORE: [StealRule; 3] = [
    Allocator::more_from_pool,
    Allocator::draw_reserve,
    Allocator::more_from_lower,
];

/// Sources beyond the minimum, after bandwidth was released.
const MORE_OF_FREED: [StealRule; 2] = [Allocator::more_from_pool, Allocator::draw_reserve];

// Allocation of bandwidth to a client.
impl Allocator {
    /// Takes up to `need` from `sources` in turn, by `take`.
    fn gather<T>(
        &mut self,
        sources: impl IntoIterator<Item = T>,
        need: u64,
        take: impl Fn(&mut Self, T, u64) -> u64,
    ) -> u64 {
        sources.into_iter().fold(0, |found: u64, source| {
            found.wrapping_add(take(self, source, need.saturating_sub(found)))
        })
    }

    /// Takes up to `need` for a client of `class`, by `rules` in turn.
    fn apply(&mut self, rules: &[StealRule], class: BandwidthClass, need: u64) -> u64 {
        self.gather(rules, need, |this, rule, most| rule(this, class, most))
    }

    /// Takes up to `need` for the minimum of a client of `class`.
    fn find(&mut self, class: BandwidthClass, need: u64) -> u64 {
        self.apply(&MINIMUM, class, need)
    }

    /// Takes up to `need` from the pool.
    fn take_pool(&mut self, _class: BandwidthClass, need: u64) -> u64 {
        self.draw_pool(need)
    }

    /// Takes up to `need` of the extra of all classes, lowest class first.
    fn take_extras(&mut self, class: BandwidthClass, need: u64) -> u64 {
        let lowest_first = BandwidthClass::ALL.into_iter().rev();
        self.gather(lowest_first, need, |this, from, most| {
            this.take_extra(class, from, most)
        })
    }

    /// Takes up to `need` above the floors of classes below `class`, lowest class first; each class
    /// shares the rest.
    fn steal_from_lower(&mut self, class: BandwidthClass, need: u64) -> u64 {
        self.gather(lower(class), need, Self::steal)
    }

    /// Takes up to `most` of the extra of class `from` for a client of `class`.
    fn take_extra(&mut self, class: BandwidthClass, from: BandwidthClass, most: u64) -> u64 {
        let taken = self.takeable_extra(class, from).min(most);
        if taken > 0 {
            self.cut_extra(from, taken);
        }
        taken
    }

    /// Returns the extra of class `from` that `class` may take.
    fn takeable_extra(&self, class: BandwidthClass, from: BandwidthClass) -> u64 {
        let tally = self.tally(from);
        if class == from {
            tally.extra
        } else {
            tally.extra.min(tally.loose())
        }
    }

    /// Takes up to `most` of the allocations of class `from`, down to the floor. The class must not
    /// have extra that may be taken.
    fn steal(&mut self, from: BandwidthClass, most: u64) -> u64 {
        let taken = self.stealable(from).min(most);
        if taken > 0 {
            let left = self.tally(from).allocated.wrapping_sub(taken);
            self.divide_below_goals(from, left);
        }
        taken
    }

    /// Returns the bandwidth that higher classes may take from class `from`, including extra.
    fn stealable(&self, from: BandwidthClass) -> u64 {
        let tally = self.tally(from);
        let above = tally.allocated.saturating_sub(self.floors(from));
        above.min(tally.loose())
    }

    /// Returns the amount that [`Allocator::find`] can take for a client of `class`.
    pub(super) fn available_to(&self, class: BandwidthClass) -> u64 {
        let own = self.tally(class);
        let higher = BandwidthClass::ALL.into_iter().filter(|from| *from < class);
        let extras = higher.map(|from| self.takeable_extra(class, from));
        let below = lower(class).map(|from| self.stealable(from));
        extras
            .chain(below)
            .chain([own.reserve, own.extra, self.pool])
            .fold(0, u64::saturating_add)
    }

    /// Allocates the whole missing amount of a first come client, or nothing.
    fn allocate_whole(&mut self, id: ClientId) {
        let Some(need) = self.client(id).map(AllocatorClient::missing) else {
            return;
        };
        if need <= self.available_to(BandwidthClass::FirstCome) {
            let found = self.find(BandwidthClass::FirstCome, need);
            self.give(id, found);
        }
    }

    /// Allocates the missing amounts of the clients of a sharing class; if that is not fully
    /// available, the class shares its bandwidth.
    fn allocate_shared(&mut self, class: BandwidthClass) {
        let missing = self.tally(class).missing;
        if missing == 0 {
            return;
        }
        let found = self.find(class, missing);
        if found == missing {
            self.each(class, |client| {
                client.set(client.allocation.max(client.goal))
            });
        } else {
            let total = self.tally(class).allocated.wrapping_add(found);
            self.divide_below_goals(class, total);
        }
    }

    /// Allocates the floor to the clients of `class` without an allocation; bandwidth that is not
    /// available is oversubscribed.
    fn absolute_minimum(&mut self, class: BandwidthClass) {
        let floor = self.parameters.floor;
        let need = self.tally(class).empty.saturating_mul(floor);
        if need == 0 {
            return;
        }
        let found = self.find(class, need);
        let lacking = if found == need || class == BandwidthClass::FirstCome {
            self.each(class, |client| {
                if client.is_empty() {
                    client.set(floor);
                }
            });
            need.wrapping_sub(found)
        } else {
            let total = self.tally(class).allocated.wrapping_add(found);
            let floors = self.floors(class);
            self.divide_below_goals(class, total.max(floors));
            floors.saturating_sub(total)
        };
        self.over = self.over.wrapping_add(lacking);
    }
}

// Release of bandwidth.
impl Allocator {
    /// Releases `freed` bytes/s, which a client of `class` had; [`Allocator::apply_rules`]
    /// distributes them.
    pub(super) fn release(&mut self, class: BandwidthClass, freed: u64) {
        let freed = freed.wrapping_sub(self.refill_reserve(class, freed));
        // Released bandwidth reduces the oversubscription first.
        let back = self.over.min(freed);
        self.over = self.over.wrapping_sub(back);
        self.pool = self.pool.wrapping_add(freed.wrapping_sub(back));
    }

    /// Applies all rules, once after any number of clients entered or were withdrawn. Every other
    /// request that changes something settles, too.
    pub fn apply_rules(&mut self) {
        self.give_minimums();
        if !self.all_goals_met() {
            self.withdraw_extras();
        }
        if self.all_goals_met() {
            self.give_wanting();
            self.give_movers();
        }
    }

    /// Gives each client the floor, then the amount missing to the goal.
    fn give_minimums(&mut self) {
        for class in BandwidthClass::ALL {
            self.absolute_minimum(class);
        }
        self.give_unmet();
    }

    /// Gives unmet clients their goals, before any client gets more.
    ///
    /// A class that draws from its reserve may then hold more bandwidth from elsewhere than it
    /// needs. Higher classes may take that bandwidth, so the pass is repeated.
    fn give_unmet(&mut self) {
        let lent = |allocator: &Self| {
            let lent = |class| allocator.tally(class).lent;
            SHARING.into_iter().map(lent).fold(0, u64::wrapping_add)
        };
        loop {
            let before = lent(self);
            self.give_unmet_by_rank();
            if lent(self) == before {
                return;
            }
        }
    }

    /// Serves unmet clients, highest class first, oldest request first within a class.
    fn give_unmet_by_rank(&mut self) {
        let reach = self.available_to(BandwidthClass::FirstCome);
        if self.tally(BandwidthClass::FirstCome).missing > 0 && reach > 0 {
            // Each allocation reduces the reach of later clients.
            let may_fit = |client: &AllocatorClient| {
                client.terms.class == BandwidthClass::FirstCome
                    && client.is_unmet()
                    && client.missing() <= reach
            };
            let count = self.queue(may_fit, |client| client.since);
            self.each_queued(count, Self::allocate_whole);
        }
        for class in SHARING {
            self.allocate_shared(class);
        }
    }

    /// Returns true if all sharing classes have their goals and there is no oversubscription. Unmet
    /// first come clients are ignored, because they would have taken extra if extra sufficed.
    pub(super) fn all_goals_met(&self) -> bool {
        self.over == 0
            && SHARING
                .into_iter()
                .all(|class| self.tally(class).missing == 0)
    }

    /// Serves wanting clients, highest class first, oldest request first within a class.
    fn give_wanting(&mut self) {
        if !self.has_more() {
            return;
        }
        let wants = |client: &AllocatorClient| {
            client.terms.class != BandwidthClass::Mover && client.wants()
        };
        let count = self.queue(wants, |client| client.wished);
        self.each_queued(count, |allocator, id| {
            let wish = allocator.client(id).map_or(0, |client| client.wish);
            allocator.give_more(&MORE_OF_FREED, id, wish);
        });
    }

    /// Returns true if there is bandwidth for a wanting client.
    fn has_more(&self) -> bool {
        let has = |tally: &ClassTally| self.pool >= self.parameters.grant || tally.reserve > 0;
        let mut tallies = BandwidthClass::ALL
            .into_iter()
            .map(|class| self.tally(class));
        tallies.any(|tally| tally.wanting > 0 && has(tally))
    }

    /// Divides the remaining bandwidth among the movers.
    fn give_movers(&mut self) {
        let class = BandwidthClass::Mover;
        let tally = *self.tally(class);
        if tally.clients == 0 || (self.pool == 0 && tally.reserve == 0 && tally.extra == 0) {
            return;
        }
        let reserve = self.draw_reserve(class, tally.reserve);
        let pool = self.draw_pool(RATE_MAX);
        let extra = tally.extra.wrapping_add(reserve).wrapping_add(pool);
        let unused = self.divide_extra(class, extra);
        self.release(class, unused);
    }

    /// Releases all extra while sharing classes are unmet. Clients that could use the extra have
    /// already taken it.
    fn withdraw_extras(&mut self) {
        for class in BandwidthClass::ALL.into_iter().rev() {
            let extra = self.tally(class).extra;
            if extra > 0 {
                self.cut_extra(class, extra);
                self.release(class, extra);
            }
        }
    }
}

// Requests beyond the minimum.
impl Allocator {
    /// Raises client `id` towards `wish` by `rules`, unless the client is below its goal. Goals of
    /// other clients are not affected.
    pub(super) fn give_more(&mut self, rules: &[StealRule], id: ClientId, wish: u64) {
        let Some(client) = self.client(id).filter(|client| !client.is_unmet()) else {
            return;
        };
        let class = client.terms.class;
        let need = wish.min(client.cap).saturating_sub(client.allocation);
        let found = self.apply(rules, class, need);
        self.give(id, found);
    }

    /// Takes up to `need` from the pool, unless the pool is below the grant threshold.
    fn more_from_pool(&mut self, _class: BandwidthClass, need: u64) -> u64 {
        if self.pool < self.parameters.grant {
            return 0;
        }
        self.draw_pool(need)
    }

    /// Takes up to `need` of the extra of classes below `class`, lowest class first.
    fn more_from_lower(&mut self, class: BandwidthClass, need: u64) -> u64 {
        self.gather(lower(class), need, |this, from, most| {
            this.take_extra(class, from, most)
        })
    }
}

// Reallocation of everything.
impl Allocator {
    /// Redistributes everything after [`Allocator::open`]. Clients whose goals were met precede
    /// clients that were unmet, so that no client loses more than the new parameters require.
    pub(super) fn reallocate(&mut self) {
        let first_come = |client: &AllocatorClient| client.terms.class == BandwidthClass::FirstCome;
        for had_all in [true, false] {
            let choose =
                |client: &AllocatorClient| first_come(client) && client.had_all() == had_all;
            let count = self.queue(choose, |client| client.since);
            self.each_queued(count, Self::give_back_whole);
        }
        let unused = self.draw_pool(self.over);
        self.over = self.over.wrapping_sub(unused);
        self.give_minimums();
        if self.all_goals_met() {
            let had_extra = |client: &AllocatorClient| {
                client.terms.class != BandwidthClass::Mover && client.had > client.goal
            };
            let count = self.queue(had_extra, |client| client.since);
            self.each_queued(count, |allocator, id| {
                let had = allocator.client(id).map_or(0, |client| client.had);
                allocator.give_more(&MORE_OF_FREED, id, had);
            });
        }
        self.apply_rules();
    }

    /// Restores the previous allocation of a first come client, up to its goal, if reserve and pool
    /// suffice. The pool includes the previous oversubscription.
    fn give_back_whole(&mut self, id: ClientId) {
        let Some(client) = self.client(id) else {
            return;
        };
        let need = client.had.min(client.goal).max(self.parameters.floor);
        let free = self.tally(BandwidthClass::FirstCome).reserve;
        if need <= free.saturating_add(self.pool) {
            let found = self.find(BandwidthClass::FirstCome, need);
            self.give(id, found);
        }
    }
}

// Queues.
impl Allocator {
    /// Queues the clients selected by `choose`, sorted by class and `age`; returns their number.
    fn queue(
        &mut self,
        choose: impl Fn(&AllocatorClient) -> bool,
        age: impl Fn(&AllocatorClient) -> u64,
    ) -> usize {
        let mut queue = core::mem::replace(&mut self.queue, GrowingList::new());
        let mut places = queue.as_mut_slice().iter_mut();
        let mut count = 0usize;
        for (id, client) in self.clients() {
            if choose(client) {
                if let Some(place) = places.next() {
                    *place = id;
                    count = count.wrapping_add(1);
                }
            }
        }
        let key = |id: &ClientId| {
            let client = self.client(*id);
            client.map(|client| (client.terms.class, age(client)))
        };
        if let Some(queued) = queue.as_mut_slice().get_mut(..count) {
            sort::sort_by(queued, |a, b| key(a).cmp(&key(b)));
        }
        self.queue = queue;
        count
    }

    /// Applies `rule` to the first `count` clients of the queue; the rule must not change the
    /// queue.
    fn each_queued(&mut self, count: usize, rule: impl Fn(&mut Self, ClientId)) {
        for place in 0..count {
            if let Some(id) = self.queue.as_slice().get(place).copied() {
                rule(self, id);
            }
        }
    }
}

/// Iterates over the classes below `class`, lowest first.
fn lower(class: BandwidthClass) -> impl Iterator<Item = BandwidthClass> {
    let lowest_first = BandwidthClass::ALL.into_iter().rev();
    lowest_first.take_while(move |from| *from > class)
}
