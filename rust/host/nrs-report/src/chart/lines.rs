// SPDX-License-Identifier: GPL-2.0-only

//! Line charts.

use std::io;
use std::path::Path;

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use super::{failed, look, picture, range, short, text, Area, FONT};

/// Maximum number of points of a series at which each point is marked.
const MARKED: usize = 40;

/// Builder of a line chart.
///
/// Values that are not finite, or not positive on a logarithmic axis, are omitted.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    title: String,
    x_label: String,
    y_label: String,
    log_x: bool,
    log_y: bool,
    y_range: Option<(f64, f64)>,
    /// Names of the series, in the order of their colours.
    names: Vec<String>,
    series: Vec<(usize, Vec<(f64, f64)>)>,
    rules: Vec<(f64, String)>,
    /// Vertical lines: x and label.
    marks: Vec<(f64, String)>,
}

impl Lines {
    /// Creates a chart without lines.
    pub fn new(title: &str, x_label: &str, y_label: &str) -> Self {
        Self {
            title: title.to_string(),
            x_label: x_label.to_string(),
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

    fn index(&mut self, name: &str) -> usize {
        let found = self.names.iter().position(|other| other == name);
        found.unwrap_or_else(|| {
            self.names.push(name.to_string());
            self.names.len() - 1
        })
    }

    /// Adds a line through points (x, y), in the given order.
    pub fn series(mut self, name: &str, points: Vec<(f64, f64)>) -> Self {
        let n = self.index(name);
        self.series.push((n, points));
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

    fn shown(&self, x: f64, y: f64) -> bool {
        let fits = |v: f64, log: bool| v.is_finite() && (!log || v > 0.0);
        fits(x, self.log_x) && fits(y, self.log_y)
    }

    /// Returns the chart as SVG text.
    ///
    /// # Errors
    ///
    /// Errors of the drawing library.
    pub fn to_svg(&self) -> io::Result<String> {
        let lines = self.series.iter().flat_map(|(_, points)| points);
        let x = lines.clone().map(|p| p.0);
        let rules = self.rules.iter().map(|rule| rule.0);
        let y = lines.map(|p| p.1).chain(rules);
        let (left, right) = range(x, self.log_x, false);
        let (low, high) = self.y_range.unwrap_or_else(|| {
            let (low, high) = range(y, self.log_y, true);
            match self.log_y {
                true => (low / 1.2, high * 1.2),
                false => (low, high + (high - low) * 0.05),
            }
        });
        let names = self.names.iter().enumerate();
        let legend: Vec<(&str, usize)> = names.map(|(n, name)| (name.as_str(), n)).collect();
        picture(&self.title, &legend, |area| {
            match (self.log_x, self.log_y) {
                (false, false) => self.draw(area, left..right, low..high),
                (true, false) => self.draw(area, (left..right).log_scale(), low..high),
                (false, true) => self.draw(area, left..right, (low..high).log_scale()),
                (true, true) => self.draw(area, (left..right).log_scale(), (low..high).log_scale()),
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

    fn draw<X, Y>(&self, area: &Area<'_>, x: X, y: Y) -> io::Result<()>
    where
        X: AsRangedCoord<Value = f64>,
        Y: AsRangedCoord<Value = f64>,
        X::CoordDescType: ValueFormatter<f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(area)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .margin_right(16)
            .margin_top(6)
            .build_cartesian_2d(x, y)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .bold_line_style(BLACK.mix(0.12))
            .light_line_style(TRANSPARENT)
            .axis_style(BLACK.mix(0.6))
            .x_desc(self.x_label.as_str())
            .y_desc(self.y_label.as_str())
            .x_label_formatter(&|v| short(*v))
            .y_label_formatter(&|v| short(*v))
            .label_style((FONT, 13))
            .axis_desc_style((FONT, 14))
            .draw()
            .map_err(failed)?;
        for (n, points) in &self.series {
            let (colour, dashed) = look(*n);
            let shown: Vec<(f64, f64)> = points
                .iter()
                .copied()
                .filter(|p| self.shown(p.0, p.1))
                .collect();
            let style = colour.stroke_width(2);
            if dashed {
                let line = DashedLineSeries::new(shown.iter().copied(), 6, 4, style);
                chart.draw_series(line).map_err(failed)?;
            } else {
                let line = LineSeries::new(shown.iter().copied(), style);
                chart.draw_series(line).map_err(failed)?;
            }
            if shown.len() <= MARKED {
                let marks = shown.iter().map(|p| Circle::new(*p, 3, colour.filled()));
                chart.draw_series(marks).map_err(failed)?;
            }
        }
        let (pixels_x, _) = chart.plotting_area().get_pixel_range();
        let (area_x, area_y) = area.get_base_pixel();
        for (y, label) in &self.rules {
            if !self.shown(1.0, *y) {
                continue;
            }
            // Any x can be used, because only the height is needed.
            let any = self.series.iter().flat_map(|(_, points)| points).next();
            let Some((x, _)) = any.filter(|p| self.shown(p.0, *y)) else {
                continue;
            };
            let height = chart.backend_coord(&(*x, *y)).1 - area_y;
            let (from, to) = (pixels_x.start - area_x, pixels_x.end - area_x);
            for start in (from..to).step_by(9) {
                let piece = [(start, height), ((start + 5).min(to), height)];
                let style = BLACK.mix(0.6).stroke_width(1);
                area.draw(&PathElement::new(piece, style)).map_err(failed)?;
            }
            let side = plotters::style::text_anchor::HPos::Right;
            text(area, label, (to - 4, height - 16), 12, side)?;
        }
        let (_, pixels_y) = chart.plotting_area().get_pixel_range();
        let (top, bottom) = (pixels_y.start - area_y, pixels_y.end - area_y);
        for (n, (x, label)) in self.marks.iter().enumerate() {
            // Any y can be used, because only the horizontal position is needed.
            let mut any = self.series.iter().flat_map(|(_, points)| points);
            let Some((_, y)) = any.find(|p| self.shown(*x, p.1)) else {
                continue;
            };
            let across = chart.backend_coord(&(*x, *y)).0 - area_x;
            let style = BLACK.mix(0.4).stroke_width(1);
            area.draw(&PathElement::new([(across, top), (across, bottom)], style))
                .map_err(failed)?;
            let side = plotters::style::text_anchor::HPos::Left;
            let lower = 14 * (n % 2) as i32;
            text(area, label, (across + 4, top + 2 + lower), 12, side)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Lines {
        Lines::new("A <title>", "time in s", "MB/s")
            .series("a & b", vec![(1.0, 2.0), (10.0, 3.0), (100.0, f64::NAN)])
            .series("c", vec![(0.0, 1.0), (20.0, 0.5)])
            .rule_at_y(2.5, "bar")
            .rule_at_x(5.0, "from here on")
    }

    #[test]
    fn the_same_data_give_the_same_bytes() -> io::Result<()> {
        for chart in [
            chart(),
            chart().log_x(),
            chart().log_y(),
            chart().log_x().log_y().y_range(0.1, 10.0),
            Lines::new("", "", ""),
        ] {
            let svg = chart.to_svg()?;
            assert_eq!(svg, chart.to_svg()?);
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
            assert!(!svg.contains("NaN") && !svg.contains("inf"));
        }
        let svg = chart().to_svg()?;
        for part in [
            "A &lt;title&gt;",
            "a &amp; b",
            "bar",
            "from here on",
            "time in s",
            "sans-serif",
            "#0072B2",
        ] {
            assert!(svg.contains(part), "{part}");
        }
        Ok(())
    }
}
