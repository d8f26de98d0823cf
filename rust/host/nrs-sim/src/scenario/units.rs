// SPDX-License-Identifier: GPL-2.0-only

//! Times, sizes and rates as a scenario writes them.
//!
//! A value is a decimal number, a fraction allowed, and a unit right behind it: `"20us"`, `"1.5MiB"`,
//! `"20GB/s"`. Units of sizes count in thousands (`KB`) or in 1024s (`KiB`). A number without a unit is
//! an error, for nobody can tell which one was meant. Inside, all of them are integers.

use serde::{Deserialize, Deserializer, Serialize};

/// A time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Time(pub u64);

/// A size in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Size(pub u64);

/// A rate in bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Rate(pub u64);

/// Units of time and the nanoseconds of each.
const TIMES: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Units of sizes and the bytes of each.
const SIZES: &[(&str, u64)] = &[
    ("B", 1),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// The value of `text` in the smallest unit of `units`.
fn parse(text: &str, what: &str, units: &[(&str, u64)]) -> Result<u64, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let names = || units.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    if number.is_empty() {
        return Err(format!("{what} begins with a number: \"{text}\""));
    }
    if unit.is_empty() {
        return Err(format!(
            "{what} needs a unit ({}): \"{text}\"",
            names().join(", ")
        ));
    }
    let Some((_, scale)) = units.iter().find(|(name, _)| *name == unit) else {
        return Err(format!(
            "\"{unit}\" is no unit of {what} ({})",
            names().join(", ")
        ));
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let bad = || format!("\"{number}\" is no number");
    let large = || format!("{what} is too large: \"{text}\"");
    if whole.is_empty() || part.is_empty() || part.contains('.') {
        return Err(bad());
    }
    let whole: u64 = whole.parse().map_err(|_| large())?;
    let value = whole.checked_mul(*scale).ok_or_else(large)?;
    let part = part.get(..15).unwrap_or(part);
    let (above, below) = (
        part.parse::<u128>().map_err(|_| bad())?,
        10u128.pow(part.len() as u32),
    );
    let value = u128::from(value) + u128::from(*scale) * above / below;
    u64::try_from(value).map_err(|_| large())
}

impl std::str::FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text, "a time", TIMES).map(Self)
    }
}

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text, "a size", SIZES).map(Self)
    }
}

impl std::str::FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let size = text
            .strip_suffix("/s")
            .ok_or_else(|| format!("a rate ends in \"/s\", as in \"20GB/s\": \"{text}\""))?;
        parse(size, "a rate", SIZES).map(Self)
    }
}

/// Reads a string of the document and parses it.
struct Text<T>(&'static str, std::marker::PhantomData<T>);

impl<T: std::str::FromStr<Err = String>> serde::de::Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(self.0)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

macro_rules! deserialize {
    ($($name:ident: $what:literal),+) => {
        $(
            impl<'de> Deserialize<'de> for $name {
                fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                    from.deserialize_str(Text($what, std::marker::PhantomData))
                }
            }
        )+
    };
}

deserialize!(
    Time: "a time such as \"50us\"",
    Size: "a size such as \"4KiB\"",
    Rate: "a rate such as \"20GB/s\""
);

impl Time {
    /// In seconds.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        for (text, value) in [
            ("50us", Ok(50_000)),
            ("0s", Ok(0)),
            ("1.5ms", Ok(1_500_000)),
            ("0.25s", Ok(250_000_000)),
            ("2min", Ok(120_000_000_000)),
            ("1", Err("needs a unit")),
            ("", Err("begins with a number")),
            ("ms", Err("begins with a number")),
            ("1.2.3s", Err("is no number")),
            (".5s", Err("is no number")),
            ("5.s", Err("is no number")),
            ("1 s", Err("is no unit")),
            ("1sec", Err("is no unit")),
            ("99999999999999999999s", Err("too large")),
            ("99999999999h", Err("too large")),
        ] {
            match (text.parse::<Time>(), value) {
                (Ok(Time(got)), Ok(want)) => assert_eq!(got, want, "{text}"),
                (Err(got), Err(want)) => assert!(got.contains(want), "{text}: {got}"),
                (got, want) => panic!("{text}: {got:?}, not {want:?}"),
            }
        }
        assert_eq!("4KiB".parse(), Ok(Size(4096)));
        assert_eq!("10MB".parse(), Ok(Size(10_000_000)));
        assert_eq!("1.5KiB".parse::<Size>().map(|s| s.0), Ok(1536));
        assert_eq!("20GB/s".parse(), Ok(Rate(20_000_000_000)));
        assert!("20GB".parse::<Rate>().unwrap_err().contains("\"/s\""));
        assert!("20/s".parse::<Rate>().unwrap_err().contains("needs a unit"));
    }
}
