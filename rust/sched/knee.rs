// SPDX-License-Identifier: GPL-2.0-only

//! Search for the number of requests that keep a device busy.
//!
//! # Vocabulary
//!
//! - *Slots*: requests that may be in flight.
//! - *Rate*: requests that end per second, bytes, or the geometric mean of both: whichever spreads least ([`Ratio`]).
//! - *Knee*: the least slots with which the device has nearly its highest rate ([`SAME`]). With fewer slots the device
//!   idles. With more, requests wait in the device, in an order that no policy decides.
//! - *Look*: one rate, over [`LOOK_MIN`] or more.
//! - *Standard*: looks at the rate that is to be kept.
//! - *Trial*: other slots for some looks, until the rate is the same or is not, as far as looks spread.
//!
//! ```text
//!            standard known        rate higher
//!   start ─────────────────▶ up ◀──────────────┐         twice the slots
//!     ▲                      │  ───────────────┘
//!     │                      │ no higher           same rate
//!     │                      └───────────▶ down ◀────────────┐   a quarter, half, two thirds, four fifths
//!     │ another rate                        │  ──────────────┘
//!     │                      ┌──────────────┘ lower, with the finest step
//!     └──────────────────── hold ──▶ up after each rest, and then down, more and more seldom
//! ```
//!
//! A search decides after [`LOOKS_SEARCH`] looks, however much they spread, and prefers fewer slots then. Trials after a rest
//! take up to [`LOOKS_MAX`] looks and prefer neither; the first one down is to half the slots, as the search may have decided
//! in haste. A rest is [`REST`] times as long as the trials up before it.
//!
//! Looks count only while all slots are in use and requests wait: otherwise the load decides the rate, and slots do not matter.
//! Looks with more slots than before count as well: the rate may be higher though no request waits any more.

use crate::sched::units::{NSEC_PER_MSEC, NSEC_PER_USEC, USEC_PER_SEC};

/// Slots to start with.
pub const START: u32 = 8;

/// Shortest look (ns), and the requests that end in one, at least: those that end together often come together again, so
/// as many as there are slots end in one, too. It is no longer than [`LOOK_MAX`].
pub const LOOK_MIN: u64 = 20 * NSEC_PER_MSEC;
const LOOK_ENDS: u64 = 8;
const LOOK_MAX: u64 = 200 * NSEC_PER_MSEC;

/// Looks of a trial, at least; of one that ends with more slots; of any, at most, in a search and after a rest.
const LOOKS_MIN: u64 = 3;
const LOOKS_UP: u64 = 4;
const LOOKS_SEARCH: u64 = 12;
const LOOKS_MAX: u64 = 48;

/// Looks before the standard is known, and before the rate is judged during a rest.
const LOOKS_FIRST: u64 = 4;
const LOOKS_HOLD: u64 = 8;

/// Looks that the standard remembers.
const LOOKS_KEPT: u64 = 40;

/// Looks of a rest for each look of the trials up before it; at least.
const REST: u64 = 16;
const REST_MIN: u64 = 48;

/// Trials up for one down, at most.
const UPS_MAX: u32 = 8;

/// Parts of the unit of rates, which is the rate of the first look of a search, or the rate of the standard.
const UNIT: u64 = 4096;

/// Units of a rate, at most: with more, requests are of another kind, and the search starts anew.
const UNITS_MAX: u64 = 64;

/// A rate is the same down to this part of the standard, and higher from this part on, in thousandths.
const SAME: u64 = 990;
const HIGHER: u64 = 1012;

/// A difference counts if it is so many thousandths of its standard deviation: in a search, and after a rest.
const SURE_SEARCH: u64 = 1_500;
const SURE: u64 = 2_000;

/// So much of the standard, in thousandths, the rate may go up or down before the search starts anew.
const CHANGE: u64 = 80;

/// Bytes that a request counts beside its own.
const EXTRA: u64 = 512;

/// Slots after one step down, as a fraction of those before, from coarse to fine.
const STEPS: [(u64, u64); 4] = [(1, 4), (1, 2), (2, 3), (4, 5)];

/// The step to a half, and the finest one.
const HALF: usize = 1;
const FINEST: usize = STEPS.len() - 1;

/// Returns `sum / count`; without a count there is nothing to be divided.
fn per(sum: u64, count: u64) -> u64 {
    sum.checked_div(count).unwrap_or(0)
}

/// What has ended at a device so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Now, ns.
    pub now: u64,
    /// Requests.
    pub ended: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Requests and bytes per second, and their geometric mean.
type Rates = [u64; 3];

impl Totals {
    /// Nothing has ended at `now` (ns).
    pub fn at(now: u64) -> Self {
        Self {
            now,
            ..Self::default()
        }
    }

    /// Adds `ended` requests of `bytes`.
    pub fn plus(self, ended: u64, bytes: u64) -> Self {
        Self {
            now: self.now,
            ended: self.ended.wrapping_add(ended),
            bytes: self.bytes.wrapping_add(bytes),
        }
    }

    /// Returns the rates since `before`.
    fn rates_since(&self, before: &Self) -> Rates {
        let us = self.now.saturating_sub(before.now) / NSEC_PER_USEC;
        // Nothing overflows below 2^44 bytes.
        let per_second = |count: u64| per(count.saturating_mul(USEC_PER_SEC), us);
        let ended = self.ended.wrapping_sub(before.ended);
        // A request without data takes time as well.
        let bytes = self.bytes.wrapping_sub(before.bytes);
        let bytes = bytes.saturating_add(ended.saturating_mul(EXTRA));
        let (ended, bytes) = (per_second(ended), per_second(bytes));
        let root = |rate: u64| rate.saturating_mul(256).isqrt();
        [ended, bytes, root(ended).saturating_mul(root(bytes)) / 256]
    }
}

/// Sums of one rate of some looks, in [`UNIT`]s.
#[derive(Clone, Copy, Debug)]
struct Sums {
    sum: u64,
    squares: u64,
}

/// Rates of some looks.
#[derive(Clone, Copy, Debug)]
struct Looks {
    count: u64,
    rates: [Sums; 3],
}

impl Looks {
    const NONE: Self = Self {
        count: 0,
        rates: [Sums { sum: 0, squares: 0 }; 3],
    };

    /// Adds a look at `rates`, of which `units` are one unit each.
    fn add(&mut self, rates: &Rates, units: &Rates) {
        self.count = self.count.saturating_add(1);
        for (sums, (rate, unit)) in self.rates.iter_mut().zip(rates.iter().zip(units)) {
            // At most `UNITS_MAX`, so that squares stay below 2^36.
            let rate = per(rate.saturating_mul(UNIT), *unit);
            sums.sum = sums.sum.saturating_add(rate);
            sums.squares = sums.squares.saturating_add(rate.saturating_mul(rate));
        }
    }

    /// Adds other looks, and drops old ones.
    fn merge(&mut self, other: &Self) {
        let count = self.count.saturating_add(other.count);
        self.count = count.min(LOOKS_KEPT);
        for (sums, other) in self.rates.iter_mut().zip(&other.rates) {
            let add = |a: u64, b: u64| per(a.saturating_add(b), count).saturating_mul(self.count);
            *sums = Sums {
                sum: add(sums.sum, other.sum),
                squares: add(sums.squares, other.squares),
            };
        }
    }

    /// Returns these looks as a part of `standard`, by the rate that spreads least.
    fn of(&self, standard: &Self, sure: u64) -> Ratio {
        let looks = self.count.saturating_add(standard.count);
        let ratios = self.rates.iter().zip(&standard.rates).map(|(new, old)| {
            let (mean, level) = (per(new.sum, self.count), per(old.sum, standard.count));
            let part = |rate: u64| per(rate.saturating_mul(UNIT), level);
            let off =
                |sums: &Sums, mean: u64| sums.squares.saturating_sub(mean.saturating_mul(sums.sum));
            let off = off(new, mean).saturating_add(off(old, level));
            let variance = per(off, looks.saturating_sub(2));
            let variance = per(variance, self.count).saturating_add(per(variance, standard.count));
            Ratio {
                part: part(mean),
                noise: part(variance.isqrt()).saturating_mul(sure) / 1000,
            }
        });
        let least = ratios.min_by_key(|ratio| ratio.noise);
        least.unwrap_or(Ratio { part: 0, noise: 0 })
    }
}

/// A rate as a part of the standard, in [`UNIT`]s.
#[derive(Clone, Copy, Debug)]
struct Ratio {
    part: u64,
    /// The least difference that counts.
    noise: u64,
}

impl Ratio {
    /// Returns whether this is above `thousandths`, or below them by less than `margin`.
    fn exceeds(self, thousandths: u64, margin: u64) -> bool {
        self.part.saturating_add(margin) > UNIT.saturating_mul(thousandths) / 1000
    }

    /// Returns whether this is above `thousandths` for sure.
    fn is_above(self, thousandths: u64) -> bool {
        self.part.saturating_sub(self.noise) > UNIT.saturating_mul(thousandths) / 1000
    }

    /// Returns whether this is below `thousandths` for sure.
    fn is_below(self, thousandths: u64) -> bool {
        !self.exceeds(thousandths, self.noise)
    }
}

/// State of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Slots that keep the device busy, as far as is known; 0: nothing is searched.
    pub slots: u32,
    /// The search is not over.
    pub searching: bool,
    /// Requests per second with these slots; 0: no search is over.
    pub requests: u64,
    /// Bytes per second.
    pub bytes: u64,
}

/// What a device had to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// At times nothing waited, or slots were free.
    Light,
    /// All slots were in use, and requests waited.
    Full,
    /// More requests are in flight than there are slots by now.
    Over,
}

/// What the looks are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The standard is not known.
    Start,
    /// The slots stay.
    Hold,
    /// Twice the slots are tried.
    Up,
    /// One of [`STEPS`] is tried.
    Down(usize),
}

/// The search for the knee of one device.
#[derive(Clone, Debug)]
pub struct Knee {
    /// Slots, at most.
    max: u32,
    /// Slots in effect.
    slots: u32,
    /// Slots that keep the standard.
    good: u32,
    phase: Phase,
    /// The rates that [`UNIT`] stands for; 0: nothing was seen.
    units: Rates,
    standard: Looks,
    /// Slots with which the standard was seen.
    standard_slots: u32,
    looks: Looks,
    /// Requests waited during all of them.
    whole: bool,
    /// The end of the last look.
    last: Option<Totals>,
    /// Ends that are still those of other slots.
    stale: u64,
    /// Looks until the next trial.
    rest: u64,
    /// Looks of trials up since the last rest.
    tried: u64,
    /// Trials up before one down.
    ups: u32,
    /// Trials up before the one down after that; 0: the search is not over.
    next_ups: u32,
}

impl Knee {
    /// Starts with [`START`] slots.
    pub fn new() -> Self {
        let slots = START;
        Self {
            max: u32::MAX,
            slots,
            good: slots,
            phase: Phase::Start,
            units: [0; 3],
            standard: Looks::NONE,
            standard_slots: slots,
            looks: Looks::NONE,
            whole: true,
            last: None,
            stale: 0,
            rest: 0,
            tried: 0,
            ups: 0,
            next_ups: 0,
        }
    }

    /// Has at most `max` slots from now on.
    pub fn bound(&mut self, max: u32) {
        self.max = max.max(1);
        if self.slots > self.max || self.good > self.max {
            self.good = self.good.min(self.max);
            self.start();
        }
    }

    /// Returns the slots in effect.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Returns what was found. While nothing `waits`, nothing is searched.
    pub fn found(&self, waits: bool) -> Found {
        let rate =
            |sums: &Sums, unit: u64| per(sums.sum, self.standard.count).saturating_mul(unit) / UNIT;
        let (requests, bytes) = match (self.is_over(), &self.standard.rates, &self.units) {
            (true, [a, b, _], [ended, bytes, _]) => (rate(a, *ended), rate(b, *bytes)),
            _ => (0, 0),
        };
        Found {
            slots: self.good,
            searching: waits && self.is_searching(),
            requests,
            bytes: bytes.saturating_sub(requests.saturating_mul(EXTRA)),
        }
    }

    /// Returns whether a search is over.
    fn is_over(&self) -> bool {
        self.next_ups != 0
    }

    /// Returns whether the knee is still being looked for: not while nothing waited yet, nor in a trial after a rest.
    fn is_searching(&self) -> bool {
        self.units != [0; 3] && !self.is_over()
    }

    /// Takes what has ended by now, and the load since the last call. To be called every [`LOOK_MIN`] or so while requests
    /// wait.
    pub fn look(&mut self, totals: Totals, load: Load) {
        let counts = load == Load::Full || load == Load::Light && self.phase == Phase::Up;
        let last = match self.last.filter(|_| counts) {
            Some(last) => last,
            None => {
                self.last = Some(totals);
                if load == Load::Light {
                    self.looks = Looks::NONE;
                    match self.phase {
                        // What comes next may be of another kind.
                        Phase::Start => self.units = [0; 3],
                        Phase::Down(_) => self.hold(),
                        _ => {}
                    }
                }
                return;
            }
        };
        self.whole &= load == Load::Full;
        let Some(ended) = totals.ended.checked_sub(last.ended) else {
            // A client has gone.
            self.last = Some(totals);
            return;
        };
        if self.stale > 0 {
            self.stale = self.stale.saturating_sub(ended);
            self.last = Some(totals);
            return;
        }
        let ns = totals.now.saturating_sub(last.now);
        let ends = LOOK_ENDS.max(self.slots.into());
        if ns < LOOK_MAX && (ns < LOOK_MIN || ended < ends) {
            return;
        }
        let rates = totals.rates_since(&last);
        self.last = Some(totals);
        let mut pairs = rates.iter().zip(&self.units);
        if pairs.any(|(rate, unit)| *rate > unit.saturating_mul(UNITS_MAX)) {
            self.start();
            self.units = rates;
        }
        if self.stale > 0 || self.units == [0; 3] {
            return;
        }
        self.looks.add(&rates, &self.units);
        if self.phase == Phase::Up {
            self.tried = self.tried.saturating_add(1);
        }
        self.judge();
    }

    /// Goes on with `slots` in `phase`.
    fn go(&mut self, slots: u32, phase: Phase) {
        self.phase = phase;
        self.looks = Looks::NONE;
        self.whole = true;
        if slots != self.slots {
            let change = self.slots.abs_diff(slots);
            self.stale = change.saturating_add(slots.min(self.slots) / 2).into();
            self.slots = slots;
        }
    }

    /// Searches anew.
    fn start(&mut self) {
        self.ups = 0;
        self.next_ups = 0;
        self.units = [0; 3];
        self.go(self.good, Phase::Start);
    }

    fn hold(&mut self) {
        self.rest = REST_MIN;
        if self.is_searching() {
            self.next_ups = 1;
        } else {
            self.rest = self.rest.max(self.tried.saturating_mul(REST));
        }
        self.tried = 0;
        self.go(self.good, Phase::Hold);
    }

    fn try_up(&mut self) {
        match self.max.min(self.good.saturating_mul(2)) {
            slots if slots == self.good => self.after_up(),
            slots => self.go(slots, Phase::Up),
        }
    }

    /// Goes on after more slots turned out to be of no use.
    fn after_up(&mut self) {
        if self.is_searching() {
            return self.try_down(0);
        }
        if self.ups > 0 {
            return self.hold();
        }
        let first = self.next_ups == 1;
        self.ups = self.next_ups;
        self.next_ups = UPS_MAX.min(self.next_ups.saturating_mul(2));
        self.try_down(if first { HALF } else { FINEST });
    }

    /// Returns the slots after `step`.
    fn below(&self, step: usize) -> u32 {
        let (part, of) = STEPS.get(step).copied().unwrap_or((1, 1));
        let slots = per(u64::from(self.good).saturating_mul(part), of);
        (slots as u32).min(self.good.saturating_sub(1)).max(1)
    }

    fn try_down(&mut self, step: usize) {
        match self.good {
            1 => self.hold(),
            _ => self.go(self.below(step), Phase::Down(step)),
        }
    }

    /// Has the slots in effect from now on.
    fn keep(&mut self) {
        self.good = self.slots;
        self.tried = 0;
    }

    /// Makes the looks the standard.
    fn set_standard(&mut self) {
        self.standard = self.looks;
        self.standard_slots = self.slots;
    }

    fn judge(&mut self) {
        let searching = self.is_searching();
        let (longest, sure) = if searching {
            (LOOKS_SEARCH, SURE_SEARCH)
        } else {
            (LOOKS_MAX, SURE)
        };
        let count = self.looks.count;
        let is_long = count >= longest;
        let ratio = self.looks.of(&self.standard, sure);
        match self.phase {
            Phase::Start if count >= LOOKS_FIRST => {
                self.set_standard();
                self.try_up();
            }
            Phase::Hold if count >= LOOKS_HOLD => self.rest_on(ratio),
            Phase::Up if count >= LOOKS_MIN => {
                let is_sure = count >= LOOKS_UP && ratio.is_above(HIGHER);
                if self.whole && ratio.is_below(1000 - CHANGE) {
                    self.start();
                } else if is_sure || is_long && ratio.exceeds(HIGHER, 0) && ratio.is_above(1000) {
                    self.keep();
                    self.set_standard();
                    self.next_ups = 0;
                    self.try_up();
                } else if ratio.is_below(HIGHER) || is_long {
                    if !self.whole {
                        return self.hold();
                    }
                    self.standard.merge(&self.looks);
                    self.after_up();
                }
            }
            Phase::Down(step) if count >= LOOKS_MIN => {
                let margin = if searching { ratio.noise / 2 } else { 0 };
                let is_same = is_long && ratio.exceeds(SAME, margin);
                if ratio.is_above(1000 + CHANGE) {
                    self.start();
                } else if ratio.is_above(SAME) || is_same {
                    self.keep();
                    self.try_down(if searching { step } else { 0 });
                } else if ratio.is_below(SAME) || is_long {
                    let tried = self.slots;
                    let next =
                        (step.saturating_add(1)..=FINEST).find(|step| self.below(*step) != tried);
                    match next {
                        Some(step) => self.try_down(step),
                        None => self.hold(),
                    }
                }
            }
            _ => {}
        }
    }

    /// Judges what was seen while nothing was tried.
    fn rest_on(&mut self, ratio: Ratio) {
        let off = ratio.part.abs_diff(UNIT);
        if off > UNIT.saturating_mul(CHANGE) / 1000 && off > ratio.noise.saturating_mul(2) {
            return self.start();
        }
        if self.standard_slots == self.slots {
            self.standard.merge(&self.looks);
        } else {
            self.set_standard();
        }
        self.rest = self.rest.saturating_sub(self.looks.count);
        self.looks = Looks::NONE;
        if self.rest == 0 {
            self.ups = self.ups.saturating_sub(1);
            self.try_up();
        }
    }
}
