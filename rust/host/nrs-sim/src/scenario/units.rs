// SPDX-License-Identifier: GPL-2.0-only

//! Times, sizes and rates of a scenario.
//!
//! A value is a decimal number with an optional fraction, directly followed by a unit: `"20us"`,
//! `"1.5MiB"`, `"20GB/s"`. Units of sizes are powers of 1000 (`KB`) or of 1024 (`KiB`). A number
//! without a unit is an error, because the unit would be a guess. Values are stored as integers.

use serde::Deserialize;

/// Units of time with their values, ns.
const TIMES: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Units of sizes with their values, bytes.
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

/// Parses `text` as a value in the smallest unit of `units`; each unit is followed by `suffix`.
fn parse(text: &str, what: &str, units: &[(&str, u64)], suffix: &str) -> Result<u64, String> {
    let is_digit = |c: char| c.is_ascii_digit() || c == '.';
    let unit = text.trim_start_matches(is_digit);
    let number = &text[..text.len() - unit.len()];
    let plain = unit.strip_suffix(suffix);
    let known = units.iter().find(|(name, _)| Some(*name) == plain);
    let Some((_, scale)) = known else {
        let names: Vec<String> = units
            .iter()
            .map(|(name, _)| format!("{name}{suffix}"))
            .collect();
        return Err(format!(
            "{what} needs a unit ({}): \"{text}\"",
            names.join(", ")
        ));
    };
    let number: f64 = number
        .parse()
        .map_err(|_| format!("\"{number}\" is not a number"))?;
    // Above 2^53, a float does not represent all integers.
    let value = number * *scale as f64;
    if value >= 9e18 {
        return Err(format!("{what} is too large (limit: 9e18): \"{text}\""));
    }
    Ok(value.round() as u64)
}

macro_rules! quantities {
    ($($(#[$doc:meta])* $name:ident: $what:literal, $units:ident, $suffix:literal;)+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
            #[derive(Deserialize)]
            #[serde(try_from = "String")]
            pub struct $name(pub u64);

            impl std::str::FromStr for $name {
                type Err = String;

                fn from_str(text: &str) -> Result<Self, String> {
                    parse(text, $what, $units, $suffix).map(Self)
                }
            }

            impl TryFrom<String> for $name {
                type Error = String;

                fn try_from(text: String) -> Result<Self, String> {
                    text.parse()
                }
            }
        )+
    };
}

quantities! {
    /// Time, ns.
    Time: "a time", TIMES, "";
    /// Size, bytes.
    Size: "a size", SIZES, "";
    /// Rate, bytes/s.
    Rate: "a rate", SIZES, "/s";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        for (text, value) in [
            ("50us", Ok(50_000)),
            ("1.5ms", Ok(1_500_000)),
            ("0.1s", Ok(100_000_000)),
            ("2min", Ok(120_000_000_000)),
            ("1", Err("needs a unit")),
            ("ms", Err("is not a number")),
            ("1.2.3s", Err("is not a number")),
            ("1 s", Err("needs a unit")),
            ("1sec", Err("needs a unit")),
            ("99999999999h", Err("too large")),
        ] {
            match (text.parse::<Time>(), value) {
                (Ok(Time(got)), Ok(want)) => assert_eq!(got, want, "{text}"),
                (Err(got), Err(want)) => assert!(got.contains(want), "{text}: {got}"),
                (got, want) => panic!("{text}: {got:?}, not {want:?}"),
            }
        }
        assert_eq!("1.5KiB".parse(), Ok(Size(1536)));
        assert_eq!("21.9GB/s".parse(), Ok(Rate(21_900_000_000)));
        assert!("20GB".parse::<Rate>().unwrap_err().contains("GB/s"));
    }
}
