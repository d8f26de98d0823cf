// SPDX-License-Identifier: GPL-2.0-only

//! Limits of entities: maximums, guaranteed minimums, bursts and classes of importance.
//!
//! ```text
//! limits = word *( "+" word )
//! word   = "max=" ( rate | "unlimited" ) | "min=" rate | rate | "burst=" burst
//!        | "class=" ( "realtime" | "normal" | "idle" )
//! ```
//!
//! Rates and bursts are those of [`crate::sched::rules`]; a number without a unit is in requests. A
//! rate alone is another rate of the same word: `max=100iops+400KiB/s` limits both.
//!
//! - *Maximum*: bucket of the entity, over all partitions and devices of the service. A request is
//!   eligible once the bucket is not in debt, and leaves the bucket in debt for its span. So the
//!   rate is exact, whatever the sizes of requests ([`super::throttle`]).
//! - *Credit*: time for which the bucket was not used. Up to [`LATE`], two requests or 8 KiB, or
//!   `burst=` if that is more, is kept.
//! - *Minimum*: bucket that each request of the entity takes from. While it is not in debt, the
//!   entity precedes its siblings.
//! - *Class*: `realtime` multiplies the weight by [`REALTIME`]; `idle` replaces the weight by
//!   1/4096, the least weight there is.

use super::{
    entity::{WEIGHT_MIN, WEIGHT_ONE},
    entity_table::{EntitySetting, EntityTable, SettingReasons},
};
use crate::sched::{
    bucket::{
        rate::{RateDepth, RateUnit},
        span,
        table::{BucketRef, BucketTable, BucketTag},
        Charge, LATE,
    },
    error::{Error, Result},
    item::Cost,
    key::{Field, Key},
    mem::{GrowingList, NoMemory, Shared},
    rng::avalanche,
    rules::{Burst, Rate, Unit},
    units::NSEC_PER_MSEC,
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

/// Rates in requests and in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    requests: Option<Rate>,
    bytes: Option<Rate>,
}

impl Rates {
    /// No rate.
    const NONE: Self = Self {
        requests: None,
        bytes: None,
    };

    /// Adds `rate`; returns false if there is a rate in its unit.
    fn add(&mut self, rate: Rate) -> bool {
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
        fits(self.requests, most.requests) && fits(self.bytes, most.bytes)
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
    class: EntityClass,
}

/// Table of limits.
pub type Limits = EntityTable<EntityLimits>;

impl EntitySetting for EntityLimits {
    const UNLISTED: Self = Self {
        max: Rates::NONE,
        min: Rates::NONE,
        burst: None,
        class: EntityClass::Normal,
    };

    const REASONS: SettingReasons = SettingReasons {
        form: "expected FIELD:VALUE:LIMITS, -FIELD:VALUE or clear",
        missing: "no limits, expected FIELD:VALUE:max=RATE",
        removal: "a removal takes no limits",
        gone: "limits to remove do not exist",
        full: "too many limits (limit: 4096)",
    };

    fn parse(text: &str) -> Result<Self> {
        const WORD: &str = "expected max=, min=, burst= or class=";
        const RATE: &str =
            "expected a rate: a number of requests, or bytes (B KB MB GB KiB MiB GiB)";
        let mut limits = Self::UNLISTED;
        let mut last = "";
        for word in text.split('+') {
            let (key, value) = word.split_once('=').unwrap_or((last, word));
            last = key;
            match key {
                "max" if value == "unlimited" => limits.max = Rates::NONE,
                "max" | "min" => {
                    let rate = Rate::parse(value).ok_or(Error::invalid(RATE))?;
                    let rates = match key {
                        "max" => &mut limits.max,
                        _ => &mut limits.min,
                    };
                    if !rates.add(rate) {
                        return Err(Error::invalid("two rates in the same unit"));
                    }
                }
                "burst" => {
                    let burst = Burst::parse(value).ok_or(Error::invalid(
                        "expected a burst: 1s to 3600s, a number of requests, or bytes",
                    ))?;
                    limits.burst = Some(burst);
                }
                "class" => {
                    limits.class = EntityClass::parse(value)
                        .ok_or(Error::invalid("expected a class: realtime, normal or idle"))?;
                }
                _ => return Err(Error::invalid(WORD)),
            }
        }
        // INVARIANT: these checks maintain the invariants.
        if !limits.min.fit(&limits.max) {
            return Err(Error::invalid("min is above max"));
        }
        let fits = |burst: Burst| limits.max.iter().any(|rate| burst.fits(rate));
        if !limits.burst.is_none_or(fits) {
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
        }
        if let Some(burst) = self.burst {
            write!(f, "{gap}burst={burst}")?;
            gap = "+";
        }
        if self.class != EntityClass::Normal {
            write!(f, "{gap}class={}", self.class.name())?;
            gap = "+";
        }
        match gap {
            "" => f.write_str("max=unlimited"),
            _ => Ok(()),
        }
    }
}

/// Bucket of an entity: its rate, and the credit that it keeps.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    rate: RateDepth,
    window: u64,
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
            rate,
            window,
            tag: BucketTag::new(0, window, rate.unit),
            kind,
            is_minimum: false,
        }
    }

    /// Returns the bucket of a minimum of `rate`.
    fn minimum(rate: Rate, kind: u64) -> Self {
        Self {
            is_minimum: true,
            ..Self::new(rate, None, MINIMUM_CREDIT, kind)
        }
    }

    /// Returns the reference to the bucket of the entity with the hash `id`, last seen at `place`.
    #[inline]
    fn bucket(&self, id: u64, place: u32) -> BucketRef {
        let hash = avalanche(id ^ self.kind);
        BucketRef::at(self.tag.with_hash(hash), place)
    }

    /// Returns the instant from which a request may take from the bucket, at `now`.
    #[inline]
    pub fn ready(&self, buckets: &BucketTable, id: u64, place: &mut u32, now: u64) -> u64 {
        let mut bucket = self.bucket(id, *place);
        let ready = buckets.ready(&mut bucket, self.window, Charge::NONE, now);
        *place = bucket.place();
        ready.unwrap_or(0)
    }

    /// Takes the tokens of a request of `cost` from the bucket, at `now`. Returns the instant from
    /// which another request may take.
    ///
    /// Credit of two such requests is kept in any case: a request that waits for its turn keeps its
    /// rate, as long as that is not longer than two of its intervals.
    #[inline]
    pub fn take(
        &self,
        buckets: &BucketTable,
        id: u64,
        place: &mut u32,
        cost: Cost,
        now: u64,
    ) -> u64 {
        let charge = self.rate.charge(cost);
        if charge.span == 0 {
            return self.ready(buckets, id, place, now);
        }
        let window = self
            .window
            .max(charge.span.saturating_mul(u64::from(DEPTH)));
        let bound = match self.is_minimum {
            true => now.saturating_add(window),
            false => u64::MAX,
        };
        let mut bucket = self.bucket(id, *place);
        let moved = buckets.force(&mut bucket, window, charge, bound, now);
        *place = bucket.place();
        moved.map_or(0, |(_, after)| after.0)
    }

    /// Takes the tokens of a request that is dispatched without regard to the bucket; the debt is
    /// at most `bound`, ticks.
    pub fn force(&self, buckets: &BucketTable, id: u64, cost: Cost, bound: u64, now: u64) {
        if self.is_minimum {
            self.take(buckets, id, &mut { u32::MAX }, cost, now);
            return;
        }
        let mut bucket = self.bucket(id, u32::MAX);
        let charge = self.rate.charge(cost);
        buckets.owe(
            &mut bucket,
            self.window,
            charge,
            now.saturating_add(bound),
            now,
        );
    }

    /// Returns the tokens of a request of `cost` to the bucket, at `now`.
    pub fn refund(&self, buckets: &BucketTable, id: u64, cost: Cost, now: u64) {
        let mut place = u32::MAX;
        self.ready(buckets, id, &mut place, now);
        buckets.refund(&self.bucket(id, place), self.rate.charge(cost).span);
    }

    /// Returns the duration of a request of `cost` at the rate, ticks.
    pub fn span(&self, cost: Cost) -> u64 {
        self.rate.charge(cost).span
    }
}

/// Limits with all derived numbers that requests need.
#[derive(Clone, Copy, Debug)]
pub struct CompiledLimits {
    /// Buckets of the maximums.
    pub max: [Option<Meter>; 2],
    /// Buckets of the minimums.
    pub min: [Option<Meter>; 2],
    /// Class of importance.
    pub class: EntityClass,
}

impl CompiledLimits {
    fn new(limits: &EntityLimits) -> Self {
        let maximum = |rate: Rate, kind| Meter::new(rate, limits.burst, LATE, kind);
        let EntityLimits { max, min, .. } = limits;
        Self {
            max: [
                max.requests.map(|rate| maximum(rate, 1 << 60)),
                max.bytes.map(|rate| maximum(rate, 2 << 60)),
            ],
            min: [
                min.requests.map(|rate| Meter::minimum(rate, 3 << 60)),
                min.bytes.map(|rate| Meter::minimum(rate, 4 << 60)),
            ],
            class: limits.class,
        }
    }

    /// Returns the maximums, each with the place of its bucket in `places`.
    #[inline]
    pub fn maximums<'a>(
        &'a self,
        places: &'a mut [u32; 2],
    ) -> impl Iterator<Item = (&'a Meter, &'a mut u32)> {
        let all = self.max.iter().zip(places);
        all.filter_map(|(meter, place)| Some((meter.as_ref()?, place)))
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
    /// Number of entities for which there are buckets.
    pub classes: usize,
    /// Number of the plan, not 0.
    pub generation: u32,
}

impl LimitPlan {
    /// Compiles `limits`; the buckets are those of `before`, if there was a plan for as many
    /// entities, or new ones for `classes` entities, whose hashes are secret. May sleep.
    pub fn new(
        limits: Shared<Limits>,
        before: Option<&Self>,
        classes: usize,
    ) -> core::result::Result<Self, NoMemory> {
        let mut compiled = GrowingList::with_capacity(limits.len())?;
        let mut has_minimums = false;
        for at in 0..limits.len() {
            let limits = limits.get(at).unwrap_or(EntityLimits::UNLISTED);
            has_minimums |= limits.min != Rates::NONE;
            compiled.push(CompiledLimits::new(&limits))?;
        }
        let buckets = match before.filter(|before| before.classes >= classes) {
            Some(before) => before.buckets.clone(),
            // Each class may have two maximums and two minimums.
            None => Shared::new(BucketTable::new(classes.saturating_mul(4), 0)?)?,
        };
        let generation = before.map_or(0, |before| before.generation);
        Ok(Self {
            limits,
            compiled,
            has_minimums,
            buckets,
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
    pub fn index_of(&self, key: &Key, field: Field) -> Option<Option<u32>> {
        let found = self.limits.index_at(key, field)?;
        Some(found.map(|at| at as u32))
    }

    /// Returns the limits at index `idx`.
    #[inline]
    pub fn compiled(&self, idx: u32) -> Option<&CompiledLimits> {
        self.compiled.as_slice().get(idx as usize)
    }

    /// Returns the class of an entity with `key`.
    pub fn class_of(&self, key: &Key, field: Field) -> EntityClass {
        let idx = self.index_of(key, field).flatten();
        let compiled = idx.and_then(|idx| self.compiled(idx));
        compiled.map_or(EntityClass::Normal, |compiled| compiled.class)
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
            ("class=normal", "max=unlimited"),
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
