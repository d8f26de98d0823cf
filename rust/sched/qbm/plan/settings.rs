// SPDX-License-Identifier: GPL-2.0-only

//! What is said of clients and of groups.

use super::amount::{self, Amount, Size};
use crate::sched::qbm::terms::{Class, Terms, CLASSES};
use core::fmt;

/// What is wrong with a minimum that is larger than its maximum.
pub(super) const ABOVE: &str = "min is above max";

/// Class, minimum and maximum as they are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promise {
    /// How bandwidth is allocated.
    pub class: Option<Class>,
    /// What a client is to have when it asks for it.
    pub min: Option<Amount>,
    /// What it never has more than.
    pub max: Option<Amount>,
}

impl Promise {
    /// Nothing is said.
    pub const NONE: Self = Self {
        class: None,
        min: None,
        max: None,
    };

    /// What is promised out of `capacity` bytes/s. What is not said here is taken from `other`; after that the
    /// class is fair share, the maximum the capacity and the minimum the maximum.
    pub(super) fn terms(&self, capacity: u64, other: &Self) -> Terms {
        let class = self.class.or(other.class).unwrap_or(Class::FairShare);
        let (min, max) = self.limits(capacity, other);
        // INVARIANT: What is above was refused, but for clients of movers that are not regulated.
        let max = max.min(capacity);
        Terms {
            class,
            min: min.min(max),
            max,
        }
    }

    /// Minimum and maximum of [`Promise::terms`] as they were written.
    pub(super) fn limits(&self, capacity: u64, other: &Self) -> (u64, u64) {
        let of = |amount: Amount| amount.of(capacity);
        let max = self.max.or(other.max).map_or(capacity, of);
        (self.min.or(other.min).map_or(max, of), max)
    }

    /// What is wrong with it whatever the capacity is, where nobody has less than `floor` bytes/s.
    pub(super) fn contradiction(&self, floor: u64) -> Option<&'static str> {
        match (self.min, self.max) {
            (Some(Amount::Rate(min)), _) if min < floor => Some("min is below the floor"),
            (_, Some(Amount::Rate(max))) if max < floor => Some("max is below the floor"),
            (Some(Amount::Rate(min)), Some(Amount::Rate(max))) if min > max => Some(ABOVE),
            (Some(Amount::Percent(min)), Some(Amount::Percent(max))) if min > max => Some(ABOVE),
            _ => None,
        }
    }

    /// Writes the pairs `NAME=VALUE` that are set, a blank before each.
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

impl Set for Promise {
    const NAMES: &'static str = "expected class=, min=, max= or, for a client, group=";

    fn set(&mut self, setting: Setting, text: &str) -> Result<(), &'static str> {
        match setting {
            Setting::Class => {
                let class = Class::parse(text);
                self.class =
                    Some(class.ok_or("class is not first_come, fair_share, low_share or mover")?);
            }
            Setting::Min => {
                let min = Amount::parse(text);
                self.min = Some(min.ok_or(
                    "min is not a size such as 10MB/s, at most 1TiB/s, or a number of percent up to 100%",
                )?);
            }
            Setting::Max => {
                let max = Amount::parse(text);
                self.max = Some(max.ok_or(
                    "max is not a size such as 10MB/s, at most 1TiB/s, or a number of percent up to 100%",
                )?);
            }
            _ => return Err(Self::NAMES),
        }
        Ok(())
    }
}

/// What a group is a part of the service by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A backing device: major and minor number.
    Device(u32, u32),
    /// A target by the number that requests have.
    Number(u32),
}

impl Target {
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

    /// The number that requests for it have.
    pub const fn number(self) -> u32 {
        match self {
            Self::Device(major, minor) => (major << Self::MINOR_BITS) | minor,
            Self::Number(number) => number,
        }
    }
}

/// Shows text that [`Target::parse`] takes.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(major, minor) => write!(f, "{major}:{minor}"),
            Self::Number(number) => number.fmt(f),
        }
    }
}

/// Something that can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    /// Bytes/s of a group.
    Capacity,
    /// What the group is of the service.
    Target,
    /// Whether a group is one of movers.
    Strategy,
    /// The class.
    Class,
    /// The minimum.
    Min,
    /// The maximum.
    Max,
    /// What is kept for a class.
    Reserve(Class),
}

impl Setting {
    /// All settings of a group, in the order in which they are written.
    pub(super) const ALL: [Self; 10] = [
        Self::Capacity,
        Self::Target,
        Self::Strategy,
        Self::Class,
        Self::Min,
        Self::Max,
        Self::Reserve(Class::FirstCome),
        Self::Reserve(Class::FairShare),
        Self::Reserve(Class::LowShare),
        Self::Reserve(Class::Mover),
    ];

    /// The word for it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::Target => "target",
            Self::Strategy => "strategy",
            Self::Class => "class",
            Self::Min => "min",
            Self::Max => "max",
            Self::Reserve(Class::FirstCome) => "reserve_first_come",
            Self::Reserve(Class::FairShare) => "reserve_fair_share",
            Self::Reserve(Class::LowShare) => "reserve_low_share",
            Self::Reserve(Class::Mover) => "reserve_mover",
        }
    }

    /// The setting called `name`.
    pub(super) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|setting| setting.name() == name)
    }
}

/// What settings can be set in.
pub(super) trait Set {
    /// What to say about other names than those that it has.
    const NAMES: &'static str;

    /// Sets what `setting` is to what `text` says.
    ///
    /// # Errors
    ///
    /// Why it cannot be, one line.
    fn set(&mut self, setting: Setting, text: &str) -> Result<(), &'static str>;
}

/// What is said of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Bytes/s that its clients share; that of a plan has it.
    pub capacity: Option<u64>,
    /// The target; none: every target that no other group has.
    pub target: Option<Target>,
    /// Whether only movers are regulated.
    pub mover: bool,
    /// For clients that no line is for.
    pub promise: Promise,
    /// What is kept for each class.
    pub reserves: [Option<Amount>; CLASSES],
}

impl Settings {
    /// What is kept for `class`.
    pub(super) fn reserve(&self, class: Class) -> Option<Amount> {
        self.reserves.get(class.index()).copied().flatten()
    }

    /// Writes the pairs `NAME=VALUE` of what is not as it is by default, a blank before each.
    pub(super) fn write(&self, out: &mut (impl fmt::Write + ?Sized)) -> fmt::Result {
        if let Some(capacity) = self.capacity {
            write!(out, " capacity={}", Size(capacity))?;
        }
        if let Some(target) = self.target {
            write!(out, " target={target}")?;
        }
        if self.mover {
            out.write_str(" strategy=mover")?;
        }
        self.promise.write(out)?;
        for class in Class::ALL {
            if let Some(kept) = self.reserve(class) {
                write!(out, " reserve_{}={kept}", class.name())?;
            }
        }
        Ok(())
    }
}

impl Set for Settings {
    const NAMES: &'static str =
        "expected capacity=, target=, strategy=, class=, min=, max= or reserve_CLASS=";

    fn set(&mut self, setting: Setting, text: &str) -> Result<(), &'static str> {
        match setting {
            Setting::Capacity => {
                let size = amount::size(text);
                self.capacity =
                    Some(size.ok_or("capacity is not a size such as 500MB/s, at most 1TiB/s")?);
            }
            Setting::Target => {
                let target = Target::parse(text);
                self.target = Some(target.ok_or("target is not MAJOR:MINOR or a number")?);
            }
            Setting::Strategy => {
                self.mover = match text {
                    "classes" => false,
                    "mover" => true,
                    _ => return Err("strategy is not classes or mover"),
                }
            }
            Setting::Reserve(class) => {
                let amount = Amount::parse(text).ok_or(
                    "reserve is not a size such as 10MB/s, at most 1TiB/s, or a number of percent up to 100%",
                )?;
                if let Some(reserve) = self.reserves.get_mut(class.index()) {
                    *reserve = Some(amount);
                }
            }
            Setting::Class | Setting::Min | Setting::Max => self.promise.set(setting, text)?,
        }
        Ok(())
    }
}
