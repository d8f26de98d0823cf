// SPDX-License-Identifier: GPL-2.0-only

//! Limits of entities: maximums, guaranteed minimums, bursts and classes of importance.
//!
//! ```text
//! limits = word *( "+" word )
//! word   = "max=" ( rate | "unlimited" ) | "min=" rate | rate | "burst=" burst
//!        | "class=" ( "realtime" | "normal" | "idle" )
//! rate   = number [ "iops" ] | bytes | percent "%"                ; 1 to 100 percent
//! ```
//!
//! Rates and bursts are those of [`crate::sched::rules`]; a number without a unit is in requests. A
//! rate alone is another rate of the same word: `max=100iops+400KiB/s` limits both.
//!
//! - *Percent*: of the measured [`Capacity`].
//! - *Maximum*: bucket of the entity, over all partitions and devices of the service. A request is
//!   eligible once the bucket is not in debt, and leaves the bucket in debt for its span. So the
//!   rate is exact, whatever the sizes of requests ([`super::throttle`]).
//! - *Credit*: time for which the bucket was not used. Up to [`LATE`], two requests or 8 KiB, or
//!   `burst=` if that is more, is kept.
//! - *Minimum*: bucket that each request of the entity takes from. While it is not in debt, the
//!   entity precedes its siblings.
//! - *Class*: `realtime` multiplies the weight by [`REALTIME`]; `idle` replaces the weight by
//!   1/4096, the least weight there is. Without one, that of an I/O priority, or `normal`.

use super::{
    entity::{WEIGHT_MIN, WEIGHT_ONE},
    entity_table::{EntitySetting, EntityTable, KeyAbove, SettingReasons},
};
use crate::sched::{
    attr::IoClass,
    bucket::{
        rate::{RateDepth, RateUnit},
        span,
        table::{BucketRef, BucketTable, BucketTag},
        Charge, LATE, SPAN_MAX,
    },
    capacity::Capacity,
    error::{Error, Result},
    item::Cost,
    items::parse_number,
    key::{Field, Key},
    mem::{GrowingList, NoMemory, Shared},
    rng::avalanche,
    rules::{Burst, Rate, Unit},
    units::{NSEC_PER_MSEC, NSEC_PER_SEC},
};
use core::fmt;

/// Factor of the weight of an entity of class `realtime`.
pub const REALTIME: u32 = 100;

/// Number of requests, or of 4096 bytes, that an idle entity saves at least.
const DEPTH: u32 = 2;

/// Credit of a minimum, 100 ms in ticks.
const MINIMUM_CREDIT: u64 = span(100 * NSEC_PER_MSEC);

/// Class of importance among siblings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntityClass {
    /// Before other classes.
    Realtime,
    /// By weight.
    Normal,
    /// What others leave.
    Idle,
}

impl EntityClass {
    const ALL: [(Self, &'static str); 3] = [
        (Self::Realtime, "realtime"),
        (Self::Normal, "normal"),
        (Self::Idle, "idle"),
    ];

    /// Returns the class of an entity with `key` for which no class is set.
    pub fn of(key: &Key) -> Self {
        match key {
            Key::IoPriority(priority) => match priority.class() {
                Some(IoClass::Realtime) => Self::Realtime,
                Some(IoClass::Idle) => Self::Idle,
                Some(IoClass::BestEffort) | None => Self::Normal,
            },
            _ => Self::Normal,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (class, _) = Self::ALL.into_iter().find(|(_, name)| *name == text)?;
        Some(class)
    }

    fn name(self) -> &'static str {
        let found = Self::ALL.into_iter().find(|(class, _)| *class == self);
        found.map_or("", |(_, name)| name)
    }

    /// Returns the weight of an entity of this class, in units of 1 / [`WEIGHT_ONE`], from
    /// `weight`, at most `limit`, in units of one.
    pub fn weight(self, weight: u32, limit: u32) -> u32 {
        let weight = match self {
            Self::Idle => return WEIGHT_MIN,
            Self::Normal => weight,
            Self::Realtime => weight.saturating_mul(REALTIME),
        };
        weight.clamp(1, limit).saturating_mul(WEIGHT_ONE)
    }
}

/// Rates in requests, in bytes, and in percent of the capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    requests: Option<Rate>,
    bytes: Option<Rate>,
    percent: Option<u8>,
}

impl Rates {
    /// No rate.
    const NONE: Self = Self {
        requests: None,
        bytes: None,
        percent: None,
    };

    /// Adds the rate `text`.
    fn add(&mut self, text: &str) -> Result {
        const RATE: &str =
            "expected a rate: a number of requests, bytes (B KB MB GB KiB MiB GiB), or 1% to 100%";
        let is_first = match text.strip_suffix('%') {
            Some(percent) => {
                let percent = parse_number(percent).filter(|percent| (1..=100).contains(percent));
                let percent = percent.ok_or(Error::invalid(RATE))?;
                self.percent.replace(percent as u8).is_none()
            }
            None => self.add_rate(Rate::parse(text).ok_or(Error::invalid(RATE))?),
        };
        match is_first {
            true => Ok(()),
            false => Err(Error::invalid("two rates in the same unit")),
        }
    }

    /// Adds `rate`; returns false if there is a rate in its unit.
    fn add_rate(&mut self, rate: Rate) -> bool {
        let place = match rate.unit() {
            Unit::Bytes => &mut self.bytes,
            Unit::Plain | Unit::Requests => &mut self.requests,
        };
        place.replace(rate).is_none()
    }

    fn iter(&self) -> impl Iterator<Item = Rate> {
        self.requests.into_iter().chain(self.bytes)
    }

    /// Returns true if no rate is above that of `most` in the same unit.
    fn fit(&self, most: &Self) -> bool {
        let fits = |low: Option<Rate>, high: Option<Rate>| match (low, high) {
            (Some(low), Some(high)) => low.per_second() <= high.per_second(),
            _ => true,
        };
        let percents = self.percent.zip(most.percent);
        fits(self.requests, most.requests)
            && fits(self.bytes, most.bytes)
            && percents.is_none_or(|(low, high)| low <= high)
    }

    /// Returns true if a bucket of one of the rates can keep `burst`.
    fn can_keep(&self, burst: Burst) -> bool {
        let by_time = self.percent.is_some() && matches!(burst, Burst::Seconds(_));
        by_time || self.iter().any(|rate| burst.fits(rate))
    }
}

/// Limits of an entity.
///
/// # Invariants
///
/// No rate of `min` is above that of `max` in the same unit. `burst` fits a rate of `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntityLimits {
    max: Rates,
    min: Rates,
    burst: Option<Burst>,
    class: Option<EntityClass>,
}

/// Table of limits.
pub type Limits = EntityTable<EntityLimits>;

impl EntityLimits {
    /// No limits.
    const NONE: Self = Self {
        max: Rates::NONE,
        min: Rates::NONE,
        burst: None,
        class: None,
    };
}

impl EntitySetting for EntityLimits {
    fn unlisted(_: &Key) -> Self {
        Self::NONE
    }

    const REASONS: SettingReasons = SettingReasons {
        form: "expected FIELD:VALUE:LIMITS, -FIELD:VALUE or clear",
        missing: "no limits, expected FIELD:VALUE:max=RATE",
        removal: "a removal takes no limits",
        gone: "limits to remove do not exist",
        full: "too many limits (limit: 4096)",
    };

    fn parse(text: &str) -> Result<Self> {
        const WORD: &str = "expected max=, min=, burst= or class=";
        let mut limits = Self::NONE;
        let mut last = "";
        for word in text.split('+') {
            let (key, value) = word.split_once('=').unwrap_or((last, word));
            last = key;
            match key {
                "max" if value == "unlimited" => limits.max = Rates::NONE,
                "max" => limits.max.add(value)?,
                "min" => limits.min.add(value)?,
                "burst" => {
                    let burst = Burst::parse(value).ok_or(Error::invalid(
                        "expected a burst: 1s to 3600s, a number of requests, or bytes",
                    ))?;
                    limits.burst = Some(burst);
                }
                "class" => {
                    let class = EntityClass::parse(value)
                        .ok_or(Error::invalid("expected a class: realtime, normal or idle"))?;
                    limits.class = Some(class);
                }
                _ => return Err(Error::invalid(WORD)),
            }
        }
        // INVARIANT: these checks maintain the invariants.
        if !limits.min.fit(&limits.max) {
            return Err(Error::invalid("min is above max"));
        }
        let can_keep = |burst| limits.max.can_keep(burst);
        if !limits.burst.is_none_or(can_keep) {
            return Err(Error::invalid("burst needs a max in its unit"));
        }
        Ok(limits)
    }
}

/// Form that [`EntitySetting::parse`] accepts.
impl fmt::Display for EntityLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut gap = "";
        for (name, rates) in [("max=", &self.max), ("min=", &self.min)] {
            let mut before = name;
            for rate in rates.iter() {
                write!(f, "{gap}{before}{rate}")?;
                (gap, before) = ("+", "");
            }
            if let Some(percent) = rates.percent {
                write!(f, "{gap}{before}{percent}%")?;
                gap = "+";
            }
        }
        if let Some(burst) = self.burst {
            write!(f, "{gap}burst={burst}")?;
            gap = "+";
        }
        if let Some(class) = self.class {
            write!(f, "{gap}class={}", class.name())?;
            gap = "+";
        }
        match gap {
            "" => f.write_str("max=unlimited"),
            _ => Ok(()),
        }
    }
}

/// Rate of a bucket.
#[derive(Clone, Copy, Debug)]
enum MeterRate {
    /// In requests or bytes.
    Fixed(RateDepth),
    /// In percent of the capacity.
    Percent(u8),
}

/// Bucket of an entity: its rate, and the credit that it keeps.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    rate: MeterRate,
    window: u64,
    /// Duration of a unit of the bucket, ticks.
    pub unit: u64,
    /// Tag of the bucket of an entity whose hash is 0.
    tag: BucketTag,
    /// Number that distinguishes the buckets of an entity.
    kind: u64,
    /// True for a minimum: the debt is at most the credit, so that spare service does not use up
    /// the minimum.
    is_minimum: bool,
}

impl Meter {
    fn new(rate: Rate, burst: Option<Burst>, credit: u64, kind: u64) -> Self {
        let burst = burst.filter(|burst| burst.fits(rate));
        let unit = match rate.unit() {
            Unit::Bytes => RateUnit::Bytes,
            Unit::Plain | Unit::Requests => RateUnit::Requests,
        };
        // A burst below the usual credit would make the rate inexact.
        let usual = RateDepth::new(rate, unit, DEPTH, None).window;
        let rate = RateDepth::new(rate, unit, DEPTH, burst);
        let window = rate.window.max(usual).max(credit);
        Self {
            rate: MeterRate::Fixed(rate),
            window,
            unit: rate.unit,
            tag: BucketTag::new(0, window, rate.unit),
            kind,
            is_minimum: false,
        }
    }

    /// Returns the bucket of `percent` of the capacity.
    fn percent(percent: u8, burst: Option<Burst>, credit: u64, kind: u64) -> Self {
        let window = match burst {
            Some(Burst::Seconds(seconds)) => span(NSEC_PER_SEC.saturating_mul(seconds.into())),
            _ => 0,
        };
        let window = window.max(credit);
        // Any unit in proportion to the duration of a request.
        let unit = span(NSEC_PER_SEC).checked_div(percent.into());
        let unit = unit.unwrap_or(1);
        Self {
            rate: MeterRate::Percent(percent),
            window,
            unit,
            tag: BucketTag::new(0, window, unit),
            kind,
            is_minimum: false,
        }
    }

    /// Returns the buckets of `rates`, which have kinds from `kind` on; the rest is `None`.
    fn all(rates: &Rates, burst: Option<Burst>, credit: u64, kind: u64) -> [Option<Self>; 3] {
        let kind = |at: u64| kind.wrapping_add(at) << 60;
        let [requests, bytes] = [(rates.requests, 0), (rates.bytes, 1)]
            .map(|(rate, at)| Some(Self::new(rate?, burst, credit, kind(at))));
        let percent = rates.percent;
        let percent = percent.map(|percent| Self::percent(percent, burst, credit, kind(2)));
        let mut all = [None; 3];
        let meters = [requests, bytes, percent].into_iter().flatten();
        for (place, meter) in all.iter_mut().zip(meters) {
            *place = Some(meter);
        }
        all
    }

    /// Returns a set with this bucket alone.
    #[inline]
    pub fn bit(&self) -> u8 {
        1u8.wrapping_shl((self.kind >> 60) as u32)
    }

    /// Returns the reference to the bucket of the entity with the hash `id`, last seen at `place`.
    #[inline]
    fn bucket(&self, id: u64, place: u32) -> BucketRef {
        let hash = avalanche(id ^ self.kind);
        BucketRef::at(self.tag.with_hash(hash), place)
    }

    /// Returns the instant from which a request may take from the bucket, at `now`.
    #[inline]
    pub fn ready(&self, plan: &LimitPlan, id: u64, place: &mut u32, now: u64) -> u64 {
        let mut bucket = self.bucket(id, *place);
        let ready = plan
            .buckets
            .ready(&mut bucket, self.window, Charge::NONE, now);
        *place = bucket.idx();
        ready.unwrap_or(0)
    }

    /// Returns the charge for a request of `cost`, and the credit that the bucket keeps.
    ///
    /// Credit of two such requests is kept in any case: a request that waits for its turn keeps its
    /// rate, as long as that is not longer than two of its intervals.
    #[inline]
    fn charge(&self, plan: &LimitPlan, cost: Cost) -> (Charge, u64) {
        let span = self.span(plan, cost);
        let window = self.window.max(span.saturating_mul(u64::from(DEPTH)));
        (Charge { need: 0, span }, window)
    }

    /// Takes the tokens of a request of `cost` from the bucket of a maximum, ahead of time if need
    /// be. Returns the instant from which they exist; `None` if there is no place for the bucket.
    #[inline]
    pub fn take(
        &self,
        plan: &LimitPlan,
        id: u64,
        place: &mut u32,
        cost: Cost,
        now: u64,
    ) -> Option<u64> {
        let (charge, window) = self.charge(plan, cost);
        let mut bucket = self.bucket(id, *place);
        let ready = plan.buckets.take(&mut bucket, window, charge, now);
        *place = bucket.idx();
        ready
    }

    /// Takes the tokens of a request of `cost` from the bucket of a minimum. Returns the instant
    /// from which another request may take.
    pub fn take_minimum(&self, plan: &LimitPlan, id: u64, cost: Cost, now: u64) -> u64 {
        let (charge, window) = self.charge(plan, cost);
        let mut bucket = self.bucket(id, u32::MAX);
        let bound = now.saturating_add(window);
        let moved = plan.buckets.force(&mut bucket, window, charge, bound, now);
        moved.map_or(0, |(_, after)| after.0)
    }

    /// Takes the tokens of a request that is dispatched without regard to the bucket; the debt is
    /// at most `bound`, ticks.
    pub fn force(&self, plan: &LimitPlan, id: u64, cost: Cost, bound: u64, now: u64) {
        if self.is_minimum {
            self.take_minimum(plan, id, cost, now);
            return;
        }
        let mut bucket = self.bucket(id, u32::MAX);
        let (charge, _) = self.charge(plan, cost);
        plan.buckets.owe(
            &mut bucket,
            self.window,
            charge,
            now.saturating_add(bound),
            now,
        );
    }

    /// Returns the tokens of a request of `cost` to the bucket, at `now`.
    pub fn refund(&self, plan: &LimitPlan, id: u64, cost: Cost, now: u64) {
        let mut place = u32::MAX;
        self.ready(plan, id, &mut place, now);
        let span = self.span(plan, cost);
        plan.buckets.refund(&self.bucket(id, place), span);
    }

    /// Returns the duration of a request of `cost` at the rate, ticks.
    #[inline]
    pub fn span(&self, plan: &LimitPlan, cost: Cost) -> u64 {
        match &self.rate {
            MeterRate::Fixed(rate) => rate.charge(cost).span,
            MeterRate::Percent(percent) => {
                let span = plan.capacity.span(cost).saturating_mul(100);
                span.checked_div((*percent).into())
                    .unwrap_or(0)
                    .min(SPAN_MAX)
            }
        }
    }
}

/// Limits with all derived numbers that requests need.
#[derive(Clone, Copy, Debug)]
pub struct CompiledLimits {
    /// Buckets of the maximums; `None` only behind the last.
    pub max: [Option<Meter>; 3],
    /// Buckets of the minimums.
    pub min: [Option<Meter>; 3],
    /// Class of importance, if one is set.
    pub class: Option<EntityClass>,
}

impl CompiledLimits {
    fn new(limits: &EntityLimits) -> Self {
        let EntityLimits {
            max,
            min,
            burst,
            class,
        } = limits;
        let mut min = Meter::all(min, None, MINIMUM_CREDIT, 4);
        for minimum in min.iter_mut().flatten() {
            minimum.is_minimum = true;
        }
        Self {
            max: Meter::all(max, *burst, LATE, 1),
            min,
            class: *class,
        }
    }

    /// Returns the maximum whose [`Meter::bit`] is `bit`.
    pub fn maximum(&self, bit: u8) -> Option<&Meter> {
        let mut meters = self.max.iter().flatten();
        meters.find(|meter| meter.bit() == bit)
    }

    /// Returns the maximums, each with the place of its bucket in `places`.
    #[inline]
    pub fn maximums<'a>(
        &'a self,
        places: &'a mut [u32; 3],
    ) -> impl Iterator<Item = (&'a Meter, &'a mut u32)> {
        let all = self.max.iter().zip(places);
        all.map_while(|(meter, place)| Some((meter.as_ref()?, place)))
    }

    /// Returns the maximums and minimums.
    pub fn meters(&self) -> impl Iterator<Item = &Meter> {
        self.max.iter().chain(&self.min).flatten()
    }
}

/// Limits of a service, compiled, and the buckets of all entities.
pub struct LimitPlan {
    limits: Shared<Limits>,
    compiled: GrowingList<CompiledLimits>,
    /// True if an entity has a minimum.
    pub has_minimums: bool,
    /// Buckets, which all plans of a service share.
    pub buckets: Shared<BucketTable>,
    /// Capacity of the service.
    capacity: Shared<Capacity>,
    /// Number of entities for which there are buckets.
    pub classes: usize,
    /// Number of the plan, not 0.
    pub generation: u32,
}

impl LimitPlan {
    /// Compiles `limits` of a service with `capacity`; the buckets are those of `before`, if there
    /// was a plan for as many entities, or new ones for `classes` entities, whose hashes are
    /// secret. May sleep.
    pub fn new(
        limits: Shared<Limits>,
        before: Option<&Self>,
        classes: usize,
        capacity: &Shared<Capacity>,
    ) -> core::result::Result<Self, NoMemory> {
        let mut compiled = GrowingList::with_capacity(limits.len())?;
        let mut has_minimums = false;
        for at in 0..limits.len() {
            let limits = limits.get(at).unwrap_or(EntityLimits::NONE);
            has_minimums |= limits.min != Rates::NONE;
            compiled.push(CompiledLimits::new(&limits))?;
        }
        let buckets = match before.filter(|before| before.classes >= classes) {
            Some(before) => before.buckets.clone(),
            // More limits of each class at once are unusual.
            None => Shared::new(BucketTable::new(classes.saturating_mul(4), 0)?)?,
        };
        let generation = before.map_or(0, |before| before.generation);
        Ok(Self {
            limits,
            compiled,
            has_minimums,
            buckets,
            capacity: capacity.clone(),
            classes: before.map_or(0, |before| before.classes).max(classes),
            generation: generation.wrapping_add(1).max(1),
        })
    }

    /// Returns the limits.
    pub fn limits(&self) -> &Shared<Limits> {
        &self.limits
    }

    /// Returns the index of the limits of an entity with `key` at a level of `field`, an inner
    /// `None` without limits; `None` if they are not known, because the text of a cgroup is not.
    pub fn index_of(&self, key: &Key, field: Field, above: &KeyAbove<'_>) -> Option<Option<u32>> {
        let found = self.limits.index_at(key, field, above)?;
        Some(found.map(|at| at as u32))
    }

    /// Returns the limits at index `idx`.
    #[inline]
    pub fn compiled(&self, idx: u32) -> Option<&CompiledLimits> {
        self.compiled.as_slice().get(idx as usize)
    }

    /// Returns the class of an entity with `key`.
    pub fn class_of(&self, key: &Key, field: Field, above: &KeyAbove<'_>) -> EntityClass {
        let idx = self.index_of(key, field, above).flatten();
        let compiled = idx.and_then(|idx| self.compiled(idx));
        let class = compiled.and_then(|compiled| compiled.class);
        class.unwrap_or(EntityClass::of(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_shown_as_they_are_written() {
        for (text, shown) in [
            ("max=20", "max=20"),
            ("max=100iops+400KiB/s", "max=100iops+400KiB/s"),
            ("max=400KiB+max=100iops", "max=100iops+400KiB/s"),
            ("min=5+max=20MB+burst=10s", "max=20MB/s+min=5+burst=10s"),
            ("burst=64MiB+max=1MiB/s", "max=1MiB/s+burst=64MiB"),
            ("class=idle", "class=idle"),
            ("max=50%+min=5%+burst=3s", "max=50%+min=5%+burst=3s"),
            ("max=100%+7", "max=7+100%"),
            ("class=normal", "class=normal"),
            ("max=unlimited+class=realtime", "class=realtime"),
        ] {
            let limits = EntityLimits::parse(text).unwrap();
            assert_eq!(limits.to_string(), shown);
            assert_eq!(EntityLimits::parse(shown), Ok(limits));
        }
    }

    #[test]
    fn refused() {
        for (text, words) in [
            ("", "max="),
            ("20", "max="),
            ("max", "max="),
            ("max=", "a rate"),
            ("max=0", "a rate"),
            ("max=1TB/s", "a rate"),
            ("max=5+6", "same unit"),
            ("max=5%+6%", "same unit"),
            ("max=0%", "a rate"),
            ("max=101%", "a rate"),
            ("max=05%", "a rate"),
            ("max=%", "a rate"),
            ("max=5%+min=6%", "min is above max"),
            ("max=5%+burst=100", "burst needs"),
            ("max=5+6iops", "same unit"),
            ("min=6+max=5", "min is above max"),
            ("min=2MB+max=1MiB", "min is above max"),
            ("burst=10s", "burst needs"),
            ("max=5+burst=1MB", "burst needs"),
            ("max=5+burst=0s", "a burst"),
            ("class=low", "realtime"),
            ("rate=5", "max="),
            ("max=5 +min=1", "a rate"),
        ] {
            let error = EntityLimits::parse(text).unwrap_err();
            assert!(error.reason.contains(words), "{text}: {}", error.reason);
        }
    }
}
