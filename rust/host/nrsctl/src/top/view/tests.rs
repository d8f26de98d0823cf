// SPDX-License-Identifier: GPL-2.0-only

//! Tests of complete screens.

use std::time::Duration;

use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;
use ratatui::Terminal;

use nrs_agent::status::{PeerNumbers, PeerStatus, ServiceNumbers};

use super::*;
use crate::failure::{failure, Failure, FailureKind};
use crate::top::samples;

fn showing(sample: impl Fn(u64) -> Snapshot, sort: Column) -> TopState {
    let mut state = TopState::new(None, Duration::from_secs(2), sort, "");
    state.take(sample(0));
    state.take(sample(1));
    state
}

fn terminal(state: &mut TopState, width: u16, height: u16) -> (Terminal<TestBackend>, usize) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let mut formatted = 0;
    let draw = |frame: &mut ratatui::Frame<'_>| {
        let seen = rows(state, frame.area().height);
        state.set_page(seen);
        formatted = draw(state, frame.buffer_mut());
    };
    terminal.draw(draw).unwrap();
    (terminal, formatted)
}

/// Returns the lines of the screen without trailing blanks.
fn screen(state: &mut TopState, width: u16, height: u16) -> String {
    let (terminal, _) = terminal(state, width, height);
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for y in 0..height {
        let line: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        text += line.trim_end();
        text.push('\n');
    }
    text
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

#[test]
fn shares_on_80_by_24() {
    let mut state = showing(samples::fairshare, Column::Got);
    let screen = screen(&mut state, 80, 24);
    let mut want = vec![
        "nrs ost_io                                                             every 2 s",
        "regular: fairshare uid_then_jobid_fair  high: fifo",
        "slots 7 of 8 used  queued 374  healthy",
        "NAME                  POLICY      WANT    GOT REQ/S   B/S QUEUE   P50   P99",
        "uid:1001/jobid:small  fairshare  50.0%  50.4%   400 26.2M     8  41ms  84ms",
        "uid:1002/jobid:large  fairshare  25.0%  25.4%   200 13.1M   300  44ms  84ms",
        "uid:1002/jobid:medium fairshare  25.0%  25.4%   200 13.1M    66  42ms  84ms",
    ];
    want.extend([""; 16]);
    want.push("1-3 of 3  sort got  h help  q quit");
    assert_eq!(lines(&screen), want);
}

#[test]
fn all_columns_fit_80_cells() {
    let both = |n| {
        let mut snapshot = samples::fairshare(n);
        snapshot.entities.extend(samples::tbf(n).entities);
        snapshot.counters.insert("slots".into(), 16);
        snapshot.unhealthy = Some("no decision for 5 s\x1b[2J".into());
        snapshot
    };
    let mut state = showing(both, Column::Got);
    state.key(KeyCode::Char('r').into());
    let screen = screen(&mut state, 80, 12);
    let want = [
        "nrs ost_io                                                             every 2 s",
        "regular: fairshare uid_then_jobid_fair  high: fifo",
        "slots 7 of 8 used (set to 16)  queued 374  NOT HEALTHY: no decision for 5 s\\u{1~",
        "NAME            POLICY    WANT  GOT REQ/S   B/S QUEUE   P50   P99    LIMIT HIT/S",
        "~02/jobid:large fairshare  25%  25%   200 13.1M   300  44ms  84ms        -     0",
        "~2/jobid:medium fairshare  25%  25%   200 13.1M    66  42ms  84ms        -     0",
        "uid:1001        tbf:defa~    -  50%   650     -     0     -     -    10000     0",
        "uid:1002        tbf:gree~    -  50%   650 10.0M    75     -     -   10MB/s   150",
        "~01/jobid:small fairshare  50%  50%   400 26.2M     8  41ms  84ms        -     0",
        "",
        "",
        "1-5 of 5  sort got reversed  h help  q quit",
    ];
    assert_eq!(lines(&screen), want);
}

#[test]
fn a_line_of_the_agent() {
    let mut state = showing(samples::fairshare, Column::Got);
    let peer = |datagrams, age_us, lost| PeerStatus {
        numbers: PeerNumbers {
            datagrams,
            age_us,
            lost,
            ..PeerNumbers::default()
        },
        ..PeerStatus::default()
    };
    state.agent = Some(ServiceStatus {
        numbers: ServiceNumbers {
            servers: 2,
            known: 12,
            lowered: 3,
            ..ServiceNumbers::default()
        },
        peers: vec![peer(99, 42_000, 1), peer(100, 7_000, 0), peer(0, 0, 0)],
        ..ServiceStatus::default()
    });
    let all = screen(&mut state, 80, 24);
    let all = lines(&all);
    let line = "agent: servers 2  oldest 42ms  lost 1.0%  reduced 3 of 12";
    assert_eq!(
        (all[3], &all[4][..4], &all[7][..8]),
        (line, "NAME", "uid:1002")
    );
    assert!(!screen(&mut state, 80, 9).contains("agent"));
    state.agent.as_mut().unwrap().failure = Some("no\nservice".into());
    let all = screen(&mut state, 80, 24);
    assert_eq!(lines(&all)[3], "agent: no\\nservice");
}

#[test]
fn small_terminals() {
    let mut state = showing(samples::tbf, Column::Hits);
    for (width, height, want) in [
        (
            40,
            7,
            &[
                "nrs ost_io                     every 2 s",
                "NAME            GOT   B/S QUEUE HIT/S",
                "uid:1002      50.0% 10.0M    75   150",
                "uid:1001      50.0%     -     0     0",
                "",
                "",
                "1-2 of 2  sort hits  h help  q quit",
            ][..],
        ),
        (
            20,
            5,
            &[
                "nrs ost_io every 2 s",
                "NAME         HIT/S",
                "uid:1002       150",
                "uid:1001         0",
                "1-2 of 2  sort hits~",
            ],
        ),
        (9, 3, &["NAME", "uid:1002", "1-1 of 2~"]),
        (5, 2, &["NAME", "~1002"]),
        (3, 1, &["~02"]),
    ] {
        assert_eq!(lines(&screen(&mut state, width, height)), want);
    }
}

#[test]
fn no_size_is_too_small_or_too_large() {
    let mut help = showing(samples::tbf, Column::Got);
    help.key(KeyCode::Char('h').into());
    let mut failed = showing(samples::tbf, Column::Got);
    failed.fail(Failure::new(FailureKind::Other, "why \u{1f980} ".repeat(30)).hint("what to do"));
    let mut editing = showing(samples::fairshare, Column::Got);
    editing.key(KeyCode::Char('/').into());
    editing.key(KeyCode::Char('x').into());
    let nothing = TopState::new(None, Duration::from_secs(2), Column::Got, "");
    let many = showing(|n| samples::many(n, 300), Column::Name);
    for mut state in [help, failed, editing, nothing, many] {
        for width in [0, 1, 2, 7, 12, 19, 20, 79, 80, 81, 300] {
            for height in (0..14).chain([24, 100]) {
                terminal(&mut state, width, height);
            }
        }
    }
}

#[test]
fn only_rows_that_are_seen_are_formatted() {
    let mut state = showing(|n| samples::many(n, 10_000), Column::Requests);
    let (_, formatted) = terminal(&mut state, 80, 24);
    assert_eq!(formatted, 19);
    state.key(KeyCode::PageDown.into());
    let screen = screen(&mut state, 80, 24);
    let all = lines(&screen);
    assert_eq!(
        all[4],
        "uid:9980     fairshare  <0.1%  <0.1%  9980 40.9M     5  10ms  30ms"
    );
    assert_eq!(all[23], "20-38 of 10000  sort requests  h help  q quit");
}

#[test]
fn status_line_shows_filter_and_sort() {
    let line = |state: &mut TopState, n: usize| lines(&screen(state, 80, 24))[n].to_string();
    let mut state = showing(samples::tbf, Column::Got);
    for c in "/Green".chars() {
        state.key(KeyCode::Char(c).into());
    }
    assert_eq!(line(&mut state, 23), "/Green_");
    assert_eq!(
        line(&mut state, 4),
        "no name, policy or rule contains 'Green'"
    );
    state.key(KeyCode::Backspace.into());
    state.key(KeyCode::Backspace.into());
    state.key(KeyCode::Enter.into());
    state.key(KeyCode::Char('r').into());
    state.key(KeyCode::Char('p').into());
    assert_eq!(
        line(&mut state, 23),
        "1-1 of 1  sort got reversed  filter Gre  h help  q quit"
    );
    assert_eq!(line(&mut state, 0), format!("{:<74}paused", "nrs ost_io"));

    state.fail(failure!(NotLoaded: "the module nrs is not loaded"; "load it: modprobe nrs"));
    let screen = screen(&mut state, 80, 24);
    let all = lines(&screen);
    assert_eq!(
        all[1..6],
        [
            "",
            "",
            "",
            "the module nrs is not loaded",
            "load it: modprobe nrs"
        ]
    );
    assert_eq!(all[6..23], [""; 17]);

    let mut state = showing(|n| samples::many(n, 0), Column::Got);
    assert_eq!(
        line(&mut state, 4),
        "no entities: no policy with entities is started, or it has had no requests"
    );
}

/// Verifies that words are wrapped by their width in cells: three words of six cells fit 22 cells.
#[test]
fn wide_characters_are_wrapped() {
    let mut state = showing(samples::tbf, Column::Got);
    let message = "\u{4f60}\u{597d}\u{4f60} ".repeat(6);
    state.fail(Failure::new(FailureKind::Other, message));
    let screen = screen(&mut state, 22, 24);
    let mut all = lines(&screen);
    all.retain(|line| line.contains('\u{4f60}'));
    assert_eq!(all.len(), 2, "{screen}");
}

#[test]
fn the_help_fits_80_by_24() {
    let mut state = showing(samples::tbf, Column::Got);
    state.key(KeyCode::Char('?').into());
    let screen = screen(&mut state, 80, 24);
    let all = lines(&screen);
    assert_eq!(
        all[4],
        "Up Down PgUp PgDn  rows, pages            NAME   entity of the policy"
    );
    assert_eq!(
        all[14],
        format!("{:<42}HIT/S  throttled, times per second", "")
    );
    assert_eq!(all[19], "is yellow if requests are throttled.");
    assert_eq!(all[23], "1-2 of 2  sort got  h help  q quit");
}

#[test]
fn colours_only_repeat_what_is_written() {
    let with = |n| {
        let mut snapshot = samples::fairshare(n);
        snapshot.entities[0].share_1s = Some(0.1);
        snapshot.entities.extend(samples::tbf(n).entities);
        snapshot
    };
    let mut state = showing(with, Column::Name);
    let plain = screen(&mut state, 80, 24);
    let (without, _) = terminal(&mut state, 80, 24);
    let cells = &without.backend().buffer().content;
    assert!(cells
        .iter()
        .all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    state.colours = true;
    assert_eq!(screen(&mut state, 80, 24), plain);
    let (coloured, _) = terminal(&mut state, 80, 24);
    let cells = &coloured.backend().buffer().content;
    for colour in [Color::Red, Color::Yellow, Color::Cyan] {
        assert!(cells.iter().any(|cell| cell.fg == colour), "{colour}");
    }
}

#[test]
fn policies_of_heads() {
    let mut snapshot = samples::tbf(0);
    assert_eq!(policies(&snapshot.heads), "regular: tbf uid  high: fifo");
    snapshot.heads[0].policies[1].state = "stopping".into();
    assert_eq!(
        policies(&snapshot.heads),
        "regular: tbf uid (stopping)  high: fifo"
    );
    snapshot.heads[0].policies[1].state = "stopped".into();
    assert_eq!(policies(&snapshot.heads), "regular, high: fifo");
    snapshot.heads[0].policies.clear();
    assert_eq!(policies(&snapshot.heads), "regular: none  high: fifo");
}
