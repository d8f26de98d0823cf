// SPDX-License-Identifier: GPL-2.0-only

//! Reasons for high priority of block requests.

use crate::sched::{
    error::{Error, Result},
    policy::params::ParameterValue,
};
use core::fmt;

/// Set of reasons for high priority.
///
/// # Invariants
///
/// Only bits of [`PrioritySources::WORDS`] are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrioritySources(u32);

impl PrioritySources {
    /// Real-time class of the submitter's I/O priority.
    pub const REALTIME: Self = Self(1);

    /// Metadata flag set by the file system.
    pub const META: Self = Self(2);

    /// Priority flag of the request.
    pub const PRIO: Self = Self(4);

    /// Reasons by name.
    const WORDS: [(&'static str, Self); 3] = [
        ("realtime", Self::REALTIME),
        ("meta", Self::META),
        ("prio", Self::PRIO),
    ];

    /// Name of the empty set.
    const NONE: &'static str = "none";

    /// Creates a set from the result of [`PrioritySources::bits`]; unknown bits are ignored.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & 7)
    }

    /// Returns the set as a number.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns true if the set and `others` intersect.
    pub const fn has(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    /// Returns the union of the set and `others`.
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Parses the words of `text`, separated by blanks, or `none`.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: no word, an unknown word, or a repeated word.
    pub fn parse(text: &str) -> Result<Self> {
        let refused = Error::invalid(
            "high_priority_sources is not a list of realtime, meta and prio, or none",
        );
        if text.trim() == Self::NONE {
            return Ok(Self(0));
        }
        let mut set = Self(0);
        for word in text.split_ascii_whitespace() {
            let known = Self::WORDS.iter().find(|(name, _)| *name == word);
            let (_, one) = known.ok_or(refused)?;
            if set.has(*one) {
                return Err(refused);
            }
            set = set.and(*one);
        }
        if set.0 == 0 {
            return Err(refused);
        }
        Ok(set)
    }
}

impl Default for PrioritySources {
    fn default() -> Self {
        Self::REALTIME
    }
}

impl ParameterValue for PrioritySources {
    const TAKES: &'static str = "list of realtime meta prio, or none";

    fn parse(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

impl fmt::Display for PrioritySources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (name, one) in Self::WORDS {
            if self.has(one) {
                write!(f, "{between}{name}")?;
                between = " ";
            }
        }
        if self.0 == 0 {
            f.write_str(Self::NONE)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        for (text, want) in [
            ("realtime", Some("realtime")),
            (" prio  realtime\n", Some("realtime prio")),
            ("meta prio realtime", Some("realtime meta prio")),
            ("none", Some("none")),
            ("", None),
            ("none meta", None),
            ("meta meta", None),
            ("Meta", None),
            ("meta,prio", None),
        ] {
            let got = PrioritySources::parse(text).ok().map(|set| set.to_string());
            assert_eq!(got.as_deref(), want, "{text:?}");
        }
        for bits in 0..8 {
            let set = PrioritySources::from_bits(bits);
            assert_eq!(PrioritySources::parse(&set.to_string()), Ok(set));
        }
        assert_eq!(PrioritySources::default().to_string(), "realtime");
    }
}
