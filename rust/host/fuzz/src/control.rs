// SPDX-License-Identifier: GPL-2.0-only

//! Commands of the control node.

use nrs_sched::control::Command;

/// Whether `text` is one word that prints.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| (b'!'..=b'~').contains(&byte))
}

/// Takes a command.
pub fn run(text: &str) {
    match Command::parse(text) {
        Ok(command) => {
            let written = match command {
                Command::Services => "services".to_owned(),
                Command::Get { service, name } => {
                    assert!(is_word(service) && is_word(name));
                    format!("get {service} {name}")
                }
                Command::Set {
                    service,
                    name,
                    value,
                } => {
                    assert!(is_word(service) && is_word(name));
                    format!("set {service} {name} {value}")
                }
            };
            // It is what was written; a line end more or less, and the blank before no value, make no difference.
            let end = written.trim_end_matches(' ');
            let said = text.strip_suffix('\n').unwrap_or(text);
            assert!(said == written || said == end, "{text:?}");
            assert_eq!(Command::parse(&format!("{written}\n")), Ok(command));
        }
        Err(error) => {
            crate::check_reason(&error);
            let mut words = text.strip_suffix('\n').unwrap_or(text).split(' ');
            let valid = match words.next() {
                Some("services") => words.next().is_none(),
                Some("get") => words.all(is_word) && text.split(' ').count() == 3,
                Some("set") => words.take(2).filter(|word| is_word(word)).count() == 2,
                _ => false,
            };
            assert!(!valid, "{text:?}");
        }
    }
}
