// SPDX-License-Identifier: GPL-2.0-only

//! Slots that stay free for the next requests of entities that send one request at a time.
//!
//! An entity that waits for each of its requests before it sends the next one is never queued when
//! a decision is made, so that it waits for a slot each time. If it is owed service, the slot that
//! it needs is kept free for the short time until its next request.
//!
//! - *Pause*: time from the end of the only request of a leaf to the arrival of its next one
//!   ([`Pauses`]).
//! - *Expected*: a leaf whose only request has ended, and whose pauses are short. At most
//!   [`EXPECTED_MAX`] leaves are expected at a time.
//! - *Hold*: time in which a slot stays free for an expected leaf that has been chosen.
//! - *Credit*: time for which slots may be kept free; a part of the time of all slots.
//!
//! ```text
//!          only request ends,               the scheduler             a decision finds no other
//!          pauses are short                 chooses the leaf          free slot: pay in advance
//!   idle ────────────────────▶ competing ────────────────▶ chosen ────────────────────▶ holding
//!    ▲ ▲                        │    │                      │   │                        │   │
//!    │ └── time is over ────────┘────│──────────────────────┘───│────────────────────────┘   │
//!    │                               ▼                          ▼          request arrives   ▼
//!    └────── request ends ──── queued, in flight ◀───────────────────────────────────────────┘
//! ```
//!
//! A competing leaf is in the timeline with the cost of its last request, so that it earns its
//! share at every level of the tree as if its next request was queued. A chosen leaf leaves the
//! timeline with its lag, which it keeps if its request arrives in time, and else loses: an entity
//! that sends nothing is owed nothing.
//!
//! # Bound of the loss
//!
//! A hold is paid for in advance, as long as it may last; what is left is returned when the request
//! arrives. Without credit there is no hold. So in any time `t` at most `permille / 1000 * t`, and
//! once the larger of that for [`AHEAD`] and half of the longest hold, is lost, whatever the
//! clients do. Holds charge no entity and change no tag of others: shares and the bounds of
//! [`super::deadline`] apply to the service that is left.

use super::{
    deadline::RequestStep, entity::TimelineState, members::Members, params::Tunables,
    tree::SchedulerTree, State,
};
use crate::sched::{
    item::{Cost, Item},
    policy::{FreeSlots, Hold},
    units::{NSEC_PER_MSEC, NSEC_PER_SEC, NSEC_PER_USEC},
};

/// Largest number of leaves that are expected at a time.
const EXPECTED_MAX: usize = 4;

/// Time for which credit is kept, ns.
const AHEAD: u64 = 100 * NSEC_PER_MSEC;

/// Shortest time for which a leaf is expected, ns: the slack of timers.
const EXPECTED_MIN: u64 = 50 * NSEC_PER_USEC;

/// Deviations beyond the average for which a leaf is expected, as the timeout of TCP (RFC 6298).
const DEVIATIONS: u64 = 4;

/// Units of credit in a nanosecond.
const UNITS: u64 = 1000;

/// Parameters of holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HoldTerms {
    /// Part of the time of all slots that may be kept free, thousandths.
    permille: u64,
    /// Longest time for which a leaf is expected, ns; 0: no leaf is expected.
    longest: u64,
}

impl HoldTerms {
    /// Returns the terms in `tunables`.
    pub fn of(tunables: &Tunables) -> Self {
        Self {
            permille: tunables.hold_permille.get().into(),
            longest: match tunables.has_holds() {
                true => u64::from(tunables.hold_us.get()).saturating_mul(NSEC_PER_USEC),
                false => 0,
            },
        }
    }
}

/// Pauses of a leaf, ns.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pauses {
    /// Time at which the last request ended; 0 if it is not known.
    ended: u64,
    /// Moving average; 0 before the first pause.
    average: u32,
    /// Moving average of the distance from the average.
    deviation: u32,
}

impl Pauses {
    /// Notes a request that arrives at `now`, ns; a pause counts as at most twice `longest`, ns.
    /// The weights of the averages are those of RFC 6298.
    fn arrived(&mut self, now: u64, longest: u64) {
        let ended = core::mem::take(&mut self.ended);
        if ended == 0 {
            return;
        }
        let most = longest.saturating_mul(2).min(u64::from(u32::MAX >> 1));
        // At most `u32::MAX >> 1`.
        let pause = now.saturating_sub(ended).clamp(1, most) as u32;
        if self.average == 0 {
            (self.average, self.deviation) = (pause, pause / 2);
            return;
        }
        let error = pause.abs_diff(self.average);
        self.deviation = mean(self.deviation, error, 4);
        self.average = mean(self.average, pause, 8).max(1);
    }

    /// Returns the time for which the next request is expected, ns; `None` if it usually comes
    /// later than `longest`, ns, or if that is not known.
    fn expectation(&self, longest: u64) -> Option<u64> {
        let average = u64::from(self.average);
        if average == 0 || average > longest {
            return None;
        }
        let spread = u64::from(self.deviation).saturating_mul(DEVIATIONS);
        let most = longest.max(EXPECTED_MIN);
        Some(average.saturating_add(spread).clamp(EXPECTED_MIN, most))
    }
}

/// Returns the moving average after `value`, which has the weight `1 / share`.
fn mean(average: u32, value: u32, share: u32) -> u32 {
    let step = value.abs_diff(average).checked_div(share).unwrap_or(0);
    match value > average {
        true => average.saturating_add(step),
        false => average.saturating_sub(step),
    }
}

/// Stage of an expected leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// In the timeline without a request.
    Competing,
    /// Out of the timeline, with its lag: the leaf is next.
    Chosen,
    /// Chosen; a slot is kept free since `since`, ns, for which `price` units were paid.
    Holding { since: u64, price: u64 },
}

/// Leaf whose next request is expected.
#[derive(Clone, Copy, Debug)]
struct Expected {
    idx: u32,
    /// Time until which the request is expected, ns.
    until: u64,
    stage: Stage,
}

/// Expected leaves of a part, and their credit.
///
/// # Invariants
///
/// - `count` is the number of expected leaves. Each has no request queued or in flight, and is busy
///   in the table.
/// - A competing leaf is in the timeline, others are not.
pub struct Holds {
    terms: HoldTerms,
    /// Number of parts that share the time.
    parts: u64,
    /// Credit, units of the time of all slots.
    credit: u64,
    /// Time up to which credit was earned, ns.
    earned: u64,
    count: u8,
    expected: [Option<Expected>; EXPECTED_MAX],
}

impl Holds {
    /// Creates a set without expected leaves, for one of `parts` parts.
    pub(super) fn new(tunables: &Tunables, parts: u32) -> Self {
        Self {
            terms: HoldTerms::of(tunables),
            parts: parts.max(1).into(),
            credit: 0,
            earned: 0,
            count: 0,
            expected: [None; EXPECTED_MAX],
        }
    }

    /// Sets the terms; the credit stays within them.
    pub(super) fn set(&mut self, terms: HoldTerms) {
        self.terms = terms;
        self.credit = self.credit.min(self.credit_max());
    }

    /// Returns true if leaves may be expected.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.terms.longest > 0
    }

    /// Returns true if leaves are expected.
    #[inline]
    pub(super) fn is_expecting(&self) -> bool {
        self.count > 0
    }

    /// Returns true if the leaf at index `idx` is expected.
    pub(super) fn is_expected(&self, idx: u32) -> bool {
        self.is_expecting() && self.iter().any(|one| one.idx == idx)
    }

    fn iter(&self) -> impl Iterator<Item = &Expected> {
        self.expected.iter().flatten()
    }

    /// Returns the largest credit: at least for one longest hold of one of two slots.
    fn credit_max(&self) -> u64 {
        let ahead = AHEAD.saturating_mul(self.terms.permille);
        let ahead = ahead.checked_div(self.parts).unwrap_or(0);
        ahead.max(self.terms.longest.saturating_mul(UNITS) / 2)
    }

    /// Adds the credit earned until `now`.
    fn earn(&mut self, now: u64) {
        let time = now.saturating_sub(self.earned).min(NSEC_PER_SEC);
        self.earned = now;
        let more = time.saturating_mul(self.terms.permille);
        let more = more.checked_div(self.parts).unwrap_or(0);
        self.credit = self.credit.saturating_add(more).min(self.credit_max());
    }

    /// Begins to expect the leaf at index `idx` for `time`, ns. Returns false if there is no room.
    fn add(&mut self, idx: u32, now: u64, time: u64) -> bool {
        let Some(place) = self.expected.iter_mut().find(|place| place.is_none()) else {
            return false;
        };
        *place = Some(Expected {
            idx,
            until: now.saturating_add(time),
            stage: Stage::Competing,
        });
        self.count = self.count.saturating_add(1);
        true
    }

    /// Ends the expectation of the leaf at index `idx` and returns its stage; the time from `now`
    /// on that a hold was paid for is returned. The second value is the time that was used, ns.
    fn take(&mut self, idx: u32, now: u64) -> Option<(Stage, u64)> {
        let is_at = |place: &&mut Option<Expected>| place.is_some_and(|one| one.idx == idx);
        let one = self.expected.iter_mut().find(is_at)?.take()?;
        self.count = self.count.saturating_sub(1);
        let mut used = 0;
        if let Stage::Holding { since, price } = one.stage {
            let (left, all) = (
                one.until.saturating_sub(now),
                one.until.saturating_sub(since),
            );
            let returned = price.saturating_mul(left).checked_div(all).unwrap_or(0);
            self.credit = self.credit.saturating_add(returned).min(self.credit_max());
            used = price.saturating_sub(returned) / UNITS;
        }
        Some((one.stage, used))
    }

    /// Pays for a slot of `slots` for each chosen leaf. Returns the first leaf beyond the credit.
    fn pay(&mut self, slots: u32, now: u64) -> Option<u32> {
        self.earn(now);
        let chosen = |one: &&mut Expected| one.stage == Stage::Chosen;
        for one in self.expected.iter_mut().flatten().filter(chosen) {
            let time = one.until.saturating_sub(now).saturating_mul(UNITS);
            let price = time.checked_div(slots.into()).unwrap_or(time);
            match self.credit.checked_sub(price) {
                Some(left) => self.credit = left,
                None => return Some(one.idx),
            }
            one.stage = Stage::Holding { since: now, price };
        }
        None
    }

    /// Returns a leaf that is not expected any longer at `now`, ns.
    fn over(&self, now: u64) -> Option<u32> {
        let is_over = |one: &&Expected| one.until <= now;
        self.iter().find(is_over).map(|one| one.idx)
    }

    /// Returns the slots for the leaves that were chosen.
    fn slots(&self) -> Hold {
        let chosen = self.iter().filter(|one| one.stage != Stage::Competing);
        chosen.fold(Hold::default(), |hold, one| Hold {
            slots: hold.slots.saturating_add(1),
            until: match hold.slots {
                0 => one.until,
                _ => hold.until.min(one.until),
            },
        })
    }
}

impl SchedulerTree {
    /// Drops the service that is owed to the leaf at index `idx` and to the nodes above it that
    /// have left with it.
    fn drop_owed(&mut self, nodes: &mut Members<impl Item>, mut idx: u32) {
        while let Some(entity) = nodes.entity(idx) {
            if entity.place != TimelineState::Out {
                return;
            }
            if entity.owed > 0 {
                self.forget_lag(nodes, idx);
            }
            idx = nodes.parent(idx);
        }
    }
}

impl<I: Item> State<I> {
    /// Notes the end of the only request of the leaf at index `idx`, which cost `cost`. Returns
    /// true if the next one is expected, so that the leaf stays busy.
    #[inline(never)]
    pub(super) fn expect(&mut self, idx: u32, cost: Cost, now: u64) -> bool {
        let pauses = self.members.details.pauses.as_mut();
        let Some(pauses) = pauses.and_then(|pauses| pauses.get_mut(idx)) else {
            return false;
        };
        pauses.ended = now;
        let time = pauses.expectation(self.holds.terms.longest);
        // Without other requests here, no slot has to be kept free, unless another part takes it.
        let alone = self.queued == 0 && self.holds.parts == 1;
        let Some(time) = time.filter(|_| !alone) else {
            return false;
        };
        let Some((_, charge_model)) = self.members.open(idx) else {
            return false;
        };
        let charge = charge_model.of(cost);
        if !self.holds.add(idx, now, time) {
            return false;
        }
        self.selector.join(&mut self.members, idx, charge);
        true
    }

    /// Notes a request, which costs `charge`, of the leaf at index `idx`, which had none. Returns
    /// true if the leaf is in the timeline already, because the request was expected.
    #[inline(never)]
    pub(super) fn expected_arrived(&mut self, idx: u32, charge: u32, now: u64) -> bool {
        let longest = self.holds.terms.longest;
        let pauses = self.members.details.pauses.as_mut();
        if let Some(pauses) = pauses.and_then(|pauses| pauses.get_mut(idx)) {
            pauses.arrived(now, longest);
        }
        if !self.holds.is_expecting() {
            return false;
        }
        let Some((stage, used)) = self.holds.take(idx, now) else {
            return false;
        };
        if let Stage::Holding { .. } = stage {
            let counts = &mut self.members.counts;
            counts.holds_used = counts.holds_used.saturating_add(1);
            counts.held_ns = counts.held_ns.saturating_add(used);
        }
        if stage != Stage::Competing {
            return false;
        }
        // The deadline changes only with the cost.
        let expected = self.members.entity(idx).map(|entity| entity.head);
        if expected != Some(charge) {
            let step = RequestStep::Skip;
            self.selector
                .step(&mut self.members, idx, step, Some(charge));
        }
        if self.members.is_limited {
            self.join_floors(idx, now);
        }
        true
    }

    /// Lets the leaf at index `idx`, which the scheduler chose, leave the timeline if it has no
    /// request. Returns true if so.
    #[cold]
    pub(super) fn choose_expected(&mut self, idx: u32, now: u64) -> bool {
        let leaf = self.members.leaf(idx);
        if leaf.is_none_or(|leaf| !leaf.queue.is_empty()) {
            return false;
        }
        let mut all = self.holds.expected.iter_mut().flatten();
        let Some(one) = all.find(|one| one.idx == idx) else {
            bug!();
            return false;
        };
        one.stage = Stage::Chosen;
        self.leave_timeline(idx, now);
        true
    }

    /// Removes the leaf at index `idx`, which has no request, from the timeline.
    fn leave_timeline(&mut self, idx: u32, now: u64) {
        self.selector
            .step(&mut self.members, idx, RequestStep::Skip, None);
        if self.members.is_limited {
            self.drop_empty(idx, now);
        }
    }

    /// Ends the expectation of the leaf at index `idx`, whose request has not arrived.
    #[cold]
    pub(super) fn end_hold(&mut self, idx: u32, now: u64) {
        let Some((stage, used)) = self.holds.take(idx, now) else {
            return;
        };
        match stage {
            Stage::Competing => self.leave_timeline(idx, now),
            Stage::Chosen => {}
            Stage::Holding { .. } => {
                let counts = &mut self.members.counts;
                counts.holds_unused = counts.holds_unused.saturating_add(1);
                counts.held_ns = counts.held_ns.saturating_add(used);
            }
        }
        if let Some(tree) = &mut self.selector.tree {
            tree.drop_owed(&mut self.members, idx);
        }
        self.members.table.idle(idx, now);
    }

    /// Ends the expectations whose time is over at `now`.
    pub(super) fn expire_holds(&mut self, now: u64) {
        while let Some(idx) = self.holds.over(now) {
            self.end_hold(idx, now);
        }
    }

    /// Returns the slots that stay free at `now`; see [`crate::sched::policy::Part::hold`].
    #[inline(never)]
    pub(super) fn keep_free(&mut self, slots: &FreeSlots, now: u64) -> Option<Hold> {
        self.time = now;
        self.expire_holds(now);
        if !self.holds.is_expecting() {
            return None;
        }
        for _ in 0..EXPECTED_MAX {
            let tree = self.selector.tree.as_mut();
            let idx = tree.and_then(|tree| tree.pick(&mut self.members));
            if idx.is_none_or(|idx| !self.choose_expected(idx, now)) {
                break;
            }
        }
        // A single slot is for the requests that are queued.
        if slots.slots < 2 {
            return Some(Hold::default());
        }
        let needed = slots.is_shared || slots.free <= self.holds.slots().slots;
        while let Some(idx) = needed.then(|| self.holds.pay(slots.slots, now)).flatten() {
            self.end_hold(idx, now);
        }
        Some(self.holds.slots())
    }
}

#[cfg(test)]
mod tests;
