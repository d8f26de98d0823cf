// SPDX-License-Identifier: GPL-2.0-only

//! Encoder of Prometheus' text format, version 0.0.4: labels and values.

use std::fmt;

use nrs_sched::statistics::StatUnit;

/// Media type of the format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Type of a metric family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Value that rises and falls.
    Gauge,
    /// Value that only rises, except for restarts at 0; the family's name ends in `_total`.
    Counter,
    /// Percentiles with the label `quantile`.
    Summary,
}

impl MetricKind {
    /// Returns the name of the type in the text format.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Summary => "summary",
        }
    }
}

/// Appends `,NAME="VALUE"`, without the comma if `out` is empty. Appends nothing for an empty
/// value, which is equivalent to no label.
pub fn label(out: &mut String, name: &str, value: &str) {
    if value.is_empty() {
        return;
    }
    if !out.is_empty() {
        out.push(',');
    }
    out.push_str(name);
    out.push_str("=\"");
    for c in value.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '"' | '\\' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Value of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// An integer.
    Whole(u64),
    /// A floating-point number.
    Real(f64),
    /// A number and its number of decimals: `Parts(1500, 3)` is 1.500.
    Parts(u64, u8),
}

impl Number {
    /// Converts a value of a row in `unit`; times become seconds.
    pub const fn of(unit: StatUnit, value: u64) -> Self {
        match unit {
            StatUnit::Plain | StatUnit::Cost => Self::Whole(value),
            StatUnit::Ns => Self::Parts(value, 9),
            StatUnit::Us => Self::Parts(value, 6),
            StatUnit::Ms => Self::Parts(value, 3),
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Whole(value) => write!(f, "{value}"),
            Self::Real(value) => write!(f, "{value}"),
            Self::Parts(value, digits) => {
                let scale = 10u64.pow(digits.into());
                let digits = digits.into();
                match value % scale {
                    0 => write!(f, "{}", value / scale),
                    part => write!(f, "{}.{part:0digits$}", value / scale),
                }
            }
        }
    }
}
