// SPDX-License-Identifier: GPL-2.0-only

//! Prometheus' text format, version 0.0.4: labels and values.

use std::fmt;

use nrs_sched::statistics::StatUnit;

/// The media type of the format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What kind of values a family has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Goes up only, until it starts anew at 0; its name ends in `_total`.
    Counter,
    /// Percentiles, as label `quantile`.
    Summary,
}

impl Kind {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Summary => "summary",
        }
    }
}

/// Writes `,NAME="VALUE"`, without the comma if `out` is empty; nothing for an empty value, which is the same as no label.
pub fn label(out: &mut String, name: &str, value: &str) {
    if value.is_empty() {
        return;
    }
    if !out.is_empty() {
        out.push(',');
    }
    out.push_str(name);
    out.push_str("=\"");
    let mut rest = value;
    while let Some(place) = rest.find(['\\', '"', '\n']) {
        let (plain, special) = rest.split_at(place);
        out.push_str(plain);
        out.push_str(match special.as_bytes().first() {
            Some(b'\n') => "\\n",
            Some(b'"') => "\\\"",
            _ => "\\\\",
        });
        // All three are one byte.
        rest = special.get(1..).unwrap_or_default();
    }
    out.push_str(rest);
    out.push('"');
}

/// A value of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A whole one.
    Whole(u64),
    /// One with a fraction.
    Real(f64),
    /// Nanoseconds, shown in seconds.
    Nanoseconds(u64),
    /// Microseconds, shown in seconds.
    Microseconds(u64),
    /// Milliseconds, shown in seconds.
    Milliseconds(u64),
}

impl Number {
    /// Returns `value` of a row in `unit`.
    pub const fn of(unit: StatUnit, value: u64) -> Self {
        match unit {
            StatUnit::Plain | StatUnit::Cost => Self::Whole(value),
            StatUnit::Ns => Self::Nanoseconds(value),
            StatUnit::Us => Self::Microseconds(value),
            StatUnit::Ms => Self::Milliseconds(value),
        }
    }
}

/// Whole numbers as [`Number::Whole`], others as [`Number::Real`].
macro_rules! numbers {
    ($($type:ty: $variant:ident),*) => {
        $(impl From<$type> for Number {
            fn from(value: $type) -> Self {
                Self::$variant(value.into())
            }
        })*
    };
}
numbers! { u64: Whole, bool: Whole, f64: Real }

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, scale, digits) = match *self {
            Self::Whole(value) => return write!(f, "{value}"),
            Self::Real(value) if value.is_nan() => return f.write_str("NaN"),
            Self::Real(value) if value.is_infinite() => {
                return f.write_str(if value > 0.0 { "+Inf" } else { "-Inf" });
            }
            Self::Real(value) => return write!(f, "{value}"),
            Self::Nanoseconds(value) => (value, 1_000_000_000, 9),
            Self::Microseconds(value) => (value, 1_000_000, 6),
            Self::Milliseconds(value) => (value, 1_000, 3),
        };
        match value % scale {
            0 => write!(f, "{}", value / scale),
            part => write!(f, "{}.{part:0digits$}", value / scale),
        }
    }
}
