// SPDX-License-Identifier: GPL-2.0-only

//! Types of policy parameters: each parameter has its own type, which holds valid values only.
//!
//! Choices (`choice!`) and numbers (`number!`) parse one line of text, and are displayed as the
//! same text.

use crate::sched::error::Result;
use core::fmt;

pub mod heads;

/// Joins the words of a choice into a text: `one, two or three`.
macro_rules! either {
    ($word:literal) => { $word };
    ($word:literal, $last:literal) => { concat!($word, " or ", $last) };
    ($word:literal, $($rest:literal),+) => {
        concat!($word, ", ", $crate::sched::policy::params::either!($($rest),+))
    };
}

pub(crate) use either;

/// Defines a type for a choice between words, with `parse`, `name` and `Display`. `$name` is the
/// parameter's name.
macro_rules! choice {
    (
        $(#[$doc:meta])* $type:ident, $name:literal:
        $($(#[$value_doc:meta])* $value:ident = $word:literal),+ $(,)?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        pub enum $type {
            $($(#[$value_doc])* $value,)+
        }

        impl $type {
            /// All values.
            pub const ALL: &'static [Self] = &[$(Self::$value),+];

            /// Returns the word for the value.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)+
                }
            }

            /// Returns the value of a word; a trailing newline is ignored.
            ///
            /// # Errors
            ///
            /// `EINVAL`: not one of the words.
            pub fn parse(text: &str) -> $crate::sched::error::Result<Self> {
                let text = $crate::sched::policy::params::line(text);
                let found = Self::ALL.iter().find(|value| value.name() == text);
                found.copied().ok_or($crate::sched::error::Error::invalid(concat!(
                    $name, " is not ", $crate::sched::policy::params::either!($($word),+)
                )))
            }
        }

        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl $crate::sched::policy::params::ParameterValue for $type {
            const TAKES: &'static str = $crate::sched::policy::params::either!($($word),+);
            const LONGEST: usize = $crate::sched::policy::params::longest(&[$($word),+]);

            fn parse(text: &str) -> $crate::sched::error::Result<Self> {
                Self::parse(text)
            }
        }
    };
}

pub(crate) use choice;

/// Defines a type for a number within limits, with `parse`, `new`, `get` and `Display`. `$name` is
/// the parameter's name. With `or 0`, zero is also valid.
macro_rules! number {
    (
        $(#[$doc:meta])* $type:ident, $name:literal:
        $unit:literal, $lo:literal..=$hi:literal $(or $zero:literal)? = $default:literal
        $(, $note:literal)?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $type(u32);

        impl $type {
            /// Smallest value.
            pub const MIN: u32 = $lo;

            /// Largest value.
            pub const MAX: u32 = $hi;

            /// Returns the value of a decimal number; a trailing newline is ignored.
            ///
            /// # Errors
            ///
            /// `EINVAL`: not a number, or outside the limits.
            pub fn parse(text: &str) -> $crate::sched::error::Result<Self> {
                let text = $crate::sched::policy::params::line(text);
                let digits = text.bytes().all(|byte| byte.is_ascii_digit());
                let value = text.parse().ok().filter(|_| digits).and_then(Self::new);
                value.ok_or($crate::sched::error::Error::invalid(concat!(
                    $name, " is not " $(, $zero, " or ")?, "a number from ", $lo, " to ", $hi
                )))
            }

            /// Returns the parameter with `value`; `None` outside the limits.
            pub const fn new(value: u32) -> Option<Self> {
                if (value >= Self::MIN && value <= Self::MAX) $(|| value == $zero)? {
                    Some(Self(value))
                } else {
                    None
                }
            }

            /// Returns the number.
            pub const fn get(self) -> u32 {
                self.0
            }
        }

        impl Default for $type {
            fn default() -> Self {
                Self($default)
            }
        }

        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(&self.0, f)
            }
        }

        impl $crate::sched::policy::params::ParameterValue for $type {
            const TAKES: &'static str = concat!($unit, $lo, " to ", $hi $(, $note)?);
            const LONGEST: usize = $crate::sched::policy::params::digits(Self::MAX);
            const COLUMNS: usize = Self::LONGEST;

            fn parse(text: &str) -> $crate::sched::error::Result<Self> {
                Self::parse(text)
            }
        }
    };
}

pub(crate) use number;

/// Value that is displayed as one word or one line.
pub trait ParameterValue: Copy + Default + fmt::Display {
    /// Unit and limits, or the list of words.
    const TAKES: &'static str;

    /// Length of the longest text, bytes.
    const LONGEST: usize = 0;

    /// Number of columns where a value per head is shown, padded with blanks on the right; 0
    /// without padding.
    const COLUMNS: usize = 0;

    /// Returns the value of a text without surrounding blanks.
    ///
    /// # Errors
    ///
    /// `EINVAL`: not a valid value.
    fn parse(text: &str) -> Result<Self>;
}

/// Returns the length of the longest of `words`, bytes.
pub(crate) const fn longest(mut words: &[&str]) -> usize {
    let mut longest = 0;
    while let [word, rest @ ..] = words {
        if word.len() > longest {
            longest = word.len();
        }
        words = rest;
    }
    longest
}

/// Returns the number of decimal digits of `number`.
pub(crate) const fn digits(number: u32) -> usize {
    match number.checked_ilog10() {
        Some(log) => (log as usize).wrapping_add(1),
        None => 1,
    }
}

number! {
    /// Maximum number of classes per head, without the default class.
    ClassesMax, "classes_max": "", 64..=1_048_576 = 16_384
}

number! {
    /// Maximum number of requests that are sorted, per head and partition.
    BufferMax, "buffer_max": "requests, ", 256..=1_048_576 = 65_536
}

/// Returns `text` without the newline that `echo` appends.
pub(crate) fn line(text: &str) -> &str {
    text.strip_suffix('\n').unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::error::Code;

    choice! {
        /// A word.
        Word, "word":
        /// The first.
        #[default]
        One = "one",
        /// The second.
        Two = "two",
    }

    number! {
        /// A number.
        Number, "number": "things, ", 0..=256 = 7, "; 0: none"
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
        assert_eq!(
            (error.code, error.reason),
            (Code::Invalid, "word is not one or two")
        );
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
        let error = Number::parse("257").unwrap_err();
        assert_eq!(error.reason, "number is not a number from 0 to 256");
        assert_eq!(Number::TAKES, "things, 0 to 256; 0: none");
        assert_eq!((Number::LONGEST, Word::LONGEST), (3, 3));
        assert_eq!((Number::MIN, Number::MAX), (0, 256));
        assert_eq!(Number::default().to_string(), "7");
        assert!(ClassesMax::new(63).is_none() && ClassesMax::new(1 << 20).is_some());
        assert_eq!(ClassesMax::default().get(), 16_384);
    }
}
