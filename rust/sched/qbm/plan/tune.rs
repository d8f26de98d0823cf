// SPDX-License-Identifier: GPL-2.0-only

//! The numbers of the method, as they are written.

use super::amount::{percent, size, time, Size, Time};
use crate::sched::{
    qbm::terms::Tuning,
    units::{NSEC_PER_MSEC as MS, NSEC_PER_SEC as S},
};
use core::fmt;

/// A number of [`Tuning`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Period,
    Fast,
    Slow,
    Idle,
    Floor,
    Grant,
    Sleep,
    High,
    Low,
    Raise,
    Lower,
    Headroom,
}

impl Key {
    /// All of them, in the order in which they are written.
    pub(super) const ALL: [Self; 12] = [
        Self::Period,
        Self::Fast,
        Self::Slow,
        Self::Idle,
        Self::Floor,
        Self::Grant,
        Self::Sleep,
        Self::High,
        Self::Low,
        Self::Raise,
        Self::Lower,
        Self::Headroom,
    ];

    /// The word for it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Period => "period",
            Self::Fast => "fast",
            Self::Slow => "slow",
            Self::Idle => "idle",
            Self::Floor => "floor",
            Self::Grant => "grant",
            Self::Sleep => "sleep",
            Self::High => "high",
            Self::Low => "low",
            Self::Raise => "raise",
            Self::Lower => "lower",
            Self::Headroom => "headroom",
        }
    }

    /// The number called `name`.
    pub(super) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.name() == name)
    }

    /// A bit for it.
    pub(super) const fn bit(self) -> u32 {
        1u32.wrapping_shl(self as u32)
    }

    /// What there is of it: smallest and largest number, and what to say about others.
    const fn range(self) -> (u64, u64, &'static str) {
        match self {
            Self::Period => (MS, S, "period is not a time from 1ms to 1s"),
            Self::Fast => (100 * MS, 60 * S, "fast is not a time from 100ms to 60s"),
            Self::Slow => (S, 3_600 * S, "slow is not a time from 1s to 3600s"),
            Self::Idle => (
                100 * MS,
                3_600 * S,
                "idle is not a time from 100ms to 3600s",
            ),
            Self::Floor => (
                1 << 10,
                1 << 30,
                "floor is not a size from 1KiB/s to 1GiB/s",
            ),
            Self::Grant => (
                1 << 10,
                1 << 30,
                "grant is not a size from 1KiB/s to 1GiB/s",
            ),
            Self::Sleep => (1, 100, "sleep is not 1% to 100%"),
            Self::High => (1, 100, "high is not 1% to 100%"),
            Self::Low => (0, 99, "low is not 0% to 99%"),
            Self::Raise => (1, 1_000, "raise is not 1% to 1000%"),
            Self::Lower => (0, 90, "lower is not 0% to 90%"),
            Self::Headroom => (0, 50, "headroom is not 0% to 50%"),
        }
    }

    /// Sets it in `tuning` to what `text` says.
    ///
    /// # Errors
    ///
    /// Why it cannot be, one line.
    pub(super) fn set(self, tuning: &mut Tuning, text: &str) -> Result<(), &'static str> {
        let number = match self {
            Self::Period | Self::Fast | Self::Slow | Self::Idle => time(text),
            Self::Floor | Self::Grant => size(text),
            _ => percent(text).map(u64::from),
        };
        let (lo, hi, wrong) = self.range();
        let number = number.filter(|number| (lo..=hi).contains(number));
        let number = number.ok_or(wrong)?;
        let part = number as u32;
        match self {
            Self::Period => tuning.period = number,
            Self::Fast => tuning.fast = number,
            Self::Slow => tuning.slow = number,
            Self::Idle => tuning.idle = number,
            Self::Floor => tuning.floor = number,
            Self::Grant => tuning.grant = number,
            Self::Sleep => tuning.sleep = part,
            Self::High => tuning.high = part,
            Self::Low => tuning.low = part,
            Self::Raise => tuning.raise = part,
            Self::Lower => tuning.lower = part,
            Self::Headroom => tuning.headroom = part,
        }
        Ok(())
    }
}

/// Why `tuning` does not fit together, one line; none if it does.
pub(super) fn wrong(tuning: &Tuning) -> Option<&'static str> {
    if tuning.fast < tuning.period {
        Some("fast is shorter than period")
    } else if tuning.slow < tuning.fast {
        Some("slow is shorter than fast")
    } else if tuning.low >= tuning.high {
        Some("low is not below high")
    } else {
        None
    }
}

/// Writes `tune` with what is not as it is by default; nothing if there is no such thing.
pub(super) fn write(tuning: &Tuning, out: &mut (impl fmt::Write + ?Sized)) -> fmt::Result {
    let default = Tuning::default();
    let mut first = true;
    for key in Key::ALL {
        if value(key, tuning) == value(key, &default) {
            continue;
        }
        out.write_str(if first { "tune" } else { "" })?;
        first = false;
        let number = value(key, tuning);
        write!(out, " {}=", key.name())?;
        match key {
            Key::Period | Key::Fast | Key::Slow | Key::Idle => write!(out, "{}", Time(number))?,
            Key::Floor | Key::Grant => write!(out, "{}", Size(number))?,
            _ => write!(out, "{number}%")?,
        }
    }
    out.write_str(if first { "" } else { "\n" })
}

/// What it is in `tuning`.
fn value(key: Key, tuning: &Tuning) -> u64 {
    match key {
        Key::Period => tuning.period,
        Key::Fast => tuning.fast,
        Key::Slow => tuning.slow,
        Key::Idle => tuning.idle,
        Key::Floor => tuning.floor,
        Key::Grant => tuning.grant,
        Key::Sleep => u64::from(tuning.sleep),
        Key::High => u64::from(tuning.high),
        Key::Low => u64::from(tuning.low),
        Key::Raise => u64::from(tuning.raise),
        Key::Lower => u64::from(tuning.lower),
        Key::Headroom => u64::from(tuning.headroom),
    }
}
