// SPDX-License-Identifier: GPL-2.0-only

//! Ticks: unregister idle clients, and adjust the allocations of other clients.

use super::{
    client::{GroupCounts, KEEP},
    group::parameters_of,
    mover_strategy::GroupLoad,
    rate::{percent, rate},
    usage::{ClientTotals, MarkTime, UsageLevel},
    BandwidthManager, CHANGES, CHANGES_MIN, LOOKS,
};
use crate::sched::{
    qbm::{
        allocator::{Increase, NoBandwidth},
        plan::BandwidthParameters,
        terms::BandwidthClass,
    },
    statistics::Stats,
};

/// Data of a tick.
struct Tick {
    now: u64,
    /// Time of the previous tick.
    last: u64,
    tuning: BandwidthParameters,
    /// Start of the fast period.
    window: Option<MarkTime>,
    /// Index at which clients store their totals.
    mark: Option<usize>,
    /// Time since the last mark, ns.
    span: u64,
    /// Number of slow periods that may still be evaluated.
    left: u32,
}

impl BandwidthManager {
    /// Unregisters idle clients, updates usage, restores, increases and decreases allocations, and
    /// adjusts movers.
    pub(super) fn tick(&mut self, now: u64) {
        let tuning = *self.plan.tuning();
        let last = self.clock.last();
        let clients: u32 = self
            .groups
            .as_slice()
            .iter()
            .fold(0, |sum, group| sum.saturating_add(group.clients));
        let mut tick = Tick {
            now,
            last: core::mem::replace(&mut self.ticked, now),
            tuning,
            window: self.clock.window(now, tuning.fast),
            mark: self.clock.mark(now, tuning.fast),
            span: now.saturating_sub(last),
            left: LOOKS
                .checked_div(clients)
                .map_or(CHANGES, |left| left.clamp(CHANGES_MIN, CHANGES)),
        };
        for load in self.loads.as_mut_slice() {
            *load = GroupLoad::default();
        }
        let places = self.gates.len();
        let first = self.turn.min(places);
        let mut turn = None;
        for place in (first..places).chain(0..first) {
            if tick.left == 0 && turn.is_none() {
                turn = Some(place);
            }
            self.see(place, &mut tick);
        }
        self.turn = turn.unwrap_or(first);
        if tick.mark.is_some() {
            self.see_movers(&tick);
        }
    }

    /// Evaluates the client at `place`.
    fn see(&mut self, place: u32, tick: &mut Tick) {
        let now = tick.now;
        let client = self.clients.get_mut(place as usize);
        let (Some(client), Some(gate)) = (client.and_then(Option::as_mut), self.gates.get(place))
        else {
            return;
        };
        if self.gates.has_earlier_duplicate(place) {
            // The gate was claimed while the earlier gate of the client was being claimed, too.
            self.retire(place, now);
            self.forget(place);
            self.gates.revoke(place);
            self.changed = true;
            return;
        }
        let client = &mut **client;
        client.lowered = false;
        client.see(gate, tick.last, now);
        let idle = now.saturating_sub(client.busy);
        if !client.here {
            let scarce = self.gates.are_scarce();
            let is_over = idle >= KEEP || (scarce && idle >= tick.tuning.idle);
            if is_over && self.gates.close(place) {
                self.forget(place);
                self.gates.revoke(place);
                // Classes that use the shared gate may now claim a gate of their own.
                self.changed = true;
            }
            return;
        }
        if idle >= tick.tuning.idle {
            self.retire(place, now);
            return;
        }
        let total = ClientTotals::of(&gate.usage());
        client.recent.update(total, tick.window, now, &tick.tuning);
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
        self.rebalance(place, tick);
    }

    /// Adjusts the allocation of the client at `place`; gates are set after all clients were
    /// evaluated.
    fn rebalance(&mut self, place: u32, tick: &mut Tick) {
        let (now, tuning) = (tick.now, &tick.tuning);
        let client = self.clients.get_mut(place as usize);
        let Some(client) = client.and_then(Option::as_mut) else {
            return;
        };
        let total = client.recent.total;
        let over = tick.left > 0 && client.recent.slow.is_over(now, tuning);
        let verdict = if over {
            client.recent.slow.end(total.bytes, now, tuning)
        } else {
            UsageLevel::Enough
        };
        let (Some(id), Some(terms)) = (client.id, client.terms) else {
            return;
        };
        let groups = self.groups.as_mut_slice();
        let Some(group) = groups.get_mut(client.group as usize) else {
            return;
        };
        let has = group.allocator.allocation(id);
        let given = match (group.allocator.given(id), terms.class) {
            // The share of a mover may be above the minimum.
            (given, BandwidthClass::Mover) => given,
            (given, _) => given.min(terms.min),
        };
        let rested = now.saturating_sub(client.restored) >= tuning.fast;
        let mut counts = GroupCounts::ZERO;
        if client.recent.fast.slept && rested && has < given {
            client.restored = now;
            group.allocator.restore_deferred(id);
            group.stale = true;
            counts.restores = 1;
        } else if verdict == UsageLevel::Much && has < terms.max {
            let more = percent(has, tuning.raise).max(1);
            counts.increases_asked = 1;
            match group.allocator.increase(id, more) {
                Ok(Increase::Whole(_)) => counts.increases_whole = 1,
                Ok(Increase::Partly(_)) => counts.increases_partly = 1,
                Err(NoBandwidth) => counts.increases_refused = 1,
            }
        } else if verdict == UsageLevel::Little && has > tuning.floor {
            client.lowered = true;
            group.allocator.decrease(id, percent(has, tuning.lower));
            counts.decreases = 1;
        } else {
            return;
        }
        tick.left = tick.left.saturating_sub(over.into());
        client.counters.merge(&counts);
        group.counters.merge(&counts);
    }

    /// Updates the bandwidth left to movers from the usage of other clients.
    fn see_movers(&mut self, tick: &Tick) {
        let loads = self.loads.as_slice().iter();
        let groups = self.groups.as_mut_slice().iter_mut().zip(loads);
        for (settings, (group, load)) in self.plan.groups().iter().zip(groups) {
            let left = group.movers.as_mut().and_then(|movers| movers.see(load));
            if let Some(left) = left {
                let parameters = parameters_of(settings, &tick.tuning, left);
                group.allocator.set_parameters(parameters);
            }
        }
    }
}
