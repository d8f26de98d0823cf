// SPDX-License-Identifier: GPL-2.0-only

//! Rules and their limits.

use crate::sched::{mem::Shared, rules::Conditions};
use core::{fmt, num::NonZeroU64, ops::RangeInclusive};

/// Maximum length of a rule's name, bytes.
pub const NAME_MAX: usize = 15;

/// Maximum number of rules that a rule can name in `also=`; a request takes from at most four
/// buckets.
pub const ALSO_MAX: usize = 3;

/// Maximum rate of a rule, requests/s.
pub const REQUESTS_MAX: u64 = 10_000_000;

/// Maximum rate of a rule, bytes/s.
pub const BYTES_MAX: u64 = 1 << 40;

/// Name of a rule.
///
/// # Invariants
///
/// The first `len` bytes are letters, digits or `_`, all other bytes are 0, and `len` is 1 to
/// [`NAME_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    bytes: [u8; NAME_MAX],
    len: u8,
}

impl Name {
    /// Name of the rule for requests that no other rule matches.
    pub const DEFAULT: Self = Self {
        bytes: *b"default\0\0\0\0\0\0\0\0",
        len: 7,
    };

    /// Returns the name `text`; `None` if `text` is not a valid name.
    pub fn new(text: &str) -> Option<Self> {
        let mut name = Self {
            bytes: [0; NAME_MAX],
            len: u8::try_from(text.len()).ok()?,
        };
        let valid = text.bytes().all(Self::takes) && !text.is_empty();
        let bytes = name.bytes.get_mut(..text.len()).filter(|_| valid)?;
        bytes.copy_from_slice(text.as_bytes());
        // INVARIANT: the bytes were checked, and there was room for them.
        Some(name)
    }

    /// Returns true if `byte` is allowed in a name.
    pub const fn takes(byte: u8) -> bool {
        byte.is_ascii_alphanumeric() || byte == b'_'
    }

    /// Returns the name as a string.
    pub fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..usize::from(self.len)).unwrap_or_default();
        core::str::from_utf8(bytes).unwrap_or_default()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({self})")
    }
}

/// Unit that a rate counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Number without a unit: the unit of the policy's cost model, or requests without a cost
    /// model.
    Plain,
    /// Requests, regardless of the cost model.
    Requests,
    /// Bytes.
    Bytes,
}

impl Unit {
    /// Returns the allowed range per second.
    const fn range(self) -> RangeInclusive<u64> {
        match self {
            Self::Plain | Self::Requests => 1..=REQUESTS_MAX,
            Self::Bytes => 1..=BYTES_MAX,
        }
    }
}

/// Rate limit.
///
/// # Invariants
///
/// The number is within the limits of its unit: 1 to [`REQUESTS_MAX`] or [`BYTES_MAX`].
///
/// # Examples
///
/// ```
/// use nrs_sched::rules::{Rate, Unit};
///
/// let per_second = |text| Rate::parse(text).map(Rate::per_second);
/// assert_eq!(per_second("10MB/s"), Some(10_000_000));
/// assert_eq!(per_second("10MiB"), Some(10 << 20));
/// // A number without a unit counts pages if `nrs_tbf_cost_model` does, `iops` never.
/// assert_eq!(Rate::parse("200"), Rate::new(200, Unit::Plain));
/// assert_eq!(Rate::parse("200iops"), Rate::new(200, Unit::Requests));
/// // There is no rate 0.
/// assert_eq!(per_second("0"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    per_second: NonZeroU64,
    unit: Unit,
}

/// Units of byte rates. A rate is displayed in the first unit that divides it.
const SCALES: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("B", 1),
];

impl Rate {
    /// Text expected where a rate should be.
    pub const EXPECTED: &'static str =
        "a rate: 1 to 10000000 with optional suffix iops, or 1B/s to 1024GiB/s \
         (B KB MB GB KiB MiB GiB)";

    /// Returns the rate of `per_second` in `unit`; `None` outside the limits of the unit.
    pub fn new(per_second: u64, unit: Unit) -> Option<Self> {
        let per_second = NonZeroU64::new(per_second)?;
        unit.range()
            .contains(&per_second.get())
            .then_some(Self { per_second, unit })
    }

    /// Returns the number per second.
    pub const fn per_second(self) -> u64 {
        self.per_second.get()
    }

    /// Returns the unit.
    pub const fn unit(self) -> Unit {
        self.unit
    }

    /// Parses a decimal number with or without a unit, such as `200`, `5000iops` or `200MiB/s`;
    /// `/s` is optional.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let (number, unit) = text.split_at_checked(digits)?;
        let number: u64 = number.parse().ok()?;
        match unit {
            "" => Self::new(number, Unit::Plain),
            "iops" => Self::new(number, Unit::Requests),
            _ => {
                let unit = unit.strip_suffix("/s").unwrap_or(unit);
                let (_, scale) = SCALES.into_iter().find(|(name, _)| *name == unit)?;
                Self::new(number.checked_mul(scale)?, Unit::Bytes)
            }
        }
    }
}

/// Maximum time of a burst, s.
pub const BURST_MAX: u32 = 3600;

/// Credit that a class saves while it uses less than its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Burst {
    /// What the rate gives in this time, s: 1 to [`BURST_MAX`].
    Seconds(u32),
    /// Number in the unit: bytes, or what the rate counts.
    Amount(Rate),
}

impl Burst {
    /// Text expected where a burst should be.
    pub const EXPECTED: &'static str =
        "a burst: 1s to 3600s, a number of requests, or bytes (B KB MB GB KiB MiB GiB)";

    /// Parses a burst, such as `10s`, `600` or `64MiB`.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(seconds) = text.strip_suffix('s').filter(|text| !text.ends_with('/')) {
            let digits = seconds.bytes().all(|byte| byte.is_ascii_digit());
            let seconds = seconds.parse().ok().filter(|_| digits)?;
            return (1..=BURST_MAX)
                .contains(&seconds)
                .then_some(Self::Seconds(seconds));
        }
        let amount = Rate::parse(text).filter(|amount| amount.unit != Unit::Requests)?;
        (!text.ends_with("/s")).then_some(Self::Amount(amount))
    }

    /// Returns true if a rate can have the burst: an amount of bytes needs a rate in bytes.
    pub fn fits(self, rate: Rate) -> bool {
        match self {
            Self::Seconds(_) => true,
            Self::Amount(amount) => (amount.unit == Unit::Bytes) == (rate.unit == Unit::Bytes),
        }
    }
}

/// Shortest exact form, which [`Burst::parse`] accepts.
impl fmt::Display for Burst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seconds(seconds) => write!(f, "{seconds}s"),
            Self::Amount(amount) => amount.write(f, ""),
        }
    }
}

/// Shortest exact form, which [`Rate::parse`] accepts.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, "/s")
    }
}

impl Rate {
    /// Writes the number and the unit; bytes with `suffix`.
    fn write(self, f: &mut fmt::Formatter<'_>, suffix: &str) -> fmt::Result {
        let number = self.per_second();
        match self.unit {
            Unit::Plain => write!(f, "{number}"),
            Unit::Requests => write!(f, "{number}iops"),
            Unit::Bytes => {
                let mut scales = SCALES.into_iter();
                let exact = scales.find_map(|(name, scale)| {
                    let shown = number.checked_div(scale)?;
                    (number.checked_rem(scale) == Some(0)).then_some((shown, name))
                });
                let (number, name) = exact.unwrap_or((number, "B"));
                write!(f, "{number}{name}{suffix}")
            }
        }
    }
}

/// Rules that a rule names in `also=`: requests of the rule also take from the buckets of these
/// rules.
///
/// Only the rules named here count, not the rules that these rules name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AlsoRules {
    ids: [u32; ALSO_MAX],
    len: u8,
}

impl AlsoRules {
    /// No rules.
    pub const NONE: Self = Self {
        ids: [0; ALSO_MAX],
        len: 0,
    };

    /// Returns the identifiers of the rules.
    pub fn ids(&self) -> &[u32] {
        self.ids.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Adds a rule, unless already present. Returns false if [`ALSO_MAX`] other rules are present.
    pub fn add(&mut self, id: u32) -> bool {
        if self.ids().contains(&id) {
            return true;
        }
        let Some(place) = self.ids.get_mut(usize::from(self.len)) else {
            return false;
        };
        *place = id;
        self.len = self.len.wrapping_add(1);
        true
    }
}

/// Limits that a rule sets.
///
/// # Invariants
///
/// `minrate` has the unit of `rate` and is not above it. `rate` can have `burst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleLimits {
    /// Rate limit of each class.
    pub rate: Rate,
    /// Guaranteed minimum of all classes of the rule together.
    pub minrate: Option<Rate>,
    /// Credit of an idle class; `None`: `nrs_tbf_depth`.
    pub burst: Option<Burst>,
    /// True if a class may later use tokens that it could not use because it was not served.
    pub realtime: bool,
    /// True if classes may borrow unused rates of other rules.
    pub borrow: bool,
    /// Other rules whose limits also apply.
    pub also: AlsoRules,
}

impl RuleLimits {
    /// Creates limits with a rate only.
    pub const fn new(rate: Rate) -> Self {
        Self {
            rate,
            minrate: None,
            burst: None,
            realtime: false,
            borrow: false,
            also: AlsoRules::NONE,
        }
    }
}

/// Rule in a rule list.
///
/// Rules are immutable: a change replaces the rule by another rule with the same `id`.
#[derive(Clone)]
pub struct Rule {
    /// Identifier, which is unique in a rule list, also among stopped rules.
    pub id: u32,
    /// Name of the rule.
    pub name: Name,
    /// Conditions that select the requests.
    pub conditions: Shared<Conditions>,
    /// Limits of the rule.
    pub limits: RuleLimits,
}

impl Rule {
    /// Creates a rule.
    pub fn new(id: u32, name: Name, conditions: Shared<Conditions>, limits: RuleLimits) -> Self {
        Self {
            id,
            name,
            conditions,
            limits,
        }
    }

    /// Returns the rule with other limits.
    #[must_use]
    pub fn changed(&self, limits: RuleLimits) -> Self {
        Self {
            limits,
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (text, valid) in [
            ("a", true),
            ("default", true),
            ("A_9", true),
            ("fifteen_letters", true),
            ("sixteen_letters_", false),
            ("", false),
            ("a-b", false),
            ("a b", false),
            ("a\0", false),
            ("\u{e9}", false),
            (&"a".repeat(256), false),
            (&"a".repeat(257), false),
        ] {
            let name = Name::new(text);
            assert_eq!(
                name.map(|n| n.to_string()).as_deref(),
                valid.then_some(text)
            );
        }
        assert_eq!(Name::new("default"), Some(Name::DEFAULT));
    }

    #[test]
    fn rates() {
        use Unit::{Bytes, Plain, Requests};
        for (text, number, unit, shown) in [
            ("1", 1, Plain, "1"),
            ("200", 200, Plain, "200"),
            ("010", 10, Plain, "10"),
            ("999999", 999_999, Plain, "999999"),
            ("10000000", 10_000_000, Plain, "10000000"),
            ("5000iops", 5000, Requests, "5000iops"),
            ("200MiB/s", 200 << 20, Bytes, "200MiB/s"),
            ("200MiB", 200 << 20, Bytes, "200MiB/s"),
            ("1024KiB/s", 1 << 20, Bytes, "1MiB/s"),
            ("1500KB/s", 1_500_000, Bytes, "1500KB/s"),
            ("3GB/s", 3_000_000_000, Bytes, "3GB/s"),
            ("1B/s", 1, Bytes, "1B/s"),
            ("1001B", 1001, Bytes, "1001B/s"),
            ("1024GiB/s", 1 << 40, Bytes, "1024GiB/s"),
            ("1099511627776B", 1 << 40, Bytes, "1024GiB/s"),
            ("1099511627775B", (1 << 40) - 1, Bytes, "1099511627775B/s"),
        ] {
            let rate = Rate::parse(text).unwrap();
            assert_eq!((rate.per_second(), rate.unit()), (number, unit), "{text}");
            assert_eq!(rate.to_string(), shown);
            assert_eq!(Rate::parse(shown), Some(rate));
        }
        for text in [
            "",
            "0",
            "-1",
            "+1",
            "1.5",
            "0x10",
            "10000001",
            "0iops",
            "10000001iops",
            "5IOPS",
            "5iops/s",
            "5 iops",
            "0B/s",
            "1025GiB/s",
            "1099511627777B/s",
            "1TiB/s",
            "1mb",
            "1M",
            "1k",
            "MiB/s",
            "/s",
            "1/s",
            "18446744073709551616",
            "18446744073709551615GiB",
            "1\0",
            "1\u{e9}",
            "9 ",
        ] {
            assert_eq!(Rate::parse(text), None, "{text}");
        }
    }

    #[test]
    fn also_is_a_small_set() {
        let mut also = AlsoRules::NONE;
        for (id, taken) in [
            (7, true),
            (0, true),
            (7, true),
            (9, true),
            (8, false),
            (9, true),
        ] {
            assert_eq!(also.add(id), taken);
        }
        assert_eq!(also.ids(), [7, 0, 9]);
    }
}
