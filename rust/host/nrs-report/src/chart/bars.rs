// SPDX-License-Identifier: GPL-2.0-only

//! Groups of bars.

use std::io;
use std::path::Path;

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use super::{failed, look, picture, range, short, text, Area, FONT};
use crate::stat::Spread;

/// Builder of a bar chart: groups side by side, each with one bar per series.
///
/// The height of a bar is the median. A line over the bar shows the range from the lowest to the
/// highest value, if they differ. Values that are not finite have no bar.
#[derive(Clone, Debug, Default)]
pub struct Bars {
    title: String,
    y_label: String,
    log_y: bool,
    groups: Vec<String>,
    series: Vec<(String, Vec<Spread>)>,
}

impl Bars {
    /// Creates a chart without bars.
    pub fn new(title: &str, y_label: &str) -> Self {
        Self {
            title: title.to_string(),
            y_label: y_label.to_string(),
            ..Self::default()
        }
    }

    /// Sets a logarithmic y axis.
    pub fn log_y(mut self) -> Self {
        self.log_y = true;
        self
    }

    /// Sets the names of the groups, from left to right.
    pub fn groups<S: Into<String>>(mut self, names: Vec<S>) -> Self {
        self.groups = names.into_iter().map(Into::into).collect();
        self
    }

    /// Adds a bar to each group; a value is a number or a [`Spread`].
    pub fn series<T: Into<Spread>>(mut self, name: &str, values: Vec<T>) -> Self {
        let values = values.into_iter().map(Into::into).collect();
        self.series.push((name.to_string(), values));
        self
    }

    /// Returns the chart as SVG text.
    ///
    /// # Errors
    ///
    /// Errors of the drawing library.
    pub fn to_svg(&self) -> io::Result<String> {
        let values = self.series.iter().flat_map(|(_, values)| values);
        let all = values.flat_map(|v| [v.low, v.median, v.high]);
        let (low, high) = range(all, self.log_y, true);
        let names = self.series.iter().enumerate();
        let legend: Vec<(&str, usize)> = names.map(|(n, (name, _))| (name.as_str(), n)).collect();
        let legend = if legend.len() > 1 { &legend[..] } else { &[] };
        picture(&self.title, legend, |area| {
            if self.log_y {
                // Below the lowest value, so that its bar is visible.
                let (low, high) = (low / 3.0, high * 1.3);
                self.draw(area, (low..high).log_scale(), low)
            } else {
                let high = high + (high - low) * 0.05;
                self.draw(area, low..high, 0.0)
            }
        })
    }

    /// Writes the chart to a file.
    ///
    /// # Errors
    ///
    /// Errors of the drawing library or the file system.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        super::save(self.to_svg()?, path)
    }

    fn draw<Y>(&self, area: &Area<'_>, y: Y, floor: f64) -> io::Result<()>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let groups = self.groups.len().max(1);
        let mut chart = ChartBuilder::on(area)
            .x_label_area_size(58)
            .y_label_area_size(64)
            .margin_right(16)
            .margin_top(6)
            .build_cartesian_2d(0.0..groups as f64, y)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .bold_line_style(BLACK.mix(0.12))
            .light_line_style(TRANSPARENT)
            .axis_style(BLACK.mix(0.6))
            .y_desc(self.y_label.as_str())
            .y_label_formatter(&|v| short(*v))
            .label_style((FONT, 13))
            .axis_desc_style((FONT, 14))
            .draw()
            .map_err(failed)?;
        let width = 0.8 / self.series.len().max(1) as f64;
        for (n, (_, values)) in self.series.iter().enumerate() {
            for (group, value) in values.iter().enumerate().take(groups) {
                let shown = |v: f64| v.is_finite() && (!self.log_y || v > 0.0);
                if !shown(value.median) {
                    continue;
                }
                let left = group as f64 + 0.1 + width * n as f64;
                let corners = [(left, floor), (left + width * 0.92, value.median)];
                let bar = Rectangle::new(corners, look(n).0.filled());
                chart.draw_series([bar]).map_err(failed)?;
                if shown(value.low) && shown(value.high) && value.low < value.high {
                    let middle = left + width * 0.46;
                    let end = width * 0.15;
                    let line = |points| PathElement::new(points, BLACK.stroke_width(1));
                    let lines = [
                        line(vec![(middle, value.low), (middle, value.high)]),
                        line(vec![(middle - end, value.low), (middle + end, value.low)]),
                        line(vec![(middle - end, value.high), (middle + end, value.high)]),
                    ];
                    chart.draw_series(lines).map_err(failed)?;
                }
            }
        }
        let (area_x, area_y) = area.get_base_pixel();
        let (pixels_x, pixels_y) = chart.plotting_area().get_pixel_range();
        let (from, to) = (pixels_x.start - area_x, pixels_x.end - area_x);
        // About 7 pixels per character.
        let letters = ((to - from) / groups as i32 / 7).max(4) as usize;
        for (group, name) in self.groups.iter().enumerate() {
            let x = from + (to - from) * (2 * group as i32 + 1) / (2 * groups as i32);
            for (row, line) in wrapped(name, letters).iter().take(3).enumerate() {
                let y = pixels_y.end - area_y + 8 + 15 * row as i32;
                let side = plotters::style::text_anchor::HPos::Center;
                text(area, line, (x, y), 13, side)?;
            }
        }
        Ok(())
    }
}

/// Wraps text at words into lines of at most `letters` characters; longer words get lines of their
/// own.
fn wrapped(text: &str, letters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= letters => {
                line.push(' ');
                line.push_str(word);
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
    fn the_same_data_give_the_same_bytes() -> io::Result<()> {
        let spread = Spread {
            low: 1.0,
            median: 2.0,
            high: 4.0,
        };
        let chart = Bars::new("latency", "us")
            .groups(vec!["one group of words", "two"])
            .series("a", vec![spread, f64::NAN.into()])
            .series("b", vec![30.0, 0.0]);
        for chart in [chart.clone(), chart.log_y(), Bars::new("", "")] {
            let svg = chart.to_svg()?;
            assert_eq!(svg, chart.to_svg()?);
            assert!(svg.trim_end().ends_with("</svg>"));
            assert!(!svg.contains("NaN") && !svg.contains("inf"));
        }
        Ok(())
    }

    #[test]
    fn words_in_lines() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("verylongword x", 4), ["verylongword", "x"]);
    }
}
