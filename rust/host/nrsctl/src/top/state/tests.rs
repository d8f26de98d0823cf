// SPDX-License-Identifier: GPL-2.0-only

//! Tests of the state with keys and snapshots.

use super::*;
use crate::failure::{failure, FailureKind, Result};
use crate::top::samples;

fn state(sort: Column) -> TopState {
    let mut state = TopState::new(None, Duration::from_secs(2), sort, "");
    state.set_page(10);
    state
}

/// Returns a state with the snapshots of `sample` at seconds 0 and 1.
fn showing(sample: impl Fn(u64) -> Snapshot, sort: Column) -> TopState {
    let mut state = state(sort);
    state.take(sample(0));
    state.take(sample(1));
    state
}

fn press(state: &mut TopState, keys: &str) -> Act {
    let mut act = Act::Draw;
    for c in keys.chars() {
        let code = match c {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '\x1b' => KeyCode::Esc,
            '\x08' => KeyCode::Backspace,
            c => KeyCode::Char(c),
        };
        act = state.key(code.into());
    }
    act
}

fn names(state: &TopState) -> Vec<&str> {
    let rows = state.visible().filter_map(|n| state.row(n));
    rows.map(|row| row.entity.name.as_str()).collect()
}

/// Source with the given services, which is readable if the flag is true.
struct Some3(Vec<&'static str>, bool);

impl Source for Some3 {
    fn services(&mut self) -> Result<Vec<String>> {
        match self.1 {
            true => Ok(self.0.iter().map(ToString::to_string).collect()),
            false => Err(failure!(NotLoaded: "the module nrs is not loaded")),
        }
    }

    fn snapshot(&mut self, service: &str) -> Result<Option<Snapshot>> {
        let gone = || failure!(NotFound: "no service '{service}'");
        let found = self
            .0
            .iter()
            .find(|name| **name == service)
            .ok_or_else(gone)?;
        Ok(Some(Snapshot {
            service: found.to_string(),
            ..samples::tbf(1)
        }))
    }

    fn is_live(&self) -> bool {
        true
    }
}

#[test]
fn every_column_sorts() {
    let sorted = |sample: fn(u64) -> Snapshot, column, keys: &str| {
        let mut state = showing(sample, column);
        press(&mut state, keys);
        let names = names(&state).into_iter();
        let last = names.map(|name| name.rsplit([':', '/']).next().unwrap().to_string());
        last.collect::<Vec<_>>().join(" ")
    };
    use Column::{Bytes, Got, Hits, Limit, Name, Policy, Queued, P50};
    for column in Column::all().iter().copied() {
        let want = match column {
            Queued | P50 => "large medium small",
            _ => "small large medium",
        };
        assert_eq!(sorted(samples::fairshare, column, ""), want, "{column:?}");
    }
    // In reverse order, equal rows stay sorted by name, and unknown values stay last.
    for (column, want) in [
        (Name, "medium large small"),
        (Got, "large medium small"),
        (Queued, "small medium large"),
        (Limit, "small large medium"),
    ] {
        assert_eq!(sorted(samples::fairshare, column, "r"), want, "{column:?}");
    }
    for (column, want, turned) in [
        (Policy, "1001 1002", "1002 1001"),
        (Limit, "1002 1001", "1001 1002"),
        (Hits, "1002 1001", "1001 1002"),
        (Bytes, "1002 1001", "1002 1001"),
    ] {
        assert_eq!(sorted(samples::tbf, column, ""), want, "{column:?}");
        assert_eq!(sorted(samples::tbf, column, "r"), turned, "{column:?}");
    }
}

#[test]
fn keys_choose_the_column() {
    let mut state = showing(samples::fairshare, Column::Got);
    for (keys, column) in [
        ("rs", Column::Requests),
        (">>", Column::Queued),
        ("<", Column::Bytes),
    ] {
        press(&mut state, keys);
        assert_eq!((state.sort, state.reverse), (column, false));
    }
    for (key, column) in [
        (KeyCode::Right, Column::Queued),
        (KeyCode::Left, Column::Bytes),
    ] {
        state.key(key.into());
        assert_eq!(state.sort, column);
    }
}

#[test]
fn the_filter_is_typed() {
    let mut state = showing(samples::fairshare, Column::Name);
    // While the filter is edited, letters are not commands.
    assert_eq!(press(&mut state, "/Q1002"), Act::Draw);
    assert_eq!(names(&state), [""; 0]);
    for _ in 0..5 {
        press(&mut state, "\x08");
    }
    press(&mut state, "JOBID:L\n");
    assert_eq!((&*state.filter, state.editing), ("JOBID:L", false));
    assert_eq!(names(&state), ["uid:1002/jobid:large"]);
    // The filter is kept for later snapshots.
    state.take(samples::fairshare(2));
    assert_eq!(state.len(), 1);
    press(&mut state, "\x1b");
    assert_eq!((&*state.filter, state.editing, state.len()), ("", false, 3));
    press(&mut state, "/x\x1b");
    assert_eq!((&*state.filter, state.editing, state.len()), ("", false, 3));
    let mut state = showing(samples::tbf, Column::Name);
    press(&mut state, "/tbf:greedy\n");
    assert_eq!(names(&state), ["uid:1002"]);
}

#[test]
fn rows_are_scrolled() {
    let mut state = showing(|n| samples::many(n, 95), Column::Requests);
    assert_eq!(state.visible(), 0..10);
    assert_eq!(names(&state)[0], "uid:94");
    for (key, want) in [
        (KeyCode::Down, 1..11),
        (KeyCode::PageDown, 11..21),
        (KeyCode::Up, 10..20),
        (KeyCode::PageUp, 0..10),
        (KeyCode::PageUp, 0..10),
        (KeyCode::End, 85..95),
        (KeyCode::Down, 85..95),
        (KeyCode::PageDown, 85..95),
        (KeyCode::Home, 0..10),
        (KeyCode::Up, 0..10),
    ] {
        state.key(key.into());
        assert_eq!(state.visible(), want, "{key:?}");
    }
    // The terminal becomes larger, then has no lines; then there are fewer entities.
    state.key(KeyCode::End.into());
    state.set_page(40);
    assert_eq!(state.visible(), 55..95);
    state.set_page(0);
    assert_eq!(state.visible().len(), 0);
    state.set_page(200);
    assert_eq!(state.visible(), 0..95);
    state.set_page(10);
    state.key(KeyCode::End.into());
    state.take(samples::many(2, 12));
    assert_eq!(state.visible(), 2..12);
    state.take(samples::many(3, 0));
    assert_eq!(state.visible(), 0..0);
}

#[test]
fn services_are_gone_through() {
    let mut source = Some3(vec!["a", "b", "c"], true);
    let mut state = state(Column::Got);
    state.refresh(&mut source);
    assert_eq!(state.service(), Some(("a", Some(0), 3)));
    for want in ["b", "c", "a"] {
        assert_eq!(press(&mut state, "\t"), Act::Refresh);
        // The snapshot of another service is not displayed.
        assert!(state.snapshot().is_none());
        state.refresh(&mut source);
        assert_eq!(state.service().unwrap().0, want);
        assert_eq!(state.row(0).unwrap().rates.requests, None);
    }
    state.key(KeyCode::BackTab.into());
    state.refresh(&mut source);
    assert_eq!(state.service(), Some(("c", Some(2), 3)));
    // The displayed service is removed, and another one is added.
    source.0 = vec!["a", "d"];
    state.refresh(&mut source);
    assert_eq!(state.failure.as_ref().unwrap().message, "no service 'c'");
    assert_eq!((state.service(), state.len()), (Some(("c", None, 2)), 0));
    press(&mut state, "\t");
    state.refresh(&mut source);
    assert_eq!((state.service(), state.len()), (Some(("a", Some(0), 2)), 2));
}

#[test]
fn a_module_that_is_gone_may_come_back() {
    let mut source = Some3(vec!["a"], true);
    let mut state = state(Column::Got);
    state.refresh(&mut source);
    source.1 = false;
    state.refresh(&mut source);
    assert_eq!(state.failure.as_ref().unwrap().kind, FailureKind::NotLoaded);
    assert!(state.snapshot().is_none() && state.row(0).is_none());
    // Keys have no effect.
    assert_eq!(press(&mut state, "rs<>/x\n\x1b"), Act::Draw);
    assert_eq!(press(&mut state, "\t"), Act::Refresh);
    source.1 = true;
    state.refresh(&mut source);
    assert_eq!((&state.failure, state.len()), (&None, 2));
    // A module without services.
    source.0.clear();
    let mut state = self::state(Column::Got);
    state.refresh(&mut source);
    assert_eq!(state.failure.as_ref().unwrap().message, "no services exist");
    assert_eq!(press(&mut state, "\t"), Act::Refresh);
}

#[test]
fn the_end_of_a_recording_leaves_the_last_table() {
    let mut source = crate::top::source::Replay::new(crate::recording::Recording {
        header: Default::default(),
        snapshots: vec![samples::tbf(0), samples::tbf(1)],
        cut: None,
    });
    let mut state = state(Column::Got);
    for ended in [false, false, true, true] {
        state.refresh(&mut source);
        assert_eq!((state.ended, state.len()), (ended, 2));
    }
    assert_eq!(state.row(0).unwrap().rates.requests, Some(650.0));
    assert_eq!(
        source.snapshot("c").unwrap_err().kind,
        FailureKind::NotFound
    );
}

#[test]
fn other_keys() {
    let mut state = showing(samples::tbf, Column::Got);
    assert_eq!(press(&mut state, "p"), Act::Draw);
    assert!(state.paused);
    assert_eq!(press(&mut state, "p"), Act::Refresh);
    press(&mut state, "h");
    assert!(state.help);
    assert_eq!(press(&mut state, "q"), Act::Draw);
    assert!(!state.help);
    press(&mut state, "?s");
    assert_eq!((state.help, state.sort), (false, Column::Requests));
    for (keys, ms) in [
        ("+", 5000),
        ("--", 1000),
        ("----------", 100),
        ("++++++++++++", 60_000),
    ] {
        press(&mut state, keys);
        assert_eq!(state.interval, Duration::from_millis(ms));
    }
    assert_eq!(press(&mut state, "q"), Act::Quit);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    press(&mut state, "/");
    assert_eq!(state.key(interrupt), Act::Quit);
}
