// SPDX-License-Identifier: GPL-2.0-only

//! Scripts of tests: a text of cases, each of lines that say what is done and what is then so.

use crate::units::{NSEC_PER_MSEC, NSEC_PER_SEC, NSEC_PER_USEC};
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Plays the cases of `text`. A line `# TITLE` begins a case with a new scene; `line` plays each
/// other line. Empty lines and `//` comments are skipped.
///
/// A title `# TITLE [A B: 1 2, 3 4]` plays the case once for each row; the values of the row
/// replace the words `A` and `B`. With a second table, the case is played for all pairs of rows.
///
/// # Panics
///
/// A line panicked; the message has the case and the line.
pub fn play<S>(text: &str, scene: impl Fn() -> S, line: impl Fn(&mut S, &str)) {
    let mut failed = String::new();
    for case in text.split("\n# ").flat_map(rows) {
        let (title, lines) = case.split_once('\n').unwrap_or((&case, ""));
        let lines = lines
            .lines()
            .map(|text| text.split("//").next().unwrap_or_default().trim());
        let mut scene = scene();
        for text in lines.filter(|text| !text.is_empty()) {
            if catch_unwind(AssertUnwindSafe(|| line(&mut scene, text))).is_err() {
                failed += &format!("\n# {title}\n{text}");
                break;
            }
        }
    }
    assert!(failed.is_empty(), "failed:{failed}");
}

/// Returns `case` once for each row of the tables of its title.
fn rows(case: &str) -> Vec<String> {
    let (title, lines) = case.split_once('\n').unwrap_or((case, ""));
    let tables = title
        .split_once(" [")
        .map(|(name, tables)| (name, tables.split_once(']')));
    let Some((title, Some((table, others)))) = tables else {
        return vec![case.to_owned()];
    };
    let (names, values) = table.split_once(": ").expect("NAMES: ROWS");
    let row = |row: &str| {
        let (names, cells) = (names.split_whitespace(), row.split_whitespace());
        assert_eq!(
            names.clone().count(),
            cells.clone().count(),
            "{title}: {row}"
        );
        let pairs = names.zip(cells);
        let text = pairs.fold(lines.to_owned(), |text, (name, value)| {
            text.replace(name, value)
        });
        rows(&format!("{title}: {row}{others}\n{text}"))
    };
    values.split(", ").flat_map(row).collect()
}

/// Calls `step` with the steps of `line`, separated by semicolons; `Nx` in front repeats them.
pub fn steps(line: &str, mut step: impl FnMut(&str)) {
    let repeated = line
        .split_once("x ")
        .map(|(times, line)| (times.parse(), line));
    let (times, line) = match repeated {
        Some((Ok(times), line)) => (times, line),
        _ => (1, line),
    };
    (0..times).for_each(|_| line.split(';').for_each(|text| step(text.trim())));
}

/// Parses a number, or a time with a unit as ns: `12`, `0.5s`, `10ms`, `20us`, `1ns`.
///
/// # Panics
///
/// `text` is neither.
pub fn number(text: &str) -> f64 {
    let units = [
        ("ns", 1),
        ("us", NSEC_PER_USEC),
        ("ms", NSEC_PER_MSEC),
        ("s", NSEC_PER_SEC),
    ];
    let time = units
        .iter()
        .find_map(|(name, ns)| Some((text.strip_suffix(name)?, *ns as f64)));
    let (digits, unit) = time.unwrap_or((text, 1.0));
    let number: f64 = digits
        .parse()
        .unwrap_or_else(|_| panic!("no number: {text}"));
    number * unit
}

/// Parses a time, ns.
pub fn time(text: &str) -> u64 {
    number(text) as u64
}

/// Parses a list of numbers and ranges, such as `1,4-6`.
pub fn list(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        number(first) as u32..=number(last) as u32
    };
    text.split(',').flat_map(range).collect()
}

/// Asserts that `have` is as `want` says: `N`, `N~PERCENT`, or `LOW..HIGH`, each end included and
/// optional.
#[track_caller]
pub fn check(what: &str, have: f64, want: &str) {
    let (low, high) = if let Some((low, high)) = want.split_once("..") {
        let end = |text: &str, none| if text.is_empty() { none } else { number(text) };
        (end(low, f64::NEG_INFINITY), end(high, f64::INFINITY))
    } else {
        let (middle, percent) = want.split_once('~').unwrap_or((want, "0"));
        let (middle, percent) = (number(middle), number(percent));
        (
            middle - middle * percent / 100.0,
            middle + middle * percent / 100.0,
        )
    };
    assert!(
        (low..=high).contains(&have),
        "{what}: {have}, expected {want}"
    );
}
