// SPDX-License-Identifier: GPL-2.0-only

//! The cells of a terminal as a picture: SVG, the same bytes for the same cells.

use std::fmt::Write as _;

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

/// Pixels of a cell.
const CELL: (u32, u32) = (8, 17);
/// Pixels around the cells.
const EDGE: u32 = 10;
/// Colours of the background and of text.
const PAPER: &str = "#1c1c1c";
const INK: &str = "#d8d8d8";

/// Letters in a row that look the same.
struct Run {
    from: u32,
    text: String,
    cells: u32,
    ink: &'static str,
    paper: Option<&'static str>,
    bold: bool,
    underlined: bool,
}

/// The colour of text that is not plain.
fn ink(colour: Color) -> &'static str {
    match colour {
        Color::Red => "#ff6b68",
        Color::Yellow => "#f0c040",
        Color::Cyan => "#5fd7d7",
        Color::Green => "#7fd75f",
        _ => INK,
    }
}

fn look(cell: &Cell) -> Run {
    let style = cell.style();
    let has = |modifier| style.add_modifier.contains(modifier);
    let plain = ink(style.fg.unwrap_or(Color::Reset));
    let (ink, paper) = match has(Modifier::REVERSED) {
        true => (PAPER, Some(plain)),
        false => (plain, None),
    };
    Run {
        from: 0,
        text: String::new(),
        cells: 0,
        ink,
        paper,
        bold: has(Modifier::BOLD),
        underlined: has(Modifier::UNDERLINED),
    }
}

/// The runs of row `y`; blanks that cannot be seen belong to none.
fn runs(buffer: &Buffer, y: u16) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for x in 0..buffer.area.width {
        let Some(cell) = buffer.cell((x, y)) else {
            continue;
        };
        let mut new = look(cell);
        let same = |last: &&mut Run| {
            last.from + last.cells == u32::from(x)
                && (last.ink, last.paper, last.bold, last.underlined)
                    == (new.ink, new.paper, new.bold, new.underlined)
        };
        match runs.last_mut().filter(same) {
            Some(last) => {
                last.text += cell.symbol();
                last.cells += 1;
            }
            None => {
                new.from = x.into();
                new.text += cell.symbol();
                new.cells = 1;
                runs.push(new);
            }
        }
    }
    for run in &mut runs {
        if run.paper.is_none() && !run.underlined {
            let begin = run.text.len() - run.text.trim_start_matches(' ').len();
            run.from += begin as u32;
            run.text = run.text.trim_matches(' ').to_string();
            run.cells = run.text.chars().count() as u32;
        }
    }
    runs.retain(|run| !run.text.is_empty());
    runs
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// The picture; `title` is for readers that cannot see it.
pub fn picture(buffer: &Buffer, title: &str) -> String {
    let (wide, high) = CELL;
    let width = u32::from(buffer.area.width) * wide + 2 * EDGE;
    let height = u32::from(buffer.area.height) * high + 2 * EDGE;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"monospace\" font-size=\"13\">\n<title>{}</title>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"6\" fill=\"{PAPER}\"/>\n",
        escaped(title)
    );
    for y in 0..buffer.area.height {
        let top = EDGE + u32::from(y) * high;
        let runs = runs(buffer, y);
        for run in &runs {
            let (x, length) = (EDGE + run.from * wide, run.cells * wide);
            if let Some(paper) = run.paper {
                let _ = writeln!(svg, "<rect x=\"{x}\" y=\"{top}\" width=\"{length}\" height=\"{high}\" fill=\"{paper}\"/>");
            }
        }
        let mut line = String::new();
        for run in &runs {
            let text = run.text.trim_matches(' ');
            if text.is_empty() {
                continue;
            }
            let begin = run.text.len() - run.text.trim_start_matches(' ').len();
            let x = EDGE + (run.from + begin as u32) * wide;
            // The length keeps columns straight whatever font the reader has.
            let length = text.chars().count() as u32 * wide;
            let _ = write!(
                line,
                "<tspan x=\"{x}\" textLength=\"{length}\" fill=\"{}\"",
                run.ink
            );
            if run.bold {
                line += " font-weight=\"bold\"";
            }
            if run.underlined {
                line += " text-decoration=\"underline\"";
            }
            let _ = write!(line, ">{}</tspan>", escaped(text));
        }
        if !line.is_empty() {
            let _ = writeln!(
                svg,
                "<text y=\"{}\" xml:space=\"preserve\">{line}</text>",
                top + 13
            );
        }
    }
    svg += "</svg>\n";
    svg
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    use super::*;

    #[test]
    fn cells_are_drawn() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 12, 3));
        buffer.set_string(0, 0, "a<b & c", Style::new().add_modifier(Modifier::BOLD));
        buffer.set_string(
            0,
            1,
            " HEAD ",
            Style::new().add_modifier(Modifier::REVERSED),
        );
        buffer.set_string(2, 2, "plain", Style::new());
        buffer.set_string(8, 2, "red", Style::new().fg(Color::Red));
        let svg = picture(&buffer, "t & t");
        assert_eq!(svg, picture(&buffer, "t & t"));
        for part in [
            "<title>t &amp; t</title>",
            "width=\"116\" height=\"71\"",
            "<tspan x=\"10\" textLength=\"56\" fill=\"#d8d8d8\" font-weight=\"bold\">a&lt;b &amp; c</tspan>",
            "<rect x=\"10\" y=\"27\" width=\"48\" height=\"17\" fill=\"#d8d8d8\"/>",
            "<tspan x=\"18\" textLength=\"32\" fill=\"#1c1c1c\">HEAD</tspan>",
            "<tspan x=\"26\" textLength=\"40\" fill=\"#d8d8d8\">plain</tspan>",
            "<tspan x=\"74\" textLength=\"24\" fill=\"#ff6b68\">red</tspan>",
        ] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        assert_eq!(svg.matches("<text ").count(), 3);
    }
}
