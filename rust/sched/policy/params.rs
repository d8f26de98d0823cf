// SPDX-License-Identifier: GPL-2.0-only

//! How parameters of policies are made: each has its own type, which cannot hold a wrong value.
//!
//! # Vocabulary
//!
//! - *Choice*: a parameter that is one of a few words (`choice!`).
//! - *Number*: a parameter that is a number within limits (`number!`).
//!
//! Both take one line of text, and show themselves as the text that they take.

pub mod heads;

/// Defines a choice between words: one type, with `parse`, `name` and `Display`.
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
            pub fn parse(text: &str) -> $crate::sched::error::Result<Self> {
                let text = $crate::sched::policy::params::line(text);
                let found = Self::ALL.iter().find(|value| value.name() == text);
                found.copied().ok_or($crate::sched::error::Error::invalid($wrong))
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

pub(crate) use choice;

/// Defines a number within limits: one type, with `parse`, `new`, `get` and `Display`.
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
            pub fn parse(text: &str) -> $crate::sched::error::Result<Self> {
                let text = $crate::sched::policy::params::line(text);
                let digits = text.bytes().all(|byte| byte.is_ascii_digit());
                let value = text.parse().ok().filter(|_| digits).and_then(Self::new);
                value.ok_or($crate::sched::error::Error::invalid($wrong))
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

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

pub(crate) use number;

number! {
    /// Classes of one head, at most, beside the default class.
    ClassesMax, 64..=1_048_576 = 16_384, "classes_max is not a number from 64 to 1048576"
}

number! {
    /// Requests that are kept in an order of their own, at most, on one head of one partition.
    BufferMax, 256..=1_048_576 = 65_536, "buffer_max is not a number from 256 to 1048576"
}

/// `text` without the newline that `echo` appends.
pub(crate) fn line(text: &str) -> &str {
    text.strip_suffix('\n').unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::error::Code;

    choice! {
        /// A word.
        Word, "not a word":
        /// The first.
        #[default]
        One = "one",
        /// The second.
        Two = "two",
    }

    number! {
        /// A number.
        Number, 0..=256 = 7, "not a number from 0 to 256"
    }

    #[test]
    fn words() {
        for (text, want) in [
            ("one", Some(Word::One)),
            ("two\n", Some(Word::Two)),
            ("two\n\n", None),
            (" two", None),
            ("Two", None),
            ("", None),
        ] {
            assert_eq!(Word::parse(text).ok(), want, "{text:?}");
        }
        let error = Word::parse("three").unwrap_err();
        assert_eq!((error.code, error.reason), (Code::Invalid, "not a word"));
        assert_eq!(Word::default().to_string(), "one");
        for &word in Word::ALL {
            assert_eq!(Word::parse(word.name()), Ok(word));
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
            let got = Number::parse(text).ok().map(Number::get);
            assert_eq!(got, want, "{text:?}");
        }
        assert_eq!((Number::MIN, Number::MAX), (0, 256));
        assert_eq!(Number::default().to_string(), "7");
        assert!(ClassesMax::new(63).is_none() && ClassesMax::new(1 << 20).is_some());
        assert_eq!(ClassesMax::default().get(), 16_384);
    }
}
