// SPDX-License-Identifier: GPL-2.0-only

//! Formatting of numbers in at most five characters, and escaping of names for terminals.

use ratatui::text::Span;

/// Text for an unknown number.
pub const UNKNOWN: &str = "-";

/// Factors and letters of units in ascending order.
const SCALES: [(f64, &str); 7] = [
    (1.0, ""),
    (1e3, "k"),
    (1e6, "M"),
    (1e9, "G"),
    (1e12, "T"),
    (1e15, "P"),
    (1e18, "E"),
];

/// Formats bytes per second with about three digits.
pub fn bytes(value: f64) -> String {
    if !value.is_finite() {
        return UNKNOWN.into();
    }
    // A value that would be rounded to four digits is formatted in the next unit.
    let fits = |scale: &&(f64, &str)| value < 999.5 * scale.0;
    let Some((unit, letters)) = SCALES.iter().find(fits).or(SCALES.last()) else {
        return format!("{value:.0}");
    };
    let scaled = value / unit;
    let places = match scaled {
        s if s >= 99.95 || s == s.trunc() && *unit == 1.0 => 0,
        s if s >= 9.995 && *unit == 1.0 => 0,
        s if s >= 9.995 || *unit == 1.0 => 1,
        _ => 2,
    };
    format!("{scaled:.places$}{letters}")
}

/// Formats a number of requests or a number of requests per second.
pub fn count(value: f64) -> String {
    if (999.5..9999.5).contains(&value) {
        return format!("{value:.0}");
    }
    bytes(value)
}

/// Formats a time; the argument is in us.
pub fn time(us: u64) -> String {
    let us = us as f64;
    let (unit, letters) = match us {
        us if us < 999.5 => (1.0, "us"),
        us if us < 999_500.0 => (1e3, "ms"),
        us if us < 9_999_500_000.0 => (1e6, "s"),
        _ => return "long".into(),
    };
    let scaled = us / unit;
    let places = usize::from(scaled < 9.95 && unit > 1.0);
    format!("{scaled:.places$}{letters}")
}

/// Formats a fraction of 1 as percent. With `precise` there is always a decimal, and the text is
/// one character longer.
pub fn percent(part: f64, precise: bool) -> String {
    let percent = part * 100.0;
    match percent {
        p if !p.is_finite() => UNKNOWN.into(),
        p if p > 999.5 => "lots".into(),
        p if p > 0.0 && p < 0.05 => if precise { "<0.1%" } else { "<.1%" }.into(),
        p if precise || p > 0.0 && p < 9.95 => format!("{p:.1}%"),
        p => format!("{p:.0}%"),
    }
}

/// Returns the width of `text` in a terminal, cells.
pub fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Escapes characters that would move the cursor, change the terminal's attributes, or be
/// invisible.
pub fn printable(name: &str) -> String {
    let mut shown = String::with_capacity(name.len());
    for c in name.chars() {
        let mut buffer = [0; 4];
        if c.is_control() || width(c.encode_utf8(&mut buffer)) == 0 {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Returns the end of a text in at most `cells` cells; `~` replaces the cut part.
pub fn tail(text: &str, cells: usize) -> String {
    let all = width(text);
    if all <= cells {
        return text.into();
    }
    let mut left = all;
    for (at, c) in text.char_indices() {
        if left < cells {
            return format!("~{}", &text[at..]);
        }
        left -= width(c.encode_utf8(&mut [0; 4]));
    }
    if cells > 0 {
        "~".into()
    } else {
        String::new()
    }
}

/// Returns the start of a text in at most `cells` cells; `~` replaces the cut part.
pub fn start(text: &str, cells: usize) -> String {
    if width(text) <= cells {
        return text.into();
    }
    let Some(room) = cells.checked_sub(1) else {
        return String::new();
    };
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += width(c.encode_utf8(&mut [0; 4]));
        if used > room {
            return format!("{}~", &text[..at]);
        }
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_five_letters() {
        for (value, shown, of_bytes) in [
            (0.0, "0", "0"),
            (0.25, "0.2", "0.2"),
            (9.96, "10.0", "10.0"),
            (33.3, "33", "33"),
            (999.6, "1000", "1.00k"),
            (9999.6, "10.0k", "10.0k"),
            (999_600.0, "1.00M", "1.00M"),
            (53_700_000.0, "53.7M", "53.7M"),
            (1.844e19, "18.4E", "18.4E"),
            (f64::NAN, "-", "-"),
        ] {
            assert_eq!(
                (&*count(value), &*bytes(value)),
                (shown, of_bytes),
                "{value}"
            );
        }
        for (us, want) in [
            (0, "0us"),
            (999, "999us"),
            (9_949, "9.9ms"),
            (83_886, "84ms"),
            (999_499, "999ms"),
            (1_162_000, "1.2s"),
            (3_372_000_000, "3372s"),
            (u64::MAX, "long"),
        ] {
            assert_eq!(time(us), want, "{us}");
        }
        for (part, short, long) in [
            (0.0, "0%", "0.0%"),
            (0.031, "3.1%", "3.1%"),
            (1.0, "100%", "100.0%"),
            (0.000_4, "<.1%", "<0.1%"),
            (9.99, "999%", "999.0%"),
            (1e9, "lots", "lots"),
            (f64::NAN, "-", "-"),
        ] {
            assert_eq!(
                (&*percent(part, false), &*percent(part, true)),
                (short, long)
            );
        }
        for power in 0..64 {
            for value in [1u64 << power, (1u64 << power) - 1, 10u64.pow(power % 20)] {
                let all = [count(value as f64), bytes(value as f64), time(value)];
                assert!(all.iter().all(|text| text.len() <= 5), "{all:?}");
            }
        }
    }

    #[test]
    fn names_do_no_harm_and_are_cut() {
        for (name, want) in [
            ("a b\u{e4}", "a b\u{e4}"),
            ("a\nb\t\x1b[2J", "a\\nb\\t\\u{1b}[2J"),
            ("\u{202e}abc", "\\u{202e}abc"),
            ("e\u{301}", "e\\u{301}"),
            ("\u{7f}\u{9b}", "\\u{7f}\\u{9b}"),
        ] {
            assert_eq!(printable(name), want);
        }
        let name = "uid:1002/jobid:large";
        for (cells, last, first) in [
            (20, name, name),
            (19, "~d:1002/jobid:large", "uid:1002/jobid:lar~"),
            (2, "~e", "u~"),
            (1, "~", "~"),
            (0, "", ""),
        ] {
            assert_eq!((&*tail(name, cells), &*start(name, cells)), (last, first));
        }
        // Characters that are two cells wide.
        for cells in 0..8 {
            let wide = "\u{4f60}\u{597d}\u{4f60}";
            assert!(width(&tail(wide, cells)) <= cells && width(&start(wide, cells)) <= cells);
        }
    }
}
