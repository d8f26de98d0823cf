// SPDX-License-Identifier: GPL-2.0-only

//! The rules, in the order in which they are applied.
//!
//! Whatever a request changes, it ends in [`Allocator::settle`]: there each client that is below its goal asks for
//! what it is missing, the highest class first, and what is left then goes down the list of who may have
//! it. Before that everybody gets the floor, so that no other rule has to care about it.

use super::{
    book::Tally,
    client::{Client, RATE_MAX},
    Allocator, ClientId,
};
use crate::sched::{mem::List, qbm::terms::Class, sort};

/// The classes that share what they have, highest first.
const SHARING: [Class; 3] = [Class::FairShare, Class::LowShare, Class::Mover];

/// Takes up to so many bytes/s for a client of a class into the hand.
pub(super) type Rule = fn(&mut Allocator, Class, u64) -> u64;

/// For minimums.
const MINIMUM: [Rule; 4] = [
    Allocator::draw_reserve,
    Allocator::take_pool,
    Allocator::take_extras,
    Allocator::steal_from_lower,
];

/// For more than the minimum, when a client asks for it.
pub(super) const MORE: [Rule; 3] = [
    Allocator::more_from_pool,
    Allocator::draw_reserve,
    Allocator::more_from_lower,
];

/// For more than the minimum, when something was freed.
const MORE_OF_FREED: [Rule; 2] = [Allocator::more_from_pool, Allocator::draw_reserve];

// Allocating bandwidth to a client.
impl Allocator {
    /// Up to `need` into the hand: what `take` finds in each of `sources` until there is enough.
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

    /// Up to `need` for a client of `class` into the hand, by `rules`.
    fn apply(&mut self, rules: &[Rule], class: Class, need: u64) -> u64 {
        self.gather(rules, need, |this, rule, most| rule(this, class, most))
    }

    /// Up to `need` for the minimum of a client of `class` into the hand.
    fn find(&mut self, class: Class, need: u64) -> u64 {
        self.apply(&MINIMUM, class, need)
    }

    /// What is still needed from the free bandwidth of the group.
    fn take_pool(&mut self, _class: Class, need: u64) -> u64 {
        self.draw_pool(need)
    }

    /// What clients have above their goals, from the lowest class to the highest.
    fn take_extras(&mut self, class: Class, need: u64) -> u64 {
        let lowest_first = Class::ALL.into_iter().rev();
        self.gather(lowest_first, need, |this, from, most| {
            this.take_extra(class, from, most)
        })
    }

    /// What lower classes have above the floor, from the lowest to the one below `class`; a class shares what it
    /// keeps.
    fn steal_from_lower(&mut self, class: Class, need: u64) -> u64 {
        self.gather(lower(class), need, Self::steal)
    }

    /// Up to `most` of the extra of class `from` for a client of `class` into the hand.
    fn take_extra(&mut self, class: Class, from: Class, most: u64) -> u64 {
        let taken = self.takeable_extra(class, from).min(most);
        if taken > 0 {
            self.cut_extra(from, taken);
        }
        taken
    }

    /// What `class` may take of the extra of class `from`.
    fn takeable_extra(&self, class: Class, from: Class) -> u64 {
        let tally = self.tally(from);
        if class == from {
            tally.extra
        } else {
            tally.extra.min(tally.loose())
        }
    }

    /// Up to `most` of what the clients of class `from` have, down to the floor, into the hand. They have no extra
    /// that may be taken.
    fn steal(&mut self, from: Class, most: u64) -> u64 {
        let taken = self.stealable(from).min(most);
        if taken > 0 {
            let left = self.tally(from).allocated.wrapping_sub(taken);
            self.share_short(from, left);
        }
        taken
    }

    /// What higher classes may take from class `from`, its extra included.
    fn stealable(&self, from: Class) -> u64 {
        let tally = self.tally(from);
        let above = tally.allocated.saturating_sub(self.floors(from));
        above.min(tally.loose())
    }

    /// What [`Allocator::find`] would find for a client of `class`.
    pub(super) fn within_reach(&self, class: Class) -> u64 {
        let own = self.tally(class);
        let higher = Class::ALL.into_iter().filter(|from| *from < class);
        let extras = higher.map(|from| self.takeable_extra(class, from));
        let below = lower(class).map(|from| self.stealable(from));
        extras
            .chain(below)
            .chain([own.reserve, own.extra, self.pool])
            .fold(0, u64::saturating_add)
    }

    /// First come: all that the client is missing, or nothing.
    fn allocate_whole(&mut self, id: ClientId) {
        let Some(need) = self.client(id).map(Client::missing) else {
            return;
        };
        if need <= self.within_reach(Class::FirstCome) {
            let found = self.find(Class::FirstCome, need);
            self.give(id, found);
        }
    }

    /// Sharing classes: whatever can be found of what its clients are missing; if that is not all, the class
    /// shares what it has.
    fn allocate_shared(&mut self, class: Class) {
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
            self.share_short(class, total);
        }
    }

    /// Everybody has the absolute minimum: the clients of `class` that have nothing yet get it. What cannot be
    /// found is given beyond the capacity.
    fn absolute_minimum(&mut self, class: Class) {
        let floor = self.setup.floor;
        let need = self.tally(class).empty.saturating_mul(floor);
        if need == 0 {
            return;
        }
        let found = self.find(class, need);
        let lacking = if found == need || class == Class::FirstCome {
            self.each(class, |client| {
                if client.is_empty() {
                    client.set(floor);
                }
            });
            need.wrapping_sub(found)
        } else {
            let total = self.tally(class).allocated.wrapping_add(found);
            let floors = self.floors(class);
            self.share_short(class, total.max(floors));
            floors.saturating_sub(total)
        };
        self.over = self.over.wrapping_add(lacking);
    }
}

// Freeing bandwidth.
impl Allocator {
    /// Gives back what is in the hand, `freed`, which a client of `class` had; [`Allocator::settle`] does the rest.
    pub(super) fn release(&mut self, class: Class, freed: u64) {
        let freed = freed.wrapping_sub(self.refill_reserve(class, freed));
        // If more than the capacity was given, that is made up for.
        let back = self.over.min(freed);
        self.over = self.over.wrapping_sub(back);
        self.pool = self.pool.wrapping_add(freed.wrapping_sub(back));
    }

    /// Gives everybody what the rules say, after clients have entered or were withdrawn: once for all of them.
    /// Every other request that changes something does so too.
    pub fn settle(&mut self) {
        self.give_minimums();
        if !self.is_content() {
            self.withdraw_extras();
        }
        if self.is_content() {
            self.give_wanting();
            self.give_movers();
        }
    }

    /// Gives everybody the floor, and what it has below its goal.
    fn give_minimums(&mut self) {
        for class in Class::ALL {
            self.absolute_minimum(class);
        }
        self.give_unmet();
    }

    /// If clients have less than their goals, they get it before anybody gets more.
    ///
    /// A class that draws from its reserve may have more than it needs from elsewhere after that, which is for
    /// higher classes; so they are asked once more.
    fn give_unmet(&mut self) {
        let lent = |book: &Self| {
            let lent = |class| book.tally(class).lent;
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

    /// The highest class first, and in it the oldest request.
    fn give_unmet_by_rank(&mut self) {
        let reach = self.within_reach(Class::FirstCome);
        if self.tally(Class::FirstCome).missing > 0 && reach > 0 {
            // What each one takes is out of the reach of the next.
            let may_fit = |client: &Client| {
                client.terms.class == Class::FirstCome
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

    /// Whether everybody has what it asked for up to its minimum, within the capacity; but for first come clients that
    /// wait for more than there is, which extra keeps from nothing: it is within their reach.
    pub(super) fn is_content(&self) -> bool {
        self.over == 0
            && SHARING
                .into_iter()
                .all(|class| self.tally(class).missing == 0)
    }

    /// Then those that want more get it: the highest class first, and in it the oldest request.
    fn give_wanting(&mut self) {
        if !self.has_more() {
            return;
        }
        let wants = |client: &Client| client.terms.class != Class::Mover && client.wants();
        let count = self.queue(wants, |client| client.wished);
        self.each_queued(count, |book, id| {
            let wish = book.client(id).map_or(0, |client| client.wish);
            book.give_more(&MORE_OF_FREED, id, wish);
        });
    }

    /// Whether there is something for a client that wants more.
    fn has_more(&self) -> bool {
        let has = |tally: &Tally| self.pool >= self.setup.grant || tally.reserve > 0;
        let mut tallies = Class::ALL.into_iter().map(|class| self.tally(class));
        tallies.any(|tally| tally.wanting > 0 && has(tally))
    }

    /// What is left then, the movers share.
    fn give_movers(&mut self) {
        let class = Class::Mover;
        let tally = *self.tally(class);
        if tally.clients == 0 || (self.pool == 0 && tally.reserve == 0 && tally.extra == 0) {
            return;
        }
        let reserve = self.draw_reserve(class, tally.reserve);
        let pool = self.draw_pool(RATE_MAX);
        let extra = tally.extra.wrapping_add(reserve).wrapping_add(pool);
        let unused = self.share_rich(class, extra);
        self.release(class, unused);
    }

    /// While clients that share have too little nobody has extra. Whoever could use it has it already; the rest is freed.
    fn withdraw_extras(&mut self) {
        for class in Class::ALL.into_iter().rev() {
            let extra = self.tally(class).extra;
            if extra > 0 {
                self.cut_extra(class, extra);
                self.release(class, extra);
            }
        }
    }
}

// Requests for more than the minimum.
impl Allocator {
    /// Gives client `id` what `rules` find until it has `wish`; nothing if it has less than its goal. Others keep
    /// theirs.
    pub(super) fn give_more(&mut self, rules: &[Rule], id: ClientId, wish: u64) {
        let Some(client) = self.client(id).filter(|client| !client.is_unmet()) else {
            return;
        };
        let class = client.terms.class;
        let need = wish.min(client.cap).saturating_sub(client.allocation);
        let found = self.apply(rules, class, need);
        self.give(id, found);
    }

    /// From the free bandwidth, if there is not just a little of it.
    fn more_from_pool(&mut self, _class: Class, need: u64) -> u64 {
        if self.pool < self.setup.grant {
            return 0;
        }
        self.draw_pool(need)
    }

    /// What clients of lower classes have above their goals, from the lowest to the highest.
    fn more_from_lower(&mut self, class: Class, need: u64) -> u64 {
        self.gather(lower(class), need, |this, from, most| {
            this.take_extra(class, from, most)
        })
    }
}

// Everything anew.
impl Allocator {
    /// Gives out everything after [`Allocator::open`]. Who had something is asked before who waits, so nobody loses
    /// more than the new numbers make necessary.
    pub(super) fn give_anew(&mut self) {
        let first_come = |client: &Client| client.terms.class == Class::FirstCome;
        for had_all in [true, false] {
            let choose = |client: &Client| first_come(client) && client.had_all() == had_all;
            let count = self.queue(choose, |client| client.since);
            self.each_queued(count, Self::give_back_whole);
        }
        let unused = self.draw_pool(self.over);
        self.over = self.over.wrapping_sub(unused);
        self.give_minimums();
        if self.is_content() {
            let had_extra =
                |client: &Client| client.terms.class != Class::Mover && client.had > client.goal;
            let count = self.queue(had_extra, |client| client.since);
            self.each_queued(count, |book, id| {
                let had = book.client(id).map_or(0, |client| client.had);
                book.give_more(&MORE_OF_FREED, id, had);
            });
        }
        self.settle();
    }

    /// Gives a first come client what it had, up to its goal, if that is free; as much beyond the capacity as
    /// before.
    fn give_back_whole(&mut self, id: ClientId) {
        let Some(client) = self.client(id) else {
            return;
        };
        let need = client.had.min(client.goal).max(self.setup.floor);
        let free = self.tally(Class::FirstCome).reserve;
        if need <= free.saturating_add(self.pool) {
            let found = self.find(Class::FirstCome, need);
            self.give(id, found);
        }
    }
}

// Queues.
impl Allocator {
    /// Queues the clients that `choose` chooses by class and `age`; answers how many.
    fn queue(&mut self, choose: impl Fn(&Client) -> bool, age: impl Fn(&Client) -> u64) -> usize {
        let mut queue = core::mem::replace(&mut self.queue, List::new());
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

    /// Does `rule` for the first `count` clients of the queue, which it does not change.
    fn each_queued(&mut self, count: usize, rule: impl Fn(&mut Self, ClientId)) {
        for place in 0..count {
            if let Some(id) = self.queue.as_slice().get(place).copied() {
                rule(self, id);
            }
        }
    }
}

/// The classes below `class`, lowest first.
fn lower(class: Class) -> impl Iterator<Item = Class> {
    let lowest_first = Class::ALL.into_iter().rev();
    lowest_first.take_while(move |from| *from > class)
}
