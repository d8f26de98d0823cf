// SPDX-License-Identifier: GPL-2.0-only

//! Charts as SVG: lines ([`Lines`]) and groups of bars ([`Bars`]).
//!
//! Equal data give equal bytes: charts do not depend on time, machine or fonts. The palette of
//! Okabe and Ito (2008) has colours that most colour-blind readers can distinguish. From the eighth
//! series, lines are dashed. The background is white, the font is the default sans-serif of the
//! reader.

mod bars;
mod lines;

use std::io;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub use bars::Bars;
pub use lines::Lines;

/// Width of a chart, pixels.
const WIDTH: u32 = 960;
/// Height of a chart, pixels.
const HEIGHT: u32 = 480;
/// Font family; the reader's system selects the font.
const FONT: &str = "sans-serif";

/// Palette: blue, vermilion, green, orange, sky blue, purple, black.
const PALETTE: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(204, 121, 167),
    RGBColor(0, 0, 0),
];

/// Drawing area of a chart.
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Returns the colour of series `n`, and whether its lines are dashed.
fn look(n: usize) -> (RGBColor, bool) {
    (PALETTE[n % PALETTE.len()], (n / PALETTE.len()) % 2 == 1)
}

/// Formats a number for an axis, with k, M or G for powers of a thousand.
fn short(value: f64) -> String {
    let size = value.abs();
    let (scale, unit) = match size {
        s if s >= 1e9 => (1e9, "G"),
        s if s >= 1e6 => (1e6, "M"),
        s if s >= 1e4 => (1e3, "k"),
        _ => (1.0, ""),
    };
    let scaled = value / scale;
    let places = match scaled.abs() {
        0.0 => 0,
        s if s < 0.001 => return format!("{scaled:.0e}"),
        s if s < 0.01 => 4,
        s if s < 0.1 => 3,
        s if s < 10.0 => 2,
        s if s < 100.0 => 1,
        _ => 0,
    };
    let text = format!("{scaled:.places$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    format!("{text}{unit}")
}

/// Returns the range of an axis.
///
/// With `log` the range is from the smallest positive value to the largest value, and need not
/// consist of whole decades.
fn range(values: impl Iterator<Item = f64>, log: bool, from_zero: bool) -> (f64, f64) {
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for value in values.filter(|v| v.is_finite() && (!log || *v > 0.0)) {
        low = low.min(value);
        high = high.max(value);
    }
    if low > high {
        return if log { (1.0, 10.0) } else { (0.0, 1.0) };
    }
    if log {
        return match low == high {
            true => (low / 2.0, high * 2.0),
            false => (low, high),
        };
    }
    if from_zero {
        (low, high) = (low.min(0.0), high.max(0.0));
    }
    if low == high {
        (low - 0.5, high + 0.5)
    } else {
        (low, high)
    }
}

/// Converts an error of the drawing library, which draws into memory.
fn failed(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

/// Draws into a string: the title at the top, the legend on the right; `draw` draws the remaining
/// area.
fn picture(
    title: &str,
    legend: &[(&str, usize)],
    draw: impl FnOnce(&Area<'_>) -> io::Result<()>,
) -> io::Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        text(&root, title, (WIDTH as i32 / 2, 10), 18, HPos::Center)?;
        let longest = legend.iter().map(|(name, _)| name.chars().count()).max();
        // About 7 pixels per character, and the mark.
        let side = longest.map_or(16, |longest| (longest as u32 * 7 + 44).min(WIDTH / 3));
        let (plot, right) = root
            .margin(32, 4, 8, 4)
            .split_horizontally(WIDTH - 12 - side);
        for (place, (name, n)) in legend.iter().enumerate() {
            let y = 14 + 20 * place as i32;
            let (colour, dashed) = look(*n);
            let pieces: &[(i32, i32)] = if dashed {
                &[(8, 15), (19, 26)]
            } else {
                &[(8, 26)]
            };
            for (from, to) in pieces {
                let mark = Rectangle::new([(*from, y - 2), (*to, y + 2)], colour.filled());
                right.draw(&mark).map_err(failed)?;
            }
            text(&right, name, (32, y - 6), 13, HPos::Left)?;
        }
        draw(&plot)?;
        root.present().map_err(failed)?;
    }
    Ok(svg)
}

/// Draws one line of text; `at` is its upper end.
fn text(area: &Area<'_>, words: &str, at: (i32, i32), size: i32, side: HPos) -> io::Result<()> {
    let style = TextStyle::from((FONT, size).into_font())
        .color(&BLACK)
        .pos(Pos::new(side, VPos::Top));
    area.draw_text(words, &style, at).map_err(failed)
}

/// Writes the file atomically.
fn save(svg: String, path: &Path) -> io::Result<()> {
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        std::fs::create_dir_all(dir)?;
    }
    let part = path.with_extension("svg.part");
    std::fs::write(&part, svg)?;
    std::fs::rename(&part, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_axes() {
        for (value, want) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.25, "0.25"),
            (0.05, "0.05"),
            (0.002, "0.002"),
            (1234.0, "1234"),
            (20_000.0, "20k"),
            (1.5e6, "1.5M"),
            (2e10, "20G"),
            (-5.0, "-5"),
            (1e-5, "1e-5"),
        ] {
            assert_eq!(short(value), want, "{value}");
        }
    }

    #[test]
    fn ranges() {
        for (values, log, from_zero, want) in [
            (&[][..], false, true, (0.0, 1.0)),
            (&[f64::NAN], true, true, (1.0, 10.0)),
            (&[2.0, 4.0], false, true, (0.0, 4.0)),
            (&[2.0, 4.0], false, false, (2.0, 4.0)),
            (&[0.0], false, true, (-0.5, 0.5)),
            (&[0.0, 10.0, 1000.0], true, true, (10.0, 1000.0)),
            (&[8.0], true, true, (4.0, 16.0)),
        ] {
            assert_eq!(range(values.iter().copied(), log, from_zero), want);
        }
    }
}
