// SPDX-License-Identifier: GPL-2.0-only

//! The numbers of the method, as they are written.

use super::amount::{percent, size, time, Size, Time};
use crate::sched::units::{NSEC_PER_MSEC as MS, NSEC_PER_SEC as S};
use core::fmt;

/// How a number is written.
enum Form {
    Time,
    Size,
    Percent,
}

/// A number of [`Tuning`].
pub(super) struct Key {
    /// The word for it.
    pub(super) name: &'static str,
    form: Form,
    lo: u64,
    hi: u64,
    /// What to say about others than those from `lo` to `hi`.
    wrong: &'static str,
    get: fn(&Tuning) -> u64,
    set: fn(&mut Tuning, u64),
}

/// Rows `NAME: FORM LO..=HI = DEFAULT, "the bounds in words"`.
macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident:
        $form:ident $lo:literal $(* $by:ident)?..=$hi:literal $(* $times:ident)? = $default:expr, $range:literal;)+
    ) => {
        /// The numbers of the method; by default those of StorNext.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Tuning {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl Default for Tuning {
            fn default() -> Self {
                Self {
                    $($name: $default,)+
                }
            }
        }

        /// All of them, in the order in which they are written.
        pub(super) static ALL: &[Key] = &[$(Key {
            name: stringify!($name),
            form: Form::$form,
            lo: $lo $(* $by)?,
            hi: $hi $(* $times)?,
            wrong: concat!(stringify!($name), " is not ", $range),
            get: |tuning| tuning.$name,
            set: |tuning, number| tuning.$name = number,
        }),+];
    };
}

/// Bytes/s.
const KIB: u64 = 1 << 10;

numbers! {
    /// What a bucket holds, in time: allocations are divided into periods of this length, ns.
    period: Time 1 * MS..=1 * S = 40 * MS, "a time from 1ms to 1s";
    /// The time in which a client notices that it has to sleep, ns.
    fast: Time 100 * MS..=60 * S = S, "a time from 100ms to 60s";
    /// The time over which it finds that it uses much or little of what it has, ns.
    slow: Time 1 * S..=3_600 * S = 30 * S, "a time from 1s to 3600s";
    /// How long a client stays registered without requests, ns.
    idle: Time 100 * MS..=3_600 * S = S, "a time from 100ms to 3600s";
    /// What every client has at least, bytes/s.
    floor: Size 1 * KIB..=1_048_576 * KIB = 32 * KIB, "a size from 1KiB/s to 1GiB/s";
    /// Free bandwidth below which none is given beyond a minimum, bytes/s.
    grant: Size 1 * KIB..=1_048_576 * KIB = 256 * KIB, "a size from 1KiB/s to 1GiB/s";
    /// Periods of a fast time that a client sleeps in before it wants back what it gave up, percent.
    sleep: Percent 1..=100 = 50, "1% to 100%";
    /// Use of what it has from which a client asks for more, percent.
    high: Percent 1..=100 = 80, "1% to 100%";
    /// Use of what it has below which a client does with less, percent.
    low: Percent 0..=99 = 60, "0% to 99%";
    /// How much more it asks for, percent.
    raise: Percent 1..=1_000 = 30, "1% to 1000%";
    /// How much it gives up, percent.
    lower: Percent 0..=90 = 10, "0% to 90%";
    /// What movers leave beside what others use, percent of the capacity.
    headroom: Percent 0..=50 = 2, "0% to 50%";
}

impl Key {
    /// The number called `name`, and a bit for it.
    pub(super) fn parse(name: &str) -> Option<(&'static Self, u32)> {
        let bits = (0..32).map(|at| 1u32.wrapping_shl(at));
        ALL.iter().zip(bits).find(|(key, _)| key.name == name)
    }

    /// Sets it in `tuning` to what `text` says.
    ///
    /// # Errors
    ///
    /// Why it cannot be, one line.
    pub(super) fn set(&self, tuning: &mut Tuning, text: &str) -> Result<(), &'static str> {
        let number = match self.form {
            Form::Time => time(text),
            Form::Size => size(text),
            Form::Percent => percent(text).map(u64::from),
        };
        let number = number.filter(|number| (self.lo..=self.hi).contains(number));
        (self.set)(tuning, number.ok_or(self.wrong)?);
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
    } else if tuning.low.saturating_mul(100)
        > tuning
            .high
            .saturating_mul(100u64.saturating_sub(tuning.lower))
    {
        Some("low is above high times (100% - lower): clients would want back what they give up")
    } else {
        None
    }
}

/// Writes `tune` with what is not as it is by default; nothing if there is no such thing.
pub(super) fn write(tuning: &Tuning, out: &mut (impl fmt::Write + ?Sized)) -> fmt::Result {
    let default = Tuning::default();
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
            Form::Time => write!(out, "{}", Time(number))?,
            Form::Size => write!(out, "{}", Size(number))?,
            Form::Percent => write!(out, "{number}%")?,
        }
    }
    out.write_str(if first { "" } else { "\n" })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers that the method was published with.
    #[test]
    fn numbers_by_default() {
        let tuning = Tuning::default();
        assert_eq!((tuning.floor, tuning.grant), (32 * 1024, 256 * 1024));
        assert_eq!((tuning.fast, tuning.slow), (1_000_000_000, 30_000_000_000));
        assert_eq!((tuning.sleep, tuning.high, tuning.low), (50, 80, 60));
        assert_eq!((tuning.raise, tuning.lower), (30, 10));
    }
}
