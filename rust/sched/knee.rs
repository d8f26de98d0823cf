// SPDX-License-Identifier: GPL-2.0-only

//! How many requests keep a device busy.
//!
//! # Vocabulary
//!
//! - *Slots*: requests that may be in flight.
//! - *Rate*: the geometric mean of requests and bytes that end per second, so that requests of other sizes change it less.
//! - *Knee*: the least slots with which the device has nearly its highest rate ([`SAME`]). With fewer it idles; with more,
//!   requests wait in the device, in an order that no policy decides.
//! - *Look*: one rate, over [`LOOK_MIN`] or more.
//! - *Standard*: the rate that is to be kept.
//! - *Trial*: other slots for some looks, until it is clear whether the rate is the same, as far as the looks differ.
//!
//! ```text
//!            standard known        rate higher
//!   start ─────────────────▶ up ◀──────────────┐         twice the slots
//!     ▲                      │  ───────────────┘
//!     │                      │ no higher           same rate
//!     │                      └───────────▶ down ◀────────────┐   a quarter, half, two thirds, four fifths
//!     │ another rate                        │  ──────────────┘
//!     │                      ┌──────────────┘ lower, with the finest step
//!     └──────────────────── hold ──▶ up, then down with the finest step: after a rest that doubles each time
//! ```
//!
//! Looks count only while all slots are in use and requests wait: otherwise the load decides the rate, and slots do not matter.
//! With more slots than before they count as well: the rate may be higher though nothing waits any more.

use crate::sched::units::{NSEC_PER_MSEC, NSEC_PER_SEC};

/// Slots to start with.
pub const START: u32 = 8;

/// Shortest look (ns), and the requests that end in one, at least: those that end together often come together again, so
/// as many as there are slots end in one, too. It is no longer than [`LOOK_MAX`].
pub const LOOK_MIN: u64 = 20 * NSEC_PER_MSEC;
const LOOK_ENDS: u64 = 8;
const LOOK_MAX: u64 = 200 * NSEC_PER_MSEC;

/// Looks of a trial, at least and at most.
const LOOKS_MIN: u64 = 3;
const LOOKS_UP: u64 = 4;
const LOOKS_MAX: u64 = 12;

/// Looks before the standard is known, and before it is judged while nothing is tried.
const LOOKS_FIRST: u64 = 4;
const LOOKS_HOLD: u64 = 8;

/// Looks that the standard remembers.
const LOOKS_KEPT: u64 = 40;

/// Looks until the next trial after a search; at most.
const REST: u64 = 32;
const REST_MAX: u64 = 512;

/// Parts of the unit of rates, which is the rate of the first look of a search.
const UNIT: u64 = 4096;

/// A rate is the same down to this part of the standard, and higher from this part on, in thousandths.
const SAME: u64 = 985;
const HIGHER: u64 = 1020;

/// From this part on it is higher after [`LOOKS_MAX`], whatever the noise.
const MUCH_HIGHER: u64 = 1050;

/// So much of the standard, in thousandths, the rate may go up or down before the search starts anew.
const CHANGE: u64 = 80;

/// Slots after one step down, as a fraction of those before, from coarse to fine.
const STEPS: [(u64, u64); 4] = [(1, 4), (1, 2), (2, 3), (4, 5)];

/// The finest step.
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

    /// Returns the rate since `before`.
    fn rate_since(&self, before: &Self) -> u64 {
        let ns = self.now.saturating_sub(before.now);
        let ended = self.ended.wrapping_sub(before.ended);
        // A request without data takes time as well.
        let bytes = self.bytes.wrapping_sub(before.bytes);
        let bytes = bytes.saturating_add(ended.saturating_mul(512));
        // Nothing overflows below 2^36 bytes.
        let per_second = |count: u64| per(count.saturating_mul(NSEC_PER_SEC / 1000), ns / 1000);
        let root = |count: u64| per_second(count.saturating_mul(256)).isqrt();
        root(ended).saturating_mul(root(bytes))
    }
}

/// Rates of some looks, in [`UNIT`]s.
#[derive(Clone, Copy, Debug)]
struct Looks {
    count: u64,
    sum: u64,
    squares: u64,
}

impl Looks {
    const NONE: Self = Self {
        count: 0,
        sum: 0,
        squares: 0,
    };

    fn add(&mut self, rate: u64) {
        // Squares stay below 2^48.
        let rate = rate.min(UNIT << 12);
        self.count = self.count.saturating_add(1);
        self.sum = self.sum.saturating_add(rate);
        self.squares = self.squares.saturating_add(rate.saturating_mul(rate));
    }

    /// Adds other looks, and forgets old ones.
    fn merge(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
        self.squares = self.squares.saturating_add(other.squares);
        if self.count > LOOKS_KEPT {
            let keep = |sum: u64| per(sum, self.count).saturating_mul(LOOKS_KEPT);
            (self.sum, self.squares) = (keep(self.sum), keep(self.squares));
            self.count = LOOKS_KEPT;
        }
    }

    fn mean(&self) -> u64 {
        per(self.sum, self.count)
    }

    /// Returns the variance of the mean.
    fn variance(&self) -> u64 {
        let mean = self.mean();
        let spread = per(self.squares, self.count).saturating_sub(mean.saturating_mul(mean));
        per(spread, self.count.saturating_sub(1))
    }
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
    /// The rate that [`UNIT`] stands for.
    unit: u64,
    standard: Looks,
    looks: Looks,
    /// Requests waited during all of them.
    whole: bool,
    /// The end of the last look.
    last: Option<Totals>,
    /// Ends that are still those of other slots.
    stale: u64,
    /// Looks until the next trial, and until the one after that.
    rest: u64,
    next_rest: u64,
    /// The last trial after a rest was up.
    was_up: bool,
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
            unit: 0,
            standard: Looks::NONE,
            looks: Looks::NONE,
            whole: true,
            last: None,
            stale: 0,
            rest: 0,
            next_rest: REST,
            was_up: false,
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

    /// Returns the slots that keep the device busy, as far as is known.
    pub fn good(&self) -> u32 {
        self.good
    }

    /// Returns whether the knee is still being looked for: not while nothing waited yet, nor in a trial after a rest.
    pub fn is_searching(&self) -> bool {
        self.unit != 0 && self.next_rest == REST
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
                    if matches!(self.phase, Phase::Down(_)) {
                        self.hold();
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
        let rate = totals.rate_since(&last);
        self.last = Some(totals);
        if self.unit == 0 {
            self.unit = rate;
        }
        // Of rates below 2^52.
        self.looks.add(per(rate.saturating_mul(UNIT), self.unit));
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
        self.next_rest = REST;
        self.was_up = false;
        self.unit = 0;
        self.go(self.good, Phase::Start);
    }

    fn hold(&mut self) {
        self.rest = self.next_rest;
        self.next_rest = REST_MAX.min(self.next_rest.saturating_mul(2));
        self.go(self.good, Phase::Hold);
    }

    fn try_up(&mut self) {
        match self.max.min(self.good.saturating_mul(2)) {
            slots if slots == self.good => self.try_down(0),
            slots => self.go(slots, Phase::Up),
        }
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

    fn judge(&mut self) {
        let (looks, standard) = (self.looks, self.standard);
        let rate = looks.mean();
        // One and a half standard deviations of the difference.
        let noise = looks.variance().saturating_add(standard.variance());
        let noise = noise.saturating_mul(9).isqrt() / 2;
        let long = looks.count >= LOOKS_MAX;
        let of_standard = |part: u64| standard.mean().saturating_mul(part) / 1000;
        let is_above = |part| rate.saturating_sub(noise) > of_standard(part);
        let is_below = |part| rate.saturating_add(noise) < of_standard(part);
        match self.phase {
            Phase::Start if looks.count >= LOOKS_FIRST => {
                self.standard = looks;
                self.try_up();
            }
            Phase::Hold if looks.count >= LOOKS_HOLD => self.rest_on(rate, noise),
            Phase::Up if looks.count >= LOOKS_MIN => {
                let sure = looks.count >= LOOKS_UP && is_above(HIGHER);
                if sure || long && rate > of_standard(MUCH_HIGHER) {
                    self.good = self.slots;
                    self.standard = looks;
                    self.next_rest = REST;
                    self.try_up();
                } else if is_below(HIGHER) || long {
                    if self.whole {
                        self.standard.merge(&looks);
                    }
                    match self.next_rest {
                        REST if self.whole => self.try_down(0),
                        _ => self.hold(),
                    }
                }
            }
            Phase::Down(step) if looks.count >= LOOKS_MIN => {
                let same =
                    is_above(SAME) || long && rate.saturating_add(noise / 2) > of_standard(SAME);
                if same {
                    self.good = self.slots;
                    self.standard.merge(&looks);
                    self.try_down(step);
                } else if is_below(SAME) || long {
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
    fn rest_on(&mut self, rate: u64, noise: u64) {
        let off = rate.abs_diff(self.standard.mean());
        let change = self.standard.mean().saturating_mul(CHANGE) / 1000;
        if off > change && off > noise.saturating_mul(2) {
            return self.start();
        }
        let looks = core::mem::replace(&mut self.looks, Looks::NONE);
        self.standard.merge(&looks);
        self.rest = self.rest.saturating_sub(looks.count);
        if self.rest > 0 {
            return;
        }
        self.was_up = !self.was_up;
        if self.was_up {
            self.try_up();
        } else {
            self.try_down(FINEST);
        }
    }
}
