// SPDX-License-Identifier: GPL-2.0-only

//! Text form of bandwidth and times.

use crate::sched::units::{NSEC_PER_MSEC, NSEC_PER_SEC};
use core::fmt;

/// Maximum rate that can be written, bytes/s.
pub const BYTES_MAX: u64 = 1 << 40;

/// Units of sizes; the first unit that divides a size is used for display.
const SCALES: [(&str, u64); 8] = [
    ("Ti", 1 << 40),
    ("T", 1_000_000_000_000),
    ("Gi", 1 << 30),
    ("G", 1_000_000_000),
    ("Mi", 1 << 20),
    ("M", 1_000_000),
    ("Ki", 1 << 10),
    ("K", 1_000),
];

/// Parses the decimal number at the start of `text`; also returns the rest.
fn number(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at_checked(digits)?;
    Some((number.parse().ok()?, rest))
}

/// Parses a size such as `500MB/s`, `32Ki` or `1000`, bytes/s; at most [`BYTES_MAX`].
pub(super) fn size(text: &str) -> Option<u64> {
    let (number, unit) = number(text)?;
    let unit = unit.strip_suffix("/s").unwrap_or(unit);
    let unit = unit.strip_suffix('B').unwrap_or(unit);
    let scale = if unit.is_empty() {
        1
    } else {
        SCALES.into_iter().find(|(name, _)| *name == unit)?.1
    };
    number.checked_mul(scale).filter(|size| *size <= BYTES_MAX)
}

/// Parses a whole number of percent such as `30%`.
pub(super) fn percent(text: &str) -> Option<u32> {
    let (number, unit) = number(text)?;
    u32::try_from(number).ok().filter(|_| unit == "%")
}

/// Parses a time such as `40ms` or `1s`, ns.
pub(super) fn time(text: &str) -> Option<u64> {
    let (number, unit) = number(text)?;
    let scale = match unit {
        "ms" => NSEC_PER_MSEC,
        "s" => NSEC_PER_SEC,
        _ => return None,
    };
    number.checked_mul(scale)
}

/// Size for display, as the shortest text that [`size`] accepts.
#[derive(Clone, Copy)]
pub(super) struct DisplayRate(pub(super) u64);

impl fmt::Display for DisplayRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = SCALES.into_iter().find_map(|(name, scale)| {
            let shown = self.0.checked_div(scale).filter(|shown| *shown > 0)?;
            (self.0.checked_rem(scale) == Some(0)).then_some((shown, name))
        });
        let (number, unit) = exact.unwrap_or((self.0, ""));
        write!(f, "{number}{unit}B/s")
    }
}

/// Time for display, as text that [`time`] accepts; rounded down to milliseconds.
#[derive(Clone, Copy)]
pub(super) struct DisplayTime(pub(super) u64);

impl fmt::Display for DisplayTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0 / NSEC_PER_MSEC;
        if ms % 1_000 == 0 {
            write!(f, "{}s", ms / 1_000)
        } else {
            write!(f, "{ms}ms")
        }
    }
}

/// Amount of bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Rate, bytes/s.
    Rate(u64),
    /// Part of the group's capacity, percent; at most 100.
    Percent(u32),
}

impl Amount {
    /// Parses a size or a percentage up to 100.
    pub fn parse(text: &str) -> Option<Self> {
        match percent(text) {
            Some(percent) => (percent <= 100).then_some(Self::Percent(percent)),
            None => size(text).map(Self::Rate),
        }
    }

    /// Returns the amount in bytes/s for a capacity of `capacity` bytes/s.
    pub fn of(self, capacity: u64) -> u64 {
        match self {
            Self::Rate(rate) => rate,
            Self::Percent(percent) => capacity.saturating_mul(u64::from(percent)) / 100,
        }
    }
}

/// Displays text that [`Amount::parse`] accepts.
impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(rate) => DisplayRate(*rate).fmt(f),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts() {
        for (text, want) in [
            ("0", Some(0)),
            ("1000B/s", Some(1_000)),
            ("1000/s", Some(1_000)),
            ("1KB/s", Some(1_000)),
            ("32KiB", Some(32 << 10)),
            ("7Mi/s", Some(7 << 20)),
            ("500MB/s", Some(500_000_000)),
            ("3GiB/s", Some(3 << 30)),
            ("1T", Some(1_000_000_000_000)),
            ("1024Gi", Some(BYTES_MAX)),
            ("1099511627777", None),
            ("99999999999999999999", None),
            ("18446744073709551615Ti", None),
        ] {
            assert_eq!(size(text), want, "{text}");
            assert_eq!(Amount::parse(text), want.map(Amount::Rate));
        }
        let wrong =
            "|K|-1|+1|1.5M|1 M|1m|1kB|1MiBB|1M/s/s|1MB/|1iB|0x10|101%|-1%|1%%|%|4294967296%";
        for text in wrong.split('|') {
            assert_eq!(Amount::parse(text), None, "{text}");
        }
        for (percent, of) in [(0, 0), (30, 300), (100, 1_000)] {
            let amount = Amount::parse(&format!("{percent}%"));
            assert_eq!(amount, Some(Amount::Percent(percent)));
            assert_eq!(amount.map(|amount| amount.of(1_000)), Some(of));
        }
        assert_eq!(size("1%"), None);
        assert_eq!(Amount::Percent(100).of(BYTES_MAX), BYTES_MAX);
    }

    #[test]
    fn shown_as_it_is_read() {
        for number in [
            0, 1, 999, 1_000, 1_024, 32_768, 1_000_000, 12_345_678, BYTES_MAX,
        ] {
            let text = DisplayRate(number).to_string();
            assert_eq!(size(&text), Some(number), "{text}");
        }
        assert_eq!(DisplayRate(1_000_000_000).to_string(), "1GB/s");
        assert_eq!(DisplayRate(1_500).to_string(), "1500B/s");
        for ms in [1, 40, 999, 1_000, 1_001, 30_000, 3_600_000] {
            let text = DisplayTime(ms * NSEC_PER_MSEC).to_string();
            assert_eq!(time(&text), Some(ms * NSEC_PER_MSEC), "{text}");
        }
        for wrong in "|1|s|1m|1us|-1s|1 s|18446744073709551615s".split('|') {
            assert_eq!(time(wrong), None, "{wrong}");
        }
    }
}
