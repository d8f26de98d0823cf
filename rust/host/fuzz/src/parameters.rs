// SPDX-License-Identifier: GPL-2.0-only

//! Every parameter of the schema: the first byte names one that stores a value, each line of the rest is a value for it.
//! All of them together are a value for the parameters that are texts.

use nrs_sched::parameters::{all, Parameter, Stored, Values};

use crate::check_reason;

/// Returns `parameter` of `values` as it is shown.
fn shown(stored: &Stored, values: &Values) -> String {
    let mut text = String::new();
    (stored.show)(values, &mut text).expect("strings take all");
    text
}

/// Checks what holds for any value `text` of `parameter`; `values` are set to it if it is taken.
fn set(parameter: &Parameter, stored: &Stored, values: &mut Values, text: &str) {
    let (name, before) = (parameter.name(), *values);
    match values.set(stored, text) {
        Ok(()) => {
            let check = parameter.check.expect("what is stored is checked");
            assert_eq!(check(text), Ok(()), "{name} {text:?}");
            assert_eq!(values.check(), Ok(()), "{name} {text:?}");
            let text = shown(stored, values);
            assert_eq!(
                text.lines().count(),
                1 + usize::from(parameter.heads),
                "{name}"
            );
            // What is shown is taken, a line at a time, and says the same.
            let mut again = *values;
            for line in text.lines() {
                assert_eq!(
                    again.set(stored, line.trim_end()),
                    Ok(()),
                    "{name} {line:?}"
                );
            }
            assert_eq!(again, *values, "{name} {text:?}");
        }
        Err(error) => {
            assert_eq!(*values, before, "{name} {text:?}");
            check_reason(&error);
        }
    }
}

/// Takes the first byte as the name of a parameter, the lines of the rest as values.
pub fn run(first: u8, text: &str) {
    let stored: Vec<_> = all()
        .filter_map(|one| Some((one, one.value.as_ref()?)))
        .collect();
    let mut values = Values::default();
    for (at, line) in text.split_inclusive('\n').take(32).enumerate() {
        // Neighbours in the list may contradict each other.
        let which = (usize::from(first) + at % 3) % stored.len();
        let (parameter, stored) = stored[which];
        set(parameter, stored, &mut values, line);
    }
    for check in all()
        .filter(|one| one.value.is_none())
        .filter_map(|one| one.check)
    {
        if let Err(error) = check(text) {
            check_reason(&error);
        }
    }
}
