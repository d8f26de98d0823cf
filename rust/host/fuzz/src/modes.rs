// SPDX-License-Identifier: GPL-2.0-only

//! Words that stand for something: modes of `fairshare`, sets of fields, operations, sources of high priority.

use nrs_sched::{
    attr::Opcode,
    key::Field,
    policy::fairshare::mode::{Level, Mode, DEPTH_MAX},
    rules::Fields,
    sources::Sources,
};

/// Takes the text as each of them.
pub fn run(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else {
        return;
    };
    match Mode::parse(text) {
        Ok(mode) => {
            let shown = mode.to_string();
            // There is one way to write it.
            assert_eq!(shown, text.strip_suffix('\n').unwrap_or(text));
            assert_eq!(Mode::parse(&shown), Ok(mode));
            let levels = mode.levels();
            assert!((1..=DEPTH_MAX).contains(&levels.len()));
            assert_eq!(levels.len(), mode.depth());
            assert_eq!(mode.has_size(), levels.contains(&Level::Size));
            for (at, level) in levels.iter().enumerate() {
                let before = levels[..at].iter();
                assert!(before
                    .map(|level| level.field())
                    .all(|field| field != level.field()));
            }
        }
        Err(error) => assert!(!error.reason.is_empty() && !error.reason.contains('\n')),
    }
    match Fields::parse(text) {
        Ok(fields) => {
            let shown = fields.to_string();
            assert_eq!(Fields::parse(&shown), Ok(fields), "{text:?} {shown:?}");
            assert!(fields.iter().count() >= 1 && shown.len() <= 64);
            let words = text.split('+').filter_map(Field::parse);
            let count = words.clone().count();
            assert!(text == "generic" || words.into_iter().all(|field| fields.has(field)));
            assert!(text == "generic" || count >= fields.iter().count());
            assert_eq!(fields.single().is_some(), fields.iter().count() == 1);
        }
        Err(error) => assert!(!error.reason.is_empty() && !error.reason.contains('\n')),
    }
    if let Some(field) = Field::parse(text) {
        assert_eq!(field.name(), text);
    }
    if let Some(opcode) = Opcode::parse(text) {
        assert_eq!(
            (opcode.name(), opcode.to_string().as_str()),
            (Some(text), text)
        );
    }
    match Sources::parse(text) {
        Ok(sources) => {
            let shown = sources.to_string();
            assert_eq!(Sources::parse(&shown), Ok(sources));
            assert_eq!(Sources::from_bits(sources.bits()), sources);
            let words = text.split_ascii_whitespace().count();
            assert!(
                words == shown.split(' ').count() || text.trim() == "none",
                "{text:?}"
            );
        }
        Err(error) => assert!(!error.reason.is_empty() && !error.reason.contains('\n')),
    }
}
