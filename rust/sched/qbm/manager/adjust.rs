// SPDX-License-Identifier: GPL-2.0-only

//! A tick: clients leave, and ask for more or less.

use super::{
    client::{count, Counters, Stay, Traffic},
    group::setup_of,
    movers::Load,
    rate::{percent, rate},
    usage::{Moment, Verdict},
    Manager, ASKS, ASKS_MIN, LOOKS, OPEN, OTHERS,
};
use crate::sched::qbm::{
    allocator::{Again, Raised},
    terms::{Class, Tuning},
};

/// What a tick knows.
struct Tick {
    now: u64,
    tuning: Tuning,
    /// Where the fast period begins.
    window: Option<Moment>,
    /// Where to note the totals.
    mark: Option<usize>,
    /// Since the last mark, ns.
    span: u64,
    /// Requests that the allocator takes yet.
    asks: u32,
}

/// What a client asks for.
enum Ask {
    Restore,
    More,
    Less,
}

impl Manager {
    /// After a walk over all classes: clients that were not busy for long leave; statistics; restoring,
    /// increasing and decreasing; movers; sleeps. Wants to be called five times in a fast period.
    pub fn tick(&mut self, now: u64) {
        let tuning = *self.plan.tuning();
        let last = self.clock.last();
        let mut tick = Tick {
            now,
            tuning,
            window: self.clock.window(now, tuning.fast),
            mark: self.clock.mark(now, tuning.fast),
            span: now.saturating_sub(last),
            asks: LOOKS
                .checked_div(self.clients.slots())
                .map_or(ASKS, |asks| asks.clamp(ASKS_MIN, ASKS)),
        };
        for load in self.loads.as_mut_slice() {
            *load = Load::default();
        }
        let slots = self.clients.slots();
        let first = self.turn.min(slots).max(1);
        let mut turn = None;
        for slot in (first..slots).chain(1..first) {
            if tick.asks == 0 && turn.is_none() {
                turn = Some(slot);
            }
            self.see(slot, &mut tick);
        }
        self.turn = turn.unwrap_or(first);
        self.settle(now);
        self.see_crowds(&tick);
        if tick.mark.is_some() {
            self.see_movers(&tick);
        }
    }

    /// Sees what the client in `slot` did.
    fn see(&mut self, slot: u32, tick: &mut Tick) {
        let now = tick.now;
        let Some(client) = self.clients.at_mut(slot) else {
            return;
        };
        match client.stay {
            Stay::Here => {}
            Stay::Left => {
                client.stay = Stay::Away;
                return;
            }
            Stay::Away => {
                self.forget(slot, now);
                return;
            }
        }
        if now.saturating_sub(client.busy) >= tick.tuning.idle {
            self.retire(slot, now);
            return;
        }
        let Some(gate) = self.gates.get(super::seat_of(slot)) else {
            return;
        };
        let total = Traffic::of(&gate.usage()).mark();
        client.recent.look(total, tick.window, now, &tick.tuning);
        client.recent.slow.allow(client.rate, now);
        let load = self.loads.as_mut_slice().get_mut(client.group as usize);
        if let (Some(place), Some(load)) = (tick.mark, load) {
            let last = rate(client.recent.mark(place).bytes, tick.span);
            if client.terms.is_none() {
                load.fast = load.fast.saturating_add(client.recent.fast.rate);
                load.last = load.last.saturating_add(last);
            } else {
                load.movers = load.movers.saturating_add(last);
            }
        }
        if tick.asks > 0 {
            self.ask(slot, tick);
        }
    }

    /// Asks the allocator for what the client in `slot` is to have.
    fn ask(&mut self, slot: u32, tick: &mut Tick) {
        let (now, tuning) = (tick.now, &tick.tuning);
        let Some(client) = self.clients.at_mut(slot) else {
            return;
        };
        let total = client.recent.total;
        let over = client.recent.slow.is_over(now, tuning);
        let verdict = if over {
            client.recent.slow.end(total.bytes, now, tuning)
        } else {
            Verdict::Enough
        };
        let (Some(id), Some(terms)) = (client.id, client.terms) else {
            return;
        };
        let place = client.group as usize;
        let Some(group) = self.groups.as_mut_slice().get_mut(place) else {
            return;
        };
        let has = group.allocator.allocation(id);
        let given = match (group.allocator.given(id), terms.class) {
            // Whose share of what is left may be above its minimum.
            (given, Class::Mover) => given,
            (given, _) => given.min(terms.min),
        };
        let rested = now.saturating_sub(client.restored) >= tuning.fast;
        let ask = if client.recent.fast.slept && rested && has < given {
            Ask::Restore
        } else if verdict == Verdict::Much && has < terms.max {
            Ask::More
        } else if verdict == Verdict::Little && has > tuning.floor {
            Ask::Less
        } else {
            return;
        };
        tick.asks = tick.asks.saturating_sub(1);
        let counter: fn(&mut Counters) -> &mut u64 = match ask {
            Ask::Restore => {
                client.restored = now;
                group.allocator.restore(id);
                |counters| &mut counters.restores
            }
            Ask::More => {
                let more = percent(has, tuning.raise).max(1);
                match group.allocator.increase(id, more) {
                    Ok(Raised::Whole(_)) => |counters| &mut counters.whole,
                    Ok(Raised::Partly(_)) => |counters| &mut counters.partly,
                    Err(Again) => |counters| &mut counters.refused,
                }
            }
            Ask::Less => {
                group.allocator.decrease(id, percent(has, tuning.lower));
                |counters| &mut counters.decreases
            }
        };
        count(counter(&mut client.counters));
        count(counter(&mut group.counters));
        self.apply(place, Some(id), now);
    }

    /// Crowds that nobody belongs to any more leave.
    fn see_crowds(&mut self, tick: &Tick) {
        for place in 0..self.groups.as_slice().len() {
            let Some(group) = self.groups.as_mut_slice().get_mut(place) else {
                return;
            };
            let idle = tick.now.saturating_sub(group.crowd.busy) >= tick.tuning.idle;
            if group.crowd.id.is_some() && idle {
                group.disperse();
                self.apply(place, Some(OTHERS), tick.now);
            }
        }
        self.set_crowd(tick.now);
    }

    /// Gives movers what others leave.
    fn see_movers(&mut self, tick: &Tick) {
        let open = self.gates.get(OPEN).map_or(0, |gate| gate.usage().bytes());
        let before = core::mem::replace(&mut self.open, open);
        let open = rate(open.saturating_sub(before), tick.span);
        let loads = self.loads.as_mut_slice().iter_mut();
        let groups = self.groups.as_mut_slice().iter_mut().zip(loads);
        for (settings, (group, load)) in self.plan.groups().iter().zip(groups) {
            let Some(movers) = &mut group.movers else {
                continue;
            };
            if tick.now.saturating_sub(group.crowd.open) < tick.tuning.idle {
                // Somebody's of this group, nobody knows how much of it.
                load.last = load.last.saturating_add(open);
            }
            if let Some(left) = movers.see(load) {
                let setup = setup_of(settings, &tick.tuning, left);
                group.allocator.set_setup(setup);
                self.changed |= group.apply(&mut self.clients, &self.gates, Some(OTHERS), tick.now);
            }
        }
    }
}
