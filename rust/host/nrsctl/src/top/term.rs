// SPDX-License-Identifier: GPL-2.0-only

//! Terminal: reads keys, draws cells, and restores the terminal's mode at the end in all cases.

use std::io::{self, IsTerminal as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::DefaultTerminal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::source::Source;
use super::state::{Act, TopState};
use super::view;
use crate::failure::{failure, Failure, Result};

/// Maximum delay of the reaction to a signal.
const LOOK: Duration = Duration::from_millis(200);

/// Maximum time until the second snapshot; the first snapshot has no rates.
const FIRST: Duration = Duration::from_millis(500);

/// Returns true if standard input and output are a terminal on which cells can be drawn.
pub fn is_usable() -> bool {
    let dumb = std::env::var("TERM").is_ok_and(|name| name.is_empty() || name == "dumb");
    io::stdin().is_terminal() && io::stdout().is_terminal() && !dumb
}

/// Returns true if colours are to be used: `NO_COLOR` is unset or empty.
pub fn wants_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Restores the terminal when dropped; the panic hook of ratatui does the same before it prints.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Displays a state until a key or a signal ends the program.
///
/// # Errors
///
/// `Other` if the terminal fails.
pub fn run(state: &mut TopState, source: &mut dyn Source) -> Result {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, ended.clone())?;
    }
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let restored = Restored;
    let result = show(state, source, &mut terminal, &ended);
    drop(restored);
    result.map_err(failed)
}

fn failed(error: io::Error) -> Failure {
    failure!(Other: "terminal: {error}"; "without a terminal: nrsctl top --batch 1")
}

fn show(
    state: &mut TopState,
    source: &mut dyn Source,
    terminal: &mut DefaultTerminal,
    ended: &AtomicBool,
) -> io::Result<()> {
    state.refresh(source);
    let mut last = Instant::now();
    let mut first = true;
    while !ended.load(Ordering::Relaxed) {
        terminal.draw(|frame| {
            let rows = view::rows(state, frame.area().height);
            state.set_page(rows);
            view::draw(state, frame.buffer_mut());
        })?;
        let interval = if first {
            state.interval.min(FIRST)
        } else {
            state.interval
        };
        let left = interval.saturating_sub(last.elapsed());
        let due = left.is_zero() && !state.paused;
        let act = if due {
            Act::Refresh
        } else {
            // Other events, such as a change of the terminal's size, redraw the screen.
            match event::poll(if state.paused { LOOK } else { left.min(LOOK) })? {
                true => match event::read()? {
                    Event::Key(key) if key.kind != KeyEventKind::Release => state.key(key),
                    _ => Act::Draw,
                },
                false => Act::Draw,
            }
        };
        match act {
            Act::Quit => break,
            Act::Draw => {}
            Act::Refresh => {
                state.refresh(source);
                last = Instant::now();
                first = false;
            }
        }
    }
    Ok(())
}
