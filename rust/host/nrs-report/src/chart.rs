// SPDX-License-Identifier: GPL-2.0-only

//! Charts as SVG: lines, and groups of bars.
//!
//! Equal data give equal bytes: charts do not depend on time, machine or fonts. The palette of
//! Okabe and Ito (2008) has colours that most colour-blind readers can distinguish. From the eighth
//! series, lines are dashed. The background is white, the font is the default sans-serif of the
//! reader.

use std::io;
use std::ops::Range;
use std::path::Path;

use plotters::coord::combinators::LogCoord;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::stat::Spread;

/// Width of a chart, pixels.
const WIDTH: u32 = 960;
/// Height of a chart, pixels.
const HEIGHT: u32 = 480;
/// Font family; the reader's system selects the font.
const FONT: &str = "sans-serif";
/// Maximum number of points of a series at which each point is marked.
const MARKED: usize = 40;

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

/// Result of drawing.
type Drawing<T = ()> = Result<T, DrawingAreaErrorKind<io::Error>>;

/// Axis with numbers, linear or logarithmic.
enum Axis {
    Linear(RangedCoordf64),
    Log(LogCoord<f64>),
}

impl Axis {
    fn new((low, high): (f64, f64), log: bool) -> Self {
        match log {
            true => Axis::Log((low..high).log_scale().into()),
            false => Axis::Linear((low..high).into()),
        }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        match self {
            Axis::Linear(axis) => axis.map(value, limit),
            Axis::Log(axis) => axis.map(value, limit),
        }
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match self {
            Axis::Linear(axis) => axis.key_points(hint),
            Axis::Log(axis) => axis.key_points(hint),
        }
    }

    fn range(&self) -> Range<f64> {
        match self {
            Axis::Linear(axis) => axis.range(),
            Axis::Log(axis) => axis.range(),
        }
    }
}

impl ValueFormatter<f64> for Axis {
    /// Formats a number with k, M or G for powers of a thousand.
    fn format(value: &f64) -> String {
        let (scale, unit) = match value.abs() {
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
        match text.contains('.') {
            true => text.trim_end_matches('0').trim_end_matches('.').to_owned() + unit,
            false => text + unit,
        }
    }
}

/// Returns the colour of series `n`, and whether its lines are dashed.
fn line_style(n: usize) -> (RGBColor, bool) {
    (PALETTE[n % PALETTE.len()], (n / PALETTE.len()) % 2 == 1)
}

/// Returns true if a value can be drawn on an axis.
fn fits(value: f64, log: bool) -> bool {
    value.is_finite() && (!log || value > 0.0)
}

/// Returns the range of an axis. A logarithmic axis starts at the smallest positive value, and need
/// not consist of whole decades.
fn range(values: impl Iterator<Item = f64>, log: bool, from_zero: bool) -> (f64, f64) {
    let values = values.filter(|value| fits(*value, log));
    let none = (f64::INFINITY, f64::NEG_INFINITY);
    let (low, high) = values.fold(none, |(low, high), v| (low.min(v), high.max(v)));
    let (low, high) = match from_zero && !log && low <= high {
        true => (low.min(0.0), high.max(0.0)),
        false => (low, high),
    };
    match log {
        true if low > high => (1.0, 10.0),
        false if low > high => (0.0, 1.0),
        true if low == high => (low / 2.0, high * 2.0),
        false if low == high => (low - 0.5, high + 0.5),
        _ => (low, high),
    }
}

/// Draws one line of text; `at` is its upper end.
fn text(area: &Area<'_>, words: &str, at: (i32, i32), size: i32, side: HPos) -> Drawing {
    let pos = Pos::new(side, VPos::Top);
    let style = TextStyle::from((FONT, size).into_font());
    area.draw_text(words, &style.color(&BLACK).pos(pos), at)
}

/// Builder of a chart.
///
/// Values that are not finite, or not positive on a logarithmic axis, are omitted. The height of a
/// bar is the median; a line over the bar shows the range from the lowest to the highest value, if
/// they differ.
#[derive(Clone, Debug, Default)]
pub struct Diagram {
    title: String,
    /// Label of the x axis; `None`: the chart has groups of bars.
    x_label: Option<String>,
    y_label: String,
    log_x: bool,
    log_y: bool,
    y_range: Option<(f64, f64)>,
    /// Names of the groups of bars.
    groups: Vec<String>,
    /// Names of the series, in the order of their colours.
    names: Vec<String>,
    /// Series: index of the name, and values by x or group.
    series: Vec<(usize, Vec<(f64, Spread)>)>,
    /// Horizontal lines: y and label.
    rules: Vec<(f64, String)>,
    /// Vertical lines: x and label.
    marks: Vec<(f64, String)>,
    /// Labels of points.
    labels: Vec<((f64, f64), String)>,
}

impl Diagram {
    /// Creates a chart without lines.
    pub fn lines(title: &str, x_label: &str, y_label: &str) -> Self {
        Self {
            x_label: Some(x_label.to_string()),
            ..Self::bars(title, y_label)
        }
    }

    /// Creates a chart without bars.
    pub fn bars(title: &str, y_label: &str) -> Self {
        Self {
            title: title.to_string(),
            y_label: y_label.to_string(),
            ..Self::default()
        }
    }

    /// Sets a logarithmic x axis.
    pub fn log_x(mut self) -> Self {
        self.log_x = true;
        self
    }

    /// Sets a logarithmic y axis.
    pub fn log_y(mut self) -> Self {
        self.log_y = true;
        self
    }

    /// Sets the range of y; the default range starts at 0 and includes all values.
    pub fn y_range(mut self, low: f64, high: f64) -> Self {
        self.y_range = Some((low, high));
        self
    }

    /// Sets the names of the groups of bars, from left to right.
    pub fn groups<S: Into<String>>(mut self, names: Vec<S>) -> Self {
        self.groups = names.into_iter().map(Into::into).collect();
        self
    }

    /// Adds a line through points (x, y), in the given order. Series with equal names have one
    /// colour.
    pub fn series(self, name: &str, points: Vec<(f64, f64)>) -> Self {
        self.add(name, points.into_iter().map(|(x, y)| (x, y.into())))
    }

    /// Adds a bar to each group; its height is a number or a [`Spread`].
    pub fn bar<T: Into<Spread>>(self, name: &str, values: Vec<T>) -> Self {
        let values = values.into_iter().enumerate();
        self.add(name, values.map(|(n, value)| (n as f64, value.into())))
    }

    fn add(mut self, name: &str, values: impl Iterator<Item = (f64, Spread)>) -> Self {
        let found = self.names.iter().position(|other| other == name);
        let n = found.unwrap_or(self.names.len());
        if found.is_none() {
            self.names.push(name.to_string());
        }
        self.series.push((n, values.collect()));
        self
    }

    /// Adds a horizontal line.
    pub fn rule_at_y(mut self, y: f64, label: &str) -> Self {
        self.rules.push((y, label.to_string()));
        self
    }

    /// Adds a vertical line that marks a change. The label is on its right; the heights of labels
    /// alternate between two rows.
    pub fn rule_at_x(mut self, x: f64, label: &str) -> Self {
        self.marks.push((x, label.to_string()));
        self
    }

    /// Adds a label to the point (x, y) of a line.
    pub fn label(mut self, point: (f64, f64), label: &str) -> Self {
        self.labels.push((point, label.to_string()));
        self
    }

    /// Writes the chart to a file, atomically.
    ///
    /// # Errors
    ///
    /// Errors of the drawing library or the file system.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            std::fs::create_dir_all(dir)?;
        }
        let part = path.with_extension("svg.part");
        std::fs::write(&part, self.to_svg()?)?;
        std::fs::rename(&part, path)
    }

    /// Returns the chart as SVG text.
    ///
    /// # Errors
    ///
    /// Errors of the drawing library.
    pub fn to_svg(&self) -> io::Result<String> {
        let mut svg = String::new();
        let root = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        let drawn = self.draw(&root);
        drop(root);
        drawn.map_err(io::Error::other).map(|()| svg)
    }

    /// Draws the title at the top, the legend on the right, and the data with their axes.
    fn draw(&self, root: &Area<'_>) -> Drawing {
        root.fill(&WHITE)?;
        text(root, &self.title, (WIDTH as i32 / 2, 10), 18, HPos::Center)?;
        // The only series of bars needs no legend.
        let legend = match self.x_label.is_none() && self.names.len() < 2 {
            true => &[],
            false => &self.names[..],
        };
        let longest = legend.iter().map(|name| name.chars().count()).max();
        // About 7 pixels per character, and the mark.
        let side = longest.map_or(16, |longest| (longest as u32 * 7 + 44).min(WIDTH / 3));
        let inner = root.margin(32, 4, 8, 4);
        let (left, right) = inner.split_horizontally(WIDTH - 12 - side);
        for (n, name) in legend.iter().enumerate() {
            let y = 14 + 20 * n as i32;
            let (colour, dashed) = line_style(n);
            let pieces: &[(i32, i32)] = match dashed {
                true => &[(8, 15), (19, 26)],
                false => &[(8, 26)],
            };
            for (from, to) in pieces {
                let corners = [(*from, y - 2), (*to, y + 2)];
                right.draw(&Rectangle::new(corners, colour.filled()))?;
            }
            text(&right, name, (32, y - 6), 13, HPos::Left)?;
        }
        let mut plot = self.axes(&left)?;
        for (n, points) in &self.series {
            match self.x_label {
                Some(_) => self.line(&mut plot, *n, points)?,
                None => self.bars_of(&mut plot, *n, points)?,
            }
        }
        self.draw_rules(&plot)?;
        self.draw_groups(&plot)?;
        root.present()
    }

    fn points(&self) -> impl Iterator<Item = &(f64, Spread)> + Clone {
        self.series.iter().flat_map(|(_, points)| points)
    }

    fn shown(&self, x: f64, y: f64) -> bool {
        fits(x, self.log_x) && fits(y, self.log_y)
    }

    fn axes<'a, 'b>(&self, area: &'a Area<'b>) -> Drawing<Plot<'a, 'b>> {
        let x = match self.x_label {
            Some(_) => range(self.points().map(|(x, _)| *x), self.log_x, false),
            None => (0.0, self.groups.len().max(1) as f64),
        };
        let values = self.points().flat_map(|(_, y)| [y.low, y.median, y.high]);
        let values = values.chain(self.rules.iter().map(|(y, _)| *y));
        let (low, high) = range(values, self.log_y, true);
        let y = self.y_range.unwrap_or(match (self.log_y, &self.x_label) {
            (false, _) => (low, high + (high - low) * 0.05),
            (true, Some(_)) => (low / 1.2, high * 1.2),
            // Below the lowest value, so that its bar is visible.
            (true, None) => (low / 3.0, high * 1.3),
        });
        let mut chart = ChartBuilder::on(area)
            .x_label_area_size(self.x_label.as_ref().map_or(58, |_| 44))
            .y_label_area_size(64)
            .margin_right(16)
            .margin_top(6)
            .build_cartesian_2d(Axis::new(x, self.log_x), Axis::new(y, self.log_y))?;
        let mut mesh = chart.configure_mesh();
        mesh.bold_line_style(BLACK.mix(0.12))
            .light_line_style(TRANSPARENT)
            .axis_style(BLACK.mix(0.6))
            .y_desc(self.y_label.as_str())
            .label_style((FONT, 13))
            .axis_desc_style((FONT, 14));
        match &self.x_label {
            Some(label) => mesh.x_desc(label.as_str()),
            None => mesh.disable_x_mesh().x_labels(0),
        };
        mesh.draw()?;
        let (x, y) = chart.plotting_area().get_pixel_range();
        let (left, top) = area.get_base_pixel();
        let (x, y) = (x.start - left..x.end - left, y.start - top..y.end - top);
        Ok(Plot { area, chart, x, y })
    }

    fn line(&self, plot: &mut Plot<'_, '_>, n: usize, points: &[(f64, Spread)]) -> Drawing {
        let points = points.iter().map(|(x, y)| (*x, y.median));
        let shown = points.filter(|(x, y)| self.shown(*x, *y));
        let (colour, dashed) = line_style(n);
        let style = colour.stroke_width(2);
        match dashed {
            true => {
                let line = DashedLineSeries::new(shown.clone(), 6, 4, style);
                plot.chart.draw_series(line)?
            }
            false => plot
                .chart
                .draw_series(LineSeries::new(shown.clone(), style))?,
        };
        if shown.clone().count() <= MARKED {
            let marks = shown.map(|point| Circle::new(point, 3, colour.filled()));
            plot.chart.draw_series(marks)?;
        }
        Ok(())
    }

    fn bars_of(&self, plot: &mut Plot<'_, '_>, n: usize, bars: &[(f64, Spread)]) -> Drawing {
        let floor = match self.log_y {
            true => plot.chart.y_range().start,
            false => 0.0,
        };
        let width = 0.8 / self.series.len() as f64;
        let bars = bars.iter().take(self.groups.len().max(1));
        for (group, bar) in bars.filter(|(_, bar)| fits(bar.median, self.log_y)) {
            let left = group + 0.1 + width * n as f64;
            let corners = [(left, floor), (left + width * 0.92, bar.median)];
            let rectangle = Rectangle::new(corners, line_style(n).0.filled());
            plot.chart.draw_series([rectangle])?;
            if fits(bar.low, self.log_y) && fits(bar.high, self.log_y) && bar.low < bar.high {
                let (middle, end) = (left + width * 0.46, width * 0.15);
                let across = |y| [(middle - end, y), (middle + end, y)];
                let range = [(middle, bar.low), (middle, bar.high)];
                let lines = [range, across(bar.low), across(bar.high)];
                let lines = lines.map(|points| PathElement::new(points, BLACK.stroke_width(1)));
                plot.chart.draw_series(lines)?;
            }
        }
        Ok(())
    }

    /// Draws the horizontal and vertical lines, and the labels of points.
    fn draw_rules(&self, plot: &Plot<'_, '_>) -> Drawing {
        for ((x, y), label) in self.labels.iter().filter(|((x, y), _)| self.shown(*x, *y)) {
            let (across, height) = plot.pixel((*x, *y));
            text(plot.area, label, (across, height - 18), 12, HPos::Center)?;
        }
        for (y, label) in self.rules.iter().filter(|(y, _)| self.shown(1.0, *y)) {
            // Any x can be used, because only the height is needed.
            let any = self.points().next().filter(|(x, _)| self.shown(*x, *y));
            let Some((x, _)) = any else {
                continue;
            };
            let (_, height) = plot.pixel((*x, *y));
            for start in plot.x.clone().step_by(9) {
                let end = (start + 5).min(plot.x.end);
                plot.path([(start, height), (end, height)], 0.6)?;
            }
            let at = (plot.x.end - 4, height - 16);
            text(plot.area, label, at, 12, HPos::Right)?;
        }
        for (n, (x, label)) in self.marks.iter().enumerate() {
            // Any y can be used, because only the horizontal position is needed.
            let mut any = self.points().map(|(_, y)| y.median);
            let Some(y) = any.find(|y| self.shown(*x, *y)) else {
                continue;
            };
            let (across, _) = plot.pixel((*x, y));
            plot.path([(across, plot.y.start), (across, plot.y.end)], 0.4)?;
            let at = (across + 4, plot.y.start + 2 + 14 * (n % 2) as i32);
            text(plot.area, label, at, 12, HPos::Left)?;
        }
        Ok(())
    }

    /// Draws the names of the groups, in up to three lines.
    fn draw_groups(&self, plot: &Plot<'_, '_>) -> Drawing {
        let (width, groups) = (plot.x.end - plot.x.start, self.groups.len() as i32);
        for (group, name) in self.groups.iter().enumerate() {
            let x = plot.x.start + width * (2 * group as i32 + 1) / (2 * groups);
            // About 7 pixels per character.
            let lines = wrapped(name, (width / groups / 7).max(4) as usize);
            for (row, line) in lines.iter().take(3).enumerate() {
                let at = (x, plot.y.end + 8 + 15 * row as i32);
                text(plot.area, line, at, 13, HPos::Center)?;
            }
        }
        Ok(())
    }
}

/// Area with drawn axes.
struct Plot<'a, 'b> {
    area: &'a Area<'b>,
    chart: ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>,
    /// Ranges between the axes, in pixels of the area.
    x: Range<i32>,
    y: Range<i32>,
}

impl Plot<'_, '_> {
    /// Draws a thin line, in pixels of the area.
    fn path(&self, points: [(i32, i32); 2], opacity: f64) -> Drawing {
        let style = BLACK.mix(opacity).stroke_width(1);
        self.area.draw(&PathElement::new(points, style))
    }

    /// Returns the position of a point, in pixels of the area.
    fn pixel(&self, point: (f64, f64)) -> (i32, i32) {
        let (base, at) = (self.area.get_base_pixel(), self.chart.backend_coord(&point));
        (at.0 - base.0, at.1 - base.1)
    }
}

/// Wraps text at words into lines of at most `letters` characters; longer words get lines of their
/// own.
fn wrapped(text: &str, letters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= letters => {
                *line += " ";
                *line += word;
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_axes() {
        let values = [
            0.0, 1.0, 0.25, 0.05, 0.002, 1234.0, 2e4, 1.5e6, 2e10, -5.0, 1e-5,
        ];
        let texts = "0 1 0.25 0.05 0.002 1234 20k 1.5M 20G -5 1e-5";
        assert_eq!(values.map(|value| Axis::format(&value)).join(" "), texts);
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

    #[test]
    fn words_in_lines() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("verylongword x y", 2), ["verylongword", "x", "y"]);
    }

    #[test]
    fn the_same_data_give_the_same_bytes() -> io::Result<()> {
        let lines = Diagram::lines("A <title>", "time in s", "MB/s")
            .series("a & b", vec![(1.0, 2.0), (10.0, 3.0), (100.0, f64::NAN)])
            .series("c", vec![(0.0, 1.0), (20.0, 0.5)])
            .rule_at_y(2.5, "bar")
            .rule_at_x(5.0, "from here on")
            .label((10.0, 3.0), "high");
        let (low, median, high) = (1.0, 2.0, 4.0);
        let bars = Diagram::bars("latency", "us")
            .groups(vec!["one group of words", "two"])
            .bar("a", vec![Spread { low, median, high }, f64::NAN.into()])
            .bar("b", vec![30.0, 0.0]);
        let svgs = || -> io::Result<Vec<String>> {
            let log = lines.clone().log_x().log_y().y_range(0.1, 10.0);
            let (lines, bars) = (lines.clone(), bars.clone());
            let empty = [Diagram::lines("", "", ""), Diagram::bars("", "")];
            let some = [
                lines.clone(),
                lines.log_x(),
                log,
                bars.clone(),
                bars.log_y(),
            ];
            some.iter().chain(&empty).map(Diagram::to_svg).collect()
        };
        let drawn = svgs()?;
        assert_eq!(drawn, svgs()?);
        for svg in &drawn {
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
            assert!(!svg.contains("NaN") && !svg.contains("inf"));
        }
        for part in "A &lt;title&gt;|a &amp; b|bar|high|from here on|time in s|sans-serif|#0072B2"
            .split('|')
        {
            assert!(drawn[0].contains(part), "{part}");
        }
        Ok(())
    }
}
