// SPDX-License-Identifier: GPL-2.0-only

//! The two text formats of metrics.
//!
//! They differ in the names of counters, which OpenMetrics 1.0 takes `_total` from in all but the samples, in the
//! units and types that only it has, and in its last line, `# EOF`.

use std::fmt::{self, Write};

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' own, version 0.0.4.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// What HTTP calls it.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// What is best for whoever accepts `accept`, a list of media types with qualities; nothing said is all right.
    pub fn accepted(accept: &str) -> Self {
        let mut open = None;
        let mut text = None;
        for range in accept.split(',') {
            let mut words = range.split(';').map(str::trim);
            let media = words.next().unwrap_or_default().to_ascii_lowercase();
            let mut quality = 1.0;
            let mut known = true;
            for word in words {
                match word.split_once('=') {
                    Some(("q", value)) => quality = value.parse::<f64>().unwrap_or(0.0),
                    Some(("version", value)) if media == "application/openmetrics-text" => {
                        known = matches!(value.trim_matches('"'), "1.0.0" | "0.0.1");
                    }
                    _ => {}
                }
            }
            let place = match media.as_str() {
                "application/openmetrics-text" => &mut open,
                "text/plain" | "text/*" | "*/*" => &mut text,
                _ => continue,
            };
            if known && quality > place.unwrap_or(0.0) {
                *place = Some(quality);
            }
        }
        match (open, text) {
            (Some(open), Some(text)) if open >= text => Self::OpenMetrics,
            (Some(_), None) => Self::OpenMetrics,
            _ => Self::Text,
        }
    }
}

/// What kind of values a family has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Goes up only, until it starts anew at 0; samples end in `_total`.
    Counter,
    /// Always 1: its labels say something; its name ends in `_info`.
    Info,
    /// Percentiles, as label `quantile`.
    Summary,
}

impl Kind {
    /// Its name in the table of metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Info => "info",
            Self::Summary => "summary",
        }
    }
}

/// What is said of a family before its samples.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Its name, without the `_total` of counters and the `_info` of informations.
    pub name: &'static str,
    /// What its values are.
    pub kind: Kind,
    /// The unit that its name ends in, if it has one.
    pub unit: Option<&'static str>,
    /// What it is, in one sentence without a full stop at its end.
    pub help: &'static str,
}

impl Header {
    /// What the name of each sample ends in, beyond the family's.
    pub const fn suffix(&self) -> &'static str {
        match self.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Summary => "",
        }
    }

    /// Writes it.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write(&self, out: &mut impl Write, format: Format) -> fmt::Result {
        let Self { name, help, .. } = self;
        match format {
            Format::Text => {
                let suffix = self.suffix();
                let kind = match self.kind {
                    Kind::Info => Kind::Gauge,
                    kind => kind,
                };
                writeln!(out, "# HELP {name}{suffix} {help}.")?;
                writeln!(out, "# TYPE {name}{suffix} {}", kind.name())
            }
            Format::OpenMetrics => {
                writeln!(out, "# TYPE {name} {}", self.kind.name())?;
                if let Some(unit) = self.unit {
                    writeln!(out, "# UNIT {name} {unit}")?;
                }
                writeln!(out, "# HELP {name} {help}.")
            }
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

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<u32> for Number {
    fn from(value: u32) -> Self {
        Self::Whole(value.into())
    }
}

impl From<bool> for Number {
    fn from(value: bool) -> Self {
        Self::Whole(value.into())
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

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
