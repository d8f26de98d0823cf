// SPDX-License-Identifier: GPL-2.0-only

//! View of a state on the cells of a terminal.
//!
//! The screen has three lines for the service, a line for its agent if there is one, the headings,
//! a row for each entity, and a footer. Terminals with few lines omit lines for the service and the
//! agent; narrow terminals omit columns. Colours only repeat information in the text.

mod help;
mod layout;

use nrs_agent::status::ServiceStatus;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use super::numbers;
use super::row::Column;
use super::state::TopState;
use crate::commands::agent::lost;
use crate::stats::{self, Head, Snapshot};

/// Returns the number of lines above the headings.
fn above(state: &TopState, height: u16) -> u16 {
    match height {
        0..=3 => 0,
        4..=9 => 1,
        _ => 3 + u16::from(state.agent.is_some()),
    }
}

/// Returns the number of lines below the rows.
const fn below(height: u16) -> u16 {
    (height >= 3) as u16
}

/// Returns the number of rows on a terminal with `height` lines.
pub fn rows(state: &TopState, height: u16) -> usize {
    let others = above(state, height) + below(height) + (height >= 2) as u16;
    height.saturating_sub(others).into()
}

/// Draws the state and returns the number of formatted rows.
pub fn draw(state: &TopState, buffer: &mut Buffer) -> usize {
    let all = buffer.area;
    let mut page = ScreenPage {
        buffer,
        at: all,
        colours: state.colours,
    };
    let above = above(state, all.height);
    if above > 0 {
        page.title(state);
    }
    if above > 1 {
        let (policies, use_) = match state.snapshot() {
            Some(snapshot) => (policies(&snapshot.heads), usage(snapshot)),
            None => Default::default(),
        };
        let unhealthy = state.snapshot().is_some_and(|s| s.unhealthy.is_some());
        page.line(&policies, Style::new());
        page.line(
            &use_,
            if unhealthy {
                page.alarm()
            } else {
                Style::new()
            },
        );
    }
    if let Some(agent) = state.agent.as_ref().filter(|_| above > 3) {
        let style = match agent.failure {
            Some(_) => page.alarm(),
            None => Style::new(),
        };
        page.line(&shared(agent), style);
    }
    let bottom = all.bottom() - below(all.height);
    let formatted = if state.help {
        page.help(bottom);
        0
    } else if let Some(failure) = state.failure.as_ref() {
        page.line("", Style::new());
        let style = page.alarm().add_modifier(Modifier::BOLD);
        page.wrapped(&failure.message, style, bottom);
        if let Some(hint) = &failure.hint {
            page.wrapped(hint, Style::new(), bottom);
        }
        0
    } else {
        page.table(state, bottom)
    };
    if below(all.height) > 0 {
        page.at.y = bottom;
        page.footer(state);
    }
    formatted
}

/// Position of the next line in the buffer.
struct ScreenPage<'a> {
    buffer: &'a mut Buffer,
    at: Rect,
    colours: bool,
}

impl ScreenPage<'_> {
    fn colour(&self, colour: Color) -> Style {
        match self.colours {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }

    fn alarm(&self) -> Style {
        self.colour(Color::Red)
    }

    /// Writes text at column `x` of the current line, in at most `cells` cells.
    fn put(&mut self, x: u16, text: &str, cells: u16, style: Style) {
        if self.at.y < self.buffer.area.bottom() && x < self.at.width {
            let cells = cells.min(self.at.width - x);
            self.buffer
                .set_stringn(self.at.x + x, self.at.y, text, cells.into(), style);
        }
    }

    /// Writes a line.
    fn line(&mut self, text: &str, style: Style) {
        let text = numbers::start(text, self.at.width.into());
        self.put(0, &text, self.at.width, style);
        self.at.y += 1;
    }

    /// Writes text in as many lines as needed, above line `bottom`.
    fn wrapped(&mut self, text: &str, style: Style, bottom: u16) {
        let mut line = String::new();
        for word in text.split_whitespace() {
            let width = numbers::width(&line) + 1 + numbers::width(word);
            if !line.is_empty() && width > self.at.width.into() {
                if self.at.y < bottom {
                    self.line(&line, style);
                }
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        if self.at.y < bottom {
            self.line(&line, style);
        }
    }

    /// Writes the service and the interval.
    fn title(&mut self, state: &TopState) {
        let mut left = String::from("nrs");
        if let Some((name, at, of)) = state.service() {
            left += &format!(" {name}");
            if let Some(at) = at.filter(|_| of > 1) {
                left += &format!(" ({} of {of})", at + 1);
            }
        }
        let right = if state.ended {
            "end of the recording".into()
        } else if state.paused {
            "paused".into()
        } else {
            format!("every {} s", state.interval.as_secs_f64())
        };
        let (width, length) = (self.at.width, right.len() as u16);
        let room = width.saturating_sub(length + 1);
        // The interval is omitted rather than the name truncated.
        if numbers::width(&left) <= room.into() {
            self.put(width - length, &right, length, Style::new());
        }
        let left = numbers::start(&left, width.into());
        self.put(0, &left, width, Style::new().add_modifier(Modifier::BOLD));
        self.at.y += 1;
    }

    /// Writes the headings and the rows above line `bottom`; returns the number of rows.
    fn table(&mut self, state: &TopState, bottom: u16) -> usize {
        let visible = state.visible();
        let Some(snapshot) = state.snapshot() else {
            return 0;
        };
        let places = layout::places(state, snapshot, self.at.width.into());
        if self.buffer.area.height >= 2 {
            let bar = Style::new().add_modifier(Modifier::REVERSED);
            self.put(0, &" ".repeat(self.at.width.into()), self.at.width, bar);
            for place in &places {
                let chosen = place.column == state.sort;
                let mark = if chosen {
                    Modifier::BOLD | Modifier::UNDERLINED
                } else {
                    Modifier::empty()
                };
                let heading = place.column.heading();
                self.put(
                    place.x(heading),
                    heading,
                    place.width,
                    bar.add_modifier(mark),
                );
            }
            self.at.y += 1;
        }
        let mut formatted = 0;
        for n in visible {
            let Some(row) = state.row(n).filter(|_| self.at.y < bottom) else {
                break;
            };
            for place in &places {
                let text = place.cut(row.cell(place.column, place.precise));
                let style = match place.column {
                    Column::Got if row.is_short() => self.alarm(),
                    Column::Limit | Column::Hits if row.is_limited() => self.colour(Color::Yellow),
                    Column::Name => self.colour(Color::Cyan),
                    _ => Style::new(),
                };
                self.put(place.x(&text), &text, place.width, style);
            }
            self.at.y += 1;
            formatted += 1;
        }
        if state.len() == 0 && self.at.y < bottom {
            let reason = match (snapshot.entities.is_empty(), &state.filter) {
                (false, filter) => format!("no name, policy or rule contains '{filter}'"),
                _ => "no entities: no policy with entities is started, or it has had no requests"
                    .into(),
            };
            self.wrapped(&reason, Style::new(), bottom);
        }
        formatted
    }

    /// Writes the current position, sorting and filter, and the most important keys.
    fn footer(&mut self, state: &TopState) {
        let filter = &state.filter;
        if state.editing {
            let text = format!("/{}_", numbers::printable(filter));
            let text = numbers::tail(&text, self.at.width.into());
            self.line(&text, Style::new().add_modifier(Modifier::BOLD));
            return;
        }
        let seen = state.visible();
        let (sort, reverse) = (state.sort, state.reverse);
        let mut parts = vec![
            match state.len() {
                0 => "0 of 0".to_string(),
                all => format!("{}-{} of {all}", seen.start + 1, seen.end),
            },
            format!(
                "sort {}{}",
                sort.key(),
                if reverse { " reversed" } else { "" }
            ),
        ];
        if !filter.is_empty() {
            parts.push(format!("filter {}", numbers::printable(filter)));
        }
        parts.push("h help  q quit".into());
        self.line(&parts.join("  "), Style::new());
    }
}

/// Returns the policies of all heads; consecutive heads with the same policies are combined.
pub fn policies(heads: &[Head]) -> String {
    let mut all: Vec<(String, String)> = Vec::new();
    for head in heads {
        let does = head_policies(head);
        match all.last_mut().filter(|last| last.1 == does) {
            Some((names, _)) => *names += &format!(", {}", head.name),
            None => all.push((head.name.clone(), does)),
        }
    }
    let texts = all.iter().map(|(names, does)| format!("{names}: {does}"));
    numbers::printable(&texts.collect::<Vec<_>>().join("  "))
}

/// Returns the policies of a head that are not stopped; the fallback if there is none.
pub fn head_policies(head: &Head) -> String {
    let chosen = head
        .policies
        .iter()
        .filter(|policy| policy.state != "stopped" && !policy.fallback);
    let texts = chosen.map(|policy| {
        let mut text = policy.full();
        if policy.state != "started" {
            text += &format!(" ({})", policy.state);
        }
        text
    });
    let texts: Vec<String> = texts.collect();
    let fallback = head.policies.iter().find(|policy| policy.fallback);
    match texts.is_empty() {
        true => fallback.map_or("none".into(), |policy| policy.name.clone()),
        false => texts.join(", "),
    }
}

/// Returns the use of slots, the queue length and the health.
pub fn usage(snapshot: &Snapshot) -> String {
    let queued = stats::queued(&snapshot.heads);
    let mut text = format!(
        "slots {} of {} used",
        snapshot.counter("active"),
        snapshot.counter("limit")
    );
    if snapshot.counter("slots") != snapshot.counter("limit") {
        text += &format!(" (set to {})", snapshot.counter("slots"));
    }
    text += &format!("  queued {queued}  ");
    text += &match &snapshot.unhealthy {
        None => "healthy".into(),
        Some(why) => format!("NOT HEALTHY: {}", numbers::printable(why)),
    };
    text
}

/// Returns the status of the agent.
pub fn shared(agent: &ServiceStatus) -> String {
    let numbers = &agent.numbers;
    let text = match &agent.failure {
        Some(failure) => failure.clone(),
        None => {
            let heard = agent.peers.iter().filter(|peer| peer.numbers.datagrams > 0);
            let age = heard.clone().map(|peer| peer.numbers.age_us).max();
            let lost = heard.map(lost).fold(0.0, f64::max);
            format!(
                "servers {}  oldest {}  lost {}  reduced {} of {}",
                numbers.servers,
                age.map_or(numbers::UNKNOWN.into(), numbers::time),
                numbers::percent(lost, true),
                numbers.lowered,
                numbers.known,
            )
        }
    };
    format!("agent: {}", numbers::printable(&text))
}

#[cfg(test)]
mod tests;
