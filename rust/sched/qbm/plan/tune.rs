// SPDX-License-Identifier: GPL-2.0-only

//! Tuning parameters of a plan, and their text form.

use super::amount::{percent, size, time, DisplayRate, DisplayTime};
use crate::sched::units::{NSEC_PER_MSEC as MS, NSEC_PER_SEC as S};
use core::fmt;

/// Text form of a parameter.
enum ParameterFormat {
    Time,
    Size,
    Percent,
}

/// Parameter of [`BandwidthParameters`].
pub(super) struct TuningKey {
    /// Name in the plan.
    pub(super) name: &'static str,
    form: ParameterFormat,
    lo: u64,
    hi: u64,
    /// Error message for values outside `lo..=hi`.
    wrong: &'static str,
    get: fn(&BandwidthParameters) -> u64,
    set: fn(&mut BandwidthParameters, u64),
}

/// Rows `NAME: FORM LO..=HI = DEFAULT, "the bounds in words"`.
macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident:
        $form:ident $lo:literal $(* $by:ident)?..=$hi:literal $(* $times:ident)? = $default:expr,
        $range:literal;)+
    ) => {
        /// Tuning parameters; the defaults are those of StorNext.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct BandwidthParameters {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl Default for BandwidthParameters {
            fn default() -> Self {
                Self {
                    $($name: $default,)+
                }
            }
        }

        /// All parameters, in the order of display.
        pub(super) static ALL: &[TuningKey] = &[$(TuningKey {
            name: stringify!($name),
            form: ParameterFormat::$form,
            lo: $lo $(* $by)?,
            hi: $hi $(* $times)?,
            wrong: concat!(stringify!($name), " is not ", $range),
            get: |tuning| tuning.$name,
            set: |tuning, number| tuning.$name = number,
        }),+];
    };
}

/// Bytes of 1 KiB.
const KIB: u64 = 1 << 10;

numbers! {
    /// Depth of a bucket as a time: allocations are divided into periods of this length, ns.
    period: Time 1 * MS..=1 * S = 40 * MS, "a time from 1ms to 1s";
    /// Fast period: time in which throttling of a client is detected, ns.
    fast: Time 100 * MS..=60 * S = S, "a time from 100ms to 60s";
    /// Slow period: time over which high and low usage of a client are detected, ns.
    slow: Time 1 * S..=3_600 * S = 30 * S, "a time from 1s to 3600s";
    /// Time without requests after which a client is unregistered, ns.
    idle: Time 100 * MS..=3_600 * S = S, "a time from 100ms to 3600s";
    /// Absolute minimum of each client, bytes/s.
    floor: Size 1 * KIB..=1_048_576 * KIB = 32 * KIB, "a size from 1KiB/s to 1GiB/s";
    /// Free bandwidth below which none is given beyond minimums, bytes/s.
    grant: Size 1 * KIB..=1_048_576 * KIB = 256 * KIB, "a size from 1KiB/s to 1GiB/s";
    /// Share of throttled periods in a fast period from which a client restores, percent.
    sleep: Percent 1..=100 = 50, "1% to 100%";
    /// Usage of the allocation from which a client increases, percent.
    high: Percent 1..=100 = 80, "1% to 100%";
    /// Usage of the allocation below which a client decreases, percent.
    low: Percent 0..=99 = 60, "0% to 99%";
    /// Step of an increase, percent.
    raise: Percent 1..=1_000 = 30, "1% to 1000%";
    /// Step of a decrease, percent.
    lower: Percent 0..=90 = 10, "0% to 90%";
    /// Bandwidth that movers leave free in addition to the usage of others, percent of the
    /// capacity.
    headroom: Percent 0..=50 = 2, "0% to 50%";
}

impl TuningKey {
    /// Finds the parameter called `name`; also returns a bit that identifies the parameter.
    pub(super) fn parse(name: &str) -> Option<(&'static Self, u32)> {
        let bits = (0..32).map(|at| 1u32.wrapping_shl(at));
        ALL.iter().zip(bits).find(|(key, _)| key.name == name)
    }

    /// Parses `text` and sets the parameter in `tuning`.
    ///
    /// # Errors
    ///
    /// Error message, one line: `text` is invalid or out of range.
    pub(super) fn set(
        &self,
        tuning: &mut BandwidthParameters,
        text: &str,
    ) -> Result<(), &'static str> {
        let number = match self.form {
            ParameterFormat::Time => time(text),
            ParameterFormat::Size => size(text),
            ParameterFormat::Percent => percent(text).map(u64::from),
        };
        let number = number.filter(|number| (self.lo..=self.hi).contains(number));
        (self.set)(tuning, number.ok_or(self.wrong)?);
        Ok(())
    }
}

/// Describes the inconsistency in `tuning`, one line; `None` if there is none.
pub(super) fn wrong(tuning: &BandwidthParameters) -> Option<&'static str> {
    if tuning.fast < tuning.period {
        Some("fast is shorter than period")
    } else if tuning.slow < tuning.fast {
        Some("slow is shorter than fast")
    } else if tuning.low >= tuning.high {
        Some("low is not below high")
    } else if tuning.low.saturating_mul(100)
        > tuning
            .high
            .saturating_mul(100u64.saturating_sub(tuning.lower))
    {
        Some("low is above high * (100% - lower): each decrease would cause an increase")
    } else {
        None
    }
}

/// Writes `tune` with all values other than defaults; nothing if there are none.
pub(super) fn write(
    tuning: &BandwidthParameters,
    out: &mut (impl fmt::Write + ?Sized),
) -> fmt::Result {
    let default = BandwidthParameters::default();
    let mut first = true;
    for key in ALL {
        let number = (key.get)(tuning);
        if number == (key.get)(&default) {
            continue;
        }
        out.write_str(if core::mem::take(&mut first) {
            "tune"
        } else {
            ""
        })?;
        write!(out, " {}=", key.name)?;
        match key.form {
            ParameterFormat::Time => write!(out, "{}", DisplayTime(number))?,
            ParameterFormat::Size => write!(out, "{}", DisplayRate(number))?,
            ParameterFormat::Percent => write!(out, "{number}%")?,
        }
    }
    out.write_str(if first { "" } else { "\n" })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the defaults with the published numbers of the method.
    #[test]
    fn numbers_by_default() {
        let tuning = BandwidthParameters::default();
        assert_eq!((tuning.floor, tuning.grant), (32 * 1024, 256 * 1024));
        assert_eq!((tuning.fast, tuning.slow), (1_000_000_000, 30_000_000_000));
        assert_eq!((tuning.sleep, tuning.high, tuning.low), (50, 80, 60));
        assert_eq!((tuning.raise, tuning.lower), (30, 10));
    }
}
