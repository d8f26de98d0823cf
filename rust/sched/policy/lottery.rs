// SPDX-License-Identifier: GPL-2.0-only

//! Lottery: the client of each dispatch is drawn; clients with more queued requests are drawn more
//! often.
//!
//! The policy exists in tests only, as an example of a policy with classes. A class is a client
//! with a *ticket* for each queued request, up to `nrs_lottery_tickets`. The tickets of all classes
//! are a Fenwick tree over the indices of classes (P. M. Fenwick, "A new data structure for
//! cumulative frequency tables", 1994), so a draw is exact and takes O(log n).

use crate::sched::{
    attr::Attrs,
    item::{Cost, Fifo, Item},
    key::{Field, Key},
    mem::{self, Bulk, ChunkPile, Chunks, Grow, NoMemory},
    parameters::schema::parameters,
    policy::{
        classes::{self, Class, Classful},
        params::ClassesMax,
        BypassOutcome, BypassReason, Decision, NoArgument, PartView, Simple, Tuning,
    },
    rng::Rng,
    statistics::{stats, Stats},
};

pub use crate::sched::policy::{
    Nothing as PolicyData, Nothing as Overseer, Nothing as Shared, Nothing as Update,
};

parameters! {
    /// Parameters of the policy.
    pub struct Tunables of |values| values.policies.lottery, "", "ENOMEM" {
        /// Largest number of tickets of a client in a draw.
        "nrs_lottery_tickets" tickets: [number Tickets, "tickets, ", 1..=65_535 = 8],
    }
    also {
        /// Largest number of classes in the table.
        classes_max: ClassesMax,
    }
    texts {}
}

stats! {
    /// Counters of the policy.
    Counts {
        draws: Counter Plain "nrs_policy_draws_total" "Draws of the next client";
    }
}

impl Tuning for Tunables {
    fn set_classes_max(&mut self, max: ClassesMax) {
        self.classes_max = max;
    }
}

impl Simple for Tunables {
    type Update = Update;
}

/// Configuration of a part.
pub type Config = NoArgument<Tunables>;

/// Tickets of all classes; node `i` has the sum for the indices from `i & (i + 1)` to `i`.
pub struct TicketTree {
    nodes: Bulk<u64>,
    sum: u64,
}

impl TicketTree {
    fn node(&self, index: usize) -> u64 {
        self.nodes.get(index).copied().unwrap_or(0)
    }

    /// Changes the number of tickets of the class at index `idx` from `before` to `now`.
    fn set(&mut self, idx: u32, before: u32, now: u32) {
        let moved = |sum: u64| sum.wrapping_add(now.into()).wrapping_sub(u64::from(before));
        let mut node = idx as usize;
        while let Some(sum) = self.nodes.get_mut(node) {
            *sum = moved(*sum);
            node |= node.wrapping_add(1);
        }
        self.sum = moved(self.sum);
    }

    /// Returns the index of the class with ticket number `ticket`.
    fn find(&self, mut ticket: u64) -> u32 {
        let mut idx = 0usize;
        let mut step = self.nodes.len().checked_ilog2().map_or(0, |log| 1 << log);
        while step > 0 {
            let end = idx.wrapping_add(step);
            let tickets = self.node(end.wrapping_sub(1));
            if end <= self.nodes.len() && tickets <= ticket {
                ticket = ticket.wrapping_sub(tickets);
                idx = end;
            }
            step >>= 1;
        }
        idx as u32
    }
}

impl Grow for TicketTree {
    type Need = Chunks<u64>;
    type Spare = ChunkPile<u64>;

    fn capacity(&self) -> usize {
        self.nodes.capacity()
    }

    fn create(&mut self, idx: u32) {
        let node = idx as usize;
        if node < self.nodes.len() {
            return;
        }
        // The new class has no tickets; the classes before it that the node covers may have some.
        let first = node & node.wrapping_add(1);
        let (mut sum, mut end) = (0, node);
        while end > first {
            let last = end.wrapping_sub(1);
            sum = self.node(last).wrapping_add(sum);
            end &= last;
        }
        bug!(self.nodes.push(sum).is_err());
    }

    fn wants(&self, entries: usize) -> Chunks<u64> {
        self.nodes.wants(entries.saturating_sub(self.nodes.len()))
    }

    fn feed(&mut self, spare: ChunkPile<u64>) -> ChunkPile<u64> {
        self.nodes.feed(spare)
    }
}

/// Draws of clients.
pub struct Lottery {
    rng: Rng,
    tickets: u32,
    counts: Counts,
}

/// State of the policy on one head.
pub type State<I> = classes::State<I, Lottery>;

impl Lottery {
    /// Updates the tickets of a class, whose number of queued requests changes to `now`.
    fn set<F>(&self, tree: &mut TicketTree, idx: u32, class: &Class<F>, now: u32) {
        let tickets = |queued: u32| queued.min(self.tickets);
        tree.set(idx, tickets(class.queued()), tickets(now));
    }
}

impl<I: Item> Classful<I> for Lottery {
    type Key = Key;
    type Record = I::Fifo;
    type Queue = TicketTree;
    type Config = Config;
    type Shared = Shared;
    type Update = Update;

    const DEFAULT: Key = Key::Default;

    fn new(config: &Config, seed: u64, _shared: &mem::Shared<Shared>) -> Result<Self, NoMemory> {
        Ok(Self {
            rng: Rng::new(seed),
            tickets: config.tunables.tickets.get(),
            counts: Counts::ZERO,
        })
    }

    fn classes_max(config: &Config) -> u32 {
        config.tunables.classes_max.get()
    }

    fn queue(_config: &Config, entries: usize) -> Result<TicketTree, NoMemory> {
        Ok(TicketTree {
            nodes: Bulk::new(entries)?,
            sum: 0,
        })
    }

    fn key(&self, attrs: &Attrs) -> Key {
        Key::of(Field::Uid, attrs)
    }

    fn record(&mut self, _key: Option<&Key>, _shared: Option<&Key>, _now: u64) -> I::Fifo {
        I::Fifo::new()
    }

    fn push(
        &mut self,
        tree: &mut TicketTree,
        idx: u32,
        class: &mut Class<I::Fifo>,
        item: I,
        _now: u64,
    ) -> Result<(), I> {
        class.record.push(item);
        self.set(tree, idx, class, class.record.len());
        Ok(())
    }

    fn remove(
        &mut self,
        tree: &mut TicketTree,
        idx: u32,
        class: &mut Class<I::Fifo>,
        handle: &I::Handle,
        _now: u64,
    ) -> Option<I> {
        let item = class.record.remove(handle)?;
        self.set(tree, idx, class, class.record.len());
        Some(item)
    }

    fn next(state: &mut State<I>, _view: &PartView<'_>) -> Decision<u32> {
        let policy = &mut state.policy;
        policy.counts.draws = policy.counts.draws.wrapping_add(1);
        let ticket = policy.rng.below(state.queue.sum);
        Decision::Item(state.queue.find(ticket))
    }

    fn pop(
        &mut self,
        tree: &mut TicketTree,
        idx: u32,
        class: &mut Class<I::Fifo>,
        _now: u64,
    ) -> Option<(I, u32)> {
        let item = class.record.pop()?;
        self.set(tree, idx, class, class.record.len());
        Some((item, 0))
    }

    fn pass(
        _state: &mut State<I>,
        _idx: u32,
        _cost: Cost,
        _way: BypassReason,
        _now: impl FnOnce() -> u64,
    ) -> BypassOutcome {
        BypassOutcome::Counted
    }

    fn update(_state: &mut State<I>, update: Update) -> Update {
        update
    }

    fn add_counts(&self, sums: &mut [u64]) {
        self.counts.add_to(sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::mem::Need;

    /// Compares look-ups with a list of tickets, while classes are added and tickets change.
    #[test]
    fn each_ticket_is_found() {
        let mut tree = TicketTree {
            nodes: Bulk::new(100).unwrap(),
            sum: 0,
        };
        tree.feed(tree.wants(100).allocate().unwrap());
        let (mut tickets, mut rng) = (Vec::new(), Rng::new(1));
        for _ in 0..2_000 {
            if tickets.len() < 100 && rng.below(10) == 0 {
                tree.create(tickets.len() as u32);
                tickets.push(0);
            }
            if !tickets.is_empty() {
                let idx = rng.below(tickets.len() as u64) as usize;
                let new = rng.below(4) as u32;
                tree.set(idx as u32, tickets[idx], new);
                tickets[idx] = new;
            }
            let all: Vec<u32> = (tickets.iter().zip(0..))
                .flat_map(|(&count, idx)| (0..count).map(move |_| idx))
                .collect();
            assert_eq!(tree.sum, all.len() as u64);
            assert!(all
                .iter()
                .zip(0..)
                .all(|(&idx, ticket)| tree.find(ticket) == idx));
        }
    }
}
