// SPDX-License-Identifier: GPL-2.0-only

//! Slots that stay free for the next requests of entities that send one request at a time.
//!
//! An entity that waits for each of its requests before it sends the next one is never queued when
//! a decision is made, so that it waits for a slot each time. If it is owed service, the slot that
//! it needs is kept free for the short time until its next request.
//!
//! - *Pause*: time from the end of the only request of a leaf to the arrival of its next one
//!   ([`Pauses`]).
//! - *Expected*: a leaf whose only request has ended, or is in flight with all slots kept free, and
//!   whose pauses are short. At most [`EXPECTED_MAX`] leaves are expected at a time, each for the
//!   longest hold after the end.
//! - *Hold*: time in which a slot, or all, stay free for an expected leaf that has been chosen.
//! - *Credit*: time for which slots may be kept free; a part of the time of all slots, in a bucket
//!   ([`Credit`]).
//!
//! ```text
//!          only request ends,               the scheduler             a decision finds no other
//!          pauses are short                 chooses the leaf          slot: pay in advance
//!   idle ────────────────────▶ competing ────────────────▶ chosen ────────────────────▶ holding
//!    ▲ ▲                        │    │                      │   │                        │   │
//!    │ └── time is over ────────┘────│──────────────────────┘───│────────────────────────┘   │
//!    │                               ▼                          ▼          request arrives   ▼
//!    └────── request ends ──── queued, in flight ◀───────────────────────────────────────────┘
//! ```
//!
//! A competing leaf is in the timeline with the cost of its last request, so that it earns its
//! share at every level of the tree as if its next request was queued. A chosen leaf leaves the
//! timeline with its lag, which grows no more until the leaf has a request.
//!
//! # All slots
//!
//! One free slot is not enough where the device serves requests one after the other, or delays
//! some by its bandwidth. With [`HoldSlots::All`] no other request begins during a hold. If the
//! requests and pauses of a leaf are together shorter than the longest hold, the next one is
//! expected from the dispatch of the last one on: the device then serves that leaf alone for as
//! long as its share allows, until the request has been in flight for twice the usual time, and
//! [`IN_FLIGHT`]. All slots are kept free for one leaf at a time, in the order in which the
//! scheduler chooses them. One slot is kept free with several partitions, because none knows the
//! order of all leaves, and while more leaves send one request at a time than can be expected.
//!
//! # Aim
//!
//! With a latency to aim for, as many slots are kept free for a leaf as that takes ([`aim`]), from
//! the dispatch of its request on if that is more than one. Others use the rest. Each leaf has its
//! own search. If each leaf needs less than one slot, slots are not spread either.
//!
//! # Spread
//!
//! Requests that begin together often end together, and then an entity that sends few requests
//! waits until they end, whether its next one was expected or not. While there are such entities,
//! slots are used one after the other, [`spread`] apart, so that requests end apart, too. The time
//! is paid from the same credit, of which half is left for holds, and is no more than
//! [`SPREAD_PERMILLE`] of the time. A request of an entity that had none ends the pause.
//!
//! The mean time between two ends is the *gap*. One slot is kept free without an aim only for a
//! leaf whose pauses are at most [`PAUSE_GAPS`] gaps: without a hold it waits for the next end.
//!
//! # Bound of the loss
//!
//! Slots that stay free are paid for in advance; what is left is returned when the expected request
//! arrives. Without credit no slot stays free. So whatever the clients do, in any time `t` at most
//! `permille / 1000 * t` is lost by all partitions together, and once for each partition the larger
//! of its part for [`credit::AHEAD`] and the longest hold (half of it for one slot). Holds charge
//! no entity and change no tag of others: shares and the bounds of [`super::deadline`] apply to the
//! service that is left.

use super::{
    deadline::RequestStep,
    params::{HoldSlots, Tunables},
    stats::Counts,
    State,
};
use crate::sched::{
    bucket::instant,
    count::Count,
    item::{Cost, Item},
    mem::{NoMemory, Owned},
    policy::{FreeSlots, Hold},
    units::{NSEC_PER_MSEC, NSEC_PER_SEC, NSEC_PER_USEC},
};

mod aim;
mod credit;

use aim::LatencyAims;
use credit::{Credit, Payment};

/// Largest number of leaves that are expected at a time.
const EXPECTED_MAX: usize = 4;

/// Time after the end of an entity's only request for which slots are spread, and after a lack of
/// places for which not all slots are kept free, ns.
const SPREAD_FOR: u64 = NSEC_PER_SEC;

/// Largest number of slots that are spread.
const SPREAD_SLOTS: u32 = 32;

/// Largest part of the time of all slots for which slots are spread, thousandths.
const SPREAD_PERMILLE: u64 = 20;

/// Shortest mean time between two ends at which slots are spread, ns. With shorter times the
/// handling of requests, and not the device, may be the limit.
const GAP_MIN: u64 = 400 * NSEC_PER_USEC;

/// Shortest pause, ns: the shortest time for which a timer is armed.
const PAUSE_MIN: u64 = 20 * NSEC_PER_USEC;

/// Longest usual pause, gaps, for which one slot is kept free. Simulated with eight slots: at a
/// price of 2 %, the median is that of the device with pauses of up to 1.5 gaps, but not of 2.
const PAUSE_GAPS: u64 = 2;

/// Time in flight of a request for which the next one is expected in any case, and for which it is
/// at most, ns. A device may first have to serve a long queue of others.
const IN_FLIGHT: u64 = 100 * NSEC_PER_MSEC;
const IN_FLIGHT_MAX: u64 = NSEC_PER_SEC;

/// Longest time between two ends that counts, ns.
const GAP_MAX: u64 = 20 * NSEC_PER_MSEC;

/// Returns the time between two slots that are used one after the other, for a mean time `gap`
/// between two ends, ns: less than that, so that the device does not run empty.
const fn spread(gap: u64) -> u64 {
    (gap >> 1).saturating_add(gap >> 2)
}

/// Parameters of holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HoldTerms {
    /// Part of the time of all slots that may be kept free, thousandths.
    permille: u64,
    /// Longest time for which a leaf is expected, ns.
    longest: u64,
    /// Slots that are kept free for a leaf.
    slots: HoldSlots,
    /// Latency that is aimed for, ns; 0: none.
    aim: u64,
}

impl HoldTerms {
    /// Returns the terms in `tunables`.
    pub fn of(tunables: &Tunables) -> Self {
        Self {
            permille: tunables.hold_permille.get().into(),
            longest: u64::from(tunables.hold_us.get()).saturating_mul(NSEC_PER_USEC),
            slots: tunables.hold,
            aim: u64::from(tunables.latency_us.get()).saturating_mul(NSEC_PER_USEC),
        }
    }

    /// Returns the terms of the time for which slots are spread.
    fn of_spread(&self) -> Self {
        Self {
            permille: self.permille.min(SPREAD_PERMILLE),
            ..*self
        }
    }

    /// Returns true if more than one slot may be kept free for a leaf.
    const fn has_several(&self) -> bool {
        matches!(self.slots, HoldSlots::All) || self.aim > 0
    }

    /// Returns half of the longest time in flight that counts, ns: with an aim, requests of any
    /// length are followed.
    fn longest_service(&self) -> u64 {
        if self.aim > 0 {
            IN_FLIGHT_MAX / 2
        } else {
            self.longest
        }
    }

    /// Returns the largest price of a hold, ns of all slots.
    const fn largest(&self) -> u64 {
        if self.has_several() {
            self.longest
        } else {
            self.longest / 2
        }
    }
}

/// Pauses of a leaf, ns.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pauses {
    /// Time at which the last request ended; 0 if it is not known.
    ended: u64,
    /// Time at which the only request arrived; 0 if there are others.
    since: u64,
    /// Moving average; 0 before the first pause.
    average: u32,
    /// Moving average of the time that a request takes from its dispatch on; 0 if unknown.
    service: u32,
}

impl Pauses {
    /// Notes a request that arrives at `now`, ns.
    fn arrived(&mut self, now: u64, longest: u64) {
        self.since = now;
        let ended = core::mem::take(&mut self.ended);
        if ended == 0 {
            return;
        }
        self.average = mean(self.average, now.saturating_sub(ended), longest);
    }

    /// Notes a request that took `time` from its dispatch on, ns.
    fn served(&mut self, time: u64, longest: u64) {
        self.service = mean(self.service, time, longest);
    }

    /// Forgets the time of the last end.
    pub(super) fn forget_end(&mut self) {
        self.ended = 0;
    }

    /// Notes that there are other requests.
    pub(super) fn forget_arrival(&mut self) {
        self.since = 0;
    }

    /// Notes the end at `now`, ns, of the last request. Returns the time since its arrival, ns, if
    /// there were no others.
    fn ended(&mut self, now: u64) -> Option<u64> {
        self.ended = now;
        let since = core::mem::take(&mut self.since);
        (since > 0).then(|| now.saturating_sub(since))
    }

    /// Returns true if the next request usually comes within `longest`, ns, after an end.
    const fn are_short(&self, longest: u64) -> bool {
        self.average > 0 && self.average as u64 <= longest
    }

    /// Returns the time in flight, ns, after which the next request is no longer expected: a
    /// request that takes much longer than usual may never end.
    fn in_flight_max(&self) -> u64 {
        let twice = u64::from(self.service).saturating_mul(2);
        twice.clamp(IN_FLIGHT, IN_FLIGHT_MAX)
    }

    /// Returns true if the next request usually comes within `longest`, ns, after a dispatch.
    fn include_service(&self, longest: u64) -> bool {
        let both = u64::from(self.average).saturating_add(self.service.into());
        self.service > 0 && both <= longest
    }
}

/// Returns the moving average after `value`, which has the weight 1/8 and counts as at most twice
/// `longest`; 0: there was no value before.
fn mean(average: u32, value: u64, longest: u64) -> u32 {
    let most = longest.saturating_mul(2).min(u64::from(u32::MAX >> 1));
    // At most `u32::MAX >> 1`.
    let value = value.clamp(1, most) as u32;
    let step = value.abs_diff(average) / 8;
    match value > average {
        _ if average == 0 => value,
        true => average.saturating_add(step),
        false => average.saturating_sub(step).max(1),
    }
}

/// Phase of an expected leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeafPhase {
    /// The only request is in flight, and usually takes too long to expect the next one.
    InFlight,
    /// In the timeline without a request.
    Competing,
    /// Out of the timeline, with its lag: the leaf is next.
    Chosen,
    /// Chosen; a slot is kept free.
    Holding(Payment),
}

impl LeafPhase {
    /// Returns what is paid for a leaf that is chosen.
    fn payment(self) -> Option<Payment> {
        match self {
            Self::InFlight | Self::Competing => None,
            Self::Chosen => Some(Payment::default()),
            Self::Holding(payment) => Some(payment),
        }
    }
}

/// Leaf whose next request is expected.
#[derive(Clone, Copy, Debug)]
struct Expected {
    idx: u32,
    /// Time until which the request is expected, ns.
    until: u64,
    /// Time of the dispatch of the request before, ns; 0 if that is not in flight.
    dispatched: u64,
    /// Number of slots to keep free.
    slots: u32,
    phase: LeafPhase,
}

impl Expected {
    /// Creates an expectation whose time has not begun.
    const fn new(idx: u32, dispatched: u64, slots: u32, phase: LeafPhase) -> Self {
        Self {
            idx,
            until: 0,
            dispatched,
            slots,
            phase,
        }
    }
}

/// Part of the time of all slots that is kept free, of each second.
#[derive(Clone, Copy, Default)]
struct HoldPrice {
    /// Beginning of this second, ns, and time of all slots in it that was used, ns.
    since: u64,
    used: u64,
    /// Part of the last second, thousandths.
    permille: u64,
}

impl HoldPrice {
    /// Adds `used`, ns of all slots, at `now`, ns.
    fn add(&mut self, used: u64, now: u64) {
        self.used.count(used);
        let time = now.saturating_sub(self.since);
        if time >= NSEC_PER_SEC {
            self.permille = self.used.checked_div(time / 1000).unwrap_or_default();
            (self.since, self.used) = (now, 0);
        }
    }
}

/// Expected leaves of a part, and their credit.
///
/// # Invariants
///
/// - `count` is the number of expected leaves. Each has no request queued, and is busy in the
///   table. With a time of dispatch one request is in flight, else none.
/// - A competing leaf is in the timeline, others are not.
pub struct Holds {
    terms: HoldTerms,
    /// Number of parts that share the time.
    parts: u64,
    credit: Credit,
    /// Part of the credit for which slots may be spread.
    spread_credit: Credit,
    aims: Owned<LatencyAims>,
    /// Number of slots of the device, as far as known.
    slots: u32,
    count: u8,
    expected: [Option<Expected>; EXPECTED_MAX],
    /// Time until which not all slots are kept free, ns.
    crowded_until: u64,
    /// Time until which slots are spread, ns; 0: they are not.
    spread_until: u64,
    /// Time of the last end, ns, and moving average of the time between two ends.
    last_end: u64,
    gap: u64,
    /// Time before which no free slot is used, ns.
    pause_until: u64,
    /// Payment for the slots that have been free since.
    pause: Payment,
    /// Time of all slots that was used and is not counted yet, ns.
    uncounted: u64,
    price: HoldPrice,
}

impl Holds {
    /// Creates a set without expected leaves, for one of `parts` parts.
    pub(super) fn new(tunables: &Tunables, parts: u32) -> Result<Self, NoMemory> {
        let (terms, parts) = (HoldTerms::of(tunables), parts.max(1).into());
        Ok(Self {
            terms,
            parts,
            credit: Credit::new(&terms, parts),
            spread_credit: Credit::new(&terms.of_spread(), parts),
            aims: LatencyAims::new(terms.aim)?,
            slots: 0,
            count: 0,
            expected: [None; EXPECTED_MAX],
            crowded_until: 0,
            spread_until: 0,
            last_end: 0,
            gap: 0,
            pause_until: 0,
            pause: Payment::default(),
            uncounted: 0,
            price: HoldPrice::default(),
        })
    }

    /// Sets the terms at `now`, ns; the credit stays within them.
    pub(super) fn set(&mut self, terms: HoldTerms, now: u64) {
        if terms != self.terms {
            // What is out of reach may be reached now.
            self.aims.reset(terms.aim);
        }
        self.terms = terms;
        let credit = |terms: &HoldTerms| Credit::new(terms, self.parts);
        self.credit.adjust(credit(&terms), now);
        self.spread_credit.adjust(credit(&terms.of_spread()), now);
    }

    /// Returns true if more than one slot may be kept free, and the next request of a leaf can be
    /// expected from a dispatch on. One slot is kept free by several partitions, whose common order
    /// is not known here, and while more leaves send one request at a time than can be expected.
    #[inline]
    pub(super) fn has_several(&self, now: u64) -> bool {
        self.terms.has_several() && self.parts == 1 && self.crowded_until <= now
    }

    /// Returns the number of slots to keep free for the next request of the leaf at index `idx`.
    fn next_slots(&mut self, idx: u32, now: u64) -> u32 {
        if !self.has_several(now) {
            1
        } else if self.has_aim() {
            self.aims.next_slots(idx, self.slots)
        } else {
            u32::MAX
        }
    }

    /// Returns true if there is a latency to aim for.
    #[inline]
    pub(super) fn has_aim(&self) -> bool {
        self.terms.aim > 0
    }

    /// Returns true if a leaf for which several slots are kept free was chosen: others wait for it.
    fn is_exclusive(&self) -> bool {
        let is_exclusive = |one: &Expected| one.slots > 1 && one.phase.payment().is_some();
        self.iter().any(is_exclusive)
    }

    /// Returns true if leaves are expected.
    #[inline]
    pub(super) fn is_expecting(&self) -> bool {
        self.count > 0
    }

    /// Returns true if the leaf at index `idx` is expected.
    #[inline]
    pub(super) fn expects(&self, idx: u32) -> bool {
        self.is_expecting() && self.iter().any(|one| one.idx == idx)
    }

    fn iter(&self) -> impl Iterator<Item = &Expected> {
        self.expected.iter().flatten()
    }

    /// Returns the place of the leaf at index `idx`, if the leaf is expected.
    fn position(&mut self, idx: u32) -> Option<&mut Option<Expected>> {
        let is_at = |place: &&mut Option<Expected>| place.is_some_and(|one| one.idx == idx);
        self.expected.iter_mut().find(is_at)
    }

    /// Begins to expect a leaf for the longest hold from `now` on, ns. Returns false if there is no
    /// room.
    fn add(&mut self, one: Expected, now: u64) -> bool {
        let is_measured = |one: &Expected| one.phase == LeafPhase::InFlight;
        let mut places = self.expected.iter();
        let unused = places.position(Option::is_none);
        // Times of service can be measured later.
        let mut places = self.expected.iter();
        let measured = places.position(|place| place.as_ref().is_some_and(is_measured));
        let place = unused.or(measured.filter(|_| one.phase != LeafPhase::InFlight));
        let Some(place) = place.and_then(|place| self.expected.get_mut(place)) else {
            self.crowded_until = now.saturating_add(SPREAD_FOR);
            return false;
        };
        if place.is_none() {
            self.count.count(1);
        }
        *place = Some(Expected {
            until: now.saturating_add(self.terms.longest),
            ..one
        });
        true
    }

    /// Notes the end at `now`, ns, of the request of the leaf at index `idx`, which has no other.
    /// Returns the time of its dispatch, ns, if that is known, and true if the next request is
    /// expected.
    fn request_ended(&mut self, idx: u32, now: u64) -> Option<(u64, bool)> {
        let one = self.position(idx)?.as_mut()?;
        let dispatched = core::mem::take(&mut one.dispatched);
        let is_expected = one.phase != LeafPhase::InFlight;
        if is_expected {
            self.extend(idx, now);
        } else {
            self.take(idx, u64::MAX);
        }
        Some((dispatched, is_expected))
    }

    /// Expects the request of the leaf at index `idx` for the longest hold from `now` on, ns.
    fn extend(&mut self, idx: u32, now: u64) {
        let until = now.saturating_add(self.terms.longest);
        let Some(Some(one)) = self.position(idx) else {
            return;
        };
        one.until = until;
        if let LeafPhase::Holding(payment) = one.phase {
            one.phase = LeafPhase::Chosen;
            self.end_payment(payment, now);
        }
    }

    /// Continues to expect the leaf at index `idx` from `now` on, ns, if its request has been in
    /// flight for less than `most`, ns.
    fn renew(&mut self, idx: u32, most: u64, now: u64) -> bool {
        let Some(Some(one)) = self.position(idx) else {
            return false;
        };
        let in_flight = now.saturating_sub(one.dispatched);
        let may_continue = one.dispatched > 0 && in_flight < most;
        if may_continue {
            self.extend(idx, now);
        }
        may_continue
    }

    /// Ends the expectation of the leaf at index `idx` at `now`, ns.
    fn take(&mut self, idx: u32, now: u64) -> Option<Expected> {
        let one = self.position(idx)?.take()?;
        self.count = self.count.saturating_sub(1);
        if let LeafPhase::Holding(payment) = one.phase {
            self.end_payment(payment, now);
        }
        Some(one)
    }

    /// Ends the time of `payment` at `now`, ns, and counts what was used.
    fn end_payment(&mut self, payment: Payment, now: u64) {
        let used = self.credit.refund(payment, now);
        self.uncounted.count(used);
    }

    /// Notes an end at `now`, ns. The time since the last one counts if requests have been queued
    /// since, and slots were neither spread nor all kept free.
    #[inline]
    pub(super) fn note_end(&mut self, now: u64, is_backlogged: bool) {
        if self.spread_until == 0 {
            return;
        }
        if self.last_end > 0 && self.pause.slots == 0 {
            let since = now.saturating_sub(self.last_end).min(GAP_MAX);
            let gap = self.gap.saturating_sub(self.gap >> 4);
            self.gap = gap.saturating_add(since >> 4);
        }
        self.last_end = if is_backlogged { now } else { 0 };
    }

    /// Returns true if a slot is kept free for usual pauses of `pause`, ns. Without a hold a
    /// request waits for the next end, so that a hold of several gaps costs more than it saves.
    /// With several slots, or an unknown gap, all short pauses count.
    fn is_worth(&self, pause: u32) -> bool {
        let most = self.gap.saturating_mul(PAUSE_GAPS);
        self.terms.has_several() || self.gap == 0 || u64::from(pause) <= most
    }

    /// Notes a dispatch at `now`, ns.
    #[inline]
    pub(super) fn note_dispatch(&mut self, now: u64) {
        if self.spread_until > 0 {
            self.pause_until = now.saturating_add(spread(self.gap));
        }
    }

    /// Spreads slots for some time from `now` on, ns.
    fn watch(&mut self, now: u64) {
        if self.spread_until == 0 {
            (self.last_end, self.gap) = (0, 0);
        }
        self.spread_until = now.saturating_add(SPREAD_FOR);
    }

    /// Returns true if slots are spread.
    #[inline]
    fn is_spreading(&self) -> bool {
        self.spread_until > 0 && self.gap >= GAP_MIN && self.aims.need_a_slot()
    }

    /// Returns true if slots may stay free.
    #[inline]
    pub(super) fn is_watching(&self) -> bool {
        self.is_expecting() || self.is_spreading()
    }

    /// Returns the time until which no free slot is used, ns, if that is later than `now` and the
    /// credit suffices. Several partitions do not wait for each other.
    fn spread(&mut self, slots: &FreeSlots, now: u64) -> Option<u64> {
        let is_idle = slots.free >= slots.slots;
        let is_small = slots.slots <= SPREAD_SLOTS;
        let is_useful = self.is_spreading() && !is_idle && is_small && self.parts == 1;
        let is_early = self.pause_until > now.saturating_add(PAUSE_MIN);
        if is_early && is_useful && self.pay_for_pause(slots, now) {
            return Some(self.pause_until);
        }
        self.end_pause(now);
        None
    }

    /// Pays for the free slots until the end of the pause; returns false beyond the credit.
    fn pay_for_pause(&mut self, slots: &FreeSlots, now: u64) -> bool {
        if self.pause.slots != slots.free {
            self.refund_pause(now);
            let pause = Payment::of(slots.free, slots.slots, now, self.pause_until);
            self.pause = self.buy_pause(pause).unwrap_or_default();
        }
        self.pause.slots > 0
    }

    /// Takes the price of a pause; returns `None` beyond the credit.
    fn buy_pause(&mut self, pause: Payment) -> Option<Payment> {
        self.spread_credit.buy(pause, 0)?;
        // Half of the credit is for holds, which help more.
        let rest = self.credit.window / 2;
        let bought = self.credit.buy(pause, rest);
        if bought.is_none() {
            self.spread_credit.refund(pause, 0);
        }
        bought
    }

    /// Ends the payment for the pause at `now`, ns.
    fn refund_pause(&mut self, now: u64) {
        let pause = core::mem::take(&mut self.pause);
        self.spread_credit.refund(pause, now);
        self.end_payment(pause, now);
    }

    /// Ends the pause at `now`, ns.
    fn end_pause(&mut self, now: u64) {
        self.refund_pause(now);
        self.pause_until = 0;
    }

    /// Pays for the `slots` that are kept free for each chosen leaf, as far as the credit suffices.
    fn pay(&mut self, slots: &FreeSlots, now: u64) {
        if self.is_exclusive() {
            // The device may be idle until then.
            self.last_end = 0;
        }
        let mut free = slots.free;
        for place in 0..EXPECTED_MAX {
            let Some(one) = self.expected.get(place).copied().flatten() else {
                continue;
            };
            let Some(paid) = one.phase.payment() else {
                continue;
            };
            // The other partitions may have all slots.
            let wanted = free.min(one.slots).max(1);
            free = free.saturating_sub(wanted);
            if paid.slots >= wanted {
                continue;
            }
            self.end_payment(paid, now);
            let payment = |count| Payment::of(count, slots.slots, now, one.until);
            let bought = self.credit.buy(payment(wanted), 0);
            let bought = bought.or_else(|| self.credit.buy(payment(paid.slots.max(1)), 0));
            if let Some(Some(one)) = self.expected.get_mut(place) {
                one.phase = bought.map_or(LeafPhase::Chosen, LeafPhase::Holding);
            }
        }
    }

    /// Returns a leaf that is not expected any longer at `now`, ns.
    fn over(&self, now: u64) -> Option<u32> {
        let is_over = |one: &&Expected| one.until <= now;
        self.iter().find(is_over).map(|one| one.idx)
    }

    /// Returns the number of slots to keep free for the leaves that were chosen.
    fn wanted(&self) -> u32 {
        let is_chosen = |one: &&Expected| one.phase.payment().is_some();
        let chosen = self.iter().filter(is_chosen);
        chosen.fold(0, |sum, one| sum.saturating_add(one.slots))
    }

    /// Returns the slots that are paid for.
    fn slots(&self) -> Hold {
        self.iter().fold(Hold::default(), |hold, one| {
            let LeafPhase::Holding(payment) = one.phase else {
                return hold;
            };
            Hold {
                slots: hold.slots.saturating_add(payment.slots),
                until: match hold.slots {
                    0 => one.until,
                    _ => hold.until.min(one.until),
                },
            }
        })
    }
}

impl<I: Item> State<I> {
    /// Notes the end of the only request of the leaf at index `idx`, which cost `cost`. Returns
    /// true if the next one is expected, so that the leaf stays busy.
    #[inline(never)]
    pub(super) fn expect(&mut self, idx: u32, cost: Cost, now: u64) -> bool {
        let Some(pauses) = self.members.details.pauses_mut(idx) else {
            return false;
        };
        let latency = pauses.ended(now);
        let longest = self.holds.terms.longest;
        let before = self.holds.request_ended(idx, now);
        if let Some((dispatched, _)) = before {
            let longest = self.holds.terms.longest_service();
            pauses.served(now.saturating_sub(dispatched), longest);
        }
        let are_short = pauses.are_short(longest);
        let is_worth = are_short && self.holds.is_worth(pauses.average);
        if self.queued > 0 {
            self.holds.watch(now);
            // No slot can be kept free for a leaf with long pauses.
            if let Some(latency) = latency.filter(|_| are_short && self.holds.has_aim()) {
                self.note_latency(idx, latency, now);
            }
        }
        if before.is_some_and(|(_, is_expected)| is_expected) {
            return true;
        }
        let Some((_, charge_model)) = self.members.open(idx).filter(|_| is_worth) else {
            return false;
        };
        let charge = charge_model.of(cost);
        let slots = self.holds.next_slots(idx, now);
        slots > 0 && self.may_expect(idx, now) && self.compete(idx, charge, 0, slots, now)
    }

    /// Notes the latency of a request of the leaf at index `idx` that ended at `now`, ns.
    fn note_latency(&mut self, idx: u32, latency: u64, now: u64) {
        let holds = &mut self.holds;
        let is_within = holds.aims.record(idx, latency, holds.slots, now);
        let counts = &mut self.members.counts;
        counts.latency_within.count(is_within.into());
        counts.latency_beyond.count((!is_within).into());
    }

    /// Notes the dispatch of the only request of the leaf at index `idx`, which costs `charge`, if
    /// several slots may be kept free. If such requests are short, or there is a latency to aim
    /// for, the next one is expected from now on: no other takes these slots meanwhile.
    #[cold]
    #[inline(never)]
    pub(super) fn expect_after_dispatch(&mut self, idx: u32, charge: u32, now: u64) {
        let longest = self.holds.terms.longest;
        let Some(pauses) = self.members.details.pauses_mut(idx) else {
            return;
        };
        let include_service = self.holds.has_aim() || pauses.include_service(longest);
        if !pauses.are_short(longest) || !self.may_expect(idx, now) {
            return;
        }
        let slots = self.holds.next_slots(idx, now);
        if slots < 2 {
            return;
        }
        if include_service {
            self.compete(idx, charge, now, slots, now);
        } else {
            let phase = LeafPhase::InFlight;
            let one = Expected::new(idx, now, slots, phase);
            self.holds.add(one, now);
        }
    }

    /// Returns true if a slot may be kept free for the leaf at index `idx` at `now`.
    fn may_expect(&mut self, idx: u32, now: u64) -> bool {
        // Without other requests here, no slot has to be kept free, unless another part takes it.
        let alone = self.queued == 0 && self.holds.parts == 1;
        let until = instant(now.saturating_add(self.holds.terms.longest));
        !alone && !self.members.is_at_maximum(idx, instant(now), until)
    }

    /// Adds the leaf at index `idx`, whose next request will cost `charge` and needs `slots` free
    /// slots, to the timeline. Returns false if there is no room.
    fn compete(&mut self, idx: u32, charge: u32, dispatched: u64, slots: u32, now: u64) -> bool {
        let one = Expected::new(idx, dispatched, slots, LeafPhase::Competing);
        let added = self.holds.add(one, now);
        if added {
            self.selector.join(&mut self.members, idx, charge);
        }
        added
    }

    /// Notes a request, which costs `charge`, of the leaf at index `idx`, which had none. Returns
    /// true if the leaf is in the timeline already, because the request was expected.
    #[inline(never)]
    pub(super) fn expected_arrived(&mut self, idx: u32, charge: u32, now: u64) -> bool {
        if let Some(pauses) = self.members.details.pauses_mut(idx) {
            pauses.arrived(now, self.holds.terms.longest);
        }
        self.holds.end_pause(now);
        let phase = self.holds.take(idx, now).map(|one| one.phase);
        if let Some(LeafPhase::Holding(_)) = phase {
            let counts = &mut self.members.counts;
            counts.holds_used.count(1);
        }
        self.count_holds(now);
        if phase != Some(LeafPhase::Competing) {
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
        let Some(Some(one)) = self.holds.position(idx) else {
            bug!();
            return false;
        };
        one.phase = LeafPhase::Chosen;
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

    /// Ends the expectation of the leaf at index `idx`, whose request has not arrived. A slot stays
    /// free until the next decision, so that nothing is returned. Returns true if the request
    /// before is still in flight.
    #[cold]
    pub(super) fn end_hold(&mut self, idx: u32, now: u64) -> bool {
        let Some(one) = self.holds.take(idx, u64::MAX) else {
            return false;
        };
        match one.phase {
            LeafPhase::InFlight => {}
            LeafPhase::Competing => self.leave_timeline(idx, now),
            LeafPhase::Chosen => {}
            LeafPhase::Holding(_) => {
                let counts = &mut self.members.counts;
                counts.holds_unused.count(1);
            }
        }
        self.count_holds(now);
        let is_in_flight = one.dispatched > 0;
        if !is_in_flight {
            self.members.table.idle(idx, now);
        }
        is_in_flight
    }

    /// Counts the time for which slots were kept free until `now`, ns.
    pub(super) fn count_holds(&mut self, now: u64) {
        let holds = &mut self.holds;
        let used = core::mem::take(&mut holds.uncounted);
        holds.price.add(used, now);
        let counts = &mut self.members.counts;
        counts.held_ns.count(used);
    }

    /// Returns the counters of the policy as a whole, and the gauges at the time of the last call.
    pub(super) fn counts(&self) -> Counts {
        let holds = &self.holds;
        Counts {
            held_permille: holds.price.permille,
            latency_slots: match holds.has_aim() {
                true => holds.aims.guard().into(),
                false => 0,
            },
            latency_given_up: holds.aims.are_given_up(self.time).into(),
            ..self.members.counts
        }
    }

    /// Ends the expectations whose time is over at `now`.
    pub(super) fn expire_holds(&mut self, now: u64) {
        while let Some(idx) = self.holds.over(now) {
            let pauses = self.members.details.pauses_mut(idx);
            let most = pauses.map_or(0, |pauses| pauses.in_flight_max());
            if self.holds.renew(idx, most, now) || !self.end_hold(idx, now) {
                continue;
            }
            // A request that is still in flight takes long.
            if let Some(pauses) = self.members.details.pauses_mut(idx) {
                pauses.served(u64::MAX, self.holds.terms.longest_service());
            }
        }
    }

    /// Returns the slots that stay free at `now`; see [`crate::sched::policy::Part::hold`].
    #[inline(never)]
    pub(super) fn keep_free(&mut self, slots: &FreeSlots, now: u64) -> Option<Hold> {
        self.time = now;
        self.holds.slots = slots.slots;
        self.expire_holds(now);
        if self.holds.spread_until <= now {
            self.holds.spread_until = 0;
        }
        if !self.holds.is_watching() {
            return None;
        }
        // A single slot is for the requests that are queued.
        if slots.slots < 2 {
            return Some(Hold::default());
        }
        // No slot is lost while none is free, or none is wanted.
        let is_wanted = slots.free > 0 && self.queued > 0;
        if !slots.is_shared && !is_wanted {
            return Some(self.holds.slots());
        }
        for _ in 0..EXPECTED_MAX {
            if self.holds.is_exclusive() {
                break;
            }
            let tree = self.selector.tree.as_mut();
            let idx = tree.and_then(|tree| tree.pick(&mut self.members));
            if idx.is_none_or(|idx| !self.choose_expected(idx, now)) {
                break;
            }
        }
        if slots.is_shared || slots.free <= self.holds.wanted() {
            self.holds.pay(slots, now);
        }
        let held = self.holds.slots();
        if held.slots >= slots.free {
            self.holds.end_pause(now);
            self.count_holds(now);
            return Some(held);
        }
        let pause = self.holds.spread(slots, now);
        self.count_holds(now);
        Some(pause.map_or(held, |until| Hold {
            slots: slots.free,
            until,
        }))
    }
}

#[cfg(test)]
mod tests;
