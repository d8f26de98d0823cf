// SPDX-License-Identifier: GPL-2.0-only

//! Search for the number of requests in flight that keeps a device busy.
//!
//! - Slots: maximum number of requests in flight.
//! - Rate: requests that end per second, bytes per second, or the geometric mean of both; the one
//!   with the least variance counts ([`RateRatio`]).
//! - Knee: minimum number of slots with which the device has nearly its maximum rate ([`SAME`]).
//!   With fewer slots the device idles. With more, requests queue in the device, in an order that
//!   no policy decides.
//! - Sample: one measurement of the rate, over at least [`SAMPLE_MIN`].
//! - Standard: samples at the reference rate, which the search must maintain.
//! - Trial: samples with another number of slots, until the comparison with the standard is
//!   significant.
//!
//! ```text
//!            standard known        rate higher
//!   start ─────────────────▶ up ◀──────────────┐         twice the slots
//!     ▲                      │  ───────────────┘
//!     │                      │ no higher           same rate
//!     │                      └───────────▶ down ◀────────────┐   to 1/4, 1/2, 2/3, 4/5
//!     │ another rate                        │  ──────────────┘
//!     │                      ┌──────────────┘ lower, with the finest step
//!     └──────────────────── hold ──▶ up after each rest, and then down, less and less often
//! ```
//!
//! A trial of the search is decided after at most [`SAMPLES_SEARCH`] samples, whatever their
//! variance, and then prefers fewer slots. Trials after a rest take up to [`SAMPLES_MAX`] samples
//! and have no preference. The first one down is to half the slots, because the search may have
//! decided on little evidence. A rest is [`REST`] times as long as the trials up before it.
//!
//! Looks count only while all slots are in use and requests are queued; otherwise the load
//! determines the rate, and slots do not matter. Looks of a trial up count also without queued
//! requests, because the rate may be higher.

use crate::sched::{
    count::Count,
    units::{NSEC_PER_MSEC, NSEC_PER_USEC, USEC_PER_SEC},
};

/// Initial number of slots.
pub const START: u32 = 8;

/// Minimum duration of a sample, ns, and minimum number of requests that end in it. As many
/// requests as there are slots must end, too, because requests that end together often arrive
/// together again. A sample does not wait for them longer than [`SAMPLE_MAX`], ns.
pub const SAMPLE_MIN: u64 = 20 * NSEC_PER_MSEC;
const SAMPLE_ENDS: u64 = 8;
const SAMPLE_MAX: u64 = 200 * NSEC_PER_MSEC;

/// Number of samples of a trial: minimum; minimum of a trial that ends with more slots; maximum in
/// a search; maximum after a rest.
const SAMPLES_MIN: u64 = 3;
const SAMPLES_UP: u64 = 4;
const SAMPLES_SEARCH: u64 = 12;
const SAMPLES_MAX: u64 = 48;

/// Number of samples before the standard is known, and before the rate is judged during a rest.
const SAMPLES_FIRST: u64 = 4;
const SAMPLES_HOLD: u64 = 8;

/// Maximum number of samples that count in the standard.
const SAMPLES_KEPT: u64 = 40;

/// Number of samples of a rest for each sample of the trials up before it; minimum number.
const REST: u64 = 16;
const REST_MIN: u64 = 48;

/// Maximum number of trials up for one down.
const UPS_MAX: u32 = 8;

/// Unit of rates as an integer: the rate of the first sample of a search, or the rate of the
/// standard.
const UNIT: u64 = 4096;

/// Maximum rate, units; at a higher rate the requests are of another kind, and the search restarts.
const UNITS_MAX: u64 = 64;

/// Thresholds in thousandths of the standard: from `SAME` on a rate is the same, from `HIGHER` on
/// it is higher.
const SAME: u64 = 990;
const HIGHER: u64 = 1012;

/// Minimum significant difference, in thousandths of its standard deviation: in a search, and after
/// a rest.
const SURE_SEARCH: u64 = 1_500;
const SURE: u64 = 2_000;

/// Maximum change of the rate, in thousandths of the standard; a larger change restarts the search.
const CHANGE: u64 = 80;

/// Overhead of a request, bytes.
const EXTRA: u64 = 512;

/// Slots after one step down, as fractions of the slots before, from coarse to fine.
const STEPS: [(u64, u64); 4] = [(1, 4), (1, 2), (2, 3), (4, 5)];

/// Index in [`STEPS`] of the step to a half, and of the finest step.
const HALF: usize = 1;
const FINEST: usize = STEPS.len() - 1;

/// Returns `sum / count`; 0 if `count` is 0.
fn per(sum: u64, count: u64) -> u64 {
    sum.checked_div(count).unwrap_or(0)
}

/// Totals of the requests that have ended at a device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Current time, ns.
    pub now: u64,
    /// Number of requests.
    pub ended: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// Requests per second, bytes per second, and their geometric mean.
type Rates = [u64; 3];

impl Totals {
    /// Creates totals of zero at `now` (ns).
    pub fn at(now: u64) -> Self {
        Self {
            now,
            ..Self::default()
        }
    }

    /// Adds `ended` requests with a total of `bytes`.
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
        // No overflow below 2^44 bytes.
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

/// Sums of one rate over some samples, in [`UNIT`]s.
#[derive(Clone, Copy, Debug)]
struct RateSums {
    sum: u64,
    squares: u64,
}

/// Rates of some samples.
#[derive(Clone, Copy, Debug)]
struct RateSamples {
    count: u64,
    rates: [RateSums; 3],
}

impl RateSamples {
    const NONE: Self = Self {
        count: 0,
        rates: [RateSums { sum: 0, squares: 0 }; 3],
    };

    /// Adds a sample at `rates`; `units` are the rates that count as one unit.
    fn add(&mut self, rates: &Rates, units: &Rates) {
        self.count.count(1);
        for (sums, (rate, unit)) in self.rates.iter_mut().zip(rates.iter().zip(units)) {
            // At most `UNITS_MAX`, so that squares stay below 2^36.
            let rate = per(rate.saturating_mul(UNIT), *unit);
            sums.sum = sums.sum.saturating_add(rate);
            sums.squares = sums.squares.saturating_add(rate.saturating_mul(rate));
        }
    }

    /// Adds other samples; limits the weight of old ones to [`SAMPLES_KEPT`].
    fn merge(&mut self, other: &Self) {
        let count = self.count.saturating_add(other.count);
        self.count = count.min(SAMPLES_KEPT);
        for (sums, other) in self.rates.iter_mut().zip(&other.rates) {
            let add = |a: u64, b: u64| per(a.saturating_add(b), count).saturating_mul(self.count);
            *sums = RateSums {
                sum: add(sums.sum, other.sum),
                squares: add(sums.squares, other.squares),
            };
        }
    }

    /// Returns the ratio of these samples to `standard`, for the rate with the least noise.
    fn of(&self, standard: &Self, sure: u64) -> RateRatio {
        let samples = self.count.saturating_add(standard.count);
        let ratios = self.rates.iter().zip(&standard.rates).map(|(new, old)| {
            let (mean, level) = (per(new.sum, self.count), per(old.sum, standard.count));
            let part = |rate: u64| per(rate.saturating_mul(UNIT), level);
            let off = |sums: &RateSums, mean: u64| {
                sums.squares.saturating_sub(mean.saturating_mul(sums.sum))
            };
            let off = off(new, mean).saturating_add(off(old, level));
            let variance = per(off, samples.saturating_sub(2));
            let variance = per(variance, self.count).saturating_add(per(variance, standard.count));
            RateRatio {
                part: part(mean),
                noise: part(variance.isqrt()).saturating_mul(sure) / 1000,
            }
        });
        let least = ratios.min_by_key(|ratio| ratio.noise);
        least.unwrap_or(RateRatio { part: 0, noise: 0 })
    }
}

/// Rate relative to the standard, in [`UNIT`]s.
#[derive(Clone, Copy, Debug)]
struct RateRatio {
    part: u64,
    /// Minimum significant difference.
    noise: u64,
}

impl RateRatio {
    /// Returns true if the rate is above `thousandths`, or below by less than `margin`.
    fn exceeds(self, thousandths: u64, margin: u64) -> bool {
        self.part.saturating_add(margin) > UNIT.saturating_mul(thousandths) / 1000
    }

    /// Returns true if the rate is significantly above `thousandths`.
    fn is_above(self, thousandths: u64) -> bool {
        self.part.saturating_sub(self.noise) > UNIT.saturating_mul(thousandths) / 1000
    }

    /// Returns true if the rate is significantly below `thousandths`.
    fn is_below(self, thousandths: u64) -> bool {
        !self.exceeds(thousandths, self.noise)
    }
}

/// State of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchState {
    /// Best known number of slots that keeps the device busy; 0: no search.
    pub slots: u32,
    /// True if the search has not finished.
    pub searching: bool,
    /// Requests per second with these slots; 0: no search has finished.
    pub requests: u64,
    /// Bytes per second with these slots.
    pub bytes: u64,
}

/// Load of a device since the last sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceLoad {
    /// At times no request was queued, or slots were free.
    Light,
    /// All slots were in use, and requests were queued.
    Full,
    /// More requests are in flight than there are slots.
    Over,
}

/// Phase of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KneePhase {
    /// The standard is not known.
    Start,
    /// The number of slots does not change.
    Hold,
    /// Trial of twice the slots.
    Up,
    /// Trial of one of [`STEPS`].
    Down(usize),
}

/// Search for the knee of one device.
#[derive(Clone, Debug)]
pub struct Knee {
    /// Maximum number of slots.
    max: u32,
    /// Slots in effect.
    slots: u32,
    /// Number of slots that achieves the standard.
    good: u32,
    phase: KneePhase,
    /// Rates that count as one [`UNIT`]; 0: no sample yet.
    units: Rates,
    standard: RateSamples,
    /// Number of slots with which the standard was measured.
    standard_slots: u32,
    samples: RateSamples,
    /// True if requests were queued during all samples.
    whole: bool,
    /// Totals at the end of the last sample.
    last: Option<Totals>,
    /// Number of requests that still have to end before samples count, after a change of the slots.
    stale: u64,
    /// Number of samples until the next trial.
    rest: u64,
    /// Number of samples of trials up since the last rest.
    tried: u64,
    /// Number of trials up before the next one down.
    ups: u32,
    /// Number of trials up before the following one down; 0: the search has not finished.
    next_ups: u32,
    /// Most requests and most bytes per second of the searches that finished; 0: none has.
    measured: [u64; 2],
}

impl Knee {
    /// Creates a search that starts with [`START`] slots.
    pub fn new() -> Self {
        let slots = START;
        Self {
            max: u32::MAX,
            slots,
            good: slots,
            phase: KneePhase::Start,
            units: [0; 3],
            standard: RateSamples::NONE,
            standard_slots: slots,
            samples: RateSamples::NONE,
            whole: true,
            last: None,
            stale: 0,
            rest: 0,
            tried: 0,
            ups: 0,
            next_ups: 0,
            measured: [0; 2],
        }
    }

    /// Sets the maximum number of slots.
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

    /// Returns the state of the search; the search is inactive unless `waits`: requests are queued.
    pub fn found(&self, waits: bool) -> SearchState {
        let [requests, bytes] = self.rates().unwrap_or_default();
        SearchState {
            slots: self.good,
            searching: waits && self.is_searching(),
            requests,
            bytes,
        }
    }

    /// Returns the most requests and the most bytes per second that searches found, possibly with
    /// different requests; 0 before the first search has finished.
    ///
    /// A device that is slower for a time keeps its capacity; each restart takes off 1/256.
    pub fn capacity(&self) -> [u64; 2] {
        self.measured
    }

    /// Returns the standard, requests and bytes per second, if a search has finished.
    fn rates(&self) -> Option<[u64; 2]> {
        let ([requests, bytes, _], [ended, total, _]) = (&self.standard.rates, &self.units);
        let rate = |sums: &RateSums, unit: u64| {
            per(sums.sum, self.standard.count).saturating_mul(unit) / UNIT
        };
        let (requests, bytes) = (rate(requests, *ended), rate(bytes, *total));
        let bytes = bytes.saturating_sub(requests.saturating_mul(EXTRA));
        self.is_over().then_some([requests, bytes])
    }

    /// Returns true if a search has finished.
    fn is_over(&self) -> bool {
        self.next_ups != 0
    }

    /// Returns true if the search is in progress; false before requests were queued, and in a trial
    /// after a rest.
    fn is_searching(&self) -> bool {
        self.units != [0; 3] && !self.is_over()
    }

    /// Records the totals and the load since the last call. The caller calls about every
    /// [`SAMPLE_MIN`] while requests are queued.
    pub fn sample(&mut self, totals: Totals, load: DeviceLoad) {
        let counts =
            load == DeviceLoad::Full || load == DeviceLoad::Light && self.phase == KneePhase::Up;
        let last = match self.last.filter(|_| counts) {
            Some(last) => last,
            None => {
                self.last = Some(totals);
                if load == DeviceLoad::Light {
                    self.samples = RateSamples::NONE;
                    match self.phase {
                        // The next requests may be of another kind.
                        KneePhase::Start => self.units = [0; 3],
                        KneePhase::Down(_) => self.start_rest(),
                        _ => {}
                    }
                }
                return;
            }
        };
        self.whole &= load == DeviceLoad::Full;
        let Some(ended) = totals.ended.checked_sub(last.ended) else {
            // A client was removed.
            self.last = Some(totals);
            return;
        };
        if self.stale > 0 {
            self.stale = self.stale.saturating_sub(ended);
            self.last = Some(totals);
            return;
        }
        let ns = totals.now.saturating_sub(last.now);
        let ends = SAMPLE_ENDS.max(self.slots.into());
        if ns < SAMPLE_MAX && (ns < SAMPLE_MIN || ended < ends) {
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
        self.samples.add(&rates, &self.units);
        if self.phase == KneePhase::Up {
            self.tried.count(1);
        }
        self.judge();
        let found = self.rates().unwrap_or_default();
        for (most, rate) in self.measured.iter_mut().zip(found) {
            *most = rate.max(*most);
        }
    }

    /// Continues with `slots` in `phase`.
    fn go(&mut self, slots: u32, phase: KneePhase) {
        self.phase = phase;
        self.samples = RateSamples::NONE;
        self.whole = true;
        if slots != self.slots {
            let change = self.slots.abs_diff(slots);
            self.stale = change.saturating_add(slots.min(self.slots) / 2).into();
            self.slots = slots;
        }
    }

    /// Restarts the search.
    fn start(&mut self) {
        self.measured = self.measured.map(|rate| rate.saturating_sub(rate / 256));
        self.ups = 0;
        self.next_ups = 0;
        self.units = [0; 3];
        self.go(self.good, KneePhase::Start);
    }

    fn start_rest(&mut self) {
        self.rest = REST_MIN;
        if self.is_searching() {
            self.next_ups = 1;
        } else {
            self.rest = self.rest.max(self.tried.saturating_mul(REST));
        }
        self.tried = 0;
        self.go(self.good, KneePhase::Hold);
    }

    fn try_up(&mut self) {
        match self.max.min(self.good.saturating_mul(2)) {
            slots if slots == self.good => self.after_up(),
            slots => self.go(slots, KneePhase::Up),
        }
    }

    /// Continues after more slots were found useless.
    fn after_up(&mut self) {
        if self.is_searching() {
            return self.try_down(0);
        }
        if self.ups > 0 {
            return self.start_rest();
        }
        let first = self.next_ups == 1;
        self.ups = self.next_ups;
        self.next_ups = UPS_MAX.min(self.next_ups.saturating_mul(2));
        self.try_down(if first { HALF } else { FINEST });
    }

    /// Returns the number of slots after `step`.
    fn below(&self, step: usize) -> u32 {
        let (part, of) = STEPS.get(step).copied().unwrap_or((1, 1));
        let slots = per(u64::from(self.good).saturating_mul(part), of);
        (slots as u32).min(self.good.saturating_sub(1)).max(1)
    }

    fn try_down(&mut self, step: usize) {
        match self.good {
            1 => self.start_rest(),
            _ => self.go(self.below(step), KneePhase::Down(step)),
        }
    }

    /// Adopts the slots in effect.
    fn keep(&mut self) {
        self.good = self.slots;
        self.tried = 0;
    }

    /// Replaces the standard by the current samples.
    fn set_standard(&mut self) {
        self.standard = self.samples;
        self.standard_slots = self.slots;
    }

    fn judge(&mut self) {
        let searching = self.is_searching();
        let (longest, sure) = if searching {
            (SAMPLES_SEARCH, SURE_SEARCH)
        } else {
            (SAMPLES_MAX, SURE)
        };
        let count = self.samples.count;
        let is_long = count >= longest;
        let ratio = self.samples.of(&self.standard, sure);
        match self.phase {
            KneePhase::Start if count >= SAMPLES_FIRST => {
                self.set_standard();
                self.try_up();
            }
            KneePhase::Hold if count >= SAMPLES_HOLD => self.rest_on(ratio),
            KneePhase::Up if count >= SAMPLES_MIN => {
                let is_sure = count >= SAMPLES_UP && ratio.is_above(HIGHER);
                if self.whole && ratio.is_below(1000 - CHANGE) {
                    self.start();
                } else if is_sure || is_long && ratio.exceeds(HIGHER, 0) && ratio.is_above(1000) {
                    self.keep();
                    self.set_standard();
                    self.next_ups = 0;
                    self.try_up();
                } else if ratio.is_below(HIGHER) || is_long {
                    if !self.whole {
                        return self.start_rest();
                    }
                    self.standard.merge(&self.samples);
                    self.after_up();
                }
            }
            KneePhase::Down(step) if count >= SAMPLES_MIN => {
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
                        None => self.start_rest(),
                    }
                }
            }
            _ => {}
        }
    }

    /// Evaluates the samples during a rest.
    fn rest_on(&mut self, ratio: RateRatio) {
        let off = ratio.part.abs_diff(UNIT);
        if off > UNIT.saturating_mul(CHANGE) / 1000 && off > ratio.noise.saturating_mul(2) {
            return self.start();
        }
        if self.standard_slots == self.slots {
            self.standard.merge(&self.samples);
        } else {
            self.set_standard();
        }
        self.rest = self.rest.saturating_sub(self.samples.count);
        self.samples = RateSamples::NONE;
        if self.rest == 0 {
            self.ups = self.ups.saturating_sub(1);
            self.try_up();
        }
    }
}
