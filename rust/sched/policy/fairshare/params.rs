// SPDX-License-Identifier: GPL-2.0-only

//! What users set: each parameter has its own type, which cannot hold a wrong value.

use crate::sched::{
    error::{Error, Result},
    key::Field,
};
use core::fmt;

/// Defines a choice between words; needs [`line`], `Error`, `Result` and `fmt` where it is used.
macro_rules! choice {
    (
        $(#[$doc:meta])* $name:ident, $wrong:literal:
        $($(#[$value_doc:meta])* $value:ident = $word:literal),+ $(,)?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        pub enum $name {
            $($(#[$value_doc])* $value,)+
        }

        impl $name {
            /// All values.
            pub const ALL: &'static [Self] = &[$(Self::$value),+];

            /// The word for the value.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)+
                }
            }

            /// The value of a word; a newline after it is ignored.
            ///
            /// # Errors
            ///
            /// - `EINVAL`: not one of the words.
            pub fn parse(text: &str) -> Result<Self> {
                let text = line(text);
                let found = Self::ALL.iter().find(|value| value.name() == text);
                found.copied().ok_or(Error::invalid($wrong))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

pub(crate) use choice;

choice! {
    /// Which field makes an entity.
    Mode, "unknown mode, expected jobid_fair, uid_fair, gid_fair, projid_fair or nid_fair":
    /// Jobs get equal shares.
    #[default]
    Jobid = "jobid_fair",
    /// Users get equal shares.
    Uid = "uid_fair",
    /// Groups get equal shares.
    Gid = "gid_fair",
    /// Projects get equal shares.
    Projid = "projid_fair",
    /// Clients get equal shares.
    Nid = "nid_fair",
}

impl Mode {
    /// The field that makes an entity.
    pub const fn field(self) -> Field {
        match self {
            Self::Jobid => Field::Jobid,
            Self::Uid => Field::Uid,
            Self::Gid => Field::Gid,
            Self::Projid => Field::Projid,
            Self::Nid => Field::Nid,
        }
    }
}

choice! {
    /// What a share is a share of.
    CostModel, "unknown cost model, expected pages or rpcs":
    /// Pages of bulk data, at least one per request.
    #[default]
    Pages = "pages",
    /// Requests.
    Rpcs = "rpcs",
}

choice! {
    /// How the entity that is served next is chosen.
    Select, "unknown selection, expected deadline, deadline_memory, random or paper":
    /// Eligible earliest virtual deadline first; surplus expires, sparse entities go first.
    #[default]
    Deadline = "deadline",
    /// The same, with surplus and debt remembered while idle.
    DeadlineMemory = "deadline_memory",
    /// A weighted draw among the entities with queued requests.
    Random = "random",
    /// A draw over the published ranges, with the oldest request if the entity drawn has none.
    Paper = "paper",
}

/// Defines a number within limits; needs the same.
macro_rules! number {
    (
        $(#[$doc:meta])* $name:ident, $lo:literal..=$hi:literal = $default:literal, $wrong:literal
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(u32);

        impl $name {
            /// Smallest value.
            pub const MIN: u32 = $lo;

            /// Largest value.
            pub const MAX: u32 = $hi;

            /// The value of a decimal number; a newline after it is ignored.
            ///
            /// # Errors
            ///
            /// - `EINVAL`: not a number, or outside the limits.
            pub fn parse(text: &str) -> Result<Self> {
                let text = line(text);
                let digits = text.bytes().all(|byte| byte.is_ascii_digit());
                let value = text.parse().ok().filter(|_| digits).and_then(Self::new);
                value.ok_or(Error::invalid($wrong))
            }

            /// The parameter with `value`; none outside the limits.
            pub const fn new(value: u32) -> Option<Self> {
                if value >= Self::MIN && value <= Self::MAX {
                    Some(Self(value))
                } else {
                    None
                }
            }

            /// The number.
            pub const fn get(self) -> u32 {
                self.0
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self($default)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

pub(crate) use number;

number! {
    /// Below how many queued requests of a head the oldest is served, whoever sent it; requests.
    OppThreshold, 0..=256 = 0, "opp_threshold is not a number from 0 to 256"
}

number! {
    /// Time between two publications of ranges, ms.
    DeltaMs, 10..=1000 = 100, "delta_ms is not a number from 10 to 1000"
}

number! {
    /// Classes of one head, at most, beside the default class.
    ClassesMax, 64..=1_048_576 = 16_384, "classes_max is not a number from 64 to 1048576"
}

/// What users can set; it survives stops and starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Tunables {
    /// Mode of a start without argument.
    pub mode: Mode,
    /// How the next entity is chosen.
    pub select: Select,
    /// What a share is a share of.
    pub cost_model: CostModel,
    /// When to serve without regard to shares.
    pub opp_threshold: OppThreshold,
    /// How often ranges are published.
    pub delta_ms: DeltaMs,
    /// Bound of the class table.
    pub classes_max: ClassesMax,
}

/// `text` without the newline that `echo` appends.
pub(crate) fn line(text: &str) -> &str {
    text.strip_suffix('\n').unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        for &mode in Mode::ALL {
            assert_eq!(Mode::parse(mode.name()), Ok(mode));
            assert_eq!(mode.to_string(), format!("{}_fair", mode.field().name()));
        }
        assert_eq!(
            Select::parse("deadline_memory\n"),
            Ok(Select::DeadlineMemory)
        );
        assert_eq!(CostModel::parse("rpcs"), Ok(CostModel::Rpcs));
        for (error, word) in [
            (Select::parse("golden").unwrap_err(), "selection"),
            (Select::parse("deadline\n\n").unwrap_err(), "selection"),
            (CostModel::parse("").unwrap_err(), "cost model"),
            (Mode::parse("uid").unwrap_err(), "mode"),
            (Mode::parse(" uid_fair").unwrap_err(), "mode"),
        ] {
            assert_eq!(error.code, crate::sched::error::Code::Invalid);
            assert!(error.reason.contains(word));
        }
    }

    #[test]
    fn numbers() {
        for (text, want) in [
            ("0", Some(0)),
            ("256\n", Some(256)),
            ("257", None),
            ("", None),
            ("+5", None),
            ("-1", None),
            ("1 ", None),
            ("0x10", None),
            ("99999999999", None),
        ] {
            assert_eq!(
                OppThreshold::parse(text).ok().map(OppThreshold::get),
                want,
                "{text:?}"
            );
        }
        assert!(DeltaMs::parse("9").is_err() && DeltaMs::parse("1000").is_ok());
        assert!(ClassesMax::new(63).is_none() && ClassesMax::new(1 << 20).is_some());
        let tunables = Tunables::default();
        assert_eq!(tunables.delta_ms.to_string(), "100");
        assert_eq!(tunables.classes_max.get(), 16384);
    }
}
