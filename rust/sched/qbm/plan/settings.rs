// SPDX-License-Identifier: GPL-2.0-only

//! Parameters of clients and groups.

use super::amount::{self, Amount, DisplayRate};
use crate::sched::qbm::terms::{BandwidthClass, Entitlement, CLASSES};
use core::fmt;

/// Error message for a minimum above the maximum.
pub(super) const ABOVE: &str = "min is above max";

/// Error message for a parameter that was already set.
pub(super) const TWICE: &str = "duplicate setting";

/// Error message for an invalid amount.
macro_rules! no_amount {
    ($name:literal) => {
        concat!(
            $name,
            " is not a size such as 10MB/s (limit: 1TiB/s) or a percentage (limit: 100%)"
        )
    };
}

/// Sets `place`, which must be `None`, to `value`; `wrong` is the error message if `value` is
/// `None`.
fn put<T>(
    place: &mut Option<T>,
    value: impl FnOnce() -> Option<T>,
    wrong: &'static str,
) -> Result<(), &'static str> {
    if place.is_some() {
        return Err(TWICE);
    }
    *place = Some(value().ok_or(wrong)?);
    Ok(())
}

/// Class, minimum and maximum as written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntitlementSpec {
    /// Allocation class.
    pub class: Option<BandwidthClass>,
    /// Guaranteed minimum: the bandwidth allocated on request.
    pub min: Option<Amount>,
    /// Upper limit of the bandwidth.
    pub max: Option<Amount>,
}

impl EntitlementSpec {
    /// Entitlement without any parameter.
    pub const NONE: Self = Self {
        class: None,
        min: None,
        max: None,
    };

    /// Computes the terms for a capacity of `capacity` bytes/s. Missing parameters are taken from
    /// `other`. After that the class defaults to fair share, the maximum to the capacity and the
    /// minimum to the maximum.
    pub(super) fn terms(&self, capacity: u64, other: &Self) -> Entitlement {
        let class = self
            .class
            .or(other.class)
            .unwrap_or(BandwidthClass::FairShare);
        let (min, max) = self.limits(capacity, other);
        // INVARIANT: larger values were rejected, except for unregulated clients of groups of
        // movers.
        let max = max.min(capacity);
        Entitlement {
            class,
            min: min.min(max),
            max,
        }
    }

    /// Computes minimum and maximum of [`EntitlementSpec::terms`], without clamping to the
    /// capacity.
    pub(super) fn limits(&self, capacity: u64, other: &Self) -> (u64, u64) {
        let of = |amount: Amount| amount.of(capacity);
        let max = self.max.or(other.max).map_or(capacity, of);
        (self.min.or(other.min).map_or(max, of), max)
    }

    /// Describes a contradiction that does not depend on the capacity, for a floor of `floor`
    /// bytes/s.
    pub(super) fn contradiction(&self, floor: u64) -> Option<&'static str> {
        match (self.min, self.max) {
            (Some(Amount::Rate(min)), _) if min < floor => Some("min is below the floor"),
            (_, Some(Amount::Rate(max))) if max < floor => Some("max is below the floor"),
            (Some(Amount::Rate(min)), Some(Amount::Rate(max))) if min > max => Some(ABOVE),
            (Some(Amount::Percent(min)), Some(Amount::Percent(max))) if min > max => Some(ABOVE),
            _ => None,
        }
    }

    /// Parses `text` and sets the parameter `name`.
    ///
    /// # Errors
    ///
    /// Error message, one line: unknown name, parameter already set, or invalid `text`.
    pub(super) fn set(&mut self, name: &str, text: &str) -> Result<(), &'static str> {
        let amount = || Amount::parse(text);
        match name {
            "class" => put(
                &mut self.class,
                || BandwidthClass::parse(text),
                "class is not first_come, fair_share, low_share or mover",
            ),
            "min" => put(&mut self.min, amount, no_amount!("min")),
            "max" => put(&mut self.max, amount, no_amount!("max")),
            _ => Err("expected class=, min=, max= or, for a client, group="),
        }
    }

    /// Writes the parameters that are set as `NAME=VALUE`, with a blank before each.
    pub(super) fn write(&self, out: &mut (impl fmt::Write + ?Sized)) -> fmt::Result {
        if let Some(class) = self.class {
            write!(out, " class={}", class.name())?;
        }
        if let Some(min) = self.min {
            write!(out, " min={min}")?;
        }
        if let Some(max) = self.max {
            write!(out, " max={max}")?;
        }
        Ok(())
    }
}

/// Target of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupScope {
    /// Backing device: major and minor number.
    Device(u32, u32),
    /// Number of the target in requests.
    Number(u32),
}

impl GroupScope {
    /// Bits of a minor number.
    const MINOR_BITS: u32 = 20;

    /// Bits of a major number.
    const MAJOR_BITS: u32 = 12;

    /// Parses `MAJOR:MINOR` or a number.
    pub fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u32>().ok().filter(|_| digits)
        };
        match text.split_once(':') {
            None => number(text).map(Self::Number),
            Some((major, minor)) => {
                let (major, minor) = (number(major)?, number(minor)?);
                let fits = major >> Self::MAJOR_BITS == 0 && minor >> Self::MINOR_BITS == 0;
                fits.then_some(Self::Device(major, minor))
            }
        }
    }

    /// Returns the number of the target in requests.
    pub const fn number(self) -> u32 {
        match self {
            Self::Device(major, minor) => (major << Self::MINOR_BITS) | minor,
            Self::Number(number) => number,
        }
    }
}

/// Displays text that [`GroupScope::parse`] accepts.
impl fmt::Display for GroupScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(major, minor) => write!(f, "{major}:{minor}"),
            Self::Number(number) => number.fmt(f),
        }
    }
}

/// Parses a parameter name `reserve_CLASS`; returns the class.
fn reserve_of(name: &str) -> Option<BandwidthClass> {
    let class = name.strip_prefix("reserve_")?;
    BandwidthClass::ALL
        .into_iter()
        .find(|own| own.name() == class)
}

/// Returns true if `name` is the name of a parameter.
pub(super) fn is_setting(name: &str) -> bool {
    let named = [
        "capacity", "target", "strategy", "class", "min", "max", "group",
    ];
    named.contains(&name) || reserve_of(name).is_some()
}

/// Parameters of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupSettings {
    /// Capacity that the clients share, bytes/s; always set in a checked plan.
    pub capacity: Option<u64>,
    /// Target; `None` for all targets without a group of their own.
    pub target: Option<GroupScope>,
    /// True if only movers are regulated; `None` counts as false.
    pub mover: Option<bool>,
    /// Entitlement for clients without a line.
    pub promise: EntitlementSpec,
    /// Reserve of each class.
    pub reserves: [Option<Amount>; CLASSES],
}

impl GroupSettings {
    /// Parses `text` and sets the parameter `name`.
    ///
    /// # Errors
    ///
    /// Error message, one line: unknown name, parameter already set, or invalid `text`.
    pub(super) fn set(&mut self, name: &str, text: &str) -> Result<(), &'static str> {
        match name {
            "capacity" => put(
                &mut self.capacity,
                || amount::size(text),
                "capacity is not a size such as 500MB/s, at most 1TiB/s",
            ),
            "target" => put(
                &mut self.target,
                || GroupScope::parse(text),
                "target is not MAJOR:MINOR or a number",
            ),
            "strategy" => put(
                &mut self.mover,
                || match text {
                    "classes" => Some(false),
                    "mover" => Some(true),
                    _ => None,
                },
                "strategy is not classes or mover",
            ),
            "class" | "min" | "max" => self.promise.set(name, text),
            _ => {
                let class = reserve_of(name);
                let kept = class.and_then(|class| self.reserves.get_mut(class.index()));
                let kept = kept.ok_or(
                    "expected capacity=, target=, strategy=, class=, min=, max= or reserve_CLASS=",
                )?;
                put(kept, || Amount::parse(text), no_amount!("reserve"))
            }
        }
    }

    /// Writes all parameters other than defaults as `NAME=VALUE`, with a blank before each.
    pub(super) fn write(&self, out: &mut (impl fmt::Write + ?Sized)) -> fmt::Result {
        if let Some(capacity) = self.capacity {
            write!(out, " capacity={}", DisplayRate(capacity))?;
        }
        if let Some(target) = self.target {
            write!(out, " target={target}")?;
        }
        if self.mover == Some(true) {
            out.write_str(" strategy=mover")?;
        }
        self.promise.write(out)?;
        for (class, kept) in BandwidthClass::ALL.into_iter().zip(self.reserves) {
            if let Some(kept) = kept {
                write!(out, " reserve_{}={kept}", class.name())?;
            }
        }
        Ok(())
    }
}
