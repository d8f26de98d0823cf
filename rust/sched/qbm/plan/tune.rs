// SPDX-License-Identifier: GPL-2.0-only

//! The numbers of the method, as they are written.

use super::amount::{percent, size, time, Size, Time};
use crate::sched::{
    qbm::terms::Tuning,
    units::{NSEC_PER_MSEC as MS, NSEC_PER_SEC as S},
};
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

/// Rows `NAME: FORM LO..=HI, "the same in words"`.
macro_rules! keys {
    ($($name:ident: $form:ident $lo:literal $(* $by:ident)?..=$hi:literal $(* $times:ident)?, $range:literal;)+) => {
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

keys! {
    period: Time 1 * MS..=1 * S, "a time from 1ms to 1s";
    fast: Time 100 * MS..=60 * S, "a time from 100ms to 60s";
    slow: Time 1 * S..=3_600 * S, "a time from 1s to 3600s";
    idle: Time 100 * MS..=3_600 * S, "a time from 100ms to 3600s";
    floor: Size 1 * KIB..=1_048_576 * KIB, "a size from 1KiB/s to 1GiB/s";
    grant: Size 1 * KIB..=1_048_576 * KIB, "a size from 1KiB/s to 1GiB/s";
    sleep: Percent 1..=100, "1% to 100%";
    high: Percent 1..=100, "1% to 100%";
    low: Percent 0..=99, "0% to 99%";
    raise: Percent 1..=1_000, "1% to 1000%";
    lower: Percent 0..=90, "0% to 90%";
    headroom: Percent 0..=50, "0% to 50%";
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
